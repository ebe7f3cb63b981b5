"""Fetches one web page that a person asked for: only text, of a bounded size, and from public addresses."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from localmcp.config import Settings
from localmcp.errors import AccessDenied, InvalidInput, Unavailable, UnreadableDocument
from localmcp.http import Deadline
from localmcp.knowledge.reading import limits_of
from localmcp.storage.times import utc_now
from localmcp.text.document import Document
from localmcp.text.worker_pool import Limits, WorkerPool

if TYPE_CHECKING:
    from localmcp.knowledge.ingest import Library
    from localmcp.search.sources import Indexed

MOST_REDIRECTS = 5
SOCKET_SECONDS = 20.0
DEADLINE_SECONDS = 120.0
"""For the page as a whole, however slowly it drips."""
_BLOCK = 1 << 16
_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/xml": ".xml",
    "text/markdown": ".md",
}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page."""

    url: str
    """Where it was in the end, after redirects."""
    data: bytes
    name: str
    """A file name whose ending says what it is."""


def is_url(target: str) -> bool:
    """Return whether a target of `add` is an address rather than a path."""
    return target.lower().startswith(("http://", "https://"))


def add_page(
    library: Library, settings: Settings, url: str, *, allow_private: bool = False, title: str = "", **options: Any
) -> Indexed:
    """Fetch a web page and add it as a document with its address and date; it replaces an earlier one from there.

    Raises:
        AccessDenied: a private address, and `allow_private` is false.
        Unavailable: it cannot be fetched.
        UnreadableDocument: it is not text, or too large.
    """
    page = fetch_page(url, max_bytes=settings.max_file_mb * 1_000_000, allow_private=allow_private)
    document = read_page(page, limits_of(settings))
    fetched = {"url": page.url, "date": document.date or utc_now()}
    options["metadata"] = {**document.metadata, **fetched, **(options.get("metadata") or {})}
    options["source_type"] = options.get("source_type") or "website"
    return library.add_text(document.text, title or document.title, uri=page.url, replace=True, **options)


def fetch_page(url: str, *, max_bytes: int, allow_private: bool = False) -> Page:
    """Fetch a page, following redirects; every host is looked up once, checked, and connected to as it was checked.

    Raises:
        InvalidInput: not an http(s) address.
        AccessDenied: it leads to a private address and `allow_private` is false.
        UnreadableDocument: it is not text, or too large.
        Unavailable: the host cannot be reached, or does not answer with a page.
    """
    with Deadline(DEADLINE_SECONDS) as deadline:
        try:
            return _follow(url, max_bytes, allow_private, deadline)
        except Unavailable as error:
            if deadline.passed:
                raise Unavailable(f"{url} takes longer than {DEADLINE_SECONDS:.0f} s to answer.") from error
            raise


def _follow(url: str, max_bytes: int, allow_private: bool, deadline: Deadline) -> Page:
    for _ in range(MOST_REDIRECTS + 1):
        with _get(url, allow_private, deadline) as answer:
            if answer.status in (301, 302, 303, 307, 308) and (target := answer.getheader("Location")):
                url = urljoin(url, target)
                continue
            if answer.status != 200:
                raise Unavailable(f"{url} answers with status {answer.status}, not with a page.")
            return _read(answer, url, max_bytes, deadline)
    raise Unavailable(f"{url} redirects more than {MOST_REDIRECTS} times.")


def read_page(page: Page, limits: Limits) -> Document:
    """Return the document in a page, read in a worker process.

    Raises:
        UnreadableDocument: why it cannot be turned into text.
    """
    with WorkerPool(_read_in_worker, workers=1, limits=limits) as pool:
        for answer in pool.run([page]):
            if answer.failure:
                raise UnreadableDocument(answer.failure)
            if answer.value is not None:
                return answer.value
    raise UnreadableDocument(f"{page.url} holds no text.")


def _read_in_worker(page: Page, _start: None) -> Iterator[Document]:
    from localmcp.text.readers import read_bytes  # 60 ms: every reader

    yield read_bytes(page.data, page.name)


def _get(url: str, allow_private: bool, deadline: Deadline) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidInput(f"{url} is no web address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{url} is no web address; it must begin with http:// or https://.")
    if parts.username is not None:
        raise InvalidInput(f"The address of {host} holds a user name or a password; pages are fetched without.")
    address = _public_address(host, port, allow_private)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": "localmcp", "Accept": "text/html, text/*, application/pdf", "Accept-Encoding": "identity"}
    try:
        connection = _connect(parts.scheme, host, address, port)
        # The response keeps the stream open until it is closed itself.
        with closing(connection.sock):
            deadline.watch(connection.sock)
            connection.request("GET", path.encode("ascii", "replace").decode(), headers=headers)
            return connection.getresponse()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{url} cannot be fetched: {error or type(error).__name__}.") from error


def _connect(scheme: str, host: str, address: str, port: int) -> http.client.HTTPConnection:
    """Connect to the address that was checked; the name is still what the certificate must be for."""
    stream = socket.create_connection((address, port), timeout=SOCKET_SECONDS)
    if scheme == "https":
        try:
            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
        except OSError:
            stream.close()
            raise
    connection = http.client.HTTPConnection(host, port, timeout=SOCKET_SECONDS)
    connection.sock = stream
    return connection


def _public_address(host: str, port: int, allow_private: bool) -> str:
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
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an address is on the public Internet, also in the forms in which IPv6 carries one of IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        ip = inner or ip
    return ip.is_global and not ip.is_multicast


def _read(answer: http.client.HTTPResponse, url: str, max_bytes: int, deadline: Deadline) -> Page:
    kind = answer.headers.get_content_type()
    if not (kind.startswith("text/") or kind in _SUFFIXES):
        raise UnreadableDocument(f"{url} is {kind}, not text.")
    data = bytearray()
    try:
        while block := answer.read1(_BLOCK):
            data += block
            if len(data) > max_bytes:
                raise UnreadableDocument(f"{url} is larger than {max_bytes // 1_000_000} MB (setting max_file_mb).")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} cannot be fetched: {error or type(error).__name__}.") from error
    if deadline.passed:
        # A connection that was shut ends like a whole page.
        raise Unavailable(f"{url} did not answer in time.")
    parts = urlsplit(url)
    stem = parts.path.rstrip("/").rpartition("/")[2].rpartition(".")[0] or parts.hostname or "page"
    return Page(url, bytes(data), stem.replace(".", " ") + _SUFFIXES.get(kind, ".txt"))
