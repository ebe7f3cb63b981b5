"""`localmcp models` and `reembed`: list, download and check models, embed the file with another."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from localmcp import config
from localmcp.cli import render
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, group, pass_session
from localmcp.cli.values import collection_option, no_wait
from localmcp.errors import InvalidInput, ModelUnavailable, NotFound
from localmcp.files import make_private_folder, open_private
from localmcp.humanize import command_line, counted
from localmcp.index import reembedding
from localmcp.index.adaptation import adapt_weights
from localmcp.index.collections import Collection, choose_collections, spec_of
from localmcp.index.reembedding import Reembedded
from localmcp.models import Embedder, ModelIdentity, open_embedder, parse_spec
from localmcp.models.available import available_models
from localmcp.schemas import Json

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


@group()
def models() -> None:
    """List embedding models, or download one.

    The default model comes with localmcp and needs no network. Another is chosen with
    `localmcp models use SPEC`; the vectors of two models are never mixed in one collection.
    """


@models.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that can be downloaded.")
@pass_session
def list_models(session: Session, everything: bool) -> None:
    """List the models on this machine; the star marks the one in use."""
    listed = available_models(session.settings.model, everything=everything)
    session.answer({"models": listed}, lambda value: _print_models(session, value, everything))


@models.command("use")
@click.argument("spec", required=False)
@click.option("--rollback", is_flag=True, help="Let the model answer again that was used before.")
@no_wait("Return at once; a process in the background goes on.")
@pass_session
def use_model(session: Session, spec: str | None, rollback: bool, no_wait: bool) -> None:
    """Let a model read everything that is in the file, and set it as the one to use.

    The old vectors answer until the new ones are complete. When it is stopped, the same command goes on.

    \b
      localmcp models use multilingual --no-wait
      localmcp models use --rollback
    """
    if rollback == bool(spec):
        raise InvalidInput("Name the model to use, or give --rollback.", hint="See: localmcp models list")
    if spec is None:
        _go_back(session)
        return
    verified = _verified(session, spec)
    if no_wait:
        _read_behind(session, spec)
    else:
        _let_read(session, spec, verified)


def _read_behind(session: Session, spec: str) -> None:
    """Start `models use` in a process that outlives this one."""
    arguments = ["--db", str(session.settings.database), "models", "use", spec]
    log = config.state_directory() / "models.log"
    make_private_folder(log.parent)
    with open(log, "ab", opener=open_private) as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "localmcp", *arguments],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    session.answer({"model": {"spec": spec}, "process": process.pid, "log": str(log)})
    session.note(f"{spec} reads what is in the file, and is set when it is done; until then the old vectors answer.")
    session.note(f"Its log is {log}. If it is stopped, the same command goes on.")


@models.command("add")
@click.argument("spec")
@pass_session
def add_model(session: Session, spec: str) -> None:
    """Download a model such as fastembed:BAAI/bge-small-en-v1.5.

    This is the only command that contacts a host by itself, and only for a spec of the form fastembed:NAME. Other
    specs are opened and tried.
    """
    if parse_spec(spec).kind == "fastembed":
        session.note(f"Fetching {spec} into {config.models_directory()} …")
    embedder = _open(session, spec, download=True)
    identity = embedder.identity
    words = f"{identity.name} works: {identity.dimension} dimensions."
    session.answer(_described(spec, identity), lambda _: render.echo(words))
    session.note(f"Use it with: localmcp models use {spec}")


@models.command("verify")
@click.argument("spec", required=False)
@pass_session
def verify_model(session: Session, spec: str | None) -> None:
    """Open a model (the one in use without SPEC), compare its weights where they are known, and embed a sentence."""
    verified = _verified(session, spec or session.settings.model)
    session.answer(verified, lambda _: render.echo(_working(verified)))


def _verified(session: Session, spec: str) -> Json:
    """Return a model opened and tried; never downloads.

    Raises:
        ModelUnavailable: it is not here, is damaged, or answers with something that is not a vector.
    """
    embedder = _open(session, spec)
    identity = embedder.identity
    tried = embedder.embed_passages(["The quick brown fox jumps over the lazy dog.", "Tax returns are due in May."])
    near = float(embedder.embed_query("a fox leaps across a dog") @ tried[0])
    if tried.shape != (2, identity.dimension) or not math.isfinite(near):
        raise ModelUnavailable(f"{spec} opens, but what it makes of a sentence is not a vector.")
    return {**_described(spec, identity), "fingerprint": identity.fingerprint, "similarity": round(near, 4)}


def _described(spec: str, identity: ModelIdentity) -> Json:
    sizes = {"dimension": identity.dimension, "maxTokens": identity.max_tokens}
    return {"spec": spec, "name": identity.name, **sizes, "sha256": identity.sha256}


def _open(session: Session, spec: str, *, download: bool = False) -> Embedder:
    key, threads = session.settings.model_api_key or None, session.settings.threads or None
    return open_embedder(spec, api_key=key, threads=threads, download=download)


def _working(verified: Json) -> str:
    dimensions = f"{verified['dimension']} dimensions"
    return f"{verified['name']} works: {dimensions}, weights {verified['sha256'][:16] or 'unknown'}"


def _print_models(session: Session, result: Json, everything: bool) -> None:
    rows = [("*" if m["inUse"] else "", m["spec"], m["state"], m["says"]) for m in result["models"]]
    session.print_table(("", "model", "state", "what it is"), rows)
    if not everything:
        session.remark("More that can be downloaded: localmcp models list --all")


GOES_ON = "What was embedded is kept, and the old vectors answer. The same command goes on."


@command()
@collection_option("Only this collection, and no rules.")
@click.option("--model", metavar="SPEC", help="The model to change to; otherwise the one that is set.")
@click.option("--rollback", is_flag=True, help="Let the old vectors answer again.")
@click.option("--clean", is_flag=True, help="Delete the vectors that no longer answer.")
@pass_session
def reembed(session: Session, collection: str | None, model: str | None, rollback: bool, clean: bool) -> None:
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
        _clean(session, workspace, collections)
    elif rollback:
        _roll_back(session, workspace, collections)
    else:
        _reembed(session, collections, model or session.settings.model, rules=collection is None)


def _let_read(session: Session, spec: str, verified: Json) -> None:
    """Embed what is in the file with a model, then set it; without a file only set it."""
    if session.settings.database.exists():
        _reembed(session, _chosen(session.existing(), None), spec, rules=True, sets=True)
    else:
        session.answer({"model": {"spec": spec, "name": verified["name"]}, "collections": [], "rules": 0})
    _set(session, spec)


def _go_back(session: Session) -> None:
    """Let the vectors answer again that did before, and set their model."""
    workspace = session.existing()
    collections = _chosen(workspace, None)
    done = _roll_back_all(workspace, collections)
    with workspace.database.read() as connection:
        spec = reembedding.spec_in_use(connection, collections[0])
    session.answer({"collections": [asdict(result) for result in done]})
    _set(session, spec)


def _set(session: Session, spec: str) -> None:
    path = config.write_setting("model", spec)
    session.note(f"The model in use is {spec} ({path}). Restart the clients that have localmcp open.")
    if os.environ.get("LOCALMCP_MODEL", spec) != spec:
        session.warn("LOCALMCP_MODEL is set in this shell, and counts more.")


def _chosen(workspace: Workspace, name: str | None) -> list[Collection]:
    with workspace.database.read() as connection:
        return choose_collections(connection, [name]) if name else reembedding.collections_to_reembed(connection)


# ---------------------------------------------------------------- embed with another model


def _reembed(session: Session, collections: list[Collection], spec: str, *, rules: bool, sets: bool = False) -> None:
    from localmcp.workspace import Workspace

    session.if_stopped = GOES_ON
    # Only this workspace uses the other model; the settings keep theirs.
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
    session.answer(result, lambda _: _print_reembedded(session, done, rules_read))
    if not sets:
        _note_setting(session, spec, any(result.switched for result in done))


def _reembed_one(session: Session, workspace: Workspace, collection: Collection, embedder: Embedder) -> Reembedded:
    with shown_counts(session, f"embedding {collection.name}") as show:
        done = reembedding.reembed(workspace.database, collection, embedder, show)
    if done.switched and session.settings.adaptive_weight:
        adapt_weights(workspace.database, embedder)
    return done


def _print_reembedded(session: Session, done: list[Reembedded], rules: int) -> None:
    for copy in done:
        made = counted(copy.embedded, "vector")
        if copy.switched and copy.before:
            session.note(f"{copy.collection}: {made} made; those of {copy.model} answer instead of {copy.before}'s.")
        elif copy.embedded:
            session.note(f"{copy.collection}: {made} made, all of {copy.model}.")
        else:
            session.note(f"{copy.collection}: has the vectors of {copy.model} already.")
        session.warn(*copy.notes)
    if rules:
        session.note(f"{counted(rules, 'rule')} read.")
    if not done and not rules:
        session.note("There is nothing to embed.")


def _note_setting(session: Session, spec: str, switched: bool) -> None:
    if spec != session.settings.model:
        session.note(f"Searches need the same model: localmcp config set model {command_line(spec)}")
    if switched:
        session.remark("Back: localmcp reembed --rollback   Delete the old vectors: localmcp reembed --clean")


# ---------------------------------------------------------------- go back to the old vectors


def _roll_back(session: Session, workspace: Workspace, collections: list[Collection]) -> None:
    done = _roll_back_all(workspace, collections)
    result = {"collections": [asdict(result) for result in done], "setting": session.settings.model}
    session.answer(result, lambda _: _print_rolled_back(session, done))


def _roll_back_all(workspace: Workspace, collections: list[Collection]) -> list[Reembedded]:
    done: list[Reembedded] = []
    failure: NotFound | None = None
    for collection in collections:
        try:
            done.append(reembedding.roll_back(workspace.database, collection))
        except NotFound as error:
            failure = failure or error
    if not done:
        raise failure or NotFound("There is nothing to go back to.")
    return done


def _print_rolled_back(session: Session, done: list[Reembedded]) -> None:
    for reembedded in done:
        session.note(f"{reembedded.collection}: the vectors of {reembedded.model} answer again.")
        session.warn(*reembedded.notes)
    spec = spec_of(done[0].model)
    session.note(f"Searches need the same model: localmcp config set model {spec}")
    session.remark("Then, for rules and for what has no vector: localmcp rules reembed && localmcp refresh")


def _clean(session: Session, workspace: Workspace, collections: list[Collection]) -> None:
    removed = {collection.name: reembedding.clean(workspace.database, collection) for collection in collections}
    total = sum(removed.values())
    session.answer({"removed": removed}, lambda _: session.note(f"{counted(total, 'old vector')} deleted."))
    if total:
        session.remark("The space is given back by: localmcp optimize")
