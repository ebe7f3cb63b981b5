"""Passages embedded a second by the default model and by its fast form: same text, two threads, in turns; peak memory.

    python tests/benchmarks/ingest_speed.py [--passages 300] [--rounds 3] [--json FILE]

The text is the project's own prose and code, cut into passages of 150 words (about 200 tokens). Each round of each
model runs in a process of its own, so that peak memory is that model's. The fast form is made first when it is not
there (`localmcp models add fast`). A processor without VNNI instructions gains less.
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

from localmcp.config import Settings
from localmcp.workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("default", "fast")
WORDS = 150


def read_passages(count: int) -> list[str]:
    files = sorted([*ROOT.glob("sample_data/documents/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("localmcp/**/*.py")])
    words = [word for file in files for word in file.read_text(encoding="utf-8").split()]
    passages = [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]
    return passages[:count]


def embed_once(model: str, count: int) -> dict[str, float]:
    """Passages a second and peak memory of this process."""
    passages = read_passages(count)
    with Workspace(Settings(database=Path("unused.localmcp"), model=model, threads=2)) as workspace:
        embedder = workspace.embedder.get()
        embedder.embed_passages(passages[:4])
        start = time.perf_counter()
        embedder.embed_passages(passages)
        rate = len(passages) / (time.perf_counter() - start)
    return {"passages_per_s": rate, "peak_mb": peak_megabytes()}


def peak_megabytes() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Model -> medians over the rounds; `fast_over_default` is the median of the rounds' ratios."""
    runs: dict[str, list[dict[str, float]]] = {model: [] for model in MODELS}
    for _ in range(rounds):
        for model in MODELS:
            command = [sys.executable, __file__, "--child", model, "--passages", str(count)]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[model].append(json.loads(ran.stdout))
    found: dict[str, Any] = {
        model: {key: statistics.median(each[key] for each in runs[model]) for key in runs[model][0]} for model in MODELS
    }
    pairs = zip(runs["fast"], runs["default"], strict=True)
    found["fast_over_default"] = statistics.median(a["passages_per_s"] / b["passages_per_s"] for a, b in pairs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(embed_once(options.child, options.passages)))
        return
    subprocess.run([sys.executable, "-m", "localmcp", "models", "add", "fast"], check=True, capture_output=True)
    found = measure(options.passages, options.rounds)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
