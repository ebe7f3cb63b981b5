"""Tools: everything that can be called, found as an assistant finds it, with a form to run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import OptionList, Static

from localmcp.schemas import Json
from localmcp.tui.answer_view import AnswerView
from localmcp.tui.dialogs import confirm
from localmcp.tui.finder import FinderPane
from localmcp.tui.highlight import bar
from localmcp.tui.tool_form import ToolForm

if TYPE_CHECKING:
    from localmcp.tools import ToolMark

NOTHING = "[b]No tool fits[/b]\n\n[$muted]Other words; without any, all are listed.[/]"


@dataclass(frozen=True, slots=True)
class Row:
    """A tool in the list."""

    mark: ToolMark
    description: str
    score: float | None = None
    """Of the search; None where all are listed."""


class ToolsPane(FinderPane):
    TITLE, KEY_GROUP = "Tools", "tools"
    PLACEHOLDER, LIST_TITLE = "What should the tool do?", "Tools"
    ABOUT = (
        "Every tool that an assistant may call here: ● those it is shown, ○ those it finds by searching. Type what you "
        "want done and you see what the search gives it, with scores. enter fills in the form, ctrl+r runs the tool, "
        "v turns the answer between table, JSON and text. p shows where tools come from."
    )

    answer_view = query_one(AnswerView)
    _shown = ""

    def compose_right(self) -> Iterable[Widget]:
        with Vertical(id="tool"), VerticalScroll(classes="framed", id="tool-form", can_focus=False):
            yield Static(id="tool-says")
            yield Vertical(id="tool-fields")
            yield Static(id="tool-wrong")
        yield AnswerView(classes="framed", id="answer")

    def on_mount(self) -> None:
        self.answer_view.border_title = "Answer"

    def find(self, text: str) -> list[Row]:
        tools = {
            tool.name: Row(tool.mark, tool.description) for tool in self.session.look(lambda w: w.registry.tools())
        }
        if not text:
            return sorted(tools.values(), key=lambda row: (not row.mark.visible, row.mark.name.lower()))
        hits = self.session.draft("tool_search", query=text, max_results=50).answer.value["tools"]
        return [replace(tools[hit["name"]], score=hit["score"]) for hit in hits if hit["name"] in tools]

    def identity(self, row: Row) -> Any:
        return row.mark.name

    def draw(self, row: Row) -> Content:
        sign = ("● ", "$success") if row.mark.visible else ("○ ", "$muted")
        score = f"  {bar(row.score * 100)} {row.score:.2f}" if row.score is not None else ""
        return Content.assemble(sign, (row.mark.name, "bold"), (score, "$accent"), "\n  ", (row.mark.title, "$muted"))

    def show_nothing(self) -> None:
        self._shown = ""
        self.forget("schema")
        self.query_one("#tool-form").border_title = self.query_one("#tool-form").border_subtitle = ""
        self.query_one("#tool-says", Static).update(Content.from_markup(NOTHING))
        self.query_one("#tool-fields").remove_children()

    def show_row(self, row: Row) -> None:
        name = row.mark.name
        if name == self._shown:
            return
        self._shown = name
        box = self.query_one("#tool-form")
        box.border_title = Content(f"{name} — {row.mark.title}")
        box.border_subtitle = _nature(row.mark)
        self.query_one("#tool-says", Static).update(Content.styled(" ".join(row.description.split()), "$muted"))
        self.ask("schema", lambda: self.session.look(lambda w: w.registry.get(name).input_schema), self._show_form)

    async def _show_form(self, schema: Json) -> None:
        fields = self.query_one("#tool-fields")
        await fields.remove_children()
        await fields.mount(ToolForm(schema))
        self.query_one("#tool-wrong", Static).update("")
        self.answer_view.clear()

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Enter: go into the form, on a narrow screen over the whole screen."""
        if message.option_list is not self.list:
            return
        if self.is_narrow:
            self.toggle_class("-form")
            # The list is hidden; without fields, ctrl+r would reach nobody.
            self.answer_view.focus_view()
        for form in self.query(ToolForm):
            form.focus_first()

    def key_escape(self) -> None:
        """Back from the form to the list."""
        self.remove_class("-form")
        self.list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("view", "copy"):
            return self.answer_view.is_filled if self.is_mounted else False
        return super().check_action(action, parameters)

    def action_run(self) -> None:
        forms = list(self.query(ToolForm))
        if self.chosen is None or not forms:
            return
        mark = self.chosen.mark
        arguments, problems = forms[0].arguments()
        complaint = self.query_one("#tool-wrong", Static)
        complaint.update(Content.styled(f"✗ {'; '.join(problems)}" if problems else "", "$error"))
        if problems:
            complaint.scroll_visible(animate=False)
        elif mark.destructive:
            more = "This tool may take something away."
            confirm(self, f"Run {mark.name}?", more, "Run", lambda: self._run(mark.name, arguments))
        else:
            self._run(mark.name, arguments)

    def _run(self, name: str, arguments: Json) -> None:
        self.answer_view.wait()
        call = partial(self.session.answer, name, **arguments)
        self.ask("run", call, self._show_answer, name, failed=self._show_answer)

    def _show_answer(self, answer: Any) -> None:
        self.answer_view.show(answer)
        if self.answer_view.is_filled:
            self.answer_view.focus_view()
        self.refresh_bindings()

    def action_view(self) -> None:
        self.answer_view.turn()

    def action_copy(self) -> None:
        self.copy(self.answer_view.as_json, "The answer is copied as JSON.")

    def action_providers(self) -> None:
        """Show in the Hub where tools come from."""
        from localmcp.tui.palette import run_in_pane
        from localmcp.tui.panes.hub import PROVIDERS

        self.app.call_later(run_in_pane, self.app, "hub", PROVIDERS)


def _nature(mark: ToolMark) -> str:
    kind = "only reads" if mark.read_only else "may remove things" if mark.destructive else "changes things"
    return f"{kind} · {'shown to assistants' if mark.visible else 'found by searching'}"
