"""The client's ends of stdin and stdout, line by line, before and beside the MCP SDK."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import Queue
    from typing import BinaryIO

_SEARCHES = (b'"search"', b'"get_context"', b'"getRelevantRules"')
MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message; a longer one is refused without being kept in memory."""


class Overlong(bytes):
    """The first and last bytes of a line that was longer than MAX_LINE."""


class Wire:
    """The client's ends of stdin and stdout, on private descriptors that nothing else reads or writes."""

    def __init__(self, reader: BinaryIO, out: int) -> None:
        self.reader = reader
        self.out = out
        self.first = b""
        self.answered: str | int | None = None
        """Id of the request that has its reply already."""
        self.instructions = ""
        self.offers: tuple[str, ...] = ()
        """Of `resources` and `prompts`, what the first reply advertises besides tools."""
        self.lines: Queue[bytes]
        self.early_lines: list[bytes] = []
        """Lines that were taken from `lines` and are left to the SDK, before the others."""
        self.called = False
        """Whether a call was answered before the SDK was there."""
        self.serving = False
        """Whether the SDK has taken over; until then a client that leaves ends the process at once."""
        self._owing = False
        self._searched = False
        self._prepare: Callable[[], None] | None = None

    def read_line(self) -> bytes:
        """Return the next line with its end; `Overlong` for a line that is too long, b"" for the end of input."""
        try:
            line = self.reader.readline(MAX_LINE + 1)
        except OSError:
            # A terminal or pipe that broke is a client that left.
            return b""
        if len(line) <= MAX_LINE or line.endswith(b"\n"):
            return line
        head, tail = line[:256], line[-256:]
        while not tail.endswith(b"\n"):
            more = self.reader.readline(65536)
            if not more:
                break
            tail = (tail + more)[-256:]
        return Overlong(head + tail)

    def write(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            OSError: the client closed its end.
        """
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[os.write(self.out, unsent) :]

    def next_line(self) -> bytes:
        """Wait for the line that is next for the SDK; b"" for the end of input."""
        return self.early_lines.pop(0) if self.early_lines else self.lines.get()

    def before_search(self, prepare: Callable[[], None]) -> None:
        """Call `prepare` as soon as a line that searches is read, at once if one was; perhaps twice."""
        self._prepare = prepare
        if self._searched:
            prepare()

    def listen(self) -> None:
        """Read on in a thread, into `lines`; a client that leaves before the SDK is imported ends the process."""
        import threading
        from queue import Queue

        self.lines = Queue(maxsize=4)
        self._owing = self.answered is None
        threading.Thread(target=self._listen, name="localmcp-stdin", daemon=True).start()

    def _listen(self) -> None:
        line = self.first
        while line:
            if any(name in line for name in _SEARCHES):
                self._searched = True
                if self._prepare is not None:
                    self._prepare()
            self.lines.put(line)
            line = self.read_line()
            self._owing = self._owing or b'"id"' in line
        if not self._owing and not self.serving:
            os._exit(0)
        self.lines.put(b"")


def claim_wire() -> Wire:
    """Take stdin and stdout for the protocol: afterwards fd 0 reads nothing and fd 1 is stderr.

    Then a stray `print`, or what a child process writes, cannot break a frame. Ctrl-C ends the process at once until
    something is open: Python's own handler would wait for a blocked read, and then show a traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        # A standard descriptor was closed: this fills its place, so that no duplicate lands there.
        null = os.dup(null)
    reader = os.fdopen(os.dup(0), "rb", buffering=65536)
    out = os.dup(1)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return Wire(reader, out)
