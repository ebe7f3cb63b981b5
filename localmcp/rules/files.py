"""Rules in files: CLAUDE.md, AGENTS.md, .cursorrules, .mdc, Copilot, Markdown, JSON Lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from typing_extensions import TypedDict

from localmcp.rules.rulebook import CATEGORIES, RuleDraft
from localmcp.wording.normalize import runs

if TYPE_CHECKING:
    from markdown_it.token import Token

    from localmcp.rules.rulebook import Rule

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
MOST_BYTES = 5_000_000

_ALIASES = {
    "test": "testing", "tests": "testing", "unit tests": "testing", "name": "naming", "names": "naming",
    "naming conventions": "naming", "docs": "documentation", "comments": "documentation", "errors": "error-handling",
    "error handling": "error-handling", "exceptions": "error-handling", "speed": "performance", "code style": "style",
    "formatting": "style", "best practices": "best-practices", "workflow": "best-practices", "git": "best-practices",
    "design": "architecture", "structure": "architecture", "privacy": "security",
}  # fmt: skip
"""Headings that name a category in other words."""


class ImportProblem(TypedDict):
    """What could not be read, and where."""

    where: str
    problem: str


@dataclass(slots=True)
class Reading:
    """What a file held. A category for a draft without one is chosen by meaning."""

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


def read_file(path: Path, shown: str | None = None) -> Reading:
    """Return the rules of a file; what cannot be read is reported with its line and skipped."""
    name = shown or str(path)
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
    try:
        front, body, first = split_front_matter(text)
        description, globs, always = _options(front)
    except Unreadable as error:
        return _unreadable(f"{shown}:{error.line}", str(error))
    # Files for one assistant hold nothing but rules, be it in running text.
    prose = file_name.endswith((".mdc", "rules"))
    drafts = [
        RuleDraft(
            rule,
            category,
            " › ".join(part for part in (description, context) if part),
            origin=f"{shown}:{line + first}",
            globs=rule_globs or globs,
            always_apply=always,
        )
        for text, category, context, line in _markdown_rules(body, prose)
        for rule, rule_globs in [_split_files(text)]
    ]
    return Reading(drafts)


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
    raw = "".join(
        re.sub(r"^(globs|applyTo|paths):[ \t]*([^\"'\[\s].*?)\s*$", _quote_pattern, line) for line in lines[1:end]
    )
    try:
        front: Any = yaml.safe_load(raw) or {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise Unreadable(line, f"broken front matter: {error.problem}") from error
    if not isinstance(front, dict):
        raise Unreadable(2, "the front matter is not a table of `name: value` lines")
    return cast("dict[str, Any]", front), "".join(lines[end + 1 :]), end + 1


def _quote_pattern(match: re.Match[str]) -> str:
    return f"{match[1]}: {json.dumps(match[2])}\n"


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


# ---------------------------------------------------------------- Markdown

_ONLY_FOR = re.compile(r" \(only for files (`[^`]+`(?:, `[^`]+`)*)\)$")
_CHECKBOX = re.compile(r"^\[[ xX]\]\s+")
_LINK_ONLY = re.compile(r"^!?\[[^\]]*\]\([^)]*\)\.?$")
_RULE_LIKE = re.compile(
    r"^(?:\w[\w ]{1,30}:\s+)?"
    r"(?:always|never|do not|don't|avoid|prefer|use|keep|write|make|ensure|run|put|follow|add|ask|check|answer)\b"
    r"|\b(?:must|should|never|always|shall|siempre|nunca|deben?|immer|nie|niemals|muss|müssen|toujours|jamais|doit|doivent"
    r"|sempre|deve|devono|devem|всегда|никогда|должн\w+)\b|必须|禁止|始终|务必|必ず|반드시",
    re.IGNORECASE,
)

_FORBIDS = re.compile(
    r"\b(?:never|not|don['’]?ts?|avoid(?:ing)?|forbidden|prohibited|banned|anti-?patterns?|no(?= )|nicht|nie|niemals"
    r"|kein\w*|vermeide\w*|verboten|nunca|evita\w*|prohibid\w*|proibid\w*|jamais|éviter|interdits?|ne pas|vietat\w*"
    r"|non(?= )|mai|не|никогда|запрещ\w*)\b|不要|禁止|避免|勿|しない|❌|🚫|⛔",
    re.IGNORECASE,
)
"""Words of a heading or sentence that turn the list below it round.

A match too many only makes a rule longer.
"""


def _markdown_rules(text: str, prose: bool) -> Iterator[tuple[str, str, str, int]]:
    """(rule, category or empty, context, line from 1) of each list item, and of paragraphs that are rules."""
    headings: dict[int, str] = {}
    leads: list[str] = []
    introduction = ""
    blocks = list(_blocks(text))
    prose_too = prose and not any(kind == "item" for kind, *_ in blocks)
    single_title = len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    for kind, depth, content, line in blocks:
        if kind == "heading":
            headings = {level: title for level, title in headings.items() if level < depth} | {depth: content}
            leads, introduction = [], ""
            continue
        if kind == "item":
            leads = leads[: depth - 1]
            if _introduces(content):
                leads = [*leads, content.rstrip(":：")]
                continue
        else:
            leads, introduction = [], content.rstrip(":：") if _introduces(content) else ""
            if introduction or not (prose_too or _RULE_LIKE.search(content)):
                continue
        path = [title for level, title in headings.items() if not (single_title and level == 1)]
        above = [introduction, *leads] if introduction else leads
        category, context = _category_of([*path, *above])
        if _LINK_ONLY.match(content) or content.startswith("@"):
            continue
        rule = _with_what_forbids(content, [*path[-1:], *above]) if kind == "item" else content
        if _says_enough(rule):
            yield rule, category, context, line


def _split_files(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a rule without "(only for files `a/*.ts`)" at its end, and the patterns named there."""
    match = _ONLY_FOR.search(text)
    return (text[: match.start()], tuple(re.findall("`([^`]+)`", match[1]))) if match else (text, ())


def _says_enough(rule: str) -> bool:
    """Return whether it is more than a name: three words, or "Use tabs."

    In a script without spaces there are no words to count.
    """
    count = len(rule.split())
    return count >= 3 or (count == 2 and bool(_RULE_LIKE.search(rule))) or (not rule.isascii() and len(runs(rule)) >= 6)


def _introduces(content: str) -> bool:
    return content.endswith((":", "："))


def _with_what_forbids(rule: str, above: Sequence[str]) -> str:
    """Return `Avoid: global state` for an item below "Avoid:", which alone would ask for what it forbids.

    An assistant is shown the rule without its context.
    """
    forbidding = next((title for title in reversed(above) if _FORBIDS.search(title)), None)
    if forbidding is None or _FORBIDS.search(" ".join(rule.split()[:3])):
        return rule
    return f"{forbidding}: {rule}"


def _category_of(path: Sequence[str]) -> tuple[str, str]:
    """Return the category that a heading names, and the other headings as context."""
    remaining = list(path)
    for title in path:
        plain = title.strip().lower()
        name = plain if plain in CATEGORIES else _ALIASES.get(plain)
        if name:
            if plain == name:
                remaining.remove(title)
            return name, " › ".join(remaining)
    return "", " › ".join(remaining)


def _blocks(text: str) -> Iterator[tuple[str, int, str, int]]:
    """Yield (heading|item|paragraph, level, text on one line, line from 1), in order.

    Code, tables and comments are left out.

    The level of an item is how many lists it is in.
    """
    from markdown_it import MarkdownIt

    depth, level, opened, items = 0, 0, "", list[bool]()
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            depth += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            depth -= 1
        elif token.type == "list_item_open":
            items.append(True)
        elif token.type == "list_item_close":
            items.pop()
        elif token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            opened = token.type
            level = int(token.tag[1:]) if token.type == "heading_open" else level
        elif token.type == "inline" and opened in ("heading_open", "paragraph_open"):
            content = _one_line("".join(_source_of(token.children or ())))
            line = token.map[0] + 1 if token.map else 1
            if opened == "heading_open":
                yield "heading", level, content, line
            # Only the first paragraph of an item is the rule; more of them explain it.
            elif not items:
                yield "paragraph", 0, content, line
            elif items[-1]:
                items[-1] = False
                yield "item", depth, _CHECKBOX.sub("", content), line
        elif token.type == "heading_close":
            opened = ""


def _one_line(content: str) -> str:
    return " ".join(content.split())


def _source_of(children: Sequence[Token]) -> Iterator[str]:
    """Yield the Markdown of a line without the marks of strong emphasis: they say nothing to an assistant."""
    ends: list[str] = []
    before = " "
    for position, child in enumerate(children):
        if child.type in ("strong_open", "link_open"):
            start, end = _marks_of(child, before, children[position + 1])
            ends.append(end)
            before = start or before
            yield start
        elif child.type in ("strong_close", "link_close"):
            yield ends.pop()
        else:
            before = _text_of(child) or before
            yield _text_of(child)


def _marks_of(opening: Token, before: str, following: Token) -> tuple[str, str]:
    """Return what stands before and behind a link or strong text, of which the marks are left out."""
    if opening.type == "link_open":
        return ("<", ">") if opening.info == "auto" else ("[", f"]({opening.attrs['href']})")
    # The stars of `src/**/a and lib/**/b`, and the name `__init__`, are no emphasis.
    is_name = opening.markup == "__" and re.fullmatch(r"\w+", following.content) is not None
    mark = opening.markup if is_name or before[-1] == "/" else ""
    return mark, mark


def _text_of(child: Token) -> str:
    match child.type:
        case "code_inline":
            return f"{child.markup}{child.content}{child.markup}"
        case "em_open" | "em_close":
            return child.markup
        case "softbreak" | "hardbreak":
            return " "
        case "image":
            return f"![{child.content}]({child.attrs['src']})"
        case _:
            return child.content


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
        (table.get("category") or "").strip().lower(),
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
    """Return the text of a rule on one line, with its patterns as `_split_files` reads them."""
    patterns = f" (only for files {', '.join(f'`{glob}`' for glob in rule.globs)})" if rule.globs else ""
    return _one_line(rule.rule_text) + patterns


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
