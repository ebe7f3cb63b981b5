"""Passages embedded a second by the default model as floats and as int8: same text, two threads, by turns; peak memory.

    python tests/benchmarks/ingest_speed.py [--passages 300] [--rounds 3] [--json FILE]

The text is the project's own prose and code, cut into passages of 150 words (about 200 tokens). Each round of each
arithmetic runs in a process of its own. A processor without VNNI instructions gains less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from localmcp.models.local_model import Arithmetic, DefaultEmbedder

ROOT = Path(__file__).resolve().parents[2]
ARITHMETICS: tuple[Arithmetic, ...] = ("float", "int8")
WORDS = 150


def read_passages(count: int) -> list[str]:
    files = sorted([*ROOT.glob("sample_data/documents/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("localmcp/**/*.py")])
    words = [word for file in files for word in file.read_text(encoding="utf-8").split()]
    passages = [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]
    return passages[:count]


def embed_once(arithmetic: Arithmetic, count: int) -> dict[str, float]:
    """Passages a second and peak memory of this process."""
    passages = read_passages(count)
    embedder = DefaultEmbedder(arithmetic=arithmetic)
    embedder.embed_passages(passages[:4])
    start, spent = time.perf_counter(), time.process_time()
    embedder.embed_passages(passages)
    seconds, processor = time.perf_counter() - start, time.process_time() - spent
    rates = {"passages_per_s": len(passages) / seconds, "passages_per_processor_s": len(passages) / processor}
    return {**rates, "peak_mb": peak_megabytes()}


def peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Arithmetic -> medians over the rounds; `int8_over_float` is the median of the rounds' ratios."""
    runs: dict[str, list[dict[str, float]]] = {arithmetic: [] for arithmetic in ARITHMETICS}
    for _ in range(rounds):
        for arithmetic in ARITHMETICS:
            command = [sys.executable, __file__, "--child", arithmetic, "--passages", str(count)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[arithmetic].append(json.loads(ran.stdout))
    medians: dict[str, Any] = {
        arithmetic: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for arithmetic, rows in runs.items()
    }
    pairs = zip(runs["int8"], runs["float"], strict=True)
    ratios = [a["passages_per_processor_s"] / b["passages_per_processor_s"] for a, b in pairs]
    return {**medians, "int8_over_float": statistics.median(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=ARITHMETICS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(embed_once(options.child, options.passages)))
        return
    measured = measure(options.passages, options.rounds)
    print(json.dumps(measured, indent=1))
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
