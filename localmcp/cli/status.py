"""`localmcp status`: the file, what is in it, and the model."""

from __future__ import annotations

import click

from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import LocalMCPError
from localmcp.index.reembedding import REFRESH
from localmcp.schemas import Json


@command()
@click.option("--check", is_flag=True, help="Also load the model, which takes about a second.")
@pass_session
def status(session: Session, check: bool) -> None:
    """Show the file, what is in it, and the model."""
    stats = session.call("get_stats").value
    result: Json = {"file": _file(session), "model": _model(session, check), "stats": stats}
    result["leftOut"] = _left_out(session)
    if stats["chunksWithoutEmbeddings"] and result["file"]["writable"]:
        result["makeVectors"] = REFRESH
    model = result["model"]
    facts = {
        **result["file"],
        "model": model["setting"],
        "model state": model["state"],
        "problem": model.get("problem"),
    }
    lists = {"left out": result["leftOut"]}
    session.answer(result, lambda _: session.show({**facts, **stats, **lists}))
    if "makeVectors" in result:
        session.warn(f"Read the meaning of what has no vectors with: {result['makeVectors']}")


def _left_out(session: Session) -> list[Json]:
    """Return the watched folders of which files were skipped or could not be read, most failures first."""
    library = session.workspace.library
    counts = {root.path: library.why(root.path).get("counts", {}) for root in library.roots()}
    left = [{"path": path, "failed": n.get("failed", 0), "skipped": n.get("skipped", 0)} for path, n in counts.items()]
    left.sort(key=lambda folder: (folder["failed"], folder["skipped"]), reverse=True)
    return [folder for folder in left if folder["failed"] or folder["skipped"]]


def _file(session: Session) -> Json:
    database, why_read_only = session.workspace.database, None
    try:
        database.ensure_writable()
    except LocalMCPError as error:
        why_read_only = str(error)
    about = {"path": str(database.path), "bytes": database.size(), "writable": why_read_only is None}
    return {**about, "whyReadOnly": why_read_only}


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
