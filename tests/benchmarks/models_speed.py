"""How much longer a search takes with the model `multilingual`, which embeds a question twice, than with the default.

    python tests/benchmarks/models_speed.py --workdir DIR [--size 100000] [--rounds 5] [--json FILE]

Two files with the texts and questions of `search_speed.py`, made once: one has vectors of 384 numbers, one of 768,
whose halves lie in the same clusters. Each question is embedded by the real model for its time; what is searched for is
a further member of a random cluster, as texts of made-up words have no meaning. Questions are asked by turns, each once
of either file, so that a busy moment slows both alike. Printed are milliseconds, processor time included, and the
medians of the rounds' ratios, followed by those of each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import search_speed
from search_speed import SEED, ClusterEmbedder, Corpus, build

from localmcp.index.candidates import Mode, SearchRequest
from localmcp.index.index import Index
from localmcp.models import Embedder, LazyEmbedder, open_embedder
from localmcp.models.multilingual_model import HALF_LENGTH
from localmcp.storage.database import Database

MODELS = ("default", "multilingual")


class TwoHalves(Corpus):
    """A corpus whose vectors have a half by each model; the halves of one text lie in one cluster."""

    def vectors(self, count: int) -> Any:
        shares = self.random.random(count)
        first, random = self.members(shares), self.random
        # By other dice: the texts that follow stay those of the other file.
        self.random = np.random.default_rng((shares * 2**53).astype(np.int64))
        second, self.random = self.members(shares), random
        return np.concatenate([first, second], axis=1) * np.float32(HALF_LENGTH)


class BesideCluster:
    """A model that embeds every question, and then gives it the vector of `ClusterEmbedder`."""

    def __init__(self, model: Embedder, corpus: Corpus) -> None:
        self._model = model
        self._cluster = ClusterEmbedder(corpus)
        self.spent: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def embed_query(self, text: str) -> Any:
        start = time.perf_counter()
        self._model.embed_query(text)
        self.spent.append((time.perf_counter() - start) * 1000)
        return self._cluster.embed_query(text)


@dataclass(slots=True)
class Asked:
    """Milliseconds of the searches of one file."""

    wall: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])
    steps: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, index: Index, text: str, mode: Mode) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        outcome = index.search(SearchRequest(text, mode=mode))
        self.wall.append((time.perf_counter() - wall) * 1000)
        self.processor.append((time.process_time() - processor) * 1000)
        for step, milliseconds in outcome.milliseconds.items():
            self.steps.setdefault(step, []).append(milliseconds)

    def medians(self) -> dict[str, float]:
        steps = {step: statistics.median(times) for step, times in self.steps.items()}
        return {"p50": statistics.median(self.wall), "processor": statistics.fmean(self.processor), **steps}


def open_index(workdir: Path, size: int, model: str) -> Index:
    """Make the file of a model unless it is there, and open it with that model."""
    embedder = open_embedder(model)
    search_speed.ClusterEmbedder.identity = embedder.identity
    path = workdir / f"{model}-{size}.localmcp"
    made = TwoHalves if model == "multilingual" else Corpus
    build(path, size, made())
    lazy = LazyEmbedder(lambda: BesideCluster(embedder, made(SEED + 1)))
    return Index(Database(path), lazy)


def ask(indexes: Sequence[Index], questions: Sequence[str], mode: Mode) -> list[dict[str, float]]:
    """Ask every file every question by turns; what was embedded is forgotten first."""
    asked = [Asked() for _ in indexes]
    for index in indexes:
        index.embedder.forget_queries()
    for number, text in enumerate(questions):
        for place in (0, 1) if number % 2 else (1, 0):
            asked[place].add(indexes[place], text, mode)
    return [of_file.medians() for of_file in asked]


def measure(indexes: Sequence[Index], questions: Sequence[str], rounds: int, mode: Mode) -> dict[str, Any]:
    """Medians over the rounds, and those of the rounds' ratios."""
    ask(indexes, questions[:50], mode)
    rows = [ask(indexes, questions, mode) for _ in range(rounds)]
    result: dict[str, Any] = {
        model: {step: round(statistics.median(row[place][step] for row in rows), 2) for step in rows[0][place]}
        for place, model in enumerate(MODELS)
    }
    for measured in ("p50", "processor"):
        ratios = [second[measured] / first[measured] for first, second in rows]
        result[f"{measured}, times"] = [round(value, 3) for value in (statistics.median(ratios), *sorted(ratios))]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    indexes = [open_index(options.workdir, options.size, model) for model in MODELS]
    questions = Corpus(SEED + 1).queries()["sentence"]
    modes: tuple[Mode, ...] = ("hybrid", "semantic")
    result = {mode: measure(indexes, questions, options.rounds, mode) for mode in modes}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
