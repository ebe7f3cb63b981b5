"""One search over your file and the files that are mounted beside it.

Each file is searched by itself, with its own index, statistics and model. How likely a hit answers is calibrated, so
hits of several files can be compared by it: they are interleaved by relevance, and each file keeps its own order.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import apsw

from localmcp.errors import AccessDenied, ConfigurationError, FileUnavailable, Interrupted, LocalMCPError, NotFound
from localmcp.humanize import command_line
from localmcp.index.collections import visible_ids
from localmcp.index.keyword import KeywordQuery, Term
from localmcp.index.search import Hit, Index, SearchOutcome, SearchRequest, is_doubtful, shown_order
from localmcp.storage.database import Database
from localmcp.tools import current_scope

log = logging.getLogger(__name__)

Result = TypeVar("Result")

MOST_COPIES = 50
"""Hits beyond a page for those of them that another file has too; no file is asked again, as an index reads on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller is about to read of a file that is elsewhere; with neither, the list of its documents."""

    chunk: str = ""
    """Hex digits with which the id of a passage begins: it, and those around it."""
    document: str | None = None
    """Id, path or title of a document: all its passages."""


class MountedFile(Protocol):
    """A file beside yours, or a collection in Milvus: read-only. FileUnavailable if it cannot be read any more."""

    @property
    def name(self) -> str: ...

    @property
    def database(self) -> Database: ...

    def search(self, request: SearchRequest) -> SearchOutcome:
        """Return the best passages, with the model that made its vectors if that is here; NotFound for a collection."""
        ...

    def index(self, wanted: Wanted | None = None) -> Index:
        """Return an index to read from: of the whole file, or at least of what is wanted."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what is in it: `sources`, `chunks`, `collections`, `quickstarts`, `rules`, `models`, `title`."""
        ...


def shown_name(name: str | int | bytes, origin: str | None) -> str:
    """Return the name, number or UUID (16 bytes) of something, with the mounted file it is in before: `team:deploy`."""
    name = str(uuid.UUID(bytes=name)) if isinstance(name, bytes) else name
    return f"{origin}:{name}" if origin else str(name)


def split_name(shown: str) -> tuple[str | None, str]:
    """Split `team:deploy` into (team, deploy); (None, shown) without a colon. The file need not be mounted."""
    origin, colon, name = shown.partition(":")
    return (origin, name) if colon and origin and name else (None, shown)


def never_changed(target: str, origin: str, file: str = "FILE") -> AccessDenied:
    """Return the error for who wants to change something in a mounted file; `file` is its path."""
    return AccessDenied(
        f"{target} is in {origin} (mounted), which is never changed.",
        hint=f"What it holds is taken into your file with: {command_line('localmcp', 'merge', file)}",
    )


Mounts = Callable[[], tuple[Sequence[MountedFile], Mapping[str, str]]]
"""Returns the mounted files that can be opened, by name, and name -> a sentence about each that cannot."""


class Federation:
    """Searches your file, and with it what is mounted. Thread-safe."""

    def __init__(self, own: Index, beside: Mounts = lambda: ((), {})) -> None:
        self.own = own
        self._beside = beside

    def mounted(self) -> tuple[Sequence[MountedFile], Mapping[str, str]]:
        """Return the mounted files that the caller may see, and name -> a sentence about each that cannot be opened."""
        # Who is bound to collections is bound to those of your file.
        return ((), {}) if current_scope().collections is not None else self._beside()

    def look(
        self, look: Callable[[Index, str | None], Result | None], origin: str | None = None,
        wanted: Wanted | None = None,
    ) -> Iterator[Result]:  # fmt: skip
        """Yield what `look(index, name)` gives for your file (name None), then each mounted one; None is left out.

        `origin` names one mounted file alone (NotFound, FileUnavailable); where all are asked, one that cannot be read
        is logged and left out. Of a collection in Milvus the index holds what is `wanted`.
        """
        for file in self._chosen(origin):
            try:
                result = look(file.index(wanted) if file else self.own, file.name if file else None)
            except (FileUnavailable, ConfigurationError) as error:
                if file is None or origin is not None:
                    raise
                log.warning("%s (mounted) was not read: %s", file.name, error)
            else:
                if result is not None:
                    yield result

    def read_mounted(
        self, read: Callable[[MountedFile, apsw.Connection], Result | None], notices: list[str] | None = None
    ) -> list[Result]:
        """Return what `read` gives for each mounted file, but None; `notices`, or the log, name those not read."""
        mounted, troubles = self.mounted()
        missed, results = list(troubles.values()), list[Result | None]()
        for file in mounted:
            try:
                with file.database.read() as connection:
                    results.append(read(file, connection))
            except (FileUnavailable, ConfigurationError) as error:
                missed.append(f"{file.name} (mounted) was not searched: {error.message}")
        if notices is not None:
            notices += missed
        elif missed:
            log.warning("%s", " ".join(missed))
        return [result for result in results if result is not None]

    def search(self, request: SearchRequest, origin: str | None = None) -> SearchOutcome:
        """Return the best passages of all files; of one mounted file alone with `origin`.

        NotFound for a collection that no file has, or where nothing of that name is mounted; FileUnavailable if your
        file, or the one that is named, cannot be read. Another one is left out with a notice.
        """
        files, troubles = self._chosen(origin), self.mounted()[1]
        if origin is None:
            is_own = files == [None] and not troubles
            if request.collections and not is_own:
                with self.own.database.read() as connection:
                    # A collection of your own file wins over mounted ones.
                    is_own = any(visible_ids(connection, name) for name in request.collections)
            if is_own:
                return self.own.search(request)
        # Passages may be in several files. Documents are varied where the hits of all files stand together.
        wide = request.reach + min(request.reach, MOST_COPIES)
        wider = replace(request, offset=0, limit=wide, spread=False)
        parts, missing, notices = list[tuple[str | None, SearchOutcome]](), list[NotFound](), list[str]()
        # One after the other: side by side three packs took as long, and more of the processor.
        for file in files:
            try:
                outcome = (file or self.own).search(wider)
            except NotFound as error:
                missing.append(error)
            except LocalMCPError as error:
                if file is None or isinstance(error, Interrupted):
                    raise
                notices.append(f"{file.name} (mounted) was not searched: {error.message}")
            else:
                parts.append((file.name if file else None, outcome))
                label = f"{file.name} (mounted): " if file else ""
                notices += [f"{label}{notice}" for notice in outcome.notices]
        if not parts and missing:
            raise missing[0]
        return _join(request, parts, [*notices, *troubles.values()])

    def _chosen(self, origin: str | None) -> list[MountedFile | None]:
        mounted, troubles = self.mounted()
        if origin is None:
            return [None, *mounted]
        if named := [file for file in mounted if file.name == origin]:
            return [*named]
        if origin in troubles:
            raise FileUnavailable(troubles[origin], hint=f"Put it back, or: localmcp unmount {origin}")
        names = ", ".join(file.name for file in mounted) or "nothing yet"
        raise NotFound(f"Nothing is mounted as '{origin}'.", hint=f"Mounted: {names}. See: localmcp mounts")


def _join(
    request: SearchRequest, parts: Sequence[tuple[str | None, SearchOutcome]], notices: list[str]
) -> SearchOutcome:
    # `parts`: the name of each file, None for yours, and what it answered.
    if request.mode == "semantic":
        # Who asks by meaning alone gets no hits by words, unless no file has others.
        parts = [part for part in parts if part[1].hits and not part[1].by_words_only] or parts
    ranked: list[tuple[tuple[float, float, int, int], Hit]] = []
    for number, (name, outcome) in enumerate(parts):
        standing = 100.0
        for place, hit in enumerate(outcome.hits):
            # As low as the least before it, so that a file's hits stay in its own order.
            standing = min(standing, hit.relevance)
            ranked.append(((-hit.scores.named, -standing, place, number), replace(hit, origin=name)))
    placed = [hit for _, hit in sorted(ranked, key=lambda pair: pair[0])]
    # A passage of a document that is in several files is shown once, your own where you have it.
    first: dict[tuple[str, int, int], str] = {}
    places = [(hit.passage.sha256, hit.passage.start, hit.passage.stop) for hit in placed]
    for place, hit in zip(places, placed, strict=True):
        first[place] = min(first.get(place, hit.origin or ""), hit.origin or "")
    hits = [hit for place, hit in zip(places, placed, strict=True) if first[place] == (hit.origin or "")]
    outcomes = [outcome for _, outcome in parts]
    searched = sum((Counter(outcome.searched) for outcome in outcomes), Counter[str]())
    chunks = searched["chunks"]
    covered = sum(outcome.searched.get("chunks", 0) * outcome.coverage for outcome in outcomes)
    joined = replace(
        outcomes[0] if outcomes else SearchOutcome([], 0),
        query=_joined_query([outcome.query for outcome in outcomes if outcome.query]),
        total=sum(outcome.total for outcome in outcomes) - (len(ranked) - len(hits)),
        doubtful=is_doubtful(hits),
        notices=notices,
        searched={"files": len(parts), "chunks": chunks} | searched,
        coverage=round(covered / chunks, 4) if chunks else 1.0,
    )
    order = shown_order(request, [(hit.relevance, hit.passage, hit.origin) for hit in hits], joined)
    joined.hits = [hits[place] for place in order[request.offset : request.offset + request.limit]]
    return joined


def _joined_query(queries: Sequence[KeywordQuery]) -> KeywordQuery | None:
    # Words are counted over all files; what one of them has is not missing.
    if not queries:
        return None
    terms: dict[str, Term] = {}
    for query in queries:
        for word, term in {term.word: term for term in query.terms}.items():
            chunks = terms[word].chunks if word in terms else 0
            terms[word] = replace(terms.get(word, term), chunks=chunks + term.chunks)
    return replace(
        queries[0],
        terms=tuple(terms.values()),
        languages=tuple(dict.fromkeys(language for query in queries for language in query.languages)),
        dropped=tuple(dict.fromkeys(lost for query in queries for lost in query.dropped if lost[0] not in terms)),
    )
