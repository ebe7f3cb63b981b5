"""What the tools of quick starts answer: a stored row as an answer, and as Markdown to read from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.humanize import quoted
from localmcp.quickstarts.documents import ReportedProblem
from localmcp.quickstarts.search import Field, Match, MatchType, Request, match_type
from localmcp.quickstarts.store import Row
from localmcp.schemas import Json, compact_json, list_of, mapping_of, without_none
from localmcp.tools import Answer

LONGEST_STEPS = 6_000
"""Characters of a guide that a language model is shown at once."""

MatchedField = Literal["name", "display_name", "description", "document"]


class SearchParams(TypedDict):
    """What was searched for: the texts that were given (S0-21)."""

    name: NotRequired[str]
    displayName: NotRequired[str]
    description: NotRequired[str]
    maxDistance: int


class Found(TypedDict):
    """What is said of every match."""

    displayName: str
    description: str
    score: int
    matchType: MatchType
    matchedField: MatchedField
    origin: NotRequired[str]
    """The mounted file that it is in, which is also said in its name: `team:deploy`."""


class BestMatch(Found):
    """The single best match (S0-20); the two words are those of the list."""

    quickstart: dict[str, Any]
    """As stored: id, name, content, created_at, updated_at."""


class MatchedQuickstart(Found):
    """One line of the list (S0-19)."""

    name: str


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


_KEYS: dict[Field, str] = {"name": "name", "display_name": "displayName", "description": "description"}


def search_answer(request: Request, max_distance: int, matches: Sequence[Match], best: Row | None) -> SearchAnswer:
    """Return the answer to a request; `best` is the row of the first match, None if there is none."""
    params = cast(SearchParams, {_KEYS[field]: text for field, text in request.texts.items()})
    params["maxDistance"] = max_distance
    answer: SearchAnswer = {"tool": "searchQuickstarts", "searchParams": params, "results": [], "count": len(matches)}
    if best is None:
        said = ", ".join(f"{_KEYS[field]}='{quoted(text)}'" for field, text in request.texts.items())
        answer["message"] = f"No quickstarts found matching ({said}) with Levenshtein distance ≤{max_distance}"
        if request.tag:
            answer["message"] += (
                f"\nOnly those with the tag '{quoted(request.tag)}' were searched; listQuickstarts shows the tags."
            )
        return answer
    answer["results"] = [cast(MatchedQuickstart, {"name": match.shown_name, **_facts(match)}) for match in matches]
    times = {"created_at": best.created_at, "updated_at": best.updated_at}
    whole = {"id": best.id, "name": best.shown_name, "content": best.content, **times}
    answer["result"] = cast(BestMatch, {**_facts(matches[0]), "quickstart": whole})
    return answer


def _facts(match: Match) -> Any:
    return without_none(
        {
            "displayName": match.display_name,
            "description": match.description,
            "score": match.score,
            "matchType": match_type(match.score),
            "matchedField": match.matched_field,
            "origin": match.origin,
        }
    )


# ---------------------------------------------------------------- lists


def listed_quickstart(row: Row) -> ListedQuickstart:
    spec = mapping_of(row.content.get("spec"))
    kind, link = mapping_of(spec.get("type")).get("text"), mapping_of(spec.get("link")).get("href")
    minutes = spec.get("durationMinutes")
    listed: Json = {
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


def shown_quickstart(row: Row) -> ShownQuickstart:
    shown = {
        "name": row.shown_name,
        "displayName": row.display_name,
        "markdown": render(row.content, name=row.shown_name, tags=row.tags),
        "tasks": task_count(row.content),
        "origin": row.origin,
    }
    return without_none(shown)


# ---------------------------------------------------------------- as Markdown


def render(content: Json, *, name: str, tags: Sequence[tuple[str, str]] = ()) -> str:
    """Return a quick start to read: introduction, tasks with their review steps, conclusion and what comes next."""
    spec = mapping_of(content.get("spec"))
    conclusion, link = _text(spec.get("conclusion")), mapping_of(spec.get("link"))
    href = _text(link.get("href"))
    minutes = spec.get("durationMinutes")
    facts = [
        f"`{name}`",
        _text(mapping_of(spec.get("type")).get("text")),
        f"{minutes} minutes" if isinstance(minutes, int) and minutes > 1 else "",
        ", ".join(dict.fromkeys(value for _, value in tags)),
    ]
    tasks: list[str] = []
    for number, task in enumerate(list_of(spec.get("tasks")), start=1):
        fields = mapping_of(task)
        review, summary = mapping_of(fields.get("review")), mapping_of(fields.get("summary"))
        tasks += [
            f"## {number}. {_text(fields.get('title'))}",
            _text(fields.get("description")),
            _quoted("Check your work", review.get("instructions")),
            _quoted("If that failed", review.get("failedTaskHelp")),
            _text(summary.get("success")),
        ]
    parts = [
        f"# {_text(spec.get('displayName')) or name}",
        _text(spec.get("description")),
        " · ".join(fact for fact in facts if fact),
        _listed("Before you begin", spec.get("prerequisites")),
        _text(spec.get("introduction")),
        *tasks,
        f"## Done\n\n{conclusion}" if conclusion else "",
        _listed("Next", spec.get("nextQuickStart")),
        f"[{_text(link.get('text')) or href}]({href})" if href else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def task_count(content: Json) -> int:
    """Return how many tasks a quick start has."""
    return len(list_of(mapping_of(content.get("spec")).get("tasks")))


def _quoted(title: str, value: Any) -> str:
    text = _text(value)
    return f"> **{title}.** " + text.replace("\n", "\n> ") if text else ""


def _listed(title: str, value: Any) -> str:
    items = [_text(item) for item in list_of(value)]
    lines = [f"- {item}" for item in items if item]
    return "\n".join([f"**{title}**", "", *lines]) if lines else ""


def _text(value: Any) -> str:
    """Return text without the marks that only a web console understands."""
    if not isinstance(value, str):
        return ""
    # None of the parts may hold what begins the next one, or a text of nothing but brackets takes hours.
    plain = re.sub(r"\[([^\[\]\n]+)\]\{\{highlight [^{}]*\}\}", r"**\1**", value.strip())
    kind = r"\[([^\[\]]+)\]\{\{admonition ([^{}]*)\}\}"
    plain = re.sub(kind, lambda match: f"**{match[2].strip().capitalize() or 'Note'}:** {match[1]}", plain)
    return re.sub(r"\{\{(?:copy|execute|highlight|admonition)[^{}]*\}\}", "", plain)
