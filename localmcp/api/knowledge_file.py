"""The Python API: one open file, with a method for each thing people do with it, and small typed results.

Methods raise the errors of `localmcp.errors`. A notebook completes and prints results; each keeps in `raw` the dict
that the tool of the same name gives an assistant.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from localmcp.errors import LocalMCPError, ModelUnavailable, NotFound
from localmcp.humanize import cut_to
from localmcp.index.fusion import Mode
from localmcp.library.jobs import ProgressCallback, Report
from localmcp.schemas import Json, without_none
from localmcp.tools import Scope
from localmcp.visible_text import visible
from localmcp.workspace import Workspace, open_workspace


def _raw() -> Any:
    return field(repr=False, compare=False, default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers."""

    columns: ClassVar = ("score", "title", "text", "place")
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


@dataclass(frozen=True, slots=True)
class Source:
    """A document of the file."""

    columns: ClassVar = ("title", "collection", "chunks", "updated", "path")
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


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a task needs."""

    columns: ClassVar = ("relevance", "category", "text")
    text: str
    category: str
    relevance: float
    """0..1; 1 for a rule that holds for every task."""
    id: int | str
    """A number; that of a rule in a mounted file has the file's name before it: `team:5`."""
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class Quickstart:
    """A short guide that fits."""

    columns: ClassVar = ("score", "title", "description")
    name: str
    title: str
    description: str
    score: int
    match: str
    """`exact_match`, `partial_match`, `fuzzy_match` or `fallback_match`."""
    raw: Json = _raw()


Item = TypeVar("Item", Hit, Source, Rule, Quickstart)


class Results(list[Item], Generic[Item]):
    """A list that a notebook shows as a table. `pandas.DataFrame(results)` takes it as it is."""

    def __init__(self, items: Iterable[Item], *, raw: Json | None = None, notices: Sequence[str] = ()) -> None:
        super().__init__(items)
        self.raw: Json = raw or {}
        """What the tool said besides: repaired words, weights, a message."""
        self.notices = tuple(notices)
        """Sentences for the person, such as that the model was not there and only words were compared."""

    def _rows(self) -> list[list[str]]:
        def cell(value: Any) -> str:
            text = "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
            return cut_to(" ".join(text.split()), 160)

        return [[cell(getattr(result, column)) for column in result.columns] for result in self]

    def __repr__(self) -> str:
        lines = [f"{number}. {'  '.join(filter(None, row))}" for number, row in enumerate(self._rows(), 1)]
        text = "\n".join([*lines, *self.notices]) or str(self.raw.get("message") or "nothing found")
        return visible(text, newlines=True)

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{html.escape(repr(self))}</p>"
        rows = [[f"<th>{column}</th>" for column in self[0].columns]]
        rows += [[f"<td>{html.escape(cell)}</td>" for cell in row] for row in self._rows()]
        notices = "".join(f"<p>{html.escape(notice)}</p>" for notice in self.notices)
        return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + f"</table>{notices}"


class KnowledgeFile:
    """One open localmcp file. Thread-safe; several processes may have the same file open."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        """Everything below this API: registry, library, index, settings. Less stable than the methods here."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self.workspace.database.path)

    def add(
        self,
        *paths: str | os.PathLike[str],
        collection: str | None = None,
        partition: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Report:
        """Add files, and folders with everything in them; what has not changed is not read again.

        Returns how many files were `indexed`, `updated`, `unchanged`, `skipped`, `failed`, and the `problems`. Raises
        NotFound if none of the paths exists, ModelMismatch if the collection's vectors come from another model.
        """
        return self.workspace.library.add_paths(paths, collection=collection, partition=partition, progress=progress)

    def add_text(
        self,
        text: str,
        title: str = "",
        *,
        collection: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> str:
        """Add a text that comes from no file; return the id of its source. Without `replace`, its title must be new."""
        library = self.workspace.library
        return library.add_text(text, title, collection=collection, metadata=metadata, replace=replace).uuid

    def refresh(self) -> Report:
        """Look at everything that was added again: new, changed, moved and deleted files.

        Raises NeedsConfirmation if so many files are gone that it looks like a disk that is not mounted.
        """
        return self.workspace.library.refresh()

    def remove(self, *targets: str) -> int:
        """Put documents into the trash, by id, path or title, all or (NotFound) none; return how many."""
        return self.workspace.library.remove(targets).removed

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        mode: Mode = "hybrid",
        collection: str | None = None,
        partition: str | None = None,
        source: Source | str | None = None,
        path: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        explain: bool = False,
    ) -> Results[Hit]:
        """Return the best passages, by meaning and by word. The first search waits until the model is loaded.

        `path` is a folder that the files are below, `metadata` keys and the values that documents must have; with
        `explain`, `raw` says why each ranks where it does. Raises InvalidInput for an empty query, or a limit that is
        not 1..100.
        """
        if mode != "keyword":
            # Without a model the search answers by words, and says so.
            with suppress(ModelUnavailable):
                self.workspace.embedder.get()
        answer = self.call(
            "search",
            query=query,
            limit=limit,
            mode=mode,
            collection=collection,
            partition=partition,
            sourceId=_id_of(source),
            pathPrefix=path,
            metadata=dict(metadata) if metadata else None,
            explain=explain,
        )
        repairs: list[Json] = answer.get("repairs", [])
        notices = [f"'{r['word']}' is in no passage; searched for '{r['replacement']}'." for r in repairs]
        notices = [*answer.get("notices", []), *notices]
        return Results([Hit.from_answer(result) for result in answer["results"]], raw=answer, notices=notices)

    def context(self, hit: Hit | str, window: int = 2) -> str:
        """Return the text around a hit, `window` (0..50) passages on each side; raises NotFound."""
        answer = self.call("get_context", chunkId=hit if isinstance(hit, str) else hit.id, window=window)
        return answer["concatenatedContent"]

    def document(self, source: Source | Hit | str) -> str:
        """Return the whole text of a document: by a hit or source, or by id, path or title; raises NotFound."""
        name, texts, answer = _id_of(source), list[str](), Json(truncated=True)
        while answer["truncated"]:
            answer = self.call("get_document", sourceId=name, offset=answer.get("nextOffset"))
            if "source" not in answer:
                raise NotFound(str(answer.get("message") or f"There is no document '{name}'."), hint=answer.get("hint"))
            texts.append(answer["source"]["content"])
        return "".join(texts)

    def sources(self, collection: str | None = None) -> Results[Source]:
        """Return every document, newest first."""
        listed: list[Source] = []
        fields = ("collection", "sourceType", "chunkCount", "updatedAt", "freshness", "metadata", "id")
        while True:
            answer = self.call("list_sources", collection=collection, limit=500, offset=len(listed))
            for item in answer["sources"]:
                values = (item[field] for field in fields)
                listed.append(Source(item["title"], item.get("path"), *values, raw=item))
            if len(listed) >= answer["total"] or not answer["sources"]:
                return Results(listed, raw={"total": answer["total"]})

    def rules(self, task: str, *, limit: int | None = None, files: Sequence[str] | None = None) -> Results[Rule]:
        """Return the rules that a task needs, those that hold for every task at the end; raises LocalMCPError."""
        paths = list(files) if files else None
        answer = self.call("getRelevantRules", taskDescription=task, maxResults=limit, files=paths)
        always = [{**rule, "category": "always", "relevance_score": 1.0} for rule in answer.get("always", [])]
        listed: list[Json] = [*answer["rules"], *always]
        rules = [Rule(r["rule_text"], r["category"], r["relevance_score"], r["id"], r) for r in listed]
        return Results(rules, raw=answer, notices=answer.get("notices", []))

    def quickstarts(self, text: str, limit: int = 10) -> Results[Quickstart]:
        """Return the short guides that fit by name, title or description, with typos forgiven."""
        answer = self.call("searchQuickstarts", name=text, displayName=text, description=text, limit=limit)
        fields = ("name", "displayName", "description", "score", "matchType")
        guides = [Quickstart(*(guide[field] for field in fields), raw=guide) for guide in answer["results"]]
        return Results(guides, raw=answer)

    def call(self, tool: str, /, **arguments: Any) -> Json:
        """Return the structured result of any tool, as an assistant calls it, hidden ones and other servers' too.

        Arguments that are None are left out. Raises UnknownTool (names the nearest), InvalidInput if the arguments do
        not fit, and what the tool itself raises or reports.
        """
        answer = self.workspace.registry.call(tool, without_none(arguments), Scope(caller="python"))
        if not answer.is_error:
            return answer.value or {"content": list(answer.content or ())}
        value = answer.value
        if value.get("hint"):
            # Something that the call names does not exist.
            raise NotFound(str(value.get("message") or value["error"]), hint=str(value["hint"]))
        raise LocalMCPError(str(value.get("error") or answer.text or f"{tool} failed."))

    def close(self) -> None:
        """Close the file; using the object again reopens it."""
        self.workspace.close()

    def __enter__(self) -> KnowledgeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<localmcp {self.path}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Programs written for the workspace itself still work; type checkers see only what is stable.
            if name.startswith("_") or name == "workspace":
                raise AttributeError(name)
            return getattr(self.workspace, name)


def open_file(path: str | os.PathLike[str] | None = None, **settings: Any) -> KnowledgeFile:
    """Open a file, made if it is not there (None: the default one), with settings such as `model="hash"`."""
    return KnowledgeFile(open_workspace(path, **settings))


def _id_of(source: Source | Hit | str | None) -> str | None:
    if source is None or isinstance(source, str):
        return source
    return source.source_id if isinstance(source, Hit) else source.id
