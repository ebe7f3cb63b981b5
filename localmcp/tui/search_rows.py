"""The rows of the result list: passages grouped by document, the best one open and the others folded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from localmcp.schemas import Json


@dataclass(frozen=True, slots=True)
class HitRow:
    """A passage."""

    number: int
    """Its place among the hits."""
    rank: int
    """That of its document, from 0."""
    is_best: bool
    """The first of its document: it has the title."""

    @property
    def id(self) -> str:
        return f"hit-{self.number}"


@dataclass(frozen=True, slots=True)
class FoldedRow:
    """The other passages of a document, folded into one line."""

    numbers: tuple[int, ...]

    @property
    def id(self) -> str:
        return f"more-{self.numbers[0]}"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A search to run again."""

    line: str
    is_saved: bool
    number: int

    @property
    def id(self) -> str:
        return f"query-{self.number}"


Row = HitRow | FoldedRow | QueryRow


def rows_of(hits: Sequence[Json], opened: Collection[str]) -> list[Row]:
    """Return hits by document, in the order of the first hits; all hits of `opened` documents (source ids)."""
    groups: dict[str, list[int]] = {}
    for number, hit in enumerate(hits):
        groups.setdefault(hit["sourceId"], []).append(number)
    rows: list[Row] = []
    for rank, (source_id, numbers) in enumerate(groups.items()):
        rows.append(HitRow(numbers[0], rank, True))
        if source_id in opened:
            rows += [HitRow(number, rank, False) for number in numbers[1:]]
        elif numbers[1:]:
            rows.append(FoldedRow(tuple(numbers[1:])))
    return rows


def query_rows(saved: Sequence[str], recent: Sequence[str]) -> list[Row]:
    """Return saved searches, then the recent ones that are not among them; 30 in all."""
    lines = [*saved, *(line for line in recent if line not in saved)][:30]
    return [QueryRow(line, number < len(saved), number) for number, line in enumerate(lines)]
