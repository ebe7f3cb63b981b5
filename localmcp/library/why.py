"""Why a path is, or is not, in the library."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
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
from localmcp.schemas import nearest
from localmcp.storage.database import fetch_all
from localmcp.tools import without_none


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
    onDisk: str
    """unchanged | changed | missing, against the version that was looked at."""


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
    """The known path that looks most like it, when it is not known itself."""
    counts: NotRequired[dict[str, int]]
    """Of a folder: status -> how many paths in it have it."""
    leftOut: NotRequired[list[LeftOut]]
    """Of a folder: what was skipped or failed in it, failures first; the first 200."""


_ENTRIES = """
    select ledger.collection_id, ledger.status, ledger.reason, sources.title, sources.uuid, ledger.chunks,
        ledger.size, ledger.mtime_ns, ledger.sha256, (
            select count(*) from chunks join groups on groups.id = group_id
            where chunks.source_id = ledger.source_id and kind = :word_only
        ), (
            select count(*) from sources as members
            where members.collection_id = ledger.collection_id and members.trashed_at is null
                and members.uri > :path || '#' and members.uri < :path || '$'
                and members.metadata ->> '$.container' = :path
        )
    from ledger left join sources on sources.id = ledger.source_id
    where ledger.path = :path
"""


def explain(connection: apsw.Connection, collections: Sequence[Collection], path: str) -> Explanation:
    """Return everything that those collections know about an absolute path.

    Of a document in a mail or an archive, FILE#MEMBER, the file is explained.
    """
    names = {collection.id: collection.name for collection in collections}
    entries: list[PathEntry] = []
    for end in (len(path), *(place for place, sign in enumerate(path) if sign == "#")):
        rows = fetch_all(connection, _ENTRIES, {"path": path[:end], "word_only": WORD_ONLY})
        if entries := [_path_entry(path[:end], names[row[0]], row[1:]) for row in rows if row[0] in names]:
            path = path[:end]
            break
    explanation: Explanation = {
        "path": path,
        "exists": os.path.lexists(path),
        "explanation": "; ".join(map(_sentence, entries)) or _unknown(connection, names, path),
        "entries": entries,
        "nearest": [],
    }
    if entries:
        return explanation
    sql = "select path, status, reason, collection_id from ledger where path >= ? and path < ? order by status, path"
    inside = [row for row in fetch_all(connection, sql, range_below(path)) if row[3] in names]
    if inside:
        counts = Counter(row[1] for row in inside)
        left_out: list[LeftOut] = [
            {"path": row[0], "status": row[1], "reason": row[2]} for row in inside if row[1] in ("skipped", "failed")
        ]
        explanation["counts"], explanation["leftOut"] = dict(counts), left_out[:200]
        explanation["explanation"] += ": " + ", ".join(f"{count:,} {status}" for status, count in counts.items())
        return explanation
    sql = "select path, collection_id from ledger where status = 'indexed' or source_id is not null"
    near = nearest(path, {row[0] for row in fetch_all(connection, sql) if row[1] in names})
    return {**explanation, "nearest": [near] if near else []}


def _path_entry(path: str, collection: str, row: tuple[Any, ...]) -> Any:
    status, reason, title, uuid, chunks, size, mtime_ns, sha256, word_only, documents = row
    about = {"documents": documents} if documents else {"title": title, "sourceId": uuid}
    entry = {
        "collection": collection,
        "status": status,
        "reason": reason,
        "chunks": chunks,
        "onDisk": _compare(path, size, mtime_ns, sha256),
        "wordOnly": word_only or None,
    }
    return without_none({**entry, **about})


def _compare(path: str, size: int | None, mtime_ns: int | None, sha256: str | None) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "missing"
    same = size is None or mtime_ns is None or (status.st_size, modified_ns(status)) == (size, mtime_ns)
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
    for folder in map(str, PurePath(path).parents):
        rows = fetch_all(connection, "select status, reason, collection_id from ledger where path = ?", (folder,))
        for status, reason, _ in (row for row in rows if row[2] in names):
            return f"it lies in {folder}, which was {status}: {reason}"
    roots = [root.path for root in roots_of(connection, names) if below(path, root.path)]
    if not roots:
        return "never offered: not below any added folder"
    outer = max(roots, key=len)
    if path == outer:
        return f"a watched folder{'' if os.path.isdir(path) else ' that is not there now'}"
    if os.path.isdir(path):
        return f"a folder in {outer}"
    is_there = os.path.lexists(path)
    return f"not seen yet; refresh looks at {outer} again" if is_there else f"there was never such a file in {outer}"
