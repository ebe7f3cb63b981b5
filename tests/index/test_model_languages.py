"""A library in languages that the model does not know: whoever adds to it is told what helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folders import CountingEmbedder, write

from localmcp.config import Settings
from localmcp.index.collections import ensure_model, unread_languages
from localmcp.library.ingest import Library
from localmcp.models import LazyEmbedder
from localmcp.storage.database import Database

ITALIAN = "Le rose si potano alla fine dell'inverno, quando il gelo non è più da temere; poi si dà loro dell'acqua. "
ENGLISH = "The roses are pruned at the end of the winter, when there is no more frost to fear; then they are watered. "


def library_of(database: Database, model: str) -> Library:
    embedder = CountingEmbedder()
    embedder.identity = replace(embedder.identity, name=model)
    return Library(database, LazyEmbedder(lambda: embedder), Settings())


def write_documents(folder: Path, italian: int, english: int) -> None:
    for name, text, count in (("rose", ITALIAN, italian), ("roses", ENGLISH, english)):
        for number in range(count):
            write(folder / f"{name}{number}.txt", f"{number}. {text * 6}")


def test_adding_says_which_languages_are_found_by_word_only_and_what_helps_also_when_that_was_given_up(
    database: Database, tmp_path: Path
) -> None:
    write_documents(tmp_path / "docs", italian=24, english=8)
    report = library_of(database, "all-MiniLM-L6-v2").add_paths([tmp_path / "docs"])
    [notice] = report.notices
    assert "italian 75 %" in notice and "localmcp models use multilingual" in notice
    with database.write() as connection:
        ensure_model(connection, replace(CountingEmbedder().identity, name="multilingual-e5-small", sha256="another"))
        assert unread_languages(connection) is not None


@pytest.mark.parametrize(("model", "italian"), [("all-MiniLM-L6-v2", 3), ("multilingual-e5-small", 24)])
def test_nothing_is_said_of_a_few_texts_or_a_model_that_knows_them(
    model: str, italian: int, database: Database, tmp_path: Path
) -> None:
    write_documents(tmp_path / "docs", italian=italian, english=8)
    assert library_of(database, model).add_paths([tmp_path / "docs"]).notices == []
    with database.read() as connection:
        assert unread_languages(connection) is None
