"""The lines around every pane: the file at the top, the last error, and the work in the background."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localmcp.errors import LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted, duration
from localmcp.tui.passages import bar, cut_left, short
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.background import Work
    from localmcp.library.report import Progress

LEAST_PATH = 8
"""Columns for the path of the file; with fewer it is left out."""


class TopLine(Static):
    """The file at the left; at the right what it holds, and whether everything is ready."""

    where = reactive("")
    state: reactive[tuple[str, str]] = reactive(("", ""))
    """Words and their color."""
    is_read_only = reactive(False)
    holdings = reactive(("", ""))
    """What the file holds, shorter and longer."""

    def draw(self) -> None:
        """Fit both ends into the width; the path is shortened first."""
        holds = self.holdings[self.size.width >= 100]
        right = Content.assemble((holds, "$muted"), "  " if holds else "", self.state)
        badge = Content.styled("  read-only ", "$warning") if self.is_read_only else Content("")
        columns = self.size.width - 2 - len("localmcp  ") - badge.cell_length - right.cell_length - 3
        where = cut_left(short(self.where), columns) if columns > LEAST_PATH else ""
        left = Content.assemble(("localmcp", "bold $primary"), "  ", (where, "$muted"), badge)
        gap = max(self.size.width - 2 - left.cell_length - right.cell_length, 1)
        self.update(left + " " * gap + right)

    watch_where = watch_state = watch_is_read_only = watch_holdings = on_resize = draw

    def show_holdings(self, stats: dict[str, Any]) -> None:
        """`41 documents · 268 passages`; only the documents where there is no space."""
        documents, passages = counted(stats["totalSources"], "document"), counted(stats["totalChunks"], "passage")
        self.holdings = documents, f"{documents} · {passages}"


class ErrorLine(Static):
    """One line with the last error and what to do about it; hidden without one."""

    error: BaseException | None = None

    def tell(self, error: BaseException) -> None:
        """Show an error."""
        self.error = error
        key = "f2 answers" if isinstance(error, NeedsConfirmation) else "f2 details"
        self.update(Content.assemble(("✗ ", "bold $error"), first_line(error), (f"   {key}", "$muted")))
        self.add_class("-on")

    def clear(self) -> None:
        """Hide the error."""
        self.remove_class("-on")

    def on_click(self) -> None:
        self.app.run_worker(self.app.run_action("show_error"))


def first_line(error: BaseException) -> str:
    """Return an error in one line: ours as they are; any other by its kind, since its words are for programmers."""
    if isinstance(error, NeedsConfirmation):
        # Its hint says how to confirm on a command line; the TUI asks.
        return visible(error.message)
    text = str(error) if isinstance(error, LocalMCPError) else f"Unexpected {type(error).__name__}: {error}"
    return visible(" ".join(text.split()))


# ---------------------------------------------------------------- work in the background

MOST_LINES = 3
TITLES = {
    "words": "Reading files", "meaning": "Making vectors", "scans": "Recognizing text",
    "model": "Another model reads everything",
}  # fmt: skip
EARLIEST_SECONDS = 3.0
"""Of work, before its pace says anything."""


class JobStrip(Static):
    """The job of this window, and background work here and in other processes; hidden without any."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._job: Content | None = None
        self._works: Sequence[Work] = ()
        self._begun: dict[tuple[str, int], tuple[float, Work]] = {}
        """Kind and process of work -> when it was first seen, and how it was then."""

    def show(self, title: str, progress: Progress | None = None) -> None:
        """Show the job of this window, and its progress once that is known."""
        words = Content(f"{progress_words(progress)}  " if progress is not None else "")
        self._job = Content.assemble(
            ("◌ ", "bold $accent"), (title, "bold"), "  ", words, ("ctrl+x stops it", "$muted")
        )
        self._draw()

    def clear(self) -> None:
        """Remove the job of this window."""
        self._job = None
        self._draw()

    def show_works(self, works: Sequence[Work]) -> None:
        """Show the background work, here and in other processes."""
        self._works, now = works, time.monotonic()
        self._begun = {key: self._begun.get(key, (now, work)) for work in works if (key := (work.kind, work.process))}
        self._draw()

    def _draw(self) -> None:
        # The job of this window has a line of its own, which says more.
        works = [work for work in self._works if self._job is None or not work.is_ours]
        lines = [*([self._job] if self._job else []), *map(self._line, works)][:MOST_LINES]
        self.update(Content("\n").join(lines))
        self.set_class(bool(lines), "-on")

    def _line(self, work: Work) -> Content:
        begun, first = self._begun[work.kind, work.process]
        left = seconds_left(time.monotonic() - begun, first, work)
        who = "" if work.is_ours else f" · process {work.process}" if work.process else " · another process"
        words = f"  {work_words(work, first.total)}{f' · {duration(left)} left' if left is not None else ''}"
        stops = "  ctrl+x stops it" if can_stop(work) and self._job is None else ""
        title = (TITLES.get(work.kind, work.kind), "bold")
        return Content.assemble(("◌ ", "bold $accent"), title, (who, "$muted"), words, (stops, "$muted"))


def can_stop(work: Work) -> bool:
    """Return whether this window can stop it."""
    return bool(work.job_id) or (work.is_ours and work.kind in ("meaning", "scans"))


def seconds_left(seconds: float, first: Work, now: Work) -> float | None:
    """Return how long work will take, from what was done since `first`; None until that says anything."""
    # Where only the rest is counted, done is what it has become less.
    moved, remaining = (now.done - first.done) or (first.total - now.total), now.total - now.done
    return remaining * seconds / moved if seconds >= EARLIEST_SECONDS and moved > 0 and remaining > 0 else None


def work_words(work: Work, most: int) -> str:
    """Return `▰▰▱▱▱ 12 of 40 files`, or what is left. `most`: what there was to do at first."""
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
    left = f" · {duration(progress.seconds_left)} left" if progress.seconds_left is not None else ""
    return f"{bar(100 * done / total if total else 0, 10)} {label}{left}"
