"""The data model of a quick start, checked: what a ConsoleQuickStart should have and this one lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from localmcp.schemas import Json, mapping_of

KINDS = ("ConsoleQuickStart", "QuickStarts")
COLORS = ("blue", "cyan", "green", "orange", "purple", "red", "grey")
LONGEST_DESCRIPTION = 256

_TEXTS = ("displayName", "description", "introduction", "icon", "conclusion")
_REQUIRED = ("displayName", "description", "durationMinutes", "introduction", "tasks")
_LISTS_OF_TEXT = ("prerequisites", "nextQuickStart", "tags")
_PARTS = (("review", "instructions", "failedTaskHelp"), ("summary", "success", "failed"))


def is_quickstart(content: Json) -> bool:
    """Return whether a document is a quick start: its kind, in any case and number, or no other kind."""
    kind = content.get("kind")
    kind_is_right = str(kind).lower().rstrip("s") in ("consolequickstart", "quickstart")
    return isinstance(content.get("spec"), dict) and (kind is None or kind_is_right)


def check_quickstart(content: Json, name: str) -> list[str]:
    """Return every departure of a document from the data model (§3), with its path; [] = none.

    Real catalogs depart from it in many rows, so these are warnings. A link to a manual needs no tasks.
    """
    return list(_check(content, name))


def _check(content: Json, name: str) -> Iterator[str]:
    if (kind := content.get("kind")) not in KINDS:
        yield f"kind: {'missing' if kind is None else repr(kind)}; {' or '.join(KINDS)} is expected"
    own = mapping_of(content.get("metadata")).get("name")
    if own is not None and own != name:
        yield f"metadata.name: {own!r} differs from the name {name!r}"
    spec = mapping_of(content.get("spec"))
    for required_name in _REQUIRED:
        if required_name == "tasks" and spec.get("link"):
            continue
        if spec.get(required_name) in (None, "", []):
            yield f"spec.{required_name}: missing"
    yield from _check_values(spec)
    yield from _check_tasks(spec.get("tasks"))
    yield from _check_link_and_type(spec)


def _check_values(spec: Json) -> Iterator[str]:
    for list_name in _TEXTS:
        if not isinstance(spec.get(list_name), str | None):
            yield f"spec.{list_name}: must be text"
    description = spec.get("description")
    if isinstance(description, str) and len(description) > LONGEST_DESCRIPTION:
        yield f"spec.description: {len(description)} characters; at most {LONGEST_DESCRIPTION}"
    minutes = spec.get("durationMinutes")
    if minutes is not None and (not isinstance(minutes, int) or isinstance(minutes, bool) or minutes < 1):
        yield f"spec.durationMinutes: {minutes!r}; a whole number from 1 is expected"
    for list_name in _LISTS_OF_TEXT:
        if not _is_list_of(spec.get(list_name), str):
            yield f"spec.{list_name}: must be a list of texts"
    if not _is_list_of(spec.get("accessReviewResources"), dict):
        yield "spec.accessReviewResources: must be a list of mappings"


def _check_tasks(tasks: Any) -> Iterator[str]:
    if tasks is None:
        return
    if not isinstance(tasks, list):
        yield "spec.tasks: must be a list"
        return
    for number, task in enumerate(cast("list[Any]", tasks)):
        path = f"spec.tasks[{number}]"
        if not isinstance(task, dict):
            yield f"{path}: must be a mapping"
            continue
        yield from _check_task(path, cast(Json, task))


def _check_task(path: str, task: Json) -> Iterator[str]:
    for name in ("title", "description"):
        if not isinstance(task.get(name), str) or not task[name]:
            yield f"{path}.{name}: missing"
    for part, *names in _PARTS:
        value = task.get(part)
        if value is None:
            continue
        for name in names:
            if not isinstance(mapping_of(value).get(name), str):
                yield f"{path}.{part}.{name}: missing"


def _check_link_and_type(spec: Json) -> Iterator[str]:
    for part, names in (("link", ("href", "text")), ("type", ("text",))):
        if spec.get(part) is None:
            continue
        for name in names:
            if not isinstance(mapping_of(spec[part]).get(name), str):
                yield f"spec.{part}.{name}: missing"
    color = mapping_of(spec.get("type")).get("color")
    if color is not None and color not in COLORS:
        yield f"spec.type.color: {color!r}; one of {', '.join(COLORS)} is expected"


def _is_list_of(value: Any, kind: type) -> bool:
    return value is None or isinstance(value, list) and all(isinstance(item, kind) for item in cast("list[Any]", value))
