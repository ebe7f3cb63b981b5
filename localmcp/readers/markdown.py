"""Reads Markdown, notebooks, and text that marks its headings in other ways; writes Markdown for other readers."""

import json
import logging
import re
from html import unescape
from importlib import import_module
from typing import Any, cast

from localmcp.readers.document import Document, iso_date, json_value, make_document, one_line, title_among
from localmcp.readers.encodings import decode_text
from localmcp.readers.outline import scan_markdown
from localmcp.readers.packages import suffix_of
from localmcp.schemas import list_of

logger = logging.getLogger(__name__)

_CODE = re.compile(r"(?ms)^[ ]{0,3}(```|~~~).*?^[ ]{0,3}\1|`[^`\n]+`")
_TAG = re.compile(r"(?:^|(?<=[\s(])(?<!\]: )(?<!\]\())#([^\W\d_][\w/-]*)(?=[\s.,;:!?)]|$)", re.M)
_WIKI_LINK = re.compile(r"!?\[\[([^\]|#\n]{1,200})(?:#[^\]|\n]{0,200})?(?:\|[^\]\n]{0,200})?\]\]")


def read_markdown(data: bytes, name: str) -> Document:
    """Return Markdown with its front matter, tags and wiki links as metadata."""
    text, metadata = decode_text(data)
    front, title, remark = markdown_head(text)
    dates = (iso_date(front.get(key)) for key in ("date", "updated", "modified", "last_modified", "created"))
    tags: Any = front.get("tags") or front.get("tag")
    listed: Any = re.split(r"[,\s]+", tags) if isinstance(tags, str) else tags
    prose = _CODE.sub("", text[:1_000_000]) if "[[" in text or "#" in text else ""
    named = [*(str(tag).lstrip("#") for tag in list_of(listed)), *(match[1] for match in _TAG.finditer(prose))]
    links = [one_line(match[1]) for match in _WIKI_LINK.finditer(prose)]
    # At most 100 of one note are kept.
    noted = {"tags": list(dict.fromkeys(filter(None, named)))[:100], "links": list(dict.fromkeys(links))[:100]}
    return make_document(
        name,
        text,
        "markdown",
        title=title,
        metadata=front | {key: value for key, value in noted.items() if value} | metadata,
        date=next(filter(None, dates), ""),
        date_from="front matter",
        remark=remark,
    )


def markdown_head(text: str) -> tuple[dict[str, Any], str, str]:
    """Return the front matter, the title it names or else the first heading, and which of its lines is none."""
    match = re.match(r"---[ \t]*\r?\n(.{0,65536}?)^(?:---|\.\.\.)[ \t]*\r?$", text, re.S | re.M)
    front, remark = _read_yaml(match[1]) if match else {}, ""
    if match and front is None:
        # One value that is not YAML does not take the others with it: each key is read with the lines below it.
        front = dict[str, Any]()
        for entry in re.split(r"\n(?=[^\s#-])", match[1]):
            values = _read_yaml(entry)
            if values is None:
                key, _, value = entry.partition(":")
                values = {key.strip(): one_line(value)} if value.strip() else {}
                remark = remark or f"this in its front matter was read as plain text: {one_line(entry)}"
            front |= values
    front = front or {}
    title = front.get("title")
    named = str(title) if title and not isinstance(title, list | dict) else ""
    start = match.end() if match else 0
    return front, named or first_heading(text[start : start + 10_000]), remark


def _read_yaml(text: str) -> dict[str, Any] | None:
    """Return the values of a mapping, {} for other YAML, None for none.

    `*name` refers to a value before, which grows a few lines into millions of values; people mean a pattern by it.
    """
    yaml = import_module("yaml")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # That in C is several times as fast.
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > 20 or isinstance(event, yaml.AliasEvent):
                return None
        front: Any = json_value(yaml.load(text, loader))
    except Exception as error:  # The parser raises anything on odd values.
        logger.debug("front matter is not YAML: %s", error)
        return None
    return cast("dict[str, Any]", front) if isinstance(front, dict) else {}


def first_heading(markdown: str) -> str:
    """Return the first heading of the highest level as plain text.

    "" if there is none, it is one of a series, or one of several sections: `## To do` before `## Done`.
    """
    found, fences = scan_markdown(markdown)
    headings = [(heading.start, heading.level, heading.title) for heading in found if heading.title]
    # With one in HTML many a README begins.
    for match in re.finditer(r"(?is)<h1\b[^<>]{0,500}>((?:(?!\n[ \t]*\n).){0,500}?)</h1>", markdown):
        words = " ".join(unescape(re.sub(r"<[^<>]*>", " ", match[1])).split())
        if words and not any(start <= match.start() < stop for start, stop in fences):
            headings.append((match.start(), 1, words))
            break
    highest = min((level for _, level, _ in headings), default=1)
    titles = [title for _, level, title in sorted(headings) if level == highest]
    if highest > 1 and len(titles) > 1:
        return ""
    return title_among(titles)


RAISED = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
"""Digits in superscript, of which Markdown has none: else a power becomes a digit of its base."""


def read_notebook(data: bytes, name: str) -> Document:
    """Markdown cells as they are, code cells as fences; outputs are left out."""
    notebook = json.loads(decode_text(data)[0])
    language = str(notebook.get("metadata", {}).get("language_info", {}).get("name", "python"))
    blocks: list[str] = []
    for cell in notebook.get("cells", ()):
        text = "".join(cell["source"]).strip("\n")
        is_code = cell["cell_type"] == "code" and text.strip()
        blocks.append(code_fence(text, language) if is_code else text)
    text = "\n\n".join(filter(None, blocks))
    metadata = {"language": one_line(language)}
    return make_document(name, text, "notebook", title=first_heading(text[:10_000]), metadata=metadata)


def code_fence(code: str, language: str = "") -> str:
    """Return code in a fence that nothing in it ends."""
    marks = "`" * (1 + max((len(run) for run in re.findall("`{3,}", code)), default=2))
    return f"{marks}{language}\n{code}\n{marks}"


def pipe_table(rows: list[list[str]]) -> str:
    """Return rows as a table whose first row is its head."""
    rows = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows if any(row)]
    width = max(map(len, rows), default=0)
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
    lines[1:1] = ["|" + " --- |" * width] if lines else []
    return "\n".join(lines)


# ---------------------------------------------------------------- Org, AsciiDoc and LaTeX

HEADED = {".org": "org", ".adoc": "asciidoc", ".asciidoc": "asciidoc", ".tex": "latex", ".ltx": "latex"}
"""Suffixes of text that `read_headed` reads, and its format."""
_LATEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_MARKED_HEADING = re.compile(
    rf"(?m)^(?:(\*{{1,6}})[ \t]+(.*?)(?:[ \t]+:[\w@:]+:)?[ \t]*|(={{1,6}})[ \t]+(\S.*)"
    rf"|[ \t]*\\({'|'.join(_LATEX_LEVELS)})\*?\{{(.*)\}}.*)$"
)
_FIELD = re.compile(r"(?im)^(?:#\+(title|date):[ \t]*(.+)|\\(title|date)\{([^{}]*)\}.*|:(revdate):[ \t]*(.+))$")
_FENCE = re.compile(
    r"(?im)^[ \t]*(?:#\+(?:begin|end)_(?:src|example)\b.*|\\(?:begin|end)\{(?:verbatim|lstlisting)\}.*)$"
)


def read_headed(data: bytes, name: str) -> Document:
    """Return text of Org, AsciiDoc or LaTeX line by line, its headings and listings as those of Markdown."""
    text, metadata = decode_text(data)
    kind, text = HEADED[suffix_of(name)], text.replace("\r\n", "\n")
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text):
        fields.setdefault((match[1] or match[3] or "date").lower(), (match[2] or match[4] or match[6] or "").strip())
    # AsciiDoc has these rows around blocks; below a line they would make it a heading.
    text = re.sub(r"(?m)^(?:-{4,}|\.{4,})[ \t]*$", "```", text) if kind == "asciidoc" else _FENCE.sub("```", text)

    def heading(match: re.Match[str]) -> str:
        marks, words = match[1] or match[3], match[2] or match[4] or match[6] or ""
        return f"{'#' * (len(marks) if marks else max(_LATEX_LEVELS.index(match[5]), 1))} {words}"

    text = "```".join(
        part if at % 2 else _MARKED_HEADING.sub(heading, part) for at, part in enumerate(text.split("```"))
    )
    title, date = fields.get("title") or first_heading(text[:10_000]), iso_date(fields.get("date", ""))
    return make_document(name, text, kind, title=title, metadata=metadata, date=date, date_from="front matter")


# ---------------------------------------------------------------- manual pages

_MAN_ARGUMENT = re.compile(r'"([^"]*)"?|(\S+)')
_MAN_HEADINGS = {"TH": "# ", "Dt": "# ", "SH": "## ", "Sh": "## ", "SS": "### ", "Ss": "### "}
_MAN_SIGNS = {
    **{"bu": "•", "em": "—", "en": "–", "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "dq": '"', "->": "→"},
    **{"C`": '"', "C'": '"', 'L"': "“", 'R"': "”", "ti": "~", "ha": "^", "ga": "`", "rs": "\\", "e": "\\", "\\": "\\"},
    **{"~": " ", "0": " ", "-": "-", "hy": "-", "mi": "-", "'": "'", "`": "`", ".": ".", " ": " "},
}
_MAN_ESCAPE = re.compile(
    r"\\(?:\".*|[fmnFgkMVY](?:\(..|\[[^\]\n]*\]|.)|s[-+]?\d{1,2}|[hvwXZDlLboS]'[^'\n]*'"
    r"|\*?(?:\((..)|\[([^\]\n]*)\])|\*?(.)|$)"
)


def read_man_page(data: bytes, name: str) -> Document:
    """Return a manual page: its headings and words without the requests to the typesetter, line by line."""
    text, metadata = decode_text(data)
    text = text.replace("\r\n", "\n")

    def plain(words: str) -> str:
        return _MAN_ESCAPE.sub(lambda escape: _MAN_SIGNS.get(escape[1] or escape[2] or escape[3] or "", ""), words)

    def arguments(words: str) -> list[str]:
        return [plain(match[1] or match[2] or "") for match in _MAN_ARGUMENT.finditer(re.sub(r'\\".*', "", words))]

    titled = re.search(r"(?m)^\.(?:TH|Dt)[ \t]+(.+)", text)
    title = [*arguments(titled[1] if titled else name), "", "", ""]
    named = f"{title[0].lower() if title[0].isupper() else title[0]}({title[1]})"
    # What a macro is defined as, and the other branch of a condition, are not printed.
    hidden = r"(?ms)^[.'][ \t]*(?:(?:de1?|am|ig)\b.*?^\.\.|el\b[^\n]*\\\{.*?^\.[ \t]*\\\})[ \t]*$"
    text = re.sub(hidden, lambda match: "\n" * match[0].count("\n"), text)
    # Macros, besides headings, whose arguments are printed.
    printed = "B I SM SB BR RB BI IB IR RI IP Nm Nd Fl Ar Op It Pa Xr Ic Cm Em Sy Va Ev Li Dl Ql Fn Fa".split()
    lines: list[str] = []
    heading = ""
    for line in text.split("\n"):
        request = re.fullmatch(r"[.'][ \t]*([^\s\\\"]*)[ \t]*(.*)", line)
        macro = request[1] if request else ""
        heading = _MAN_HEADINGS.get(macro, heading)
        words = "" if request else plain(line)
        if macro in ("TH", "Dt"):
            words = named
        elif request and (macro in _MAN_HEADINGS or macro in printed):
            # Words in two fonts touch.
            touching = len(macro) == 2 and set(macro) <= set("BIR")
            words = ("" if touching else " ").join(arguments(request[2])[: 1 if macro == "IP" else None])
        if words:
            # What only looks like a heading of Markdown, or the underline of one, is indented.
            is_marked = not heading and (words.lstrip()[:1] == "#" or not words.strip("-= "))
            words, heading = heading + ("    " if is_marked else "") + words, ""
        lines.append(words)
    text, date = "\n".join(lines), iso_date(title[2])
    return make_document(name, text, "man page", title=named, metadata=metadata, date=date, date_from="front matter")
