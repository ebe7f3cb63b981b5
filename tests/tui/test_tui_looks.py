"""Looks: every text can be read, with and without colors; panes at two sizes as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tui_driver import assert_screen, low_contrast, make_library, open_tui, segments

from localmcp.tui.app import PANES


@pytest.mark.parametrize("name", ["localmcp", "localmcp-light"])
async def test_every_text_on_the_screen_can_be_read(tmp_path: Path, name: str) -> None:
    async with open_tui(make_library(tmp_path), theme=name) as tui:
        await tui.type("bees autumn")
        assert low_contrast(tui.app) == []
        await tui.press("escape", "x")
        assert low_contrast(tui.app) == []
        await tui.press("enter")
        assert low_contrast(tui.app) == []
        for other in ("localmcp", "localmcp-light", name):
            tui.app.theme = other
            await tui.settle()
            assert low_contrast(tui.app) == [], "what is read takes the colors of another theme"
        await tui.press("escape")
        for pane in ("library", "tools", "activity"):
            await tui.go(pane)
            assert low_contrast(tui.app) == [], pane


@pytest.mark.parametrize("name", ["localmcp", "terminal"])
async def test_without_colors_nothing_is_drawn_in_the_color_of_what_is_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = make_library(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_tui(file, theme=name) as tui:
        await tui.type("bees autumn")
        await tui.press("escape")
        assert low_contrast(tui.app) == []
        same = [text for text, style in segments(tui.app) if text.strip() and style and style.color and style.bgcolor
                and style.color == style.bgcolor and not style.color.is_default]  # fmt: skip
        assert same == []


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
