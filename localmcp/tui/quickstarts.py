"""Quick starts: find one by words of its title, and read it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.tui.commands import Command, call_tool, form_of, start
from localmcp.tui.dialogs import PATH
from localmcp.tui.markdown import markdown_content
from localmcp.tui.pane import Pane, Row
from localmcp.tui.rules import left_out

EMPTY = (
    "[b]No quick starts yet[/b]\n\n"
    "Quick starts are short guides: tasks to work through, each with a way to check it.\n\n"
    "[b]i[/b]  import a YAML or JSON file, or a folder of them\n\n"
    "[$muted]from a shell: localmcp quickstarts import FOLDER[/]"
)


class QuickstartsPane(Pane):
    LIST_TITLE = "Quick starts"
    PLACEHOLDER = "Words of a title; typing errors are forgiven"
    NEED_ROW = ("remove",)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "import", "Import"), Binding("d", "remove", "Remove")]
    HELP = "Short guides. The list follows what you type, as an assistant finds them, typing errors and all."

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        items: list[Json] = self.session.read("listQuickstarts", limit=1000)["quickstarts"]
        if text:
            by_name = {item["name"]: item for item in items}
            hits: list[Json] = self.session.read("searchQuickstarts", displayName=text, limit=50)["results"]
            items = [by_name.get(hit["name"], hit) for hit in hits]
        rows: list[Row] = []
        for item in items:
            about = [item.get("type", ""), f"{item['durationMinutes']} min" if item.get("durationMinutes") else ""]
            about.append(counted(item["tasks"], "task") if item.get("tasks") else "")
            says = (" · ".join(filter(None, about)), "$muted")
            title = Content.assemble("  ", (item["displayName"], "bold"), "\n  ", says)
            rows.append(Row(item["name"], title, record=item))
        return rows

    def nothing(self) -> str:
        return "[b]Nothing fits[/b]" if self.text else EMPTY

    def show_row(self, row: Row) -> None:
        def show(guide: Json) -> None:
            self.reader.show(guide["displayName"], partial(markdown_content, self, guide["markdown"]))

        self.ask("guide", lambda: self.session.read("showQuickstart", name=row.key), show)

    def action_remove(self) -> None:
        if row := self.chosen:
            title = f"Remove “{row.record['displayName']}”"
            remove = partial(call_tool, "removeQuickstart", names=[row.key])
            start(self, Command(title, "", remove, warning="It goes into the trash."), self._done)

    def action_import(self) -> None:
        form = form_of(path={**PATH, "description": "A YAML or JSON file of quick starts, or a folder of them"})
        start(self, Command("Import quick starts", "", partial(call_tool, "importQuickstarts"), form=form), self._done)

    def _done(self, report: Json) -> None:
        counts = [f"{report[count]} {count}" for count in ("added", "updated", "unchanged") if report.get(count)]
        problems = left_out(report) if "skipped" in report else ""
        self.app.notify((", ".join(counts) or "Done") + problems)
        self.reload()
