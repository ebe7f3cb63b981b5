"""Parse and check records and changes of records from a tool call or lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from localmcp.errors import InvalidInput
from localmcp.index.records import check_metadata, clean_text
from localmcp.schemas import nearest
from localmcp.tools import Json


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A text that is to be stored."""

    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partition: str | None = None
    place: str = "text"
    """How messages call it: `texts[2]`, `line 7`."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a record; None = stays."""

    id: int
    text: str | None
    metadata: Mapping[str, Any] | None
    partition: str | None
    place: str


_FIELDS = ("text", "metadata", "partition_name")


def parse_record(raw: Any, place: str) -> NewRecord:
    """Return a record from JSON: {text, metadata?, partition_name?}.

    Raises:
        InvalidInput: names the place and the field.
    """
    entries = _entries(raw, place, _FIELDS)
    if not isinstance(entries.get("text"), str):
        raise InvalidInput(f"{place}: text: {'must be text' if 'text' in entries else 'required'}")
    metadata, partition = _check_entries(entries, place)
    return NewRecord(clean_text(entries["text"], f"{place}: text"), metadata or {}, partition, place)


def parse_change(raw: Any, place: str) -> Change:
    entries = _entries(raw, place, ("id", *_FIELDS))
    identity, text = entries.get("id"), entries.get("text")
    if not isinstance(identity, int) or isinstance(identity, bool):
        raise InvalidInput(f"{place}: id: {'must be an integer' if 'id' in entries else 'required'}")
    if text is not None and not isinstance(text, str):
        raise InvalidInput(f"{place}: text: must be text")
    metadata, partition = _check_entries(entries, place)
    if text is None and metadata is None and partition is None:
        raise InvalidInput(f"{place}: nothing to change; give text, metadata or partition_name.")
    return Change(identity, None if text is None else clean_text(text, f"{place}: text"), metadata, partition, place)


def _entries(raw: Any, place: str, names: Sequence[str]) -> Json:
    if not isinstance(raw, dict):
        raise InvalidInput(f"{place}: must be an object with {', '.join(names)}")
    entries = cast(Json, raw)
    for key in entries:
        if key not in names:
            near = nearest(key, names)
            guess = f"; did you mean '{near}'?" if near else f"; there are {', '.join(names)}."
            raise InvalidInput(f"{place}: {key}: not a field{guess}")
    return entries


def _check_entries(entries: Json, place: str) -> tuple[Json | None, str | None]:
    metadata, partition = entries.get("metadata"), entries.get("partition_name")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidInput(f"{place}: metadata: must be an object")
    if partition is not None and not isinstance(partition, str):
        raise InvalidInput(f"{place}: partition_name: must be text")
    checked = None if metadata is None else check_metadata(cast(Json, metadata), f"{place}: metadata")
    return checked, partition or None
