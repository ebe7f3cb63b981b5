"""One search over your file and the files that are mounted beside it.

Each file is searched by itself, with its own index and its own statistics; they meet in the scores. bm25 counts how
rare a word is in one file, so a hit's score is first converted to what it would be if all files were one, by the ratio
of the idf of the words that its file holds. What counts as a full match is then decided over all files.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import apsw

from localmcp.errors import AccessDenied, ConfigurationError, FileUnavailable, Interrupted, LocalMCPError, NotFound
from localmcp.humanize import command_line
from localmcp.index.candidates import (
    ARM_DEPTH,
    WITHOUT_MEANING,
    Found,
    Hit,
    Mode,
    SearchOutcome,
    SearchRequest,
    is_doubtful,
    ordered_by_date,
)
from localmcp.index.collections import visible_collections
from localmcp.index.dates import Dated, load_dates
from localmcp.index.fusion import COSINE_CEILING, Fused
from localmcp.index.index import Index
from localmcp.index.keyword import KeywordQuery, Term, inverse_frequency
from localmcp.index.relevance import LOOKED_AT
from localmcp.index.vector import BEST
from localmcp.storage.database import Database, fetch_all
from localmcp.tools import current_scope

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class MountedFile(Protocol):
    """A file beside yours, read-only."""

    @property
    def name(self) -> str: ...

    @property
    def database(self) -> Database: ...

    def index(self, mode: Mode) -> Index:
        """Return its index, with the model that made its vectors if that is here.

        Raises:
            FileUnavailable: the file cannot be read any more.
        """
        ...


def shown_name(name: str | int, origin: str | None) -> str:
    """Return the name or number of something in a file, with the name of the mounted file before it: `team:deploy`."""
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


class MountSource(Protocol):
    """The source of the mounted files."""

    def files(self) -> tuple[Sequence[MountedFile], Mapping[str, str]]:
        """Return those that can be opened, by name, and name -> a sentence about each that cannot."""
        ...


@dataclass(slots=True)
class _Part:
    """The result of one of the files."""

    ranked: Found
    index: Index
    origin: str | None
    factor: float = 1.0
    """Turns its bm25 scores into those of all files together."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of one of the files."""

    part: _Part | None = None
    """None where it has nothing."""
    notices: Sequence[str] = ()
    missing: NotFound | None = None
    """It is without what was asked for, such as a collection of that name."""


class Federation:
    """Searches your file, and with it what is mounted. Thread-safe."""

    def __init__(self, own: Index, beside: MountSource | None = None) -> None:
        self.own = own
        self._beside = beside

    def mounted(self) -> tuple[Sequence[MountedFile], Mapping[str, str]]:
        """Return the mounted files that the caller may see, and name -> a sentence about each that cannot be opened.

        A caller that is bound to collections sees none: they are collections of your file.
        """
        if self._beside is None or current_scope().collections is not None:
            return (), {}
        return self._beside.files()

    def look(self, look: Callable[[Index, str | None], Result | None], origin: str | None = None) -> Iterator[Result]:
        """Yield what `look(index, name)` gives for your file (name None), then each mounted one; None is left out.

        `origin` names one mounted file alone. Another mounted file that cannot be read is logged and left out.

        Raises:
            NotFound: nothing of that name is mounted.
            FileUnavailable: it cannot be opened.
        """
        if origin is None and (result := look(self.own, None)) is not None:
            yield result
        mounted = self.mounted()[0]
        if origin is not None:
            mounted = [file for file in mounted if file.name == origin] or self._refuse(origin)
        for file in mounted:
            try:
                result = look(file.index("keyword"), file.name)
            except (FileUnavailable, ConfigurationError) as error:
                if origin is not None:
                    raise
                log.warning("%s (mounted) was not read: %s", file.name, error)
                continue
            if result is not None:
                yield result

    def read_mounted(
        self, read: Callable[[MountedFile, apsw.Connection], Result | None], notices: list[str] | None = None
    ) -> list[Result]:
        """Return what `read(file, connection)` gives for each mounted file, by name; None is left out.

        A file that cannot be read, whatever its rows hold, is named in `notices`, or logged where there are none.
        """
        mounted, troubles = self.mounted()
        collected_notices = [] if notices is None else notices
        collected_notices += troubles.values()
        results: list[Result | None] = []
        for file in mounted:
            try:
                with file.database.read() as connection:
                    results.append(read(file, connection))
            except (FileUnavailable, ConfigurationError) as error:
                collected_notices.append(f"{file.name} (mounted) was not searched: {error.message}")
        for sentence in collected_notices if notices is None else ():
            log.warning("%s", sentence)
        return [result for result in results if result is not None]

    def search(self, request: SearchRequest, origin: str | None = None) -> SearchOutcome:
        """Return the best passages of all files; of one mounted file alone with `origin`.

        Raises:
            NotFound: a collection that no file has, or nothing of that name is mounted.
            FileUnavailable: your file, or the one that is named, cannot be read; a mounted one is left out with a
                notice.
        """
        mounted, troubles = self.mounted()
        if origin is not None:
            mounted = [file for file in mounted if file.name == origin] or self._refuse(origin)
        elif not mounted and not troubles:
            return self.own.search(request)
        elif request.collections and self._is_own(request.collections):
            return self.own.search(request)
        answers = [self._ask_own(request)] if origin is None else []
        # One after the other: side by side three packs took as long, and more of the processor.
        for file in mounted:
            # What is farther than ten passages of the files before it need not be compared exactly.
            answers.append(_ask_mounted(file, replace(request, nearest=_nearest(answers))))
        parts = [answer.part for answer in answers if answer.part is not None]
        missing = [answer.missing for answer in answers if answer.missing is not None]
        if not parts and missing:
            raise missing[0]
        notices = [notice for answer in answers for notice in answer.notices]
        return _join(request, [*_respecting_spelling(parts)], [*notices, *troubles.values()])

    def _is_own(self, names: Sequence[str]) -> bool:
        """Return whether one of the names is a collection of your own file, which wins over mounted ones."""
        with self.own.database.read() as connection:
            own_names = {collection.name.casefold() for collection in visible_collections(connection)}
        return any(name.casefold() in own_names for name in names)

    def _refuse(self, origin: str) -> list[MountedFile]:
        mounted, troubles = self.mounted()
        if origin in troubles:
            raise FileUnavailable(troubles[origin], hint=f"Put it back, or: localmcp unmount {origin}")
        mounted_names = ", ".join(file.name for file in mounted) or "nothing yet"
        raise NotFound(f"Nothing is mounted as '{origin}'.", hint=f"Mounted: {mounted_names}. See: localmcp mounts")

    def _ask_own(self, request: SearchRequest) -> _Answer:
        try:
            candidates = self.own.find(request)
        except NotFound as error:
            return _Answer(missing=error)
        return (
            _Answer() if candidates is None else _Answer(_Part(candidates, self.own, None), candidates.outcome.notices)
        )


# ---------------------------------------------------------------- asking every file


def _ask_mounted(file: MountedFile, request: SearchRequest) -> _Answer:
    try:
        index = file.index(request.mode)
        candidates = index.find(request)
    except NotFound as error:
        return _Answer(missing=error)
    except Interrupted:
        raise
    except LocalMCPError as error:
        return _Answer(notices=[f"{file.name} (mounted) was not searched: {error.message}"])
    if candidates is None:
        return _Answer()
    notices = [f"{file.name} (mounted): {notice}" for notice in candidates.outcome.notices]
    return _Answer(_Part(candidates, index, file.name), notices)


def _nearest(answers: Sequence[_Answer]) -> dict[str, tuple[float, ...]]:
    """Return the cosines of the ten nearest passages of the files that were asked, by the model's fingerprint."""
    cosines: dict[str, list[float]] = {}
    for part in (answer.part for answer in answers if answer.part is not None):
        cosines.setdefault(part.ranked.model or "", []).extend(part.ranked.arms.nearest)
    return {model: tuple(sorted(of_model, reverse=True)[:BEST]) for model, of_model in cosines.items()}


def _respecting_spelling(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Yield what the files have; a word that is in one of them is not misspelled: who corrected it is asked again."""
    right = {term.word for part in parts for term in _terms(part) if term.repair is None}
    for part in parts:
        wrong = frozenset(term.word for term in _terms(part) if term.repair is not None and term.word in right)
        again = part.index.find(replace(part.ranked.request, unrepaired=wrong)) if wrong else None
        yield part if again is None else _Part(again, part.index, part.origin)


def _terms(part: _Part) -> tuple[Term, ...]:
    return part.ranked.outcome.query.terms if part.ranked.outcome.query else ()


# ---------------------------------------------------------------- putting together


def _join(request: SearchRequest, parts: list[_Part], notices: list[str]) -> SearchOutcome:
    """Return one page of all files' candidates."""
    if request.mode == "semantic":
        # Who asks by meaning alone gets no hits by words, unless no file has others.
        parts = [part for part in parts if part.ranked.mode != "keyword"] or parts
    query = _joined_query(parts)
    _align_meaning(parts)
    full = max((part.factor * part.ranked.best_keyword for part in parts), default=0.0)
    by_meaning = any(part.ranked.mode != "keyword" for part in parts) and request.mode == "hybrid"
    places = max(request.offset + request.limit, ARM_DEPTH if request.by_date else LOOKED_AT)
    ranked = [_distinct(part, _ranked(part, full, by_meaning), places) for part in parts]
    # The first of all are among the first of each; half of them may be copies.
    most = 2 * places
    ordered = sorted(
        (
            (part.ranked.arms.is_deep(fused), -fused.named, -fused.combined, -_raw(part, fused), number, place, fused)
            for number, part in enumerate(parts)
            for place, fused in enumerate(ranked[number][:most])
        ),
        key=lambda candidate: candidate[:6],
    )
    candidates = _without_copies(parts, [(number, fused) for *_, number, _, fused in ordered])
    copies = len(ordered) - len(candidates)
    first, first_few = parts[0].ranked.outcome if parts else SearchOutcome([], 0), candidates[:LOOKED_AT]
    if request.by_date:
        candidates = _by_date(request, parts, candidates, first)
    page = candidates[request.offset : request.offset + request.limit]
    hits = _load(parts, dict.fromkeys((*page, *first_few)), notices)
    return SearchOutcome(
        hits=[hits[candidate] for candidate in page if candidate in hits],
        total=sum(map(len, ranked)) - copies,
        query=query,
        weights=first.weights,
        doubtful=is_doubtful(hits[candidate] for candidate in first_few if candidate in hits),
        notices=notices,
        milliseconds=first.milliseconds,
        coverage=_coverage(parts),
        searched=_searched(parts),
        recency=first.recency,
    )


def _without_copies(parts: Sequence[_Part], candidates: list[tuple[int, Fused]]) -> list[tuple[int, Fused]]:
    """Return each passage of a document that is in several files once, your own where you have it."""
    sql = """
        select chunks.id, sha256, start, stop from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(?))
    """
    places: dict[tuple[int, int], tuple[str, int, int]] = {}
    for number in {number for number, _ in candidates} if len(parts) > 1 else ():
        ids = array("q", [fused.id for owner, fused in candidates if owner == number])
        with suppress(FileUnavailable), parts[number].index.database.read() as connection:
            rows = fetch_all(connection, sql, (apsw.carray(ids),))
            places |= {(number, chunk_id): (sha256, start, stop) for chunk_id, sha256, start, stop in rows}
    first: dict[tuple[str, int, int] | None, int] = {}
    for (number, _), place in sorted(places.items()):
        first.setdefault(place, number)
    return [
        (number, fused) for number, fused in candidates if first.get(places.get((number, fused.id)), number) == number
    ]


def _by_date(
    request: SearchRequest, parts: Sequence[_Part], candidates: list[tuple[int, Fused]], outcome: SearchOutcome
) -> list[tuple[int, Fused]]:
    first = candidates[:ARM_DEPTH]
    dates: dict[tuple[int, int], tuple[str, str]] = {}
    for number in {number for number, _ in first}:
        with parts[number].index.database.read() as connection:
            dates_by_id = load_dates(connection, [fused.id for owner, fused in first if owner == number])
        dates |= {(number, chunk_id): dated for chunk_id, dated in dates_by_id.items()}
    dated = [Dated(fused.combined, *dates.get((number, fused.id), ("", ""))) for number, fused in first]
    order = ordered_by_date(request, dated, outcome)
    return [*(first[number] for number in order), *candidates[ARM_DEPTH:]]


def _ranked(part: _Part, full: float, by_meaning: bool) -> list[Fused]:
    fused = part.ranked.order(full / part.factor)
    if not by_meaning or part.ranked.mode != "keyword":
        return fused
    return [replace(candidate, combined=WITHOUT_MEANING * candidate.combined) for candidate in fused]


def _distinct(part: _Part, fused: list[Fused], places: int) -> list[Fused]:
    """Return a file's candidates without its own copies; all of them where it cannot be read, which loading says."""
    with suppress(FileUnavailable), part.index.database.read() as connection:
        return part.ranked.without_copies(connection, fused, places)
    return fused


def _raw(part: _Part, fused: Fused) -> float:
    """Return what decides between two full scores: the arm's own number."""
    arms = part.ranked.arms
    if part.ranked.mode == "semantic":
        return arms.cosines.get(fused.id, 0.0)
    return part.factor * arms.bm25.get(fused.id, 0.0) if part.ranked.mode == "keyword" else 0.0


def _load(
    parts: Sequence[_Part], page: Collection[tuple[int, Fused]], notices: list[str]
) -> dict[tuple[int, Fused], Hit]:
    """Return the hits of these candidates, each file read once; a mounted file that cannot be read gives none."""
    hits: dict[tuple[int, Fused], Hit] = {}
    for number in {number for number, _ in page}:
        part = parts[number]
        try:
            with part.index.database.read() as connection:
                for hit in part.ranked.load(connection, [fused for owner, fused in page if owner == number]):
                    hits[number, hit.scores] = replace(hit, origin=part.origin)
        except FileUnavailable as error:
            if part.origin is None:
                raise
            notices.append(f"{part.origin} (mounted) has hits that cannot be read: {error.message}")
    return hits


def _coverage(parts: Sequence[_Part]) -> float:
    """Return the share of all files' passages that have vectors."""
    chunks = [part.ranked.outcome.searched.get("chunks", 0) for part in parts]
    covered = sum(count * part.ranked.outcome.coverage for count, part in zip(chunks, parts, strict=True))
    return round(covered / sum(chunks), 4) if sum(chunks) else 1.0


def _searched(parts: Sequence[_Part]) -> dict[str, int]:
    total: dict[str, int] = {"files": len(parts), "chunks": 0}
    for part in parts:
        for name, number in part.ranked.outcome.searched.items():
            total[name] = total.get(name, 0) + number
    return total


# ---------------------------------------------------------------- words


def _joined_query(parts: Sequence[_Part]) -> KeywordQuery | None:
    """Return the query with its words counted over all files; sets the factor of each file."""
    queries = [part.ranked.outcome.query for part in parts]
    asked = [(part, query) for part, query in zip(parts, queries, strict=True) if query is not None]
    if not asked:
        return None
    total = sum(part.ranked.outcome.searched.get("chunks", 0) for part, _ in asked)
    terms: dict[str, list[Term]] = {}
    for _, query in asked:
        here: dict[str, list[Term]] = {}
        for term in query.terms:
            here.setdefault(term.word, []).append(term)
        for word, repeated in here.items():
            counted = terms.get(word)
            terms[word] = repeated if counted is None else [_added(term, repeated[0]) for term in counted]
    joined = {
        word: [replace(term, idf=inverse_frequency(term.chunks, total)) for term in same]
        for word, same in terms.items()
    }
    for part, query in asked:
        part.factor = _factor(query, joined)
    dropped = dict.fromkeys(dropped for _, query in asked for dropped in query.dropped if dropped[0] not in joined)
    return KeywordQuery(
        tuple(term for same in joined.values() for term in same),
        tuple(dict.fromkeys(language for _, query in asked for language in query.languages)),
        tuple(dropped),
        inverse_frequency(0, total),
    )


def _added(first: Term, second: Term) -> Term:
    """Return a word counted in two files."""
    alternatives = tuple(dict.fromkeys((*first.alternatives, *second.alternatives)))
    repair = first.repair if second.repair is not None else None
    return Term(first.word, alternatives, first.chunks + second.chunks, first.idf, repair)


def _factor(query: KeywordQuery, joined: dict[str, list[Term]]) -> float:
    """Return how much rarer the words of this file are in all files together than in this one."""
    here = sum(term.idf for term in query.terms)
    together = sum(joined[term.word][0].idf for term in query.terms)
    return together / here if here > 0 else 1.0


# ---------------------------------------------------------------- meaning


def _align_meaning(parts: Sequence[_Part]) -> None:
    """Stretch cosines of other models to the range of the first one.

    The range is from the weakest of the hundred nearest to 1.
    """
    asked = [part for part in parts if part.ranked.arms.semantic_ranks]
    if not asked:
        return
    first = asked[0]
    for part in asked[1:]:
        if part.ranked.model != first.ranked.model:
            _stretch(part, _weakest(part), _weakest(first))


def _weakest(part: _Part) -> float:
    arms = part.ranked.arms
    return min(min(arms.cosines.get(chunk_id, 0.0) for chunk_id in arms.semantic_ranks), COSINE_CEILING / 2)


def _stretch(part: _Part, theirs: float, ours: float) -> None:
    def moved(cosine: float) -> float:
        return ours + (cosine - theirs) * (1 - ours) / (1 - theirs)

    arms = part.ranked.arms
    arms.cosines = {chunk_id: moved(cosine) for chunk_id, cosine in arms.cosines.items()}
    part.ranked.floor = moved(part.ranked.floor)
