"""Manifests, written for a test, and a workspace whose configuration directory holds them."""

from __future__ import annotations

from pathlib import Path

from localmcp.config import Settings, config_directory
from localmcp.workspace import Workspace


def write_tool(name: str, text: str) -> Path:
    """Write `tools/NAME.toml` into the configuration directory."""
    path = config_directory() / "tools" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def open_workspace(folder: Path) -> Workspace:
    """A workspace on a file in `folder`, with the model that is made of hashes."""
    return Workspace(Settings(database=folder / "library.localmcp", model="hash"))


def tool_names(workspace: Workspace) -> set[str]:
    """The tools that come from providers."""
    return {tool.name for tool in workspace.own_tools.tools()}


def problems_of(workspace: Workspace) -> list[str]:
    """What `localmcp tools check` would print."""
    return [str(problem) for problem in workspace.own_tools.problems(workspace.registry)]
