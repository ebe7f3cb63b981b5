"""The index of one file, and one search in one snapshot of it: both arms, their candidates' order, a page of hits."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, product
from typing import Any

import apsw

from localmcp.arrays import Ids, Vector
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.index import fusion, keyword
from localmcp.index.collections import Collection, choose_collections, read_calibration, visible_ids
from localmcp.index.drafts import WORD_ONLY, heading_of
from localmcp.index.filters import Filters, Sort, allowed_sources, asks_for_latest
from localmcp.index.fusion import ARM_DEPTH, LEAST, LOOKED_AT, SEMANTIC_WEIGHT, Arms, Candidate, Judge, Mode
from localmcp.index.keyword import KeywordQuery
from localmcp.index.multilingual import WordReader, alike_passages, nearest_sentences
from localmcp.index.passages import Passage, load_passages
from localmcp.index.vector import SignIndex, exact_cosines, nearest_chunks
from localmcp.models import LazyEmbedder
from localmcp.models.embedder import Calibration
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, id_list, read_generations
from localmcp.wording.normalize import detect_language, words

DEEPEST = 1000
"""How deep the keyword arm looks to complete the other arm's hits, and both arms for pages beyond the first hundred."""
DEMANDED_SHARE = 0.4
"""The share of what the words of a question could reach that counts as a full keyword score, where the model reads all
languages: the best hit by chance on one word of six is none (nDCG@10 of hybrid search: four mixed libraries .686 ->
.731, .681 -> .698, .950 -> .958, .591 -> .594, English questions on Spanish passages .961 -> .967, code .892 -> .900;
no set loses .001)."""
NEAR = 0.75
"""Share of the best score from which a passage is about as good as the best, so that its date may decide."""
SPREAD_OVER = 20
"""Places whose order may differ from that of their scores where documents are to be varied."""
LONG_QUESTION, SENTENCE_WORDS, MOST_SENTENCES, CHARACTERS_READ = 20, 3, 12, 5_000
"""A question of so many words is also compared sentence by sentence: one of them may name what it is about (nDCG@10 of
hybrid search: LISA .500 -> .517, CACM .578 -> .589, manuals asked for by a paragraph .830 -> .838, package titles by
their descriptions, not looked at before, .687 -> .713). Shorter sentences are ignored."""
MODEL_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search: its text, filters and limits."""

    text: str
    mode: Mode = "hybrid"
    limit: int = 5
    offset: int = 0
    collections: tuple[str, ...] | None = None
    filters: Filters = field(default_factory=Filters)
    sort: Sort = "relevance"
    spread: bool = False
    """Let no document have more than two passages among the first five, where others are among the first twenty."""

    @property
    def latest(self) -> tuple[str, frozenset[str]] | None:
        """The word of its first 200 characters that asks for the latest, and what it asks the latest of."""
        return asks_for_latest(self.text[:200])

    @property
    def reach(self) -> int:
        """How many of the best have to be known, for a page and for the order of what is on it."""
        by_date = ARM_DEPTH if self.sort == "newest" or self.latest else 0
        return max(self.offset + self.limit, LOOKED_AT, SPREAD_OVER if self.spread else 0, by_date)


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers, with every score."""

    passage: Passage
    scores: Candidate
    cosine: float
    """On the scale of the default model."""
    bm25: float
    semantic_rank: int | None
    keyword_rank: int | None
    """1-based places in both arms; None where the arm did not find it by itself."""
    query: KeywordQuery | None
    matched: list[str] = field(default_factory=list[str])
    """Query words that are in the text, its title, its headings or the name of its file."""
    semantic_weight: float = SEMANTIC_WEIGHT
    origin: str | None = None
    """Name of the mounted file that it is in; None for yours."""
    relevance: float = 0.0
    """How likely it answers, 0..100; the hits of all searches, collections and files can be compared by it."""
    copies: tuple[Passage, ...] = ()
    """The same passage in copies of the document: the same bytes and title in other folders."""

    @property
    def highlight(self) -> tuple[int, int] | None:
        """Start and stop of the sentence that answers in `passage.text.strip()`; None if no word is in it."""
        text, language = self.passage.text.strip(), self.passage.language
        return keyword.find_highlight(self.query, text, language) if self.query else None


@dataclass(slots=True)
class SearchOutcome:
    """The hits of one page, and how they came about."""

    hits: list[Hit]
    total: int
    """Candidates after fusion; a lower bound of what matches."""
    query: KeywordQuery | None = None
    semantic_weight: float = SEMANTIC_WEIGHT
    doubtful: bool = False
    """None of the first hits is likely to answer."""
    notices: list[str] = field(default_factory=list[str])
    """What the person should know: no model, other model, ..."""
    milliseconds: dict[str, float] = field(default_factory=dict[str, float])
    coverage: float = 1.0
    """Share of the passages searched that have a vector, or never get one; 0..1."""
    searched: dict[str, int] = field(default_factory=dict[str, int])
    """How many collections, chunks, vectors by their signs, and sources left after filters it looked at."""
    recency: str | None = None
    """The word of the question for which newer documents were preferred."""
    calibration: Calibration = field(default_factory=Calibration)
    """How the cosines of the model were read."""
    by_words_only: bool = False
    """Meaning was asked for, and there is none here to search by."""
    last_lap: float = field(default_factory=time.perf_counter)

    def lap(self, step: str) -> None:
        """Note the milliseconds since the last step."""
        now = time.perf_counter()
        self.milliseconds[step] = round((now - self.last_lap) * 1000, 3)
        self.last_lap = now


def is_doubtful(hits: Iterable[Hit]) -> bool:
    """Return whether none of the first hits is likely to answer."""
    return all(hit.relevance < LEAST for hit in islice(hits, LOOKED_AT))


def shown_order(
    request: SearchRequest, ranked: Sequence[tuple[float, Passage, str | None]], outcome: SearchOutcome
) -> list[int]:
    """Return places in `ranked` in the order of display: newer documents first, or documents varied, as asked for.

    `ranked`: the score of each, its passage, and the mounted file that it is in. By date come those about as good as
    the best; for a question for the latest only those whose title holds what it asks the latest of, or that are of a
    series, in the places that they have. The outcome then says which word asked for that.
    """
    order = list(range(len(ranked)))
    if (latest := request.latest) or request.sort == "newest":
        first = list(enumerate(ranked[:ARM_DEPTH]))
        near = [(place, passage) for place, (score, passage, _) in first if score >= NEAR * ranked[0][0]]
        if latest and request.sort != "newest":
            # Titles of a series have their words in common, but for numbers.
            titles = {passage.title: words(passage.title) for _, passage in near}
            series = {title: tuple(word for word in titles[title] if not re.search(r"\d", word)) for title in titles}
            counts = Counter(common for common in series.values() if common)
            held = {title for title in titles if any(_is_part(*pair) for pair in product(latest[1], titles[title]))}
            near = [row for row in near if row[1].title in held or counts[series[row[1].title]] > 1]
        newest_first = [place for place, _ in sorted(near, key=lambda row: row[1].date or "", reverse=True)]
        places = [place for place, _ in near]
        if latest and newest_first != places:
            outcome.recency = latest[0]
        moved = dict(zip(places, newest_first, strict=True))
        order = [moved.get(place, place) for place in order]
    if request.spread and request.offset < SPREAD_OVER:
        counts, varied = Counter[Hashable](), list[int]()
        for place in order[:SPREAD_OVER]:
            _, passage, origin = ranked[place]
            if len(varied) < 5 and counts[origin, passage.source_uuid] < 2:
                counts[origin, passage.source_uuid] += 1
                varied.append(place)
        order = list(dict.fromkeys([*varied, *order]))
    return order


def _is_part(subject: str, word: str) -> bool:
    # A compound holds its last word: Vorstandssitzung is a Sitzung. Of less than four letters only equal words count.
    shorter, longer = sorted((subject, word), key=len)
    return shorter == longer or (len(shorter) >= 4 and shorter in longer)


class Search:
    """One search in one snapshot of a file, of collections that the caller may see."""

    def __init__(
        self, index: Index, connection: apsw.Connection, request: SearchRequest, collections: list[Collection],
        outcome: SearchOutcome,
    ) -> None:  # fmt: skip
        self.index, self.connection, self.request, self.outcome = index, connection, request, outcome
        self.collections = collections
        self.ids = [collection.id for collection in collections]
        self.generations = read_generations(connection)
        self.groups = fusion.load_groups(connection, self.ids)
        self.chunks = sum(group.chunks for group in self.groups.values())
        self.allowed: Ids | None = None
        """Sorted ids of the sources that may answer; None = all."""
        filters = request.filters
        # Rules have no chunks that a search could meet; a dropped collection has some.
        sql = "select count(*) from collections where kind <> 'rules'"
        if filters.since or filters.until or filters.source_ids:
            # Dates and ids of sources may change while the generation stays.
            self.allowed = allowed_sources(connection, collections, filters)
        elif filters or fetch_one(connection, sql) != len(collections):
            key = ("sources", *self.ids, repr(filters))
            read = partial(allowed_sources, connection, collections, filters)
            self.allowed = index.keep(self.generations.content, key, read)
        self.arms = Arms()
        self.depth = ARM_DEPTH if request.offset + request.limit < ARM_DEPTH else DEEPEST
        """Not for a page that ends with the first hundred, which has to say whether there are more."""
        self.mode: Mode = request.mode
        """keyword where no model can be asked."""
        self.reader: WordReader | None = None
        """The model, if it says something of each word."""
        self.model_id, self.embedded = 0, list[int]()
        """The model at hand, and the collections with its vectors."""
        self.named: dict[int, float] = {}
        """Source id -> share of its file's name that the query holds."""

    def run(self, vectors: Sequence[Vector]) -> None:
        """Put a page into the outcome; `vectors`: of the question and of its sentences, none where no model answers."""
        arms, outcome = self.arms, self.outcome
        outcome.searched = {"collections": len(self.collections), "chunks": self.chunks}
        if self.allowed is not None:
            outcome.searched["sources"] = len(self.allowed)
        outcome.lap("filters")
        if not vectors or not self._choose_model():
            self.mode = "keyword"
            outcome.by_words_only = self.request.mode != "keyword"
        if self.mode != "semantic":
            connection, text = self.connection, self.request.text
            query = keyword.build_query(connection, text, self.ids, self.index.keep, self.generations.content)
            outcome.query = query
            arms.bm25 = keyword.search_words(connection, query, DEEPEST, self.allowed)
            first_ids = [*islice(arms.bm25, self.depth)]
            self.named, arms.only_names = keyword.named_sources(connection, text, self.ids, self.allowed)
            if self.named:
                # A document that is named is found by word, whatever is in it: any score above 0 says so.
                sql = "select id from chunks where position = 0 and source_id in (select value from carray(?))"
                for chunk_id in fetch_column(connection, sql, (id_list(self.named),)):
                    arms.bm25.setdefault(chunk_id, 1e-6)
                    first_ids.append(chunk_id)
            arms.keyword_ranks = {chunk_id: place for place, chunk_id in enumerate(dict.fromkeys(first_ids), 1)}
            outcome.lap("keyword")
        language = None
        if self.mode != "keyword":
            language = detect_language(self.request.text)
            self._search_vectors(vectors)
            outcome.lap("vector")
        if self.mode == "hybrid" and self.reader and language:
            self._search_meanings(vectors[0], self.reader, language)
            outcome.lap("meanings of words")
        self._complete(language)
        if self.mode == "hybrid" and self.reader:
            near = nearest_sentences(self.connection, self.model_id, arms.cosines, vectors[0])
            mix_cosines(arms, self.outcome.calibration.scaled(near))
        demanded = DEMANDED_SHARE * outcome.query.attainable if arms.reads_all and outcome.query else 0.0
        self._page(fusion.rank(arms, self.mode, outcome.semantic_weight, demanded))
        outcome.lap("rows")

    def _choose_model(self) -> bool:
        """Note the collections whose vectors our model made; the others are left to the keyword arm, and named."""
        embedder = self.index.embedder.get()
        self.reader = embedder if isinstance(embedder, WordReader) else None
        self.model_id, self.outcome.calibration = read_calibration(self.connection, embedder.identity)
        self.embedded = [place.id for place in self.collections if self.model_id and place.model_id == self.model_id]
        foreign = ", ".join(place.name for place in self.collections if place.model_id not in (None, self.model_id))
        if foreign:
            by_meaning = self.mode == "semantic" and self.embedded
            left = "Not searched (use mode hybrid)" if by_meaning else "Searched by words only"
            self.outcome.notices.append(f"{left}: collection {foreign}, whose vectors come from another model.")
        self.arms.reads_all = self.outcome.calibration.reads_all
        return bool(self.embedded)

    def _search_vectors(self, vectors: Sequence[Vector]) -> None:
        connection, arms, model_id = self.connection, self.arms, self.model_id
        blocks = self.index.signs.blocks(connection, model_id, self.embedded)
        self.outcome.searched["vectors"] = sum(len(block.ids) for block in blocks)
        nearest = dict(nearest_chunks(connection, model_id, blocks, vectors[0], ARM_DEPTH, self.allowed))
        if self.depth > ARM_DEPTH:
            # Behind the first hundred, whose keys stay in the order that earlier pages showed.
            deeper = dict(nearest_chunks(connection, model_id, blocks, vectors[0], self.depth, self.allowed))
            nearest = nearest | deeper | nearest
        arms.semantic_ranks = {chunk_id: place for place, chunk_id in enumerate(nearest, 1)}
        missing = [chunk_id for chunk_id in arms.keyword_ranks if chunk_id not in nearest]
        arms.cosines = self.outcome.calibration.scaled(
            nearest | exact_cosines(connection, model_id, missing, vectors[0])
        )
        if vectors[1:]:
            # The nearest sentence of a long question counts as much as the whole.
            near = [exact_cosines(connection, model_id, list(arms.cosines), sentence) for sentence in vectors[1:]]
            nearest = {row: max(cosines[row] for cosines in near) for row in arms.cosines}
            mix_cosines(arms, self.outcome.calibration.scaled(nearest))

    def _search_meanings(self, vector: Vector, reader: WordReader, language: str) -> None:
        arms = self.arms
        groups = [group for group in self.groups.values() if group.collection_id in self.embedded and group.chunks]
        # In a file of the question's own language technical abstracts lose by it.
        if all(group.language == language for group in groups):
            return
        alike = alike_passages(self, reader, language)
        best = sorted(alike, key=lambda chunk_id: (-alike[chunk_id], chunk_id))[:ARM_DEPTH]
        new = [chunk_id for chunk_id in best if chunk_id not in arms.cosines]
        arms.cosines |= self.outcome.calibration.scaled(exact_cosines(self.connection, self.model_id, new, vector))
        arms.alike = {chunk_id: alike[chunk_id] for chunk_id in arms.cosines.keys() & alike.keys()}
        arms.most_alike = frozenset(best)

    def _complete(self, language: str | None) -> None:
        """Take out `-words`, let neighbors count, weigh the kinds of text that were found, say what has no vectors."""
        arms, outcome = self.arms, self.outcome
        if outcome.query and (left_out := outcome.query.left_out):
            outcome.notices.append(f"Left out: passages with {', '.join(term.word for term in left_out)}.")
            match = keyword.match_expression(left_out)
            sql = "select rowid from chunks_fts where chunks_fts match ?"
            arms.leave_out(set(fetch_column(self.connection, sql, (match,))) if match else ())
        ids = dict.fromkeys((*arms.keyword_ranks, *arms.cosines))
        # Of the candidates, and of the passages before and after each.
        sql = """
            select id, source_id, group_id from carray(?)
            cross join chunks indexed by chunk_sources on id between value - 1 and value + 1
        """
        rows = fetch_all(self.connection, sql, (id_list(ids),))
        sources = {chunk_id: source_id for chunk_id, source_id, _ in rows}
        # A damaged file may name groups that are not there.
        group_of = {row: group for row, _, group_id in rows if (group := self.groups.get(group_id))}
        arms.bm25 = keyword.mix_neighbors(arms.bm25, ids, sources)
        arms.keyword_ranks = _ranked(arms.keyword_ranks, arms.bm25)
        arms.named = {row: (source, self.named[source]) for row in ids if (source := sources.get(row)) in self.named}
        sql = f"select count(*) from vector_queue where collection_id in ({','.join(map(str, self.ids))})"
        queued = fetch_one(self.connection, sql) if self.request.mode != "keyword" else 0
        if queued and self.chunks:
            outcome.coverage = round(max(1 - queued / self.chunks, 0.0), 4)
            still = "passages still wait for their meaning to be read; they are found by word."
            outcome.notices.append(f"{queued:,} of {self.chunks:,} {still}")
        if arms.cosines:
            # Data has no vectors on purpose, and is ranked as far off.
            meant = {row for row, group in group_of.items() if group.kind != WORD_ONLY}
            arms.by_word_only = frozenset(arms.keyword_ranks.keys() & meant - arms.cosines.keys())
        if language:
            foreign = {row for row, group in group_of.items() if group.language != language}
            arms.other_language = frozenset(arms.cosines.keys() & foreign)
        if self.index.adaptive and self.mode == "hybrid":
            first = chain(islice(arms.keyword_ranks, fusion.DEEP), islice(arms.semantic_ranks, fusion.DEEP))
            groups = [group_of[row] for row in first if row in group_of]
            # Short questions about code look foreign now and then: a language counts that some passage is in.
            is_foreign = outcome.query is not None and fusion.READ_LANGUAGE not in outcome.query.languages
            default, calibration = outcome.semantic_weight, outcome.calibration
            outcome.semantic_weight = fusion.weight_for(groups, default, calibration, is_foreign=is_foreign)

    def _page(self, ranked: list[Candidate]) -> None:
        request, outcome = self.request, self.outcome
        places = request.reach
        read, passages = 0, dict[int, Passage]()
        distinct: dict[Hashable, list[int]] = {}
        # Copies have the same score: those of the last on the page end where one more passage follows.
        while read < len(ranked) and len(distinct) <= places:
            part = [candidate.id for candidate in ranked[read : read + places + 1]]
            passages |= load_passages(self.connection, part)
            read += len(part)
            for chunk_id in part:
                if passage := passages.get(chunk_id):
                    distinct.setdefault(passage.identity, []).append(chunk_id)
        copies = {first: others for first, *others in distinct.values()}
        ordered = [candidate for candidate in ranked[:read] if candidate.id in copies] + ranked[read:]
        outcome.total = len(ordered)
        first = ordered[:LOOKED_AT]
        # These come first, so that a place in `shown` is one in `ordered`.
        shown = [(row.combined, passages[row.id], None) for row in ordered if row.id in copies]
        order = shown_order(request, shown, outcome)[request.offset : request.offset + request.limit]
        page = [ordered[place] for place in order]
        judged = fusion.judge(None if self.mode == "semantic" else outcome.query)
        hits: dict[int, Hit] = {}
        for candidate in dict.fromkeys((*page, *first)):
            same = [passages[row] for row in (candidate.id, *copies[candidate.id])]
            hits[candidate.id] = make_hit(judged, candidate, same, self.arms, outcome)
        outcome.doubtful = is_doubtful(hits[candidate.id] for candidate in first)
        outcome.hits = [hits[candidate.id] for candidate in page]


def make_hit(
    judged: Judge, candidate: Candidate, passages: Sequence[Passage], arms: Arms, outcome: SearchOutcome
) -> Hit:
    """Return a candidate as it is shown: its passage, and the same passage in copies of the document."""
    query, (passage, *copies) = outcome.query, passages
    matched: list[str] = []
    if query is not None:
        name = keyword.file_name(passage.uri or "")
        in_name = [*keyword.words_of(name)]
        text = f"{heading_of(passage.title, passage.headings)}\n{name} {' '.join(in_name)}\n{passage.text}"
        # A word that no passage holds may still be in the name of a file.
        matched = keyword.matched_words(query, text, passage.language)
        matched += [word for word in query.absent if word in in_name]
    cosine, is_foreign = arms.cosines.get(candidate.id), candidate.id in arms.other_language
    relevance = judged.relevance(cosine, matched, other_language=is_foreign)
    if candidate.named and arms.only_names:
        # The query says nothing but which document it wants.
        relevance = max(relevance, 90.0)
    ranks = arms.semantic_ranks.get(candidate.id), arms.keyword_ranks.get(candidate.id)
    scores = candidate, cosine or 0.0, arms.bm25.get(candidate.id, 0.0), *ranks
    return Hit(passage, *scores, query, matched, outcome.semantic_weight, None, relevance, tuple(copies))


def mix_cosines(arms: Arms, near: Mapping[int, float]) -> None:
    """Let other cosines of the candidates count as much as their own; the first hundred stay the first."""
    if near:
        arms.cosines |= {row: (arms.cosines[row] + cosine) / 2 for row, cosine in near.items()}
        arms.semantic_ranks = _ranked(arms.semantic_ranks, arms.cosines)


def _ranked(ranks: Mapping[int, int], scores: Mapping[int, float]) -> dict[int, int]:
    """Return the ranks by changed scores, best first, in which the first hundred stay the first."""
    ids = list(ranks)
    parts = (sorted(part, key=lambda row: (-scores[row], row)) for part in (ids[:ARM_DEPTH], ids[ARM_DEPTH:]))
    return {chunk_id: place for place, chunk_id in enumerate(chain.from_iterable(parts), 1)}


def embed_question(embedder: LazyEmbedder, text: str) -> list[Vector]:
    """Return the unit vector of a question, and then of its sentences if it is long; errors as of `LazyEmbedder.get`,
    which waits MODEL_WAIT_SECONDS."""
    parts: list[str] = []
    if len(text.split()) >= LONG_QUESTION:
        parts = [text[start:stop] for start, stop in keyword.sentences(text[:CHARACTERS_READ])]
        parts = [part for part in parts if len(part.split()) >= SENTENCE_WORDS][:MOST_SENTENCES]
    vectors = [embedder.embed_query(text, wait=MODEL_WAIT_SECONDS)]
    if parts[1:]:
        vectors += [*embedder.embed_queries(parts)]
    return [vector.astype("<f4", copy=False) for vector in vectors]


class Index:
    """Searches one file. Safe to call from many threads; every search sees one snapshot."""

    def __init__(
        self, database: Database, embedder: LazyEmbedder, semantic_weight: float = SEMANTIC_WEIGHT, *,
        adaptive: bool = False,
    ) -> None:  # fmt: skip
        self.database, self.embedder, self.semantic_weight = database, embedder, semantic_weight
        self.adaptive = adaptive
        """Weight by the kinds of text that were found, where they were measured."""
        self.signs = SignIndex()
        """The sign codes in memory, for each search of this file."""
        self._kept: dict[Hashable, tuple[int, Any]] = {}
        """Words and their codes, and sources that fulfil the last filters, 25 ms to find among 100,000."""

    def search(self, request: SearchRequest) -> SearchOutcome:
        """Return the best chunks for the request; NotFound for a collection that the caller cannot see."""
        outcome = SearchOutcome([], 0, semantic_weight=self.semantic_weight)
        vectors = self._embed(request, outcome)
        outcome.lap("embedding")
        with self.database.read() as connection:
            collections = choose_collections(connection, request.collections or None)
            if collections:
                Search(self, connection, request, collections, outcome).run(vectors)
        return outcome

    def _embed(self, request: SearchRequest, outcome: SearchOutcome) -> Sequence[Vector]:
        # No vectors where no model answers.
        if request.mode == "keyword" or not request.text.strip():
            return ()
        with self.database.read() as connection:
            visible = f"collection_id in ({visible_ids(connection)}) limit 1"
            if not fetch_one(connection, f"select 1 from signs where {visible}"):
                if fetch_one(connection, f"select 1 from sources where trashed_at is null and {visible}"):
                    outcome.notices.append("Answered by keyword only: no document has vectors yet.")
                return ()
        try:
            return embed_question(self.embedder, request.text)
        except (ModelUnavailable, ConfigurationError) as error:
            outcome.notices.append(f"Answered by keyword only: {error}")
            return ()

    def keep(self, generation: int, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made under that key for that generation, or make it."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != generation:
            kept = generation, make()
        # The 32 keys that were asked for last; of two threads, one is forgotten.
        others = [item for item in self._kept.items() if item[0] != key]
        self._kept = dict(others[-31:]) | {key: kept}
        return kept[1]
