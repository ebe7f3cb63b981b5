"""The tool `search` (S3-4): passages that answer, with their scores, their place and why they were found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from localmcp.errors import InvalidInput
from localmcp.index.candidates import ARM_DEPTH, Hit, Mode, SearchOutcome, SearchRequest
from localmcp.index.collections import visible_ids
from localmcp.index.dates import parse_range
from localmcp.index.federation import Federation
from localmcp.index.filters import Filters
from localmcp.index.fusion import MatchType
from localmcp.index.index import Index
from localmcp.index.keyword import Term, inverse_frequency
from localmcp.index.relevance import has_digit, unmentioned
from localmcp.library.answers import excerpt_around, excerpts, lean_search
from localmcp.library.citations import Citation, Freshness, check_freshness, cite
from localmcp.library.names import explain_empty_filter, parse_collection, resolve_source, shown_id
from localmcp.library.result_order import WINDOW, fitting, group_by_document, spread
from localmcp.readers.signals import signals
from localmcp.storage.database import fetch_one
from localmcp.tools import Param, current_scope, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold, stop_words

SEARCH_CHARS = 6_000
"""Characters of passages that a language model gets unless it asks for more."""
GROUPED_HITS, DEEP_HITS = ARM_DEPTH - 1, 1000
"""Passages that are grouped at first: one more, and all are looked for deeper."""
GROUPED_CHARS = 120
"""Characters of a passage that represents its document where a language model reads it."""
MOST_ABSENT = 3
"""Words of a question that are named because no document holds them."""
NO_DOCUMENTS = "There are no documents yet. They are added with: localmcp add FOLDER"
NOTHING_FOUND = "No relevant results found. Try rephrasing your query or using a different search mode."
MODES = ("hybrid", "semantic", "keyword")


class Highlight(TypedDict):
    """The sentence that answers: its place in `content`, in code points."""

    start: int
    stop: int


class SearchHit(TypedDict):
    """A passage that answers (S3-4)."""

    id: str
    chunkId: str
    sourceId: str
    sourceTitle: str
    sourceType: str
    content: str
    chunkIndex: int
    chunkTotal: int
    semanticScore: float
    keywordScore: float
    combinedScore: float
    date: NotRequired[str]
    """Of the document, ISO 8601."""
    dateFrom: NotRequired[str]
    """Where the date is from: a part of the document, `file` for when it was changed, or `added`."""
    relevance: int
    """How likely it answers, 0..100: above 50 it probably does. Hits of different searches can be compared by it."""
    matchType: MatchType
    collection: str
    partition: NotRequired[str]
    highlight: NotRequired[Highlight]
    excerpt: NotRequired[str]
    """What the text for a language model shows of the passage, if not all."""
    citation: Citation
    freshness: Freshness
    metadata: dict[str, Any]
    origin: NotRequired[str]
    """Name of the mounted file; absent for yours."""
    alsoIn: NotRequired[list[str]]
    """Paths of copies of the document: files with the same bytes and title."""
    signals: NotRequired[list[str]]
    """What is suspicious in the text: hidden characters, imitated instructions."""
    morePassages: NotRequired[int]
    """With groupBy: how many more passages of this document answer."""
    explain: NotRequired[dict[str, Any]]
    """Per arm: rank, raw score, score, weight; the words that matched; the language."""


class Repaired(TypedDict):
    """A word that is in no passage, and the one that was searched for instead."""

    word: str
    replacement: str


class SearchResult(TypedDict):
    """The answer of `search`."""

    query: str
    mode: Mode
    count: int
    results: list[SearchHit]
    message: NotRequired[str]
    notices: NotRequired[list[str]]
    repairs: NotRequired[list[Repaired]]
    didYouMean: NotRequired[str]
    nextCursor: NotRequired[str]
    lowConfidence: NotRequired[bool]
    absentWords: NotRequired[list[str]]
    """For a language model: words of the question that no document holds."""
    coverage: NotRequired[float]
    """Share of the passages searched whose meaning was read, 0..1; absent when all were."""
    weights: dict[str, float]
    explain: NotRequired[dict[str, Any]]


def mode_or_hybrid(_name: str, value: Any) -> Any:
    """Return the mode; an unknown one means hybrid, as in the original."""
    return value if value in MODES else "hybrid"


class PassageSearch:
    """Searches what was ingested."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.database = federation.own.database

    @tool(
        "search",
        title="Search the knowledge base",
        keywords=("find", "documents", "passages", "knowledge", "lookup", "question", "rag"),
        examples=(
            "search my documents|notes|files for {query}",
            "find {query} in my notes|documents|files",
            "what do my documents|notes say about {query}",
            "look up {query} in the knowledge base",
            "which documents mention|contain {query}",
            "what is written about {query} in my documents",
            "look up {query} in my docs|notes",
            "where in my files|documents is {query}",
            "search {query} in collection {collection}",
            "{query} in the collection {collection}",
            "look in the knowledge base for {query}",
            "find my notes|documents|files about|on {query}",
            "show|get the note|document about|on {query}",
            "is there anything in my notes|documents about|on {query}",
            "which notes|documents|files talk about {query}",
            "where did I write about {query}",
            "do I have anything about|on {query}",
            "search for {query}",
        ),
        accepts={"mode": mode_or_hybrid, "limit": integer_or_string, "maxChars": integer_or_string},
        says={"query required": "Query parameter is required"},
        lean=lean_search,
    )
    def search(
        self,
        query: Annotated[str, Param("Question or words", max_length=20_000)],
        limit: Annotated[int, Param("Results", minimum=1, maximum=100)] = 5,
        mode: Annotated[
            Literal["hybrid", "semantic", "keyword"],
            Param("hybrid; semantic for paraphrases; keyword for names, codes, acronyms"),
        ] = "hybrid",
        collection: Annotated[str | None, Param("Only this collection")] = None,
        partition: Annotated[str | None, Param("Only this partition")] = None,
        sourceId: Annotated[str | None, Param("Only this document: id, path or title")] = None,
        sourceType: Annotated[str | None, Param("text, website, docs, qa or notion")] = None,
        pathPrefix: Annotated[str | None, Param("Only files below this folder")] = None,
        metadata: Annotated[dict[str, Any] | None, Param("Keys and the values they must have")] = None,
        since: Annotated[str | None, Param("Documents dated from: ISO date, 30d, last week")] = None,
        until: Annotated[str | None, Param("Documents dated to")] = None,
        sort: Annotated[Literal["relevance", "newest"], Param("Order")] = "relevance",
        cursor: Annotated[str | None, Param("nextCursor of the last page")] = None,
        explain: Annotated[bool, Param("Say why each result ranks where it does")] = False,
        groupBy: Annotated[Literal["document"] | None, Param("One passage of each document")] = None,
        maxChars: Annotated[int | None, Param("Characters of passages; default 6000", minimum=200)] = None,
    ) -> SearchResult:
        """Search the user's own documents, notes, manuals and code by meaning and by word; returns the passages that
        answer best, each with its source, place and scores 0..100. Read around a hit with get_context."""
        if not query.strip():
            raise InvalidInput("Query parameter is required")
        origin, name = parse_collection(collection)
        source = resolve_source(self.federation, "sourceId", sourceId, origin, name) if sourceId else None
        first, after = parse_range(since, until)
        filters = Filters(
            partitions=(partition,) if partition else (),
            source_ids=(str(source.uuid),) if source else (),
            source_types=(sourceType,) if sourceType else (),
            path_prefix=pathPrefix or None,
            metadata=metadata or {},
            since=first,
            until=after,
        )
        names = (name,) if name else None
        origin = origin or (source.origin if source else None)
        lean = current_scope().lean
        page = _Page(query, mode, groupBy, sort, (names, filters, origin) if origin else (names, filters))
        request = SearchRequest(query, mode, limit, page.offset(cursor), names, filters, sort=sort)
        outcome, more = self._page(request, origin, grouped=groupBy is not None)
        budget = maxChars or (SEARCH_CHARS if lean else None)
        texts = [hit.passage.text[: GROUPED_CHARS if groupBy else None] for hit in outcome.hits]
        outcome.hits = outcome.hits[: fitting(texts, budget)]
        result = _search_result(request, outcome, page, explain, self.database.adopted)
        if groupBy:
            for hit in result["results"]:
                hit["morePassages"] = more.get(hit["sourceId"], 0)
                _cut(hit, GROUPED_CHARS if lean else None)
        elif len(outcome.hits) == 1:
            _cut(result["results"][0], budget)
        elif outcome.hits and lean and maxChars is None and not explain:
            _add_excerpts(result["results"], outcome, request.offset)
        if lean and (absent := _absent_words(query, outcome)):
            result["absentWords"] = absent[:MOST_ABSENT]
        if not outcome.hits:
            self._explain_nothing(result, filters, origin)
        return result

    def _explain_nothing(self, result: SearchResult, filters: Filters, origin: str | None) -> None:
        def explain_filters(index: Index, _: str | None) -> str:
            with index.database.read() as connection:
                return " ".join(explain_empty_filter(connection, filters))

        if filters:
            result["message"] = next(self.federation.look(explain_filters, origin), "") or NOTHING_FOUND
        if not any(self.federation.look(_holds_document)):
            result["notices"] = [*result.get("notices", ()), NO_DOCUMENTS]

    def _page(
        self, request: SearchRequest, origin: str | None, *, grouped: bool
    ) -> tuple[SearchOutcome, dict[str, int]]:
        """Return one page of hits; with `grouped`, the best of each document and how many more each has."""
        end = request.offset + request.limit
        if grouped:
            outcome = self.federation.search(replace(request, limit=GROUPED_HITS, offset=0), origin)
            best, more = group_by_document(outcome.hits)
            if len(best) <= end and outcome.total > len(outcome.hits):
                # One long document can fill the first hundred places.
                outcome = self.federation.search(replace(request, limit=DEEP_HITS, offset=0), origin)
                best, more = group_by_document(outcome.hits)
            outcome.hits, outcome.total = best[request.offset : end], len(best)
            return outcome, more
        if not current_scope().lean or request.filters.source_ids or request.offset >= WINDOW:
            return self.federation.search(request, origin), {}
        outcome = self.federation.search(replace(request, limit=max(WINDOW, end), offset=0), origin)
        outcome.hits = spread(outcome.hits)[request.offset : end]
        return outcome, {}


# ---------------------------------------------------------------- search results


class _Page:
    """Opaque cursors that belong to one query."""

    def __init__(self, *question: Any) -> None:
        self.digest = hashlib.blake2b(repr(question).encode("utf-8", "replace"), digest_size=3).hexdigest()

    def cursor(self, offset: int) -> str:
        return f"{self.digest}{offset}"

    def offset(self, cursor: str | None) -> int:
        if not cursor:
            return 0
        if match := re.fullmatch(self.digest + r"(\d{1,4})", cursor, re.ASCII):
            return int(match[1])
        raise InvalidInput("cursor: it does not belong to this query; leave it out to start at the first page.")


def _holds_document(index: Index, _origin: str | None) -> bool | None:
    with index.database.read() as connection:
        listed = visible_ids(connection)
        sql = f"select 1 from sources where trashed_at is null and collection_id in ({listed}) limit 1"
        return fetch_one(connection, sql) is not None or None


def _search_result(
    request: SearchRequest, outcome: SearchOutcome, page: _Page, explain: bool, adopted: bool
) -> SearchResult:
    shown = request.offset + len(outcome.hits)
    repairs = outcome.query.repairs if outcome.query else ()
    result = {
        "query": request.text,
        "mode": request.mode,
        "count": len(outcome.hits),
        "results": [_search_hit(hit, explain, adopted) for hit in outcome.hits],
        "weights": {"semantic": outcome.weights.semantic, "keyword": round(outcome.weights.keyword, 6)},
        "message": None if outcome.hits else NOTHING_FOUND,
        "lowConfidence": True if outcome.hits and outcome.doubtful else None,
        "coverage": outcome.coverage if outcome.coverage < 1 else None,
        "notices": outcome.notices or None,
        "repairs": [{"word": r.word, "replacement": r.replacement} for r in repairs] or None,
        "didYouMean": _corrected(request.text, outcome) if repairs else None,
        "nextCursor": page.cursor(shown) if outcome.hits and shown < outcome.total else None,
        "explain": _explanation(outcome) if explain else None,
    }
    return without_none(result)


def _absent_words(text: str, outcome: SearchOutcome) -> list[str]:
    """Return the words of the question that no document holds.

    Only codes where the best hit is in another language, or function words of the question's are not listed.
    """
    query = outcome.query
    if query is None or not outcome.hits:
        return []
    words = [word for word in unmentioned(query, text) if fold(word) not in outcome.hits[0].matched]
    comparable = outcome.hits[0].passage.language in query.languages and all(map(stop_words, query.languages))
    return words if comparable else [word for word in words if has_digit(word)]


def _cut(hit: SearchHit, longest: int | None) -> None:
    best_place = hit["highlight"]["start"] if "highlight" in hit else 0
    content = excerpt_around(hit["content"], longest, best_place)
    if content != hit["content"]:
        hit.pop("highlight", None)  # its place was in the whole passage
    hit["content"] = content


def _add_excerpts(hits: Sequence[SearchHit], outcome: SearchOutcome, offset: int) -> None:
    shown = excerpts(outcome, [hit["relevance"] for hit in hits], offset)
    for hit, excerpt in zip(hits, shown, strict=True):
        hit["excerpt"] = excerpt


def _corrected(text: str, outcome: SearchOutcome) -> str:
    """Return the query with its repairs, every other word as typed."""
    replacements = {r.word: r.replacement for r in outcome.query.repairs} if outcome.query else {}
    return " ".join(replacements.get(fold(word).strip(".,;:!?()\"'"), word) for word in text.split())


def _explanation(outcome: SearchOutcome) -> dict[str, Any]:
    query, searched = outcome.query, outcome.searched
    if current_scope().collections is not None:
        # That the search was narrowed at all shows that there is more in the file.
        searched = {name: count for name, count in searched.items() if name != "sources"}
    explanation = {
        "candidates": outcome.total,
        "searched": searched,
        "milliseconds": outcome.milliseconds,
        "terms": [_explain_term(term, outcome.searched["chunks"]) for term in (query.terms if query else ())],
        "dropped": [{"word": word, "reason": reason} for word, reason in (query.dropped if query else ())],
        "languages": list(query.languages) if query else [],
        "recency": outcome.recency or None,
    }
    return without_none(explanation)


def _explain_term(term: Term, searched_chunks: int) -> dict[str, Any]:
    forms = [" ".join(alternative) for alternative in term.alternatives]
    # The term's own idf counts the whole file, of which the caller may see a part.
    idf = inverse_frequency(term.chunks, searched_chunks)
    return {"word": term.word, "chunks": term.chunks, "idf": round(idf, 3), "searchedAs": forms}


def _shown_relevance(relevance: float) -> int:
    """Round relevance; to tens for a caller bound to collections, as word statistics would tell of the others."""
    bound = current_scope().collections is not None
    return 10 * round(relevance / 10) if bound else round(relevance)


def _search_hit(hit: Hit, explain: bool, adopted: bool) -> SearchHit:
    passage, scores = hit.passage, hit.scores
    adopted = adopted and hit.origin is None
    chunk_id = shown_id(passage.chunk_uuid, hit.origin)
    highlight = hit.highlight
    date, date_from = _date(hit) if hit.date is not None else (None, None)
    fields = {
        "id": chunk_id,
        "chunkId": chunk_id,
        "sourceId": shown_id(passage.source_uuid, hit.origin),
        "sourceTitle": passage.title,
        "sourceType": passage.source_type,
        "content": passage.text.strip(),
        "chunkIndex": passage.position,
        "chunkTotal": passage.chunk_total,
        "semanticScore": round(scores.semantic, 2),
        "keywordScore": round(scores.keyword, 2),
        "combinedScore": round(scores.combined, 2),
        "relevance": _shown_relevance(hit.relevance),
        "matchType": scores.match_type,
        "collection": passage.collection,
        "citation": cite(passage, highlight),
        "freshness": check_freshness(passage.uri, passage.size, passage.mtime_ns, passage.sha256, adopted),
        "metadata": passage.metadata,
        "date": date,
        "dateFrom": date_from,
        "highlight": {"start": highlight[0], "stop": highlight[1]} if highlight else None,
        "partition": passage.partition,
        "origin": hit.origin,
        "alsoIn": [copy.uri for copy in hit.copies if copy.uri] if hit.copies else None,
        "signals": signals(passage.title, passage.headings_json, passage.text) or None,
        "explain": _explain_hit(hit) if explain else None,
    }
    return without_none(fields)


def _explain_hit(hit: Hit) -> dict[str, Any]:
    """Return ranks, scores and weights of both arms, and what the keyword score counts for more."""
    weights = hit.weights
    # bm25 counts the whole file, so its raw value is told only to callers who see all of it.
    raw = {"raw": round(hit.keyword.raw, 4)} if current_scope().collections is None else {}
    reasons = {"another language": hit.scores.for_language}
    added = [{"reason": reason, "points": round(points, 2)} for reason, points in reasons.items() if points >= 0.005]
    return {
        "semantic": {
            "rank": hit.semantic.rank,
            "raw": round(hit.semantic.raw, 4),
            "score": round(hit.scores.semantic, 2),
            "weight": weights.semantic,
        },
        "keyword": {
            "rank": hit.keyword.rank,
            **raw,
            "score": round(hit.scores.keyword, 2),
            "weight": round(weights.keyword, 6),
            **({"added": added} if added else {}),
        },
        "matchedWords": hit.matched,
        "language": hit.passage.language,
    }


def _date(hit: Hit) -> tuple[str, str]:
    """Return the date of the document, and where it is from."""
    own = str(hit.passage.metadata.get("date") or "")
    day = (hit.date or "").removesuffix(" 00:00:00").replace(" ", "T")
    if own[:4].isdigit() and own[4:5] == "-":
        return day, str(hit.passage.metadata.get("dateFrom") or "document")
    return day, "file" if hit.passage.mtime_ns is not None else "added"
