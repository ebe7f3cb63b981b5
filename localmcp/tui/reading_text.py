"""Documents as lines on the screen: Markdown rendered, other texts as they are, matches marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.strip import Strip

from localmcp.tui.theme import color

MARKDOWN = {
    *"markdown html docx odt rtf epub pptx odp xlsx ods notebook calendar contacts feed org asciidoc tex".split(),
    *("man page", "conversation"),
}
"""Formats whose text is Markdown once it was read; that of others is shown as it is."""
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)", re.MULTILINE)
TARGET_MARK = "▌"


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
    """Turns passages into lines of a width, each once."""

    def __init__(self, theme_variables: Mapping[str, str], text_format: str) -> None:
        accent, muted = (Style.parse(color(theme_variables, name) or "default") for name in ("accent", "muted"))
        bold = Style(bold=True)
        styles = {f"markdown.h{level}": bold + (accent if level < 3 else Style()) for level in range(1, 7)}
        styles |= {"markdown.code": accent, "markdown.link": muted, "markdown.link_url": muted, "markdown.hr": muted}
        styles |= {"markdown.table.header": accent, "markdown.table.border": muted, "markdown.h1.border": muted}
        styles |= {"markdown.block_quote": muted, "markdown.item.bullet": accent, "markdown.item.number": accent}
        self._rendered: dict[tuple[object, ...], list[Line]] = {}
        self._console = Console(width=100, force_terminal=True, theme=Theme(styles), _environ={})
        self._match = accent + Style(bold=True, underline=True)
        self._accent = accent
        self._is_markdown = text_format in MARKDOWN

    def lines(
        self, passages: Sequence[Mapping[str, Any]], width: int, spans: Callable[[str], list[tuple[int, int]]],
        target: str, term: str = "",
    ) -> list[Line]:  # fmt: skip
        """Return every line of these passages, a blank one behind each; `spans` finds what is marked in a line: the
        words of a query, or `term`."""
        lines: list[Line] = []
        fence = ""
        for passage in passages:
            mark = TARGET_MARK if passage["id"] == target else " "
            key = (passage["id"], width, mark, term, fence)
            if key not in self._rendered:
                self._rendered[key] = self._passage(passage, width, mark, fence, spans)
            lines += self._rendered[key]
            fence = _open_fence(str(passage["content"]), fence) if self._is_markdown else ""
        return lines

    def _passage(
        self, passage: Mapping[str, Any], width: int, mark: str, fence: str,
        spans: Callable[[str], list[tuple[int, int]]],
    ) -> list[Line]:  # fmt: skip
        content, position = str(passage["content"]).strip("\n"), int(passage["chunkIndex"])
        if self._is_markdown:
            # A code block that began in an earlier passage goes on in this one.
            texts = self._markdown(f"{fence}\n{content}" if fence else content, width - 2)
        else:
            texts = list(Text(content, overflow="fold").wrap(self._console, width - 2))
        return [*(self._line(text, position, mark, spans) for text in texts), Line(Text(""), position)]

    def _markdown(self, content: str, width: int) -> list[Text]:
        options = self._console.options.update(width=max(width, 20))
        rendered = self._console.render_lines(_Document(content, hyperlinks=False), options, pad=False)
        return [Text.assemble(*((part.text, part.style or "") for part in line)) for line in rendered]

    def _line(self, text: Text, passage: int, mark: str, spans: Callable[[str], list[tuple[int, int]]]) -> Line:
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
