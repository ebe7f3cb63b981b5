"""What the text for a language model shows of each passage: all, the sentences that match, or its line alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import Desk

from localmcp.tools import Answer


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


@pytest.mark.parametrize(
    "title", ["# Kiln handbook\n", "=============\nKiln handbook\n=============\n", "Kiln handbook\n---"]
)
def test_the_line_of_a_passage_is_a_sentence_rather_than_its_heading(
    desk: Desk, ask: Callable[..., Answer], tmp_path: Path, title: str
) -> None:
    text = f"{title}\n\nSome words before.\n\nNever open the kiln when it is hot.\n"
    desk.add_file(tmp_path / "guide.rst", text)
    answer = ask("search", query="handbook: how is the kiln opened", limit=1).text
    assert f"line {text.split('Never')[0].count(chr(10)) + 1}," in answer


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
    assert re.search(r"^Not quoted: .*Potatoes 0:1", answer.text, re.M)
    assert weak["content"] in ask("search", query=query, limit=8, maxChars=10_000).text


def test_a_first_passage_that_is_far_less_relevant_than_another_one_is_only_listed(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    desk.add_text("Check", "Check the exit code in a script.")
    desk.add_text("Sand", "exit code answer 4xx check status script. " + "Potatoes are kept in boxes of sand. " * 10)
    answer = ask("search", query="What exit code do I get for a 4xx answer when checking the status in a script?")
    first, second = answer.value["results"]
    assert first["relevance"] < 0.2 * second["relevance"] and second["relevance"] > 50
    assert first["content"] not in answer.text and "Not quoted: Check:1" in answer.text
    assert second["content"] in answer.text


def test_from_the_third_passage_on_one_that_is_clearly_less_relevant_than_the_best_is_only_listed(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    desk.add_text("Lamp", "The copper lamp above the bench hums at night when its switch and its fuse are worn.")
    for number in range(3):
        desk.add_text(f"Bench {number}", f"Wall {number} was painted white; a lamp stands at its end.")
    query = "Why does the copper lamp above the bench hum at night when its switch and fuse fail?"
    answer = ask("search", query=query, limit=4, mode="keyword")
    best, second, *later = answer.value["results"]
    assert all(0.2 * best["relevance"] < hit["relevance"] < 0.5 * best["relevance"] for hit in (second, *later))
    assert best["content"] in answer.text and second["content"] in answer.text
    assert not any(hit["content"] in answer.text for hit in later)
    assert all(f"{hit['sourceTitle']}:1" in answer.text for hit in later)


def test_where_the_first_passage_has_every_word_of_the_question_others_are_cut(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    desk.add_text("Lamp", "The copper lamp above the bench hums at night.")
    desk.add_text("Pots", "Copper pots and a lamp are kept dry in boxes of sand, far from the oven. " * 6)
    both, pots = ask("search", query="copper lamp bench").value["results"][:2]
    assert (both["sourceTitle"], pots["sourceTitle"]) == ("Lamp", "Pots")
    assert pots["content"] not in ask("search", query="copper lamp bench").text
    assert pots["content"] in ask("search", query="copper lamp").text


def test_an_unlikely_passage_of_a_doubtful_answer_is_cut(ask: Callable[..., Answer]) -> None:
    answer = ask("search", query="zeppelins over the Arctic and their masts")
    first = answer.value["results"][0]
    assert answer.value["lowConfidence"] and first["relevance"] < 20
    assert first["content"] not in answer.text and first["content"][:100] in answer.text


HUM = "copper lamp bench hum night switch"


@pytest.fixture
def lamp(desk: Desk) -> Desk:
    """A passage about what `HUM` asks for, and a dozen about jars."""
    desk.add_text("Lamp", "The copper lamp above the bench hums at night.")
    for number in range(12):
        desk.add_text(f"Shelf {number}", f"Shelf {number} holds jars of plums, number {number}, and nothing else.")
    return desk


def test_a_second_passage_that_both_words_and_meaning_put_far_behind_the_first_is_only_listed(
    lamp: Desk, ask: Callable[..., Answer]
) -> None:
    lamp.add_text("Bench", "The lamp of the bench was bought with a copper switch. " + "Nobody has polished it. " * 12)
    answer = ask("search", query=HUM, limit=2)
    first, second = answer.value["results"]
    assert first["combinedScore"] - second["combinedScore"] > 35 and second["relevance"] > 50
    assert second["content"][:40] not in answer.text and "Not quoted: Bench:1" in answer.text
    assert second["content"][:40] in ask("search", query=HUM, limit=2, mode="keyword").text


def test_of_a_second_passage_that_is_behind_the_first_the_sentences_that_match_are_shown(
    lamp: Desk, ask: Callable[..., Answer]
) -> None:
    lamp.add_text("Bench", "The lamp of the bench hums and glows. " * 14)
    answer = ask("search", query=HUM, limit=2)
    first, second = answer.value["results"]
    assert 15 < first["combinedScore"] - second["combinedScore"] < 35
    assert second["content"][:400] in answer.text and second["content"] not in answer.text


def test_a_later_passage_that_is_behind_the_first_is_quoted_for_a_word_that_the_first_lacks(
    lamp: Desk, ask: Callable[..., Answer]
) -> None:
    for number in range(2):
        lamp.add_text(f"Bench {number}", f"The copper lamp of bench {number} hums and glows.")
    lamp.add_text("Glow", "The copper lamp hums: its switch is worn.")
    answer = ask("search", query=HUM, limit=4)
    first, *_, bench, glow = answer.value["results"]
    assert all(15 < first["combinedScore"] - hit["combinedScore"] < 35 for hit in (bench, glow))
    assert glow["content"] in answer.text
    assert bench["content"] not in answer.text and f"{bench['sourceTitle']}:1" in answer.text


def test_an_excerpt_does_not_end_with_the_number_of_a_step(desk: Desk, ask: Callable[..., Answer]) -> None:
    step = "Turn the wheel until the mark is on top and hold it there with the left hand. " * 2
    for number in range(4):
        text = f"Lamp {number} hums when nobody has looked at it. Then do this:\n\n1. {step}\n2. {step}\n3. {step}"
        desk.add_text(f"Lamp {number}", text)
    shown = ask("search", query="lamp hums", limit=4).text
    assert "Then do this:" in shown.split("[3]")[1] and not re.search(r"\n\d\. …", shown)


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


def test_of_a_passage_no_paragraph_below_another_heading_is_shown(desk: Desk, ask: Callable[..., Answer]) -> None:
    swept = ("## Attic\n\nThe attic was swept.", "## Garden\n\nThe garden was swept.")
    lamp = "## Lamp\n\nIt hangs above the bench.\n\nThe copper lamp hums at night."
    desk.add_text("House", f"{swept[0]}\n\n{lamp}\n\n{swept[1]}")
    desk.add_text("Pots", "Copper pots are kept dry.")
    text = ask("search", query="why does the copper lamp hum").text
    assert f"… {lamp} …" in text and "swept" not in text


def test_a_passage_is_shown_whole_where_the_title_has_all_words_of_the_question(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    fees, flights = "## Fees\n\nThe club asks for 360 euro.", "## Flights\n\nThey end at sunset."
    desk.add_text("Statutes of the club", f"{fees}\n\n{flights}")
    desk.add_text("Pots", "The club has copper pots.")
    assert flights in ask("search", query="statutes of the club").text
    assert flights not in ask("search", query="how many euro does the club ask for").text


def test_documents_that_are_not_quoted_are_named_once_with_their_lines(lamp: Desk, ask: Callable[..., Answer]) -> None:
    parts = (f"## Wall {number}\n\n{f'Wall {number} holds a lamp. ' * 20}" for number in range(2))
    lamp.add_text("Walls", "\n\n".join(parts))
    text = ask("search", query=HUM, limit=3).text
    assert text.count("Walls") == 1 and re.search(r"^Not quoted: Walls:\d+,\d+$", text, re.M)


def test_spaces_that_all_lines_are_indented_by_are_not_shown(desk: Desk, ask: Callable[..., Answer]) -> None:
    desk.add_text("man lamp", "-s, --switch\n           Turn the lamp on.\n             Twice: off.\n")
    assert "-s, --switch\n    Turn the lamp on.\n      Twice: off." in ask("search", query="turn the lamp on").text


def test_of_a_mail_that_is_found_by_its_subject_the_words_are_shown_rather_than_the_addresses(
    desk: Desk, ask: Callable[..., Answer]
) -> None:
    for number in range(3):
        header = f"From: Toni Pichler {number} <toni@pichler.example>\nTo: Tomas Smith <tomas@firm.example>\n"
        body = f"They come in week {number}. " + "The trench is forty meters long. " * 20
        desk.add_text("Charging posts", f"{header}Date: Tue, 05 May 2026 13:00:00 +0200\n\n{body}")
    text = ask("search", query="charging posts").text
    assert re.search(r"They come in week \d", text.split("[3]")[1])


def test_nothing_is_said_of_further_pages_behind_a_passage_that_is_not_quoted(
    lamp: Desk, ask: Callable[..., Answer]
) -> None:
    for number in range(2):
        lamp.add_text(
            f"Bench {number}", "The lamp of the bench was bought with a copper switch. " + "Nobody polished it. " * 12
        )
    weak, first = (ask("search", query=HUM, limit=limit) for limit in (2, 1))
    assert "Not quoted: " in weak.text and "cursor" not in weak.text and weak.value["nextCursor"]
    assert f"More: cursor={first.value['nextCursor']}" in first.text
