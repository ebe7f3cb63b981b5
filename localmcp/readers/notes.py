"""Reads Org, AsciiDoc and LaTeX line by line as Markdown, so that the lines of a citation are those of the file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from localmcp.readers.document import Document, iso_date, make_note
from localmcp.readers.encodings import decode_text
from localmcp.readers.markdown import fence_around, first_heading

_ORG_HEADING = re.compile(r"(\*{1,6})[ \t]+(.*)")
_ORG_TAGS = re.compile(r"(?:^|(?<=[ \t])):([\w@:]+):$")
_ORG_BLOCK = re.compile(r"[ \t]*#\+(begin|end)_(src|example|quote|verse|export)\b[ \t]*([\w+-]*)", re.I)
_ORG_KEYWORD = re.compile(r"[ \t]*#\+(\w+):[ \t]*(.*)")
_ORG_UNREAD = re.compile(r"[ \t]*(?::[A-Z_]+:|#(?: |$))")
"""Properties and comments."""
_ORG_LINK = re.compile(r"\[\[([^\]\n]+)\](?:\[([^\]\n]+)\])?\]")


def read_org(data: bytes, name: str) -> Document:
    """Return an Org file: its headings, blocks of code, and what it says about itself."""
    text, metadata = decode_text(data)
    about: dict[str, str] = {}
    tags: list[str] = []
    marks = fence_around(text)
    lines: list[str] = []
    in_code = False
    for line in text.replace("\r\n", "\n").split("\n"):
        block = _ORG_BLOCK.match(line)
        if block and block[2].lower() in ("src", "example", "export"):
            in_code = block[1].lower() == "begin"
            lines.append(f"{marks}{block[3] if in_code else ''}")
        else:
            lines.append(line if in_code else "" if block else _org_line(line, about, tags))
    tags += about.get("filetags", "").strip(":").split(":")
    metadata |= {key: about[key] for key in ("author",) if about.get(key)}
    return _document(name, lines, "org", metadata, tags, about.get("title", ""), about.get("date", ""))


def _org_line(line: str, about: dict[str, str], tags: list[str]) -> str:
    if line.startswith("*") and (heading := _ORG_HEADING.fullmatch(line.rstrip())):
        tagged = _ORG_TAGS.search(heading[2])
        tags += tagged[1].split(":") if tagged else []
        return f"{'#' * len(heading[1])} {_org_text(_ORG_TAGS.sub('', heading[2]).rstrip())}"
    if keyword := _ORG_KEYWORD.match(line):
        about.setdefault(keyword[1].lower(), keyword[2].strip())
        return keyword[2].strip() if keyword[1].lower() in ("title", "subtitle", "caption") else ""
    return "" if _ORG_UNREAD.match(line) else _org_text(line)


def _org_text(text: str) -> str:
    return _ORG_LINK.sub(lambda link: link[2] or link[1], text)


_ADOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
_ADOC_LANGUAGE = re.compile(r"\[source,[ \t]*([\w+-]+)[^\]\n]*\][ \t]*")
_ADOC_LISTING = re.compile(r"(-{4,}|\.{4,})[ \t]*")
_ADOC_BORDER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--)[ \t]*")
_ADOC_UNDERLINE = re.compile(r"([=\-~^+])\1{2,}[ \t]*")


def read_adoc(data: bytes, name: str) -> Document:
    """Return an AsciiDoc file: its headings and listings."""
    text, metadata = decode_text(data)
    lines: list[str] = []
    fence = language = ""
    marks = fence_around(text)
    for line in text.replace("\r\n", "\n").split("\n"):
        if fence:
            is_end = line.rstrip() == fence
            lines.append(marks if is_end else line)
            fence = "" if is_end else fence
        elif level := _adoc_level(lines, line):
            lines[-1:] = [f"{'#' * level} {lines[-1]}", ""]
        elif listing := _ADOC_LISTING.fullmatch(line):
            fence = listing[1]
            lines.append(f"{marks}{language}")
        else:
            lines.append(_adoc_line(line))
        source = _ADOC_LANGUAGE.fullmatch(line)
        language = source[1] if source else ""
    return _document(name, lines, "asciidoc", metadata, [], "", "")


def _adoc_level(lines: list[str], row: str) -> int:
    """Return the level of the title that a row underlines, which is about as long; 0 if it underlines none."""
    *above, title = ("", "", *lines[-2:])
    begins = re.match(r"(?![.\[#]).*\w", title) and (not above[-1].strip() or above[-1].startswith("["))
    if not begins or not _ADOC_UNDERLINE.fullmatch(row) or abs(len(title.rstrip()) - len(row.rstrip())) > 2:
        return 0
    return "=-~^+".index(row[0]) + 1


def _adoc_line(line: str) -> str:
    if heading := _ADOC_HEADING.fullmatch(line.rstrip()):
        return f"{'#' * len(heading[1])} {heading[2]}"
    # The border of a block would make a heading of the line above it.
    return "" if _ADOC_BORDER.fullmatch(line) or _ADOC_LANGUAGE.fullmatch(line) else line


_TEX_HEADINGS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_HEADING = re.compile(
    rf"\\({'|'.join(_TEX_HEADINGS)})\*?(?:\[[^\]\n]*\])?\{{([^{{}}\n]*(?:\{{[^{{}}\n]*\}}[^{{}}\n]*)*)\}}"
)
_TEX_ABOUT = re.compile(
    r"(?m)^[^%\n]*?\\(title|author|date)\{((?:[^{}]|\{(?:[^{}]|\{[^{}]{0,200}\}){0,500}\}){0,5000})\}"
)
_TEX_AND = re.compile(r"\s*\\and(?![a-zA-Z])")
_GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_TEX_LETTERS = {
    "ss": "ß",
    "ae": "æ",
    "AE": "Æ",
    "oe": "œ",
    "OE": "Œ",
    "o": "ø",
    "O": "Ø",
    "aa": "å",
    "AA": "Å",
    "l": "ł",
    **dict(zip(_GREEK.split(), "αβγδεεζηθικλμνξπρστυφφχψωΓΔΘΛΞΠΣΥΦΨΩ", strict=True)),
    **{"le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "times": "×", "cdot": "·"},
    **{
        "pm": "±",
        "infty": "∞",
        "sum": "∑",
        "int": "∫",
        "partial": "∂",
        "to": "→",
        "in": "∈",
        "sqrt": "√",
        "ldots": "…",
    },
}
_TEX_LETTER = re.compile(rf"\\({'|'.join(_TEX_LETTERS)})(?![a-zA-Z])(?:\{{\}}|[ ])?")
_TEX_DROPPED = re.compile(
    r"\\(?:cite[tp]?|ref|eqref|label|pageref|index|includegraphics|bibliographystyle|bibliography|usepackage|input|"
    r"vspace|hspace|centering|maketitle|tableofcontents|newpage|noindent|hypertarget|begin|end)(?![a-zA-Z])\*?"
    r"(?:\[[^\]\n]{0,200}\]|\{(?:[^{}\n]|\{[^{}\n]{0,100}\}){0,200}\})*"
)
_TEX_COMMAND = re.compile(r"\\[a-zA-Z]{1,30}\*?(?:\[[^\]\n]{0,200}\])?(?:\{([^{}\n]*)\})?")
_TEX_ACCENT = re.compile(r"\\([`'^\"~])\{?\\?([a-zA-Z])\}?")
_ACCENTS = {"`": "\u0300", "'": "\u0301", "^": "\u0302", '"': "\u0308", "~": "\u0303"}


_TEX_CODE = re.compile(r"[ \t]*\\begin\{(verbatim|Verbatim|lstlisting|minted)\b")


def read_tex(data: bytes, name: str) -> Document:
    """Return a LaTeX file: headings, items and words; commands, comments and the preamble are left out.

    Of the preamble, who wrote it and when is kept where it is: that is searched for.
    """
    text, metadata = decode_text(data)
    text = text.replace("\r\n", "\n")
    matches = list(_TEX_ABOUT.finditer(text[:20_000]))
    about = {match[1]: " ".join(_tex_text(_TEX_AND.sub(",", match[2])).split()) for match in matches}
    begin = text.find("\\begin{document}")
    preamble = text.count("\n", 0, begin) if begin >= 0 else 0
    body = text.partition("\n\\end{document}")[0].split("\n")
    lines = [*[""] * preamble, *_tex_lines(body[preamble:], fence_around(text))]
    for match in matches:
        if match.start() < begin and match[1] != "title":
            lines[text.count("\n", 0, match.start())] = about[match[1]]
    metadata |= {"author": about["author"]} if about.get("author") else {}
    return _document(name, lines, "tex", metadata, [], about.get("title", ""), about.get("date", ""))


def _tex_lines(body: list[str], marks: str) -> Iterator[str]:
    code = ""
    for line in body:
        if code:
            is_end = f"\\end{{{code}" in line
            yield marks if is_end else line
            code = "" if is_end else code
        elif (listing := _TEX_CODE.match(line)) and "\\end{" not in line:
            code = listing[1]
            yield marks
        else:
            yield _tex_line(line)


def _tex_line(line: str) -> str:
    line = re.sub(r"(?<!\\)%.*", "", line)
    if heading := _TEX_HEADING.search(line):
        title, behind = _tex_text(heading[2]), _tex_text(line[heading.end() :]).strip()
        # Lines stay those of the file: a heading with text behind it is a part of that text.
        return f"**{title}** {behind}" if behind else f"{'#' * _TEX_HEADINGS[heading[1]]} {title}"
    line = re.sub(r"\\item\b(?:\[([^\]\n]*)\])?[ \t]*", lambda item: f"- {item[1] + ': ' if item[1] else ''}", line)
    return _tex_text(line)


def _tex_text(text: str) -> str:
    text = _TEX_ACCENT.sub(lambda accent: unicodedata.normalize("NFC", accent[2] + _ACCENTS[accent[1]]), text)
    text = _TEX_LETTER.sub(lambda letter: _TEX_LETTERS[letter[1]], re.sub(r"\\(?:footnote|thanks)\{", " {", text))
    text = _TEX_DROPPED.sub("", text)
    for _ in range(5):
        unwrapped = _TEX_COMMAND.sub(lambda command: command[1] or "", text)
        if unwrapped == text:
            break
        text = unwrapped
    text = re.sub(r"(?<!\\)[ ]*&[ ]*", " | ", re.sub(r"(?<!\\)[{}]", "", text))
    text = re.sub(r"\\[,;:!]", " ", re.sub(r"\\([%&_#${}])", r"\1", text))
    return text.replace("~", " ").replace("---", "—").replace("``", "“").replace("''", "”").replace("\\\\", "")


def _document(
    name: str, lines: list[str], kind: str, metadata: dict[str, Any], tags: list[str], title: str, date: str
) -> Document:
    text = "\n".join(lines)
    if named := [tag for tag in dict.fromkeys(tags) if tag]:
        metadata["tags"] = named
    return make_note(name, text, kind, title or first_heading(text[:10_000]), metadata, iso_date(date))
