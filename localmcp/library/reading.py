"""Read files in worker processes, and yield them in groups, each of which becomes one transaction."""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from localmcp.config import Settings
from localmcp.index.drafts import Window
from localmcp.library.drafting import LONGEST_CHUNK, Origin, Reading, ReadTask, estimate_tokens, read_file
from localmcp.library.ledger import Entry, Root
from localmcp.library.walk import Found
from localmcp.models import Embedder
from localmcp.readers.worker_pool import SMALL, Limits, WorkerPool

GROUP_CHUNKS, GROUP_SECONDS = 6_000, 2.0
"""A transaction holds about so many passages, or what was read in so long."""
FIRST_SECONDS = 0.3
"""The first one, so that something is found soon."""
PLAIN_SUFFIXES = frozenset(".md .markdown .txt .rst .py .js .ts .c .h .java .go .rs .sh .toml .ini .cfg .yaml".split())


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be read."""

    file: Found
    root: Root
    entry: Entry | None
    forced: bool = False
    """Store it again even if its bytes are the same: the options have changed."""
    anew: bool = False
    """Read it again, because a limit was raised that a document in it exceeded."""


class Step(NamedTuple):
    """The result of reading a file, or one document in it."""

    task: Task
    reading: Reading
    last: bool
    """Nothing more of this file comes."""


def window_for(embedder: Embedder | None) -> Window:
    """Return how text is cut for that model; without one, for an estimate of what the default model would count."""
    if embedder is None:
        return Window(estimate_tokens, LONGEST_CHUNK)
    count_tokens = embedder.count_tokens
    try:
        pickle.dumps(count_tokens)
    except (TypeError, AttributeError, pickle.PicklingError):
        # A model that only this process can ask: workers estimate, rather more than fewer.
        count_tokens = estimate_tokens
    return Window(count_tokens, min(embedder.identity.max_tokens, LONGEST_CHUNK))


def read_groups(tasks: Sequence[Task], window: Window, settings: Settings) -> Iterator[list[Step]]:
    """Yield the results of reading the files, in groups that are one transaction each."""
    group: list[Step] = []
    chunks, start, patience = 0, time.monotonic(), FIRST_SECONDS
    for step in _steps(tasks, _read(tasks, window, settings)):
        group.append(step)
        chunks += len(step.reading.draft.chunks) if step.reading.draft else 0
        if chunks >= GROUP_CHUNKS or time.monotonic() - start > patience:
            yield group
            group, chunks, start, patience = [], 0, time.monotonic(), GROUP_SECONDS
    if group:
        yield group


def _steps(tasks: Sequence[Task], readings: Iterable[tuple[int, Reading | None]]) -> Iterator[Step]:
    """Yield each reading with whether it is the last of its file, so that one transaction completes a file."""
    pending: dict[int, Reading] = {}
    for number, reading in readings:
        before = pending.pop(number, None)
        if reading is not None:
            pending[number] = reading
            if before is not None:
                yield Step(tasks[number], before, last=False)
        else:
            yield Step(tasks[number], before or _failed_reading(tasks[number], "it holds no document"), last=True)


def _read(tasks: Sequence[Task], window: Window, settings: Settings) -> Iterator[tuple[int, Reading | None]]:
    """Yield number and reading of each document, None at the end of a file; files in any order."""
    work = partial(read_file, window, settings.max_file_mb * 1_000_000)
    items = (_read_task(number, task) for number, task in enumerate(tasks))
    with WorkerPool(work, workers=_workers(tasks), limits=limits_of(settings), share=_share) as pool:
        for answer in pool.run(items):
            number = answer.item.number
            if answer.finished:
                yield number, None
            else:
                yield number, answer.value or _failed_reading(tasks[number], answer.failure, answer.member)


def limits_of(settings: Settings) -> Limits:
    """Return what reading one document may cost."""
    return Limits(
        seconds=settings.reader_seconds,
        memory=settings.reader_memory_mb * 1_000_000,
        text=settings.max_text_mb * 1_000_000,
    )


_LIMIT = re.compile(r"(?:more|larger) than ([\d.]+) [^()]*\(setting (\w+)(?:: ([\d.]+))?\)")
"""In the reason why a file was not read: the limit that it exceeded, the setting, and its value if that differs."""


def is_raised(reason: str, settings: Settings) -> bool:
    """Return whether a file was not read because of a setting that is higher now."""
    match = _LIMIT.search(reason)
    return match is not None and getattr(settings, match[2], 0) > float(match[3] or match[1])


def _share(item: ReadTask) -> int:
    """Return how many of AHEAD a file is: together about 24 MB of plain text, read while a transaction is written."""
    plain = PurePath(item.origin.uri or "").suffix.lower() in PLAIN_SUFFIXES
    return min(item.origin.size // 8000 + 1, SMALL) if plain else SMALL


def _workers(tasks: Sequence[Task]) -> int:
    return min(os.cpu_count() or 1, len(tasks))


def _read_task(number: int, task: Task) -> ReadTask:
    root, entry = task.root, task.entry
    unread = entry.sha256 if entry and entry.status == "indexed" and not (task.forced or task.anew) else None
    origin = Origin(
        collection_id=root.collection_id,
        partition_id=root.partition_id,
        uri=task.file.path,
        sha256=unread or "",
        size=task.file.size,
        mtime_ns=task.file.mtime_ns,
        title=root.title,
        source_type=root.source_type,
        metadata=root.metadata,
    )
    return ReadTask(number, origin, archive=root.kind == "file")


def _failed_reading(task: Task, reason: str, member: str = "") -> Reading:
    return Reading(size=task.file.size, mtime_ns=task.file.mtime_ns, failed=reason, member=member)
