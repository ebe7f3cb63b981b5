"""The pane Search, by its keys, on a real file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from folders import write
from textual import events
from tui_driver import RunningTui, make_library, open_tui

from localmcp.tui.session import SearchMemory
from localmcp.tui.widgets import viewer_command


async def search(tui: RunningTui, text: str) -> list[str]:
    """Put a query into the line; return the titles of what is found."""
    tui.pane.type_query(text)
    await tui.settle()
    return [hit["sourceTitle"] for hit in tui.pane.hits]


async def test_passages_come_while_typing_and_every_line_of_a_pasted_text_is_searched(tui: RunningTui) -> None:
    await tui.pilot.press(*"kafkaaa", "backspace", "backspace")
    await tui.settle()
    assert tui.pane.hits[0]["sourceTitle"] == "Kafka lag"
    assert tui.pane.found.result["query"] == "kafka", "the last key wins"
    await tui.press("ctrl+u")
    tui.app.post_message(events.Paste("\nThe consumer\n  lags\r\nbehind\n"))
    await tui.settle()
    assert tui.pane.found.result["query"] == "The consumer lags behind"
    assert tui.pane.hits[0]["sourceTitle"] == "Kafka lag"
    for word in ("queen", "autumn"):
        await search(tui, word)
        passage = tui.pane.reader.text
        spans = [passage.plain[span.start : span.end] for span in passage.spans if span.style.underline]
        assert spans == [word], "the same passage, with other words marked"
    assert "line 3" in tui.text()
    bold = [passage.plain[span.start : span.end] for span in passage.spans if span.style.bold]
    assert "Feed the bees in autumn, before the first frost." in " ".join(" ".join(bold).replace("▌", "").split())


async def test_filters_stand_in_the_line_and_what_finds_nothing_is_told(tui: RunningTui) -> None:
    assert await search(tui, "bees collection:garden") == ["Roses"]
    assert await search(tui, "lags tag:ops") == ["Kafka lag"]
    assert await search(tui, "queen source:bees") == ["Bees"]
    assert await search(tui, "queen source:nowhere") == []
    assert "no document 'nowhere'" in tui.error()
    assert not tui.pane.rows and "nowhere" in tui.text()
    await search(tui, "bees queeen path:docs")
    assert tui.error() == "", "it is forgotten when typing goes on"
    assert "'queeen' was searched as 'queen'." in tui.text()
    tui.pane.mode = "keyword"
    await tui.pilot.resize_terminal(80, 24)
    await search(tui, "queen")
    titles = [row.title.plain for row in tui.pane.rows]
    await search(tui, "zzzzqqqq")
    assert tui.pane.list.option_count == 0
    assert "Nothing fits" in tui.text()
    assert "A hive has" not in tui.text()
    await search(tui, "queen")
    await tui.until(lambda: [row.title.plain for row in tui.pane.rows] == titles, "the list in its whole width")


async def test_mode_filters_and_reasons_by_their_keys_and_by_the_mouse(tui: RunningTui) -> None:
    await tui.type("bees")
    seen = [tui.pane.found.result["mode"]]
    for _ in range(3):
        await tui.press("ctrl+t")
        seen.append(tui.pane.found.result["mode"])
    assert seen == ["hybrid", "keyword", "semantic", "hybrid"]
    await tui.press("escape", "f", "down", "enter")
    assert tui.pane.line.value == "bees collection:garden"
    assert [hit["sourceTitle"] for hit in tui.pane.hits] == ["Roses"]
    await tui.press("ctrl+f")
    await tui.press("down", "enter")
    assert tui.pane.line.value == "bees"
    chips = tui.text().splitlines()[5]
    await tui.pilot.click("#chips", offset=(chips.index("mode") - 1, 0))
    await tui.settle()
    assert tui.pane.mode == "keyword"
    await tui.pilot.click("#chips", offset=(chips.index("collection") - 1, 0))
    await tui.settle()
    await tui.press("down", "enter")
    assert tui.pane.line.value == "bees collection:garden"
    tui.pane.mode = "hybrid"
    await search(tui, "queen")
    await tui.press("escape", "x")
    text = tui.text()
    assert "meaning + 0.3 × " in text
    assert "matched: queen" in text
    assert "as it was read" in text
    await tui.press("l")
    assert tui.pane.line.value == "like Bees"
    assert tui.pane.found.result["mode"] == "semantic"
    assert tui.pane.hits[0]["sourceTitle"] == "Bees"


async def test_files_that_changed_or_have_copies_and_tables_are_shown_as_such(tui: RunningTui, tmp_path: Path) -> None:
    docs, library = tmp_path / "docs", tui.app.session.workspace.library
    write(docs / "bees.md", "---\ndate: 2001-09-09\n---\n# Bees\n\nA queen of the bees of long ago.\n")
    await tui.type("queen")
    assert "changed since" in tui.text()
    write(docs / "loaf.md", "# Loaf\n\n| What | Weight |\n|---|---|\n| [Spelt\\|rye](b.md) flour | 400 g |\n")
    for place in ("sent/lease.md", "archive/lease.md", "lease.md"):
        write(docs / "flat" / place, "# Lease\n\nThe deposit is three months of rent.\n")
    library.refresh()
    await search(tui, "spelt")
    assert "Spelt|rye flour · 400 g" in tui.text()
    await search(tui, "deposit")
    [hit] = tui.pane.hits
    assert len(hit["alsoIn"]) == 2
    line = next(line for line in tui.text().splitlines() if "lease.md:3" in line)
    assert "  +2 places" in line
    passage = tui.pane.reader.text.plain
    assert "also in" in passage and all(path[-15:] in passage for path in hit["alsoIn"])
    await search(tui, "bees")
    await tui.press("escape", "t")
    assert [hit["sourceTitle"] for hit in tui.pane.hits] == ["Roses", "Bees"], "by date"


async def test_more_passages_come_when_the_last_is_reached(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    for number in range(25):
        write(tmp_path / "many" / f"{number}.md", f"# Note {number}\n\nThe zebra of note {number}.\n")
    async with open_tui(file) as tui:
        tui.app.session.workspace.library.add_paths([tmp_path / "many"])
        await tui.type("zebra")
        await tui.press("escape")
        for count in (20, 25):
            assert len(tui.pane.hits) == count
            await tui.press("G")
        assert len({hit["id"] for hit in tui.pane.hits}) == 25
        last = tui.pane.hit["id"]
        write(tmp_path / "many" / "25.md", "# Note 25\n\nA lion.\n")
        tui.app.session.workspace.library.add_paths([tmp_path / "many"])
        before = tui.app.stats["totalSources"]
        await tui.until(lambda: tui.app.stats["totalSources"] > before, "the change")
        await tui.settle()
        assert (len(tui.pane.hits), tui.pane.hit["id"]) == (25, last), "the person stays where they were"


async def test_typing_is_a_draft_that_is_logged_once_when_a_passage_is_used(tui: RunningTui) -> None:
    await tui.pilot.press(*"queen")
    await tui.settle()
    activity = tui.app.session.workspace.activity
    assert activity.logs(tool="search")[1] == 0
    await tui.press("enter", "y")
    assert tui.app.clipboard.startswith("Bees (") and tui.app.clipboard.endswith("bees.md:3)")
    await tui.press("Y")
    assert "A hive has one queen." in tui.app.clipboard
    assert activity.logs(tool="search")[1] == 1
    tui.app.session.do("A job", lambda _tell: None, lambda _result: None)
    await tui.until(lambda: not tui.app.session.job)
    await tui.press("j")
    assert tui.pane.line.value == "queen", "its end leaves the focus where the person is"


async def test_earlier_and_saved_searches_come_back(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    async with open_tui(file) as tui:
        await tui.type("queen")
        await tui.press("escape", "y", "s")
    async with open_tui(file) as tui:
        assert "★ queen" in tui.text()
        await tui.press("down", "enter")
        assert tui.pane.line.value == "queen"


def test_two_windows_keep_what_the_other_has_saved() -> None:
    one, other = SearchMemory(), SearchMemory()
    one.remember("bees", toggle=True)
    other.remember("roses", toggle=True)
    assert SearchMemory().saved == ["bees", "roses"]


async def test_a_file_is_opened(tui: RunningTui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    place = tmp_path / "docs" / "animals.md"
    place.write_text("The quokka sleeps in a hammock.\n")
    write(tmp_path / "docs" / "quokka.py", "# The quokka of a program.\n")
    tui.app.session.workspace.library.add_paths([place, tmp_path / "docs" / "quokka.py"])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    await tui.type("quokka hammock")
    await tui.press("escape", "o")
    assert started == [["xdg-open", str(place)]]
    # What the system might run is left to the editor.
    tui.pane.type_query("quokka program")
    await tui.settle()
    await tui.press("escape", "o")
    assert "might run as a program" in tui.error() and len(started) == 1


def test_a_pdf_is_opened_at_its_page_where_the_viewer_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    default = subprocess.CompletedProcess([], 0, "org.kde.Okular.desktop\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: default)
    assert viewer_command("/a.pdf", 7) == ["okular", "--page=7", "/a.pdf"]
    assert viewer_command("/a.pdf", None) == ["xdg-open", "/a.pdf"]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert viewer_command("/a.pdf", 7) == ["open", "/a.pdf"]
