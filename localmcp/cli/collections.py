"""`localmcp collections`, `retrieve`, `tables`, `query`, `push`, `pull`, `rules`, `quickstarts`: all but documents."""

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.documents import finish_vectors
from localmcp.cli.options import json_or_text, no_wait, parse_object, read_bytes, tool_command, tool_options
from localmcp.cli.session import Session, command, group, pass_session, shown_counts
from localmcp.config import sample_directory
from localmcp.errors import InvalidInput
from localmcp.files import write_atomically
from localmcp.humanize import counted
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.records.records import Records
from localmcp.rules.catalog import RuleCatalog
from localmcp.rules.finder import RuleFinder
from localmcp.schemas import Json
from localmcp.tables.table_tools import TableTools

AT_ONCE = 200
"""Records given to one call of the tool; each call is stored as a whole."""


def _filter(says: str) -> Any:
    return click.option("--filter", "filter", multiple=True, metavar="JSON|KEY=VALUE", help=f"{says}; may be repeated.")


def _read_filters(texts: Sequence[str]) -> Json | None:
    conditions: list[Json] = []
    for text in texts:
        if not text.lstrip().startswith("{") and "=" in text:
            key, _, typed = text.partition("=")
            value = json_or_text(typed)
            conditions.append({key.strip(): value if isinstance(value, str | int | float) else typed})
        else:
            hint = 'Write an object such as {"lang": "it"} or lang=it.'
            conditions.append(parse_object(text, f"--filter: {text!r} is", hint))
    return {"and": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def _show_records(session: Session, result: Json) -> None:
    session.show(result["data"], columns=("score", "id", "text", "metadata", "matched_text"))
    if not result["data"]["results"]:
        session.note("Nothing there answers.")


retrieve = tool_command(
    None, "retrieve", Records.retriever,
    "Find what is nearest to one or several texts in a collection.\n\n\b\n"
    """  localmcp retrieve papers "neural networks" "deep learning" --filter '{"year": {"gte": 2020}}'""",
    prepare=lambda _, given: {
        **given, "filter": _read_filters(given["filter"]), "matched_text": len(given["texts"]) > 1
    },
    show=_show_records, instead={"filter": _filter("Only what fulfils this")},
    arguments={"collection_name": "COLLECTION", "texts": "TEXT..."},
    spelled={"top_k": "-n --top-k", "partition_name": "-p --partition"},
    says={
        "partition_name": "Only this partition",
        "mode": "How; semantic if left out",
        "since": "Only what is dated from then: 2026-11-01, yesterday",
        "until": "Only what is dated up to then",
    },
    without=("matched_text",),
)  # fmt: skip


@group()
def collections() -> None:
    """Make, fill, describe and drop collections: documents you added, texts with metadata.

    \b
      localmcp collections insert papers "Attention is all you need" --metadata '{"year": 2017}'
      localmcp collections insert papers --file papers.jsonl
      localmcp retrieve papers "transformers"
    """


NAME = {"collection_name": "NAME"}

tool_command(
    collections, "list", Records.list_collections, "List the collections, with their partitions.",
    columns=("name", "documents", "chunks", "searchedIn", "partitions", "description"),
)  # fmt: skip
tool_command(
    collections, "create", Records.create_collection, "Make a collection.", makes=True, arguments=NAME,
    show=lambda session, made: session.note(f"{made['name']} is {'made' if made['created'] else 'there already'}."),
)  # fmt: skip
tool_command(
    collections, "describe", Records.describe_collection, arguments=NAME,
    help="Show what is in a collection, its model, and where it is searched.",
)  # fmt: skip


def _ask(session: Session, arguments: Json) -> str:
    session.call("describe_collection", collection_name=arguments["collection_name"])
    arguments["confirm"] = True
    return f"Put collection '{arguments['collection_name']}' with everything in it into the trash?"


tool_command(
    collections, "drop", Records.drop_collection, ask=_ask, arguments=NAME, without=("confirm",),
    help="Put a collection with everything in it into the trash. Files on disk are not touched.",
)  # fmt: skip


@collections.command("insert")
@click.argument("name")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--file", "file", metavar="FILE|-", help="Lines of JSON: {text, metadata?, partition_name?, id?}.")
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
    A line with the id of a record replaces it.
    """
    if bool(texts) == (file is not None):
        raise InvalidInput("Give either texts or --file.")
    hint = 'Write an object such as {"year": 2024}.'
    common = parse_object(metadata, f"--metadata: {metadata!r} is", hint) if metadata else {}
    records = [*read_lines(file)] if file else [(f"text {n}", {"text": text}) for n, text in enumerate(texts, 1)]
    session.workspace.records.check(name, records, split=split)
    shared = {"collection_name": name, "partition_name": partition, "metadata": common or None, "split": split or None}
    ids: list[int] = []
    for start in range(0, len(records), AT_ONCE):
        part = [record for _, record in records[start : start + AT_ONCE]]
        ids += session.call_in(session.workspace, "insert_records", {**shared, "records": part}).value["ids"]
    session.answer({"ids": ids, "count": len(records), "collection_name": name})
    session.note(f"{counted(len(records), 'text')} stored in '{name}' as {counted(len(ids), 'passage')}.")


def read_lines(file: str) -> Iterator[tuple[str, Json]]:
    """Yield the name (`papers.jsonl line 3`) and the object of every line that is not blank; `-` is stdin.

    Raises InvalidInput if the file is not UTF-8, or a line is no JSON object.
    """
    name = "stdin" if file == "-" else Path(file).name
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8: byte {error.start}.") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{name} line {number}", parse_object(line, f"{name} line {number}: is")


def _ask_deletion(session: Session, arguments: Json) -> str:
    ids, filters = arguments["ids"], arguments["filter"]
    if bool(ids) == bool(filters):
        raise InvalidInput("Say what to delete: IDs, or --filter, not both.")
    session.call("describe_collection", collection_name=arguments["collection_name"])
    targets = counted(len(ids), "record") if ids else f"everything that fulfils {' and '.join(filters)}"
    arguments["filter"] = _read_filters(filters)
    return f"Put {targets} of '{arguments['collection_name']}' into the trash?"


tool_command(
    collections, "delete", Records.delete_records, "Put records, and whole documents, into the trash.",
    ask=_ask_deletion, instead={"filter": _filter("Everything that fulfils this")},
    arguments={**NAME, "ids": "[ID]..."}, spelled={"partition_name": "-p --partition"}, without=("confirm",),
)  # fmt: skip


def _show_tables(session: Session, value: Json) -> None:
    rows = [
        (table["name"], f"{table['rows']:,}", ", ".join(f"{c['name']} ({c['type']})" for c in table["columns"]))
        for table in value["tables"]
    ]
    session.print_table(("table", "rows", "columns"), rows, right=(1,))
    if value["count"] < value["total"]:
        session.remark(f"{value['total']:,} in all; more: --limit 100, or name some WORDS")
    session.note(value.get("hint") or "Ask with: localmcp query 'select count(*) from \"TABLE\"'")


tables = tool_command(
    None, "tables", TableTools.list_tables, "List the tables in documents, with their columns.",
    arguments={"words": "[WORDS]..."}, show=_show_tables,
)  # fmt: skip


@command()
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
@pass_session
def query(session: Session, sql: str, as_csv: bool) -> None:
    """Ask tables in documents in SQL.

    It takes one SELECT of SQLite. Names with spaces are written in double quotes; dates are ISO text, money and
    percentages are numbers. Each table has the column `line`: the line of its document that holds the row. Files are
    read as they are now.
    """
    answer = session.call("query_table", sql=sql).value

    def show(value: Json) -> None:
        if as_csv:
            csv.writer(sys.stdout).writerows([value["columns"], *value["rows"]])
            return
        rows = [["" if cell is None else str(cell) for cell in row] for row in value["rows"]]
        session.print_table(value["columns"], rows)
        for place in value["places"]:
            session.note(f"from {place.get('path') or place['document']}, {place['rows']:,} rows")

    session.answer(answer, show)
    session.warn(*answer.get("notices", ()))


# ---------------------------------------------------------------- Milvus

GOES_ON = "What was copied is kept. The same command goes on."


def _named(place: str) -> Any:
    return click.option("--as", "name", metavar="NAME", help=f"What it is called {place}; the same by default.")


@command()
@click.argument("collection")
@_named("there")
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


@command()
@click.argument("collection")
@_named("here")
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


# ---------------------------------------------------------------- guidance


@group()
def rules() -> None:
    """Keep rules for assistants, and find those that a task needs.

    \b
      localmcp rules import .                          CLAUDE.md, AGENTS.md, .cursorrules, ...
      localmcp rules add "Write tests for every fix."
      localmcp rules search "add an endpoint that stores orders"
    """


tool_command(
    rules, "search", RuleFinder.get_relevant_rules, "Find the rules that a task needs, and say why.",
    arguments={"taskDescription": "TASK..."},
    spelled={"maxResults": "-n --limit", "similarityThreshold": "--threshold", "files": "--file"},
    says={"maxResults": "Rules at most; default 5"}, columns=("id", "relevance_score", "rule_text", "category", "why"),
)  # fmt: skip
tool_command(
    rules, "add", RuleCatalog.add_rule, "Add a rule, unless one says nearly the same.", makes=True,
    arguments={"rule_text": "RULE"},
    spelled={"globs": "--glob", "alwaysApply": "--always", "onDuplicate": "--duplicate"},
)  # fmt: skip
tool_command(
    rules, "remember", RuleCatalog.remember, makes=True, arguments={"instruction": "INSTRUCTION"},
    help="Make a rule of an instruction in your own words, unless it was meant for the moment.",
)  # fmt: skip
tool_command(
    rules, "list", RuleCatalog.list_rules, "List the rules, newest first.",
    columns=("id", "rule_text", "category", "context", "project", "globs", "made_by"),
)  # fmt: skip
tool_command(
    rules, "edit", RuleCatalog.edit_rule, arguments={"id": "ID"},
    prepare=lambda _, changes: {**changes, "globs": changes["globs"] and [glob for glob in changes["globs"] if glob]},
    help="Change a rule; what is left out stays, and an empty text takes a project or files away.",
    spelled={"rule_text": "--text", "globs": "--glob", "alwaysApply": "--always/--not-always"},
)  # fmt: skip
tool_command(
    rules, "retire", RuleCatalog.retire_rule, "Take a rule out of use; it can be restored.", arguments={"id": "ID"}
)
tool_command(rules, "restore", RuleCatalog.restore_rule, "Bring a retired rule back into use.", arguments={"id": "ID"})


@rules.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--project", help="They hold in this project only.")
@pass_session
def import_rules(session: Session, paths: tuple[Path, ...], project: str | None) -> int:
    """Import rules: a file, or a project folder with CLAUDE.md, AGENTS.md, .cursorrules, .cursor/rules, Copilot files.

    Files may be Markdown, .mdc or JSON Lines (rule_text, category, context). Rules that are known stay as they are.
    """
    calls = ({"path": str(path), "project": project} for path in paths)
    return session.import_each("importRules", "Rules", calls, ("added", "known", "files", "skipped"))


@rules.command("export")
@tool_options(RuleCatalog.export_rules)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write files below this folder, not to stdout.")
@click.option("--force", is_flag=True, help="Files that are there may be replaced.")
@pass_session
def export_rules(session: Session, folder: Path | None, force: bool, **arguments: Any) -> None:
    """Print the rules in a form that can be imported again, or write them to files."""
    result = session.call("exportRules", **arguments).value
    session.warn(*result.get("notices", ()))
    if folder is None:
        session.answer(result, lambda value: render.write("".join(file["text"] for file in value["files"]), nl=False))
        return
    texts = {folder / file["name"]: file["text"] for file in result["files"]}
    existing = next((path for path in texts if path.exists() and not force), None)
    if existing is not None:
        raise InvalidInput(f"{existing} is there already.", hint="Name another place, or replace it with --force.")
    for path, text in texts.items():
        write_atomically(path, text)
    answer = {"count": result["count"], "format": arguments["format"], "files": list(map(str, texts))}
    session.answer(answer, session.show)


@group()
def quickstarts() -> None:
    """Import, search and read short guides.

    \b
      localmcp quickstarts import --samples
      localmcp quickstarts search "geting startd"
      localmcp quickstarts show first-search
    """


@quickstarts.command("import")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@click.option("--samples", is_flag=True, help="The guides to localmcp that come with it.")
@pass_session
def import_quickstarts(session: Session, paths: tuple[str, ...], samples: bool) -> int:
    """Import YAML, JSON and JSON Lines: ConsoleQuickStart documents, or rows {name, content}.

    Quick starts that are known by name are updated. A file that cannot be read is reported and left out.
    """
    if samples:
        paths = (*paths, str(sample_directory() / "quickstarts"))
    if not paths:
        raise InvalidInput("Name a file or folder, or say --samples.")
    calls = ({"path": os.path.abspath(path)} for path in paths)
    fields = ("added", "updated", "unchanged", "skipped", "warnings")
    return session.import_each("importQuickstarts", "Quick starts", calls, fields)


def _need_words(_session: Session, arguments: Json) -> Json:
    if not any(arguments[name] for name in ("displayName", "name", "description")):
        raise InvalidInput("Say what to search for: words of the title, --name or --description.")
    return arguments


tool_command(
    quickstarts, "search", Quickstarts.search, arguments={"displayName": "[WORDS]..."}, prepare=_need_words,
    help="Search by words of the title; typing errors and another word order are forgiven.",
    columns=("score", "name", "displayName", "description", "matchType"),
)  # fmt: skip
tool_command(
    quickstarts, "list", Quickstarts.list_quickstarts, "List the quick starts by title.",
    columns=("name", "displayName", "tasks", "tags"),
)  # fmt: skip
tool_command(
    quickstarts, "show", Quickstarts.show, "Print a quick start, by name or title, as Markdown.",
    arguments={"name": "NAME..."}, show=lambda _, value: render.write(value["markdown"], nl=False),
)  # fmt: skip
tool_command(
    quickstarts, "remove", Quickstarts.remove, "Remove quick starts; importing one again brings it back.",
    arguments={"names": "NAME..."},
)  # fmt: skip
tool_command(
    quickstarts, "export", Quickstarts.export, arguments={"names": "[NAME]..."},
    help="Print quick starts, all or the named ones, so that `import` reads them back without a difference.",
    show=lambda _, value: render.write(value["text"], nl=False),
)  # fmt: skip
