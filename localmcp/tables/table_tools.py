"""The tools `list_tables` and `query_table`: tables in documents are found, and asked in SQL.

`list_tables` answers `{count, total, tables, hint}`. A table is `{name, document, sourceId, columns: [{name, type}],
rows, sample, notes}`; SQL has its name in double quotes. `query_table` answers `{columns, rows, count, truncated,
places, notices}`. A place is `{table, document, sourceId, rows, path}` of a table that was read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated

import rapidfuzz.process

from localmcp.errors import InvalidInput
from localmcp.index.collections import visible_ids
from localmcp.readers.worker_pool import Limits, WorkerPool
from localmcp.storage.database import Database, fetch_all, fetch_column
from localmcp.tables.documents import Outcome, TableSource, answer, free_name
from localmcp.tools import Json, Param, hidden_tool
from localmcp.wording.normalize import words as split_words


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
    ) -> Json:
        """List tables in documents (CSV, workbooks, JSON, tables in text): columns with types, rows, a sample.

        Ask them with query_table.
        """
        document_part = (document or "").casefold()
        tables = [
            item
            for item, source in self._tables().values()
            if document_part in f"{item['document']}\n{source.path}\n{item['sourceId']}".casefold()
        ]
        if words:
            # Those that hold most of the words, the best first; an ending may differ.
            starts = [word[: max(4, len(word) - 2)] for word in split_words(words)]

            def score(item: Json) -> int:
                names = " ".join([item["name"], item["document"], *(column["name"] for column in item["columns"])])
                return sum(any(name.startswith(start) for name in split_words(names)) for start in starts)

            tables = sorted(filter(score, tables), key=score, reverse=True)
        shown = tables[:limit]
        hint = {"hint": "No document that you see has such a table; tables begin at three rows."}
        return {"count": len(shown), "total": len(tables), "tables": shown} | ({} if tables else hint)

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
    ) -> Json:
        """Count, add up, filter and join rows of tables in documents with one SELECT of SQLite.

        Dates are ISO text ('2024-03-31'), money and percentages numbers, missing values NULL. Each table has the column
        line: the line or row in its document, to cite. Besides SQLite's own functions: contains(text, words), whatever
        the case, and levenshtein(a, b). Look at the sample of list_tables before: values are as they are in the file.
        """
        tables = self._tables()
        text = sql.casefold().replace('""', '"')
        # The longest names first, which may hold shorter ones: at most so many tables are loaded.
        named = sorted((name for name in tables if name.casefold() in text), key=len, reverse=True)[:20]
        sources = [tables[name][1] for name in named]
        text_of = "select text from chunks where source_id = (select id from sources where uuid = ?) order by position"
        with self._database.read() as connection:
            for place, source in enumerate(sources):
                if source.text is not None:
                    text = "".join(fetch_column(connection, text_of, (source.path,)))
                    sources[place] = source._replace(text=text)
        with self._lock:
            if self._pool is None or self._pool.is_closed:
                # The limits are of loading the documents and running one statement.
                self._pool = WorkerPool(answer, workers=1, limits=Limits(seconds=12, seconds_per_megabyte=0))
            [step, *_] = self._pool.run([(sql, sources)])
        if step.value is None:
            hint = "list_tables names the tables and columns that there are."
            if unknown_name := step.failure.partition("no such table: ")[2].rstrip("."):
                near = rapidfuzz.process.extract(unknown_name, list(tables), limit=5)
                hint = f"Nearest tables: {', '.join(name for name, *_ in near)}." if near else hint
            raise InvalidInput(step.failure, hint=hint)
        columns, rows, truncated, used = step.value
        places, notices = list[Json](), list[str]()
        for name in (name for name in tables if name in used):
            (item, source), (length, has_changed) = tables[name], used[name]
            place = {"table": name, "document": item["document"], "sourceId": item["sourceId"], "rows": length}
            places.append(place | ({"path": source.path} if source.text is None else {}))
            notices += [f"{name}: {note}." for note in item.get("notes", ())]
            if has_changed:
                notices.append(f"{source.path} has changed since it was indexed; this is from the file as it is now.")
        if truncated:
            notices.append(f"There are more rows than these {len(rows)}: count, add up or limit in SQL.")
        result: Json = {"columns": columns, "rows": rows, "count": len(rows), "truncated": truncated, "places": places}
        return result | ({"notices": notices} if notices else {})

    def _tables(self) -> dict[str, tuple[Json, TableSource]]:
        with self._database.read() as connection:
            rows = fetch_all(connection, f"""
                select uuid, title, uri, mtime_ns, size, tables from sources
                where tables is not null and trashed_at is null and collection_id in ({visible_ids(connection)})
                order by id
            """)  # fmt: skip
        tables, used_names = dict[str, tuple[Json, TableSource]](), set[str]()
        for uuid, document, uri, mtime_ns, size, described in rows:
            stem, parts = PurePath(uri).stem if uri else document, json.loads(described)
            for part in parts:
                is_only = len(parts) == 1 or not part["title"]
                name = free_name(stem if is_only else f"{stem}.{part['title']}", used_names)
                item: Json = {"name": name, "document": document, "sourceId": uuid}
                item |= {key: part[key] for key in ("columns", "rows", "sample", "notes") if part[key]}
                path, text = (uuid, "") if part["inText"] else (uri, None)
                tables[name] = item, TableSource(name, part["title"], path, (mtime_ns, size), text)
        return tables
