"""Borders stay in line where a terminal and the measured widths disagree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from tui_driver import make_library, open_tui

from localmcp.tui.columns import in_columns

NARROW, WIDE = "\u2764\ufe0f", "\U0001f44d\U0001f3fd"
"""Measured as 2 columns; many terminals take 1 for the heart, and 4 for the thumb with its color."""


def draw(output: str, columns: int) -> str:
    """The first line of a terminal that gives every character a width by itself; a wide one takes two cells."""
    line, at = ["?"] * columns, 0
    for move, sign in re.findall(r"\x1b\[1;([0-9]+)H|\x1b\[[0-9;]*m|(.)", output):
        if move:
            at = int(move) - 1
        elif sign and (width := cell_len(sign)):
            line[at : at + width] = [sign, *[""] * (width - 1)]
            at += width
    return "".join(line)


@pytest.mark.parametrize("text", [NARROW, WIDE, "1\ufe0f\u20e3", "plain"])
def test_a_border_is_where_it_was_measured(text: str) -> None:
    room = 12 - cell_len(text)
    shown = draw(in_columns(f"\x1b[1;1H│\x1b[31m{text}\x1b[0m{' ' * room}│"), 14)
    assert "?" not in shown
    assert shown.startswith("│") and shown.endswith("│")


def test_what_was_below_a_narrow_sign_is_blanked() -> None:
    written = in_columns(f"\x1b[3;5Ha{NARROW}x")
    assert written == f"\x1b[3;5Ha  \x1b[3;6H{NARROW}\x1b[3;8Hx"


async def test_the_terminal_gets_its_output_in_columns(tmp_path: Path) -> None:
    async with open_tui(make_library(tmp_path)) as tui:
        assert tui.app.driver_class.__name__ == "ColumnDriver"
