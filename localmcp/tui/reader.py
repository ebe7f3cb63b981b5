"""Reading on around a passage, over the whole screen."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from localmcp.text.excerpt import Matcher
from localmcp.tui.highlight import citation_text, marked, place_of
from localmcp.tui.keymap import bindings
from localmcp.tui.pane import Asking

Json = dict[str, Any]
FIRST_WINDOW, WIDEST = 3, 50
"""Passages before and after the one that is meant."""


class ReadingView(VerticalScroll):
    """The text; arrows scroll it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("j", "scroll_down"), ("k", "scroll_up"), ("g", "scroll_home"), ("G", "scroll_end"), ("space", "page_down"),
    ]  # fmt: skip


class ReaderScreen(Screen[None], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A passage and what stands around it."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("reader")

    def __init__(self, chunk_id: str, matcher: Matcher | None = None, freshness: str = "fresh") -> None:
        super().__init__()
        self.chunk_id = chunk_id
        self.matcher = matcher
        self.freshness = freshness
        self.window = FIRST_WINDOW
        self.around: Json = {}
        self._match_lines: list[int] = []
        self._target_line = 0

    def compose(self) -> ComposeResult:
        with ReadingView(classes="framed", id="reading"):
            yield Static(id="text")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._fetch()
        self.query_one(ReadingView).focus()

    def _fetch(self) -> None:
        self.ask("around", self._read, self._show)

    def _read(self) -> Json:
        return cast(
            Json, self.session.look(lambda workspace: workspace.knowledge.get_context(self.chunk_id, self.window))
        )

    def _show(self, around: Json) -> None:
        self.around = around
        self._draw()
        self.call_after_refresh(lambda: self.view.scroll_to(y=max(self._target_line - 3, 0), animate=False))

    @property
    def view(self) -> ReadingView:
        return self.query_one(ReadingView)

    def on_resize(self) -> None:
        if self.around:
            self._draw()

    def _draw(self) -> None:
        """Wrap the text here, so that the line of every match is known."""
        width = max(min(self.size.width - 6, 110), 20)
        lines: list[Content] = []
        self._match_lines = []
        for chunk in self.around["chunks"]:
            text = marked(chunk["content"].strip("\n"), self.matcher)
            wrapped = text.wrap(width)
            if chunk["isTarget"]:
                self._target_line = len(lines)
                wrapped = [Content.styled("▌", "$accent") + line for line in wrapped]
            else:
                wrapped = [Content(" ") + line for line in wrapped]
            self._match_lines += [len(lines) + n for n, line in enumerate(wrapped) if _has_match(line)]
            lines += [*wrapped, Content("")]
        self.query_one("#text", Static).update(Content("\n").join(lines))
        view = self.view
        view.border_title = Content(f"{self.around['sourceTitle']} — {place_of(self.around['citation'])}")
        shown, total = self.around["chunksRetrieved"], self.around["chunkTotal"]
        view.border_subtitle = "whole document" if shown == total else f"{shown} of {total} passages"

    # ------------------------------------------------------------ actions

    def action_close(self) -> None:
        self.dismiss()

    def action_wider(self) -> None:
        """Show twice as much around the passage."""
        self.window = min(self.window * 2, WIDEST)
        self._fetch()

    def action_match(self, step: int) -> None:
        """Go to the next or previous line that holds a word of the query."""
        here = round(self.view.scroll_offset.y) + 3
        ahead = [y for y in self._match_lines if (y > here if step > 0 else y < here)]
        if ahead:
            self.view.scroll_to(y=max((ahead[0] if step > 0 else ahead[-1]) - 3, 0), animate=False)

    def action_cite(self) -> None:
        self.app.copy_to_clipboard(citation_text(self.around["sourceTitle"], self.around["citation"]))
        self.app.notify("The citation is copied.")

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.around["concatenatedContent"])
        self.app.notify("The text is copied.")

    def action_open(self) -> None:
        from localmcp.tui.editor import open_in_editor

        open_in_editor(self, self.around["citation"], self.freshness)


def _has_match(line: Content) -> bool:
    return any("underline" in str(span.style) for span in line.spans)
