"""How long a search over stdio takes while documents are added: idle, during words, during meaning.

    python tests/benchmarks/busy_search.py [--files 600] [--searches 150] [--json FILE]

A server has a file with a few documents open. Another process adds files to it: first their words, then, in front,
their vectors; at last the server makes vectors behind the searches. One client asks every 100 ms and waits for each
answer. The ratio of p95 to that of the idle server is what counts; it is at most 3.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve_speed import Server
from words_speed import corpus

BEFORE = 12
"""Documents in the file before anything is measured."""
PAUSE_SECONDS = 0.1
QUERIES = (
    "how to open a file safely",
    "parse command line arguments",
    "thread that waits for an event",
    "what does the socket server do with a request",
    "decimal rounding",
)


def write_corpus(folder: Path, first: int, count: int) -> None:
    """Write files `first` to `first + count` of the corpus."""
    for number, (name, text) in enumerate(corpus(first + count)):
        if number >= first:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def command(database: Path, *words: str) -> list[str]:
    """Return a command on that file."""
    return [sys.executable, "-m", "localmcp", "--db", str(database), *words]


def measure(server: Server, goes_on: Callable[[], bool], most: int) -> dict[str, Any]:
    """Search while `goes_on`, at most so many times; p50 and p95 in milliseconds."""
    took: list[float] = []
    while len(took) < most and goes_on():
        query = f"{QUERIES[len(took) % len(QUERIES)]} {len(took)}"
        start = time.perf_counter()
        server.request("tools/call", {"name": "search", "arguments": {"query": query}})
        took.append(1000 * (time.perf_counter() - start))
        time.sleep(PAUSE_SECONDS)
    if len(took) < 20:
        return {"searches": len(took)}
    p95 = statistics.quantiles(took, n=20)[-1]
    return {"searches": len(took), "p50": round(statistics.median(took), 1), "p95": round(p95, 1)}


def measure_beside(server: Server, words: list[str], most: int) -> dict[str, Any]:
    """Search while a command runs."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return measure(server, lambda: process.poll() is None, most)
    finally:
        process.terminate()
        process.wait()


def run(place: Path, files: int, searches: int) -> dict[str, Any]:
    """Measure every phase in one run."""
    database, before, added = place / "busy.localmcp", place / "before", place / "added"
    write_corpus(before, 0, BEFORE)
    write_corpus(added, BEFORE, files)
    subprocess.run(command(database, "add", str(before)), check=True, capture_output=True)
    server = Server(database)
    for _ in range(2):
        measure(server, lambda: True, len(QUERIES))
    result = {"idle": measure(server, lambda: True, searches)}
    result["words"] = measure_beside(server, command(database, "add", "--no-wait", str(added)), searches)
    result["meaning in front"] = measure_beside(server, command(database, "refresh"), searches)
    time.sleep(5)
    result["meaning behind"] = measure(server, lambda: True, searches)
    server.close()
    for phase in result.values():
        if "p95" in phase:
            phase["ratio"] = round(phase["p95"] / result["idle"]["p95"], 2)
    return result


def main() -> None:
    """Measure and print; with --json also write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=600)
    parser.add_argument("--searches", type=int, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["LOCALMCP_STATE_DIR"] = str(Path(name) / "state")
        result = run(Path(name), options.files, options.searches)
    for phase, figures in result.items():
        print(f"{phase:18}", json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
