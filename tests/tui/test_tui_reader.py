"""The reader: a whole document, drawn while one scrolls, and found things in it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from folders import write
from tui_driver import RunningTui, make_library, open_tui

from localmcp.tui.reader import ReaderScreen

CHAPTERS = 60


@pytest.fixture
async def tui(tmp_path: Path) -> AsyncIterator[RunningTui]:
    """Reading a book at a passage of its middle."""
    file = make_library(tmp_path)
    chapters = (
        f"# Chapter {n}\n\nThe **lamp** of chapter {n}. {'It burns on. ' * 60}\n\n```\nlight({n})\n```\n"
        for n in range(CHAPTERS)
    )
    write(tmp_path / "docs" / "lamps.md", "\n".join(chapters))
    async with open_tui(file, (140, 34)) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("lamp chapter 30 source:lamps")
        await tui.press("enter", "enter")
        yield tui


def reader(tui: RunningTui) -> Any:
    return tui.app.screen


async def test_the_document_is_drawn_to_both_ends_while_scrolling(tui: RunningTui) -> None:
    assert "light(59)" not in tui.text()
    for _ in range(40):
        await tui.press("pagedown", "pagedown", "pagedown")
        if "light(59)" in tui.text():
            break
    assert "light(59)" in tui.text()
    for _ in range(60):
        await tui.press("pageup", "pageup", "pageup")
        if "lamp of chapter 0." in tui.text():
            break
    assert "lamp of chapter 0." in tui.text()
    await tui.press("G", "g")
    assert "Chapter 0" in tui.text()
    await tui.press("G")
    assert f"light({CHAPTERS - 1})" in tui.text()


async def test_markdown_is_rendered_in_a_column_beside_the_outline(tui: RunningTui) -> None:
    text = tui.text()
    assert "Outline" in text
    assert "**lamp**" not in text
    assert "The lamp of chapter" in text
    assert "```" not in text


async def test_a_text_is_found_where_nothing_is_drawn_yet(tui: RunningTui) -> None:
    await tui.press("slash")
    await tui.type("chapter 58")
    await tui.press("enter")
    assert "The lamp of chapter 58" in tui.text()
    await tui.press("N")
    assert "Chapter 58" in tui.text()


async def test_a_heading_of_the_outline_leads_to_its_passage(tui: RunningTui) -> None:
    await tui.press("t", "g", "j", "j", "enter")
    assert "The lamp of chapter 2." in tui.text()


async def test_the_outline_has_headings_that_share_a_passage(tmp_path: Path) -> None:
    async with open_tui(make_library(tmp_path)) as tui:
        await tui.type("consumer lags")
        await tui.press("enter", "enter")
        assert [text for text, _ in reader(tui).headings] == ["Kafka lag", "Fix"]


async def test_the_place_is_kept_when_a_document_is_left(tui: RunningTui) -> None:
    await tui.press("G")
    await tui.press("escape")
    item = tui.app.session.workspace.inventory.find("lamps")
    assert tui.app.session.memory.positions[item.id] > CHAPTERS - 5


async def test_the_passage_at_the_top_is_copied_and_cited(tui: RunningTui) -> None:
    await tui.press("slash")
    await tui.type("chapter 41.")
    await tui.press("enter", "Y")
    assert "The **lamp** of chapter 41." in tui.app.clipboard
    await tui.press("y")
    title, heading = tui.app.clipboard.split(" (")[0].split(" › ")
    assert (title, heading) == ("lamps", "Chapter 41")


async def test_the_editor_is_opened_at_the_passage_or_the_error_line_says_why_not(
    tui: RunningTui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "vim")
    started: list[list[str]] = []
    monkeypatch.setattr(tui.app, "suspend", contextlib.nullcontext)
    monkeypatch.setattr("subprocess.run", lambda command, check: started.append(command))
    path = tmp_path / "docs" / "lamps.md"
    await tui.press("g", "o")
    assert started == [["vim", "+1", str(path)]]
    await tui.press("G", "o")
    assert int(started[1][1]) > 300
    path.unlink()
    await tui.press("o")
    assert "no longer there" in tui.error() and len(started) == 2


async def test_keys_do_nothing_in_a_document_that_another_process_has_removed(tui: RunningTui) -> None:
    passage = reader(tui).target
    await tui.press("escape")
    tui.app.session.workspace.library.remove(["lamps"])
    tui.app.push_screen(ReaderScreen(passage))
    await tui.settle()
    assert tui.error()
    await tui.press("Y", "y", "o", "G", "g", "n", "t", "slash", "x", "enter")
    await tui.press("escape", "escape")
    assert tui.app.screen is tui.app.screen_stack[0]


async def test_the_help_of_the_reader_names_its_keys(tui: RunningTui) -> None:
    await tui.press("question_mark")
    assert "A whole document." in tui.text()
    assert "Previous match" in tui.text()


@pytest.mark.parametrize(
    ("name", "text", "shown", "hidden"),
    [
        ("paper.rst", "Moorhens\n========\n\nNests float.\n", "Moorhens", "# Moorhens"),
        ("mail.eml", "From: Ada\nTo: Bo\nSubject: Moorhens\n\nNests float.\n", "From: Ada  ", "From: Ada To"),
    ],
)
async def test_a_document_is_shown_as_its_reader_wrote_it(
    tmp_path: Path, name: str, text: str, shown: str, hidden: str
) -> None:
    file = make_library(tmp_path)
    write(tmp_path / "docs" / name, text)
    async with open_tui(file, (100, 30)) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("moorhens nests float")
        await tui.press("enter", "enter")
        await tui.until(lambda: "Nests float" in tui.text() and "whole document" in tui.text(), "the reader")
        assert shown in tui.text()
        assert hidden not in tui.text()


async def test_why_the_editor_cannot_be_opened_is_told_over_the_reader(tui: RunningTui, tmp_path: Path) -> None:
    (tmp_path / "docs" / "lamps.md").unlink()
    await tui.press("o")
    await tui.until(lambda: "no longer there" in str([*tui.app._notifications]), "the reason")


async def test_a_digit_leaves_the_reader_for_the_pane_and_keeps_the_place(tui: RunningTui) -> None:
    await tui.press("G", "2")
    assert tui.app.screen is tui.app.screen_stack[0] and tui.app.pane.id == "library"
    assert max(tui.app.session.memory.positions.values()) > CHAPTERS - 10


async def test_the_passage_stays_in_sight_when_the_lines_are_broken_anew(tui: RunningTui) -> None:
    await tui.press("j")
    before = reader(tui)._top["chunkIndex"]
    await tui.pilot.resize_terminal(60, 34)
    await tui.settle()
    assert reader(tui)._top["chunkIndex"] == before
