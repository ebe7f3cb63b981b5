"""Fetches one web page that a person asked for: only text, of a bounded size, and from public addresses."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator
from email.message import Message
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from localmcp.errors import AccessDenied, InvalidInput, Unavailable, UnreadableDocument
from localmcp.http import Request, Response, send
from localmcp.readers.document import Document
from localmcp.readers.worker_pool import WorkerPool
from localmcp.storage.schema import utc_now

if TYPE_CHECKING:
    from localmcp.index.sources import Indexed
    from localmcp.library.ingest import Library

MOST_REDIRECTS = 5
DEADLINE_SECONDS = 120.0
"""For the page as a whole, however slowly it drips."""
_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/xml": ".xml",
    "text/markdown": ".md",
}


def add_page(library: Library, url: str, *, allow_private: bool = False, title: str = "", **options: Any) -> Indexed:
    """Fetch a web page and add it as a document with its address and date; it replaces an earlier one from there.

    Raises what `fetch_page` does; UnreadableDocument also if it cannot be turned into text.
    """
    url, data, name = fetch_page(url, max_bytes=library.settings.max_file_mb * 1_000_000, allow_private=allow_private)
    with WorkerPool(_read_in_worker, workers=1, size=lambda page: len(page[0])) as pool:
        [answer, *_] = pool.run([(data, name)])
    document = answer.value
    if document is None:
        raise UnreadableDocument(answer.failure or f"{url} holds no text.")
    fetched = {"url": url, "date": document.date or utc_now()}
    options["metadata"] = {**document.metadata, **fetched, **(options.get("metadata") or {})}
    options["source_type"] = options.get("source_type") or "website"
    return library.add_text(document.text, title or document.title, uri=url, replace=True, **options)


def fetch_page(url: str, *, max_bytes: int, allow_private: bool = False) -> tuple[str, bytes, str]:
    """Follow redirects; return where a page is in the end, its bytes, and a file name whose ending says what it is.

    Every host is looked up once, checked, and connected to as it was checked. InvalidInput for what is no http(s)
    address, AccessDenied for a private one, UnreadableDocument if it is no text or too large, Unavailable if the host
    cannot be reached or does not answer with a page.
    """
    end = time.monotonic() + DEADLINE_SECONDS
    for _ in range(MOST_REDIRECTS + 1):
        request = _build_request(url, allow_private, max_bytes, end)
        try:
            response = send(request, lambda response: response.status == 200 and _is_text(_media_type(response)))
            target = response.redirect(url)
        except (OSError, ValueError) as error:
            if time.monotonic() >= end:
                raise Unavailable(f"{url} takes longer than {DEADLINE_SECONDS:.0f} s to answer.") from error
            raise Unavailable(f"{url} cannot be fetched: {error or type(error).__name__}.") from error
        if target is None:
            break
        url = target
    else:
        raise Unavailable(f"{url} redirects more than {MOST_REDIRECTS} times.")
    kind = _media_type(response)
    if response.status != 200:
        raise Unavailable(f"{url} answers with status {response.status}, not with a page.")
    if not _is_text(kind):
        raise UnreadableDocument(f"{url} is {kind}, not text.")
    if len(response.body) > max_bytes:
        raise UnreadableDocument(f"{url} is larger than {max_bytes // 1_000_000} MB (setting max_file_mb).")
    parts = urlsplit(url)
    stem = parts.path.rstrip("/").rpartition("/")[2].rpartition(".")[0] or parts.hostname or "page"
    return url, response.body, stem.replace(".", " ") + _SUFFIXES.get(kind, ".txt")


def _media_type(response: Response) -> str:
    message = Message()
    message["Content-Type"] = response.headers.get("Content-Type", "")
    return message.get_content_type()


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _SUFFIXES


def _read_in_worker(page: tuple[bytes, str]) -> Iterator[Document]:
    from localmcp.readers.readers import read_bytes  # 60 ms: every reader

    yield read_bytes(*page)


def _build_request(url: str, allow_private: bool, max_bytes: int, end: float) -> Request:
    """Return the request for an address, with the address of its host, looked up once and checked."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidInput(f"{url} is no web address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{url} is no web address; it must begin with http:// or https://.")
    if parts.username is not None:
        raise InvalidInput(f"The address of {host} holds a user name or a password; pages are fetched without.")
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"The host {host} is not known: {error}.") from error
    addresses = [str(entry[4][0]) for entry in resolved]
    private = next((address for address in addresses if not is_public(address)), None)
    if private and not allow_private:
        address = private if host == private else f"{host} ({private})"
        message = f"{address} is an address of this machine or its network."
        raise AccessDenied(message, hint="Add --allow-private if you trust it.")
    return Request(
        "GET",
        url,
        {"Accept": "text/html, text/*, application/pdf"},
        most_bytes=max_bytes,
        silence_seconds=20.0,
        total_seconds=end - time.monotonic(),
        address=addresses[0],
    )


def is_public(address: str) -> bool:
    """Return whether an address is on the public Internet, also in the forms in which IPv6 carries one of IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        # All that is given out; outside are this machine, local networks, and other ways to write addresses of IPv4.
        if inner is None and ip not in ipaddress.ip_network("2000::/3"):
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast
