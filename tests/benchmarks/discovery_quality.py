"""How well plain-language queries find tools: hit@1, hit@5, sure and false answers, and what it costs in bytes.

    python tests/benchmarks/discovery_quality.py [--half dev|held|blind|fresh|late|unseen|final|public] [--peer PYTHON]
        [--misses] [--words] [--json FILE]
    python tests/benchmarks/discovery_quality.py --adapter      fit the adapter of requests and write it
    python tests/benchmarks/discovery_quality.py --fit          print the weights

`discovery_tools.json` holds tools such as people own; `discovery_queries.jsonl` queries, each with every tool that
would serve it (none: no tool does, though many are about the same things). The weights are fitted to all of these
(`--fit` prints them anew). `blind`, `fresh` and `late` bring tools that join the others.

`unseen`, `final` and `public` are catalogs in themselves: 162 tools of 15 servers, 195 of 17, and 178 of 13 that have
the tools' names of public servers. They are in no other part, named as a hub names them, with requests that were
written before any of their results was looked at. `kind` tells plain requests, chatty ones, and of those that no tool
serves the near misses and the far ones; `assistant` is the same intent as an assistant puts it, by verb and object.
The weights are fitted to `unseen` too by now. Nothing was fitted to `final` and `public`;
the misses of `final` had been read before `discovery_training.txt` was written.

hit@1 and hit@5 count what is shown, whether surely or as the nearest; "sure" counts answers that are marked sure, and
"right" how many of these hold a tool that serves among the first five.

`--peer` is the interpreter of an environment with the package `fastmcp`, whose BM25 search of tools then answers the
same queries in the same run. `--words` leaves the model out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from localmcp.config import tokenizer_directory
from localmcp.discovery import Discovery, Profile, rank_tools
from localmcp.embeddings import DefaultEmbedder, LazyEmbedder
from localmcp.schemas import compact_json
from localmcp.text_vectors import TextVectors
from localmcp.tool_search.abstention import SIGNS, signs_of
from localmcp.tool_search.background_requests import out_of_scope_margin
from localmcp.tool_search.catalog import ToolCatalog, ToolVectors
from localmcp.tool_search.features import COSINES, FEATURES, Features, word_features
from localmcp.tool_search.query import Query, ToolDescription, take_apart, take_query_apart
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tool_search.request_adapter import FILE
from localmcp.tools import Answer, Registry, Tool, ToolMark

HERE = Path(__file__).parent
PARTS = (0.15, 0.3, 0.5, 0.7, 0.3, 0.5)
"""Shares of the servers that a part of the catalogue keeps in fitting."""
WITHOUT, FOLDS = 8, 5
PENALTY, STAGE_PENALTY, ADAPTER_PENALTY = 0.01, 0.01, 0.01
RANK, EPOCHS, BATCH, LEARNING_RATE = 32, 8, 128, 0.002
TARGETS, WORD_WEIGHTS = (7.8, 7.8, 3.3), (1.5, 3.4, -0.7, -2.2)
"""Weights of the cosines and of WORDS while the adapter is fitted."""
LONGEST_WAIT = 300.0
CACHE = Path(os.environ["LOCALMCP_BENCHMARK_CACHE"]) if "LOCALMCP_BENCHMARK_CACHE" in os.environ else None
OWN_CATALOG = ("unseen", "final", "public")
FITTED = ("dev", "held", "blind", "fresh", "late", "unseen", "training")
HALVES = (*FITTED, "final", "public")


def read_tools(half: str = "") -> list[dict[str, Any]]:
    """The tools of `dev` and `held`, named as a hub names them; those of another half are added for it alone, and
    OWN_CATALOG are catalogs themselves."""
    if half == "training":
        return read_training()[0]
    name = f"discovery_{half}_tools.json" if half in OWN_CATALOG else "discovery_tools.json"
    tools = json.loads((HERE / name).read_text(encoding="utf-8"))
    return [{**tool, "name": in_hub(tool)} for tool in tools if tool.get("half") in (None, half)]


def in_hub(tool: dict[str, Any]) -> str:
    return tool["name"] if "__" in tool["name"] else f"{tool['server']}__{tool['name']}"


def read_training() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tools and the requests of `discovery_training.txt`."""
    tools: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    server = ""
    for line in (HERE / "discovery_training.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("##"):
            server = line[3:]
        elif not line.startswith("#"):
            name, description, requests = line.split("|")
            full = f"{server}__{name}"
            tools.append({"name": full, "description": description, "server": server, "input_schema": {}})
            rows += [{"query": request.strip(), "tools": [full]} for request in requests.split(";")]
    return tools, rows


def read_queries(half: str) -> list[dict[str, Any]]:
    if half == "training":
        return read_training()[1]
    name = f"discovery_{half}_queries.jsonl" if half in OWN_CATALOG else "discovery_queries.jsonl"
    rows = map(json.loads, (HERE / name).read_text(encoding="utf-8").splitlines())
    full = {tool["name"]: tool["name"] for tool in read_tools(half)}
    full = {name.partition("__")[2]: name for name in full} | full
    return [{**row, "tools": [full[tool] for tool in row["tools"]]} for row in rows if row["half"] == half]


def described(each: dict[str, Any]) -> ToolDescription:
    return ToolDescription(
        each["name"], each["description"], tuple(each.get("keywords", ())), schema=each["input_schema"]
    )


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Found:
    """What was answered to one query."""

    names: list[str]
    sure: bool


def measure(queries: Sequence[dict[str, Any]], answers: Sequence[Found]) -> dict[str, float]:
    """Shares of the queries that have a tool, and of those that have none."""
    pairs = [(set(row["tools"]), answer) for row, answer in zip(queries, answers, strict=True)]
    served = [(tools, answer) for tools, answer in pairs if tools]
    unserved = [answer for tools, answer in pairs if not tools]
    sure = [(tools, answer) for tools, answer in served if answer.sure]
    figures = {
        "queries": len(pairs),
        "hit@1": sum(bool(tools & set(answer.names[:1])) for tools, answer in served) / len(served),
        "hit@5": sum(bool(tools & set(answer.names[:5])) for tools, answer in served) / len(served),
        "sure": len(sure) / len(served),
        "right": sum(bool(tools & set(answer.names[:5])) for tools, answer in sure) / max(1, len(sure)),
    }
    if not unserved:
        return figures
    return figures | {
        "unservable": len(unserved),
        "sure and false": sum(answer.sure for answer in unserved) / len(unserved),
        "not empty": sum(bool(answer.names) for answer in unserved) / len(unserved),
    }


def answer_with(find: Callable[[str], Found], queries: Iterable[str]) -> tuple[list[Found], float]:
    """What is found for each query, and the median milliseconds of a search."""
    answers: list[Found] = []
    took: list[float] = []
    for query in queries:
        start = time.perf_counter()
        answers.append(find(query))
        took.append(1000 * (time.perf_counter() - start))
    return answers, statistics.median(took)


def find_names(catalog: list[ToolDescription], finder: ToolFinder, profile: Profile, query: str) -> Found:
    ranked = rank_tools(query, catalog, finder, profile, LONGEST_WAIT)
    return Found([tool.name for tool, _ in ranked.hits[:5]], ranked.sure)


def ask_peer(python: Path, tools: list[dict[str, Any]], queries: list[dict[str, Any]]) -> list[Found]:
    given = json.dumps({"tools": tools, "queries": [row["query"] for row in queries]})
    ran = subprocess.run(
        [str(python), str(HERE / "discovery_peer.py")], input=given, capture_output=True, text=True, check=True
    )
    return [Found(names, bool(names)) for names in json.loads(ran.stdout)["found"]]


def print_misses(queries: Sequence[dict[str, Any]], answers: Sequence[Found]) -> None:
    for row, found in zip(queries, answers, strict=True):
        if row["tools"] and set(row["tools"]).isdisjoint(found.names[:5]):
            print(f"  MISSED  {row['query']} -> {found.names[:3]}, wanted {row['tools']}")
        if not row["tools"] and found.sure:
            print(f"  FALSE   {row['query']} -> {found.names[:3]}")


# ---------------------------------------------------------------- bytes


class Listed(Tool):
    """A tool of the catalogue in a registry."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.mark = ToolMark(entry["name"], entry["name"], visible=False)
        self.description = entry["description"]
        self._schema = entry["input_schema"]

    @property
    def input_schema(self) -> dict[str, Any]:
        return self._schema

    def call(self, arguments: dict[str, Any]) -> Answer:
        raise NotImplementedError


def measure_bytes(tools: list[dict[str, Any]], finder: ToolFinder) -> dict[str, float]:
    """Bytes of JSON in a host's context: every tool listed; or the two tools, and what one search adds."""
    registry = Registry()
    for each in tools:
        registry.add(Listed(each))
    registry.add_service(Discovery(registry, finder))
    queries = [row["query"] for row in read_queries("held") if row["tools"]]
    searches = {
        detail: [
            len(registry.call("tool_search", {"query": query, "max_results": 5, "detail": detail}).text.encode())
            for query in queries
        ]
        for detail in ("full", "brief")
    }
    return {
        "all tools listed": listed_bytes(registry.tools()[: len(tools)]),
        "the two tools": listed_bytes(registry.visible()),
        "a search, five full": statistics.mean(searches["full"]),
        "a search, five brief": statistics.mean(searches["brief"]),
    }


def listed_bytes(tools: Iterable[Tool]) -> int:
    entries = [{"name": each.name, "description": each.description, "inputSchema": each.input_schema} for each in tools]
    return len(compact_json(entries).encode())


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
    """Word features (requests, tools, WORDS)."""
    good: Any
    """Which tools serve which request: (requests, tools)."""
    folds: Any
    """A number of 0 .. FOLDS - 1 for each request: that of the server it asks for."""

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
    catalog = ToolCatalog([take_apart(described(tool)) for tool in tools])
    vectors = catalog.vectors(embedder.get(LONGEST_WAIT), TextVectors(CACHE), LONGEST_WAIT, insist=True)
    assert vectors is not None
    queries = [catalog.repair(take_query_apart(row["query"])) for row in rows]
    words = np.stack([word_features(query, catalog).rows[:, len(COSINES) :] for query in queries])
    good = np.array([[tool["name"] in row["tools"] for tool in tools] for row in rows])
    servers = {tool["name"]: tool["server"] for tool in tools}
    asked = [servers[row["tools"][0]] if row["tools"] else row["query"] for row in rows]
    folds = np.array([zlib.crc32(server.encode()) % FOLDS for server in asked])
    requests = np.stack([embedder.embed_query(query.text) for query in queries])
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
        (pairs, pairs.targets(), pairs.words @ np.array(WORD_WEIGHTS, np.float32),
         np.flatnonzero(pairs.good.any(1) & (pairs.folds != without)))
        for pairs in halves
    ]  # fmt: skip
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


def move(requests: Any, adapter: tuple[Any, Any]) -> Any:
    import numpy as np

    moved = requests + (requests @ adapter[0]) @ adapter[1]
    return moved / np.linalg.norm(moved, axis=-1, keepdims=True)


def write_adapter(embedder: LazyEmbedder) -> None:
    import numpy as np

    down, up = fit_adapter([read_pairs(half, embedder) for half in FITTED])
    units = [float(np.abs(matrix).max()) / 127 for matrix in (down, up)]
    np.savez_compressed(
        tokenizer_directory() / FILE,
        fingerprint=embedder.get(LONGEST_WAIT).identity.fingerprint,
        down=np.rint(down / units[0]).astype(np.int8), down_unit=np.float32(units[0]),
        up=np.rint(up / units[1]).astype(np.int8), up_unit=np.float32(units[1]),
    )  # fmt: skip


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
    """Masks of tools and of requests, and what they are worth in the fit: the whole catalog; parts as other people
    would have them, without whole servers; and without the very tools that some requests want, but with the like of
    them."""
    import numpy as np

    all_rows = np.ones(len(pairs.rows), bool)
    yield np.ones(len(pairs.tools), bool), all_rows, 1.0
    servers = sorted({tool["server"] for tool in pairs.tools})
    for seed, share in enumerate(PARTS):
        kept = set(random.Random(seed).sample(servers, max(1, int(len(servers) * share))))
        yield np.array([tool["server"] in kept for tool in pairs.tools]), all_rows, 0.25
    served = np.flatnonzero(pairs.good.any(1))
    np.random.default_rng(7).shuffle(served)
    for places in np.array_split(served, WITHOUT):
        rows = np.zeros(len(pairs.rows), bool)
        rows[places] = True
        yield ~pairs.good[places].any(0), rows, 0.5


def samples(halves: Mapping[str, Pairs], adapters: Sequence[tuple[Any, Any]]) -> Iterable[Sample]:
    """Every request is moved by the adapter that was fitted without its server."""
    import numpy as np

    for half, pairs in halves.items():
        vectors = pairs.vectors
        moved = np.stack([move(row, adapters[fold]) for row, fold in zip(pairs.requests, pairs.folds, strict=True)])
        cosines = [moved @ vectors.first.T, np.maximum.reduceat(moved @ vectors.others.T, vectors.begins, axis=1)]
        rows = np.concatenate([np.stack([*cosines, moved @ vectors.named.T], axis=2), pairs.words], axis=2)
        general = vectors.requests @ pairs.requests.T
        to_tools = np.maximum.reduceat(vectors.requests @ vectors.others.T, vectors.begins, axis=1)
        to_tools = np.maximum.reduce([to_tools, vectors.requests @ vectors.first.T, vectors.requests @ vectors.named.T])
        for tools, chosen, worth in parts_of(pairs):
            requested = to_tools[:, tools].max(axis=1)
            for place in np.flatnonzero(chosen):
                margin = out_of_scope_margin(general[:, place], requested)
                features = Features(rows[place][tools].astype(np.float32), True, margin)
                yield Sample(features, pairs.good[place][tools], worth, half)


def print_weights(embedder: LazyEmbedder) -> None:
    import numpy as np

    halves = {half: read_pairs(half, embedder) for half in FITTED}
    found = list(samples(halves, [fit_adapter(list(halves.values()), fold) for fold in range(FOLDS)]))
    served = np.array([sample.served for sample in found], float)
    worth = np.array([sample.worth for sample in found])
    for first, last in ((0, len(SIGNS)), (len(COSINES), len(SIGNS) - 1)):
        order = np.zeros(len(FEATURES), np.float32)
        useful = [sample for sample in found if sample.served]
        order[first:] = fit_choice(
            [sample.features.rows[:, first:].astype(float) for sample in useful],
            [sample.good for sample in useful],
            np.array([sample.worth for sample in useful]),
            PENALTY,
        )
        rows = [sample.features.rows @ order for sample in found]
        table = np.array([signs_of(row, sample.features) for row, sample in zip(rows, found, strict=True)])[:, 1:last]
        right = np.array(
            [
                bool(sample.good[np.argsort(-row, kind="stable")[:5]].any())
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


# ---------------------------------------------------------------- the program


def views(half: str) -> Iterable[tuple[str, str, list[dict[str, Any]]]]:
    """Name, key of the words and rows: all queries, and of `unseen` also its kinds and the assistants' words."""
    queries = read_queries(half)
    yield half, "query", queries
    if half in OWN_CATALOG:
        for kind in ("plain", "chatty"):
            yield f"{half} {kind}", "query", [row for row in queries if row["kind"] == kind]
        yield f"{half} assistant", "assistant", [row for row in queries if row["tools"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--peer", type=Path, help="Python of an environment with fastmcp")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--words", action="store_true", help="leave the model out")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--adapter", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
    if options.adapter:
        write_adapter(embedder)
        return
    if options.fit:
        print_weights(embedder)
        return
    finder = ToolFinder(None if options.words else embedder, CACHE)
    result: dict[str, Any] = {}
    for half in [options.half] if options.half else HALVES:
        tools = read_tools(half)
        catalog = [described(tool) for tool in tools]
        finder.find("begin", catalog, patience=LONGEST_WAIT)
        for name, kind, queries in views(half):
            rankings: dict[str, list[Found]] = {}
            for profile in get_args(Profile) if kind == "query" else ("best",):
                find = partial(find_names, catalog, finder, profile)
                rankings[profile], took = answer_with(find, [row[kind] for row in queries])
                print(f"{name}  {profile}: median {took:.1f} ms")
            if options.peer and kind == "query":
                rankings["FastMCP BM25"] = ask_peer(options.peer, tools, queries)
            for ranking, answers in rankings.items():
                figures = result[f"{name} {ranking}"] = measure(queries, answers)
                print(f"{name:14} {ranking:13}", *(f"{key} {value:.3g}" for key, value in figures.items()), sep="  ")
                if options.misses and ranking == "best":
                    print_misses(queries, answers)
    if not options.peer:
        print("(the peer was not asked: name the Python of an environment with fastmcp by --peer)")
    tools = read_tools()
    result["bytes"] = measure_bytes(tools, finder)
    print(f"bytes of {len(tools)} tools ", *(f"{key} {value:,.0f}" for key, value in result["bytes"].items()), sep="  ")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
