"""Calls of a fresh reader against a library of about 190 documents: what a model has to read, call by call.

    python tests/benchmarks/assistant_fresh.py PLACE build NPM_DOCS
    python tests/benchmarks/assistant_fresh.py PLACE tasks
    python tests/benchmarks/assistant_fresh.py PLACE 'search {"query": "..."}' 'get_context {"chunkId": "..."}'

The tasks and their answers are in `assistant_fresh.jsonl`; the reader knows `instructions` and `tools/list` only.
`tasks` sends the calls that one reader made, and prints the characters of each task and the facts that are missing.
Beside them, where the words of `grep` find the facts: what `grep -rniE` prints, cut at 100 lines as assistants' tools
do, and 21 lines around each fact.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

SAMPLES = Path(__file__).parents[2] / "sample_data"
GREP_LINES, AROUND = 100, 10
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
    library = write_library(place, pages)
    write(place / "extra" / "piano.md", "# Piano\n\nHalvorsen tunes the piano each March; it costs 115 euro.\n")
    fill(place, library, "First subject", "Second subject")
    with open(library / "samples" / "travel" / "packing-list.md", "a", encoding="utf-8") as file:
        file.write("\n- spare bootlaces\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_repository(folder: Path, subjects: tuple[str, ...]) -> None:
    """Make a repository with these commits and a file that is in none."""
    who = ["-c", "user.name=reader", "-c", "user.email=reader@example.org"]
    subprocess.run(["git", "init", "-q", folder], check=True)
    for subject in subjects:
        subprocess.run(["git", "-C", folder, *who, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    write(folder / "draft.txt", "draft\n")


def fill(place: Path, library: Path, *subjects: str) -> None:
    """Write servers and a repository; put the library, quick starts, rules and servers into the reader's file."""
    write_repository(place / "repo", subjects)
    write(place / "config" / "config.toml", f"folders = [{json.dumps(str(place / 'extra'))}]\n")
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


def grep(library: Path, words: list[str], facts: list[str]) -> tuple[int, bool]:
    """Return the characters of grep for the words and of the lines around the facts, and whether all are found."""
    command = ["grep", "-rniE"]
    printed = [
        subprocess.run([*command, word, "."], cwd=library, capture_output=True, text=True).stdout.splitlines()
        for word in words
    ]
    shown = "\n".join("\n".join(lines[:GREP_LINES]) for lines in printed)
    parts: list[str] = []
    for fact in facts:
        if not any(fact in part for part in parts):
            parts.append(next((part for part in lines_around(library, shown) if fact in " ".join(part.split())), ""))
    return len(shown) + sum(map(len, parts)), "" not in parts


def lines_around(library: Path, shown: str) -> Iterator[str]:
    for name, number in re.findall(r"^\./(.+?):(\d+):", shown, re.MULTILINE):
        text = (library / name).read_text(encoding="utf-8").splitlines()
        yield "\n".join(text[max(0, int(number) - 1 - AROUND) : int(number) + AROUND])


async def run_tasks(place: Path, tasks: Path) -> None:
    """Send the calls of each task in one session, and print what they cost and the facts that no answer held."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "localmcp", "serve"], env=environment(place))
    total = calls = compared = dearer = 0
    async with Client(parameters) as client:
        for line in tasks.read_text(encoding="utf-8").splitlines():
            task, text = json.loads(line), ""
            for call in task["calls"]:
                name, _, arguments = call.replace("{place}", str(place)).partition(" ")
                result: Any = await client.call_tool(name, json.loads(arguments or "{}"))
                text += "\n".join(getattr(block, "text", "") for block in result.content)
            missing = [fact for fact in task.get("facts", ()) if fact not in " ".join(text.split())]
            total, calls = total + len(text), calls + len(task["calls"])
            theirs, is_there = grep(place / "library", task["grep"], task["facts"]) if "grep" in task else (0, False)
            compared, dearer = compared + is_there, dearer + (is_there and len(text) > theirs)
            beside = f", grep {theirs}" if is_there else ""
            lacks = f", missing: {missing}" if missing else ""
            print(f"{task['n']:3} {len(text):6} {len(task['calls'])} calls{beside}{lacks}")
    print(f"{total} characters, {calls} calls; {dearer} of {compared} dearer than grep")


if __name__ == "__main__":
    here, first, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if first == "build":
        build(here, Path(rest[0]))
    elif first == "tasks":
        anyio.run(run_tasks, here, Path(__file__).with_suffix(".jsonl"))
    else:
        anyio.run(run, here, [first, *rest])
