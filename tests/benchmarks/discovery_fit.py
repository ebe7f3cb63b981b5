"""Fits what tool search weighs by: prints the order's and the certainty's weights, and adds sayings to the adapter.

python tests/benchmarks/discovery_fit.py --metatool FOLDER [--sayings FILE]

The order is fitted to `sixth` and to requests of MetaTool, the certainty also to what no tool serves in the sets of
UNSERVED and to requests whose very tools are left out. `--sayings` writes the shipped adapter with six requests to each
of MetaTool's tools more; the map of the adapter and its other sayings stay as they are. Neither asks a request that
`discovery_quality.py --metatool` judges by.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from discovery_quality import CACHE, LONGEST_WAIT, described, read_queries, read_tools

from localmcp.config import packaged_data
from localmcp.models import LazyEmbedder
from localmcp.models.embedder import TextVectors
from localmcp.models.local_model import DefaultEmbedder
from localmcp.tool_search.ranking import FILES, WITH_MODEL, ToolFinder
from localmcp.tool_search.words import parts_of

UNSERVED = ("unseen", "final", "public", "fourth", "fifth", "sixth")
OF_EACH_TOOL, JUDGED_BY = 6, 20
"""Requests that become sayings, and which of MetaTool's judge: each so many-th."""
STEPS, LEARNING_RATE, RIDGE = 150, 0.15, 0.02


@dataclass
class Example:
    """One request over a catalog."""

    rows: Any
    """What speaks for each tool: (tools, columns of `Weights.order`)."""
    good: Any
    """Which tools serve: (tools,)."""
    words: int


def examples_of(finder: ToolFinder, tools: list[dict[str, Any]], rows: Iterable[dict[str, Any]]) -> list[Example]:
    catalog = [described(tool) for tool in tools]
    names = [tool["name"] for tool in tools]
    finder.find("begin", catalog, patience=LONGEST_WAIT)
    found: list[Example] = []
    for row in rows:
        rows_of_texts, words, _ = finder.evidence([row["query"], *parts_of(row["query"])], catalog, LONGEST_WAIT)
        found.append(Example(rows_of_texts[0], np.isin(names, row["tools"]), words))
    return found


def fit_order(examples: list[Example]) -> Any:
    """Weights of a softmax over the tools, those that serve together being right, by Adam."""
    served = [example for example in examples if example.good.any()]
    weights = np.array(WITH_MODEL.order)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        gradient = np.zeros_like(weights)
        for example in served:
            share = softmax(example.rows @ weights)
            wanted = np.where(example.good, share, 0)
            gradient += example.rows.T @ (share - wanted / max(wanted.sum(), 1e-12)) / len(served)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        unbiased = mean / (1 - 0.9**step), square / (1 - 0.99**step)
        weights -= LEARNING_RATE * (1 - step / STEPS) * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-9)
    return weights


def softmax(odds: Any) -> Any:
    shares = np.exp(odds - odds.max())
    return shares / shares.sum()


def fit_certainty(examples: list[Example], order: Any) -> Any:
    """Weights of a logistic regression on the signals of `any_fits`; right: a tool that serves is among five."""
    signs: list[Any] = []
    labels: list[bool] = []
    shares: list[float] = []
    for example in examples:
        cases = [(example.rows, example.good, 1.0 if not example.good.any() else 0.5)]
        if example.good.any():
            # The same request where the tools that serve it are not connected.
            cases.append((example.rows[~example.good], np.zeros(int((~example.good).sum()), bool), 0.15))
        for rows, good, share in cases:
            relevances = rows @ order
            best = int(relevances.argmax())
            first = np.argsort(-relevances, kind="stable")[:6]
            lead = relevances[best] - relevances[first[-1]]
            signs.append((1.0, relevances[best], lead, rows[best, -1], min(example.words, 15)))
            labels.append(bool(good[first[:5]].any()))
            shares.append(share)
    matrix: Any = np.array(signs)
    right, share = np.array(labels, float), np.array(shares)
    penalty = RIDGE * len(right) * np.diag([0, *matrix[:, 1:].var(axis=0)])
    weights = np.zeros(matrix.shape[1])
    for _ in range(30):
        probable = 1 / (1 + np.exp(-matrix @ weights))
        curve = (matrix.T * (share * probable * (1 - probable))) @ matrix + penalty
        weights -= np.linalg.solve(curve, matrix.T @ (share * (probable - right)) + penalty @ weights)
    return weights


def write_sayings(
    tools: list[dict[str, Any]], requests: list[dict[str, Any]], embedder: LazyEmbedder, to: Path
) -> None:
    """Add pairs of a request and what its tool is called to the shipped adapter, by its own axes and units."""
    chosen = [
        row for tool in tools for row in [each for each in requests if each["tools"] == [tool["name"]]][:OF_EACH_TOOL]
    ]
    model, kept = embedder.get(LONGEST_WAIT), TextVectors(CACHE)
    texts = {tool["name"]: described(tool) for tool in tools}
    called = [texts[row["tools"][0]] for row in chosen]
    first, named = (kept.rows(part, model) for part in ([text.texts[0] for text in called], [t.named for t in called]))
    with np.load(packaged_data() / FILES[0], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    axes = arrays["axes"].astype(np.float32) * arrays["axes_unit"]
    for name, rows in (
        ("sayings", kept.rows([row["query"] for row in chosen], model)),
        ("capabilities", (first + named) / 2),
    ):
        whole = np.clip(np.rint(rows @ axes / arrays[f"{name}_unit"]), -15, 15).astype(np.int8)
        arrays[name] = np.concatenate([arrays[name], whole])
    np.savez_compressed(to, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metatool", type=Path, required=True)
    parser.add_argument("--sayings", type=Path)
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
    finder = ToolFinder(embedder, CACHE)
    tools = json.loads((options.metatool / "tools.json").read_text(encoding="utf-8"))
    lines = (options.metatool / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for number, line in enumerate(lines) if number % JUDGED_BY]
    requests = [{"query": row["query"], "tools": [row["tool"]]} for row in rows]
    if options.sayings:
        write_sayings(tools, requests, embedder, options.sayings)
        return
    served = examples_of(finder, tools, requests[::40]) + examples_of(
        finder, read_tools("sixth"), read_queries("sixth")
    )
    order = fit_order(served)
    print("order", np.round(order, 2).tolist(), flush=True)
    for half in UNSERVED:
        rows = [row for row in read_queries(half) if not row["tools"]]
        served += examples_of(finder, read_tools(half), rows) if half != "sixth" else []
    print("right", np.round(fit_certainty(served, order), 2).tolist())


if __name__ == "__main__":
    main()
