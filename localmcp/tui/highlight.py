"""Passages as they are drawn: matched words are highlighted, bars show scores."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.content import Content
from textual.css.styles import RulesMap
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from localmcp.humanize import counted, headings_of
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.readers.excerpt import Matcher

MATCH = "bold $accent underline"
HIT_LINES = 3
"""Lines of a hit in a list."""
_BOLD = re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*")
SEARCHED_LINES = 5
"""Lines of a passage, from the sentence that answers on, of which the best is shown."""
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
