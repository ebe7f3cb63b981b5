"""A group of readings is stored as one transaction."""

from dataclasses import replace
from typing import Any

import apsw
import pytest
from consistency import disagreements
from folders import column, titles

from localmcp.index.collections import ensure_collection
from localmcp.library.ledger import Root
from localmcp.library.reading import Origin, Reading, Step, Task, draft_source, window_for
from localmcp.library.report import Progress
from localmcp.library.storing import Store
from localmcp.library.walk import File
from localmcp.models import open_embedder
from localmcp.readers.readers import read_text
from localmcp.storage.database import Database


def steps(name: str, text: str, **change: Any) -> list[Step]:
    document = read_text(text, name)
    draft = draft_source(document, window_for(open_embedder("hash")), Origin(1, None, f"/notes/{name}", name, 9))
    task = Task(File(f"/notes/{name}", 9, 1), Root("/notes", "folder", 1), None)
    return [(task, Reading(draft=replace(draft, **change))), (task, None)]


def store(database: Database, group: list[Step]) -> Progress:
    run = Progress()
    with database.write() as connection:
        collection = ensure_collection(connection, "default")
    Store(database, collection, run).put(group)
    return run


@pytest.mark.parametrize(
    ("change", "problem"), [({"size": 2**70}, "OverflowError"), ({"metadata": {"a": "b" * 600_000}}, "TooBigError")]
)
def test_a_document_that_cannot_be_stored_takes_no_other_with_it(
    database: Database, change: dict[str, Any], problem: str
) -> None:
    with database.write() as connection:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, 500_000)
    bad = steps("bad.md", "Nothing of this is kept.", **change)
    run = store(database, [*steps("a.md", "The otter swims."), *bad, *steps("b.md", "The heron waits.")])
    assert titles(database) == ["a.md", "b.md"]
    assert (run.report.indexed, run.report.failed) == (2, 1)
    assert run.report.problems[0][1].startswith(f"cannot be stored: {problem}")
    assert disagreements(database) == []


def test_of_two_versions_in_one_group_the_later_one_is_kept(database: Database) -> None:
    later = steps("a.md", "The heron waits. The heron sleeps.", sha256="another")
    store(database, [*steps("a.md", "The otter swims."), *later])
    assert column(database, "select text from chunks") == ["The heron waits. The heron sleeps."]
    assert disagreements(database) == []
