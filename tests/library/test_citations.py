"""Citations: a quote is exact or absent, and the answer shows where it stands."""

from __future__ import annotations

import io
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from library import Library

from localmcp.config import Settings
from localmcp.errors import InvalidInput, NotFound
from localmcp.index.federation import Federation
from localmcp.index.passages import passages_of_source
from localmcp.library.citations import Citations, check_freshness, cite
from localmcp.library.ingest import Library as FileLibrary
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database, fetch_all
from localmcp.tools import Registry, Scope, use_scope
from localmcp.workspace import Workspace

TEXT = """The valve is on the left.

Turn it twice,   slowly,
to close the water.

The boiler needs service every spring."""


class Desk:
    def __init__(self, database: Database, embedder: HashEmbedder) -> None:
        self.library = Library(database, embedder)
        self.registry = Registry()
        self.registry.add_service(Citations(Federation(self.library.index)))

    def verify(self, quote: str, **arguments: Any) -> dict[str, Any]:
        return self.registry.call("verify_citation", {"quote": quote, **arguments}).value

    def chunk_ids(self) -> list[str]:
        with self.library.database.read() as connection:
            rows = fetch_all(connection, "select uuid from chunks order by id")
        return [str(uuid.UUID(bytes=row[0])) for row in rows]


@pytest.fixture
def desk(database: Database, hash_embedder: HashEmbedder) -> Desk:
    return Desk(database, hash_embedder)


@pytest.fixture
def manual(desk: Desk, tmp_path: Path) -> Desk:
    file = tmp_path / "manual.md"
    file.write_text(TEXT)
    desk.library.put(TEXT, title="Manual", uri=str(file), paragraphs=True)
    desk.library.put("Elsewhere the tap is on the right.", title="Other")
    return desk


def test_a_quote_that_stands_where_it_was_cited_is_exact(manual: Desk) -> None:
    answer = manual.verify("The valve is on the left.", id=manual.chunk_ids()[0])
    assert (answer["verdict"], answer["freshness"], answer["sourceTitle"]) == ("exact", "fresh", "Manual")
    assert answer["citation"]["label"].endswith("manual.md:1")


def test_white_space_case_and_accents_are_not_compared_but_letters_are(manual: Desk) -> None:
    chunk = manual.chunk_ids()[1]
    assert manual.verify(" Turn it twice, slowly, to\n\nclose ", id=chunk)["verdict"] == "exact"
    assert manual.verify("TURN ít twice", id=chunk)["verdict"] == "exact"
    assert manual.verify("turn its twice", id=chunk)["verdict"] == "absent"


def test_a_quote_without_an_id_is_looked_for_everywhere(manual: Desk) -> None:
    answer = manual.verify("to close the water")
    assert (answer["verdict"], answer["chunkId"]) == ("exact", manual.chunk_ids()[1])
    assert answer["citation"]["startLine"] == 4


def test_a_quote_cited_from_the_document_is_exact_anywhere_in_it(manual: Desk) -> None:
    source = manual.verify("The valve")["sourceId"]
    answer = manual.verify("needs service every spring", id=source)
    assert (answer["verdict"], answer["chunkId"]) == ("exact", manual.chunk_ids()[2])


def test_a_quote_over_the_border_of_two_chunks_is_found_where_it_begins(manual: Desk) -> None:
    first, second, third, _ = manual.chunk_ids()
    quote = "close the water. The boiler needs"
    assert manual.verify(quote)["chunkId"] == second
    assert manual.verify(quote, id=second)["verdict"] == "exact"
    assert manual.verify(quote, id=manual.verify(quote)["sourceId"])["verdict"] == "exact"
    elsewhere = manual.verify(quote, id=first)
    assert (elsewhere["verdict"], elsewhere["chunkId"]) == ("absent", second)
    assert manual.verify(quote, id=third)["verdict"] == "absent"
    assert manual.verify("left. Turn it twice, slowly, to close the water. The")["chunkId"] == first


def test_a_quote_from_another_place_is_absent_where_it_was_cited_and_shown_where_it_is(manual: Desk) -> None:
    answer = manual.verify("the tap is on the right", id=manual.chunk_ids()[0])
    assert (answer["verdict"], answer["sourceTitle"]) == ("absent", "Other")
    assert answer["message"] == "Not where they were cited from; they stand elsewhere."


def test_the_answer_says_that_the_file_has_changed_since(manual: Desk, tmp_path: Path) -> None:
    (tmp_path / "manual.md").write_text("All new.")
    answer = manual.verify("The valve is on the left.")
    assert (answer["verdict"], answer["freshness"]) == ("exact", "changed")
    assert "the file is changed since it was indexed" in answer["message"]


@pytest.mark.parametrize("quote", ["The valve is on the right.", "xyzzy", "…", "valve " * 3000])
def test_what_no_document_holds_is_absent(manual: Desk, quote: str) -> None:
    answer = manual.verify(quote)
    assert (answer["verdict"], answer["message"]) == ("absent", "No indexed document holds these words.")


@pytest.mark.parametrize("marks", ["“{}”", "„{}“", "«{}»", '"{}"', " '{}' "])
def test_quotation_marks_around_a_quote_are_not_part_of_it(manual: Desk, marks: str) -> None:
    assert manual.verify(marks.format("Turn it twice"))["verdict"] == "exact"
    assert manual.verify(marks.format("Turn it thrice"))["verdict"] == "absent"


@pytest.mark.parametrize("quote", [" ", "\n\t"])
def test_an_empty_quote_is_refused(manual: Desk, quote: str) -> None:
    with pytest.raises(InvalidInput, match="quote"):
        manual.verify(quote)


def test_an_unknown_id_is_named(manual: Desk) -> None:
    with pytest.raises(NotFound, match="No passage or document"):
        manual.verify("The valve", id=str(uuid.uuid4()))
    with pytest.raises(NotFound, match="No passage or document with id seven"):
        manual.verify("The valve", id="seven")


def test_nothing_outside_the_scope_is_verified(manual: Desk) -> None:
    manual.library.put("The safe is behind the mirror.", title="Safe", collection="secret")
    with use_scope(Scope(collections=frozenset({"default"}))):
        assert manual.verify("behind the mirror")["verdict"] == "absent"
        assert manual.verify("behind the mirror", id=manual.chunk_ids()[0])["verdict"] == "absent"
        with pytest.raises(NotFound):
            manual.verify("behind the mirror", id=manual.chunk_ids()[-1])
    assert manual.verify("behind the mirror")["verdict"] == "exact"


def test_a_quote_far_into_a_long_document_is_found(desk: Desk) -> None:
    text = "\n\n".join(f"Sentence number{number} of many." for number in range(3000))
    desk.library.put(text, title="Long", paragraphs=True)
    answer = desk.verify("number2998 of many. Sentence number2999 of")
    assert (answer["verdict"], answer["citation"]["startLine"]) == ("exact", 5997)


@pytest.mark.parametrize("uri", [None, "nul\0byte", "x" * 10_000])
def test_what_cannot_be_looked_at_is_unverifiable(uri: str | None) -> None:
    assert check_freshness(uri, 1, 1, "", adopted=True) == "unverifiable"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes lie in no folder there")
def test_a_device_or_a_pipe_is_never_read(tmp_path: Path) -> None:
    """A source of a file from elsewhere can name one; reading it would block, or never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        assert check_freshness(str(path), 0, 1, "", adopted=True) == "unverifiable"


def test_a_citation_names_the_place_of_the_words_that_answer(tmp_path: Path, database: Database) -> None:
    (tmp_path / "fund.md").write_text("# Fund\n\n## Partial\n\nHalf of it.\n\n## Whole\n\nAll of it.\n")
    (tmp_path / "prices.xlsx").write_bytes(_workbook())
    FileLibrary(database, LazyEmbedder(lambda: HashEmbedder(64)), Settings()).add_paths([tmp_path])
    labels: dict[str, str] = {}
    headings: list[str] = []
    with database.read() as connection:
        for source_id, title in fetch_all(connection, "select id, title from sources"):
            [passage] = passages_of_source(connection, source_id)
            body = passage.text.strip()
            word = "## Whole\n\nAll of it" if title == "Fund" else "Nut"
            citation = cite(passage, (body.index(word), body.index(word) + len(word)))
            labels[title] = citation["label"].removeprefix(str(tmp_path))
            headings.append(citation["heading"])
    assert labels == {"Fund": "/fund.md:7", "Prices": "/prices.xlsx Prices row 3"}
    assert sorted(headings) == ["Fund › Whole", "Prices"]


def _workbook() -> bytes:
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    for row in (["Item", "Price"], ["Bolt", 1], ["Nut", 2], ["Pin", 3], ["Rod", 4], ["Cap", 5]):
        book.active.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_sentence_that_begins_in_a_heading_is_cited_under_the_whole_heading(
    tmp_path: Path, database: Database, line_end: str
) -> None:
    text = "# Fund\n\n## Part V\n\n### Art. 15 – Pensions\n\nFive years.\n\n### Art. 16 – Capital\n\nHalf of it.\n"
    (tmp_path / "fund.md").write_bytes(text.replace("\n", line_end).encode())
    FileLibrary(database, LazyEmbedder(lambda: HashEmbedder(64)), Settings()).add_paths([tmp_path])
    with database.read() as connection:
        [passage] = passages_of_source(connection, fetch_all(connection, "select id from sources")[0][0])
    body = passage.text.strip()
    start = body.index("15 – Pensions")
    assert cite(passage, (start, start + 13))["heading"] == "Fund › Part V › Art. 15 – Pensions"
    assert cite(passage, (body.index("Five"), len(body)))["heading"] == "Fund › Part V › Art. 15 – Pensions"


def test_the_first_list_of_a_program_says_whether_files_are_fresh(tmp_path: Path) -> None:
    settings = Settings(database=tmp_path / "a.localmcp", model="hash")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "bees.md").write_text("# Bees", encoding="utf-8")
    with Workspace(settings) as workspace:
        workspace.library.add_paths([tmp_path / "docs"])
    with Workspace(settings) as workspace:
        (listed,) = workspace.registry.call("list_sources", {}).value["sources"]
    assert listed["freshness"] == "fresh"
