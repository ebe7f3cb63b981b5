"""Adapt the weight of meaning to each kind of text: it is measured on the text, and used for its passages.

A model that knows a kind of text tells its passages sharply apart, and ten words of a passage lead it back to that one;
where it does not know the language, everything looks alike. The gap between the nearest passage and the tenth is that
sharpness.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from localmcp.index.collections import calibrate, find_model
from localmcp.index.drafts import WORD_ONLY
from localmcp.index.vector import SignIndex, nearest_chunks
from localmcp.index.vector_queue import waiting
from localmcp.models import Embedder
from localmcp.models.calibration import Calibration
from localmcp.storage.database import Database, fetch_all, fetch_column, read_generations

FEWEST_WINDOWS, MOST_WINDOWS, CHUNKS_A_WINDOW = 32, 96, 8
"""With 32 windows the weight is known to +-0.04, with 96 to +-0.02: a large group is measured with more."""
WINDOW_WORDS = 10
LEAST_WORDS = 30
NEUTRAL_GAP, NEUTRAL, SLOPE, LEAST_WEIGHT, MOST_WEIGHT = 0.125, 0.60, 2.0, 0.30, 0.90
FOREIGN_WEIGHT = 0.45
"""The most in another language than English, of passages or of the question, where the model reads no other."""
READ_LANGUAGE = "english"
GROWTH = 1.5
"""A group is measured again when it is so much larger or smaller: the more passages, the nearer is the tenth (Cranfield
with 1,280 passages .112, with all 1,833 .094)."""
DEEP = 10
"""The nearest passage is compared with this one; and so many hits of each arm say which groups are concerned."""


@dataclass(frozen=True, slots=True)
class Group:
    """Passages of one collection, language and kind (prose or code)."""

    id: int
    collection_id: int
    language: str
    kind: str
    chunks: int
    gap: float | None = None
    """How sharply the model tells its passages apart; None where it was not measured."""


def weight_of(gap: float, language: str, calibration: Calibration) -> float:
    """Return the weight of meaning for a gap of cosines: 0.60 + 2 x (gap - 0.125), within 0.30..0.90.

    The gap is on the scale of the default model. At most 0.45 in languages that the model does not read.
    """
    weight = min(max(NEUTRAL + SLOPE * (calibration.factor * gap - NEUTRAL_GAP), LEAST_WEIGHT), MOST_WEIGHT)
    return weight if calibration.reads_all or language == READ_LANGUAGE else min(weight, FOREIGN_WEIGHT)


def load_groups(connection: apsw.Connection, collection_ids: Sequence[int]) -> dict[int, Group]:
    """Return the groups of those collections, by id."""
    sql = """
        select id, collection_id, language, kind, chunks, gap from groups
        where collection_id in (select value from carray(?))
    """
    rows = fetch_all(connection, sql, (apsw.carray(array("q", collection_ids)),)) if collection_ids else []
    return {row[0]: Group(*row) for row in rows}


def weight_for(groups: Sequence[Group], default: float, calibration: Calibration, *, is_foreign: bool) -> float:
    """Return the mean weight of the groups of the first hits, one for each hit.

    Unmeasured groups count `default`, but no more than a measured one may in their language. `is_foreign`: the question
    is in another language than the model's.
    """
    most = 1.0 if calibration.reads_all else FOREIGN_WEIGHT
    weights: list[float] = []
    for group in groups:
        weight = default if group.gap is None else weight_of(group.gap, group.language, calibration)
        weights.append(weight if group.language == READ_LANGUAGE else min(weight, most))
    weight = sum(weights) / len(weights) if weights else default
    return round(min(weight, most) if is_foreign else weight, 4)


def adapt_weights(database: Database, embedder: Embedder) -> int:
    """Measure the groups that were not measured yet, or have changed in size since; returns how many.

    Costs 0.2 to 0.6 s a group: 32 to 96 short texts are embedded and looked up. Reading, then one short transaction.
    """
    calibrate(database, embedder)
    with database.read() as connection:
        model_id = find_model(connection, embedder.identity)
        groups = _changed_groups(connection, model_id) if model_id is not None else []
    measured = [(gap, group.chunks, group.id) for group in groups if (gap := measure_gap(database, embedder, group))]
    if measured:
        with database.write() as connection:
            connection.executemany("update groups set gap = ?, measured_chunks = ? where id = ?", measured)
    return len(measured)


def _changed_groups(connection: apsw.Connection, model_id: int) -> list[Group]:
    """Return the groups to measure, with the passages that have vectors so far: the share that no longer waits."""
    sql = f"""
        select groups.id, groups.collection_id, language, groups.kind, chunks, measured_chunks,
            sum(chunks) over (partition by groups.collection_id)
        from groups join collections on collections.id = groups.collection_id
        where model_id = ? and groups.kind <> '{WORD_ONLY}'
    """
    changed: list[Group] = []
    for group_id, collection_id, language, kind, chunks, measured, total in fetch_all(connection, sql, (model_id,)):
        embedded = int(chunks * (1 - waiting(connection, [collection_id]).passages / max(total, 1)))
        # Smaller groups keep the weight of the settings: too few passages to tell how near is near.
        if embedded >= 40 and (embedded >= GROWTH * measured or GROWTH * embedded <= measured):
            changed.append(Group(group_id, collection_id, language, kind, embedded))
    return changed


def measure_gap(database: Database, embedder: Embedder, group: Group) -> float | None:
    """Return the mean difference of the nearest and the tenth cosine, over windows of the group's own text.

    The windows' own passages stay in: how surely they are found is what is measured. None for a group whose passages
    are too short or have no vectors.
    """
    # Texts with vectors, spread over the group, the same ones every time.
    sql = """
        select text from chunks where id in (
            select chunks.id from chunks join sources on sources.id = source_id
            where group_id = ? and words >= ? and trashed_at is null
                and exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
            order by chunks.id * 2654435761 % 4294967296 limit ?
        )
    """
    most = min(max(group.chunks // CHUNKS_A_WINDOW, FEWEST_WINDOWS), MOST_WINDOWS)
    with database.read() as connection:
        model_id = find_model(connection, embedder.identity) or 0
        texts = fetch_column(connection, sql, (group.id, LEAST_WORDS, model_id, most))
    windows: list[str] = []
    for number, text in enumerate(texts):
        words = text.split()
        start = number * 7919 % (max(len(words) - WINDOW_WORDS, 0) + 1)
        windows.append(" ".join(words[start : start + WINDOW_WORDS]))
    if len(windows) < FEWEST_WINDOWS // 2:
        return None
    vectors = embedder.embed_passages(windows)
    with database.read() as connection:
        # A separate index: a command that only adds documents keeps no index in memory.
        blocks = SignIndex(model_id).blocks(connection, read_generations(connection).signs, [group.collection_id])
        hits = [nearest_chunks(connection, model_id, blocks, vector, DEEP) for vector in vectors]
    gaps = [nearest[0][1] - nearest[-1][1] for nearest in hits if len(nearest) == DEEP]
    return sum(gaps) / len(gaps) if gaps else None
