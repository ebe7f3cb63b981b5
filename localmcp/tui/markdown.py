"""Passages as they are read: Markdown as headings, lists and tables, other texts as they are, searched words marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from localmcp.schemas import Json

FORMATS = {
    *"markdown html docx odt rtf epub pptx odp xlsx ods notebook calendar contacts feed org asciidoc tex".split(),
    *("man page", "conversation"),
}
"""Formats whose text is Markdown once it was read; that of others is shown as it is."""
TARGET_MARK = "▌"
_URL = re.compile(r"https?://[^\s<>\"'“”|)\]]+")
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


@cache
def _parser() -> MarkdownIt:
    """Return a parser that takes `[[Note]]` and `[[Note|its text]]` for a link to `wiki:Note`."""
    pattern = re.compile(r"\[\[([^\]|\n]{1,200})(?:\|([^\]\n]{0,200}))?\]\]")

    def parse_wiki_link(state: StateInline, silent: bool) -> bool:
        match = pattern.match(state.src, state.pos)
        if match is None:
            return False
        if not silent:
            state.push("link_open", "a", 1).attrs["href"] = f"wiki:{match[1]}"
            state.push("text", "", 0).content = match[2] or match[1]
            state.push("link_close", "a", -1)
        state.pos = match.end()
        return True

    parser = MarkdownIt().enable("strikethrough").enable("table")
    parser.inline.ruler.before("link", "wiki_link", parse_wiki_link)
    return parser


class _Document(Markdown):
    elements = {
        **Markdown.elements, "heading_open": _LeftHeading, "fence": _PlainCode, "code_block": _PlainCode,
    }  # fmt: skip

    def __init__(self, markup: str) -> None:
        super().__init__("")
        self.parsed = _parser().parse(markup)


class Link(NamedTuple):
    """A link in a line."""

    start: int
    stop: int
    target: str
    """A URL, a path, or `wiki:` and the name of a document."""


@dataclass(slots=True)
class Line:
    """A line on the screen."""

    text: Text
    passage: int
    """The position of its passage in the document."""
    links: Sequence[Link] = ()
    has_match: bool = False


class PassageRenderer:
    """Turns passages into lines of a width. `spans` finds in a line what is marked; `marked` names it."""

    def __init__(self, theme_variables: tuple[tuple[str, str], ...]) -> None:
        # Themes of the terminal's own colors say `ansi_green`.
        colors = {name: value.removeprefix("ansi_") for name, value in theme_variables}
        accent, muted = Style.parse(colors["accent"]), Style.parse(colors["muted"])
        bold = Style(bold=True)
        styles = {f"markdown.h{level}": bold + (accent if level < 3 else Style()) for level in range(1, 7)}
        styles |= dict.fromkeys(("markdown.code", "markdown.table.header", "markdown.item.bullet"), accent)
        styles |= dict.fromkeys(("markdown.hr", "markdown.table.border", "markdown.block_quote"), muted)
        styles |= {"markdown.link_url": Style(underline=True), "markdown.item.number": accent}
        self._rendered: dict[tuple[object, ...], list[Line]] = {}
        self._console = Console(width=100, force_terminal=True, theme=Theme(styles), _environ={})
        self._match, self._accent = accent + Style(bold=True, underline=True), accent

    def lines(self, around: Json, width: int, spans: Spans, marked: str = "") -> list[Line]:
        """Return every line of the `chunks` of a document, a blank one behind each.

        `targetChunkId` is the id of the one with a bar, `format` says which reader made the text.
        """
        lines: list[Line] = []
        fence, is_markdown = "", around["format"] in FORMATS
        for passage in around["chunks"]:
            mark = TARGET_MARK if passage["id"] == around["targetChunkId"] else " "
            key = (passage["id"], width, mark, marked, fence)
            if key not in self._rendered:
                # Drawing Markdown takes 4 ms a passage.
                if len(self._rendered) >= 1000:
                    self._rendered.clear()
                content = str(passage["content"]).strip("\n")
                if is_markdown:
                    # A code block that began in an earlier passage goes on in this one.
                    texts = self.markdown(f"{fence}\n{content}" if fence else content, width - 2)
                else:
                    wrapped = Text(content, overflow="fold").wrap(self._console, width - 2)
                    texts = [(text, list[Link]()) for text in wrapped]
                urls, place = _URL.findall(content), int(passage["chunkIndex"])
                drawn = [self._line(text, place, mark, links, urls, spans) for text, links in texts]
                self._rendered[key] = [*drawn, Line(Text(""), place)]
            lines += self._rendered[key]
            for opening in re.findall(r"(?m)^\s{0,3}(```+|~~~+)", str(passage["content"])) if is_markdown else ():
                fence = "" if fence else opening
        return lines

    def markdown(self, content: str, width: int) -> list[tuple[Text, list[Link]]]:
        """Return the lines of a Markdown text, each with its links, of which the terminal is told nothing."""
        options = self._console.options.update(width=max(width, 20))
        lines: list[tuple[Text, list[Link]]] = []
        for segments in self._console.render_lines(_Document(content), options, pad=False):
            text, links = Text(), list[Link]()
            for words, style, _ in segments:
                if style is not None and style.link:
                    links.append(Link(len(text), len(text) + len(words), style.link))
                text.append(words, style.update_link(None) if style is not None else None)
            lines.append((text, links))
        return lines

    def _line(
        self, text: Text, passage: int, mark: str, links: Sequence[Link], urls: Sequence[str], spans: Spans
    ) -> Line:
        matches, starts = spans(text.plain), {link.start for link in links}
        for start, stop in matches:
            text.stylize(self._match, start, stop)
        # An address that the end of the line cuts is completed.
        bare = (
            Link(match.start(), match.end(), next((url for url in urls if url.startswith(match[0])), match[0]))
            for match in _URL.finditer(text.plain)
            if match.start() not in starts
        )
        shifted = [Link(link.start + 1, link.stop + 1, link.target) for link in (*links, *bare)]
        return Line(Text.assemble((mark, self._accent), text), passage, shifted, bool(matches))

    def strip(self, line: Line, indent: int, link: Link | None = None) -> Strip:
        """Return a line as it is drawn, that many columns from the left; `link` is highlighted."""
        text = Text.assemble(" " * indent, line.text)
        if link is not None:
            text.stylize("reverse", indent + link.start, indent + link.stop)
        return Strip(text.render(self._console, end=""))


_shared_renderer = lru_cache(maxsize=1)(PassageRenderer)


def renderer_of(widget: Widget) -> PassageRenderer:
    """Return what draws passages in the colors of the app that shows a widget."""
    return _shared_renderer(tuple(cast(Any, widget.app).theme_variables.items()))


def passages_content(
    widget: Widget, around: Json, width: int, sentence: str = "", spans: Spans = lambda _: [], marked: str = ""
) -> Content:
    """Return the passages of `look_around` for a reader of that width, with `sentence` bold."""
    text = Text("\n").join(line.text for line in renderer_of(widget).lines(around, width, spans, marked)[:-1])
    # Lines are broken anew, and its marks are gone.
    words = [re.escape(word) for word in re.sub(r"[*_`#|]", " ", sentence).split()]
    if words and (match := re.search(rf"[\s{TARGET_MARK}•│]+".join(words), text.plain)):
        text.stylize("bold", *match.span())
    return Content.from_rich_text(text)
