"""How well plain-language queries find tools: hit@1, hit@5, sure and false answers, and what it costs in bytes.

    python tests/benchmarks/discovery_quality.py [--half dev|held|blind|fresh|late|unseen|final|public] [--peer PYTHON]
        [--misses] [--words] [--json FILE]
    python tests/benchmarks/discovery_quality.py --fit

`discovery_tools.json` holds tools such as people own; `discovery_queries.jsonl` queries, each with every tool that
would serve it (none: no tool does, though many are about the same things). The weights are fitted to all of these
(`--fit` prints them anew). `blind`, `fresh` and `late` bring tools that join the others.

`unseen`, `final` and `public` are catalogs in themselves: 162 tools of 15 servers, 195 of 17, and 178 of 13 that have
the tools' names of public servers. They are in no other part, named as a hub names them, with requests that were
written before any of their results was looked at. `kind` tells plain requests, chatty ones, and of those that no tool
serves the near misses and the far ones; `assistant` is the same intent as an assistant puts it, by verb and object.
The weights are fitted to `unseen` too by now. Nothing was fitted to `final` and `public`.

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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from localmcp.discovery import Discovery, Profile, rank_tools
from localmcp.embeddings import DefaultEmbedder, LazyEmbedder
from localmcp.schemas import compact_json
from localmcp.tool_search.abstention import SIGNS, signs_of
from localmcp.tool_search.catalog import ToolCatalog
from localmcp.tool_search.features import COSINES, FEATURES, Features
from localmcp.tool_search.query import ToolDescription, take_apart, take_query_apart
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tools import Answer, Registry, Tool, ToolMark

HERE = Path(__file__).parent
PARTS = (0.15, 0.3, 0.5, 0.7, 0.3, 0.5)
"""Shares of the servers that a part of the catalogue keeps in fitting."""
WITHOUT, FOLDS = 8, 5
PENALTY, STAGE_PENALTY = 0.01, 0.01
LONGEST_WAIT = 300.0
CACHE = Path(os.environ["LOCALMCP_BENCHMARK_CACHE"]) if "LOCALMCP_BENCHMARK_CACHE" in os.environ else None
OWN_CATALOG = ("unseen", "final", "public")
FITTED = ("dev", "held", "blind", "fresh", "late", "unseen")
HALVES = (*FITTED, "final", "public")


def read_tools(half: str = "") -> list[dict[str, Any]]:
    """The tools of `dev` and `held`, named as a hub names them; those of another half are added for it alone, and
    `unseen` and `final` are catalogs themselves."""
    name = f"discovery_{half}_tools.json" if half in OWN_CATALOG else "discovery_tools.json"
    tools = json.loads((HERE / name).read_text(encoding="utf-8"))
    return [{**tool, "name": in_hub(tool)} for tool in tools if tool.get("half") in (None, half)]


def in_hub(tool: dict[str, Any]) -> str:
    return tool["name"] if "__" in tool["name"] else f"{tool['server']}__{tool['name']}"


def read_queries(half: str) -> list[dict[str, Any]]:
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
    """A query over one catalog."""

    features: Features
    good: Any
    """Which of the tools serve it."""
    worth: float

    @property
    def served(self) -> bool:
        return bool(self.good.any())


def catalogs(tools: list[dict[str, Any]], queries: list[dict[str, Any]]) -> Iterable[tuple[Any, Any, float]]:
    """Tools, queries and what they are worth in the fit: the whole catalogue; parts as other people would have them,
    without whole servers; and the catalogue without the very tools that some queries want, but with the like of them.
    """
    yield tools, queries, 1.0
    servers = sorted({each["server"] for each in tools})
    for seed, share in enumerate(PARTS):
        kept = set(random.Random(seed).sample(servers, int(len(servers) * share)))
        yield [each for each in tools if each["server"] in kept], queries, 0.25
    served = [row for row in queries if row["tools"]]
    random.Random(7).shuffle(served)
    for number in range(WITHOUT):
        part = served[number::WITHOUT]
        gone = {name for row in part for name in row["tools"]}
        yield [each for each in tools if each["name"] not in gone], part, 0.5


def samples(embedder: LazyEmbedder) -> Iterable[Sample]:
    import numpy as np

    for half in FITTED:
        for part, rows, worth in catalogs(read_tools(half), read_queries(half)):
            finder = ToolFinder(embedder, CACHE)
            catalog = ToolCatalog([take_apart(described(tool)) for tool in part])
            for row in rows:
                query = catalog.repair(take_query_apart(row["query"]))
                good = np.array([tool["name"] in row["tools"] for tool in part])
                yield Sample(finder.features(catalog, query, LONGEST_WAIT), good, worth)


def print_weights(embedder: LazyEmbedder) -> None:
    import numpy as np

    found = list(samples(embedder))
    served = np.array([sample.served for sample in found], float)
    worth = np.array([sample.worth for sample in found])
    balanced = worth * np.where(served > 0, 0.5 / (worth @ served), 0.5 / (worth @ (1 - served))) * len(worth)
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
        signs = fit_logistic(table, served, balanced, STAGE_PENALTY)
        odds = table @ signs[1:] + signs[0]
        no = np.sort(odds[(served == 0) & (worth == 1.0)])[::-1]
        print("order", [round(float(each), 2) for each in order], "signs", [round(float(each), 2) for each in signs])
        for share in (0.05, 0.1, 0.15, 0.5, 0.7, 0.8):
            least = no[int(share * len(no))]
            answered = (odds[(served > 0) & (worth == 1.0)] > least).mean()
            print(f"  at most {share:.0%} false: threshold {least:.2f}, {answered:.3f} of the others answered")


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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
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
