"""Reads mail: single messages, mailboxes and their attachments, each as a document; and pages saved as mail."""

from __future__ import annotations

import io
import plistlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import BinaryIO, cast

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import (
    Document,
    damaged,
    decode_text,
    failed_member,
    make_document,
    one_line,
    page_encoding,
    read_member,
    visible,
)
from localmcp.readers.html import page_text, parse_html, read_html
from localmcp.readers.markdown import calendar_text
from localmcp.schemas import mapping_of

ReadBytes = Callable[[bytes, str], Document]
"""How an attachment is read: its bytes and its file name."""

_MAIL_START = re.compile(rb"(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*){3,}")
_MAILBOX_START = re.compile(rb"From \S+ [^\n]*\d{4}[^\n]*\r?\n")


class _AsSent(policy.Compat32):
    """Headers with the bytes that no encoding was declared for, which Python would replace by question marks."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value


def looks_like_mail(head: bytes) -> str:
    """Return "mail" or "mailbox" for a file that begins so, else "": those of a Maildir or a folder have no suffix."""
    if separator := _MAILBOX_START.match(head):
        return "mailbox" if _MAIL_START.match(head, separator.end()) else ""
    start = _MAIL_START.match(head)
    marks = rb"(?im)^(?:message-id|received|mime-version|return-path|delivered-to):"
    is_mail = start and re.search(rb"(?im)^(?:from|subject):", start[0]) and re.search(marks, start[0])
    return "mail" if is_mail else ""


def _messages(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    offset, position, size, blank, lines = 0, 0, 0, True, list[bytes]()
    while line := file.readline(1 << 16):
        # Some programs leave a line of a text that begins with "From " as it is.
        if blank and _MAILBOX_START.match(line) and lines:
            yield offset, b"".join(lines)
            offset, size, lines = position, 0, []
        if size <= max_bytes:
            lines.append(line)
        position, size = position + len(line), size + len(line)
        blank = line in (b"\n", b"\r\n")
    if lines:
        yield offset, b"".join(lines)


def read_mailbox(file: BinaryIO, name: str, read: ReadBytes, max_bytes: int) -> Iterator[Document]:
    """Yield the messages of a mailbox with their attachments, without holding more than one of them."""
    members = set[str]()
    for offset, data in _messages(file, max_bytes):
        match = re.search(rb"(?im)^message-id:\s*<([^>\s]{1,200})>", data[:65_536])
        member = match[1].decode("ascii", "replace") if match else f"message at {offset}"
        member = f"{member} at {offset}" if member in members else member
        members.add(member)
        if len(data) > max_bytes:
            yield failed_member(f"message at {offset:,}", f"It is larger than {max_bytes // 1_000_000} MB.")
        else:
            yield from read_mail(data, name, read, member)


def read_mail(data: bytes, name: str, read: ReadBytes, member: str = "") -> Iterator[Document]:
    """Yield a message and its attachments, which name their message as the parent; `member`: its name in a mailbox."""
    if separator := _MAILBOX_START.match(data):
        data = re.sub(rb"(?m)^>(>*From )", rb"\1", data[separator.end() :])
    attachments: list[tuple[str, Message]] = []
    """(unique file name, part); pictures shown inside the text are none."""
    names: Counter[str] = Counter()
    try:
        message = message_from_bytes(data, policy=_AsSent())
        for part in message.walk():
            # The parts of an attached message belong to it.
            is_container = part.is_multipart() and part.get_content_type() != "message/rfc822"
            if title := "" if is_container else _attachment_name(part):
                names[title] += 1
                attachments.append((title if names[title] == 1 else f"{names[title]}-{title}", part))
    except RecursionError:
        yield failed_member(member or name, "Its parts are nested too deeply.")
        return
    yield read_member(partial(_message_document, message, name, [title for title, _ in attachments]), member)
    for title, part in attachments:
        read_attachment = partial(read, _payload(part), title)
        if part.get_content_type() == "message/rfc822":
            # What is attached to an attached mail is among the attachments already.
            inner = cast("list[Message]", part.get_payload())[0] if part.is_multipart() else part
            read_attachment = partial(_message_document, inner, title, [])
        yield read_member(read_attachment, f"{member}/{title}" if member else title, member)


def outlook_mail(data: bytes, name: str) -> bytes:
    """Return the message in a file of Outlook as a mail; UnreadableDocument if it is damaged."""
    from oxmsg import Message as OutlookMessage

    mail = MIMEMultipart()
    try:
        message = OutlookMessage.load(io.BytesIO(data))
        receivers = (f"{one.name} <{one.email_address}>" for one in message.recipients)
        identity = {key: value for key, value in message.message_headers.items() if key.lower() == "message-id"}
        headers = {"Subject": message.subject, "From": message.sender, "To": ", ".join(receivers), **identity}
        for key, value in headers.items():
            # Within a company an address is a place in its directory.
            mail[key] = re.sub(r" <[^@>]*>", "", one_line((value or "").replace("\0", "")))
        if message.sent_date:
            mail["Date"] = format_datetime(message.sent_date)
        text = message.body or ""
        mail.attach(MIMEText(text) if text.strip() else MIMEText(message.html_body or "", "html"))
        for attachment in message.attachments:
            # Outlook's number of a property, and its value for a picture that is shown in the text.
            is_in_text = attachment.properties.int_prop_value(0x3714) == 4
            if (content := attachment.file_bytes) and not is_in_text:
                part = MIMEApplication(content)
                part.add_header("Content-Disposition", "attachment", filename=attachment.file_name or "attachment")
                mail.attach(part)
        return mail.as_bytes()
    except Exception as error:  # Its parser raises anything on a broken file.
        raise damaged(name, error) from error


def _payload(part: Message) -> bytes:
    return cast("bytes | None", part.get_payload(decode=True)) or b""


def _attachment_name(part: Message) -> str:
    """Return the file name of an attachment; "" for the text of the mail and for pictures in it."""
    kind, is_attached = part.get_content_type(), part.get_content_disposition() == "attachment"
    name = _decoded(part.get_filename() or "").replace("/", "_")
    if kind == "message/rfc822":
        return name or "forwarded.eml"
    if kind.startswith("image/") and part["content-id"] and not is_attached:
        return ""
    ending = {"text/plain": ".txt", "text/html": ".html"}.get(kind, ".bin")
    return name or ("attachment" + ending if is_attached else "")


# ---------------------------------------------------------------- one message


def _message_document(message: Message, name: str, attachments: list[str]) -> Document:
    if message.get_content_type() in ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"):
        raise UnreadableDocument("It is encrypted.", hint="Save a decrypted copy and add that.")
    fields = {key: _header(message, key) for key in ("subject", "from", "to", "cc", "date", "message-id")}
    if not any(fields.values()):
        raise UnreadableDocument(f"{name} holds no mail.")
    values = {key: fields[key] for key in ("from", "to", "cc")}
    values |= {"date": _mail_date(fields["date"]), "messageId": fields["message-id"].strip("<>")}
    own, repeated = split_quotes(visible(_part_text(message)))
    top = "".join(f"{key.capitalize()}: {fields[key]}\n" for key in ("from", "to", "cc", "date") if fields[key])
    top += f"Attachments: {', '.join(attachments)}\n" if attachments else ""
    text = f"{top}\n{own}".strip()
    metadata = {key: value for key, value in (values | {"attachments": attachments}).items() if value}
    about = {"title": fields["subject"] or "(no subject)", "date": values["date"], "date_from": "mail header"}
    whole, appendix = (f"{text}\n\n{repeated}", len(text)) if repeated else (text, None)
    return make_document(name, whole, "mail", "plain", "text", metadata=metadata, appendix=appendix, **about)


def _header(message: Message, key: str) -> str:
    return _decoded(str(message.get(key, "")))


def _decoded(value: str) -> str:
    """Return a header without its encoding; a broken one as it is, for it still says something."""
    value = value[:2000]
    try:
        value.encode()
        if "=?" not in value:
            return one_line(value)
        # A word that its encoding does not hold whole, as GB 2312 names what is in GBK, leaves the others readable.
        words: list[tuple[str, str | None]] = []
        for word, charset in decode_header(value):
            text = word if isinstance(word, str) else word.decode(page_encoding(charset or "") or "utf-8", "replace")
            words.append((text, charset and "utf-8"))
        return one_line(str(make_header(words)))
    except UnicodeEncodeError:  # Bytes that no encoding was declared for.
        return one_line(decode_text(value.encode("ascii", "surrogateescape"))[0])
    except (LookupError, ValueError, MessageError):
        return one_line(value)


def _mail_date(value: str) -> str:
    try:
        return parsedate_to_datetime(value).isoformat() if value else ""
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""


def _part_text(part: Message) -> str:
    """Return the text of a mail: all parts of it that are text, each in its plainest form, without attachments."""
    kind, parts = part.get_content_type(), cast("list[Message]", part.get_payload()) if part.is_multipart() else []
    if kind == "multipart/alternative" and parts:
        plainness = {"text/plain": 0, "text/calendar": 2}
        parts = sorted(parts, key=lambda part: plainness.get(part.get_content_type(), 1))
        texts = filter(str.strip, map(_part_text, parts))
        plainest = next(texts, "")
        # A short plain text may only say that the mail is in HTML.
        richer = next(texts, "") if len(plainest) < 300 else ""
        return f"{plainest}\n\n{richer}" if len(richer) > 3 * len(plainest) else plainest
    if kind.startswith("multipart/") and parts:
        texts, joined = list[str](), ""
        for text in map(_part_text, parts):
            # One that only repeats, as HTML beside the same plain text, is left out.
            words = " ".join(text.split())
            if words not in joined:
                texts.append(text.strip("\n"))
                joined += f" {words}"
        return "\n\n".join(texts)
    # Without its boundary, a message of several parts is one text.
    if not kind.startswith(("text/", "multipart/")) or _attachment_name(part):
        return ""
    payload, charset = _payload(part), str(part.get_content_charset("us-ascii"))
    if charset in ("utf-7", "hz-gb-2312", "iso-2022-kr", "iso-2022-jp"):
        # Seven bits are valid UTF-8, so that these count only where they are named.
        text = payload.decode(charset, "replace")
    else:
        # Mails that name no encoding, or ASCII, may be in any.
        text = decode_text(payload, None if charset in ("ascii", "us-ascii") else page_encoding(charset))[0]
    text = text.replace("\r\n", "\n")
    if kind == "text/html":
        return page_text(parse_html(text))[0]
    return calendar_text(text) if kind == "text/calendar" else text


_INTRODUCED_QUOTE = re.compile(
    r"\s*(?:(?:On|Am|Il(?: giorno)?|Le|El|Em|Op)\b(?=[^\n]*\d)[^\n]{0,400}(?:\n[^\n]{0,100})?"
    r"(?:wrote|schrieb[^\n]{0,80}|ha scritto|a écrit|escribió|escreveu|schreef[^\n]{0,80})\s?:\s*)?"
    r"(?:^[ \t]*>[^\n]*\n?)*",
    re.MULTILINE,
)
"""A paragraph that only quotes, with who wrote it when."""
_FORWARDED = re.compile(
    r"(?m)^(?:-{3,} ?(?:original message|ursprüngliche nachricht|messaggio originale|message d'origine|"
    r"mensaje original|oorspronkelijk bericht) ?-{3,}|_{20,})[ \t]*$",
    re.I,
)


def split_quotes(text: str) -> tuple[str, str]:
    """Split the text of a mail into what its sender wrote, and the replies it quotes with its signature."""
    text = text.strip("\n")
    below = _FORWARDED.search(text)
    written, forwarded = (text[: below.start()], text[below.start() :].strip()) if below else (text, "")
    body, signature = (*re.split(r"(?:^|\n)-- \n", written, maxsplit=1), "")[:2]
    paragraphs = re.split(r"\n[ \t]*\n", body)
    is_quote = [bool(part.strip()) and _INTRODUCED_QUOTE.fullmatch(part) is not None for part in paragraphs]
    own = [part for part, quoted in zip(paragraphs, is_quote, strict=True) if not quoted]
    quotes = [part for part, quoted in zip(paragraphs, is_quote, strict=True) if quoted]
    # A mail that only quotes or forwards is about what it quotes.
    if not any(part.strip() for part in own):
        return text, ""
    return "\n\n".join(own).strip(), "\n\n".join(filter(None, [*quotes, forwarded, signature.strip()]))


# ---------------------------------------------------------------- pages that a browser saved as one file


def read_mhtml(data: bytes, name: str) -> Document:
    """Return the page with its address and the time at which it was saved."""
    message = message_from_bytes(data, policy=policy.compat32)
    part = next((part for part in message.walk() if part.get_content_type() in ("text/html", "text/plain")), message)
    address = _header(message, "snapshot-content-location") or _header(part, "content-location")
    page = _page(part.get_payload(decode=True), name, part.get_content_charset(), address)
    date = _mail_date(_header(message, "date"))
    return replace(page, date=date, date_from="time of saving" if date else "")


def read_webarchive(data: bytes, name: str) -> Document:
    """Return the main page of a Safari archive with its address."""
    resource = mapping_of(mapping_of(plistlib.loads(data)).get("WebMainResource"))
    charset, address = (str(resource.get(key) or "") for key in ("WebResourceTextEncodingName", "WebResourceURL"))
    return _page(resource.get("WebResourceData"), name, charset, address)


def _page(content: object, name: str, charset: str | None, address: str) -> Document:
    if not isinstance(content, bytes) or not content.strip():
        raise UnreadableDocument(f"{name} holds no page.")
    page = read_html(content, name, charset)
    return replace(page, metadata=page.metadata | {"url": one_line(address)}) if address.strip() else page
