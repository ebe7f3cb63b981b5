"""The reader: a whole document over the screen, with its outline and a search inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
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

from localmcp.index.federation import shown_name
from localmcp.library.inventory import Item
from localmcp.readers.excerpt import Matcher
from localmcp.readers.outline import BEGINNING
from localmcp.schemas import Json
from localmcp.tui.editor import open_in_editor
from localmcp.tui.markdown import Line, PassageRenderer
from localmcp.tui.passages import citation_text, inventory_of, look_around, place_of
from localmcp.tui.theme import variables_of
from localmcp.tui.widgets import Asking, Choices, Quiet, TextLine

DRAWN = 20
"""Passages that are drawn around the one that is meant, and beyond the last one."""
COLUMN = 100
"""Columns of text at most: longer lines are hard to follow."""
LEAD = 3
"""Lines above the one that is shown."""
NEED_TEXT = {"find", "match", "edge", "cite", "copy", "edit"}
"""Keys that wait for the document, which may have been removed meanwhile."""


@dataclass
class NearEdge(Message):
    """The person scrolls towards what is not drawn yet."""

    at_end: bool


class ReadingView(ScrollView, can_focus=True):
    """Lines of text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Quiet("j", "scroll_down", "Down"), Quiet("k", "scroll_up", "Up"), Quiet("space", "page_down", "Page down"),
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

    HELP = "A whole document. The passage that was found has a bar at its left."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back"), Binding("slash", "find", "Find"), Binding("n", "match(1)", "Next"),
        Quiet("N,p", "match(-1)", "Previous match"), Quiet("g,home", "edge(0)", "Beginning", priority=True),
        Quiet("G,end", "edge(-1)", "End", priority=True), Binding("t", "outline", "Outline"),
        Binding("y", "cite", "Cite"), Quiet("Y", "copy", "Copy passage"),
        Binding("o", "edit", "Edit"),
    ]  # fmt: skip
    view = query_one(ReadingView)
    outline = query_one("#outline", Choices)

    def __init__(self, chunk_id: str, matcher: Matcher | None = None, freshness: str = "fresh") -> None:
        super().__init__()
        self.target, self.matcher, self.freshness = chunk_id, matcher, freshness
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
        about = self.session.look(lambda w: look_around(w, self.target, 0))
        look, source_id = self.session.look, about["sourceId"]
        passages: list[Json] = []
        offset: int | None = 0
        while offset is not None:
            page: Any = look(lambda w, offset=offset: w.knowledge.get_document(source_id, offset))
            passages += page["chunks"]
            offset = page.get("nextOffset")
        outline = look(lambda w: w.knowledge.get_document(source_id, outline=True)).get("outline", ())
        return about, passages, [(e["heading"], e["offset"]) for e in outline if e["heading"] != BEGINNING]

    def _show(self, read: tuple[Json, list[Json], list[tuple[str, int]]]) -> None:
        self.about, self.passages, self.headings = read
        self.refresh_bindings()
        self.view.renderer = PassageRenderer(variables_of(self))
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
        """Break the lines anew; the passage at the top stays there."""
        if self._drawn:
            passage = self.view.lines[self._top_line].passage
            self._draw()
            self._show_line(self._lines_of(passage)[0])

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
        lines = view.renderer.lines(passages, width, self.about["format"], self.target, self._spans, self.term)
        view.put(lines, (available - width) // 2)
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
        self._draw(None if position in self._drawn else range(position - DRAWN // 2, position + DRAWN))
        lines = self._lines_of(position)
        matches = [n for n in lines if self.term and self.view.lines[n].has_match]
        self.call_after_refresh(self._show_line, (matches or lines)[0])

    def _show_line(self, line: int) -> None:
        self.view.scroll_to(y=max(line - LEAD, 0), animate=False, force=True)

    # ------------------------------------------------------------ moving

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

    def action_edge(self, place: int) -> None:
        """Go to the beginning (0) or the end (-1) of the document."""
        self._go_to(place % len(self.passages))
        self.call_after_refresh(self.view.scroll_end if place else self.view.scroll_home, animate=False)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in NEED_TEXT and not self._drawn:
            return False
        return self.focused is self.view if action == "edge" else True

    def action_close(self) -> None:
        """Leave the search inside the document; else leave the document."""
        line = self.query_one("#find", Input)
        if self.focused is line or self.term:
            line.value = self.term = ""
            line.add_class("hidden")
            self.view.focus()
            self._draw()
        else:
            self.dismiss()

    def on_screen_suspend(self) -> None:
        """Remember the place."""
        if self._drawn:
            self.session.memory.remember_position(self.about["sourceId"], self._top["chunkIndex"])

    def _with_citation(self, use: Callable[[Json], object]) -> None:
        """Hand over the citation of the passage at the top."""
        chunk_id = self._top["id"]
        look = self.session.look
        self.ask("citation", lambda: look(lambda w: look_around(w, chunk_id, 0)["citation"]), use)

    def action_cite(self) -> None:
        title = self.about["sourceTitle"]
        self._with_citation(lambda citation: self.copy(citation_text(title, citation), "The citation is copied."))

    def action_copy(self) -> None:
        self.copy(self._top["content"], "The passage is copied.")

    def action_edit(self) -> None:
        self._with_citation(lambda citation: open_in_editor(self, citation, self.freshness))


def open_document(widget: Asking, item: Item, origin: str | None = None) -> None:
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
