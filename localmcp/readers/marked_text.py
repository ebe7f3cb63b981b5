"""Reads text whose headings are marked in other ways than Markdown's, manual pages, RTF, and old Office files."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import cast

from striprtf.striprtf import rtf_to_text  # pyright: ignore[reportUnknownVariableType]

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, iso_date, make_document
from localmcp.readers.encodings import decode_text
from localmcp.readers.markdown import first_heading
from localmcp.readers.office import office_document, read_docx, read_pptx
from localmcp.readers.packages import suffix_of

HEADED = {".org": "org", ".adoc": "asciidoc", ".asciidoc": "asciidoc", ".tex": "latex", ".ltx": "latex"}
"""Suffixes of text that `read_headed` reads, and its format."""
_LATEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_HEADING = re.compile(
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

    text = "```".join(part if at % 2 else _HEADING.sub(heading, part) for at, part in enumerate(text.split("```")))
    title, date = fields.get("title") or first_heading(text[:10_000]), iso_date(fields.get("date", ""))
    return make_document(name, text, kind, title=title, metadata=metadata, date=date, date_from="front matter")


def read_rtf(data: bytes, name: str) -> Document:
    """Return the text of a Rich Text file, without its marks."""
    source = data.decode("latin-1")
    if not source.startswith("{\\rtf"):
        raise UnreadableDocument(f"{name} is damaged: it is no Rich Text.")
    title = re.search(r"\{\\title ([^{}\\]*)\}", source)
    text = cast("str", rtf_to_text(source, errors="ignore"))
    return office_document(name, "rtf", text.strip("\n"), {"title": title[1]} if title else {})


def old_office_program(suffix: str) -> str:
    """Return the installed program that reads .doc or .ppt files; "" if none does."""
    names = ("soffice", "libreoffice", *(("antiword",) if suffix == ".doc" else ()))
    return next((path for name in names if (path := shutil.which(name))), "")


def read_old_office(data: bytes, name: str) -> Document:
    """Return a .doc or .ppt file, converted by LibreOffice or antiword.

    Raises:
        UnreadableDocument: neither is installed, or it cannot convert the file in a minute.
    """
    suffix = suffix_of(name)
    program = old_office_program(suffix)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, f"file{suffix}"), Path(folder, f"file{suffix}x")
        source.write_bytes(data)
        command = [program, str(source)]
        if not program.endswith("antiword"):
            profile = f"-env:UserInstallation={Path(folder, 'profile').as_uri()}"
            command[1:1] = [profile, "--headless", "--convert-to", target.suffix[1:], "--outdir", folder]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired as error:
            raise UnreadableDocument(f"{name} takes {program} more than a minute.") from error
        if program.endswith("antiword") and not done.returncode:
            return office_document(name, "doc", done.stdout.decode(errors="replace"), {})
        if done.returncode or not target.exists():
            output = done.stderr.decode(errors="replace").replace(str(source), name).strip()
            raise UnreadableDocument(f"{name} cannot be converted: {output[:200]}")
        return (read_docx if suffix == ".doc" else read_pptx)(target.read_bytes(), target.name)


# ---------------------------------------------------------------- manual pages

_ARGUMENT = re.compile(r'"([^"]*)"?|(\S+)')
_HEADINGS = {"TH": "# ", "Dt": "# ", "SH": "## ", "Sh": "## ", "SS": "### ", "Ss": "### "}
_SIGNS = {
    **{"bu": "•", "em": "—", "en": "–", "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "dq": '"', "->": "→"},
    **{"C`": '"', "C'": '"', 'L"': "“", 'R"': "”", "ti": "~", "ha": "^", "ga": "`", "rs": "\\", "e": "\\", "\\": "\\"},
    **{"~": " ", "0": " ", "-": "-", "hy": "-", "mi": "-", "'": "'", "`": "`", ".": ".", " ": " "},
}
_ESCAPE = re.compile(
    r"\\(?:\".*|[fmnFgkMVY](?:\(..|\[[^\]\n]*\]|.)|s[-+]?\d{1,2}|[hvwXZDlLboS]'[^'\n]*'"
    r"|\*?(?:\((..)|\[([^\]\n]*)\])|\*?(.)|$)"
)


def read_man_page(data: bytes, name: str) -> Document:
    """Return a manual page: its headings and words without the requests to the typesetter, line by line."""
    text, metadata = decode_text(data)
    text = text.replace("\r\n", "\n")

    def plain(words: str) -> str:
        return _ESCAPE.sub(lambda escape: _SIGNS.get(escape[1] or escape[2] or escape[3] or "", ""), words)

    def arguments(words: str) -> list[str]:
        return [plain(match[1] or match[2] or "") for match in _ARGUMENT.finditer(re.sub(r'\\".*', "", words))]

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
        heading = _HEADINGS.get(macro, heading)
        words = "" if request else plain(line)
        if macro in ("TH", "Dt"):
            words = named
        elif request and (macro in _HEADINGS or macro in printed):
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
