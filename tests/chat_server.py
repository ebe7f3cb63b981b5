"""A server of models that speaks Ollama's and OpenAI's dialect, and says what a test scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest


class ChatServer:
    """Answers POST with what the test scripted; remembers paths, bodies and headers."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]] = []
        self.otherwise: Callable[[Any], bytes] = lambda _: b""
        """What is said to a request for which nothing is scripted."""
        self.requests: list[tuple[str, Any, dict[str, str]]] = []
        self.release: threading.Event | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.1"  # type: ignore[misc]

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, body, dict(self.headers)))
                if server.release is not None:
                    server.release.wait(60)
                answer = server.replies.pop(0) if server.replies else (200, server.otherwise(body))
                status, reply, headers = answer if len(answer) == 3 else (*answer, {})
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    pass  # The client gave up waiting, which is what one test is about.

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def will_say(self, dialect: str, content: str | None, *calls: tuple[str, Any]) -> None:
        """Script one answer in a dialect; OpenAI's arguments are JSON text."""
        if dialect == "ollama":
            made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
            message = {"role": "assistant", "content": content or "", **({"tool_calls": made} if made else {})}
            reply: Any = {"model": "m", "message": message, "done": True}
        else:
            made = [
                {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for name, arguments in calls
            ]
            message = {"role": "assistant", "content": content, **({"tool_calls": made} if made else {})}
            reply = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        self.replies.append((200, json.dumps(reply).encode()))

    def spec(self, dialect: str) -> str:
        return f"{self.url}/{'api' if dialect == 'ollama' else 'v1'}#m"


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    chat = ChatServer()
    thread = threading.Thread(target=chat.server.serve_forever, args=(0.01,))
    thread.start()
    yield chat
    if chat.release is not None:
        chat.release.set()
    chat.server.shutdown()
    thread.join()
    chat.server.server_close()
