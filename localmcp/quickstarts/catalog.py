"""The catalog of quick starts: import, search, reading and export (S0-3, S0-5 to S0-21)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import apsw

from localmcp.errors import AccessDenied, FileUnavailable, InvalidInput, LocalMCPError, NotFound
from localmcp.files import expand_home
from localmcp.index.federation import Federation, never_changed
from localmcp.quickstarts import answers, store
from localmcp.quickstarts.candidates import WordCache
from localmcp.quickstarts.documents import Draft, Reading, Unreadable, read_path, read_text
from localmcp.quickstarts.matching import Field
from localmcp.quickstarts.mounted import MountedQuickstarts
from localmcp.quickstarts.search import Found, Request, find_by_substring, find_quickstarts
from localmcp.quickstarts.store import Row, merged_by_title
from localmcp.schemas import did_you_mean
from localmcp.storage.connections import check_levenshtein
from localmcp.storage.database import Database
from localmcp.tools import Param, at_most, current_scope, hidden_change, hidden_tool, integer_or_string, tool

log = logging.getLogger(__name__)

DEFAULT_LIMIT, MOST_RESULTS = 10, 50
DEFAULT_DISTANCE = 7
IMPORTED_AT_ONCE = 500
"""Quick starts written in one transaction; a file is never divided unless it alone holds more."""
NOTHING_ASKED = "Error: At least one search parameter (name, displayName, or description) must be provided"
NO_DATABASE = "Error: Database connection not available"


def lenient_distance(name: str, value: Any) -> Any:
    """S0-6; less than 0 means the default."""
    number = integer_or_string(name, value)
    return None if isinstance(number, int) and number < 0 else number


def explain_failure(error: LocalMCPError) -> dict[str, Any]:
    """S0-8: the answer when the file cannot be searched."""
    if isinstance(error, InvalidInput):
        raise error
    log.warning("quick starts cannot be searched: %s", error)
    failure = NO_DATABASE if isinstance(error, FileUnavailable) else "Error searching quickstarts"
    return dict(answers.empty_answer({"maxDistance": DEFAULT_DISTANCE}, f"{failure}: {error}"))


class Quickstarts:
    """Short guides: tasks to work through, or links to a manual."""

    def __init__(self, database: Database, federation: Federation) -> None:
        self._database = database
        self._words = WordCache()
        self._mounted = MountedQuickstarts(federation)

    # ------------------------------------------------------------ search

    @tool(
        "searchQuickstarts",
        title="Search quick starts",
        keywords=("quickstart", "quick start", "guide", "tutorial", "how to", "getting started", "documentation"),
        examples=(
            "find the {name} quickstart",
            "find the quickstart {name}",
            "show {displayName}-related quickstarts {maxDistance=2}",
            "find|show quickstarts about|on|for {displayName}",
            "find|show quickstarts about creating|building|making {displayName:singular} for {description}",
            "documentation|docs about|on|for {description:singular} {displayName=documentation}",
            "which quickstarts explain|cover {displayName}",
            "search the quickstarts for {displayName}",
            "{displayName}",
        ),
        accepts={"limit": partial(at_most, MOST_RESULTS), "maxDistance": lenient_distance},
        text=answers.answer_text,
        lean=answers.lean_answer,
        on_error=explain_failure,
    )
    def search(
        self,
        name: Annotated[str | None, Param("Identifier, exact or nearly")] = None,
        displayName: Annotated[str | None, Param("Words of the title; typos and other word order are forgiven")] = None,
        description: Annotated[str | None, Param("Words of the description")] = None,
        limit: Annotated[int, Param("Results", minimum=1, maximum=MOST_RESULTS)] = DEFAULT_LIMIT,
        maxDistance: Annotated[int, Param("Typing errors forgiven in all", minimum=0)] = DEFAULT_DISTANCE,
        tag: Annotated[str | None, Param("Only with this tag: value or kind:value")] = None,
    ) -> answers.SearchAnswer:
        """Find quick starts (short guides and links to manuals) by name, title or description, typos forgiven; give at
        least one of the three. Returns the best match whole and the list, lowest score first (0 = exact)."""
        texts_by_field: dict[Field, str | None] = {
            "name": name,
            "display_name": displayName,
            "description": description,
        }
        texts: dict[Field, str] = {where: text for where, text in texts_by_field.items() if text and text.strip()}
        params = answers.search_params(texts, maxDistance)
        if not texts:
            return answers.empty_answer(params, NOTHING_ASKED)
        request = Request(texts, limit, maxDistance, tag or None)
        try:
            with self._database.read() as connection:
                return self._answer(connection, request, params)
        except apsw.Error as error:
            raise LocalMCPError(str(error)) from error

    def _answer(
        self, connection: apsw.Connection, request: Request, params: answers.SearchParams
    ) -> answers.SearchAnswer:
        works = check_levenshtein(connection)
        if works:
            matches = find_quickstarts(connection, self._words, request)
        else:
            log.warning("levenshtein is not available in this file: quick starts are searched by substring")
            params["maxDistance"] = 0
            matches = find_by_substring(connection, request)
        notices: list[str] = []
        if mounted := self._mounted.search(connection, request, notices):
            matches = [*islice(merge(matches, *mounted, key=lambda match: match.place), request.limit)]
        if matches:
            answer = answers.search_answer(self._row_of(connection, matches[0]), matches, params)
        else:
            answer = answers.empty_answer(params, answers.nothing_found(params, request.tag))
        if notices:
            answer["notices"] = notices
        if not works:
            answer["fallback"] = True
        return answer

    def _row_of(self, connection: apsw.Connection, match: Found) -> Row:
        row = self._mounted.find(match.shown_name) if match.origin else store.find_row(connection, match.name)
        if row is None:
            raise NotFound(f"{match.name} was removed meanwhile.")
        return row

    # ------------------------------------------------------------ importing

    @hidden_change(
        "importQuickstarts",
        title="Import quick starts",
        keywords=("quickstart", "load", "add", "yaml", "json"),
        examples=(
            "import the quickstarts from {path}",
            "import the quickstart file {path}",
        ),
        idempotent=True,
    )
    def import_quickstarts(
        self,
        path: Annotated[str | None, Param("File or folder; only for the person at the machine")] = None,
        text: Annotated[str | None, Param("The documents themselves", max_length=10_000_000)] = None,
        format: Annotated[Literal["yaml", "json", "jsonl"], Param("Form of text")] = "yaml",  # noqa: A002
    ) -> answers.ImportReport:
        """Import quick starts from YAML, JSON or JSON Lines: ConsoleQuickStart documents, or rows {name, content}.
        Known names are updated. A broken file is reported and left out whole."""
        if (path is None) == (text is None):
            raise InvalidInput("Give either path or text.")
        if path is not None:
            if not current_scope().trusted:
                raise AccessDenied("Files are imported by the person at the machine; hand over text instead.")
            return self.import_path(path)
        try:
            readings = [read_text(cast(str, text), f".{format}", "text")]
        except Unreadable as error:
            readings = [Reading(skipped=[{"where": "text", "problem": str(error)}])]
        return self._import(readings)

    def import_path(self, path: str | Path) -> answers.ImportReport:
        """Import a file, or every YAML and JSON file of a folder.

        Raises:
            NotFound: there is no such file or folder.
        """
        expanded = expand_home(path)
        # Unlike `Path.exists` this is false, too, for a name that no file can have.
        if not os.path.exists(expanded):
            raise NotFound(f"There is no file or folder {expanded}.")
        return self._import(read_path(expanded))

    def _import(self, readings: Iterable[Reading]) -> answers.ImportReport:
        report: answers.ImportReport = {"added": 0, "updated": 0, "unchanged": 0, "skipped": [], "warnings": []}
        waiting: list[Draft] = []
        for reading in readings:
            report["skipped"] += reading.skipped
            report["warnings"] += reading.warnings
            waiting += reading.drafts
            if len(waiting) >= IMPORTED_AT_ONCE:
                self._store(waiting, report)
                waiting = []
        self._store(waiting, report)
        return report

    def _store(self, drafts: Sequence[Draft], report: answers.ImportReport) -> None:
        for start in range(0, len(drafts), IMPORTED_AT_ONCE):
            with self._database.write() as connection:
                counts = store.put_quickstarts(connection, drafts[start : start + IMPORTED_AT_ONCE])
            report["added"] += counts["added"]
            report["updated"] += counts["updated"]
            report["unchanged"] += counts["unchanged"]

    @hidden_tool(
        "listQuickstarts",
        title="List quick starts",
        keywords=("quickstart", "catalogue", "browse", "tags"),
        examples=(
            "list all quickstarts",
            "list the quickstarts tagged {tag}",
            "what quickstarts are there",
            "show the catalogue of quickstarts",
        ),
        accepts={"limit": integer_or_string, "offset": integer_or_string},
    )
    def list_quickstarts(
        self,
        tag: Annotated[str | None, Param("Only with this tag: value or kind:value")] = None,
        limit: Annotated[int, Param("Quick starts", minimum=1, maximum=1000)] = 50,
        offset: Annotated[int, Param("Passed over first", minimum=0)] = 0,
    ) -> answers.CatalogList:
        """List the quick starts by title, with tags."""
        with self._database.read() as connection:
            mounted = self._mounted.list_rows(connection, tag, offset + limit)
            passed = 0 if mounted else offset
            rows, total = store.list_rows(connection, tag, offset + limit - passed, passed)
            tags = store.count_tags(connection)
        if mounted:
            rows = [*islice(merged_by_title([rows, *(shelf.rows for shelf in mounted)]), offset, offset + limit)]
            total += sum(shelf.total for shelf in mounted)
            tags = answers.add_tags([tags, *(shelf.tags for shelf in mounted)])
        listed = [answers.listed_quickstart(row) for row in rows]
        return {"count": len(listed), "total": total, "quickstarts": listed, "tags": tags}

    @hidden_tool(
        "showQuickstart",
        title="Show a quick start",
        keywords=("quickstart", "read", "open", "steps", "tasks"),
        examples=(
            "show the quickstart {name}",
            "open the {name} quickstart",
            "show the steps|tasks of the quickstart {name}",
        ),
        text=lambda shown: shown["markdown"],
    )
    def show(self, name: Annotated[str, Param("Name or title")]) -> answers.ShownQuickstart:
        """Return a quick start as Markdown: introduction, tasks with review steps, conclusion, what comes next."""
        with self._database.read() as connection:
            return answers.shown_quickstart(self._find(connection, name))

    @hidden_tool(
        "exportQuickstarts",
        title="Export quick starts",
        keywords=("quickstart", "save", "yaml", "json", "backup"),
        examples=(
            "export the quickstarts as {format}",
            "give me the quickstarts as {format}",
        ),
    )
    def export(
        self,
        names: Annotated[list[str] | None, Param("Which; all if not given")] = None,
        format: Annotated[Literal["yaml", "json", "jsonl"], Param("Form of the text")] = "yaml",  # noqa: A002
        tag: Annotated[str | None, Param("Only with this tag")] = None,
    ) -> answers.ExportAnswer:
        """Return quick starts as one text that `importQuickstarts` reads back without a difference."""
        with self._database.read() as connection:
            if names is None:
                rows, _ = store.list_rows(connection, tag, -1, 0)
            else:
                rows = [self._find(connection, name) for name in names]
        documents = [answers.exported_document(row) for row in rows]
        return {"count": len(documents), "format": format, "text": answers.write_documents(documents, format)}

    @hidden_change(
        "removeQuickstart",
        title="Remove quick starts",
        keywords=("quickstart", "delete"),
        examples=(
            "remove the quickstart {names}",
            "take the quickstart {names} out of the catalogue",
            "remove the quickstart {names} from the catalogue",
        ),
        destructive=True,
    )
    def remove(self, names: Annotated[list[str], Param("Names", min_length=1)]) -> answers.RemovalAnswer:
        """Put quick starts into the trash."""
        with self._database.write() as connection:
            rows = [self._find_own(connection, name) for name in names]
            store.remove_quickstarts(connection, [row.id for row in rows])
        return {"removed": [row.name for row in rows]}

    def _find(self, connection: apsw.Connection, name: str) -> Row:
        """Yours of that name or title, else a mounted one; the words of a name may come in any order."""
        row = store.find_row(connection, name) or self._mounted.find(name)
        if row is None:
            names = {frozenset(other.split("-")): other for other in store.names(connection)}
            meant = names.get(frozenset(name.lower().replace("-", " ").split()))
            if meant and (row := store.find_row(connection, meant)):
                return row
            hint = did_you_mean(name, names.values(), "listQuickstarts shows them with their names.")
            raise NotFound(f"There is no quick start '{name}'.", hint=hint)
        return row

    def _find_own(self, connection: apsw.Connection, name: str) -> Row:
        row = self._find(connection, name)
        if row.origin is not None:
            raise never_changed(f"The quick start '{row.name}'", row.origin, self._mounted.path_of(row.origin))
        return row
