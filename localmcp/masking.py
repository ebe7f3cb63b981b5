"""Removing secrets from what is kept or shown: by the names of fields, and by how keys look (S0-29)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

MASK = "***"

_SECRET_WORDS = frozenset(
    "key keys apikey apikeys token tokens secret secrets password passwords passwd passphrase passcode pwd pin otp "
    "authorization auth credential credentials cookie cookies bearer jwt".split()
)
_SECRET_PARTS = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|authorization|apikey|cookie|"
    r"(?:access|auth|bearer|refresh|session|id|api)_?token|(?:access|private|signing|encryption|license|master)_?key",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# A text may be cut in the middle of a secret, so no pattern needs its end.
_LOOKS_SECRET = re.compile(
    r"""
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?:(?!-----END).)*(?:-----END[ ][A-Z ]*-----)?
    | mcp_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6,}|[a-z]{24,})      # ours; a tool may be called mcp_something
    | (?<![A-Za-z0-9])(?:
          (?i:bearer)\s+[A-Za-z0-9._~+/=-]{6,}
        | (?i:basic)\s+(?=[a-z]*[A-Z0-9+/=])[A-Za-z0-9+/=]{6,}
        | (?:sk|rk)[-_][A-Za-z0-9_-]{6,}                        # OpenAI, Anthropic, Stripe
        | (?:gh[opusr]|glpat|dop_v1|shpat|xox[abeoprs]|xapp)[-_][A-Za-z0-9_-]{6,} | (?:hf|npm)_[A-Za-z0-9]{20,}
        | github_pat_\w{10,} | pypi-[\w-]{16,} | SG\.[\w-]{10,}[\w.-]*
        | (?:AKIA|ASIA)[A-Z0-9]{8,} | AIza[\w-]{20,}
        | eyJ[\w-]{8,}[\w.-]*                                   # JSON web tokens
      )
    """,
    re.VERBOSE | re.DOTALL,
)
_PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,20}://)(?:[^\s/?#]*@)?(?P<place>[^\s?#\"']*)(?:[?#][^\s\"']*)?", re.IGNORECASE
)
TOKEN_IN_PATH = re.compile(r"(?<=/)(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w.~=-]{20,}(?=/|$)")
"""A segment that no person would write; links to hosted servers have their key there."""
_ASSIGNED = re.compile(
    r"""
    (?P<name>
        (?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization)[\w-]{0,40}
        \\?["']?\s*(?:=|:(?!//))\s*
    )
    (?:"[^"]*"?|'[^']*'?|\\"(?:(?!\\").)*(?:\\")?|[^\s,;&"'}\])]+)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def names_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret: `api_key`, `apiKey`, `Authorization`; not `keywords`."""
    words = {word.lower() for word in _WORD.findall(name)}
    return not words.isdisjoint(_SECRET_WORDS) or _SECRET_PARTS.search(name) is not None


def mask_text(text: str) -> str:
    """Return the text with every part that looks like a key, a password or a token replaced by `***`."""
    text = _LOOKS_SECRET.sub(MASK, text)
    text = _PASSWORD_IN_URL.sub(rf"\g<1>{MASK}", text)
    return _ASSIGNED.sub(rf"\g<name>{MASK}", text)


def mask_secrets(value: Any, name: str = "") -> Any:
    """Return a JSON value without its secrets: values of secret fields, and parts of texts that look like secrets.

    Keys of objects are checked as texts too. true, false and null are no secrets and stay.
    """
    if value is None or isinstance(value, bool):
        return value
    if names_secret(name):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {mask_text(str(key)): mask_secrets(item, str(key)) for key, item in items}
    if isinstance(value, list | tuple):
        return [mask_secrets(item) for item in cast("list[Any]", value)]
    return value


def mask_urls(text: str) -> str:
    """Return the text with URLs that only say where they lead: no user, no query, no key as a part of the path."""
    return _URL.sub(lambda match: match["scheme"] + TOKEN_IN_PATH.sub(MASK, match["place"]), text)


def mask_arguments(arguments: Iterable[str], *, filled_in: bool = False) -> list[str]:
    """Return the arguments of a program without secrets.

    `${NAME}` stays, as it only says where the secret is, unless variables are `filled_in`.
    """
    shown: list[str] = []
    is_secret = False
    for argument in arguments:
        option, assigned, _ = argument.partition("=")
        names_one = option.startswith("-") and names_secret(option)
        if "${" in argument and not filled_in:
            shown.append(argument)
        elif is_secret and not option.startswith("-"):
            shown.append(MASK)
        elif names_one and assigned:
            shown.append(f"{option}={MASK}")
        else:
            shown.append(mask_text(mask_urls(argument)))
        is_secret = names_one and not assigned
    return shown
