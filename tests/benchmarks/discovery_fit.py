"""Fits what tool search learned: the adapter of requests and the weights, to the sets of FITTED.

python tests/benchmarks/discovery_fit.py --adapter      write what people say for tools; --refit: fit the map too;
                                                        --model multilingual: for requests in other languages
python tests/benchmarks/discovery_fit.py --weights      print the weights, each request moved by an adapter that
                                                        was fitted without its server or, of LEFT_OUT, its catalog
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from discovery_quality import CACHE, FITTED, HERE, LONGEST_WAIT, described, read_queries, read_tools

from localmcp.config import packaged_data
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.models.default_model import DefaultEmbedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.catalog import ToolCatalog
from localmcp.tool_search.features import (
    FEATURES,
    MOST_WORDS,
    Features,
    request_vector,
    word_features,
)
from localmcp.tool_search.meaning import FILES, Adapter, ToolVectors, out_of_scope_margin, relate, shipped_adapter
from localmcp.tool_search.query import Query, clauses, take_apart, take_query_apart
from localmcp.tool_search.ranking import FIRST, SIGNS, signs_of

BY_WORDS = [FEATURES.index(name) for name in ("strength", "verb_not_in_name")]
TOOL_LIKE, WORDING_PENALTY = (0.4, 2.9), 2.0
"""Log odds between which the wording of a request passes from people's to that of tools."""
PART = 0.3
"""Share of the servers that a part of the catalogue keeps in fitting."""
LEFT_OUT = ("final", "public", "fourth", "fifth", "sixth")
WITHOUT, FOLDS = 8, 5
PENALTY, STAGE_PENALTY, ADAPTER_PENALTY, SMALL_STEP = 0.002, 0.01, 0.01, 0.002
ASSISTANT = "assistant"
"""Part of the requests in assistants' words, which count for the order of the tools and not for what is sure."""
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
    catalog: ToolCatalog
    vectors: ToolVectors
    queries: list[Query]
    words: Any
    """Word features (requests, tools, BY_WORDS)."""
    good: Any
    """Which tools serve which request: (requests, tools)."""
    folds: Any
    """A number for each request: 0 .. FOLDS - 1 by the server it asks for, or from FOLDS on that of its catalog."""

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
        {**row, "query": row["assistant"], "half": ASSISTANT, "assistant": True}
        for row in rows
        if row["tools"] and isinstance(row.get("assistant"), str)
    ]
    catalog = ToolCatalog([take_apart(described(tool)) for tool in tools])
    vectors = catalog.vectors(embedder.get(LONGEST_WAIT), TextVectors(CACHE), LONGEST_WAIT, insist=True)
    assert vectors is not None
    queries = [catalog.repair(take_query_apart(row["query"])) for row in rows]
    words = np.stack([word_features(query, catalog).rows[:, BY_WORDS] for query in queries])
    good = np.array([[tool["name"] in row["tools"] for tool in tools] for row in rows])
    servers = {tool["name"]: tool["server"] for tool in tools}
    asked = [servers[row["tools"][0]] if row["tools"] else row["query"] for row in rows]
    folds = np.array([zlib.crc32(server.encode()) % FOLDS for server in asked])
    if half in LEFT_OUT:
        folds[:] = FOLDS + LEFT_OUT.index(half)
    requests = np.stack(
        [request_vector(embedder.embed_queries([query.text, *clauses(query.text)])) for query in queries]
    )
    return Pairs(tools, rows, requests, catalog, vectors, queries, words, good, folds)


def fit_adapter(halves: Sequence[Pairs], without: int | None = None) -> tuple[Any, Any]:
    """Return A (dimension, RANK) and B (RANK, dimension) such that r + r A B is near the tool that r asks for.

    Softmax over the tools of its catalog, by Adam on the whole matrix, which is then cut to RANK.

    Args:
        without: a fold whose requests are left out.
    """
    import numpy as np

    random_numbers = np.random.default_rng(0)
    parts = [
        (pairs, pairs.targets(), pairs.words[..., 0] * np.float32(STRENGTH), places)
        for pairs in halves
        if len(places := np.flatnonzero(pairs.good.any(1) & (pairs.folds != without)))
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


def bank(halves: Sequence[Pairs], written: tuple[Any, Any], without: int | None = None) -> tuple[Any, Any]:
    """Sayings and the capabilities that they ask for: those that were written, and the requests of catalogs."""
    import numpy as np

    sayings, capabilities = [written[0]], [written[1]]
    for pairs in halves:
        plain = [not row.get("assistant") or isinstance(row["assistant"], str) for row in pairs.rows]
        chosen = np.flatnonzero(pairs.good.any(1) & (pairs.folds != without) & np.array(plain))
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
    return Adapter("", down, up, axes, sayings @ axes, capabilities @ axes, wording)


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


# ---------------------------------------------------------------- fitting


def fit_logistic(rows: Any, labels: Any, weights: Any, penalty: float) -> Any:
    """[bias, weights...] of a logistic regression on standardised columns, by Newton's method."""
    import numpy as np

    mean, spread = rows.mean(0), rows.std(0) + 1e-6
    columns = np.c_[np.ones(len(rows)), (rows - mean) / spread]
    penalised = np.r_[1e-6, np.ones(columns.shape[1] - 1)] * penalty * weights.sum()
    beta = np.zeros(columns.shape[1])
    for _ in range(40):
        share = 1 / (1 + np.exp(-np.clip(columns @ beta, -30, 30)))
        gradient = columns.T @ (weights * (share - labels)) + penalised * beta
        curve = (columns.T * (weights * share * (1 - share))) @ columns + np.diag(penalised)
        beta -= np.linalg.solve(curve, gradient)
    slopes = beta[1:] / spread
    return np.r_[beta[0] - (slopes * mean).sum(), slopes]


def fit_choice(parts: Sequence[Any], good: Sequence[Any], weights: Any, penalty: float) -> Any:
    """Weights of a conditional logit on standardised columns, by Newton's method: under them the good rows of each
    part are the likeliest choice among its rows."""
    import numpy as np

    spread = np.concatenate(parts).std(0) + 1e-6
    columns, shares = [part / spread for part in parts], [each / each.sum() for each in good]
    beta = np.zeros(len(spread))
    for _ in range(30):
        gradient, curve = penalty * beta, penalty * np.eye(len(beta))
        for part, share, weight in zip(columns, shares, weights / weights.sum(), strict=True):
            odds = np.exp(part @ beta - (part @ beta).max())
            chosen = odds / odds.sum()
            mean = chosen @ part
            gradient = gradient + weight * ((chosen - share) @ part)
            curve = curve + weight * ((part.T * chosen) @ part - np.outer(mean, mean))
        step = np.linalg.solve(curve, gradient)
        # From far away a whole step leads too far.
        beta = beta - step * min(1.0, 1.0 / float(np.abs(step).max()))
        if np.abs(step).max() < SMALL_STEP:
            break
    return beta / spread


@dataclass(frozen=True)
class Sample:
    """A request over some tools of a catalog."""

    features: Features
    good: Any
    """Which of the tools serve it."""
    worth: float
    half: str

    @property
    def served(self) -> bool:
        return bool(self.good.any())


def parts_of(pairs: Pairs) -> Iterable[tuple[Any, Any, float]]:
    """Masks of tools and of requests, and what they are worth in the fit: the whole catalog; a part as other people
    would have it, without whole servers; and without the very tools that some requests want, but with the like of
    them."""
    import numpy as np

    all_rows = np.ones(len(pairs.rows), bool)
    yield np.ones(len(pairs.tools), bool), all_rows, 1.0
    servers = sorted({tool["server"] for tool in pairs.tools})
    kept = set(random.Random(0).sample(servers, max(1, int(len(servers) * PART))))
    yield np.array([tool["server"] in kept for tool in pairs.tools]), all_rows, 0.35
    served = np.flatnonzero(pairs.good.any(1))
    np.random.default_rng(7).shuffle(served)
    for places in np.array_split(served, WITHOUT):
        rows = np.zeros(len(pairs.rows), bool)
        rows[places] = True
        yield ~pairs.good[places].any(0), rows, 0.5


def compare(pairs: Pairs, adapters: Sequence[Adapter]) -> Any:
    """Rows (requests, tools, FEATURES), each request under the adapter that was fitted without its server."""
    import numpy as np

    related = [relate(pairs.vectors, adapter) for adapter in adapters]
    rows: list[Any] = []
    for request, fold, words in zip(pairs.requests, pairs.folds, pairs.words, strict=True):
        vectors, adapter = related[fold], adapters[fold]
        freedom = adapter.freedom(request)
        moved = adapter.adapt(request, freedom)
        others = np.maximum.reduceat(vectors.others @ moved, vectors.begins)
        said = freedom * (vectors.sayings @ (request @ adapter.axes))
        hubness = (1 + freedom) / 2 * vectors.hubness
        asked = freedom * (vectors.on_axes @ adapter.capability_for(request))
        cosines = (vectors.first @ moved, others, vectors.named @ moved)
        rows.append(np.c_[*cosines, words[:, :1], said, asked, hubness, words[:, 1:]])
    return np.stack(rows)


def samples(halves: Mapping[str, Pairs], adapters: Sequence[Adapter]) -> Iterable[Sample]:
    """Every request over catalogs and parts of them."""
    import numpy as np

    for half, pairs in halves.items():
        vectors, rows = pairs.vectors, compare(pairs, adapters)
        general = vectors.requests @ pairs.requests.T
        to_tools = np.maximum.reduceat(vectors.requests @ vectors.others.T, vectors.begins, axis=1)
        to_tools = np.maximum.reduce([to_tools, vectors.requests @ vectors.first.T, vectors.requests @ vectors.named.T])
        for tools, chosen, worth in parts_of(pairs):
            requested = to_tools[:, tools].max(axis=1)
            for place in np.flatnonzero(chosen):
                margin = out_of_scope_margin(general[:, place], requested)
                words = min(len(pairs.queries[place].words), MOST_WORDS)
                of_tools = rows[place][tools].astype(np.float32)
                features = Features(of_tools, np.zeros(len(tools), bool), words, margin, with_model=True)
                yield Sample(features, pairs.good[place][tools], worth, pairs.rows[place].get("half", half))


def print_weights(embedder: LazyEmbedder) -> None:
    import numpy as np

    halves = {half: read_pairs(half, embedder) for half in FITTED}
    parts, written = list(halves.values()), read_sayings(embedder)
    wording = fit_wording(parts, written)
    folds = range(FOLDS + len(LEFT_OUT))
    adapters = [make_adapter(*fit_adapter(parts, fold), *bank(parts, written, fold), wording) for fold in folds]
    compared = list(samples(halves, adapters))
    useful = [sample for sample in compared if sample.served and sample.worth == 1.0]
    found = [sample for sample in compared if sample.half != ASSISTANT]
    served = np.array([sample.served for sample in found], float)
    worth = np.array([sample.worth for sample in found])
    for columns, last in ((list(range(len(FEATURES))), len(SIGNS)), (BY_WORDS, len(SIGNS) - 1)):
        order = np.zeros(len(FEATURES), np.float32)
        order[columns] = fit_choice(
            [sample.features.rows[:, columns].astype(float) for sample in useful],
            [sample.good for sample in useful],
            np.ones(len(useful)),
            PENALTY,
        )
        rows = [sample.features.rows @ order for sample in found]
        table = np.array([signs_of(row, sample.features) for row, sample in zip(rows, found, strict=True)])[:, 1:last]
        right = np.array(
            [
                bool(sample.good[np.argsort(-row, kind="stable")[:FIRST]].any())
                for row, sample in zip(rows, found, strict=True)
            ]
        )
        # What counts as sure must be right as well.
        balanced = worth * np.where(right, 0.5 / (worth @ right), 0.5 / (worth @ ~right)) * len(worth)
        signs = fit_logistic(table, right.astype(float), balanced, STAGE_PENALTY)
        odds = table @ signs[1:] + signs[0]
        print("order", [round(float(each), 2) for each in order], "signs", [round(float(each), 2) for each in signs])
        for half in (*FITTED, ""):
            whole = np.array(
                [worth == 1.0 and half in (sample.half, "") for sample, worth in zip(found, worth, strict=True)]
            )
            if not (whole & (served == 0)).any():
                continue
            no = np.sort(odds[(served == 0) & whole])[::-1]
            print(" ", half or "all", f"hit@5 {right[whole & (served > 0)].mean():.3f}")
            for share in (0.05, 0.1, 0.15, 0.5, 0.7, 0.8):
                least = no[int(share * len(no))]
                sure = (served > 0) & whole & (odds > least)
                answered = sure.sum() / (whole & (served > 0)).sum()
                print(
                    f"    at most {share:.0%} false: threshold {least:.2f}, {answered:.3f} of the others answered,"
                    f" {right[sure].mean():.3f} of them right"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--adapter", action="store_true")
    task.add_argument("--weights", action="store_true")
    parser.add_argument("--refit", action="store_true", help="with --adapter: fit the map of requests anew as well")
    parser.add_argument("--model", choices=FILES, default="default", help="with --adapter")
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
    if options.adapter:
        if options.model == "multilingual":
            embedder = LazyEmbedder(lambda: open_embedder("multilingual"))
        write_adapter(embedder, FILES[options.model], refit=options.refit)
    else:
        print_weights(embedder)


if __name__ == "__main__":
    main()
