"""Output for people: safe text, styles, bars, links and tables.

Text of documents, files and other servers is untrusted: `echo` and `write` are the only way to the terminal, and both
make visible what would control it. Styles are left out where there is no terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from localmcp.humanize import bar
from localmcp.humanize import counted as counted
from localmcp.humanize import duration as duration
from localmcp.humanize import short_path as short_path
from localmcp.humanize import size as size
from localmcp.visible_text import visible

MOST_COLUMNS = 110
"""Longer lines of running text are hard to read."""
PIPED_COLUMNS = 100
WIDEST_CELL = 80
"""Columns of a table; one long title must not spread all its rows."""

_ESCAPE = f"␛{os.urandom(8).hex()}"
"""Where `echo` writes ESC. No document can know it, so styles come only from here."""
_STYLE = re.compile(re.escape(_ESCAPE) + r"\[[\d;]*m")


def echo(text: str = "", *, err: bool = False, nl: bool = True, color: bool | None = None) -> None:
    """Print lines for people: styles made here take effect, every other control character is shown."""
    click.echo(visible(text, newlines=True).replace(_ESCAPE, "\x1b"), err=err, nl=nl, color=color)


def write(text: str, *, nl: bool = True) -> None:
    """Print data, such as a document: exactly as it is to a file or pipe, made visible on a terminal."""
    if sys.stdout.isatty():
        echo(text, nl=nl)
    else:
        click.echo(text, nl=nl, color=True)  # color=True keeps escape sequences that are in the data


def confirm(question: str) -> bool:
    """Ask on stderr; return whether the person said yes."""
    return click.confirm(visible(question), err=True)


def styled(text: str, **style: Any) -> str:
    """Return one line in a style of `click.style`; `plain` takes it off."""
    return click.style(visible(text), **style).replace("\x1b", _ESCAPE)


def plain(text: str) -> str:
    """Return `text` without styles."""
    return _STYLE.sub("", text)


def columns() -> int:
    """Return how wide running text may be."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS) if sys.stdout.isatty() else PIPED_COLUMNS


bold = partial(styled, bold=True)
dim = partial(styled, dim=True)
warned = partial(styled, fg="yellow")
highlighted = partial(styled, fg="yellow", bold=True)
"""A matched word."""


def score_bar(score: float) -> str:
    """Return 0..100 as a bar of 8 cells, drawn in eighths."""
    return bar(score / 100, 8).ljust(8)


def link(text: str, path: str | None) -> str:
    """`text` as a hyperlink to a file, where the terminal can show one (OSC 8)."""
    if not path or not os.path.isabs(path) or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return text
    return f"{_ESCAPE}]8;;{Path(path).as_uri()}{_ESCAPE}\\{visible(text)}{_ESCAPE}]8;;{_ESCAPE}\\"


def cells(text: str) -> int:
    """Return the columns that a text takes: wide characters take two, combining ones and styles none."""
    text = plain(text)
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # 13 ms, and most tables are of ASCII

    return cell_len(text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Lines of a table with a dim head; the columns in `right` are numbers.

    A cell that is longer than WIDEST_CELL moves what is behind it in its own row only.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(min(cells(row[i]), WIDEST_CELL) for row in (head, *rows)) for i in range(len(head))]
    lines = [_row(row, widths, right) for row in (head, *rows)]
    return [dim(lines[0]), *lines[1:]]


def fact_lines(facts: Iterable[tuple[str, str]], width: int = 10) -> list[str]:
    """Return a line for each named value, the names dim and flush right; what has no value is left out."""
    return [f"{dim(name.rjust(width))}  {value}" for name, value in facts if plain(value)]


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    padded = (
        " " * (width - cells(text)) + text if i in right else text + " " * (width - cells(text))
        for i, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
