"""What the tests of MCP servers share: servers that misbehave on demand, and looking for the processes they leave."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localmcp.config import cache_directory, servers_file, state_directory
from localmcp.hub.servers import McpServers
from localmcp.tools import Registry

SERVERS = Path(__file__).parent / "servers"
PATIENCE = 60.0
"""Seconds after which a test gives up waiting for what must come; nothing waits this long when all is well."""


class Farm:
    """The user's `mcp.json`, a folder for what its servers leave behind, and everything opened from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache, self.logs = cache_directory() / "mcp", state_directory() / "logs"
        self._opened: list[McpServers] = []

    def plain(self, name: str, *options: str, **more: Any) -> dict[str, Any]:
        """An entry for `servers/plain.py`, whose traces go to a folder of its own."""
        (self.folder / name).mkdir(exist_ok=True)
        env = {"PLAIN_FOLDER": str(self.folder / name), **more.pop("env", {})}
        return {"command": sys.executable, "args": [str(SERVERS / "plain.py"), *options], "env": env, **more}

    def write(self, **entries: Any) -> None:
        """Make these the user's servers."""
        path = servers_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        beside.replace(path)

    def open(self) -> tuple[Registry, McpServers]:
        """As a process of its own would: nothing started, with the caches of this test."""
        registry = Registry()
        servers = McpServers(self.cache, self.logs, registry)
        self._opened.append(servers)
        return registry, servers

    def pids(self, name: str) -> list[int]:
        """Every process that this plain server has started, itself among them, in order."""
        file = self.folder / name / "started"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def open_gate(self, name: str, gate: str = "open") -> None:
        """Let a server go on that waits for this file."""
        (self.folder / name / gate).touch()

    def close(self) -> None:
        for each in self._opened:
            each.close()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not yet collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not stat.parent.parent.joinpath("self").exists()


def wait_until(true: Callable[[], bool]) -> bool:
    """Whether it becomes true before patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
