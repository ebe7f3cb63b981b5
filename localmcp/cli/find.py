"""`localmcp find`: pick a passage while typing; the choice goes to stdout."""

from __future__ import annotations

import sys
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.tui import honour_no_color, need_terminal

INTERRUPTED = 130


@command()
@click.argument("query", nargs=-1)
@click.option(
    "-m", "--mode", type=click.Choice(["hybrid", "semantic", "keyword"]), default="hybrid", show_default=True,
    help="By meaning and word, by meaning, or by word.",
)  # fmt: skip
@click.option(
    "--print", "what", type=click.Choice(["place", "path", "text", "id"]), default="place", show_default=True,
    help="What is printed of the passage: path:line, its file, its text, or its id.",
)  # fmt: skip
@pass_session
def find(session: Session, query: tuple[str, ...], mode: str, what: str) -> int:
    """Pick a passage while you type; the choice goes to stdout.

    \b
      $EDITOR "$(localmcp find --print path)"

    Filters are part of the line: collection:NAME, tag:NAME, path:FOLDER, source:TITLE, type:KIND. Without a choice
    nothing is printed and the exit code is 130.
    """
    settings = session.settings
    need_terminal("find", 'Use: localmcp search "…"')
    honour_no_color()
    # What is typed is searched again when the model is there.
    session.seconds_for_model = 0.0
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
    session.answer(chosen, lambda hit: terminal.write(printed(hit, what)))
    return 0


def printed(hit: dict[str, Any], what: str) -> str:
    """What `--print` asks for; a text without a file has its title for a path."""
    citation = hit["citation"]
    return {
        "place": citation["label"],
        "path": citation.get("path", hit["sourceTitle"]),
        "text": hit["content"],
        "id": hit["chunkId"],
    }[what]
