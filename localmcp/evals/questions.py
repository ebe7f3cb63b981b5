"""Questions of an evaluation: judged ones from a file, or ones made from the person's own passages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw

from localmcp.config import packaged_data
from localmcp.errors import InvalidInput, NotFound
from localmcp.index.collections import choose_collections
from localmcp.schemas import nearest, shorten_value
from localmcp.storage.database import Database, fetch_all
from localmcp.wording.languages import detect_language
from localmcp.wording.normalize import fold, stop_words

LEAST_WORDS = 12
"""Shorter passages make no question that points to one passage."""
QUOTED_WORDS = 8
PARTIAL_WORDS = 3
MOST_FITTING = 5
"""Documents that an ambiguous name is answered with."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Question:
    """One question, and what answers it."""

    text: str
    kind: str
    grades: Mapping[str, float] = field(default_factory=dict[str, float])
    """Key of a passage or document -> how relevant it is; empty = nothing in the collections answers it."""
    by_passage: bool = False
    """Whether the keys are ids of passages (else of documents)."""

    @property
    def answerable(self) -> bool:
        return bool(self.grades)


def read_questions(path: Path, database: Database, collections: tuple[str, ...] | None) -> list[Question]:
    """Read `queries.jsonl`: one JSON object a line, {"query": "…", "relevant": ["notes/backup.md", …]}.

    What is relevant is named by document id, path (its end is enough) or title, or as an object with grades
    ({"notes/backup.md": 3}); an empty list means that nothing answers the question. `answers`, a list of objects with
    a `path`, is the form of the sample questions.

    Raises:
        InvalidInput: the file is not of that form, or a name fits several documents; names the line.
        NotFound: the file, or a document, is not there; names the line and the nearest.
    """
    documents = _documents(database, collections)
    try:
        # Not splitlines(), which also ends a line at U+2028 and U+0085, as texts in JSON may hold.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
    questions = [_read_line(f"{path}, line {n}", line, documents) for n, line in enumerate(lines, 1) if line.strip()]
    if not questions:
        raise InvalidInput(f"{path} holds no question.", hint='A line: {"query": "…", "relevant": ["a title"]}')
    return questions


def _read_line(where: str, line: str, documents: Mapping[str, Mapping[str, str]]) -> Question:
    try:
        entry: Any = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"{where}: no JSON object: {error}.") from error
    if not isinstance(entry, dict) or not isinstance(cast("dict[str, Any]", entry).get("query"), str):
        raise InvalidInput(f"{where}: needs a text 'query', got {shorten_value(entry)}.")
    table = cast("dict[str, Any]", entry)
    if not table["query"].strip():
        raise InvalidInput(f"{where}: the query is empty.")
    relevant: Any = table.get("relevant", table.get("answers", []))
    if isinstance(relevant, list):
        relevant = dict.fromkeys(map(_name_of, cast("list[Any]", relevant)), 1)
    if not isinstance(relevant, dict):
        raise InvalidInput(f"{where}: 'relevant' must be a list or an object, got {shorten_value(relevant)}.")
    graded = cast("dict[str, Any]", relevant)
    grades = {_find(where, name, documents): _grade(where, grade) for name, grade in graded.items()}
    return Question(table["query"], str(table.get("kind", "judged")), {k: g for k, g in grades.items() if g > 0})


def _name_of(answer: Any) -> str:
    return str(cast("dict[str, Any]", answer).get("path", "") if isinstance(answer, dict) else answer)


def _grade(where: str, grade: Any) -> float:
    if isinstance(grade, bool) or not isinstance(grade, int | float) or grade < 0:
        raise InvalidInput(f"{where}: a grade must be a number of 0 or more, got {shorten_value(grade)}.")
    return float(grade)


def _documents(database: Database, collections: tuple[str, ...] | None) -> dict[str, dict[str, str]]:
    """Return every name of a document (id, place, title) -> the ids that it fits, each with its place or title."""
    with database.read() as connection:
        rows = fetch_all(
            connection,
            f"select uuid, uri, title from sources where trashed_at is null and {_inside(connection, collections)}",
        )
    names: dict[str, dict[str, str]] = {}
    for uuid, uri, title in rows:
        for name in filter(None, (title, uri, uuid)):
            names.setdefault(name.replace("\\", "/"), {})[uuid] = uri or title
    return names


def _find(where: str, name: str, documents: Mapping[str, Mapping[str, str]]) -> str:
    searched = name.replace("\\", "/")
    ending = "/" + searched.lstrip("./")
    fitting = documents.get(searched) or {
        uuid: place for path, places in documents.items() if path.endswith(ending) for uuid, place in places.items()
    }
    if len(fitting) == 1:
        return next(iter(fitting))
    if fitting:
        shown = ", ".join(f"{place} (id {uuid[:8]})" for uuid, place in [*fitting.items()][:MOST_FITTING])
        more = f" and {len(fitting) - MOST_FITTING} more" if len(fitting) > MOST_FITTING else ""
        hint = "Give a longer end of the path, or the whole id, which 'localmcp sources --json' prints."
        raise InvalidInput(f"{where}: '{name}' fits {len(fitting)} documents: {shown}{more}.", hint=hint)
    near = nearest(searched, list(documents))
    raise NotFound(f"{where}: no document '{name}'.", hint=f"Did you mean '{near}'?" if near else None)


def make_questions(
    database: Database, collections: tuple[str, ...] | None, per_kind: int = 50, seed: int = 0
) -> list[Question]:
    """Return at most `per_kind` questions of each kind; the same file and seed give the same questions.

    known item: words in a row out of a passage; typo: the same with a slip in two words; shuffled: its rarer words in
    another order; partial: its three rarest words; heading: the heading above it, where only one document has that
    heading; unanswerable: everyday requests that share no rare word with the collections.

    Raises:
        NotFound: no such collection, or there are no passages to ask about.
    """
    draw = random.Random(seed)
    with database.read() as connection:
        inside = _inside(connection, collections)
        passages = _sample(connection, inside, per_kind, draw)
        if not passages:
            raise NotFound(
                f"There are no passages of at least {LEAST_WORDS} words to ask about.",
                hint="Add documents first: localmcp add FOLDER",
            )
        counts = _word_counts(connection, passages, inside)
        headings = list(_heading_questions(connection, inside, per_kind, draw))
        unanswerable = list(_unanswerable(connection, inside, per_kind, draw))
    made = [question for uuid, text in passages for question in _from_passage(uuid, text, counts, draw)]
    return [*made, *headings, *unanswerable]


def _inside(connection: apsw.Connection, collections: tuple[str, ...] | None) -> str:
    """SQL that holds for the sources of those collections."""
    chosen = choose_collections(connection, list(collections) if collections else None)
    return f"collection_id in ({','.join(str(collection.id) for collection in chosen) or 'null'})"


def _sample(connection: apsw.Connection, inside: str, count: int, draw: random.Random) -> list[tuple[str, str]]:
    """(id, text) of passages of at least 12 words, spread evenly over the file."""
    rows = fetch_all(
        connection,
        f"""
        select chunks.id from chunks join sources on sources.id = source_id
        where trashed_at is null and words >= ? and {inside} order by chunks.id
        """,
        (LEAST_WORDS,),
    )
    chosen = draw.sample([row[0] for row in rows], min(count, len(rows)))
    sql = "select lower(hex(uuid)), text from chunks where id = ?"
    return [row for chunk_id in sorted(chosen) for row in fetch_all(connection, sql, (chunk_id,))]


def _plain_words(text: str) -> list[str]:
    """Return words as they are written, without the marks around them; only those of letters."""
    bare = (word.strip(".,;:!?()[]{}\"'`*_#<>|=-") for word in text.split())
    return [word for word in bare if len(word) > 1 and word.isalpha()]


def _word_counts(connection: apsw.Connection, passages: list[tuple[str, str]], inside: str) -> dict[str, int]:
    plain_words = sorted({fold(word) for _, text in passages for word in _plain_words(text)})
    sql = f"""
        select word, sum(chunks) from words where {inside} and word in (select value from json_each(?)) group by word
    """
    return dict(fetch_all(connection, sql, (json.dumps(plain_words),)))


def _from_passage(uuid: str, text: str, counts: Mapping[str, int], draw: random.Random) -> Iterator[Question]:
    plain = _plain_words(text)
    stops = stop_words(detect_language(text) or "english")
    telling = [word for word in dict.fromkeys(plain) if fold(word) not in stops and len(word) > 3]
    if len(telling) < PARTIAL_WORDS:
        return
    telling.sort(key=lambda word: (counts.get(fold(word), 0), word))
    start = draw.randrange(max(len(plain) - QUOTED_WORDS, 0) + 1)
    row = plain[start : start + QUOTED_WORDS]
    shuffled = draw.sample(telling[:6], min(6, len(telling)))
    questions = {
        "known item": row,
        "typo": _misspelled(row, draw),
        "shuffled": shuffled,
        "partial": telling[:PARTIAL_WORDS],
    }
    for kind, words in questions.items():
        yield Question(" ".join(words), kind, {uuid: 1.0}, by_passage=True)


def _misspelled(words: list[str], draw: random.Random) -> list[str]:
    """A slip in each of the two longest words: two letters swapped, one left out, one doubled, or a wrong one."""
    longest = sorted(range(len(words)), key=lambda number: -len(words[number]))[:2]
    return [_slip(word, draw) if number in longest and len(word) > 4 else word for number, word in enumerate(words)]


def _slip(word: str, draw: random.Random) -> str:
    position = draw.randrange(1, len(word) - 1)
    before, letter, after = word[:position], word[position], word[position + 1 :]
    return draw.choice(
        (before + after[:1] + letter + after[1:], before + after, before + letter * 2 + after,
         before + draw.choice(_LETTERS) + after)
    )  # fmt: skip


def _heading_questions(connection: apsw.Connection, inside: str, count: int, draw: random.Random) -> Iterator[Question]:
    """The innermost heading of a passage, as a question for its document; headings that two documents have are not."""
    rows = fetch_all(
        connection,
        f"""
        select json_extract(headings, '$[#-1]') as heading, min(sources.uuid) from chunks
        join sources on sources.id = source_id
        where trashed_at is null and {inside} and json_array_length(headings) > 1
        group by 1 having count(distinct source_id) = 1
        """,
    )
    fitting = [(heading, uuid) for heading, uuid in rows if heading and 2 <= len(heading.split()) <= 12]
    for heading, uuid in draw.sample(sorted(fitting), min(count, len(fitting))):
        yield Question(heading, "heading", {uuid: 1.0})


def _unanswerable(connection: apsw.Connection, inside: str, count: int, draw: random.Random) -> Iterator[Question]:
    """Requests of everyday life of whose telling words at most one is in the collections."""
    text = (packaged_data() / "everyday_requests.txt").read_text(encoding="utf-8")
    requests = [line for line in text.splitlines() if line and not line.startswith("#")]
    draw.shuffle(requests)
    stops = stop_words("english")
    made = 0
    for request in requests:
        telling = [fold(word) for word in _plain_words(request) if fold(word) not in stops and len(word) > 3]
        sql = f"select count(distinct word) from words where {inside} and word in (select value from json_each(?))"
        if len(telling) > 1 and connection.execute(sql, (json.dumps(telling),)).get <= 1:
            yield Question(request, "unanswerable")
            made += 1
        if made == count:
            return
