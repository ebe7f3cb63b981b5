"""Text of documents, files, tools and clients cannot control the terminal, in any pane."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from folders import write
from tui_driver import RunningTui, commands_of_text, make_library, misplaced_borders, open_tui

from localmcp.activity import CallOrigin, call_origin
from localmcp.config import config_directory, state_directory
from localmcp.errors import LocalMCPError
from localmcp.tools import Scope
from localmcp.tui.app import PANES
from localmcp.tui.dialogs import FormScreen, completed_path

EVIL = "\x1b[31mred\x1b]8;;https://example.org\x07x \u202etxet [red]m[/red] [link='a']👩‍👩‍👧‍👦\x9b2J 家族 🇮🇹 שלום end"
"""Escape sequences, a link, reordering, markup, wide signs, Hebrew, and a control character of one byte."""
WIDTH = 120


def check(tui: RunningTui, what: str) -> None:
    assert commands_of_text(tui.app) == [], what
    assert misplaced_borders(tui.app, WIDTH) == [], what


async def test_hostile_text_is_drawn_as_signs_in_every_pane(tmp_path: Path) -> None:
    """In a file in which everything that has a text has that text."""
    file, folder = make_library(tmp_path), tmp_path / "docs" / "a\x1b[31mb [red] \u202ec"
    write(folder / "e\x1b[2Jvil 👩‍👩‍👧‍👦.md", f"# {EVIL}\n\n{EVIL} about zebras.\n\n## {EVIL}\n\nMore zebras.\n")
    write(tmp_path / "docs" / "x\x1b[0m.pdf", "%PDF-1.4 broken")
    entry = {"command": "no-such", "args": [EVIL], "description": EVIL}
    write(config_directory() / "mcp.json", json.dumps({"mcpServers": {f"shop {EVIL}": entry}}))
    write(state_directory() / "tui_searches.json", json.dumps({"saved": [EVIL], "recent": [EVIL]}))
    task = {"title": EVIL, "description": EVIL}
    spec = {"displayName": EVIL, "description": EVIL, "durationMinutes": 5, "introduction": EVIL, "tasks": [task]}
    guide = {"kind": "QuickStarts", "metadata": {"name": "evil"}, "spec": spec}

    def fail() -> None:
        raise LocalMCPError(EVIL, hint=EVIL)

    async with open_tui(file, (WIDTH, 34)) as tui:
        workspace = tui.app.session.workspace
        workspace.library.refresh()
        workspace.registry.call("addRule", {"rule_text": EVIL, "category": "style", "onDuplicate": "add"})
        workspace.registry.call("importQuickstarts", {"text": json.dumps(guide)})
        token = call_origin.set(CallOrigin(client=EVIL))
        workspace.registry.call("search", {"query": EVIL}, Scope(caller="stdio"))
        with pytest.raises(LocalMCPError):
            workspace.registry.call("get_context", {"chunkId": EVIL}, Scope(caller="stdio"))
        call_origin.reset(token)
        server = next(iter(workspace.mcp_servers.servers.values()))
        tool = {"name": "echo", "description": EVIL, "title": EVIL, "inputSchema": {"type": "object"}}
        server.learn({"tools": [tool]})
        server.learn({"tools": [{**tool, "description": f"{EVIL}{EVIL}"}]})
        await tui.settle()
        check(tui, "saved searches")
        await tui.type("zebras")
        await tui.until(lambda: tui.pane.hits, "the passages")
        await tui.press("escape", "x")
        check(tui, "search")
        await tui.press("enter")
        await tui.until(lambda: "zebras" in tui.text(), "the reader")
        check(tui, "reader")
        await tui.press("escape")
        for pane in PANES:
            await tui.go(pane)
            check(tui, pane)
            for keys in (["right", "down", "right", "down"], ["enter"]):
                await tui.press(*keys)
                check(tui, f"{pane} {keys}")
            while len(tui.app.screen_stack) > 1:
                await tui.press("escape")
        tui.app.tell_error(LocalMCPError(EVIL, hint=EVIL))
        tui.app.notify(EVIL, title=EVIL)
        await tui.settle()
        check(tui, "error and message")
        await tui.press("f2")
        check(tui, "details of an error")
        shown: list[LocalMCPError] = []
        tui.pane.ask("run", fail, fail, failed=shown.append)
        await tui.until(lambda: bool(shown), "the error")
        assert "\x1b" not in str(shown[0])


async def test_brackets_in_paths_and_in_choices_of_tools_are_no_markup(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    write(tmp_path / "docs" / "[red]" / "zebra.md", "# Zebra\n\nStripes.\n")
    async with open_tui(file) as tui:
        tui.app.session.workspace.library.refresh()
        await tui.type("zebra")
        await tui.until(lambda: "[red]/zebra.md" in tui.text(), "the path")
        schema: Any = {"type": "object", "properties": {"color": {"enum": ["[red]", "[/x]"], "default": "[red]"}}}
        tui.app.push_screen(FormScreen("A form", schema, lambda fields: fields))
        await tui.settle()
        assert "[red]" in tui.text()


def test_names_with_control_characters_are_not_proposed(tmp_path: Path) -> None:
    write(tmp_path / "a\x1b[2J.md", "x")
    write(tmp_path / "ab.md", "x")
    assert completed_path(f"{tmp_path}{os.sep}a") == f"{tmp_path}{os.sep}ab.md"
