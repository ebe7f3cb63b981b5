"""The data model of a quick start (§3): what a ConsoleQuickStart should have and this one lacks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from localmcp.schemas import Json, mapping_of

_Text = Annotated[str, StringConstraints(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Review(_Part):
    instructions: str
    failedTaskHelp: str


class _Summary(_Part):
    success: str
    failed: str


class _Task(_Part):
    title: _Text
    description: _Text
    review: _Review | None = None
    summary: _Summary | None = None


class _Link(_Part):
    href: str
    text: str


class _Type(_Part):
    text: str
    color: Literal["blue", "cyan", "green", "orange", "purple", "red", "grey"] | None = None


class _Spec(_Part):
    displayName: _Text
    description: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    durationMinutes: Annotated[int, Field(ge=1)]
    introduction: _Text
    icon: str | None = None
    conclusion: str | None = None
    tasks: list[_Task] = []
    prerequisites: list[str] | None = None
    nextQuickStart: list[str] | None = None
    tags: list[str] | None = None
    accessReviewResources: list[Json] | None = None
    link: _Link | None = None
    type: _Type | None = None


class _Document(_Part):
    kind: Literal["ConsoleQuickStart", "QuickStarts"]
    spec: _Spec


def check_quickstart(content: Json, name: str) -> list[str]:
    """Return every departure of a document from the data model, with its path; [] = none.

    Real catalogs depart from it in many rows, so these are warnings. A link to a manual needs no tasks.
    """
    problems: list[str] = []
    own = mapping_of(content.get("metadata")).get("name")
    if own is not None and own != name:
        problems.append(f"metadata.name: {own!r} differs from the name {name!r}")
    spec = mapping_of(content.get("spec"))
    if not spec.get("link") and not spec.get("tasks"):
        problems.append("spec.tasks: missing")
    try:
        _Document.model_validate(content)
    except ValidationError as error:
        problems += [f"{_path(problem['loc'])}: {problem['msg']}" for problem in error.errors(include_url=False)]
    return problems


def _path(location: tuple[Any, ...]) -> str:
    """`spec.tasks[0].title`"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
