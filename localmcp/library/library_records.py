"""The answers of the tools that change the library."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict


class AddedDocument(TypedDict):
    """What adding a text came to."""

    status: Literal["added", "replaced", "unchanged", "running"]
    sourceId: NotRequired[str]
    chunksAdded: NotRequired[int]
    chunksKept: NotRequired[int]
    jobId: NotRequired[str]
    """While it is running: what to ask job_status for."""


class Problem(TypedDict):
    """A file that could not be read."""

    path: str
    reason: str


class IngestResult(TypedDict):
    """What adding or refreshing files came to, counted in files. While it runs: jobId, done and total, and the counts
    once everything is found by its words."""

    status: Literal["done", "running"]
    jobId: NotRequired[str]
    done: NotRequired[int]
    total: NotRequired[int | None]
    indexed: NotRequired[int]
    updated: NotRequired[int]
    moved: NotRequired[int]
    unchanged: NotRequired[int]
    skipped: NotRequired[int]
    failed: NotRequired[int]
    missing: NotRequired[int]
    removed: NotRequired[int]
    chunksAdded: NotRequired[int]
    chunksKept: NotRequired[int]
    vectorsAdded: NotRequired[int]
    waiting: NotRequired[int]
    """Passages that are found by their words, and not yet by their meaning."""
    seconds: NotRequired[float]
    problems: NotRequired[list[Problem]]
    notices: NotRequired[list[str]]


class RemovedSource(TypedDict):
    """A document in the trash, or about to be."""

    sourceId: str
    title: str
    path: str | None


class Removed(TypedDict):
    """What removing came to, or what it would remove."""

    removed: int
    trashDays: int
    sources: list[RemovedSource]
    """At most 100 of them."""
    wouldRemove: NotRequired[int]
    """Nothing was removed yet: so many documents are meant; call again with confirm."""
    message: NotRequired[str]


class TrashedSource(RemovedSource):
    """A document in the trash."""

    trashedAt: str


class Trash(TypedDict):
    """The answer of `list_trash`."""

    count: int
    total: int
    sources: list[TrashedSource]
    message: NotRequired[str]


class Restored(TypedDict):
    """What is back: one document, or several."""

    sourceId: NotRequired[str]
    title: NotRequired[str]
    path: NotRequired[str | None]
    restored: NotRequired[int]
    sources: NotRequired[list[RemovedSource]]
    """At most 100 of them."""
    problems: NotRequired[list[Problem]]


class JobStatus(TypedDict):
    """Status of long work."""

    jobId: str
    kind: str
    status: Literal["running", "done", "failed", "cancelled"]
    done: int
    total: int | None
    message: str
    startedAt: str
    finishedAt: str | None
    result: NotRequired[dict[str, Any]]
