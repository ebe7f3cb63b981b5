"""Calls answered by a stream of events: progress, questions to the person, and the result.

There are no sessions. The id that `initialize` gives a client of the handshake era says that it can be asked. Its
answer comes with another POST, and is matched by the question's id, which nobody else can guess.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, cast

import anyio
import mcp.types as wire
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope

from localmcp.errors import Unavailable
from localmcp.schemas import mapping_of
from localmcp.server.elicitation import ANSWER_SECONDS, DISMISSED, MOST_WAITING, check_shown, settle
from localmcp.server.http.exchange import CALL_SECONDS
from localmcp.server.http.replies import SERVER_ERROR, json_bytes
from localmcp.server.http.sse import stream_event
from localmcp.tools import AskPerson, Json

SESSION_HEADER = "mcp-session-id"
_FORM, _FORM_AND_URL = "form.", "form+url."

asker: ContextVar[AskPerson | None] = ContextVar("localmcp_http_asker", default=None)
"""Asks the client of the streamed call that is being answered."""


def session_id(params: Any) -> str | None:
    """Return the id for a client that offers elicitation in its `initialize`; None for others, which need none."""
    offered = mapping_of(mapping_of(params).get("capabilities")).get("elicitation")
    if not isinstance(offered, dict):
        return None
    return (_FORM_AND_URL if "url" in offered else _FORM) + secrets.token_urlsafe(16)


def capabilities_of(session: str) -> wire.ClientCapabilities | None:
    """Return what the id says of its client; None for an id that is not ours."""
    if not session.startswith((_FORM, _FORM_AND_URL)):
        return None
    url = wire.UrlElicitationCapability() if session.startswith(_FORM_AND_URL) else None
    elicitation = wire.ElicitationCapability(form=wire.FormElicitationCapability(), url=url)
    return wire.ClientCapabilities(elicitation=elicitation)


class OpenQuestions:
    """Questions that wait for a POST with their answer."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, Future[Json]]] = {}

    def open(self, caller: str, answer: Future[Json]) -> str:
        """Return the id of a new question to `caller`.

        Raises:
            Unavailable: too many wait already.
        """
        if len(self._answers) >= MOST_WAITING:
            raise Unavailable(f"{MOST_WAITING} calls wait for an answer of the person already.")
        number = f"question-{secrets.token_urlsafe(16)}"
        self._answers[number] = (caller, answer)
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        return number

    def close(self, caller: str, message: Json) -> bool:
        """Take a client's reply; False if it answers no question to this caller."""
        expected, answer = self._answers.get(str(message.get("id")), (None, None))
        if answer is None or expected != caller:
            return False
        result = message.get("result")
        refused = Unavailable("The client refused to ask the person.")
        settle(answer, cast(Json, result) if isinstance(result, dict) else refused)
        return True


class StreamedCall:
    """A call whose progress, questions and result are events of one stream."""

    def __init__(
        self, ask_sdk: Callable[[Receive, Send], Any], questions: OpenQuestions, caller: str, session: str, call_id: Any
    ) -> None:
        self._ask_sdk = ask_sdk
        self._call_id = call_id
        self._questions = questions
        self._caller = caller
        self._capabilities = capabilities_of(session)
        self._loop = asyncio.get_running_loop()
        self._started = False
        self._open, self._left = 0, 0.0
        """Questions that wait for the person, and the seconds that are left meanwhile."""
        self._send: Send
        self._deadline: anyio.CancelScope

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        self._send = send
        asker.set(self._ask if self._capabilities is not None else None)
        with anyio.move_on_after(CALL_SECONDS) as self._deadline:
            await self._ask_sdk(receive, self._forward)
        if self._deadline.cancelled_caught:
            error: Json = {"code": SERVER_ERROR, "message": f"No answer within {CALL_SECONDS:g} s"}
            await self._send_event({"jsonrpc": "2.0", "id": self._call_id, "error": error}, more=False)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._started:
                return
            self._started = True
        await self._send(message)

    async def _send_event(self, message: Json, *, more: bool) -> None:
        if not self._started:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            await self._forward({"type": "http.response.start", "status": 200, "headers": headers})
        event = stream_event("message", json_bytes(message))
        await self._send({"type": "http.response.body", "body": event, "more_body": more})

    def _ask(self, params: Json) -> Future[Json]:
        return asyncio.run_coroutine_threadsafe(self._ask_client(params), self._loop)

    async def _ask_client(self, params: Json) -> Json:
        check_shown(params, self._capabilities)
        answer: Future[Json] = Future()
        number = self._questions.open(self._caller, answer)
        message: Json = {"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params}
        if not self._open:
            # The person's time does not count.
            self._left, self._deadline.deadline = self._deadline.deadline - anyio.current_time(), math.inf
        self._open += 1
        try:
            await self._send_event(message, more=True)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            return DISMISSED
        finally:
            answer.cancel()
            self._open -= 1
            if not self._open:
                self._deadline.deadline = anyio.current_time() + self._left
