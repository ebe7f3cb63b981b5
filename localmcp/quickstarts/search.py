"""Ranking: candidates from memory, scored and ordered by one SQL statement with our functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import apsw

from localmcp.index.federation import shown_name
from localmcp.quickstarts.candidates import FIELDS, WordCache
from localmcp.quickstarts.matching import (
    NO_MATCH,
    Field,
    MatchType,
    Neighbors,
    Query,
    fallback_score,
    fold_text,
    match_field,
    match_type,
    partial_distance,
    read_query,
)
from localmcp.storage.database import fetch_all
from localmcp.wording.normalize import index_text
from localmcp.wording.spelling import likeliest_word

LOOSENESS_STEPS = 64
"""The registered function packs score and looseness into one number: score x 64 + looseness."""
MOST_FALLBACKS = 250
RANKED_AT_ONCE = 50
"""Candidates that are scored before it is asked whether a further one can still be among the best."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is searched for; at least one text."""

    texts: Mapping[Field, str]
    limit: int = 10
    max_distance: int = 7
    tag: str | None = None
    """`value` or `kind:value`; only quick starts that carry it."""


class Found(NamedTuple):
    """One quick start of the answer."""

    id: int
    name: str
    display_name: str
    description: str
    score: int
    matched_field: str
    """The field whose score it is; `document` if the words were only found in the whole text."""
    matched_parameters: int = 0
    best: int = 0
    """Score and looseness of that field."""
    origin: str | None = None
    """The mounted file that it is in."""

    @property
    def match_type(self) -> MatchType:
        return match_type(self.score)

    @property
    def shown_name(self) -> str:
        return shown_name(self.name, self.origin)

    @property
    def place(self) -> tuple[int, int, int, int, str]:
        """Orders the matches of several files as SQL orders those of one."""
        return self.score, -self.matched_parameters, self.best, len(self.display_name), self.name


def find_quickstarts(connection: apsw.Connection, cache: WordCache, request: Request) -> list[Found]:
    """Return the best matches, best first.

    Ties as §3 says: more parameters matched, then shorter title, then name.
    """
    words = cache.read(connection)
    queries: dict[Field, Query] = {where: read_query(text) for where, text in request.texts.items()}
    allowed = tagged_ids(connection, request.tag)
    neighbors: dict[str, Neighbors] = {}
    least: dict[int, int] = {}
    for where, query in queries.items():
        neighbors |= words.neighbors(query, connection)
        for identity, score in words.candidates(query, where, neighbors, request.max_distance).items():
            least[identity] = min(score, least.get(identity, NO_MATCH))
    if allowed is not None:
        least = {identity: least[identity] for identity in allowed if identity in least}
    _register_functions(connection, queries, neighbors, request.max_distance)
    matches: list[Found] = []
    ids = sorted(least, key=lambda identity: least[identity])
    for start in range(0, len(ids), RANKED_AT_ONCE):
        if len(matches) == request.limit and matches[-1].score < least[ids[start]]:
            break
        matches += _rank(connection, queries, ids[start : start + RANKED_AT_ONCE], request.limit)
        matches = sorted(matches, key=lambda match: match.place)[: request.limit]
    if len(matches) < request.limit:
        matches += _in_documents(connection, queries, matches, allowed, request.limit - len(matches))
    if matches:
        return matches
    # Words that no dictionary has are replaced by those they are likeliest slips of.
    respelled: dict[Field, Query] = {
        where: read_query(" ".join(map(likeliest_word, query.words))) for where, query in queries.items()
    }
    return _in_documents(connection, respelled, (), allowed, request.limit)


def find_by_substring(connection: apsw.Connection, request: Request) -> list[Found]:
    """Fallback mode (S0-17): find the exact text anywhere in a field, without corrections."""
    queries: dict[Field, Query] = {where: read_query(text) for where, text in request.texts.items()}
    allowed = tagged_ids(connection, request.tag)
    _register_functions(connection, queries, {}, 0)
    tests = " or ".join(f"quickstart_substring('{where}', {where}) is not null" for where in queries)
    scores = _least(f"coalesce(quickstart_substring('{where}', {where}), {NO_MATCH})" for where in queries)
    rows = fetch_all(
        connection,
        f"""
        select id, name, display_name, description, {scores} as score, '{next(iter(queries))}'
        from quickstarts
        where deleted_at is null and ({tests}) and (:ids is null or id in (select value from json_each(:ids)))
        order by score, length(display_name), name
        limit :limit
        """,
        {
            "ids": None if allowed is None else json.dumps(list(allowed)),
            "limit": request.limit,
        },
    )
    return [Found(*row) for row in rows]


def tagged_ids(connection: apsw.Connection, tag: str | None) -> list[int] | None:
    """Return ids of the quick starts with a tag, `value` or `kind:value`; None for no tag = all."""
    if tag is None:
        return None
    kind, _, value = tag.rpartition(":")
    rows = fetch_all(
        connection,
        """
        select distinct quickstart_id from quickstart_tags
        where value = :value and (:kind = '' or kind = :kind) or value = :tag
        """,
        {"kind": kind, "value": value, "tag": tag},
    )
    return [identity for (identity,) in rows]


# ---------------------------------------------------------------- exact, partial, fuzzy


def _register_functions(
    connection: apsw.Connection, queries: Mapping[Field, Query], neighbors: Mapping[str, Neighbors], max_distance: int
) -> None:
    """Register the functions of one search, which only top-level SQL may call.

    They are `quickstart_fold(text)`, `quickstart_rank(field, text, levenshtein)` and `quickstart_substring(field,
    text)`.
    """

    def rank(where: Any, text: Any, whole_distance: Any) -> int | None:
        match = match_field(queries[where], where, text, neighbors, whole_distance, max_distance)
        return match and match.score * LOOSENESS_STEPS + match.looseness

    def substring(where: Any, text: Any) -> int | None:
        distance = partial_distance(queries[where], fold_text(text))
        return None if distance is None else fallback_score(where, distance)

    functions: dict[str, tuple[Callable[..., Any], int]] = {
        "quickstart_fold": (fold_text, 1),
        "quickstart_rank": (rank, 3),
        "quickstart_substring": (substring, 2),
    }
    for name, (function, arguments) in functions.items():
        connection.create_scalar_function(name, function, arguments, deterministic=True, flags=apsw.SQLITE_DIRECTONLY)


def _rank(connection: apsw.Connection, queries: Mapping[Field, Query], ids: Iterable[int], limit: int) -> list[Found]:
    none = NO_MATCH * LOOSENESS_STEPS
    fields = [where for where in FIELDS if where in queries]
    folded = ", ".join(f"quickstart_fold({where}) as {where}_folded" for where in fields)
    by_field = (
        f"coalesce(quickstart_rank('{{0}}', {{0}}_folded, levenshtein(:{{0}}, {{0}}_folded)), {none}) as by_{{0}}"
    )
    ranks = ", ".join(by_field.format(where) for where in fields)
    score = f"best / {LOOSENESS_STEPS}"
    best = " ".join(f"when by_{where} / {LOOSENESS_STEPS} = {score} then '{where}'" for where in fields)
    rows = fetch_all(
        connection,
        f"""
        with folded as materialized (
            select id, name, display_name, description, {folded} from quickstarts
            where id in (select value from json_each(:ids)) and deleted_at is null
        ),
        ranked as materialized (
            select id, name, display_name, description, {ranks} from folded
        ),
        scored as (
            select *, {_least(f"by_{where}" for where in fields)} as best,
                {" + ".join(f"(by_{where} < {none})" for where in fields)} as matched_parameters
            from ranked
        )
        select id, name, display_name, description, {score}, case {best} end, matched_parameters, best
        from scored
        where best < {none}
        order by {score}, matched_parameters desc, best, length(display_name), name
        limit :limit
        """,
        {
            "ids": json.dumps(list(ids)),
            "limit": limit,
            **{where: query.text for where, query in queries.items()},
        },
    )
    return [Found(*row) for row in rows]


def _least(columns: Iterable[str]) -> str:
    listed = list(columns)
    return listed[0] if len(listed) == 1 else f"min({', '.join(listed)})"


# ---------------------------------------------------------------- fallback


def document_text(texts: Iterable[str]) -> str:
    """Return what the index of whole documents holds: stems, so that forms of a word meet."""
    return index_text("\n".join(texts), "english")


def _in_documents(
    connection: apsw.Connection,
    queries: Mapping[Field, Query],
    matches: Iterable[Found],
    allowed: list[int] | None,
    limit: int,
) -> list[Found]:
    """Return quick starts whose text holds every word of the subject, most in the title first."""
    matched_ids = {match.id for match in matches}
    by_field = [_holding_all(connection, where, query, allowed) for where, query in queries.items()]
    fallbacks: dict[int, Found] = {}
    for match in sorted(chain.from_iterable(by_field), key=lambda match: match.place):
        if match.id not in matched_ids:
            fallbacks.setdefault(match.id, match)
    return list(fallbacks.values())[:limit]


def _holding_all(connection: apsw.Connection, where: Field, query: Query, allowed: list[int] | None) -> list[Found]:
    subject_stems = [stems for word in query.words if word in query.strong and (stems := index_text(word, "english"))]
    if not any(word.isalpha() and len(word) > 2 for word in query.strong) or query.only_stop_words:
        return []
    rows = fetch_all(
        connection,
        """
        select id, name, display_name, description
        from quickstarts_fts join quickstarts on id = quickstarts_fts.rowid
        where quickstarts_fts match :words and deleted_at is null
            and (:ids is null or id in (select value from json_each(:ids)))
        order by length(display_name), name
        limit :limit
        """,
        {
            "words": " AND ".join(f'"{stems}"' for stems in subject_stems),
            "ids": None if allowed is None else json.dumps(allowed),
            "limit": MOST_FALLBACKS,
        },
    )
    matches: list[Found] = []
    for identity, name, title, description in rows:
        score = fallback_score(where, _absent(subject_stems, f"{name} {title}"))
        matches.append(Found(identity, name, title, description, score, "document"))
    return matches


def _absent(subject_stems: Iterable[str], text: str) -> int:
    """Return how many of the stemmed words a text lacks."""
    present = f" {index_text(text, 'english')} "
    return sum(f" {stems} " not in present for stems in subject_stems)
