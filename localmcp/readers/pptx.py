"""Reads slides (.pptx): each is a page with its title, text, tables, comments and speaker notes."""

from __future__ import annotations

from localmcp.readers.document import Document, one_line
from localmcp.readers.drawings import chart_text, diagram_texts
from localmcp.readers.markdown import pipe_table
from localmcp.readers.office import (
    Slide,
    main_part,
    office_lines,
    read_properties,
    related,
    relations,
    remark_block,
    slides_document,
)
from localmcp.readers.packages import Package

_NO_TITLE = ("PowerPoint Presentation", "Presentazione standard di PowerPoint")
_FRAME = ("sldNum", "dt", "ftr", "hdr", "sldImg")
"""Placeholders that every slide repeats."""


def read_pptx(data: bytes, name: str) -> Document:
    """Return the slides in the order of the presentation; hidden ones say so."""
    package = Package(data, name)
    part = main_part(package, "ppt/presentation.xml")
    parts = relations(package, part)
    order = [element.attributes.get("r:id", "") for element in package.elements(part) if element.tag == "sldId"]
    slides = [_read_slide(package, parts[key].path) for key in order if key in parts]
    properties = read_properties(package)
    if properties.get("title") in _NO_TITLE:
        del properties["title"]
    return slides_document(name, "pptx", slides, properties)


def _read_slide(package: Package, path: str) -> Slide:
    reader = _SlideReader()
    package.walk(path, reader)
    slide = reader.slide
    parts = relations(package, path)
    for diagram in related(parts, "diagramData"):
        slide.blocks += diagram_texts(package, diagram)
    slide.blocks += filter(None, (chart_text(package, chart) for chart in related(parts, "chart")))
    for path in related(parts, "comments"):
        comments = package.walk_all([path], _SlideReader())
        slide.blocks += [remark_block("Comment", text) for text in comments.slide.blocks + comments.loose]
    for path in related(parts, "notesSlide"):
        notes = package.walk_all([path], _SlideReader()).slide
        if text := "\n".join(filter(None, (notes.title, *notes.blocks))):
            slide.blocks.append(f"Notes: {text}")
    return slide


class _SlideReader:
    """Collects the shapes of one slide; groups are looked into."""

    def __init__(self) -> None:
        self.slide = Slide()
        self.loose: list[str] = []
        """Text outside of paragraphs: comments of older versions."""
        self._placeholder: str | None = None
        self._lines: list[tuple[int, str]] = []
        self._pieces: list[str] = []
        self._level = 0
        self._rows: list[list[str]] | None = None
        self._in_text = ""
        self._skipping = 0
        """Depth inside of a form for older programs."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipping or tag == "Fallback":
            self._skipping += 1
        elif tag == "sld":
            self.slide.hidden = attributes.get("show") in ("0", "false")
        elif tag == "sp":
            self._placeholder, self._lines = None, []
        elif tag == "ph":
            self._placeholder = attributes.get("type", "body")
        elif tag == "p":
            self._pieces, self._level = [], 0
        elif tag == "pPr":
            level = attributes.get("lvl", "0")
            self._level = min(int(level), 8) if level.isdecimal() else 0
        elif tag == "br":
            self._pieces.append("\n")
        elif tag == "tbl":
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag == "tc":
            self._lines = []
        elif tag in ("t", "text"):
            self._in_text = tag
            self._pieces = self._pieces if tag == "t" else []

    def text(self, piece: str) -> None:
        if self._in_text and not self._skipping:
            self._pieces.append(piece)

    def end(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        if tag in ("t", "text"):
            self._in_text = ""
        if tag == "text":
            self.loose.append(office_lines("".join(self._pieces)))
        elif tag == "p":
            if line := office_lines("".join(self._pieces)):
                self._lines.append((self._level, line))
        elif tag == "tc" and self._rows:
            self._rows[-1].append(" ".join(line for _, line in self._lines))
            self._lines = []
        elif tag == "tbl":
            if self._rows and (table := pipe_table(self._rows)):
                self.slide.blocks.append(table)
            self._rows = None
        elif tag in ("sp", "cm"):
            self._end_shape()

    def _end_shape(self) -> None:
        lines, self._lines = self._lines, []
        if not lines or self._placeholder in _FRAME:
            return
        if self._placeholder in ("title", "ctrTitle") and not self.slide.title:
            self.slide.title = one_line(" ".join(line for _, line in lines))
        elif len(lines) > 1 and self._placeholder:
            self.slide.blocks.append("\n".join("  " * level + "- " + " ".join(line.split()) for level, line in lines))
        else:
            self.slide.blocks.append("\n\n".join(line for _, line in lines))
