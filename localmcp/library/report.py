"""Progress of a run of ingest, and the report at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from localmcp.errors import ModelUnavailable

SHOWN_PROBLEMS = 50
EARLIEST_ESTIMATE = 2.0
"""Seconds of work before a rate says anything."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run; handed to a callback after each file and each embedded batch."""

    done: int
    """Files finished, of `total` that are to be read; files known to be unchanged are not among them."""
    total: int
    chunks: int
    """Passages that are found by their words so far."""
    bytes_done: int
    bytes_total: int
    path: str
    seconds: float
    """Since the run began."""
    phase: Literal["words", "meaning"] = "words"
    vectors_done: int = 0
    """Characters of the passages that got their vectors, of `vectors_total`."""
    vectors_total: int = 0
    waiting: int = 0
    """Passages that have no vector yet."""
    seconds_left: float | None = None
    """Of the phase, by bytes or characters; None until enough is done to tell."""
    documents: int = 0
    """Stored, or as they were, of what was read so far."""


@dataclass(slots=True)
class Report:
    """The result of a run, counted in files except where a name says otherwise."""

    indexed: int = 0
    updated: int = 0
    moved: int = 0
    unchanged: int = 0
    skipped: int = 0
    """Files and whole folders that were passed over; the ledger has each reason."""
    failed: int = 0
    missing: int = 0
    """Gone from the disk, put into the trash."""
    removed: int = 0
    """Put into the trash because the person said so, directly or in an ignore file."""
    restored: int = 0
    chunks_added: int = 0
    chunks_kept: int = 0
    vectors_added: int = 0
    """Of passages that were in the file before this run."""
    waiting: int = 0
    """Passages of the collections that were looked at which have no vector yet."""
    seconds: float = 0.0
    embed_seconds: float = 0.0
    read_seconds: float = 0.0
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(path, reason) of the first 50 failures; `failed` counts all."""
    notices: list[str] = field(default_factory=list[str])

    def add_problem(self, path: str, reason: str) -> None:
        """Count a failure, and keep it if it is among the first 50."""
        self.failed += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append((path, reason))

    def add_notice(self, text: str) -> None:
        """Keep a sentence that the person should read, once."""
        if text not in self.notices:
            self.notices.append(text)

    def note_absent_model(self, error: ModelUnavailable) -> None:
        """Say that meaning has to wait for the model."""
        self.add_notice(f"Found by words only until a refresh finds the model: {error}")


ProgressCallback = Callable[[Progress], None]


class Run:
    """One run: its report, and its progress so far."""

    def __init__(self, progress: ProgressCallback | None = None) -> None:
        self.report = Report()
        self.total = 0
        self.bytes_total = 0
        self._progress = progress
        self._start = time.perf_counter()
        self._done = self._bytes = 0
        self._path = ""
        self._phase: Literal["words", "meaning"] = "words"
        self._vectors_left = self._vectors_total = 0
        self._phase_start = self._start

    def expect(self, files: int, size: int) -> None:
        """Add files and bytes that are to be read."""
        self.total += files
        self.bytes_total += size

    def finish_file(self, path: str, size: int) -> None:
        """Count a file as done."""
        self._done += 1
        self._bytes += size
        self._path = path
        self._tell(self._bytes, self.bytes_total)

    def begin_vectors(self) -> None:
        """Begin the phase of vectors: all words are in."""
        self._phase, self._phase_start = "meaning", time.perf_counter()

    def leave_vectors(self, left: int) -> None:
        """Note how many characters still wait; the others have vectors, whichever process made them."""
        self._vectors_total += max(left - self._vectors_left, 0)
        self._vectors_left = left
        self._tell(self._vectors_total - left, self._vectors_total)

    def end(self) -> Report:
        """Return the report, with the time it took."""
        self.report.seconds = self.seconds
        return self.report

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def _tell(self, done: int, total: int) -> None:
        if self._progress is None:
            return
        elapsed = time.perf_counter() - self._phase_start
        is_known = 0 < done < total and elapsed > EARLIEST_ESTIMATE
        seconds_left = elapsed * (total - done) / done if is_known else None
        report = self.report
        chunks = report.chunks_added + report.chunks_kept
        documents = report.indexed + report.updated + report.moved + report.restored + report.unchanged
        self._progress(
            Progress(
                self._done, self.total, chunks, self._bytes, self.bytes_total, self._path, self.seconds, self._phase,
                self._vectors_total - self._vectors_left, self._vectors_total, report.waiting, seconds_left,
                documents,
            )
        )  # fmt: skip
