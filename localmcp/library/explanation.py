"""Why a path is, or is not, in the library."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NotRequired

import apsw
from typing_extensions import TypedDict

from localmcp.files import holds_other_bytes, modified_ns
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.index.drafts import WORD_ONLY
from localmcp.library.ledger import range_below, roots_of
from localmcp.library.walk import below
from localmcp.readers.data_text import RULE as WORD_ONLY_RULE
from localmcp.storage.database import fetch_all

MOST_LEFT_OUT = 200
"""Paths of a folder that are listed, of those that were skipped or failed."""


class PathEntry(TypedDict):
    """What the ledger knows of a path in one collection."""

    collection: str
    status: str
    reason: str
    title: NotRequired[str]
    sourceId: NotRequired[str]
    documents: NotRequired[int]
    """Of a mailbox or an archive: how many documents came out of it."""
    chunks: int
    wordOnly: NotRequired[int]
    """Those of them that are found by word only; left out when there are none."""
    size: int | None
    modified: str | None
    """Of the version that was looked at, ISO 8601 UTC."""
    onDisk: str
    """unchanged | changed | missing, against that version; unknown for a name that is not valid Unicode."""
    seenAt: str
    addedAs: str | None
    """The added file or folder through which it was found."""


class LeftOut(TypedDict):
    """A path in a folder that was skipped or failed."""

    path: str
    status: str
    reason: str


class Explanation(TypedDict):
    """Why a path is, or is not, in the library."""

    path: str
    exists: bool
    explanation: str
    entries: list[PathEntry]
    nearest: list[str]
    """Known paths that look like it, when it is not known itself."""
    counts: NotRequired[dict[str, int]]
    """Of a folder: status -> how many paths in it have it."""
    leftOut: NotRequired[list[LeftOut]]
    """Of a folder: what was skipped or failed in it, failures first; the first 200."""


def explain(connection: apsw.Connection, collections: Sequence[Collection], path: str) -> Explanation:
    """Return everything that those collections know about an absolute path."""
    names = {collection.id: collection.name for collection in collections}
    rows = _rows_of(connection, path)
    if not rows and (container := _container_of(connection, names, path)):
        return _explain_member(connection, explain(connection, collections, container), names, path)
    entries = [_path_entry(path, names[row[0]], row) for row in rows if row[0] in names]
    if not entries and (counts := _counts_in(connection, names, path)):
        return _explain_folder(connection, names, path, counts)
    words = "; ".join(_sentence(entry) for entry in entries) or _unknown(connection, names, path)
    return {
        "path": path,
        "exists": os.path.lexists(path),
        "explanation": words,
        "entries": entries,
        "nearest": [] if entries else _nearest(connection, names, path),
    }


def _rows_of(connection: apsw.Connection, path: str) -> list[tuple[Any, ...]]:
    return fetch_all(
        connection,
        """
        select ledger.collection_id, ledger.status, ledger.reason, sources.title, sources.uuid, ledger.chunks,
            ledger.size, ledger.mtime_ns, ledger.sha256, ledger.seen_at, roots.path, (
                select count(*) from chunks join groups on groups.id = group_id
                where chunks.source_id = ledger.source_id and kind = :word_only
            ), (
                select count(*) from sources as members
                where members.collection_id = ledger.collection_id and members.trashed_at is null
                    and members.uri > :path || '#' and members.uri < :path || '$'
                    and members.metadata ->> '$.container' = :path
            )
        from ledger left join sources on sources.id = ledger.source_id left join roots on roots.id = ledger.root_id
        where ledger.path = :path
        """,
        {"path": path, "word_only": WORD_ONLY},
    )


def _counts_in(connection: apsw.Connection, names: Mapping[int, str], path: str) -> dict[str, int]:
    """Return status -> how many paths in a folder have it; empty when nothing in it was ever offered."""
    sql = "select collection_id, status, count(*) from ledger where path >= ? and path < ? group by 1, 2 order by 2"
    counts: dict[str, int] = {}
    for collection_id, status, count in fetch_all(connection, sql, range_below(path)):
        if collection_id in names:
            counts[status] = counts.get(status, 0) + count
    return counts


def _explain_folder(
    connection: apsw.Connection, names: Mapping[int, str], path: str, counts: dict[str, int]
) -> Explanation:
    """Return how many files of a folder are indexed, and which are not."""
    sql = """
        select path, status, reason, collection_id from ledger
        where path >= ? and path < ? and status in ('skipped', 'failed') order by status, path
    """
    rows = (row for row in fetch_all(connection, sql, range_below(path)) if row[3] in names)
    left_out: list[LeftOut] = [{"path": row[0], "status": row[1], "reason": row[2]} for row in rows]
    numbers = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    return {
        "path": path,
        "exists": os.path.lexists(path),
        "explanation": f"{_unknown(connection, names, path)}: {numbers}",
        "entries": [],
        "nearest": [],
        "counts": counts,
        "leftOut": left_out[:MOST_LEFT_OUT],
    }


def _container_of(connection: apsw.Connection, names: Mapping[int, str], path: str) -> str | None:
    """Return the offered file in which a document with the path `FILE#MEMBER` would be."""
    for end in (index for index, sign in enumerate(path) if sign == "#"):
        rows = fetch_all(connection, "select collection_id from ledger where path = ?", (path[:end],))
        if any(collection_id in names for (collection_id,) in rows):
            return path[:end]
    return None


def _explain_member(
    connection: apsw.Connection, container: Explanation, names: Mapping[int, str], path: str
) -> Explanation:
    """Return whether a document in a mail or an archive is indexed, and the status of the file that it is in."""
    sql = "select collection_id, title, uuid from sources where uri = ? and trashed_at is null"
    stored = {names[row[0]]: row[1:] for row in fetch_all(connection, sql, (path,)) if row[0] in names}
    for entry in container["entries"]:
        entry.pop("title", None)
        entry.pop("sourceId", None)
        if entry["collection"] in stored:
            entry["title"], entry["sourceId"] = stored[entry["collection"]]
    words = f"{'indexed' if stored else 'not indexed'}; {container['path']} was {container['explanation']}"
    return {**container, "path": path, "explanation": words}


def _path_entry(path: str, collection: str, row: tuple[Any, ...]) -> PathEntry:
    _, status, reason, title, uuid, chunks, size, mtime_ns, sha256, seen_at, root, word_only, documents = row
    entry: PathEntry = {
        "collection": collection,
        "status": status,
        "reason": reason,
        "chunks": chunks,
        "size": size,
        "modified": _iso(mtime_ns),
        "onDisk": _compare(path, size, mtime_ns, sha256),
        "seenAt": seen_at,
        "addedAs": root,
    }
    if word_only:
        entry["wordOnly"] = word_only
    if documents:
        entry["documents"] = documents
    elif uuid is not None:
        entry["sourceId"], entry["title"] = uuid, title
    return entry


def _iso(mtime_ns: int | None) -> str | None:
    if mtime_ns is None:
        return None
    return datetime.fromtimestamp(mtime_ns / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _compare(path: str, size: int | None, mtime_ns: int | None, sha256: str | None) -> str:
    try:
        status = os.stat(path)
    except OSError:
        # A name that is not Unicode is stored with U+FFFD, and leads to no file.
        return "unknown" if "\ufffd" in path else "missing"
    same = size is None or (status.st_size, modified_ns(status)) == (size, mtime_ns)
    if size and sha256 and same and stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
        same = not holds_other_bytes(path, size, sha256)
    return "unchanged" if same else "changed"


def _sentence(entry: PathEntry) -> str:
    reason = f": {entry['reason']}" if entry["reason"] else ""
    documents = f" as {counted(entry['documents'], 'document')}" if "documents" in entry else ""
    passages = f" in {counted(entry['chunks'], 'passage')}" if entry["status"] == "indexed" else ""
    if word_only := entry.get("wordOnly"):
        passages += f", {word_only:,} of them by word only ({WORD_ONLY_RULE})"
    return f"{entry['status']}{documents}{passages}{reason} (collection {entry['collection']})"


def _unknown(connection: apsw.Connection, names: Mapping[int, str], path: str) -> str:
    """Return why a path has no entry: a folder above it was skipped, it was not seen yet, or never offered."""
    folder = os.path.dirname(path)
    while folder != os.path.dirname(folder):
        sql = "select collection_id, status, reason from ledger where path = ?"
        for collection_id, status, reason in fetch_all(connection, sql, (folder,)):
            if collection_id in names:
                return f"it lies in {folder}, which was {status}: {reason}"
        folder = os.path.dirname(folder)
    roots = [root.path for root in roots_of(connection, names) if below(path, root.path)]
    if path in roots and not os.path.isdir(path):
        return "a watched folder that is not there now"
    if path in roots:
        return "a watched folder, which is looked at again by refresh"
    if roots and os.path.isdir(path):
        return f"a folder in {max(roots, key=len)}"
    if roots and os.path.lexists(path):
        return f"not seen yet; it lies in {max(roots, key=len)}, which is looked at again by refresh"
    if roots:
        return f"there was never such a file in {max(roots, key=len)}"
    return "never offered: not below any added folder"


def _nearest(connection: apsw.Connection, names: Mapping[int, str], path: str) -> list[str]:
    from rapidfuzz import fuzz, process

    sql = "select path, collection_id from ledger where status = 'indexed' or source_id is not null"
    ledger_paths = {ledger_path for ledger_path, collection_id in fetch_all(connection, sql) if collection_id in names}
    scored_paths = process.extract(path, ledger_paths, scorer=fuzz.ratio, limit=3, score_cutoff=60)
    return [ledger_path for ledger_path, _, _ in scored_paths]
