"""Reads web pages that a browser saved as one file: .mhtml and Safari's .webarchive."""

from __future__ import annotations

import plistlib
from dataclasses import replace
from email import message_from_bytes, policy

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, date_fields, one_line
from localmcp.readers.html import read_html
from localmcp.readers.mail import mail_date
from localmcp.schemas import mapping_of


def read_mhtml(data: bytes, name: str) -> Document:
    """Return the page with its address and the time at which it was saved."""
    message = message_from_bytes(data, policy=policy.default)
    part = next((part for part in message.walk() if part.get_content_type() in ("text/html", "text/plain")), None)
    payload = part.get_payload(decode=True) if part else None
    if not isinstance(payload, bytes) or not payload.strip():
        raise UnreadableDocument(f"{name} holds no page.")
    address = message.get("snapshot-content-location") or (part["content-location"] if part else "")
    date = mail_date(str(message["date"] or ""))
    charset = part.get_content_charset() if part else None
    return _with_address(read_html(payload, name, charset), str(address or ""), date)


def read_webarchive(data: bytes, name: str) -> Document:
    """Return the main page of a Safari archive with its address."""
    resource = mapping_of(mapping_of(plistlib.loads(data)).get("WebMainResource"))
    page = resource.get("WebResourceData")
    if not isinstance(page, bytes):
        raise UnreadableDocument(f"{name} holds no page.")
    charset = str(resource.get("WebResourceTextEncodingName") or "")
    return _with_address(read_html(page, name, charset), str(resource.get("WebResourceURL") or ""), "")


def _with_address(document: Document, address: str, date: str) -> Document:
    address = one_line(address)
    metadata = document.metadata | ({"url": address} if address else {})
    return replace(document, metadata=metadata, **date_fields(date, "time of saving"))
