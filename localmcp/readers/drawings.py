"""Reads drawings in office files: charts, diagrams (SmartArt) and the text boxes of sheets."""

from __future__ import annotations

from dataclasses import dataclass, field

from localmcp.readers.document import one_line
from localmcp.readers.packages import Package

MOST_POINTS = 200
"""Most values of a series that are written."""


@dataclass(slots=True)
class _Series:
    """Texts by their number: a point without a value is left out."""

    name: dict[int, str] = field(default_factory=dict[int, str])
    categories: dict[int, str] = field(default_factory=dict[int, str])
    values: dict[int, str] = field(default_factory=dict[int, str])

    def text(self) -> str:
        points = [f"{self.categories.get(at, '')} {_number(value)}".strip() for at, value in self.values.items()]
        return ": ".join(filter(None, (" ".join(self.name.values()), ", ".join(points[:MOST_POINTS]))))


_PARTS = {"tx": "name", "cat": "categories", "xVal": "categories", "val": "values", "yVal": "values"}
"""Element of a series -> field of `_Series`."""


class _ChartReader:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.series: list[_Series] = []
        self._target: dict[int, str] | None = None
        self._point = 0
        self._titled = self._reading = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "title":
            self._titled = True
            self.titles.append("")
        elif tag == "ser":
            self.series.append(_Series())
        elif tag in _PARTS and self.series and not self._titled:
            self._target = getattr(self.series[-1], _PARTS[tag])
        elif tag == "pt":
            self._point = int(attributes.get("idx", "0"))
        self._reading = tag in ("t", "v")
        if tag == "v" and self._target is not None:
            # Of names on two levels, those of the outer one come last.
            self._target[self._point] = f"{self._target[self._point]} " if self._point in self._target else ""

    def text(self, piece: str) -> None:
        if self._reading and self._titled:
            self.titles[-1] += piece
        elif self._reading and self._target:
            self._target[self._point] += piece

    def end(self, tag: str) -> None:
        self._reading = False
        if tag == "title":
            self._titled = False
        elif tag in _PARTS:
            self._target = None


def _number(value: str) -> str:
    try:
        return f"{float(value):.12g}"
    except ValueError:
        return one_line(value)


def chart_text(package: Package, path: str, *, values: bool = True) -> str:
    """Return the titles of a chart and of its axes, and with `values` those of each series; "" if it has none."""
    reader = package.walk_all([path], _ChartReader())
    titles = [one_line(title) for title in reader.titles]
    texts = [*titles, *(series.text() for series in reader.series if values)]
    return f"Chart: {'; '.join(filter(None, texts))}" if any(texts) else ""


class _DrawingReader:
    """Collects the paragraphs and charts of a drawing with the row of the sheet where they begin."""

    def __init__(self) -> None:
        self.paragraphs: list[tuple[int, str]] = []
        self.charts: list[tuple[int, str]] = []
        """Row and id of the relation."""
        self._row = 0
        self._pieces: list[str] = []
        self._in_start = False
        self._reading = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._reading = tag if tag == "t" or (tag == "row" and self._in_start) else ""
        if tag == "from":
            self._in_start = True
        elif tag == "p" or self._reading == "row":
            self._pieces = []
        elif tag == "chart":
            self.charts.append((self._row, attributes.get("r:id", "")))

    def text(self, piece: str) -> None:
        if self._reading:
            self._pieces.append(piece)

    def end(self, tag: str) -> None:
        text, reading = " ".join("".join(self._pieces).split()), self._reading
        self._reading = ""
        if tag == "from":
            self._in_start = False
        elif reading == "row":
            self._row = int(text) + 1 if text.isdecimal() else self._row
        elif tag == "p" and text:
            self.paragraphs.append((self._row, text))


def read_drawing(package: Package, path: str) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return (row, paragraph) of each text in a drawing or diagram, and (row, relation) of each chart."""
    reader = package.walk_all([path], _DrawingReader())
    return reader.paragraphs, reader.charts


def diagram_texts(package: Package, path: str) -> list[str]:
    """Return what the shapes of a diagram say."""
    return [text for _, text in read_drawing(package, path)[0]]
