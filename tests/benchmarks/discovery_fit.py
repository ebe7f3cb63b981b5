"""Writes the adapter of requests that tool search ships, fitted to the sets of FITTED.

python tests/benchmarks/discovery_fit.py [--refit] [--model multilingual]

It writes what people say for tools; `--refit` fits the map too; `--model multilingual` is for requests in other
languages.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from discovery_quality import CACHE, FITTED, HERE, LONGEST_WAIT, described, read_queries, read_tools

from localmcp.config import packaged_data
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.models.default_model import DefaultEmbedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.meaning import FILES, Adapter, ToolVectors, shipped_adapter
from localmcp.tool_search.ranking import ToolCatalog, request_vector
from localmcp.tool_search.words import clauses, take_apart

TOOL_LIKE, WORDING_PENALTY = (0.4, 2.9), 2.0
"""Log odds between which the wording of a request passes from people's to that of tools."""
ADAPTER_PENALTY = 0.01
RANK, AXES, EPOCHS, BATCH, LEARNING_RATE = 32, 160, 8, 128, 0.002
HIGHEST, HIGHEST_OF_PAIRS = 127, 15
"""Whole numbers that the matrices are kept in: more axes in coarser steps say more in the same bytes."""
TARGETS, STRENGTH = (7.8, 7.8, 3.3), 4.7
"""Weights of the cosines and of strength while the adapter is fitted."""


# ---------------------------------------------------------------- the adapter of requests


@dataclass
class Pairs:
    """Requests over the tools of one catalog, as vectors and words."""

    tools: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    requests: Any
    """Unit rows (requests, dimension)."""
    vectors: ToolVectors
    strength: Any
    """Of the words of each request in each tool: (requests, tools)."""
    good: Any
    """Which tools serve which request: (requests, tools)."""

    def targets(self) -> Any:
        """What a request should come near to: rows (tools, dimension), on the scale of the odds."""
        import numpy as np

        vectors = self.vectors
        sizes = np.diff(np.append(vectors.begins, len(vectors.others)))
        others = np.add.reduceat(vectors.others, vectors.begins, axis=0) / sizes[:, None]
        return (TARGETS[0] * vectors.first + TARGETS[1] * others + TARGETS[2] * vectors.named).astype(np.float32)


def read_pairs(half: str, embedder: LazyEmbedder) -> Pairs:
    import numpy as np

    tools, rows = read_tools(half), read_queries(half)
    rows += [
        {**row, "query": row["assistant"], "assistant": True}
        for row in rows
        if row["tools"] and isinstance(row.get("assistant"), str)
    ]
    catalog = ToolCatalog([take_apart(described(tool)) for tool in tools])
    vectors = catalog.vectors(embedder.get(LONGEST_WAIT), TextVectors(CACHE), LONGEST_WAIT, insist=True)
    assert vectors is not None
    queries = [catalog.read(row["query"]) for row in rows]
    strength = np.stack([catalog.compare_words(query)[:, 0] for query in queries])
    good = np.array([[tool["name"] in row["tools"] for tool in tools] for row in rows])
    requests = np.stack(
        [request_vector(embedder.embed_queries([query.text, *clauses(query.text)])) for query in queries]
    )
    return Pairs(tools, rows, requests, vectors, strength, good)


def fit_adapter(halves: Sequence[Pairs]) -> tuple[Any, Any]:
    """Return A (dimension, RANK) and B (RANK, dimension) such that r + r A B is near the tool that r asks for.

    Softmax over the tools of its catalog, by Adam on the whole matrix, which is then cut to RANK.
    """
    import numpy as np

    random_numbers = np.random.default_rng(0)
    parts = [
        (pairs, pairs.targets(), pairs.strength * np.float32(STRENGTH), places)
        for pairs in halves
        if len(places := np.flatnonzero(pairs.good.any(1)))
    ]
    dimension = halves[0].requests.shape[1]
    matrix, mean, square = (np.zeros((dimension, dimension), np.float32) for _ in range(3))
    steps, step = EPOCHS * sum(-(-len(places) // BATCH) for *_, places in parts), 0
    for _ in range(EPOCHS):
        batches = [
            (part, places)
            for part in parts
            for places in np.array_split(random_numbers.permutation(part[3]), -(-len(part[3]) // BATCH))
        ]
        random_numbers.shuffle(batches)
        for (pairs, targets, by_words, _), places in batches:
            step += 1
            request = pairs.requests[places]
            moved = request + request @ matrix
            length = np.linalg.norm(moved, axis=1, keepdims=True)
            moved /= length
            share = softmax(moved @ targets.T + by_words[places])
            served = share * pairs.good[places]
            excess = (share - served / np.maximum(served.sum(1, keepdims=True), 1e-12)) @ targets / BATCH
            back = (excess - (excess * moved).sum(1, keepdims=True) * moved) / length
            gradient = request.T @ back + ADAPTER_PENALTY * matrix
            mean, square = 0.9 * mean + 0.1 * gradient, 0.98 * square + 0.02 * gradient**2
            rate = LEARNING_RATE * (1 - step / steps)
            matrix -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.98**step)) + 1e-6)
    left, sizes, right = np.linalg.svd(matrix)
    root = np.sqrt(sizes[:RANK])
    return left[:, :RANK] * root, root[:, None] * right[:RANK]


def softmax(odds: Any) -> Any:
    import numpy as np

    shares = np.exp(odds - odds.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def read_sayings(embedder: LazyEmbedder) -> tuple[Any, Any]:
    """Rows of what people say and of what a tool for it is called, from `discovery_sayings.txt`."""
    lines = (HERE / "discovery_sayings.txt").read_text(encoding="utf-8").splitlines()
    pairs = [
        (saying, line.partition("|")[0])
        for line in lines if not line.startswith("#")
        for saying in line.partition("|")[2].split(";")
    ]  # fmt: skip
    kept, model = TextVectors(CACHE), embedder.get(LONGEST_WAIT)
    return kept.rows([saying for saying, _ in pairs], model), kept.rows([name for _, name in pairs], model)


def bank(halves: Sequence[Pairs], written: tuple[Any, Any]) -> tuple[Any, Any]:
    """Sayings and the capabilities that they ask for: those that were written, and the requests of catalogs."""
    import numpy as np

    sayings, capabilities = [written[0]], [written[1]]
    for pairs in halves:
        plain = [not row.get("assistant") or isinstance(row["assistant"], str) for row in pairs.rows]
        chosen = np.flatnonzero(pairs.good.any(1) & np.array(plain))
        tools = pairs.good[chosen].argmax(axis=1)
        sayings.append(pairs.requests[chosen])
        capabilities.append((pairs.vectors.first[tools] + pairs.vectors.named[tools]) / 2)
    return np.concatenate(sayings), np.concatenate(capabilities)


def fit_wording(halves: Sequence[Pairs], written: tuple[Any, Any]) -> Any:
    """(dimension + 1,): 1 and more for what people say, 0 and less for what tools are called, by odds of TOOL_LIKE."""
    import numpy as np

    sayings, _ = bank(halves, written)
    names = [pairs.vectors.named[pairs.good[pairs.good.any(1)].argmax(axis=1)] for pairs in halves]
    rows = np.concatenate([sayings, written[1], *names])
    rows, labels = np.c_[rows, np.ones(len(rows))], np.r_[np.zeros(len(sayings)), np.ones(len(rows) - len(sayings))]
    beta, ridge = np.zeros(rows.shape[1]), WORDING_PENALTY * np.eye(rows.shape[1])
    for _ in range(15):
        share = 1 / (1 + np.exp(-rows @ beta))
        curve = (rows.T * (share * (1 - share))) @ rows + ridge
        beta -= np.linalg.solve(curve, rows.T @ (share - labels) + ridge @ beta)
    least, most = TOOL_LIKE
    return (np.r_[np.zeros(len(beta) - 1), most] - beta) / (most - least)


def make_adapter(down: Any, up: Any, sayings: Any, capabilities: Any, wording: Any) -> Adapter:
    """Sayings and capabilities are kept by AXES main directions of both."""
    import numpy as np

    axes = np.linalg.svd(np.concatenate([sayings, capabilities]), full_matrices=False)[2][:AXES].T
    return Adapter(down, up, axes, sayings @ axes, capabilities @ axes, wording)


def write_adapter(embedder: LazyEmbedder, file: str, *, refit: bool) -> None:
    """Without `refit` the map of requests stays as it is shipped."""
    import numpy as np

    halves, written = [read_pairs(half, embedder) for half in FITTED], read_sayings(embedder)
    fingerprint = embedder.get(LONGEST_WAIT).identity.fingerprint
    shipped = None if refit else shipped_adapter(fingerprint)
    down, up = (shipped.down, shipped.up) if shipped else fit_adapter(halves)
    adapter = make_adapter(down, up, *bank(halves, written), fit_wording(halves, written))
    stored: dict[str, Any] = {"fingerprint": fingerprint}
    for name in ("down", "up", "axes", "sayings", "capabilities", "wording"):
        matrix = getattr(adapter, name)
        highest = HIGHEST_OF_PAIRS if name in ("sayings", "capabilities") else HIGHEST
        unit = float(np.abs(matrix).max()) / highest
        stored |= {name: np.rint(matrix / unit).astype(np.int8), f"{name}_unit": np.float32(unit)}
    np.savez_compressed(packaged_data() / file, **stored)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refit", action="store_true", help="fit the map of requests anew as well")
    parser.add_argument("--model", choices=FILES, default="default")
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
    if options.model == "multilingual":
        embedder = LazyEmbedder(lambda: open_embedder("multilingual"))
    write_adapter(embedder, FILES[options.model], refit=options.refit)


if __name__ == "__main__":
    main()
