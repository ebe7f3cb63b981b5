"""`localmcp collections` and `retrieve`: sets of texts and documents, as vector databases know them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import read_bytes
from localmcp.cli.removal import confirmed
from localmcp.cli.session import Group, Session, command, group, pass_session
from localmcp.cli.tool_options import tool_options
from localmcp.errors import InvalidInput
from localmcp.retriever.search import Retriever

if TYPE_CHECKING:
    from localmcp.retriever.given import NewRecord

Json = dict[str, Any]
AT_ONCE = 200
"""Records given to one call of the tool; each call is stored as a whole."""


# ---------------------------------------------------------------- asking


@command()
@tool_options(
    Retriever.retriever,
    arguments={"collection_name": "COLLECTION", "texts": "TEXT..."},
    spelled={"top_k": "-n --top-k", "partition_name": "-p --partition"},
    says={"partition_name": "Only this partition", "mode": "How; semantic if left out"},
    without=("filter", "matched_text"),
)
@click.option(
    "--filter", "filters", multiple=True, metavar="JSON|KEY=VALUE", help="Only what fulfils this; may be repeated."
)
@pass_session
def retrieve(session: Session, texts: tuple[str, ...], filters: tuple[str, ...], **arguments: Any) -> int:
    """Find what is nearest to one or several texts in a collection.

    \b
      localmcp retrieve papers "neural networks" "deep learning" --filter '{"year": {"gte": 2020}}'
    """
    arguments |= {"texts": list(texts), "filter": read_filters(filters), "matched_text": len(texts) > 1}
    answer = session.call("retriever", **arguments)
    if answer.is_error and not session.as_json:
        return session.fail("failure", answer.value["error"], None, 1)
    session.answer(answer.value, lambda value: _print_found(session, value))
    return 1 if answer.is_error else 0


def _print_found(session: Session, result: Json) -> None:
    for notice in result.get("notices", ()):
        session.note(terminal.warned(notice))
    for hit in result["data"]["results"]:
        bar = terminal.styled(terminal.score_bar(hit["score"] * 100), fg="green")
        text = " ".join(hit["text"].split())
        terminal.echo(f"{bar} {hit['score']:.3f}  {terminal.bold(str(hit['id']))}  {text}")
        facts = [json.dumps(hit["metadata"], ensure_ascii=False)] if hit["metadata"] else []
        facts += [f"for: {hit['matched_text']}"] if "matched_text" in hit else []
        if facts:
            terminal.echo(terminal.dim(f"{'':16}{'; '.join(facts)}"))
    if not result["data"]["results"]:
        session.note("Nothing there answers.")


def read_filters(texts: Sequence[str]) -> Json | None:
    """All of the conditions: each a JSON object, or `key=value`.

    Raises:
        InvalidInput: one is neither.
    """
    conditions = [_read_filter(text) for text in texts]
    if len(conditions) > 1:
        return {"and": conditions}
    return conditions[0] if conditions else None


def _read_filter(text: str) -> Json:
    if not text.lstrip().startswith("{") and "=" in text:
        key, _, value = text.partition("=")
        return {key.strip(): _scalar(value)}
    return _read_object(text, "--filter", 'such as {"lang": "it"} or lang=it')


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float) else text


def _read_object(text: str, name: str, example: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: {text!r} is not JSON: {error}.", hint=f"Write an object {example}.") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{name}: {text!r} is not an object.", hint=f"Write one {example}.")
    return value  # pyright: ignore[reportUnknownVariableType]


# ---------------------------------------------------------------- collections


@group()
def collections() -> None:
    """Make, fill, describe and drop collections and partitions: documents you added, texts with metadata.

    \b
      localmcp collections insert papers "Attention is all you need" --metadata '{"year": 2017}'
      localmcp collections insert papers --file papers.jsonl
      localmcp retrieve papers "transformers"
    """


@collections.command("list")
@pass_session
def list_collections(session: Session) -> None:
    """List the collections, with their partitions."""
    session.answer(session.call("list_collections").value, lambda value: _print_list(session, value))


def _print_list(session: Session, result: Json) -> None:
    for notice in result.get("notices", ()):
        session.note(terminal.warned(notice))
    rows = [
        (
            collection["name"],
            f"{collection['documents']:,}",
            f"{collection['chunks']:,}",
            collection["searchedIn"],
            ", ".join(collection["partitions"]),
            collection["description"],
        )
        for collection in result["collections"]
    ]
    rows += [(name, "", "", "milvus", "", "only on the Milvus server") for name in result.get("onlyOnMilvus", ())]
    if rows:
        head = ("name", "documents", "chunks", "searched in", "partitions", "description")
        terminal.echo("\n".join(terminal.table(head, rows, (1, 2))))
    else:
        session.note("There is no collection yet. Make one with: localmcp collections create NAME")


@collections.command("create")
@click.argument("name")
@click.option("--description", help="What is in it.")
@pass_session
def create(session: Session, name: str, description: str | None) -> None:
    """Make a collection."""
    made = _make(session, "create_collection", collection_name=name, description=description)
    session.answer(made, lambda value: session.note(_made("Collection", value)))


def _made(what: str, value: Json) -> str:
    return f"{what} '{value['name']}' {'is made' if value['created'] else 'was there already'}."


@collections.command("describe")
@click.argument("name")
@pass_session
def describe(session: Session, name: str) -> None:
    """Show what is in a collection, its model, and where it is searched."""
    session.answer(session.call("describe_collection", collection_name=name).value, _print_description)


def _print_description(collection: Json) -> None:
    terminal.echo(
        terminal.bold(collection["name"]) + (f"  {collection['description']}" if collection["description"] else "")
    )
    if "documents" in collection:
        documents, chunks = collection["documents"], collection["chunks"]
        counts = f"{terminal.counted(documents, 'document')}, {terminal.counted(chunks, 'chunk')}"
        terminal.echo(f"  {counts}, {terminal.counted(collection['vectors'], 'vector')}")
    model = f"{collection['model']}, {collection['dimension']} dimensions" if collection["model"] else "none yet"
    terminal.echo(f"  model: {model}")
    terminal.echo(f"  searched in: {collection['searchedIn']}")
    for name, count in collection["partitions"].items():
        terminal.echo(f"  partition {name}: {'?' if count < 0 else format(count, ',')}")
    if copy := collection.get("copy"):
        terminal.echo(f"  copy on Milvus: {copy['name']}, {copy['state']}, {copy['pending']:,} changes wait")
        if copy.get("problem"):
            terminal.echo(terminal.warned(f"    {copy['problem']}"))


@collections.command("drop")
@click.argument("name")
@click.option("--copy", is_flag=True, help="Delete its copy on the Milvus server, too.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def drop(session: Session, name: str, copy: bool, yes: bool) -> int:
    """Delete a collection with everything in it, for good. Files on disk are not touched."""
    session.call("describe_collection", collection_name=name)  # Looks before it asks.
    if not confirmed(session, f"Delete collection '{name}' with everything in it for good?", yes):
        return 1
    result = session.call("drop_collection", collection_name=name, confirm=True, copy=copy or None).value
    session.answer(result, lambda value: session.note(_dropped(value)))
    return 0


def _dropped(value: Json) -> str:
    message = f"'{value['dropped']}' is deleted, with {terminal.counted(value['documents'], 'document')}."
    return f"{message} {value['message']}" if value.get("message") else message


@collections.group("partitions", cls=Group)
def partitions() -> None:
    """Parts of a collection that can be searched alone."""


@partitions.command("list")
@click.argument("collection")
@pass_session
def list_partitions(session: Session, collection: str) -> None:
    """List the partitions, with the vectors in each."""
    described = session.call("describe_collection", collection_name=collection).value
    result = {"collection": described["name"], "partitions": described["partitions"]}
    session.answer(
        result,
        lambda value: terminal.echo("\n".join(f"{count:>10,}  {name}" for name, count in value["partitions"].items())),
    )


@partitions.command("create")
@click.argument("collection")
@click.argument("name")
@pass_session
def create_partition(session: Session, collection: str, name: str) -> None:
    """Make a partition."""
    made = _make(session, "create_partition", collection_name=collection, partition_name=name)
    session.answer(made, lambda value: session.note(_made("Partition", value)))


@partitions.command("drop")
@click.argument("collection")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def drop_partition(session: Session, collection: str, name: str, yes: bool) -> int:
    """Delete a partition with everything in it, for good."""
    session.call("describe_collection", collection_name=collection)
    if not confirmed(session, f"Delete partition '{name}' of '{collection}' with everything in it for good?", yes):
        return 1
    arguments: Json = {"collection_name": collection, "partition_name": name, "confirm": True}
    result = session.call("drop_partition", **arguments).value
    session.answer(result, lambda value: session.note(_dropped(value)))
    return 0


# ---------------------------------------------------------------- records


@collections.command("insert")
@click.argument("name")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--file", "file", metavar="FILE|-", help="Lines of JSON: {text, metadata?, partition_name?}.")
@click.option("-p", "--partition", help="For all that name none; made if absent.")
@click.option("--metadata", metavar="JSON", help="For all; a line's own keys win.")
@click.option("--split", is_flag=True, help="Cut texts that are too long for one vector.")
@pass_session
def insert(
    session: Session, name: str, texts: tuple[str, ...], file: str | None, partition: str | None, metadata: str | None,
    split: bool,
) -> None:  # fmt: skip
    """Store texts in a collection, one chunk each; the collection is made if there is none.

    A file is checked as a whole before anything is stored: a line that cannot be used is named, and nothing is written.
    """
    from localmcp.retriever.given import NewRecord, parse_record

    if bool(texts) == (file is not None):
        raise InvalidInput("Give either texts or --file.")
    common = _read_object(metadata, "--metadata", 'such as {"year": 2024}') if metadata else {}
    records = [parse_record(value, place) for place, value in read_lines(file)] if file else []
    records += [NewRecord(text, place=f"text {number}") for number, text in enumerate(texts, 1)]
    session.workspace.records.check(name, records, split=split)
    shared = {"collection_name": name, "partition_name": partition, "metadata": common or None, "split": split or None}
    ids = _insert(session, records, shared)
    result = {"ids": ids, "count": len(records), "collection_name": name}
    message = f"{terminal.counted(len(records), 'text')} stored in '{name}' as {terminal.counted(len(ids), 'chunk')}."
    session.answer(result, lambda _: session.note(message))


def _insert(session: Session, records: Sequence[NewRecord], shared: Json) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(records), AT_ONCE):
        part = [
            {"text": record.text, "metadata": dict(record.metadata), "partition_name": record.partition}
            for record in records[start : start + AT_ONCE]
        ]
        try:
            ids += _make(session, "insert_records", records=part, **shared)["ids"]
        except BaseException:
            if start:
                session.note(terminal.warned(f"Stored up to {records[start - 1].place}; the rest is not."))
            raise
        if len(records) > AT_ONCE:
            session.note(terminal.dim(f"{min(start + AT_ONCE, len(records)):,} of {len(records):,}"))
    return ids


def read_lines(file: str) -> Iterator[tuple[str, Any]]:
    """(`papers.jsonl line 3`, value) of every line of JSON that is not blank; `-` is stdin.

    Raises:
        InvalidInput: the file cannot be read, or a line is not JSON.
    """
    name = "stdin" if file == "-" else Path(file).name
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8: byte {error.start}.") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{name} line {number}", json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{name} line {number}: is not JSON: {error}.") from error


@collections.command("update")
@click.argument("name")
@click.argument("record_id", type=int, required=False, metavar="[ID]")
@click.option("--text", help="Other words.")
@click.option("--metadata", metavar="JSON", help="Keys to set; null takes one away.")
@click.option("-p", "--partition", help="Another partition.")
@click.option("--file", "file", metavar="FILE|-", help="Lines of JSON: {id, text?, metadata?, partition_name?}.")
@pass_session
def update(
    session: Session, name: str, record_id: int | None, text: str | None, metadata: str | None, partition: str | None,
    file: str | None,
) -> None:  # fmt: skip
    """Change the text or metadata of records; what is left out stays."""
    from localmcp.retriever.given import parse_change

    if (record_id is None) == (file is None):
        raise InvalidInput("Give either an ID or --file.")
    if file is not None:
        changes = [parse_change(value, place) for place, value in read_lines(file)]
    else:
        change: Json = {"id": record_id, "text": text, "partition_name": partition}
        change["metadata"] = _read_object(metadata, "--metadata", 'such as {"year": 2024}') if metadata else None
        changes = [
            parse_change({key: value for key, value in change.items() if value is not None}, f"record {record_id}")
        ]
    done: Json = dict(session.existing().records.update(name, changes))
    session.answer(done, lambda value: session.note(f"{terminal.counted(value['updated'], 'record')} changed."))


@collections.command("delete")
@click.argument("name")
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("--filter", "filters", multiple=True, metavar="JSON|KEY=VALUE", help="Everything that fulfils this.")
@click.option("-p", "--partition", help="Only in this partition.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def delete(
    session: Session, name: str, ids: tuple[int, ...], filters: tuple[str, ...], partition: str | None, yes: bool
) -> int:
    """Put records, and whole documents, into the trash."""
    session.existing()
    what = f"{len(ids)} records" if ids else f"everything that fulfils {' and '.join(filters) or 'nothing'}"
    if not confirmed(session, f"Put {what} of '{name}' into the trash?", yes):
        return 1
    arguments: Json = {"ids": list(ids) or None, "filter": read_filters(filters), "partition_name": partition}
    result = session.call("delete_records", collection_name=name, **arguments).value
    session.answer(result, lambda value: _print_deleted(session, value))
    return 0


def _print_deleted(session: Session, value: Json) -> None:
    session.note(f"{terminal.counted(value['deleted'], 'chunk')} put into the trash.")
    if value.get("notFound"):
        session.note(terminal.warned(f"Not found: {', '.join(map(str, value['notFound']))}"))


def _make(session: Session, name: str, **arguments: Any) -> Json:
    """Call a tool that may make the file."""
    return session.call_in(session.workspace, name, arguments).value
