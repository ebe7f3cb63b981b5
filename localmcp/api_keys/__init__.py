"""API keys: what each of them opens, and for how long."""

from localmcp.api_keys.key_info import KeyInfo as KeyInfo
from localmcp.api_keys.key_info import NewKey as NewKey
from localmcp.api_keys.keyring import ApiKeys as ApiKeys
