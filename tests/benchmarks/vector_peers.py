"""The vector arm beside other engines on the same vectors: milliseconds, recall@10 beside it, memory, size, build.

    python tests/benchmarks/vector_peers.py --workdir DIR [--sizes 1000 10000 100000] [--peers DIR] [--json FILE]

Every engine runs in a process of its own, limited to one thread; each query is put to all of them in turn, so that a
busy moment slows all alike. The vectors are those of `search_speed.py`; truth is an exact scan by numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from peers.environments import Unavailable, python_of
from search_speed import SEED, ClusterEmbedder, Corpus, build

HERE = Path(__file__).parent
ENGINES = ["localmcp", "faiss", "sqlite-vec", "chromadb", "lancedb"]
QUERIES, ROUNDS, DEPTH = 200, 2, 10
SLOW_FROM = {"sqlite-vec": 300_000, "lancedb": 300_000, "chromadb": 200_000}
"""Rows from which an engine is left out: its build or its searches would take many minutes."""


class Engine:
    """A process that holds one index."""

    def __init__(self, name: str, python: Path, arguments: list[str]) -> None:
        one_thread = {f"{each}_NUM_THREADS": "1" for each in ("OMP", "OPENBLAS", "MKL", "RAYON")}
        paths = os.pathsep.join([str(HERE.parent.parent), str(HERE)])
        # A file: a pipe that nobody reads would stop an engine that says much.
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(python), str(HERE / "peers" / "engines.py"), name, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True,
            env={**os.environ, **one_thread, "PYTHONPATH": paths if name == "localmcp" else ""},
        )  # fmt: skip
        self.name = name
        self.times: list[float] = []
        self.found: list[list[int]] = []

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise Unavailable(f"{self.name} ended: {self.said.read()[-400:]}")
        return json.loads(line)

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def measure(size: int, workdir: Path, peers: Path | None) -> dict[str, Any]:
    """Engine -> its row for that many vectors; a peer that cannot run has the reason under "skipped"."""
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    build(workdir / f"speed-{size}.localmcp", size)
    arguments = write_vectors(size, workdir)
    rows: dict[str, Any] = {}
    engines: list[Engine] = []
    for name in ENGINES:
        try:
            engine = started(name, size, arguments, peers)
            rows[name] = engine.read()
            engines.append(engine)
        except Unavailable as error:
            rows[name] = {"skipped": str(error)}
    take_turns(engines)
    truth = exact_truth(Path(arguments[0]), Path(arguments[1]))
    for engine in engines:
        rows[engine.name] |= summary(engine, truth)
        engine.close()
    return rows


def started(name: str, size: int, arguments: list[str], peers: Path | None) -> Engine:
    if name == "localmcp":
        return Engine(name, Path(sys.executable), arguments)
    if size >= SLOW_FROM.get(name, 10**9):
        raise Unavailable(f"not run with {size:,} vectors: it takes too long")
    if peers is None:
        raise Unavailable("no folder of peers was named")
    return Engine(name, python_of("stores", peers), arguments)


def write_vectors(size: int, workdir: Path) -> list[str]:
    """The vectors as they stand in the file, in order, and the queries; arguments of `engines.py`."""
    from localmcp.storage.database import Database

    vectors_file, queries_file = workdir / f"vectors-{size}.npy", workdir / f"queries-{size}.npy"
    if not vectors_file.exists():
        vectors = np.lib.format.open_memmap(vectors_file, mode="w+", dtype=np.float32, shape=(size, 384))
        with Database(workdir / f"speed-{size}.localmcp", read_only=True).read() as connection:
            rows = connection.execute("select embedding from vectors order by id")
            for number, (blob,) in enumerate(rows):
                vectors[number] = np.frombuffer(blob, dtype=np.float32)
        vectors.flush()
    corpus = Corpus(SEED + 1)
    embedder = ClusterEmbedder(corpus)
    np.save(queries_file, np.stack([embedder.embed_query(text) for text in corpus.queries()["sentence"][:QUERIES]]))
    return [str(vectors_file), str(queries_file), str(workdir)]


def take_turns(engines: list[Engine]) -> None:
    for number in range(10):
        for engine in engines:
            engine.ask(query=number, k=DEPTH)
    for turn in range(ROUNDS):
        for number in range(QUERIES):
            for engine in engines:
                reply = engine.ask(query=number, k=DEPTH)
                engine.times.append(reply["ms"])
                if turn == 0:
                    engine.found.append(reply["ids"])


def exact_truth(vectors_file: Path, queries_file: Path) -> list[set[int]]:
    vectors, queries = np.load(vectors_file, mmap_mode="r"), np.load(queries_file)
    best = np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(vectors), 100_000):
        scores = queries @ vectors[start : start + 100_000].T
        top = np.argpartition(-scores, min(DEPTH, scores.shape[1] - 1), axis=1)[:, :DEPTH]
        best = np.hstack([best[0], np.take_along_axis(scores, top, 1)]), np.hstack([best[1], top + start])
    order = np.argsort(-best[0], axis=1)[:, :DEPTH]
    return [set(row) for row in np.take_along_axis(best[1], order, 1).tolist()]


def summary(engine: Engine, truth: list[set[int]]) -> dict[str, float]:
    shares = [len(set(ids) & true) / DEPTH for ids, true in zip(engine.found, truth, strict=True)]
    return {
        "p50_ms": statistics.median(engine.times),
        "p95_ms": statistics.quantiles(engine.times, n=20)[-1],
        "recall@10": statistics.mean(shares),
        **engine.ask(memory=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments, made when they are not there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {str(size): measure(size, options.workdir, options.peers) for size in options.sizes}
    for size, rows in results.items():
        print(f"\n{int(size):,} vectors")
        for name, row in rows.items():
            told = row.get("skipped") or "  ".join(f"{key} {value:,.3f}" for key, value in row.items())
            print(f"  {name:12} {told}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
