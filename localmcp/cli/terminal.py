"""How things look to a person: bars, sizes, places, tables. Styles vanish by themselves where there is no terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import click

MOST_COLUMNS = 110
"""Longer lines of running text are hard to read."""
PIPED_COLUMNS = 100

_PLAIN_WORD = re.compile(r"[\w@%+=:,./~\\-]+")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def columns() -> int:
    """How wide running text may be."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS) if sys.stdout.isatty() else PIPED_COLUMNS


def bold(text: str) -> str:
    return click.style(text, bold=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def highlighted(text: str) -> str:
    """A matched word."""
    return click.style(text, fg="yellow", bold=True)


def warned(text: str) -> str:
    return click.style(text, fg="yellow")


def score_bar(score: float, width: int = 8) -> str:
    """0..100 as a bar of `width` cells, drawn in eighths."""
    eighths = round(max(0.0, min(score, 100.0)) / 100 * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def counted(number: int, noun: str) -> str:
    """`1 document`, `1,204 documents`, `3 searches`."""
    plural = noun + ("es" if noun.endswith(("s", "ch", "x")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def size(number: int) -> str:
    """Bytes in the unit people use: `812 kB`, `4.2 MB`."""
    if number < 1000:
        return f"{number} bytes"
    value = float(number)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if value >= 100 or unit == "kB" else f"{value:.1f} {unit}"
    raise AssertionError("unreachable")


def file_size(path: Path) -> int:
    """Bytes of a database file, together with what SQLite has not yet written back into it."""
    beside = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)


def quoted(words: Sequence[str]) -> str:
    """A command line as a person types it; `~` stays outside the quotes."""
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else f'"{word}"' for word in words)


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min 20 s`, `1 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def short_path(path: str) -> str:
    """The path as a person would type it here: relative if it lies below the working directory."""
    try:
        relative = os.path.relpath(path)
    except ValueError:
        return path
    return path if relative.startswith("..") else relative


def link(text: str, path: str | None) -> str:
    """`text` as a hyperlink to a file, where the terminal can show one (OSC 8)."""
    if not path or not os.path.isabs(path) or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b]8;;{Path(path).as_uri()}\x1b\\{text}\x1b]8;;\x1b\\"


def cells(text: str) -> int:
    """Columns that a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Lines of a table with a dim head; the columns in `right` are numbers."""
    widths = [max(cells(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [_row(row, widths, right) for row in (head, *rows)]
    return [dim(lines[0]), *lines[1:]]


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = (
        " " * (width - cells(text)) + text if i in right else text + " " * (width - cells(text))
        for i, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
