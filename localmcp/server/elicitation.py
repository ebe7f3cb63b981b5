"""Questions to the person in the middle of a call, as a request or as a result that the client answers by retrying.

Clients of the handshake era get `elicitation/create`. Those of 2026-07-28 get a result `input_required` and call again
with the answers; meanwhile the call waits here, under a random state that only its caller can resume.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import mcp.types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

from localmcp.errors import MissingCapability, Unavailable
from localmcp.tools import INPUT_KEY, AskPerson, Json

ANSWER_SECONDS = 300.0
"""How long the person may take to answer; afterwards the question counts as dismissed."""
MOST_WAITING = 4
"""Calls of one caller that may wait for the person: each keeps one of the threads for calls."""
DISMISSED: Json = {"action": "cancel"}

Context = ServerRequestContext[Any]


def check_shown(params: Json, capabilities: types.ClientCapabilities | None) -> None:
    """Refuse a question that the client cannot show.

    Raises:
        MissingCapability: it shows no questions, or none of this kind.
    """
    offered = capabilities.elicitation if capabilities is not None else None
    if offered is None:
        raise MissingCapability("This client cannot ask the person a question in the middle of a call.")
    if params.get("mode") == "url" and offered.url is None:
        raise MissingCapability("This client can show the person a form, but cannot send them to a web page.")


def ask_by_request(ctx: Context) -> AskPerson:
    """Return what asks through a request to the client (handshake era)."""
    loop = asyncio.get_running_loop()
    capabilities = ctx.session.client_capabilities

    async def send(params: Json) -> Json:
        check_shown(params, capabilities)
        request = types.ElicitRequest.model_validate({"method": "elicitation/create", "params": params})
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        try:
            result = await ctx.session.send_request(request, types.ElicitResult, ANSWER_SECONDS, related)
        except MCPError as error:
            if error.code == types.REQUEST_TIMEOUT:
                return DISMISSED
            raise
        return _plain(result)

    return lambda params: asyncio.run_coroutine_threadsafe(send(params), loop)


def refuse_question(_params: Json) -> Future[Json]:
    """Refuse a question in a request of a kind that cannot be interrupted by one."""
    answer: Future[Json] = Future()
    answer.set_exception(Unavailable("The person cannot be asked in the middle of this request."))
    return answer


@dataclass(eq=False)
class _Call:
    """A call under way, and the question it waits for."""

    caller: str
    early: types.InputResponses
    """Answers that came with the call, before any question."""
    task: asyncio.Task[Any]
    questions: asyncio.Queue[tuple[Json, Future[Json]]]
    question: Json = field(default_factory=dict[str, Any])
    answer: Future[Json] = field(default_factory=Future[Json])

    @property
    def key(self) -> str:
        """The name under which the question is answered."""
        about: Json = self.question.get("_meta") or {}
        return str(about.get(INPUT_KEY, "question"))

    def settle(self, outcome: Json | Exception) -> None:
        """Answer the question, unless the call has stopped waiting."""
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)

    def input_required(self, state: str) -> types.InputRequiredResult:
        """Return the result that asks the question."""
        request = types.ElicitRequest.model_validate({"method": "elicitation/create", "params": self.question})
        return types.InputRequiredResult(input_requests={self.key: request}, request_state=state)


class RetriedCalls:
    """The calls that wait for their client to call again (2026-07-28)."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Call] = {}

    async def begin(
        self,
        ctx: Context,
        caller: str,
        early: types.InputResponses | None,
        start: Callable[[AskPerson], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run a call until it has its result or a question that is not among the `early` answers."""
        loop, questions = asyncio.get_running_loop(), asyncio.Queue[tuple[Json, Future[Json]]]()

        def ask(params: Json) -> Future[Json]:
            answer: Future[Json] = Future()
            loop.call_soon_threadsafe(questions.put_nowait, (params, answer))
            return answer

        # This request ends with the question, so the call needs a task of its own.
        call = _Call(caller, dict(early or {}), loop.create_task(start(ask)), questions)
        # The thread of a call that was given up must not wait any longer.
        call.task.add_done_callback(lambda _: call.settle(DISMISSED))
        return await self._go_on(ctx, call)

    async def resume(self, ctx: Context, caller: str, state: str, responses: types.InputResponses | None) -> Any:
        """Hand the answer to the call that waits under `state`; without an answer, ask again.

        Raises:
            MCPError: none waits there for this caller.
        """
        call = self._waiting.get(state)
        if call is None or call.caller != caller:
            raise MCPError(types.INVALID_PARAMS, "requestState: this question is no longer open; call the tool anew.")
        response = (responses or {}).get(call.key)
        if not isinstance(response, types.ElicitResult):
            return call.input_required(state)
        self._close(state, _plain(response))
        return await self._go_on(ctx, call)

    async def _go_on(self, ctx: Context, call: _Call) -> Any:
        while True:
            asking = asyncio.ensure_future(call.questions.get())
            try:
                await asyncio.wait({call.task, asking}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                call.task.cancel()
                raise
            finally:
                asking.cancel()
            if call.task.done():
                return call.task.result()
            call.question, call.answer = asking.result()
            response = call.early.pop(call.key, None)
            if isinstance(response, types.ElicitResult):
                call.settle(_plain(response))
                continue
            try:
                check_shown(call.question, ctx.session.client_capabilities)
            except MissingCapability as error:
                call.settle(error)
                continue
            theirs = [state for state, waiting in self._waiting.items() if waiting.caller == call.caller]
            if len(theirs) >= MOST_WAITING:
                # The client of the oldest one may never come back.
                self._close(theirs[0], DISMISSED)
            state = secrets.token_urlsafe(24)
            self._waiting[state] = call
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._close, state, DISMISSED)
            return call.input_required(state)

    def _close(self, state: str, outcome: Json) -> None:
        if (call := self._waiting.pop(state, None)) is not None:
            call.settle(outcome)


def _plain(response: types.ElicitResult) -> Json:
    return response.model_dump(by_alias=True, mode="json", exclude_none=True)
