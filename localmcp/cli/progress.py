"""How an ingest is seen while it runs: a bar on a terminal, a line now and then with -v, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from localmcp.cli import terminal
from localmcp.cli.session import Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.knowledge.report import Progress

Show = Callable[["Progress"], None]

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def shown_progress(session: Session) -> Generator[Show | None]:
    """What to hand to the library as `progress`."""
    if session.quiet or session.as_json:
        yield None
    elif sys.stderr.isatty():
        with _bar(session) as show:
            yield show
    else:
        yield _Lines(session) if session.verbosity else None


@contextmanager
def _bar(session: Session) -> Generator[Show]:
    # rich costs 45 ms, and most commands draw no bar.
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=session.color is False, highlight=False)
    columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking at the files", total=None)

        def show(now: Progress) -> None:
            bar.update(
                task,
                total=max(now.bytes_total, 1),
                completed=now.bytes_done,
                description=describe(now, max(console.width - 36, 20)),
            )

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
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    """A line every few seconds, for logs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last = 0.0

    def __call__(self, now: Progress) -> None:
        if now.seconds - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now.seconds
            self._session.note(describe(now, terminal.PIPED_COLUMNS))


def describe(now: Progress, width: int) -> str:
    """`12 of 43 files · 210 passages · 21 passages/s · 14 s left · notes/a.md`, as much as fits."""
    parts = [f"{now.done} of {terminal.counted(now.total, 'file')}", terminal.counted(now.chunks, "passage")]
    if now.chunks and now.seconds > 1:
        parts.append(f"{now.chunks / now.seconds:.0f}/s")
    left = seconds_left(now)
    if left is not None:
        parts.append(f"{terminal.duration(left)} left")
    line = " · ".join(parts)
    room = width - len(line) - 3
    path = visible(terminal.short_path(now.path))
    if room < 12:
        return line[:width]
    return f"{line} · {path if len(path) <= room else '…' + path[-room + 1 :]}"


def seconds_left(now: Progress) -> float | None:
    """By the bytes that are done; None until enough is done to tell."""
    if now.seconds < 2 or not now.bytes_done or now.done == now.total:
        return None
    return now.seconds * (now.bytes_total - now.bytes_done) / now.bytes_done
