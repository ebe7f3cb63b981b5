"""The keyword arm: any text becomes a bounded FTS5 query, whose hits are scored by bm25; what to highlight."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import apsw

from localmcp.readers.outline import HEADING
from localmcp.storage.database import fetch_all, fetch_one, id_list
from localmcp.wording.normalize import (
    detect_language,
    find_codes,
    fold,
    index_text,
    indexed_text,
    phrases,
    plain_letters,
    stem,
    stop_words,
    words,
)
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
pages say of themselves, the page among the first three of a million passages: .120 without them, .660 with eight)."""
REPAIR_WEIGHT = 0.6
"""What a hit on a repaired word counts, so that an exact hit stays above it."""
FTS5_LENGTH_SHARE, LENGTH_SHARE = 0.75, 0.35
"""The `b` of bm25: how much a longer passage must hold a term more often. FTS5 has the first built in; the second is
better for passages, which are of similar length (nDCG@10 of hybrid search: CACM .551 -> .576, others within .002)."""
TYPICAL_FREQUENCY = 3.0
"""The weighted frequency of a term for which the change from one `b` to the other is exact."""
SATURATION = 1.2
"""The `k1` of FTS5's bm25: how soon further mentions of a term add little."""
NEIGHBOR_SHARE = 0.4
"""How much of a passage's score is the mean of its own and those of the passages before and after it: a document that
answers in several places comes before one lucky passage (nDCG@10 of hybrid search: sections of a reference .790 ->
.803, German XQuAD .947 -> .954; no set loses .002)."""
COMPOUNDING = frozenset("danish dutch finnish german hungarian norwegian swedish turkish".split())
COMPOUND_LETTERS = 6
"""In these languages a stem of so many letters also finds the words that begin with it: "Kündigung" finds
"Kündigungsfrist" (nDCG@10 of hybrid search: German questions and answers .557 -> .570)."""
ABSENT = "in no passage"
"""Why a word is not searched for."""

Stems = tuple[str, ...]
_NAME = re.compile(r"(?<=[^.!?:\s] )[^\W\d_a-z]\w*")
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»]{3,200})[\"“”»]")
_CODE = re.compile(r"\d|\b(?:dot|option|section)\w|(?:plusplus|sharp)\b")
"""What a word that stands for a code may look like."""
_LEFT_OUT = re.compile(r"(?<!\S)-([^\W\d_]\w+)(?!\S)")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


@dataclass(frozen=True, slots=True)
class Term:
    """One unit of the query: a word, or several that have to be adjacent, as those of a code."""

    word: str
    """As typed, folded."""
    alternatives: tuple[str, ...]
    """The searched stems: one phrase for each language that may be meant, `3 11 7`; `kundig*` means all stems that
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
    quoted: frozenset[str] = frozenset()
    """Words of the terms that were in quotation marks."""
    left_out: tuple[Term, ...] = ()
    """What no hit may hold: `-word`."""
    may_hold_codes: bool = True
    """False where no code of a text could match."""

    @property
    def attainable(self) -> float:
        """The bm25 score that a text with the eight heaviest words of the query approaches; absent words count too."""
        idf = {term.word: term.idf for term in self.terms}
        idf |= dict.fromkeys(self.absent, self.missing_idf)
        # Paragraphs hold many more that no answer repeats.
        return (1 + SATURATION) * sum(sorted(idf.values(), reverse=True)[:8])

    @property
    def absent(self) -> list[str]:
        """The words that are in no passage."""
        return [word for word, reason in self.dropped if reason == ABSENT]

    @property
    def repairs(self) -> list[Correction]:
        return list({term.repair.word: term.repair for term in self.terms if term.repair}.values())


Keep = Callable[[int, Hashable, Callable[[], Any]], Any]
"""Returns what was made for a generation under a key, or makes it."""


def split_left_out(text: str) -> tuple[str, list[str]]:
    """Return the text of a query without its `-words`, and those folded; a query of nothing else has none."""
    plain = _LEFT_OUT.sub(" ", text)
    return (plain, list(map(fold, _LEFT_OUT.findall(text)))) if plain.strip() else (text, [])


def build_query(
    connection: apsw.Connection, text: str, collection_ids: Sequence[int], keep: Keep, generation: int
) -> KeywordQuery:
    """Turn any text into a query over those collections; every token is literal, whatever FTS5 would make of it."""
    file = _Words(connection, text, collection_ids, keep, generation)
    languages = file.languages
    plain, left_out = split_left_out(text)
    codes = find_codes(plain)
    indexed = {term.word for term in file.terms([(code.word,) for code in codes], languages) if term.chunks}
    # Words in order, those of a code as the one word that the index has for it.
    parts, start = list[Stems](), 0
    for code in codes:
        if code.word in indexed:
            parts += [*phrases(plain[start : code.start]), (code.word,)]
            start = code.stop
    units, seen = list[Stems](), Counter[Stems]()
    for unit in [*parts, *phrases(plain[start:])][:MOST_UNITS]:
        seen[unit] += 1
        if seen[unit] <= MOST_REPEATS:
            units.append(unit)
    typed_right = set[str]()
    if "german" not in languages and not text.isupper():
        # A capital inside a sentence begins a name. German writes every noun so; in capitals alone they say nothing.
        typed_right.update(map(fold, _NAME.findall(text)))
    stops = frozenset[str]().union(*map(stop_words, languages))
    terms = [
        term if term.chunks or term.word in stops else file.expand(unit, typed_right)
        for unit, term in zip(units, file.terms(units, languages), strict=True)
    ]
    dropped: list[tuple[str, str]] = []
    phrases_quoted = [tuple(words(phrase)) for phrase in _QUOTED.findall(plain)]
    quoted = [term for term in file.terms([unit for unit in phrases_quoted if unit[1:]], languages) if term.chunks]
    # A query of nothing but stop words, or of those and words that no text holds, is searched by them.
    if quoted or any(term.chunks for term in terms if term.word not in stops):
        dropped = [(term.word, "stop word") for term in terms if term.word in stops]
        terms = [term for term in terms if term.word not in stops]
    absent = dict.fromkeys(term.word for term in terms if not term.chunks and term.word not in stops)
    sql = "select coalesce(avg(words), 0.0) from chunks indexed by chunk_sources"
    # Measured again (5 ms for 100,000) when a tenth of the passages are new.
    tenths = round(math.log(max(file.total, 1), 1.1))
    return KeywordQuery(
        # Words in quotation marks, side by side, count three times.
        terms=tuple(term for term in [*terms, *(3 * quoted)] if term.chunks),
        languages=languages,
        dropped=(*dropped, *((word, ABSENT) for word in absent)),
        missing_idf=inverse_frequency(0, file.total),
        mean_length=keep(tenths, "mean length", lambda: fetch_one(connection, sql)),
        quoted=frozenset(term.word for term in quoted),
        may_hold_codes=_CODE.search(" ".join(term.word for term in terms)) is not None,
        left_out=tuple(file.terms([(word,) for word in left_out], [*languages, *file.others])),
    )


class _Words:
    """The words of the collections that are searched, and the languages that a query of them may be in."""

    def __init__(
        self, connection: apsw.Connection, text: str, collection_ids: Sequence[int], keep: Keep, generation: int
    ) -> None:
        self.connection, self.collection_ids, self.keep, self.generation = connection, collection_ids, keep, generation
        self.total = fetch_one(connection, "select coalesce(sum(chunks), 0) from groups")
        """Chunks in the file."""
        sql = """
            select language, sum(chunks) from groups
            where collection_id in (select value from carray(?)) and chunks > 0 group by language order by 2 desc, 1
        """
        rows = fetch_all(connection, sql, (id_list(collection_ids),))
        sizes: dict[str, int] = dict(rows)
        detected, least = detect_language(text), 0.1 * sum(sizes.values())
        if detected in sizes:
            self.languages = (detected,)
        else:
            # Each that holds this share of the chunks stems a query in no known language.
            self.languages = tuple(name for name, chunks in sizes.items() if chunks >= least)[:3] or ("english",)
        self.others = [language for language in sizes if language not in self.languages]
        """Those of the other passages, the most frequent first."""
        self.umlauts: dict[str, str] | None = None
        """How folded words of the query that have one are written without: "Öl" as "oel"; None without German texts."""
        if "german" in (*self.languages, *self.others):
            typed = re.findall(r"\w*[äöüÄÖÜ]\w*", text)
            self.umlauts = {fold(word): fold(word.lower().translate(_UMLAUTS)) for word in typed}

    def terms(self, units: Sequence[Stems], languages: Sequence[str]) -> list[Term]:
        if not units:
            return []
        alternatives = [_alternatives(unit, languages, self.umlauts) for unit in units]
        stems = {part for spellings in alternatives for phrase in spellings for part in phrase}
        # How many chunks hold each stem: in the whole file (for idf, as bm25 counts), and where the caller may look.
        everywhere, visible = Counter[str](), Counter[str]()
        sql = """
            select collections.id, pattern.value, chunks from collections
            cross join carray(?) as pattern  -- in this order: else every term of the file is read
            cross join terms on terms.collection_id = collections.id and term >= rtrim(pattern.value, '*')
                and term <= replace(pattern.value, '*', char(0x10ffff))
        """
        for collection_id, term, chunks in fetch_all(self.connection, sql, (apsw.carray(tuple(stems)),)):
            everywhere[term] += chunks
            if collection_id in self.collection_ids:
                visible[term] += chunks
        terms: list[Term] = []
        for unit, spellings in zip(units, alternatives, strict=True):
            # Of a phrase, its rarest part.
            held = {phrase: chunks for phrase in spellings if (chunks := min(visible[part] for part in phrase))}
            in_file = sum(min(everywhere[part] for part in phrase) for phrase in held)
            idf = inverse_frequency(in_file, self.total)
            terms.append(Term(" ".join(unit), tuple(map(" ".join, held)), sum(held.values()), idf))
        return terms

    def expand(self, unit: Stems, typed_right: set[str]) -> Term:
        """Return a unit that no passage holds as it may be meant: in another language or spelling, or corrected."""
        # A word of another language of the file, in a question that mixes them or that is too short to tell.
        [term] = self.terms([unit], self.others) if self.others else [Term(" ".join(unit), (), 0, 0.0)]
        if not term.chunks and (plain := tuple(map(plain_letters, unit))) != unit:
            [term] = self.terms([plain], self.languages)
        if term.chunks or len(unit) > 1 or term.word in typed_right:
            return term
        # What is meant is in a language of the query in one of the first passages that hold it.
        sql = """
            with hits as materialized (select rowid as id from chunks_fts where chunks_fts match ? limit 100)
            select 1 from hits join chunks on chunks.id = hits.id join groups on groups.id = group_id
            where language in (select value from carray(?)) and collection_id in (select value from carray(?)) limit 1
        """
        among = apsw.carray(self.languages), id_list(self.collection_ids)
        kept = partial(self.keep, self.generation)
        lists = [kept(("words", row), partial(self._read_list, row)) for row in self.collection_ids]
        for correction in correct(term.word, *lists)[:3]:
            [meant] = self.terms([(correction.replacement,)], self.languages)
            if meant.chunks and fetch_one(self.connection, sql, (match_expression([meant]), *among)):
                return Term(term.word, meant.alternatives, meant.chunks, meant.idf, correction)
        return term

    def _read_list(self, collection_id: int) -> WordList:
        sql = "select word, chunks from words where collection_id = ?"
        return WordList(dict(fetch_all(self.connection, sql, (collection_id,))))


def _alternatives(unit: Stems, languages: Sequence[str], umlauts: Mapping[str, str] | None) -> tuple[Stems, ...]:
    spellings, (first, *others) = [unit], unit
    if others and first.isdigit():
        # `1.5.4` is often written `v1.5.4`.
        spellings.append((f"v{first}", *others))
    elif others and first[0] == "v" and first[1:].isdigit():
        spellings.append((first[1:], *others))
    elif umlauts is not None:
        spellings.append((umlauts.get(first) or re.sub("([aou])e", r"\1", first), *others))
    stemmed: dict[Stems, None] = {}
    for spelling in spellings:
        for language in languages:
            phrase = tuple(stem(word, language) for word in spelling)
            is_long = len(phrase) == 1 and len(phrase[0]) >= COMPOUND_LETTERS and phrase[0].isalpha()
            stemmed[(f"{phrase[0]}*",) if is_long and language in COMPOUNDING else phrase] = None
    return tuple(stemmed)


def inverse_frequency(chunks: int, total: int) -> float:
    """Return the idf as FTS5 counts it: ln((N - n + 0.5) / (n + 0.5)), never below 1e-6."""
    ratio = (total - chunks + 0.5) / (chunks + 0.5)
    return max(math.log(ratio), 1e-6) if ratio > 0 else 1e-6


def search_words(connection: apsw.Connection, query: KeywordQuery, depth: int, sources: Any = None) -> dict[int, float]:
    """Return chunk id -> bm25 (higher is better), best first, at most `depth`; `sources` (int64 array) restricts it."""
    # The list is made once: inside an `exists` SQLite reads the array again for every posting (386 ms instead of 3).
    narrowing = """
        and (select source_id from chunks indexed by chunk_sources where chunks.id = chunks_fts.rowid)
            in (select value from carray(:sources))
    """
    # From FTS5's share of length to ours. A word in the title counts twice.
    theirs, ours = (
        f"({TYPICAL_FREQUENCY} + {SATURATION} * ({1 - share} + {share} * ratio))"
        for share in (FTS5_LENGTH_SHARE, LENGTH_SHARE)
    )
    sql = f"""
        select id, -score / :copies * {theirs} / {ours} as corrected from (
            select id, score, coalesce((
                select max(words, 0) / :mean from chunks indexed by chunk_sources where chunks.id = hits.id
            ), iif(:mean, 0.0, 1.0)) as ratio from (
                select rowid as id, bm25(chunks_fts, 2.0, 1.0) as score from chunks_fts
                where chunks_fts match :match {narrowing if sources is not None else ""}
                order by score, rowid limit :depth
            ) as hits
        )
    """
    bindings: dict[str, Any] = {"depth": depth, "mean": query.mean_length}
    if sources is not None:
        if not len(sources):
            return {}
        bindings["sources"] = apsw.carray(sources)
    exact = [term for term in query.terms if term.repair is None]
    repaired = [term for term in query.terms if term.repair is not None]
    scores: dict[int, float] = {}
    for terms, weight in ((exact, 1.0), (repaired, REPAIR_WEIGHT)):
        if not terms:
            continue
        # The terms whose postings fit the budget, always the rarest.
        spent, affordable, budget = 0, set[str](), max(POSTINGS_BUDGET, POSTINGS_A_WORD * len(terms))
        for term in sorted({term.word: term for term in terms}.values(), key=lambda term: term.chunks):
            spent += term.chunks
            if spent <= budget or not affordable:
                affordable.add(term.word)
        match, copies = match_expression([term for term in terms if term.word in affordable]), 1
        if frequent := sorted((term for term in terms if term.word not in affordable), key=lambda term: term.chunks):
            # A passage needs a rare word, but all count: FTS5 scores every mention of a term in the query.
            often = match_expression(frequent[:MOST_FREQUENT])
            match, copies = f"({match}) AND ({match} OR {often} OR {often})", 2
        for chunk_id, score in fetch_all(connection, sql, {**bindings, "match": match, "copies": copies}):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + weight * score
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth])


def mix_neighbors(
    scores: Mapping[int, float], chunk_ids: Iterable[int], sources: Mapping[int, int]
) -> dict[int, float]:
    """Return the scores of chunks with a share of those that are before and after them in their source."""
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
    phrases = (phrase for term in terms for phrase in term.alternatives)
    return " OR ".join(f'"{phrase[:-1]}" *' if phrase.endswith("*") else f'"{phrase}"' for phrase in phrases)


def matched_words(query: KeywordQuery, text: str, language: str) -> list[str]:
    """Return the query's words (as typed) that are in a text of that language."""
    stems = f" {(indexed_text if query.may_hold_codes else index_text)(text, language)} "
    return list(dict.fromkeys(term.word for term in query.terms if holds(stems, term)))


def holds(stems: str, term: Term) -> bool:
    """Return whether the stems of a text, with a space around each, hold the term; parts of a code are adjacent."""
    # A loop, not any(): a search asks this some 300 times.
    for phrase in term.alternatives:
        if (f" {phrase[:-1]}" if phrase[-1] == "*" else f" {phrase} ") in stems:
            return True
    return False


# ---------------------------------------------------------------- documents named by their files

MOST_WORDS = 6
"""A text of more words, numbers aside, is no name of a file, but may hold one."""
MOST_FILES, CHARACTERS_READ = 3, 2_000
"""File names with their suffixes, and characters, in which they are looked for."""
_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_FILE_NAME = re.compile(r"[^\s/\\#\"'`“”‘’«»()\[\]{}<>,;:?!*]+\.[A-Za-z][A-Za-z0-9]{0,4}(?![\w.])")


def named_sources(
    connection: apsw.Connection, text: str, collection_ids: Sequence[int], allowed: Any
) -> tuple[dict[int, float], bool]:
    """Return the documents that the text names by their files, and whether it says no more than that.

    They are source id -> share of the words of the file's name that the text holds, above 0 up to 1. A document is
    named if the text holds its file name with the suffix, or if its path holds every word of the text, at least one of
    them in its name. Those whose path holds most words of the text are meant.
    """
    text = text[:CHARACTERS_READ]
    words, folded = set(words_of(text)), fold(text)
    parts = sorted(set(map(_pattern, _split(text))), key=len, reverse=True)
    is_name = parts and sum(not part.isdigit() for part in parts) <= MOST_WORDS
    patterns = [[f"%{part}%" for part in parts]] if is_name else []
    for file in [*dict.fromkeys(_FILE_NAME.findall(text))][:MOST_FILES]:
        stem, _, suffix = file.rpartition(".")
        patterns.append([f"%{_pattern(stem)}.{suffix}"])
    # Where the path may hold what is asked for: 1 ms for 10,000 documents.
    ids = ",".join(map(str, collection_ids))
    sql = f"select id, uri from sources where collection_id in ({ids}) and trashed_at is null and uri is not null"
    likely = [(f"{sql}{' and uri like ?' * len(likes)} limit 500", likes) for likes in patterns]
    shares: dict[int, float] = {}
    most = 0
    for source_id, path in chain.from_iterable(fetch_all(connection, *query) for query in likely):
        name, in_path = file_name(path), words.intersection(words_of(path))
        in_name = words.intersection(words_of(name))
        is_whole = in_path == words and words.intersection(words_of(name.rpartition(".")[0] or name))
        is_named = is_whole or ("." in name and fold(name) in folded)
        if not in_name or not is_named or (allowed is not None and source_id not in allowed):
            continue
        if len(in_path) > most:
            most, shares = len(in_path), {}
        if len(in_path) == most:
            shares[source_id] = len(in_name) / len(set(words_of(name)))
    # Many documents of one name are no answer: "readme" is a word like others in a folder of projects.
    return (shares, bool(shares) and most == len(words)) if len(shares) <= 5 else ({}, False)


def _pattern(word: str) -> str:
    """Return what LIKE looks for: SQLite knows upper and lower case of ASCII letters only, and capitals come first."""
    lower = word.lower()
    return re.sub(r"[^a-z0-9]+", "%", lower) if re.search(r"[a-z0-9]", lower) else lower[1:]


def _split(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", _BOUNDARY.sub(" ", text))


def words_of(text: str) -> Iterator[str]:
    """Yield the folded words of a path or of a query; "QuarterlyReport2025" has three."""
    return map(fold, _split(text))


def file_name(path: str) -> str:
    """Return the last part of a path, of a member of an archive too."""
    return re.split(r"[/\\#]", path)[-1]


# ---------------------------------------------------------------- the sentence that answers

LONGEST = 400
"""A longer sentence is a table, a log or a list without stops, and is taken in parts."""
PART, MOST_READ = 200, 20_000
"""Characters of such a part, at most, and of a sentence that are looked at: in a damaged file it may be a megabyte."""
LEAST_SHARE = 0.25
"""A paragraph matches if its words count at least this share of what those of the best one count; with .35 one of 108
questions about the samples loses its answer."""
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_END = re.compile(
    r"(?<=[.!?؟۔])(?<!\n\d\.)(?<!\n\d\d\.)[\"'”»)]*\s+|(?<=[。！？])|\n\s*\n"
    r"|\n(?!([-=~^\"*+#])\1{2,}[ \t]*(?:\n|\Z))(?=\s*(?:[-*#|>•+]|\d+[.)]\s))|(?<=[|:])[ \t]*\n"
)


def find_highlight(query: KeywordQuery, text: str, language: str) -> tuple[int, int] | None:
    """Return start and stop, in code points of `text`, of its best sentence; None if it holds no word of the query."""
    places = [*sentence_parts(text)]
    scores = _scores(query, (text[start:stop] for start, stop in places), language)
    best = max(scores, default=0.0)
    return places[scores.index(best)] if best > 0 else None


def matching_paragraphs(query: KeywordQuery, text: str, language: str) -> tuple[int, int]:
    """Return start and stop of the paragraphs that hold words of the query, with one before and one after them.

    A step, or what a table says, mostly comes right after the words that it is asked for with; what another heading is
    above does not. Where no paragraph holds a word, it is the whole text.
    """
    # A heading is part of the paragraph below it.
    places, begins_section = list[tuple[int, int]](), list[bool]()
    start = begin = 0
    for stop, after in [*(end.span() for end in _BLANK_LINE.finditer(text)), (len(text), len(text))]:
        is_heading = HEADING.match(text, begin, stop) is not None
        if begin == start:
            begins_section.append(is_heading)
        if stop == len(text) or not HEADING.fullmatch(text, begin, stop):
            places.append((start, stop))
            start = after
        begin = after
    scores = _scores(query, (text[start:stop] for start, stop in places), language)
    matching = [index for index, score in enumerate(scores) if 0 < score >= LEAST_SHARE * max(scores)]
    if not matching:
        return 0, len(text)
    first, last = matching[0], matching[-1]
    if first and not begins_section[first]:
        first -= 1
    if last + 1 < len(places) and not begins_section[last + 1]:
        last += 1
    return places[first][0], places[last][1]


def sentence_parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each sentence; of a long one those of its parts, cut at lines or else between words."""
    for start, end in sentences(text):
        stop = min(end, start + MOST_READ)
        while stop - start > LONGEST:
            window = text[start : start + PART + 1]
            at = start + (max(window.rfind("\n"), 0) or max(window.rfind(" "), 0) or PART)
            yield start, at
            start = at
            while text[start].isspace():
                start += 1
        if start < stop:
            yield start, stop


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each sentence, list item or table row, without the space around it."""
    start = 0
    for end in [*_END.finditer(text), None]:
        stop = end.start() if end else len(text)
        piece = text[start:stop]
        if piece.strip():
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = end.end() if end else stop


def _scores(query: KeywordQuery, pieces: Iterable[str], language: str) -> list[float]:
    idf = {term.word: term.idf for term in query.terms}
    scores: list[float] = []
    for piece in pieces:
        # A sentence below a heading that holds the same words says more.
        share = 0.5 if HEADING.match(piece) else 1.0
        scores.append(share * sum(idf[word] for word in matched_words(query, piece, language)))
    return scores
