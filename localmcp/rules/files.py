"""Rules in files: CLAUDE.md, AGENTS.md, .cursorrules, .mdc, Copilot, Markdown, JSON Lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from typing_extensions import TypedDict

from localmcp.rules.markdown import markdown_rules, one_line, says_enough, split_files
from localmcp.rules.rulebook import GENERAL, Rule, RuleDraft

Format = Literal["jsonl", "claude", "agents", "cursorrules", "mdc", "copilot", "markdown"]
KNOWN_FILES = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude/CLAUDE.md",
    ".claude/rules/**/*.md",
    "AGENTS.md",
    "GEMINI.md",
    ".cursorrules",
    ".cursor/rules/**/*.mdc",
    ".github/copilot-instructions.md",
    ".github/instructions/**/*.instructions.md",
    ".windsurfrules",
    ".windsurf/rules/**/*.md",
    ".devin/rules/**/*.md",
    ".clinerules",
    ".clinerules/**/*.md",
    ".roorules",
    ".roo/rules/**/*.md",
    ".continue/rules/**/*.md",
    ".junie/guidelines.md",
    ".rules",
    "rules.jsonl",
    "rules.md",
)
"""What is looked for in a project folder."""
FILE_NAMES: dict[Format, str] = {
    "jsonl": "rules.jsonl",
    "claude": "CLAUDE.md",
    "agents": "AGENTS.md",
    "cursorrules": ".cursorrules",
    "copilot": ".github/copilot-instructions.md",
    "markdown": "rules.md",
}
OTHER_FORMS = (".json", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".xml", ".html")
"""Read as Markdown, a whole table would become one rule."""
MOST_BYTES = 5_000_000
MOST_NAMED = 5


class ImportProblem(TypedDict):
    """What could not be read, and where."""

    where: str
    problem: str


@dataclass(slots=True)
class Reading:
    """What a file held."""

    drafts: list[RuleDraft] = field(default_factory=list[RuleDraft])
    problems: list[ImportProblem] = field(default_factory=list[ImportProblem])


class Unreadable(Exception):
    """A file, or a line of it, that cannot be used; the message says where and why."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


# ---------------------------------------------------------------- reading


def find_rule_files(place: Path) -> list[Path]:
    """Return the file itself, or the rule files that a project folder holds."""
    if place.is_file():
        return [place]
    return list(
        dict.fromkeys(path for pattern in KNOWN_FILES for path in sorted(place.glob(pattern)) if path.is_file())
    )


def read_file(path: Path) -> Reading:
    """Return the rules of a file; what cannot be read is reported with its line and skipped."""
    name = str(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            return _unreadable(name, f"larger than {MOST_BYTES // 1_000_000} MB")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        return _unreadable(name, f"not UTF-8: byte {error.start}")
    except OSError as error:
        return _unreadable(name, f"cannot be read: {error.strerror}")
    return read_text(text, path.name, name)


def _unreadable(where: str, problem: str) -> Reading:
    return Reading(problems=[{"where": where, "problem": problem}])


def read_text(text: str, file_name: str, shown: str) -> Reading:
    """Return the rules of a text in a file of that name; `shown` names it in origins and problems."""
    if file_name.endswith((".jsonl", ".ndjson")):
        return _read_jsonl(text, shown)
    if file_name.lower().endswith(OTHER_FORMS):
        return _unreadable(shown, "rules are read from Markdown and JSON Lines: one list item, or one object, for each")
    try:
        front, body, first = split_front_matter(text)
        description, globs, always = _options(front)
    except Unreadable as error:
        return _unreadable(f"{shown}:{error.line}", str(error))
    # Files for one assistant hold nothing but rules, be it in running text.
    prose = file_name.endswith((".mdc", "rules"))
    items = list(markdown_rules(body, prose))
    drafts = [
        RuleDraft(
            rule,
            category or GENERAL,
            " › ".join(part for part in (description, context) if part),
            origin=f"{shown}:{line + first}",
            globs=rule_globs or globs,
            always_apply=always,
        )
        for text, category, context, line in items
        if says_enough(text)
        for rule, rule_globs in [split_files(text)]
    ]
    return Reading(drafts, _too_short(shown, [(text, line + first) for text, _, _, line in items]))


def _too_short(shown: str, items: Sequence[tuple[str, int]]) -> list[ImportProblem]:
    """Return one problem that names the first items of a file (text, line) that are no more than a name."""
    short = [(text, line) for text, line in items if not says_enough(text)]
    if not short:
        return []
    named = ", ".join(f"“{text}” (line {line})" for text, line in short[:MOST_NAMED])
    others = f" and {len(short) - MOST_NAMED} more" if len(short) > MOST_NAMED else ""
    return [{"where": shown, "problem": f"left out, because two words are seldom a rule: {named}{others}"}]


def split_front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the table between the first two `---` lines, the rest, and how many lines precede it.

    Raises:
        Unreadable: it is not closed, or no YAML table; with its line.
    """
    import yaml

    lines = text.splitlines(keepends=True)
    if not lines or lines[0].strip() != "---":
        return {}, text, 0
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise Unreadable(1, "the front matter is not closed by a line ---")
    # Cursor writes patterns bare, and `*` means something else in YAML.
    bare = re.compile(r"^(globs|applyTo|paths):[ \t]*([^\"'\[\s].*?)\s*$")
    raw = "".join(bare.sub(lambda match: f"{match[1]}: {json.dumps(match[2])}\n", line) for line in lines[1:end])
    try:
        front: Any = yaml.safe_load(raw) or {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise Unreadable(line, f"broken front matter: {error.problem}") from error
    if not isinstance(front, dict):
        raise Unreadable(2, "the front matter is not a table of `name: value` lines")
    return cast("dict[str, Any]", front), "".join(lines[end + 1 :]), end + 1


def _options(front: dict[str, Any]) -> tuple[str, tuple[str, ...], bool]:
    """Return the description, the patterns, and whether the rules hold for every task."""
    globs = next((front[name] for name in ("globs", "applyTo", "paths") if name in front), None)
    if isinstance(globs, str):
        globs = _split_patterns(globs)
    if globs is not None and not (
        isinstance(globs, list) and all(isinstance(g, str) for g in cast("list[Any]", globs))
    ):
        raise Unreadable(2, "globs must be text or a list of texts")
    always, description = front.get("alwaysApply", False), front.get("description") or ""
    if not isinstance(always, bool):
        raise Unreadable(2, f"alwaysApply is {always!r}, but must be true or false")
    patterns = tuple(glob for glob in cast("list[str]", globs or []) if glob not in ("*", "**", "**/*"))
    return str(description).strip(), patterns, always


def _split_patterns(text: str) -> list[str]:
    """`a/*.ts, b/{c,d}/**` at the commas outside braces."""
    return [part.strip() for part in re.split(r",(?![^{]*\})", text) if part.strip()]


def _read_jsonl(text: str, shown: str) -> Reading:
    reading = Reading()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            reading.drafts.append(_draft_of_row(json.loads(line), f"{shown}:{number}"))
        except json.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} at column {error.colno}"
            reading.problems.append({"where": f"{shown}:{number}", "problem": problem})
        except (ValueError, TypeError) as error:
            reading.problems.append({"where": f"{shown}:{number}", "problem": str(error)})
    return reading


def _draft_of_row(row: Any, origin: str) -> RuleDraft:
    if not isinstance(row, dict):
        raise TypeError('a line must be an object such as {"rule_text": "…", "category": "…", "context": "…"}')
    table = cast("dict[str, Any]", row)
    for name in ("rule_text", "category", "context", "project"):
        if not isinstance(table.get(name) or "", str):
            raise TypeError(f"{name} is {table[name]!r}, but must be text")
    rule_text = (table.get("rule_text") or "").strip()
    if not rule_text:
        raise ValueError("rule_text is missing")
    globs: Any = table.get("globs") or []
    weight: Any = table.get("weight", 1.0)
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in cast("list[Any]", globs)):
        raise TypeError(f"globs is {globs!r}, but must be a list of texts")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 2:
        raise ValueError(f"weight is {weight!r}, but must be a number from 0 to 2")
    return RuleDraft(
        rule_text,
        (table.get("category") or "").strip().lower() or GENERAL,
        (table.get("context") or "").strip(),
        origin=origin,
        project=table.get("project") or None,
        globs=tuple(cast("list[str]", globs)),
        always_apply=table.get("always_apply") is True,
        weight=float(weight),
    )


# ---------------------------------------------------------------- writing


def write_rules(rules: Sequence[Rule], kind: Format) -> dict[str, str]:
    """Return file name -> text of the rules; reading it gives the same texts, categories and contexts.

    A Markdown file says what forbids ("Never") before each rule below it.
    """
    if kind == "jsonl":
        return {FILE_NAMES[kind]: "".join(_row_of(rule) + "\n" for rule in rules)}
    if kind == "mdc":
        return _write_mdc(rules)
    return {FILE_NAMES[kind]: "# Rules\n\n" + _sections(rules)}


def _row_of(rule: Rule) -> str:
    row: dict[str, Any] = {"rule_text": rule.rule_text, "category": rule.category, "context": rule.context}
    unusual = {
        "project": rule.project,
        "globs": rule.globs,
        "always_apply": bool(rule.always_apply),
        "weight": rule.weight if rule.weight != 1 else None,
    }
    return json.dumps({**row, **{name: value for name, value in unusual.items() if value}}, ensure_ascii=False)


def _sections(rules: Iterable[Rule]) -> str:
    """`## category`, below it `### context`, below that the rules."""
    by_category: dict[str, dict[str, list[str]]] = {}
    for rule in rules:
        by_category.setdefault(rule.category, {}).setdefault(rule.context, []).append(_with_files(rule))
    lines: list[str] = []
    for category, contexts in by_category.items():
        lines += [f"## {category}", ""]
        for context, texts in sorted(contexts.items()):
            lines += [f"### {context}", ""] if context else []
            lines += [*(f"- {text}" for text in texts), ""]
    return "\n".join(lines)


def _with_files(rule: Rule) -> str:
    """Return the text of a rule on one line, with its patterns as `split_files` reads them."""
    patterns = f" (only for files {', '.join(f'`{glob}`' for glob in rule.globs)})" if rule.globs else ""
    return one_line(rule.rule_text) + patterns


def _write_mdc(rules: Sequence[Rule]) -> dict[str, str]:
    """Return a file for each set of patterns, and for what holds always."""
    groups: dict[tuple[str, bool], list[Rule]] = {}
    for rule in rules:
        groups.setdefault((rule.globs_json, bool(rule.always_apply)), []).append(rule)
    files: dict[str, str] = {}
    for number, ((globs_json, always), members) in enumerate(groups.items(), 1):
        globs = json.dumps(json.loads(globs_json), ensure_ascii=False)
        plain = (replace(rule, globs_json="[]") for rule in members)
        front = f"---\ndescription: \nglobs: {globs}\nalwaysApply: {str(always).lower()}\n---\n\n"
        files[f".cursor/rules/rules-{number}.mdc"] = front + "# Rules\n\n" + _sections(plain)
    return files
