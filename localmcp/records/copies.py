"""Collections that go to Milvus and come back: passages as rows there, and rows as documents here."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from itertools import chain
from typing import Annotated

import apsw

from localmcp.arrays import np
from localmcp.errors import ConfigurationError, InvalidInput, NotFound
from localmcp.index.collections import (
    DEFAULT_PARTITION,
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
    read_calibration,
)
from localmcp.index.drafts import ChunkDraft, SourceDraft, heading_of, metadata_of
from localmcp.index.filters import SOURCE_DATE
from localmcp.index.fusion import load_groups, weight_for
from localmcp.index.sources import keep_version, put_source
from localmcp.index.vector import Made
from localmcp.library.jobs import Jobs
from localmcp.milvus.collection import HOW_TO_SET_MILVUS, NO_MILVUS, Milvus, MilvusCollection
from localmcp.models.embedder import ModelIdentity
from localmcp.schemas import Json, compact_json, mapping_of
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, id_list
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.tools import Param, current_scope, hidden_change
from localmcp.wording.normalize import indexed_text

Progress = Callable[[int, int], None]
"""Called with the passages that were copied, and all of them."""
BATCH = 1000
NOT_INDEXED = "Milvus has not indexed all of it yet; until it has, searches find less."
WORDS = b"words 2"
"""How `words` are made: what was sent with words made in another way is sent again."""
NEUTRAL = 0.7
"""Weight of meaning where the kinds of text were not measured."""
_CHUNK = ("start", "stop", "first_line", "last_line", "first_page", "last_page")
_NOT_PULLED = ("chunk_count", "created_at", "updated_at")
_SOURCE = ("title", "uri", "language", "source_type", "format", "sha256", "size", "mtime_ns", *_NOT_PULLED)
_IDENTITY = tuple(field.name for field in fields(ModelIdentity))

_LIVE_CHUNKS = f"""
    from chunks cross join sources on sources.id = chunks.source_id
    cross join vectors on vectors.id = (:model << {VECTOR_ID_BITS} | chunks.id)
    join groups on groups.id = group_id left join partitions on partitions.id = partition_id
    where sources.collection_id = :collection and sources.trashed_at is null
"""
"""The chunks of a collection that a search by meaning may find, with their vectors of one model."""


class MilvusCopies:
    """Copies one file's collections to one Milvus and back; contacts the server only when it is asked to."""

    def __init__(self, database: Database, milvus: Milvus | None, jobs: Jobs) -> None:
        self._database, self._milvus, self._jobs = database, milvus, jobs

    def _server(self, name: str) -> Milvus:
        if self._milvus is None:
            raise ConfigurationError(NO_MILVUS, hint=HOW_TO_SET_MILVUS)
        allowed = current_scope().collections
        if allowed is not None and name not in allowed:
            raise NotFound(f"No collection '{name}'.")
        return self._milvus

    def _run(self, kind: str, collection: str, work: Callable[[Progress], Json]) -> Json:
        # The job goes on when the call has waited long enough.
        self._server(collection)
        says = f"copying {collection}"
        return self._jobs.run(kind, lambda job: work(lambda done, total: job.tell(done, total, says))).status()

    # ------------------------------------------------------------ push

    @hidden_change(
        "push_collection",
        title="Copy a collection to Milvus",
        keywords=("milvus", "push", "cluster", "export", "vectors", "scale"),
        examples=("push|copy the collection {collection} to milvus",),
        idempotent=True,
        open_world=True,
    )
    def push_collection(
        self,
        collection: Annotated[str, Param("The collection", min_length=1, max_length=100)],
        name: Annotated[str | None, Param("What it is called in Milvus; the same by default", max_length=100)] = None,
    ) -> Json:
        """Copy a collection's vectors, texts and metadata to the Milvus server of the settings. Call it again to go on
        where it was stopped, or to send what has changed since."""
        return self._run("push_collection", collection, lambda tell: self.push(collection, name, tell))

    def push(self, collection: str, name: str | None = None, progress: Progress | None = None) -> Json:
        """Copy a collection to Milvus (under `name`): what is missing or different there is sent, the rest deleted.

        NotFound if the caller sees no such collection; InvalidInput if it has no vectors, or the name is taken;
        ConfigurationError if no Milvus is set; Unavailable, AccessDenied: what was copied is kept, the next goes on.
        """
        self._server(collection)
        with self._database.read() as connection:
            [own] = choose_collections(connection, [collection])
            if own.model_id is None:
                raise InvalidInput(f"Collection '{own.name}' has no vectors yet.", hint="Add documents to it first.")
            about = about_copy(connection, own)
            ids = live_chunks(connection, own)
        name = name or own.name
        target = open_copy(self._server(name), name, about)
        their_ids, their_digests = (np.array(column, np.int64) for column in target.digests())
        gone = np.setdiff1d(their_ids, np.array(ids, np.int64)).tolist()
        target.delete(gone)
        sent = len(gone)
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            with self._database.read() as connection:
                rows = load_rows(connection, own, part)
            is_part = np.isin(their_ids, part)
            there = dict(zip(their_ids[is_part].tolist(), their_digests[is_part].tolist(), strict=True))
            different = [row for row in rows if there.get(row["id"]) != row["digest"]]
            send(target, different)
            sent += len(different)
            if progress:
                progress(start + len(part), len(ids))
        # A server needs half a minute for ten thousand.
        notices = [] if not sent or target.make_index(600) else [NOT_INDEXED]
        return {"collection": own.name, "name": name, "vectors": target.count(), "sent": sent, "notices": notices}

    # ------------------------------------------------------------ pull

    @hidden_change(
        "pull_collection",
        title="Copy a collection from Milvus",
        keywords=("milvus", "pull", "import", "vectors", "cluster", "restore"),
        examples=("pull|import|copy the collection {collection} from milvus",),
        idempotent=True,
        open_world=True,
    )
    def pull_collection(
        self,
        collection: Annotated[str, Param("The collection in Milvus", min_length=1, max_length=255)],
        name: Annotated[str | None, Param("What it is called here; the same by default", max_length=100)] = None,
    ) -> Json:
        """Copy a collection from the Milvus server of the settings into the file: documents that are not here are
        added, those that differ are put right."""
        return self._run("pull_collection", collection, lambda tell: self.pull(collection, name, tell))

    def pull(self, name: str, collection: str | None = None, progress: Progress | None = None) -> Json:
        """Copy Milvus' collection `name` into the file, by default under the same name.

        What is here already is compared, and put right where it differs (what it was goes into the trash); running it
        again completes what was stopped. Skipped is what is in the trash here, where it stays.

        NotFound if Milvus has no such collection, InvalidInput if another program made it, ModelMismatch if its vectors
        come from another model than those of the file's collection; the others as for `push`.
        """
        source = self._server(name).open(name)
        identity = mapping_of(source.about.get("identity"))
        if set(_IDENTITY) != set(identity):
            message = f"Milvus' collection '{name}' was not made by localmcp."
            raise InvalidInput(message, hint="retriever searches it where it is.")
        with self._database.write() as connection:
            target = ensure_collection(connection, collection or name)
            target = claim_collection(connection, target, ensure_model(connection, ModelIdentity(**identity)))
        outcomes, read, total = Counter(added=0, updated=0, unchanged=0, skipped=0), 0, source.count()
        # Another file's paths may be of another machine, or contact a host when they are looked at.
        is_own = source.about.get("file") == self._database.file_id
        waiting: dict[str, list[Json]] = {}
        # At the end those of which passages are missing.
        for batch in chain(source.rows(BATCH), [None]):
            for row in batch or ():
                waiting.setdefault(row["document"], []).append(row)
            with self._database.write() as connection:
                for document_id, rows in list(waiting.items()):
                    if batch is None or len(rows) == rows[0]["origin"]["source"]["chunk_count"]:
                        outcomes[_put(connection, target, document_id, waiting.pop(document_id), is_own=is_own)] += 1
                        read += len(rows)
            if progress:
                progress(read, max(total, read))
        return {"collection": target.name, "read": read, **outcomes}


# ---------------------------------------------------------------- passages as rows


def live_chunks(connection: apsw.Connection, collection: Collection) -> list[int]:
    """Return the ids of the passages of a collection that have a vector, and are not in the trash, in order."""
    sql = f"select chunks.id {_LIVE_CHUNKS} order by chunks.id"
    return fetch_column(connection, sql, {"collection": collection.id, "model": collection.model_id})


def about_copy(connection: apsw.Connection, collection: Collection) -> Json:
    """Return what Milvus keeps with a copy: its model, with calibration and weight, and where it comes from."""
    sql = f"select fingerprint, {', '.join(_IDENTITY)} from models where id = ?"
    fingerprint, *identity = fetch_one(connection, sql, (collection.model_id,))
    _, calibration = read_calibration(connection, ModelIdentity(*identity))
    groups = [group for group in load_groups(connection, [collection.id]).values() for _ in range(group.chunks)]
    return {
        "weight": weight_for(groups, NEUTRAL, calibration, is_foreign=False),
        "calibration": asdict(calibration),
        "file": fetch_one(connection, "select id from file"),
        "collection": collection.name,
        "collectionId": collection.id,
        "fingerprint": fingerprint,
        "identity": dict(zip(_IDENTITY, identity, strict=True)),
    }


def load_rows(connection: apsw.Connection, collection: Collection, chunk_ids: Sequence[int]) -> list[Json]:
    """Return passages as Milvus keeps them, for `send`; those trashed, gone or not embedded are left out."""
    sql = f"""
        select vectors.embedding, sources.metadata, json_object('id', chunks.id, 'text', chunks.text,
            'title', sources.title, 'path', coalesce(uri, ''), 'date', coalesce({SOURCE_DATE}, ''),
            'language', groups.language, 'document', sources.uuid, 'chunk', lower(hex(chunks.uuid)),
            'position', position, 'partition', coalesce(partitions.name, '{DEFAULT_PARTITION}'),
            'origin', json_object('digest', lower(hex(chunks.digest)),
                'source', json_object({", ".join(f"'{name}', sources.{name}" for name in _SOURCE)}),
                'chunk', json_object('language', groups.language, 'kind', groups.kind,
                    'headings', json(chunks.headings), {", ".join(f"'{name}', chunks.{name}" for name in _CHUNK)})))
        {_LIVE_CHUNKS} and chunks.id in (select value from carray(:ids)) order by chunks.id
    """
    bindings = {"collection": collection.id, "model": collection.model_id, "ids": id_list(chunk_ids)}
    rows: list[Json] = []
    for embedding, own_metadata, columns in fetch_all(connection, sql, bindings):
        row: Json = json.loads(columns)
        source, chunk = row["origin"]["source"], row["origin"]["chunk"]
        row["heading"] = " > ".join(chunk["headings"])
        row["metadata"] = metadata_of(own_metadata, source["uri"], row["title"], chunk["first_page"], source["format"])
        row["origin"]["told"] = [key for key in row["metadata"] if key not in json.loads(own_metadata)]
        summary = hashlib.blake2b(compact_json(row).encode("utf-8", "surrogatepass"), digest_size=8, person=WORDS)
        rows.append({**row, "digest": int.from_bytes(summary.digest(), "big", signed=True), "vector": embedding})
    return rows


def open_copy(milvus: Milvus, name: str, about: Json) -> MilvusCollection:
    """Return the copy of a collection, made if there is none; InvalidInput if the name is that of another's."""
    if name in milvus.names():
        target = milvus.open(name)
        if any(target.about.get(key) != about[key] for key in ("file", "collectionId")):
            whose = "another localmcp file" if target.is_ours else "another program"
            message = f"Milvus has a collection '{name}' already, made by {whose}."
            raise InvalidInput(message, hint="Choose a name with --as NAME.")
        if target.about.get("fingerprint") == about["fingerprint"]:
            return target
        # Embedded again by another model: the old vectors are useless.
        milvus.drop(name)
    return milvus.create(name, about)


def send(target: MilvusCollection, rows: list[Json]) -> None:
    """Store rows of `load_rows` in Milvus, with their words and vectors."""
    # Made only here: most of the work, which is spared where Milvus has them already.
    for row in rows:
        heading = heading_of(row["title"], row["origin"]["chunk"]["headings"])
        # The title counts twice, as in the file.
        row["words"] = indexed_text(f"{heading}\n{heading}\n{row['text']}", row["language"])
        row["vector"] = np.frombuffer(row["vector"], dtype="<f4").tolist()
    target.upsert(rows)


# ---------------------------------------------------------------- rows as documents


def _put(connection: apsw.Connection, target: Collection, document_id: str, rows: list[Json], *, is_own: bool) -> str:
    # Whether it was added, updated, unchanged or skipped.
    ordered = sorted(rows, key=lambda row: row["position"])
    origin = ordered[0]["origin"]
    chunks: list[ChunkDraft] = []
    made: dict[bytes, Made] = {}
    try:
        for row in ordered:
            columns, digest = Json(row["origin"]["chunk"]), bytes.fromhex(row["origin"]["digest"])
            columns["headings"] = tuple(map(str, columns["headings"]))
            number = uuid.UUID(row["chunk"]).bytes
            # Passages keep the ids by which they were cited, unless others here have them.
            is_taken = fetch_one(connection, "select 1 from chunks where uuid = ?", (number,))
            identity = None if is_taken else (None, number)
            chunks.append(ChunkDraft(**columns, text=row["text"], digest=digest, identity=identity))
            made[digest] = Made(np.asarray(row["vector"], "<f4").tobytes())
        columns = {key: value for key, value in origin["source"].items() if key not in _NOT_PULLED}
        metadata = {key: value for key, value in ordered[0]["metadata"].items() if key not in origin["told"]}
        # Without a time it is never compared with the disk.
        columns["mtime_ns"] = columns["mtime_ns"] if is_own else None
        draft = SourceDraft(target.id, None, **columns, metadata=metadata, chunks=chunks)
    except (KeyError, TypeError, ValueError):
        # Somebody else wrote it.
        return "skipped"
    draft = replace(draft, partition_id=ensure_partition(connection, target, ordered[0]["partition"]))
    sql = """
        select id, trashed_at is not null, title, partition_id, metadata from sources
        where collection_id = :collection and (uuid = :uuid or (uri = :uri and trashed_at is null))
        order by uuid = :uuid desc limit 1
    """
    bindings = {"collection": target.id, "uuid": document_id, "uri": draft.uri}
    source_id, is_trashed, *place, own_metadata = fetch_one(connection, sql, bindings) or (None, 0, "", None, "{}")
    if is_trashed:
        return "skipped"
    if source_id is not None:
        sql = f"""
            select digest from chunks join vectors on vectors.id = (? << {VECTOR_ID_BITS} | chunks.id)
            where source_id = ? order by position
        """
        digests = fetch_column(connection, sql, (target.model_id, source_id))
        is_same = digests == [chunk.digest for chunk in chunks] and json.loads(own_metadata) == metadata
        if is_same and place == [draft.title, draft.partition_id]:
            return "unchanged"
        keep_version(connection, source_id)
    stored = put_source(connection, draft, made, target.model_id, replaces=source_id)
    if source_id is not None:
        return "updated"
    sql = "update sources set uuid = :uuid where id = :id and not exists (select 1 from sources where uuid = :uuid)"
    connection.execute(sql, {"uuid": document_id, "id": stored.source_id})
    return "added"
