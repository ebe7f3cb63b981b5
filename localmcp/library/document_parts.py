"""Parts of documents for answers: what fits a budget, some lines, a section, or the outline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from os.path import commonprefix
from typing import Any, cast

from localmcp.errors import InvalidInput
from localmcp.index.passages import Passage
from localmcp.library.citations import SHEETS, cite, count_line_ends
from localmcp.library.document_records import (
    ContextChunk,
    ContextResult,
    DocumentChunk,
    DocumentResult,
    DocumentSource,
    SourceItem,
)
from localmcp.library.origins import shown_id
from localmcp.readers.outline import BEGINNING, definitions_in, headings_in
from localmcp.readers.signals import signals
from localmcp.schemas import one_or_more
from localmcp.tools import compact_json, without_none

DOCUMENT_CHARS = 8_000
"""Characters of a document that a language model gets at once unless it asks for more."""
CONTEXT_CHARS = 6_000
MOST_DOCUMENT_BYTES = 400_000
"""A document beyond this is cut for everybody, with the offset of the rest."""
MOST_SENT_BYTES = 900_000
"""Structured answer and text block together: clients refuse results of 1 MB."""
ENTRY_LINE = 7
"""Characters that the first line of an entry of an outline takes, about."""
_READ = 10_000_000
"""Passages that an offset can name; beyond, it also says how much of the passage has been read."""
_LINES = re.compile(r"(\d{1,9})(?:\s*(-|:|\.\.)\s*(\d{1,9})?)?")

_ROW = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_text(_name: str, value: Any) -> Any:
    """Return a number or a pair of numbers as the text that `parse_lines` reads; anything else as it is."""
    numbers = one_or_more(value)
    fits = len(numbers) in (1, 2) and all(type(number) is int for number in numbers)
    return "-".join(map(str, numbers)) if fits else value


def parse_lines(text: str) -> tuple[int, int]:
    """Return (first, last) of `20-80`, `20`, or `500-`.

    Raises:
        InvalidInput: it is no range of lines.
    """
    match = _LINES.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"lines: '{text}' is no range of lines; write 20-80, or 500- for the rest.")
    first = int(match[1])
    last = int(match[3]) if match[3] else (1 << 40 if match[2] else first)
    if first < 1:
        raise InvalidInput(f"lines: '{text}' begins before the first line; lines are counted from 1.")
    if last < first:
        raise InvalidInput(f"lines: '{text}' ends before it begins.")
    return first, last


def within_lines(passages: Sequence[Passage], first: int, last: int) -> list[Passage]:
    """Return the passages of those lines, the outer ones cut at the line; of a workbook all that hold such rows."""
    if passages and passages[0].format in SHEETS:
        return [passage for passage in passages if passage.first_line <= last and first <= passage.last_line]
    parts: list[Passage] = []
    for passage in passages:
        line, rows = passage.first_line, _ROW.findall(passage.text)
        before = "".join(rows[: max(first - line, 0)])
        if within := "".join(rows[max(first - line, 0) : max(last - line + 1, 0)]):
            start, end = passage.start + len(before), min(last, line + len(rows) - 1)
            span = {"start": start, "stop": start + len(within)}
            parts.append(replace(passage, text=within, first_line=max(first, line), last_line=end, **span))
    return parts


def position_of(offset: int) -> int:
    """Return the number of the passage that an offset begins with."""
    return offset % _READ


def from_offset(passages: Sequence[Passage], offset: int) -> list[Passage]:
    """Return the passages from an offset on.

    An offset is the number of a passage; where one passage is larger than a page, it also says how much was read.
    """
    read, position = offset // _READ, position_of(offset)
    following = [passage for passage in passages if passage.position >= position]
    if not following:
        return []
    first = following[0]
    if not read or first.position != position or read >= len(first.text):
        return following
    line = first.first_line + (0 if first.format in SHEETS else count_line_ends(first.text[:read]))
    begun = replace(first, text=first.text[read:], start=first.start + read, first_line=line)
    return [begun, *following[1:]]


def _with_empty_lines(passage: Passage) -> Passage:
    """Return a passage with the line of its first character; the stored one is that of the first visible character."""
    blank = passage.text[: len(passage.text) - len(passage.text.lstrip())]
    return replace(passage, first_line=passage.first_line - count_line_ends(blank))


def fitting_passages(
    passages: Sequence[Passage], budget: int | None, read: int = 0
) -> tuple[list[Passage], int | None]:
    """Return as many passages as fit the budget in characters and the limits in bytes, and the offset of the rest.

    A first passage beyond the budget is cut at a line, or at a word. `read`: characters of it that are not there any
    more. A text is twice in the structured answer, and that once more in the text block, where what JSON escapes is
    escaped again.
    """
    shown: list[Passage] = []
    characters = structured = sent = 0
    for passage in passages:
        once = compact_json(passage.text)
        # Empty lines at its end are not worth a page.
        too_long = budget is not None and characters + len(passage.text.rstrip()) > budget
        characters += len(passage.text)
        structured += 2 * _size(once)
        sent += 2 * _size(once) + 2 * _size(compact_json(once))
        if shown and (too_long or structured > MOST_DOCUMENT_BYTES or sent > MOST_SENT_BYTES):
            return shown, passage.position
        if too_long and budget is not None:
            cut = cut_passage(passage, budget)
            return [cut], passage.position + _READ * (read + len(cut.text))
        shown.append(passage)
    return shown, None


def cut_passage(passage: Passage, longest: int) -> Passage:
    """Return the beginning of a passage, cut after a line or else after a word."""
    if len(passage.text) <= longest:
        return passage
    head = passage.text[:longest]
    text = head[: head.rfind("\n") + 1 or head.rfind(" ") + 1 or longest]
    last_line = passage.first_line + count_line_ends(text) - text.endswith("\n")
    return replace(passage, text=text, stop=passage.start + len(text), last_line=last_line)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def around(passages: Sequence[Passage], target: Passage, budget: int | None) -> list[Passage]:
    """Return the passages nearest to the target that fit the budget, in order; the target, cut if it does not."""
    if budget is None:
        return list(passages)
    if len(target.text) > budget:
        return [cut_passage(target, budget)]
    positions: set[int] = set()
    used = 0
    for passage in sorted(passages, key=lambda passage: (abs(passage.position - target.position), passage.position)):
        used += len(passage.text)
        if used > budget and positions:
            break
        positions.add(passage.position)
    return [passage for passage in passages if passage.position in positions]


def section_around(passages: Sequence[Passage], target: Passage) -> list[Passage]:
    """Return the passages around the target that are under its heading, or under none as the target."""
    path = target.headings
    for _, group in groupby(passages, key=lambda passage: passage.headings[: len(path) or None] == path):
        members = list(group)
        if any(passage.chunk_id == target.chunk_id for passage in members):
            return members
    return [target]


def fitting_entries(entries: Sequence[dict[str, Any]], budget: int | None) -> int:
    """Return how many entries of an outline fit the budget in characters; at least one."""
    used = 0
    for number, entry in enumerate(entries):
        used += len(entry["heading"]) + entry["level"] + ENTRY_LINE
        # The rest is asked for by its passage: one that holds several headings is not cut.
        begins = number and entry["offset"] != entries[number - 1]["offset"]
        if begins and budget is not None and used > budget:
            return number
    return len(entries)


def outline_of(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Return the headings, or what code defines, in order, each with its level (from 0), its lines and first chunk."""
    entries: list[dict[str, Any]] = []
    last_path: tuple[str, ...] | None = None
    for passage in passages:
        for line, path in _sections_in(passage, is_first=not entries):
            if entries and line > entries[-1]["startLine"]:
                entries[-1]["endLine"] = line - 1
            if path != last_path or line != passage.first_line:
                entries += [
                    {
                        "heading": path[level] if path else BEGINNING,
                        "level": level,
                        "startLine": line,
                        "endLine": line,
                        "offset": passage.position,
                    }
                    for level in _new_levels(path, (last_path or ()) if passage.format == "pdf" else path)
                ]
            last_path = path
        entries[-1]["endLine"] = passage.last_line
    return entries


def _new_levels(path: tuple[str, ...], last_path: tuple[str, ...]) -> range:
    """Return the levels of a path to list: the innermost, and its parents that have no text, as bookmarks have them."""
    innermost = max(0, len(path) - 1)
    return range(min(len(commonprefix([path, last_path])), innermost), innermost + 1)


_ONE_SECTION = frozenset(("json", "jsonl", "csv", "xlsx", "ods", "subtitles", "pdf"))
"""Formats whose passages hold no headings of their own, or whose lines are rows."""


def _sections_in(passage: Passage, *, is_first: bool) -> list[tuple[int, tuple[str, ...]]]:
    """Return the first line and the heading path of each part of a passage that is under another heading."""
    path, body = tuple(passage.headings), passage.text.strip()
    if passage.format == "code":
        inside = list(definitions_in(body)) or ([(0, path)] if is_first else [])
        return [(passage.first_line + line, path) for line, path in inside]
    if passage.format in _ONE_SECTION:
        return [(passage.first_line, path)]
    inside = headings_in(body, path, underlined=passage.format in ("text", "rst", "mail"))
    parts = inside if inside and inside[0][0] == 0 else [(0, path), *inside]
    return [(passage.first_line + line, path) for line, path in parts]


# ---------------------------------------------------------------- answers

JOINT = "\n\n---\n\n"


def document_of(
    item: SourceItem, passages: list[Passage], offset: int, budget: int | None, lines: tuple[int, int] | None = None
) -> DocumentResult:
    """Return the document from an offset on, or those lines of it, as much as fits."""
    origin = item.get("origin")
    counted = (_with_empty_lines(p) if p.text[:1].isspace() and p.format not in SHEETS else p for p in passages)
    begun = from_offset([*counted], offset)
    begun = within_lines(begun, *lines) if lines else begun
    starts = {passage.position: passage.start for passage in passages}
    read = begun[0].start - starts[begun[0].position] if begun else 0
    shown, next_offset = fitting_passages(begun, budget, read)
    result: DocumentResult = {
        "source": _document_source(item, shown),
        "chunks": [_document_chunk(p, origin) for p in shown],
    }
    if signs := signals(item["title"], *(passage.text for passage in shown)):
        result["source"]["signals"] = signs
    if shown and shown[0].format not in SHEETS:
        result["startLine"], result["endLine"] = shown[0].first_line, shown[-1].last_line
    result["truncated"] = next_offset is not None
    if next_offset is not None:
        result["nextOffset"] = next_offset
    return result


def document_outline(item: SourceItem, passages: list[Passage], budget: int | None) -> DocumentResult:
    """Return the headings instead of the text."""
    entries = outline_of(passages)
    fitting = entries[: fitting_entries(entries, budget)]
    result: DocumentResult = {
        "source": _document_source(item, []),
        "chunks": [],
        "outline": fitting,
        "truncated": len(fitting) < len(entries),
    }
    if len(fitting) < len(entries):
        result["nextOffset"] = entries[len(fitting)]["offset"]
    return result


def _document_source(item: SourceItem, shown: list[Passage]) -> DocumentSource:
    fields = {name: value for name, value in item.items() if name not in ("changedAt", "partition", "chunkCount")}
    return cast("DocumentSource", {**fields, "content": "".join(passage.text for passage in shown)})


def _document_chunk(passage: Passage, origin: str | None) -> DocumentChunk:
    metadata: dict[str, Any] = {
        "start": passage.start,
        "stop": passage.stop,
        "startLine": passage.first_line,
        "endLine": passage.last_line,
        "headings": passage.headings,
    }
    if passage.first_page is not None:
        metadata["page"] = passage.first_page
    return {
        "id": shown_id(passage.chunk_uuid, origin),
        "content": passage.text,
        "chunkIndex": passage.position,
        "chunkTotal": passage.chunk_total,
        "metadata": metadata,
    }


def context_around(target: Passage, around: list[Passage], window: int, origin: str | None) -> ContextResult:
    result = {
        "targetChunkId": shown_id(target.chunk_uuid, origin),
        "window": window,
        "sourceId": shown_id(target.source_uuid, origin),
        "sourceTitle": target.title,
        "sourceType": target.source_type,
        "chunkTotal": target.chunk_total,
        "chunksRetrieved": len(around),
        "chunks": [_context_chunk(passage, target, origin) for passage in around],
        "concatenatedContent": JOINT.join(passage.text.strip() for passage in around),
        "citation": cite(target),
        "origin": origin,
        "signals": signals(target.title, *(passage.text for passage in around)) or None,
    }
    return without_none(result)


def _context_chunk(passage: Passage, target: Passage, origin: str | None) -> ContextChunk:
    return {
        "id": shown_id(passage.chunk_uuid, origin),
        "content": passage.text,
        "chunkIndex": passage.position,
        "isTarget": passage.chunk_id == target.chunk_id,
        "relativePosition": passage.position - target.position,
    }
