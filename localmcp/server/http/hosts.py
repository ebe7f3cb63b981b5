"""Check Host and Origin headers: refuse web pages whose host name resolves to this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can only be reached from this machine."""
    return host in LOOPBACK or _is_loopback_number(host)


def _is_loopback_number(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names under which this server may be addressed."""

    names: frozenset[str] = LOOPBACK
    any_number: bool = False
    """Any IP address too: a rebinding attack needs a name, and a server open to others cannot know its addresses."""
    origins: frozenset[str] = frozenset()
    """Further origins of web pages that may call."""

    @classmethod
    def of(cls, host: str, further: Iterable[str] = (), origins: Iterable[str] = ()) -> OwnNames:
        """Return the names of a server that listens on `host`."""
        remote = not is_loopback(host)
        lower = frozenset(name.strip().lower() for name in (host, *further) if name.strip())
        allowed = frozenset(origin.strip().lower().rstrip("/") for origin in origins if origin.strip())
        return cls(LOOPBACK | lower, remote, allowed)

    def allow_host(self, header: str | None) -> bool:
        """Return whether a request with this Host header is meant for us; the port is not compared."""
        match = _HOST.fullmatch(header or "")
        return match is not None and self._is_ours(match["name"])

    def allow_origin(self, header: str | None) -> bool:
        """Return whether a page of this origin may call; programs that are no browsers send none."""
        if header is None:
            return True
        if header.lower().rstrip("/") in self.origins:
            return True
        try:
            parts = urlsplit(header)
        except ValueError:
            return False
        user = "@" in parts.netloc
        bare = not (user or parts.path or parts.query or parts.fragment)
        return parts.scheme in ("http", "https") and bare and self.allow_host(parts.netloc)

    def _is_ours(self, name: str) -> bool:
        bare = name.strip("[]").lower()
        if bare in self.names:
            return True
        try:
            ip_address(bare)
        except ValueError:
            return False
        return self.any_number
