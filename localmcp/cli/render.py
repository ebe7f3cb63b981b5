"""Output for people: safe text, styles, tables, and any structured answer as lines.

Text of documents, files and other servers is untrusted: `echo` and `write` are the only way to the terminal, and both
make visible what would control it. Styles are left out where there is no terminal.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import StringIO
from typing import Any, cast

import click

from localmcp.humanize import field_label, field_text, rows_of
from localmcp.visible_text import visible

_ESCAPE = f"␛{os.urandom(8).hex()}"
"""Where `echo` writes ESC. No document can know it, so styles come only from here."""


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
    return re.sub(re.escape(_ESCAPE) + r"\[[\d;]*m", "", text)


bold = partial(styled, bold=True)
dim = partial(styled, dim=True)
warned = partial(styled, fg="yellow")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a table with a dim head; the columns in `right` are numbers, columns without a value are left out."""
    # rich costs 45 ms, and many commands draw no table.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = [[visible(plain(cell)) for cell in row] for row in rows]
    used = [index for index in range(len(head)) if any(row[index] for row in lines)]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for index in used:
        # One long text must not spread all its rows.
        drawn.add_column(
            Text(head[index]), justify="right" if index in right else "left", overflow="ellipsis", no_wrap=True,
            max_width=None if head[index] in ("path", "file", "where") else 60,
        )  # fmt: skip
    for row in lines:
        drawn.add_row(*(Text(row[index]) for index in used))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 250
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    console.print(drawn)
    first, *others = [line.rstrip() for line in cast(StringIO, console.file).getvalue().splitlines()]
    return "\n".join([dim(first), *others])


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a line for each named value, the names dim and flush right; what has no value is left out."""
    shown = [(name, value) for name, value in pairs if plain(value)]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{dim(name.rjust(width))}  {value}" for name, value in shown)


def render(value: Mapping[str, Any], columns: Sequence[str] = ()) -> str:
    """Return a structured answer as text: facts by their names, then a table for each list of objects.

    `columns`: the keys of the tables' columns, in order, without the facts; if it is empty, all that hold plain values.
    """
    parts: list[str] = []
    # The session prints these in words of its own.
    apart = ("notices", "message", "success", "count", "total", "nextOffset")
    pairs = [
        (field_label(key), field_text(key, item))
        for key, item in value.items()
        if key not in apart and not rows_of(item)
    ]
    if (text := facts(pairs)) and not columns:
        parts.append(text)
    lists = [name for name, item in value.items() if item == rows_of(item)]
    for name, item in value.items():
        if rows := rows_of(item):
            plain_keys = (k for row in rows for k, part in row.items() if not isinstance(part, Mapping | list))
            keys = columns or list(dict.fromkeys(plain_keys))
            numbers = [i for i, key in enumerate(keys) if all(isinstance(row.get(key, 0), int | float) for row in rows)]
            cells = [[field_text(key, row.get(key)) for key in keys] for row in rows]
            title = f"{bold(field_label(name))}\n" if name != lists[0] else ""
            parts.append(title + table([field_label(key) for key in keys], cells, numbers))
    return "\n\n".join(parts)
