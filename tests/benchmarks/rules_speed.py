"""How fast rules are found among many: milliseconds of a search, the embedding of the task aside.

    python tests/benchmarks/rules_speed.py [--sizes 10000 100000]

The rules are made up of the sample rules' words; their vectors are those of the sample rules with noise, so that every
search meets many near ones. Tasks are those of `sample_data/rules/tasks.jsonl`, embedded before the clock starts, with
their clauses. Each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from localmcp.config import Settings, sample_directory
from localmcp.rules import rulebook
from localmcp.rules.rulebook import CATEGORIES, RuleDraft
from localmcp.workspace import Workspace

IN_ONE_TRANSACTION = 2000


def make_rules(workspace: Workspace, count: int) -> None:
    import numpy as np

    chance, noise = random.Random(4), np.random.default_rng(4)
    lines = (sample_directory() / "rules" / "team-rules.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["rule_text"] for line in lines]
    base = workspace.embedder.get().embed_passages(texts)
    vocabulary = [word for text in texts for word in text.split()]
    made = [f"made{number}" for number in range(5000)]
    for start in range(0, count, IN_ONE_TRANSACTION):
        size = min(IN_ONE_TRANSACTION, count - start)
        near = base[noise.integers(len(base), size=size)] + noise.normal(0, 0.05, (size, base.shape[1]))
        vectors = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype("<f4")
        # Their vectors are made up as well.
        workspace.rules.embed_missing_or_say = lambda: ""
        rules = workspace.rules.store([make_draft(chance, vocabulary, made) for _ in range(size)])
        with workspace.database.write() as connection:
            ready = {rule.id: vector.tobytes() for rule, vector in zip(rules, vectors, strict=True)}
            rulebook.store_vectors(connection, workspace.embedder.get().identity, ready)


def make_draft(chance: random.Random, vocabulary: list[str], made: list[str]) -> RuleDraft:
    words = [*chance.choices(vocabulary, k=8), *chance.choices(made, k=4)]
    chance.shuffle(words)
    globs = ("src/**/*.py",) if chance.random() < 0.1 else ()
    return RuleDraft(" ".join(words), chance.choice(list(CATEGORIES)), "made up", globs=globs)


def measure(size: int) -> dict[str, dict[str, float]]:
    """Kind of search -> its p50 and p95 in milliseconds."""
    found: dict[str, dict[str, float]] = {}
    tasks = (sample_directory() / "rules" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["task"] for line in tasks]
    with tempfile.TemporaryDirectory() as name, Workspace(Settings(database=Path(name) / "r.localmcp")) as workspace:
        start = time.perf_counter()
        make_rules(workspace, size)
        print(f"{size:,} rules written in {time.perf_counter() - start:.1f} s (vectors were there)")
        search = workspace.rule_finder.get_relevant_rules
        kinds: dict[str, dict[str, Any]] = {
            "plain": {},
            "category": {"category": "testing"},
            "files": {"files": ["src/shop/cart.py"]},
        }
        for text in texts:
            search(text)
        misses = workspace.embedder.misses
        for kind, filters in kinds.items():
            times = [timed(search, text, filters) for text in texts]
            row = {"p50_ms": statistics.median(times), "p95_ms": sorted(times)[int(len(times) * 0.95)]}
            found[f"{size:,} rules, {kind}"] = row
            print(f"  {kind:9} p50 {row['p50_ms']:5.1f} ms   p95 {row['p95_ms']:5.1f} ms")
        assert workspace.embedder.misses == misses, "a repeated task was embedded again"
    return found


def timed(search: Any, text: str, filters: dict[str, Any]) -> float:
    start = time.perf_counter()
    search(text, **filters)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--json", type=Path, help="for one size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("LOCALMCP_STATE_DIR", name)
        if len(options.sizes) == 1:
            found = measure(options.sizes[0])
            if options.json:
                options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
            return
    for size in options.sizes:
        subprocess.run([sys.executable, __file__, "--sizes", str(size)], check=True)


if __name__ == "__main__":
    main()
