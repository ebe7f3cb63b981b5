"""A quick start as Markdown that a person or a model can read from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from localmcp.schemas import Json, list_of, mapping_of

# None of their parts may hold what begins the next one, or a text of nothing but brackets takes hours.
_HIGHLIGHT = re.compile(r"\[([^\[\]\n]+)\]\{\{highlight [^{}]*\}\}")
_ADMONITION = re.compile(r"\[([^\[\]]+)\]\{\{admonition ([^{}]*)\}\}")
_MARKER = re.compile(r"\{\{(?:copy|execute|highlight|admonition)[^{}]*\}\}")


def render(
    content: Json,
    *,
    name: str,
    tags: Sequence[tuple[str, str]] = (),
) -> str:
    """Introduction, tasks with their review steps, conclusion and what comes next."""
    spec = mapping_of(content.get("spec"))
    conclusion = _text(spec.get("conclusion"))
    parts = [
        f"# {_text(spec.get('displayName')) or name}",
        _text(spec.get("description")),
        _facts(spec, name, tags),
        _listed("Before you begin", spec.get("prerequisites")),
        _text(spec.get("introduction")),
        *_tasks(spec),
        f"## Done\n\n{conclusion}" if conclusion else "",
        _listed("Next", spec.get("nextQuickStart")),
        _link(mapping_of(spec.get("link"))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def task_count(content: Json) -> int:
    """Return how many tasks a quick start has."""
    return len(list_of(mapping_of(content.get("spec")).get("tasks")))


def _facts(spec: Json, name: str, tags: Sequence[tuple[str, str]]) -> str:
    minutes = spec.get("durationMinutes")
    facts = [
        f"`{name}`",
        _text(mapping_of(spec.get("type")).get("text")),
        f"{minutes} minutes" if isinstance(minutes, int) and minutes > 1 else "",
        ", ".join(dict.fromkeys(value for _, value in tags)),
    ]
    return " · ".join(fact for fact in facts if fact)


def _tasks(spec: Json) -> Iterator[str]:
    for number, task in enumerate(list_of(spec.get("tasks")), start=1):
        fields = mapping_of(task)
        yield f"## {number}. {_text(fields.get('title'))}"
        yield _text(fields.get("description"))
        review, summary = mapping_of(fields.get("review")), mapping_of(fields.get("summary"))
        yield _quoted("Check your work", review.get("instructions"))
        yield _quoted("If that failed", review.get("failedTaskHelp"))
        yield _text(summary.get("success"))


def _quoted(title: str, value: Any) -> str:
    text = _text(value)
    return f"> **{title}.** " + text.replace("\n", "\n> ") if text else ""


def _listed(title: str, value: Any) -> str:
    items = [_text(item) for item in list_of(value)]
    lines = [f"- {item}" for item in items if item]
    return "\n".join([f"**{title}**", "", *lines]) if lines else ""


def _link(link: Json) -> str:
    href = _text(link.get("href"))
    return f"[{_text(link.get('text')) or href}]({href})" if href else ""


def _text(value: Any) -> str:
    """Return text without the marks that only a web console understands."""
    if not isinstance(value, str):
        return ""
    plain = _HIGHLIGHT.sub(r"**\1**", value.strip())
    plain = _ADMONITION.sub(lambda match: f"**{match[2].strip().capitalize() or 'Note'}:** {match[1]}", plain)
    return _MARKER.sub("", plain)
