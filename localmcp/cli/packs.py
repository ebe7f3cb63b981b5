"""`localmcp pack` and `verify`: a file to give away, and whether one that was received is whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.ingest import finish_vectors
from localmcp.cli.session import Session, command, pass_session

Json = dict[str, Any]
SHOWN_SOURCES = 20


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
@click.option("--no-wait", is_flag=True, help="Pack passages whose meaning is not read yet as they are.")
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
    path = target.expanduser().absolute()
    result = {"path": str(path), "bytes": path.stat().st_size, "manifest": asdict(manifest)}
    session.answer(result, lambda _: terminal.echo(_packed(path, asdict(manifest))))
    if without_calls:
        session.note("--without-calls is not needed: a pack never holds the log of calls.")


def _packed(path: Path, manifest: Json) -> str:
    held = ", ".join(
        terminal.counted(number, name.rstrip("s")) for name, number in manifest["counts"].items() if number
    )
    return f"Wrote {path} ({terminal.size(path.stat().st_size)}): {held or 'nothing'}"


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

    verification = look(file.expanduser().absolute())
    result: Json = {
        "path": str(verification.path),
        "sound": verification.sound,
        "problems": verification.problems,
        "notes": verification.notes,
        "counts": verification.counts,
        "manifest": asdict(verification.manifest) if verification.manifest else None,
        "sources": verification.sources,
    }
    session.answer(result, lambda value: terminal.echo("\n".join(_verification_lines(value, all_sources))))
    return 0 if verification.sound else 1


def _verification_lines(result: Json, all_sources: bool) -> list[str]:
    lines = [f"{terminal.warned('wrong')}  {problem}" for problem in result["problems"]]
    if not lines:
        lines.append(f"{terminal.styled('sound', fg='green')}  {result['path']}")
    lines += [terminal.dim(note) for note in result["notes"]]
    manifest: Json = result["manifest"] or {}
    lines += [f"{terminal.dim(name.rjust(10))}  {value}" for name, value in _told(manifest, result["counts"]) if value]
    if all_sources:
        rows = [
            (source["sha256"][:16], source["collection"], source["place"] or source["title"])
            for source in result["sources"]
        ]
        lines += terminal.table(("sha256", "collection", "document"), rows)
    return lines


def _told(manifest: Json, counts: Json) -> list[tuple[str, str]]:
    models = [f"{model.get('name')} ({model.get('dimension')} dimensions)" for model in manifest.get("models", ())]
    return [
        ("title", manifest.get("title", "")),
        ("author", manifest.get("author", "")),
        ("note", manifest.get("note", "")),
        ("made", " by ".join(filter(None, (manifest.get("created_at"), manifest.get("made_by"))))),
        ("model", ", ".join(models)),
        ("holds", ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)),
        ("digest", manifest.get("digest", "")),
    ]
