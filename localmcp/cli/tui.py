"""`localmcp tui`: the terminal interface on one file."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path

import click

from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import Unavailable
from localmcp.files import make_private_folder
from localmcp.visible_text import VisibleFormatter


@command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]")
@click.option("--theme", metavar="NAME", help="Colors, for this time; 'terminal' takes those of the terminal.")
@pass_session
def tui(session: Session, file: Path | None, theme: str | None) -> int:
    """See, search and run everything in one file, in the terminal.

    Press ? for the keys, ctrl+p for commands, ctrl+q to leave. An assistant may use the same file at the
    same time.
    """
    if file is not None:
        session.database = str(file)
    settings = session.settings
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        hint = "localmcp search, sources, rules, … do the same without one."
        raise Unavailable("localmcp tui needs a terminal that can draw.", hint=hint)
    # What is typed is searched again when the model is there.
    session.seconds_for_model = 0.0
    # Textual takes an empty NO_COLOR for a wish too; no-color.org does not.
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]
    # textual takes 160 ms to import.
    from localmcp.tui.app import LocalMcpApp

    with logging_to_file(session.log_level) as log, separate_screen_stream(log):
        app = LocalMcpApp(lambda: session.workspace, settings.database, theme or settings.theme)
        app.run()
    if app.return_code:
        return session.fail("unexpected", "The screen could not be drawn.", f"The log is {log}", app.return_code)
    return 0


@contextmanager
def logging_to_file(level: str) -> Generator[Path]:
    """Send the log records of this process to the TUI's log only, never to the screen; yield the log's path."""
    from localmcp.tui.session import log_file

    path = log_file()
    make_private_folder(path.parent)
    handler = RotatingFileHandler(path, maxBytes=1_000_000, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
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
def separate_screen_stream(log: Path) -> Generator[None]:
    """Give the screen a separate stream, and send what is written to descriptor 2 to the log.

    Textual draws on stderr and measures stdout. Libraries written in C write to stderr as well, and stdout may be a
    pipe that waits for the answer.
    """
    stdout, stderr = sys.__stdout__, sys.__stderr__
    if stderr is None or os.name != "posix":
        yield
        return
    screen = os.dup(2)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    drawn = os.fdopen(screen, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.__stdout__ = sys.__stderr__ = drawn
    try:
        yield
    finally:
        drawn.flush()
        sys.__stdout__, sys.__stderr__ = stdout, stderr
        os.dup2(screen, 2)
        os.close(screen)
