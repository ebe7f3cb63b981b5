"""`localmcp reembed`: another model reads what is in the file, and the way back."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from localmcp import config
from localmcp.cli import terminal
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from localmcp.embeddings import Embedder
    from localmcp.search.collections import Collection
    from localmcp.search.reembedding import Reembedded
    from localmcp.workspace import Workspace

Json = dict[str, Any]
GOES_ON = "What was embedded is kept, and the old vectors answer. The same command goes on."


@command()
@click.option("-c", "--collection", help="Only this collection, and no rules.")
@click.option("--model", metavar="SPEC", help="The model to change to; otherwise the one that is set.")
@click.option("--rollback", is_flag=True, help="Let the old vectors answer again.")
@click.option("--clean", is_flag=True, help="Delete the vectors that no longer answer.")
@pass_session
def reembed(session: Session, collection: str | None, model: str | None, rollback: bool, clean: bool) -> int:
    """Let another model read everything that is in the file.

    The new vectors are made beside the old ones, which answer until all are there. When it is stopped, the same command
    goes on. The old vectors stay until --clean, and answer again at once after --rollback.

    \b
      localmcp reembed --model fastembed:BAAI/bge-small-en-v1.5
      localmcp config set model fastembed:BAAI/bge-small-en-v1.5
      localmcp reembed --rollback
    """
    if rollback + clean + bool(model) > 1:
        raise InvalidInput("--model, --rollback and --clean exclude each other.")
    workspace = session.existing()
    collections = _chosen(workspace, collection)
    if clean:
        return _clean(session, workspace, collections)
    if rollback:
        return _roll_back(session, workspace, collections, collection)
    try:
        return _reembed(session, collections, model or session.settings.model, rules=collection is None)
    except KeyboardInterrupt:
        return session.interrupted(GOES_ON)


def let_read(session: Session, spec: str, verified: Json) -> int:
    """Embed what is in the file with a model, then set it; without a file only set it."""
    if session.settings.database.exists():
        try:
            _reembed(session, _chosen(session.existing(), None), spec, rules=True, sets=True)
        except KeyboardInterrupt:
            return session.interrupted(GOES_ON)
    else:
        session.answer({"model": {"spec": spec, "name": verified["name"]}, "collections": [], "rules": 0}, _silent)
    _set(session, spec)
    return 0


def go_back(session: Session) -> int:
    """Let the vectors answer again that did before, and set their model."""
    from localmcp.search.reembedding import spec_in_use

    workspace = session.existing()
    collections = _chosen(workspace, None)
    done = _roll_back_all(workspace, collections)
    with workspace.database.read() as connection:
        spec = spec_in_use(connection, collections[0])
    session.answer({"collections": [asdict(result) for result in done]}, _silent)
    _set(session, spec)
    return 0


def _silent(_: Any) -> None: ...


def _set(session: Session, spec: str) -> None:
    path = config.write_setting("model", spec)
    session.note(f"The model in use is {spec} ({path}). Restart the clients that have localmcp open.")
    if os.environ.get("LOCALMCP_MODEL", spec) != spec:
        session.note(terminal.warned("LOCALMCP_MODEL is set in this shell, and counts more."))


def _chosen(workspace: Workspace, name: str | None) -> list[Collection]:
    from localmcp.search.collections import choose_collections
    from localmcp.search.reembedding import collections_to_reembed

    with workspace.database.read() as connection:
        return choose_collections(connection, [name]) if name else collections_to_reembed(connection)


# ---------------------------------------------------------------- there


def _reembed(session: Session, collections: list[Collection], spec: str, *, rules: bool, sets: bool = False) -> int:
    from localmcp.workspace import Workspace

    # A workspace with the model that is changed to: nothing else knows the setting of this command.
    with Workspace(replace(session.settings, model=spec)) as workspace:
        workspace.database.ensure_writable()
        embedder = workspace.embedder.get()
        done = [_reembed_one(session, workspace, collection, embedder) for collection in collections]
        rules_read = workspace.rules.embed_missing() if rules else 0
        name = embedder.identity.name
    result: Json = {
        "model": {"spec": spec, "name": name},
        "collections": [asdict(reembedded) for reembedded in done],
        "rules": rules_read,
        "setting": session.settings.model,
    }
    session.answer(result, lambda _: _tell(session, done, rules_read))
    if not sets:
        _tell_setting(session, spec, any(result.switched for result in done))
    return 0


def _reembed_one(session: Session, workspace: Workspace, collection: Collection, embedder: Embedder) -> Reembedded:
    from localmcp.search.adaptation import adapt_weights
    from localmcp.search.reembedding import reembed as embed_again

    with shown_counts(session, f"embedding {collection.name}") as show:
        done = embed_again(workspace.database, collection, embedder, show)
    if done.switched and session.settings.adaptive_weight:
        adapt_weights(workspace.database, embedder)
    return done


def _tell(session: Session, done: list[Reembedded], rules: int) -> None:
    for copy in done:
        made = terminal.counted(copy.embedded, "vector")
        if copy.switched and copy.before:
            session.note(f"{copy.collection}: {made} made; those of {copy.model} answer instead of {copy.before}'s.")
        elif copy.embedded:
            session.note(f"{copy.collection}: {made} made, all of {copy.model}.")
        else:
            session.note(f"{copy.collection}: has the vectors of {copy.model} already.")
        session.warn_all(copy.notes)
    if rules:
        session.note(f"{terminal.counted(rules, 'rule')} read.")
    if not done and not rules:
        session.note("There is nothing to embed.")


def _tell_setting(session: Session, spec: str, switched: bool) -> None:
    if spec != session.settings.model:
        session.note(f"Searches need the same model: localmcp config set model {terminal.quoted([spec])}")
    if switched:
        session.note(
            terminal.dim("Back: localmcp reembed --rollback   Delete the old vectors: localmcp reembed --clean")
        )


# ---------------------------------------------------------------- and back


def _roll_back(session: Session, workspace: Workspace, collections: list[Collection], named: str | None) -> int:
    done = _roll_back_all(workspace, collections)
    result = {"collections": [asdict(result) for result in done], "setting": session.settings.model}
    session.answer(result, lambda _: _tell_back(session, done))
    return 0


def _roll_back_all(workspace: Workspace, collections: list[Collection]) -> list[Reembedded]:
    from localmcp.search.reembedding import roll_back

    done: list[Reembedded] = []
    failure: NotFound | None = None
    for collection in collections:
        try:
            done.append(roll_back(workspace.database, collection))
        except NotFound as error:
            failure = failure or error
    if not done:
        raise failure or NotFound("There is nothing to go back to.")
    return done


def _tell_back(session: Session, done: list[Reembedded]) -> None:
    from localmcp.search.reembedding import spec_of

    for reembedded in done:
        session.note(f"{reembedded.collection}: the vectors of {reembedded.model} answer again.")
        session.warn_all(reembedded.notes)
    spec = spec_of(done[0].model)
    session.note(f"Searches need the same model: localmcp config set model {spec}")
    session.note(terminal.dim("Then, for rules and for what has no vector: localmcp rules reembed && localmcp refresh"))


def _clean(session: Session, workspace: Workspace, collections: list[Collection]) -> int:
    from localmcp.search.reembedding import clean

    removed = {collection.name: clean(workspace.database, collection) for collection in collections}
    total = sum(removed.values())
    session.answer({"removed": removed}, lambda _: session.note(f"{terminal.counted(total, 'old vector')} deleted."))
    if total:
        session.note(terminal.dim("The space is given back by: localmcp optimize"))
    return 0
