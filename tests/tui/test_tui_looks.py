"""Looks: every text of our themes can be read, with and without colors; wide signs displace nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import write
from screen_checks import low_contrast, misplaced_borders, segments
from tui_driver import make_library, open_tui


@pytest.mark.parametrize("name", ["localmcp", "localmcp-light"])
async def test_every_text_on_the_screen_can_be_read(tmp_path: Path, name: str) -> None:
    async with open_tui(make_library(tmp_path), theme=name) as tui:
        await tui.type("bees autumn")
        assert low_contrast(tui.app) == []
        await tui.press("escape", "x")
        assert low_contrast(tui.app) == []
        await tui.press("enter")
        assert low_contrast(tui.app) == []
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


async def test_wide_emoji_and_right_to_left_text_displace_no_border(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    write(tmp_path / "docs" / "wide.md", "# 家族 👨‍👩‍👧‍👦 🇮🇹 título\n\nThe okapi 🦓🦓 שלום עולם مرحبا 日本語 text.\n")
    async with open_tui(file, (100, 30)) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("okapi")
        await tui.press("escape")
        assert "okapi" in tui.text()
        assert misplaced_borders(tui.app, 100) == []
        await tui.press("enter")
        assert misplaced_borders(tui.app, 100) == []
