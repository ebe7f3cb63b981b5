"""The tools `list_tables` and `query_table`: tables in documents are found, and asked in SQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired

import rapidfuzz.process
from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, Unavailable
from localmcp.index.collections import visible_ids
from localmcp.storage.database import Database, fetch_all, fetch_column
from localmcp.tools import Param, hidden_tool
from localmcp.wording.normalize import words

if TYPE_CHECKING:
    from localmcp.readers.worker_pool import WorkerPool
    from localmcp.tables.query import Outcome, TableSource

MOST_NAMED = 20
"""Tables of one statement."""


class TableItem(TypedDict):
    """A table of a document."""

    name: str
    """In double quotes, its name in SQL."""
    document: str
    sourceId: str
    columns: list[dict[str, str]]
    """name and type of each; the last is the line or row in the document."""
    rows: int
    sample: list[list[Any]]
    notes: NotRequired[list[str]]


class TablesResult(TypedDict):
    """The answer of `list_tables`."""

    count: int
    total: int
    tables: list[TableItem]
    hint: NotRequired[str]


class QueryResult(TypedDict):
    """The answer of `query_table`."""

    columns: list[str]
    rows: list[list[Any]]
    count: int
    truncated: bool
    places: list[dict[str, Any]]
    """table, document, sourceId, path and number of rows of each table that was read."""
    notices: NotRequired[list[str]]


class _Known(NamedTuple):
    """A table of the library, as it was when its document was indexed."""

    item: TableItem
    title: str
    path: str | None
    """None: it is read from the text of the document."""
    signature: tuple[int | None, int]
    """Time and bytes of the file."""


class TableTools:
    """Answers questions that count: rows of tables in documents, by SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pool: WorkerPool[tuple[str, Sequence[TableSource]], Outcome] | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the process that holds the tables."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    @hidden_tool(
        "list_tables",
        title="List the tables in documents",
        keywords=("table", "columns", "spreadsheet", "csv", "sheet", "rows", "records"),
        examples=(
            "which tables|spreadsheets do you have",
            "which columns does the table {words} have",
            "tables about {words}",
            "list the tables in {document}",
        ),
    )
    def list_tables(
        self,
        words: Annotated[str | None, Param("Words of its name, columns or document")] = None,
        document: Annotated[str | None, Param("Title, path or sourceId of its document")] = None,
        limit: Annotated[int, Param("Tables", minimum=1, maximum=100)] = 10,
    ) -> TablesResult:
        """List tables in documents (CSV, workbooks, JSON, tables in text): columns with types, rows, a sample.

        Ask them with query_table.
        """
        known = self._known()
        if document:
            wanted = document.casefold()
            known = [k for k in known if wanted in f"{k.item['document']}\n{k.path}\n{k.item['sourceId']}".casefold()]
        if words:
            known = _ranked(known, words)
        result: TablesResult = {
            "count": min(limit, len(known)),
            "total": len(known),
            "tables": [k.item for k in known[:limit]],
        }
        if not known:
            result["hint"] = "No document that you see has such a table; tables begin at three rows."
        return result

    @hidden_tool(
        "query_table",
        title="Ask tables in SQL",
        keywords=("sql", "sum", "count", "how many", "how much", "total", "average", "filter", "group", "select"),
        examples=(
            "how many rows of the table {words} have ...",
            "add up a column of a spreadsheet",
            "run the sql {sql}",
        ),
    )
    def query_table(
        self, sql: Annotated[str, Param('One SELECT (SQLite); names as list_tables has them, in double quotes: "a.b"')]
    ) -> QueryResult:
        """Count, add up, filter and join rows of tables in documents with one SELECT of SQLite.

        Dates are ISO text ('2024-03-31'), money and percentages numbers, missing values NULL. Each table has the column
        line: the line or row in its document, to cite. Besides SQLite's own functions: contains(text, words), whatever
        the case, and levenshtein(a, b). Look at the sample of list_tables before: values are as they are in the file.
        """
        everything = self._known()
        text = sql.casefold().replace('""', '"')
        named = [known for known in everything if known.item["name"].casefold() in text]
        outcome = self._ask(sql, sorted(named, key=lambda known: -len(known.item["name"]))[:MOST_NAMED])
        if outcome.problem:
            raise InvalidInput(outcome.problem, hint=outcome.hint or _nearest_tables(outcome.problem, everything))
        notices: list[str] = []
        places: list[dict[str, Any]] = []
        for item, _, path, signature in (known for known in named if known.item["name"] in outcome.used):
            rows, now = outcome.used[item["name"]]
            place = {"table": item["name"], "document": item["document"], "sourceId": item["sourceId"], "rows": rows}
            places.append(place | ({"path": path} if path else {}))
            notices += [f"{item['name']}: {note}." for note in item.get("notes", ())]
            if path and now != signature:
                notices.append(f"{path} has changed since it was indexed; this is from the file as it is now.")
        if outcome.truncated:
            notices.append(f"There are more rows than these {len(outcome.rows)}: count, add up or limit in SQL.")
        result: QueryResult = {
            "columns": outcome.columns, "rows": outcome.rows, "count": len(outcome.rows),
            "truncated": outcome.truncated, "places": places,
        }  # fmt: skip
        return {**result, "notices": notices} if notices else result

    def _ask(self, sql: str, named: Sequence[_Known]) -> Outcome:
        from localmcp.readers.worker_pool import Limits, WorkerPool
        from localmcp.tables.query import TableSource, answer

        sources = [
            TableSource(known.item["name"], known.title, known.path or known.item["sourceId"], self._text(known))
            for known in named
        ]
        outcome, failure = None, ""
        with self._lock:
            # The limits are of loading the documents and running one statement.
            self._pool = self._pool or WorkerPool(answer, workers=1, limits=Limits(seconds=12, seconds_per_megabyte=0))
            for step in self._pool.run([(sql, sources)]):
                outcome, failure = step.value or outcome, step.failure or failure
        if outcome is None:
            raise Unavailable(f"The query was given up: {failure or 'its process ended'}.")
        return outcome

    def _known(self) -> list[_Known]:
        """Return the tables of all documents that the caller sees, by document; names are unique."""
        with self._database.read() as connection:
            sql = f"""
                select uuid, title, uri, mtime_ns, size, tables from sources
                where tables is not null and trashed_at is null and collection_id in ({visible_ids(connection)})
                order by id
            """
            rows = fetch_all(connection, sql)
        known: list[_Known] = []
        used: set[str] = set()
        for uuid, title, uri, mtime_ns, size, described in rows:
            tables = json.loads(described)
            stem = PurePath(uri).stem if uri else title
            for table in tables:
                base = stem if len(tables) == 1 or not table["title"] else f"{stem}.{table['title']}"
                name = next(n for number in count(1) if (n := f"{base} {number}" if number > 1 else base) not in used)
                used.add(name)
                item: TableItem = {
                    "name": name, "document": title, "sourceId": uuid, "columns": table["columns"],
                    "rows": table["rows"], "sample": table["sample"],
                }  # fmt: skip
                if table["notes"]:
                    item["notes"] = table["notes"]
                path = None if table["inText"] else uri
                known.append(_Known(item, table["title"], path, (mtime_ns, size)))
        return known

    def _text(self, known: _Known) -> str | None:
        if known.path:
            return None
        with self._database.read() as connection:
            sql = "select text from chunks where source_id = (select id from sources where uuid = ?) order by position"
            return "".join(fetch_column(connection, sql, (known.item["sourceId"],)))


def _ranked(known: Sequence[_Known], text: str) -> list[_Known]:
    """Return the tables that hold most of the words, the best first."""
    wanted = [word[: max(4, len(word) - 2)] for word in words(text)]

    def score(table: _Known) -> int:
        item = table.item
        names = words(" ".join([item["name"], item["document"], *(column["name"] for column in item["columns"])]))
        return sum(any(name.startswith(start) for name in names) for start in wanted)

    scores = [(score(table), table) for table in known]
    return [table for count, table in sorted(scores, key=lambda pair: -pair[0]) if count]


def _nearest_tables(problem: str, known: Sequence[_Known]) -> str:
    if "no such table" not in problem:
        return ""
    wanted = problem.partition("no such table: ")[2].rstrip(".")
    near = rapidfuzz.process.extract(wanted, [table.item["name"] for table in known], limit=5)
    return f"Nearest tables: {', '.join(name for name, *_ in near)}." if near else "list_tables names those there are."
