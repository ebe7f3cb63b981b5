"""The keyword arm: any text becomes a bounded FTS5 query, whose hits are scored by bm25."""

from __future__ import annotations

import math
import re
import threading
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.storage.database import fetch_all, fetch_one
from localmcp.wording.languages import detect_language
from localmcp.wording.normalize import fold, index_text, phrases, plain_letters, stem, stop_words
from localmcp.wording.spelling import Correction, WordList, correct

MOST_UNITS = 512
"""Words of a query that are looked at: questions as long as a paragraph often end with what they are about (64 words
instead of 512 cost .02 nDCG@10 on LISA, whose questions have 56 words on average)."""
MOST_REPEATS = 8
"""Times that a word counts: FTS5 compares every mention with every repeat, and a row of 500 zeros took minutes."""
POSTINGS_BUDGET, POSTINGS_A_WORD = 8_000, 400
"""bm25 scores every chunk that holds one of the rarest terms, as many as reach this sum. A question as long as a
paragraph may spend more, as its embedding does (nDCG@10 of the keyword arm on LISA: .469 -> .488)."""
MOST_FREQUENT = 8
"""Words beyond the budget, the rarest of them first, that count where a passage holds a rarer one too (what manual
pages say of themselves, the page among the first three of a million passages: .120 without them, .560 with four, .660
with eight or all; all of 500 words would take 8 s)."""
REPAIR_WEIGHT = 0.6
"""What a hit on a repaired word counts, so that an exact hit stays above it."""
TITLE_WEIGHT, TEXT_WEIGHT = 2.0, 1.0
FTS5_LENGTH_SHARE, LENGTH_SHARE = 0.75, 0.35
"""The `b` of bm25: how much a longer passage must hold a term more often. FTS5 has the first built in; the second is
better for passages, which are of similar length (nDCG@10 of hybrid search: CACM .551 -> .576, others within .002)."""
TYPICAL_FREQUENCY = 3.0
"""The weighted frequency of a term for which the change from one `b` to the other is exact."""
SATURATION = 1.2
"""The `k1` of FTS5's bm25: how soon further mentions of a term add little."""
HEAVIEST = 8
"""Words by which a question is measured: paragraphs hold many that no answer repeats."""
NEIGHBOR_SHARE = 0.4
"""How much of a passage's score is the mean of its own and those of the passages before and after it: a document that
answers in several places comes before one lucky passage (nDCG@10 of hybrid search: Cranfield .5675 -> .5716, sections
of a reference .790 -> .803, German XQuAD .947 -> .954, manuals in eight languages .674 -> .678; no set loses .002)."""
MOST_CORRECTIONS = 3
"""Likely corrections of a word that are looked up."""
MIXED_SHARE = 0.1
"""A query in no known language is stemmed by every language that holds this share of the chunks; a file is mixed where
those that are not in its main language do."""

COMPOUNDING = frozenset("danish dutch finnish german hungarian norwegian swedish turkish".split())
COMPOUND_LETTERS = 6
"""In these languages a stem of so many letters also finds the words that begin with it: "Kündigung" finds
"Kündigungsfrist" (nDCG@10 of hybrid search, without and with it: German questions and answers .557 -> .570, German
XQuAD .953 -> .954, manuals in eight languages .673 -> .680)."""

Stems = tuple[str, ...]
_NAME = re.compile(r"(?<=[^.!?:\s] )[^\W\d_a-z]\w*")


ABSENT = "in no passage"
"""Why a word is not searched for."""
WITHIN = "only within longer words"
"""The same of a word of a compounding language: "Kosten" where the texts have "Reparaturkosten"."""
LEAST_PART = 4
"""Letters of such a word."""


@dataclass(frozen=True, slots=True)
class Term:
    """One unit of the query: a word, or a code whose parts are adjacent."""

    word: str
    """As typed, folded."""
    alternatives: tuple[Stems, ...]
    """The searched stems: one phrase for each language that may be meant; `kundig*` means all stems that
    begin so."""
    chunks: int
    """How many chunks hold it (of a phrase: its rarest part)."""
    idf: float
    repair: Correction | None = None
    """What the word was taken for, because it looks misspelled and is in no text."""


@dataclass(frozen=True, slots=True)
class KeywordQuery:
    """A query of the keyword index, with its dropped words and their reasons."""

    terms: tuple[Term, ...]
    """Repeated words stay: a repeat is the only term weight that FTS5 has."""
    languages: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...] = ()
    """(word, reason) of what is not searched for."""
    missing_idf: float = 0.0
    """idf of a word that is in no passage."""
    mean_length: float = 0.0
    """Indexed words of a passage of the file, about."""

    @property
    def repairs(self) -> list[Correction]:
        return list({term.repair.word: term.repair for term in self.terms if term.repair}.values())


class Vocabulary:
    """The surface words of each collection, in memory from the first correction on, and how long passages are.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._words: dict[int, WordList] = {}
        self._measured, self._mean_length = 0, 0.0

    def lists(self, connection: apsw.Connection, generation: int, collection_ids: Sequence[int]) -> list[WordList]:
        """Return the words of each of those collections."""
        with self._lock:
            if generation != self._generation:
                self._generation, self._words = generation, {}
            for collection_id in {*collection_ids} - self._words.keys():
                sql = "select word, chunks from words where collection_id = ?"
                self._words[collection_id] = WordList(dict(fetch_all(connection, sql, (collection_id,))))
            return [self._words[collection_id] for collection_id in collection_ids]

    def mean_length(self, connection: apsw.Connection, chunks: int) -> float:
        """Return the mean number of indexed words of a passage, measured again when a tenth of the passages is new.

        Reading every length takes 5 ms for 100,000 passages.
        """
        with self._lock:
            if 10 * abs(chunks - self._measured) >= chunks:
                sql = "select coalesce(avg(words), 0.0) from chunks indexed by chunk_sources"
                self._measured, self._mean_length = chunks, fetch_one(connection, sql)
            return self._mean_length


def attainable(query: KeywordQuery) -> float:
    """Return the bm25 score that a text with the heaviest words of a query approaches; absent words count too."""
    idf = {term.word: term.idf for term in query.terms}
    idf |= {word: query.missing_idf for word, reason in query.dropped if reason == ABSENT}
    return (1 + SATURATION) * sum(sorted(idf.values(), reverse=True)[:HEAVIEST])


def build_query(
    connection: apsw.Connection, text: str, collection_ids: Sequence[int], vocabulary: Vocabulary, generation: int
) -> KeywordQuery:
    """Turn any text into a query over those collections; every token is literal, whatever FTS5 would make of it."""
    units, seen = list[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for unit in phrases(text)[:MOST_UNITS]:
        seen[unit] += 1
        if seen[unit] <= MOST_REPEATS:
            units.append(unit)
    languages, others = _languages(connection, text, collection_ids)
    total = fetch_one(connection, "select coalesce(sum(chunks), 0) from groups")
    words = _Words(connection, collection_ids, vocabulary, generation, total)
    typed_right = set[str]()
    if "german" not in languages and not text.isupper():
        # A capital inside a sentence begins a name. German writes every noun so; in capitals alone they say nothing.
        typed_right.update(map(fold, _NAME.findall(text)))
    terms = [
        term if term.chunks else words.expand(unit, languages, others, typed_right)
        for unit, term in zip(units, words.terms(units, languages), strict=True)
    ]
    stops = frozenset[str]().union(*map(stop_words, languages))
    dropped: list[tuple[str, str]] = []
    # A query of nothing but stop words, or of those and words that no text holds, is searched by them.
    if any(term.chunks for term in terms if term.word not in stops):
        dropped = [(term.word, "stop word") for term in terms if term.word in stops]
        terms = [term for term in terms if term.word not in stops]
    absent = dict.fromkeys(term.word for term in terms if not term.chunks and term.word not in stops)
    compounding = not COMPOUNDING.isdisjoint(languages)
    dropped += [(word, WITHIN if compounding and words.hold_within(word) else ABSENT) for word in absent]
    return KeywordQuery(
        terms=tuple(term for term in terms if term.chunks),
        languages=languages,
        dropped=tuple(dropped),
        missing_idf=inverse_frequency(0, total),
        mean_length=vocabulary.mean_length(connection, total),
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of the collections that are searched."""

    connection: apsw.Connection
    collection_ids: Sequence[int]
    vocabulary: Vocabulary
    generation: int
    total: int
    """Chunks in the file."""

    def terms(self, units: Sequence[tuple[str, ...]], languages: Sequence[str]) -> list[Term]:
        """Return units of a query as words of these languages."""
        alternatives = [_alternatives(unit, languages) for unit in units]
        stems = {part for spellings in alternatives for phrase in spellings for part in phrase}
        # How many chunks hold each stem: in the whole file (for idf, as bm25 counts), and where the caller may look.
        everywhere, visible = Counter[str](), Counter[str]()
        sql = """
            select collections.id, pattern.value, chunks from collections
            cross join carray(?) as pattern  -- in this order: else every term of the file is read
            cross join terms on terms.collection_id = collections.id and term >= rtrim(pattern.value, '*')
                and term <= replace(pattern.value, '*', char(0x10ffff))
        """
        rows = fetch_all(self.connection, sql, (apsw.carray(tuple(stems)),)) if stems else []
        for collection_id, term, chunks in rows:
            everywhere[term] += chunks
            if collection_id in self.collection_ids:
                visible[term] += chunks
        terms: list[Term] = []
        for unit, spellings in zip(units, alternatives, strict=True):
            # Of a phrase, its rarest part.
            held = {phrase: chunks for phrase in spellings if (chunks := min(visible[part] for part in phrase))}
            in_file = sum(min(everywhere[part] for part in phrase) for phrase in held)
            idf = inverse_frequency(in_file, self.total)
            terms.append(Term(" ".join(unit), tuple(held), sum(held.values()), idf))
        return terms

    def expand(
        self, unit: tuple[str, ...], languages: Sequence[str], others: Sequence[str], typed_right: Collection[str]
    ) -> Term:
        """Return a unit that no passage holds as it may be meant: in another language or spelling, or corrected."""
        # A word of another language of the file, in a question that mixes them or that is too short to tell.
        [term] = self.terms([unit], others) if others else [Term(" ".join(unit), (), 0, 0.0)]
        if not term.chunks and (plain := tuple(map(plain_letters, unit))) != unit:
            [term] = self.terms([plain], languages)
        if term.chunks or len(unit) > 1 or term.word in typed_right:
            return term
        lists = self.vocabulary.lists(self.connection, self.generation, self.collection_ids)
        for correction in correct(term.word, *lists)[:MOST_CORRECTIONS]:
            [meant] = self.terms([(correction.replacement,)], languages)
            if meant.chunks and self._is_in_language(meant, languages):
                return Term(term.word, meant.alternatives, meant.chunks, meant.idf, correction)
        return term

    def _is_in_language(self, term: Term, languages: Sequence[str]) -> bool:
        """Return whether one of the first passages with the term is in one of the languages."""
        sql = """
            with hits as materialized (select rowid as id from chunks_fts where chunks_fts match ? limit 100)
            select 1 from hits join chunks on chunks.id = hits.id join groups on groups.id = group_id
            where language in (select value from carray(?)) and collection_id in (select value from carray(?)) limit 1
        """
        ids = apsw.carray(array("q", self.collection_ids))
        bindings = (match_expression([term]), apsw.carray(tuple(languages)), ids)
        return fetch_one(self.connection, sql, bindings) is not None

    def hold_within(self, part: str) -> bool:
        """Return whether a word contains `part`, which is long enough to be one."""
        if len(part) < LEAST_PART or not part.isalpha():
            return False
        lists = self.vocabulary.lists(self.connection, self.generation, self.collection_ids)
        return any(part in word for words in lists for word in words.counts)


def _languages(
    connection: apsw.Connection, text: str, collection_ids: Sequence[int]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the languages that a query may be in, and the others of the collections, the most frequent first."""
    sql = """
        select language, sum(chunks) from groups where collection_id in (select value from carray(?)) and chunks > 0
        group by language order by 2 desc, 1
    """
    rows = fetch_all(connection, sql, (apsw.carray(array("q", collection_ids)),)) if collection_ids else []
    sizes: dict[str, int] = dict(rows)
    detected = detect_language(text)
    if detected and detected in sizes:
        languages = (detected,)
    else:
        least = MIXED_SHARE * sum(sizes.values())
        languages = tuple(language for language, chunks in sizes.items() if chunks >= least)[:3] or ("english",)
    return languages, [language for language in sizes if language not in languages]


def _alternatives(unit: tuple[str, ...], languages: Sequence[str]) -> tuple[Stems, ...]:
    """Return the stems by which a unit is searched, in each language; a version with and without its leading v."""
    spellings, (first, *others) = [unit], unit
    if others and first.isdigit():
        # `1.5.4` is often written `v1.5.4`.
        spellings.append((f"v{first}", *others))
    elif others and first[0] == "v" and first[1:].isdigit():
        spellings.append((first[1:], *others))
    stemmed: dict[Stems, None] = {}
    for words in spellings:
        for language in languages:
            phrase = tuple(stem(word, language) for word in words)
            is_long = len(phrase) == 1 and len(phrase[0]) >= COMPOUND_LETTERS and phrase[0].isalpha()
            stemmed[(f"{phrase[0]}*",) if is_long and language in COMPOUNDING else phrase] = None
    return tuple(stemmed)


def inverse_frequency(chunks: int, total: int) -> float:
    """Return the idf as FTS5 counts it: ln((N - n + 0.5) / (n + 0.5)), never below 1e-6."""
    ratio = (total - chunks + 0.5) / (chunks + 0.5)
    return max(math.log(ratio), 1e-6) if ratio > 0 else 1e-6


def _within_budget(terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Return the terms whose postings fit the budget, always the rarest, and the rarest of the more frequent ones."""
    spent, affordable, budget = 0, set[str](), max(POSTINGS_BUDGET, POSTINGS_A_WORD * len(terms))
    for term in sorted({term.word: term for term in terms}.values(), key=lambda term: term.chunks):
        spent += term.chunks
        if spent <= budget or not affordable:
            affordable.add(term.word)
    rare = [term for term in terms if term.word in affordable]
    frequent = sorted((term for term in terms if term.word not in affordable), key=lambda term: term.chunks)
    return rare, frequent[:MOST_FREQUENT]


# ---------------------------------------------------------------- running it


def search_words(connection: apsw.Connection, query: KeywordQuery, depth: int, sources: Any = None) -> dict[int, float]:
    """Return chunk id -> bm25 (higher is better), best first, at most `depth`; `sources` (int64 array) restricts it."""
    exact = [term for term in query.terms if term.repair is None]
    scores = _bm25(connection, exact, query.mean_length, depth, sources)
    repaired = [term for term in query.terms if term.repair is not None]
    if not repaired:
        return scores
    for chunk_id, score in _bm25(connection, repaired, query.mean_length, depth, sources).items():
        scores[chunk_id] = scores.get(chunk_id, 0.0) + REPAIR_WEIGHT * score
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth])


def _bm25(
    connection: apsw.Connection, terms: Sequence[Term], mean: float, depth: int, sources: Any
) -> dict[int, float]:
    """Return chunk id -> bm25; `mean`: indexed words of a passage of the file."""
    if not terms or (sources is not None and not len(sources)):
        return {}
    # The list is made once: inside an `exists` SQLite reads the array again for every posting (386 ms instead of 3).
    narrowing = """
        and (select source_id from chunks indexed by chunk_sources where chunks.id = chunks_fts.rowid)
            in (select value from carray(:sources))
    """
    sql = f"""
        select id, score, (select words from chunks indexed by chunk_sources where chunks.id = hits.id) from (
            select rowid as id, bm25(chunks_fts, {TITLE_WEIGHT}, {TEXT_WEIGHT}) as score from chunks_fts
            where chunks_fts match :match {narrowing if sources is not None else ""}
            order by score, rowid limit :depth
        ) as hits
    """
    rare, frequent = _within_budget(terms)
    match, copies = match_expression(rare), 1
    if frequent:
        # A passage needs a rare word, but all count: FTS5 scores every mention of a term in the query.
        often = match_expression(frequent)
        match, copies = f"({match}) AND ({match} OR {often} OR {often})", 2
    bindings: dict[str, Any] = {"match": match, "depth": depth}
    if sources is not None:
        bindings["sources"] = apsw.carray(sources)
    hits = fetch_all(connection, sql, bindings)
    scores = [
        (score / copies * _length_factor(max(length or 0, 0) / mean if mean > 0 else 1.0), chunk_id)
        for chunk_id, score, length in hits
    ]
    return {chunk_id: -score for score, chunk_id in sorted(scores)}


def _length_factor(ratio: float) -> float:
    """Return what turns a score of FTS5 into one with our `b`; `ratio`: the length of the passage to the mean."""
    theirs, ours = (
        TYPICAL_FREQUENCY + SATURATION * (1 - share + share * ratio) for share in (FTS5_LENGTH_SHARE, LENGTH_SHARE)
    )
    return theirs / ours


def mix_neighbors(
    scores: Mapping[int, float], chunk_ids: Iterable[int], sources: Mapping[int, int]
) -> dict[int, float]:
    """Return the scores of those chunks that have one, with a share of their neighbors' scores.

    Neighbors are the chunks of the same source (`sources`: chunk id -> source id) with the ids before and after, as
    they were written.
    """
    mixed: dict[int, float] = {}
    for chunk_id in chunk_ids:
        if (score := scores.get(chunk_id)) is None:
            continue
        beside = [row for row in (chunk_id - 1, chunk_id + 1) if sources.get(row, 0) == sources.get(chunk_id)]
        mean = (score + sum(scores.get(row, 0.0) for row in beside)) / (1 + len(beside))
        mixed[chunk_id] = (1 - NEIGHBOR_SHARE) * score + NEIGHBOR_SHARE * mean
    return mixed


def match_expression(terms: Sequence[Term]) -> str:
    """Return FTS5 syntax in which every token is quoted: `"fond" OR "kundig" * OR "3 11 7"`."""
    phrases = (" ".join(alternative) for term in terms for alternative in term.alternatives)
    return " OR ".join(f'"{phrase[:-1]}" *' if phrase.endswith("*") else f'"{phrase}"' for phrase in phrases)


def matched_words(query: KeywordQuery, text: str, language: str) -> list[str]:
    """Return the query's words (as typed) that are in a text of that language."""
    stems = f" {index_text(text, language)} "
    return list(dict.fromkeys(term.word for term in query.terms if holds(stems, term)))


def holds(stems: str, term: Term) -> bool:
    """Return whether a text holds the term; `stems`: those of its words in order, a space before and after each.

    The parts of a code have to be adjacent, as FTS5 has it: "4.1.2" is not in "4.2.0 and 4.1.3".
    """
    phrases = map(" ".join, term.alternatives)
    return any((f" {phrase[:-1]}" if phrase.endswith("*") else f" {phrase} ") in stems for phrase in phrases)
