"""`localmcp pack`, `verify`, `mount`, `unmount`, `mounts`, `merge`: files given and received."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from localmcp.cli.ingest import finish_vectors
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import COLLECTIONS, existing_file, no_wait
from localmcp.files import expand_home
from localmcp.humanize import counted, size
from localmcp.schemas import Json, camel_case


@command()
@click.argument("target", metavar="OUT.localmcp", type=click.Path(path_type=Path))
@click.option(
    "-c", "--collection", "collections", multiple=True,
    help="Only this collection, without quick starts and rules; may be repeated.",
)  # fmt: skip
@click.option("--title", default="", help="What it is called.")
@click.option("--author", default="", help="Who made it.")
@click.option("--note", default="", help="What should be known about it.")
@click.option("--force", is_flag=True, help="Replace OUT.localmcp if it is there.")
@no_wait("Pack passages whose meaning is not read yet as they are.")
@pass_session
def pack(
    session: Session, target: Path, collections: tuple[str, ...], force: bool, no_wait: bool, **texts: Any
) -> None:  # fmt: skip
    """Write one file to give away: documents with their vectors, quick starts, rules.

    API keys, the log of calls, what is in the trash, and the folders of this machine are not in it. It opens on another
    machine as it is: `localmcp --db OUT.localmcp search …`, or together with another file by `localmcp mount`.
    """
    from localmcp.packs.pack import PackOptions, write_pack

    finish_vectors(session, collections or (None,), wait=not no_wait)
    options = PackOptions(collections or None, texts["title"], texts["author"], texts["note"], force)
    manifest = write_pack(session.existing().database, target, options, lambda step: session.note(f"{step} …"))
    path = expand_home(target).absolute()
    length = path.stat().st_size
    counts = manifest.counts
    parts = [counted(counts["sources"], "document"), counted(counts["chunks"], "passage")]
    more = (("quick start", counts.get("quickstarts")), ("rule", counts.get("rules")))
    parts += [counted(number, name) for name, number in more if number]
    words = f"Wrote {path} ({size(length)}): {', '.join(parts)}"
    session.answer({"path": path, "bytes": length, "manifest": asdict(manifest)}, words)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@pass_session
def verify(session: Session, file: Path) -> int:
    """Check that a file is whole.

    It must be one of ours, its indexes must agree with its documents, and it must hold what its manifest says. Every
    page and every row is read, nothing is changed. Ends with exit code 1 when something is wrong.
    """
    from localmcp.packs.pack import verify as look

    verification = look(expand_home(file).absolute())
    facts: Json = asdict(verification)
    order = ("problems", "notes", "counts", "manifest", "sources")
    result = {"path": str(verification.path), "sound": verification.sound, **{name: facts[name] for name in order}}
    session.answer(result, lambda _: session.show({**result, "sources": []}))
    return 0 if verification.sound else 1


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="What its results are marked with; its file name when left out.")
@pass_session
def mount(session: Session, file: Path, name: str | None) -> None:
    """Search a file together with yours.

    It stays where it is and is never changed. Its passages, quick starts and rules are marked with its name;
    `localmcp search -c mount:NAME …` searches it alone. What is mounted is remembered on this machine, not in your
    file. A collection that was pushed to Milvus is mounted by its name: `localmcp mount milvus:NAME`.
    """
    workspace = session.workspace
    entry = workspace.mounts.mount(file, name)
    result = next(listed for listed in workspace.mounts.described() if listed["name"] == entry.name)
    session.answer(result, session.show)


@command()
@click.argument("name")
@pass_session
def unmount(session: Session, name: str) -> None:
    """Search a mounted file no longer. It is not deleted."""
    entry = session.reading().mounts.unmount(name)
    session.answer({"unmounted": entry.name, "path": str(entry.path)}, f"Unmounted {entry.name} ({entry.path})")


@command()
@pass_session
def mounts(session: Session) -> None:
    """List the files that are searched together with yours."""
    mounted = session.reading().mounts.described()
    session.answer({"count": len(mounted), "mounts": mounted}, session.show)


@command()
@click.argument("file", type=click.Path(path_type=Path))
@COLLECTIONS
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@no_wait()
@pass_session
def merge(session: Session, file: Path, collections: tuple[str, ...], dry_run: bool, no_wait: bool) -> None:
    """Take the documents, quick starts and rules of another file into yours.

    A document whose content is there already is left out; of quick starts of one name, yours stays and the other is
    listed. Vectors are taken over if the same model made them, and made again if not. Stopped in the middle, the same
    command goes on.
    """
    existing_file(file)
    workspace = session.existing() if dry_run else session.workspace
    merging = workspace.merging(partial(session.call_in, workspace))
    report = merging.run(file, collections or None, dry_run=dry_run, wait=not no_wait)
    counts = {camel_case(name): value for name, value in asdict(report).items()}
    result = {"path": expand_home(file).absolute(), "dryRun": dry_run, **counts}
    session.answer(result, session.show)
