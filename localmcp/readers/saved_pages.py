"""Reads web pages that a browser saved as one file: .mhtml and Safari's .webarchive."""

from __future__ import annotations

import plistlib
from dataclasses import replace
from email import message_from_bytes, policy

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line
from localmcp.readers.html import read_html
from localmcp.readers.mail import header_text, mail_date
from localmcp.schemas import mapping_of


def read_mhtml(data: bytes, name: str) -> Document:
    """Return the page with its address and the time at which it was saved."""
    message = message_from_bytes(data, policy=policy.compat32)
    part = next((part for part in message.walk() if part.get_content_type() in ("text/html", "text/plain")), message)
    address = header_text(message, "snapshot-content-location") or header_text(part, "content-location")
    page = _page(part.get_payload(decode=True), name, part.get_content_charset(), address)
    date = mail_date(header_text(message, "date"))
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
