"""Progress of a run of ingest, and the report at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Report:
    """The result of a run, counted in documents; what is unchanged, skipped and failed in files."""

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
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(path, reason) of the first 50 failures; `failed` counts all."""
    notices: list[str] = field(default_factory=list[str])

    def add_problem(self, path: str, reason: str) -> None:
        """Count a failure, and keep it if it is among the first 50."""
        self.failed += 1
        if len(self.problems) < 50:
            self.problems.append((path, reason))

    def add_notice(self, text: str) -> None:
        """Keep a sentence that the person should read, once."""
        if text not in self.notices:
            self.notices.append(text)


@dataclass(slots=True)
class Progress:
    """A run: how far it is, and its report; handed to a callback after each file and each embedded batch."""

    callback: ProgressCallback | None = None
    report: Report = field(default_factory=Report)
    done: int = 0
    """Files finished, of `total` that are to be read; files known to be unchanged are not among them."""
    total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    path: str = ""
    phase: Literal["words", "meaning"] = "words"
    vectors_done: int = 0
    """Characters of the passages that got their vectors, of `vectors_total`."""
    vectors_total: int = 0
    _start: float = field(default_factory=time.perf_counter)
    _phase_start: float = field(default_factory=time.perf_counter)

    @property
    def chunks(self) -> int:
        """Passages that are found by their words so far."""
        return self.report.chunks_added + self.report.chunks_kept

    @property
    def seconds_left(self) -> float | None:
        """Of the phase, by bytes or characters; None until enough is done to tell."""
        words = self.phase == "words"
        done, total = (self.bytes_done, self.bytes_total) if words else (self.vectors_done, self.vectors_total)
        elapsed = time.perf_counter() - self._phase_start
        return elapsed * (total - done) / done if 0 < done < total and elapsed > 2.0 else None

    def finish_file(self, path: str, size: int) -> None:
        """Count a file as done."""
        self.done += 1
        self.bytes_done += size
        self.path = path
        self._tell()

    def begin_vectors(self) -> None:
        """Begin the phase of vectors: all words are in."""
        self.phase, self._phase_start = "meaning", time.perf_counter()

    def leave_vectors(self, left: int) -> None:
        """Note how many characters still wait; the others have vectors, whichever process made them."""
        self.vectors_total = max(self.vectors_total, self.vectors_done + left)
        self.vectors_done = self.vectors_total - left
        self._tell()

    def end(self) -> Report:
        """Return the report, with the time it took."""
        self.report.seconds = time.perf_counter() - self._start
        return self.report

    def _tell(self) -> None:
        if self.callback is not None:
            self.callback(self)


ProgressCallback = Callable[[Progress], None]
