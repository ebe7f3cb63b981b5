"""`localmcp push` and `pull`: a collection's vectors go to Milvus, and come back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.ingest import finish_vectors
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import YES, no_wait
from localmcp.errors import InvalidInput
from localmcp.humanize import counted

GOES_ON = "What was copied is kept. The same command goes on."


@command()
@click.argument("collection")
@click.option("--to", "place", type=click.Choice(["milvus"]), default="milvus", help="Where to.")
@click.option("--as", "name", metavar="NAME", help="What it is called there; the same by default.")
@click.option("--stop", is_flag=True, help="Search it in the file again; changes no longer follow.")
@click.option("--drop", is_flag=True, help="With --stop: delete the copy in Milvus, too.")
@YES
@no_wait("Push the vectors that are there; others follow when they are made.")
@pass_session
def push(
    session: Session, collection: str, place: str, name: str | None, stop: bool, drop: bool, yes: bool, no_wait: bool
) -> None:
    """Copy a collection's vectors to Milvus, and search them there from then on.

    Texts, metadata and the model's identity go with them; the file keeps everything. Later changes follow. The same
    command goes on where it was stopped, and checks a copy that is complete.

    \b
      localmcp config set milvus_address http://127.0.0.1:19530
      localmcp push default --to milvus
      localmcp push default --stop
    """
    if drop and not stop:
        raise InvalidInput("--drop goes with --stop.")
    replication = session.existing().replication
    if stop:
        _stop(session, collection, drop, yes)
        return
    session.if_stopped = GOES_ON
    finish_vectors(session, (collection,), wait=not no_wait)
    with shown_counts(session, f"copying {collection} to {place}") as show:
        copied = replication.push(collection, name, show)
    result = {
        "collection": copied.replica.collection,
        "name": copied.replica.name,
        "server": replication.server,
        "model": copied.replica.model,
        "vectors": copied.total,
        "sent": copied.sent,
        "resumed": copied.resumed,
        "indexed": copied.indexed,
    }
    session.answer(result, lambda _: session.note(_pushed_words(result)))
    if not copied.indexed:
        session.warn("Milvus has not indexed all of it yet; until it has, searches find less.")


def _pushed_words(result: dict[str, Any]) -> str:
    sent = f"{result['sent']:,} sent now" if result["sent"] else "all were there"
    return (
        f"{render.bold(counted(result['vectors'], 'vector'))} of '{result['collection']}' are in "
        f"{result['server']} as '{result['name']}' ({sent}; counted, and a sample compared). "
        "Searches by meaning use them, and changes follow."
    )


def _stop(session: Session, collection: str, drop: bool, yes: bool) -> None:
    if drop:
        session.confirm(f"Delete the copy of '{collection}' in Milvus?", yes)
    replica = session.existing().replication.stop(collection, drop=drop)
    result = {"collection": replica.collection, "name": replica.name, "dropped": drop}
    outcome = "deleted" if drop else "left as it is"
    words = f"'{replica.collection}' is searched in the file again; the copy '{replica.name}' was {outcome}."
    session.answer(result, lambda _: session.note(words))


@command()
@click.argument("collection")
@click.option("--from", "place", type=click.Choice(["milvus"]), default="milvus", help="Where from.")
@click.option("--as", "name", metavar="NAME", help="What it is called here; the same by default.")
@click.option("--assume-model", is_flag=True, help="The model at hand made its vectors, though it does not say so.")
@pass_session
def pull(session: Session, collection: str, place: str, name: str | None, assume_model: bool) -> None:
    """Copy a collection from Milvus into the file.

    A collection that localmcp pushed comes back as the documents it was made of; of another program's, every vector
    with a text becomes a short document with its metadata. What is here already is compared and put right.
    """
    session.if_stopped = GOES_ON
    with shown_counts(session, f"copying {collection} from {place}") as show:
        pulled = session.workspace.replication.pull(collection, name, assume_model=assume_model, progress=show)
    session.answer(asdict(pulled), lambda result: _print_pulled(session, result))


def _print_pulled(session: Session, result: dict[str, Any]) -> None:
    names = {"added": "added", "updated": "put right", "unchanged": "unchanged", "trashed": "left in the trash"}
    parts = [f"{result[key]:,} {word}" for key, word in names.items() if result[key]] or ["none"]
    vectors = counted(result["read"], "vector")
    session.note(f"{vectors} read into '{result['collection']}'. Documents: {render.bold(', '.join(parts))}.")
    if result["empty"]:
        session.warn(f"{counted(result['empty'], 'vector')} without text left out.")
    if result["incomplete"]:
        session.warn(f"{counted(result['incomplete'], 'document')} taken with some passages missing.")
    session.warn(*result["notices"])
