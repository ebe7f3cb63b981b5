"""Reads Rich Text Format as Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, iso_date, set_fields
from localmcp.readers.markdown import pipe_table
from localmcp.readers.office import heading_block, join_blocks, office_document

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|\r?\n|([^\\{}\r\n]+)", re.S
)
_SKIPPED = frozenset(
    b"fonttbl colortbl stylesheet listtable listoverridetable pict object objdata themedata colorschememapping "
    b"latentstyles datastore xmlnstbl generator rsidtbl fldinst bkmkstart bkmkend pgptbl mmathPr nonshppict "
    b"header footer headerl headerr headerf footerl footerr footerf listtext pntext sp shprslt "
    b"operator subject keywords doccomm comment manager category company hlinkbase".split()
)
"""Groups that hold no text of the body; lists get marks of Markdown instead of their own."""
_PROPERTIES = {b"title": "title", b"author": "author", b"creatim": "created", b"revtim": "modified"}
_CHARACTERS = {
    b"tab": "\t", b"line": "\n", b"emdash": "—", b"endash": "–", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“",
    b"rdblquote": "”", b"bullet": "•", b"emspace": " ", b"enspace": " ", b"softline": "\n", b"row": "",
}  # fmt: skip
_NOTES = frozenset((b"footnote", b"annotation"))
_READ_IF_STARRED = frozenset((*_PROPERTIES, *_NOTES, b"shpinst"))
"""The last is a shape, which may be a box of text."""
_SIGNS = {b"~": "\u00a0", b"_": "-", b"\n": "\n", b"\r": "\n", b"\\": "\\", b"{": "{", b"}": "}"}
_TIMES = (b"yr", b"mo", b"dy", b"hr", b"min")
_CHARSETS = {
    128: "cp932", 129: "cp949", 134: "gbk", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255",
    178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
"""Character set of a font -> the encoding of what is written in it; in the others it is the document's."""
MOST_NESTED = 2000


@dataclass(frozen=True, slots=True)
class _Group:
    skipped: bool = False
    field: str = ""
    """Property of the document that is written here."""
    note: bool = False
    fallback: int = 1
    """Bytes after a Unicode character, for older programs."""
    encoding: str = ""
    """Of its font; that of the document by default."""


def read_rtf(data: bytes, name: str) -> Document:
    """Return the text with its headings, lists, tables and notes.

    Raises:
        UnreadableDocument: it is not RTF, or its groups are nested too deeply.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise UnreadableDocument(f"{name} is damaged: it does not begin as RTF does.")
    writer = _Writer(name)
    for match in _TOKEN.finditer(data):
        writer.take(match)
    writer.end_document()
    return office_document(name, "rtf", join_blocks(writer.blocks), set_fields(**writer.properties()))


@dataclass(slots=True)
class _Writer:
    name: str
    blocks: list[str] = field(default_factory=list[str])
    encoding: str = "cp1252"
    _groups: list[_Group] = field(default_factory=lambda: [_Group()])
    _pieces: list[str] = field(default_factory=list[str])
    _bytes: bytearray = field(default_factory=bytearray)
    """Bytes of characters, some of which may be written as numbers and some as they are."""
    _font: int = 0
    _encodings: dict[int, str] = field(default_factory=dict[int, str])
    """Font -> its encoding."""
    _note: int = 0
    """Number of the first piece of the note that is open."""
    _fields: dict[str, str] = field(default_factory=dict[str, str])
    _times: dict[str, dict[bytes, int]] = field(default_factory=dict[str, dict[bytes, int]])
    _skip: int = 0
    _starred: bool = False
    _level: int | None = None
    _listed: bool = False
    _in_list: bool = False
    _in_table: bool = False
    _row: list[str] = field(default_factory=list[str])
    _rows: list[list[str]] = field(default_factory=list[list[str]])

    def take(self, match: re.Match[bytes]) -> None:
        """Take the next token."""
        word, number, code, sign, brace, text = match.groups()
        if code or text:
            self._take_bytes(text or bytes([int(code, 16)]))
            return
        if match.lastindex is None:
            # A line of the file ends, which is nothing in the text.
            return
        self._decode()
        if brace:
            self._open_or_close(brace)
        elif word:
            self._word(word, int(number) if number else None)
        elif sign == b"*":
            self._starred = True
        else:
            self._write(_SIGNS.get(sign, ""))

    def _take_bytes(self, raw: bytes) -> None:
        if not self._groups[-1].skipped:
            fallback = min(self._skip, len(raw))
            self._skip -= fallback
            self._bytes += raw[fallback:]

    def _decode(self) -> None:
        if self._bytes:
            text, self._bytes = self._bytes.decode(self._groups[-1].encoding or self.encoding, "replace"), bytearray()
            self._write(text)

    def _open_or_close(self, brace: bytes) -> None:
        self._starred = False
        self._skip = 0
        if brace == b"{":
            if len(self._groups) > MOST_NESTED:
                raise UnreadableDocument(f"{self.name} is refused: its groups are nested too deeply.")
            self._groups.append(self._groups[-1])
        elif len(self._groups) > 1:
            left = self._groups.pop()
            if left.note and not self._groups[-1].note and not left.skipped:
                self._pieces[self._note :] = [f" ({''.join(self._pieces[self._note :]).strip()})"]

    def _word(self, word: bytes, number: int | None) -> None:
        group = self._groups[-1]
        if word in _SKIPPED or (self._starred and word not in _READ_IF_STARRED):
            self._groups[-1] = replace(group, skipped=True)
        elif word in _PROPERTIES and _PROPERTIES[word] in self._fields:
            self._groups[-1] = replace(group, skipped=True)
        elif word in _PROPERTIES:
            self._groups[-1] = replace(group, field=_PROPERTIES[word])
        elif word in _TIMES and group.field:
            self._times.setdefault(group.field, {})[word] = number or 0
        elif word == b"f":
            self._font = number or 0
            self._groups[-1] = replace(group, encoding=self._encodings.get(self._font, ""))
        elif word == b"fcharset":
            self._encodings[self._font] = _CHARSETS.get(number or 0, "")
        elif word == b"uc":
            self._groups[-1] = replace(group, fallback=min(max(number or 0, 0), 10))
        elif word == b"u" and number is not None:
            self._write(chr(number & 0xFFFF))
            self._skip = group.fallback
        elif word == b"ansicpg" and number:
            self.encoding = _encoding(number)
        elif not group.skipped and not group.field:
            self._layout(word, number)
        self._starred = False

    def _layout(self, word: bytes, number: int | None) -> None:
        if word in _NOTES:
            self._note = len(self._pieces)
            self._groups[-1] = replace(self._groups[-1], note=True)
        elif self._groups[-1].note:
            # A note is in the middle of a paragraph, whose form it does not change.
            self._pieces.append(_CHARACTERS.get(word, " " if word == b"par" else ""))
        elif word in (b"par", b"sect", b"page"):
            self.end_paragraph()
        elif word == b"pard":
            self._level, self._listed, self._in_table = None, False, False
        elif word == b"outlinelevel" and number is not None:
            self._level = min(max(number, 0), 5)
        elif word in (b"ls", b"pnlvlblt"):
            self._listed = True
        elif word == b"intbl":
            self._in_table = True
        elif word in (b"cell", b"nestcell"):
            self._row.append(" ".join(self._text().split()))
        elif word == b"row":
            self._rows.append(self._row)
            self._row = []
        elif word in _CHARACTERS:
            self._pieces.append(_CHARACTERS[word])

    def _write(self, text: str) -> None:
        group = self._groups[-1]
        if group.skipped:
            return
        if group.field:
            self._fields[group.field] = self._fields.get(group.field, "") + text
        else:
            self._pieces.append(text)

    def _text(self) -> str:
        # Characters beyond U+FFFF are written as two halves.
        text = "".join(self._pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        self._pieces.clear()
        return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()

    def end_paragraph(self) -> None:
        """Write the paragraph; the rows of a table are written when the first one after it ends."""
        if self._in_table:
            self._pieces.append(" ")
            return
        if self._rows:
            self.blocks.append(pipe_table(self._rows))
            self._rows = []
        text = self._text()
        if not text:
            return
        if self._level is not None:
            text = heading_block(text, self._level + 1)
        elif self._listed:
            text = ("\0" if self._in_list else "") + "- " + " ".join(text.split())
        self._in_list = self._listed and self._level is None
        self.blocks.append(text)

    def end_document(self) -> None:
        """Write what is still open: a file may end with the last row of a table, and nothing after it."""
        if self._row:
            self._rows.append(self._row)
        self._in_table = False
        self.end_paragraph()

    def properties(self) -> dict[str, str | None]:
        """Return title, author and times."""
        values: dict[str, str | None] = dict(self._fields)
        for key, parts in self._times.items():
            year, month, day, hour, minute = (parts.get(part, 0) for part in _TIMES)
            values[key] = iso_date(f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00")
        return values


def _encoding(page: int) -> str:
    name = {65001: "utf-8", 10000: "mac_roman", 932: "cp932", 936: "gbk", 949: "cp949", 950: "cp950"}.get(page)
    if name is None and (1250 <= page <= 1258 or page in (437, 850, 852, 866, 874)):
        name = f"cp{page}"
    return name or "cp1252"
