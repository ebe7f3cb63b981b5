"""How fast the retriever is: ten texts in one call against ten calls, and its vector arm against that of one text.

    python tests/benchmarks/retriever_speed.py --size 100000 --workdir /tmp/bench [--model default] [--milvus]

The file is the one of search_speed.py, made once in the work directory. `--model default` has every text embedded by
the model that ships with localmcp, so that a call costs what it costs (the vectors compared are still the synthetic
ones); without it embedding costs nothing. `--milvus` also copies the vectors into a Milvus Lite file and asks it.

Required: ten texts in one call take at most 0.9 of ten calls, and the vector arm at most 8 times that of one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from search_speed import SEED, ClusterEmbedder, Corpus, build, resident_megabytes

from localmcp.index.backend_choice import Places
from localmcp.index.collection_vectors import find_blocks
from localmcp.index.collections import choose_collections
from localmcp.index.filters import Filters
from localmcp.index.index import Index
from localmcp.index.multi_query import best_matches, nearest_to_any
from localmcp.index.vector import exact_cosines, nearest_chunks
from localmcp.models import LazyEmbedder
from localmcp.models.default_model import DefaultEmbedder
from localmcp.records.search import Retriever
from localmcp.storage.database import Database

TEXTS, ROUNDS, QUESTIONS = 10, 30, 1000


class CostlyEmbedder(ClusterEmbedder):
    """The vectors of `ClusterEmbedder`, at the price of the model that ships with localmcp."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__(corpus)
        self.model = DefaultEmbedder()

    def embed_query(self, text: str) -> Any:
        self.model.embed_query(text)
        return super().embed_query(text)

    def embed_passages(self, texts: Any) -> Any:
        self.model.embed_passages(texts)
        return np.stack([super(CostlyEmbedder, self).embed_query(text) for text in texts])


class FreeEmbedder(ClusterEmbedder):
    """Several at once."""

    def embed_passages(self, texts: Any) -> Any:
        return np.stack([self.embed_query(text) for text in texts])


def median(action: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Milliseconds."""
    spent: list[float] = []
    for number in range(rounds):
        start = time.perf_counter()
        action(number)
        spent.append((time.perf_counter() - start) * 1000)
    return statistics.median(spent)


def run(size: int, workdir: Path, costly: bool, milvus: bool) -> dict[str, Any]:
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    path = workdir / f"speed-{size}.localmcp"
    build(path, size)
    corpus = Corpus(SEED + 1)
    questions = [corpus.queries()["sentence"] for _ in range(QUESTIONS // 200)]
    texts = [f"{text} {number}" for number, text in enumerate(text for part in questions for text in part)]
    free = FreeEmbedder(corpus)
    for text in texts:
        free.embed_query(text)
    embedder = LazyEmbedder(lambda: _with_vectors(CostlyEmbedder(corpus), free) if costly else free)
    database = Database(path, read_only=True)
    index = Index(database, embedder)
    retriever = Retriever(database, index, embedder, Places(database, None))
    vectors = np.stack([free.embed_query(text) for text in texts])
    result: dict[str, Any] = {"size": size, **measure_calls(retriever, texts), **measure_arm(retriever, vectors)}
    result["rss_mb"] = resident_megabytes()
    if milvus:
        result |= measure_milvus(retriever, vectors, workdir)
    database.close()
    return result


def _with_vectors(costly: CostlyEmbedder, free: ClusterEmbedder) -> CostlyEmbedder:
    costly.vectors = free.vectors
    return costly


def measure_calls(retriever: Retriever, texts: Sequence[str]) -> dict[str, float]:
    """Whole calls, by turns, so that both meet the same noise; no text is asked twice, and nothing is cached."""
    groups = [list(texts[start : start + TEXTS]) for start in range(0, len(texts), TEXTS)]
    for group in groups[-10:]:
        retriever.retriever("default", group)
    together: list[float] = []
    alone: list[float] = []
    for first, second in zip(groups[0 : 2 * ROUNDS : 2], groups[1 : 2 * ROUNDS : 2], strict=True):
        together.append(median(lambda _, group=first: retriever.retriever("default", group), 1))
        alone.append(median(lambda _, group=second: [retriever.retriever("default", [text]) for text in group], 1))
    ten, calls = statistics.median(together), statistics.median(alone)
    again = median(lambda n: retriever.retriever("default", groups[2 * n]))
    return {"ten_in_one_ms": ten, "ten_calls_ms": calls, "of_ten_calls": ten / calls, "ten_again_ms": again}


def measure_arm(retriever: Retriever, vectors: Any) -> dict[str, float]:
    """The vector arm alone, and the share of the true ten (of ten texts together, and of one) that it finds."""
    with retriever.database.read() as connection:
        [collection] = choose_collections(connection, ["default"])
        model_id, blocks = collection.model_id or 0, find_blocks(connection, retriever.index, collection, Filters())
        ids = np.concatenate([block.ids for block in blocks])

        def one(number: int) -> list[tuple[int, float]]:
            return nearest_chunks(connection, model_id, blocks, vectors[number], 10)

        def ten(number: int) -> list[int]:
            queries = vectors[number * TEXTS : (number + 1) * TEXTS]
            return [each.chunk_id for each in nearest_to_any(connection, model_id, blocks, queries, 10)]

        def true_ten(queries: Any) -> set[int]:
            cosines = [exact_cosines(connection, model_id, ids, query) for query in queries]
            return {each.chunk_id for each in best_matches(cosines, 10)}

        for number in range(ROUNDS * TEXTS):
            one(number)
        turns = [(median(one, TEXTS), median(lambda _, n=n: ten(n), 1)) for n in range(ROUNDS)]
        single, together = (statistics.median(times) for times in zip(*turns, strict=True))
        rounds = 10
        recall_one = [len({i for i, _ in one(n)} & true_ten(vectors[n : n + 1])) / 10 for n in range(rounds * 3)]
        parts = [(n, vectors[n * TEXTS : (n + 1) * TEXTS]) for n in range(rounds)]
        recall_ten = [len({*ten(n)} & true_ten(part)) / 10 for n, part in parts]
    return {
        "arm_one_ms": single,
        "arm_ten_ms": together,
        "arm_ratio": together / single,
        "recall_one": statistics.mean(recall_one),
        "recall_ten": statistics.mean(recall_ten),
    }


def measure_milvus(retriever: Retriever, vectors: Any, workdir: Path) -> dict[str, float]:
    """The same questions to a Milvus Lite file with the same vectors, and whether the ten nearest (exact) agree."""
    import tempfile

    from localmcp.milvus.backend import MilvusBackend
    from localmcp.milvus.client import Server
    from tests.file_backend import FileBackend

    ours = FileBackend(retriever.database, retriever.index)
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        backend = MilvusBackend(Server(str(Path(folder) / "milvus.db"), timeout=120.0))
        space = ours.describe("default")
        backend.create("speed", space.dimension, space.model)
        start = time.perf_counter()
        for batch in ours.records("default", 1000):
            backend.upsert("speed", batch)
        pushed = time.perf_counter() - start
        ten = median(lambda n: backend.search("speed", vectors[n * TEXTS : (n + 1) * TEXTS], 10), 10)
        one = median(lambda n: backend.search("speed", vectors[n : n + 1], 10), 20)
        here = ours.search("default", vectors[:20], 10)
        there = backend.search("speed", vectors[:20], 10)
        backend.close()
    same = [{each.id for each in a} == {each.id for each in b} for a, b in zip(here, there, strict=True)]
    return {
        "milvus_push_per_s": space.count / pushed,
        "milvus_one_ms": one,
        "milvus_ten_ms": ten,
        "same_ten": statistics.mean(same),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="chunks; a multiple of 200")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--model", choices=["none", "default"], default="none")
    parser.add_argument("--milvus", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = run(given.size, given.workdir, given.model == "default", given.milvus)
    for name, value in result.items():
        print(f"{name:>18}  {value:,.3f}" if isinstance(value, float) else f"{name:>18}  {value:,}")
    if given.json:
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
