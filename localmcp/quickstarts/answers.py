"""What the tools of quick starts answer, and how a stored row becomes an answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.humanize import quoted
from localmcp.quickstarts import store
from localmcp.quickstarts.documents import ReportedProblem
from localmcp.quickstarts.markdown import render, task_count
from localmcp.quickstarts.matching import Field, MatchType
from localmcp.quickstarts.search import Found
from localmcp.quickstarts.store import Row
from localmcp.schemas import mapping_of
from localmcp.tools import Answer, compact_json, without_none

LONGEST_STEPS = 6_000
"""Characters of a guide that a language model is shown at once."""

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
    """The single best match (S0-20); the two words are those of the list."""

    score: int
    matchType: str
    matchedField: str
    quickstart: WholeQuickstart
    displayName: str
    description: str
    origin: NotRequired[str]


class MatchedQuickstart(TypedDict):
    """One line of the list (S0-19)."""

    name: str
    displayName: str
    description: str
    score: int
    matchType: MatchType
    matchedField: MatchedField
    origin: NotRequired[str]
    """The mounted file that it is in, which is also said in its name: `team:deploy`."""


class SearchAnswer(TypedDict):
    """The answer of `searchQuickstarts`: the best match and the list [C0-2]."""

    tool: str
    searchParams: SearchParams
    result: NotRequired[BestMatch]
    results: list[MatchedQuickstart]
    count: int
    fallback: NotRequired[bool]
    message: NotRequired[str]
    notices: NotRequired[list[str]]
    """Mounted files that could not be searched."""


class ListedQuickstart(TypedDict):
    """A quick start in the catalog."""

    name: str
    displayName: str
    description: str
    tags: list[str]
    type: NotRequired[str]
    durationMinutes: NotRequired[int]
    tasks: int
    link: NotRequired[str]
    origin: NotRequired[str]


class CatalogList(TypedDict):
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
    origin: NotRequired[str]


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
    """Return the sentence where there is one (S0-7, S0-8, S0-21), else the whole answer."""
    return answer.get("message") or compact_json(answer)


def lean_answer(answer: SearchAnswer) -> Answer:
    """Return the answer for a language model: the best match as steps, the others by name and title."""
    best = answer.get("result")
    if "message" in answer or best is None:
        return Answer(dict(answer), answer_text(answer), whole_text=True)
    steps = render(best["quickstart"]["content"], name=answer["results"][0]["name"]).rstrip()
    if len(steps) > LONGEST_STEPS:
        steps = f"{steps[:LONGEST_STEPS]} …\n\nThe rest: showQuickstart"
    others = [f"- {match['name']}: {match['displayName']}" for match in answer["results"][1:]]
    text = "\n".join([steps, *(["\nOther matches:", *others] if others else []), *answer.get("notices", [])])
    return Answer(dict(answer), text, whole_text=True)


def search_params(texts: dict[Field, str], max_distance: int) -> SearchParams:
    keys = {"name": "name", "display_name": "displayName", "description": "description"}
    return cast(
        SearchParams, {**{keys[field_name]: text for field_name, text in texts.items()}, "maxDistance": max_distance}
    )


def nothing_found(params: SearchParams, tag: str | None) -> str:
    """`tag`: the one that was asked for; without it there may be matches."""
    criteria = ", ".join(f"{key}='{quoted(str(text))}'" for key, text in params.items() if key != "maxDistance")
    return f"No quickstarts found matching ({criteria}) with Levenshtein distance ≤{params['maxDistance']}" + (
        f"\nOnly those with the tag '{quoted(tag)}' were searched; listQuickstarts shows the tags." if tag else ""
    )


def empty_answer(params: SearchParams, message: str) -> SearchAnswer:
    return {"tool": "searchQuickstarts", "searchParams": params, "results": [], "count": 0, "message": message}


def search_answer(row: Row, matches: Sequence[Found], params: SearchParams) -> SearchAnswer:
    """`row` is that of the best match, which is first."""
    return {
        "tool": "searchQuickstarts",
        "searchParams": params,
        "result": _best(row, matches[0]),
        "results": [_matched(match) for match in matches],
        "count": len(matches),
    }


def _best(row: Row, match: Found) -> BestMatch:
    best = {
        "score": match.score,
        "matchType": match.match_type,
        "matchedField": match.matched_field,
        "quickstart": {
            "id": row.id,
            "name": row.shown_name,
            "content": row.content,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
        },
        "displayName": match.display_name,
        "description": match.description,
        "origin": match.origin,
    }
    return without_none(best)


def _matched(match: Found) -> MatchedQuickstart:
    matched = {
        "name": match.shown_name,
        "displayName": match.display_name,
        "description": match.description,
        "score": match.score,
        "matchType": match.match_type,
        "matchedField": match.matched_field,
        "origin": match.origin,
    }
    return without_none(matched)


def listed_quickstart(row: Row) -> ListedQuickstart:
    spec = mapping_of(row.content.get("spec"))
    kind, link = mapping_of(spec.get("type")).get("text"), mapping_of(spec.get("link")).get("href")
    minutes = spec.get("durationMinutes")
    listed = {
        "name": row.shown_name,
        "displayName": row.display_name,
        "description": row.description,
        "tags": list(dict.fromkeys(value for _, value in row.tags)),
        "tasks": task_count(row.content),
        "type": kind if isinstance(kind, str) else None,
        "link": link if isinstance(link, str) else None,
        "durationMinutes": minutes if isinstance(minutes, int) else None,
        "origin": row.origin,
    }
    return without_none(listed)


def add_tags(files: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the tags of several files counted together, the most frequent first."""
    total: Counter[str] = Counter()
    for file in files:
        total.update(file)
    return dict(sorted(total.items(), key=lambda pair: (-pair[1], pair[0])))


def shown_quickstart(row: Row) -> ShownQuickstart:
    shown = {
        "name": row.shown_name,
        "displayName": row.display_name,
        "markdown": render(row.content, name=row.shown_name, tags=row.tags),
        "tasks": task_count(row.content),
        "origin": row.origin,
    }
    return without_none(shown)


def exported_document(row: Row) -> dict[str, Any]:
    """Return the document itself if it says everything, else a row with name, tags and content."""
    if store.own_name(row.content) == row.name and store.tags_of(row.content) == row.tags:
        return row.content
    return {
        "name": row.name,
        "tags": [{"kind": kind, "value": value} for kind, value in row.tags],
        "content": row.content,
    }


def write_documents(documents: Sequence[dict[str, Any]], form: str) -> str:
    if form == "jsonl":
        return "".join(compact_json(document) + "\n" for document in documents)
    if form == "json":
        return json.dumps(documents, ensure_ascii=False, indent=2) + "\n"
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(documents, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100, explicit_start=True)
