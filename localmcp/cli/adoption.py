"""`localmcp adopt`: a file from elsewhere may be changed from now on."""

from __future__ import annotations

from pathlib import Path

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import NotFound


@command()
@click.argument("file", type=click.Path(path_type=Path))
@pass_session
def adopt(session: Session, file: Path) -> None:
    """Allow changes to a file that comes from somewhere else.

    A file that another machine made can be searched at once, but stays read-only until it is adopted.
    """
    from localmcp.storage.database import Database

    if not file.expanduser().is_file():
        raise NotFound(f"There is no file {file}.")
    database = Database(file, adopt=True)
    database.ensure_writable()
    with database.write() as connection:
        # What a pack says of itself no longer holds once it is lived in.
        connection.execute("delete from manifest")
    database.close()
    session.answer({"adopted": str(database.path)}, lambda _: terminal.echo(f"Adopted {database.path}"))
