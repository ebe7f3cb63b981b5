"""One thread with an event loop, in which every connection to another server lives."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from localmcp.errors import CallGivenUp, Unavailable
from localmcp.tools import call_cancellation

log = logging.getLogger(__name__)

Result = TypeVar("Result")

STOPPING_SECONDS = 1.0


class BackgroundLoop:
    """Runs coroutines for callers in any thread; started by the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for the result; it is cancelled if the caller is interrupted or its client gives up.

        Raises:
            CallGivenUp: the client gave up.
            Unavailable: the loop is closed.
        """
        future = self.start(coroutine)
        cancellation = call_cancellation()
        if cancellation is not None:
            cancellation.on_cancel(future.cancel)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            if cancellation is not None and cancellation.cancelled:
                raise CallGivenUp("The client has given the call up.") from error
            raise Unavailable("localmcp is closing.") from error
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Begin the coroutine, and return at once.

        Raises:
            Unavailable: the loop is closed.
        """
        with self._lock:
            if self._closed:
                coroutine.close()
                raise Unavailable("localmcp is closing.")
            return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._loop = runner.get_loop()
            # A daemon, so that a program can end without `close`.
            self._thread = threading.Thread(target=_serve, args=(runner,), name="localmcp-mcp-servers", daemon=True)
            self._thread.start()
        return self._loop

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(STOPPING_SECONDS)


def _serve(runner: asyncio.Runner) -> None:
    """Run the loop until it is stopped; its runner then cancels what still runs in it."""
    with runner:
        runner.get_loop().run_forever()
