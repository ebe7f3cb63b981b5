"""What the tests of clients' configuration files share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import run

Run = Callable[..., tuple[int, Any]]


def run_command(capsys: pytest.CaptureFixture[str], group: str) -> Run:
    """What runs `localmcp GROUP ... --json`: the exit code, and the answer or the error."""

    def run_group(*words: str) -> tuple[int, Any]:
        code, out, err = run(capsys, "--json", group, *words)
        return code, json.loads(out or err)

    return run_group


def write(path: Path, value: Any) -> Path:
    """Write a text, or a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((value if isinstance(value, str) else json.dumps(value, indent=2)).encode())
    return path


CLIENTS = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".claude.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
    "windsurf": (".codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": (".config/zed/settings.json", "context_servers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
}
"""Client -> its file on Linux, and the table of the servers in it."""
