"""The vector arm: sign codes narrow the candidates in memory, sqlite-vec compares the exact vectors in the file.

A float32 scan of 100,000 vectors of 384 reads 154 MB; their sign codes, a bit a dimension, are 4.8 MB. They are scanned
by popcount, the nearest few thousand are put in order by what the query's own numbers say about their signs, and the
exact vectors of the first hundreds are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from localmcp.arrays import Ids, NDArray, Vector, Vectors, np
from localmcp.errors import ModelMismatch
from localmcp.storage.database import fetch_all, fetch_one, id_list
from localmcp.storage.schema import SEGMENT_FITS, SEGMENT_SIZE, VECTOR_ID_BITS

if TYPE_CHECKING:
    from localmcp.models.embedder import WordCode

SEGMENTS_IN_BLOCK = 16
"""65,536 codes are scanned at a time: their distances stay in the processor's cache."""
RESCORED, RESCORED_SHARE, MOST_RESCORED = 400, 250, 4000
"""Exact vectors that are read: 400, or a 250th of many. They hold the true ten of LISA, SciFact and CoSQA (300 .9987,
nDCG@10 the same); of random clusters, which are harder, .967 at 10,000 chunks. Each further hundred costs .3 ms."""
ORDERED_TIMES = 4
"""So many times as many of the nearest codes are put in order."""
_CHUNK_BITS = (1 << VECTOR_ID_BITS) - 1


def vector_id(model_id: int, chunk_id: int) -> int:
    """Return the rowid in `vectors`."""
    return model_id << VECTOR_ID_BITS | chunk_id


# ---------------------------------------------------------------- writing


class Made(NamedTuple):
    """What a model makes of a passage."""

    vector: bytes
    """float32, little endian."""
    sentences: bytes = b""
    """Codes of its sentences, if the model reads them."""
    words: Sequence[WordCode] = ()
    """Indexed words with their codes, if the model says something of each word."""


def write_vectors(connection: apsw.Connection, model_id: int, made: Mapping[int, Made]) -> None:
    """Store chunk id -> what a model made of it, apart from words; ModelMismatch if not of the model's dimension."""
    dimension = fetch_one(connection, "select dimension from models where id = ?", (model_id,))
    for vector, *_ in made.values():
        if len(vector) != 4 * dimension:
            raise ModelMismatch(f"A vector has {len(vector) // 4} numbers; the model of this file has {dimension}.")
    rows = [(vector_id(model_id, chunk_id), *columns) for chunk_id, columns in made.items()]
    connection.executemany("insert into vectors (id, embedding) values (?, ?)", (row[:2] for row in rows))
    sql = "insert or replace into sentence_codes (id, codes) values (?, ?)"
    connection.executemany(sql, ((key, sentences) for key, _, sentences, _ in rows if sentences))


def add_signs(connection: apsw.Connection, model_id: int, collection_id: int, source_ids: Mapping[int, int]) -> None:
    """Append the sign codes of stored vectors to the collection's last segment, and to new ones when it is full.

    `source_ids`: chunk id -> source id; those without a vector are ignored. Part of the caller's write transaction,
    which bumps `signs`.
    """
    keys = id_list(vector_id(model_id, chunk_id) for chunk_id in source_ids)
    sql = "select id, embedding from vectors where id in (select value from carray(?)) order by id"
    rows = fetch_all(connection, sql, (keys,))
    if not rows:
        return
    ids = np.array([row[0] for row in rows], dtype=np.int64) & _CHUNK_BITS
    sources = np.array([source_ids[chunk_id] for chunk_id in ids.tolist()], dtype=np.int64)
    codes = pack_signs(np.stack([np.frombuffer(row[1], dtype=np.float32) for row in rows]))
    sql = """
        select id, ids, sources, bits from signs
        where model_id = ? and collection_id = ? and count < ? order by id desc limit 1
    """
    if tail := fetch_one(connection, sql, (model_id, collection_id, SEGMENT_SIZE)):
        connection.execute("delete from signs where id = ?", tail[:1])
        old_ids, old_sources, old_codes = _segment(*tail[1:])
        ids, sources = np.concatenate([old_ids, ids]), np.concatenate([old_sources, sources])
        codes = np.concatenate([old_codes, codes])
    for start in range(0, len(ids), SEGMENT_SIZE):
        part = slice(start, start + SEGMENT_SIZE)
        _insert_segment(connection, model_id, collection_id, ids[part], sources[part], codes[part])


def remove_signs(connection: apsw.Connection, collection_id: int, chunk_ids: Iterable[int]) -> None:
    """Take chunks out of the segments that hold them. Part of the caller's write transaction, which bumps `signs`."""
    gone = np.fromiter(chunk_ids, dtype=np.int64)
    sql = "select id, model_id, ids from signs where collection_id = ?"
    for segment_id, model_id, ids in fetch_all(connection, sql, (collection_id,)) if len(gone) else ():
        stays = np.isin(np.frombuffer(ids, dtype=np.int64), gone, invert=True)
        if stays.all():
            continue
        sql = "delete from signs where id = ? returning ids, sources, bits"
        numbers, sources, codes = _segment(*fetch_one(connection, sql, (segment_id,)))
        if stays.any():
            _insert_segment(connection, model_id, collection_id, numbers[stays], sources[stays], codes[stays])


def remove_vectors(connection: apsw.Connection, chunk_ids: Iterable[int]) -> None:
    """Delete the vectors of chunks, whatever model made them; their signs are gone already."""
    sql = "delete from vectors where id in (select id << 40 | ? from models)"
    connection.executemany(sql, ((chunk_id,) for chunk_id in chunk_ids))


def _segment(ids: bytes, sources: bytes, bits: bytes) -> tuple[Ids, Ids, NDArray[np.uint64]]:
    numbers = np.frombuffer(ids, dtype=np.int64)
    codes = np.frombuffer(bits, dtype=np.uint64).reshape(len(numbers), -1)
    return numbers, np.frombuffer(sources, dtype=np.int64), codes


def _insert_segment(
    connection: apsw.Connection, model_id: int, collection_id: int, ids: Ids, sources: Ids, codes: NDArray[np.uint64]
) -> None:
    # A segment is never changed in place: a new row id is what tells other processes to read it.
    sql = "insert into signs (model_id, collection_id, count, ids, sources, bits) values (?, ?, ?, ?, ?, ?)"
    row = (model_id, collection_id, len(ids), ids.tobytes(), sources.tobytes(), codes.tobytes())
    connection.execute(sql, row)


# ---------------------------------------------------------------- searching


@dataclass(frozen=True, slots=True)
class Block:
    """Up to 65,536 sign codes of one collection, in memory: ids (n,), sources (n,), bits (words, n)."""

    ids: Ids
    sources: Ids
    bits: Any


class SignIndex:
    """Sign codes in memory, of whole segments, which never change; a search takes references. Thread-safe."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, ...], Block] = {}

    def blocks(self, connection: apsw.Connection, model_id: int, collection_ids: Sequence[int]) -> list[Block]:
        """Return the codes of those collections in this snapshot; only new segments are read."""
        sql = f"""
            select model_id, collection_id, signs.id from signs join models on models.id = model_id
            where {SEGMENT_FITS} order by signs.id
        """
        segments = defaultdict[tuple[int, int], list[int]](list)
        for *place, segment_id in fetch_all(connection, sql):
            segments[place[0], place[1]].append(segment_id)
        kept, asked = dict[tuple[int, ...], Block](), list[Block]()
        for (model, collection_id), ids in segments.items():
            is_asked = model == model_id and collection_id in collection_ids
            for start in range(0, len(ids), SEGMENTS_IN_BLOCK):
                part = tuple(ids[start : start + SEGMENTS_IN_BLOCK])
                block = self._blocks.get(part)
                if is_asked:
                    asked.append(block := block or _read_block(connection, part))
                if block:
                    kept[part] = block
        self._blocks = kept
        return asked


def _read_block(connection: apsw.Connection, segments: tuple[int, ...]) -> Block:
    sql = f"select ids, sources, bits from signs where id in ({','.join(map(str, segments))}) order by id"
    ids, sources, codes = _segment(*map(b"".join, zip(*fetch_all(connection, sql), strict=True)))
    return Block(ids, sources, np.ascontiguousarray(codes.T))


def nearest_chunks(
    connection: apsw.Connection, model_id: int, blocks: Sequence[Block], query: Vector, k: int,
    allowed: Ids | None = None,
) -> list[tuple[int, float]]:  # fmt: skip
    """Return the k nearest chunks and their cosines, best first, ties by id; `allowed`: sorted source ids."""
    share = sum(len(block.ids) for block in blocks) // RESCORED_SHARE
    rescored = nearest_codes(blocks, query, max(RESCORED, k, min(share, MOST_RESCORED)), allowed)[0]
    cosines = exact_cosines(connection, model_id, rescored, query)
    return sorted(cosines.items(), key=lambda item: (-item[1], item[0]))[:k]


def nearest_codes(
    blocks: Sequence[Block], query: Vector, most: int, allowed: Ids | None = None
) -> tuple[Ids, NDArray[np.float32]]:
    """Return the ids of the nearest codes, best first, and their estimates; `allowed`: sorted source ids."""
    if not blocks:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    codes = [(block.ids, block.bits) for block in blocks]
    if allowed is not None:
        places = [np.flatnonzero(np.isin(block.sources, allowed)) for block in blocks]
        codes = [(ids[at], np.take(bits, at, axis=1)) for (ids, bits), at in zip(codes, places, strict=True)]
    if sum(len(ids) for ids, _ in codes) > ORDERED_TIMES * most:
        [signs] = pack_signs(query[None])
        distances = [np.zeros(len(ids), dtype=np.uint16) for ids, _ in codes]
        for distance, (_, bits) in zip(distances, codes, strict=True):
            for row, word in zip(bits, signs, strict=True):
                distance += np.bitwise_count(row ^ word)
        counts = np.bincount(np.concatenate(distances), minlength=64 * len(signs) + 1).cumsum()
        limit = int(np.searchsorted(counts, ORDERED_TIMES * most))
        near = [np.flatnonzero(distance <= limit) for distance in distances]
        codes = [(ids[at], np.take(bits, at, axis=1)) for (ids, bits), at in zip(codes, near, strict=True)]
    # Equal distances at the limit can be many, when texts repeat.
    ids = np.concatenate([ids for ids, _ in codes])[: 2 * ORDERED_TIMES * most]
    bits = np.concatenate([bits for _, bits in codes], axis=1)[:, : 2 * ORDERED_TIMES * most]
    estimated = estimates(bits, query)
    best = np.argsort(-estimated, kind="stable")[:most]
    return ids[best], estimated[best]


def pack_signs(vectors: Vectors) -> NDArray[np.uint64]:
    """Return the sign codes (n, words) of vectors (n, dimension): bits as `vec_quantize_binary` orders them."""
    count, dimension = vectors.shape
    positive = np.zeros((count, 64 * code_words(dimension)), dtype=bool)
    positive[:, :dimension] = vectors > 0
    return np.packbits(positive, axis=1, bitorder="little").view(np.uint64)


def code_words(dimension: int) -> int:
    """Return how many words of 64 bits hold one bit of each dimension."""
    return (dimension + 63) // 64


def estimates(codes: NDArray[np.uint64], query: Vector) -> NDArray[np.float32]:
    """Return what codes (words, n) promise of the product with the query, float32 (n,).

    It is the sum of the query's numbers, each times what the code promises of the other number: its sign. That orders
    candidates better than the Hamming distance, which takes the query's numbers for signs as well: the first 400 then
    hold as many of the true ten as the nearest 1000 (.986, 100,000 chunks, clustered random vectors).
    """
    octets = np.ascontiguousarray(codes.T).view(np.uint8)
    parts = np.zeros(code_words(len(query)) * 64, dtype=np.float32)
    parts[: len(query)] = query
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    table = (parts.reshape(-1, 8) @ (patterns.T.astype(np.float32) * 2 - 1)).ravel()
    # Of the type by which numpy indexes: others are converted first (vector arm at 100,000: 5.9 -> 5.4, 3.9 -> 3.5 ms).
    places = octets + np.arange(0, table.size, 256, dtype=np.intp)
    return np.take(table, places).sum(axis=1)


def exact_cosines(connection: apsw.Connection, model_id: int, chunk_ids: Any, query: Vector) -> dict[int, float]:
    """Return chunk id -> cosine with the query, of chunks with a vector of this model; 0 for a zero vector."""
    keys = np.asarray(chunk_ids, dtype=np.int64) + (model_id << VECTOR_ID_BITS)
    if not len(keys):
        return {}
    sql = """
        select id & ?, coalesce(1 - vec_distance_cosine(embedding, ?), 0.0)
        from carray(?) cross join vectors on id = value
    """
    return dict(fetch_all(connection, sql, (_CHUNK_BITS, query.tobytes(), apsw.carray(keys))))
