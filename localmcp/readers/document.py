"""A document: the text of one source and what is known about it."""

import logging
import re
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


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one source and what is known about it."""

    title: str
    """One line of at most 200 characters; never empty."""
    text: str
    """The whole text: no NUL, no lone surrogate, no byte order mark; text formats keep their line ends."""
    format: str
    """markdown, text, html, pdf, docx, xlsx, mail, conversation, subtitles, code, …: which reader made it."""
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
    name: str,
    text: str,
    kind: str,
    markup: Markup = "markdown",
    source_type: SourceType = "docs",
    **fields: Any,
) -> Document:
    """Return a document that keeps the promises of `Document`; its title is `fields`' or made of the file's name.

    Offsets in `fields` are those of a text that `visible` leaves as it is.

    Raises:
        UnreadableDocument: there is no visible character, or more than 50 million.
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
        return failed_member(member, f"It is damaged: {type(error).__name__}: {error}"[:300], parent)


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
    is_series = bool(re.search(r"\d", first)) and any(_CHANGES.sub("0", heading) == shape for heading in following)
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
