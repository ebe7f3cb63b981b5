"""Progress of one call, from whichever thread works for it to the client that asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import Future

import anyio
from mcp.server.session import ServerSession

LEAST_SECONDS = 0.1
"""Between two messages; the first is sent at once."""
_STEP = 0.001


class ProgressReporter:
    """Sends progress until the call has its result; the SDK drops it where the client did not ask."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._last = -_STEP
        self._sent_at = 0.0
        self._withheld: tuple[float, float | None, str] | None = None
        """The last report, if it came too soon after the message before it."""
        self._sends: list[Future[None]] = []

    def __call__(self, done: float, total: float | None, message: str) -> None:
        """Send how far the call is; may be called from any thread."""
        now = time.monotonic()
        with self._lock:
            if self._closed:
                return
            if now - self._sent_at < LEAST_SECONDS:
                self._withheld = (done, total, message)
                return
            self._sent_at = now
            self._put(done, total, message)

    def _put(self, done: float, total: float | None, message: str) -> None:
        # The protocol wants numbers that only grow, but a second phase begins at 0 again.
        self._last = max(done, self._last + _STEP)
        shown = total if total is not None and total >= self._last else None
        self._withheld = None
        self._sends = [send for send in self._sends if not send.done()]
        self._sends.append(asyncio.run_coroutine_threadsafe(self._send(self._last, shown, message), self._loop))

    async def finish(self) -> None:
        """Send the report that was withheld, and wait until everything is sent."""
        with self._lock:
            if self._withheld is not None:
                self._put(*self._withheld)
            sends = self._sends
        await asyncio.gather(*map(asyncio.wrap_future, sends), return_exceptions=True)

    def close(self) -> None:
        """Send nothing more: the result follows."""
        with self._lock:
            self._closed = True

    async def _send(self, done: float, total: float | None, message: str) -> None:
        if self._closed:
            return
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(done, total, message or None)
