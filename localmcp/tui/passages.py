"""Passages as they are drawn: in the list of results, and the highlighted one with the reasons for its rank."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Static

from localmcp.humanize import counted, headings_of, rank_of, score_parts
from localmcp.schemas import Json
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.readers.excerpt import Matcher

MATCH = "bold $accent underline"
HIT_LINES = 3
"""Lines of a hit in a list."""
_BOLD = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
SEARCHED_LINES = 5
"""Lines of a passage, from the sentence that answers on, of which the best is shown."""
STATES = {"fresh": "as it was read", "changed": "changed since it was read", "missing": "the file is gone"}
FRESHNESS = {"changed": "✎ changed since", "missing": "○ file is gone"}


def matcher_of(result: dict[str, Any], hit: dict[str, Any]) -> Matcher:
    """Return a matcher for the query's words in a hit's language; `result` was made with `explain`."""
    # Stemming takes time that the first paint has not.
    from localmcp.readers.excerpt import Matcher

    searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
    return Matcher(searched, hit["explain"]["language"])


def marked(text: str, matcher: Matcher | None, style: str = "") -> Content:
    """Return `text` with every word that was searched for marked."""
    content = Content.styled(text, style) if style else Content(text)
    for start, stop in matcher.spans(text) if matcher else ():
        content = content.stylize(MATCH, start, stop)
    return content


def marked_passage(text: str, hit: dict[str, Any], matcher: Matcher) -> Content:
    """Return the text of a hit with the searched words marked, and the sentence that answers in bold."""
    content = marked(text, matcher)
    span = hit.get("highlight")
    sentence = hit["content"][span["start"] : span["stop"]] if span else ""
    start = text.find(sentence)
    return content.stylize("bold", start, start + len(sentence)) if sentence and start >= 0 else content


def bar(score: float, width: int = 5) -> str:
    """Return 0..100 as `▰▰▰▱▱`."""
    full = max(0, min(width, round(score / 100 * width)))
    return "▰" * full + "▱" * (width - full)


def hit_lines(number: int, hit: dict[str, Any], matcher: Matcher, columns: int, *, with_title: bool = True) -> Content:
    """Return a hit in three lines of `columns` and a margin: score and title, place, the best line.

    Without the title in two: score and headings, the best line.
    """
    best = best_stretch(_answering_text(hit, columns), matcher, columns)
    text = Content("    ") + marked(best, matcher, "$foreground")
    score = Content.styled(bar(hit["combinedScore"]), "$accent")
    if not with_title:
        where = cut_right(headings_of(hit).removeprefix(" › ") or lines_of(hit["citation"]), columns - 6)
        return Content("\n").join([Content.assemble("    ", score, " ", (where, "$muted")), text])
    titles = _title_and_heading(hit, columns - 6)
    head = Content.assemble((f"{number + 1:>3} ", "$muted"), score, " ", titles)
    fresh = FRESHNESS.get(hit["freshness"], "")
    fresh, copies = (
        f"  {fresh}" if fresh else "",
        f"  +{counted(len(hit['alsoIn']), 'place')}" if "alsoIn" in hit else "",
    )
    place = cut_left(place_of(hit["citation"]), columns - len(fresh) - len(copies))
    origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
    where = Content.assemble(
        "    ", (place, "$secondary"), (copies, "$muted"), (fresh, "$warning"), (origin, "$accent")
    )
    return Content("\n").join([head, where, text])


def lines_of(citation: dict[str, Any]) -> str:
    """Return `line 3`, or `lines 3–7`."""
    first, last = citation["startLine"], citation["endLine"]
    return f"line {first}" if first == last else f"lines {first}–{last}"


@dataclass(frozen=True, slots=True)
class HitLines(Visual):
    """A hit in a list, drawn when its lines come into sight, since most never do, and cut to the width."""

    number: int
    hit: dict[str, Any]
    matcher: Matcher
    with_title: bool = True

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        columns = max(width - 5, 30)
        lines = hit_lines(self.number, self.hit, self.matcher, columns, with_title=self.with_title)
        return lines.render_strips(width, height, style, options)[: self.get_height({}, width)]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return HIT_LINES if self.with_title else HIT_LINES - 1


def _title_and_heading(hit: dict[str, Any], columns: int) -> Content:
    """Return the title, and the innermost heading; where both do not fit, each has half."""
    title = " ".join(hit["sourceTitle"].split())
    heading = headings_of(hit).rpartition(" › ")[2]
    if not heading:
        return Content.styled(title, "bold")
    if cell_len(title) + cell_len(heading) + 3 > columns:
        title = cut_right(title, max(columns - cell_len(heading) - 3, columns // 2))
    return Content.assemble((title, "bold"), (f" › {heading}", "$muted"))


def best_stretch(text: str, matcher: Matcher, columns: int) -> str:
    """Return a text from where a line of `columns` shows most of the searched words.

    It is longer than the line: the list cuts it. Wide characters may push the last words out of sight.
    """
    spans = matcher.spans(text)
    lines = [
        list(takewhile(lambda span, end=first + columns - 2: span[1] <= end, islice(spans, number, None)))
        for number, (first, _) in enumerate(spans)
    ]
    if not lines:
        return text[: columns * 2]
    best = max(lines, key=lambda line: len({text[start:stop].casefold() for start, stop in line}))
    if not best or best[-1][1] <= columns:
        return text[: columns * 2]
    # The rest of the line goes before the first word, which gives it context.
    (first, _), (_, last) = best[0], best[-1]
    lead = max(first - min((columns - (last - first)) // 2, columns // 3), 0)
    start = text.find(" ", lead, first) + 1 or first
    return f"… {text[start : start + columns * 2]}"


def _answering_text(hit: dict[str, Any], columns: int) -> str:
    """Return as much of a passage as a line may show: from the sentence that answers, or its beginning."""
    content = hit["content"]
    start = hit.get("highlight", {}).get("start", 0)
    whole = _running_text(content)
    if not start or len(whole) <= columns:
        return whole[: SEARCHED_LINES * columns]
    return _running_text(content[start : start + SEARCHED_LINES * columns]) or whole


def _running_text(text: str) -> str:
    """Return a passage as one paragraph without headings, rules and bold marks, if anything is left."""
    lines = [_BOLD.sub(r"\1", line.strip().removeprefix("- ")) for line in text.splitlines()]
    shown = (line for line in lines if line[:1] != "#" and line.strip("|:-= "))
    running = " ".join(_cells(line) if line.startswith("|") else line for line in shown)
    return " ".join(running.split()) or " ".join(text.split())


_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def _cells(row: str) -> str:
    """Return a row of a table: `| Flour | 400 g |` as `Flour · 400 g`."""
    cells = (cell.replace("\\|", "|").strip() for cell in _BETWEEN_CELLS.split(row))
    return " · ".join(filter(None, cells))


def cut_right(text: str, columns: int) -> str:
    """Return the beginning of a text that does not fit."""
    return text if cell_len(text) <= columns else text[: max(columns - 1, 1)].rstrip() + "…"


def cut_left(text: str, columns: int) -> str:
    """Return the end of a path that does not fit."""
    return text if cell_len(text) <= columns else "…" + text[-max(columns - 1, 1) :]


def place_of(citation: dict[str, Any]) -> str:
    """Return `docs/lag.md:12`, short where the file is below the working directory or the home folder."""
    label, path = citation["label"], citation.get("path")
    return label if not path else short(path) + label[len(path) :]


def short(path: str) -> str:
    """Return a path in one line: below the working directory without it, below the home folder with `~`."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~" + os.sep)):
        if path.startswith(folder.rstrip(os.sep) + os.sep):
            return visible(sign + path[len(folder.rstrip(os.sep)) + 1 :])
    return visible(path)


def citation_text(title: str, citation: dict[str, Any]) -> str:
    """Return what `y` copies: `Boiler manual › Faults (docs/boiler.md:12)`."""
    headings = [heading for heading in citation.get("heading", "").split(" › ") if heading and heading != title]
    return f"{' › '.join([title, *headings])} ({citation['label']})"


@dataclass(frozen=True, slots=True)
class HitRow:
    """A passage."""

    number: int
    """Its place among the hits."""
    rank: int
    """That of its document, from 0."""
    is_best: bool
    """The first of its document: it has the title."""

    @property
    def id(self) -> str:
        return f"hit-{self.number}"


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """The other passages of a document, folded into one line."""

    numbers: tuple[int, ...]

    @property
    def id(self) -> str:
        return f"more-{self.numbers[0]}"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A search to run again."""

    line: str
    is_saved: bool
    number: int

    @property
    def id(self) -> str:
        return f"query-{self.number}"


Row = HitRow | FoldedRow | QueryRow


def rows_of(hits: Sequence[Json], opened: Collection[str]) -> list[Row]:
    """Return hits by document, in the order of the first hits; all hits of `opened` documents (source ids)."""
    groups: dict[str, list[int]] = {}
    for number, hit in enumerate(hits):
        groups.setdefault(hit["sourceId"], []).append(number)
    rows: list[Row] = []
    for rank, (source_id, numbers) in enumerate(groups.items()):
        rows.append(HitRow(numbers[0], rank, True))
        if source_id in opened:
            rows += [HitRow(number, rank, False) for number in numbers[1:]]
        elif numbers[1:]:
            rows.append(FoldedRow(tuple(numbers[1:])))
    return rows


def query_rows(saved: Sequence[str], recent: Sequence[str]) -> list[Row]:
    """Return saved searches, then the recent ones that are not among them; 30 in all."""
    lines = [*saved, *(line for line in recent if line not in saved)][:30]
    return [QueryRow(line, number < len(saved), number) for number, line in enumerate(lines)]


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
