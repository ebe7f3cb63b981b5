"""`localmcp adopt`: a file from elsewhere may be changed from now on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import existing_file
from localmcp.cli.session import Session, command, pass_session

if TYPE_CHECKING:
    from localmcp.storage.adoption import Dropped


def keep_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--keep-keys`, `--keep-watched-folders`, `--keep-jobs` and `--keep-replicas`."""
    for option, what in (
        ("--keep-replicas", "its copies on your Milvus server"),
        ("--keep-jobs", "its unfinished jobs"),
        ("--keep-watched-folders", "its watched folders, which refresh then reads on this machine"),
        ("--keep-keys", "its API keys"),
    ):
        function = click.option(option, is_flag=True, help=f"Keep {what}.")(function)
    return function


def print_dropped(dropped: Dropped) -> None:
    """Say which powers of a file from elsewhere were dropped."""
    if phrases := dropped.summary():
        terminal.echo(f"Not taken over: {', '.join(phrases)}.")


@command()
@click.argument("file", type=click.Path(path_type=Path))
@keep_options
@pass_session
def adopt(session: Session, file: Path, **keep: bool) -> None:
    """Allow changes to a file that comes from somewhere else.

    A file that another machine made can be searched at once, but stays read-only until it is adopted. Its documents,
    rules and quick starts stay; its API keys, watched folders and jobs are dropped unless you keep them.
    """
    from localmcp.storage.adoption import Keep
    from localmcp.storage.adoption import adopt as take_over

    file = existing_file(file).absolute()
    dropped = take_over(file, Keep(**{name.removeprefix("keep_"): value for name, value in keep.items()}))

    def render(_: object) -> None:
        terminal.echo(f"Adopted {file}")
        print_dropped(dropped)

    session.answer({"adopted": str(file), "dropped": asdict(dropped)}, render)
