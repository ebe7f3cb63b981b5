"""How long documents take until they are found by word, beside reading them and a plain FTS5 insert of the same text.

    python tests/benchmarks/words_speed.py [--files 10000] [--folder DIR] [--rounds 1] [--json FILE]

Without a folder, the files are Python's own library and the project's documents, each copy with some words of its own.
Both sides run by turns, in processes of their own. Memory is that of all processes together, asked twenty times a
second. The ratio is what counts; it is at most 6, with the first file after at most 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 200_000
"""Bytes of a file that is taken."""

WORDS = """
import json, sys, time
from pathlib import Path
from localmcp.config import Settings
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.library.ingest import Library
from localmcp.storage.database import Database

first = []
begin = time.perf_counter()
library = Library(Database(Path(sys.argv[1])), LazyEmbedder(lambda: open_embedder("hash")), Settings())
report = library.add_paths(
    [sys.argv[2]], wait=False, progress=lambda now: first or first.append(time.perf_counter() - begin)
)
seconds = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "first": first[0], "files": report.indexed, "chunks": report.chunks_added}))
"""
PLAIN = """
import json, sys, time
from pathlib import Path
import apsw

texts = [row[0] for row in apsw.Connection(sys.argv[1]).execute("select text from chunks")]
begin = time.perf_counter()
for path in Path(sys.argv[2]).rglob("*"):
    if path.is_file():
        path.read_bytes()
connection = apsw.Connection(sys.argv[3])
connection.pragma("journal_mode", "wal")
connection.execute("create virtual table texts using fts5 (text, tokenize = 'unicode61 remove_diacritics 2')")
with connection:
    connection.executemany("insert into texts values (?)", ((text,) for text in texts))
print(json.dumps({"seconds": time.perf_counter() - begin, "megabytes": sum(map(len, texts)) / 1e6}))
"""


def originals() -> list[str]:
    """Texts that the corpus is made of."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [*library.rglob("*.py"), *(ROOT / "sample_data").rglob("*.md"), *(ROOT / "localmcp").rglob("*.md")]
    sizes = ((path, path.stat().st_size) for path in sorted(paths) if "site-packages" not in path.parts)
    return [path.read_text("utf-8", "replace") for path, size in sizes if 500 < size < LARGEST]


def corpus(files: int) -> Iterator[tuple[str, str]]:
    """(name, text) of each file; every copy of a text has one word in twenty for itself."""
    texts = originals()
    for number in range(files):
        copy, place = divmod(number, len(texts))
        chance = random.Random(number)

        def own(match: re.Match[str], copy: int = copy, chance: random.Random = chance) -> str:
            return f"{match[0]}{copy}" if chance.random() < 0.05 else match[0]

        text = re.sub(r"[a-z]{6,}", own, texts[place]) if copy else texts[place]
        yield f"{copy:03}/{place:05}{'.py' if text.startswith(('import', 'from', '#!')) else '.txt'}", text


def run(code: str, *arguments: str) -> dict[str, Any]:
    """What a process prints, and the most memory that it and its children held."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        peak = max(peak, _held(watched))
        time.sleep(0.05)
    output, _ = process.communicate()
    if process.returncode:
        sys.exit("a run failed")
    return {**json.loads(output), "peak_mb": round(peak / 1e6)}


def _held(process: psutil.Process) -> int:
    total = 0
    try:
        for one in [process, *process.children(recursive=True)]:
            total += one.memory_info().rss
    except psutil.Error:
        pass
    return total


def main() -> None:
    """Measure and print; with --json also write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["LOCALMCP_STATE_DIR"] = str(place / "state")
        folder = options.folder or place / "corpus"
        if options.folder is None:
            for file, text in corpus(options.files):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text, encoding="utf-8")
        for number in range(options.rounds):
            database = str(place / f"{number}.localmcp")
            words = run(WORDS, database, str(folder))
            plain = run(PLAIN, database, str(folder), str(place / f"plain{number}.db"))
            rounds.append({"words": words, "plain": plain, "ratio": round(words["seconds"] / plain["seconds"], 2)})
            print(json.dumps(rounds[-1]), flush=True)
    result = {"ratio": statistics.median(one["ratio"] for one in rounds), "rounds": rounds}
    print(json.dumps({"ratio": result["ratio"]}))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
