"""The strip above the keys: background work here and in other processes, how far it is, and the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.widgets import Static

from localmcp.humanize import counted, duration
from localmcp.tui.passages import bar

if TYPE_CHECKING:
    from localmcp.library.background import Work
    from localmcp.library.report import Progress

MOST_LINES = 3
TITLES = {
    "words": "Reading files", "meaning": "Making vectors", "scans": "Recognizing text",
    "model": "Another model reads everything", "push": "Copying to Milvus",
}  # fmt: skip
EARLIEST_SECONDS = 3.0
"""Of work, before its pace says anything."""


class Pace:
    """The rate of a counter."""

    def __init__(self, work: Work) -> None:
        self._start(work)

    def _start(self, work: Work) -> None:
        self._begin, self._at, self.most = time.monotonic(), _place(work), work.total

    def left(self, work: Work) -> float | None:
        """Return the seconds left; None until they can be estimated."""
        if work.total > self.most:
            # More came while it was worked off, which is no pace.
            self._start(work)
        seconds, moved = time.monotonic() - self._begin, _place(work) - self._at
        remaining = work.total - work.done
        return remaining * seconds / moved if seconds >= EARLIEST_SECONDS and moved > 0 and remaining > 0 else None


def _place(work: Work) -> int:
    """Return a number that grows with the work; where only the rest is counted, minus the rest."""
    return work.done - work.total if work.kind in ("meaning", "scans") else work.done


class JobStrip(Static):
    """Jobs and background work; hidden without any."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._job: Content | None = None
        self._works: Sequence[Work] = ()
        self._paces: dict[tuple[str, int], Pace] = {}

    def show(self, title: str, progress: Progress | None = None) -> None:
        """Show the job of this window, and its progress once that is known."""
        parts: list[Content] = [Content.assemble(("◌ ", "bold $accent"), (title, "bold"))]
        if progress is not None:
            parts.append(Content(progress_words(progress)))
        parts.append(Content.styled("ctrl+x stops it", "$muted"))
        self._job = Content("  ").join(parts)
        self._draw()

    def clear(self) -> None:
        """Remove the job of this window."""
        self._job = None
        self._draw()

    def show_background(self, works: Sequence[Work]) -> None:
        """Show the background work, here and in other processes."""
        self._works = works
        self._paces = {
            (work.kind, work.process): self._paces.get((work.kind, work.process)) or Pace(work) for work in works
        }
        self._draw()

    def _draw(self) -> None:
        # The job of this window has a line of its own, which says more.
        works = [work for work in self._works if self._job is None or not work.is_ours]
        lines = [self._line(work, number == 0 and self._job is None) for number, work in enumerate(works)]
        lines = [*([self._job] if self._job else []), *lines][:MOST_LINES]
        self.update(Content("\n").join(lines))
        self.set_class(bool(lines), "-on")

    def _line(self, work: Work, is_first: bool) -> Content:
        pace = self._paces[work.kind, work.process]
        left = pace.left(work)
        who = "" if work.is_ours else f" · process {work.process}" if work.process else " · another process"
        parts = [Content.assemble(("◌ ", "bold $accent"), (TITLES[work.kind], "bold"), (who, "$muted"))]
        parts.append(Content(work_words(work, pace.most) + (f" · {duration(left)} left" if left is not None else "")))
        if is_first and can_stop(work):
            parts.append(Content.styled("ctrl+x stops it", "$muted"))
        return Content("  ").join(parts)


def can_stop(work: Work) -> bool:
    """Return whether this window can stop it."""
    return bool(work.job_id) or (work.is_ours and work.kind in ("meaning", "scans"))


def work_words(work: Work, most: int) -> str:
    """Return `▰▰▱▱▱ 12 of 40 files`, or what is left. `most`: the largest total that was seen."""
    if work.kind in ("meaning", "scans"):
        left = counted(work.passages, "passage") if work.kind == "meaning" else counted(work.total, "page")
        return f"{bar(100 * (most - work.total) / most if most else 0, 10)} {left} left"
    unit = "file" if work.kind == "words" else "passage"
    return f"{bar(100 * work.done / work.total if work.total else 0, 10)} {work.done:,} of {counted(work.total, unit)}"


def progress_words(progress: Progress) -> str:
    """Return `▰▰▱▱▱ words: 12 of 40 files · 42 s left`."""
    if progress.phase == "meaning":
        done, total, label = progress.vectors_done, progress.vectors_total, "vectors"
    else:
        done, total = progress.done, progress.total
        label = f"words: {progress.done:,} of {counted(progress.total, 'file')}"
    waiting = f" · {counted(progress.waiting, 'passage')} without vectors" if progress.waiting else ""
    left = f" · {duration(progress.seconds_left)} left" if progress.seconds_left is not None else ""
    return f"{bar(100 * done / total if total else 0, 10)} {label}{waiting}{left}"
