"""A document: the text of one source and what is known about it; how the bytes of a text become one."""

import codecs
import logging
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from localmcp.errors import LocalMCPError, ScannedDocument, UnreadableDocument
from localmcp.readers.outline import Markup
from localmcp.readers.worker_pool import count_text

logger = logging.getLogger(__name__)

SourceType = Literal["text", "website", "docs", "qa"]
SHEETS = ("xlsx", "xls", "xlsb", "ods")
TALK = ("mail", "conversation")
RENDERED = ("docx", "odt", "rtf", "epub", "html", "notebook", "calendar", "contacts", "feed")
"""Formats whose lines are those of the text that was made of them: nobody can look for them in the file."""


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one source and what is known about it."""

    title: str
    """One line of at most 200 characters; never empty."""
    text: str
    """The whole text: no NUL, no lone surrogate, no byte order mark; text formats keep their line ends."""
    format: str
    """markdown, text, html, pdf, docx, xlsx, mail, conversation, subtitles, code, …: which reader made it. One whose
    lines are not those of the file belongs to `RENDERED`, or citations name lines that nobody finds."""
    markup: Markup
    """How to chunk the text."""
    source_type: SourceType
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON values: front matter, author, created, encoding (if not utf-8), language of code, sheets…"""
    page_starts: tuple[int, ...] = ()
    """Code-point offset in `text` of page (or slide) 1, 2, 3…; empty when the format has no pages."""
    row_starts: tuple[tuple[int, int], ...] = ()
    """(offset, row): that line is that row of its sheet, and each line after it one more; row 0: a sheet's name."""
    headings: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """(offset, path), ascending: where a section begins that the text itself does not mark, as bookmarks do."""
    appendix: int | None = None
    """Offset from which the text only repeats others (quoted replies, signatures): it is found by word only."""
    date: str = ""
    """When it was written, ISO 8601, a date or a date and time; "" when the document does not say."""
    date_from: str = ""
    """front matter, mail header, document properties or export: where the date is from."""
    member: str = ""
    """Name inside a file that holds several documents, unique and stable there; "" for the file itself."""
    parent: str = ""
    """`member` of the document that it belongs to, as an attachment to its mail; "" for the file itself."""
    failure: str = ""
    """Why this member cannot be read; its text is empty then, and the other members are not concerned."""
    remark: str = ""
    """What in it could not be read as it was meant, such as a line of its front matter."""
    scan_pages: int | None = None
    """Of a member whose pages are pictures: how many wait for text recognition; 0 if it saw no text on them."""


Reader = Callable[[bytes, str], Document]
"""Bytes and a file name (for the suffix and the fallback title) to a document."""


def make_document(
    name: str, text: str, kind: str, markup: Markup = "markdown", source_type: SourceType = "docs", **fields: Any
) -> Document:
    """Return a document that keeps the promises of `Document`; its title is `fields`' or made of the file's name.

    Offsets in `fields` are those of a text that `visible` leaves as it is.
    UnreadableDocument if there is no visible character, or more than 50 million.
    """
    if not text.strip():
        raise UnreadableDocument(f"{name} holds no text.")
    if len(text) > 50_000_000:
        raise UnreadableDocument("It holds more than 50 MB of text.")
    count_text(len(text))
    text = clean(text if markup == "code" else visible(text))
    title = one_line(fields.pop("title", "")) or readable_stem(name)
    if not fields.get("date"):
        fields["date_from"] = ""
    return Document(title, text, kind, markup, source_type, **fields)


def failed_member(member: str, reason: LocalMCPError | str, parent: str = "") -> Document:
    """Return the document that represents a member of a container which cannot be read."""
    pages = reason.pages if isinstance(reason, ScannedDocument) else None
    title = one_line(member) or "untitled"
    return Document(title, "", "", "plain", "text", member=member, parent=parent, failure=str(reason), scan_pages=pages)


def read_member(make: Callable[[], Document], member: str, parent: str = "") -> Document:
    """Return what `make` reads as a member of a container, or the document that says why it cannot be read."""
    try:
        return replace(make(), member=member, parent=parent)
    except LocalMCPError as error:
        return failed_member(member, error, parent)
    except Exception as error:  # Broken mails and exports make the parsers raise anything.
        logger.debug("%s cannot be read", member, exc_info=True)
        return failed_member(member, damaged("It", error), parent)


def damaged(name: str, error: Exception) -> UnreadableDocument:
    """Return the error for a file on which the parser of another project raised something."""
    return UnreadableDocument(f"{name} is damaged: {type(error).__name__}: {error}"[:300])


def password_protected(name: str) -> UnreadableDocument:
    """Return the error for a file that is encrypted."""
    return UnreadableDocument(f"{name} is password-protected.", hint="Save a copy without the password and add that.")


def join_pages(pages: Iterable[str]) -> tuple[str, tuple[int, ...]]:
    """Return the pages with an empty line between them, and the offset at which each begins."""
    shown = [visible(page) for page in pages]
    ends = accumulate((len(page) + 2 for page in shown), initial=0)
    return "\n\n".join(shown), tuple(ends)[: len(shown)]


# ---------------------------------------------------------------- titles, fields and dates


def visible(text: str) -> str:
    """Return a text without soft hyphens and joints without width; Thai to Khmer have them instead of spaces."""
    # To look for each first takes a hundredth of the time of the expression.
    is_cut = any(sign in text for sign in "\xad\u2060\u200b")
    return re.sub("[\xad\u2060]|(?<![\u0e00-\u17ff])\u200b", "", text) if is_cut else text


def clean(text: str) -> str:
    """NUL and lone surrogates, which SQLite and UTF-8 cannot hold, become U+FFFD: offsets stay as they are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text.replace("\0", "\ufffd")


def one_line(text: str) -> str:
    """Return the beginning of a text as a title: one line of at most 200 characters."""
    return " ".join(clean(visible(text[:2000])).split())[:200].strip()


def readable_stem(name: str) -> str:
    """'retry-policy_v2.md' as 'retry policy v2'; hyphens between digits (dates, versions) stay.

    Notion puts an id behind the name of every page and table.
    """
    stem = re.sub(r"(?<=.) [0-9a-f]{32}$", "", PurePosixPath(name).stem)
    stem = re.sub(r"_|(?<!\d)-|-(?!\d)", " ", stem)
    return one_line(stem) or one_line(name) or "untitled"


_CHANGES = re.compile(r"\d+(?:[.:/-]\d+)*|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b")
"""What differs between the headings of a series: numbers and months."""


def title_among(headings: Iterable[str]) -> str:
    """Return the first heading, unless it is one of a series: a release of a changelog, a day of a journal."""
    following = iter(headings)
    first = next(following, "")
    shape = _CHANGES.sub("0", first)
    is_series = re.search(r"\d", first) and any(_CHANGES.sub("0", heading) == shape for heading in following)
    return "" if is_series else first


def set_fields(**fields: str | None) -> dict[str, Any]:
    """Return those of the fields that say something, each on one line."""
    return {key: one_line(value) for key, value in fields.items() if value and value.strip()}


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: dates as ISO 8601, and what it does not know as text."""
    if isinstance(value, dict):
        return {clean(str(key)): json_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set):
        return [json_value(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() < 64):
        return value
    return value if isinstance(value, float) and abs(value) < float("inf") else clean(str(value))


def iso_date(value: Any) -> str:
    """Return a date as ISO 8601 if that is how it begins (`2024-05-03`, `<2024-05-03 Fri>`), else ""."""
    written = r"\W?(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)(?![\d:]))?"
    match = re.match(written, str(value))
    day, clock = match.groups() if match else ("", "")
    try:
        return datetime.fromisoformat(f"{day}T{clock}").isoformat() if clock else date.fromisoformat(day).isoformat()
    except ValueError:
        return ""


# ---------------------------------------------------------------- encodings

HEAD = 8192

_BOMS = (
    (BOM_UTF8, "utf-8"),
    (BOM_UTF32_LE, "utf-32-le"),
    (BOM_UTF32_BE, "utf-32-be"),
    (BOM_UTF16_LE, "utf-16-le"),
    (BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(code for code in range(32) if code not in b"\b\t\n\f\r\x1b")
_WESTERN = "àáâäãåæçèéêëìíîïñòóôöõøùúûüßœÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØÙÚÛÜŒ€£§°ºª«»“”‘’„–—…•·©®™¿¡\xa0".encode("cp1252")


def looks_like_text(head: bytes) -> bool:
    """Return whether the beginning of a file is text in any encoding."""
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or _wide_encoding(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls * 50 > len(head) or b"\0" not in head:
        return controls * 50 <= len(head)
    # With a NUL it is text if it is mostly ASCII, or UTF-8, which may end inside a character.
    if len(head.translate(None, bytes(range(0x20, 0x7F)))) * 2 <= len(head):
        return True
    try:
        return bool(codecs.getincrementaldecoder("utf-8")().decode(head))
    except UnicodeDecodeError:
        return False


def decode_text(data: bytes, declared: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text, and its encoding as metadata: by byte order mark, UTF-8, as declared, or the likeliest one."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), {} if bom == BOM_UTF8 else {"encoding": encoding}
    if encoding := _wide_encoding(data[:HEAD]):
        return data.decode(encoding, "replace"), {"encoding": encoding}
    try:
        return data.decode(), {}
    except UnicodeDecodeError:
        encoding = declared or _likeliest_encoding(data)
    if encoding == "utf-8":
        # The bytes that are not are in the encoding of older programs, which wrote into the same file.
        text = data.decode(errors="surrogateescape")
        older = re.compile("[\udc80-\udcff]+")
        return older.sub(lambda old: old[0].encode(errors="surrogateescape").decode("cp1252", "replace"), text), {}
    return data.decode(encoding, "replace"), {"encoding": encoding}


def _wide_encoding(head: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark by the NUL beside each of many ASCII characters."""
    pairs = len(head) // 2
    for encoding, zeros, letters in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        controls = len(letters) - len(letters.translate(None, _CONTROLS))
        if zeros.count(0) * 2 > pairs > 1 and controls * 50 <= pairs:
            return encoding
    return None


def _likeliest_encoding(data: bytes) -> str:
    sample = data[:1_000_000]
    high = [byte for byte in sample if byte > 0x7F]
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    # Hardly a text of another encoding holds any characters of UTF-8.
    if sum(character > "\x7f" for character in text) - broken >= broken / 2:
        return "utf-8"
    # Every high byte is a letter or sign of Western European prose, and most letters are ASCII.
    if len(high) * 4 <= len(sample) and not set(high) - set(_WESTERN):
        return "cp1252"
    from charset_normalizer import from_bytes

    # Of two encodings that fit, it prefers these, which hardly a file is in.
    rare = """mac_cyrillic mac_greek mac_iceland mac_latin2 mac_turkish iso8859_3 iso8859_4 iso8859_10 iso8859_13
        iso8859_14 iso8859_16 shift_jis_2004 shift_jisx0213 euc_jis_2004 euc_jisx0213 cp1125 cp500 cp037"""
    best = from_bytes(data[:200_000], cp_exclusion=[*rare.split()]).best()
    return best.encoding if best else "cp1252"


_WRITTEN = re.compile(r"cp\d|iso8859|koi8|mac-|gb|big5|euc|shift|tis|iso2022_jp$")
"""Encodings that pages and mails are written in; Python's codecs also have rot13 and idna."""
_SUPERSETS = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"},
    **{"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949"},
}
"""Encodings that programs name when they write a larger one, as the Encoding Standard of browsers has it."""


def page_encoding(name: str) -> str | None:
    """Return Python's encoding for a name in a page or a mail, if it is one that they are written in."""
    try:
        encoding = codecs.lookup(re.sub("^x-|^windows-(?=874|949)|-[ei]$", "", name.lower())).name
    except (LookupError, ValueError):
        return None
    encoding = _SUPERSETS.get(encoding, encoding)
    return encoding if _WRITTEN.match(encoding) else None


def declared_encoding(data: bytes, charset: str = "") -> str | None:
    """Return the encoding that was said to be that of a page, or is named in its first 4 kB; None for UTF-8."""
    match = re.search(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w.-]+)", data[:4096], re.I)
    return page_encoding(charset) or (page_encoding(match[1].decode("ascii", "replace")) if match else None)
