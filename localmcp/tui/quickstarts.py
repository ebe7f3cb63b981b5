"""Quick starts: find one by a few letters, and read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.fuzzy import Matcher
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Markdown, OptionList

from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.tui.forms import TextScreen, confirm
from localmcp.tui.lists import ListPane, Row, left_out

MOST_LISTED = 1000
"""Quick starts that are ranked letter by letter; beyond, the search of the catalog finds them."""
EMPTY = """\
### No quick starts yet

Quick starts are short guides: tasks to work through, each with a way to check it.

**i** imports a YAML or JSON file, or a folder of them. From a shell:

    localmcp quickstarts import FOLDER
"""
NOTHING_FITS = "### Nothing fits\n\nOther letters, or **esc** and an empty line to see them all."


class QuickstartsPane(ListPane):
    TITLE, KEY_GROUP = "Quick starts", "quickstarts"
    PLACEHOLDER, LIST_TITLE = "Some letters of a title, or words with typing errors", "Quick starts"
    ABOUT = "Short guides. The list follows what you type: letters in their order, and titles that are spelt nearly so."
    NEED_ROW = ("remove",)

    def compose_right(self) -> Iterable[Widget]:
        with VerticalScroll(classes="framed", id="guide") as reading:
            reading.border_title = "Guide"
            yield Markdown(id="guide-text", open_links=False)

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        catalog = self.session.look(lambda w: w.quickstarts.list_quickstarts(limit=MOST_LISTED))
        items = {item["name"]: item for item in cast("list[Json]", catalog["quickstarts"])}
        if not text:
            return [_row(item, Content(item["displayName"])) for item in items.values()]
        rows = ranked(text, list(items.values()))
        listed = {row.key for row in rows}
        hits = self.session.draft("searchQuickstarts", displayName=text, limit=20).answer.value["results"]
        near = [items.get(hit["name"], cast(Json, hit)) for hit in hits if hit["name"] not in listed]
        return rows + [_row(item, Content(item["displayName"])) for item in near]

    def show_nothing(self) -> None:
        self._show_guide("Guide", NOTHING_FITS if self.text else EMPTY)

    def show_row(self, row: Row) -> None:
        self._fetch(row, self._show_guide)

    def _fetch(self, row: Row, show: Callable[[str, str], object]) -> None:
        look = partial(self.session.look, lambda w: w.quickstarts.show(row.key))
        self.ask("guide", look, lambda shown: show(shown["displayName"], shown["markdown"]))

    def _show_guide(self, title: str, markdown: str) -> None:
        """Fill the reading view; it stays where it was while the same guide is shown."""
        view = self.query_one("#guide")
        same = str(view.border_title) == title
        view.border_title = Content(title)
        self.query_one("#guide-text", Markdown).update(markdown)
        if not same:
            view.scroll_home(animate=False)

    @on(OptionList.OptionSelected, "#list")
    def read(self) -> None:
        """Enter: read it, on a narrow screen over the whole screen."""
        if not self.is_narrow:
            self.query_one("#guide").focus()
        elif self.chosen is not None:
            self._fetch(self.chosen, lambda title, text: self.app.push_screen(TextScreen(title, text)))

    def action_remove(self) -> None:
        if (row := self.chosen) is None:
            return

        def remove() -> None:
            self.ask("change", lambda: self.session.call("removeQuickstart", names=[row.key]), removed)

        def removed(_answer: Json) -> None:
            self.app.notify("Removed.")
            self.reload()

        question = f"Remove “{row.record['displayName']}”?"
        confirm(self, question, "Importing it again brings it back.", "Remove", remove)

    def action_import(self) -> None:
        says = "A YAML or JSON file of quick starts, or a folder of them."
        self.import_file("Import quick starts", says, "importQuickstarts", self._imported)

    def _imported(self, report: Json) -> None:
        counts = [f"{report[count]} {count}" for count in ("added", "updated", "unchanged") if report[count]]
        counts += [left_out(report["skipped"])] if report["skipped"] else []
        self.app.notify(", ".join(counts) or "Nothing was found there.")
        self.reload()


def _row(item: Json, title: Content) -> Row:
    facts = [item.get("type", ""), f"{item['durationMinutes']} min" if item.get("durationMinutes") else ""]
    facts.append(counted(item["tasks"], "task") if item.get("tasks") else "")
    head = Content.assemble("  ", title.stylize("bold"), "\n  ")
    return Row(item["name"], head + Content.styled(" · ".join(filter(None, facts)), "$muted"), record=item)


def ranked(text: str, items: list[Json]) -> list[Row]:
    """Return the quick starts whose title or tags hold the letters in order, best first, letters marked."""
    matcher = Matcher(text, match_style=Style(bold=True, underline=True, italic=False))
    scored = [
        (matcher.match(item["displayName"]) or 0.5 * max(map(matcher.match, item["tags"]), default=0.0), item)
        for item in items
    ]
    best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [_row(item, matcher.highlight(item["displayName"])) for _, item in best]
