"""Whether the indexes of a file agree with its documents, which `verify` and `doctor` ask beside SQLite's own check."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apsw

from localmcp.search.vector import SEGMENT_SIZE
from localmcp.search.vector_queue import QUEUE_VERSION, miscounted
from localmcp.storage.database import fetch_all, fetch_one

_LIVE = "select chunks.id from chunks join sources on sources.id = source_id where trashed_at is null"


def disagreements(connection: apsw.Connection) -> list[str]:
    """Return what does not hold, a sentence each; empty for a sound file. 1 s for 100,000 passages.

    Checked: live passages are those of the keyword index; passages continue each other and are counted by their
    document; vectors have the model's length and belong to a passage or a rule; sign codes are those of the vectors.
    """
    return [
        *_keyword_index(connection), *_passages(connection), *_vectors(connection), *_queue(connection),
        *_sign_codes(connection),
    ]  # fmt: skip


def _keyword_index(connection: apsw.Connection) -> Iterator[str]:
    missing = _count(connection, f"select count(*) from ({_LIVE}) where id not in (select rowid from chunks_fts)")
    if missing:
        yield f"{missing} passages are not in the keyword index"
    spare = _count(connection, f"select count(*) from chunks_fts where rowid not in ({_LIVE})")
    if spare:
        yield f"the keyword index holds {spare} passages that are not there"


def _passages(connection: apsw.Connection) -> Iterator[str]:
    wrong = _count(
        connection,
        """
        select count(*) from sources
        where chunk_count <> (select count(*) from chunks where source_id = sources.id)
        """,
    )
    if wrong:
        yield f"{wrong} documents have another number of passages than they say"
    torn = _count(
        connection,
        """
        select count(*) from (
            select start, position, stop - start - length(text) as gap,
                lag(stop, 1, 0) over place as before, row_number() over place - 1 as place_number
            from chunks window place as (partition by source_id order by position)
        ) where start <> before or position <> place_number or gap <> 0
        """,
    )
    if torn:
        yield f"{torn} passages do not continue the one before them"


def _vectors(connection: apsw.Connection) -> Iterator[str]:
    wrong = _count(
        connection,
        """
        select count(*) from embeddings left join models on models.id = model_id
        where length(embedding) is not 4 * dimension
        """,
    )
    if wrong:
        yield f"{wrong} vectors have the wrong length, or belong to no model"
    # Files of the first versions have no rules.
    has_rules = _count(connection, "select count(*) from sqlite_schema where type = 'table' and name = 'rules'")
    of_rules = "select embedding from rules where embedding is not null" if has_rules else "null"
    orphans = _count(
        connection,
        f"""
        select count(*) from embeddings where chunk_id not in (select id from chunks)
            and (model_id << 40 | chunk_id) not in ({of_rules})
        """,
    )
    if orphans:
        yield f"{orphans} vectors belong to no passage"


def _queue(connection: apsw.Connection) -> Iterator[str]:
    if connection.pragma("user_version") >= QUEUE_VERSION and (wrong := miscounted(connection)):
        yield f"{wrong} documents wait for other vectors than the queue says"


def _sign_codes(connection: apsw.Connection) -> Iterator[str]:
    """Every passage with a vector of its collection's model has one sign code, and that is the sign of its vector."""
    coded: Counter[tuple[int, int]] = Counter()
    wrong = 0
    segments = """
        signs join models on models.id = signs.model_id
        where collection_id in (select id from collections where kind = 'documents')
    """
    # What has the wrong length is not even read: it may be large.
    fits = f"""
        count between 1 and {SEGMENT_SIZE} and length(ids) = 8 * count and length(sources) = 8 * count
        and length(bits) = count * ((dimension + 63) / 64 * 8)
    """
    unfit = _count(connection, f"select count(*) from {segments} and not ({fits})")
    if unfit:
        yield f"{unfit} segments of sign codes have the wrong length"
    sql = f"select signs.model_id, ids, bits, dimension from {segments} and {fits}"
    for model_id, ids, bits, dimension in connection.execute(sql):
        numbers = array("q", ids)
        coded.update((model_id, chunk_id) for chunk_id in numbers)
        wrong += _differing(connection, model_id, numbers, bits, dimension)
    if wrong:
        yield f"{wrong} sign codes are not those of their vectors"
    yield from _compare_with_vectors(connection, coded)


def _compare_with_vectors(connection: apsw.Connection, coded: Counter[tuple[int, int]]) -> Iterator[str]:
    sql = f"""
        select collections.model_id, chunks.id from ({_LIVE}) as live join chunks on chunks.id = live.id
        join sources on sources.id = source_id join collections on collections.id = collection_id
        join vectors on vectors.id = collections.model_id << 40 | chunks.id
    """
    expected = set(fetch_all(connection, sql))
    if expected != set(coded) or max(coded.values(), default=1) > 1:
        missing, spare = len(expected - set(coded)), coded.total() - len(expected & set(coded))
        yield f"{missing} vectors have no sign code, and {spare} sign codes have no vector"


def _differing(connection: apsw.Connection, model_id: int, ids: array[int], bits: bytes, dimension: int) -> int:
    import numpy as np

    codes = np.frombuffer(bits, np.uint8).reshape(len(ids), -1)
    vectors = dict(_load(connection, model_id, ids))
    rows = [place for place, row_id in enumerate(ids) if len(vectors.get(row_id, b"")) == 4 * dimension]
    if not rows:
        return 0
    stacked = np.frombuffer(b"".join(vectors[ids[place]] for place in rows), "<f4").reshape(len(rows), dimension)
    signs = np.packbits(stacked > 0, axis=1, bitorder="little")
    return int((codes[rows, : signs.shape[1]] != signs).any(axis=1).sum())


def _load(connection: apsw.Connection, model_id: int, ids: array[int]) -> list[Any]:
    sql = """
        select id & 1099511627775, embedding from vectors
        where id in (select :model << 40 | value from carray(:ids))
    """
    return fetch_all(connection, sql, {"model": model_id, "ids": apsw.carray(ids)})


def _count(connection: apsw.Connection, sql: str) -> int:
    return fetch_one(connection, sql)
