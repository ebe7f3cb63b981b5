"""Tags of documents: in the file itself, said when it was added, or set by the person; all are in `metadata.tags`.

What the person set is in `metadata.ownTags` too, and stays with the document when its file is read again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from localmcp.schemas import list_of, mapping_of, one_or_more
from localmcp.storage.database import bump_generations, fetch_column, fetch_one

OWN = "ownTags"


def split_tags(value: Any) -> list[str]:
    """Return the tags in what front matter or a person says: a list, or words separated by commas or spaces."""
    tags = re.split(r"," if "," in value else r"\s+", value) if isinstance(value, str) else one_or_more(value)
    return [tag for item in tags if not isinstance(item, dict | list) and (tag := str(item).strip().lstrip("#"))]


def unique(tags: Iterable[str]) -> list[str]:
    """Return each tag once, whatever its capitals, as it was written first."""
    return list({tag.casefold(): tag for tag in reversed(list(tags))}.values())[::-1]


def with_said(metadata: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's metadata with what was said of it, which wins; tags of both are kept."""
    both = {**metadata, **said}
    if "tags" in said:
        both["tags"] = unique([*split_tags(metadata.get("tags") or []), *split_tags(said["tags"])])
    return both


def with_own_tags(metadata: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the tags that the person added, and without those that the person took away."""
    removed = {tag.casefold() for tag in list_of(own.get("removed"))}
    kept = [tag for tag in split_tags(metadata.get("tags") or []) if tag.casefold() not in removed]
    return {**metadata, "tags": unique([*kept, *list_of(own.get("added"))]), OWN: dict(own)}


def keep_own_tags(connection: apsw.Connection, metadata: Mapping[str, Any], source_id: int) -> Mapping[str, Any]:
    """Return the metadata of a new reading with the tags that the person set for the document so far."""
    own = fetch_one(connection, f"select metadata ->> '$.{OWN}' from sources where id = ?", (source_id,))
    return with_own_tags(metadata, json.loads(own)) if own else metadata


def set_tags(connection: apsw.Connection, uuid: str, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """Give tags to a document and take others away; returns those that it has. Part of the write transaction."""
    metadata = mapping_of(json.loads(fetch_one(connection, "select metadata from sources where uuid = ?", (uuid,))))
    own, changed = mapping_of(metadata.get(OWN)), {tag.casefold() for tag in (*add, *remove)}
    before = {
        kind: [tag for tag in list_of(own.get(kind)) if tag.casefold() not in changed] for kind in ("added", "removed")
    }
    metadata = with_own_tags(metadata, {"added": [*before["added"], *add], "removed": [*before["removed"], *remove]})
    sql = "update sources set metadata = ? where uuid = ?"
    connection.execute(sql, (json.dumps(metadata, ensure_ascii=False), uuid))
    bump_generations(connection, "content")
    return metadata["tags"]


def count_tags(connection: apsw.Connection, collection_ids: str) -> dict[str, int]:
    """Return the tags of the documents of those collections (SQL), the most used first, with how many have each."""
    sql = f"select metadata -> '$.tags' from sources where trashed_at is null and collection_id in ({collection_ids})"
    counts, spelled = Counter[str](), dict[str, str]()
    for text in filter(None, fetch_column(connection, sql)):
        for tag in unique(split_tags(json.loads(text))):
            counts[tag.casefold()] += 1
            spelled.setdefault(tag.casefold(), tag)
    return {spelled[tag]: counts[tag] for tag in sorted(counts, key=lambda tag: (-counts[tag], tag))}
