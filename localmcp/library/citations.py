"""Citations: the place of a passage as people and programs name it."""

from __future__ import annotations

import re

from localmcp.index.passages import Passage
from localmcp.readers.outline import path_at
from localmcp.schemas import mapping_of
from localmcp.tools import Json

SHEETS = ("xlsx", "xls", "xlsb", "ods")
_TALK = ("mail", "conversation")
_RENDERED = ("docx", "odt", "rtf", "epub", "html", "notebook", "calendar", "contacts", "feed")
"""Formats whose lines are those of the text that was made of them: nobody can look for them in the file."""
_ROW = re.compile(r"(?m)^(?!## ).+$")
"""A row of a sheet; the name of the sheet and the empty lines around names of columns are none."""
_HEADING_INSIDE = re.compile(r"\n {0,3}[#=~^\"*+-]")
"""What may begin a heading, or the line under one, below the first line of a passage."""
_TIME = re.compile(r"(?m)^\[(\d+:\d\d:\d\d)\]")


def cite(passage: Passage, highlight: tuple[int, int] | None = None) -> Json:
    """Return where a passage, or the sentence in it that answers, is.

    `highlight`: start and stop of that sentence in `passage.text.strip()`. The label is for people: `path:line`,
    `path p. 3`, `path Prices rows 12-20`, or the title. Lines are rows in a workbook, pages are slides in a
    presentation; start and stop are code points in the document's text.
    """
    body, metadata = passage.text.strip(), passage.metadata
    start, stop = highlight or (0, len(body))
    first_line, last_line = _lines(passage, body, start, stop)
    citation: Json = {
        "label": "",
        "startLine": first_line,
        "endLine": last_line,
        "start": passage.start,
        "stop": passage.stop,
        "sha256": passage.sha256,
    }
    container = metadata.get("container")
    path = container if isinstance(container, str) else passage.uri
    if path:
        citation["path"] = path
    headings = tuple(passage.headings)
    has_headings = passage.format not in ("code", "json", "jsonl", "csv", "pdf")
    if has_headings and _HEADING_INSIDE.search(body, 0, start):
        headings = path_at(body, start, headings, underlined=passage.format in ("text", "rst", "mail"))
    if headings:
        citation["heading"] = " › ".join(headings)
    if passage.first_page is not None:
        citation["startPage"] = passage.first_page
        citation["endPage"] = passage.last_page or passage.first_page
    if passage.format == "subtitles" and (times := _TIME.findall(body[: start + 12])):
        citation["time"] = times[-1]
    if "ocr" in metadata:
        confidence = mapping_of(mapping_of(metadata["ocr"]).get("pages")).get(str(passage.first_page or 1))
        if isinstance(confidence, int | float):
            # It was read from a picture, and may hold misread letters.
            citation["ocr"], citation["confidence"] = True, round(float(confidence), 2)
    # A file inside another one is named as `box.zip#notes.md`, a mail or a conversation by its title.
    is_member = passage.uri != path and passage.format not in _TALK
    member = (passage.uri or "").removeprefix(path or "") if is_member else ""
    citation["label"] = (path or passage.title) + member + _place(passage, citation)
    return citation


def _lines(passage: Passage, body: str, start: int, stop: int) -> tuple[int, int]:
    """Return the first and the last line, or row of a sheet, of a part of a passage's text."""
    if passage.format in SHEETS:
        row_ends = [line.end() for line in _ROW.finditer(body)]
        if len(row_ends) != passage.last_line - passage.first_line + 1:
            # Rows without any value are not in the text, so which row a line is cannot be counted.
            return passage.first_line, passage.last_line
        before, until = (sum(end <= at for end in row_ends) for at in (start, stop - 1))
    else:
        before = count_line_ends(body[:start])
        until = before + count_line_ends(body[start:stop].rstrip())
    return min(passage.first_line + before, passage.last_line), min(passage.first_line + until, passage.last_line)


def count_line_ends(text: str) -> int:
    """Return how many lines end in a text, however they end."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _place(passage: Passage, citation: Json) -> str:
    """Return the place inside a file as people say it: ` p. 3`, ` slide 2`, ` Prices rows 12-20`, `:17`."""
    first, last = citation["startLine"], citation["endLine"]
    if passage.format in SHEETS:
        sheet = citation.get("heading", "").split(" › ")[-1]
        return f" {sheet} row {first}" if first == last else f" {sheet} rows {first}-{last}"
    if passage.first_page is not None:
        word = "slide" if passage.format in ("pptx", "odp") else "p."
        crossing = f"-{passage.last_page}" if passage.last_page and passage.last_page > passage.first_page else ""
        return f" {word} {passage.first_page}{crossing}"
    if passage.format in _TALK:
        date = str(passage.metadata.get("date") or "")[:10]
        return f", {passage.title}" + (f" ({date})" if date else "")
    if "time" in citation:
        return f" {citation['time']}"
    if passage.format in _RENDERED:
        return f" › {citation['heading']}" if "heading" in citation else ""
    return f":{first}"
