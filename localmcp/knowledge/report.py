"""What a run of ingest tells: while it goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SHOWN_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; handed to a callback after each file and each embedded batch."""

    done: int
    """Files finished, of `total` that are to be read; files known to be unchanged are not among them."""
    total: int
    chunks: int
    """Chunks that are ready so far: embedded, or stored as they were."""
    bytes_done: int
    bytes_total: int
    path: str
    seconds: float
    """Since the run began."""


@dataclass(slots=True)
class Report:
    """What a run came to, counted in files except where a name says otherwise."""

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
    """Of chunks that had been stored without one."""
    seconds: float = 0.0
    embed_seconds: float = 0.0
    read_seconds: float = 0.0
    """In a thread of its own, beside the embedding."""
    write_seconds: float = 0.0
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(path, reason) of the first 50 failures; `problem_count` counts all."""
    problem_count: int = 0
    notices: list[str] = field(default_factory=list[str])

    def add_problem(self, path: str, reason: str) -> None:
        """Count a failure, and keep it if it is among the first 50."""
        self.failed += 1
        self.problem_count += 1
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append((path, reason))

    def add_notice(self, notice: str) -> None:
        """Keep a sentence for the person, once."""
        if notice not in self.notices:
            self.notices.append(notice)


ProgressCallback = Callable[[Progress], None]


class Run:
    """One run's report and its progress so far."""

    def __init__(self, progress: ProgressCallback | None = None) -> None:
        self.report = Report()
        self.total = 0
        self.bytes_total = 0
        self._progress = progress
        self._start = time.perf_counter()
        self._done = self._chunks = self._bytes = 0
        self._path = ""

    def expect(self, files: int, size: int) -> None:
        """So many more files and bytes are to be read."""
        self.total += files
        self.bytes_total += size

    def finish_file(self, path: str, size: int) -> None:
        """A file is done with."""
        self._done += 1
        self._bytes += size
        self._path = path
        self._tell()

    def finish_chunks(self, path: str, count: int) -> None:
        """So many chunks are ready."""
        self._chunks += count
        self._path = path
        self._tell()

    def end(self) -> Report:
        """The report, with the time it took."""
        self.report.seconds = self.seconds
        return self.report

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def _tell(self) -> None:
        if self._progress:
            self._progress(
                Progress(self._done, self.total, self._chunks, self._bytes, self.bytes_total, self._path, self.seconds)
            )
