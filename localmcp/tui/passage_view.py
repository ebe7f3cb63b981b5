"""The highlighted passage among its neighbors, and below it why it ranks where it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localmcp.humanize import counted, headings_of, rank_of, score_parts
from localmcp.schemas import Json
from localmcp.tui.highlight import lines_of, marked_passage, short
from localmcp.tui.search_filters import STATES

if TYPE_CHECKING:
    from localmcp.readers.excerpt import Matcher


class PassageView(Vertical):
    """A box with text, and one with reasons that can be hidden."""

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
        """Show a text from its beginning."""
        preview = self.query_one("#preview")
        preview.border_title = Content(title or "Passage")
        preview.border_subtitle = Content(below)
        self.query_one("#passage", Static).update(text)
        preview.scroll_home(animate=False)

    def show_markup(self, markup: str) -> None:
        """Show markup of the program itself."""
        self.show(Content.from_markup(markup))

    def show_hit(self, hit: Json, around: Json, matcher: Matcher) -> None:
        """Show a passage with those before and after it; `around` is an answer of `get_context`."""
        parts = [
            marked_passage(chunk["content"].strip("\n"), hit, matcher) + _copies(hit) if chunk["isTarget"]
            else Content.styled(chunk["content"].strip("\n"), "$muted")
            for chunk in around["chunks"]
        ]  # fmt: skip
        citation = hit["citation"]
        self.show(
            Content("\n\n").join(parts),
            f"{hit['sourceTitle']}{headings_of(hit)}",
            f"{hit['collection']} · passage {hit['chunkIndex'] + 1:,} of {hit['chunkTotal']:,} · {lines_of(citation)}",
        )
        # One line of the passage before it stays in sight.
        width = max(self.query_one("#passage").size.width, 20)
        earlier = sum(chunk["relativePosition"] < 0 for chunk in around["chunks"])
        before = sum(len(part.wrap(width)) + 1 for part in parts[:earlier])
        # The box can be scrolled that far once the text is in it.
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


def _copies(hit: Json) -> Content:
    """Return where else the same passage is, as a line below it."""
    places = ", ".join(map(short, hit.get("alsoIn", ())))
    return Content.styled(f"\n\nalso in {places}", "$secondary") if places else Content("")


def explanation_of(result: Json, hit: Json) -> Content:
    """Return the scores of a hit, the words that were searched for, and why others were not."""
    arms, query = hit["explain"], result["explain"]
    meaning, words = arms["semantic"], arms["keyword"]
    rows = {
        "score": _formula(hit),
        "meaning": f"{rank_of(meaning)}   cosine {meaning['raw']:.3f}",
        "words": f"{rank_of(words)}   bm25 {words['raw']:.2f}   matched: {', '.join(arms['matchedWords']) or 'none'}",
        "searched": " · ".join(_term(term) for term in query["terms"]) or "no words",
        "left out": ", ".join(f"{dropped['word']} ({dropped['reason']})" for dropped in query["dropped"]),
        "repaired": ", ".join(f"{repair['word']} → {repair['replacement']}" for repair in result.get("repairs", ())),
        "notices": " ".join(result.get("notices", ())),
        "file": STATES.get(hit["freshness"], "not a file of this machine"),
    }
    lines = [
        Content.assemble((f"{name:<9} ", "$muted"), value if name != "score" else (value, "bold"))
        for name, value in rows.items()
        if value
    ]
    return Content("\n").join(lines)


def _formula(hit: Json) -> str:
    """Return the sum that makes the score; with one arm alone, that arm."""
    score, parts = hit["combinedScore"], score_parts(hit)
    if len(parts) == 1:
        return f"{score:.1f} by {parts[0].name} alone"
    return f"{score:.1f} = {' + '.join(f'{part.weight:.2g} × {part.points:.1f} {part.name}' for part in parts)}"


def _term(term: Json) -> str:
    return f"{term['word']} in {counted(term['chunks'], 'passage')}"
