"""Does everything in a file agree with everything else? Used by the tests and benchmarks that kill and race ingest."""

from __future__ import annotations

import json
from collections import Counter

import apsw

from localmcp.index import sources
from localmcp.index.drafts import heading_of, index_words
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.wording.normalize import find_codes, stems, words


def disagreements(database: Database) -> list[str]:
    """What does not hold, a sentence each; empty for a sound file."""
    found: list[str] = []
    with database.write() as connection:
        try:
            connection.execute("insert into chunks_fts (chunks_fts) values ('integrity-check')")
        except apsw.Error as error:
            found.append(f"the keyword index is damaged: {error}")
    with database.read() as connection:
        found += [*_counts(connection), *_ledger(connection)]
    # A connection of its own: SQLite 3.54 checks a full-text table against what the connection read of it earlier,
    # and takes the work of another process for damage.
    fresh = Database(database.path, read_only=True)
    with fresh.read() as connection:
        answer = fetch_all(connection, "pragma integrity_check")
        found += [] if answer == [("ok",)] else [f"integrity_check: {answer[:3]}"]
        found += [f"no parent: {row}" for row in fetch_all(connection, "pragma foreign_key_check")]
        found += sources.disagreements(connection)
    fresh.close()
    return found


def _counts(connection: apsw.Connection) -> list[str]:
    """Word, stem and group counts are what counting again gives."""
    surface: Counter[tuple[int, str]] = Counter()
    terms: Counter[tuple[int, str]] = Counter()
    groups: Counter[int] = Counter()
    sql = f"""
        select sources.collection_id, title, headings, text, groups.language, group_id, chunks.words from chunks
        join sources on sources.id = source_id join groups on groups.id = group_id where chunks.id in ({_LIVE})
    """
    found: list[str] = []
    for collection_id, title, headings, text, language, group_id, length in fetch_all(connection, sql):
        heading = heading_of(title, json.loads(headings))
        read = [*words(heading), *words(text)]
        read += [code.word for part in (heading, text) for code in find_codes(part)]
        surface.update(
            (collection_id, word) for word in set(read) if word.isalpha() and len(word) <= sources.LONGEST_WORD
        )
        terms.update((collection_id, stem) for stem in set(stems(read, language)))
        groups[group_id] += 1
        if length != index_words(heading, text, language).length:
            found.append(f"a passage of {title} has another number of words than {length}")
    for name, counted, sql in (
        ("words", surface, "select collection_id, word, chunks from words"),
        ("terms", terms, "select collection_id, term, chunks from terms"),
    ):
        stored = {(collection, word): number for collection, word, number in fetch_all(connection, sql)}
        if stored != counted:
            wrong = {key for key in stored.keys() | counted.keys() if stored.get(key) != counted.get(key)}
            found.append(f"{len(wrong)} {name} are counted wrongly, such as {sorted(wrong)[:3]}")
    stored_groups = {row[0]: row[1] for row in fetch_all(connection, "select id, chunks from groups") if row[1]}
    return [*found, *([] if stored_groups == groups else [f"groups: {stored_groups}, counted {dict(groups)}"])]


def _ledger(connection: apsw.Connection) -> list[str]:
    """Every indexed path has its source, and every file its path; that of a container comes last."""
    orphans = fetch_one(
        connection,
        """
        select count(*) from ledger where status = 'indexed' and not exists (
            select 1 from sources where sources.id = ledger.source_id
                and coalesce(metadata ->> '$.container', uri) = path and trashed_at is null)
        """,
    )
    unlisted = fetch_one(
        connection,
        """
        select count(*) from sources where trashed_at is null and mtime_ns is not null and not exists (
            select 1 from ledger where source_id = sources.id and path = uri)
        and metadata ->> '$.container' is null
        """,
    )
    return [*([f"{orphans} ledger rows without a source"] if orphans else []),
            *([f"{unlisted} sources that the ledger does not know"] if unlisted else [])]  # fmt: skip


_LIVE = "select chunks.id from chunks join sources on sources.id = chunks.source_id where trashed_at is null"
