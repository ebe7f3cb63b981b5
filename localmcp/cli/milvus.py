"""`localmcp push` and `pull`: a collection goes to Milvus, and comes back."""

from __future__ import annotations

import click

from localmcp.cli.ingest import finish_vectors
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import no_wait

GOES_ON = "What was copied is kept. The same command goes on."


@command()
@click.argument("collection")
@click.option("--as", "name", metavar="NAME", help="What it is called there; the same by default.")
@no_wait("Push the vectors that are there.")
@pass_session
def push(session: Session, collection: str, name: str | None, no_wait: bool) -> None:
    """Copy a collection to Milvus.

    Texts, metadata and the model's identity go with the vectors; the file keeps everything. The same command goes on
    where it was stopped, and sends what has changed since.

    \b
      localmcp config set milvus_address http://127.0.0.1:19530
      localmcp push default
    """
    session.if_stopped = GOES_ON
    finish_vectors(session, (collection,), wait=not no_wait)
    with shown_counts(session, f"copying {collection} to Milvus") as show:
        pushed = session.existing().milvus_copies.push(collection, name, show)
    session.answer(pushed, session.show)
    if not pushed["indexed"]:
        session.warn("Milvus has not indexed all of it yet; until it has, searches find less.")


@command()
@click.argument("collection")
@click.option("--as", "name", metavar="NAME", help="What it is called here; the same by default.")
@pass_session
def pull(session: Session, collection: str, name: str | None) -> None:
    """Copy a collection from Milvus into the file.

    A collection that localmcp pushed comes back as the documents it was made of. What is here already is compared and
    put right.
    """
    session.if_stopped = GOES_ON
    with shown_counts(session, f"copying {collection} from Milvus") as show:
        pulled = session.workspace.milvus_copies.pull(collection, name, show)
    session.answer(pulled, session.show)
