"""`localmcp mount`, `unmount` and `mounts`: files that are searched together with yours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, pass_session

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

Json = dict[str, Any]


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="What its results are marked with; its file name when left out.")
@pass_session
def mount(session: Session, file: Path, name: str | None) -> None:
    """Search a file together with yours.

    It stays where it is and is never changed. Its passages, quick starts and rules are marked with its name;
    `localmcp search -c mount:NAME …` searches it alone. What is mounted is remembered on this machine, not in your
    file.
    """
    workspace = session.workspace
    # Searching needs a file of the person's, be it empty.
    with workspace.database.read():
        pass
    entry = workspace.mounts.mount(file, name)
    result = next(listed for listed in _listed(workspace) if listed["name"] == entry.name)
    session.answer(
        result, lambda value: terminal.echo(f"Mounted {value['path']} as {value['name']}: {_contents(value)}")
    )


@command()
@click.argument("name")
@pass_session
def unmount(session: Session, name: str) -> None:
    """Search a mounted file no longer. It is not deleted."""
    entry = session.reading().mounts.unmount(name)
    result = {"unmounted": entry.name, "path": str(entry.path)}
    session.answer(result, lambda _: terminal.echo(f"Unmounted {entry.name} ({entry.path})"))


@command()
@pass_session
def mounts(session: Session) -> None:
    """List the files that are searched together with yours."""
    session.answer({"mounts": _listed(session.reading())}, _print_mounts)


def _print_mounts(result: Json) -> None:
    if not result["mounts"]:
        terminal.echo("Nothing is mounted.")
        return
    rows = [(mount["name"], _contents(mount), mount["path"]) for mount in result["mounts"]]
    terminal.echo("\n".join(terminal.table(("name", "what is in it", "file"), rows)))


def _contents(mount: Json) -> str:
    if mount["problem"]:
        return terminal.warned(mount["problem"])
    return contents(mount)


def contents(mount: Json) -> str:
    """`3 documents, 12 passages, 2 quick starts, 5 rules`; the last two only where there are any."""
    parts = [terminal.counted(mount["sources"], "document"), terminal.counted(mount["chunks"], "passage")]
    more = (("quick start", mount.get("quickstarts")), ("rule", mount.get("rules")))
    return ", ".join([*parts, *(terminal.counted(number, name) for name, number in more if number)])


def _listed(workspace: Workspace) -> list[Json]:
    """What is remembered, and what is in it now."""
    from localmcp.errors import LocalMCPError

    opened = {file.name: file for file in workspace.mounts.files()[0]}
    listed: list[Json] = []
    for entry in workspace.mounts.entries():
        about: Json = {"name": entry.name, "path": str(entry.path), "mountedAt": entry.mounted_at, "problem": None}
        try:
            if entry.name not in opened:
                raise LocalMCPError("it is not there")
            about |= opened[entry.name].describe()
        except LocalMCPError as error:
            about["problem"] = error.message
        listed.append(about)
    return listed
