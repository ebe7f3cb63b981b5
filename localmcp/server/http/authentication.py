"""Authentication: the key in the Authorization header, and the scope it gives the request."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from starlette.requests import Request

from localmcp.errors import AccessDenied, LocalMCPError
from localmcp.server.http.log_lines import say
from localmcp.server.http.replies import SERVER_ERROR, Refused, refused_for
from localmcp.tools import Scope

if TYPE_CHECKING:
    from localmcp.api_keys.key_info import KeyInfo
    from localmcp.server.opening import OpenOnce

LONGEST_KEY = 200
PARALLEL_CHECKS = 2
"""A key that was verified before costs a read of some microseconds. The first check of a key, and every check of a
wrong one, costs a bcrypt (60 ms of one core)."""
MOST_WAITING = 64

_NOTHING = frozenset[str]()
NOBODY = Scope(
    caller="nobody", trusted=False, collections=_NOTHING, tools=_NOTHING, provider_names=_NOTHING, rights=_NOTHING
)
request_scope: ContextVar[Scope] = ContextVar("localmcp_request_scope", default=NOBODY)
"""The scope of the request that is being answered; outside of a request, one that may do nothing."""


class Authentication:
    """Checks the key of every request, so that a key revoked a moment ago is refused."""

    def __init__(self, open_workspace: OpenOnce) -> None:
        self._open_workspace = open_workspace
        self._checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._first_checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._guesses = anyio.CapacityLimiter(1)
        """Keys that begin as none of ours wait here, so that whoever guesses holds up only other guesses."""

    async def admit(self, request: Request) -> KeyInfo:
        """Return the key that the request carries; from here on `request_scope` is its scope.

        Raises:
            Refused: 401; 429 when too many keys wait to be checked; 500 when the file that holds them cannot be read.
        """
        key = _bearer_token(request)
        in_thread = anyio.to_thread.run_sync
        try:
            keys = (await in_thread(self._open_workspace, limiter=self._checks)).api_keys
            limiter = self._checks
            if not keys.has_verified(key):
                begins_like_ours = await in_thread(keys.has_beginning_of, key, limiter=self._checks)
                limiter = self._first_checks if begins_like_ours else self._guesses
            if limiter is not self._checks and limiter.statistics().tasks_waiting >= MOST_WAITING:
                raise Refused(429, "Too many requests", code=SERVER_ERROR, headers={"retry-after": "1"})
            info = await in_thread(keys.verify, key, limiter=limiter)
        except AccessDenied as error:
            # Only the holder of a key learns that it was revoked or has expired.
            raise _unauthorized(request, "Invalid API key", error.message) from error
        except LocalMCPError as error:
            raise refused_for(error) from error
        request_scope.set(info.scope())
        return info


def _bearer_token(request: Request) -> str:
    """Return the key in the one Authorization header.

    Raises:
        Refused: 401: no such header, several, or another scheme.
    """
    headers = request.headers.getlist("authorization")
    scheme, _, key = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not key.strip():
        raise _unauthorized(request, "Missing or invalid Authorization header")
    if len(key) > LONGEST_KEY or not key.isascii():
        raise _unauthorized(request, "Invalid API key")
    return key.strip()


def _unauthorized(request: Request, message: str, details: str | None = None) -> Refused:
    """Return the 401 of every path."""
    say("Unauthorized", path=request.url.path, reason=message)
    headers = {"www-authenticate": 'Bearer realm="localmcp"'}
    return Refused(401, f"Unauthorized: {message}", code=SERVER_ERROR, details=details, headers=headers)
