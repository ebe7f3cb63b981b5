"""The original's stream: GET `/api/mcp` opens it, messages POSTed to the address it names are answered on it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from localmcp.server.http.exchange import Exchange
from localmcp.server.http.log_lines import say
from localmcp.server.http.replies import SERVER_ERROR, Refused, json_bytes, json_reply
from localmcp.tools import Json

log = logging.getLogger(__name__)

PATH = "/api/mcp"
MOST_STREAMS = 256
MOST_STREAMS_A_KEY = 32
PING_SECONDS = 15.0
"""Proxies close connections that are silent for longer."""
WAITING_REPLIES = 64
UNREAD_SECONDS = 30.0
"""A client that does not read for this long has its stream closed."""


class Stream:
    """One open stream, which belongs to the key that opened it."""

    def __init__(self, key_id: str) -> None:
        self.id = secrets.token_urlsafe(24)
        self.key_id = key_id
        self._replies, self._waiting = anyio.create_memory_object_stream[bytes](WAITING_REPLIES)

    async def put(self, value: Json) -> None:
        """Send a message; dropped when the stream is gone."""
        try:
            with anyio.fail_after(UNREAD_SECONDS):
                await self._replies.send(stream_event("message", json_bytes(value)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.info("a reply came after its stream was closed")
        except TimeoutError:
            log.info("a stream whose client does not read is closed")
            self.close()

    def close(self) -> None:
        """End the stream after what is already on its way."""
        self._replies.close()

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield what the client gets, until `close` is called."""
        async with self._waiting:
            event: bytes | None = stream_event("endpoint", f"{PATH}?sessionId={self.id}".encode())
            while event is not None:
                yield event
                event = b": ping\n\n"
                with anyio.move_on_after(PING_SECONDS):
                    event = await anext(self._waiting, None)


def stream_event(name: str, data: bytes) -> bytes:
    """Return an event of `text/event-stream`."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class Streams:
    """The open streams."""

    def __init__(self, wait_for_end_of: Callable[[str], Awaitable[None]]) -> None:
        """`wait_for_end_of`: returns when the key of that id is no longer active."""
        self._wait_for_end_of = wait_for_end_of
        self._open: dict[str, Stream] = {}
        self._closing = False

    def open(self, exchange: Exchange) -> ASGIApp:
        """Return a new stream for the caller.

        Raises:
            Refused: 503, too many are open, or the server is closing.
        """
        mine = sum(stream.key_id == str(exchange.key.id) for stream in self._open.values())
        if self._closing or len(self._open) >= MOST_STREAMS or mine >= MOST_STREAMS_A_KEY:
            raise Refused(503, "Too many open streams", code=SERVER_ERROR, headers={"retry-after": "10"})
        stream = Stream(str(exchange.key.id))
        self._open[stream.id] = stream
        headers = {"x-accel-buffering": "no"}
        response = StreamingResponse(stream.events(), headers=headers, media_type="text/event-stream")

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            say("MCP Server connected via SSE", userId=stream.key_id)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._close_with_key, stream)
                    await response(scope, receive, send)
                    group.cancel_scope.cancel()
            finally:
                stream.close()
                self._open.pop(stream.id, None)

        return serve

    async def _close_with_key(self, stream: Stream) -> None:
        await self._wait_for_end_of(stream.key_id)
        stream.close()

    def accept(self, session: str, exchange: Exchange, work: Callable[[], Awaitable[Json | None]]) -> ASGIApp:
        """Answer 202 to a message for a stream; its reply, which `work` gives, follows on the stream.

        Raises:
            Refused: 404: no such stream of this key.
        """
        stream = self._open.get(session)
        if stream is None or stream.key_id != str(exchange.key.id):
            raise Refused(404, "Session not found", details="Open a new stream: GET /api/mcp")

        async def answer() -> None:
            reply = await work()
            if reply is not None:
                await stream.put(reply)

        accepted = json_reply({"status": "accepted"}, 202)
        accepted.background = BackgroundTask(answer)
        return accepted

    def close(self) -> None:
        """End every stream and open no other."""
        self._closing = True
        for stream in tuple(self._open.values()):
            stream.close()
