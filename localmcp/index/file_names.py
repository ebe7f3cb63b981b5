"""Documents that a search names by their files: `invoice-2024.pdf`, "httpx changelog", "what does HISTORY.md say"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import apsw

from localmcp.index.collections import Collection
from localmcp.storage.database import fetch_all
from localmcp.wording.normalize import fold

MOST_NAMED = 5
"""More documents of one name are no answer: "readme" is a word like others in a folder of projects."""
MOST_WORDS = 6
"""A text of more words, numbers aside, is no name of a file, but may hold one."""
MOST_FILES, CHARACTERS_READ = 3, 2_000
"""File names with their suffixes, and characters, in which they are looked for."""
_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_FILE_NAME = re.compile(r"[^\s/\\#\"'`“”‘’«»()\[\]{}<>,;:?!*]+\.[A-Za-z][A-Za-z0-9]{0,4}(?![\w.])")


@dataclass(frozen=True, slots=True)
class Named:
    """The documents that a text names by their files."""

    shares: dict[int, float] = field(default_factory=dict[int, float])
    """Source id -> share of the words of the file's name that the text holds, above 0 up to 1."""
    is_all: bool = False
    """The text says no more than where the documents are: their paths hold all of it."""


def named_sources(connection: apsw.Connection, text: str, collections: Sequence[Collection], allowed: Any) -> Named:
    """Return the documents that the text names.

    A document is named if the text holds its file name with the suffix, or if its path holds every word of the text,
    at least one of them in its name. Those whose path holds most words of the text are meant.
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
    ids = ",".join(str(collection.id) for collection in collections)
    sql = f"select id, uri from sources where collection_id in ({ids}) and trashed_at is null and uri is not null"
    likely = [(f"{sql}{' and uri like ?' * len(likes)} limit 500", likes) for likes in patterns]
    shares: dict[int, float] = {}
    most = 0
    for source_id, path in chain.from_iterable(fetch_all(connection, *query) for query in likely):
        name, in_path = file_name(path), words.intersection(words_of(path))
        in_name = words.intersection(words_of(name))
        is_whole = in_path == words and words.intersection(words_of(name.rpartition(".")[0] or name))
        if not in_name or not (is_whole or ("." in name and fold(name) in folded)):
            continue
        if allowed is not None and source_id not in allowed:
            continue
        if len(in_path) > most:
            most, shares = len(in_path), {}
        if len(in_path) == most:
            shares[source_id] = len(in_name) / len(set(words_of(name)))
    return Named(shares, most == len(words)) if len(shares) <= MOST_NAMED else Named()


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
