"""The contents of your collection, with which incoming documents are compared."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import apsw

from localmcp.search.drafts import SourceDraft
from localmcp.search.records import FORMAT
from localmcp.storage.database import fetch_all


@dataclass(slots=True)
class OwnContents:
    """Contents, places and titles of a collection."""

    contents: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """File name -> places, with slashes."""
    titles: dict[str, bool] = field(default_factory=dict[str, bool])
    """Title -> whether a document of that title has no place."""

    @classmethod
    def of(cls, connection: apsw.Connection, collection: str) -> OwnContents:
        """Return what is in the collection of that name; nothing if there is none."""
        own = cls()
        sql = """
            select sha256, sources.metadata, format, uri, title from sources
            join collections on collections.id = collection_id where name = ? and trashed_at is null
        """
        for sha256, metadata, kind, uri, title in fetch_all(connection, sql, (collection,)):
            own._add(sha256, metadata if kind == FORMAT else "", uri, title)
        return own

    def has(self, draft: SourceDraft) -> bool:
        """Return whether the same content is there; of records, which share texts, with the same metadata."""
        return (draft.sha256, _record_metadata(draft)) in self.contents

    def namesake(self, draft: SourceDraft) -> str | None:
        """Return a document of the same place, or of the same title where one of the two has no place."""
        if draft.uri is not None:
            incoming_place = draft.uri.replace("\\", "/")
            for place in self.places.get(_name(incoming_place), ()):
                if place == incoming_place or place.endswith(f"/{incoming_place}"):
                    return place
        if draft.title in self.titles and (draft.uri is None or self.titles[draft.title]):
            return f"'{draft.title}'"
        return None

    def note(self, draft: SourceDraft) -> None:
        """Count an incoming document among them."""
        self._add(draft.sha256, _record_metadata(draft), draft.uri, draft.title)

    def _add(self, sha256: str, metadata_text: str, uri: str | None, title: str) -> None:
        self.contents.add((sha256, metadata_text))
        self.titles[title] = self.titles.get(title, False) or uri is None
        if uri is not None:
            place = uri.replace("\\", "/")
            self.places.setdefault(_name(place), []).append(place)


def _record_metadata(draft: SourceDraft) -> str:
    return json.dumps(draft.metadata, ensure_ascii=False) if draft.format == FORMAT else ""


def _name(place: str) -> str:
    return place.rpartition("/")[2]
