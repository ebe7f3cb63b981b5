"""The passage that is highlighted, among its neighbors, with the reasons why it was found below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localmcp.tui.explanation import explanation_of
from localmcp.tui.highlight import headings_of, lines_of, marked_passage

if TYPE_CHECKING:
    from localmcp.text.excerpt import Matcher

Json = dict[str, Any]


class PassageView(Vertical):
    """A frame with text, and one with reasons that can be hidden."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="framed", id="preview", can_focus=True):
            yield Static(id="passage")
        yield Static(classes="framed", id="explain")

    def on_mount(self) -> None:
        self.query_one("#explain").border_title = "Why this passage"

    def focus_text(self) -> None:
        """Put the focus on the text, which arrows scroll."""
        self.query_one("#preview").focus()

    def show(self, text: Content, title: str = "", below: str = "") -> None:
        """Fill the frame."""
        preview = self.query_one("#preview")
        preview.border_title = Content(title or "Passage")
        preview.border_subtitle = Content(below)
        self.query_one("#passage", Static).update(text)
        preview.scroll_home(animate=False)

    def show_markup(self, markup: str) -> None:
        """Fill the frame with words of the program."""
        self.show(Content.from_markup(markup))

    def show_hit(self, hit: Json, around: Json, matcher: Matcher) -> None:
        """Show a passage with those before and after it; `around` is an answer of `get_context`."""
        parts = [
            marked_passage(chunk["content"].strip("\n"), hit, matcher) if chunk["isTarget"]
            else Content.styled(chunk["content"].strip("\n"), "$muted")
            for chunk in around["chunks"]
        ]  # fmt: skip
        citation = hit["citation"]
        self.show(
            Content("\n\n").join(parts),
            f"{hit['sourceTitle']}{headings_of(hit)}",
            f"{hit['collection']} · passage {hit['chunkIndex'] + 1} of {hit['chunkTotal']} · {lines_of(citation)}",
        )
        # One line of what is before it stays in sight.
        width = max(self.query_one("#passage").size.width, 20)
        earlier = sum(chunk["relativePosition"] < 0 for chunk in around["chunks"])
        before = sum(len(part.wrap(width)) + 1 for part in parts[:earlier])
        # The frame can be scrolled that far once the text is in it.
        scroll = self.query_one("#preview").scroll_to
        self.call_after_refresh(scroll, y=max(before - 2, 0), animate=False)

    def toggle_reasons(self) -> None:
        """Show the reasons, or hide them."""
        self.query_one("#explain").toggle_class("-on")

    def show_reasons(self, result: Json, hit: Json | None) -> None:
        """Explain a hit, where reasons are shown."""
        explain = self.query_one("#explain", Static)
        if explain.has_class("-on"):
            explain.update(explanation_of(result, hit) if hit else Content(""))
