"""Progress of an ingest: two bars on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localmcp.cli.session import Session
from localmcp.humanize import counted, duration, short_path
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from localmcp.library.jobs import Progress

Show = Callable[["Progress"], None]


@contextmanager
def shown_progress(session: Session) -> Generator[Show | None]:
    """Yield what to hand to the library as `progress`."""
    if not session.shows_progress:
        yield None
        return
    with _bars(session, count=False) as bar:
        words = bar.add_task("looking at the files", total=None)
        meaning = bar.add_task("", total=None, visible=False)

        def show(progress: Progress) -> None:
            left = "" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"
            if progress.phase == "meaning":
                share = f"Meaning: {100 * progress.vectors_done // max(progress.vectors_total, 1)} %"
                line = f"{', '.join(filter(None, (share, left)))}; you can stop, it continues when localmcp runs"
                bar.update(words, total=1, completed=1, description="every document is found by word")
                total = max(progress.vectors_total, 1)
                bar.update(meaning, total=total, completed=progress.vectors_done, visible=True, description=line)
                return
            files = f"{progress.done} of {counted(progress.total, 'file')}"
            path = visible(short_path(progress.path))
            line = " · ".join(filter(None, (files, counted(progress.chunks, "passage"), left, path)))
            bar.update(words, total=max(progress.bytes_total, 1), completed=progress.bytes_done, description=line)

        yield show


@contextmanager
def shown_counts(session: Session, words: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar of what is done of a total, on a terminal; nothing elsewhere."""
    if not session.shows_progress:
        yield lambda done, total: None
        return
    with _bars(session, count=True) as bar:
        task = bar.add_task(visible(words), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=max(total, 1))


@contextmanager
def _bars(session: Session, *, count: bool) -> Generator[Bar]:
    """Yield bars that vanish at the end, of lines that are cut at the width; `count`: with numbers and time left."""
    # rich costs 45 ms, and most commands draw no bar.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=session.color is False, highlight=False)
    before, after = ((), (MofNCompleteColumn(), TimeRemainingColumn())) if count else ((SpinnerColumn(),), ())
    columns = (*before, BarColumn(bar_width=30), *after, TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bars:
        yield bars
