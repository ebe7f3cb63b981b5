"""Quick starts in the file: rows, tags, the index of whole documents, and the search over all of them in memory."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal, NamedTuple

import apsw

from localmcp.index.federation import shown_name
from localmcp.quickstarts.documents import Draft, Tag, Unreadable, read_values
from localmcp.schemas import Json, mapping_of
from localmcp.storage.connections import check_levenshtein
from localmcp.storage.database import bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed
from localmcp.tools import compact_json
from localmcp.wording.normalize import detect_language, fold, index_text, stem, stop_words


@dataclass(frozen=True, slots=True)
class Row:
    """A quick start as stored."""

    id: int
    name: str
    display_name: str
    description: str
    content: Json
    created_at: str
    updated_at: str
    tags: tuple[Tag, ...]
    origin: str | None = None
    """The mounted file that it is in."""

    @property
    def shown_name(self) -> str:
        return shown_name(self.name, self.origin)


_COLUMNS = """
    select id, name, display_name, description, content, created_at, updated_at,
        (select json_group_array(json_array(kind, value) order by kind, value)
            from quickstart_tags where quickstart_id = id)
    from quickstarts
"""
_SOUND = "length(content) <= 1000000 and iif(json_valid(content), json_type(content) = 'object', 0)"
"""Rows of a mounted file are untrusted: what cannot be a quick start is skipped."""


# ---------------------------------------------------------------- reading rows


def find_row(connection: apsw.Connection, name: str, origin: str | None = None) -> Row | None:
    """Return the quick start of that name, or else the only one of that title.

    An empty title names nothing: broken content has one (S0-8). `origin` is the mounted file's name.
    """
    there = f"deleted_at is null and {_SOUND if origin else '1'}"
    rows = fetch_all(connection, f"{_COLUMNS} where name = ? and {there}", (name,))
    if not rows and (title := name.strip()):
        rows = fetch_all(connection, f"{_COLUMNS} where display_name = ? collate nocase and {there}", (title,))
    return _row(rows[0], origin) if len(rows) == 1 else None


def list_rows(
    connection: apsw.Connection, tag: str | None, limit: int, origin: str | None = None, without: Sequence[str] = ()
) -> tuple[list[Row], int, Counter[str]]:
    """Return the first rows by title (-1 = all), how many there are in all, and the number of quick starts by
    `kind:value` of their tags; `without` those names. `origin` is the mounted file's name."""
    ids = tagged_ids(connection, tag)
    sql = f"""{_COLUMNS}
        where deleted_at is null and {_SOUND if origin else "1"}
            and (:ids is null or id in (select value from json_each(:ids)))
            and name not in (select value from json_each(:without))
    """
    bindings: Json = {"ids": None if ids is None else json.dumps(ids), "without": json.dumps(without)}
    total: int = fetch_one(connection, f"select count(*) from ({sql})", bindings)
    page = f"{sql} order by display_name collate nocase, name limit :limit"
    rows = [_row(row, origin) for row in fetch_all(connection, page, {**bindings, "limit": limit})]
    counted = """
        select kind || ':' || value, count(*) from quickstart_tags join quickstarts on id = quickstart_id
        where deleted_at is null and name not in (select value from json_each(?)) group by 1
    """
    return rows, total, Counter(dict(fetch_all(connection, counted, (json.dumps(without),))))


def contents(connection: apsw.Connection, names: Iterable[str]) -> dict[str, Json]:
    """Return name -> content of those that are there and readable, to compare files with each other."""
    sql = f"""
        select name, content from quickstarts
        where deleted_at is null and {_SOUND} and name in (select value from json_each(?))
    """
    rows = fetch_all(connection, sql, (json.dumps(list(names)),))
    return {name: content for name, text in rows if (content := _read_content(text))}


def names(connection: apsw.Connection) -> list[str]:
    """Return the names of all quick starts."""
    return fetch_column(connection, "select name from quickstarts where deleted_at is null")


def _row(columns: Sequence[Any], origin: str | None) -> Row:
    identity, name, title, description, content, created, updated, tags = columns
    pairs: list[list[Any]] = json.loads(tags)
    texts = [title, description, created, updated, *(word for pair in pairs for word in pair)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the quick start {name} is no text")
    read_tags = tuple((kind, value) for kind, value in pairs)
    return Row(identity, name, title, description, _read_content(content), created, updated, read_tags, origin)


def _read_content(text: str) -> Json:
    try:
        return mapping_of(next(read_values(text, ".json"), None))
    except Unreadable:
        # Broken, in a file that need not be ours (S0-8).
        return {}


# ---------------------------------------------------------------- writing rows


def put_quickstarts(connection: apsw.Connection, drafts: Iterable[Draft]) -> Counter[str]:
    """Add or update by name; counts `added`, `updated` and `unchanged`."""
    counts = Counter[str]()
    for draft in drafts:
        content, now = compact_json(draft.content), utc_now()
        sql = "select id, content from quickstarts where name = ? and deleted_at is null"
        identity, stored_content = fetch_one(connection, sql, (draft.name,)) or (None, "")
        if identity is not None:
            if stored_content == content and set(_tags(connection, identity)) == set(draft.tags):
                counts["unchanged"] += 1
                continue
            _put_into_trash(connection, identity)
        counts["added" if identity is None else "updated"] += 1
        sql = """
            insert into quickstarts (name, created_at, updated_at, content) values (:name, :now, :now, :content)
            on conflict (name) do update set content = :content, updated_at = :now, deleted_at = null returning id
        """
        identity = fetch_one(connection, sql, {"name": draft.name, "now": now, "content": content})
        connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
        connection.execute("delete from quickstart_tags where quickstart_id = ?", (identity,))
        rows = [(identity, kind, value) for kind, value in draft.tags]
        connection.executemany("insert into quickstart_tags values (?, ?, ?)", rows)
        _index(connection, identity)
    if counts["added"] or counts["updated"]:
        bump_generations(connection, "quickstarts")
    return counts


def rebuild_index(connection: apsw.Connection) -> None:
    """Make the index of the words of whole documents again. Part of the caller's write transaction."""
    connection.execute("insert into quickstarts_fts (quickstarts_fts) values ('delete-all')")
    sql = f"select id from quickstarts where deleted_at is null and {_SOUND}"
    for identity in fetch_column(connection, sql):
        _index(connection, identity)
    bump_generations(connection, "quickstarts")


def _index(connection: apsw.Connection, identity: int) -> None:
    # Stems of the whole document, so that forms of a word meet.
    sql = """
        select name from quickstarts where id = :id
        union all select value from quickstart_tags where quickstart_id = :id
        union all select atom from quickstarts, json_tree(content, '$.spec')
            where quickstarts.id = :id and type = 'text' and key not in ('icon', 'version', 'href', 'color')
                and path not like '$.spec.accessReviewResources%'
    """
    stems = index_text("\n".join(fetch_column(connection, sql, {"id": identity})), "english")
    connection.execute("insert into quickstarts_fts (rowid, text) values (?, ?)", (identity, stems))


def _tags(connection: apsw.Connection, identity: int) -> list[Tag]:
    return fetch_all(connection, "select kind, value from quickstart_tags where quickstart_id = ?", (identity,))


def remove_quickstarts(connection: apsw.Connection, ids: Iterable[int]) -> None:
    """Put quick starts into the trash; the rows stay, so that importing again revives them, too."""
    for identity in ids:
        _put_into_trash(connection, identity)
        connection.execute("update quickstarts set deleted_at = ? where id = ?", (utc_now(), identity))
        connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
    bump_generations(connection, "quickstarts")


def _put_into_trash(connection: apsw.Connection, identity: int) -> None:
    sql = "select name, content, updated_at from quickstarts where id = ?"
    [(name, content, updated_at)] = fetch_all(connection, sql, (identity,))
    tags = _tags(connection, identity)
    put_into_trash(connection, "quick start", name, {"content": content, "tags": tags, "updated_at": updated_at})


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a quick start back from the trash; the version that is there meanwhile goes there."""
    trashed = read_trashed(connection, entry)
    tags = tuple((kind, value) for kind, value in trashed["tags"])
    put_quickstarts(connection, [Draft(name=entry.name, content=_read_content(trashed["content"]), tags=tags)])
    # As it was, also where it cannot be read.
    sql = "update quickstarts set content = ?, updated_at = ? where name = ?"
    connection.execute(sql, (trashed["content"], trashed["updated_at"], entry.name))


# ---------------------------------------------------------------- scores

Field = Literal["name", "display_name", "description"]
MatchType = Literal["exact_match", "partial_match", "fuzzy_match", "fallback_match"]

WEIGHTS: dict[Field, int] = {"name": 15, "display_name": 10, "description": 20}
MOST_PARTIAL, FUZZY, MOST_FUZZY, FALLBACK, MOST_FALLBACK = 199, 200, 699, 700, 998
"""S0-10: partial 1..199, fuzzy 200..699, fallback 700..998."""
UNMATCHED_WORD, MOST_EXTRA_WORDS, COMMON_STEM = 6, 5, 2
"""Distance of a significant word that is not found, of all other words of the field, and of another form of a word."""
WHOLE_FIELD_SHARE = 0.3
"""A whole field may be mistyped by this share of its length."""

FILLERS = frozenset(
    """away back best concerning describe detail details down etc explain find give go going guide guides happen
    happens help kind know let like look looking need needed off please possible quick quickstart quickstarts regarding
    see show something tell thing things tutorial tutorials understand up via want wanted walk way ways wish""".split()
)
"""What people wrap a request in; counts only if the query has nothing else."""

DEEDS = frozenset(
    stem(word, "english")
    for word in """access add apply ask begin build change check choose configure connect control copy create define
    delete deploy document documentation download edit enable explore export fix generate get handle import information
    install introduce join learn list load make manage modify monitor move new open organize overview perform prepare
    provide read remove rename replace report reset review run save search send set setup share start stop store switch
    test track try turn update upgrade upload use view work write""".split()
)
"""What one does with anything: alone such a word does not show that a quick start is on the subject."""

_WORD = re.compile(r"[^\W_]+")


def folded_text(text: str) -> str:
    """Return a field or a search text as it is compared: NFKC, no case, no accents, single spaces, trimmed."""
    return " ".join(fold(text).split())


class Query:
    """A search text, taken apart."""

    def __init__(self, text: str, max_distance: int) -> None:
        self.max_distance = max_distance
        self.folded = folded_text(text)
        self.pattern = self.folded.strip(" .,;:!?\"'()[]")
        """The text without the punctuation around it, which a field need not have."""
        self.words = _WORD.findall(self.folded)
        """Runs of letters and digits, in order."""
        stop = stop_words("english") | stop_words(detect_language(self.folded) or "english")
        content = {word for word in self.words if word not in stop}
        important = content - FILLERS or content
        self.significant = [word for word in self.words if word in important]
        """Words that must be found, or cost; the others (stop words, "please show me") are ignored."""
        self.telling = {word for word in important if stem(word, "english") not in DEEDS} or important
        """The significant words that show what it is about."""
        self.only_stop_words = bool(self.words) and not content


def match_type(score: int) -> MatchType:
    """Return the tier of a score (S0-10)."""
    if score == 0:
        return "exact_match"
    if score <= MOST_PARTIAL:
        return "partial_match"
    return "fuzzy_match" if score <= MOST_FUZZY else "fallback_match"


def partial_distance(query: Query, folded: str) -> int | None:
    """Return the words of a field outside the match plus the characters of touched words outside it; None = no match.

    Of several places the best counts. Stop words would match by chance: a lone one matches nothing ("not" in
    "notifications"), several only as whole words.
    """
    pattern = query.folded if query.folded in folded else query.pattern
    if not query.words or not pattern or pattern not in folded:
        return None
    words = [match.span() for match in _WORD.finditer(folded)]
    distances: list[int] = []
    # In a text made to hold it everywhere, twenty places are enough.
    for match in islice(re.finditer(f"(?={re.escape(pattern)})", folded), 20):
        start, stop = match.start(), match.start() + len(pattern)
        touched = [(first, last) for first, last in words if first < stop and last > start]
        cut = max(0, start - touched[0][0]) + max(0, touched[-1][1] - stop) if touched else 0
        if not query.only_stop_words or (len(query.words) > 1 and not cut):
            distances.append(len(words) - len(touched) + cut)
    return min(distances, default=None)


def _by_words(query: Query, words: Sequence[str], edits: Mapping[str, Mapping[str, int]], foreign: int) -> int | None:
    # A one-to-one alignment of query and field words, the nearest first; None if it says too little.
    options = sorted(
        (edits[word][other], number, place)
        for number, word in enumerate(query.significant)
        for place, other in enumerate(words)
        if other in edits[word]
    )
    places: dict[int, int] = {}
    distance = 0
    for far, number, place in options:
        if number not in places and place not in places.values():
            places[number] = place
            distance += far
    missing = len(query.significant) - len(places)
    if not places or distance > query.max_distance:
        return None
    word_of = {query.significant[number]: words[place] for number, place in places.items()}
    # Never guess: half of the words are found, a telling one is certain, and they outnumber those that the whole
    # catalog does not know.
    certain = (word for word in query.telling if word in word_of and not word.isdigit())
    says_enough = (
        2 * sum(word in word_of for word in query.significant) >= len(query.significant)
        and len(word_of) > foreign
        and any(stem(word, "english") == stem(word_of[word], "english") for word in certain)
    )
    if missing and not says_enough:
        return None
    extra = sum(word not in query.words for place, word in enumerate(words) if place not in places.values())
    return distance + min(MOST_EXTRA_WORDS, extra) + UNMATCHED_WORD * missing


# ---------------------------------------------------------------- the catalog


class Match(NamedTuple):
    """A quick start of the answer."""

    name: str
    display_name: str
    description: str
    matched_field: str
    """The field whose score it is; `document` if the words were only found in the whole text."""
    place: tuple[int, int, int, int, str]
    """Sort key (§3): the score; how many more parameters matched; how much less of the search text the field has as it
    was typed, 0..100, which tells the tighter of two fuzzy matches; the length of the title; the name."""
    origin: str | None = None
    """The mounted file that it is in."""

    @property
    def score(self) -> int:
        return self.place[0]

    @property
    def shown_name(self) -> str:
        return shown_name(self.name, self.origin)


class Catalog:
    """A snapshot of the searched fields of one file."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.generation: int = fetch_one(connection, "select quickstarts from state")
        self.rows: dict[int, tuple[str, str, str]] = {}
        """Name, title and description by id."""
        self.folded: dict[Field, dict[int, str]] = {where: {} for where in WEIGHTS}
        self.ids_by_word: dict[Field, defaultdict[str, set[int]]] = {where: defaultdict(set) for where in WEIGHTS}
        sql = "select id, name, display_name, description from quickstarts where deleted_at is null"
        for identity, name, title, description in connection.execute(sql):
            self.rows[identity] = (str(name), str(title), str(description))
            for where, text in zip(WEIGHTS, self.rows[identity], strict=True):
                folded = self.folded[where][identity] = folded_text(text)
                for word in _WORD.findall(folded):
                    self.ids_by_word[where][word].add(identity)
        self.vocabulary = list(set[str]().union(*self.ids_by_word.values()))
        # Kept, for people type on.
        self.near = cache(self._near)

    def _near(self, word: str) -> dict[str, int]:
        """Return the catalog's words that a word may mean, and how far they are."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA, Levenshtein

        # Edits of a word: none in codes and up to 2 letters, 1 to 5, 2 to 8, else 3; a swap of neighbors counts as one.
        is_code = len(word) <= 2 or any(character.isdigit() for character in word)
        budget = 0 if is_code else 1 if len(word) <= 5 else 2 if len(word) <= 8 else 3
        near = process.extract(word, self.vocabulary, scorer=OSA.distance, score_cutoff=budget, limit=None)
        edits = {other: Levenshtein.distance(word, other) for other, _, _ in near}
        for other in self.vocabulary if len(word) >= 4 else ():
            # "started" and "start", "config" and "configuring" are forms of one word.
            if other.startswith(word[:4]) and (
                word.startswith(other) or other.startswith(word) or stem(word, "english") == stem(other, "english")
            ):
                edits[other] = min(Levenshtein.distance(word, other), COMMON_STEM)
        # Words up to five letters, and any with three edits, keep their first letter.
        return {other: far for other, far in edits.items() if word[0] == other[0] or (len(word) > 5 and far <= 2)}

    def scores(self, where: Field, query: Query) -> dict[int, int]:
        """Return id -> score, 0..699, of the quick starts whose field answers: that of its best tier.

        Scored are those whose field holds the query, or half of its words, or is nearly the query as a whole.
        """
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        folded, ids_by_word = self.folded[where], self.ids_by_word[where]
        # Significant word -> words of the catalog -> Levenshtein distance, 2 for another form of the word.
        edits = {word: self.near(word) for word in query.significant}
        # How many of the words no quick start knows in the field ("mortgage" in "mortgage calculator"). In a smaller
        # catalog, a missing word says nothing about the question.
        foreign = sum(map(ids_by_word.keys().isdisjoint, edits.values())) if len(self.rows) >= 20 else 0
        counts = Counter[int]()
        for word in query.significant:
            counts.update(set[int]().union(*(ids_by_word.get(other, ()) for other in edits[word])))
        most = min(query.max_distance, int(WHOLE_FIELD_SHARE * (len(query.folded) + query.max_distance)))
        near = process.extract(query.folded, folded, scorer=Levenshtein.distance, score_cutoff=most, limit=None)
        whole = {identity: distance for _, distance, identity in near}
        candidates = whole.keys() | {identity for identity, text in folded.items() if query.pattern in text}
        candidates |= {identity for identity, count in counts.items() if 2 * count >= len(query.significant)}
        scores: dict[int, int] = {}
        for identity in candidates:
            text = folded[identity]
            words = _WORD.findall(text)
            if text == query.folded:
                if text:
                    scores[identity] = 0
            elif (distance := partial_distance(query, text)) is not None:
                scores[identity] = min(max(WEIGHTS[where] * distance, 1), MOST_PARTIAL)
            elif query.significant and words:
                by_words, as_whole = _by_words(query, words, edits, foreign), whole.get(identity)
                if as_whole is not None and as_whole > WHOLE_FIELD_SHARE * max(len(text), len(query.folded)):
                    as_whole = None
                if fuzzy := [distance for distance in (by_words, as_whole) if distance is not None]:
                    scores[identity] = min(FUZZY + WEIGHTS[where] * min(fuzzy), MOST_FUZZY)
        return scores


def find_quickstarts(
    connection: apsw.Connection, catalog: Catalog, queries: Mapping[Field, Query], limit: int, tag: str | None
) -> list[Match]:
    """Return the best matches, best first; without `levenshtein` only those that hold the exact text (S0-17)."""
    from rapidfuzz import fuzz

    ids, fuzzy = tagged_ids(connection, tag), check_levenshtein(connection)
    allowed = catalog.rows.keys() if ids is None else catalog.rows.keys() & ids
    scores: dict[int, list[tuple[int, Field]]] = {}
    for where, query in queries.items():
        if fuzzy:
            by_field = catalog.scores(where, query)
        else:
            by_field = {
                identity: min(FALLBACK + WEIGHTS[where] * distance, MOST_FALLBACK)
                for identity, text in catalog.folded[where].items()
                if (distance := partial_distance(query, text)) is not None
            }
        for identity in by_field.keys() & allowed:
            scores.setdefault(identity, []).append((by_field[identity], where))
    matches: list[Match] = []
    for identity, by_parameter in scores.items():
        score, where = min(by_parameter, key=lambda pair: pair[0])
        likeness = 0
        if FUZZY <= score < FALLBACK:
            likeness = round(fuzz.partial_ratio(queries[where].folded, catalog.folded[where][identity]))
        row = catalog.rows[identity]
        matches.append(Match(*row, where, (score, -len(by_parameter), -likeness, len(row[1]), row[0])))
    matches.sort(key=lambda match: match.place)
    if fuzzy and len(matches) < limit:
        matches += find_in_documents(connection, catalog, queries, allowed - scores.keys())
    return matches[:limit]


def find_in_documents(
    connection: apsw.Connection, catalog: Catalog, queries: Mapping[Field, Query], allowed: Iterable[int]
) -> list[Match]:
    """Return quick starts whose whole text holds every significant word, most in the title first."""
    matches: dict[int, Match] = {}
    for where, query in queries.items():
        stemmed = [stems for word in query.significant if (stems := index_text(word, "english"))]
        if query.only_stop_words or not any(word.isalpha() and len(word) > 2 for word in query.significant):
            continue
        sql = "select rowid from quickstarts_fts where quickstarts_fts match ? limit 250"
        for (identity,) in fetch_all(connection, sql, (" AND ".join(f'"{stems}"' for stems in stemmed),)):
            if identity in allowed:
                row = catalog.rows[identity]
                title = index_text(" ".join(row[:2]), "english")
                missing = sum(f" {stems} " not in f" {title} " for stems in stemmed)
                score = min(FALLBACK + WEIGHTS[where] * missing, MOST_FALLBACK)
                match = Match(*row, "document", (score, 0, 0, len(row[1]), row[0]))
                matches[identity] = min(match, matches.get(identity, match), key=lambda match: match.place)
    return sorted(matches.values(), key=lambda match: match.place)


def tagged_ids(connection: apsw.Connection, tag: str | None) -> list[int] | None:
    """Return ids of the quick starts with a tag, `value` or `kind:value`; None for no tag = all."""
    if tag is None:
        return None
    kind, _, value = tag.rpartition(":")
    sql = """
        select distinct quickstart_id from quickstart_tags
        where value = :value and (:kind = '' or kind = :kind) or value = :tag
    """
    return fetch_column(connection, sql, {"kind": kind, "value": value, "tag": tag})
