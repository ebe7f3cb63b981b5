"""The inside of a worker process: runs a function on items from stdin and sends back its values."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import struct
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, BinaryIO

from localmcp.errors import LocalMCPError

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = struct.Struct("<cdQI")
"""Kind, the worker's processor time in seconds, characters of text of the current item, bytes of the pickled value."""
READY, BEGIN, TEXT, VALUE, ERROR, END = (bytes([code]) for code in b"RBTVXE")
MUCH_TEXT = 100_000
"""From this many characters on the parent hears at once how much more time they allow."""
_LENGTH = struct.Struct("<I")

_text = 0
_report: Callable[[], None] | None = None


def count_text(characters: int) -> None:
    """Count text of the current file: every MB of it allows more processor time. Does nothing in other processes."""
    global _text
    _text += characters
    if _report and characters > MUCH_TEXT:
        _report()


def send_to(stream: IO[bytes], payload: object) -> None:
    """Write an object for the worker at the other end of `stream`."""
    data = pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def run() -> None:
    """Work until stdin ends: first comes (function, bytes of memory), then an item at a time."""
    global _report, _text
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, back = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Libraries must neither print between the frames nor read them.
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, descriptor)
        os.close(null)
    job = pickle.loads(_receive(source))
    work = job[0]
    if sys.platform != "win32":
        import resource

        memory = job[1]
        # Searches of any process go first; on an idle machine reading is as fast.
        os.nice(5)
        # One sudden allocation fails beyond twice the limit; the parent watches the limit itself.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory if most < 0 else min(2 * memory, most), most))
    # Readers make few cycles of objects: looking for them after every 700 objects took a tenth of the time.
    gc.set_threshold(50_000)

    def send(kind: bytes, value: object = None) -> None:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        back.write(FRAME.pack(kind, time.process_time(), _text, len(data)) + data)
        back.flush()

    send(READY, os.getpid())
    _report = lambda: send(TEXT)  # noqa: E731
    items: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take() -> None:
        # In a thread, which also notices when the parent ends while a file is read.
        while True:
            items.put(_receive(source))

    threading.Thread(target=take, daemon=True).start()
    while True:
        item, _text = pickle.loads(items.get()), 0
        send(BEGIN)
        try:
            for value in work(item):
                send(VALUE, value)
        except MemoryError:
            send(ERROR, "")
        except LocalMCPError as error:
            send(ERROR, str(error))
        except Exception as error:
            send(ERROR, f"unexpected {type(error).__name__}: {error}"[:300])
        send(END)


def _receive(source: BinaryIO) -> bytes:
    """Return the next pickle from the parent; the process ends with its parent, or when it is no longer needed."""
    header = source.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        os._exit(0)
    return source.read(_LENGTH.unpack(header)[0])
