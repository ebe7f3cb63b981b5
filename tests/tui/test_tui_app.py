"""The frame: the first run, other processes, a file that goes away, errors, the palette, colors, the start."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from command_line import POSIX, Terminal, spawn
from folders import write
from textual._xterm_parser import XTermParser
from tui_driver import RunningTui, fill, looks, make_library, open_tui, settings_of

from localmcp.cli.start import logging_to_file
from localmcp.config import Settings, load_settings
from localmcp.errors import ConfigurationError, FileUnavailable
from localmcp.library import jobs
from localmcp.tui.app import ERRORS_AT_ONCE, PANES, LocalMcpApp
from localmcp.tui.session import log_file
from localmcp.workspace import Workspace

ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- the first run


async def test_two_keys_lead_from_nothing_to_a_first_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "package" / "documents" / "boiler.md", "# Boiler\n\nE110: the siphon of the boiler is blocked.\n")
    monkeypatch.setattr("localmcp.tui.search.sample_directory", lambda: tmp_path / "package")
    async with open_tui(tmp_path / "library.localmcp") as tui:
        assert "Nothing is indexed yet" in tui.text()
        await tui.press("enter", "enter")
        await tui.until(lambda: tui.pane.hits, "a first passage")
        assert tui.pane.hits[0]["sourceTitle"] == "Boiler"
        assert tui.pane.hits[0]["collection"] == "samples"


async def test_an_assistant_is_connected_after_its_configuration_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    configuration = tmp_path / ".config" / "Claude" / "claude_desktop_config.json"
    write(configuration, '{"mcpServers": {"other": {"command": "x"}}}\n')
    async with open_tui(tmp_path / "library.localmcp") as tui:
        await tui.press("G", "enter")
        await tui.until(lambda: tui.app.screen.query("#field-0"), "the form")
        await tui.press("ctrl+r")
        await tui.until(lambda: "Connect an assistant?" in tui.text(), "the preview")
        # On the screen a long path is on two lines.
        assert "claude_desktop_config.json" in tui.app.screen._above.plain  # type: ignore[attr-defined]
        assert list(json.loads(configuration.read_text())["mcpServers"]) == ["other"]
        await tui.press("y")
        await tui.until(lambda: "localmcp" in json.loads(configuration.read_text())["mcpServers"], "the entry")
        # Its calls are logged, so that Activity can show them.
        assert "LOCALMCP_LOG_CALLS" not in json.loads(configuration.read_text())["mcpServers"]["localmcp"]["env"]


# ---------------------------------------------------------------- other processes


async def test_what_another_process_adds_appears_and_that_a_file_goes_away(tui: RunningTui, tmp_path: Path) -> None:
    await tui.type("zebra")
    before = len(tui.pane.hits)
    write(tmp_path / "new" / "zebra.md", "# Zebra\n\nA zebra has stripes.\n")
    with Workspace(settings_of(tmp_path)) as other:
        other.library.add_paths([tmp_path / "new"])
    await tui.until(lambda: tui.pane.hits and tui.pane.hits[0]["sourceTitle"] == "Zebra", "the new passage")
    assert len(tui.pane.hits) > before
    assert "6 documents" in tui.text()
    for part in list(tmp_path.glob("library.localmcp*")):
        part.rename(tmp_path / f"away-{part.name}")
    await tui.until(lambda: "no longer there" in tui.error(), "the message")
    for part in list(tmp_path.glob("away-*")):
        part.rename(tmp_path / part.name.removeprefix("away-"))
    await tui.until(lambda: not tui.error(), "the message to go")
    assert tui.pane.hits


async def test_a_file_that_another_process_makes_ends_the_first_run(tmp_path: Path) -> None:
    async with open_tui(tmp_path / "library.localmcp") as tui:
        assert "Nothing is indexed yet" in tui.text()
        fill(tmp_path)
        await tui.until(lambda: "Type to search" in tui.text())


async def test_the_file_is_still_watched_after_its_work_could_not_be_read_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_library(tmp_path)
    work_on, is_locked = jobs.work_on, True

    def fails_while_locked(connection: Any) -> Any:
        if is_locked:
            raise FileUnavailable("The file is locked.")
        return work_on(connection)

    monkeypatch.setattr(jobs, "work_on", fails_while_locked)
    async with open_tui(file) as tui:
        await tui.until(tui.error, "the error")
        is_locked = False
        with Workspace(settings_of(tmp_path)) as workspace:
            workspace.library.add_text("Zebras.", title="A zebra")
        await tui.until(lambda: "6 documents" in tui.text(), "the new document")
        assert tui.error() == ""


async def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    async with open_tui(file) as tui:
        await tui.type("queen")
        with Workspace(Settings(database=tmp_path / "other.localmcp", model="hash")) as other:
            other.library.add_text("A queen of another file.", "Another")
        for each in tmp_path.glob("library.localmcp*"):
            each.unlink()
        (tmp_path / "other.localmcp").replace(file)
        await tui.until(lambda: "Another" in tui.text(), "what the other file holds")
        assert [hit["sourceTitle"] for hit in tui.pane.hits] == ["Another"]


async def test_a_foreign_file_shows_that_it_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_library(tmp_path)
    monkeypatch.setenv("LOCALMCP_STATE_DIR", str(tmp_path / "another-machine"))
    async with open_tui(file) as tui:
        await tui.until(lambda: "read-only" in tui.text())
        await tui.type("queen")
        assert tui.pane.hits
        await tui.go("library")
        await tui.press("enter", "down", "down", "d", "y")
        await tui.until(lambda: "localmcp adopt" in tui.error())


async def test_the_file_pane_shows_and_runs_commands(tui: RunningTui, tmp_path: Path) -> None:
    await tui.go("file")
    await tui.until(lambda: "total sources  5" in tui.text(), "the size")
    await tui.press("slash")
    await tui.type("give a pack")
    await tui.press("enter", "enter")
    await tui.type(str(tmp_path / "gift.localmcp"))
    await tui.press("ctrl+r")
    await tui.until(lambda: "Wrote" in tui.text(), "the pack")
    assert (tmp_path / "gift.localmcp").exists()


# ---------------------------------------------------------------- errors


async def test_a_file_that_is_none_of_ours_is_told_in_one_line_with_details_on_demand(tmp_path: Path) -> None:
    write(tmp_path / "library.localmcp", "This is no database. " * 500)
    async with open_tui(tmp_path / "library.localmcp") as tui:
        await tui.until(lambda: "not a SQLite database" in tui.error())
        await tui.press("f2")
        text = "".join(part for part in tui.text() if part not in "\n│ ")  # A long path is on two lines.
        assert "tui.log" in text


async def test_settings_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    def opener() -> Workspace:
        raise ConfigurationError("threads = 'x' cannot be used.", hint="Set a number.")

    app = LocalMcpApp(opener, tmp_path / "a.localmcp")
    async with app.run_test(size=(120, 34)) as pilot:
        tui = RunningTui(app, pilot)
        await tui.until(lambda: "threads = 'x' cannot be used." in tui.error())
        await tui.press("escape", "5")
        assert "✗ not open" in tui.text()


async def test_an_unexpected_error_is_a_line_and_its_traceback_goes_to_the_log(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("something odd")

    file = make_library(tmp_path)
    with logging_to_file("warning"):
        async with open_tui(file) as tui:
            logging.getLogger("localmcp").warning("refused: Bearer sk-abcdefghijklmnop1234567890abcd \x1b[2J")
            tui.app.call_later(fail)
            await tui.until(lambda: "Unexpected ValueError: something odd" in tui.error())
            assert "Traceback" not in tui.text()
            tui.app.unexpected.clear()
            await tui.type("queen")
            assert tui.pane.hits
            goes_on = threading.Event()
            tui.pane.ask("archive", lambda: goes_on.wait(60), lambda _: None)
            await tui.until(lambda: "◌ working" in tui.text(), "the words of what takes long")
            goes_on.set()
            await tui.until(lambda: "● ready" in tui.text(), "the words to go")
    logged = log_file().read_text(encoding="utf-8")
    assert "Traceback" in logged and "refused" in logged and "sk-abc" not in logged and "\x1b" not in logged


async def test_errors_without_end_end_the_app_in_one_line(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("again and again")

    app = LocalMcpApp(lambda: Workspace(settings_of(tmp_path)), tmp_path / "library.localmcp")
    async with app.run_test() as pilot:
        for _ in range(ERRORS_AT_ONCE + 2):
            app.call_later(fail)
        for _ in looks():
            await pilot.pause(0.02)
            if app.return_code is not None:
                break
    assert app.return_code == 1


# ---------------------------------------------------------------- palette, colors, mouse


async def test_the_palette_finds_commands_also_those_of_the_panes(tui: RunningTui) -> None:
    await tui.press("ctrl+p")
    await tui.type("Go to Rules")
    await tui.until(lambda: "Key 4" in tui.text())
    await tui.press("enter")
    await tui.until(lambda: tui.app.pane.id == "rules")
    await tui.press("ctrl+p")
    await tui.type("mount")
    await tui.until(lambda: "Mount a pack" in tui.text(), "the command")
    await tui.press("enter")
    await tui.until(lambda: len(tui.app.screen_stack) > 1, "its form")
    await tui.press("escape")
    assert (tui.app.pane.id, tui.pane.chosen.key) == ("file", "Packs/Mount a pack")
    tui.app.action_change_theme()
    await tui.settle()
    await tui.type("terminal")
    await tui.until(lambda: "terminal" in tui.text())
    await tui.press("down", "enter")
    await tui.until(lambda: load_settings().theme == "terminal")
    assert tui.app.current_theme.ansi, "a theme is chosen and remembered"


async def test_keys_and_clicks_of_the_frame(tmp_path: Path) -> None:
    async with open_tui(make_library(tmp_path), (120, 45)) as tui:
        await tui.type("queen source:nowhere")
        assert tui.error()
        await tui.press("escape")
        assert not tui.error(), "escape dismisses an error"
        assert tui.app.focused is tui.pane.line
        tui.pane.type_query("bees")
        await tui.settle()
        second = tui.pane.hits[1]
        await tui.pilot.click("#list", offset=(10, 5))
        await tui.settle()
        assert tui.pane.hit is second and len(tui.app.screen_stack) == 1, "a click shows a passage"
        await tui.pilot.click("#list", offset=(10, 5))
        await tui.until(lambda: len(tui.app.screen_stack) == 2, "one more opens it")
        await tui.press("escape", "f1")
        assert "Type a question, words" in tui.text(), "the help is that of the pane in front"
        await tui.press("f1", "slash", "alt+4")
        assert tui.pane.id == "rules", "digits with alt turn the pane while typing"
        await tui.press("slash")
        assert tui.app.focused is tui.pane.line
        await tui.go("file")
        await tui.press("question_mark")
        assert "What is done to the file" in tui.text()


async def test_every_pane_fits_a_small_terminal(tmp_path: Path) -> None:
    async with open_tui(make_library(tmp_path), (60, 18)) as tui:
        for pane in [*list(PANES)[1:], "search"]:
            await tui.go(pane)
            lines = tui.text().splitlines()
            assert len(lines) == 18 and max(map(len, lines)) <= 60
            assert tui.error() == ""


def test_alt_and_a_digit_is_a_key_in_terminals_that_send_escape_first(tmp_path: Path) -> None:
    LocalMcpApp(lambda: Workspace(settings_of(tmp_path)), tmp_path / "library.localmcp")
    for digit in "1234567890":
        parser = XTermParser()
        events = [*parser.feed(f"\x1b{digit}"), *parser.feed("")]
        assert [getattr(event, "key", None) for event in events] == [f"alt+{digit}"]


# ---------------------------------------------------------------- the start


def test_drawing_the_first_pane_needs_no_heavy_library() -> None:
    code = "import sys, localmcp.cli.start, localmcp.tui.app; print(*{n.split('.')[0] for n in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(run.stdout.split())
    assert not imported & {"mcp", "onnxruntime", "numpy", "pydantic", "fastembed", "tokenizers"}
    assert "textual" in imported


def test_where_nothing_can_be_drawn_another_command_is_named() -> None:
    run = spawn("tui", cwd=ROOT)
    assert run.code == 3 and "needs a terminal" in run.err and "localmcp search" in run.err
    if os.name == "posix":
        terminal = Terminal("tui", cwd=ROOT, TERM="dumb")
        seen = terminal.end()
        assert "needs a terminal that can draw" in seen and "\x1b[?1049h" not in seen


@POSIX
@pytest.mark.parametrize("ends", ["by a key", "by a signal"])
def test_the_command_draws_in_a_terminal_and_leaves_it_clean(tmp_path: Path, ends: str) -> None:
    size = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    terminal = Terminal("--db", str(make_library(tmp_path)), "tui", cwd=ROOT, **size)
    terminal.read_until("7 File")
    if ends == "by a key":
        terminal.read_until("ready")
        os.write(terminal.ours, b"\x11")
    else:
        terminal.process.terminate()
    seen = terminal.end()
    assert terminal.process.returncode == 0
    assert "\x1b[?1004l" in seen and "Traceback" not in seen, "focus is no longer reported"
