"""Quick starts: find one by a few letters, read it, tick off its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from textual.containers import VerticalScroll
from textual.content import Content
from textual.fuzzy import Matcher
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Markdown, OptionList

from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.tui.dialogs import TextScreen, confirm
from localmcp.tui.finder import FinderPane, left_out

MOST_LISTED = 1000
"""Quick starts that are ranked letter by letter; beyond, the search of the catalog finds them."""
EMPTY = """\
### No quick starts yet

Quick starts are short guides: tasks to work through, each with a way to check it.

**i** imports a YAML or JSON file, or a folder of them. From a shell:

    localmcp quickstarts import FOLDER
"""
NOTHING_FITS = "### Nothing fits\n\nOther letters, or **esc** and **F** to see more than the favorites."


@dataclass(frozen=True, slots=True)
class Row:
    """A quick start in the list."""

    item: Mapping[str, Any]
    shown: Content = field(compare=False)
    """Its title with the matched letters marked."""


class QuickstartsPane(FinderPane):
    TITLE, KEY_GROUP = "Quick starts", "quickstarts"
    PLACEHOLDER, LIST_TITLE = "Some letters of a title, or words with typing errors", "Quick starts"
    ABOUT = "Short guides. The list follows what you type: letters in their order, and titles that are spelt nearly so."

    def compose_right(self) -> Iterable[Widget]:
        with VerticalScroll(classes="framed", id="guide") as reading:
            reading.border_title = "Guide"
            yield Markdown(id="guide-text", open_links=False)

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        catalog = self.session.look(lambda w: w.quickstarts.list_quickstarts(limit=MOST_LISTED))
        items = cast("list[Json]", catalog["quickstarts"])
        if not text:
            return [Row(item, Content(item["displayName"])) for item in items]
        rows = ranked(text, items)
        listed = {row.item["name"] for row in rows}
        hits = self.session.draft("searchQuickstarts", displayName=text, limit=20).answer.value["results"]
        by_name = {item["name"]: item for item in items}
        near = [hit for hit in hits if hit["name"] not in listed]
        return rows + [
            Row(by_name.get(hit["name"], hit), Content(hit["displayName"])) for hit in cast("list[Json]", near)
        ]

    def show_answer(self, answer: list[Row]) -> None:
        self.show_rows(answer)

    def identity(self, row: Row) -> Any:
        return row.item["name"]

    def draw(self, row: Row) -> Content:
        item = row.item
        facts = [item.get("type", ""), f"{item['durationMinutes']} min" if item.get("durationMinutes") else ""]
        facts.append(counted(item["tasks"], "task") if item.get("tasks") else "")
        head = Content.assemble("  ", row.shown.stylize("bold"), "\n  ")
        return head + Content.styled(" · ".join(fact for fact in facts if fact), "$muted")

    def show_nothing(self) -> None:
        self.show_guide("Guide", NOTHING_FITS if self.text else EMPTY)

    def show_row(self, row: Row) -> None:
        name = row.item["name"]
        self.ask("guide", lambda: self.session.look(lambda w: w.quickstarts.show(name)), self._show_guide_of)

    def _show_guide_of(self, shown: Any) -> None:
        self.show_guide(shown["displayName"], shown["markdown"])

    def show_guide(self, title: str, markdown: str) -> None:
        """Fill the reading view; it stays where it was while the same guide is shown."""
        view = self.query_one("#guide")
        same = str(view.border_title) == title
        view.border_title = Content(title)
        self.query_one("#guide-text", Markdown).update(markdown)
        if not same:
            view.scroll_home(animate=False)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Enter: read it, on a narrow screen over the whole screen."""
        if not self.is_narrow:
            self.query_one("#guide").focus()
            return
        name = self.chosen.item["name"]

        def show(shown: Any) -> None:
            self.app.push_screen(TextScreen(shown["displayName"], shown["markdown"]))

        self.ask("whole", lambda: self.session.look(lambda w: w.quickstarts.show(name)), show)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "remove":
            return bool(self.rows)
        return super().check_action(action, parameters)

    def _change(self, tool: str, message: str, **arguments: Any) -> None:
        """Call a tool on the highlighted quick start, and show it again."""

        def done(_answer: Any) -> None:
            self.app.notify(message)
            self.reload()

        self.ask("change", lambda: self.session.call(tool, **arguments), done)

    def action_remove(self) -> None:
        if self.chosen is not None:
            name, title = self.chosen.item["name"], self.chosen.item["displayName"]
            more = "Importing it again brings it back."
            change = partial(self._change, "removeQuickstart", "Removed.", names=[name])
            confirm(self, f"Remove “{title}”?", more, "Remove", change)

    def action_import(self) -> None:
        says = "A YAML or JSON file of quick starts, or a folder of them."
        self.import_file("Import quick starts", says, "importQuickstarts", self._imported)

    def _imported(self, report: Json) -> None:
        counts = [f"{report[count]} {count}" for count in ("added", "updated", "unchanged") if report[count]]
        counts += [left_out(report["skipped"])] if report["skipped"] else []
        self.app.notify(", ".join(counts) or "Nothing was found there.")
        self.reload()


def ranked(text: str, items: list[Json]) -> list[Row]:
    """Return the quick starts whose title or tags hold the letters in order, best first, letters marked."""
    matcher = Matcher(text, match_style=Style(bold=True, underline=True, italic=False))
    scored = [
        (matcher.match(item["displayName"]) or 0.5 * max(map(matcher.match, item["tags"]), default=0.0), item)
        for item in items
    ]
    best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [Row(item, matcher.highlight(item["displayName"])) for _, item in best]
