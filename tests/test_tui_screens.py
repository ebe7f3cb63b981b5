"""What the panes look like, at three sizes, as text that a person can read and compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from tui_driver import check_screen, make_library, open_house

SIZES = {"80x24": (80, 24), "120x34": (120, 34), "160x45": (160, 45)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, so that paths are the same on every machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LOCALMCP_CONFIG_DIR", str(tmp_path / ".config"))
    return tmp_path


@pytest.mark.parametrize("size", SIZES)
async def test_panes_of_a_file_with_documents(home: Path, size: str) -> None:
    async with open_house(make_library(home), SIZES[size]) as house:
        await house.type("bees autum")
        await house.press("escape")
        if SIZES[size][0] >= 100:
            await house.press("x")
        check_screen(f"search-{size}", house)
        await house.go("library")
        await house.press("enter", "down", "down", "enter")
        check_screen(f"library-{size}", house)
        await house.press("question_mark")
        check_screen(f"help-{size}", house)
        await house.press("escape")
        await house.go("quickstarts")
        check_screen(f"quickstarts-{size}", house)
        await house.go("rules")
        check_screen(f"rules-{size}", house)
        await house.go("tools")
        house.pane.line.value = "list_sources"
        await house.settle()
        await house.press("enter")
        check_screen(f"tools-{size}", house)


@pytest.mark.parametrize("size", SIZES)
async def test_panes_of_an_empty_file_say_what_belongs_there(home: Path, size: str) -> None:
    async with open_house(home / "library.localmcp", SIZES[size]) as house:
        check_screen(f"welcome-{size}", house)
        for pane in ("library", "quickstarts", "rules", "activity", "keys"):
            await house.go(pane)
            check_screen(f"empty-{pane}-{size}", house)
