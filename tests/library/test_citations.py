"""Citations: a quote is exact or absent, and the answer shows where it stands."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from desk import Desk
from folders import column

from localmcp.errors import NotFound
from localmcp.files import check_freshness
from localmcp.tools import Scope, use_scope

TEXT = """The valve is on the left.

Turn it twice,   slowly,
to close the water.

The boiler needs service every spring."""


def verify(desk: Desk, quote: str, **arguments: Any) -> dict[str, Any]:
    return desk.registry.call("verify_citation", {"quote": quote, **arguments}).value


def chunk_ids(desk: Desk) -> list[str]:
    return [
        str(uuid.UUID(bytes=value)) for value in column(desk.library.database, "select uuid from chunks order by id")
    ]


@pytest.fixture
def manual(desk: Desk, tmp_path: Path) -> Desk:
    file = tmp_path / "manual.md"
    file.write_text(TEXT)
    desk.library.put(TEXT, title="Manual", uri=str(file), paragraphs=True)
    desk.library.put("Elsewhere the tap is on the right.", title="Other")
    return desk


def test_a_quote_is_exact_but_for_white_space_case_and_accents_and_its_file_fresh_or_not(
    manual: Desk, tmp_path: Path
) -> None:
    first, second, *_ = chunk_ids(manual)
    answer = verify(manual, "The valve is on the left.", id=first)
    assert (answer["verdict"], answer["freshness"], answer["sourceTitle"]) == ("exact", "fresh", "Manual")
    assert answer["citation"]["label"].endswith("manual.md:1")
    assert verify(manual, " Turn it twice, slowly, to\n\nclose ", id=second)["verdict"] == "exact"
    assert verify(manual, "TURN ít twice", id=second)["verdict"] == "exact"
    assert verify(manual, "turn its twice", id=second)["verdict"] == "absent"
    (tmp_path / "manual.md").write_text("All new.")
    answer = verify(manual, "The valve is on the left.")
    assert (answer["verdict"], answer["freshness"]) == ("exact", "changed")
    assert "the file is changed since it was indexed" in answer["message"]


def test_signs_that_programs_put_for_one_another_are_the_same_and_the_own_spelling_is_shown(desk: Desk) -> None:
    desk.library.put('We saw the owner\'s "old" well-kept office.', title="Visit")
    for quote in ("the owner’s “old” well-kept office", 'the owner\'s "old" well–kept o\ufb03ce'):
        assert verify(desk, quote)["verdict"] == "exact"
    verification = verify(desk, "THE OWNER‛S «old» well‑kept office")
    assert verification["verdict"] == "exact"
    assert verification["message"] == 'The words stand there spelled: the owner\'s "old" well-kept office.'


def test_a_quote_over_the_border_of_two_chunks_is_found_where_it_begins(manual: Desk) -> None:
    first, second, third, _ = chunk_ids(manual)
    quote = "close the water. The boiler needs"
    assert verify(manual, quote)["chunkId"] == second
    assert verify(manual, quote, id=second)["verdict"] == "exact"
    assert verify(manual, quote, id=verify(manual, quote)["sourceId"])["verdict"] == "exact"
    elsewhere = verify(manual, quote, id=first)
    assert (elsewhere["verdict"], elsewhere["chunkId"]) == ("absent", second)
    assert verify(manual, quote, id=third)["verdict"] == "absent"
    assert verify(manual, "left. Turn it twice, slowly, to close the water. The")["chunkId"] == first


def test_a_quote_that_is_not_where_it_was_cited_is_absent_and_shown_where_it_is_if_anywhere(manual: Desk) -> None:
    answer = verify(manual, "the tap is on the right", id=chunk_ids(manual)[0])
    assert (answer["verdict"], answer["sourceTitle"]) == ("absent", "Other")
    assert answer["message"] == "Not where they were cited from; they stand elsewhere."
    for quote in ("The valve is on the right.", "xyzzy", "…", "valve " * 3000):
        answer = verify(manual, quote)
        assert (answer["verdict"], answer["message"]) == ("absent", "No indexed document holds these words.")
    for unknown in (str(uuid.uuid4()), "seven"):
        with pytest.raises(NotFound, match=f"No passage or document with id {unknown}"):
            verify(manual, "The valve", id=unknown)


def test_nothing_outside_the_scope_is_verified(manual: Desk) -> None:
    manual.library.put("The safe is behind the mirror.", title="Safe", collection="secret")
    with use_scope(Scope(collections=frozenset({"default"}))):
        assert verify(manual, "behind the mirror")["verdict"] == "absent"
        assert verify(manual, "behind the mirror", id=chunk_ids(manual)[0])["verdict"] == "absent"
        with pytest.raises(NotFound):
            verify(manual, "behind the mirror", id=chunk_ids(manual)[-1])
    assert verify(manual, "behind the mirror")["verdict"] == "exact"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes lie in no folder there")
def test_a_device_or_a_pipe_is_never_read(tmp_path: Path) -> None:
    """A source of a file from elsewhere can name one; reading it would block, or never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        assert check_freshness(str(path), 0, 1, "", adopted=True) == "unverifiable"
