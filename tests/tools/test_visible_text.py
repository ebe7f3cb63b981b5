"""Untrusted text never commands a terminal, and ordinary text is not changed."""

from __future__ import annotations

import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.visible_text import VisibleFormatter, visible, visible_json

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # surrogates too
HOSTILE = st.text(st.sampled_from("\x1b]2;c[0mJH\x07\x00\r\n\t\x9b\x9d\x85\u202e\u2066\u2069\u2028\ud800\U000e0041 a"))
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def commands(text: str) -> list[str]:
    return [c for c in text if unicodedata.category(c) in {"Cc", "Cs"} or unicodedata.bidirectional(c) in BIDI]


@given(ANY_TEXT | HOSTILE)
def test_no_control_surrogate_or_override_is_left(text: str) -> None:
    shown = visible(text)
    assert commands(shown) == []
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(ANY_TEXT | HOSTILE)
def test_text_of_several_lines_keeps_line_feeds_and_tabs_only(text: str) -> None:
    shown = visible(text, newlines=True)
    assert set(commands(shown)) <= {"\n", "\t"}
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "Così è, se vi pare — 100 % ‘naïve’",
        "שלום עולם and مرحبا بالعالم",
        "日本語のテキスト",
        "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇮🇹",
        "🏴󠁧󠁢󠁷󠁬󠁳󠁿 flies",
        "می‌خواهم",
    ],
)
def test_ordinary_text_of_every_script_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]2;owned\x07", "␛]2;owned␇"),
        ("\x1b]52;c;aGk=\x1b\\", "␛]52;c;aGk=␛\\"),
        ("\x1b[2J", "␛[2J"),
        ("\x9b2J", "⟨U+009B⟩2J"),
        ("invoice\u202efdp.exe", "invoice⟨U+202E⟩fdp.exe"),
        ("a\nb\tc\x7f", "a␊b␉c␡"),
        ("hi\U000e0041", "hi⟨U+E0041⟩"),
    ],
)
def test_commands_become_signs(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_json_for_a_terminal_has_the_same_value() -> None:
    value = {"title": "\x9b2J\u202e\U000e0041", "lines": ["è", "👩‍👩‍👧‍👦"]}
    shown = visible_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(shown) == value
    assert set(commands(shown)) == {"\n"}


def test_a_log_record_is_one_line_and_a_traceback_keeps_its_lines() -> None:
    formatter = VisibleFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("localmcp", logging.WARNING, "", 0, "a\nERROR forged\x1b[2J", None, None)
    assert formatter.format(record) == "WARNING a␊ERROR forged␛[2J"
    try:
        raise ValueError("\x1b]2;owned\x07")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    lines = formatter.format(record).splitlines()
    assert lines[-1] == "ValueError: ␛]2;owned␇"
    assert len(lines) > 3
