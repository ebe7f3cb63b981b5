"""The catalog of quick starts: import, search, reading and export (S0-3, S0-5 to S0-21)."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import Annotated, Literal
from weakref import WeakKeyDictionary

import apsw

from localmcp.errors import AccessDenied, FileUnavailable, InvalidInput, LocalMCPError, NotFound
from localmcp.files import expand_home
from localmcp.humanize import quoted
from localmcp.index.federation import Federation, MountedFile, never_changed, split_name
from localmcp.quickstarts import documents, store
from localmcp.quickstarts.store import Catalog, Field, Match, Query, Row, find_quickstarts, match_type
from localmcp.schemas import Json, compact_json, did_you_mean, mapping_of, without_none
from localmcp.storage.connections import check_levenshtein
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import Answer, Param, at_most, current_scope, hidden_change, hidden_tool, integer_or_string, tool

log = logging.getLogger(__name__)

DEFAULT_LIMIT, MOST_RESULTS = 10, 50
DEFAULT_DISTANCE = 7


def explain_failure(error: LocalMCPError) -> Json:
    """S0-8: the answer when the file cannot be searched."""
    if isinstance(error, InvalidInput):
        raise error
    log.warning("quick starts cannot be searched: %s", error)
    is_missing = isinstance(error, FileUnavailable)
    failure = "Error: Database connection not available" if is_missing else "Error searching quickstarts"
    return no_answer({"maxDistance": DEFAULT_DISTANCE}, f"{failure}: {error}")


def no_answer(params: Json, message: str) -> Json:
    """Return the answer to a search that found nothing, which says why."""
    return {"tool": "searchQuickstarts", "searchParams": params, "results": [], "count": 0, "message": message}


def answer_text(answer: Json) -> str:
    """Return the sentence where there is one (S0-7, S0-8, S0-21), else the whole answer."""
    return answer.get("message") or compact_json(answer)


def lean_answer(answer: Json) -> Answer:
    """Return the answer for a language model: the best match as steps, the others by name and title."""
    text = answer_text(answer)
    if "message" not in answer and "result" in answer:
        steps = documents.render(answer["result"]["quickstart"]["content"], name=answer["results"][0]["name"]).rstrip()
        if len(steps) > 6_000:
            steps = f"{steps[:6_000]} …\n\nThe rest: showQuickstart"
        others = [f"- {match['name']}: {match['displayName']}" for match in answer["results"][1:]]
        text = "\n".join([steps, *(["\nOther matches:", *others] if others else []), *answer.get("notices", [])])
    return Answer(answer, text, whole_text=True)


class Quickstarts:
    """Short guides: tasks to work through, or links to a manual."""

    def __init__(self, database: Database, federation: Federation) -> None:
        self._database = database
        self._federation = federation
        self._lock = threading.Lock()
        self._snapshots: WeakKeyDictionary[Database, Catalog] = WeakKeyDictionary()

    def _catalog(self, database: Database, connection: apsw.Connection) -> Catalog:
        with self._lock:
            catalog = self._snapshots.get(database)
            # Remade when the file's generation of quick starts moves on.
            if catalog is None or catalog.generation != fetch_one(connection, "select quickstarts from state"):
                catalog = self._snapshots[database] = Catalog(connection)
            return catalog

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
        accepts={"limit": partial(at_most, MOST_RESULTS), "maxDistance": integer_or_string},
        text=answer_text,
        lean=lean_answer,
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
    ) -> Json:
        """Find quick starts (short guides and links to manuals) by name, title or description, typos forgiven; give at
        least one of the three. Returns the best match whole and the list, lowest score first (0 = exact)."""
        fields: dict[Field, str | None] = {"name": name, "display_name": displayName, "description": description}
        texts: dict[Field, str] = {where: text for where, text in fields.items() if text and text.strip()}
        queries: dict[Field, Query] = {where: Query(text, maxDistance) for where, text in texts.items()}
        # Those that were given (S0-21).
        params: Json = {"displayName" if where == "display_name" else where: text for where, text in texts.items()}
        if not texts:
            message = "Error: At least one search parameter (name, displayName, or description) must be provided"
            return no_answer({"maxDistance": maxDistance}, message)
        notices: list[str] = []

        def search_mounted(file: MountedFile, theirs: apsw.Connection) -> list[Match]:
            matches = find_quickstarts(theirs, self._catalog(file.database, theirs), queries, limit, tag or None)
            same = _same_quickstarts(connection, theirs, [match.name for match in matches])
            return [match._replace(origin=file.name) for match in matches if same.get(match.name) is False]

        try:
            with self._database.read() as connection:
                fuzzy, catalog = check_levenshtein(connection), self._catalog(self._database, connection)
                own = find_quickstarts(connection, catalog, queries, limit, tag or None)
                mounted = self._federation.read_mounted(search_mounted, notices)
                matches = [*islice(merge(own, *mounted, key=lambda match: match.place), limit)]
                best = self._find_exactly(connection, matches[0].shown_name) if matches else None
        except apsw.Error as error:
            raise LocalMCPError(str(error)) from error
        distance = maxDistance if fuzzy else 0
        if not matches:
            searched_for = ", ".join(f"{field}='{quoted(text)}'" for field, text in params.items())
            message = f"No quickstarts found matching ({searched_for}) with Levenshtein distance ≤{distance}"
            if tag:
                only = f"Only those with the tag '{quoted(tag)}' were searched; listQuickstarts shows the tags."
                message = f"{message}\n{only}"
            answer = no_answer({**params, "maxDistance": distance}, message)
        elif best is None:
            raise NotFound(f"{matches[0].shown_name} was removed meanwhile.")
        else:
            answer = found_answer({**params, "maxDistance": distance}, matches, best)
        if notices:
            answer["notices"] = notices
        if not fuzzy:
            log.warning("levenshtein is not available in this file: quick starts are searched by substring")
            answer["fallback"] = True
        return answer

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
    ) -> Json:
        """Import quick starts from YAML, JSON or JSON Lines: ConsoleQuickStart documents, or rows {name, content}.
        Known names are updated. A broken file is reported and left out whole."""
        if (path is None) == (text is None):
            raise InvalidInput("Give either path or text.")
        reading, counts = documents.Reading(), Counter[str]()
        if path is None:
            try:
                documents.read_text(text or "", f".{format}", "text", reading, {})
            except documents.Unreadable as error:
                reading.skipped.append({"where": "text", "problem": str(error)})
        elif current_scope().trusted:
            expanded = expand_home(path)
            # Unlike `Path.exists` this is false, too, for a name that no file can have.
            if not os.path.exists(expanded):
                raise NotFound(f"There is no file or folder {expanded}.")
            reading = documents.read_path(expanded)
        else:
            raise AccessDenied("Files are imported by the person at the machine; hand over text instead.")
        if reading.drafts:
            with self._database.write() as connection:
                counts = store.put_quickstarts(connection, reading.drafts)
        added = {name: counts[name] for name in ("added", "updated", "unchanged")}
        return {**added, "skipped": reading.skipped, "warnings": reading.warnings}

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
    ) -> Json:
        """List the quick starts by title, with tags."""
        with self._database.read() as connection:
            own_names = store.names(connection)

            def list_mounted(file: MountedFile, theirs: apsw.Connection) -> tuple[list[Row], int, Counter[str]]:
                same = [name for name, is_same in _same_quickstarts(connection, theirs, own_names).items() if is_same]
                return store.list_rows(theirs, tag, offset + limit, file.name, same)

            own = store.list_rows(connection, tag, offset + limit)
            shelves = [own, *self._federation.read_mounted(list_mounted)]
        rows = sorted(
            (row for listed, _, _ in shelves for row in listed), key=lambda row: (row.display_name.lower(), row.name)
        )[offset : offset + limit]
        quickstarts: list[Json] = []
        for row in rows:
            spec = mapping_of(row.content.get("spec"))
            kind, link = mapping_of(spec.get("type")).get("text"), mapping_of(spec.get("link")).get("href")
            minutes = spec.get("durationMinutes")
            listed: Json = {
                "name": row.shown_name,
                "displayName": row.display_name,
                "description": row.description,
                "tags": list(dict.fromkeys(value for _, value in row.tags)),
                "tasks": documents.task_count(row.content),
                "type": kind if isinstance(kind, str) else None,
                "link": link if isinstance(link, str) else None,
                "durationMinutes": minutes if isinstance(minutes, int) else None,
                "origin": row.origin,
            }
            quickstarts.append(without_none(listed))
        tags = sum((counted for _, _, counted in shelves), Counter[str]())
        return {
            "count": len(rows),
            "total": sum(total for _, total, _ in shelves),
            "quickstarts": quickstarts,
            "tags": dict(sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))),
        }

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
    def show(self, name: Annotated[str, Param("Name or title")]) -> Json:
        """Return a quick start as Markdown: introduction, tasks with review steps, conclusion, what comes next."""
        with self._database.read() as connection:
            row = self._find(connection, name)
        shown = {
            "name": row.shown_name,
            "displayName": row.display_name,
            "markdown": documents.render(row.content, name=row.shown_name, tags=row.tags),
            "tasks": documents.task_count(row.content),
            "origin": row.origin,
        }
        return without_none(shown)

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
    ) -> Json:
        """Return quick starts as one text that `importQuickstarts` reads back without a difference."""
        with self._database.read() as connection:
            if names is None:
                rows = store.list_rows(connection, tag, -1)[0]
            else:
                rows = [self._find(connection, name) for name in names]
        exported: list[Json] = []
        for row in rows:
            metadata = mapping_of(row.content.get("metadata"))
            # The document itself if it says everything.
            own_tags = sorted(documents.read_tags(metadata.get("tags")))
            is_whole = metadata.get("name") == row.name and own_tags == sorted(row.tags)
            tags = [{"kind": kind, "value": value} for kind, value in row.tags]
            exported.append(row.content if is_whole else {"name": row.name, "tags": tags, "content": row.content})
        return {"count": len(exported), "format": format, "text": documents.write_documents(exported, format)}

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
    def remove(self, names: Annotated[list[str], Param("Names", min_length=1)]) -> dict[str, list[str]]:
        """Put quick starts into the trash."""
        with self._database.write() as connection:
            rows = [self._find(connection, name) for name in names]
            if mounted := next((row for row in rows if row.origin), None):
                files, _ = self._federation.mounted()
                path = next((file.database.path for file in files if file.name == mounted.origin), "FILE")
                raise never_changed(f"The quick start '{mounted.name}'", mounted.origin or "", str(path))
            store.remove_quickstarts(connection, [row.id for row in rows])
        return {"removed": [row.name for row in rows]}

    def _find(self, connection: apsw.Connection, name: str) -> Row:
        """Return yours of that name or title, else a mounted one; the words of a name may come in any order."""
        if row := self._find_exactly(connection, name):
            return row
        names = {frozenset(other.split("-")): other for other in store.names(connection)}
        meant = names.get(frozenset(name.lower().replace("-", " ").split()))
        if meant and (row := store.find_row(connection, meant)):
            return row
        hint = did_you_mean(name, names.values(), "listQuickstarts shows them with their names.")
        raise NotFound(f"There is no quick start '{name}'.", hint=hint)

    def _find_exactly(self, connection: apsw.Connection, name: str) -> Row | None:
        """Return yours of that name or title, else one in any mounted file; `NAME:name` is in that one."""
        origin, bare = split_name(name)

        def look(file: MountedFile, theirs: apsw.Connection) -> Row | None:
            row = store.find_row(theirs, bare, file.name) if origin == file.name else None
            return row or store.find_row(theirs, name, file.name)

        if row := store.find_row(connection, name):
            return row
        rows = self._federation.read_mounted(look)
        return next((row for row in rows if row.origin == origin), rows[0] if rows else None)


def _same_quickstarts(own: apsw.Connection, theirs: apsw.Connection, names: Iterable[str]) -> dict[str, bool]:
    """Return which of a mounted file's readable quick starts of these names your file holds as they are."""
    their_contents = store.contents(theirs, names)
    own_contents = store.contents(own, their_contents)
    return {name: own_contents.get(name) == content for name, content in their_contents.items()}


def found_answer(params: Json, matches: Sequence[Match], best: Row) -> Json:
    """Return the best match (S0-20), of which `best` is the row, and the list (S0-19) [C0-2]."""
    results = [
        without_none(
            {
                "name": match.shown_name,
                "displayName": match.display_name,
                "description": match.description,
                "score": match.score,
                "matchType": match_type(match.score),
                "matchedField": match.matched_field,
                "origin": match.origin,
            }
        )
        for match in matches
    ]
    times = {"created_at": best.created_at, "updated_at": best.updated_at}
    whole = {"id": best.id, "name": best.shown_name, "content": best.content, **times}
    result = {**results[0], "quickstart": whole}
    del result["name"]
    answer: Json = {"tool": "searchQuickstarts", "searchParams": params, "results": results, "count": len(results)}
    return {**answer, "result": result}
