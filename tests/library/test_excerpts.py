"""What the text for a language model shows of each passage: all, the sentences that match, or its line alone."""

from __future__ import annotations

import re
from collections.abc import Callable

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
