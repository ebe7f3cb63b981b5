"""How an ingest is seen while it runs: two lines on a terminal, elsewhere one every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localmcp.cli import terminal
from localmcp.cli.session import Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.knowledge.report import Progress

Show = Callable[["Progress"], None]

SECONDS_BETWEEN_LINES = 10.0
STOPPABLE = "you can stop, it continues when localmcp runs"


@contextmanager
def shown_progress(session: Session) -> Generator[Show | None]:
    """What to hand to the library as `progress`."""
    if session.quiet or session.as_json:
        yield None
    elif sys.stderr.isatty():
        with _bar(session) as show:
            yield show
    else:
        yield _Lines(session)


@contextmanager
def _bar(session: Session) -> Generator[Show]:
    # rich costs 45 ms, and most commands draw no bar.
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=session.color is False, highlight=False)
    columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bar:
        words = bar.add_task("looking at the files", total=None)
        meaning = bar.add_task("", total=None, visible=False)

        def show(now: Progress) -> None:
            line = describe(now, max(console.width - 36, 20))
            if now.phase == "words":
                bar.update(words, total=max(now.bytes_total, 1), completed=now.bytes_done, description=line)
                return
            total = max(now.vectors_total, 1)
            bar.update(words, total=1, completed=1, description="every document is found by word")
            bar.update(meaning, total=total, completed=now.vectors_done, visible=True, description=line)

        yield show


@contextmanager
def shown_steps(session: Session, what: str, total: int) -> Generator[Callable[[int], None]]:
    """Tells how many of `total` steps are done, on a terminal; nothing elsewhere."""
    if session.quiet or session.as_json or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=session.color is False, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=30), MofNCompleteColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(visible(what), total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    """A line every ten seconds, for logs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last = time.monotonic()
        self._documents = 0

    def __call__(self, now: Progress) -> None:
        if now.phase == "words":
            self._documents = now.done
        moment = time.monotonic()
        if moment - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = moment
        line = describe(now, terminal.PIPED_COLUMNS)
        if now.phase == "meaning":
            documents = terminal.counted(self._documents, "document")
            self._session.note(f"{documents} found by word. {line}" if self._documents else line)
        else:
            self._session.note(line)


def describe(now: Progress, width: int) -> str:
    """`12 of 43 files · 210 passages · 14 s left · notes/a.md`, or `Meaning: 12 %, 4 min left; …`, as much as fits."""
    left = "" if now.seconds_left is None else f"{terminal.duration(now.seconds_left)} left"
    if now.phase == "meaning":
        share = f"Meaning: {100 * now.vectors_done // max(now.vectors_total, 1)} %"
        return f"{', '.join(filter(None, (share, left)))}; {STOPPABLE}"[:width]
    parts = [f"{now.done} of {terminal.counted(now.total, 'file')}", terminal.counted(now.chunks, "passage"), left]
    line = " · ".join(filter(None, parts))
    space = width - len(line) - 3
    path = visible(terminal.short_path(now.path))
    if space < 12:
        return line[:width]
    return f"{line} · {path if len(path) <= space else '…' + path[-space + 1 :]}"
