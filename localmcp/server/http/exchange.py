"""One request as the endpoints see it, and calls of tools by the endpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread
from mcp.types import INVALID_REQUEST
from starlette.requests import Request

from localmcp.errors import LocalMCPError
from localmcp.schemas import without_surrogates
from localmcp.server.http.authentication import request_scope
from localmcp.server.http.limits import parse_json
from localmcp.server.http.log_lines import LONGEST, say
from localmcp.server.http.replies import SERVER_ERROR, Refused
from localmcp.server.wire_values import OpenOnce, log_incident
from localmcp.tools import Answer, CallCancellation, Json, Scope, use_cancellation

if TYPE_CHECKING:
    from localmcp.api_keys.key_info import KeyInfo

PARALLEL_CALLS = 16
CALL_SECONDS = 300.0
"""After this a call is given up; tools that take long answer within 20 s with the id of a job."""
KEY_SECONDS = 5.0
"""How often an open stream looks whether its key is still active."""


@dataclass(slots=True)
class Exchange:
    """A request that has been let in, with its whole body."""

    request: Request
    path: str
    """Without a slash at its end."""
    key: KeyInfo
    body: bytes = b""
    started: float = field(default_factory=time.perf_counter)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def json(self) -> Any:
        """Return the body's value.

        Raises:
            Refused: it is no JSON.
        """
        return parse_json(self.body)

    def json_object(self) -> Json:
        """Return the body's value, which must be an object; U+FFFD for every lone surrogate in it.

        Raises:
            Refused: it is something else.
        """
        value = self.json()
        if not isinstance(value, dict):
            raise Refused(400, "Invalid request body", code=INVALID_REQUEST, details="the body must be a JSON object")
        return cast(Json, without_surrogates(value))

    def seconds(self) -> float:
        """Return the seconds since the request was let in."""
        return time.perf_counter() - self.started

    def log_response(self, status: int, request: str = "") -> None:
        """Log the end of `request`, by default its method and path."""
        request = request or f"{self.method} {self.path}"
        say(f"HTTP Transport response: {request}", status=status, ms=round(self.seconds() * 1000, 1))


class Calls:
    """Runs tools in worker threads, in the scope of the request."""

    def __init__(self, open_workspace: OpenOnce) -> None:
        self.open_workspace = open_workspace
        self._limiter = anyio.CapacityLimiter(PARALLEL_CALLS)

    async def run(
        self, name: str, arguments: Json, *, scope: Scope | None = None, seconds: float = CALL_SECONDS
    ) -> Answer:
        """Return the tool's answer.

        Raises:
            LocalMCPError: what the tool raises; for a bug, one that names the incident in the log.
            Refused: 504, no answer within `seconds`; programs and other servers are told, our tools finish.
        """
        say(f"Executing tool: {name[:LONGEST]}", key=request_scope().caller)
        work = partial(self._call, name, arguments, scope or request_scope())
        cancellation = CallCancellation()
        with anyio.move_on_after(seconds), use_cancellation(cancellation):
            return await anyio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        cancellation.cancel()
        raise Refused(504, f"{name} gave no answer within {seconds:g} s", code=SERVER_ERROR)

    async def wait_for_end_of(self, key_id: str) -> None:
        """Return when the key is revoked, expired or deleted; a file that cannot be read ends no key."""
        while await anyio.to_thread.run_sync(self._opens, key_id):
            await anyio.sleep(KEY_SECONDS)
        say("The key of a stream is no longer active", key=key_id)

    def _opens(self, key_id: str) -> bool:
        try:
            return self.open_workspace().api_keys.opens(key_id)
        except LocalMCPError:
            return True

    def _call(self, name: str, arguments: Json, scope: Scope) -> Answer:
        try:
            return self.open_workspace().registry.call(name, arguments, scope)
        except LocalMCPError:
            raise
        except BaseException as error:
            # Panics of libraries written in Rust derive from BaseException.
            raise LocalMCPError(log_incident(name)) from error
