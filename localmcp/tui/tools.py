"""Tools: everything that can be called, found as an assistant finds it, with a form to run it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import OptionList, Static

from localmcp.schemas import Json
from localmcp.tui.answers import AnswerView
from localmcp.tui.forms import ToolForm, confirm
from localmcp.tui.lists import ListPane, Row
from localmcp.tui.passages import bar

if TYPE_CHECKING:
    from localmcp.tools import Tool, ToolMark

NOTHING = "[b]No tool fits[/b]\n\n[$muted]Other words; without any, all are listed.[/]"


class ToolsPane(ListPane):
    TITLE, KEY_GROUP = "Tools", "tools"
    PLACEHOLDER, LIST_TITLE = "What should the tool do?", "Tools"
    ABOUT = (
        "Every tool that an assistant may call here: ● those it is shown, ○ those it finds by searching. Type what you "
        "want done and you see what the search gives it, with scores. enter fills in the form, ctrl+r runs the tool, "
        "v turns the answer between table, JSON and text. p turns to the assistants that call them and the servers "
        "that bring them."
    )
    NEED_ROW = ()

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
        tools = {tool.name: tool for tool in self.session.look(lambda w: w.registry.tools())}
        if not text:
            listed = sorted(tools.values(), key=lambda tool: (not tool.mark.visible, tool.name.lower()))
            return [_row(tool) for tool in listed]
        hits = self.session.draft("tool_search", query=text, max_results=50).answer.value["tools"]
        return [_row(tools[hit["name"]], hit["score"]) for hit in hits if hit["name"] in tools]

    def show_nothing(self) -> None:
        self._shown = ""
        self.forget("schema")
        self.query_one("#tool-form").border_title = self.query_one("#tool-form").border_subtitle = ""
        self.query_one("#tool-says", Static).update(Content.from_markup(NOTHING))
        self.query_one("#tool-fields").remove_children()

    def show_row(self, row: Row) -> None:
        name, mark = row.key, row.record
        if name == self._shown:
            return
        self._shown = name
        box = self.query_one("#tool-form")
        box.border_title = Content(f"{name} — {mark.title}")
        box.border_subtitle = _nature(mark)
        self.query_one("#tool-says", Static).update(row.about)
        self.ask("schema", lambda: self.session.look(lambda w: w.registry.get(name).input_schema), self._show_form)

    async def _show_form(self, schema: Json) -> None:
        fields = self.query_one("#tool-fields")
        await fields.remove_children()
        await fields.mount(ToolForm(schema))
        self.query_one("#tool-wrong", Static).update("")
        self.answer_view.clear()

    @on(OptionList.OptionSelected, "#list")
    def open_form(self) -> None:
        """Enter: go into the form, on a narrow screen over the whole screen."""
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
        mark: ToolMark = self.chosen.record
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


def _row(tool: Tool, score: float | None = None) -> Row:
    """Return a tool in the list; `score`: of the search."""
    mark = tool.mark
    sign = ("● ", "$success") if mark.visible else ("○ ", "$muted")
    scored = f"  {bar(score * 100)} {score:.2f}" if score is not None else ""
    title = Content.assemble(sign, (mark.name, "bold"), (scored, "$accent"), "\n  ", (mark.title, "$muted"))
    return Row(mark.name, title, Content.styled(" ".join(tool.description.split()), "$muted"), record=mark)


def _nature(mark: ToolMark) -> str:
    kind = "only reads" if mark.read_only else "may remove things" if mark.destructive else "changes things"
    return f"{kind} · {'shown to assistants' if mark.visible else 'found by searching'}"
