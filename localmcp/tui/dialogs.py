"""Screens above the panes: a text, a question, a list to choose from, a form made from any JSON Schema."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Footer, Input, Label, OptionList, Select, Static, TextArea

from localmcp.humanize import field_label
from localmcp.schemas import Json, followed, list_of, mapping_of, one_or_more
from localmcp.tui.widgets import Asking, Choices, TextLine, list_option, visible_value
from localmcp.visible_text import visible

T = TypeVar("T")

UNASKED_SECONDS = 1.0
"""Ignore keys for this long after an unprompted dialog opens."""


class TextScreen(ModalScreen[None]):
    """Something to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,x", "dismiss", "Close"), Binding("y", "copy", "Copy"),
    ]  # fmt: skip

    def __init__(self, title: str, text: Content) -> None:
        super().__init__()
        self._title, self._text = title, visible_value(text)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(visible(self._title)), "y copy · esc close"
            yield Static(self._text)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._text.plain)
        self.app.notify("Copied.")


Choice = tuple[str, str] | Content | str
"""A row to choose, of which a pair is words and a note; a plain text is a heading."""


class ChoiceScreen(ModalScreen[int]):
    """A list to choose from; the answer is the number of the row."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]
    SAYS = "enter chooses · esc back"
    ignores_keys_until = 0.0
    """By the monotonic clock."""

    def __init__(self, title: str, rows: Sequence[Choice], above: Content | None = None) -> None:
        super().__init__()
        self._title, self._rows, self._above = title, rows, above

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), self.SAYS
            if self._above is not None:
                with VerticalScroll(classes="above", can_focus=False):
                    yield Static(self._above)
            shown = (
                Content.assemble((f" {row[0]}  ", "bold"), (row[1], "$muted")) if isinstance(row, tuple) else row
                for row in self._rows
            )
            yield Choices(*(list_option(row, str(number)) for number, row in enumerate(shown)))

    @on(OptionList.OptionSelected)
    def chosen(self, message: OptionList.OptionSelected) -> None:
        self.action_answer(int(message.option_id or 0))

    def action_answer(self, number: int) -> None:
        if time.monotonic() >= self.ignores_keys_until:
            self.dismiss(number)


class ConfirmScreen(ChoiceScreen):
    """No (0) or yes (1) before something is taken away; `no` is highlighted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(1)", "Yes"), Binding("n,escape", "answer(0)", "No"),
    ]  # fmt: skip
    SAYS = "y yes · n no"


def ask_screen(widget: Widget | App[Any], screen: Screen[T], then: Callable[[T], object]) -> None:
    """Show a screen, and do `then` with its answer, if it has one."""

    def answered(answer: T | None) -> None:
        if answer is not None:
            then(answer)

    cast("App[Any]", widget.app).push_screen(screen, answered)


def choose(
    widget: Widget, title: str, rows: Sequence[Choice], then: Callable[[int], object], above: Content | None = None
) -> None:
    """Show a list to choose from, and do `then` with the number of the row."""
    ask_screen(widget, ChoiceScreen(title, rows, above), then)


def confirm(
    widget: Widget | App[Any], question: str, more: str, yes: str, then: Callable[[], object], *, unasked: bool = False
) -> None:
    """Ask, and call `then` on yes; an `unasked` question ignores keys at first, which were meant for the pane."""
    above = Content.assemble((visible(question), "bold"), visible(f"\n\n{more}", newlines=True))
    screen = ConfirmScreen("", [Content(" No"), Content.styled(f" {yes}", "$error")], above)
    screen.ignores_keys_until = time.monotonic() + UNASKED_SECONDS if unasked else 0.0
    ask_screen(widget, screen, lambda number: then() if number else None)


# ---------------------------------------------------------------- forms

PATH = {"type": "string", "format": "path", "title": "File or folder"}
"""The schema of a file or folder that is there: the field completes it."""
TEXTS = ("text", "content", "rule_text", "instruction", "context", "taskDescription", "quote", "sql")
"""Names of properties that hold running text: they get several lines."""
HINTS = {
    "list": "one item a line", "json": "JSON", "integer": "a whole number", "number": "a number", "path": "~/notes",
}  # fmt: skip
EMPTIED: Mapping[str, Any] = {"string": "", "text": "", "list": [], "boolean": False}
"""Kind of field -> its value once a person has emptied it; others are left as they are."""


@dataclass(frozen=True, slots=True)
class Field:
    """One property of a schema."""

    name: str
    label: str
    """What a person reads instead of the name."""
    kind: str
    """choice, boolean, integer, number, string, path, text, list (one item a line) or json."""
    required: bool
    says: str
    default: Any
    choices: tuple[Any, ...] = ()


def fields_of(schema: Any) -> list[Field]:
    """Return the fields of an object schema, required ones first."""
    table = mapping_of(schema)
    required, fields = list_of(table.get("required")), list[Field]()
    for name, described in mapping_of(table.get("properties")).items():
        spec = _resolve(described, table)
        kinds = [kind for kind in one_or_more(spec.get("type")) if kind != "null"]
        kind, choices = kinds[0] if len(kinds) == 1 else "json", tuple(list_of(spec.get("enum")))
        if not choices:
            options = [spec, *map(mapping_of, list_of(spec.get("anyOf") or spec.get("oneOf")))]
            choices = tuple(option["const"] for option in options if "const" in option)
        if choices:
            kind = "choice"
        elif kind == "array":
            kind = "list" if _resolve(spec.get("items"), table).get("type") == "string" else "json"
        elif kind == "string":
            kind = "text" if name in TEXTS else "path" if spec.get("format") == "path" else "string"
        elif kind not in ("boolean", "integer", "number"):
            kind = "json"
        title, says = spec.get("title"), str(spec.get("description") or "")
        words = field_label(name)
        label = title if isinstance(title, str) and 0 < len(title) <= 18 else words[:1].upper() + words[1:]
        # A second name of a property is for language models.
        if not says.startswith("Another name for"):
            fields.append(Field(name, label, kind, name in required, says, spec.get("default"), choices))
    return sorted(fields, key=lambda field: not field.required)


def _resolve(spec: Any, root: Json) -> Json:
    """Follow `$ref` inside the schema, and take the null out of `anyOf`."""
    table = {**followed(spec, root), **mapping_of(spec)}
    options = [*list_of(table.get("anyOf")), *list_of(table.get("oneOf"))]
    not_null = [option for option in options if mapping_of(option).get("type") != "null"]
    return {**table, **followed(not_null[0], root)} if len(not_null) == 1 else table


# ---------------------------------------------------------------- the screen


class FormScreen(ModalScreen[Any], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Fields of a schema; the answer is what `save` returns for the arguments, whose errors are shown.

    With `values`, a thing is changed: a field that is emptied is handed over as empty, because a tool keeps what is
    left out.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "run", "Save, run"), Binding("escape", "dismiss", "Cancel"),
    ]  # fmt: skip

    def __init__(
        self, title: str, schema: Json, save: Callable[[Json], Any], values: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.fields, self._values = fields_of(schema), values or {}
        self._title, self._save = title, save

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog form", can_focus=False) as box:
            box.border_title = Content(self._title)
            if not self.fields:
                yield Static(Content.styled("It takes no arguments.", "$muted"))
            for number, field in enumerate(self.fields):
                with Horizontal(classes="field"):
                    mark = Content.styled(" *", "$error") if field.required else Content("  ")
                    yield Label(Content(field.label) + mark, classes="name")
                    yield _widget(field, self._values.get(field.name, field.default), f"field-{number}")
                if field.says:
                    yield Static(Content(field.says), classes="says")
            yield Static(id="wrong")
        yield Footer(show_command_palette=False, compact=True)

    @on(Input.Submitted)
    def action_run(self) -> None:
        """Save the arguments without empty fields; say of every field that cannot be used why not."""
        if self.is_asking("save"):
            return
        arguments: Json = {}
        problems: list[str] = []
        for number, field in enumerate(self.fields):
            try:
                value = _value(field, self.query_one(f"#field-{number}"))
            except ValueError as error:
                problems.append(f"{field.label}: {error}")
                continue
            if value is None and self._values.get(field.name):
                value = EMPTIED.get(field.kind)
            if value is not None:
                arguments[field.name] = value
            elif field.required:
                problems.append(f"{field.label}: required")
        self._complain("; ".join(problems))
        if not problems:
            # The person can correct in the form what is wrong.
            work = lambda: self._save(arguments)  # noqa: E731
            self.ask("save", work, lambda answer: self.dismiss(answer) and None, lambda e: self._complain(str(e)))

    def _complain(self, problem: str) -> None:
        line = self.query_one("#wrong", Static)
        line.update(Content.styled(f"✗ {problem}" if problem else "", "$error"))
        if problem:
            self.call_after_refresh(line.scroll_visible, animate=False)


def _widget(field: Field, value: Any, identity: str) -> Widget:
    hint = HINTS.get(field.kind, "")
    if field.kind in ("choice", "boolean"):
        names, choices = {True: "yes", False: "no"}, field.choices or (True, False)
        # A plain text would be markup.
        options = [(Text(names[c] if isinstance(c, bool) else str(c)), c) for c in choices]
        initial = {"value": value} if value in choices else {}
        return Select(options, prompt="(not given)", allow_blank=True, id=identity, compact=True, **initial)
    if field.kind in ("text", "list", "json"):
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
        if field.kind == "list" and isinstance(value, list | tuple):
            text = "\n".join(map(str, cast("list[Any]", value)))
        area = TextArea(text, id=identity, compact=True, placeholder=hint, tab_behavior="focus")
        area.cursor_blink = False
        return area
    suggester = PathSuggester(use_cache=False, case_sensitive=True) if field.kind == "path" else None
    text = "" if value is None else str(value)
    return TextLine(text, placeholder=hint, id=identity, compact=True, suggester=suggester)


def _value(field: Field, widget: Widget) -> Any:
    if isinstance(widget, Select):
        return None if widget.is_blank() else cast(Any, widget).value
    text = widget.text if isinstance(widget, TextArea) else cast(Input, widget).value
    if not text.strip():
        return None
    match field.kind:
        case "list":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "path":
            path = os.path.abspath(os.path.expanduser(text.strip()))
            if not os.path.exists(path):
                raise ValueError(f"There is no {path}")
            return path
        case "json" | "integer" | "number":
            try:
                return json.loads(text)
            except ValueError:
                raise ValueError(f"'{text}' is not {HINTS[field.kind]}") from None
        case _:
            return text


# ---------------------------------------------------------------- paths


class PathSuggester(Suggester):
    """Completes a path with the first file or folder whose name begins so; the right arrow takes it."""

    async def get_suggestion(self, value: str) -> str | None:
        return await asyncio.to_thread(completed_path, value)


def completed_path(text: str) -> str | None:
    """Return the path with its last name completed, folders with the separator; None if nothing begins so."""
    folder, separator, beginning = text.rpartition(os.sep)
    try:
        entries = [*os.scandir(os.path.expanduser(folder + os.sep))] if separator else []
    except OSError:
        return None
    fitting = [entry for entry in entries if entry.name.startswith(beginning) and entry.name != beginning]
    # A line to type into draws what it holds: names with control characters are not proposed.
    shown = [e for e in fitting if visible(e.name) == e.name and (beginning or not e.name.startswith("."))]
    entry = min(shown, key=lambda entry: entry.name.lower(), default=None)
    return f"{folder}{os.sep}{entry.name}{os.sep if entry.is_dir() else ''}" if entry is not None else None
