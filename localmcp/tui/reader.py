"""The reader: a whole document over the screen, loaded while one scrolls, with its outline and a search inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

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
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from localmcp.index.federation import shown_name, split_name
from localmcp.library.inventory import Item
from localmcp.readers.excerpt import Matcher
from localmcp.readers.outline import BEGINNING
from localmcp.schemas import Json
from localmcp.tui.editor import open_in_editor
from localmcp.tui.highlight import citation_text, place_of
from localmcp.tui.keymap import bindings
from localmcp.tui.layout import KeyLine
from localmcp.tui.library_model import inventory_of
from localmcp.tui.pane import Asking, Choices, TextLine
from localmcp.tui.reading_text import Line, PassageRenderer

FIRST_WINDOW, NEXT_WINDOW = 12, 30
"""Passages fetched around the one that is meant, and beyond the last one."""
COLUMN = 100
"""Columns of text at most: longer lines are hard to follow."""
LEAD = 3
"""Lines above the one that is shown."""
MOST_HEADINGS = 2000
NEED_TEXT = {"find", "match", "hit", "edge", "cite", "copy", "path", "open"}
"""Keys that wait for the document, which may have been removed meanwhile."""


@dataclass
class NearEdge(Message):
    """The person scrolls towards what is not loaded yet."""

    at_end: bool


@dataclass(frozen=True, slots=True)
class Heading:
    """A line of the outline, and the passage that holds it."""

    text: str
    passage_id: str


class ReadingView(ScrollView, can_focus=True):
    """Lines of text; only those in sight are drawn."""

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
    ABOUT = "A whole document, loaded while you scroll. The passage that was found has a bar at its left."
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEY_GROUP)
    view = query_one(ReadingView)

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
        self.headings: list[Heading] = []
        self.term = ""
        """The text that is searched for in the document."""
        self._matching: list[tuple[int, str]] = []
        """Of the passages that hold the term, position and id."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="reading-row"):
            yield Choices(classes="framed hidden", id="outline")
            with Vertical():
                yield ReadingView(classes="framed", id="reading")
                yield TextLine(placeholder="Find in this document", classes="framed hidden", id="find")
        yield KeyLine(shows_commands=False)

    def on_mount(self) -> None:
        self.query_one("#outline").border_title = "Outline"
        self._open_at(self.target)
        self.view.focus()

    # ------------------------------------------------------------ loading

    def _open_at(self, chunk_id: str) -> None:
        """Load what is around a passage, and show it near the top."""
        self.target = chunk_id
        self.ask("passages", lambda: self._around(chunk_id, FIRST_WINDOW), self._show_from)

    def _around(self, chunk_id: str, window: int) -> Json:
        around = cast(Json, self.session.look(lambda w: w.knowledge.get_context(chunk_id, window)))
        inventory = inventory_of(self.session.workspace, around.get("origin"))
        source_id = split_name(around["sourceId"])[1]
        return around | {"format": self.session.look(lambda _: inventory.format_of(source_id))}

    def _show_from(self, around: Json) -> None:
        first_time = not self.about
        self.about, self.passages = around, around["chunks"]
        if first_time:
            self.refresh_bindings()
            self.ask("headings", self._read_headings, self._show_headings)
        self._draw()
        self.call_after_refresh(self._scroll_to_target)

    def _scroll_to_target(self) -> None:
        position = next((p["chunkIndex"] for p in self.passages if p["id"] == self.target), 0)
        lines = self._lines_of(position)
        matches = [n for n in lines if self.term and self.view.lines[n].has_match]
        self._show_line((matches or lines or [0])[0])

    def _show_line(self, line: int) -> None:
        self.view.scroll_to(y=max(line - LEAD, 0), animate=False, force=True)

    @on(NearEdge)
    def load_more(self, message: NearEdge) -> None:
        """Fetch what is beyond the first or the last passage."""
        if not self.passages:
            return
        at_end = message.at_end
        edge = self.passages[-1 if at_end else 0]
        if edge["chunkIndex"] != (self.about["chunkTotal"] - 1 if at_end else 0):
            self.ask("more", lambda: self._around(edge["id"], NEXT_WINDOW), lambda around: self._join(around, at_end))

    def _join(self, around: Json, at_end: bool) -> None:
        if not self.passages or around["targetChunkId"] != self.passages[-1 if at_end else 0]["id"]:
            return
        if at_end:
            self.passages = [*self.passages, *(p for p in around["chunks"] if p["relativePosition"] > 0)]
            self._draw()
            return
        before, offset = len(self.view.lines), self.view.scroll_offset.y
        self.passages = [*(p for p in around["chunks"] if p["relativePosition"] < 0), *self.passages]
        self._draw()
        self.view.scroll_to(y=offset + len(self.view.lines) - before, animate=False, force=True)

    # ------------------------------------------------------------ drawing

    def on_resize(self) -> None:
        """Break the lines anew; the text at the top stays there."""
        if self.passages:
            number = self._top_line
            passage = self.view.lines[number].passage
            before = self._lines_of(passage)
            self._draw()
            after = self._lines_of(passage)
            self._show_line(after[(number - before[0]) * len(after) // len(before)])

    def _lines_of(self, position: int) -> list[int]:
        return [n for n, line in enumerate(self.view.lines) if line.passage == position]

    def _draw(self) -> None:
        view = self.view
        if view.renderer is None:
            view.renderer = PassageRenderer(self.app.theme_variables, self.about["format"])
        outline = self.query_one("#outline")
        beside = 0 if outline.has_class("hidden") else outline.outer_size.width
        available = max(self.size.width - 4 - beside, 24)
        width = min(available, COLUMN)
        lines = view.renderer.lines(self.passages, width, self._spans, self.target, self.term)
        view.put(lines, (available - width) // 2)
        view.border_title = Content(f"{self.about['sourceTitle']} — {place_of(self.about['citation'])}")
        first, last = self.passages[0]["chunkIndex"] + 1, self.passages[-1]["chunkIndex"] + 1
        total = self.about["chunkTotal"]
        is_whole = (first, last) == (1, total)
        view.border_subtitle = "whole document" if is_whole else f"passages {first:,}–{last:,} of {total:,}"

    def _spans(self, line: str) -> list[tuple[int, int]]:
        if self.term:
            return [match.span() for match in re.finditer(re.escape(self.term), line, re.IGNORECASE)]
        return self.matcher.spans(line) if self.matcher else []

    @property
    def _top_line(self) -> int:
        return min(round(self.view.scroll_offset.y) + LEAD, len(self.view.lines) - 1)

    @property
    def _top(self) -> Json:
        """The passage at the top of the screen."""
        position = self.view.lines[self._top_line].passage
        return next((p for p in self.passages if p["chunkIndex"] == position), self.passages[0])

    # ------------------------------------------------------------ outline

    def _read_headings(self) -> list[Heading]:
        origin = self.about.get("origin")
        source_id = split_name(self.about["sourceId"])[1]
        inventory = inventory_of(self.session.workspace, origin)
        lines = self.session.look(lambda _: inventory.passages(source_id, limit=MOST_HEADINGS))
        passage_ids = {line.position: shown_name(line.id, origin) for line in lines}
        document = self.session.look(lambda w: w.knowledge.get_document(self.about["sourceId"], outline=True))
        return [
            Heading(entry["heading"], passage_ids[entry["offset"]])
            for entry in document.get("outline", ())
            if entry["heading"] != BEGINNING and entry["offset"] in passage_ids
        ]

    def _show_headings(self, headings: list[Heading]) -> None:
        self.headings = headings
        outline = self.query_one("#outline", Choices)
        outline.set_options(Option(Content(heading.text), id=str(n)) for n, heading in enumerate(headings))
        if len(headings) > 2 and self.size.width >= COLUMN + 30:
            self._show_outline(True)

    def _show_outline(self, is_shown: bool) -> None:
        self.query_one("#outline").set_class(not is_shown, "hidden")
        self.call_after_refresh(self.on_resize)

    def action_outline(self) -> None:
        """Show the outline and go there; from it, back to the text."""
        outline = self.query_one("#outline", Choices)
        if self.focused is outline:
            self.view.focus()
            self._show_outline(False)
        elif self.headings:
            self._show_outline(True)
            outline.focus()

    @on(OptionList.OptionSelected, "#outline")
    def open_heading(self, message: OptionList.OptionSelected) -> None:
        self._go_to(self.headings[int(message.option_id or 0)].passage_id)
        self.view.focus()

    # ------------------------------------------------------------ finding

    def action_find(self) -> None:
        line = self.query_one("#find", Input)
        line.remove_class("hidden")
        line.focus()

    @on(Input.Submitted, "#find")
    def find(self, message: Input.Submitted) -> None:
        """Look for a text in the whole document, loaded or not."""
        message.stop()
        self.term = message.value.strip()
        message.input.set_class(not self.term, "hidden")
        self.view.focus()
        self._draw()
        if self.term:
            self.ask("find", self._passages_with_term, self._show_matching)

    def _passages_with_term(self) -> list[tuple[int, str]]:
        term = self.term.casefold()
        matching: list[tuple[int, str]] = []
        offset: int | None = 0
        while offset is not None:
            page = self._page(offset)
            matching += [(c["chunkIndex"], c["id"]) for c in page["chunks"] if term in c["content"].casefold()]
            offset = page.get("nextOffset")
        return matching

    def _page(self, offset: int) -> Json:
        return cast(Json, self.session.look(lambda w: w.knowledge.get_document(self.about["sourceId"], offset)))

    def _show_matching(self, matching: list[tuple[int, str]]) -> None:
        self._matching = matching
        if not matching:
            self.app.notify(f"“{self.term}” is not in this document.", severity="warning")
            return
        here = self._top["chunkIndex"]
        ahead = [chunk_id for position, chunk_id in matching if position >= here]
        self._go_to((ahead or [matching[0][1]])[0])

    def action_match(self, step: int) -> None:
        """Go to the next or previous line with a match, also where it is not loaded yet."""
        here = round(self.view.scroll_offset.y) + LEAD
        places = [n for n, line in enumerate(self.view.lines) if line.has_match]
        ahead = [n for n in places if (n > here if step > 0 else n < here)]
        if ahead:
            self._show_line(ahead[0] if step > 0 else ahead[-1])
            return
        edge = self.passages[-1 if step > 0 else 0]["chunkIndex"]
        beyond = [c for position, c in self._matching if (position > edge if step > 0 else position < edge)]
        if beyond:
            self._go_to(beyond[0] if step > 0 else beyond[-1])

    def action_hit(self, step: int) -> None:
        """Go to the next passage of this document that the search answered with."""
        if self.hits:
            # From another passage, to the first or the last.
            place = self.hits.index(self.target) if self.target in self.hits else min(-step, 0)
            self._go_to(self.hits[(place + step) % len(self.hits)])

    def action_edge(self, place: int) -> None:
        """Go to the beginning (0) or the end (-1) of the document."""
        position = place % self.about["chunkTotal"]

        def show(chunk_id: str) -> None:
            self._go_to(chunk_id)
            self.call_after_refresh(self.view.scroll_end if place else self.view.scroll_home, animate=False)

        self.ask("edge", lambda: str(self._page(position)["chunks"][0]["id"]), show)

    def _go_to(self, chunk_id: str) -> None:
        if any(passage["id"] == chunk_id for passage in self.passages):
            self.target = chunk_id
            self._draw()
            self._scroll_to_target()
        else:
            self._open_at(chunk_id)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in NEED_TEXT and not self.passages:
            return False
        if action == "edge":
            return self.focused is self.view
        return len(self.hits) > 1 if action == "hit" else True

    def action_close(self) -> None:
        """Leave the search inside the document; else leave the document."""
        line = self.query_one("#find", Input)
        if self.focused is line or self.term:
            line.value, self.term, self._matching = "", "", []
            line.add_class("hidden")
            self.view.focus()
            if self.passages:
                self._draw()
            return
        self.dismiss()

    def on_screen_suspend(self) -> None:
        """Remember the place."""
        if self.passages:
            self.session.memory.remember_position(self.about["sourceId"], self._top["chunkIndex"])

    def _with_citation(self, use: Callable[[Json], object]) -> None:
        """Hand over the citation of the passage at the top."""
        chunk_id = self._top["id"]
        self.ask("citation", lambda: self._around(chunk_id, 0), lambda around: use(around["citation"]))

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
