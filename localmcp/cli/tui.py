"""`localmcp tui`: the terminal interface on one file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import Unavailable

if TYPE_CHECKING:
    from localmcp.tui.services import Examination, Services
    from localmcp.workspace import Workspace


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
    need_terminal("tui", "localmcp search, sources, rules, … do the same without one.")
    honour_no_color()
    # What is typed is searched again when the model is there.
    session.seconds_for_model = 0.0
    # textual takes 160 ms to import.
    from localmcp.tui.app import LocalMcpApp
    from localmcp.tui.logs import log_file, logging_to_file, separate_screen_stream

    level = settings.log_level if session.verbosity == 0 else ("info", "debug")[session.verbosity > 1]
    with logging_to_file(level), separate_screen_stream():
        app = LocalMcpApp(lambda: session.workspace, settings.database, theme or settings.theme, services())
        app.run()
    if app.return_code:
        return session.fail("unexpected", "The screen could not be drawn.", f"The log is {log_file()}", app.return_code)
    return 0


def need_terminal(name: str, hint: str) -> None:
    """Refuse to draw where there is no terminal.

    Raises:
        Unavailable: stdin or stderr is not a terminal.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Unavailable(f"localmcp {name} needs a terminal.", hint=hint)


def honour_no_color() -> None:
    """Textual takes an empty NO_COLOR for a wish too; no-color.org does not."""
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]


def services() -> Services:
    """Return what the TUI needs of other packages."""
    from localmcp.tui.services import Services

    return Services(
        examine=_examine,
        save_theme=_save_theme,
    )


def _examine(workspace: Workspace) -> Examination:
    from localmcp.doctor.examination import examine

    return examine(workspace)


def _save_theme(name: str) -> None:
    from localmcp.config import write_setting

    write_setting("theme", name)
