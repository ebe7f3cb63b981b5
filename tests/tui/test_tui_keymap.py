"""The person's own keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual._xterm_parser import XTermParser
from tui_driver import make_library, open_tui

from localmcp.tui.keymap import keys_file, read_keymap, take_alt_digits


def written(text: str) -> tuple[dict[str, str], list[str]]:
    keys_file().parent.mkdir(parents=True, exist_ok=True)
    keys_file().write_text(text, encoding="utf-8")
    return read_keymap()


def test_without_a_file_nothing_is_changed() -> None:
    assert read_keymap() == ({}, [])


def test_ids_may_stand_in_quotes_or_in_tables_with_one_key_or_several() -> None:
    keymap, problems = written('"search.explain" = "f5"\n[library]\nadd = ["n", "f6"]\n')
    assert keymap == {"search.explain": "f5", "library.add": "n,f6"}
    assert problems == []


def test_a_mark_at_the_beginning_of_the_file_is_no_part_of_it() -> None:
    assert written('\ufeff"search.explain" = "f5"') == ({"search.explain": "f5"}, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"search.explian" = "f5"', "nothing is called 'search.explian'; did you mean 'search.explain'?"),
        ('"search.explain" = 5', "search.explain = 5 must be a key"),
        ("not toml", "keys.toml cannot be read"),
    ],
)
def test_a_mistake_is_named_and_left_out(text: str, said: str) -> None:
    _, problems = written(text)
    assert len(problems) == 1
    assert said in problems[0]


async def test_a_rebound_key_works_and_help_shows_it(tmp_path: Path) -> None:
    written('"search.explain" = "f5"')
    async with open_tui(make_library(tmp_path)) as tui:
        await tui.type("bees")
        await tui.press("escape", "f5")
        assert "Why this passage" in tui.text()
        await tui.press("question_mark")
        assert any(line.strip(" │").startswith("f5") and "Why" in line for line in tui.text().splitlines())


@pytest.mark.parametrize(("remapped", "key"), [("", "ctrl+q"), ('"app.quit" = "f10"', "f10")])
async def test_ctrl_c_says_which_key_quits(tmp_path: Path, remapped: str, key: str) -> None:
    written(remapped)
    async with open_tui(make_library(tmp_path)) as tui:
        await tui.go("library")
        await tui.press("ctrl+c")
        assert [message.message for message in tui.app._notifications] == [f"To quit, press {key}."]


async def test_mistakes_are_told_in_the_error_line(tmp_path: Path) -> None:
    written('"search.explian" = "f5"')
    async with open_tui(make_library(tmp_path)) as tui:
        assert "search.explian" in tui.error()


def test_alt_and_a_digit_is_a_key_in_terminals_that_send_escape_first() -> None:
    take_alt_digits()
    for digit in "1234567890":
        parser = XTermParser()
        events = [*parser.feed(f"\x1b{digit}"), *parser.feed("")]
        assert [getattr(event, "key", None) for event in events] == [f"alt+{digit}"]
