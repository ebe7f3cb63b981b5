"""Calls of tools by the endpoints, in worker threads and in the scope of the request's key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from localmcp.errors import LocalMCPError
from localmcp.server.http.authentication import request_scope
from localmcp.server.http.log_lines import LONGEST, say
from localmcp.server.http.replies import SERVER_ERROR, Refused
from localmcp.server.opening import OpenOnce
from localmcp.server.results import log_incident
from localmcp.tools import Answer, CallCancellation, Json, Scope, use_cancellation

if TYPE_CHECKING:
    from localmcp.api_keys import KeyInfo

PARALLEL_CALLS = 16
CALL_SECONDS = 300.0
"""After this a call is given up; tools that take long answer within 20 s with the id of a job."""


class Calls:
    """Runs tools for the endpoints that are not the protocol's."""

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

    def _call(self, name: str, arguments: Json, scope: Scope) -> Answer:
        try:
            return self.open_workspace().registry.call(name, arguments, scope)
        except LocalMCPError:
            raise
        except BaseException as error:
            # Panics of libraries written in Rust derive from BaseException.
            raise LocalMCPError(log_incident(name)) from error

    def still_opens(self, key: KeyInfo) -> bool:
        """Return whether a key opens now what it opened then; a file that cannot be read ends no key."""
        try:
            now = self.open_workspace().api_keys.read(key.id)
        except LocalMCPError:
            return True
        return now is not None and now.status == "active" and now.scope() == key.scope()
