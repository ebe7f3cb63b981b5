"""The reader: a whole document, drawn while one scrolls, and found things in it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from folders import write
from tui_driver import RunningTui, commands_of_text, kept, make_library, open_tui, settings_of

from localmcp.errors import NotFound
from localmcp.tui.reader import ReaderScreen
from localmcp.tui.widgets import open_original
from localmcp.workspace import Workspace

CHAPTERS = 50


@pytest.fixture
async def tui(tmp_path: Path) -> AsyncIterator[RunningTui]:
    """Reading a book at a passage of its middle."""

    def fill(home: Path) -> None:
        chapters = (
            f"# Chapter {n}\n\nThe **lamp** of chapter {n}. {'It burns on. ' * 60}\n\n```\nlight({n})\n```\n"
            for n in range(CHAPTERS)
        )
        write(home / "docs" / "lamps.md", "\n".join(chapters))
        with Workspace(settings_of(home)) as workspace:
            workspace.library.add_paths([home / "docs"])

    async with open_tui(kept("book", tmp_path, fill), (140, 34)) as tui:
        await tui.type("lamp chapter 30 source:lamps")
        await tui.press("enter", "enter")
        yield tui


def reader(tui: RunningTui) -> Any:
    return tui.app.screen


async def test_a_document_is_drawn_while_scrolling_and_searched_where_nothing_is_drawn_yet(tui: RunningTui) -> None:
    assert "Outline" in tui.text() and "**lamp**" not in tui.text() and "```" not in tui.text()
    assert f"light({CHAPTERS - 1})" not in tui.text()
    for key, end in (("pagedown", f"light({CHAPTERS - 1})"), ("pageup", "lamp of chapter 0.")):
        for _ in range(60):
            await tui.press(key, key, key, key, key)
            if end in tui.text():
                break
        assert end in tui.text()
    await tui.press("slash")
    await tui.type("chapter 48")
    await tui.press("enter")
    assert "The lamp of chapter 48" in tui.text()
    await tui.press("N")
    assert "Chapter 48" in tui.text()
    before = reader(tui)._top["chunkIndex"]
    await tui.pilot.resize_terminal(60, 34)
    await tui.settle()
    assert reader(tui)._top["chunkIndex"] == before, "it stays in sight when the lines are broken anew"


async def test_the_passage_at_the_top_is_copied_and_cited_and_a_heading_leads_to_its_own(tui: RunningTui) -> None:
    await tui.press("slash")
    await tui.type("chapter 41.")
    await tui.press("enter", "Y")
    assert "The **lamp** of chapter 41." in tui.app.clipboard
    await tui.press("y")
    title, heading = tui.app.clipboard.split(" (")[0].split(" › ")
    assert (title, heading) == ("lamps", "Chapter 41")
    await tui.press("question_mark")
    assert "A whole document." in tui.text()
    assert "Previous match" in tui.text()
    await tui.press("question_mark", "G")
    assert f"light({CHAPTERS - 1})" in tui.text()
    await tui.press("c", "g", "j", "j", "enter")
    assert "The lamp of chapter 2." in tui.text()
    await tui.press("2")
    assert tui.app.screen is tui.app.screen_stack[0] and tui.app.pane.id == "library"


async def test_the_editor_is_opened_at_the_passage_or_the_error_line_says_why_not(
    tui: RunningTui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "vim")
    started: list[list[str]] = []
    monkeypatch.setattr(tui.app, "suspend", contextlib.nullcontext)
    monkeypatch.setattr("subprocess.run", lambda command, check: started.append(command))
    path = tmp_path / "docs" / "lamps.md"
    await tui.press("g", "e")
    assert started == [["vim", "+1", str(path)]]
    await tui.press("G", "e")
    assert int(started[1][1]) > 300
    path.unlink()
    await tui.press("e")
    assert "no longer there" in tui.error() and len(started) == 2
    with pytest.raises(NotFound, match="control characters in its name"):
        open_original({"path": f"{path.parent}/bell␇.md", "freshness": "fresh"})


async def test_keys_do_nothing_in_a_document_that_another_process_has_removed(tui: RunningTui) -> None:
    passage = reader(tui).target
    await tui.press("escape")
    tui.app.session.workspace.library.remove(["lamps"])
    tui.app.push_screen(ReaderScreen(passage))
    await tui.settle()
    assert tui.error()
    await tui.press("Y", "y", "o", "e", "b", "t", "tab", "G", "g", "n", "c", "slash", "x", "enter")
    await tui.press("escape", "escape")
    assert tui.app.screen is tui.app.screen_stack[0]


async def test_a_document_is_shown_as_its_reader_wrote_it(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    write(tmp_path / "docs" / "paper.rst", "Moorhens\n========\n\nNests float.\n")
    write(tmp_path / "docs" / "mail.eml", "From: Ada\nTo: Bo\nSubject: Newts\n\nEggs float.\n")
    async with open_tui(file, (100, 30)) as tui:
        tui.app.session.workspace.library.refresh()
        for words, shown, hidden in (
            ("moorhens nests", "Moorhens", "# Moorhens"), ("newts eggs", "From: Ada  ", "From: Ada To"),
        ):  # fmt: skip
            tui.pane.type_query(words)
            await tui.settle()
            await tui.press("enter", "enter")
            await tui.until(lambda: "float" in tui.text() and "whole document" in tui.text(), "the reader")
            assert shown in tui.text()
            assert hidden not in tui.text()
            await tui.press("escape")


# ---------------------------------------------------------------- links and tables


@pytest.fixture
async def wiki(tmp_path: Path) -> AsyncIterator[RunningTui]:
    """Reading a note with links, found by its word."""
    file = make_library(tmp_path)
    note = """# Hub

The okapi note: [[Kafka lag]], [[Bees|the hive]], [soil](../docs/soil.txt), [roses](<../other/roses.md#prune>),
[[Nowhere]], [below](#below), [away](https://example.org/%1b[2J) and https://example.org/bare?x=1.

```
[[ -f x ]] && echo
```

## Below

Here.
"""
    write(tmp_path / "docs" / "hub.md", note)
    write(tmp_path / "docs" / "code.md", "# Code\n\n`[[Soil]]` and [a link](bees.md).\n")
    write(
        tmp_path / "docs" / "page.html",
        "<h1>Page</h1><p>A <a href='hub.md#below'>place</a> and <a href=bees.md>bees</a>",
    )
    async with open_tui(file, (140, 34)) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("okapi")
        await tui.press("enter", "enter")
        yield tui


async def test_links_are_gone_through_by_tab_followed_by_enter_and_listed_backwards(wiki: RunningTui) -> None:
    tui, titles = wiki, list[str]()
    for number in range(1, 9):
        await tui.press("tab")
        target = reader(tui).view.link[1].target
        await tui.press("enter")
        if number in (1, 2, 3, 4):
            await tui.until(lambda: reader(tui).about and reader(tui)._drawn, "the document")
            titles.append(reader(tui).about["sourceTitle"])
            await tui.press("backspace")
        elif number == 5:
            assert "No document of the library is Nowhere." in str([*tui.app._notifications])
        elif number > 6:
            assert target.startswith("https://example.org/")
            assert "Address of the link" in tui.text() and commands_of_text(tui.app) == []
            await tui.press("y", "escape")
            assert tui.app.clipboard.startswith("https://example.org/")
        assert reader(tui).about["sourceTitle"] == "Hub"
    assert titles == ["Kafka lag", "Bees", "soil", "Roses"]
    await tui.press("tab")
    assert "No link is further on." in str([*tui.app._notifications])
    assert "[[ -f x ]]" in tui.text(), "what is in code is no link"
    await tui.press(*["shift+tab"] * 6, "enter")
    await tui.until(lambda: "A hive has one queen" in tui.text(), "the document")
    await tui.press("b")
    await tui.until(lambda: "These link here" in tui.text(), "the list")
    assert all(title in tui.text() for title in ("Code", "Hub", "Page"))
    await tui.press("enter")
    await tui.until(lambda: "a link" in tui.text() and "whole document" in tui.text(), "the first of them")
    await tui.press("b")
    assert "No document links here." in str([*tui.app._notifications])
    await tui.press("backspace", "b", "end", "enter")
    await tui.until(lambda: "A place and bees" in tui.text(), "the page")
    await tui.press("tab", "enter")
    await tui.until(lambda: "Here." in tui.text(), "what it leads to")


async def test_a_table_of_a_document_is_shown_and_sorted(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    write(tmp_path / "docs" / "tools.csv", "tool,price\nsaw,12\nhammer,8\n[b]rake[/b],100\nquokka,\n")
    async with open_tui(file, (120, 30)) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("quokka")
        await tui.press("enter", "enter", "t")
        await tui.until(lambda: "4 rows" in tui.text(), "the table")
        await tui.press("right", "s")
        await tui.until(lambda: "price ▲" in tui.text(), "the order")
        shown = tui.text()
        assert shown.index("hammer") < shown.index("saw") < shown.index("[b]rake[/b]") < shown.index("quokka")
        await tui.press("s")
        await tui.until(lambda: "price ▼" in tui.text(), "the other order")
        assert tui.text().index("[b]rake[/b]") < tui.text().index("saw")
        await tui.press("y", "escape", "escape")
        assert tui.app.clipboard == "100"
