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

import mcp.types as wire
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

from localmcp.errors import MissingCapability, Unavailable
from localmcp.tools import INPUT_KEY, AskPerson, Json

ANSWER_SECONDS = 300.0
"""How long the person may take to answer; afterwards the question counts as dismissed."""
MOST_WAITING = 4
"""Calls that may wait for the person at a time: each keeps one of the threads for calls."""
_KEY = "question"
"""The name of the answer where the question gives none."""
DISMISSED: Json = {"action": "cancel"}

Context = ServerRequestContext[Any]


def check_shown(params: Json, capabilities: wire.ClientCapabilities | None) -> None:
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
        request = wire.ElicitRequest.model_validate({"method": "elicitation/create", "params": params})
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        try:
            result = await ctx.session.send_request(request, wire.ElicitResult, ANSWER_SECONDS, related)
        except MCPError as error:
            if error.code == wire.REQUEST_TIMEOUT:
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
class _Waiting:
    """A call under way, and the question it waits for."""

    caller: str
    early: wire.InputResponses
    """Answers that came with the call, before any question."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    questions: asyncio.Queue[tuple[Json, Future[Json]]] = field(default_factory=asyncio.Queue[Any])
    task: asyncio.Task[Any] = field(init=False)
    question: Json = field(default_factory=dict[str, Any])
    answer: Future[Json] = field(default_factory=Future[Any])
    expiry: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        """The name under which the question is answered."""
        about: Json = self.question.get("_meta") or {}
        return str(about.get(INPUT_KEY, _KEY))

    def ask(self, params: Json) -> Future[Json]:
        """Queue a question; called from any thread."""
        answer: Future[Json] = Future()
        self.loop.call_soon_threadsafe(self.questions.put_nowait, (params, answer))
        return answer

    async def next_question(self) -> bool:
        """Wait for a question or the end of the call; return whether there is a question.

        A client that gives up meanwhile cancels the call.
        """
        question = asyncio.ensure_future(self.questions.get())
        try:
            await asyncio.wait({self.task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        finally:
            question.cancel()
        if not question.done() or question.cancelled():
            return False
        self.question, self.answer = question.result()
        return True


def settle(answer: Future[Json], outcome: Json | Exception) -> None:
    """Answer a question, unless the call has stopped waiting."""
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class RetriedCalls:
    """The calls that wait for their client to call again (2026-07-28)."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    async def begin(
        self,
        ctx: Context,
        caller: str,
        early: wire.InputResponses | None,
        start: Callable[[AskPerson], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run a call until it has its result or a question that is not among the `early` answers."""
        call = _Waiting(caller, dict(early or {}))
        # This request ends with the question, so the call needs a task of its own.
        call.task = asyncio.get_running_loop().create_task(start(call.ask))
        # The thread of a call that was given up must not wait any longer.
        call.task.add_done_callback(lambda _: settle(call.answer, DISMISSED))
        return await self._go_on(ctx, call)

    async def resume(self, ctx: Context, caller: str, state: str, responses: wire.InputResponses | None) -> Any:
        """Hand the answer to the call that waits under `state`; without an answer, ask again.

        Raises:
            MCPError: none waits there for this caller.
        """
        call = self._waiting.get(state)
        if call is None or call.caller != caller:
            raise MCPError(wire.INVALID_PARAMS, "requestState: this question is no longer open; call the tool anew.")
        response = (responses or {}).get(call.key)
        if not isinstance(response, wire.ElicitResult):
            return _input_required(call, state)
        self._close(state, _plain(response))
        return await self._go_on(ctx, call)

    async def _go_on(self, ctx: Context, call: _Waiting) -> Any:
        while await call.next_question():
            response = call.early.pop(call.key, None)
            if isinstance(response, wire.ElicitResult):
                settle(call.answer, _plain(response))
                continue
            try:
                check_shown(call.question, ctx.session.client_capabilities)
                self._make_room(call.caller)
            except Unavailable as error:
                settle(call.answer, error)
                continue
            state = secrets.token_urlsafe(24)
            self._waiting[state] = call
            call.expiry = call.loop.call_later(ANSWER_SECONDS, self._close, state, DISMISSED)
            return _input_required(call, state)
        return call.task.result()

    def _make_room(self, caller: str) -> None:
        """Dismiss the oldest question of this caller where too many wait: its client may never come back.

        Raises:
            Unavailable: all are other callers'.
        """
        if len(self._waiting) < MOST_WAITING:
            return
        oldest = next((state for state, waiting in self._waiting.items() if waiting.caller == caller), None)
        if oldest is None:
            raise Unavailable(f"{MOST_WAITING} calls wait for an answer of the person already.")
        self._close(oldest, DISMISSED)

    def _close(self, state: str, outcome: Json) -> None:
        call = self._waiting.pop(state)
        if call.expiry is not None:
            call.expiry.cancel()
        settle(call.answer, outcome)


def _input_required(call: _Waiting, state: str) -> wire.InputRequiredResult:
    request = wire.ElicitRequest.model_validate({"method": "elicitation/create", "params": call.question})
    return wire.InputRequiredResult(input_requests={call.key: request}, request_state=state)


def _plain(response: wire.ElicitResult) -> Json:
    return response.model_dump(by_alias=True, mode="json", exclude_none=True)
