"""Check that the indexes of a file agree with its documents, for `verify` and `doctor`."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

import apsw

from localmcp.arrays import np
from localmcp.index.vector import pack_signs
from localmcp.index.vector_queue import misqueued
from localmcp.storage.database import fetch_all, fetch_one
from localmcp.storage.schema import SEGMENT_FITS

_LIVE = "select chunks.id from chunks join sources on sources.id = source_id where trashed_at is null"
_SEGMENTS = """
    signs join models on models.id = signs.model_id
    where collection_id in (select id from collections where kind = 'documents')
"""
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
            and (model_id << 40 | chunk_id) not in (select embedding from rules where embedding is not null)
    """,
    # Of another length they are not even read: they may be large.
    "{} segments of sign codes have the wrong length": f"{_SEGMENTS} and not ({SEGMENT_FITS})",
}
"""What is wrong -> the rows with which it is, of which a sound file has none."""


def disagreements(connection: apsw.Connection) -> list[str]:
    """Return what does not hold, a sentence each; empty for a sound file. 1 s for 100,000 passages.

    Checked: live passages are those of the keyword index; passages continue each other and are counted by their
    document; vectors have the model's length and belong to a passage or a rule; sign codes are those of the vectors.
    """
    counts = {text: fetch_one(connection, f"select count(*) from {rows}") for text, rows in _COUNTS.items()}
    counts["the queue of vectors is wrong about {} passages"] = misqueued(connection)
    return [*(text.format(count) for text, count in counts.items() if count), *_sign_codes(connection)]


def _sign_codes(connection: apsw.Connection) -> Iterator[str]:
    """Yield how sign codes differ from vectors: each vector of its collection's model has one code, its signs."""
    coded: Counter[tuple[int, int]] = Counter()
    wrong = 0
    sql = f"select signs.model_id, ids, bits, dimension from {_SEGMENTS} and {SEGMENT_FITS}"
    for model_id, blob, bits, dimension in connection.execute(sql):
        ids = array("q", blob)
        coded.update((model_id, chunk_id) for chunk_id in ids)
        codes = np.frombuffer(bits, np.uint64).reshape(len(ids), -1)
        sql = "select id & 1099511627775, embedding from vectors where id in (select ? << 40 | value from carray(?))"
        vectors = dict(fetch_all(connection, sql, (model_id, apsw.carray(ids))))
        for chunk_id, code in zip(ids, codes, strict=True):
            vector = vectors.get(chunk_id, b"")
            if len(vector) == 4 * dimension:
                wrong += bool((pack_signs(np.frombuffer(vector, "<f4")[None])[0] != code).any())
    if wrong:
        yield f"{wrong} sign codes are not those of their vectors"
    sql = f"""
        select collections.model_id, chunks.id from ({_LIVE}) as live join chunks on chunks.id = live.id
        join sources on sources.id = source_id join collections on collections.id = collection_id
        join vectors on vectors.id = collections.model_id << 40 | chunks.id
    """
    expected = set(fetch_all(connection, sql))
    if expected != set(coded) or max(coded.values(), default=1) > 1:
        missing, spare = len(expected - set(coded)), coded.total() - len(expected & set(coded))
        yield f"{missing} vectors have no sign code, and {spare} sign codes have no vector"
