"""A group of readings is stored as one transaction."""

from dataclasses import replace
from typing import Any

import apsw
import pytest
from consistency import disagreements

from localmcp.index.collections import ensure_collection
from localmcp.library.indexing import Indexer
from localmcp.library.ledger import Root
from localmcp.library.reading import Origin, Reading, Step, Task, draft_source, window_for
from localmcp.library.report import Progress
from localmcp.library.walk import File
from localmcp.models import open_embedder
from localmcp.readers.readers import read_text
from localmcp.storage.database import Database, fetch_all


def step(name: str, text: str) -> Step:
    document = read_text(text, name)
    draft = draft_source(document, window_for(open_embedder("hash")), Origin(1, None, f"/notes/{name}", name, 9))
    return Step(Task(File(f"/notes/{name}", 9, 1), Root("/notes", "folder", 1), None), Reading(draft=draft), last=True)


def store(database: Database, group: list[Step]) -> Progress:
    run = Progress()
    with database.write() as connection:
        collection = ensure_collection(connection, "default")
    Indexer(database, collection, run).store(group)
    return run


def titles(database: Database) -> list[str]:
    with database.read() as connection:
        return [row[0] for row in fetch_all(connection, "select title from sources order by title")]


@pytest.mark.parametrize(
    ("change", "problem"), [({"size": 2**70}, "OverflowError"), ({"metadata": {"a": "b" * 600_000}}, "TooBigError")]
)
def test_a_document_that_cannot_be_stored_takes_no_other_with_it(
    database: Database, change: dict[str, Any], problem: str
) -> None:
    bad = step("bad.md", "Nothing of this is kept.")
    draft = bad.reading.draft
    assert draft
    bad.reading.draft = replace(draft, **change)
    with database.write() as connection:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, 500_000)
    run = store(database, [step("a.md", "The otter swims."), bad, step("b.md", "The heron waits.")])
    assert titles(database) == ["a.md", "b.md"]
    assert (run.report.indexed, run.report.failed) == (2, 1)
    assert run.report.problems[0][1].startswith(f"cannot be stored: {problem}")
    assert disagreements(database) == []


def test_of_two_versions_in_one_group_the_later_one_is_kept(database: Database) -> None:
    store(database, [step("a.md", "The otter swims."), replace_text("a.md", "The heron waits. The heron sleeps.")])
    with database.read() as connection:
        assert fetch_all(connection, "select text from chunks") == [("The heron waits. The heron sleeps.",)]
    assert disagreements(database) == []


def replace_text(name: str, text: str) -> Step:
    later = step(name, text)
    assert later.reading.draft
    later.reading.draft = replace(later.reading.draft, sha256="another")
    return later
