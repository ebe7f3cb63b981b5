"""What the panes look like, at two sizes, as text that a person can read and compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from tui_driver import assert_screen, make_library, open_tui

from localmcp.tui.app import PANES

SIZES = {"80x24": (80, 24), "120x34": (120, 34)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, so that paths are the same on every machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LOCALMCP_CONFIG_DIR", str(tmp_path / ".config"))
    return tmp_path


@pytest.mark.parametrize("size", SIZES)
async def test_panes_of_a_file_with_documents(home: Path, size: str) -> None:
    async with open_tui(make_library(home), SIZES[size]) as tui:
        await tui.type("bees autum")
        await tui.press("escape")
        if SIZES[size][0] >= 100:
            await tui.press("x")
        assert_screen(f"search-{size}", tui)
        await tui.go("library")
        await tui.press("enter", "down", "down")
        assert_screen(f"library-{size}", tui)
        await tui.press("question_mark")
        assert_screen(f"help-{size}", tui)
        await tui.press("question_mark")
        await tui.go("quickstarts")
        assert_screen(f"quickstarts-{size}", tui)
        await tui.go("rules")
        assert_screen(f"rules-{size}", tui)
        await tui.go("tools")
        tui.pane.line.value = "list_sources"
        await tui.settle()
        await tui.press("enter")
        assert_screen(f"tools-{size}", tui)


@pytest.mark.parametrize("size", SIZES)
async def test_panes_of_an_empty_file_say_what_belongs_there(home: Path, size: str) -> None:
    async with open_tui(home / "library.localmcp", SIZES[size]) as tui:
        assert_screen(f"welcome-{size}", tui)
        for pane in ("library", "quickstarts", "rules", "activity"):
            await tui.go(pane)
            assert_screen(f"empty-{pane}-{size}", tui)
        if size == "80x24":
            for pane in list(PANES)[4:]:
                await tui.go(pane)
                assert tui.error() == ""
    # Looking at every pane makes no file.
    assert not (home / "library.localmcp").exists()
