"""Reads text whose headings are marked in other ways than Markdown's, RTF, and old Office files."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import cast

from striprtf.striprtf import rtf_to_text  # pyright: ignore[reportUnknownVariableType]

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, Reader, iso_date, make_note
from localmcp.readers.encodings import decode_text
from localmcp.readers.markdown import first_heading
from localmcp.readers.office import office_document, read_docx, read_pptx

CONVERT_SECONDS = 60
_BORDER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--)[ \t]*")
"""It would make a heading of the line above it."""
_LATEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_HEADINGS = {
    "org": re.compile(r"(\*{1,6})[ \t]+(.*?)(?:[ \t]+:[\w@:]+:)?[ \t]*"),
    "asciidoc": re.compile(r"(={1,6})[ \t]+(\S.*)"),
    "latex": re.compile(rf"[ \t]*\\({'|'.join(_LATEX_LEVELS)})\*?\{{(.*)\}}.*"),
}
_FIELDS = {
    "org": re.compile(r"(?im)^#\+(title|author|date):[ \t]*(.+)$"),
    "asciidoc": re.compile(r"(?m)^:(author|revdate|date):[ \t]*(.+)$"),
    "latex": re.compile(r"\\(title|author|date)\{([^{}]*)\}"),
}
_FENCES = {
    "org": re.compile(r"[ \t]*#\+(?:begin|end)_(?:src|example)\b.*", re.I),
    "asciidoc": re.compile(r"(?:-{4,}|\.{4,})[ \t]*"),
    "latex": re.compile(r"[ \t]*\\(?:begin|end)\{(?:verbatim|lstlisting|minted)\}.*"),
}


def headed_reader(kind: str) -> Reader:
    """Return a reader that makes headings and listings of a kind of markup those of Markdown, line by line."""

    def reader(data: bytes, name: str) -> Document:
        text, metadata = decode_text(data)
        lines: list[str] = []
        in_code = False
        for line in text.replace("\r\n", "\n").split("\n"):
            if not in_code and (level := _underlined(lines, line)):
                lines[-1:] = [f"{'#' * level} {lines[-1]}", ""]
            elif _FENCES[kind].fullmatch(line):
                in_code = not in_code
                lines.append("```")
            elif not in_code and _BORDER.fullmatch(line):
                lines.append("")
            elif not in_code and (heading := _HEADINGS[kind].fullmatch(line)):
                mark = heading[1]
                level = _LATEX_LEVELS.index(mark) if mark in _LATEX_LEVELS else len(mark)
                lines.append(f"{'#' * max(level, 1)} {heading[2]}")
            else:
                lines.append(line)
        fields = {key.lower(): value.strip() for key, value in reversed(_FIELDS[kind].findall(text))}
        metadata |= {"author": fields["author"]} if fields.get("author") else {}
        written = "\n".join(lines)
        title = fields.get("title") or first_heading(written[:10_000])
        return make_note(
            name, written, kind, title, metadata, iso_date(fields.get("date") or fields.get("revdate", ""))
        )

    return reader


def _underlined(lines: list[str], row: str) -> int:
    """Return the level of the title that a row underlines, which is about as long; 0 if it underlines none."""
    above, title = ("", "", *lines)[-2:]
    is_row = re.fullmatch(r"([=\-~^+])\1{2,}[ \t]*", row) and abs(len(title.rstrip()) - len(row.rstrip())) <= 2
    is_title = re.match(r"(?![.\[#]).*\w", title) and (not above.strip() or above.startswith("["))
    return "=-~^+".index(row[0]) + 1 if is_row and is_title else 0


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
    suffix = Path(name).suffix.lower()
    program = old_office_program(suffix)
    if not program:
        raise UnreadableDocument(f"{name} is an old Office file.", hint="Install LibreOffice, or save it as .docx.")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"file{suffix}"
        source.write_bytes(data)
        target = source.with_suffix({".doc": ".docx", ".ppt": ".pptx"}[suffix])
        profile = f"-env:UserInstallation={(Path(folder) / 'profile').as_uri()}"
        convert = [program, profile, "--headless", "--convert-to", target.suffix[1:], "--outdir", folder, str(source)]
        command = [program, str(source)] if program.endswith("antiword") else convert
        try:
            done = subprocess.run(command, capture_output=True, timeout=CONVERT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnreadableDocument(f"{name} takes {program} more than {CONVERT_SECONDS} s.") from error
        if program.endswith("antiword") and not done.returncode:
            return office_document(name, "doc", done.stdout.decode(errors="replace"), {})
        if done.returncode or not target.exists():
            said = done.stderr.decode(errors="replace").replace(str(source), name).strip()
            raise UnreadableDocument(f"{name} cannot be converted: {said[:200]}")
        return (read_docx if suffix == ".doc" else read_pptx)(target.read_bytes(), target.name)
