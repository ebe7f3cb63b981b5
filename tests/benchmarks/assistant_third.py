"""12 questions to the documents of a Debian system: what an assistant reads with `search`, and with grep.

    python tests/benchmarks/assistant_third.py PLACE build
    python tests/benchmarks/assistant_third.py PLACE tasks

The library is what /usr/share/doc of the machine holds: READMEs, news, lists of things to do, and the release notes
of Git 2; files of 1 to 15 kB. `search` is asked the question as it is; if the fact is not in the answer, `get_context`
reads around the first passage. Beside it, `grep -rn` with a word that somebody would look for, cut at 100 lines as
assistants' tools do, and 21 lines around the line of the fact. The questions in `assistant_third.jsonl`, their facts
and words were written from the documents, before any answer was read.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from assistant_fresh import environment, fill, grep, write
from mcp import Client, StdioServerParameters

DOCUMENTS = Path("/usr/share/doc")
NAMES = re.compile(r"README.*|NEWS\.Debian|TODO.*|FAQ.*|.*\.txt")


def write_library(library: Path) -> None:
    for page in sorted(DOCUMENTS.rglob("*")):
        name = page.name.removesuffix(".gz")
        if not page.is_file() or page.is_symlink() or not NAMES.fullmatch(name):
            continue
        text = (gzip.open(page) if page.suffix == ".gz" else page.open("rb")).read().decode("utf-8", "replace")
        if 1_000 < len(text) < 15_000 and ("RelNotes" not in str(page) or name.startswith("2.")):
            name += "" if name.endswith((".txt", ".md")) else ".txt"
            write(library / page.relative_to(DOCUMENTS).parent / name, text)


async def run_tasks(place: Path, tasks: Path) -> None:
    """Ask each question of `tasks`, and print what search and grep cost, and whether the fact is there."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "localmcp", "serve"], env=environment(place))
    totals, found, dearer = [0, 0], [0, 0], 0
    async with Client(parameters) as client:

        async def ask(tool: str, arguments: dict[str, Any]) -> str:
            result: Any = await client.call_tool(tool, arguments)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        for line in tasks.read_text(encoding="utf-8").splitlines():
            task = json.loads(line)
            text = await ask("search", {"query": task["question"]})
            asked = 1
            if task["fact"] not in " ".join(text.split()) and (first := re.search(r"id ([0-9a-f]{8})", text)):
                text, asked = text + await ask("get_context", {"chunkId": first[1]}), 2
            ours = len(text), task["fact"] in " ".join(text.split())
            theirs = grep(place / "library", [task["grep"]], [task["fact"]])
            for who, (characters, is_there) in enumerate((ours, theirs)):
                totals[who] += characters
                found[who] += is_there
            dearer += ours[0] > theirs[0] and theirs[1]
            places = f"{ours[0]:6} {asked} {ours[1]!s:5} grep {theirs[0]:6} {theirs[1]!s:5}"
            print(f"{task['n']:3} {places} {task['question']}")
    print(f"{totals[0]} characters, {found[0]} facts; grep {totals[1]}, {found[1]}; {dearer} dearer than grep")


def build_or_run(write_library: Callable[[Path], None], tasks: Path) -> None:
    """Do what the command line says: build the library in its folder, or run the tasks there."""
    here = Path(sys.argv[1])
    if sys.argv[2] == "build":
        shutil.rmtree(here, ignore_errors=True)
        write_library(here / "library")
        fill(here, here / "library", "The first file")
    else:
        anyio.run(run_tasks, here, tasks)


if __name__ == "__main__":
    build_or_run(write_library, Path(__file__).with_suffix(".jsonl"))
