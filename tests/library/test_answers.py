"""Answers: lean texts and structured content for a language model, budgets, paging, names, and citations."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from desk import LEAN, SENTENCE, Desk
from folders import column

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import check_freshness
from localmcp.tools import Answer, Json, Scope, use_scope


def passages_of(answer: Answer) -> int:
    return sum(len(hit["content"]) for hit in answer.value["results"])


def test_the_text_of_a_search_is_at_most_a_quarter_longer_than_its_passages(ask: Callable[..., Answer]) -> None:
    answer = ask("search", query="fill the boiler through the valve")
    assert answer.value["count"] == 5
    assert len(answer.text) <= 1.25 * passages_of(answer)
    assert len(json.dumps(answer.value, separators=(",", ":"))) <= 1.8 * passages_of(answer)
    first = answer.value["results"][0]
    assert answer.text.startswith("3 documents, 5 passages") or " documents, 5 passages" in answer.text.splitlines()[0]
    assert first["content"] in answer.text and f"id {first['id'][:8]}" in answer.text
    assert first["id"] == first["chunkId"] and "sha256" not in first["citation"]


def test_words_of_the_question_that_are_not_there_are_named_on_the_first_line(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    desk.add_text("Allotment", "The allotment costs 40 euros.")
    answer = ask("search", query="How heavy is the valve of the boiler, its price and Warranty RX-77?", limit=1)
    assert answer.value["absentWords"] == ["price", "Warranty", "RX-77"]
    assert "none has 'price', 'Warranty', 'RX-77'" in answer.text.splitlines()[0]
    assert "absentWords" not in ask("search", query="fill the boiler through the valve with euros").value


def test_an_answer_without_any_hope_quotes_nothing(desk: Desk, ask: Callable[..., Answer]) -> None:
    for number in range(9):
        desk.add_text(
            f"A rather long title of a text about cups and saucers {number}", "Two cups are in the cupboard. " * 9
        )
    answer = ask("search", query="who won the world cup in 2010", limit=9)
    assert answer.value["lowConfidence"] and len(answer.text) <= 400 and "cupboard" not in answer.text


def test_a_list_and_a_document_tell_of_a_file_that_changed_since_it_was_read(desk: Desk, tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    desk.add_file(note, "The lamp hums.")
    note.write_text("The lamp hums no more.")
    listed = desk.registry.call("list_sources", {}, LEAN).text
    assert listed.startswith("1 of 1 document, last changed first; times in UTC.")
    assert "file changed since it was read" in listed
    document = desk.registry.call("get_document", {"sourceId": "note.md"}, LEAN).text
    assert "file changed since it was read" in document.splitlines()[0]


def test_an_empty_library_says_so_to_whoever_searches_or_lists_it(desk: Desk) -> None:
    calls = (("search", {"query": "lamp"}), ("list_sources", {}))
    says = "There are no documents yet. They are added with: localmcp add FOLDER"
    assert all(says in desk.registry.call(tool, arguments, LEAN).text for tool, arguments in calls)
    desk.add_text("Vase", "A blue vase.")
    assert all(says not in desk.registry.call(tool, arguments, LEAN).text for tool, arguments in calls)


def test_a_value_that_no_document_has_in_a_field_is_named_with_those_there_are(desk: Desk) -> None:
    desk.library.put("The lamp hums.", title="Lamp", metadata={"author": "Ada", "tags": ["light", 7]})
    search = lambda **metadata: desk.registry.call("search", {"query": "lamp", "metadata": metadata}, LEAN).text  # noqa: E731
    assert search(author="Adda") == "No author 'Adda'. There is: Ada. Did you mean 'Ada'?"
    assert search(tags="light", author={"gte": "A", "prefix": "A", "gt": "B"}) == "No document has 'author' gt 'B'."
    assert search(**{"title": "Lampe", "titel": 1}) == (
        "No document has 'title' eq 'Lampe'. No metadata field 'titel'. There are: author, tags. Did you mean 'title'?"
    )
    assert search(tags=["dark", "dim"]) == "No tag 'dark'. There are: 7, light."
    assert "The lamp hums." in search(tags=["dark", 7])


def test_pages_within_a_budget_follow_each_other_without_gap_or_repetition(ask: Callable[..., Answer]) -> None:
    whole = [hit["id"] for hit in ask("search", query="boiler", limit=50, maxChars=100_000).value["results"]]
    paged: list[str] = []
    cursor: str | None = None
    while True:
        answer = ask("search", query="boiler", limit=7, maxChars=1500, cursor=cursor)
        assert passages_of(answer) <= 1500
        paged += [hit["id"] for hit in answer.value["results"]]
        cursor = answer.value.get("nextCursor")
        if cursor is None:
            break
    assert sorted(paged) == sorted(whole) and len(set(paged)) == len(paged)


def test_a_grouped_search_reaches_documents_behind_one_that_fills_the_first_hundred_places(
    ask: Callable[..., Answer], desk: Desk
) -> None:
    text = "".join(f"## Note {part}\n\nA boiler boiler boiler. {SENTENCE.format(part) * 6}\n\n" for part in range(120))
    desk.add_text("Boiler log", text)
    hits = ask("search", query="boiler", limit=10, groupBy="document").value["results"]
    assert len(hits) == 7


def test_a_long_document_comes_in_pages_that_are_sent_once(ask: Callable[..., Answer], desk: Desk) -> None:
    text = "".join(f"## Section {n}\n\n{SENTENCE.format(n) * 4}\n\n" for n in range(60))
    desk.add_text("Long", text)
    first = ask("get_document", sourceId="Long")
    second = ask("get_document", sourceId="Long", offset=first.value["nextOffset"])
    assert first.value["truncated"] and len(first.text) <= 8_500 and "chunks" not in first.value
    assert text.startswith(first.value["source"]["content"] + second.value["source"]["content"])


def test_lines_and_an_outline_of_a_document_are_read_alone(ask: Callable[..., Answer]) -> None:
    outline = ask("get_document", sourceId="Boiler manual 2", outline=True)
    [part] = [entry for entry in outline.value["outline"] if entry["heading"] == "Part 2"]
    lines = f"{part['startLine']}-{part['startLine'] + 2}"
    answer = ask("get_document", sourceId="Boiler manual 2", lines=lines)
    assert answer.value["source"]["content"] == f"## Part 2\n\n{SENTENCE.format(22) * 6}\n"
    assert "Nothing begins at this offset" in ask("get_document", sourceId="Boiler manual 2", offset=8000).text
    with pytest.raises(InvalidInput, match="lines"):
        ask("get_document", sourceId="Boiler manual 2", lines="ten")
    with pytest.raises(InvalidInput, match="lines are counted from 1"):
        ask("get_document", sourceId="Boiler manual 2", lines="0-3")
    with pytest.raises(InvalidInput, match="no range of lines"):
        # In quadratic time it took hours, during which no other call was answered.
        ask("get_document", sourceId="Boiler manual 2", lines=f"1{' ' * 500_000}x")


def test_lines_count_from_the_top_also_of_a_document_that_begins_with_empty_ones(desk: Desk) -> None:
    text = "\n\n\nOne is short.\nTwo is long. " + "It goes on. " * 30 + "\nThree.\r"
    text += "\n\nThe last one."
    desk.add_text("Note", text)

    def read(**arguments: Any) -> Json:
        return desk.registry.call("get_document", {"sourceId": "Note", **arguments}, Scope()).value

    assert read(lines="4")["source"]["content"] == "One is short.\n"
    part = read(lines="5-")
    span = part["chunks"][0]["metadata"]
    assert text[span["start"] : span["stop"]] == part["chunks"][0]["content"] and part["startLine"] == 5


def test_an_outline_has_every_heading_also_where_several_share_a_passage(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    names = [f"{'#' * (2 + number % 2)} Step {number}" for number in range(40)]
    desk.add_text("Manual", "# Manual\n\n" + "\n\n".join(f"{name}\n\nTurn it." for name in names))
    expected = [(1, "Manual", 0)] + [(3 + 4 * n, f"Step {n}", 1 + n % 2) for n in range(40)]
    for budget in (10_000, 200):
        offset: int | None = 0
        seen: list[tuple[int, str, int]] = []
        while offset is not None:
            result = ask("get_document", sourceId="Manual", outline=True, offset=offset, maxChars=budget).value
            seen += [(entry["startLine"], entry["heading"], entry["level"]) for entry in result["outline"]]
            offset = result.get("nextOffset")
        assert seen == expected


def test_a_context_keeps_to_its_budget_and_sends_each_text_once(ask: Callable[..., Answer]) -> None:
    hit = ask("search", query="boiler", limit=1).value["results"][0]
    answer = ask("get_context", chunkId=hit["id"], window=20, maxChars=700)
    assert answer.value["truncated"] and sum(len(chunk["content"]) for chunk in answer.value["chunks"]) <= 700
    assert "concatenatedContent" not in answer.value


def test_a_document_is_named_in_one_way_everywhere(ask: Callable[..., Answer]) -> None:
    identity = ask("get_document", sourceId="Boiler manual 3").value["source"]["id"]
    quote = SENTENCE.format(31).strip()
    for name in (identity, identity.upper(), identity[:8], "Boiler manual 3", "boiler MANUAL 3"):
        assert ask("get_document", sourceId=name).value["source"]["id"] == identity
        assert ask("search", query="boiler", sourceId=name).value["results"][0]["sourceId"] == identity
        assert ask("verify_citation", quote=quote, id=name).value["verdict"] == "exact"


def test_a_file_is_named_by_a_part_of_its_path_with_or_without_its_ending_and_a_place(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "house").mkdir()
    path = tmp_path / "house" / "boiler.care.md"
    desk.add_file(path, "One.\nTwo.\nThree.\nFour.\n")

    def read(name: str) -> str:
        return desk.registry.call("get_document", {"sourceId": name}, LEAN).value["source"]["content"].strip()

    for name in (str(path), "boiler.care.md", "boiler.care", "boiler", "house/boiler.care", "house/boiler"):
        assert read(name).startswith("One.")
    assert read(f"{path}:3") == read("boiler.care.md:3,4") == "Three.\nFour."
    assert read("boiler.care.md:2-3") == "Two.\nThree."
    for name in ("hous", "nothing.md:3"):
        assert desk.registry.call("get_document", {"sourceId": name}, LEAN).is_error


def test_a_filter_that_fits_nothing_names_the_valid_values(ask: Callable[..., Answer]) -> None:
    assert "There are: docs, markdown" in ask("search", query="boiler", sourceType="poem").text
    assert "No partition 'kitchn'" in ask("search", query="boiler", partition="kitchn").text
    assert "Nothing is below '/nowhere/at/all'" in ask("search", query="boiler", pathPrefix="/nowhere/at/all").text


def test_documents_are_listed_by_their_last_change(ask: Callable[..., Answer]) -> None:
    answer = ask("list_sources", limit="2")
    assert (answer.value["count"], answer.value["total"], answer.value["nextOffset"]) == (2, 6, 2)
    assert [item["title"] for item in answer.value["sources"]] == ["Boiler manual 6", "Boiler manual 5"]
    [last] = ask("list_sources", limit=2, offset=5).value["sources"]
    assert last["title"] == "Boiler manual 1"
    assert len(answer.text.splitlines()) == 4
    assert "goes by the dates in documents" in ask("list_sources", since="2100-01-01").text
    assert "No title contains lamp;" in ask("list_sources", title="lamp").text
    assert ask("list_sources", since="yesterday").value["total"] == 6
    titles = [item["title"] for item in ask("list_sources", order="title").value["sources"]]
    assert titles == sorted(titles)
    with pytest.raises(InvalidInput, match="since"):
        ask("list_sources", since="some day")


def test_the_collection_of_a_search_tells_which_document_of_a_name_is_meant(desk: Desk, tmp_path: Path) -> None:
    note = tmp_path / "notes.md"
    note.write_text("The code is 4711.")
    for name in ("home", "work"):
        desk.library.put(note.read_text(), title="Notes", uri=str(note), collection=name)
        desk.library.put(f"The code of {name}.", title="Codes", collection=name)
    for name, source in product(("home", "work"), ("notes.md", "Codes")):
        arguments = {"query": "code", "collection": name, "sourceId": source}
        [hit] = desk.registry.call("search", arguments, LEAN).value["results"]
        assert hit["collection"] == name


# ---------------------------------------------------------------- excerpts


def test_from_the_third_passage_on_the_text_shows_the_sentences_around_the_one_that_answers(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    for number in range(5):
        before, after = (f"{word} is said of house {number}. " * 8 for word in ("Little", "Nothing"))
        desk.add_text(f"Lamp {number}", f"{before}The lamp of house {number} hums. {after}")
    answer = ask("search", query="lamp hums")
    contents = [hit["content"] for hit in answer.value["results"]]
    assert [content in answer.text for content in contents] == [True, True, False, False, False]
    assert all(f"The lamp of house {number} hums." in answer.text for number in range(5))
    assert len(answer.text) < sum(map(len, contents))
    whole = ask("search", query="lamp hums", maxChars=10_000).text
    assert all(content in whole for content in contents)


def test_a_passage_that_is_far_less_relevant_than_one_that_answers_is_only_listed(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    desk.add_text("Lamp", "The copper lamp above the bench hums at night when its switch and its fuse are worn.")
    for number, last in enumerate(("One copper pot.", "Its switch.", "A bench.")):
        desk.add_text(f"Potatoes {number}", f"Potatoes {number} are kept dry in boxes of sand. " * 10 + last)
    query = "Why does the copper lamp above the bench hum at night when its switch and fuse are worn?"
    answer = ask("search", query=query, limit=8)
    best, weak = answer.value["results"][0], answer.value["results"][-1]
    assert weak["relevance"] < 0.2 * best["relevance"] and len(weak["content"]) > 400
    assert best["content"] in answer.text and weak["content"] not in answer.text
    assert "One copper pot." not in answer.text and "are kept dry" not in answer.text
    assert re.search(r"^Not quoted: .*:1", answer.text, re.M)
    assert weak["content"] in ask("search", query=query, limit=8, maxChars=10_000).text


def test_of_a_passage_the_paragraphs_that_match_are_shown_with_one_before_and_one_after(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    names = ("cellar", "garage", "attic", "garden")
    far, before, after, farther = (f"The {name} was swept in {len(name)} hours." for name in names)
    desk.add_text("House", "\n\n".join((far, before, "The copper lamp hums at night.", after, farther)))
    desk.add_text("Pots", "Copper pots are kept dry.")
    text = ask("search", query="why does the copper lamp hum").text
    assert f"… {before}\n\nThe copper lamp hums at night.\n\n{after} …" in text
    assert far not in text and farther not in text
    assert far in ask("search", query="why does the copper lamp hum", maxChars=10_000).text


# ---------------------------------------------------------------- citations: a quote is exact or absent

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
    # Markup is none of the words.
    desk.library.put("**Flat, sour**: see the [long guide](guide.md) or `the` [[Notes/Loaf|other note]].", title="Loaf")
    quotes = ["the owner’s “old” well-kept office", 'the owner\'s "old" well–kept o\ufb03ce']
    for quote in (*quotes, "Flat, sour: see the long guide or the other note.", "the [long guide](guide.md) or"):
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
