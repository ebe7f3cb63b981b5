"""Passages as they are drawn in a list, and the reasons for their rank."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.content import Content

from localmcp.humanize import counted, headings_of
from localmcp.schemas import Json
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.lists import Inventory
    from localmcp.storage.database import Database
    from localmcp.workspace import Workspace

FRESHNESS = {"fresh": "as it was read", "changed": "✎ changed since", "missing": "○ file is gone"}


class Matcher:
    """Recognizes the words of a query in a text of one language, as the keyword index does."""

    def __init__(self, result: Json, hit: Json) -> None:
        """The words are those of a search with `explain`, the language is that of one of its hits."""
        searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
        self._searched = {part for phrase in searched for part in phrase.split()}
        self._language = hit["explain"]["language"]
        self._stems_by_run: dict[str, set[str]] = {}

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, stop) of each word that was searched for."""
        # Stemming takes time that the first paint has not.
        from localmcp.wording.normalize import stem, words

        spans: list[tuple[int, int]] = []
        for run in re.finditer(r"\w+", text):
            if run[0] not in self._stems_by_run:
                self._stems_by_run[run[0]] = {stem(word, self._language) for word in words(run[0])} & self._searched
            spans += [run.span()] if self._stems_by_run[run[0]] else []
        return spans


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
    from localmcp.library.lists import Inventory

    return workspace.inventory if origin is None else Inventory(database_of(workspace, origin))


def database_of(workspace: Workspace, origin: str | None) -> Database:
    """Return a mounted file, or yours for None; raises as `inventory_of`."""
    if origin is None:
        return workspace.database
    from localmcp.index.federation import Wanted

    return next(workspace.federation.look(lambda index, _: index.database, origin, Wanted()))


# ---------------------------------------------------------------- lines of a list


def hit_title(number: int | None, hit: Json, matcher: Matcher, columns: int) -> Content:
    """Return a hit in three lines: its number, score and title, its place, and the line that answers.

    Without a number it is a further hit of the document above it, in two lines.
    """
    heading, score = headings_of(hit).rpartition(" › ")[2], (bar(hit["combinedScore"]), "$accent")
    if number is None:
        shown = [Content.assemble("    ", score, " ", (heading or lines_of(hit["citation"]), "$muted"))]
    else:
        title = " ".join(hit["sourceTitle"].split())
        if heading and cell_len(title) + cell_len(heading) + 12 > columns:
            title = cut(title, max(columns - cell_len(heading) - 12, columns // 2))
        copies = f"  +{counted(len(hit['alsoIn']), 'place')}" if "alsoIn" in hit else ""
        fresh = f"  {FRESHNESS[hit['freshness']]}" if hit["freshness"] in ("changed", "missing") else ""
        origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
        place, space = place_of(hit["citation"]), columns - 4 - len(copies) - len(fresh) - len(origin)
        if cell_len(place) > space:
            # Both ends of a path say more than its beginning.
            ends = max(space - 1, 2)
            place = f"{place[: ends // 3]}…{place[ends // 3 - ends :]}"
        shown = [
            Content.assemble((f"{number:>3} ", "$muted"), score, " ", (title, "bold"),
                             (f" › {heading}" if heading else "", "$muted")),
            Content.assemble("    ", (place, "$secondary"), (copies, "$muted"), (fresh, "$warning"),
                             (origin, "$accent")),
        ]  # fmt: skip
    # From the sentence that answers on, or from a word that was searched for further on.
    columns -= 4
    start = hit.get("highlight", {}).get("start", 0)
    text = running_text(hit["content"][start:]) or running_text(hit["content"])
    spans = matcher.spans(text[: 10 * columns])
    if spans and spans[0][1] > columns:
        first = text.find(" ", max(spans[0][0] - columns // 3, 0), spans[0][0]) + 1 or spans[0][0]
        text = f"… {text[first:]}"
    answer = Content.styled(text[: 2 * columns], "$foreground")
    for start, stop in matcher.spans(answer.plain):
        answer = answer.stylize("bold $accent underline", start, stop)
    return Content("\n").join([*shown, Content("    ") + answer])


def running_text(text: str) -> str:
    """Return a passage as one paragraph without headings, rules and marks, if anything is left.

    Of a table, `| Flour | 400 g |` is `Flour · 400 g`.
    """
    shown = [line.strip() for line in text.splitlines() if line[:1] != "#" and line.strip("|:-= ")]
    for number, line in enumerate(shown):
        if line.endswith("|"):
            cells = (cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line))
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
