"""Progress of one call, from whichever thread works for it to the client that asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

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

    def __call__(self, done: float, total: float | None, message: str) -> None:
        """Send how far the call is; may be called from any thread."""
        now = time.monotonic()
        with self._lock:
            if self._closed or now - self._sent_at < LEAST_SECONDS:
                return
            self._sent_at = now
            # The protocol wants numbers that only grow, also where a second phase counts anew.
            self._last = max(done, self._last + _STEP)
            value = self._last
            shown = total if total is not None and total >= value else None
            asyncio.run_coroutine_threadsafe(self._send(value, shown, message), self._loop)

    def close(self) -> None:
        """Send nothing any more: the result follows."""
        with self._lock:
            self._closed = True

    async def _send(self, done: float, total: float | None, message: str) -> None:
        if self._closed:
            return
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._session.report_progress(done, total, message)
