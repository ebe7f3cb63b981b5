"""The inside of a worker process: runs a function on items from stdin, under limits, and returns its values.

Readers call `begin_member` and `count_text`; both do nothing in an ordinary process.
"""

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
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from localmcp.errors import LocalMCPError, UnreadableDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER = struct.Struct("<cdI")
"""Kind of a frame, the worker's processor time in seconds, bytes that follow."""
READY, BEGIN, MEMBER, TEXT, VALUE, END, ERROR = (bytes([code]) for code in b"RBMTVEX")
MUCH_TEXT = 100_000
"""From this many characters on the parent hears at once how much more time they allow."""
BUFFER = 1 << 16
"""Bytes that a pipe buffers."""
_LENGTH = struct.Struct("<I")


class _Channel:
    """Sends frames to the parent."""

    def __init__(self, stream: BinaryIO, most_text: int) -> None:
        self.stream = stream
        self.most_text = most_text
        self.text = 0

    def send(self, kind: bytes, payload: object = None, *, at_once: bool = True) -> None:
        """Write a frame; without `at_once` it is sent with the next one, so that the parent wakes up once."""
        data = pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)
        self.stream.write(HEADER.pack(kind, time.process_time(), len(data)) + data)
        if at_once:
            self.stream.flush()


_channel: _Channel | None = None


def begin_member(name: str) -> None:
    """Name the document of a container that is read next, for the reason if the file is given up there."""
    if _channel:
        _channel.text = 0
        _channel.send(MEMBER, name)


def count_text(characters: int) -> None:
    """Count text that the current document has yielded; every MB of it allows its file more processor time.

    Raises:
        UnreadableDocument: the document yields more text than the limit.
    """
    if not _channel:
        return
    _channel.text += characters
    if _channel.text > _channel.most_text:
        raise UnreadableDocument(
            f"It holds more than {_channel.most_text // 1_000_000} MB of text (setting max_text_mb)."
        )
    _channel.send(TEXT, characters, at_once=characters > MUCH_TEXT)


def run() -> None:
    """Work until stdin ends: first comes (function, limits), then an item with the size of its file at a time."""
    global _channel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, back = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", BUFFER)
    # Libraries must neither print between the frames nor read them.
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, descriptor)
        os.close(null)
    work, most_memory, most_text = pickle.loads(_receive(source))
    cap = 2 * most_memory
    if sys.platform != "win32":
        import resource

        # Searches of any process go first; on an idle machine reading is as fast.
        os.nice(5)
        # One sudden allocation fails beyond twice the limit; the parent watches the limit itself.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        cap = cap if most == resource.RLIM_INFINITY else min(cap, most)
        resource.setrlimit(resource.RLIMIT_DATA, (cap, most))
    # Readers make few cycles of objects: looking for them after every 700 objects took a tenth of the time.
    gc.set_threshold(50_000)
    _channel = _Channel(back, most_text)
    _channel.send(READY, os.getpid())
    items: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def take() -> None:
        while True:
            items.put(_receive(source))

    threading.Thread(target=take, daemon=True).start()
    while True:
        _work_on(_channel, work, *pickle.loads(items.get()))
        # With the beginning of the next item, if there is one.
        _channel.send(END, at_once=items.empty())


def _work_on(channel: _Channel, work: Callable[[Any], Iterator[Any]], item: Any, size: int) -> None:
    channel.text = 0
    channel.send(BEGIN, size)
    try:
        for value in work(item):
            channel.send(VALUE, value)
    except MemoryError:
        channel.send(ERROR, "")
    except LocalMCPError as error:
        channel.send(ERROR, str(error))
    except Exception as error:
        channel.send(ERROR, f"unexpected {type(error).__name__}: {error}"[:300])


def _receive(source: BinaryIO) -> bytes:
    """Return the next pickle from the parent; the process ends with its parent, or when it is no longer needed."""
    header = source.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        os._exit(0)
    return source.read(_LENGTH.unpack(header)[0])


def send_to(stream: IO[bytes], payload: object) -> None:
    """Write an object for the worker at the other end of `stream`."""
    data = pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()
