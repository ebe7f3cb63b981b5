"""Calls of a fresh reader against a library of about 190 documents: what a model has to read, call by call.

    python tests/benchmarks/assistant_fresh.py PLACE build NPM_DOCS
    python tests/benchmarks/assistant_fresh.py PLACE 'search {"query": "..."}' 'get_context {"chunkId": "..."}'

The tasks and their answers are in `assistant_fresh.jsonl`; the reader knows `instructions` and `tools/list` only.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

SAMPLES = Path(__file__).parents[2] / "sample_data"
SERVER = """
import datetime, subprocess, zoneinfo
from mcp.server import MCPServer
server = MCPServer("{name}", instructions="{about}")
"""
TOOLS = {
    "time": (
        "Time of day in any city",
        '''
@server.tool()
def get_current_time(timezone: str) -> str:
    """Get the current time in a timezone (IANA name, as Europe/Lisbon)."""
    return datetime.datetime.now(zoneinfo.ZoneInfo(timezone)).isoformat(timespec="seconds")
''',
    ),
    "git": (
        "Read git repositories",
        '''
@server.tool()
def git_log(repo_path: str, max_count: int = 10) -> str:
    """Show the commit logs of a repository."""
    return subprocess.run(["git", "-C", repo_path, "log", f"-{max_count}"], capture_output=True, text=True).stdout
@server.tool()
def git_status(repo_path: str) -> str:
    """Show the working tree status."""
    return subprocess.run(["git", "-C", repo_path, "status"], capture_output=True, text=True).stdout
''',
    ),
}


def environment(place: Path) -> dict[str, str]:
    folders = {f"LOCALMCP_{name}_DIR": str(place / name.lower()) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    return {**os.environ, **folders, "LOCALMCP_DB": str(place / "reader.db"), "HOME": str(place)}


def write_library(place: Path, pages: Path) -> Path:
    library = place / "library"
    shutil.copytree(SAMPLES / "documents", library / "samples")
    for page in sorted(pages.rglob("*.md")):
        target = library / "npm" / page.relative_to(pages)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    (library / "packages").mkdir()
    for package in importlib.metadata.distributions():
        text = package.read_text("METADATA") or ""
        if len(text) > 3_000:
            (library / "packages" / f"{package.name}.md").write_text(text, encoding="utf-8")
    return library


def build(place: Path, pages: Path) -> None:
    fill(place, write_library(place, pages))


def fill(place: Path, library: Path) -> None:
    """Write the small servers, and put the library, quick starts, rules and servers into the reader's file."""
    for name, (about, tools) in TOOLS.items():
        (place / f"{name}_server.py").write_text(SERVER.format(name=name, about=about) + tools + "server.run()\n")
    steps = [
        ["add", library],
        ["quickstarts", "import", SAMPLES / "quickstarts"],
        ["rules", "import", SAMPLES / "rules"],
        *(["servers", "add", name, "--", sys.executable, place / f"{name}_server.py"] for name in TOOLS),
    ]
    for step in steps:
        command = [sys.executable, "-m", "localmcp", *map(str, step)]
        subprocess.run(command, env=environment(place), check=True, stdout=subprocess.DEVNULL)


async def run(place: Path, calls: list[str]) -> None:
    """Print what each call answers, and its characters: of the text blocks, then of the structured content."""
    here = environment(place)
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "localmcp", "serve"], env=here)
    async with Client(parameters) as client:
        if calls == ["guide"]:
            print(client.instructions)
            for tool in (await client.list_tools()).tools:
                print(f"\n## {tool.name}: {tool.description}\n{json.dumps(tool.input_schema)}")
        for call in calls if calls != ["guide"] else []:
            name, _, arguments = call.partition(" ")
            result: Any = await client.call_tool(name, json.loads(arguments or "{}"))
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            size = len(json.dumps(result.structured_content or {}, ensure_ascii=False))
            print(f">>> {call}\n{text}\n<<< {len(text)} characters, structured {size}, error {bool(result.is_error)}\n")


if __name__ == "__main__":
    here, first, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if first == "build":
        build(here, Path(rest[0]))
    else:
        anyio.run(run, here, [first, *rest])
