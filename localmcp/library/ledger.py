"""The files and folders that the person added, and the status of every path that was ever found, and why."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, Literal, get_args

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import HASH_AT_MOST, check_freshness, unicode_path
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.index.drafts import WORD_ONLY
from localmcp.library.walk import NOT_UNICODE, below, prefix_of
from localmcp.schemas import Json, list_of, mapping_of, nearest, one_or_more, without_none, without_surrogates
from localmcp.storage.database import bump_generations, fetch_all, fetch_column, fetch_one, upsert_rows
from localmcp.storage.schema import utc_now

Status = Literal["indexed", "skipped", "failed", "missing", "moved", "removed", "kept"]
"""`missing`: deleted, its source in the trash. `removed`: taken out by the person, and left out by later walks.
`kept`: brought back from the trash although its file is gone."""
Kind = Literal["file", "folder"]
SourceType = Literal["text", "website", "docs", "qa", "notion"]
SOURCE_TYPES: tuple[SourceType, ...] = get_args(SourceType)
OWN = "ownTags"
"""The field with what the person set, which stays with a document when its file is read again. All tags, those in the
file and those said when it was added too, are in `tags`."""
_OPTIONS = ("title", "source_type", "metadata", "include_hidden", "patterns")
WATCHED = "kind in ('file', 'folder')"
"""Selects the roots that the person has not removed; of the others the kind is `removed file` or `removed folder`."""


@dataclass(slots=True)
class Root:
    """A file or folder that the person added; what is None or empty was not said of it, so an outer folder's holds."""

    path: str
    kind: Kind
    collection_id: int
    partition_id: int | None = None
    id: int | None = None
    title: str | None = None
    source_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    include_hidden: bool = False
    patterns: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[Any, ...]:
        """What is stored with every source of it."""
        return self.partition_id, self.title, self.source_type, self.metadata

    def within(self, owner: Root | None) -> Root:
        """Return a root that inherits what is not said of it from the root at or above it."""
        if owner is None:
            return self
        return replace(
            self,
            partition_id=owner.partition_id if self.partition_id is None else self.partition_id,
            title=self.title or (owner.title if owner.path == self.path else None),
            source_type=self.source_type or owner.source_type,
            metadata={**owner.metadata, **self.metadata},
            include_hidden=self.include_hidden or owner.include_hidden,
            patterns=self.patterns or owner.patterns,
        )


def roots_of(connection: apsw.Connection, collection_ids: Iterable[int], *, removed: bool = False) -> list[Root]:
    """Return what was added to those collections, outer folders first; with `removed`, what was removed of it."""
    sql = f"""
        select path, kind, collection_id, partition_id, options, id from roots
        where {"not " if removed else ""}({WATCHED}) order by path
    """
    ids, roots = set(collection_ids), list[Root]()
    for path, kind, collection_id, partition_id, options, number in fetch_all(connection, sql):
        if collection_id in ids:
            choices: dict[str, Any] = {"patterns": (), **json.loads(options)}
            choices["patterns"] = tuple(choices["patterns"])
            roots.append(Root(path, kind.removeprefix("removed "), collection_id, partition_id, number, **choices))
    return roots


def save_root(connection: apsw.Connection, root: Root) -> None:
    """Remember a root and fill in its id. Part of the caller's write transaction."""
    options = {name: value for name in _OPTIONS if (value := getattr(root, name))}
    sql = """
        insert into roots (path, collection_id, partition_id, kind, options, added_at) values (?, ?, ?, ?, ?, ?)
        on conflict (path, collection_id) do update set
            partition_id = excluded.partition_id, kind = excluded.kind, options = excluded.options
        returning id
    """
    row = (root.path, root.collection_id, root.partition_id, root.kind, json.dumps(options, ensure_ascii=False))
    root.id = fetch_one(connection, sql, (*row, utc_now()))


def unwatch(connection: apsw.Connection, collection_id: int, path: str, *, inside: bool = True) -> None:
    """Watch the root at a path, and with `inside` those below it, no longer; options last while the trash does."""
    sql = f"""
        update roots set kind = 'removed ' || kind
        where {WATCHED} and collection_id = ? and (path = ? or path >= ? and path < ?)
    """
    connection.execute(sql, (collection_id, path, *(range_below(path) if inside else ("", ""))))


def owner_of(path: str, roots: Sequence[Root]) -> Root | None:
    """Return the innermost root at or above a path."""
    return max((root for root in roots if below(path, root.path)), key=lambda root: len(root.path), default=None)


def check_options(title: str | None, source_type: str | None, metadata: Mapping[str, Any] | None) -> Root:
    """Return a root without a path, with what is said; InvalidInput for an unknown type, or metadata not of JSON."""
    if source_type is not None and source_type not in SOURCE_TYPES:
        raise InvalidInput(f"source type {source_type!r} is unknown; use one of {', '.join(SOURCE_TYPES)}.")
    line = " ".join(without_surrogates(title or "").split())[:200]
    try:
        text = json.dumps(dict(metadata or {}), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata cannot be stored as JSON: {error}.") from error
    stored = json.loads(without_surrogates(text))
    return Root("", "file", 0, title=line or None, source_type=source_type, metadata=stored)


def find_targets(paths: Iterable[str | os.PathLike[str]], title: str | None) -> dict[str, Kind | None]:
    """Return resolved path -> kind, None for what is not there; NotFound if nothing is, InvalidInput for a bad name."""
    targets: dict[str, Kind | None] = {}
    for name in paths:
        if not os.fspath(name):
            raise InvalidInput("path is empty; name a file or a folder ('.' is the current one).")
        path = os.path.realpath(os.path.expanduser(name))
        if path != unicode_path(path):
            raise InvalidInput(f"{unicode_path(path)}: {NOT_UNICODE}.", hint="Rename it, and add it again.")
        targets[path] = "folder" if os.path.isdir(path) else "file" if os.path.lexists(path) else None
        if targets[path] == "folder" and title:
            raise InvalidInput(f"title: {path} is a folder; only a single file can be given a title.")
    if not any(targets.values()):
        raise NotFound(f"There is no file or folder {', '.join(targets) or 'named'}.")
    return targets


def split_tags(value: Any) -> list[str]:
    """Return the tags in what front matter or a person says: a list, or words separated by commas or spaces."""
    tags = re.split(r"," if "," in value else r"\s+", value) if isinstance(value, str) else one_or_more(value)
    return [tag for item in tags if not isinstance(item, dict | list) and (tag := str(item).strip().lstrip("#"))]


def unique(tags: Iterable[str]) -> list[str]:
    """Return each tag once, whatever its capitals, as it was written first."""
    return list({tag.casefold(): tag for tag in reversed(list(tags))}.values())[::-1]


def with_said(metadata: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's metadata with what was said of it, which wins; tags of both are kept."""
    both = {**metadata, **said}
    if "tags" in said:
        both["tags"] = unique([*split_tags(metadata.get("tags") or []), *split_tags(said["tags"])])
    return both


def with_own_tags(metadata: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the tags that the person added, and without those that the person took away."""
    removed = {tag.casefold() for tag in list_of(own.get("removed"))}
    kept = [tag for tag in split_tags(metadata.get("tags") or []) if tag.casefold() not in removed]
    return {**metadata, "tags": unique([*kept, *list_of(own.get("added"))]), OWN: dict(own)}


def keep_own_tags(connection: apsw.Connection, metadata: Mapping[str, Any], source_id: int) -> Mapping[str, Any]:
    """Return the metadata of a new reading with the tags that the person set for the document so far."""
    own = fetch_one(connection, f"select metadata ->> '$.{OWN}' from sources where id = ?", (source_id,))
    return with_own_tags(metadata, json.loads(own)) if own else metadata


def set_tags(connection: apsw.Connection, uuid: str, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """Give tags to a document and take others away; returns those that it has. Part of the write transaction."""
    metadata = mapping_of(json.loads(fetch_one(connection, "select metadata from sources where uuid = ?", (uuid,))))
    own, changed = mapping_of(metadata.get(OWN)), {tag.casefold() for tag in (*add, *remove)}
    for kind, tags in (("added", add), ("removed", remove)):
        own[kind] = [*(tag for tag in list_of(own.get(kind)) if tag.casefold() not in changed), *tags]
    metadata = with_own_tags(metadata, own)
    sql = "update sources set metadata = ? where uuid = ?"
    connection.execute(sql, (json.dumps(metadata, ensure_ascii=False), uuid))
    bump_generations(connection, "content")
    return metadata["tags"]


def count_tags(connection: apsw.Connection, collection_ids: str) -> dict[str, int]:
    """Return the tags of the documents of those collections (SQL), the most used first, with how many have each."""
    sql = f"select metadata -> '$.tags' from sources where trashed_at is null and collection_id in ({collection_ids})"
    counts, spelled = Counter[str](), dict[str, str]()
    for text in filter(None, fetch_column(connection, sql)):
        for tag in unique(split_tags(json.loads(text))):
            counts[tag.casefold()] += 1
            spelled.setdefault(tag.casefold(), tag)
    return {spelled[tag]: counts[tag] for tag in sorted(counts, key=lambda tag: (-counts[tag], tag))}


@dataclass(frozen=True, slots=True)
class Entry:
    """Status of one path in one collection."""

    path: str
    status: Status
    reason: str = ""
    source_id: int | None = None
    sha256: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    pages: int = 0
    """Of scans in it that wait for text recognition."""
    seen_at: str = ""

    @property
    def holds_source(self) -> bool:
        """Whether a source that is searched came from this path."""
        return self.source_id is not None and self.status in ("indexed", "failed")


_COLUMNS = ", ".join(column.name for column in fields(Entry))


def is_at(connection: apsw.Connection, entry: Entry) -> bool:
    """Return whether the source is still the one of this path: it may have been found under another in the same run."""
    sql = "select coalesce(metadata ->> '$.container', uri) from sources where id = ? and trashed_at is null"
    return fetch_one(connection, sql, (entry.source_id,)) == entry.path


def entries_below(connection: apsw.Connection, collection_id: int, path: str) -> dict[str, Entry]:
    """Return path -> entry of a file, or of a folder and everything in it."""
    sql = f"select {_COLUMNS} from ledger where collection_id = ? and (path = ? or path >= ? and path < ?)"
    rows = fetch_all(connection, sql, (collection_id, path, *range_below(path)))
    return {row[0]: Entry(*row) for row in rows}


def record(connection: apsw.Connection, collection_id: int, entries: Iterable[Entry]) -> None:
    """Record the status of paths. Part of the caller's write transaction."""
    seen = {"collection_id": collection_id, "seen_at": utc_now()}
    rows = [{column.name: getattr(entry, column.name) for column in fields(entry)} | seen for entry in entries]
    upsert_rows(connection, "ledger", ("path", "collection_id"), rows)


def mark(
    connection: apsw.Connection, collection_id: int, path: str, status: Status, reason: str, **values: Any
) -> None:
    """Change status, reason and other columns of a path, and keep the rest of its entry."""
    row = {"path": path, "collection_id": collection_id, "status": status, "reason": reason, "seen_at": utc_now()}
    upsert_rows(connection, "ledger", ("path", "collection_id"), [row | values])


def forget(connection: apsw.Connection, collection_id: int, paths: Iterable[str]) -> None:
    """Delete the entries of paths that no longer mean anything."""
    sql = "delete from ledger where path = ? and collection_id = ?"
    connection.executemany(sql, ((path, collection_id) for path in paths))


def waiting_scans(connection: apsw.Connection, collection_id: int) -> list[Entry]:
    """Return the files of a collection with scans that no text was recognized in yet, those of few pages first."""
    sql = f"""
        select {_COLUMNS} from ledger
        where collection_id = ? and pages > 0 and status in ('indexed', 'skipped', 'failed') order by pages, path
    """
    return [Entry(*row) for row in fetch_all(connection, sql, (collection_id,))]


def waiting_pages(connection: apsw.Connection, collection_ids: Iterable[int]) -> int:
    """Return how many pages of scans wait for text recognition in those collections."""
    return sum(entry.pages for owner in collection_ids for entry in waiting_scans(connection, owner))


def range_below(path: str) -> tuple[str, str]:
    """Return the bounds of the paths inside a folder, for the index: `/a/` <= path < `/a0`."""
    prefix = prefix_of(path)
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def documents_in(connection: apsw.Connection, collection_id: int, path: str) -> list[tuple[int, str]]:
    """Return (id, uri) of the documents in a file, such as the messages of a mailbox; none for an ordinary file."""
    sql = """
        select id, uri from sources where collection_id = ? and uri >= ? and uri < ? and trashed_at is null
            and metadata ->> '$.container' = ?
    """
    return fetch_all(connection, sql, (collection_id, f"{path}#", f"{path}$", path))


_ENTRIES = """
    select ledger.collection_id, ledger.status, ledger.reason, sources.title, sources.uuid,
        coalesce(sum(members.chunk_count), 0) + iif(sources.uri = :path, sources.chunk_count, 0),
        ledger.size, ledger.mtime_ns, ledger.sha256, (
            select count(*) from chunks join groups on groups.id = group_id
            where chunks.source_id = ledger.source_id and kind = :word_only
        ), count(members.id)
    from ledger left join sources on sources.id = ledger.source_id
    left join sources as members on members.collection_id = ledger.collection_id and members.trashed_at is null
        and members.uri > :path || '#' and members.uri < :path || '$' and members.metadata ->> '$.container' = :path
    where ledger.path = :path group by ledger.collection_id
"""


def explain(connection: apsw.Connection, collections: Sequence[Collection], path: str) -> Json:
    """Return {path, exists, explanation, entries, nearest}: all that those collections know about an absolute path.

    Entries are {collection, status, reason, title?, sourceId?, documents?, chunks, wordOnly?, onDisk: unchanged |
    changed | missing}. Of a folder also `counts` by status and `leftOut`, the first 200 of what failed or was skipped
    in it. Of a document in a mail or an archive, FILE#MEMBER, the file is explained.
    """
    names = {collection.id: collection.name for collection in collections}
    for end in (len(path), *(mark.start() for mark in re.finditer("#", path))):
        rows = fetch_all(connection, _ENTRIES, {"path": path[:end], "word_only": WORD_ONLY})
        entries, sentences, file = list[Json](), list[str](), path[:end]
        for owner, status, reason, title, uuid, chunks, size, mtime_ns, sha256, word_only, documents in rows:
            if (collection := names.get(owner)) is None:
                continue
            # By its bytes: an edit may keep size and time.
            known_time = 0 if sha256 and size <= HASH_AT_MOST else mtime_ns
            freshness = check_freshness(file, size, known_time, sha256) if os.path.exists(file) else "missing"
            on_disk = freshness if freshness in ("changed", "missing") else "unchanged"
            entry = {"collection": collection, "status": status, "reason": reason, "chunks": chunks, "onDisk": on_disk}
            about = {"documents": documents} if documents else {"title": title, "sourceId": uuid}
            entries.append(without_none({**entry, "wordOnly": word_only or None, **about}))
            sentence = f"{status} as {counted(documents, 'document')}" if documents else status
            if status == "indexed":
                sentence += f" in {counted(chunks, 'passage')}"
                rule = "lock files, minified code, tables of numbers and encoded data are found by word only"
                sentence += f", {word_only:,} of them by word only ({rule})" if word_only else ""
            sentences.append(sentence + (f": {reason}" if reason else "") + f" (collection {collection})")
        if entries:
            explanation = {"path": file, "exists": os.path.lexists(file), "entries": entries}
            return {**explanation, "explanation": "; ".join(sentences), "nearest": []}
    exists, is_folder, root = os.path.lexists(path), os.path.isdir(path), owner_of(path, roots_of(connection, names))
    if root is None:
        why = "never offered: not below any added folder"
    elif path == root.path:
        why = f"a watched folder{'' if is_folder else ' that is not there now'}"
    elif is_folder:
        why = f"a folder in {root.path}"
    elif exists:
        why = f"not seen yet; refresh looks at {root.path} again"
    else:
        why = f"there was never such a file in {root.path}"
    sql = "select status, reason, collection_id from ledger where path = ?"
    for folder in map(str, PurePath(path).parents):
        passed = [row for row in fetch_all(connection, sql, (folder,)) if row[2] in names]
        if passed:
            why = f"it lies in {folder}, which was {passed[0][0]}: {passed[0][1]}"
            break
    explanation: Json = {"path": path, "exists": exists, "entries": [], "explanation": why, "nearest": []}
    sql = "select path, status, reason, collection_id from ledger where path >= ? and path < ? order by status, path"
    inside = [row for row in fetch_all(connection, sql, range_below(path)) if row[3] in names]
    if inside:
        counts = Counter(row[1] for row in inside)
        entries = [dict(zip(("path", "status", "reason"), row[:3], strict=True)) for row in inside]
        left_out = [entry for entry in entries if entry["status"] in ("skipped", "failed")]
        explanation["explanation"] += ": " + ", ".join(f"{count:,} {status}" for status, count in counts.items())
        return {**explanation, "counts": dict(counts), "leftOut": left_out[:200]}
    sql = "select path, collection_id from ledger where status = 'indexed' or source_id is not null"
    near = nearest(path, {row[0] for row in fetch_all(connection, sql) if row[1] in names})
    return {**explanation, "nearest": [near] if near else []}
