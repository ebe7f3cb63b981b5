"""A form made from any JSON Schema: a field for each property, and what was typed as arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Select, Static, TextArea

from localmcp.schemas import Json, followed, mapping_of, one_or_more
from localmcp.tui.pane import TextLine

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
