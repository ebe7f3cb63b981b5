"""What a name of a document or a passage means: an id or the beginning of one, a path, its end, a title, an address."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from pathlib import PurePath
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.index.collections import visible_ids
from localmcp.index.federation import Federation, Wanted
from localmcp.index.search import Index
from localmcp.schemas import nearest, without_surrogates
from localmcp.storage.database import fetch_all, fetch_column
from localmcp.wording.normalize import fold

SELECT_ROW = "select id, uuid, collection_id, title, uri from sources"
Id = tuple[uuid.UUID, str | None]
"""An id as a tool takes it, and the mounted file that it belongs to, if the caller says so."""
DOCUMENT_URI = "localmcp://document/"
"""Begins the address of a document as a resource."""
_SHORT = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,27}", re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Return whether a text is a whole UUID, in any of its spellings."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def spelled(path: str) -> str:
    """Return an absolute path as the disk spells it, which may write accents in another form of Unicode."""
    # To look at a path on another host would contact it.
    if path.isascii() or "\0" in path or not os.path.isabs(path) or path[:2] in ("\\\\", "//") or os.path.lexists(path):
        return path
    first, *parts = PurePath(path).parts
    for part in parts:
        forms = [os.path.join(first, form) for form in (part, normalize("NFC", part), normalize("NFD", part))]
        first = next(filter(os.path.lexists, forms), forms[0])
    return first


def without_scheme(name: str) -> str:
    """Return the id in the address of a resource, the path in a file's; any other name as it is."""
    if name.startswith(DOCUMENT_URI):
        return unquote(urlsplit(name).path.lstrip("/"))
    if not name.startswith("file:///"):
        return name
    path = unquote(urlsplit(name).path)
    # Windows: "/C:/notes" is C:\notes.
    return str(PurePath(path[1:] if path[2:3] == ":" else path))


class Ambiguous(InvalidInput):
    """A name that several documents have."""

    code = "ambiguous"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A document, as far as it is named, removed or restored."""

    id: int
    uuid: str
    collection_id: int
    title: str
    uri: str | None


def split_mount(name: str) -> tuple[str | None, str]:
    """Return (mounted file, rest) of `team:1f94484f` or `team:<uuid>`; (None, name) for anything else."""
    head, _, local_name = without_scheme(name.strip()).rpartition(":")
    is_id = head and head.lower() != "urn:uuid" and (_SHORT.fullmatch(local_name) or is_uuid(local_name))
    return (head, local_name) if is_id else (None, name)


def sources_named(
    connection: apsw.Connection, name: str, *, trashed: bool = False, collection: str | None = None
) -> list[SourceRow]:
    """Return at most 100 visible documents of that id, or else path, title, or end of a path; the newest first."""
    text = without_scheme(name.strip())
    if not text.strip("./\\"):
        return []
    path = os.path.expanduser(text)
    tail = os.sep + text.lstrip("./\\").replace("/", os.sep)
    tests = [
        ("uuid = :name", text.lower()),
        ("uri = :name", path),
        ("title = :name collate nocase", text) if text.isascii() else ("folded(title) = :name", fold(text)),
        ("substr(uri, -length(:name)) = :name", tail),
        # The end of a path without the ending of the file's name.
        (f"instr(substr(uri, nullif(instr(uri, :name || '.'), 0) + length(:name)), '{os.sep}') = 0", tail),
    ]
    if _SHORT.fullmatch(text):
        tests.insert(1, ("uuid >= :name and uuid < :name || 'g'", text.lower()))
    if not text.isascii():
        # The disk may write accents in another form of Unicode.
        tests += [("folded(uri) = :name", fold(path)), ("substr(folded(uri), -length(:name)) = :name", fold(tail))]
    state = "not null" if trashed else "null"
    where = f"trashed_at is {state} and collection_id in ({visible_ids(connection, collection)})"
    for test, value in tests:
        sql = f"{SELECT_ROW} where {test} and {where} order by id desc limit 100"
        if rows := fetch_all(connection, sql, {"name": value}):
            return [SourceRow(*row) for row in rows]
    return []


def find_source(
    connection: apsw.Connection, name: str, *, trashed: bool = False, collection: str | None = None
) -> SourceRow | None:
    """Return the document that `sources_named` finds; Ambiguous if they are several, with a list of them."""
    rows = sources_named(connection, name, trashed=trashed, collection=collection)
    # One file that is in two collections, or was removed twice, is one document.
    if len({row.uri or row.id for row in rows}) > 1:
        places = ", ".join(row.uri or row.uuid[:8] for row in rows[:9])
        more = f" and {len(rows) - 9} more" if len(rows) > 9 else ""
        message = f"'{without_scheme(name.strip())}' fits {len(rows)} documents: {places}{more}."
        raise Ambiguous(message, hint="Give one of these paths.")
    return rows[0] if rows else None


def nearest_hint(connection: apsw.Connection, name: str) -> str:
    """Return what to do where no document has a name: the path or title that is much like it, if there is one."""
    sql = f"select title, uri from sources where trashed_at is null and collection_id in ({visible_ids(connection)})"
    by_name: dict[str, str] = {}
    for title, uri in fetch_all(connection, f"{sql} order by id desc limit 20000"):
        by_name[title] = by_name[os.path.basename(uri or title)] = uri or title
    best = nearest(os.path.basename(name.strip()) or name, by_name, least=75)
    return f"The nearest is '{by_name[best]}'." if best else "Use list_sources to see what there is."


def resolve_source(
    federation: Federation, field: str, name: str, origin: str | None = None, collection: str | None = None
) -> Id:
    """Return the id that an argument names, with the mounted file it is in; NotFound, or Ambiguous for several."""
    text = without_surrogates(name)
    mount, bare = split_mount(text)

    def look(index: Index, mounted: str | None) -> Id | None:
        with index.database.read() as connection:
            source = find_source(connection, bare, collection=collection)
        return (uuid.UUID(source.uuid), mounted) if source else None

    if identity := next(federation.look(look, mount or origin, Wanted(document=bare)), None):
        return identity
    inside = f" in the collection '{collection}'" if collection else ""
    with federation.own.database.read() as connection:
        raise NotFound(f"{field}: no document '{name}'{inside}.", hint=nearest_hint(connection, text))


def resolve_chunk(federation: Federation, field: str, name: str) -> Id | None:
    """Return the id of the passage whose id begins with `name`, if there is one; InvalidInput if it is no such text."""
    origin, bare = split_mount(name.strip())
    text = bare.removeprefix("urn:uuid:").strip("{}").replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{8,32}", text):
        message = f"{field}: {name!r} is not an id; ids are UUIDs, or their first 8 characters, as search returns them."
        raise InvalidInput(message, hint="A document by its path or title is read with get_document.")
    first, last = bytes.fromhex(text.ljust(32, "0")), bytes.fromhex(text.ljust(32, "f"))

    def look(index: Index, mounted: str | None) -> Id | None:
        with index.database.read() as connection:
            sql = f"""
                select chunks.uuid from chunks join sources on sources.id = source_id
                where chunks.uuid between ? and ? and trashed_at is null
                    and collection_id in ({visible_ids(connection)}) limit 2
            """
            ids = fetch_column(connection, sql, (first, last))
        if len(ids) > 1:
            raise Ambiguous(f"'{name}' begins the ids of several passages.", hint="Give the whole id.")
        return (uuid.UUID(bytes=ids[0]), mounted) if ids else None

    return next(federation.look(look, origin, Wanted(chunk=text)), None)
