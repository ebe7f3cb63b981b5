"""Changing one member of a JSON text in place: comments, order, spacing and everything else stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.S)
"""White space and comments."""
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|[{}\[\]]', re.S)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.S)
_WORD = re.compile(r"[^\s,\]}/]+")


@dataclass(frozen=True, slots=True)
class Member:
    """One `"key": value` of an object, by its offsets in the text."""

    key: str
    start: int
    value: int
    stop: int


@dataclass(frozen=True, slots=True)
class Span:
    """An object in the text: the offsets of its braces, and its members in order."""

    start: int
    end: int
    members: tuple[Member, ...]

    def find(self, key: str) -> Member | None:
        """Return the member of that name; of several the last one, as parsers do."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with `value` at `path`; objects on the way are made where they are missing.

    Args:
        text: JSON that may have comments and last commas, and is valid otherwise; empty represents `{}`.

    Raises:
        ValueError: something on the way is not an object.
    """
    if not text.strip():
        text = "{}\n"
    around = read_object(text, _BLANK.match(text).end())  # pyright: ignore[reportOptionalMemberAccess]
    for depth, key in enumerate(path[:-1]):
        member = around.find(key)
        if member is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return _insert(text, around, key, value)
        around = read_object(text, member.value)
    member = around.find(path[-1])
    if member is None:
        return _insert(text, around, path[-1], value)
    return text[: member.value] + _written(text, value, _margin(text, member.start)) + text[member.stop :]


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at `path`; unchanged when there is none.

    Raises:
        ValueError: something on the way is not an object.
    """
    around = read_object(text, _BLANK.match(text).end())  # pyright: ignore[reportOptionalMemberAccess]
    for key in path[:-1]:
        member = around.find(key)
        if member is None:
            return text
        around = read_object(text, member.value)
    member = around.find(path[-1])
    return text if member is None else _cut(text, around, member)


def read_object(text: str, start: int) -> Span:
    """Return the object that begins at `start`.

    Raises:
        ValueError: there is none.
    """
    if text[start : start + 1] != "{":
        raise ValueError(f"an object is expected at offset {start}")
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] == '"':
        members.append(_read_member(text, at))
        at = _skip(text, members[-1].stop)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
    if text[at : at + 1] != "}":
        raise ValueError(f"the object at offset {start} does not end")
    return Span(start, at, tuple(members))


def _read_member(text: str, start: int) -> Member:
    key = _STRING.match(text, start)
    if key is None:
        raise ValueError(f"a key is expected at offset {start}")
    value = _skip(text, _skip(text, key.end()) + 1)
    return Member(json.loads(key[0], strict=False), start, value, _end_of_value(text, value))


def _end_of_value(text: str, start: int) -> int:
    if text[start : start + 1] not in ("{", "["):
        match = (_STRING if text[start : start + 1] == '"' else _WORD).match(text, start)
        if match is None:
            raise ValueError(f"a value is expected at offset {start}")
        return match.end()
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
    raise ValueError(f"the value at offset {start} does not end")


def _skip(text: str, start: int) -> int:
    match = _BLANK.match(text, start)
    return start if match is None else match.end()


def _insert(text: str, around: Span, key: str, value: Any) -> str:
    name = json.dumps(key, ensure_ascii=False)
    if not around.members:
        return _insert_first(text, around, name, value)
    last = around.members[-1]
    comma = _skip(text, last.stop)
    has_comma = text[comma : comma + 1] == ","
    if "\n" not in text[around.start : around.end]:
        written = json.dumps(value, ensure_ascii=False)
        stop = comma + 1 if has_comma else last.stop
        return f"{text[:stop]}{'' if has_comma else ','} {name}: {written}{text[stop:]}"
    margin = _margin(text, last.start)
    # A comment behind the last member stays with it.
    end = last.stop + len(text[last.stop : around.end].rstrip())
    line = f"{_newline(text)}{margin}{name}: {_written(text, value, margin)}"
    return f"{text[: last.stop]}{'' if has_comma else ','}{text[last.stop : end]}{line}{text[end:]}"


def _insert_first(text: str, around: Span, name: str, value: Any) -> str:
    outer = _margin(text, around.start)
    margin = outer + _unit(text)
    # Comments may be in an object without members.
    inside = text[around.start + 1 : around.end].rstrip()
    newline = _newline(text)
    member = f"{newline}{margin}{name}: {_written(text, value, margin)}{newline}{outer}"
    return f"{text[: around.start + 1]}{inside}{member}{text[around.end :]}"


def _cut(text: str, around: Span, member: Member) -> str:
    comma = _skip(text, member.stop)
    stop = comma + 1 if text[comma : comma + 1] == "," else member.stop
    start = member.start
    line = text.rfind("\n", 0, start) + 1
    line_end = re.compile(r"[ \t]*\r?\n").match(text, stop)
    if line_end and not text[line:start].strip():
        # It has its lines for itself.
        start, stop = line, line_end.end()
    if len(around.members) == 1 and not f"{text[around.start + 1 : start]}{text[stop : around.end]}".strip():
        return f"{text[: around.start]}{{}}{text[around.end + 1 :]}"
    position = around.members.index(member)
    before = text[:start]
    if member is around.members[-1] and position > 0:
        comma = _skip(text, around.members[position - 1].stop)
        before = text[:comma] + text[comma + 1 : start]
    if not line_end:
        before = before.rstrip(" \t") if text[stop : stop + 1] in ("}", " ") else before
    return before + text[stop:]


def _written(text: str, value: Any, margin: str) -> str:
    """Return the value as JSON whose further lines begin with `margin`."""
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{_newline(text)}{margin}".join(lines)


def _margin(text: str, at: int) -> str:
    """Return the white space with which the line of `at` begins."""
    line = text.rfind("\n", 0, at) + 1
    match = re.compile(r"[ \t]*").match(text, line)
    return "" if match is None else match[0]


def _unit(text: str) -> str:
    """Return one step of indentation, as in the text."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
