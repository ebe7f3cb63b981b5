"""The structure of a text: sections with their heading paths, fenced code, line starts; and what stands out in it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

Markup = Literal["markdown", "plain", "code"]
Path = tuple[str, ...]
Span = tuple[int, int]

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


Outline = tuple[list[Section], list[Span], list[int]]
"""Sections that partition a text, spans of fenced code in order, and the offset of every line."""


class Heading(NamedTuple):
    """A heading that begins a line: where, its level from 1, and its words without markup."""

    start: int
    level: int
    title: str


def read_outline(
    text: str, markup: Markup, *, paged: bool = False, headings: Sequence[tuple[int, Path]] = ()
) -> Outline:
    """Headings of Markdown or reStructuredText, or the top-level blocks of code; lines end at LF, CRLF or CR.

    `paged`: the text was printed, where a row of dashes below a line belongs to a table or a listing. `headings`: the
    offset and path of each section of a text that does not mark them.
    """
    # A text without CR takes no step in Python for every line.
    ends = (match.end() for match in re.finditer(r"\r\n|\r|\n", text)) if "\r" in text else ()
    line_starts = [0, *ends] if ends else [0, *accumulate(map((1).__add__, map(len, text.split("\n")[:-1])))]
    fences: list[Span] = []
    starts: list[tuple[int, Path]] = [(0, ())]
    if headings:
        starts += headings
    elif markup == "code":
        # Top-level blocks: what follows an empty line and is not indented.
        blocks = re.compile(r"\n[ \t]*\r?\n(?=[^\s)}\]])").finditer(text, len(text) - len(text.lstrip()))
        starts += [(match.end(), ()) for match in blocks]
    else:
        marked: Iterable[Heading] = () if paged or markup == "markdown" else scan_underlined(text)
        if markup == "markdown":
            marked, fences = scan_markdown(text)
        open_headings = list[Heading]()
        for heading in marked:
            is_blank_above = not text[starts[-1][0] : heading.start].strip()
            start = starts.pop()[0] if is_blank_above else heading.start
            starts.append((start, _open_path(heading, open_headings)))
    ends = [*(start for start, _ in starts[1:]), len(text)]
    sections = [Section(start, end, path) for (start, path), end in zip(starts, ends, strict=True) if start < end]
    return sections, fences, line_starts


def _open_path(heading: Heading, open_headings: list[Heading]) -> Path:
    """Close what ends at a heading, open it, and return the path of what is open."""
    while open_headings and open_headings[-1].level >= heading.level:
        open_headings.pop()
    open_headings.append(heading)
    return tuple(parent.title for parent in open_headings if parent.title)


def path_at(text: str, offset: int, path: Path, *, underlined: bool = False) -> Path:
    """Return the path of the nearest heading above or at an offset in a chunk that begins under `path`."""
    end = re.compile(r"\r\n|\r|\n|$").search(text, offset)
    headings = headings_in(text[: end.end() if end else None], path, underlined=underlined)
    return headings[-1][1] if headings else path


def headings_in(text: str, path: Path, *, underlined: bool = False) -> list[tuple[int, Path]]:
    """Return the line, from 0, and the path of every heading in a chunk that begins under `path`.

    `underlined`: headings are lines above a row of punctuation signs, as in reStructuredText, else `#` lines.
    """
    open_headings = list[Heading]()
    line_ends = _line_ends_as_lf(text)
    headings: list[tuple[int, Path]] = []
    for heading in scan_underlined(text) if underlined else scan_markdown(text)[0]:
        inner = _open_path(heading, open_headings)
        # One that is in the path already is not repeated.
        depth = max((depth for depth, title in enumerate(path) if (title,) == inner[:1]), default=max(0, len(path) - 1))
        headings.append((line_ends.count("\n", 0, heading.start), (*path[:depth], *inner)))
    return headings


def _line_ends_as_lf(text: str) -> str:
    return text.replace("\r\n", " \n").replace("\r", "\n") if "\r" in text else text


# ---------------------------------------------------------------- Markdown

_MARKED_LINE = re.compile(
    r"^(?:[ ]{0,3}(#{1,6})(?:[ \t]+([^\n]*))?$"
    r"|[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})([^\n]*)$"
    r"|[ ]{0,3}(?![ \t|>]|[-*+][ \t]|\d+[.)][ \t])([^\n\w]*+\w[^\n]*+)\n[ ]{0,3}(=+|-+)[ \t]*$)",
    re.MULTILINE,
)
"""A heading behind hashes, the beginning or end of code, or a heading above a row of signs."""


def scan_markdown(text: str) -> tuple[list[Heading], list[Span]]:
    """Return the headings, and the spans of fenced code, of Markdown."""
    text = _line_ends_as_lf(text)
    headings: list[Heading] = []
    fences: list[Span] = []
    fence, opened, above = "", 0, 0

    def add(start: int, level: int, title: str) -> None:
        if len(title) <= LONGEST_HEADING:
            words = unescape(_without_marks(re.sub(r"\s*\{#[^}]*\}\s*$", "", title)))
            headings.append(Heading(start, level, " ".join(words.split())))

    front = re.match(r"---[ \t]*\n(?=[\w\"'-][^\n]*:)(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", text)
    for match in _MARKED_LINE.finditer(text, front.end() if front else 0):
        hashes, title, marks, info, underlined, row = match.groups()
        if fence:
            if marks and marks.startswith(fence) and not info.strip():
                fences.append((opened, min(match.end() + 1, len(text))))
                fence, above = "", match.end() + 1
        elif marks:
            if marks[0] == "~" or "`" not in info:
                fence, opened = marks, match.start()
        elif hashes:
            title = (title or "").strip()
            words = title.rstrip("#")
            add(match.start(), len(hashes), words.rstrip() if words[-1:] in ("", " ", "\t") else title)
            above = match.end() + 1
        # A row of signs below a paragraph of several lines is a line across the page.
        elif (
            match.start() in (0, above) or not text[text.rfind("\n", 0, match.start() - 1) + 1 : match.start()].strip()
        ):
            add(match.start(), 1 if row[0] == "=" else 2, underlined)
            above = match.end() + 1
    if fence:
        fences.append((opened, len(text)))
    return headings, fences


_INLINE = re.compile(
    r"(`+)(.+?)\1|!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\](?:\([^()\n]*\)|\[[^\[\]\n]*\])|</?[a-zA-Z][^<>:]*>|<!--.*?-->"
    r"|\\([!-/:-@\[-`{-~])|(?<!\w)(\*{1,3}|_{1,3})(?=[^\s*_])(.+?)(?<=\S)\5(?!\w)"
)


def _without_marks(text: str) -> str:
    def shown(match: re.Match[str]) -> str:
        _, code, link, escaped, _, emphasis = match.groups()
        return code.strip() if code else escaped or _without_marks(link or emphasis or "")

    return _INLINE.sub(shown, text)


# ---------------------------------------------------------------- text with underlined titles

_LABELS = re.compile(r"(?m)(?:^\.\. _[^\n]+:[ \t]*\n(?:[ \t]*\n)*)+\Z")
"""What references of reStructuredText need above a heading belongs to it."""
_ROLE = re.compile(r"(?::[a-zA-Z][\w:+.-]*:)?(`{1,2})[!~]?([^`]+?)(?:\s+<[^`<>]*>)?\1_{0,2}")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})([^\s*]|[^\s*][^*]*[^\s*])\1(?![\w*])")


def scan_underlined(text: str) -> Iterator[Heading]:
    """reStructuredText titles: a line after an empty one, underlined by punctuation at least as long as itself."""
    text = _line_ends_as_lf(text)
    styles: list[tuple[str, bool]] = []
    for match in re.finditer(r"(?m)\n(?:([=\-~^\"#*+`])\1{2,}|==)(?=[ \t]*$)", text):
        row = match[0][1:]
        start = text.rfind("\n", 0, match.start()) + 1
        title = text[start : match.start()].rstrip()
        start_above = text.rfind("\n", 0, max(start - 1, 0)) + 1 if start else 0
        above = text[start_above:start].strip()
        overlined = above == row
        # A row of `=` alone may be shorter, as in the NEWS of some programs: it is hardly anything else.
        most = LONGEST_HEADING if row[0] == "=" and not overlined else min(len(row), LONGEST_HEADING)
        # A line that begins as the row does is one of a box; between two rows it may be indented.
        boxed = title.startswith(row[:1]) if overlined else title[:1].isspace() or title.startswith(row[:2])
        if (above and not overlined) or boxed or len(title) > most or not any(map(str.isalnum, title)):
            continue
        style = (row[0], overlined)
        if style not in styles:
            styles.append(style)
        words = " ".join(title.split())
        if "`" in words or "*" in words:
            # `:mod:`email` *old*` as people read it: `email old`.
            words = _EMPHASIS.sub(r"\2", _ROLE.sub(r"\2", words))
        start = start_above if overlined else start
        labels = _LABELS.search(text, max(start - 500, 0), start)
        yield Heading(labels.start() if labels else start, styles.index(style) + 1, words)


# ---------------------------------------------------------------- code

_DEFINITION = re.compile(
    r"(?:\w+[ ]){0,3}(?:class|def|fn|func|function|struct|interface|trait|impl|enum|module|namespace)\s+[\w$][^\n]*"
    r"|(?!(?:if|for|while|switch|catch|return|else|with)\b)[\w$*&<>:~,.=\s]{0,200}\([^;{}]{0,600}\)[\w\s=>:]{0,40}(?=\{)"
)


def definitions_in(text: str) -> Iterator[tuple[int, Path]]:
    """Yield the line, from 0, of every block of code that defines something, and what: `def wrap`."""
    blocks = re.finditer(r"\n[ \t]*\r?\n(?=[ \t]*[^\s)}\]])", text)
    for start, stop in pairwise([0, *(match.end() for match in blocks), len(text)]):
        block = text[start:stop]
        # Below comments and decorators.
        above = re.match(r"(?:[ \t]*(?:(?:[*@#]|//|/\*)[^\n]*)?\n)*[ \t]*", block)
        if match := _DEFINITION.match(block, above.end() if above else 0):
            name = " ".join(re.split(r"[(=]", match[0])[0].split())[:100].rstrip(" :{,")
            yield text.count("\n", 0, start), (name,)


# ---------------------------------------------------------------- what stands out

# Nothing is blocked or removed: text from documents is data, and these are hints for whoever reads it.

_HIDDEN = re.compile(
    # Tag characters, variation selectors, bidirectional and other controls, what has no width, joiners beside
    # Latin letters, many soft hyphens.
    "[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\x00-\x08\x0e-\x1f\x7f-\x84"
    "\x86-\x9f\u200b\u2060-\u2064\u180e\ufeff]|[\ufe00-\ufe0f]{2}|(?<![^\x00-\u024f])[\u200c\u200d]"
    "|(?:\u00ad[^\u00ad]{0,40}){20}"
)
_PLAIN = re.compile("[\t-\r -~]*")

_POSING = (
    (
        "imitates instructions",
        ("ignor", "disregard", "forget", "overrid", "bypass", "vergiss", "instruction", "prompt", "you are now")
        + ("you must now", "you will now", "do not ", "ai ", "ais ", "llm", "language model", "assistant"),
        r"\b(?:ignor|disregard|forget|overrid|bypass|vergiss)\w*\b[^.\n]{0,40}?"
        r"\b(?:previous|prior|above|earlier|preceding|foregoing|all|your|system|precedenti|vorherigen)\b[^.\n]{0,40}?"
        r"\b(?:instruction|prompt|rule|direction|guideline|message|context|istruzion|anweisung)"
        r"|\bignora\w*\b[^.\n]{0,30}\bistruzioni\b"
        r"|\b(?:new|updated|real|actual|hidden) (?:system )?(?:instructions?|prompt)\s*:"
        r"|\b(?:reveal|print|repeat|output)\b[^.\n]{0,20}\byour (?:system )?(?:prompt|instructions)\b"
        r"|\byou (?:are|must|will) now\b[^.\n]{0,60}?\b(?:ai|assistant|model|mode|unrestricted|jailbroken|dan)\b"
        r"|\bdo not (?:tell|inform|mention|reveal)\b[^.\n]{0,40}\b(?:user|human|person)\b"
        r"|\b(?:ai|llm|language model|assistant)s?\b[^.\n]{0,40}\b(?:must|should|shall) (?:now )?"
        r"(?:call|run|execute|send|forward|reveal|output|reply|ignore)\b",
    ),
    (
        "imitates a role or tool call",
        ("<", "inst]", "system", "assistant", "human", "tool_call", "function_call"),
        r"</?(?:system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_call|function_calls|"
        r"function_results|invoke|im_start|im_end)(?:\s[^<>\n]{0,80})?>"
        r"|<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)[^\n]{0,20}\|>"
        r"|\[/?inst\]|<</?sys>>"
        r"|^[ \t]{0,3}(?:#{1,6} *)?(?:system|assistant|human)(?: prompt| message)? *: *\S"
        r"|\"(?:tool_calls?|function_call)\" *:",
    ),
)
"""Name, words of which one must be in the text before the form is tried, which most texts lack, and the form."""


def signals(*texts: str) -> list[str]:
    """Return what stands out in the texts, each kind once; empty for ordinary ones. About 10 µs for a passage."""
    kinds: dict[str, None] = {}
    for text in (text[:200_000] for text in texts):
        if not _PLAIN.fullmatch(text) and _HIDDEN.search(text):
            kinds["hidden characters"] = None
        lowered = text.lower()
        for name, anchors, form in _POSING:
            # A loop, not any(): this runs 24 times for every hit of every search.
            for anchor in anchors:
                if anchor in lowered:
                    if re.search(form, lowered, re.MULTILINE):
                        kinds[name] = None
                    break
    return list(kinds)
