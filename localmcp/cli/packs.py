"""`localmcp pack`, `verify`, `mount`, `unmount`, `mounts`, `merge`: files given and received."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import existing_file
from localmcp.cli.ingest import finish_vectors
from localmcp.cli.options import COLLECTIONS, no_wait
from localmcp.cli.session import Session, command, pass_session
from localmcp.files import expand_home
from localmcp.index.reembedding import REFRESH
from localmcp.schemas import Json, camel_case

SHOWN_CONFLICTS = 20


@command()
@click.argument("target", metavar="OUT.localmcp", type=click.Path(path_type=Path))
@click.option(
    "-c", "--collection", "collections", multiple=True,
    help="Only this collection, without quick starts and rules; may be repeated.",
)  # fmt: skip
@click.option("--title", default="", help="What it is called.")
@click.option("--author", default="", help="Who made it.")
@click.option("--note", default="", help="What should be known about it.")
@click.option("--without-calls", is_flag=True, help="Accepted for scripts: a pack never holds the log of calls.")
@click.option("--force", is_flag=True, help="Replace OUT.localmcp if it is there.")
@no_wait("Pack passages whose meaning is not read yet as they are.")
@pass_session
def pack(
    session: Session, target: Path, collections: tuple[str, ...], force: bool, without_calls: bool, no_wait: bool,
    **texts: Any,
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
    size = path.stat().st_size
    words = f"Wrote {path} ({terminal.size(size)}): {contents(manifest.counts)}"
    session.answer({"path": path, "bytes": size, "manifest": asdict(manifest)}, lambda _: terminal.echo(words))
    if without_calls:
        session.note("--without-calls is not needed: a pack never holds the log of calls.")


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--sources", "all_sources", is_flag=True, help="List every document with its hash.")
@pass_session
def verify(session: Session, file: Path, all_sources: bool) -> int:
    """Check that a file is whole.

    It must be one of ours, its indexes must agree with its documents, and it must hold what its manifest says. Every
    page and every row is read, nothing is changed. Ends with exit code 1 when something is wrong.
    """
    from localmcp.packs.verify import verify as look

    verification = look(expand_home(file).absolute())
    facts: Json = asdict(verification)
    order = ("problems", "notes", "counts", "manifest", "sources")
    result = {"path": str(verification.path), "sound": verification.sound, **{name: facts[name] for name in order}}
    session.answer(result, lambda value: terminal.echo("\n".join(_verification_lines(value, all_sources))))
    return 0 if verification.sound else 1


def _verification_lines(result: Json, all_sources: bool) -> list[str]:
    lines = [f"{terminal.warned('wrong')}  {problem}" for problem in result["problems"]]
    if not lines:
        lines.append(f"{terminal.styled('sound', fg='green')}  {result['path']}")
    lines += [terminal.dim(note) for note in result["notes"]]
    manifest: Json = result["manifest"] or {}
    lines += terminal.fact_lines(_facts(manifest, result["counts"]))
    if all_sources:
        rows = [
            (source["sha256"][:16], source["collection"], source["place"] or source["title"])
            for source in result["sources"]
        ]
        lines += terminal.table(("sha256", "collection", "document"), rows)
    return lines


def _facts(manifest: Json, counts: Json) -> list[tuple[str, str]]:
    models = [f"{model.get('name')} ({model.get('dimension')} dimensions)" for model in manifest.get("models", ())]
    return [
        ("title", manifest.get("title", "")),
        ("author", manifest.get("author", "")),
        ("note", manifest.get("note", "")),
        ("made", " by ".join(filter(None, (manifest.get("created_at"), manifest.get("made_by"))))),
        ("model", ", ".join(models)),
        ("holds", contents(counts) if counts else ""),
        ("digest", manifest.get("digest", "")),
    ]


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
    # A search needs a file of the person's own, even an empty one.
    with workspace.database.read():
        pass
    entry = workspace.mounts.mount(file, name)
    result = next(listed for listed in workspace.mounts.described() if listed["name"] == entry.name)
    words = f"Mounted {result['path']} as {result['name']}: {_contents(result)}"
    session.answer(result, lambda _: terminal.echo(words))


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
    result = {"mounts": session.reading().mounts.described()}
    session.answer(result, lambda _: _print_mounts(session, result))


def _print_mounts(session: Session, result: Json) -> None:
    rows = [(mount["name"], _contents(mount), mount["path"]) for mount in result["mounts"]]
    session.print_table(("name", "what is in it", "file"), rows)
    if not rows:
        terminal.echo("Nothing is mounted.")


def _contents(mount: Json) -> str:
    return terminal.warned(mount["problem"]) if mount["problem"] else contents(mount)


def contents(mount: Json) -> str:
    """`3 documents, 12 passages, 2 quick starts, 5 rules`; the last two only where there are any."""
    parts = [terminal.counted(mount["sources"], "document"), terminal.counted(mount["chunks"], "passage")]
    more = (("quick start", mount.get("quickstarts")), ("rule", mount.get("rules")))
    return ", ".join([*parts, *(terminal.counted(number, name) for name, number in more if number)])


@command()
@click.argument("file", type=click.Path(path_type=Path))
@COLLECTIONS
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@no_wait()
@pass_session
def merge(session: Session, file: Path, collections: tuple[str, ...], dry_run: bool, no_wait: bool) -> None:
    """Take the documents, quick starts and rules of another file into yours.

    A document whose content is there already is left out. Where a place or title is the same and the content is not,
    both are kept and listed; of quick starts of one name, yours stays. Vectors are taken over if the same model made
    them, and made again if not. Stopped in the middle, the same command goes on.
    """
    from localmcp.packs.merge import MergeReport

    existing_file(file)

    def say(report: MergeReport) -> None:
        if session.verbosity:
            session.note(f"{report.added:,} documents, {report.chunks:,} passages …")

    workspace = session.existing() if dry_run else session.workspace
    merging = workspace.merging(partial(session.call_in, workspace))
    report = merging.run(file, collections or None, dry_run=dry_run, wait=not no_wait, say=say)
    counts = {camel_case(name): value for name, value in asdict(report).items()}
    result = {"path": expand_home(file).absolute(), "dryRun": dry_run, **counts}
    session.answer(result, lambda value: terminal.echo("\n".join(_merge_lines(value))))


def _merge_lines(result: Json) -> list[str]:
    would = "would be " if result["dryRun"] else ""
    passages = terminal.counted(result["chunks"], "passage")
    missing = "to make" if result["dryRun"] else "still missing"
    how = f"   (made by: {REFRESH})" if result["vectorsMissing"] and not result["dryRun"] else ""
    lines = [
        f"{terminal.counted(result['added'], 'document')} {would}added ({passages}), {result['known']:,} known",
        f"vectors: {result['vectorsReused']:,} taken over, {result['vectorsMade']:,} made, "
        f"{result['vectorsMissing']:,} {missing}{how}",
    ]
    if result["quickstartsAdded"] or result["quickstartsKnown"]:
        lines.append(f"quick starts: {result['quickstartsAdded']:,} {would}added, {result['quickstartsKnown']:,} known")
    if result["rulesAdded"] or result["rulesKnown"]:
        lines.append(f"rules: {result['rulesAdded']:,} {would}added, {result['rulesKnown']:,} known")
    lines += [
        f"{terminal.warned('conflict')}  {conflict['kind']} {conflict['name']}: {conflict['outcome']}"
        for conflict in result["conflicts"][:SHOWN_CONFLICTS]
    ]
    if len(result["conflicts"]) > SHOWN_CONFLICTS:
        lines.append(terminal.dim(f"{len(result['conflicts']) - SHOWN_CONFLICTS} more conflicts: --json"))
    lines += [f"{terminal.warned('left out')}  {skipped}" for skipped in result["skipped"]]
    return [*lines, *(terminal.dim(notice) for notice in result["notices"])]
