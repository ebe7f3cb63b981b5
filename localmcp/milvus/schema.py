"""The shape of collections in Milvus: ours, which we make, and other people's, which we only read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.schemas import Json

INTEGERS, VARCHAR, JSON, FLOAT_VECTOR = (2, 3, 4, 5), 21, 23, 101
"""Milvus' numbers for the types of fields."""

KEY, VECTOR, TEXT, METADATA, ORIGIN, PARTITION = "id", "vector", "text", "metadata", "origin", "partition"
"""The fields of our collections."""
MOST_BYTES = 65_535
"""The longest text that a VARCHAR field takes."""
MOST_JSON_BYTES = 65_000
"""A JSON field takes 65,536, counted after the server's own encoding."""

PROPERTY = "localmcp"
"""The collection's property that says which model made the vectors and where they come from."""
TEXT_FIELDS = ("text", "content", "page_content", "chunk", "document", "body", "passage")
"""Names under which other programs keep the text."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of one collection."""

    name: str
    """In Milvus, encoded."""
    key: str
    integer_keys: bool
    vector: str
    dimension: int
    metric: str
    """COSINE, IP or L2."""
    index: str
    """HNSW, AUTOINDEX, …; empty without an index."""
    scalars: Mapping[str, int]
    """Field -> type, of all that are neither key nor vector."""
    dynamic: bool
    partition_key: bool
    about: Json | None
    """What `PROPERTY` holds; None for a collection that localmcp did not make."""

    @property
    def ours(self) -> bool:
        return self.about is not None

    @property
    def model(self) -> str:
        """Text form of the model's identity; empty when it is unknown."""
        return str(self.about.get("model", "")) if self.about else ""

    @property
    def text(self) -> str | None:
        """The field that holds the text; None when only a dynamic one can."""
        texts = [name for name, kind in self.scalars.items() if kind == VARCHAR]
        return next((name for name in TEXT_FIELDS if name in texts), texts[0] if texts else None)

    @property
    def metadata(self) -> str | None:
        """The JSON field that holds the metadata."""
        fields = [name for name, kind in self.scalars.items() if kind == JSON]
        return METADATA if METADATA in fields else None

    def score(self, distance: float) -> float:
        """Higher = nearer: cosine and inner product as they are, 1 / (1 + d) of a distance."""
        return 1.0 / (1.0 + max(distance, 0.0)) if self.metric == "L2" else distance


def read_shape(described: Mapping[str, Any], index: Mapping[str, Any] | None) -> Shape:
    """Return the shape from `describe_collection` and the description of its vector index.

    Raises:
        LocalMCPError: the collection has no vectors of floats.
    """
    fields = cast("list[dict[str, Any]]", described["fields"])
    name = str(described["collection_name"])
    vectors = [field for field in fields if int(field["type"]) == FLOAT_VECTOR]
    if not vectors:
        raise LocalMCPError(f"Milvus' collection '{decode_name(name)}' has no field of float vectors.")
    vector = next((vector for vector in vectors if vector["name"] == VECTOR), vectors[0])
    key = next(field for field in fields if field.get("is_primary"))
    kinds = {field["name"]: int(field["type"]) for field in fields if field is not key and not field.get("is_dynamic")}
    return Shape(
        name,
        key["name"],
        int(key["type"]) in INTEGERS,
        vector["name"],
        int(vector["params"]["dim"]),
        str((index or {}).get("metric_type") or "COSINE"),
        str((index or {}).get("index_type") or ""),
        {name: kind for name, kind in kinds.items() if kind < 100},
        bool(described.get("enable_dynamic_field")),
        any(field.get("is_partition_key") for field in fields),
        _read_about(described),
    )


def _read_about(described: Mapping[str, Any]) -> Json | None:
    properties = cast("Mapping[str, Any]", described.get("properties") or {})
    for text in (properties.get(PROPERTY), described.get("description")):
        try:
            description = json.loads(str(text or ""))
        except ValueError:
            continue
        if isinstance(description, dict) and PROPERTY in description:
            return cast("Json", description)
    return None


def write_about(model: str, origin: Json | None) -> str:
    """Return the text of `PROPERTY`."""
    return json.dumps({PROPERTY: 1, "model": model, **({"origin": origin} if origin else {})})


_LONGEST = 255
_ESCAPED = re.compile("_u([0-9a-f]{2,6})_")


def encode_name(name: str, kind: str = "collection") -> str:
    """A name as Milvus accepts it: letters, digits and `_` stay, the rest, and a first digit, becomes `_u` hex `_`.

    Raises:
        InvalidInput: it is longer than Milvus allows.
    """
    encoded = re.sub("[^A-Za-z0-9_]|^[0-9]", lambda match: f"_u{ord(match[0]):02x}_", name)
    if not 0 < len(encoded) <= _LONGEST:
        raise InvalidInput(f"{kind}: '{name}' cannot be a name in Milvus, which allows {_LONGEST} letters and digits.")
    return encoded


def decode_name(encoded: str) -> str:
    """Return the name that `encode_name` was given; a name that it never makes stays as it is."""
    decoded = _ESCAPED.sub(_unescape, encoded)
    try:
        return decoded if encode_name(decoded) == encoded else encoded
    except InvalidInput:
        return encoded


def _unescape(match: re.Match[str]) -> str:
    number = int(match[1], 16)
    return chr(number) if number <= 0x10FFFF else match[0]


def fit_text(text: str) -> str:
    """Return the text, cut at a character's end to the bytes that a VARCHAR field takes."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= MOST_BYTES else data[:MOST_BYTES].decode("utf-8", "ignore")


def fit_metadata(metadata: Json) -> Json:
    """Return the metadata without its longest values, if all together are more than a JSON field takes."""
    sizes = {key: len(json.dumps(value).encode()) + len(json.dumps(key)) + 4 for key, value in metadata.items()}
    left = MOST_JSON_BYTES
    fitting: Json = {}
    for key in sorted(sizes, key=lambda key: sizes[key]):
        left -= sizes[key]
        if left < 0:
            break
        fitting[key] = metadata[key]
    return fitting if len(fitting) < len(metadata) else metadata
