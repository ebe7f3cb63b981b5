"""The client's ends of stdin and stdout, for the first reply and then for the SDK's stdio transport."""

from __future__ import annotations

import json
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import Queue
    from typing import BinaryIO

_SEARCHES = (b'"search"', b'"get_context"', b'"getRelevantRules"')


class Wire:
    """Private duplicates of stdin and stdout, which nothing else reads or writes; a text file for the SDK."""

    def __init__(self, reader: BinaryIO, out: int) -> None:
        self._reader = reader
        self._out = out
        self._lines: Queue[bytes]
        self.first = b""
        self.answered: str | int | None = None
        """Id of the request that has its reply already."""
        self.instructions = ""
        self.offers: tuple[str, ...] = ()
        """Of `resources` and `prompts`, what the first reply advertises besides tools."""
        self.serving = False
        """Whether the SDK has taken over; until then a client that leaves ends the process at once."""
        self.searched = False
        """Whether a search has been read, which will need the model."""
        self.on_hangup: Callable[[], object] = lambda: os._exit(0)
        """Called when the client has closed its reading end."""

    def read_first(self) -> bytes:
        """Wait for the first line; empty if the client has left."""
        try:
            self.first = self._reader.readline()
        except OSError:
            # A terminal or pipe that broke is a client that left.
            self.first = b""
        return self.first

    def listen(self) -> None:
        """Read on in a thread: a client that leaves before the SDK is there, owed nothing, ends the process."""
        import threading
        from queue import Queue

        self._lines = Queue(maxsize=4)
        threading.Thread(target=self._listen, name="localmcp-stdin", daemon=True).start()

    def _listen(self) -> None:
        owing = self.answered is None
        line = self.first
        while line:
            self.searched = self.searched or any(name in line for name in _SEARCHES)
            self._lines.put(line)
            try:
                line = self._reader.readline()
            except OSError:
                line = b""
            owing = owing or b'"id"' in line
        if not owing and not self.serving:
            os._exit(0)
        self._lines.put(b"")

    def readline(self) -> str:
        """Return the next line that is not blank, U+FFFD for what is no UTF-8; empty at the end of input."""
        while (line := self._lines.get()) and not line.strip():
            pass
        text = line.decode("utf-8", "replace").removeprefix("\ufeff")
        return _without_half_characters(text) if "\\ud" in text.lower() else text

    def write(self, text: str) -> int:
        """Write all of the text."""
        unsent = memoryview(text.encode())
        try:
            while unsent:
                unsent = unsent[os.write(self._out, unsent) :]
        except OSError:
            self.on_hangup()
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` keeps nothing back."""


def _without_half_characters(text: str) -> str:
    """Return JSON that the SDK, which refuses lone surrogates, accepts; anything else as it is."""
    from localmcp.schemas import without_surrogates

    try:
        return json.dumps(without_surrogates(json.loads(text)))
    except (ValueError, RecursionError):
        return text


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
