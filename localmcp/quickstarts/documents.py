"""Quick starts as files: ConsoleQuickStart documents and catalog rows in YAML, JSON and JSON Lines."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from localmcp.files import reason_of
from localmcp.schemas import Json, compact_json, list_of, mapping_of, one_or_more

METADATA_FILES = ("metadata.yml", "metadata.yaml")
"""The form that is beside a quick start in its folder: {kind: QuickStarts, name, tags}."""
MOST_BYTES = 100_000_000

Tag = tuple[str, str]
"""Kind and value."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A quick start as read, not yet stored."""

    name: str
    content: Json
    tags: tuple[Tag, ...] = ()


@dataclass(slots=True)
class Reading:
    """What files held; `where` and the `problem` of what was left out (`skipped`) or taken as it is (`warnings`)."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    skipped: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    warnings: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


class Unreadable(ValueError):
    """A file, or a part of it, that is not what it claims to be; the message says where."""


# ---------------------------------------------------------------- reading


def read_path(path: Path) -> Reading:
    """Read a file, or every YAML and JSON file below a folder; what cannot be parsed gives one problem a file."""
    reading, files = Reading(), {path.name: path}
    suffixes = (".yml", ".yaml", ".json", ".jsonl", ".ndjson")
    if path.is_dir():
        below = (Path(place, name).relative_to(path) for place, _, names in os.walk(path) for name in names)
        forms = sorted(file for file in below if file.suffix.lower() in suffixes and file.name not in METADATA_FILES)
        files = {str(file): path / file for file in forms if not any(part.startswith(".") for part in file.parts)}
        if not files:
            reading.skipped.append({"where": path.name, "problem": "a folder without a YAML or JSON file"})
    for shown, file in files.items():
        try:
            if not file.is_file():
                raise Unreadable("not a regular file")
            if file.stat().st_size > MOST_BYTES:
                raise Unreadable(f"larger than {MOST_BYTES // 1_000_000} MB")
            text = file.read_text(encoding="utf-8-sig")
            beside = next(filter(Path.is_file, map(file.with_name, METADATA_FILES)), None)
            described = read_values(beside.read_text(encoding="utf-8-sig"), ".yml") if beside else ()
            tags = {str(one.get("name")): read_tags(one.get("tags")) for one in map(mapping_of, described)}
            read_text(text, file.suffix.lower(), shown, reading, tags)
        except (OSError, ValueError) as error:
            problem = str(error) if isinstance(error, Unreadable) else reason_of(error)
            reading.skipped.append({"where": shown, "problem": problem})
    return reading


def read_text(text: str, suffix: str, shown: str, reading: Reading, tags: Mapping[str, tuple[Tag, ...]]) -> None:
    """Add documents from text to a reading; `suffix` says which form it has, `tags` name further tags by document.

    Raises what `read_values` raises, before anything is added.
    """
    items: list[Any] = []
    for value in read_values(text, suffix):
        # A Kubernetes List, or a list of documents.
        items += list_of(mapping_of(value).get("items")) or one_or_more(value)
    for number, item in enumerate(items, start=1):
        where = f"{shown}, item {number}" if len(items) > 1 else shown
        try:
            draft = _draft(item)
        except Unreadable as error:
            reading.skipped.append({"where": where, "problem": str(error)})
            continue
        more = dict.fromkeys((*draft.tags, *tags.get(draft.name, ())))
        reading.drafts.append(replace(draft, tags=tuple(more)))
        complaints = _complaints(draft.content, draft.name)
        reading.warnings.extend({"where": f"{where}: {draft.name}", "problem": complaint} for complaint in complaints)
    if not items:
        reading.skipped.append({"where": shown, "problem": "holds no quick start"})


def _draft(item: Any) -> Draft:
    if not isinstance(item, dict):
        raise Unreadable(
            "is not a quick start: a mapping is needed, such as {kind: QuickStarts, metadata: {name: descale-kettle}, "
            "spec: {displayName: Descale the kettle, description: …, tasks: [{title: Boil vinegar, description: …}]}}"
        )
    row = cast(Json, item)
    is_row = "content" in row and "spec" not in row
    content = row["content"] if is_row else row
    if isinstance(content, str):
        content = next(read_values(content, ".json"), None)
    content = mapping_of(content)
    kind = content.get("kind")
    # The kind in any case and number, or no other kind.
    if kind is not None and str(kind).lower().rstrip("s") not in ("consolequickstart", "quickstart"):
        raise Unreadable(f"is not a quick start: kind is {kind!r}")
    if not isinstance(content.get("spec"), dict):
        raise Unreadable("is not a quick start: it has no 'spec'")
    metadata = mapping_of(content.get("metadata"))
    name = str((row.get("name") if is_row else None) or metadata.get("name") or "").strip()
    if not name:
        raise Unreadable("has no name (metadata.name)")
    if not name.isprintable() or len(name) > 253:
        raise Unreadable(f"has a name that cannot be used: {name[:60]!r}")
    tags = row.get("tags") if is_row else None
    return Draft(name, content, read_tags(tags or metadata.get("tags")))


def read_tags(value: Any) -> tuple[Tag, ...]:
    """Tags given as [{kind, value}], where a value may be a list, or as plain words (kind "tag")."""
    tags: dict[Tag, None] = {}
    for item in list_of(value):
        tag = cast(Json, item) if isinstance(item, dict) else {"kind": "tag", "value": item}
        for tag_value in one_or_more(tag.get("value")):
            if isinstance(tag_value, str | int | float) and str(tag_value).strip():
                tags[str(tag.get("kind") or "tag").strip(), str(tag_value).strip()] = None
    return tuple(tags)


def _complaints(content: Json, name: str) -> list[str]:
    """Return what a ConsoleQuickStart must have (§3) and this one lacks, with its path.

    Real catalogs depart from it in many rows, so these are warnings. A link to a manual needs no tasks.
    """
    spec = mapping_of(content["spec"])
    own, described = mapping_of(content.get("metadata")).get("name"), spec.get("description")
    minutes = spec.get("durationMinutes")
    lacks: dict[str, bool] = {
        f"metadata.name: {own!r} differs from the name {name!r}": own not in (None, name),
        "spec.description: more than 256 characters": isinstance(described, str) and len(described) > 256,
        "spec.durationMinutes: not a whole number of at least 1": type(minutes) is not int or minutes < 1,
        "spec.tasks: missing": not spec.get("link") and not spec.get("tasks"),
    }
    texts = {f"spec.{key}": spec.get(key) for key in ("displayName", "description", "introduction")}
    for number, task in enumerate(list_of(spec.get("tasks"))):
        texts |= {f"spec.tasks[{number}].{key}": mapping_of(task).get(key) for key in ("title", "description")}
    lacks |= {f"{path}: no text": not isinstance(text, str) or not text for path, text in texts.items()}
    return [problem for problem, is_so in lacks.items() if is_so]


# ---------------------------------------------------------------- parsing


def read_values(text: str, suffix: str) -> Iterator[Any]:
    """Yield each document of a text in a file of this ending, with nothing but JSON types in it.

    Raises Unreadable with the line if it cannot be parsed.
    """
    if suffix == ".json":
        values = [_load_json(text, "JSON")]
    elif suffix in (".jsonl", ".ndjson"):
        lines = enumerate(text.split("\n"), start=1)
        values = [_load_json(line, "JSON Lines", number) for number, line in lines if line.strip()]
    else:
        values = _load_yaml(text)
    # After YAML aliases are expanded: a small file can otherwise represent gigabytes.
    budget, deepest = [2_000_000], 60
    yield from (_plain(value, budget, deepest) for value in values if value is not None)


def _load_json(text: str, form: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"at line {line or error.lineno}, column {error.colno}"
        raise Unreadable(f"not {form}: {error.msg} {place}") from error
    except RecursionError as error:
        raise Unreadable("nested too deeply") from error
    except ValueError as error:  # a number of more digits than Python reads
        raise Unreadable(f"not {form}: {error}") from error


def _load_yaml(text: str) -> list[Any]:
    """YAML's safe types without dates: JSON has none, and a date in a text is text."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in listed if not tag.endswith(":timestamp")]
        for first, listed in base.yaml_implicit_resolvers.items()
    }
    try:
        return list(yaml.load_all(text, Loader=type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})))
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Unreadable(f"not YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise Unreadable(f"not YAML: {error}") from error


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """`value` as JSON can hold it: text without lone surrogates and NUL, keys as text, finite numbers."""
    budget[0] -= 1
    if budget[0] < 0 or depth < 0:
        raise Unreadable("nested too deeply or too large")
    if isinstance(value, str):
        if "\0" not in value and (value.isascii() or not re.search("[\ud800-\udfff]", value)):
            return value
        return value.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable(f"holds a number that JSON does not have: {value}")
    # A larger one is infinite to most readers of JSON.
    if isinstance(value, int) and value.bit_length() > 1024:
        raise Unreadable("holds a number of more than 1024 bits")
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {
            _plain(key if isinstance(key, str) else json.dumps(key, default=str), budget, depth):
                _plain(item, budget, depth - 1)
            for key, item in cast("dict[Any, Any]", value).items()
        }  # fmt: skip
    if isinstance(value, list):
        return [_plain(item, budget, depth - 1) for item in cast("list[Any]", value)]
    raise Unreadable(f"holds a {type(value).__name__}, which JSON does not have")


def write_documents(documents: Sequence[Json], form: str) -> str:
    """Return documents as one text in the form yaml, json or jsonl."""
    if form == "jsonl":
        return "".join(compact_json(document) + "\n" for document in documents)
    if form == "json":
        return json.dumps(documents, ensure_ascii=False, indent=2) + "\n"
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(documents, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100, explicit_start=True)


# ---------------------------------------------------------------- as Markdown


def render(content: Json, *, name: str, tags: Sequence[tuple[str, str]] = ()) -> str:
    """Return a quick start to read: introduction, tasks with their review steps, conclusion and what comes next."""
    spec = mapping_of(content.get("spec"))
    conclusion, link = _text(spec.get("conclusion")), mapping_of(spec.get("link"))
    href = _text(link.get("href"))
    minutes = spec.get("durationMinutes")
    facts = [
        f"`{name}`",
        _text(mapping_of(spec.get("type")).get("text")),
        f"{minutes} minutes" if isinstance(minutes, int) and minutes > 1 else "",
        ", ".join(dict.fromkeys(value for _, value in tags)),
    ]
    tasks: list[str] = []
    for number, task in enumerate(list_of(spec.get("tasks")), start=1):
        fields = mapping_of(task)
        review, summary = mapping_of(fields.get("review")), mapping_of(fields.get("summary"))
        tasks += [
            f"## {number}. {_text(fields.get('title'))}",
            _text(fields.get("description")),
            _quoted("Check your work", review.get("instructions")),
            _quoted("If that failed", review.get("failedTaskHelp")),
            _text(summary.get("success")),
        ]
    parts = [
        f"# {_text(spec.get('displayName')) or name}",
        _text(spec.get("description")),
        " · ".join(fact for fact in facts if fact),
        _listed("Before you begin", spec.get("prerequisites")),
        _text(spec.get("introduction")),
        *tasks,
        f"## Done\n\n{conclusion}" if conclusion else "",
        _listed("Next", spec.get("nextQuickStart")),
        f"[{_text(link.get('text')) or href}]({href})" if href else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def task_count(content: Json) -> int:
    """Return how many tasks a quick start has."""
    return len(list_of(mapping_of(content.get("spec")).get("tasks")))


def _quoted(title: str, value: Any) -> str:
    text = _text(value)
    return f"> **{title}.** " + text.replace("\n", "\n> ") if text else ""


def _listed(title: str, value: Any) -> str:
    items = [_text(item) for item in list_of(value)]
    lines = [f"- {item}" for item in items if item]
    return "\n".join([f"**{title}**", "", *lines]) if lines else ""


def _text(value: Any) -> str:
    """Return text without the marks that only a web console understands."""
    if not isinstance(value, str):
        return ""
    # None of the parts may hold what begins the next one, or a text of nothing but brackets takes hours.
    plain = re.sub(r"\[([^\[\]\n]+)\]\{\{highlight [^{}]*\}\}", r"**\1**", value.strip())
    kind = r"\[([^\[\]]+)\]\{\{admonition ([^{}]*)\}\}"
    plain = re.sub(kind, lambda match: f"**{match[2].strip().capitalize() or 'Note'}:** {match[1]}", plain)
    return re.sub(r"\{\{(?:copy|execute|highlight|admonition)[^{}]*\}\}", "", plain)
