"""Cuts a document's text into chunks: spans that partition it, each small enough for the embedding model."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Literal

from localmcp.errors import InvalidInput
from localmcp.readers.flowing_text import flowing_text
from localmcp.readers.lead_ins import with_lead_ins
from localmcp.readers.outline import Markup, Outline, Path, Section, is_only_heading, read_outline

Kind = Literal["prose", "code", "data"]
"""data: found by word only."""
TokenCounter = Callable[[str], int]
"""Counts the model's tokens in a text, special tokens left out and nothing truncated."""

CHUNKER_VERSION = 3
"""Counts up when the same text is cut differently."""
PREFIX_BYTES = 192
"""Most UTF-8 bytes of title and headings in front of an embedded text. No WordPiece or byte-level tokenizer makes
more tokens than bytes, so a window of 254 always keeps room for text; and no counter is needed to rebuild it."""

LEAST_ROOM = 8
"""Tokens of text for which headings must leave room; a limit of 254 leaves far more under any."""

MOST_CHARACTERS = 4000
"""Longest visible chunk in code points. Tokenizers turn a long run without spaces into one unknown token."""

MOST_ROWS = 25
"""Rows of a sheet that one chunk spans, so that its citation is a place that a person can look at."""

LONGEST_CROSSING = 400
"""Code points of a sentence on the page where it ends; a longer one is cut at the page."""

_SAMPLE = 500
"""Code points in a row whose tokens are counted for four times as many."""

WINDOW = 16_000
"""Longest text, in code points, given to the splitter and the token counter at once; the splitter is quadratic."""

MAIL_HEADER = re.compile(r"(?:(?:From|To|Cc|Date|Attachments): .*\n)+\n")
"""As the reader of mail writes it."""
_ADDRESSES = re.compile(r" *<[^>\n]*>|^Date: .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a document and what is known about its place.

    `start` and `stop` count code points. Lines (rows in a sheet) and pages are 1-based: where the visible text begins
    and ends.
    """

    start: int
    stop: int
    text: str
    headings: Path
    first_line: int
    last_line: int
    first_page: int | None
    last_page: int | None
    kind: Kind

    def embedded_text(self, title: str) -> str:
        """Return title, heading path, then the stripped text, one below the other; of a mail, without its addresses."""
        return put_below(shorten_prefix(title, self.headings), without_addresses(self.text.strip()))

    def whole_text(self, title: str) -> str:
        """Return the same with the addresses, which are found by word; equal for chunks that are indexed alike."""
        return put_below(shorten_prefix(title, self.headings), self.text.strip())


def put_below(prefix: str, text: str) -> str:
    """Return the text below its title and headings, if it has any."""
    return f"{prefix}\n{text}" if prefix else text


def split(
    text: str,
    *,
    markup: Markup,
    count_tokens: TokenCounter,
    title: str = "",
    page_starts: Sequence[int] = (),
    row_starts: Sequence[tuple[int, int]] = (),
    headings: Sequence[tuple[int, Path]] = (),
    appendix: int | None = None,
    target: int = 200,
    limit: int = 254,
) -> list[Chunk]:
    """Cut `text` into chunks of about `target` tokens; no embedded text is longer than `limit` tokens (design §4).

    The chunks partition the text: every code point is in exactly one, in order. Text without any visible character
    gives no chunk. `page_starts` are ascending code point offsets, the first page's included. Lines end at LF, CRLF or
    CR. No chunk crosses a page, unless a sentence does, nor the `appendix`, whose chunks are found by word only. With
    `row_starts` (see `Document`) it spans at most MOST_ROWS rows of one sheet, and its lines are rows.
    The limit holds for any title when it is at least 254; a smaller one needs a title that leaves room, for at most
    96 bytes of it are kept, and chunks go without the outer headings that leave none. The text has no lone surrogates.
    Raises InvalidInput for a target or limit that is not positive.
    """
    if target < 1 or limit < 1:
        raise InvalidInput(f"target and limit must be positive numbers of tokens, not {target} and {limit}.")
    if not text.strip():
        return []
    outline = read_outline(text, markup, paged=bool(page_starts), headings=headings)
    rows = _Rows(row_starts, outline.line_starts) if row_starts else None
    sheets = [section.start for section in outline.sections] if rows else []
    fixed = [*sheets, *(start for start, _ in headings), *(() if appendix is None else (appendix,))]
    borders = _borders(text, fixed, page_starts)
    budget = _Budget(count_tokens, title, target, limit)
    groups = list(_pack(text, _cut_sections(outline.sections, borders), budget, frozenset(borders)))
    spans = [span for group in groups for span in _fit(text, group, budget, markup, rows, outline.fences)]
    return _describe(text, spans, outline, page_starts, markup, rows, appendix)


# Borders: where a chunk must end.


class _Rows:
    """Which row of its sheet a line is."""

    def __init__(self, row_starts: Sequence[tuple[int, int]], line_starts: list[int]) -> None:
        self._offsets = [offset for offset, _ in row_starts]
        self._rows = [row for _, row in row_starts]
        self._line_starts = line_starts

    def row(self, offset: int) -> int:
        """Return the 1-based row that is written at an offset; for the name of a sheet, the first row below it."""
        run = max(bisect_right(self._offsets, offset) - 1, 0)
        if not self._rows[run]:
            return self._rows[min(run + 1, len(self._rows) - 1)]
        lines = bisect_right(self._line_starts, offset) - bisect_right(self._line_starts, self._offsets[run])
        return self._rows[run] + max(lines, 0)

    def too_many(self, text: str, start: int, stop: int) -> bool:
        """Return whether a span shows more than MOST_ROWS rows."""
        first, last = _visible(text, start, stop)
        return last > first and self.row(last - 1) - self.row(first) >= MOST_ROWS


def _borders(text: str, fixed: Sequence[int], page_starts: Sequence[int]) -> list[int]:
    """Return the offsets, ascending, at which a chunk must begin; both sides of each have visible text."""
    candidates = sorted({*fixed, *(_end_of_sentence(text, start) for start in page_starts)})
    borders: list[int] = []
    before, last = 0, len(text.rstrip())
    for border in candidates:
        if before < border < last and text[before:border].strip():
            borders.append(border)
            before = border
    return borders


_SENTENCE_END = re.compile(r"[.!?\u2026:;\u3002\uff01\uff1f][\"')\]\u00bb\u201d\u2019]*(?=\s|$)|\n\s*\n")


def _end_of_sentence(text: str, page: int) -> int:
    """Return where the sentence ends that a page begins with, or the page's own start."""
    head = text[max(page - 200, 0) : page].rstrip()
    if not head or not (head[-1].isalnum() or head[-1] in ",-\u2013"):
        return page
    body = text[page : page + LONGEST_CROSSING]
    start = len(body) - len(body.lstrip())
    # What goes on with a capital or a sign begins something new: a heading above was not ended by a full stop.
    if not body[start : start + 1].islower():
        return page
    end = _SENTENCE_END.search(body, start)
    return page + end.end() if end else page


def _cut_sections(sections: Iterable[Section], borders: Sequence[int]) -> Iterator[Section]:
    for section in sections:
        inside = borders[bisect_right(borders, section.start) : bisect_left(borders, section.stop)]
        for number, (start, stop) in enumerate(pairwise((section.start, *inside, section.stop))):
            yield Section(start, stop, section.path, continued=number > 0)


def without_addresses(text: str) -> str:
    """Return a text without the addresses and the date in the header of a mail, which outweigh a short one.

    nDCG@10 of 26 Spanish questions about Spanish mails, with `multilingual`: .79 -> .85.
    """
    header = MAIL_HEADER.match(text)
    return _ADDRESSES.sub("", header[0]) + text[header.end() :] if header else text


@lru_cache(maxsize=256)
def shorten_prefix(title: str, headings: Path) -> str:
    """Title and heading path as they are before an embedded text, at most `PREFIX_BYTES` long.

    The innermost headings say most, so the outer ones go first. A first heading equal to the title is left out.
    """
    title = _cut_bytes(" ".join(title.split()), PREFIX_BYTES // 2)
    path = headings[1:] if headings and headings[0].casefold() == title.casefold() else headings
    room = PREFIX_BYTES - len(title.encode()) - 1
    headings_shown: list[str] = []
    for heading in reversed(path):
        room -= len(heading.encode()) + len(" > ")
        if room < 0:
            break
        headings_shown.insert(0, heading)
    if path and not headings_shown:
        headings_shown = [_cut_bytes(path[-1], PREFIX_BYTES // 2 - 1)]
    return "\n".join(filter(None, (title, " > ".join(headings_shown))))


def _cut_bytes(text: str, most: int) -> str:
    """Return the longest start of `text` that has at most `most` UTF-8 bytes."""
    return text.encode()[:most].decode(errors="ignore").rstrip()


# Packing: small sections together, large ones apart.


class _Budget:
    """Counts tokens of a text, and how many it may have below its title and headings."""

    def __init__(self, count_tokens: TokenCounter, title: str, target: int, limit: int) -> None:
        self._count_tokens = count_tokens
        self._title = title
        self._target = target
        self._limit = limit
        self._rooms: dict[Path, tuple[Path, int]] = {}

    def tokens(self, text: str) -> int:
        return self._count_tokens(text.strip())

    def estimated_tokens(self, text: str) -> int:
        """Return about how many tokens a long text has, told from a quarter of it."""
        step = 4 * _SAMPLE
        sample = " ".join(text[start : start + _SAMPLE] for start in range(0, len(text), step))
        return self._count_tokens(sample) * len(text) // len(sample)

    def room(self, path: Path) -> int:
        """Tokens left for text under what of the path fits. Two are spare: joining two texts can cost a token or so."""
        return self._measured(path)[1]

    def fitting(self, path: Path) -> Path:
        """Return the path without the outer headings that would leave no space for text."""
        return self._measured(path)[0]

    def _measured(self, path: Path) -> tuple[Path, int]:
        if path not in self._rooms:
            prefix = shorten_prefix(self._title, path)
            left = self._limit - (self._count_tokens(prefix + "\n") + 2 if prefix else 0)
            self._rooms[path] = self._measured(path[1:]) if path and left < LEAST_ROOM else (path, max(left, 1))
        return self._rooms[path]

    def goal(self, path: Path) -> int:
        return min(self._target, self.room(path))


@dataclass(slots=True)
class _Group:
    """Neighboring sections that become one chunk, or, if a single one is too large, several."""

    sections: list[Section]
    tokens: int | None  # None: not counted, too long for a chunk
    only_headings: bool

    @property
    def start(self) -> int:
        return self.sections[0].start

    @property
    def stop(self) -> int:
        return self.sections[-1].stop


def _pack(text: str, sections: Iterable[Section], budget: _Budget, borders: frozenset[int]) -> Iterator[_Group]:
    """Small sections under one parent together, up to the target; a heading without text goes with what it heads."""
    group: _Group | None = None
    for section in sections:
        candidate = _measure(text, section, budget)
        if group is None:
            group = candidate
        elif section.start not in borders and _joins(group, candidate, budget):
            group.sections.append(section)
            whole = group.tokens is not None and candidate.tokens is not None
            group.tokens = (group.tokens or 0) + (candidate.tokens or 0) if whole else None
            group.only_headings &= candidate.only_headings
        else:
            yield group
            group = candidate
    if group:
        yield group


def _measure(text: str, section: Section, budget: _Budget) -> _Group:
    body = text[section.start : section.stop].strip()
    tokens = budget.tokens(body) if len(body) <= MOST_CHARACTERS else None
    return _Group([section], tokens, is_only_heading(section, body))


def _joins(group: _Group, candidate: _Group, budget: _Budget) -> bool:
    path, section = group.sections[0].path, candidate.sections[0]
    heads = group.only_headings and section.path[:-1] == group.sections[-1].path
    if heads or group.tokens is None or candidate.tokens is None:
        return heads
    siblings = len(section.path) >= len(path) and section.path[: len(path[:-1])] == path[:-1]
    short = section.stop - group.start <= MOST_CHARACTERS
    return siblings and short and group.tokens + candidate.tokens <= budget.goal(path)


# Fitting: pieces that respect the limit.


def _fit(
    text: str, group: _Group, budget: _Budget, markup: Markup, rows: _Rows | None, fences: list[tuple[int, int]]
) -> list[Section]:
    """Return the group as sections within the limit; the remains of cutting are joined again where they fit."""
    paths = [section.path for section in group.sections]
    fits = group.tokens is not None and group.tokens <= budget.room(paths[0])
    tightest = paths[0] if fits else min(paths, key=budget.room)
    cutter = _Cutter(text, budget, markup, budget.room(tightest), budget.goal(tightest), rows, fences)
    pieces = cutter.cut(group.start, group.stop, group.tokens)
    starts = [section.start for section in group.sections]
    spans: list[Section] = []
    for start, stop, _ in cutter.join(pieces):
        visible = _visible(text, start, stop)[0]
        path = paths[max(bisect_right(starts, visible) - 1, 0)]
        spans.append(Section(start, stop, budget.fitting(path)))
    return spans


Piece = tuple[int, int, int]
"""Start, stop, tokens."""


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts a span of one document where its structure allows, by characters first, then checked in tokens."""

    text: str
    budget: _Budget
    markup: Markup
    room: int
    goal: int
    rows: _Rows | None
    fences: list[tuple[int, int]]

    def cut(self, start: int, stop: int, tokens: int | None = None) -> list[Piece]:
        """Pieces of at most `room` tokens and `MOST_CHARACTERS` visible code points."""
        body = self.text[start:stop]
        if stop - start > WINDOW:
            return self._cut_all(start, _windows(body))
        visible = len(body.strip())
        if tokens is None:
            tokens = self.budget.estimated_tokens(body) if visible > MOST_CHARACTERS else self.budget.tokens(body)
        crowded = self.rows is not None and self.rows.too_many(self.text, start, stop)
        if visible < 2 or (tokens <= self.room and visible <= MOST_CHARACTERS and not crowded):
            return [(start, stop, tokens)]
        parts = max(-(-tokens // self.goal), -(-visible // MOST_CHARACTERS), 2)
        # A tenth more than an even share, so that unequal paragraphs need not leave a small rest.
        capacity = min(len(body) * 11 // (parts * 10) + 1, len(body) - 1, MOST_CHARACTERS)
        return self._cut_all(start, self._split(body, capacity, _overlaps(self.fences, start, stop)))

    def _cut_all(self, start: int, parts: Sequence[str]) -> list[Piece]:
        offsets = accumulate(map(len, parts), initial=start)
        return [piece for first, last in pairwise(offsets) for piece in self.cut(first, last)]

    def _split(self, body: str, capacity: int, fences: Iterable[tuple[int, int]]) -> list[str]:
        """Return the body in parts of at most `capacity` code points; if it is no code, cut where sentences end."""
        from semantic_text_splitter import MarkdownSplitter, TextSplitter  # 3 ms

        if self.markup == "code":
            return TextSplitter(capacity, trim=False).chunks(body)
        splitter = MarkdownSplitter if self.markup == "markdown" else TextSplitter
        parts = splitter(capacity, trim=False).chunks(flowing_text(body, self.markup, fences))
        cut = (body[start:stop] for start, stop in pairwise(accumulate(map(len, parts), initial=0)))
        return with_lead_ins(cut, capacity)

    def join(self, pieces: Iterable[Piece]) -> list[Piece]:
        """Neighbors joined up to the goal, and beyond it, up to the room, where one is only a crumb or blank."""
        joined: list[Piece] = []
        for piece in pieces:
            if joined and self._may_join(joined[-1], piece):
                start, _, tokens = joined[-1]
                joined[-1] = (start, piece[1], tokens + piece[2])
            else:
                joined.append(piece)
        return joined

    def _may_join(self, left: Piece, right: Piece) -> bool:
        if any(not self.text[start:stop].strip() for start, stop, _ in (left, right)):
            return True
        if self.rows and self.rows.too_many(self.text, left[0], right[1]):
            return False
        tokens = left[2] + right[2]
        crumb = min(left[2], right[2]) < self.goal // 6
        most = self.room if crumb else self.goal
        # A word that was cut in two can have other pieces as a whole: only joints at a space add up.
        joint = self.text[right[0] - 1] in " \t\r\n" or self.text[right[0]] in " \t\r\n"
        return joint and tokens <= most and right[1] - left[0] <= MOST_CHARACTERS


def _windows(text: str) -> list[str]:
    """`text` in windows of at most `WINDOW` code points, cut at an empty line, a line, a space, or at least not
    inside a character with its marks."""
    windows: list[str] = []
    start = 0
    while len(text) - start > WINDOW:
        stop = _find_break(text, start + WINDOW // 2, start + WINDOW)
        windows.append(text[start:stop])
        start = stop
    return [*windows, text[start:]]


def _find_break(text: str, low: int, high: int) -> int:
    for mark in ("\n\n", "\n\r\n", "\n", " "):
        at = text.rfind(mark, low, high)
        if at >= 0:
            return at + len(mark)
    for at in range(high, low, -1):
        if not unicodedata.combining(text[at]) and text[at] not in "\n\u200d\ufe0f" and text[at - 1] != "\u200d":
            return at
    return high


# Describing: lines, pages and kind.


def _describe(
    text: str,
    spans: Iterable[Section],
    outline: Outline,
    page_starts: Sequence[int],
    markup: Markup,
    rows: _Rows | None,
    appendix: int | None,
) -> list[Chunk]:
    line_of = rows.row if rows else partial(bisect_right, outline.line_starts)
    chunks: list[Chunk] = []
    for span in spans:
        first, last = _visible(text, span.start, span.stop)
        code = markup == "code" or _fenced(outline.fences, first, last) * 2 > last - first
        kind: Kind = "data" if appendix is not None and first >= appendix else "code" if code else "prose"
        chunks.append(
            Chunk(
                start=span.start,
                stop=span.stop,
                text=text[span.start : span.stop],
                headings=span.path,
                first_line=line_of(first),
                last_line=line_of(last - 1),
                first_page=max(bisect_right(page_starts, first), 1) if page_starts else None,
                last_page=max(bisect_right(page_starts, last - 1), 1) if page_starts else None,
                kind=kind,
            )
        )
    return chunks


def _visible(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return the span without the white space at its ends."""
    body = text[start:stop]
    return start + len(body) - len(body.lstrip()), start + len(body.rstrip())


def _fenced(fences: list[tuple[int, int]], first: int, last: int) -> int:
    """Return how many code points of the span are in fenced code."""
    return sum(stop - start for start, stop in _overlaps(fences, first, last))


def _overlaps(fences: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a span that are in fenced code, as offsets from its start."""
    near = slice(max(bisect_right(fences, (first, first)) - 1, 0), bisect_right(fences, (last, last)))
    for start, stop in fences[near]:
        if max(start, first) < min(stop, last):
            yield max(start, first) - first, min(stop, last) - first
