"""How fast quick starts are imported and searched: milliseconds at several sizes, and the memory it takes.

    python tests/benchmarks/quickstarts_speed.py [--sizes 10000 100000] [--catalogue FILE.jsonl] [--profile]

The quick starts are made up: titles of 3 to 9 words and descriptions of 8 to 25, drawn by Zipf's law from a vocabulary
of 30,000, every second one with tasks. `--catalogue` also times the import of a real file. Each size runs in a process
of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERBS = "Create Manage Configure Deploy Monitor Install Connect Secure Build Review".split()
QUERIES = 120


class Words:
    """Made-up words; the first are far more frequent than the last."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        syllables = [
            a + b for a in "b c d f g k l m n p r s t v st tr pl".split() for b in "a e i o u an er in".split()
        ]
        made = random.Random(1)
        self.all = list(dict.fromkeys("".join(made.choices(syllables, k=made.randint(2, 4))) for _ in range(40_000)))[
            :30_000
        ]
        self.weights = [1 / (rank + 3) for rank in range(len(self.all))]

    def some(self, least: int, most: int) -> list[str]:
        return self.random.choices(self.all, self.weights, k=self.random.randint(least, most))


def make_rows(count: int) -> Iterator[dict[str, Any]]:
    words = Words(2)
    for number in range(count):
        title = " ".join([words.random.choice(VERBS), *words.some(2, 8)])
        spec: dict[str, Any] = {"displayName": title, "description": " ".join(words.some(8, 25)).capitalize() + "."}
        if number % 2:
            spec["introduction"] = " ".join(words.some(30, 60))
            spec["tasks"] = [{"title": " ".join(words.some(3, 5)), "description": " ".join(words.some(20, 60))}] * 2
        yield {"name": f"made-up-{number}", "content": {"kind": "QuickStarts", "spec": spec}}


def make_queries(rows: list[tuple[str, str]]) -> dict[str, list[dict[str, str]]]:
    """Arguments of `searchQuickstarts`, by kind."""
    chance = random.Random(3)
    queries: dict[str, list[dict[str, str]]] = {}
    for _ in range(QUERIES):
        title, description = chance.choice(rows)
        words, phrase = title.split(), description.rstrip(".").split()
        start = chance.randrange(max(1, len(phrase) - 4))
        kinds = {
            "title": {"displayName": title},
            "two letters": {"displayName": words[-1][1:3]},
            "three letters": {"displayName": words[-1][1:4]},
            "one word": {"displayName": chance.choice(words[1:])},
            "typo": {"displayName": " ".join([*words[:-1], misspell(words[-1], chance)])},
            "question": {"displayName": f"How do I {words[0].lower()} a {words[1]} with {words[-1]}?"},
            "phrase": {"description": " ".join(phrase[start : start + 4])},
            "phrase, typo": {"description": " ".join([*phrase[start : start + 3], misspell(phrase[-1], chance)])},
            "both": {"displayName": " ".join(words[:3]), "description": " ".join(phrase[start : start + 3])},
            "nothing": {"displayName": "quarterly zebra yoghurt", "description": "quarterly zebra yoghurt"},
        }
        for kind, arguments in kinds.items():
            queries.setdefault(kind, []).append(arguments)
    return queries


def misspell(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, max(2, len(word) - 1))
    return word[:place] + chance.choice("aeiou") + word[place + 1 :]


def resident_mb() -> float:
    """Resident memory of this process; its peak where /proc does not exist."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return pages * resource.getpagesize() / 1e6


def measure(size: int, folder: Path, profile: bool) -> dict[str, dict[str, float]]:
    """Kind of query -> its p50 and p95 in milliseconds."""
    from localmcp.storage.database import fetch_all
    from localmcp.workspace import open_workspace

    catalogue = folder / "made-up.jsonl"
    catalogue.write_text("".join(json.dumps(row) + "\n" for row in make_rows(size)), encoding="utf-8")
    workspace = open_workspace(folder / "quickstarts.localmcp", model="hash")
    database, quickstarts = workspace.database, workspace.quickstarts
    start = time.perf_counter()
    quickstarts.import_quickstarts(str(catalogue))
    print(f"{size:,} quick starts: import {time.perf_counter() - start:.1f} s")
    with database.read() as connection:
        rows = fetch_all(connection, "select display_name, description from quickstarts order by random() limit 500")
    before, start = resident_mb(), time.perf_counter()
    quickstarts.search(displayName="anything")
    print(f"  first search {time.perf_counter() - start:.2f} s (reads all titles and descriptions into memory)")
    timings: dict[str, list[float]] = {}
    profiler = cProfile.Profile()
    for kind, queries in make_queries(rows).items():
        for arguments in queries:
            start = time.perf_counter()
            if profile:
                profiler.runcall(quickstarts.search, **arguments)
            else:
                quickstarts.search(**arguments)
            timings.setdefault(kind, []).append((time.perf_counter() - start) * 1000)
    timings["all"] = [each for values in timings.values() for each in values]
    found: dict[str, dict[str, float]] = {}
    for kind, values in timings.items():
        row = {"p50_ms": statistics.median(values), "p95_ms": sorted(values)[int(len(values) * 0.95)]}
        found[f"{size:,} quick starts, {kind}"] = row
        print(f"  {kind:14} p50 {row['p50_ms']:6.1f} ms   p95 {row['p95_ms']:6.1f} ms")
    print(f"  memory {resident_mb():.0f} MB, of which searching {resident_mb() - before:.0f} MB")
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
    return found


def measure_import(catalogue: Path, folder: Path) -> None:
    from localmcp.workspace import open_workspace

    workspace = open_workspace(folder / "real.localmcp", model="hash")
    with workspace.database.read():
        pass
    start = time.perf_counter()
    report = workspace.quickstarts.import_quickstarts(str(catalogue))
    print(f"{catalogue.name}: {report['added']} imported in {time.perf_counter() - start:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--catalogue", type=Path, help="a real file to import")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path, help="for one size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("LOCALMCP_STATE_DIR", name)
        if options.catalogue:
            measure_import(options.catalogue, Path(name))
        if len(options.sizes) == 1:
            found = measure(options.sizes[0], Path(name), options.profile)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
            return
    for size in options.sizes:
        profile = ["--profile"] if options.profile else []
        subprocess.run([sys.executable, __file__, "--sizes", str(size), *profile], check=True)


if __name__ == "__main__":
    main()
