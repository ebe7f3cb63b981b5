"""`localmcp tui` and `find`: the terminal interface on one file, and picking a passage while typing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.session import INTERRUPTED, Session, command, pass_session
from localmcp.errors import Unavailable


@command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]")
@click.option("--theme", metavar="NAME", help="Colors, for this time; 'terminal' takes those of the terminal.")
@pass_session
def tui(session: Session, file: Path | None, theme: str | None) -> int:
    """See, search and run everything in one file, in the terminal.

    Press ? for the keys, ctrl+p for commands and documents, ctrl+q to leave. An assistant may use the same file at the
    same time.
    """
    if file is not None:
        session.database = str(file)
    settings = session.settings
    _prepare_screen(session, "tui", "localmcp search, sources, rules, … do the same without one.")
    # textual takes 160 ms to import.
    from localmcp.tui.app import LocalMcpApp
    from localmcp.tui.logs import log_file, logging_to_file, separate_screen_stream

    with logging_to_file(session.log_level), separate_screen_stream():
        app = LocalMcpApp(lambda: session.workspace, settings.database, theme or settings.theme)
        app.run()
    if app.return_code:
        return session.fail("unexpected", "The screen could not be drawn.", f"The log is {log_file()}", app.return_code)
    return 0


def _prepare_screen(session: Session, name: str, hint: str) -> None:
    """Refuse to draw where there is no terminal, and let searches go by words until the model is there.

    Raises:
        Unavailable: stdin or stderr is not a terminal, or one that cannot draw.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        raise Unavailable(f"localmcp {name} needs a terminal that can draw.", hint=hint)
    # What is typed is searched again when the model is there.
    session.seconds_for_model = 0.0
    # Textual takes an empty NO_COLOR for a wish too; no-color.org does not.
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]


@command()
@click.argument("query", nargs=-1)
@click.option(
    "-m", "--mode", type=click.Choice(["hybrid", "semantic", "keyword"]), default="hybrid", show_default=True,
    help="By meaning and word, by meaning, or by word.",
)  # fmt: skip
@click.option(
    "--print", "shown_part", type=click.Choice(["place", "path", "text", "id"]), default="place", show_default=True,
    help="What is printed of the passage: path:line, its file, its text, or its id.",
)  # fmt: skip
@pass_session
def find(session: Session, query: tuple[str, ...], mode: str, shown_part: str) -> int:
    """Pick a passage while you type; the choice goes to stdout.

    \b
      $EDITOR "$(localmcp find --print path)"

    Filters are part of the line: collection:NAME, tag:NAME, path:FOLDER, source:TITLE, type:KIND. Without a choice
    nothing is printed and the exit code is 130.
    """
    settings = session.settings
    _prepare_screen(session, "find", 'Use: localmcp search "…"')
    # textual takes 160 ms to import.
    from localmcp.tui.logs import logging_to_file, separate_screen_stream
    from localmcp.tui.picker import PickerApp

    with logging_to_file(settings.log_level), separate_screen_stream():
        app = PickerApp(lambda: session.workspace, settings.database, " ".join(query), mode, settings.theme)
        # Windows cannot draw below the prompt.
        chosen = app.run(inline=sys.platform != "win32")
    if app.return_code:
        return session.fail("unexpected", "The screen could not be drawn.", None, app.return_code)
    if chosen is None:
        return INTERRUPTED
    session.answer(chosen, lambda hit: render.write(printed(hit, shown_part)))
    return 0


def printed(hit: dict[str, Any], part: str) -> str:
    """Return what `--print` asks for; a text without a file has its title for a path."""
    citation = hit["citation"]
    return {
        "place": citation["label"],
        "path": citation.get("path", hit["sourceTitle"]),
        "text": hit["content"],
        "id": hit["chunkId"],
    }[part]
