"""Filters: what a caller wants to search in, resolved to source ids before either arm looks; conditions on metadata."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal, cast, get_args

import apsw

from localmcp.arrays import Ids, np
from localmcp.errors import InvalidInput
from localmcp.humanize import choices, cut_to, quoted
from localmcp.index.collections import DEFAULT_PARTITION, Collection, visible_ids
from localmcp.index.drafts import FORMAT
from localmcp.schemas import did_you_mean, nearest
from localmcp.storage.database import fetch_column, fetch_one
from localmcp.storage.schema import days_ago, parse_span
from localmcp.wording.normalize import stop_words, words

Sort = Literal["relevance", "newest"]

_OWN = "iif(json_valid(sources.metadata), sources.metadata ->> '$.date', '')"
SOURCE_DATE = f"""coalesce(
    case when {_OWN} glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' then datetime({_OWN}) end,
    datetime(sources.mtime_ns / 1000000000, 'unixepoch'), datetime(sources.created_at)
)"""
"""SQL: the date of a source, `2026-03-14 09:30:00` in UTC."""

_NEWEST = frozenset(
    """latest newest last neueste neuesten neuester neuestes aktuellste letzte letzten letztes ultimo ultima dernier
    derniere""".split()
)
_RECENT = {"recent": ("most", "plus"), "recente": ("piu", "mais"), "reciente": ("mas",)}
_FUNCTION_WORDS = frozenset[str]().union(
    *(stop_words(language) for language in ("english", "german", "italian", "spanish", "french", "portuguese"))
)
_REACH = 3
"""What the word may modify: so many words before or after it, as in the last team meeting, acta más reciente."""


def parse_moment(name: str, text: str, today: date, *, end: bool = False) -> str:
    """Return a date as it is compared in SQL; with `end`, the first moment after it. InvalidInput names the field."""
    plain = " ".join(text.strip().lower().split())
    span = parse_span(plain)
    try:
        if span is not None and re.match(r"\d+ ?(?:s|min|h)", plain):
            return f"{datetime.now(UTC) - span:%Y-%m-%d %H:%M:%S}"
        days = days_ago(plain, today) if span is None else span.days
        if end and plain.startswith("this "):
            days = 0
        if days is not None:
            first = today - timedelta(days=days - end)
        elif match := re.fullmatch(r"(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2}))?)?", plain):
            # The first day of a year, month or day, or the first one after it.
            year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
            first = date(year, month, day)
            if end and match[3]:
                first += timedelta(days=1)
            elif end:
                first = date(year + (month == 12), month % 12 + 1, 1) if match[2] else date(year + 1, 1, 1)
        else:
            exact = datetime.fromisoformat(text.strip())
            return (exact.astimezone(UTC) if exact.tzinfo else exact).strftime("%Y-%m-%d %H:%M:%S")
        return f"{first.isoformat()} 00:00:00"
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name}: '{text[:40]}' is no date; use a date such as 2026-03-14, 2026-03 or 2026, a time such as "
            "2026-03-14T10:00 (UTC), or a span back from now such as 30min, 12h, 30d, 2w, 6m (months), 1y, this week "
            "or last week."
        ) from error


def parse_range(since: str | None, until: str | None) -> tuple[str | None, str | None]:
    """Return the first moment of a range of dates and the first after it. Raises what `parse_moment` raises."""
    # Moments are in UTC, days that documents name are local: where it is another day, the range holds both.
    days = (datetime.now(UTC).date(), datetime.now().date())
    return (
        parse_moment("since", since, min(days)) if since else None,
        parse_moment("until", until, max(days), end=True) if until else None,
    )


def asks_for_latest(text: str) -> tuple[str, frozenset[str]] | None:
    """Return the word by which a question may ask for the latest of several documents, and the folded words that it may
    modify: what there are several of."""
    read = words(text)
    for number, word in enumerate(read):
        before = read[max(number - _REACH, 0) : number]
        if word in _NEWEST or (before and before[-1] in _RECENT.get(word, ())):
            subjects = {*before, *read[number + 1 : number + 1 + _REACH]} - {*_RECENT.get(word, ())}
            return word, frozenset(subjects - _FUNCTION_WORDS)
    return None


KINDS = {
    "md": ("markdown", "md"),
    "sheet": ("xlsx", "xls", "xlsb", "ods", "csv", "tsv"),
    "slides": ("pptx", "odp"),
    "word": ("docx", "odt", "rtf"),
    "book": ("epub",),
}
"""Kind of file, as a person names it, to formats and endings; any other name is one of these itself."""
SOURCE_COLUMNS = {"title": f"iif(sources.format = '{FORMAT}', null, sources.title)", "path": "sources.uri"}
"""What replaces these fields where a source's own metadata has no such key."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all must hold; None or empty = any."""

    partitions: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    """UUIDs."""
    source_types: tuple[str, ...] = ()
    path_prefix: str | None = None
    condition: Condition | None = None
    """On the metadata, the title and the path."""
    since: str | None = None
    until: str | None = None
    """First moment of a document's date, and the first after it, as `parse_moment` gives them."""

    def __post_init__(self) -> None:
        texts = {"partition": self.partitions, "sourceType": self.source_types, "pathPrefix": (self.path_prefix or "",)}
        for name, values in texts.items():
            if re.search("[\0\ud800-\udfff]", "".join(values)):
                raise InvalidInput(f"{name}: NUL or half a character cannot be compared; use text.")

    def __bool__(self) -> bool:
        return self != Filters()


def allowed_sources(connection: apsw.Connection, collections: Sequence[Collection], filters: Filters) -> Ids:
    """Return ids of the sources in those collections that pass the filters, ascending."""
    among = ",".join(str(collection.id) for collection in collections)
    tests: list[tuple[str, list[Any]]] = [(f"trashed_at is null and collection_id in ({among})", [])]
    if filters.partitions:
        unnamed = "or partition_id is null" if DEFAULT_PARTITION in filters.partitions else ""
        named = "select id from partitions where name in (select value from carray(?))"
        tests.append((f"(partition_id in ({named}) {unnamed})", [apsw.carray(filters.partitions)]))
    if filters.source_ids:
        tests.append(("uuid in (select value from carray(?))", [apsw.carray(filters.source_ids)]))
    if filters.source_types:
        tests.append(type_condition(filters.source_types))
    if filters.path_prefix is not None:
        tests.append(path_condition(filters.path_prefix))
    for moment, sign in ((filters.since, ">="), (filters.until, "<")):
        if moment:
            tests.append((f"{SOURCE_DATE} {sign} ?", [moment]))
    sql = f"select id from sources where {' and '.join(test for test, _ in tests)} order by id"
    rows = fetch_column(connection, sql, [value for _, values in tests for value in values])
    source_ids = np.array(rows, np.int64)
    if filters.condition:
        fulfils, named = sql_condition(filters.condition, "sources.metadata", SOURCE_COLUMNS)
        fulfilling = fetch_column(connection, f"select id from sources where {fulfils}", named)
        return np.intersect1d(source_ids, np.array(fulfilling, np.int64))
    return source_ids


def type_condition(types: Sequence[str]) -> tuple[str, list[Any]]:
    """Return SQL for documents of any of those types, formats or kinds of file."""
    names = [name.lower().lstrip(".") for name in types]
    kinds = tuple(form for name in names for form in KINDS.get(name, (name,)))
    listed, suffix = "in (select value from carray(?))", " or ".join(["uri like ?"] * len(kinds))
    bindings = [apsw.carray(tuple(types)), apsw.carray(kinds), *(f"%.{kind}" for kind in kinds)]
    return f"(source_type {listed} or format {listed} or {suffix})", bindings


def path_condition(prefix: str) -> tuple[str, list[Any]]:
    """Return SQL for a file, the documents in a mailbox or archive, or a folder; relative paths match anywhere."""
    if "\0" in prefix:  # no path holds one, and the system refuses to look
        return "0", []
    path_below = os.path.normpath(os.path.expanduser(prefix))
    is_whole = os.path.isabs(path_below)
    start, place = (path_below.rstrip(os.sep), "= 1") if is_whole else (os.sep + path_below, "> 0")
    in_file = f"instr(uri, ?) {place} and instr(sources.metadata, '\"container\"')"
    return f"(instr(uri || ?, ?) {place} or ({in_file}))", [os.sep, start + os.sep, f"{start}#"]


# ---------------------------------------------------------------- conditions on metadata

# Two forms are read, and may be mixed. Short: `{"lang": "it", "year": {"gte": 2020}, "kind": ["a", "b"]}`. Long:
# `{"and": [{"field": "year", "gte": 2020}, {"not": {"field": "lang", "in": ["it", "en"]}}]}`.
#
# What a comparison means, for every backend:
#
# - A field is a key of the metadata; `a.b` is the key b inside the object a, a list of keys names those with a dot.
# - A missing field, and null, fulfil no comparison; `not` is plain negation, so `not` of such a comparison holds.
# - Text compares with text, numbers with numbers (1 equals 1.0), true and false with themselves; nothing is converted,
#   and another type fulfils no comparison. Text is compared exactly, by code points: case and accents count.
# - `eq` and `in` look into arrays, where one equal element is enough. Ranges and `prefix` do not, and nothing looks
#   into objects.
# - `gt`, `gte`, `lt`, `lte` take a number or text; `prefix` takes text and compares its start.

Operator = Literal["eq", "in", "gt", "gte", "lt", "lte", "prefix"]
Scalar = str | int | float | bool
_NAME = re.compile("[^\"'\\\\`\0\ud800-\udfff]+")

MOST_COMPARISONS, MOST_VALUES, MOST_VALUES_IN_ALL, DEEPEST = 100, 1000, 10_000, 20
"""A query of more than these is one that a backend refuses: SQLite binds 32,766 values, and each is compared thrice."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value, or against several for `in`."""

    field: tuple[str, ...]
    """The key, and the keys inside it."""
    operator: Operator
    values: tuple[Scalar, ...]
    """Exactly one but for `in`."""


@dataclass(frozen=True, slots=True)
class Combination:
    """All or any of several conditions; the opposite of one for `not`."""

    operator: Literal["and", "or", "not"]
    parts: tuple[Condition, ...]


Condition = Comparison | Combination


def parse_condition(raw: Any, name: str = "filter") -> Condition | None:
    """Return the condition that a JSON value states; None for null and {}. InvalidInput names the place."""
    if raw is None or raw == {}:
        return None
    condition = _parse(raw, name, 1)
    compared = comparisons(condition)
    if len(compared) > MOST_COMPARISONS:
        raise InvalidInput(f"{name}: more than {MOST_COMPARISONS} comparisons; use `in` for many values.")
    if (values := sum(len(comparison.values) for comparison in compared)) > MOST_VALUES_IN_ALL:
        raise InvalidInput(f"{name}: {values:,} values are too many; use at most {MOST_VALUES_IN_ALL:,}.")
    return condition


def _parse(raw: Any, place: str, depth: int) -> Condition:
    if not isinstance(raw, dict) or not raw:
        raise InvalidInput(f'{place}: {shown_value(raw)} is not a condition; use an object such as {{"lang": "it"}}.')
    if depth > DEEPEST:
        raise InvalidInput(f"{place}: nested more than {DEEPEST} deep.")
    entries = dict(cast("dict[str, Any]", raw))
    parts: list[Condition] = []
    # `{"field": "year", "gte": 2020}` is the long form; `{"field": "x"}` compares a key that is called field.
    if "field" in entries and (len(entries) > 1 or isinstance(entries["field"], list)):
        keys = _parse_field(entries.pop("field"), f"{place}.field")
        parts += [_comparison(keys, operator, value, place) for operator, value in entries.items()]
        entries = {}
    for key, value in entries.items():
        inside = f"{place}.{key}"
        if key in ("and", "or"):
            if not isinstance(value, list) or not value:
                raise InvalidInput(f"{inside}: {shown_value(value)} is not a list of conditions.")
            listed = enumerate(cast("list[Any]", value))
            joined = tuple(_parse(part, f"{inside}[{number}]", depth + 1) for number, part in listed)
            parts.append(Combination("and" if key == "and" else "or", joined))
        elif key == "not":
            parts.append(Combination("not", (_parse(value, inside, depth + 1),)))
        else:
            keys, operators = _parse_field(key, place), cast("dict[str, Any]", value) or {"": None}
            if not isinstance(value, dict):
                operators = {"in" if isinstance(value, list) else "eq": cast("Any", value)}
            parts += [_comparison(keys, operator, operand, inside) for operator, operand in operators.items()]
    return parts[0] if len(parts) == 1 else Combination("and", tuple(parts))


def _parse_field(raw: Any, place: str) -> tuple[str, ...]:
    keys: Any = raw.split(".") if isinstance(raw, str) else raw
    # Every backend's paths hold keys without quotes and backslashes.
    names = cast("list[Any]", keys) if isinstance(keys, list) else [None]
    if not 0 < len(names) <= DEEPEST or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise InvalidInput(
            f"{place}: {shown_value(raw)} is not the name of a metadata field; use letters, digits, spaces and signs "
            'but no quotes or backslashes, "a.b" for the key b inside a.'
        )
    return cast("tuple[str, ...]", tuple(names))


def _comparison(keys: tuple[str, ...], operator: str, value: Any, place: str) -> Comparison:
    if operator not in get_args(Operator):
        raise InvalidInput(f"{place}: '{operator}' is not a comparison; use one of {', '.join(get_args(Operator))}.")
    values, kinds, accepted = [value], {"text", "number"}, "a number or text"
    if operator == "prefix":
        kinds, accepted = {"text"}, "text"
    elif operator == "eq":
        kinds, accepted = {"text", "number", "truth"}, "text, a number, true or false"
    elif operator == "in":
        kinds, accepted = {"text", "number", "truth"}, f"a list of 1 to {MOST_VALUES} texts, numbers, true or false"
        values = cast("list[Any]", value) if isinstance(value, list) else []
    if not 0 < len(values) <= MOST_VALUES or not kinds.issuperset(map(_kind_of, values)):
        raise InvalidInput(f"{place}.{operator}: {shown_value(value)} cannot be compared; use {accepted}.")
    return Comparison(keys, cast("Operator", operator), tuple(values))


def _kind_of(value: Any) -> str:
    # Text, number or truth; empty for what SQLite cannot compare: text ends at NUL, and UTF-8 writes it.
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "number" if -(1 << 63) <= value < 1 << 63 else ""
    if isinstance(value, float):
        return "number" if math.isfinite(value) else ""
    return "text" if isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value) else ""


def shown_value(value: Any) -> str:
    """Return a value as JSON writes it, shortened."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def comparisons(condition: Condition) -> list[Comparison]:
    """Return every comparison in it, left to right."""
    if isinstance(condition, Comparison):
        return [condition]
    return [comparison for part in condition.parts for comparison in comparisons(part)]


def evaluate(condition: Condition, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata that are not in the file fulfil the condition."""
    sql, bindings = sql_condition(condition, ":metadata", {})
    with closing(apsw.Connection(":memory:")) as connection:
        return bool(connection.execute(f"select {sql}", {**bindings, "metadata": json.dumps(metadata)}).get)


def sql_condition(condition: Condition, metadata: str, columns: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the condition over a JSON text column: SQL that is 1 or 0 for every row, never null, and its bindings.

    `metadata` is the SQL of the JSON text, which counts as an empty object if it is none; `columns`: field -> SQL of
    the column that replaces it where the metadata has no such key.
    """
    bindings: dict[str, Any] = {}
    sound = f"iif(json_valid({metadata}), {metadata}, '{{}}')"

    def bind(value: Any) -> str:
        bindings[name := f"condition_{len(bindings)}"] = value
        return f":{name}"

    def write(condition: Condition) -> str:
        if isinstance(condition, Combination):
            parts = [*map(write, condition.parts)]
            return f"not {parts[0]}" if condition.operator == "not" else f"({f' {condition.operator} '.join(parts)})"
        path = bind("$" + "".join(f'."{key}"' for key in condition.field))
        kind, value = f"json_type({sound}, {path})", f"json_extract({sound}, {path})"
        either = f"coalesce({_test(condition, kind, value, bind)}, 0)"
        if condition.operator in ("eq", "in"):
            items = f"json_each(iif({kind} = 'array', {value}, '[]')) as item"
            either = (
                f"({either} or exists (select 1 from {items} where {_test(condition, 'item.type', 'item.atom', bind)}))"
            )
        column = columns.get(condition.field[0]) if len(condition.field) == 1 else None
        if column is None:
            return either
        return f"iif({kind} is null, coalesce({_test(condition, f'typeof({column})', column, bind)}, 0), {either})"

    return write(condition), bindings


def _test(comparison: Comparison, kind: str, value: str, bind: Callable[[Any], str]) -> str:
    tests = [f"{kind} = '{str(truth).lower()}'" for truth in comparison.values if isinstance(truth, bool)]
    texts = [option for option in comparison.values if isinstance(option, str)]
    numbers = [option for option in comparison.values if not isinstance(option, str | bool)]
    for kinds, options in (("('text')", texts), ("('integer', 'real')", numbers)):
        if options:
            names = [bind(option) for option in options]
            sign = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}.get(comparison.operator)
            test = f"{value} {sign} {names[0]}" if sign else f"{value} in ({', '.join(names)})"
            if comparison.operator == "prefix":
                test = f"substr({value}, 1, length({names[0]})) = {names[0]}"
            tests.append(f"({kind} in {kinds} and {test})")
    return f"({' or '.join(tests)})"


def explain_empty_filter(connection: apsw.Connection, filters: Filters) -> list[str]:
    """Return a sentence for each filter that fits no document, with the nearest valid value."""
    where = f"trashed_at is null and sources.collection_id in ({visible_ids(connection)})"

    def values(sql: str, *bindings: Any) -> list[Any]:
        return fetch_column(connection, f"select distinct {sql} where {where}", bindings)

    def fits(condition: str, bindings: Any) -> bool:
        return bool(fetch_one(connection, f"select 1 from sources where {where} and {condition} limit 1", bindings))

    def unknown(field: str, value: str, valid: list[str], *others: str) -> None:
        if value not in valid:
            names = [cut_to(name, 80) for name in sorted(set(valid))[:20]] + (["…"] if len(valid) > 20 else [])
            guess = did_you_mean(value, [*valid, *others])
            remarks.append(f"No {field} '{quoted(value)}'. {choices(names)}{guess and f' {guess}'}")

    remarks: list[str] = []
    for kind in filters.source_types:
        if not fits(*type_condition([kind])):
            unknown("type", kind, [*values("source_type from sources"), *values("format from sources")])
    for partition in filters.partitions:
        unknown("partition", partition, values("name from partitions join sources on partition_id = partitions.id"))
    if (prefix := filters.path_prefix) and not fits(*path_condition(prefix)):
        paths = values("uri from sources")[:50_000]
        above = {path for uri in paths if uri for path in map(str, PurePath(uri).parents)}
        # A relative folder may be anywhere in a path.
        depth = 0 if os.path.isabs(prefix) else prefix.rstrip(os.sep).count(os.sep) + 1
        near = nearest(prefix.rstrip(os.sep), {os.sep.join(folder.split(os.sep)[-depth:]) for folder in above})
        remarks.append(f"Nothing is below '{quoted(prefix)}'." + (f" The nearest is '{near}'." if near else ""))
    entries = "json_each(iif(json_valid(metadata), metadata, '{}'))"
    items = "json_each(case entry.type when 'array' then entry.value else '[]' end)"
    # Each is looked for, and each that is explained looked at, in every document.
    compared = comparisons(filters.condition)[:10] if filters.condition else []
    unmet = (
        condition for condition in compared if not fits(*sql_condition(condition, "sources.metadata", SOURCE_COLUMNS))
    )
    explained = [*islice(unmet, 3)]
    fields = values(f"key from sources, {entries}") if explained else []
    for comparison in explained:
        field, wanted_values = ".".join(comparison.field), comparison.values
        sql = f"coalesce(item.atom, entry.atom) from sources join {entries} as entry on entry.key = ? left join {items}"
        valid = values(f"{sql} as item", field)
        if field not in fields and field == "tags":
            remarks.append("No document has a tag.")
        elif comparison.field[0] not in {*fields, *SOURCE_COLUMNS}:
            unknown("metadata field", field, fields, *SOURCE_COLUMNS)
        elif valid and comparison.operator in ("eq", "in"):
            texts = [str(item) for item in valid if item is not None]
            unknown("tag" if field == "tags" else field, str(wanted_values[0]), texts)
        else:
            remarks.append(f"No document has '{field}' {comparison.operator} '{quoted(str(wanted_values[0]))}'.")
    if filters.since or filters.until:
        dated = [day for day in values(f"{SOURCE_DATE} from sources") if day]
        after, before = filters.since or "", filters.until
        if dated and not any(after <= day and (before is None or day < before) for day in dated):
            remarks.append(f"No document is dated so: they are from {min(dated)[:10]} to {max(dated)[:10]}.")
    return remarks
