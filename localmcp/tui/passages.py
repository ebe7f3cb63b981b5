"""Passages as they are drawn in a list, and the reasons for their rank."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.content import Content

from localmcp.humanize import counted, headings_of, rank_of, score_parts
from localmcp.schemas import Json
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.inventory import Inventory
    from localmcp.readers.excerpt import Matcher
    from localmcp.storage.database import Database
    from localmcp.workspace import Workspace

MATCH = "bold $accent underline"
FRESHNESS = {"fresh": "as it was read", "changed": "✎ changed since", "missing": "○ file is gone"}
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def matcher_of(result: Json, hit: Json) -> Matcher:
    """Return a matcher for the query's words in a hit's language; `result` was made with `explain`."""
    # Stemming takes time that the first paint has not.
    from localmcp.readers.excerpt import Matcher

    searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
    return Matcher(searched, hit["explain"]["language"])


def look_around(workspace: Workspace, chunk_id: str, window: int) -> Json:
    """Return the answer of `get_context` with the `format` of the document: which reader made its text."""
    from localmcp.index.federation import split_name

    around: Any = workspace.knowledge.get_context(chunk_id, window)
    inventory = inventory_of(workspace, around.get("origin"))
    return {**around, "format": inventory.format_of(split_name(around["sourceId"])[1])}


def inventory_of(workspace: Workspace, origin: str | None) -> Inventory:
    """Return the inventory of a mounted file, or yours for None.

    Raises:
        NotFound: it is no longer mounted.
    """
    from localmcp.library.inventory import Inventory

    return workspace.inventory if origin is None else Inventory(database_of(workspace, origin))


def database_of(workspace: Workspace, origin: str | None) -> Database:
    """Return a mounted file, or yours for None; raises as `inventory_of`."""
    if origin is None:
        return workspace.database
    from localmcp.index.federation import Wanted

    return next(workspace.federation.look(lambda index, _: index.database, origin, Wanted()))


# ---------------------------------------------------------------- lines of a list


def hit_title(number: int, hit: Json, matcher: Matcher, columns: int) -> Content:
    """Return a hit in three lines: its number, score and title, its place, and the line that answers."""
    heading = headings_of(hit).rpartition(" › ")[2]
    title = " ".join(hit["sourceTitle"].split())
    if heading and cell_len(title) + cell_len(heading) + 12 > columns:
        title = cut(title, max(columns - cell_len(heading) - 12, columns // 2))
    head = Content.assemble((f"{number + 1:>3} ", "$muted"), (bar(hit["combinedScore"]), "$accent"), " ",
                            (title, "bold"), (f" › {heading}" if heading else "", "$muted"))  # fmt: skip
    copies = f"  +{counted(len(hit['alsoIn']), 'place')}" if "alsoIn" in hit else ""
    fresh = f"  {FRESHNESS[hit['freshness']]}" if hit["freshness"] in ("changed", "missing") else ""
    origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
    place = cut_middle(place_of(hit["citation"]), columns - 4 - len(copies) - len(fresh) - len(origin))
    where = Content.assemble(
        "    ", (place, "$secondary"), (copies, "$muted"), (fresh, "$warning"), (origin, "$accent")
    )
    return Content("\n").join([head, where, _answer(hit, matcher, columns - 4)])


def further_title(hit: Json, matcher: Matcher, columns: int) -> Content:
    """Return a further hit of the document above it, in two lines."""
    where = headings_of(hit).rpartition(" › ")[2] or lines_of(hit["citation"])
    head = Content.assemble("    ", (bar(hit["combinedScore"]), "$accent"), " ", (where, "$muted"))
    return Content("\n").join([head, _answer(hit, matcher, columns - 4)])


def _answer(hit: Json, matcher: Matcher, columns: int) -> Content:
    text = Content.styled(answering_line(hit, matcher, columns), "$foreground")
    for start, stop in matcher.spans(text.plain):
        text = text.stylize(MATCH, start, stop)
    return Content("    ") + text


def answering_line(hit: Json, matcher: Matcher, columns: int) -> str:
    """Return a passage from the sentence that answers on, or from a word that was searched for further on."""
    start = hit.get("highlight", {}).get("start", 0)
    text = running_text(hit["content"][start:]) or running_text(hit["content"])
    spans = matcher.spans(text[: 10 * columns])
    if spans and spans[0][1] > columns:
        first = text.find(" ", max(spans[0][0] - columns // 3, 0), spans[0][0]) + 1 or spans[0][0]
        text = f"… {text[first:]}"
    return text[: 2 * columns]


def running_text(text: str) -> str:
    """Return a passage as one paragraph without headings, rules and marks, if anything is left.

    Of a table, `| Flour | 400 g |` is `Flour · 400 g`.
    """
    shown = [line.strip() for line in text.splitlines() if line[:1] != "#" and line.strip("|:-= ")]
    for number, line in enumerate(shown):
        if line.endswith("|"):
            cells = (cell.replace("\\|", "|").strip() for cell in _BETWEEN_CELLS.split(line))
            shown[number] = " · ".join(filter(None, cells))
    words = " ".join(line.removeprefix("- ") for line in shown)
    return " ".join(words.replace("**", "").split()) or " ".join(text.split())


# ---------------------------------------------------------------- pieces


def bar(score: float, width: int = 5) -> str:
    """Return 0..100 as `▰▰▰▱▱`."""
    full = max(0, min(width, round(score / 100 * width)))
    return "▰" * full + "▱" * (width - full)


def cut(text: str, columns: int) -> str:
    """Return the beginning of a text that does not fit."""
    return Content(text).truncate(max(columns, 2), ellipsis=True).plain


def cut_middle(text: str, columns: int) -> str:
    """Return both ends of a path that does not fit."""
    ends = max(columns - 1, 2)
    return text if cell_len(text) <= columns else f"{text[: ends // 3]}…{text[ends // 3 - ends :]}"


def lines_of(citation: Json) -> str:
    """Return `line 3`, or `lines 3–7`."""
    first, last = citation["startLine"], citation["endLine"]
    return f"line {first}" if first == last else f"lines {first}–{last}"


def place_of(citation: Json) -> str:
    """Return `docs/lag.md:12`, short where the file is below the working directory or the home folder."""
    path = citation.get("path")
    if not path:
        return visible(citation["label"])
    # Headings behind the line are in the title.
    return short(path) + citation["label"][len(path) :].partition(" › ")[0]


def short(path: str) -> str:
    """Return a path in one line: below the working directory without it, below the home folder with `~`."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~" + os.sep)):
        if path.startswith(folder.rstrip(os.sep) + os.sep):
            return visible(sign + path[len(folder.rstrip(os.sep)) + 1 :])
    return visible(path)


def citation_text(title: str, citation: Json) -> str:
    """Return what `y` copies: `Boiler manual › Faults (docs/boiler.md:12)`."""
    headings = [heading for heading in citation.get("heading", "").split(" › ") if heading and heading != title]
    return f"{' › '.join([title, *headings])} ({citation['label']})"


# ---------------------------------------------------------------- why


def explanation_of(result: Json, hit: Json) -> Content:
    """Return the scores of a hit, the words that were searched for, and why others were not."""
    arms, query = hit["explain"], result["explain"]
    meaning, words, parts = arms["semantic"], arms["keyword"], score_parts(hit)
    formula = " + ".join(f"{part.weight:.2g} × {part.points:.1f} {part.name}" for part in parts)
    if len(parts) == 1:
        formula = f"by {parts[0].name} alone"
    searched = [f"{term['word']} in {counted(term['chunks'], 'passage')}" for term in query["terms"]]
    rows = {
        "score": f"{hit['combinedScore']:.1f} = {formula}",
        "meaning": f"{rank_of(meaning)}   cosine {meaning['raw']:.3f}",
        "words": f"{rank_of(words)}   bm25 {words['raw']:.2f}   matched: {', '.join(arms['matchedWords']) or 'none'}",
        "searched": " · ".join(searched) or "no words",
        "left out": ", ".join(f"{dropped['word']} ({dropped['reason']})" for dropped in query["dropped"]),
        "repaired": ", ".join(f"{repair['word']} → {repair['replacement']}" for repair in result.get("repairs", ())),
        "notices": " ".join(result.get("notices", ())),
        "file": FRESHNESS.get(hit["freshness"], "not a file of this machine"),
    }
    lines = [Content.assemble((f"{name:<9} ", "$muted"), value) for name, value in rows.items() if value]
    return Content("\n").join(lines)
