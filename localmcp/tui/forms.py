"""Screens above the panes: a text, a question, a list, a path, an error, and a form made from any JSON Schema."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Button, Footer, Input, Label, OptionList, Select, Static, TextArea

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import counted
from localmcp.schemas import Json, followed, mapping_of, one_or_more
from localmcp.tui.keymap import bindings
from localmcp.tui.logs import log_file
from localmcp.tui.pane import Asking, Choices, TextLine, list_option, visible_value
from localmcp.tui.passages import short
from localmcp.tui.session import session_of
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.report import Report
    from localmcp.tui.session import OnProgress

T = TypeVar("T")

UNASKED_SECONDS = 1.0
"""Ignore keys for this long after an unprompted dialog opens."""


class TextScreen(ModalScreen[None]):
    """Something to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,x,question_mark,f1", "dismiss", "Close"), Binding("y", "copy", "Copy"),
        Binding("j,down", "scroll(1)", show=False), Binding("k,up", "scroll(-1)", show=False),
    ]  # fmt: skip

    def __init__(self, title: str, text: Content | str, *, copy: str | None = None) -> None:
        """`text`: a plain one is Markdown."""
        super().__init__()
        self._title = title
        self._text: Content | str = visible_value(text)
        self._copy = copy

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title = Content(self._title)
            box.border_subtitle = "y copy · esc close" if self._copy else "esc close"
            if isinstance(self._text, Content):
                yield Static(self._text)
            else:
                from textual.widgets import Markdown

                box.add_class("tall")
                yield Markdown(self._text, open_links=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        text = self._text.plain if isinstance(self._text, Content) else self._text
        self.app.copy_to_clipboard(self._copy or text)
        self.app.notify("Copied.")


class ErrorScreen(TextScreen):
    """An error, what to do about it, and where the log is, which has the traceback."""

    def __init__(self, error: BaseException) -> None:
        is_ours = isinstance(error, LocalMCPError)
        message = error.message if is_ours else f"{type(error).__name__}: {error}"
        hint = (error.hint or "") if is_ours else "This is a mistake in localmcp; the log tells where."
        text = Content.assemble(
            (message, "bold"), "\n\n", hint, "\n\n" if hint else "", ("log  ", "$muted"),
            short(str(log_file())),
        )  # fmt: skip
        super().__init__("What went wrong", text, copy=f"{message}\n{hint}")


class ConfirmScreen(ModalScreen[bool]):
    """A yes or no before something is taken away; `no` has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"), Binding("n,escape", "answer(False)", "No"),
        Binding("left,right", "app.focus_next", show=False),
    ]  # fmt: skip

    def __init__(self, question: str, more: str = "", yes: str = "Yes", *, unasked: bool = False) -> None:
        super().__init__()
        self._question, self._more = visible(question), visible(more, newlines=True)
        self._yes = yes
        self._ignores_keys_until = time.monotonic() + (UNASKED_SECONDS if unasked else 0)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = "y yes · n no"
            yield Static(Content.assemble((self._question, "bold"), f"\n\n{self._more}" if self._more else ""))
            with Horizontal(classes="buttons"):
                yield Button("No", id="no", compact=True)
                yield Button(self._yes, id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def action_answer(self, answer: bool) -> None:
        if time.monotonic() >= self._ignores_keys_until:
            self.dismiss(answer)

    @on(Button.Pressed)
    def pressed(self, message: Button.Pressed) -> None:
        self.action_answer(message.button.id == "yes")


class ChoiceScreen(ModalScreen[int]):
    """A list to choose from; the answer is the number of the row. A plain text is a heading."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def __init__(
        self, title: str, rows: Sequence[Content | str], above: Content | None = None, says: str = "enter chooses",
    ) -> None:  # fmt: skip
        super().__init__()
        self._title, self._rows, self._above, self._says = title, rows, above, says

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), f"{self._says} · esc back"
            if self._above is not None:
                with VerticalScroll(classes="above", can_focus=False):
                    yield Static(self._above)
            yield Choices(*(list_option(row, str(number)) for number, row in enumerate(self._rows)))

    def on_mount(self) -> None:
        self.query_one(Choices).focus()

    @on(OptionList.OptionSelected)
    def chosen(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(int(message.option_id or 0))


class PathSuggester(Suggester):
    """Completes a path with the first file or folder whose name begins so."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return await asyncio.to_thread(completed_path, value)


def completed_path(text: str) -> str | None:
    """Return the path with its last name completed, folders with the separator; None if nothing begins so."""
    folder, _, beginning = text.rpartition(os.sep)
    if os.sep not in text:
        return None
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder + os.sep)), key=lambda entry: entry.name.lower())
    except OSError:
        return None
    hides = not beginning.startswith(".")
    # A line to type into draws what it holds: names with control characters are not proposed.
    shown = [e for e in entries if not (hides and e.name.startswith(".")) and visible(e.name) == e.name]
    entry = next((entry for entry in shown if entry.name.startswith(beginning) and entry.name != beginning), None)
    return f"{folder}{os.sep}{entry.name}{os.sep if entry.is_dir() else ''}" if entry is not None else None


class PathScreen(ModalScreen[str]):
    """Ask for a file or folder that is there; the answer is its absolute path, or empty. Tab completes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel"), Binding("tab", "complete", "Complete", priority=True),
    ]  # fmt: skip

    def __init__(self, title: str, says: str, placeholder: str = "") -> None:
        super().__init__()
        self._title, self._says, self._placeholder = title, says, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), "enter · tab completes · esc cancels"
            yield Static(Content.styled(self._says, "$muted"))
            yield TextLine(placeholder=self._placeholder, suggester=PathSuggester())
            yield Static(id="wrong")

    def action_complete(self) -> None:
        line = self.query_one(Input)
        if path := completed_path(line.value):
            line.value = path
            line.cursor_position = len(path)

    @on(Input.Submitted)
    def submitted(self, message: Input.Submitted) -> None:
        text = message.value.strip()
        if text and (wrong := _path_problem(os.path.expanduser(text))):
            self.query_one("#wrong", Static).update(Content.styled(f"✗ {wrong}", "$error"))
        else:
            self.dismiss(os.path.abspath(os.path.expanduser(text)) if text else "")


def _path_problem(path: str) -> str:
    """Return why a path cannot be used; empty when it can."""
    if not os.path.exists(path):
        return f"There is no {path}"
    return "" if os.access(path, os.R_OK) else f"{path} may not be read"


def ask_for_folder(widget: Widget) -> None:
    """Ask for a file or folder, and index it in the background."""

    session = session_of(widget)

    def add(path: str) -> None:
        def work(on_progress: OnProgress) -> Report:
            # Upkeep makes the vectors: the next folder need not wait for them.
            return session.workspace.library.add_paths([path], progress=on_progress, wait=False)

        session.do(f"Adding {os.path.basename(path) or path}", work)

    says = "A folder with everything in it, or one file. Ignore files (.gitignore) count; nothing leaves this machine."
    ask_screen(widget, PathScreen("Add a folder", says, "~/notes"), add)


PAGE_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "title": "Address", "description": "It is fetched once, from the network, now"},
        "title": {"type": "string", "description": "Instead of the page's own"},
        "collection": {"type": "string", "description": "Made if it is not there"},
        "allow_private": {"type": "boolean", "title": "Private too", "default": False,
                          "description": "Also addresses of this machine and its network"},
    },
}  # fmt: skip


def ask_for_page(widget: Widget) -> None:
    """Ask for a web page, and fetch and index it in the background."""
    from localmcp.library.web_pages import add_page, is_url

    session = session_of(widget)

    def check(fields: dict[str, Any]) -> dict[str, Any]:
        if not is_url(fields["url"]):
            raise InvalidInput(f"url: '{fields['url']}' must begin with http:// or https://.")
        return fields

    def add(fields: dict[str, Any]) -> None:
        url, workspace = fields.pop("url"), session.workspace
        session.do(
            f"Fetching {url}",
            lambda _on_progress: add_page(workspace.library, workspace.settings, url, **fields),
            lambda indexed: widget.app.notify(f"{counted(indexed.added, 'passage')} of {url} indexed."),
        )

    ask_screen(widget, FormScreen("Add a web page", PAGE_FORM, check, verb="Fetch"), add)


def confirm(
    widget: Widget | App[Any], question: str, more: str, yes: str, then: Callable[[], object], *, unasked: bool = False
) -> None:
    """Ask, and call `then` on yes; an `unasked` question ignores keys at first, which were meant for the pane."""
    ask_screen(widget, ConfirmScreen(question, more, yes, unasked=unasked), lambda _: then())


def ask_screen(widget: Widget | App[Any], screen: Screen[T], then: Callable[[T], object]) -> None:
    """Show a screen, and do `then` with its answer; nothing on None, no, or an empty text."""

    def answered(answer: T | None) -> None:
        if answer is not None and answer is not False and answer != "":
            then(answer)

    cast("App[Any]", widget.app).push_screen(screen, answered)


class FormScreen(ModalScreen[Any], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Fields of a schema; the answer is what `save` returns for the arguments, whose errors are shown."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("form")

    def __init__(
        self, title: str, schema: Json, save: Callable[[Json], Any], values: Mapping[str, Any] | None = None,
        *, verb: str = "Save",
    ) -> None:  # fmt: skip
        super().__init__()
        self._title = title
        self._schema = schema
        self._save = save
        self._verb = verb
        self._values = values

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog form", can_focus=False) as box:
            box.border_title = Content(self._title)
            box.border_subtitle = f"ctrl+r: {self._verb.lower()} · esc cancels"
            yield ToolForm(self._schema, self._values, changes=self._values is not None)
            yield Static(id="wrong")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self._verb, id="save", variant="primary", compact=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(ToolForm).focus_first()

    def action_run(self) -> None:
        if "save" in self.questions:
            return
        arguments, problems = self.query_one(ToolForm).arguments()
        if problems:
            self._complain("; ".join(problems))
            return
        self._complain("")

        def close(answer: Any) -> None:
            self.dismiss(answer)

        # The person can correct in the form what is wrong.
        self.ask("save", lambda: self._save(arguments), close, failed=lambda error: self._complain(str(error)))

    def _complain(self, problem: str) -> None:
        line = self.query_one("#wrong", Static)
        line.update(Content.styled(f"✗ {problem}" if problem else "", "$error"))
        if problem:
            self.call_after_refresh(line.scroll_visible, animate=False)

    @on(Button.Pressed)
    def pressed(self, message: Button.Pressed) -> None:
        if message.button.id == "save":
            self.action_run()
        else:
            self.dismiss(None)

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter in a single line saves."""
        self.action_run()


TEXTS = ("text", "content", "rule_text", "instruction", "context", "taskDescription", "quote")
"""Names of properties that hold running text: they get several lines."""
MOST_LABEL = 18
ALL_ARGUMENTS = "arguments"
"""The field for a schema that names no properties."""

EMPTIED: Mapping[str, Any] = {"string": "", "text": "", "list": [], "boolean": False}
"""Kind of field -> its value once a person has emptied it; others are left as they are."""


@dataclass(frozen=True, slots=True)
class Field:
    """One property of a schema."""

    name: str
    label: str
    """What a person reads instead of the name."""
    kind: str
    """choice, boolean, integer, number, string, text, list (one item a line) or json."""
    required: bool
    says: str
    default: Any
    choices: tuple[Any, ...] = ()
    item_kind: str = "string"


def fields_of(schema: Any) -> list[Field]:
    """Return the fields of an object schema, required ones first; one JSON field if it has no properties."""
    table = mapping_of(schema)
    properties = mapping_of(table.get("properties"))
    if not properties:
        takes_none = table.get("additionalProperties") is False or table == {"type": "object"}
        says = "All arguments, as one JSON object"
        return [] if takes_none else [Field(ALL_ARGUMENTS, ALL_ARGUMENTS, "json", False, says, None)]
    required = [str(name) for name in cast("list[Any]", table.get("required") or [])]
    fields = [_field(name, spec, name in required, table) for name, spec in properties.items()]
    return sorted(fields, key=lambda field: not field.required)


def _field(name: str, spec: Any, required: bool, root: Json) -> Field:
    resolved = _resolve(spec, root)
    choices = _choices(resolved)
    kind, item_kind = ("choice", "string") if choices else _kind(name, resolved, root)
    says = str(resolved.get("description") or "")
    label = human_label(name, resolved)
    return Field(name, label, kind, required, says, resolved.get("default"), choices, item_kind)


def _resolve(spec: Any, root: Json, depth: int = 0) -> Json:
    """Follow `$ref` inside the schema, and take the null out of `anyOf`."""
    table = mapping_of(spec)
    if "$ref" in table and depth < 8:
        named = _resolve(followed(table, root), root, depth + 1)
        return {**named, **{key: value for key, value in table.items() if key != "$ref"}}
    for word in ("anyOf", "oneOf"):
        options = [mapping_of(option) for option in cast("list[Any]", table.get(word) or [])]
        not_null = [option for option in options if option.get("type") != "null"]
        if len(not_null) == 1 and depth < 8:
            return {**table, **_resolve(not_null[0], root, depth + 1)}
    return table


def human_label(name: str, spec: Json) -> str:
    """Return the label of a property: its short title, else its name in words, `Max results` for `maxResults`."""
    title = spec.get("title")
    if isinstance(title, str) and title and len(title) <= MOST_LABEL and title != name:
        return title
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)
    return words[:1].upper() + words[1:].lower() if not words.isupper() else words


def _choices(spec: Json) -> tuple[Any, ...]:
    if "const" in spec:
        return (spec["const"],)
    if spec.get("enum"):
        return tuple(cast("list[Any]", spec["enum"]))
    options = [mapping_of(option) for option in cast("list[Any]", spec.get("anyOf") or spec.get("oneOf") or [])]
    return tuple(option["const"] for option in options) if all("const" in option for option in options) else ()


def _kind(name: str, spec: Json, root: Json) -> tuple[str, str]:
    kinds = [kind for kind in one_or_more(spec.get("type")) if kind != "null"]
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "array":
        item = _resolve(spec.get("items"), root).get("type")
        return ("list", str(item)) if item in ("string", "integer", "number") else ("json", "")
    if kind in ("boolean", "integer", "number"):
        return str(kind), ""
    if kind == "string":
        return ("text" if name in TEXTS else "string"), ""
    return "json", ""


class ToolForm(VerticalScroll):
    """The fields, filled with defaults or with `values`.

    With `changes`, the values are those of a thing that is changed: a field that is emptied is handed over as empty,
    because the tool keeps what is left out.
    """

    DEFAULT_CSS = """
    ToolForm { height: auto; }
    ToolForm .field { height: auto; }
    ToolForm .name { width: 20; padding: 0 1 0 0; text-align: right; color: $muted; }
    ToolForm .name { text-wrap: nowrap; text-overflow: ellipsis; }
    ToolForm Input, ToolForm Select, ToolForm TextArea { width: 1fr; }
    ToolForm Input, ToolForm SelectCurrent { background: $panel; }
    ToolForm TextArea { height: 3; border: none; background: $panel; padding: 0; }
    ToolForm .says { padding: 0 0 0 20; height: auto; color: $muted; }
    """

    def __init__(
        self, schema: Any, values: Mapping[str, Any] | None = None, *, changes: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.fields = fields_of(schema)
        self._values = dict(values or {})
        self._changes = changes
        self.can_focus = False

    def compose(self) -> ComposeResult:
        if not self.fields:
            yield Static(Content.styled("It takes no arguments.", "$muted"))
        for number, field in enumerate(self.fields):
            with Horizontal(classes="field"):
                mark = Content.styled(" *", "$error") if field.required else Content("  ")
                yield Label(Content(field.label) + mark, classes="name")
                yield _widget(field, self._values.get(field.name, field.default), number)
            if field.says:
                yield Static(Content(field.says), classes="says")

    def arguments(self) -> tuple[Json, list[str]]:
        """Return the arguments without empty fields, and a sentence for every field that cannot be used."""
        arguments: Json = {}
        problems: list[str] = []
        for number, field in enumerate(self.fields):
            try:
                value = _value(field, self.query_one(f"#field-{number}"))
            except ValueError as error:
                problems.append(f"{field.label}: {error}")
                continue
            if value is None and self._changes and self._values.get(field.name):
                value = EMPTIED.get(field.kind)
            if value is not None:
                arguments[field.name] = value
            elif field.required:
                problems.append(f"{field.label}: required")
        if not problems and [field.name for field in self.fields] == [ALL_ARGUMENTS] and ALL_ARGUMENTS in arguments:
            return cast(Json, arguments[ALL_ARGUMENTS]), []
        return arguments, problems

    def focus_first(self) -> None:
        """Put the cursor into the first field."""
        if self.fields:
            self.query_one("#field-0").focus()


def _widget(field: Field, value: Any, number: int) -> Widget:
    identity = f"field-{number}"
    if field.kind in ("choice", "boolean"):
        choices = field.choices or (True, False)
        # A plain text would be markup.
        options = [(Text(_shown(choice)), choice) for choice in choices]
        initial = {"value": value} if value in choices else {}
        return Select(options, prompt="(not given)", allow_blank=True, id=identity, compact=True, **initial)
    if field.kind in ("text", "list", "json"):
        area = TextArea(
            _as_text(field, value), id=identity, compact=True, placeholder=_hint(field), tab_behavior="focus"
        )
        area.cursor_blink = False
        return area
    return TextLine("" if value is None else str(value), placeholder=_hint(field), id=identity, compact=True)


def _hint(field: Field) -> str:
    hints = {"list": "one item a line", "json": "JSON", "integer": "a whole number", "number": "a number"}
    return hints.get(field.kind, "")


def _shown(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _as_text(field: Field, value: Any) -> str:
    if value is None:
        return ""
    if field.kind == "list" and isinstance(value, list | tuple):
        return "\n".join(str(item) for item in cast("list[Any]", value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(field: Field, widget: Widget) -> Any:
    """Return what is in a widget; None when nothing does.

    Raises:
        ValueError: it is not what the schema wants.
    """
    if isinstance(widget, Select):
        return None if widget.is_blank() else cast(Any, widget).value
    text = widget.text if isinstance(widget, TextArea) else cast(Input, widget).value
    if not text.strip():
        return None
    if field.kind == "list":
        return [_number(field.item_kind, line.strip()) for line in text.splitlines() if line.strip()]
    if field.kind == "json":
        return _parsed(text)
    return _number(field.kind, text if field.kind in ("string", "text") else text.strip())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None


def _number(kind: str, text: str) -> Any:
    try:
        return {"integer": int, "number": float}[kind](text) if kind in ("integer", "number") else text
    except ValueError:
        raise ValueError(f"'{text}' is not {'a whole number' if kind == 'integer' else 'a number'}") from None
