"""Ids and collections of mounted files, as tools show and take them: `NAME:id`, `mount:NAME/COLLECTION`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from localmcp.errors import InvalidInput

MOUNT = "mount:"
DOCUMENT_URI = "localmcp://document/"
"""Begins the address of a document as a resource."""


@dataclass(frozen=True, slots=True)
class Id:
    """An id as a tool takes it."""

    uuid: uuid.UUID
    origin: str | None = None
    """The mounted file that it belongs to, if the caller says so."""


def shown_id(value: str | bytes, origin: str | None) -> str:
    """Return the id of a chunk (16 bytes) or a source (text), with the name of the mounted file before it."""
    bare = str(uuid.UUID(bytes=value)) if isinstance(value, bytes) else value
    return f"{origin}:{bare}" if origin else bare


def is_uuid(text: str) -> bool:
    """Return whether a text is a whole UUID, in any of its spellings."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def parse_collection(name: str | None) -> tuple[str | None, str | None]:
    """Return (mounted file, collection) of `mount:NAME`, `mount:NAME/COLLECTION` or a plain collection.

    Raises:
        InvalidInput: `mount:` without a name.
    """
    if name is None or not name.startswith(MOUNT):
        return None, name or None
    origin, _, collection = name.removeprefix(MOUNT).partition("/")
    if not origin:
        raise InvalidInput(f"collection: '{name}' names no mounted file; use mount:NAME or mount:NAME/COLLECTION.")
    return origin, collection or None


def without_scheme(name: str) -> str:
    """Return the id in the address of a resource, the path in a file's; any other name as it is."""
    if name.startswith(DOCUMENT_URI):
        return unquote(urlsplit(name).path.lstrip("/"))
    if not name.startswith("file:///"):
        return name
    path = unquote(urlsplit(name).path)
    # Windows: "/C:/notes" is C:\notes.
    return str(PurePath(path[1:] if path[2:3] == ":" else path))
