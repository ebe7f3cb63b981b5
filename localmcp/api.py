"""The Python API: `localmcp.open(file)` gives one open file, with a method for each thing people do with it.

Results are small typed objects, because a notebook completes and prints them; each keeps the dict that the tool of the
same name gives an assistant in `raw`, so that nothing is lost. Methods raise the errors of `localmcp.errors`.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from localmcp.errors import LocalMCPError, ModelUnavailable, NotFound
from localmcp.tools import Scope
from localmcp.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from localmcp.knowledge.report import ProgressCallback, Report

Json = dict[str, Any]
Mode = Literal["hybrid", "semantic", "keyword"]

CALLER = "python"
SHOWN_CHARACTERS = 160
SOURCES_AT_ONCE = 500


# ---------------------------------------------------------------- results


def _raw() -> Any:
    return field(repr=False, compare=False, default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers."""

    title: str
    text: str = field(repr=False)
    score: float
    """0..100: 0.7 of meaning and 0.3 of words, or as the file's own measured weights say."""
    semantic: float = field(repr=False)
    keyword: float = field(repr=False)
    match: str
    """`both`, `semantic_only` or `keyword_only`."""
    place: str
    """Where it stands, for people: `path:line`, or `path p. 3`, or the title."""
    path: str | None = field(repr=False)
    """The file; None for a text that came from none."""
    collection: str = field(repr=False)
    freshness: str = field(repr=False)
    """Whether the file is `fresh`, `changed` or `missing` since it was read, or `unverifiable`."""
    metadata: Mapping[str, Any] = field(repr=False)
    id: str = field(repr=False)
    source_id: str = field(repr=False)
    raw: Json = _raw()

    def cells(self) -> tuple[str, ...]:
        return f"{self.score:.0f}", self.title, _shortened(self.text), self.place


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
    freshness: str = field(repr=False)
    metadata: Mapping[str, Any] = field(repr=False)
    id: str = field(repr=False)
    raw: Json = _raw()

    def cells(self) -> tuple[str, ...]:
        return self.title, self.collection, str(self.chunks), self.updated[:10], self.path or ""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document."""

    title: str
    text: str = field(repr=False)
    path: str | None
    metadata: Mapping[str, Any] = field(repr=False)
    id: str = field(repr=False)
    raw: Json = _raw()
    """As `get_document` gives it, without the text of further calls."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Context:
    """The passages around a hit."""

    title: str
    text: str = field(repr=False)
    """They joined."""
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
    id: int
    raw: Json = _raw()

    def cells(self) -> tuple[str, ...]:
        return f"{self.relevance:.2f}", self.category, self.text


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

    def cells(self) -> tuple[str, ...]:
        return str(self.score), self.title, self.description


Item = TypeVar("Item", Hit, Source, Rule, Quickstart)

HEADS: Mapping[str, tuple[str, ...]] = {
    "Hit": ("score", "title", "passage", "place"),
    "Source": ("title", "collection", "passages", "updated", "path"),
    "Rule": ("relevance", "category", "rule"),
    "Quickstart": ("score", "title", "description"),
}


class Results(list[Item], Generic[Item]):
    """A list that a notebook shows as a table. `pandas.DataFrame(results)` takes it as it is."""

    def __init__(self, items: Iterable[Item] = (), *, raw: Json | None = None, notices: Sequence[str] = ()) -> None:
        super().__init__(items)
        self.raw: Json = raw or {}
        """What the tool said besides: repaired words, weights, a message."""
        self.notices = tuple(notices)
        """Sentences for the person, such as that the model was not there and only words were compared."""

    def __repr__(self) -> str:
        lines = [f"{number}. " + "  ".join(filter(None, each.cells())) for number, each in enumerate(self, 1)]
        return "\n".join([*lines, *self.notices]) or str(self.raw.get("message") or "nothing found")

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        if not self:
            return f"<p>{html.escape(repr(self))}</p>"
        head = "".join(f"<th>{each}</th>" for each in HEADS[type(self[0]).__name__])
        rows = "".join(_table_row(each.cells()) for each in self)
        notices = "".join(f"<p>{html.escape(each)}</p>" for each in self.notices)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notices}"


def _table_row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in cells)}</tr>"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


# ---------------------------------------------------------------- the file


class KnowledgeFile:
    """One open localmcp file. Thread-safe; several processes may have the same file open."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        """Everything below this API: registry, library, index, settings. Less stable than the methods here."""

    @property
    def path(self) -> str:
        """Where the file is."""
        return str(self.workspace.database.path)

    # ------------------------------------------------------------ in

    def add(
        self,
        *paths: str | os.PathLike[str],
        collection: str | None = None,
        partition: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> Report:
        """Add files, and folders with everything in them; what has not changed is not read again.

        Returns:
            how many files were `indexed`, `updated`, `unchanged`, `skipped`, `failed`, and the `problems`.

        Raises:
            NotFound: none of the paths exists.
            ModelMismatch: the collection's vectors come from another model.
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
        """Add a text that comes from no file; returns the id of its source.

        Raises:
            InvalidInput: the title stands for another text already, and `replace` is false.
        """
        added = self.workspace.library.add_text(
            text, title, collection=collection, metadata=metadata, replace=replace
        )  # fmt: skip
        return added.uuid

    def refresh(self) -> Report:
        """Look at everything that was added again: new, changed, moved and deleted files.

        Raises:
            NeedsConfirmation: so many files are gone that it looks like a disk that is not mounted.
        """
        return self.workspace.library.refresh()

    def remove(self, *targets: str) -> int:
        """Put documents into the trash, by id, path or title; how many.

        Raises:
            NotFound: nothing known; nothing was removed.
        """
        return self.workspace.library.remove(targets).removed

    # ------------------------------------------------------------ out

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
        """The passages that answer best, by meaning and by word. The first search waits until the model is loaded.

        Args:
            limit: 1..100.
            path: only files below this folder.
            metadata: keys and the values that documents must have.
            explain: `raw` says why each ranks where it does.

        Raises:
            InvalidInput: an empty query, or a limit out of range.
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
        hits = [_hit(each) for each in answer["results"]]
        return Results(hits, raw=answer, notices=[*answer.get("notices", []), *_repairs(answer)])

    def context(self, hit: Hit | str, window: int = 2) -> Context:
        """The passages before and after a hit, `window` (0..50) on each side.

        Raises:
            NotFound: there is no such passage.
        """
        answer = self.call("get_context", chunkId=hit if isinstance(hit, str) else hit.id, window=window)
        passages = tuple(str(each["content"]) for each in answer["chunks"])
        return Context(
            answer["sourceTitle"], answer["concatenatedContent"], passages, answer["citation"]["label"], answer
        )  # fmt: skip

    def document(self, source: Source | Hit | str) -> Document:
        """A whole document: by a hit or source, or by id, path or title.

        Raises:
            NotFound: there is none.
        """
        wanted = source if isinstance(source, str) else _id_of(source)
        answer = self.call("get_document", sourceId=wanted)
        if "source" not in answer:
            raise NotFound(str(answer.get("message") or f"There is no document '{wanted}'."), hint=answer.get("hint"))
        first, texts = answer["source"], [str(answer["source"]["content"])]
        while answer["truncated"]:
            answer = self.call("get_document", sourceId=first["id"], offset=answer["nextOffset"])
            texts.append(str(answer["source"]["content"]))
        return Document(first["title"], "".join(texts), first.get("path"), first["metadata"], first["id"], first)

    def sources(self, collection: str | None = None) -> Results[Source]:
        """Every document, newest first."""
        found: list[Source] = []
        while True:
            answer = self.call("list_sources", collection=collection, limit=SOURCES_AT_ONCE, offset=len(found))
            found += [_source(each) for each in answer["sources"]]
            if len(found) >= answer["total"] or not answer["sources"]:
                return Results(found, raw={"total": answer["total"]})

    def rules(self, task: str, *, limit: int | None = None, files: Sequence[str] | None = None) -> Results[Rule]:
        """The rules that a task needs, those that hold for every task at the end.

        Raises:
            LocalMCPError: the task is empty, or the model cannot be loaded.
        """
        answer = self.call(
            "getRelevantRules", taskDescription=task, maxResults=limit, files=list(files) if files else None
        )  # fmt: skip
        rules = [
            Rule(each["rule_text"], each["category"], each["relevance_score"], each["id"], each)
            for each in answer["rules"]
        ]
        standing = [Rule(each["rule_text"], "always", 1.0, each["id"], each) for each in answer.get("always", [])]
        return Results([*rules, *standing], raw=answer, notices=answer.get("notices", []))

    def quickstarts(self, text: str, limit: int = 10) -> Results[Quickstart]:
        """Short guides by name, title or description, with typos forgiven; what does not fit is not returned."""
        answer = self.call("searchQuickstarts", name=text, displayName=text, description=text, limit=limit)
        found = [
            Quickstart(each["name"], each["displayName"], each["description"], each["score"], each["matchType"], each)
            for each in answer["results"]
        ]
        return Results(found, raw=answer)

    def call(self, tool: str, /, **arguments: Any) -> Json:
        """Call any tool as an assistant does, the hidden ones and those of other servers too; its structured result.

        Arguments that are None are left out.

        Raises:
            UnknownTool: no tool of that name; names the nearest.
            InvalidInput: the arguments do not fit.
            LocalMCPError: the tool reports an error.
        """
        given = {name: value for name, value in arguments.items() if value is not None}
        answer = self.workspace.registry.call(tool, given, Scope(caller=CALLER))
        if answer.is_error:
            raise LocalMCPError(str(answer.value.get("error") or answer.text or f"{tool} failed."))
        return answer.value or {"content": list(answer.content or ())}

    # ------------------------------------------------------------ life

    def close(self) -> None:
        """Close the file; the object can be used again, and then reopens it."""
        self.workspace.close()

    def __enter__(self) -> KnowledgeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<localmcp {self.path}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Programs written for the workspace itself go on working; type checkers see only what is stable.
            if name.startswith("_") or name == "workspace":
                raise AttributeError(name)
            return getattr(self.workspace, name)


def open_file(path: str | os.PathLike[str] | None = None, **settings: Any) -> KnowledgeFile:
    """Open a localmcp file, which is made if it is not there; the default one for None.

    Args:
        settings: those of `config.toml`, such as `model="hash"`.

    Raises:
        ConfigurationError: a setting that cannot be used.
    """
    return KnowledgeFile(open_workspace(path, **settings))


# ---------------------------------------------------------------- from the tools' words


def _id_of(source: Source | Hit | str | None) -> str | None:
    if source is None or isinstance(source, str):
        return source
    return source.source_id if isinstance(source, Hit) else source.id


def _hit(raw: Json) -> Hit:
    return Hit(
        title=raw["sourceTitle"],
        text=raw["content"],
        score=raw["combinedScore"],
        semantic=raw["semanticScore"],
        keyword=raw["keywordScore"],
        match=raw["matchType"],
        place=raw["citation"]["label"],
        path=raw["citation"].get("path"),
        collection=raw["collection"],
        freshness=raw["freshness"],
        metadata=raw["metadata"],
        id=raw["chunkId"],
        source_id=raw["sourceId"],
        raw=raw,
    )


def _source(raw: Json) -> Source:
    return Source(
        title=raw["title"],
        path=raw.get("path"),
        collection=raw["collection"],
        kind=raw["sourceType"],
        chunks=raw["chunkCount"],
        updated=raw["updatedAt"],
        freshness=raw["freshness"],
        metadata=raw["metadata"],
        id=raw["id"],
        raw=raw,
    )


def _repairs(answer: Json) -> list[str]:
    repairs = cast("list[Json]", answer.get("repairs", []))
    return [f"'{each['word']}' stands nowhere; searched for '{each['replacement']}'." for each in repairs]
