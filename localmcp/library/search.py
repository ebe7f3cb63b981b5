"""The tool `search` (S3-4): passages that answer, with their scores and why."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Any, Literal

import apsw

from localmcp.errors import InvalidInput
from localmcp.files import check_freshness
from localmcp.humanize import counted, quoted
from localmcp.index.collections import visible_collections, visible_ids
from localmcp.index.federation import Federation, shown_name
from localmcp.index.filters import Filters, explain_empty_filter, parse_condition, parse_range
from localmcp.index.fusion import ARM_DEPTH, has_digit, unmentioned
from localmcp.index.keyword import holds, inverse_frequency, matching_paragraphs
from localmcp.index.search import DEEPEST, Hit, Index, SearchOutcome, SearchRequest
from localmcp.library.answers import cite, excerpt_around, lean_search
from localmcp.library.names import resolve_source, spelled
from localmcp.readers.outline import signals
from localmcp.storage.database import fetch_all, fetch_one
from localmcp.tools import Json, Param, current_scope, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold, index_text, stop_words

MOUNT = "mount:"
GROUPED_CHARS = 120
"""Characters of a passage that represents its document where a language model reads it."""
NO_DOCUMENTS = "There are no documents yet. They are added with: localmcp add FOLDER"
NOTHING_FOUND = "No relevant results found. Try rephrasing your query or using a different search mode."


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
        accepts={
            # An unknown mode means hybrid, as in the original.
            "mode": lambda _name, value: value if value in ("semantic", "keyword") else "hybrid",
            "limit": integer_or_string,
            "maxChars": integer_or_string,
        },
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
        sourceType: Annotated[str | None, Param("pdf, docx, md, mail, code, sheet, website, notion")] = None,
        tag: Annotated[str | None, Param("Only with this tag")] = None,
        pathPrefix: Annotated[str | None, Param("Only files below this folder")] = None,
        metadata: Annotated[dict[str, Any] | None, Param("Keys and the values they must have")] = None,
        since: Annotated[str | None, Param("Documents dated from: ISO date, 30d, last week")] = None,
        until: Annotated[str | None, Param("Documents dated to")] = None,
        sort: Annotated[Literal["relevance", "newest"], Param("Order")] = "relevance",
        cursor: Annotated[str | None, Param("nextCursor of the last page")] = None,
        explain: Annotated[bool, Param("Say why each result ranks where it does")] = False,
        groupBy: Annotated[Literal["document"] | None, Param("One passage of each document")] = None,
        maxChars: Annotated[int | None, Param("Characters of passages; default 6000", minimum=200)] = None,
    ) -> Json:
        """Search the user's own documents, notes, manuals and code by meaning and by word; returns the passages that
        answer best, each with its source, place and scores 0..100. Read around a hit with get_context."""
        if not query.strip():
            raise InvalidInput("Query parameter is required")
        origin, name = parse_collection(self.federation, collection)
        source = resolve_source(self.federation, "sourceId", sourceId, origin, name) if sourceId else None
        first, after = parse_range(since, until)
        filters = Filters(
            partitions=(partition,) if partition else (),
            source_ids=(str(source[0]),) if source else (),
            source_types=(sourceType,) if sourceType else (),
            path_prefix=spelled(os.path.expanduser(pathPrefix)) if pathPrefix else None,
            condition=parse_condition({**(metadata or {}), **({"tags": tag} if tag else {})}, "metadata"),
            since=first,
            until=after,
        )
        origin = origin or (source[1] if source else None)
        if cursor and not re.fullmatch(r"\d{1,4}", cursor, re.ASCII):
            raise InvalidInput("cursor: it is none; leave it out to start at the first page.")
        request = SearchRequest(query, mode, limit, int(cursor or 0), (name,) if name else None, filters, sort=sort)
        outcome, more = self._page(request, origin, grouped=groupBy is not None)
        scope = current_scope()
        # A language model gets so many characters of passages unless it asks for more; a person, all of them.
        if budget := maxChars or (6_000 if scope.lean and not scope.trusted else None):
            texts = (hit.passage.text[: GROUPED_CHARS if groupBy else None] for hit in outcome.hits)
            fitting = sum(used <= budget for used in accumulate(map(len, texts)))
            outcome.hits = outcome.hits[: max(fitting, 1)]
        result = self._answer(request, outcome, explain)
        if not outcome.hits:
            return self._explain_nothing(result, filters, origin)
        if groupBy:
            for hit in result["results"]:
                hit["morePassages"] = more.get(hit["sourceId"], 0)
        if scope.lean:
            _shorten(result, outcome, request, is_whole=bool(maxChars or explain))
        return result

    def _answer(self, request: SearchRequest, outcome: SearchOutcome, explain: bool) -> Json:
        own = [hit.passage.source_uuid for hit in outcome.hits if hit.origin is None]
        notices = list(outcome.notices)
        # A search cannot count the rows of long tables; of shorter ones it shows them.
        sql = "select title, tables from sources where tables is not null and uuid in (select value from carray(?))"
        long = list[str]()
        with self.database.read() as connection:
            for title, tables in fetch_all(connection, sql, (apsw.carray(tuple(own[:5])),)) if own else ():
                if rows := [counted(table["rows"], "row") for table in json.loads(tables) if table["rows"] >= 20]:
                    long.append(f"{quoted(title)} ({', '.join(rows[:3])})")
        if long:
            notices.append(f"Tables: {', '.join(long)}. To count or add up their rows: list_tables, query_table.")
        shown = request.offset + len(outcome.hits)
        repairs = outcome.query.repairs if outcome.query else ()
        replacements = {repair.word: repair.replacement for repair in repairs}
        corrected = (replacements.get(fold(word).strip(".,;:!?()\"'"), word) for word in request.text.split())
        result = {
            "query": request.text,
            "mode": request.mode,
            "count": len(outcome.hits),
            "results": [_search_hit(hit, explain, self.database.adopted) for hit in outcome.hits],
            "weights": {"semantic": outcome.semantic_weight, "keyword": round(1.0 - outcome.semantic_weight, 6)},
            "message": None if outcome.hits else NOTHING_FOUND,
            "lowConfidence": True if outcome.hits and outcome.doubtful else None,
            "coverage": outcome.coverage if outcome.coverage < 1 else None,
            "notices": notices or None,
            "repairs": [{"word": r.word, "replacement": r.replacement} for r in repairs] or None,
            "didYouMean": " ".join(corrected) if repairs else None,
            "nextCursor": str(shown) if outcome.hits and shown < outcome.total else None,
            "explain": _explanation(outcome) if explain else None,
        }
        return without_none(result)

    def _explain_nothing(self, result: Json, filters: Filters, origin: str | None) -> Json:
        def look(index: Index, _origin: str | None) -> tuple[bool, str]:
            with index.database.read() as connection:
                sql = f"select 1 from sources where trashed_at is null and collection_id in ({visible_ids(connection)})"
                has_documents = fetch_one(connection, f"{sql} limit 1") is not None
                return has_documents, " ".join(explain_empty_filter(connection, filters)) if filters else ""

        reasons = [*self.federation.look(look)]
        if filters:
            inside = self.federation.look(look, origin) if origin else reasons
            result["message"] = next((message for _, message in inside if message), "") or NOTHING_FOUND
        if not any(has_documents for has_documents, _ in reasons):
            result["notices"] = [*result.get("notices", ()), NO_DOCUMENTS]
        return result

    def _page(
        self, request: SearchRequest, origin: str | None, *, grouped: bool
    ) -> tuple[SearchOutcome, dict[str, int]]:
        # With `grouped`, the best hit of each document, and how many more each has.
        if not grouped:
            # For assistants; and on the command line, so that `--json` has the hits that its text shows.
            scope = current_scope()
            spread = (scope.lean or scope.caller == "cli") and not request.filters.source_ids
            return self.federation.search(replace(request, spread=spread), origin), {}
        # The largest limit for which the arms look no deeper than their first hundred.
        end, depth = request.offset + request.limit, ARM_DEPTH - 1
        while True:
            outcome = self.federation.search(replace(request, limit=depth, offset=0), origin)
            best, more = dict[str, Hit](), Counter[str]()
            for hit in outcome.hits:
                document = shown_name(hit.passage.source_uuid, hit.origin)
                more[document] += document in best
                best.setdefault(document, hit)
            if depth == DEEPEST or len(best) > end or outcome.total <= len(outcome.hits):
                outcome.hits, outcome.total = list(best.values())[request.offset : end], len(best)
                return outcome, more
            # One long document can fill the first hundred places; with one more, all are looked for deeper.
            depth = DEEPEST


def parse_collection(federation: Federation, name: str | None) -> tuple[str | None, str | None]:
    """Return (mounted file, collection) of `mount:NAME`, `mount:NAME/COLLECTION`, a collection, or a mounted file."""
    if not name:
        return None, None
    if name.startswith(MOUNT):
        origin, _, collection = name.removeprefix(MOUNT).partition("/")
        if not origin:
            raise InvalidInput(f"collection: '{name}' names no mounted file; use mount:NAME or mount:NAME/COLLECTION.")
        return origin, collection or None
    if any(file.name == name for file in federation.mounted()[0]):
        with federation.own.database.read() as connection:
            if name.casefold() not in {owner.name.casefold() for owner in visible_collections(connection)}:
                return name, None
    return None, name


def _shorten(result: Json, outcome: SearchOutcome, request: SearchRequest, *, is_whole: bool) -> None:
    # A language model gets an excerpt of each hit unless `is_whole`, and the words of the question that none has.
    hits, query = result["results"], outcome.query
    best = max(hit["relevance"] for hit in hits)
    for place, (hit, ranked) in enumerate(zip(hits, outcome.hits, strict=True), request.offset):
        text, answers_at = hit["content"], hit.get("highlight", {"start": 0})["start"]
        if "morePassages" in hit:
            hit.pop("highlight", None)
            hit["content"] = excerpt_around(text, GROUPED_CHARS, answers_at)
        if is_whole or "morePassages" in hit:
            continue
        # A passage that answers much worse than the best one is only listed, if that probably answers.
        is_weak = hit["relevance"] < 0.35 * best
        if best < 5 or (is_weak and best >= 50):
            text = ""
        elif is_weak or place >= 2:
            # The first two are shown whole, of the others the sentences around the one that answers.
            text = excerpt_around(text, 300, answers_at)
        elif ranked.query is not None:
            title = f" {index_text(hit['sourceTitle'], ranked.passage.language)} "
            # Where the title has all the words, the document as a whole is asked for.
            if not all(holds(title, term) for term in ranked.query.terms):
                start, stop = matching_paragraphs(ranked.query, text, ranked.passage.language)
                text = f"{'… ' if start else ''}{text[start:stop]}{' …' if stop < len(text) else ''}"
        hit["excerpt"] = text
    if query is None:
        return
    # Where the best hit is in another language, or function words are not listed, only codes.
    first = outcome.hits[0]
    words = [word for word in unmentioned(query, request.text) if fold(word) not in first.matched]
    comparable = first.passage.language in query.languages and all(map(stop_words, query.languages))
    if absent := words if comparable else [word for word in words if has_digit(word)]:
        result["absentWords"] = absent[:3]


def _explanation(outcome: SearchOutcome) -> Json:
    query, searched = outcome.query, outcome.searched
    if current_scope().collections is not None:
        # That the search was narrowed at all shows that there is more in the file.
        searched = {name: count for name, count in searched.items() if name != "sources"}
    explanation = {
        "candidates": outcome.total,
        "searched": searched,
        "milliseconds": outcome.milliseconds,
        "terms": [
            {
                "word": term.word,
                "chunks": term.chunks,
                # The term's own idf counts the whole file, of which the caller may see a part.
                "idf": round(inverse_frequency(term.chunks, outcome.searched["chunks"]), 3),
                "searchedAs": list(term.alternatives),
            }
            for term in (query.terms if query else ())
        ],
        "dropped": [{"word": word, "reason": reason} for word, reason in (query.dropped if query else ())],
        "languages": list(query.languages) if query else [],
        "recency": outcome.recency or None,
        # Cosines of the model times the factor, plus the offset, are those of the default model.
        "calibration": {"factor": outcome.calibration.factor, "offset": outcome.calibration.offset},
    }
    return without_none(explanation)


def _search_hit(hit: Hit, explain: bool, adopted: bool) -> Json:
    passage, scores, highlight = hit.passage, hit.scores, hit.highlight
    adopted = adopted and hit.origin is None
    chunk_id = shown_name(passage.chunk_uuid, hit.origin)
    # To tens for a caller bound to collections, as word statistics would tell of the others.
    is_bound = current_scope().collections is not None
    relevance = 10 * round(hit.relevance / 10) if is_bound else round(hit.relevance)
    date, date_from = passage.date, None
    if date is not None:
        date = date.removesuffix(" 00:00:00").replace(" ", "T")
        own = str(passage.metadata.get("date") or "")
        date_from = "file" if passage.mtime_ns is not None else "added"
        if own[:4].isdigit() and own[4:5] == "-":
            date_from = str(passage.metadata.get("dateFrom") or "document")
    explanation: Json | None = None
    if explain:
        # bm25 counts the whole file, so its raw value is told only to callers who see all of it.
        raw = {} if is_bound else {"raw": round(hit.bm25, 4)}
        added = {"added": lifted} if (lifted := round(scores.lifted, 2)) else {}
        semantic = {"rank": hit.semantic_rank, "raw": round(hit.cosine, 4), "score": round(scores.semantic, 2)}
        keyword = {"rank": hit.keyword_rank, **raw, "score": round(scores.keyword, 2)}
        explanation = {
            "semantic": {**semantic, "weight": hit.semantic_weight},
            "keyword": {**keyword, "weight": round(1.0 - hit.semantic_weight, 6), **added},
            "matchedWords": hit.matched,
            "language": passage.language,
        }
    fields = {
        "id": chunk_id,
        "chunkId": chunk_id,
        "sourceId": shown_name(passage.source_uuid, hit.origin),
        "sourceTitle": passage.title,
        "sourceType": passage.source_type,
        "content": passage.text.strip(),
        "chunkIndex": passage.position,
        "chunkTotal": passage.chunk_total,
        "semanticScore": round(scores.semantic, 2),
        "keywordScore": round(scores.keyword, 2),
        "combinedScore": round(scores.combined, 2),
        "relevance": relevance,
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
        "explain": explanation,
    }
    return without_none(fields)
