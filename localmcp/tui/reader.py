"""The reader: a whole document over the screen, with its outline and a search inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.getters import query_one
from textual.message import Message
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Input, OptionList
from textual.widgets.option_list import Option

from localmcp.index.federation import shown_name, split_name
from localmcp.library.inventory import Item
from localmcp.readers.excerpt import Matcher
from localmcp.readers.outline import BEGINNING
from localmcp.schemas import Json
from localmcp.tui.editor import open_in_editor
from localmcp.tui.keymap import bindings
from localmcp.tui.library_rows import inventory_of
from localmcp.tui.pane import Asking, Choices, TextLine
from localmcp.tui.passages import citation_text, place_of
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


DRAWN = 20
"""Passages that are drawn around the one that is meant, and beyond the last one: drawing Markdown takes 4 ms each."""
COLUMN = 100
"""Columns of text at most: longer lines are hard to follow."""
LEAD = 3
"""Lines above the one that is shown."""
NEED_TEXT = {"find", "match", "hit", "edge", "cite", "copy", "path", "open"}
"""Keys that wait for the document, which may have been removed meanwhile."""


@dataclass
class NearEdge(Message):
    """The person scrolls towards what is not drawn yet."""

    at_end: bool


class ReadingView(ScrollView, can_focus=True):
    """Lines of text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down"), ("k", "scroll_up"), ("space", "page_down"),
    ]  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lines: list[Line] = []
        self.renderer: PassageRenderer | None = None
        self.indent = 0

    def put(self, lines: list[Line], indent: int) -> None:
        """Replace the text."""
        self.lines, self.indent = lines, indent
        self.virtual_size = Size(max(self.size.width - 1, 1), len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_offset.y)
        width, style = self.size.width, self.rich_style
        if self.renderer is None or number >= len(self.lines):
            return Strip.blank(width, style)
        strip = self.renderer.strip(self.lines[number], self.indent)
        return strip.adjust_cell_length(width).apply_style(style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value > old_value and new_value + 3 * self.size.height > len(self.lines):
            self.post_message(NearEdge(True))
        elif new_value < old_value and new_value < 2 * self.size.height:
            self.post_message(NearEdge(False))


class ReaderScreen(Screen[None], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A document, from one of its passages on."""

    TITLE, KEY_GROUP = "Reader", "reader"
    ABOUT = "A whole document. The passage that was found has a bar at its left."
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEY_GROUP)
    view = query_one(ReadingView)
    outline = query_one("#outline", Choices)

    def __init__(
        self, chunk_id: str, matcher: Matcher | None = None, freshness: str = "fresh", *, hits: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`hits`: ids of the document's passages that a search answered with, in their order."""
        super().__init__()
        self.target = chunk_id
        self.matcher = matcher
        self.freshness = freshness
        self.hits = list(hits)
        self.about: Json = {}
        self.passages: list[Json] = []
        self.headings: list[tuple[str, int]] = []
        """The lines of the outline, each with the position of the passage that holds it."""
        self.term = ""
        """The text that is searched for in the document."""
        self._drawn = range(0)
        """Positions of the passages that are drawn."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="reading-row"):
            yield Choices(classes="framed hidden", id="outline")
            with Vertical():
                yield ReadingView(classes="framed", id="reading")
                yield TextLine(placeholder="Find in this document", classes="framed hidden", id="find")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.outline.border_title = "Outline"
        self.ask("passages", self._read, self._show)
        self.view.focus()

    # ------------------------------------------------------------ loading

    def _read(self) -> tuple[Json, list[Json], list[tuple[str, int]]]:
        """Return the document, its passages and its headings."""
        about = self._around(self.target)
        source_id, inventory = about["sourceId"], inventory_of(self.session.workspace, about.get("origin"))
        about["format"] = self.session.look(lambda _: inventory.format_of(split_name(source_id)[1]))
        passages: list[Json] = []
        offset: int | None = 0
        while offset is not None:
            look = self.session.look
            page = cast(Json, look(lambda w, offset=offset: w.knowledge.get_document(source_id, offset)))
            passages += page["chunks"]
            offset = page.get("nextOffset")
        outline = self.session.look(lambda w: w.knowledge.get_document(source_id, outline=True)).get("outline", ())
        return about, passages, [(e["heading"], e["offset"]) for e in outline if e["heading"] != BEGINNING]

    def _around(self, chunk_id: str) -> Json:
        return cast(Json, self.session.look(lambda w: w.knowledge.get_context(chunk_id, 0)))

    def _show(self, read: tuple[Json, list[Json], list[tuple[str, int]]]) -> None:
        self.about, self.passages, self.headings = read
        self.refresh_bindings()
        self.view.renderer = PassageRenderer(self.app.theme_variables, self.about["format"])
        self.outline.set_options(Option(Content(text), id=str(n)) for n, (text, _) in enumerate(self.headings))
        if len(self.headings) > 2 and self.size.width >= COLUMN + 30:
            self.outline.remove_class("hidden")
        # The width of the text is known after the outline has its place.
        self.call_after_refresh(self._go_to, self._position_of(self.target))

    def _position_of(self, chunk_id: str) -> int:
        return next((n for n, passage in enumerate(self.passages) if passage["id"] == chunk_id), 0)

    # ------------------------------------------------------------ drawing

    @on(NearEdge)
    def draw_more(self, message: NearEdge) -> None:
        """Draw what is beyond the first or the last passage."""
        first, last = self._drawn.start, self._drawn.stop
        if message.at_end and last < len(self.passages):
            self._draw(range(first, last + DRAWN))
        elif not message.at_end and first > 0:
            before, offset = len(self.view.lines), self.view.scroll_offset.y
            self._draw(range(first - DRAWN, last))
            self.view.scroll_to(y=offset + len(self.view.lines) - before, animate=False, force=True)

    def on_resize(self) -> None:
        """Break the lines anew; the text at the top stays there."""
        if self._drawn:
            number = self._top_line
            passage = self.view.lines[number].passage
            before = self._lines_of(passage)
            self._draw()
            after = self._lines_of(passage)
            self._show_line(after[(number - before[0]) * len(after) // len(before)])

    def _draw(self, drawn: range | None = None) -> None:
        """Draw those passages; None = the same ones again."""
        view, drawn = self.view, self._drawn if drawn is None else drawn
        self._drawn = drawn = range(max(drawn.start, 0), min(drawn.stop, len(self.passages)))
        if view.renderer is None:
            return
        beside = 0 if self.outline.has_class("hidden") else self.outline.outer_size.width
        available = max(self.size.width - 4 - beside, 24)
        width = min(available, COLUMN)
        passages = self.passages[drawn.start : drawn.stop]
        view.put(view.renderer.lines(passages, width, self._spans, self.target, self.term), (available - width) // 2)
        view.border_title = Content(f"{self.about['sourceTitle']} — {place_of(self.about['citation'])}")
        view.border_subtitle = f"whole document, {len(self.passages):,} passages"

    def _spans(self, line: str) -> list[tuple[int, int]]:
        if self.term:
            return [match.span() for match in re.finditer(re.escape(self.term), line, re.IGNORECASE)]
        return self.matcher.spans(line) if self.matcher else []

    def _lines_of(self, position: int) -> list[int]:
        return [n for n, line in enumerate(self.view.lines) if line.passage == position]

    @property
    def _top_line(self) -> int:
        return min(round(self.view.scroll_offset.y) + LEAD, len(self.view.lines) - 1)

    @property
    def _top(self) -> Json:
        """The passage at the top of the screen."""
        return self.passages[self.view.lines[self._top_line].passage]

    def _go_to(self, position: int) -> None:
        """Make a passage the one that is meant, draw it, and show it near the top, at its first match if it has one."""
        if not self.passages:
            return
        self.target = self.passages[position]["id"]
        around = range(position - DRAWN // 2, position + DRAWN)
        self._draw(None if position in self._drawn else around)
        lines = self._lines_of(position)
        matches = [n for n in lines if self.term and self.view.lines[n].has_match]
        self.call_after_refresh(self._show_line, (matches or lines)[0])

    def _show_line(self, line: int) -> None:
        self.view.scroll_to(y=max(line - LEAD, 0), animate=False, force=True)

    # ------------------------------------------------------------ outline

    def action_outline(self) -> None:
        """Show the outline and go there; from it, back to the text."""
        if self.focused is self.outline:
            self.view.focus()
            self.outline.add_class("hidden")
        elif self.headings:
            self.outline.remove_class("hidden")
            self.outline.focus()
        self.call_after_refresh(self.on_resize)

    @on(OptionList.OptionSelected, "#outline")
    def open_heading(self, message: OptionList.OptionSelected) -> None:
        self._go_to(self.headings[int(message.option_id or 0)][1])
        self.view.focus()

    # ------------------------------------------------------------ finding

    def action_find(self) -> None:
        line = self.query_one("#find", Input)
        line.remove_class("hidden")
        line.focus()

    @on(Input.Submitted, "#find")
    def find(self, message: Input.Submitted) -> None:
        """Look for a text in the whole document, from the top of the screen on."""
        message.stop()
        self.term = message.value.strip()
        message.input.set_class(not self.term, "hidden")
        self.view.focus()
        self._draw()
        if self.term and not self._go_to_match(self._top["chunkIndex"], 1) and not self._go_to_match(0, 1):
            self.app.notify(f"“{self.term}” is not in this document.", severity="warning")

    def _go_to_match(self, position: int, step: int) -> bool:
        """Go to the next passage from a position on that holds the term; return whether there is one."""
        term = self.term.casefold()
        places = range(position, len(self.passages)) if step > 0 else range(position, -1, -1)
        found = next((n for n in places if term in self.passages[n]["content"].casefold()), None)
        if found is not None:
            self._go_to(found)
        return found is not None

    def action_match(self, step: int) -> None:
        """Go to the next or previous line with a match."""
        here = round(self.view.scroll_offset.y) + LEAD
        places = [n for n, line in enumerate(self.view.lines) if line.has_match]
        ahead = [n for n in places if (n > here if step > 0 else n < here)]
        if ahead:
            self._show_line(ahead[0] if step > 0 else ahead[-1])
        elif self.term:
            self._go_to_match(self._drawn.stop if step > 0 else self._drawn.start - 1, step)

    def action_hit(self, step: int) -> None:
        """Go to the next passage of this document that the search answered with."""
        # From another passage, to the first or the last.
        place = self.hits.index(self.target) if self.target in self.hits else min(-step, 0)
        self._go_to(self._position_of(self.hits[(place + step) % len(self.hits)]))

    def action_edge(self, place: int) -> None:
        """Go to the beginning (0) or the end (-1) of the document."""
        self._go_to(place % len(self.passages))
        self.call_after_refresh(self.view.scroll_end if place else self.view.scroll_home, animate=False)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in NEED_TEXT and not self._drawn:
            return False
        if action == "edge":
            return self.focused is self.view
        return len(self.hits) > 1 if action == "hit" else True

    def action_close(self) -> None:
        """Leave the search inside the document; else leave the document."""
        line = self.query_one("#find", Input)
        if self.focused is line or self.term:
            line.value = self.term = ""
            line.add_class("hidden")
            self.view.focus()
            self._draw()
            return
        self.dismiss()

    def on_screen_suspend(self) -> None:
        """Remember the place."""
        if self._drawn:
            self.session.memory.remember_position(self.about["sourceId"], self._top["chunkIndex"])

    def _with_citation(self, use: Callable[[Json], object]) -> None:
        """Hand over the citation of the passage at the top."""
        chunk_id = self._top["id"]
        self.ask("citation", lambda: self._around(chunk_id), lambda around: use(around["citation"]))

    def action_cite(self) -> None:
        title = self.about["sourceTitle"]
        self._with_citation(lambda citation: self.copy(citation_text(title, citation), "The citation is copied."))

    def action_copy(self) -> None:
        self.copy(self._top["content"], "The passage is copied.")

    def action_path(self) -> None:
        self.copy(self.about["citation"].get("path") or self.about["sourceTitle"], "The path is copied.")

    def action_open(self) -> None:
        self._with_citation(lambda citation: open_in_editor(self, citation, self.freshness))


def open_document(widget: Asking, item: Item, origin: str | None) -> None:
    """Open a document where it was left, or at its beginning. `origin`: the mounted file that it is in."""
    session = widget.session

    def first_passage() -> str:
        position = session.memory.positions.get(shown_name(item.id, origin), 0)
        inventory = inventory_of(session.workspace, origin)
        passages = inventory.passages(item.id, limit=1, offset=position) or inventory.passages(item.id, limit=1)
        return shown_name(passages[0].id, origin) if passages else ""

    def show(chunk_id: str) -> None:
        if chunk_id:
            widget.app.push_screen(ReaderScreen(chunk_id, None, item.state))
        else:
            widget.app.notify(f"{item.title} has no text.")

    widget.ask("document", first_passage, show)
