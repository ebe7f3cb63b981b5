"""The TUI's log: a file in the state directory, never the screen."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

from localmcp.config import state_directory
from localmcp.files import make_private_folder

LARGEST = 1_000_000


def log_file() -> Path:
    """Return where the TUI writes what happened."""
    return state_directory() / "tui.log"


@contextmanager
def logging_to_file(level: str) -> Generator[Path]:
    """Send the log records of this process only to the file, for the length of a block."""
    path = log_file()
    make_private_folder(path.parent)
    handler = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers, root.level = [handler], logging.getLevelNamesMapping()[level.upper()]
    logging.captureWarnings(True)
    try:
        yield path
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before
        handler.close()


@contextmanager
def separate_screen_stream() -> Generator[None]:
    """Give the screen a separate stream, and send what is written to descriptor 2 to the log file.

    Textual draws on stderr and measures stdout. Libraries written in C write to stderr as well, and stdout may be a
    pipe that waits for the answer.
    """
    stdout, stderr = sys.__stdout__, sys.__stderr__
    if stderr is None or os.name != "posix":
        sys.__stdout__ = stdout if stdout is not None and stdout.isatty() else stderr
        try:
            yield
        finally:
            sys.__stdout__ = stdout
        return
    screen = os.dup(2)
    log = os.open(log_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    drawn = os.fdopen(screen, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.__stdout__ = sys.__stderr__ = drawn
    try:
        yield
    finally:
        drawn.flush()
        sys.__stdout__, sys.__stderr__ = stdout, stderr
        os.dup2(screen, 2)
        os.close(screen)
