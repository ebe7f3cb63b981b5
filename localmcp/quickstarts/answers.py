"""What the tools of quick starts answer, and how a stored row becomes an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, cast

import apsw
from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, NotFound
from localmcp.quickstarts import store
from localmcp.quickstarts.markdown import task_count
from localmcp.quickstarts.matching import Field, MatchType
from localmcp.quickstarts.search import Found
from localmcp.quickstarts.store import Row
from localmcp.tools import compact_json

Status = Literal["Not started", "In Progress", "Complete"]
MatchedField = Literal["name", "display_name", "description", "document"]


class SearchParams(TypedDict):
    """What was searched for: the texts that were given (S0-21)."""

    name: NotRequired[str]
    displayName: NotRequired[str]
    description: NotRequired[str]
    maxDistance: int


class WholeQuickstart(TypedDict):
    """A quick start as stored."""

    id: int
    name: str
    content: dict[str, Any]
    created_at: str
    updated_at: str


class BestMatch(TypedDict):
    """The single best match (S0-20)."""

    score: int
    matchType: MatchType
    matchedField: MatchedField
    quickstart: WholeQuickstart
    displayName: str
    description: str


class MatchedQuickstart(TypedDict):
    """One line of the list (S0-19)."""

    name: str
    displayName: str
    description: str
    score: int
    matchType: MatchType
    matchedField: MatchedField


class SearchAnswer(TypedDict):
    """The answer of `searchQuickstarts`: the best match and the list [C0-2]."""

    tool: str
    searchParams: SearchParams
    result: NotRequired[BestMatch]
    results: list[MatchedQuickstart]
    count: int
    fallback: NotRequired[bool]
    message: NotRequired[str]


class ListedQuickstart(TypedDict):
    """A quick start in the catalogue."""

    name: str
    displayName: str
    description: str
    tags: list[str]
    type: NotRequired[str]
    durationMinutes: NotRequired[int]
    tasks: int
    link: NotRequired[str]
    favourite: bool
    status: Status


class CatalogueList(TypedDict):
    """The answer of `listQuickstarts`."""

    count: int
    total: int
    quickstarts: list[ListedQuickstart]
    tags: dict[str, int]


class ShownQuickstart(TypedDict):
    """A quick start to read."""

    name: str
    displayName: str
    markdown: str
    tasks: int
    favourite: bool
    progress: ProgressAnswer


class ProgressAnswer(TypedDict):
    """How far the person is with a quick start."""

    name: str
    status: Status
    done: list[int]
    failed: list[int]
    tasks: int


class FavouriteAnswer(TypedDict):
    """Whether a quick start is a favourite."""

    name: str
    favourite: bool


class ReportedProblem(TypedDict):
    """Something wrong with what was imported."""

    where: str
    problem: str


class ImportReport(TypedDict):
    """What an import did. `skipped` was left out; `warnings` were taken as they are."""

    added: int
    updated: int
    unchanged: int
    skipped: list[ReportedProblem]
    warnings: list[ReportedProblem]


class ExportAnswer(TypedDict):
    """Quick starts as one text that can be imported again."""

    count: int
    format: str
    text: str


class RemovalAnswer(TypedDict):
    """What was removed."""

    removed: list[str]


# ---------------------------------------------------------------- search


def answer_text(answer: SearchAnswer) -> str:
    """The sentence where there is one (S0-7, S0-8, S0-21), else the whole answer."""
    return answer.get("message") or compact_json(answer)


def search_params(texts: dict[Field, str], max_distance: int) -> SearchParams:
    keys = {"name": "name", "display_name": "displayName", "description": "description"}
    return cast(SearchParams, {**{keys[each]: text for each, text in texts.items()}, "maxDistance": max_distance})


def nothing_found(params: SearchParams) -> str:
    given = ", ".join(f"{key}='{text}'" for key, text in params.items() if key != "maxDistance")
    return f"No quickstarts found matching ({given}) with Levenshtein distance ≤{params['maxDistance']}"


def empty_answer(params: SearchParams, message: str) -> SearchAnswer:
    return {"tool": "searchQuickstarts", "searchParams": params, "results": [], "count": 0, "message": message}


def search_answer(connection: apsw.Connection, found: Sequence[Found], params: SearchParams) -> SearchAnswer:
    best = found[0]
    row = store.find_row(connection, best.name)
    if row is None:
        raise NotFound(f"{best.name} was removed meanwhile.")
    return {
        "tool": "searchQuickstarts",
        "searchParams": params,
        "result": {
            "score": best.score,
            "matchType": best.match_type,
            "matchedField": cast(MatchedField, best.matched_field),
            "quickstart": {
                "id": row.id,
                "name": row.name,
                "content": row.content,
                "created_at": row.created_at,
                "updated_at": row.updated_at,
            },
            "displayName": best.display_name,
            "description": best.description,
        },
        "results": [_matched(each) for each in found],
        "count": len(found),
    }


def _matched(found: Found) -> MatchedQuickstart:
    return {
        "name": found.name,
        "displayName": found.display_name,
        "description": found.description,
        "score": found.score,
        "matchType": found.match_type,
        "matchedField": cast(MatchedField, found.matched_field),
    }


def listed_quickstart(row: Row) -> ListedQuickstart:
    listed: ListedQuickstart = {
        "name": row.name,
        "displayName": row.display_name,
        "description": row.description,
        "tags": list(dict.fromkeys(value for _, value in row.tags)),
        "tasks": task_count(row.content),
        "favourite": row.favourite,
        "status": cast(Status, row.status),
    }
    kind, link, minutes = row.spec("type", "text"), row.spec("link", "href"), row.spec("durationMinutes")
    if isinstance(kind, str):
        listed["type"] = kind
    if isinstance(link, str):
        listed["link"] = link
    if isinstance(minutes, int):
        listed["durationMinutes"] = minutes
    return listed


def progress_answer(row: Row) -> ProgressAnswer:
    by_state = {
        state: sorted(int(number) for number, each in row.tasks.items() if each == state)
        for state in ("done", "failed")
    }
    return {
        "name": row.name,
        "status": cast(Status, row.status),
        "done": by_state["done"],
        "failed": by_state["failed"],
        "tasks": task_count(row.content),
    }


def record_task(row: Row, task: int | None, passed: bool, status: Status | None) -> dict[str, str]:
    """The state of each task after a report."""
    count = task_count(row.content)
    if task is not None and task > count:
        raise InvalidInput(f"task: {row.name} has {count} tasks, so there is no task {task}.")
    if status == "Not started":
        return {}
    tasks = {str(number): "done" for number in range(1, count + 1)} if status == "Complete" else dict(row.tasks)
    return {**tasks, str(task): "done" if passed else "failed"} if task is not None else tasks


def status_of(tasks: dict[str, str], count: int) -> Status:
    return "Complete" if count and sum(each == "done" for each in tasks.values()) == count else "In Progress"


def exported_document(row: Row) -> dict[str, Any]:
    """The document itself if it says everything, else a row with name, tags and content."""
    if store.own_name(row.content) == row.name and store.tags_of(row.content) == row.tags:
        return row.content
    return {
        "name": row.name,
        "tags": [{"kind": kind, "value": value} for kind, value in row.tags],
        "content": row.content,
    }


def write_documents(documents: Sequence[dict[str, Any]], form: str) -> str:
    if form == "jsonl":
        return "".join(compact_json(each) + "\n" for each in documents)
    if form == "json":
        return json.dumps(documents, ensure_ascii=False, indent=2) + "\n"
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(documents, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100, explicit_start=True)
