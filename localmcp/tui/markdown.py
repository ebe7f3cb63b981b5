"""Passages as they are read: Markdown as headings, lists and tables, other texts as they are, searched words marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from localmcp.tui.theme import color, variables_of

if TYPE_CHECKING:
    from localmcp.schemas import Json

FORMATS = {
    *"markdown html docx odt rtf epub pptx odp xlsx ods notebook calendar contacts feed org asciidoc tex".split(),
    *("man page", "conversation"),
}
"""Formats whose text is Markdown once it was read; that of others is shown as it is."""
TARGET_MARK = "▌"
MOST_KEPT = 1000
"""Passages whose lines are remembered: drawing Markdown takes 4 ms each."""
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)", re.MULTILINE)
Spans = Callable[[str], list[tuple[int, int]]]
"""Finds what is marked in a line."""


class _LeftHeading(Heading):
    """A heading at the left: centered ones are hard to scan in a narrow column."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _PlainCode(CodeBlock):
    """Code in one color: what a highlighter chooses may not be readable on every background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip(), style="markdown.code", no_wrap=False)


class _Document(Markdown):
    elements = {
        **Markdown.elements, "heading_open": _LeftHeading, "fence": _PlainCode, "code_block": _PlainCode,
    }  # fmt: skip


@dataclass(slots=True)
class Line:
    """A line on the screen."""

    text: Text
    passage: int
    """The position of its passage in the document."""
    has_match: bool = False


class PassageRenderer:
    """Turns passages into lines of a width."""

    def __init__(self, theme_variables: Mapping[str, str]) -> None:
        accent, muted = (Style.parse(color(theme_variables, name) or "default") for name in ("accent", "muted"))
        bold = Style(bold=True)
        styles = {f"markdown.h{level}": bold + (accent if level < 3 else Style()) for level in range(1, 7)}
        styles |= dict.fromkeys(("markdown.code", "markdown.table.header", "markdown.item.bullet"), accent)
        styles |= dict.fromkeys(("markdown.link", "markdown.link_url", "markdown.hr", "markdown.table.border"), muted)
        styles |= {"markdown.block_quote": muted, "markdown.item.number": accent, "markdown.h1.border": muted}
        self._rendered: dict[tuple[object, ...], list[Line]] = {}
        self._console = Console(width=100, force_terminal=True, theme=Theme(styles), _environ={})
        self._match, self._accent = accent + Style(bold=True, underline=True), accent

    def lines(
        self,
        passages: Sequence[Json],
        width: int,
        text_format: str,
        target: str,
        spans: Spans,
        marked: str,
    ) -> list[Line]:
        """Return every line of these passages, a blank one behind each; `target` is the id of the one with a bar.

        `marked` names what `spans` finds.
        """
        lines: list[Line] = []
        fence = ""
        for passage in passages:
            mark = TARGET_MARK if passage["id"] == target else " "
            key = (passage["id"], width, mark, marked, fence)
            if key not in self._rendered:
                if len(self._rendered) >= MOST_KEPT:
                    self._rendered.clear()
                self._rendered[key] = self._passage(passage, width, mark, fence, text_format in FORMATS, spans)
            lines += self._rendered[key]
            fence = _open_fence(str(passage["content"]), fence) if text_format in FORMATS else ""
        return lines

    def _passage(self, passage: Json, width: int, mark: str, fence: str, is_markdown: bool, spans: Spans) -> list[Line]:
        content, position = str(passage["content"]).strip("\n"), int(passage["chunkIndex"])
        if is_markdown:
            # A code block that began in an earlier passage goes on in this one.
            texts = self.markdown(f"{fence}\n{content}" if fence else content, width - 2)
        else:
            texts = list(Text(content, overflow="fold").wrap(self._console, width - 2))
        return [*(self._line(text, position, mark, spans) for text in texts), Line(Text(""), position)]

    def markdown(self, content: str, width: int) -> list[Text]:
        """Return the lines of a Markdown text."""
        options = self._console.options.update(width=max(width, 20))
        rendered = self._console.render_lines(_Document(content, hyperlinks=False), options, pad=False)
        return [Text.assemble(*((part.text, part.style or "") for part in line)) for line in rendered]

    def _line(self, text: Text, passage: int, mark: str, spans: Spans) -> Line:
        matches = spans(text.plain)
        for start, stop in matches:
            text.stylize(self._match, start, stop)
        return Line(Text.assemble((mark, self._accent), text), passage, bool(matches))

    def strip(self, line: Line, indent: int) -> Strip:
        """Return a line as it is drawn, that many columns from the left."""
        return Strip(Text.assemble(" " * indent, line.text).render(self._console, end=""))


def _open_fence(content: str, fence: str) -> str:
    """Return the mark of the code block that is open at the end of a passage; empty if none is."""
    for mark in _FENCE.findall(content):
        fence = "" if fence else mark
    return fence


@lru_cache(maxsize=1)
def _shared_renderer(theme_variables: tuple[tuple[str, str], ...]) -> PassageRenderer:
    return PassageRenderer(dict(theme_variables))


def _renderer_of(widget: Widget) -> PassageRenderer:
    return _shared_renderer(tuple(variables_of(widget).items()))


def markdown_content(widget: Widget, text: str, width: int) -> Content:
    """Return a Markdown text for a reader of that width."""
    return Content.from_rich_text(Text("\n").join(_renderer_of(widget).markdown(text, width)))


def passages_content(widget: Widget, around: Json, sentence: str, spans: Spans, marked: str, width: int) -> Content:
    """Return the passages of `look_around` for a reader of that width, with `sentence` bold."""
    target = around["targetChunkId"]
    lines = _renderer_of(widget).lines(around["chunks"], width, around["format"], target, spans, marked)
    text = Text("\n").join(line.text for line in lines[:-1])
    # Lines are broken anew, and its marks are gone.
    words = [re.escape(word) for word in re.sub(r"[*_`#|]", " ", sentence).split()]
    if words and (match := re.search(rf"[\s{TARGET_MARK}•│]+".join(words), text.plain)):
        text.stylize("bold", *match.span())
    return Content.from_rich_text(text)
