"""Make the paths in a pack relative, so that they say nothing of the disk of the person who made it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, cast

import apsw

from localmcp.storage.database import fetch_all, fetch_column


def hide_places(connection: apsw.Connection) -> None:
    """Turn absolute paths into paths below the folder that was added: of documents, and in their metadata."""
    roots = [PurePath(path) for path in fetch_column(connection, "select path from roots order by length(path) desc")]
    rows = fetch_all(connection, "select id, collection_id, uri, metadata from sources order by id")
    used_uris = {(collection_id, uri) for _, collection_id, uri, _ in rows if uri is not None and not is_absolute(uri)}
    for source_id, collection_id, uri, metadata in rows:
        place = uri
        if uri is not None and is_absolute(uri):
            place = _free(below(uri, roots), collection_id, used_uris)
        connection.execute(
            "update sources set uri = ?, mtime_ns = null, metadata = ? where id = ?",
            (place, _cleaned(metadata, uri, place, roots), source_id),
        )


def is_absolute(place: str) -> bool:
    """Return whether it names a place on some machine's disk, whichever system that has."""
    if place.startswith("file:"):
        return True
    return PurePosixPath(place).is_absolute() or PureWindowsPath(place).is_absolute()


def below(place: str, roots: Sequence[PurePath]) -> str:
    """`notes/a/b.md` for a file of the added folder `…/notes`; its bare name for a file that was added by itself."""
    path = PurePath(place)
    for root in roots:
        if path != root and path.is_relative_to(root):
            return PurePath(root.name, path.relative_to(root)).as_posix()
    return PureWindowsPath(place).name or "document"


def _free(place: str, collection_id: int, used_uris: set[tuple[int, str]]) -> str:
    free, number = place, 1
    while (collection_id, free) in used_uris:
        number += 1
        free = f"{number}/{place}"
    used_uris.add((collection_id, free))
    return free


def _cleaned(metadata: str, uri: str | None, place: str | None, roots: Sequence[PurePath]) -> str:
    """Return the metadata without paths of this machine; what only looks like one, such as `/api/users`, stays."""
    if "/" not in metadata and "\\" not in metadata:
        return metadata
    homes = [*roots, PurePath(Path.home())]

    def shorten(text: str) -> str:
        if text == uri and place is not None:
            return place
        bare = text.removeprefix("file://")
        path = PurePath(bare)
        return below(bare, homes) if os.path.isabs(bare) and any(path.is_relative_to(home) for home in homes) else text

    try:
        return json.dumps(_mapped(json.loads(metadata), shorten), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "{}"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _mapped(nested, change) for key, nested in cast("dict[str, Any]", value).items()}
    return value
