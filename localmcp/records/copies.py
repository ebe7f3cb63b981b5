"""Collections that go to Milvus and come back: passages as rows there, and rows as documents here."""

from __future__ import annotations

import hashlib
import json
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any

import apsw

from localmcp.arrays import np
from localmcp.errors import ConfigurationError, InvalidInput, ModelMismatch, NotFound
from localmcp.index.adaptation import load_groups, trust_of, weight_for
from localmcp.index.collections import (
    DEFAULT_PARTITION,
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
)
from localmcp.index.dates import SOURCE_DATE
from localmcp.index.drafts import ChunkDraft, SourceDraft, heading_of
from localmcp.index.records import RecordText, check_metadata, clean_text, draft_whole, metadata_of
from localmcp.index.sources import put_source
from localmcp.index.trash import keep_version
from localmcp.index.vector import Made
from localmcp.library.jobs import Job, Jobs, JobStatus
from localmcp.milvus.collection import HOW_TO_SET_MILVUS, NO_MILVUS, Milvus, MilvusCollection, MilvusRow
from localmcp.models import LazyEmbedder, ModelIdentity
from localmcp.schemas import Json, compact_json, mapping_of
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.tools import Param, current_scope, hidden_change
from localmcp.wording.normalize import index_text

Progress = Callable[[int, int], None]
"""Called with the passages that were copied, and all of them."""
BATCH = 1000
INDEX_SECONDS = 600
"""How long a push waits until what was sent is indexed; a server needs half a minute for ten thousand."""
_PULLED = uuid.UUID("6c6d6370-0000-5000-8000-6d696c767573")
"""Name space of the ids of texts that other programs put into Milvus: pulled again, each is found again."""
_CHUNK = ("start", "stop", "first_line", "last_line", "first_page", "last_page")
NEUTRAL = 0.7
"""Weight of meaning where the kinds of text were not measured."""
_TIMES = ("created_at", "updated_at")
_SOURCE = ("source_type", "format", "sha256", "size", "mtime_ns", "chunk_count", *_TIMES)
_IDENTITY = tuple(each.name for each in fields(ModelIdentity))

_LIVE_CHUNKS = f"""
    from chunks cross join sources on sources.id = chunks.source_id
    cross join vectors on vectors.id = (:model << {VECTOR_ID_BITS} | chunks.id)
    join groups on groups.id = group_id left join partitions on partitions.id = partition_id
    where sources.collection_id = :collection and sources.trashed_at is null
"""
"""The chunks of a collection that a search by meaning may find, with their vectors of one model."""


class MilvusCopies:
    """Copies one file's collections to one Milvus and back; contacts the server only when it is asked to."""

    def __init__(self, database: Database, milvus: Milvus | None, embedder: LazyEmbedder, jobs: Jobs) -> None:
        self._database = database
        self._milvus = milvus
        self._embedder = embedder
        self._jobs = jobs

    def _server(self, name: str) -> Milvus:
        """Return Milvus, if one is set and the caller may see that name there."""
        if self._milvus is None:
            raise ConfigurationError(NO_MILVUS, hint=HOW_TO_SET_MILVUS)
        allowed = current_scope().collections
        if allowed is not None and name not in allowed:
            raise NotFound(f"No collection '{name}'.")
        return self._milvus

    def _run(self, kind: str, collection: str, work: Callable[[Progress], Json]) -> JobStatus:
        """Work in a job, which goes on when the call has waited long enough."""
        self._server(collection)

        def run(job: Job) -> Json:
            return work(lambda done, total: job.tell(done, total, f"copying {collection}"))

        return self._jobs.run(kind, run).status()

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
    ) -> JobStatus:
        """Copy a collection's vectors, texts and metadata to the Milvus server of the settings. Call it again to go on
        where it was stopped, or to send what has changed since."""
        return self._run("push_collection", collection, lambda tell: self.push(collection, name, tell))

    def push(self, collection: str, name: str | None = None, progress: Progress | None = None) -> Json:
        """Copy a collection to Milvus (under `name`): what is missing or different there is sent, the rest deleted.

        Raises:
            NotFound: the caller sees no such collection.
            InvalidInput: it has no vectors; the name is taken by another collection.
            ConfigurationError: no Milvus is set.
            Unavailable, AccessDenied: the server; what was copied is kept, and the next push goes on.
        """
        self._server(collection)
        with self._database.read() as connection:
            [own] = choose_collections(connection, [collection])
            if own.model_id is None:
                raise InvalidInput(f"Collection '{own.name}' has no vectors yet.", hint="Add documents to it first.")
            about = _about(connection, own)
            sql = f"select chunks.id {_LIVE_CHUNKS} order by chunks.id"
            ids = fetch_column(connection, sql, {"collection": own.id, "model": own.model_id})
        target = self._target(name or own.name, about)
        theirs = _read_digests(target)
        gone = np.setdiff1d(theirs[0], np.array(ids, np.int64)).tolist()
        target.delete(gone)
        sent = len(gone)
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            with self._database.read() as connection:
                rows = _load_rows(connection, own, part)
            known = dict(zip(*(column[np.isin(theirs[0], part)].tolist() for column in theirs), strict=True))
            different = [row for row in rows if known.get(row["id"]) != row["digest"]]
            target.upsert([_with_words(row) for row in different])
            sent += len(different)
            if progress:
                progress(start + len(part), len(ids))
        indexed = target.make_index(INDEX_SECONDS) if sent else True
        counts = {"vectors": target.count(), "sent": sent, "indexed": indexed}
        return {"collection": own.name, "name": target.name, **counts}

    def _target(self, name: str, about: Json) -> MilvusCollection:
        """Return the collection in Milvus, made unless it is there, of this file and this model."""
        milvus = self._server(name)
        if name in milvus.names():
            collection = milvus.open(name)
            if any(collection.about.get(key) != about[key] for key in ("file", "collectionId")):
                whose = "another localmcp file" if collection.is_ours else "another program"
                message = f"Milvus has a collection '{name}' already, made by {whose}."
                raise InvalidInput(message, hint="Choose a name with --as NAME.")
            if collection.about.get("fingerprint") == about["fingerprint"]:
                return collection
            # Embedded again by another model: the old vectors are useless.
            milvus.drop(name)
        return milvus.create(name, about)

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
        assumeModel: Annotated[
            bool, Param("Its vectors come from the model at hand, though it does not say so")
        ] = False,
    ) -> JobStatus:
        """Copy a collection from the Milvus server of the settings into the file: documents that are not here are
        added, those that differ are put right."""
        return self._run(
            "pull_collection", collection, lambda tell: self.pull(collection, name, assumeModel, tell)
        )  # fmt: skip

    def pull(
        self, name: str, collection: str | None = None, assume_model: bool = False, progress: Progress | None = None
    ) -> Json:
        """Copy Milvus' collection `name` into the file, by default under the same name.

        What is here already is compared, and put right where it differs (what it was goes into the trash); running it
        again completes what was stopped. Skipped is what is in the trash here, where it stays, or has no text.

        Raises:
            NotFound: Milvus has no such collection.
            ModelMismatch: its vectors come from another model than those of the file's collection, or from an unknown
                one and `assume_model` (the model at hand) is false.
            ConfigurationError, Unavailable, AccessDenied: as for `push`.
        """
        source = self._server(name).open(name)
        identity = _identity(source) or (self._embedder.get().identity if assume_model else None)
        if identity is None:
            raise ModelMismatch(
                f"Milvus' collection '{name}' does not say which model made its vectors.",
                hint="If it is the model at hand, say so with --assume-model.",
            )
        if identity.dimension != source.dimension:
            raise ModelMismatch(
                f"Milvus' collection '{name}' holds vectors of {source.dimension} dimensions, {identity.name} makes "
                f"{identity.dimension}."
            )
        with self._database.write() as connection:
            target = ensure_collection(connection, collection or name)
            target = claim_collection(connection, target, ensure_model(connection, identity))
        counts, read, total = Counter[str](), 0, source.count()
        # Another file's paths may be of another machine, or contact a host when they are looked at.
        is_own = source.about.get("file") == self._database.file_id
        for documents in _documents(source):
            with self._database.write() as connection:
                for document_id, rows in documents:
                    counts[_put(connection, target, document_id, rows, is_own=is_own)] += 1
            read += sum(len(rows) for _, rows in documents)
            if progress:
                progress(read, max(total, read))
        outcomes = {name: counts[name] for name in ("added", "updated", "unchanged", "skipped")}
        return {"collection": target.name, "read": read, **outcomes}


# ---------------------------------------------------------------- passages as rows


def _about(connection: apsw.Connection, collection: Collection) -> Json:
    """Return where the vectors come from, and what made them."""
    sql = f"select fingerprint, {', '.join(_IDENTITY)} from models where id = ?"
    fingerprint, *identity = fetch_one(connection, sql, (collection.model_id,))
    trust = trust_of(str(identity[0]))
    groups = [*load_groups(connection, [collection.id]).values()]
    weights = [weight_for([group], NEUTRAL, trust) if trust else NEUTRAL for group in groups]
    total = sum(group.chunks for group in groups) or 1
    weight = sum(group.chunks * weight for group, weight in zip(groups, weights, strict=True)) / total
    return {
        "weight": round(weight, 4) or NEUTRAL,
        "file": fetch_one(connection, "select id from file"),
        "collection": collection.name,
        "collectionId": collection.id,
        "fingerprint": fingerprint,
        "identity": dict(zip(_IDENTITY, identity, strict=True)),
    }


def _load_rows(connection: apsw.Connection, collection: Collection, chunk_ids: Sequence[int]) -> list[Json]:
    """Return the chunks of those ids as Milvus is to hold them; those trashed, gone or not embedded are left out."""
    sql = f"""
        select chunks.id, vectors.embedding, chunks.text, sources.title, chunks.headings, uri, {SOURCE_DATE},
            groups.language, groups.kind, sources.uuid, sources.language, chunks.uuid, chunks.digest, position,
            coalesce(partitions.name, '{DEFAULT_PARTITION}'), sources.metadata,
            {", ".join(f"chunks.{name}" for name in _CHUNK)}, {", ".join(f"sources.{name}" for name in _SOURCE)}
        {_LIVE_CHUNKS} and chunks.id in (select value from carray(:ids)) order by chunks.id
    """
    chunks = apsw.carray(array("q", chunk_ids))
    bindings = {"collection": collection.id, "model": collection.model_id, "ids": chunks}
    return [_row(row) for row in fetch_all(connection, sql, bindings)]


def _row(columns: Sequence[Any]) -> Json:
    (
        chunk_id, embedding, text, title, headings, uri, date, language, kind, document, source_language, chunk_uuid,
        digest, position, partition, own_metadata, *rest,
    ) = columns  # fmt: skip
    chunk, source = dict(zip(_CHUNK, rest, strict=False)), dict(zip(_SOURCE, rest[len(_CHUNK) :], strict=True))
    metadata = metadata_of(own_metadata, uri, title, chunk["first_page"], source["format"])
    heading = json.loads(headings)
    row: Json = {
        "id": chunk_id,
        "text": text,
        "title": title,
        "heading": " > ".join(heading),
        "path": uri or "",
        "date": date or "",
        "language": language,
        "document": document,
        "chunk": chunk_uuid.hex(),
        "position": position,
        "partition": partition,
        "metadata": metadata,
        "origin": {
            "source": {**source, "title": title, "uri": uri, "language": source_language},
            "chunk": {**chunk, "language": language, "kind": kind, "headings": heading},
            "digest": digest.hex(),
            "told": [key for key in metadata if key not in json.loads(own_metadata)],
        },
    }
    summary = hashlib.blake2b(compact_json(row).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return {**row, "digest": int.from_bytes(summary, "big", signed=True), "vector": embedding}


def _with_words(row: Json) -> Json:
    """Return a row as it is sent: most of the work, which is spared where Milvus has it already."""
    heading = heading_of(row["title"], row["origin"]["chunk"]["headings"])
    words = index_text(f"{heading}\n{row['text']}", row["language"])
    return {**row, "words": words, "vector": np.frombuffer(row["vector"], dtype="<f4").tolist()}


def _read_digests(collection: MilvusCollection) -> tuple[Any, Any]:
    """Return ids and digests of everything in one of our collections, 16 bytes a passage."""
    columns = array("q"), array("q")
    for pairs in collection.digests():
        for column, values in zip(columns, zip(*pairs, strict=True), strict=True):
            column.extend(values)
    return np.array(columns[0], np.int64), np.array(columns[1], np.int64)


# ---------------------------------------------------------------- rows as documents


def _identity(collection: MilvusCollection) -> ModelIdentity | None:
    """Return the model that the collection says it was made with, if that can be."""
    identity = mapping_of(collection.about.get("identity"))
    if set(_IDENTITY) != set(identity):
        return None
    made = ModelIdentity(**identity)
    return made if made.fingerprint == collection.about.get("fingerprint") else None


def _documents(collection: MilvusCollection) -> Iterator[list[tuple[str, list[MilvusRow]]]]:
    """Yield documents and their passages, a batch of rows at a time, those of which passages are missing at the end."""
    waiting: dict[str, list[MilvusRow]] = {}
    for rows in collection.rows(BATCH):
        whole: list[tuple[str, list[MilvusRow]]] = []
        for key, row in rows:
            if not collection.is_ours:
                whole.append((str(uuid.uuid5(_PULLED, f"{collection.name}\n{key}")), [row]))
                continue
            document = row.fields["document"]
            waiting.setdefault(document, []).append(row)
            if len(waiting[document]) == row.fields["origin"]["source"]["chunk_count"]:
                whole.append((document, waiting.pop(document)))
        yield whole
    yield list(waiting.items())


def _put(
    connection: apsw.Connection, target: Collection, document_id: str, rows: list[MilvusRow], *, is_own: bool
) -> str:
    """Store a document; return whether it was added, updated, unchanged or skipped."""
    ordered = sorted(rows, key=lambda row: row.fields.get("position", 0))
    is_document = "origin" in ordered[0].fields
    try:
        made = _draft_document(ordered, target, is_own) if is_document else _draft_text(ordered[0], target)
    except (KeyError, TypeError, ValueError):
        # Somebody else may have written it.
        made = None
    if made is None:
        return "skipped"
    name = ordered[0].fields["partition"] if is_document else DEFAULT_PARTITION
    partition_id = ensure_partition(connection, target, None if name == DEFAULT_PARTITION else name)
    draft, embeddings = replace(made[0], partition_id=partition_id), made[1]
    sql = """
        select id, trashed_at is not null from sources
        where collection_id = :collection and (uuid = :uuid or (uri = :uri and trashed_at is null))
        order by uuid = :uuid desc limit 1
    """
    bindings = {"collection": target.id, "uuid": document_id, "uri": draft.uri}
    source_id, trashed = fetch_one(connection, sql, bindings) or (None, 0)
    if trashed:
        return "skipped"
    if source_id is not None and _is_same(connection, source_id, draft, target.model_id):
        return "unchanged"
    if source_id is not None:
        keep_version(connection, source_id)
    stored = put_source(connection, _with_free_ids(connection, draft), embeddings, target.model_id, replaces=source_id)
    if source_id is not None:
        return "updated"
    # It keeps its id, unless another collection of this file has it.
    sql = "update sources set uuid = :uuid where id = :id and not exists (select 1 from sources where uuid = :uuid)"
    connection.execute(sql, {"uuid": document_id, "id": stored.source_id})
    return "added"


def _draft_document(
    rows: Sequence[MilvusRow], target: Collection, is_own: bool
) -> tuple[SourceDraft, dict[bytes, Made]]:
    """Return the document whose passages those rows are, and digest -> vector."""
    chunks: list[ChunkDraft] = []
    for row in rows:
        columns, digest = Json(row.fields["origin"]["chunk"]), bytes.fromhex(row.fields["origin"]["digest"])
        columns["headings"] = tuple(columns["headings"])
        identity = (None, uuid.UUID(row.fields["chunk"]).bytes)
        chunks.append(ChunkDraft(**columns, text=row.text, digest=digest, identity=identity))
    origin = rows[0].fields["origin"]
    columns = {name: value for name, value in origin["source"].items() if name not in ("chunk_count", *_TIMES)}
    metadata = {key: value for key, value in rows[0].metadata.items() if key not in origin["told"]}
    if not is_own:
        # Without a time it is never compared with the disk.
        columns["mtime_ns"] = None
    draft = SourceDraft(target.id, None, **columns, metadata=metadata, chunks=chunks)
    return draft, {chunk.digest: Made(_unit(row)) for chunk, row in zip(chunks, rows, strict=True)}


def _draft_text(row: MilvusRow, target: Collection) -> tuple[SourceDraft, dict[bytes, Made]] | None:
    """Return the text that another program put into Milvus as a record; None where there is none."""
    vector = _unit(row)
    try:
        text = RecordText(clean_text(row.text), check_metadata(row.metadata))
    except InvalidInput:
        return None
    draft, texts = draft_whole(text, target.id)
    return (draft, dict.fromkeys(texts, Made(vector))) if vector else None


def _unit(row: MilvusRow) -> bytes:
    """Return the vector at length 1, which other programs' need not have; empty for one that has no direction."""
    vector = np.asarray(row.fields["vector"], np.float32)
    length = float(np.linalg.norm(vector))
    if abs(length - 1) < 1e-6:
        return vector.astype("<f4").tobytes()
    return (vector / length).astype("<f4").tobytes() if length > 0 else b""


def _is_same(connection: apsw.Connection, source_id: int, draft: SourceDraft, model_id: int | None) -> bool:
    """Return whether the file has the same texts with vectors of that model, metadata and partition."""
    row = fetch_one(connection, "select title, partition_id, metadata from sources where id = ?", (source_id,))
    if row[:2] != (draft.title, draft.partition_id) or json.loads(row[2]) != dict(draft.metadata):
        return False
    sql = f"""
        select digest from chunks join vectors on vectors.id = (? << {VECTOR_ID_BITS} | chunks.id)
        where source_id = ? order by position
    """
    return fetch_column(connection, sql, (model_id, source_id)) == [chunk.digest for chunk in draft.chunks]


def _with_free_ids(connection: apsw.Connection, draft: SourceDraft) -> SourceDraft:
    """Return the draft whose chunks keep the UUIDs by which they were cited, unless another chunk here has them."""
    sql = "select 1 from chunks where uuid = ?"
    chunks = [
        chunk._replace(identity=None) if chunk.identity and fetch_one(connection, sql, (chunk.identity[1],)) else chunk
        for chunk in draft.chunks
    ]
    return replace(draft, chunks=chunks)
