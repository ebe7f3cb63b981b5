"""`localmcp status`: the file, what is in it, and the model."""

from __future__ import annotations

import click

from localmcp.cli import terminal
from localmcp.cli.packs import contents
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import LocalMCPError
from localmcp.humanize import command_line
from localmcp.index import reembedding
from localmcp.schemas import Json

MOST_LANGUAGES = 6
"""Languages that are named, those of most passages first."""


@command()
@click.option("--check", is_flag=True, help="Also load the model, which takes about a second.")
@pass_session
def status(session: Session, check: bool) -> None:
    """Show the file, what is in it, and the model."""
    stats = session.call("get_stats").value
    copies = session.call("replication_status").value["copies"]
    result: Json = {"file": _file(session), "model": _model(session, check), "stats": stats, "copies": copies}
    result["leftOut"] = _left_out(session)
    with session.workspace.database.read() as connection:
        result["reembedding"] = [
            {"collection": run.collection, "model": run.spec, "done": run.done, "total": run.total, "goOn": run.command}
            for run in reembedding.unfinished(connection)
        ]
        if stats["chunksWithoutEmbeddings"] and result["file"]["writable"]:
            result["makeVectors"] = reembedding.command_for_waiting(connection, session.settings.model)
    session.answer(result, lambda value: _print_status(session, value))


def _left_out(session: Session) -> list[Json]:
    """Return the watched folders of which files were skipped or could not be read, most failures first."""
    library = session.workspace.library
    counts = {root.path: library.why(root.path).get("counts", {}) for root in library.roots()}
    left = [{"path": path, "failed": n.get("failed", 0), "skipped": n.get("skipped", 0)} for path, n in counts.items()]
    left.sort(key=lambda folder: (folder["failed"], folder["skipped"]), reverse=True)
    return [folder for folder in left if folder["failed"] or folder["skipped"]]


def _file(session: Session) -> Json:
    database = session.workspace.database
    try:
        database.ensure_writable()
        why_read_only = None
    except LocalMCPError as error:
        why_read_only = str(error)
    return {
        "path": str(database.path),
        "bytes": database.size(),
        "writable": why_read_only is None,
        "whyReadOnly": why_read_only,
    }


def _model(session: Session, check: bool) -> Json:
    """Return the model that is set; loaded only when asked."""
    model: Json = {"setting": session.settings.model, "state": "loads at the first search"}
    if not check:
        return model
    try:
        identity = session.workspace.embedder.get().identity
    except LocalMCPError as error:
        return {**model, "state": "unavailable", "problem": str(error)}
    return {**model, "state": "ready", "name": identity.name, "dimension": identity.dimension}


def _print_status(session: Session, result: Json) -> None:
    file, model, stats = result["file"], result["model"], result["stats"]
    facts = {
        "file": f"{file['path']}  {terminal.dim(terminal.size(file['bytes']))}",
        "read-only": terminal.warned(file["whyReadOnly"] or ""),
        "holds": f"{terminal.counted(stats['totalSources'], 'document')}, "
        f"{terminal.counted(stats['totalChunks'], 'passage')}",
        "no vectors": _without_vectors(result),
        "left out": _which_left_out(result["leftOut"]),
        "trash": terminal.counted(stats["trashedSources"], "document") if stats["trashedSources"] else "",
        "languages": _languages(stats["languages"]),
        "advice": terminal.warned(stats.get("languageNotice", "")),
        "model": f"{model['setting']}  {terminal.dim(model.get('name', ''))}  {model['state']}",
        "problem": terminal.warned(model.get("problem", "")),
    }
    mounts = [("mounted", f"{mount['name']}: {contents(mount)}") for mount in stats.get("mounts", ())]
    copies = [("milvus", _copy(copy)) for copy in result["copies"]]
    reembeddings = [("reembedding", _on_its_way(run)) for run in result["reembedding"]]
    lines = terminal.fact_lines([*facts.items(), *reembeddings, *mounts, *copies])
    terminal.echo(session.advised("\n".join(lines)))
    collections = [(c["name"], f"{c['sources']:,}", f"{c['chunks']:,}", c["model"] or "") for c in stats["collections"]]
    if collections:
        terminal.echo()
        head = ("collection", "documents", "passages", "model of its vectors")
        session.print_table(head, collections, right=(1, 2))


def _languages(passages: dict[str, int]) -> str:
    """`english 1,204, italian 31, and 5 more`: of code and tables a few passages look like any language."""
    named = [f"{name} {count:,}" for name, count in passages.items()]
    more = [f"and {len(named) - MOST_LANGUAGES} more"] if len(named) > MOST_LANGUAGES else []
    return ", ".join(named[:MOST_LANGUAGES] + more)


def _copy(copy: Json) -> str:
    """`notes, as notes: searched there`, and what waits to be sent."""
    text = f"{copy['collection']}, as {copy['name']}: "
    if not copy["searchesUseIt"]:
        again = f"localmcp push {copy['collection']}"
        return text + terminal.warned(f"not complete, searched in the file; go on with: {again}")
    text += "searched there"
    if copy["pendingChanges"]:
        text += terminal.warned(f"; still to be sent: {terminal.counted(copy['pendingChanges'], 'change')}")
    return text + (terminal.warned(f" ({copy['problem']})") if copy["problem"] else "")


def _without_vectors(result: Json) -> str:
    """Return what a search by meaning does not see."""
    missing = result["stats"]["chunksWithoutEmbeddings"]
    if not missing:
        return ""
    passages = terminal.counted(missing, "passage")
    command = result.get("makeVectors")
    return terminal.warned(f"{passages}; make them with: {command}" if command else passages)


def _which_left_out(folders: list[Json]) -> str:
    """`2 failed, 42 skipped; which, and why: localmcp why ~/notes`."""
    totals = {name: sum(folder[name] for folder in folders) for name in ("failed", "skipped")}
    counts = ", ".join(f"{count:,} {name}" for name, count in totals.items() if count)
    return f"{counts}; which, and why: localmcp {command_line('why', folders[0]['path'])}" if folders else ""


def _on_its_way(run: Json) -> str:
    """`default: 192 of 1,000 passages read by multilingual; if that was stopped, go on with: …`."""
    counts = f"{run['done']:,} of {terminal.counted(run['total'], 'passage')}"
    text = f"{run['collection']}: {counts} read by {run['model']}; if that was stopped, go on with: {run['goOn']}"
    return terminal.warned(text)
