"""Keeps borders in line where a terminal draws emoji in other widths than they were measured."""

from __future__ import annotations

import re

from rich.cells import cell_len
from textual.driver import Driver

_UNSURE = re.compile(
    # Emoji presentation, keycaps, joined emoji, skin tones, flags; with the sign that they belong to.
    "[^\\s\x1b](?:[\ufe0f\u20e3\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]|\u200d[\u2600-\u27bf\U0001f300-\U0001faff])+"
)
_SIGNS = re.compile("[\u200d\ufe0f\u20e3\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
"""Signs of such an emoji. Most output has none, and looking for one sign is quick."""
_SEQUENCES = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\n)")
_PLACE = re.compile(r"\x1b\[([0-9]+);([0-9]+)H")


def in_columns(output: str) -> str:
    """Return terminal output that sets the cursor's column after each emoji of unsure width.

    The emoji's cells are blanked first: a terminal that draws it narrower would leave old text there.
    """
    if not _SIGNS.search(output):
        return output
    parts: list[str] = []
    row, column = 0, 0
    for part in _SEQUENCES.split(output):
        if place := _PLACE.fullmatch(part):
            row, column = int(place[1]), int(place[2])
        elif part == "\n":
            row = 0
        elif row and part[:1] != "\x1b":
            part, column = _placed(part, row, column)
        parts.append(part)
    return "".join(parts)


def _placed(text: str, row: int, column: int) -> tuple[str, int]:
    """Return a text with those cursor moves, and the column after it."""
    parts: list[str] = []
    end = 0
    for match in _UNSURE.finditer(text):
        plain, sign, end = text[end : match.start()], match[0], match.end()
        column += cell_len(plain)
        width = cell_len(sign)
        parts += [plain, " " * width, f"\x1b[{row};{column}H", sign, f"\x1b[{row};{column + width}H"]
        column += width
    return "".join([*parts, text[end:]]), column + cell_len(text[end:])


def in_columns_driver(driver: type[Driver]) -> type[Driver]:
    """Return a driver that writes its output through `in_columns`."""

    class ColumnDriver(driver):
        def write(self, data: str) -> None:
            super().write(in_columns(data))

    return ColumnDriver
