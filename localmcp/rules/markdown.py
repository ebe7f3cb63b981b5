"""Rules in Markdown: list items, and paragraphs that ask for something."""

from __future__ import annotations

import re
from collections.abc import Iterator

from localmcp.rules.rulebook import CATEGORIES, GENERAL
from localmcp.wording.normalize import runs

_ALIASES = {
    "test": "testing", "tests": "testing", "naming conventions": "naming", "docs": "documentation",
    "comments": "documentation", "errors": "error-handling", "error handling": "error-handling",
    "code style": "style", "formatting": "style", "best practices": "best-practices", "workflow": "best-practices",
    GENERAL: GENERAL,
}  # fmt: skip
"""Headings that name a category in other words."""

_ONLY_FOR = re.compile(r" \(only for files (`[^`]+`(?:, `[^`]+`)*)\)$")
_EMPHASIS = re.compile(r"(`+[^`]*`+)|(?<![\w*/])\*\*(?=[^\s*/])([^*]+)\*\*(?![\w*/])")
"""Code, and strong words, whose marks say nothing to an assistant; the stars of `src/**/a` are none."""
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


def markdown_rules(text: str, prose: bool) -> Iterator[tuple[str, str, str, int]]:
    """Yield (text, category or empty, context, line from 1) of each list item, and of paragraphs that are rules."""
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
            if content.endswith((":", "：")):
                leads = [*leads, content.rstrip(":：")]
                continue
        else:
            leads, introduction = [], content.rstrip(":：") if content.endswith((":", "：")) else ""
            if introduction or not (prose_too or _RULE_LIKE.search(content)):
                continue
        path = [title for level, title in headings.items() if not (single_title and level == 1)]
        above = [introduction, *leads] if introduction else leads
        # The first heading that names a category is one; the others are the context.
        titles, category = [*path, *above], ""
        for title in titles:
            plain = title.strip().lower()
            if category := plain if plain in CATEGORIES else _ALIASES.get(plain, ""):
                titles = [other for other in titles if other is not title or plain != category]
                break
        context = " › ".join(titles)
        if _LINK_ONLY.match(content) or content.startswith("@"):
            continue
        if kind == "item":
            # An assistant is shown no context: an item below "Avoid:" alone would ask for what it forbids.
            forbidding = next((title for title in reversed([*path[-1:], *above]) if _FORBIDS.search(title)), "")
            forbids_itself = _FORBIDS.search(" ".join(content.split()[:3]))
            yield f"{forbidding}: {content}" if forbidding and not forbids_itself else content, category, context, line
        elif says_enough(content):
            yield content, category, context, line


def split_files(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a rule without "(only for files `a/*.ts`)" at its end, and the patterns named there."""
    match = _ONLY_FOR.search(text)
    return (text[: match.start()], tuple(re.findall("`([^`]+)`", match[1]))) if match else (text, ())


def says_enough(rule: str) -> bool:
    """Return whether it is more than a name: three words, or "Use tabs." and "No abbreviations."

    In a script without spaces there are no words to count.
    """
    count = len(rule.split())
    asks = _RULE_LIKE.search(rule) or _FORBIDS.search(rule)
    return count >= 3 or (count == 2 and bool(asks)) or (not rule.isascii() and len(runs(rule)) >= 6)


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
            content = _EMPHASIS.sub(lambda match: match[1] or match[2], one_line(token.content))
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


def one_line(content: str) -> str:
    """Return a text with one space for any white space."""
    return " ".join(content.split())
