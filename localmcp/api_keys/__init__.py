"""API keys: what each of them opens, and for how long."""

from localmcp.api_keys.keyring import ApiKeys as ApiKeys
from localmcp.api_keys.keyring import KeyInfo as KeyInfo
from localmcp.api_keys.keyring import unknown_names as unknown_names
