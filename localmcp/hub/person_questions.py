"""Questions of a server during a call (`elicitation/create`), handed to the client of that call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from localmcp.errors import LocalMCPError
from localmcp.schemas import mapping_of
from localmcp.tools import AskPerson, current_scope, person_asker

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _RunningCall:
    """A call that waits for the server."""

    clock: asyncio.Timeout
    ask: AskPerson | None
    caller: str
    seconds_left: float | None = None
    """Seconds that are left while a question is open."""

    def stop_clock(self) -> None:
        if (deadline := self.clock.when()) is not None:
            self.seconds_left = deadline - asyncio.get_running_loop().time()
            self.clock.reschedule(None)

    def start_clock(self) -> None:
        if self.seconds_left is not None:
            self.clock.reschedule(asyncio.get_running_loop().time() + self.seconds_left)
            self.seconds_left = None


class PersonQuestions:
    """The calls on one connection, to find whom a question is for. Lives in one event loop."""

    def __init__(self) -> None:
        self._calls: list[_RunningCall] = []
        self._open = 0
        """Questions that wait for the person."""

    @asynccontextmanager
    async def during(self, clock: asyncio.Timeout) -> AsyncGenerator[None]:
        """Let questions of this block reach the client of this call; `clock` pauses while one is open."""
        call = _RunningCall(clock, person_asker(), current_scope().caller)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def answer(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client whose call it is.

        The question does not say which call it belongs to, so all running calls must be of one caller.
        """
        call = self._calls[-1] if len({running.caller for running in self._calls}) == 1 else None
        if call is None or call.ask is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="There is no client that could ask the person.")
        question = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._open += 1
        for running in self._calls:
            running.stop_clock()
        try:
            return types.ElicitResult.model_validate(await asyncio.wrap_future(call.ask(question)))
        except (LocalMCPError, MCPError, ValidationError) as error:
            log.info("a question to the person failed: %s", error)
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        finally:
            self._open -= 1
            if not self._open:
                for running in self._calls:
                    running.start_clock()


def required_capability(data: Any) -> str:
    """Return the first capability that a refusal names."""
    return next(iter(mapping_of(mapping_of(data).get("requiredCapabilities"))), "elicitation")
