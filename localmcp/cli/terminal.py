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

from localmcp.text.quantities import counted as counted
from localmcp.text.quantities import duration as duration
from localmcp.text.quantities import short_path as short_path
from localmcp.text.quantities import size as size

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


def file_size(path: Path) -> int:
    """Bytes of a database file, together with what SQLite has not yet written back into it."""
    beside = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)


def quoted(words: Sequence[str]) -> str:
    """A command line as a person types it; `~` stays outside the quotes."""
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else f'"{word}"' for word in words)


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
