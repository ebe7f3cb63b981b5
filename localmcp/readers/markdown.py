"""Reads Markdown and notebooks, and writes the pieces of Markdown that other readers need."""

import json
import logging
import re
import tomllib
from dataclasses import replace
from functools import cache
from html import unescape
from importlib import import_module
from itertools import dropwhile, pairwise
from typing import Any, cast

from localmcp.readers.document import Document, iso_date, json_value, make_document, make_note, one_line, title_among
from localmcp.readers.encodings import decode_text
from localmcp.readers.outline import markdown_parser
from localmcp.schemas import list_of

logger = logging.getLogger(__name__)


def read_markdown(data: bytes, name: str) -> Document:
    """Return Markdown with its front matter, tags and wiki links as metadata."""
    text, metadata = decode_text(data)
    front, title, remark = markdown_head(text)
    date = next((day for key in _DATES if (day := iso_date(front.get(key)))), "")
    metadata = {**front, **_note_metadata(front, text), **metadata}
    return replace(make_note(name, text, "markdown", title, metadata, date), remark=remark)


_DATES = ("date", "updated", "modified", "last_modified", "created")
_CODE = re.compile(r"(?ms)^[ ]{0,3}(```|~~~).*?^[ ]{0,3}\1|`[^`\n]+`")
_TAG = re.compile(r"(?:^|(?<=[\s(])(?<!\]: )(?<!\]\())#([^\W\d_][\w/-]*)(?=[\s.,;:!?)]|$)", re.M)
_WIKI_LINK = re.compile(r"!?\[\[([^\]|#\n]{1,200})(?:#[^\]|\n]{0,200})?(?:\|[^\]\n]{0,200})?\]\]")
MOST_NOTED = 100


def _note_metadata(front: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the tags and wiki links of a note; text without either has none."""
    if "[[" not in text and "#" not in text and "tags" not in front:
        return {}
    prose = _CODE.sub("", text[:1_000_000])
    tags: Any = front.get("tags") or front.get("tag")
    listed: Any = re.split(r"[,\s]+", tags) if isinstance(tags, str) else tags
    named = [str(tag).lstrip("#") for tag in list_of(listed)]
    named += [match[1] for match in _TAG.finditer(prose)]
    links = [one_line(match[1]) for match in _WIKI_LINK.finditer(prose)]
    values = {"tags": list(dict.fromkeys(filter(None, named))), "links": list(dict.fromkeys(links))}
    return {key: value[:MOST_NOTED] for key, value in values.items() if value}


def markdown_head(text: str) -> tuple[dict[str, Any], str, str]:
    """Return the front matter, the title it names or else the first heading, and which of its lines is none."""
    front, start, remark = _front_matter(text)
    title = front.get("title")
    named = str(title) if title and not isinstance(title, list | dict) else ""
    return front, named or first_heading(text[start : start + 10_000]), remark


def _front_matter(text: str) -> tuple[dict[str, Any], int, str]:
    """The YAML between two `---` lines at the top, or the TOML between two `+++` lines, as JSON values, the offset
    at which the body begins, and what is wrong with it."""
    if toml := re.match(r"\+\+\+[ \t]*\r?\n(.{0,65536}?)^\+\+\+[ \t]*\r?$", text, re.S | re.M):
        try:
            return json_value(tomllib.loads(toml[1].replace("\r\n", "\n"))), toml.end(), ""
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            return {}, toml.end(), f"its front matter is not TOML: {error}"
    match = re.match(r"---[ \t]*\r?\n(.{0,65536}?)^(?:---|\.\.\.)[ \t]*\r?$", text, re.S | re.M)
    if not match:
        return {}, 0, ""
    front, remark = _read_yaml(match[1]), ""
    if front is None:
        # One value that is not YAML does not take the others with it: each key is read with the lines below it.
        front = dict[str, Any]()
        for entry in re.split(r"\n(?=[^\s#-])", match[1]):
            values = _read_yaml(entry)
            if values is None:
                key, _, value = entry.partition(":")
                values = {key.strip(): one_line(value)} if value.strip() else {}
                remark = (
                    remark or f"this in its front matter is not YAML, and was read as plain text: {one_line(entry)}"
                )
            front |= values
    return front, match.end(), remark


def _read_yaml(text: str) -> dict[str, Any] | None:
    yaml = import_module("yaml")
    try:
        front: Any = json_value(yaml.load(text, _loader())) if _is_tame(yaml, text) else {}
    except Exception as error:  # The parser raises anything on odd values.
        logger.debug("front matter is not YAML: %s", error)
        return None
    return cast("dict[str, Any]", front) if isinstance(front, dict) else {}


@cache
def _loader() -> Any:
    """Return the safe loader, for which a date that no calendar has is text, so that the other values are read."""
    yaml = import_module("yaml")

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # That in C is several times as fast.
        def construct_timestamp(self, node: Any) -> Any:
            try:
                return self.construct_yaml_timestamp(node)
            except (ValueError, OverflowError):
                return self.construct_scalar(node)

    Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_timestamp)
    return Loader


def _is_tame(yaml: Any, text: str) -> bool:
    """Return whether YAML has no aliases, which grow a few lines into millions of values, and at most 20 levels."""
    depth = 0
    for event in yaml.parse(text, _loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 20 or isinstance(event, yaml.AliasEvent):
            return False
    return True


def first_heading(markdown: str) -> str:
    """Return the first heading of the highest level as plain text.

    None if there is none, it is one of a series, or one of several sections: `## To do` before `## Done`.
    """
    parsed: list[Any] = [*markdown_parser().parse(markdown), None]
    # The HTML that counts as one is always `<h1>`.
    headings = [
        (int(token.tag[1:]) if token.type == "heading_open" else 1, text)
        for token, following in pairwise(parsed)
        if (text := _heading_text(token, following))
    ]
    highest = min((level for level, _ in headings), default=1)
    if highest > 1 and sum(level == highest for level, _ in headings) > 1:
        return ""
    return title_among(text for _, text in dropwhile(lambda heading: heading[0] > highest, headings))


_HTML_TITLE = re.compile(r"<h1\b[^<>]{0,500}>(.{0,500}?)</h1>", re.I | re.S)


def _heading_text(token: Any, following: Any) -> str:
    """Return the words of a heading, or of a first heading in HTML, with which many a README begins; "" for others."""
    if token.type == "heading_open":
        return "".join(part.content for part in following.children or () if part.type != "html_inline").strip()
    match = _HTML_TITLE.search(token.content) if token.type == "html_block" else None
    return " ".join(unescape(re.sub(r"<[^<>]*>", " ", match[1])).split()) if match else ""


RAISED = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
"""Digits in superscript, of which Markdown has none: else a power becomes a digit of its base."""


def read_notebook(data: bytes, name: str) -> Document:
    """Markdown cells as they are, code cells as fences; outputs are left out."""
    notebook = json.loads(decode_text(data)[0])
    cells: list[dict[str, Any]] = notebook.get("cells") or [
        cell for sheet in notebook.get("worksheets", []) for cell in sheet["cells"]
    ]
    language = str(notebook.get("metadata", {}).get("language_info", {}).get("name", "python"))
    text = "\n\n".join(block for cell in cells if (block := _cell_markdown(cell, language)))
    metadata = {"language": one_line(language)}
    title = first_heading(text[:10_000])
    return make_document(name, text, "notebook", "markdown", "docs", title=title, metadata=metadata)


def _cell_markdown(cell: dict[str, Any], language: str) -> str:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(source).strip("\n")
    if cell["cell_type"] != "code" or not text.strip():
        return text
    return code_fence(text, language)


def code_fence(code: str, language: str = "") -> str:
    # A fence that nothing in the code ends.
    marks = "`" * (1 + max((len(run) for run in re.findall("`{3,}", code)), default=2))
    return f"{marks}{language}\n{code}\n{marks}"


def pipe_table(rows: list[list[str]]) -> str:
    rows = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows if any(row)]
    width = max(map(len, rows), default=0)
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
    lines[1:1] = ["|" + " --- |" * width] if lines else []
    return "\n".join(lines)
