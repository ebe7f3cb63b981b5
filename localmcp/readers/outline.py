"""The structure of a text: sections with their heading paths, fenced code, and where lines start."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

Markup = Literal["markdown", "plain", "code"]
Path = tuple[str, ...]

BEGINNING = "(beginning)"
"""What an outline calls the text above the first heading."""
LONGEST_HEADING = 300
"""A longer "heading" is a paragraph above a row of dashes."""
HEADING = re.compile(
    r"#{1,6}[ \t][^\n]*(?:\n\s*)?|(?:([=\-~^\"#*+])\1{2,}[ \t]*\n)?\S[^\n]*\n([=\-~^\"#*+])\2{2,}\s*\Z"
)
"""A heading inside a passage, of whatever markup; backticks below a line mostly end code."""


@dataclass(frozen=True, slots=True)
class Section:
    """A span of the text under one heading path, outermost heading first; its own heading is its first line."""

    start: int
    stop: int
    path: Path
    continued: bool = False
    """It is the rest of a section, cut at a border, and does not begin with the heading."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Sections that partition the text, spans of fenced code in order, and the offset of every line."""

    sections: list[Section]
    fences: list[tuple[int, int]]
    line_starts: list[int]


@dataclass(frozen=True, slots=True)
class _Heading:
    line: int  # 0-based
    level: int
    title: str


def read_outline(
    text: str, markup: Markup, *, paged: bool = False, headings: Sequence[tuple[int, Path]] = ()
) -> Outline:
    """Headings of Markdown or reStructuredText, or the top-level blocks of code; lines end at LF, CRLF or CR.

    `paged`: the text was printed, where a row of dashes below a line belongs to a table or a listing. `headings`: the
    offset and path of each section of a text that does not mark them.
    """
    line_starts = _line_starts(text)
    if headings:
        starts = [(0, ()), *headings, (len(text), ())]
        return Outline([Section(a, b, path) for (a, path), (b, _) in pairwise(starts) if a < b], [], line_starts)
    if markup == "code":
        return Outline(_read_blocks(text), [], line_starts)
    if markup == "plain":
        plain = iter(()) if paged else _read_plain(text, line_starts, _OUTLINE_MODE)
        return Outline(_nest(text, plain, line_starts), [], line_starts)
    marked, fences = _read_markdown(text)
    offsets = [*line_starts, len(text)]
    fence_spans = [(offsets[first], offsets[min(last, len(line_starts))]) for first, last in fences]
    return Outline(_nest(text, marked, line_starts), fence_spans, line_starts)


def _line_starts(text: str) -> list[int]:
    if "\r" in text:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    # Without a step in Python for every line.
    *lines, _ = text.split("\n")
    return list(accumulate(map((1).__add__, map(len, lines)), initial=0))


_BLOCK_START = re.compile(r"\n[ \t]*\r?\n(?=[^\s)}\]])")
_INNER_BLOCK = re.compile(r"\n[ \t]*\r?\n(?=[ \t]*[^\s)}\]])")
_ABOVE_DEFINITION = re.compile(r"(?:[ \t]*(?:(?:[*@#]|//|/\*)[^\n]*)?\n)*[ \t]*")
_DEFINITION = re.compile(
    r"(?:\w+[ ]){0,3}(?:class|def|fn|func|function|struct|interface|trait|impl|enum|module|namespace)\s+[\w$][^\n]*"
    r"|(?!(?:if|for|while|switch|catch|return|else|with)\b)[\w$*&<>:~,.=\s]{0,200}\([^;{}]{0,600}\)[\w\s=>:]{0,40}(?=\{)"
)
_LONGEST_NAME = 100


def _read_blocks(text: str) -> list[Section]:
    """Code as its top-level blocks: what follows an empty line and is not indented."""
    visible = len(text) - len(text.lstrip())
    starts = [0, *(match.end() for match in _BLOCK_START.finditer(text, visible)), len(text)]
    return [Section(start, stop, ()) for start, stop in pairwise(starts)]


def definitions_in(text: str) -> Iterator[tuple[int, Path]]:
    """Yield the line, from 0, of every block of code that defines something, and what: `def wrap`."""
    starts = [0, *(match.end() for match in _INNER_BLOCK.finditer(text)), len(text)]
    for start, stop in pairwise(starts):
        block = text[start:stop]
        # Comments and decorators are above.
        above = _ABOVE_DEFINITION.match(block)
        if match := _DEFINITION.match(block, above.end() if above else 0):
            name = " ".join(re.split(r"[(=]", match[0])[0].split())[:_LONGEST_NAME].rstrip(" :{,")
            yield text.count("\n", 0, start), (name,)


_ONLY_HEADING = re.compile(r"(?:\.\. _[^\r\n]+:\s+)*[^\r\n]+(?:(?:\r\n|\r|\n)[=\-~^\"#*+`]{2,})?")


def is_only_heading(section: Section, body: str) -> bool:
    """Return whether a section's stripped text is its heading and nothing below it."""
    return bool(section.path) and not section.continued and _ONLY_HEADING.fullmatch(body) is not None


def _nest(text: str, headings: Iterable[_Heading], line_starts: list[int]) -> list[Section]:
    """Sections from headings in order; the text above the first heading has no path, and is none if blank."""
    sections: list[Section] = []
    start, path, open_headings = 0, (), list[_Heading]()
    for heading in headings:
        stop = line_starts[heading.line]
        if text[start:stop].strip():
            sections.append(Section(start, stop, path))
            start = stop
        path = _open_path(heading, open_headings)
    return [*sections, Section(start, len(text), path)]


def _open_path(heading: _Heading, open_headings: list[_Heading]) -> Path:
    """Close what ends at a heading, open it, and return the path of what is open."""
    while open_headings and open_headings[-1].level >= heading.level:
        open_headings.pop()
    open_headings.append(heading)
    return tuple(parent.title for parent in open_headings if parent.title)


_MARKDOWN_BLOCK = re.compile(r"(?m)^[ ]{0,3}(?:#|=|-|```|~~~)")
_PARSED_LINE = re.compile(r"(?m)^[ \t]*(?:[#=\-`~*+>]|\d+[.)])")
MOST_PARSED_LINES = 50_000
"""A text with more lines that open a block is scanned instead: each costs the parser 30 µs and 1.7 kB."""
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?=[\w\"'-][^\n]*:)(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")


def _read_markdown(text: str) -> tuple[list[_Heading], list[tuple[int, int]]]:
    """Top-level headings, and the line ranges of fenced code, as CommonMark reads them."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if not _MARKDOWN_BLOCK.search(lines):
        return [], []
    lines = _FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), lines)
    if sum(1 for _ in islice(_PARSED_LINE.finditer(lines), MOST_PARSED_LINES)) == MOST_PARSED_LINES:
        return _scan_markdown(lines)
    tokens = _block_parser().parse(lines)
    headings: list[_Heading] = []
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open" or opening.level or not opening.map:
            continue
        if len(inline.content) <= LONGEST_HEADING:
            headings.append(_Heading(opening.map[0], int(opening.tag[1:]), _strip_markup(inline.content)))
    return headings, [(token.map[0], token.map[1]) for token in tokens if token.type == "fence" and token.map]


_SCANNED = re.compile(r" {0,3}(?:(#{1,6})[ \t]+(.*?)[ \t#]*|(`{3,}|~{3,})(.*))")


def _scan_markdown(lines: str) -> tuple[list[_Heading], list[tuple[int, int]]]:
    """Headings with `#` and fences, line by line: for long texts of which a parser would make gigabytes of tokens."""
    headings: list[_Heading] = []
    fences: list[tuple[int, int]] = []
    fence, opened = "", 0
    for number, line in enumerate(lines.split("\n")):
        match = _SCANNED.fullmatch(line) if line.lstrip(" ")[:1] in ("#", "`", "~") else None
        if match is None:
            continue
        if fence:
            if match[3] and match[3].startswith(fence) and not match[4].strip():
                fences.append((opened, number + 1))
                fence = ""
        elif match[3]:
            fence, opened = match[3], number
        elif match[2] and len(match[2]) <= LONGEST_HEADING:
            headings.append(_Heading(number, len(match[1]), _strip_markup(match[2])))
    return headings, fences


def path_at(text: str, offset: int, path: Path, *, underlined: bool = False) -> Path:
    """Return the heading path of an offset in a chunk that begins under `path`.

    The nearest heading above it counts, or the whole one in which it is: a sentence may begin at the 15 of "Art. 15".
    """
    line_starts = _line_starts(text)
    following = bisect_right(line_starts, offset)
    end = line_starts[following] if following < len(line_starts) else len(text)
    headings = headings_in(text[:end], path, underlined=underlined)
    return headings[-1][1] if headings else path


def headings_in(text: str, path: Path, *, underlined: bool = False) -> list[tuple[int, Path]]:
    """Return the line, from 0, and the path of every heading in a chunk that begins under `path`.

    `underlined`: headings are lines above a row of punctuation signs, as in reStructuredText, else `#` lines.
    """
    line_starts = _line_starts(text)
    headings = _read_plain(text, line_starts, _SECOND_LEVEL) if underlined else _scan_markdown(text)[0]
    open_headings = list[_Heading]()
    return [(heading.line, _joined(path, _open_path(heading, open_headings))) for heading in headings]


def _joined(path: Path, inner: Path) -> Path:
    """Return the path of headings inside a chunk that begins under `path`: one that is in it is not repeated."""
    depth = max((depth for depth, title in enumerate(path) if (title,) == inner[:1]), default=max(0, len(path) - 1))
    return (*path[:depth], *inner)


@cache
def _block_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # 47 ms

    parser = MarkdownIt("commonmark").disable("reference")
    parser.core.ruler.disable(["inline", "text_join"])
    return parser


@cache
def markdown_parser() -> "MarkdownIt":
    """Return the parser of whole documents."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


_INLINE = re.compile(r"[\\`*_\[<&\n]")
"""What begins markup inside a line."""


def _strip_markup(heading: str) -> str:
    """Return a heading's words without emphasis, links, HTML and a trailing {#anchor}."""
    heading = re.sub(r"\s*\{#[^}]*\}\s*$", "", heading)
    if not _INLINE.search(heading):
        # The parser is not loaded for it: a search has such headings in its citations.
        return " ".join(heading.split())
    children = markdown_parser().parseInline(heading)[0].children or []
    visible = (" " if "break" in child.type else child.content for child in children if child.type != "html_inline")
    return " ".join("".join(visible).split())


_STARRED = re.compile(r"(?m)^(\*{1,5}) (\S[^\r\n]*)(?=\r?\n[ \t]*\r?$)")
_OUTLINE_MODE = re.compile(r"\A.{0,300}-\*- *(?:mode: *)?outline", re.S)
"""What the first line says of such a file, as the NEWS of GNU programs."""
_SECOND_LEVEL = re.compile(r"(?m)^\*\* \S")


def _read_plain(text: str, line_starts: list[int], says_starred: re.Pattern[str]) -> Iterator[_Heading]:
    """Return headings behind stars, as in Emacs' outline mode, if the text has that mode; else underlined ones."""
    return _read_starred(text, line_starts) if says_starred.search(text) else _read_underlined(text, line_starts)


def _read_starred(text: str, line_starts: list[int]) -> Iterator[_Heading]:
    for match in _STARRED.finditer(text):
        if len(match[2]) <= LONGEST_HEADING:
            line = bisect_right(line_starts, match.start()) - 1
            yield _Heading(line, len(match[1]), " ".join(match[2].split()))


_UNDERLINE = re.compile(r"(?m)\n(?:([=\-~^\"#*+`])\1{2,}|==)(?=[ \t]*\r?$)")


def underlined_titles(text: str) -> Iterator[str]:
    """Yield the lines that are underlined, as the titles of reStructuredText."""
    return (heading.title for heading in _read_underlined(text, _line_starts(text)))


def _read_underlined(text: str, line_starts: list[int]) -> Iterator[_Heading]:
    """reStructuredText titles: a line after an empty one, underlined by punctuation at least as long as itself."""
    styles: list[tuple[str, bool]] = []
    for match in _UNDERLINE.finditer(text):
        # Looked for from the line's end before it, which is many times as fast as from each line's beginning.
        start, row = match.start() + 1, match[0][1:]
        line = bisect_right(line_starts, start) - 2
        title = text[line_starts[line] : start].rstrip()
        above = text[line_starts[line - 1] : line_starts[line]].strip() if line else ""
        overlined = above == row
        if (above and not overlined) or not _is_title(title, row, overlined=overlined):
            continue
        style = (row[0], overlined)
        if style not in styles:
            styles.append(style)
        first = _with_labels(text, line_starts, line - overlined)
        words = " ".join(title.split())
        if "`" in words or "*" in words:
            # `:mod:`email` *old*` as people read it: `email old`.
            words = _EMPHASIS.sub(r"\2", _ROLE.sub(r"\2", words))
        yield _Heading(first, styles.index(style) + 1, words)


_ROLE = re.compile(r"(?::[a-zA-Z][\w:+.-]*:)?(`{1,2})[!~]?([^`]+?)(?:\s+<[^`<>]*>)?\1_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([^\s*]|[^\s*][^*]*[^\s*])\1(?![\w*])")


_LABEL = re.compile(r"\.\. _[^\n]+:\s*")


def _with_labels(text: str, line_starts: list[int], line: int) -> int:
    """Return the line of a heading, or of the first label above it, as references of reStructuredText need it."""
    first = line
    while line:
        line -= 1
        above = text[line_starts[line] : line_starts[line + 1]]
        if _LABEL.fullmatch(above):
            first = line
        elif above.strip():
            break
    return first


def _is_title(line: str, row: str, *, overlined: bool) -> bool:
    # A row of `=` alone may be shorter, as in the NEWS of some programs: it is hardly anything else.
    most = LONGEST_HEADING if row[0] == "=" and not overlined else min(len(row), LONGEST_HEADING)
    # A line that begins as the row does is one of a box; between two rows it may be indented.
    begins = not line.startswith(row[:1]) if overlined else not line[:1].isspace() and not line.startswith(row[:2])
    return 0 < len(line) <= most and begins and any(character.isalnum() for character in line)
