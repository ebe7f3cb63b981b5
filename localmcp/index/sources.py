"""Sources and their chunks, and everything that must change with them: keyword index, word counts, vectors, signs."""

from __future__ import annotations

import json
import uuid
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import apsw

from localmcp.arrays import np
from localmcp.errors import InvalidInput
from localmcp.humanize import command_line
from localmcp.index import vector
from localmcp.index.collections import Collection, checked_collection_name, ensure_partition
from localmcp.index.drafts import FORMAT, ChunkDraft, IndexedWords, SourceDraft, heading_of, index_words
from localmcp.index.multilingual import UNUSED_WORDS
from localmcp.index.vector import pack_signs
from localmcp.index.vector_queue import misqueued, requeue, requeue_collection
from localmcp.storage.database import (
    Database,
    bump_generations,
    fetch_all,
    fetch_column,
    fetch_one,
    id_list,
    insert_row,
)
from localmcp.storage.schema import SEGMENT_FITS, utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed

LONGEST_WORD = 32
"""Longer runs of letters are data, not words that somebody misspells."""
WORDS_IN_MEMORY = 32_000_000
"""Bytes of words that FTS5 collects before it writes them."""


def prepare_for_many(connection: apsw.Connection) -> None:
    """Let a transaction write its words as one piece, a third less work than a piece a MB; the file remembers it."""
    if fetch_one(connection, "select v from chunks_fts_config where k = 'hashsize'") != WORDS_IN_MEMORY:
        sql = "insert into chunks_fts (chunks_fts, rank) values ('hashsize', ?)"
        connection.execute(sql, (WORDS_IN_MEMORY,))


def add_to_index(connection: apsw.Connection, collection_id: int, chunk_ids: Iterable[int]) -> None:
    """Index stored chunks for keyword search and count their words. Part of the caller's write transaction."""
    rows = [(chunk_id, _stored_words(connection, chunk_id)) for chunk_id in chunk_ids]
    _write_words(connection, collection_id, rows)
    connection.executemany("update chunks set words = ? where id = ?", ((words.length, row) for row, words in rows))


def _write_words(connection: apsw.Connection, collection_id: int, rows: Sequence[tuple[int, IndexedWords]]) -> None:
    sql = "insert into chunks_fts (rowid, title, text) values (?, ?, ?)"
    connection.executemany(sql, [(chunk_id, words.title, words.text) for chunk_id, words in rows])
    _count_words(connection, collection_id, [words for _, words in rows], 1)


def _stored_words(connection: apsw.Connection, chunk_id: int) -> IndexedWords:
    sql = """
        select sources.title, chunks.headings, chunks.text, groups.language
        from chunks join sources on sources.id = chunks.source_id join groups on groups.id = chunks.group_id
        where chunks.id = ?
    """
    title, headings, text, language = fetch_one(connection, sql, (chunk_id,))
    return index_words(heading_of(title, json.loads(headings)), text, language)


def _count_words(connection: apsw.Connection, collection_id: int, passages: Sequence[IndexedWords], sign: int) -> None:
    # Those to which spelling is corrected, and all stems; -1 counts them out.
    words = Counter(chain.from_iterable(passage.distinct.split() for passage in passages))
    words = {word: count for word, count in words.items() if word.isalpha() and len(word) <= LONGEST_WORD}
    stems = Counter(chain.from_iterable(passage.terms.split() for passage in passages))
    for table, column, counter in (("words", "word", words), ("terms", "term", stems)):
        # In key order, so that neighboring rows of the B-tree are written together.
        rows = [(collection_id, word, sign * counter[word]) for word in sorted(counter)]
        connection.executemany(
            f"""
            insert into {table} (collection_id, {column}, chunks) values (?, ?, ?)
            on conflict (collection_id, {column}) do update set chunks = chunks + excluded.chunks
            """,
            rows,
        )
        if sign < 0:
            sql = f"delete from {table} where collection_id = ? and {column} = ? and chunks <= 0"
            connection.executemany(sql, (row[:2] for row in rows))


@dataclass(slots=True)
class Indexed:
    """The outcome of storing a source."""

    source_id: int
    uuid: str
    added: int = 0
    kept: int = 0
    removed: int = 0


class Pending:
    """Writes that the sources of one transaction share; done once, at its end."""

    def __init__(self) -> None:
        self.words = defaultdict[int, list[tuple[int, IndexedWords]]](list)
        """Id and words of new chunks, by collection."""
        self.source_ids: list[int] = []

    def write(self, connection: apsw.Connection) -> None:
        """Write it all. Part of the caller's write transaction."""
        for collection_id, rows in self.words.items():
            _write_words(connection, collection_id, rows)
        requeue(connection, self.source_ids)
        bump_generations(connection, "content", "signs")
        self.words.clear()
        self.source_ids.clear()


def put_source(
    connection: apsw.Connection, draft: SourceDraft, made: Mapping[bytes, vector.Made], model_id: int | None,
    replaces: int | None = None, pending: Pending | None = None,
) -> Indexed:  # fmt: skip
    """Store a source, or replace one while its unchanged chunks keep id and vector. Part of the caller's transaction.

    `made` maps a chunk's digest to what `model_id` made of it; other chunks are found by words only. The caller of
    many hands over what they share, and writes it at the end.
    """
    shared = pending or Pending()
    removed, kept = 0, dict[int, int]()
    if replaces is not None:
        # What it replaces may be in what is still to be written.
        shared.write(connection)
        removed, kept = _clear_changed(connection, draft, replaces)
    metadata = dict(draft.metadata)
    if draft.date and "date" not in metadata:
        metadata |= {"date": draft.date, "dateFrom": draft.date_from}
    row: dict[str, Any] = {
        **{name: getattr(draft, name) for name in (*_SOURCE, "partition_id", "tables")},
        "metadata": json.dumps(metadata, ensure_ascii=False),
        "chunk_count": len(draft.chunks),
        "updated_at": utc_now(),
    }
    if replaces is None:
        identity = str(uuid.uuid4())
        source_id = insert_row(connection, "sources", {**row, "uuid": identity, "created_at": row["updated_at"]})
    else:
        changes = ", ".join(f"{name} = :{name}" for name in row)
        sql = f"update sources set {changes} where id = :id returning uuid"
        source_id, identity = replaces, fetch_one(connection, sql, {**row, "id": replaces})
    places = ", ".join(f"{name} = ?" for name in _PLACE)
    moved = ((*_place(draft.chunks[position]), position, chunk_id) for position, chunk_id in kept.items())
    connection.executemany(f"update chunks set {places}, position = ? where id = ?", moved)
    fresh = _insert_chunks(connection, source_id, draft, kept, shared)
    if model_id is not None:
        has_vector = "select 1 from vectors where id = ?"
        missing = {
            chunk_id: draft.chunks[position].digest
            for position, chunk_id in kept.items()
            if not fetch_one(connection, has_vector, (vector.vector_id(model_id, chunk_id),))
        }
        ready = {row_id: made[digest] for row_id, digest in (missing | fresh).items() if digest in made}
        vector.write_vectors(connection, model_id, ready)
        vector.add_signs(connection, model_id, draft.collection_id, dict.fromkeys(ready, source_id))
    # Their place, page, metadata or partition may be another.
    shared.source_ids.append(source_id)
    if pending is None:
        shared.write(connection)
    return Indexed(source_id, identity, len(fresh), len(kept), removed)


def _clear_changed(connection: apsw.Connection, draft: SourceDraft, source_id: int) -> tuple[int, dict[int, int]]:
    """Remove the chunks that are not in a draft; return how many, and position there -> id of those that stay."""
    old = defaultdict[bytes, list[int]](list)
    # The title is indexed with every chunk, and words are counted back under the title they were counted with.
    if fetch_one(connection, "select title from sources where id = ?", (source_id,)) == draft.title:
        sql = "select digest, id from chunks where source_id = ? order by position desc"
        for digest, chunk_id in fetch_all(connection, sql, (source_id,)):
            old[digest].append(chunk_id)
    kept = {place: old[chunk.digest].pop() for place, chunk in enumerate(draft.chunks) if old[chunk.digest]}
    gone = sorted(set(_chunk_ids(connection, source_id)) - set(kept.values()))
    _hide_chunks(connection, draft.collection_id, gone)
    vector.remove_vectors(connection, gone)
    connection.executemany("delete from chunks where id = ?", ((row_id,) for row_id in gone))
    return len(gone), kept


def _insert_chunks(
    connection: apsw.Connection, source_id: int, draft: SourceDraft, kept: Mapping[int, int], pending: Pending
) -> dict[int, bytes]:
    """Store the chunks that are not kept, and leave their words to `pending`; returns id -> digest."""
    following = (fetch_one(connection, "select seq from sqlite_sequence where name = 'chunks'") or 0) + 1
    new = [(position, chunk) for position, chunk in enumerate(draft.chunks) if position not in kept]
    sql = """
        insert into groups (collection_id, language, kind, chunks) values (?, ?, ?, ?)
        on conflict (collection_id, language, kind) do update set chunks = chunks + excluded.chunks returning id
    """
    counts = Counter((chunk.language, chunk.kind) for _, chunk in new)
    group_ids = {group: fetch_one(connection, sql, (draft.collection_id, *group, counts[group])) for group in counts}
    rows: list[tuple[Any, ...]] = []
    fresh: dict[int, bytes] = {}
    words = pending.words[draft.collection_id]
    for number, (position, chunk) in enumerate(new):
        chunk_id, identity = chunk.identity or (None, uuid.uuid4().bytes)
        chunk_id = following + number if chunk_id is None else chunk_id
        indexed = chunk.words or index_words(heading_of(draft.title, chunk.headings), chunk.text, chunk.language)
        words.append((chunk_id, indexed))
        fresh[chunk_id] = chunk.digest
        group_id, place = group_ids[chunk.language, chunk.kind], (*_place(chunk), position)
        rows.append((*place, identity, source_id, group_id, indexed.length, chunk.digest, chunk_id))
    columns = (*_PLACE, "position", "uuid", "source_id", "group_id", "words", "digest", "id")
    sql = f"insert into chunks ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"
    connection.executemany(sql, rows)
    return fresh


_PLACE = ChunkDraft._fields[:8]
_as_json = lru_cache(maxsize=64)(partial(json.dumps, ensure_ascii=False))


def _place(chunk: ChunkDraft) -> tuple[Any, ...]:
    return (*chunk[:3], _as_json(chunk.headings), *chunk[4:8])


def trash_sources(connection: apsw.Connection, source_ids: Iterable[int], now: str | None = None) -> int:
    """Put sources into the trash: out of every index, text and vectors kept. Returns how many were not there yet."""
    chunks = defaultdict[int, list[int]](list)
    moved, now = list[int](), now or utc_now()
    for source_id in source_ids:
        sql = "update sources set trashed_at = ? where id = ? and trashed_at is null returning collection_id"
        collection_id = fetch_one(connection, sql, (now, source_id))
        if collection_id is not None:
            chunks[collection_id] += _chunk_ids(connection, source_id)
            moved.append(source_id)
    requeue(connection, moved)
    # Together, because each look for chunks reads every segment of the collection.
    for collection_id, chunk_ids in chunks.items():
        _hide_chunks(connection, collection_id, chunk_ids)
    bump_generations(connection, "content", "signs")
    return len(moved)


def restore_source(connection: apsw.Connection, source_id: int) -> bool:
    """Bring a source back from the trash; False if it is not there, InvalidInput if its file was added again."""
    sql = """
        select collection_id, model_id, uri from sources join collections on collections.id = collection_id
        where sources.id = ? and trashed_at is not null
    """
    row = fetch_one(connection, sql, (source_id,))
    if row is None:
        return False
    collection_id, model_id, uri = row
    _check_place(connection, collection_id, uri)
    chunk_ids = _chunk_ids(connection, source_id)
    add_to_index(connection, collection_id, chunk_ids)
    _count_in_groups(connection, chunk_ids, 1)
    if model_id is not None:
        vector.add_signs(connection, model_id, collection_id, dict.fromkeys(chunk_ids, source_id))
    sql = "update sources set trashed_at = null where id = ? returning partition_id"
    partition_id = fetch_one(connection, sql, (source_id,))
    connection.execute("update partitions set dropped_at = null where id = ?", (partition_id,))
    requeue(connection, [source_id])
    bump_generations(connection, "content", "signs")
    return True


def _check_place(connection: apsw.Connection, collection_id: int, uri: str | None) -> None:
    sql = "select 1 from sources where uri = ? and collection_id = ? and trashed_at is null"
    if fetch_one(connection, sql, (uri, collection_id)):
        raise InvalidInput(f"{uri} is in the knowledge base again.", hint="Remove that version first.")


def _hide_chunks(connection: apsw.Connection, collection_id: int, chunk_ids: Sequence[int]) -> None:
    passages = [_stored_words(connection, chunk_id) for chunk_id in chunk_ids]
    connection.executemany("delete from chunks_fts where rowid = ?", ((row_id,) for row_id in chunk_ids))
    _count_words(connection, collection_id, passages, -1)
    _count_in_groups(connection, chunk_ids, -1)
    vector.remove_signs(connection, collection_id, chunk_ids)


def _count_in_groups(connection: apsw.Connection, chunk_ids: Sequence[int], sign: int) -> None:
    counted = "select group_id, count(*) as moved from chunks where id in (select value from carray(?)) group by 1"
    sql = f"update groups set chunks = chunks + moved * ? from ({counted}) where group_id = groups.id"
    connection.execute(sql, (sign, id_list(chunk_ids)))


def purge_sources(connection: apsw.Connection, trashed_before: str) -> int:
    """Delete for good what was put into the trash before that time (ISO 8601 UTC); returns how many sources."""
    source_ids = fetch_column(connection, "select id from sources where trashed_at < ?", (trashed_before,))
    _delete_sources(connection, source_ids)
    if source_ids:
        connection.execute(UNUSED_WORDS)
    return len(source_ids)


def clear_collection(database: Database, collection_id: int) -> None:
    """Delete a collection with its documents, also those in the trash, in parts."""
    # In one transaction not too many, so that others get to write in between.
    sql = "select id from sources where collection_id = ? order by id limit 200"
    while True:
        with database.write() as connection:
            if source_ids := fetch_column(connection, sql, (collection_id,)):
                trash_sources(connection, source_ids)
                _delete_sources(connection, source_ids)
                continue
            for table in ("words", "terms", "signs"):
                connection.execute(f"delete from {table} where collection_id = ?", (collection_id,))
            connection.execute("delete from collections where id = ?", (collection_id,))
            connection.execute(UNUSED_WORDS)
            bump_generations(connection, "content", "signs")
            return


def _delete_sources(connection: apsw.Connection, source_ids: Iterable[int]) -> None:
    for source_id in source_ids:
        vector.remove_vectors(connection, _chunk_ids(connection, source_id))
        connection.execute("delete from sources where id = ?", (source_id,))


def _chunk_ids(connection: apsw.Connection, source_id: int) -> list[int]:
    return fetch_column(connection, "select id from chunks where source_id = ?", (source_id,))


# ---------------------------------------------------------------- versions and collections in the trash

DROPPED = "dropped"
"""The `kind` of a collection that is in the trash: with its documents it is there, and nobody sees it."""
_SOURCE = (
    "collection_id", "title", "source_type", "format", "uri", "sha256", "size", "mtime_ns", "language",
)  # fmt: skip


def keep_version(connection: apsw.Connection, source_id: int) -> None:
    """Put a copy of a document or record into the trash before it is overwritten. Part of the write transaction."""
    columns = (*_SOURCE, "uuid", "metadata")
    sql = f"""
        select {", ".join(f"sources.{name}" for name in columns)}, collections.name, partitions.name from sources
        join collections on collections.id = sources.collection_id
        left join partitions on partitions.id = partition_id where sources.id = ?
    """
    [row] = fetch_all(connection, sql, (source_id,))
    source = dict(zip((*columns, "collection", "partition"), row, strict=True))
    sql = f"""
        select {", ".join(_PLACE)}, groups.language, groups.kind, hex(digest), chunks.id, hex(uuid) from chunks
        join groups on groups.id = group_id where source_id = ? order by position
    """
    chunks = [list(chunk) for chunk in fetch_all(connection, sql, (source_id,))]
    kind = "record" if source["format"] == FORMAT else "document"
    put_into_trash(connection, kind, source["title"], {"source": source, "chunks": chunks}, source["collection"])


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> int:
    """Bring an overwritten document or record back under its id; what is there now goes into the trash.

    Returns the id of the source, whose changed passages wait for their vectors. InvalidInput if its collection is gone.
    Part of the write transaction.
    """
    content = read_trashed(connection, entry)
    source, chunks = content["source"], content["chunks"]
    sql = "select id, name, description, model_id from collections where id = ? and kind = 'documents'"
    row = fetch_all(connection, sql, (source["collection_id"],))
    if not row:
        raise InvalidInput(f"The collection '{entry.collection}' of '{entry.name}' is gone.", hint="Restore it first.")
    current = fetch_one(connection, "select id from sources where uuid = ?", (source["uuid"],))
    if current is None:
        _check_place(connection, source["collection_id"], source["uri"])
    elif not restore_source(connection, current):
        keep_version(connection, current)
    drafts: list[ChunkDraft] = []
    for chunk in chunks:
        *place, language, kind, digest, chunk_id, identity = chunk
        place[3] = tuple(json.loads(place[3]))
        # That of a record stays its passage.
        same = (chunk_id, bytes.fromhex(identity)) if len(chunks) == 1 else None
        drafts.append(ChunkDraft._make([*place, language, kind, bytes.fromhex(digest), same, None]))
    draft = SourceDraft(
        partition_id=ensure_partition(connection, Collection(*row[0]), source["partition"]),
        metadata=json.loads(source["metadata"]),
        chunks=drafts,
        **{name: source[name] for name in _SOURCE},
    )
    source_id = put_source(connection, draft, {}, None, replaces=current).source_id
    connection.execute("update sources set uuid = ? where id = ?", (source["uuid"], source_id))
    return source_id


def drop_collection(connection: apsw.Connection, collection: Collection) -> None:
    """Put a collection into the trash with everything in it; its name is free again. Part of the transaction."""
    name = f"{collection.name}\x01{utc_now()}"  # No collection that anybody makes has such a name.
    _move_collection(connection, collection.id, DROPPED, name)
    put_into_trash(connection, "collection", collection.name, {"id": collection.id}, collection.name)


def restore_collection(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a dropped collection back with everything in it; InvalidInput if there is one of that name again."""
    if fetch_one(connection, "select 1 from collections where name = ?", (entry.name,)):
        raise InvalidInput(f"There is a collection '{entry.name}' again.", hint="Drop that one first.")
    collection_id = read_trashed(connection, entry)["id"]
    _move_collection(connection, collection_id, "documents", checked_collection_name(entry.name))


def _move_collection(connection: apsw.Connection, collection_id: int, kind: str, name: str) -> None:
    connection.execute("update collections set kind = ?, name = ? where id = ?", (kind, name, collection_id))
    requeue_collection(connection, collection_id)
    bump_generations(connection, "content", "signs")


def drop_partition(connection: apsw.Connection, collection: Collection, partition_id: int) -> None:
    """Put a partition into the trash with its documents; InvalidInput if the next refresh would bring them back."""
    sql = "select path from roots where partition_id = ? and kind not like 'removed %' limit 1"
    if path := fetch_one(connection, sql, (partition_id,)):
        raise InvalidInput(
            f"{path} was added into this partition.",
            hint=f"First remove it: {command_line('localmcp', 'remove', path)}",
        )
    now = utc_now()
    sql = "select id from sources where partition_id = ? and trashed_at is null"
    trash_sources(connection, fetch_column(connection, sql, (partition_id,)), now)
    sql = "update partitions set dropped_at = ? where id = ? returning name"
    name = fetch_one(connection, sql, (now, partition_id))
    put_into_trash(connection, "partition", name, {"id": partition_id, "at": now}, collection.name)


def restore_partition(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a dropped partition back with the documents that were removed with it. Part of the transaction."""
    content = read_trashed(connection, entry)
    sql = "select id from sources where partition_id = :id and trashed_at = :at"
    for source_id in fetch_column(connection, sql, content):
        restore_source(connection, source_id)
    connection.execute("update partitions set dropped_at = null where id = ?", (content["id"],))


# ---------------------------------------------------------------- do the indexes agree with the documents?

_LIVE = "select chunks.id from chunks join sources on sources.id = source_id where trashed_at is null"
_SEGMENTS = "signs join models on models.id = signs.model_id where"
_COUNTS = {
    "{} passages are not in the keyword index": f"({_LIVE}) where id not in (select rowid from chunks_fts)",
    "the keyword index holds {} passages that are not there": f"chunks_fts where rowid not in ({_LIVE})",
    "{} documents have another number of passages than they say": """
        sources where chunk_count <> (select count(*) from chunks where source_id = sources.id)
    """,
    "{} passages do not continue the one before them": """(
        select start, position, stop - start - length(text) as gap,
            lag(stop, 1, 0) over place as before, row_number() over place - 1 as place_number
        from chunks window place as (partition by source_id order by position)
    ) where start <> before or position <> place_number or gap <> 0
    """,
    "{} vectors have the wrong length, or belong to no model": """
        embeddings left join models on models.id = model_id where length(embedding) is not 4 * dimension
    """,
    "{} vectors belong to no passage": """
        embeddings where chunk_id not in (select id from chunks)
            and chunk_id - (1 << 39) not in (select id from rules)
    """,
    # Of another length they are not even read: they may be large.
    "{} segments of sign codes have the wrong length": f"{_SEGMENTS} not ({SEGMENT_FITS})",
}
"""What is wrong -> the rows with which it is, of which a sound file has none."""


def disagreements(connection: apsw.Connection) -> list[str]:
    """Return what does not hold, a sentence each; empty for a sound file. 1 s for 100,000 passages."""
    counts = {text: fetch_one(connection, f"select count(*) from {rows}") for text, rows in _COUNTS.items()}
    counts["the queue of vectors is wrong about {} passages"] = misqueued(connection)
    # Each vector of its collection's model has one code, its signs.
    codes, expected = Counter[tuple[int, int, bytes]](), Counter[tuple[int, int, bytes]]()
    for model_id, blob, bits in connection.execute(f"select model_id, ids, bits from {_SEGMENTS} {SEGMENT_FITS}"):
        ids, width = array("q", blob), 8 * len(bits) // len(blob)
        codes.update((model_id, row, bits[width * place : width * (place + 1)]) for place, row in enumerate(ids))
    sql = """
        select models.id, chunks.id, embedding from chunks join sources on sources.id = source_id
        join collections on collections.id = collection_id join models on models.id = collections.model_id
        join vectors on vectors.id = models.id << 40 | chunks.id
        where trashed_at is null and length(embedding) = 4 * dimension
    """
    for model_id, chunk_id, embedding in connection.execute(sql):
        expected[model_id, chunk_id, pack_signs(np.frombuffer(embedding, "<f4")[None]).tobytes()] += 1
    wrong = (codes - expected).total() + (expected - codes).total()
    counts["{} sign codes are missing, or not those of their vectors"] = wrong
    return [text.format(count) for text, count in counts.items() if count]
