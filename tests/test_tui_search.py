"""The pane Search, by its keys, on a real file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from folders import write
from tui_driver import House, make_library, open_house

from localmcp.text.excerpt import Matcher
from localmcp.tui.editor import editor_command
from localmcp.tui.marking import best_stretch


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(make_library(tmp_path)) as house:
        yield house


async def test_passages_come_while_typing_and_the_last_key_wins(house: House) -> None:
    await house.pilot.press(*"kafkaaa", "backspace", "backspace")
    await house.settle()
    assert house.pane.hits[0]["sourceTitle"] == "Kafka lag"
    assert house.pane.result["query"] == "kafka"


async def test_the_passage_stands_beside_the_list_with_its_words_marked(house: House) -> None:
    await house.type("autumn")
    passage = house.pane.query_one("#passage").content
    spans = [passage.plain[span.start : span.end] for span in passage.spans if "underline" in str(span.style)]
    assert spans == ["autumn"]
    assert "lines 1–3" in house.text()


async def test_filters_stand_in_the_line(house: House) -> None:
    await house.type("bees collection:garden")
    assert [hit["sourceTitle"] for hit in house.pane.hits] == ["Roses"]
    house.pane.type_query("lags tag:ops")
    await house.settle()
    assert [hit["sourceTitle"] for hit in house.pane.hits] == ["Kafka lag"]
    house.pane.type_query("queen source:bees")
    await house.settle()
    assert [hit["sourceTitle"] for hit in house.pane.hits] == ["Bees"]


async def test_a_source_that_is_not_there_is_told_and_forgotten_when_typing_goes_on(house: House) -> None:
    await house.type("queen source:nowhere")
    assert "no document is called 'nowhere'" in house.error()
    house.pane.type_query("queen")
    await house.settle()
    assert house.error() == ""


async def test_the_mode_turns_from_hybrid_to_keyword_to_semantic(house: House) -> None:
    await house.type("bees")
    seen = [house.pane.result["mode"]]
    for _ in range(3):
        await house.press("ctrl+t")
        seen.append(house.pane.result["mode"])
    assert seen == ["hybrid", "keyword", "semantic", "hybrid"]


async def test_a_repaired_spelling_is_said_and_can_be_taken_over(house: House) -> None:
    await house.type("bees autum tag:x")
    house.pane.type_query("bees autum path:docs")
    await house.settle()
    assert "autumn instead of autum" in house.text()
    await house.press("escape", "a")
    assert house.pane.line.value == "bees autumn path:docs"


async def test_why_a_passage_was_found(house: House) -> None:
    await house.type("queen")
    await house.press("escape", "x")
    text = house.text()
    assert "meaning + 0.3 × " in text
    assert "matched: queen" in text
    assert "as it was read" in text


async def test_citation_and_text_are_copied(house: House) -> None:
    await house.type("queen")
    await house.press("escape", "y")
    assert house.app.clipboard.startswith("Bees (")
    assert house.app.clipboard.endswith("bees.md:1)")
    await house.press("Y")
    assert "A hive has one queen." in house.app.clipboard


async def test_reading_on_around_a_passage(house: House) -> None:
    await house.type("queen")
    await house.press("enter", "enter")
    assert "whole document" in house.text()
    await house.press("n", "c", "escape")
    assert "Passages" in house.text()


async def test_the_editor_opens_at_the_line(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "no-such-editor --wait")
    await house.type("queen")
    await house.press("escape", "o")
    # A terminal of the test's own cannot be handed over, which is told as every other obstacle.
    assert "editor" in house.error()
    (tmp_path / "docs" / "bees.md").unlink()
    await house.press("r")
    await house.press("o")
    assert "no longer there" in house.error()


@pytest.mark.parametrize(
    ("editor", "command"),
    [
        ("vim", ["vim", "+7", "/a.md"]),
        ("/usr/bin/nvim -R", ["/usr/bin/nvim", "-R", "+7", "/a.md"]),
        ("code --wait", ["code", "--wait", "--goto", "/a.md:7"]),
        ("hx", ["hx", "/a.md:7"]),
        ("unheard-of", ["unheard-of", "/a.md"]),
    ],
)
def test_editors_are_told_the_line_in_their_own_way(editor: str, command: list[str]) -> None:
    assert editor_command(editor, "/a.md", 7) == command


async def test_a_changed_file_is_marked(house: House, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nA hive has one queen and many workers.\n")
    await house.type("queen")
    assert "changed since" in house.text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The queen bee lives long.", "The queen bee lives long."),
        ("word " * 40 + "the queen of the bees sleeps", "… word the queen of the bees sleeps"),
        ("x" * 90 + " queen " + "y" * 90, "… queen yyyy"),
        ("queen " + "word " * 40 + "the bees follow their queen", "… the bees follow their queen"),
        ("x" * 80, "x" * 80),
        ("", ""),
    ],
)
def test_the_line_of_a_passage_shows_most_of_the_words(text: str, shown: str) -> None:
    assert best_stretch(text, Matcher(["queen", "bee"], "english"), 40).startswith(shown)


async def test_a_table_is_shown_without_its_rules_in_the_list(house: House, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "loaf.md", "# Loaf\n\n| What | Weight |\n|---|---|\n| Spelt flour | 400 g |\n")
    house.app.desk.workspace.library.refresh()
    await house.type("spelt")
    await house.until(lambda: "What · Weight Spelt flour · 400 g" in house.text(), "the row")


async def test_nothing_found_empties_the_list(house: House) -> None:
    await house.type("queen")
    assert house.pane.results.option_count
    house.pane.mode = "keyword"
    house.pane.type_query("zzzzqqqq")
    await house.settle()
    assert house.pane.results.option_count == 0
    assert "Nothing fits" in house.text()
    assert "A hive has" not in house.text()


async def test_a_better_answer_is_highlighted_unless_the_person_has_moved(house: House) -> None:
    await house.type("bees")
    first, second = (hit["id"] for hit in house.pane.hits[:2])
    house.pane.show_result({**house.pane.result, "results": house.pane.hits[::-1]}, keep=True)
    assert house.pane.hit["id"] != first
    await house.press("escape", "j")
    moved = house.pane.hit["id"]
    house.pane.show_result({**house.pane.result, "results": house.pane.hits[::-1]}, keep=True)
    assert house.pane.hit["id"] == moved
    assert {first, second} <= {hit["id"] for hit in house.pane.hits}


async def test_nothing_fits(house: House) -> None:
    await house.type("collection:garden qqqq")
    house.pane.mode = "keyword"
    house.pane.search_again()
    await house.settle()
    assert "Nothing fits" in house.text()


async def test_more_passages_come_when_the_last_is_reached(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    for number in range(45):
        write(tmp_path / "many" / f"{number}.md", f"# Note {number}\n\nThe zebra of note {number}.\n")
    async with open_house(file) as house:
        house.app.desk.workspace.library.add_paths([tmp_path / "many"])
        await house.type("zebra")
        await house.press("escape")
        assert len(house.pane.hits) == 20
        await house.press("G")
        assert len(house.pane.hits) == 40
        await house.press("G")
        assert len(house.pane.hits) == 45
        assert len({hit["id"] for hit in house.pane.hits}) == 45
