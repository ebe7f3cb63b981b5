"""The order of candidates: a weighted sum of meaning and words, both known for every one; how much each weighs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import apsw

from localmcp.arrays import np
from localmcp.index.collections import calibrate, read_calibration
from localmcp.index.drafts import WORD_ONLY
from localmcp.index.keyword import REPAIR_WEIGHT, KeywordQuery
from localmcp.index.vector import SignIndex, nearest_chunks
from localmcp.models import Embedder
from localmcp.models.embedder import Calibration, embed_questions, is_unit_vector
from localmcp.storage.database import Database, fetch_all, id_list
from localmcp.wording.normalize import fold, is_function_word, phrases

Mode = Literal["hybrid", "semantic", "keyword"]
MatchType = Literal["both", "semantic_only", "keyword_only"]

SEMANTIC_WEIGHT = 0.7
"""Of meaning; words get the rest (S3-4: 0.7 x 85.5 + 0.3 x 92.3 = 87.5)."""
ARM_DEPTH = 100
"""Candidates an arm gives to the fusion: 50 lose recall, 200 gain nothing."""
FLOOR, READER_FLOOR = 0.25, 0.15
"""The cosine from which a passage counts as near in meaning; the second where the model reads all languages, in which a
letter that answers may reach no more (right document among the first three of a mixed library, `--sixth`, from .25:
.571 -> .726)."""
WITHOUT_MEANING = 0.6
"""What a full match of words counts for a passage that has no vector, among passages that have: about what good hits of
those reach."""
OTHER_LANGUAGE_KEYWORD = 50.0
"""The least share, in percent, of the best keyword score for a passage in another language than the question, where
the model reads both: it cannot hold the words that others are found by (nDCG@10 of four mixed libraries, from 0 to 50:
.675 -> .685, .567 -> .578, .920 -> .938, and of questions and passages in two languages .929 -> .923, .968 -> .973)."""
LIKE_WORDS = 42.0
"""Added to the keyword score, in percent of a full one, where a passage has most words that mean what those of the
question do (35 and 50 find fewer right documents in four mixed libraries)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One passage's scores, each 0..100."""

    id: int
    semantic: float
    keyword: float
    combined: float
    match_type: MatchType
    named: float = 0.0
    """How much of its file's name the query holds, up to 1; 0 unless the query names its document."""
    lifted: float = 0.0
    """What its keyword score gets for words that it cannot hold: it is in another language than the question, or has
    words that mean the same."""


@dataclass(slots=True)
class Arms:
    """What both arms know of the candidates, by chunk id."""

    cosines: dict[int, float] = field(default_factory=dict[int, float])
    """On the scale of the default model."""
    bm25: dict[int, float] = field(default_factory=dict[int, float])
    semantic_ranks: dict[int, int] = field(default_factory=dict[int, int])
    keyword_ranks: dict[int, int] = field(default_factory=dict[int, int])
    by_word_only: frozenset[int] = frozenset()
    """Candidates that have no vector yet, among others that have."""
    other_language: frozenset[int] = frozenset()
    """Candidates in another language than the question."""
    reads_all: bool = False
    """Whether the model was made for other languages than English."""
    alike: dict[int, float] = field(default_factory=dict[int, float])
    """How much a passage has of words that mean what those of the question do: 0..1 of what the best one has."""
    most_alike: frozenset[int] = frozenset()
    """The passages that have most of such words."""
    named: Mapping[int, tuple[int, float]] = field(default_factory=dict[int, tuple[int, float]])
    """Candidates of documents that the query names -> the document, and the share of its name's words."""
    only_names: bool = False
    """The query says no more than which documents it means."""

    def leave_out(self, ids: Collection[int]) -> None:
        """Take these candidates out of both arms."""
        for by_id in (self.cosines, self.bm25, self.keyword_ranks, self.semantic_ranks, self.alike):
            for chunk_id in by_id.keys() & ids:
                del by_id[chunk_id]


def semantic_score(cosine: float) -> float:
    """Return 0..100 for a cosine: 100 from 0.8 on, which paraphrases rarely get beyond; never negative."""
    return 100.0 * min(max(cosine, 0.0) / 0.8, 1.0)


def keyword_score(bm25: float, full: float) -> float:
    """Return 0..100 for a bm25 score; `full`, the best of this search, counts as 100."""
    return 100.0 * min(bm25 / full, 1.0) if full > 0 else 0.0


def fuse(arms: Arms, full: float, weight: float = SEMANTIC_WEIGHT) -> list[Candidate]:
    """Return the candidates with both scores, best first, ties by id; `full`: the bm25 score that counts as 100."""
    # The keyword score that a passage in another language has at least.
    best = max(arms.bm25.values(), default=0.0)
    least = OTHER_LANGUAGE_KEYWORD * (best / full if full else 1.0)
    floor = READER_FLOOR if arms.reads_all else FLOOR
    fused: list[Candidate] = []
    # A chunk without a vector takes part with its words.
    for chunk_id, cosine in (dict.fromkeys(arms.keyword_ranks, 0.0) | arms.cosines).items():
        bm25 = arms.bm25.get(chunk_id, 0.0)
        by_meaning = cosine >= floor
        if not by_meaning and bm25 <= 0:
            continue  # Neither near in meaning nor with a word of the query.
        match_type = "both" if by_meaning and bm25 > 0 else "keyword_only" if bm25 > 0 else "semantic_only"
        semantic, keyword = semantic_score(cosine), keyword_score(bm25, full)
        lifted = max(least - keyword, 0.0) if arms.reads_all and chunk_id in arms.other_language else 0.0
        lifted += min(LIKE_WORDS * arms.alike.get(chunk_id, 0.0) ** 2, 100.0 - keyword - lifted)
        combined = weight * semantic + (1.0 - weight) * (keyword + lifted)
        if chunk_id in arms.by_word_only:
            combined, lifted = WITHOUT_MEANING * keyword, 0.0
        fused.append(Candidate(chunk_id, semantic, keyword, combined, match_type, lifted=lifted))
    return sorted(fused, key=lambda candidate: (-candidate.combined, candidate.id))


def rank(arms: Arms, mode: Mode, weight: float = SEMANTIC_WEIGHT, demanded: float = 0.0) -> list[Candidate]:
    """Return every candidate, best first; in hybrid search `demanded`, or the best bm25 score, counts as 100."""
    best = max(arms.bm25.values(), default=0.0)
    if mode == "semantic":
        # In the arm's own order, which scores at their ceiling do not undo.
        scores = ((row, semantic_score(arms.cosines[row])) for row in arms.semantic_ranks)
        ranked = [Candidate(row, score, 0.0, score, "semantic_only") for row, score in scores]
    elif mode == "keyword":
        scores = ((row, keyword_score(arms.bm25[row], best)) for row in arms.keyword_ranks)
        ranked = [Candidate(row, 0.0, score, score, "keyword_only") for row, score in scores]
    else:
        ranked = fuse(arms, max(best, demanded), weight)
    if arms.named:
        # Before all others; if the query says nothing else, the best passage of each document that it names is enough,
        # and the name is a full match of words.
        named: dict[int, Candidate] = {}
        keyword_weight = 1.0 if mode == "keyword" else 1.0 - weight
        for candidate in ranked:
            source_id, share = arms.named.get(candidate.id, (0, 0.0))
            if share and not arms.only_names:
                named[candidate.id] = replace(candidate, named=share)
            elif share and source_id not in named:
                combined = candidate.combined + keyword_weight * (100.0 - candidate.keyword - candidate.lifted)
                named[source_id] = replace(candidate, named=share, keyword=100.0, combined=combined, lifted=0.0)
        ids = {candidate.id for candidate in named.values()}
        others = [candidate for candidate in ranked if candidate.id not in ids]
        ranked = sorted(named.values(), key=lambda candidate: -candidate.named) + others
    if max(len(arms.semantic_ranks), len(arms.keyword_ranks)) <= ARM_DEPTH:
        return ranked
    # What only a look deeper than the first hundred found comes behind, so that pages do not overlap.
    first = {*arms.most_alike, *arms.named}
    for ranks in (arms.semantic_ranks, arms.keyword_ranks):
        first.update(chunk_id for chunk_id, place in ranks.items() if place <= ARM_DEPTH)
    return sorted(ranked, key=lambda candidate: candidate.id not in first)


# ---------------------------------------------------------------- relevance

LEAST = 50.0
"""Below it a passage hardly answers. If the best of the first is below, the search says `lowConfidence`."""
LOOKED_AT = 3
"""The first hits, of which one should answer."""
HYBRID = (-4.77, 2.4, -14.36, 6.07, -4.41, 1.35, 1.24)
"""Weights of the signals that `Judge.relevance` lists, fitted on the judged questions that
`tests/benchmarks/confidence_quality.py` measures. The best sentence by meaning, the share of the bm25 score, the next
passages, ranks and the agreement of both arms gained nothing on sets that were left out."""
KEYWORD = (-4.25, 0.0, 0.0, 6.19, -3.8, 0.0, 1.31)
SEMANTIC = (-2.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the passages that were found for one question."""

    idf_by_word: dict[str, float]
    """What each content word of the question counts, also those that are in no passage; none if it was not searched by
    words."""
    codes: frozenset[str] = frozenset()
    """Words that are rare codes, if the question is mostly about one, and what is in quotation marks."""
    is_one_word: bool = False
    """The query is a single word, without any other around it."""
    by_words: bool = True

    def relevance(self, cosine: float | None, matched: Collection[str], *, other_language: bool = False) -> float:
        """Return how likely a passage with those words of the question answers, 0..100; by words without a cosine."""
        weights = KEYWORD if cosine is None else HYBRID if self.by_words else SEMANTIC
        total = sum(self.idf_by_word.values())
        coverage = sum(idf for word, idf in self.idf_by_word.items() if word in matched) / total if total else 0.0
        signals = (
            1.0,
            cosine or 0.0,
            # Words shared with a passage about something else are chance.
            max(0.25 - (cosine or 0.0), 0.0),
            coverage,
            # Codes, years and amounts.
            float(any(word not in matched and has_digit(word) for word in self.idf_by_word)),
            # Two languages share few words, and their cosines are lower.
            float(other_language),
            # Half of two words says less than half of six.
            math.log(1 + len(self.idf_by_word)),
        )
        likely = 100 / (1 + math.exp(-sum(weight * signal for weight, signal in zip(weights, signals, strict=True))))
        if self.is_one_word and coverage == 1:
            # Who types nothing but a name is answered by a passage that holds it, whatever it is about.
            likely = max(likely, LEAST)
        return likely if self.codes.isdisjoint(matched) else max(likely, 90.0)


def judge(query: KeywordQuery | None) -> Judge:
    """Return the judge of a search; `query` is None if words were not searched."""
    if query is None:
        return Judge({}, by_words=False)
    content = {term.word: term for term in query.terms if not is_function_word(term.word, query.languages)}
    idf_by_word = {word: term.idf * (REPAIR_WEIGHT if term.repair else 1) for word, term in content.items()}
    is_one_word = not query.dropped and len({term.word for term in query.terms}) == 1
    absent = [word for word in query.absent if not is_function_word(word, query.languages)]
    idf_by_word |= dict.fromkeys(absent, query.missing_idf)
    return Judge(idf_by_word, unique_codes(query) | query.quoted, is_one_word)


def unmentioned(query: KeywordQuery, text: str) -> list[str]:
    """Return the content words of a question, as typed, that are in no passage.

    The measure in "how many" is none of them: an answer gives a number instead. Nor are "don't", single letters, and
    neighboring characters of a script without spaces, which need not be a word.
    """
    typed = {
        " ".join(unit): word
        for word in (part.strip(".,;:!?()\"'“”«»") for part in text.split())
        if not re.search(r"n['’]t\Z", word, re.IGNORECASE)
        for unit in phrases(word)
        if any(len(part) > 1 or part.isdigit() for part in unit)
    }
    measures = set(map(fold, re.findall(r"\b(?:how|wie|hoe|hur|hvor) (\w+)", text, re.IGNORECASE)))
    absent = [word for word in query.absent if not is_function_word(word, query.languages)]
    return list(dict.fromkeys(typed[word] for word in absent if word in typed and word not in measures))


def unique_codes(query: KeywordQuery) -> frozenset[str]:
    """Return the words of the query that are codes in at most three passages, if the query is mostly about one."""
    total = sum(term.idf for term in query.terms)
    return frozenset(
        term.word
        for term in query.terms
        if (term.repair is None and 0 < term.chunks <= 3 and term.idf >= total / 3)
        and (has_digit(term.word) and len(term.word) >= 3 and not re.fullmatch(r"(?:19|20)\d\d", term.word))
    )


def has_digit(word: str) -> bool:
    """Return whether a word may be a code."""
    return any(character.isdigit() for character in word)


# ---------------------------------------------------------------- weights measured in the file itself

# A model that knows a kind of text tells its passages sharply apart, and ten words of a passage lead it back to that
# one; where it does not know the language, everything looks alike. The gap between the nearest passage and the tenth is
# that sharpness.

FEWEST_WINDOWS, MOST_WINDOWS, CHUNKS_A_WINDOW = 32, 96, 8
"""With 32 windows the weight is known to +-0.04, with 96 to +-0.02: a large group is measured with more."""
WINDOW_WORDS = 10
LEAST_WORDS = 30
READ_LANGUAGE = "english"
GROWTH = 1.5
"""A group is measured again when it is so much larger or smaller: the more passages, the nearer is the tenth (Cranfield
with 1,280 passages .112, with all 1,833 .094)."""
DEEP = 10
"""The nearest passage is compared with this one; and so many hits of each arm say which groups are concerned."""


@dataclass(frozen=True, slots=True)
class Group:
    """Passages of one collection, language and kind (prose or code)."""

    id: int
    collection_id: int
    language: str
    kind: str
    chunks: int
    gap: float | None = None
    """How sharply the model tells its passages apart, in ten deviations; None where it was not measured. Divided by the
    model's factor: what older versions measured, in files and packs, were cosines of the model's own scale."""


def load_groups(connection: apsw.Connection, collection_ids: Sequence[int]) -> dict[int, Group]:
    """Return the groups of those collections, by id."""
    sql = """
        select id, collection_id, language, kind, chunks, gap from groups
        where collection_id in (select value from carray(?))
    """
    rows = fetch_all(connection, sql, (id_list(collection_ids),))
    return {row[0]: Group(*row) for row in rows}


def weight_for(groups: Sequence[Group], default: float, calibration: Calibration, *, is_foreign: bool) -> float:
    """Return the mean weight of the first hits' groups; `is_foreign`: the question is not in the model's language.

    For a gap on the default model's scale it is 0.60 + 2 x (gap - 0.125), in 0.30..0.91.
    """
    # The most in another language than English, of passages or of the question.
    most = 1.0 if calibration.reads_all else 0.45
    weights: list[float] = []
    for group in groups:
        weight = default
        if group.gap is not None:
            weight = min(max(0.60 + 2.0 * (calibration.factor * group.gap - 0.125), 0.30), 0.91)
        weights.append(weight if group.language == READ_LANGUAGE else min(weight, most))
    weight = sum(weights) / len(weights) if weights else default
    return round(min(weight, most) if is_foreign else weight, 4)


def adapt_weights(database: Database, embedder: Embedder) -> int:
    """Measure the groups that were not yet, or have changed in size since; returns how many. 0.2 to 1 s a group."""
    calibrate(database, embedder)
    # Of the chunks, those that have vectors so far: the share that no longer waits.
    queued = "(select count(*) from vector_queue where vector_queue.collection_id = groups.collection_id)"
    sql = f"""
        select measured_chunks, groups.id, groups.collection_id, language, groups.kind,
            cast(chunks * (1 - 1.0 * {queued} / sum(chunks) over (partition by groups.collection_id)) as integer)
        from groups join collections on collections.id = groups.collection_id
        where model_id = ? and groups.kind <> '{WORD_ONLY}' and chunks > 0
    """
    measured: list[tuple[float, int, int]] = []
    with database.read() as connection:
        model_id, calibration = read_calibration(connection, embedder.identity)
        rows = fetch_all(connection, sql, (model_id,))
    for before, *columns in rows:
        group = Group(*columns)
        # Smaller groups keep the weight of the settings: too few passages to tell how near is near.
        is_changed = group.chunks >= GROWTH * before or GROWTH * group.chunks <= before
        if group.chunks >= 40 and is_changed and (gap := _measure_gap(database, embedder, model_id, group)):
            measured.append((gap / calibration.factor, group.chunks, group.id))
    if measured:
        with database.write() as connection:
            connection.executemany("update groups set gap = ?, measured_chunks = ? where id = ?", measured)
    return len(measured)


def _measure_gap(database: Database, embedder: Embedder, model_id: int, group: Group) -> float | None:
    # The mean difference of the nearest and the tenth cosine of questions, which are windows of the group's own text,
    # in ten times the deviation of a question's cosines, which every model has its own of (the default one about .1).
    # The windows' own passages stay in: how surely they are found is what is measured.
    # Passages spread over the group, the same ones in whatever order the files were read.
    sql = """
        select text, embedding from chunks join vectors on vectors.id = (?2 << 40 | chunks.id)
        where chunks.id in (
            select chunks.id from chunks join sources on sources.id = source_id
            where group_id = ?1 and words >= ?3 and trashed_at is null
                and exists (select 1 from vectors where vectors.id = (?2 << 40 | chunks.id))
            order by digest limit ?4
        )
        order by digest
    """
    most = min(max(group.chunks // CHUNKS_A_WINDOW, FEWEST_WINDOWS), MOST_WINDOWS)
    with database.read() as connection:
        rows = fetch_all(connection, sql, (group.id, model_id, LEAST_WORDS, most))
    # In a damaged file a number that is none, or far too large, would make the deviation one.
    sound = [row for row in rows if row[0].strip() and is_unit_vector(row[1], embedder.identity.dimension)]
    if len(sound) < FEWEST_WINDOWS // 2:
        return None
    windows: list[str] = []
    for number, (text, _) in enumerate(sound):
        words = text.split()
        start = number * 7919 % (max(len(words) - WINDOW_WORDS, 0) + 1)
        windows.append(" ".join(words[start : start + WINDOW_WORDS]))
    questions = np.stack([*embed_questions(embedder, windows)])
    cosines = questions @ np.stack([np.frombuffer(embedding, "<f4") for _, embedding in sound]).T
    others = cosines[~np.eye(len(sound), dtype=bool)].reshape(len(sound), -1)
    deviation = float(others.std(axis=1).mean())
    with database.read() as connection:
        # A separate index: a command that only adds documents keeps no index in memory.
        blocks = SignIndex().blocks(connection, model_id, [group.collection_id])
        hits = [nearest_chunks(connection, model_id, blocks, vector, DEEP) for vector in questions]
    gaps = [nearest[0][1] - nearest[-1][1] for nearest in hits if len(nearest) == DEEP]
    return sum(gaps) / len(gaps) / (10 * deviation) if gaps and deviation else None
