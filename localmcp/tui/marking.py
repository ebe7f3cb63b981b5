"""Passages as they are drawn: the words that were searched for stand out, bars show scores."""

from __future__ import annotations

import os
from typing import Any

from rich.cells import cell_len
from textual.content import Content

from localmcp.text.excerpt import Matcher, excerpt

MATCH = "bold $accent underline"
FOUND_BY = {"both": "words and meaning", "keyword_only": "words", "semantic_only": "meaning"}
FRESHNESS = {"changed": "✎ changed since", "missing": "○ file is gone"}


def matcher_of(result: dict[str, Any], hit: dict[str, Any]) -> Matcher:
    """Recognises the query's words in a hit's language; `result` must have been asked for with `explain`."""
    searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
    return Matcher(searched, hit["explain"]["language"])


def marked(text: str, matcher: Matcher | None, style: str = "") -> Content:
    """`text` with every word that was searched for marked."""
    content = Content.styled(text, style) if style else Content(text)
    for start, stop in matcher.spans(text) if matcher else ():
        content = content.stylize(MATCH, start, stop)
    return content


def bar(score: float, width: int = 5) -> str:
    """0..100 as `▰▰▰▱▱`."""
    full = max(0, min(width, round(score / 100 * width)))
    return "▰" * full + "▱" * (width - full)


def hit_lines(number: int, hit: dict[str, Any], matcher: Matcher, room: int) -> Content:
    """A hit in three lines of at most `room` and a margin: score and title, place, the line that fits best."""
    titles = _title_and_heading(hit, room - 6)
    head = Content.assemble(
        (f"{number + 1:>3} ", "$foreground 45%"), (bar(hit["combinedScore"]), "$accent"), " ", titles
    )
    fresh = FRESHNESS.get(hit["freshness"], "")
    place = cut_left(place_of(hit["citation"]), room - (len(fresh) + 2 if fresh else 0))
    origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
    where = Content.assemble(
        "    ", (place, "$secondary"), (f"  {fresh}" if fresh else "", "$warning"), (origin, "$accent")
    )
    # Two lines in one: the list cuts what does not fit.
    best = " ".join(excerpt(_running_text(hit["content"]), matcher, room, 2))
    return Content("\n").join([head, where, Content("    ") + marked(best, matcher, "$foreground 80%")])


def _title_and_heading(hit: dict[str, Any], room: int) -> Content:
    """The title, and the innermost heading; where both do not fit, each has half."""
    title = hit["sourceTitle"]
    heading = headings_of(hit).rpartition(" › ")[2]
    if not heading:
        return Content.styled(title, "bold")
    if cell_len(title) + cell_len(heading) + 3 > room:
        title = cut_right(title, max(room - cell_len(heading) - 3, room // 2))
    return Content.assemble((title, "bold"), (f" › {heading}", "$foreground 60%"))


def _running_text(text: str) -> str:
    """A passage without its headings, as one paragraph; a passage of nothing else as it is."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return " ".join(" ".join(lines).split()) or " ".join(text.split())


def cut_right(text: str, room: int) -> str:
    """The beginning of a text that does not fit."""
    return text if cell_len(text) <= room else text[: max(room - 1, 1)].rstrip() + "…"


def cut_left(text: str, room: int) -> str:
    """The end of a path that does not fit."""
    return text if cell_len(text) <= room else "…" + text[-max(room - 1, 1) :]


def place_of(citation: dict[str, Any]) -> str:
    """`docs/lag.md:12`, short where the file lies below the working directory or the home folder."""
    label, path = citation["label"], citation.get("path")
    return label if not path else short(path) + label[len(path) :]


def short(path: str) -> str:
    """A path below the working directory without it, one below the home folder with `~`."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~" + os.sep)):
        if path.startswith(folder.rstrip(os.sep) + os.sep):
            return sign + path[len(folder.rstrip(os.sep)) + 1 :]
    return path


def headings_of(hit: dict[str, Any]) -> str:
    """The headings above a passage, without the first where it is the title."""
    headings = hit["citation"].get("heading", "").split(" › ")
    return "".join(f" › {each}" for each in headings[headings[0] == hit["sourceTitle"] :] if each)


def citation_text(title: str, citation: dict[str, Any]) -> str:
    """What `y` copies: `Boiler manual › Faults (docs/boiler.md:12)`."""
    headings = [each for each in citation.get("heading", "").split(" › ") if each and each != title]
    return f"{' › '.join([title, *headings])} ({citation['label']})"
