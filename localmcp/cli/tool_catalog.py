"""A catalog of tools in a file: a JSON list of name, description, keywords and, if wanted, input_schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from localmcp.cli.files import read_bytes
from localmcp.errors import InvalidInput

if TYPE_CHECKING:
    from localmcp.tool_search.query import ToolDescription

Json = dict[str, Any]

HINT = (
    'A catalog is a JSON list such as [{"name": "send_mail", "description": "Send a message", "keywords": ["mail"]}].'
)


def read_catalog(file: str) -> list[ToolDescription]:
    """The tools of a file, or of stdin for `-`; of two with one name the first.

    The answer of tools/list, an object with `tools`, is read as well, and `inputSchema` is as good as `input_schema`.

    Raises:
        InvalidInput: it cannot be read; the message names the entry and the field.
    """
    value: Any = _read(file)
    if isinstance(value, dict):
        value = cast(Json, value).get("tools")
    if not isinstance(value, list):
        raise InvalidInput(f"{file} does not hold a list of tools.", hint=HINT)
    entries = [_tool_of(file, number, entry) for number, entry in enumerate(cast("Iterable[Any]", value), 1)]
    return list({entry.name: entry for entry in reversed(entries)}.values())[::-1]


def _read(file: str) -> Any:
    try:
        return json.loads(read_bytes(file).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not JSON: {error}.", hint=HINT) from error


def _tool_of(file: str, number: int, entry: Any) -> ToolDescription:
    from localmcp.tool_search.query import ToolDescription

    if not isinstance(entry, dict):
        raise InvalidInput(f"{file}, entry {number}: must be an object, not {_kind(entry)}.", hint=HINT)
    fields = cast(Json, entry)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{file}, entry {number}: name must be a text that is not empty.", hint=HINT)
    place = f"{file}, entry {number} ({name})"
    description, keywords = fields.get("description"), fields.get("keywords")
    schema = fields.get("input_schema", fields.get("inputSchema"))
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"{place}: description must be a text, not {_kind(description)}.")
    if keywords is not None and not _are_texts(keywords):
        raise InvalidInput(f"{place}: keywords must be a list of texts.")
    if schema is not None and not isinstance(schema, dict):
        raise InvalidInput(f"{place}: input_schema must be an object, not {_kind(schema)}.")
    return ToolDescription(name, description or "", tuple(keywords or ()), schema=cast(Json, schema or {}))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in cast("list[Any]", value))


def _kind(value: Any) -> str:
    names = {"NoneType": "null", "str": "a text", "int": "a number", "float": "a number", "bool": "true or false"}
    return names.get(type(value).__name__, "a list" if isinstance(value, list) else "an object")
