"""Read files into documents that are ready to be stored, safely, in processes of their own; and fetch web pages."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import pickle
import socket
import stat
import time
from codecs import BOM_UTF8, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import urlsplit

from localmcp.config import Settings
from localmcp.errors import AccessDenied, InvalidInput, ScannedDocument, Unavailable, UnreadableDocument
from localmcp.files import modified_ns
from localmcp.http import Request, Response, send
from localmcp.index.drafts import DEFAULT_LANGUAGE, WORD_ONLY, ChunkDraft, SourceDraft, Window, draft_chunk
from localmcp.index.sources import Indexed
from localmcp.library.ledger import Entry, Root, with_said
from localmcp.library.walk import File
from localmcp.malloc_trim import return_freed_memory
from localmcp.models import Embedder
from localmcp.models.choice import estimate_tokens
from localmcp.readers.chunking import MAIL_HEADER, is_data, is_data_file, split
from localmcp.readers.document import Document
from localmcp.readers.worker_pool import Limits, WorkerPool
from localmcp.storage.schema import utc_now
from localmcp.tables.documents import describe_tables
from localmcp.wording.normalize import detect_language

if TYPE_CHECKING:
    from localmcp.library.ingest import Library

LONGEST_CHUNK = 254
"""Tokens of an embedded text, also for models that read more: shorter passages answer more exactly."""
CANNOT_BE_READ = "cannot be read"
"""Begins the reason of a file that the system does not let us read."""
REACHED_BY_LINK = "reached through a link, which it was not when it was added; add it again if that is meant"
GROUP_CHUNKS, GROUP_SECONDS = 6_000, 2.0
"""A transaction holds about so many passages, or what was read in so long."""
FIRST_SECONDS = 0.3
"""The first one, so that something is found soon."""
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


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be read."""

    file: File
    root: Root
    entry: Entry | None
    again: bool = False
    """Read and store it again even if its bytes are the same: its options have changed."""
    recognize: frozenset[str] | None = None
    """Read the scans in it, too, at seconds a page, but those with these digests, which are read already."""


@dataclass(slots=True)
class Reading:
    """The result of reading a file, or one document in it."""

    size: int
    mtime_ns: int | None
    sha256: str | None = None
    """Of the whole file."""
    outcome: Literal["read", "unchanged", "empty", "skipped", "failed"] = "failed"
    """`empty`: there is nothing in the file but white space."""
    reason: str = ""
    """Why it was skipped or failed; of what was read, what in it could not be read as it was meant."""
    draft: SourceDraft | None = None
    member: str = ""
    """Name of the document inside the file; empty for the file itself."""
    pages: int = 0
    """Of a scan, which is skipped: how many wait for text recognition."""
    source_id: int | None = None
    """Once it is stored."""


Step = tuple[Task, Reading | None]
"""The result of reading a file, or one document in it; None at the end of the file."""


def window_for(embedder: Embedder | None) -> Window:
    """Return how text is cut for that model; without one, for an estimate of what the default model would count."""
    if embedder is None:
        return Window(estimate_tokens, LONGEST_CHUNK)
    limit = min(embedder.identity.max_tokens, LONGEST_CHUNK)
    # Of a model that only this process can ask, workers estimate; what a script defines, they do not know.
    with suppress(TypeError, AttributeError, pickle.PicklingError):
        if b"__main__" not in pickle.dumps(embedder.count_tokens):
            return Window(embedder.count_tokens, limit)
    return Window(estimate_tokens, limit)


def read_groups(tasks: Sequence[Task], window: Window, settings: Settings) -> Iterator[list[Step]]:
    """Yield the results of reading the files, in groups that are one transaction each; the files in any order."""
    work = partial(read_file, window, settings.max_file_mb * 1_000_000)
    limits = Limits()
    if any(task.recognize is not None for task in tasks):
        # Pages are drawn for text recognition.
        limits = Limits(seconds=600, seconds_per_megabyte=0, memory=1_500_000_000)
    workers = min(os.cpu_count() or 1, len(tasks))
    group: list[Step] = []
    half = set[str]()  # Files in the group whose end is still to come.
    chunks, start, patience = 0, time.monotonic(), FIRST_SECONDS
    with WorkerPool(work, workers=workers, limits=limits, size=lambda task: task.file.size) as pool:
        for answer in pool.run(tasks):
            task, reading = answer.item, answer.value
            if reading:
                group.append((task, reading))
                chunks += len(reading.draft.chunks) if reading.draft else 0
                # A file is completed in one transaction; one of many documents takes several.
                if not reading.member:
                    half.add(task.file.path)
            if answer.failure:
                group.append((task, Reading(task.file.size, task.file.mtime_ns, reason=answer.failure)))
            if answer.finished:
                group.append((task, None))
                half.discard(task.file.path)
            is_full = chunks >= GROUP_CHUNKS or (answer.finished and time.monotonic() - start > patience)
            if is_full and (not half or chunks >= 4 * GROUP_CHUNKS):
                yield group
                # What may be large is not held, here or by the caller, while the next is taken: +197 -> +118 MB.
                group.clear()
                del answer, reading
                return_freed_memory()
                chunks, start, patience = 0, time.monotonic(), GROUP_SECONDS
    if group:
        yield group


def read_file(window: Window, max_bytes: int, task: Task) -> Iterator[Reading]:
    """Yield the results of reading a file, one for each document in it; the worker tells of other errors."""
    from localmcp.readers.readers import choose_reader, read_documents  # 60 ms: every reader

    path, root, entry = Path(task.file.path), task.root, task.entry
    reading = Reading(task.file.size, task.file.mtime_ns)
    no_links = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | no_links), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableDocument(f"{path} is not a regular file.")
            # Compared after opening: what the path leads to now is what was opened.
            if os.path.realpath(path) != str(path) or not os.path.samestat(os.lstat(path), status):
                raise UnreadableDocument(REACHED_BY_LINK)
            reading.size, reading.mtime_ns = status.st_size, modified_ns(status)
            choice = choose_reader(file.read(8192), path.name, archive=root.kind == "file")
            why_not = choice.why_skipped(status.st_size, max_bytes)
            if why_not and status.st_size:
                yield replace(reading, outcome="skipped", reason=why_not)
                return
            file.seek(0)
            digest, is_blank = hashlib.sha256(), True
            while block := file.read(1 << 16):
                digest.update(block)
                is_blank = is_blank and not block.strip(b" \t\n\r\v\f\0" + BOM_UTF8 + BOM_UTF16_LE)
            file.seek(0)
            reading.sha256 = digest.hexdigest()
            is_known = entry is not None and entry.status == "indexed" and not task.again and task.recognize is None
            if is_known and entry and entry.sha256 == reading.sha256:
                yield replace(reading, outcome="unchanged")
            elif is_blank:
                yield replace(reading, outcome="empty", reason=why_not or "only white space")
            else:
                for document in read_documents(file, path.name, choice, max_bytes=max_bytes, recognize=task.recognize):
                    yield _drafted(reading, document, window, root, str(path), file)
        return
    except OSError as error:
        reading.reason = f"{CANNOT_BE_READ}: {(error.strerror or str(error)).lower()}"
    except ScannedDocument as error:
        reading.outcome, reading.reason, reading.pages = "skipped", str(error), error.pages
    except RecursionError:
        reading.reason = "it is nested too deeply"
    yield reading


def _drafted(reading: Reading, document: Document, window: Window, root: Root, path: str, file: BinaryIO) -> Reading:
    member, sha256, size = document.member, reading.sha256 or "", reading.size
    if document.scan_pages is not None:
        return replace(reading, outcome="skipped", reason=document.failure, member=member, pages=document.scan_pages)
    if document.failure:
        return replace(reading, reason=document.failure, member=member)
    if member:
        # A document inside a file changes when its own text does.
        data = document.text.encode()
        values = json.dumps(document.metadata, sort_keys=True, ensure_ascii=False).encode()
        sha256, size = hashlib.sha256(values + b"\0" + data).hexdigest(), len(data)
        metadata = {**root.metadata, "container": path, "parent": member_uri(path, document.parent)}
        root = replace(root, title=None, metadata=metadata)

    def read_again() -> bytes:
        file.seek(0)
        return file.read()

    uri, whole_file = member_uri(path, member), None if member else read_again
    draft = draft_source(document, window, root, uri, sha256, size, reading.mtime_ns, whole_file)
    return replace(reading, outcome="read", reason=document.remark, draft=draft, member=member)


def member_uri(path: str, member: str) -> str:
    """Return the uri of a document inside a file; of the file itself when `member` is empty."""
    return f"{path}#{member}" if member else path


def draft_source(
    document: Document, window: Window, root: Root, uri: str | None, sha256: str, size: int,
    mtime_ns: int | None = None, read: Callable[[], bytes] | None = None,
) -> SourceDraft:  # fmt: skip
    """Return the source to store, with words and tables (`read` gives its bytes); what is said of the root wins."""
    title = root.title or document.title
    chunks = split(replace(document, title=title), window.count_tokens, limit=window.limit)
    if document.markup == "code":
        # The language that most of six passages, spread over it, have.
        votes = Counter(filter(None, (detect_language(chunk.text) for chunk in chunks[:: -(-len(chunks) // 6) or 1])))
        language = max(votes, key=votes.__getitem__, default=None) or DEFAULT_LANGUAGE
    else:
        language = detect_language(_prose(document.text)) or DEFAULT_LANGUAGE
    metadata = with_said(document.metadata, root.metadata)
    # What SQLite cannot hold is said of this file, before it is in a transaction with others.
    json.dumps([title, metadata], ensure_ascii=False).encode()
    by_word_only = is_data_file(uri or "")
    drafts: list[ChunkDraft] = []
    for chunk in chunks:
        # Of code, half the passages are undecided, and one in 200 was taken for a language that is not in it.
        spoken = (chunk.kind != "code" and detect_language(_prose(chunk.text))) or language
        kind = WORD_ONLY if by_word_only or is_data(chunk.text) else chunk.kind
        drafts.append(draft_chunk(chunk, title, title, spoken, kind, with_words=True))
    return SourceDraft(
        root.collection_id, root.partition_id, title, root.source_type or document.source_type, document.format,
        uri, sha256, size, mtime_ns, language, metadata, drafts, document.date, document.date_from,
        tables=describe_tables(uri or title, document.text, read),
    )  # fmt: skip


def _prose(text: str) -> str:
    # The header of a mail looks English in every language.
    header = MAIL_HEADER.match(text)
    return text[header.end() :] if header else text


def add_page(library: Library, url: str, *, allow_private: bool = False, title: str = "", **options: Any) -> Indexed:
    """Fetch a web page and add it with its address and date in place of an earlier one; errors as of `fetch_page`."""
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
    address, AccessDenied for a private one, UnreadableDocument if it is no text or too large, else Unavailable.
    """
    end, headers = time.monotonic() + DEADLINE_SECONDS, {"Accept": "text/html, text/*, application/pdf"}
    for _ in range(6):
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
        address, left = addresses[0], end - time.monotonic()
        request = Request("GET", url, headers, None, max_bytes, 20.0, left, address)
        try:
            response = send(request, lambda response: response.status == 200 and _text_kind(response) is not None)
            target = response.redirect(url)
        except (OSError, ValueError) as error:
            if time.monotonic() >= end:
                raise Unavailable(f"{url} takes longer than {DEADLINE_SECONDS:.0f} s to answer.") from error
            raise Unavailable(f"{url} cannot be fetched: {error or type(error).__name__}.") from error
        if target is None:
            break
        url = target
    else:
        raise Unavailable(f"{url} redirects more than 5 times.")
    kind = _text_kind(response)
    if response.status != 200:
        raise Unavailable(f"{url} answers with status {response.status}, not with a page.")
    if kind is None:
        raise UnreadableDocument(f"{url} is {response.headers['Content-Type']}, not text.")
    if len(response.body) > max_bytes:
        raise UnreadableDocument(f"{url} is larger than {max_bytes // 1_000_000} MB (setting max_file_mb).")
    stem = parts.path.rstrip("/").rpartition("/")[2].rpartition(".")[0] or parts.hostname or "page"
    return url, response.body, stem.replace(".", " ") + _SUFFIXES.get(kind, ".txt")


def _text_kind(response: Response) -> str | None:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    kind = kind if kind.count("/") == 1 else "text/plain"  # Of no type, or one that is none.
    return kind if kind.startswith("text/") or kind in _SUFFIXES else None


def _read_in_worker(page: tuple[bytes, str]) -> Iterator[Document]:
    from localmcp.readers.readers import read_bytes  # 60 ms: every reader

    yield read_bytes(*page)


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
