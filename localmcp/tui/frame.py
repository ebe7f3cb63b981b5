"""The lines around every pane: the file at the top, the last error, and the work in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from localmcp.errors import LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted, duration
from localmcp.tui.passages import bar, short
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.jobs import Progress, Work


class TopLine(Horizontal):
    """The file at the left; at the right what it holds, and whether everything is ready."""

    state = "", ""
    """Words and their color."""
    holdings = ""

    def compose(self) -> ComposeResult:
        yield Static(id="where")
        yield Static(id="state")

    def show_file(self, path: str, why_read_only: str = "") -> None:
        """Show which file is open."""
        badge = "  read-only" if why_read_only else ""
        text = Content.assemble(("localmcp", "bold $primary"), (badge, "$warning"), "  ", (short(path), "$muted"))
        self.query_one("#where", Static).update(text)

    def show_state(self, words: str, color: str) -> None:
        """Show how it is."""
        if (words, color) != self.state:
            self.state = words, color
            self._draw()

    def show_holdings(self, stats: dict[str, Any]) -> None:
        """Show `41 documents · 268 passages`."""
        documents, passages = counted(stats["totalSources"], "document"), counted(stats["totalChunks"], "passage")
        self.holdings = f"{documents} · {passages}  "
        self._draw()

    def _draw(self) -> None:
        self.query_one("#state", Static).update(Content.assemble((self.holdings, "$muted"), self.state))


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

TITLES = {
    "words": "Reading files", "meaning": "Making vectors", "scans": "Recognizing text",
    "model": "Another model reads everything",
}  # fmt: skip


class JobStrip(Static):
    """The job of this window, and background work here and in other processes; hidden without any."""

    def show(self, job: str, progress: Progress | None, works: Sequence[Work]) -> None:
        """Show the job of this window with its progress, and the work of all processes."""
        lines: list[Content] = []
        if job:
            words = f"{progress_words(progress)}  " if progress is not None else ""
            stops = ("ctrl+x stops it", "$muted")
            lines.append(Content.assemble(("◌ ", "bold $accent"), (job, "bold"), f"  {words}", stops))
        # The job of this window has a line of its own, which says more.
        lines += [self._line(work, bool(job)) for work in works if not (job and work.is_ours)]
        self.update(Content("\n").join(lines[:3]))
        self.set_class(bool(lines), "-on")

    def _line(self, work: Work, has_job: bool) -> Content:
        who = "" if work.is_ours else f" · process {work.process}" if work.process else " · another process"
        stops = "  ctrl+x stops it" if can_stop(work) and not has_job else ""
        title = (TITLES.get(work.kind, work.kind), "bold")
        return Content.assemble(
            ("◌ ", "bold $accent"), title, (who, "$muted"), f"  {work_words(work)}", (stops, "$muted")
        )


def can_stop(work: Work) -> bool:
    """Return whether this window can stop it."""
    return bool(work.job_id) or (work.is_ours and work.kind in ("meaning", "scans"))


def work_words(work: Work) -> str:
    """Return `▰▰▱▱▱ 12 of 40 files`; of what only the rest is known of, that."""
    if work.kind == "meaning":
        return f"{counted(work.passages, 'passage')} left"
    if work.kind == "scans":
        return f"{counted(work.total, 'page')} left"
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
