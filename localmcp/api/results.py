"""Results of the Python API: small typed objects, which a notebook completes and prints, and lists of them.

Each keeps in `raw` the dict that the tool of the same name gives an assistant.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from localmcp.humanize import cut_to
from localmcp.schemas import Json
from localmcp.visible_text import visible


def _raw() -> Any:
    return field(repr=False, compare=False, default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers."""

    title: str
    text: str = field(repr=False)
    score: float
    """0..100: 0.7 of meaning and 0.3 of words, or as the file's own measured weights say."""
    semantic: float
    keyword: float
    match: str
    """`both`, `semantic_only` or `keyword_only`."""
    place: str
    """Its place, for people: `path:line`, or `path p. 3`, or the title."""
    path: str | None
    """The file; None for a text that came from none."""
    collection: str
    freshness: str
    """Whether the file is `fresh`, `changed` or `missing` since it was read, or `unverifiable`."""
    metadata: Mapping[str, Any]
    id: str
    source_id: str
    raw: Json = _raw()

    @classmethod
    def from_answer(cls, raw: Json) -> Hit:
        place, scores = raw["citation"], (raw["combinedScore"], raw["semanticScore"], raw["keywordScore"])
        return cls(
            raw["sourceTitle"], raw["content"], *scores, raw["matchType"], place["label"], place.get("path"),
            raw["collection"], raw["freshness"], raw["metadata"], raw["chunkId"], raw["sourceId"], raw,
        )  # fmt: skip

    def cells(self) -> dict[str, str]:
        """Return its row of a table: heading -> text."""
        passage = cut_to(" ".join(self.text.split()), 160)
        return {"score": f"{self.score:.0f}", "title": self.title, "passage": passage, "place": self.place}


@dataclass(frozen=True, slots=True)
class Source:
    """A document of the file."""

    title: str
    path: str | None
    collection: str
    kind: str
    """`docs`, `website`, `text`, ..."""
    chunks: int
    updated: str
    """ISO 8601, UTC."""
    freshness: str
    metadata: Mapping[str, Any]
    id: str
    raw: Json = _raw()

    @classmethod
    def from_answer(cls, raw: Json) -> Source:
        keys = ("collection", "sourceType", "chunkCount", "updatedAt", "freshness", "metadata", "id")
        return cls(raw["title"], raw.get("path"), *(raw[key] for key in keys), raw=raw)

    def cells(self) -> dict[str, str]:
        """Return its row of a table: heading -> text."""
        counted = {"title": self.title, "collection": self.collection, "passages": str(self.chunks)}
        return {**counted, "updated": self.updated[:10], "path": self.path or ""}


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document."""

    title: str
    text: str = field(repr=False)
    path: str | None
    metadata: Mapping[str, Any]
    id: str
    raw: Json = _raw()
    """As `get_document` gives it, without the text of further calls."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Context:
    """The passages around a hit; `text` is all of them joined."""

    title: str
    text: str = field(repr=False)
    passages: tuple[str, ...] = field(repr=False)
    place: str
    raw: Json = _raw()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a task needs."""

    text: str
    category: str
    relevance: float
    """0..1; 1 for a rule that holds for every task."""
    id: int | str
    """A number; that of a rule in a mounted file has the file's name before it: `team:5`."""
    raw: Json = _raw()

    def cells(self) -> dict[str, str]:
        """Return its row of a table: heading -> text."""
        return {"relevance": f"{self.relevance:.2f}", "category": self.category, "rule": self.text}


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A short guide that fits."""

    name: str
    title: str
    description: str
    score: int
    match: str
    """`exact_match`, `partial_match`, `fuzzy_match` or `fallback_match`."""
    raw: Json = _raw()

    def cells(self) -> dict[str, str]:
        """Return its row of a table: heading -> text."""
        return {"score": str(self.score), "title": self.title, "description": self.description}


Item = TypeVar("Item", Hit, Source, Rule, Quickstart)


class Results(list[Item], Generic[Item]):
    """A list that a notebook shows as a table. `pandas.DataFrame(results)` takes it as it is."""

    def __init__(self, items: Iterable[Item], *, raw: Json | None = None, notices: Sequence[str] = ()) -> None:
        super().__init__(items)
        self.raw: Json = raw or {}
        """What the tool said besides: repaired words, weights, a message."""
        self.notices = tuple(notices)
        """Sentences for the person, such as that the model was not there and only words were compared."""

    def __repr__(self) -> str:
        rows = ("  ".join(filter(None, result.cells().values())) for result in self)
        lines = [f"{number}. {row}" for number, row in enumerate(rows, 1)]
        text = "\n".join([*lines, *self.notices]) or str(self.raw.get("message") or "nothing found")
        return visible(text, newlines=True)

    def _repr_html_(self) -> str:
        """Return the table that notebooks show."""
        if not self:
            return f"<p>{html.escape(repr(self))}</p>"
        rows = [[f"<th>{head}</th>" for head in self[0].cells()]]
        rows += [[f"<td>{html.escape(cell)}</td>" for cell in result.cells().values()] for result in self]
        notices = "".join(f"<p>{html.escape(notice)}</p>" for notice in self.notices)
        return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + f"</table>{notices}"
