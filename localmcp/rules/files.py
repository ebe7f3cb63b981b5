"""Rules in files: CLAUDE.md, AGENTS.md, .cursorrules, .mdc, Copilot, Markdown, JSON Lines; read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from localmcp.errors import NotFound
from localmcp.files import expand_home, reason_of
from localmcp.rules.rulebook import CATEGORIES, GENERAL, Rule, RuleDraft
from localmcp.schemas import without_none
from localmcp.wording.normalize import runs

Format = Literal["jsonl", "claude", "agents", "cursorrules", "mdc", "copilot", "markdown"]
KNOWN_FILES = """
    CLAUDE.md CLAUDE.local.md .claude/CLAUDE.md .claude/rules/**/*.md AGENTS.md GEMINI.md .cursorrules
    .cursor/rules/**/*.mdc .github/copilot-instructions.md .github/instructions/**/*.instructions.md .windsurfrules
    .windsurf/rules/**/*.md .devin/rules/**/*.md .clinerules .clinerules/**/*.md .roorules .roo/rules/**/*.md
    .continue/rules/**/*.md .junie/guidelines.md .rules rules.jsonl rules.md *.mdc rules/**/*.mdc
""".split()
"""What is looked for in a project folder."""
FILE_NAMES: dict[Format, str] = {
    "jsonl": "rules.jsonl",
    "claude": "CLAUDE.md",
    "agents": "AGENTS.md",
    "cursorrules": ".cursorrules",
    "mdc": ".cursor/rules/rules-{}.mdc",
    "copilot": ".github/copilot-instructions.md",
    "markdown": "rules.md",
}
MOST_BYTES = 5_000_000


Reading = tuple[list[RuleDraft], list[dict[str, str]]]
"""What a file held, and what in it could not be read."""


def rule_files_in(path: Path) -> list[Path]:
    """Return the file itself, or the rule files of a project folder; raises NotFound if there are none."""
    place = expand_home(path)
    try:
        if place.is_file():
            return [place]
        place.stat()
    except OSError as error:
        raise NotFound(f"There is no file or folder {str(place)[:200]}: {reason_of(error)}.") from error
    files = (file for pattern in KNOWN_FILES for file in sorted(place.glob(pattern)) if file.is_file())
    if rule_files := list(dict.fromkeys(files)):
        return rule_files
    raise NotFound(f"{place} holds no rule files.", hint=f"Looked for are {', '.join(KNOWN_FILES)}.")


def read_file(path: Path) -> Reading:
    """Return the rules of a file; what cannot be read is reported with its line and skipped."""
    name = str(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            return [], [{"where": name, "problem": f"larger than {MOST_BYTES // 1_000_000} MB"}]
        return read_text(path.read_text(encoding="utf-8-sig"), path.name, name)
    except (OSError, UnicodeDecodeError) as error:
        return [], [{"where": name, "problem": reason_of(error)}]


def read_text(text: str, file_name: str, shown: str) -> Reading:
    """Return the rules of a text in a file of that name; `shown` names it in origins and problems."""
    if file_name.endswith((".jsonl", ".ndjson")):
        return _read_jsonl(text, shown)
    # Read as Markdown, a whole table would become one rule.
    if file_name.lower().endswith((".json", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".xml", ".html")):
        problem = "rules are read from Markdown and JSON Lines: one list item, or one object, for each"
        return [], [{"where": shown, "problem": problem}]
    from localmcp.readers.markdown import markdown_head

    front, _, remark = markdown_head(text)
    globs: Any = next((front[name] for name in ("globs", "applyTo", "paths") if name in front), None) or []
    if isinstance(globs, str):
        # At the commas outside braces: `a/*.ts, b/{c,d}/**`.
        globs = [part.strip() for part in re.split(r",(?![^{]*\})", globs) if part.strip()]
    always = front.get("alwaysApply", False)
    # One bad line does not take the others with it; Cursor writes patterns bare, which YAML reads as something else.
    problems_here = [remark] if remark and not re.search(r": (?:globs|applyTo|paths): ", remark) else []
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in cast("list[Any]", globs)):
        globs, problems_here = [], [*problems_here, "globs must be text or a list of texts"]
    if not isinstance(always, bool):
        always, problems_here = False, [*problems_here, f"alwaysApply is {always!r}, but must be true or false"]
    drafts: list[RuleDraft] = []
    problems: list[dict[str, str]] = [{"where": shown, "problem": problem} for problem in problems_here]
    description = str(front.get("description") or "").strip()
    patterns = tuple(glob for glob in cast("list[str]", globs) if glob not in ("*", "**", "**/*"))
    # Empty lines instead of the front matter keep the numbers of the others.
    if head := re.match(r"---[ \t]*\r?\n.*?^---[ \t]*\r?$", text, re.DOTALL | re.MULTILINE):
        text = "\n" * head[0].count("\n") + text[head.end() :]
    # Files for one assistant hold nothing but rules, be it in running text.
    for item, category, context, line in markdown_rules(text, prose=file_name.endswith((".mdc", "rules"))):
        origin = f"{shown}:{line}"
        if not says_enough(item):
            problems.append({"where": origin, "problem": f"“{item}”: two words are seldom a rule"})
            continue
        # A rule may end in "(only for files `a/*.ts`)".
        only_for = re.search(r" \(only for files (`[^`]+`(?:, `[^`]+`)*)\)$", item)
        rule = item[: only_for.start()] if only_for else item
        about = tuple(re.findall("`([^`]+)`", only_for[1])) if only_for else patterns
        context = " › ".join(part for part in (description, context) if part)
        drafts.append(RuleDraft(rule, category or GENERAL, context, "", origin, None, about, always))
    return drafts, problems


def _read_jsonl(text: str, shown: str) -> Reading:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError  # which takes 86 ms

    class RuleRow(BaseModel):
        model_config = ConfigDict(strict=True)
        rule_text: str = Field(min_length=1)
        category: str | None = None
        context: str | None = None
        project: str | None = None
        globs: list[str] | None = None
        always_apply: bool = False
        weight: float = Field(1.0, ge=0, le=2)

    drafts: list[RuleDraft] = []
    problems: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{shown}:{number}"
        try:
            row = RuleRow.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field_name = ".".join(map(str, first["loc"])) or "the line"
            problems.append({"where": where, "problem": f"{field_name}: {first['msg'].lower()}"})
            continue
        category, context = (row.category or "").strip().lower() or GENERAL, (row.context or "").strip()
        globs, project = tuple(row.globs or ()), row.project or None
        if rule := row.rule_text.strip():
            drafts.append(RuleDraft(rule, category, context, "", where, project, globs, row.always_apply, row.weight))
    return drafts, problems


# ---------------------------------------------------------------- Markdown

_ALIASES = {
    "test": "testing", "tests": "testing", "naming conventions": "naming", "docs": "documentation",
    "comments": "documentation", "errors": "error-handling", "error handling": "error-handling",
    "code style": "style", "formatting": "style", "best practices": "best-practices", "workflow": "best-practices",
    GENERAL: GENERAL,
}  # fmt: skip
"""Headings that name a category in other words."""

_EMPHASIS = re.compile(r"(`+[^`]*`+)|(?<![\w*/])\*\*(?=[^\s*/])([^*]+)\*\*(?![\w*/])")
"""Code, and strong words, whose marks say nothing to an assistant; the stars of `src/**/a` are none."""
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


def markdown_rules(text: str, prose: bool) -> Iterator[tuple[str, str, str, int]]:
    """Yield (text, category or empty, context, line from 1) of each list item, and of paragraphs that are rules."""
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    # What ends in a colon leads what is below it, by level; the paragraph before a list has the level 0.
    headings, leads = dict[int, str](), dict[int, str]()
    blocks = list(_blocks(SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))))
    prose_too = prose and not any(kind == "item" for kind, *_ in blocks)
    single_title = len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    for kind, depth, content, line in blocks:
        if kind == "heading":
            headings = {level: title for level, title in headings.items() if level < depth} | {depth: content}
            leads = {}
            continue
        leads = {level: lead for level, lead in leads.items() if level < depth}
        if content.endswith((":", "：")):
            leads[depth] = content.rstrip(":：")
            continue
        if kind == "paragraph" and not (prose_too or _RULE_LIKE.search(content)):
            continue
        path = [title for level, title in headings.items() if not (single_title and level == 1)]
        above = [lead for lead in leads.values() if lead]
        # The first heading that names a category is one; the others are the context.
        titles, category = [*path, *above], ""
        for title in titles:
            plain = title.strip().lower()
            if category := plain if plain in CATEGORIES else _ALIASES.get(plain, ""):
                titles = [other for other in titles if other is not title or plain != category]
                break
        context = " › ".join(titles)
        if re.match(r"!?\[[^\]]*\]\([^)]*\)\.?$", content) or content.startswith("@"):
            continue
        if kind == "item":
            # An assistant is shown no context: an item below "Avoid:" alone would ask for what it forbids.
            forbidding = next((title for title in reversed([*path[-1:], *above]) if _FORBIDS.search(title)), "")
            forbids_itself = _FORBIDS.search(" ".join(content.split()[:3]))
            yield f"{forbidding}: {content}" if forbidding and not forbids_itself else content, category, context, line
        elif says_enough(content):
            yield content, category, context, line


def says_enough(rule: str) -> bool:
    """Return whether it is more than a name: three words, or "Use tabs." and "No abbreviations."

    In a script without spaces there are no words to count.
    """
    count = len(rule.split())
    asks = _RULE_LIKE.search(rule) or _FORBIDS.search(rule)
    return count >= 3 or (count == 2 and bool(asks)) or (not rule.isascii() and len(runs(rule)) >= 6)


def _blocks(node: Any, depth: int = 0, is_new: bool = False) -> Iterator[tuple[str, int, str, int]]:
    """Yield (heading|item|paragraph, level, text on one line, line from 1), in order, without code, tables, comments.

    The level of an item is how many lists it is in.
    """
    for child in node.children:
        if child.type in ("bullet_list", "ordered_list", "list_item", "blockquote"):
            yield from _blocks(child, depth + child.type.endswith("_list"), is_new or child.type == "list_item")
            is_new = is_new and child.type != "blockquote"
        if child.type not in ("heading", "paragraph"):
            continue
        content = _EMPHASIS.sub(lambda match: match[1] or match[2], " ".join(child.children[0].content.split()))
        line = child.map[0] + 1 if child.map else 1
        if child.type == "heading":
            yield "heading", int(child.tag[1:]), content, line
        elif not depth:
            yield "paragraph", 0, content, line
        elif is_new:
            # Only the first paragraph of an item is the rule; more of them explain it.
            is_new = False
            yield "item", depth, re.sub(r"^\[[ xX]\]\s+", "", content), line


def write_rules(rules: Sequence[Rule], kind: Format) -> dict[str, str]:
    """Return file name -> text of the rules; reading it gives the same texts, categories and contexts.

    A Markdown file says what forbids ("Never") before each rule below it.
    """
    if kind == "jsonl":
        lines: list[str] = []
        for rule in rules:
            row = {"rule_text": rule.rule_text, "category": rule.category, "context": rule.context}
            always, weight = bool(rule.always_apply) or None, rule.weight if rule.weight != 1 else None
            unusual = {"project": rule.project, "globs": rule.globs or None, "always_apply": always, "weight": weight}
            lines.append(json.dumps(row | without_none(unusual), ensure_ascii=False) + "\n")
        return {FILE_NAMES[kind]: "".join(lines)}
    if kind != "mdc":
        return {FILE_NAMES[kind]: "# Rules\n\n" + _sections(rules)}
    # A file for each set of patterns, and for what holds always.
    groups: dict[tuple[str, bool], list[Rule]] = {}
    for rule in rules:
        groups.setdefault((rule.globs_json, bool(rule.always_apply)), []).append(replace(rule, globs_json="[]"))
    files: dict[str, str] = {}
    for number, ((globs_json, always), members) in enumerate(groups.items(), 1):
        globs = json.dumps(json.loads(globs_json), ensure_ascii=False)
        front = f"---\ndescription: \nglobs: {globs}\nalwaysApply: {str(always).lower()}\n---\n\n"
        files[FILE_NAMES["mdc"].format(number)] = front + "# Rules\n\n" + _sections(members)
    return files


def _sections(rules: Iterable[Rule]) -> str:
    """`## category`, below it `### context`, below that the rules, with their patterns as `read_text` reads them."""
    by_category: dict[str, dict[str, list[str]]] = {}
    for rule in rules:
        patterns = f" (only for files {', '.join(f'`{glob}`' for glob in rule.globs)})" if rule.globs else ""
        texts = by_category.setdefault(rule.category, {}).setdefault(rule.context, [])
        texts.append(" ".join(rule.rule_text.split()) + patterns)
    lines: list[str] = []
    for category, contexts in by_category.items():
        lines += [f"## {category}", ""]
        for context, texts in sorted(contexts.items()):
            lines += [f"### {context}", ""] if context else []
            lines += [*(f"- {text}" for text in texts), ""]
    return "\n".join(lines)
