"""Rows and queries as they are sent to Milvus, and hits as they come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from localmcp.arrays import np
from localmcp.errors import ModelMismatch
from localmcp.index.backend import DEFAULT_PARTITION, Neighbor, Record
from localmcp.index.conditions import Condition, evaluate
from localmcp.milvus import schema
from localmcp.milvus.filters import filter_text
from localmcp.milvus.schema import Shape, decode_name
from localmcp.schemas import Json

DEEPEST = 16_384
"""Milvus returns no more than these for one query."""
BATCH_ROWS, BATCH_BYTES = 1000, 16_000_000
"""Rows of one request, which may have 64 MB."""
BREADTH, WIDEST = 400, 32_768
"""`ef` of the graph index: neighbors looked at; the most that Milvus allows finds all but everything."""


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """One query of a collection, and how Milvus' hits are read."""

    shape: Shape
    partitions: list[str] | None
    condition: Condition | None
    lite: bool

    def options(self, depth: int) -> Json:
        options: Json = {"anns_field": self.shape.vector, "partition_names": self.partitions}
        if self.shape.index == "HNSW":
            options["search_params"] = {"params": {"ef": max(BREADTH, min(2 * depth, WIDEST))}}
        if self.condition is not None:
            options["filter"] = filter_text(self.condition, self.shape, lite=self.lite)
            others = [*self.shape.scalars, *(["*"] if self.shape.dynamic else [])]
            options["output_fields"] = [schema.METADATA] if self.shape.ours else others
        return options

    def neighbors(self, hits: Sequence[Any]) -> list[Neighbor]:
        """Return those that fulfil the condition, best first, equal scores by id."""
        ranked = [
            # Lite names the key after the field, servers call it id.
            Neighbor(hit["id"] if "id" in hit else hit[self.shape.key], self.score(hit))
            for hit in hits
            if self.condition is None or evaluate(self.condition, _read_metadata(hit["entity"], self.shape))
        ]
        return sorted(ranked, key=lambda neighbor: (-neighbor.score, neighbor.id))

    def score(self, hit: Any) -> float:
        # Segments with and without an index differ in the seventh digit for equal vectors.
        return round(self.shape.score(float(hit["distance"])), 6)

    def is_complete(self, hits: Sequence[Any], neighbors: Sequence[Neighbor], limit: int, depth: int) -> bool:
        """Return whether no deeper look could change the first `limit`."""
        if len(hits) < depth or depth >= DEEPEST:
            return True
        return len(neighbors) >= limit and neighbors[limit - 1].score > self.score(hits[-1])


def check_dimension(shape: Shape, collection: str, dimension: int) -> None:
    if dimension != shape.dimension:
        raise ModelMismatch(
            f"Milvus' collection '{collection}' holds vectors of {shape.dimension} dimensions"
            f"{f' ({shape.model})' if shape.model else ''}, the model at hand makes {dimension}.",
            hint="Set the model with which the collection was made.",
        )


def our_schema(library: Any, dimension: int, model: str) -> Any:
    kinds = library.DataType
    # For people; what is read is the property, because Lite keeps no description.
    says = f"A collection of localmcp with vectors of {model}"
    fields = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=says)
    fields.add_field(schema.KEY, kinds.INT64, is_primary=True)
    fields.add_field(schema.VECTOR, kinds.FLOAT_VECTOR, dim=dimension)
    fields.add_field(schema.TEXT, kinds.VARCHAR, max_length=schema.MOST_BYTES)
    fields.add_field(schema.METADATA, kinds.JSON)
    fields.add_field(schema.ORIGIN, kinds.JSON)
    fields.add_field(schema.PARTITION, kinds.VARCHAR, max_length=1024)
    return fields


def batches(records: Sequence[Record], shape: Shape) -> Iterator[list[Json]]:
    """Yield rows in batches of at most `BATCH_ROWS` and about `BATCH_BYTES`."""
    rows: list[Json] = []
    size = 0
    for record in records:
        check_dimension(shape, decode_name(shape.name), len(record.vector))
        row = _write_row(record)
        row_size = 4 * shape.dimension + 4 * len(record.text) + 2 * len(str(row[schema.METADATA])) + 1000
        if rows and (len(rows) >= BATCH_ROWS or size + row_size > BATCH_BYTES):
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += row_size
    if rows:
        yield rows


def _write_row(record: Record) -> Json:
    return {
        schema.KEY: record.id,
        schema.VECTOR: record.vector.tolist(),
        schema.TEXT: schema.fit_text(record.text),
        schema.METADATA: schema.fit_metadata(record.metadata),
        schema.ORIGIN: record.origin or {},
        schema.PARTITION: record.partition,
    }


def read_record(row: Json, shape: Shape) -> Record:
    return Record(
        row[shape.key],
        np.asarray(row[shape.vector], dtype=np.float32),
        _read_text(row, shape),
        _read_metadata(row, shape),
        str(row[schema.PARTITION]) if shape.ours else DEFAULT_PARTITION,
        (row.get(schema.ORIGIN) or None) if shape.ours else None,
    )


def _read_text(row: Json, shape: Shape) -> str:
    names = [shape.text] if shape.text else [name for name in schema.TEXT_FIELDS if isinstance(row.get(name), str)]
    return str(row.get(names[0]) or "") if names else ""


def _read_metadata(row: Json, shape: Shape) -> Json:
    """Return the JSON field; of other people's collections every other field too."""
    stored: Any = row.get(shape.metadata) if shape.metadata else {}
    metadata = cast("Json", stored) if isinstance(stored, dict) else {"value": stored}
    if shape.ours:
        return metadata
    own_fields = {shape.key, shape.vector, shape.text, shape.metadata, "$meta"}
    others = {name: value for name, value in row.items() if name not in own_fields}
    return {name: value for name, value in others.items() if not isinstance(value, bytes)} | metadata
