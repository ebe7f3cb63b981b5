"""Quick starts as files: ConsoleQuickStart documents and catalog rows in YAML, JSON and JSON Lines."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypedDict

from localmcp.files import reason_of
from localmcp.quickstarts.validation import check_quickstart, is_quickstart
from localmcp.schemas import Json, list_of, mapping_of, one_or_more

SUFFIXES = (".yml", ".yaml", ".json", ".jsonl", ".ndjson")
METADATA_FILES = ("metadata.yml", "metadata.yaml")
"""The form that is beside a quick start in its folder: {kind: QuickStarts, name, tags}."""
MOST_BYTES = 100_000_000
MOST_NODES, DEEPEST = 2_000_000, 60
"""Of one file, after YAML aliases are expanded: a small file can otherwise represent gigabytes."""
MOST_BITS = 1024
"""Of a whole number; a larger one is infinite to most readers of JSON."""

Tag = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A quick start as read, not yet stored."""

    name: str
    content: Json
    tags: tuple[Tag, ...] = ()
    id: int | None = None
    """The id that a row asks for; it gets it if it is free."""


class ReportedProblem(TypedDict):
    """Something wrong with what was imported."""

    where: str
    problem: str


@dataclass(slots=True)
class Reading:
    """What one file held: what was left out is in `skipped`, what was taken as it is in `warnings`."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    skipped: list[ReportedProblem] = field(default_factory=list[ReportedProblem])
    warnings: list[ReportedProblem] = field(default_factory=list[ReportedProblem])


class Unreadable(ValueError):
    """A file, or a part of it, that is not what it claims to be; the message says where."""


def read_path(path: Path) -> Iterator[Reading]:
    """Read a file, or every YAML and JSON file below a folder; one reading a file."""
    if not path.is_dir():
        yield read_file(path, path.name)
        return
    files = list(_files_below(path))
    if not files:
        yield Reading(skipped=[{"where": path.name, "problem": "a folder without a YAML or JSON file"}])
    for file in files:
        yield read_file(file, str(file.relative_to(path)))


def read_file(path: Path, shown: str) -> Reading:
    """Read one file with the metadata beside it; one that cannot be parsed gives one problem."""
    try:
        if not path.is_file():
            raise Unreadable("not a regular file")
        if path.stat().st_size > MOST_BYTES:
            raise Unreadable(f"larger than {MOST_BYTES // 1_000_000} MB")
        reading = read_text(path.read_text(encoding="utf-8-sig"), path.suffix.lower(), shown)
    except (OSError, UnicodeDecodeError) as error:
        return Reading(skipped=[{"where": shown, "problem": reason_of(error)}])
    except Unreadable as error:
        return Reading(skipped=[{"where": shown, "problem": str(error)}])
    try:
        _add_metadata(reading, _metadata_beside(path), shown)
    except (OSError, UnicodeDecodeError, Unreadable) as error:
        reading.warnings.append({"where": shown, "problem": f"metadata.yml was left out: {error}"})
    return reading


def read_text(text: str, suffix: str, shown: str) -> Reading:
    """Read documents from text; `suffix` says which form it has.

    Raises:
        Unreadable: it cannot be parsed; the message gives the line.
    """
    reading = Reading()
    for place, value in _plain_values(text, suffix):
        where = f"{shown}{place}"
        for number, item in enumerate(items := _items(value), start=1):
            _read_item(item, f"{where}, item {number}" if len(items) > 1 else where, reading)
    if not reading.drafts and not reading.skipped:
        reading.skipped.append({"where": shown, "problem": "holds no quick start"})
    return reading


def read_metadata(text: str) -> Json:
    """Return the mapping of a `metadata.yml`.

    Raises:
        Unreadable: it is not one.
    """
    values = [value for _, value in _plain_values(text, ".yml")]
    if len(values) != 1 or not isinstance(values[0], dict):
        raise Unreadable("metadata.yml is not a mapping")
    return cast(Json, values[0])


def _files_below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name not in METADATA_FILES and Path(name).suffix.lower() in SUFFIXES:
                yield Path(place, name)


# ---------------------------------------------------------------- documents and rows


def _items(value: Any) -> list[Any]:
    """Return the documents of a value: several for a list or a Kubernetes List."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if isinstance(value, dict) and isinstance(cast(Json, value).get("items"), list):
        return cast("list[Any]", cast(Json, value)["items"])
    return [value]


def _read_item(item: Any, where: str, reading: Reading) -> None:
    try:
        draft = _draft(item)
    except Unreadable as error:
        reading.skipped.append({"where": where, "problem": str(error)})
        return
    reading.drafts.append(draft)
    complaints = check_quickstart(draft.content, draft.name)
    place = f"{where}: {draft.name}"
    reading.warnings.extend({"where": place, "problem": complaint} for complaint in complaints)


def _draft(item: Any) -> Draft:
    if not isinstance(item, dict):
        raise Unreadable(
            "is not a quick start: a mapping is needed, such as {kind: QuickStarts, metadata: {name: descale-kettle}, "
            "spec: {displayName: Descale the kettle, description: …, tasks: [{title: Boil vinegar, description: …}]}}"
        )
    row = cast(Json, item)
    if "content" in row and "spec" not in row:
        content, name = _row_content(row), row.get("name")
    else:
        content, name = row, None
    if not is_quickstart(content):
        kind = content.get("kind")
        raise Unreadable(
            f"is not a quick start: kind is {kind!r}" if kind else "is not a quick start: it has no 'spec'"
        )
    metadata = mapping_of(content.get("metadata"))
    tags = row.get("tags") if row is not content else None
    requested_id = row.get("id") if row is not content else None
    if not isinstance(requested_id, int) or isinstance(requested_id, bool) or not 0 < requested_id < 2**53:
        requested_id = None
    return Draft(_name(name or metadata.get("name")), content, read_tags(tags or metadata.get("tags")), requested_id)


def _row_content(row: Json) -> Json:
    content = row["content"]
    if isinstance(content, str):
        content = next((value for _, value in _plain_values(content, ".json")), None)
    if not isinstance(content, dict):
        raise Unreadable("is not a quick start: 'content' is not a mapping")
    return cast(Json, content)


def _name(value: Any) -> str:
    name = str(value or "").strip()
    if not name:
        raise Unreadable("has no name (metadata.name)")
    if not name.isprintable() or len(name) > 253:
        raise Unreadable(f"has a name that cannot be used: {name[:60]!r}")
    return name


def read_tags(value: Any) -> tuple[Tag, ...]:
    """Tags given as [{kind, value}], where a value may be a list, or as plain words (kind "tag")."""
    tags: dict[Tag, None] = {}
    for item in list_of(value):
        tag = cast(Json, item) if isinstance(item, dict) else {"kind": "tag", "value": item}
        for tag_value in one_or_more(tag.get("value")):
            if isinstance(tag_value, str | int | float) and str(tag_value).strip():
                tags[str(tag.get("kind") or "tag").strip(), str(tag_value).strip()] = None
    return tuple(tags)


def _metadata_beside(path: Path) -> Json | None:
    for name in METADATA_FILES:
        beside = path.with_name(name)
        if beside.is_file():
            return read_metadata(beside.read_text(encoding="utf-8-sig"))
    return None


def _add_metadata(reading: Reading, metadata: Json | None, shown: str) -> None:
    """Add the tags of `metadata.yml` to the quick start that it names."""
    if metadata is None:
        return
    name, tags = str(metadata.get("name") or ""), read_tags(metadata.get("tags"))
    named = [draft for draft in reading.drafts if draft.name == name]
    if reading.drafts and not named:
        names = ", ".join(draft.name for draft in reading.drafts)
        complaint = f"metadata.yml names {name!r}, the quick start {names!r}; its tags were left out"
        reading.warnings.append({"where": shown, "problem": complaint})
    for draft in named:
        place = reading.drafts.index(draft)
        reading.drafts[place] = replace(draft, tags=tuple(dict.fromkeys(draft.tags + tags)))


# ---------------------------------------------------------------- parsing


def read_content(text: str) -> Json:
    """Return the JSON of one quick start from an untrusted file, as an import would read it.

    Raises:
        Unreadable: not JSON, no mapping, or nested too deeply.
    """
    for _, value in _plain_values(text, ".json"):
        if isinstance(value, dict):
            return cast(Json, value)
    raise Unreadable("not a mapping")


def _plain_values(text: str, suffix: str) -> Iterator[tuple[str, Any]]:
    """(where in the file, value) of each document, with nothing but JSON types in it."""
    parse = _PARSERS.get(suffix, _parse_yaml)
    budget = [MOST_NODES]
    for place, value in parse(text):
        if value is not None:
            yield place, _plain(value, budget, DEEPEST)


def _parse_lines(text: str) -> list[tuple[str, Any]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    return [(f":{number}", _load_json(line, "JSON Lines", number)) for number, line in lines]


def _load_json(text: str, form: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"at line {line or error.lineno}, column {error.colno}"
        raise Unreadable(f"not {form}: {error.msg} {place}") from error
    except RecursionError as error:
        raise Unreadable(f"nested too deeply at line {line}" if line else "nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise Unreadable(f"not {form}: {error}") from error


def _parse_yaml(text: str) -> list[tuple[str, Any]]:
    import yaml

    try:
        values = list(yaml.load_all(text, Loader=_yaml_loader()))
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Unreadable(f"not YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise Unreadable(f"not YAML: {error}") from error
    return [(f", document {number}" if len(values) > 1 else "", value) for number, value in enumerate(values, start=1)]


_PARSERS: dict[str, Callable[[str], list[tuple[str, Any]]]] = {
    ".json": lambda text: [("", _load_json(text, "JSON"))],
    ".jsonl": _parse_lines,
    ".ndjson": _parse_lines,
}


def _yaml_loader() -> Any:
    """YAML's safe types without dates: JSON has none, and a date in a text is text."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in yaml_implicit_resolver if not tag.endswith(":timestamp")]
        for first, yaml_implicit_resolver in base.yaml_implicit_resolvers.items()
    }
    return type("QuickStartLoader", (base,), {"yaml_implicit_resolvers": resolvers})


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """`value` as JSON can hold it: text without lone surrogates and NUL, keys as text, finite numbers."""
    budget[0] -= 1
    if budget[0] < 0 or depth < 0:
        raise Unreadable("nested too deeply or too large")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable(f"holds a number that JSON does not have: {value}")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise Unreadable(f"holds a number of more than {MOST_BITS} bits")
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_plain(_key(key), budget, depth): _plain(item, budget, depth - 1) for key, item in items}
    if isinstance(value, list):
        return [_plain(item, budget, depth - 1) for item in cast("list[Any]", value)]
    raise Unreadable(f"holds a {type(value).__name__}, which JSON does not have")


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def _clean(text: str) -> str:
    if "\0" not in text and (text.isascii() or not re.search("[\ud800-\udfff]", text)):
        return text
    return text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
