"""How well plain-language queries find tools: hit@1, hit@5, false answers, and what it costs in bytes.

    python tests/benchmarks/discovery_quality.py [--half dev|held|blind|fresh|late] [--peer PYTHON] [--misses] [--words]
        [--json FILE]
    python tests/benchmarks/discovery_quality.py --fit

`discovery_tools.json` holds tools such as people own; `discovery_queries.jsonl` queries, each with every tool that
would serve it (none: no tool does, though many are about the same things). The weights were fitted to the part `dev`
(`--fit` prints them anew), of which most queries without a tool ask for what is only just missing. No weight was
fitted to the others, but their figures were seen when the features and the threshold were chosen; `late` was written
after that, but for one column. `blind`, `fresh` and `late` bring tools of their own, which join the others; they were
written before the features, before the verbs and after them, all by the authors of what they measure. Nearly all
unservable queries of `blind`, and half of those of `fresh` and `late`, ask a program that is there for what it does
not do. A query that no tool serves counts as falsely answered if any tool was returned. hit@5 counts only what was
really returned.

`--peer` is the interpreter of an environment with the package `fastmcp`, whose BM25 search of tools then answers the
same queries in the same run. `--words` leaves the model out.
"""

from __future__ import annotations

import argparse
import json
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
from localmcp.text_vectors import TextVectors
from localmcp.tool_search.abstention import FEATURES, OF_THE_BEST, WORD_FEATURES
from localmcp.tool_search.catalog import ToolCatalogue
from localmcp.tool_search.features import Evidence, evidence_of_meaning, evidence_of_words
from localmcp.tool_search.query import ToolDescription, take_apart, take_query_apart
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tools import Answer, Registry, Tool, ToolMark

HERE = Path(__file__).parent
PARTS = (0.15, 0.3, 0.5, 0.7, 0.3, 0.5)
"""Shares of the servers that a part of the catalogue keeps in fitting."""
WITHOUT, FOLDS = 8, 5
SIGNS = (OF_THE_BEST, (*OF_THE_BEST, "elsewhere"), (*OF_THE_BEST, "elsewhere", "gap", "gap_to_tools"))
"""What the second stage knows without a model, with it, and with the commands that no tool carries out."""
PENALTY, STAGE_PENALTY = 0.01, 0.01
LONGEST_WAIT = 300.0
HALVES = ("dev", "held", "blind", "fresh", "late")


def read_tools(half: str = "") -> list[dict[str, Any]]:
    """The tools of `dev` and `held`; those of another half are added for it alone."""
    tools = json.loads((HERE / "discovery_tools.json").read_text(encoding="utf-8"))
    return [each for each in tools if each.get("half") in (None, half)]


def read_queries(half: str | None) -> list[dict[str, Any]]:
    lines = (HERE / "discovery_queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if half in (None, row["half"])]


def described(each: dict[str, Any]) -> ToolDescription:
    return ToolDescription(
        each["name"], each["description"], tuple(each.get("keywords", ())), schema=each["input_schema"]
    )


# ---------------------------------------------------------------- measuring


def measure(queries: Sequence[dict[str, Any]], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Shares of the queries that have a tool (hits) and of those that have none (false answers)."""
    pairs = [(set(row["tools"]), list(found)) for row, found in zip(queries, answers, strict=True)]
    served = [(wanted, found) for wanted, found in pairs if wanted]
    unserved = [found for wanted, found in pairs if not wanted]
    return {
        "queries": len(pairs),
        "servable": len(served),
        "hit@1": sum(bool(found) and found[0] in wanted for wanted, found in served) / len(served),
        "hit@5": sum(not wanted.isdisjoint(found[:5]) for wanted, found in served) / len(served),
        "unservable": len(unserved),
        "false answers": sum(bool(found) for found in unserved) / len(unserved),
    }


def answer_with(find: Callable[[str], list[str]], queries: Iterable[dict[str, Any]]) -> tuple[list[list[str]], float]:
    """What is found for each query, and the median milliseconds of a search."""
    answers: list[list[str]] = []
    took: list[float] = []
    for row in queries:
        start = time.perf_counter()
        answers.append(find(row["query"]))
        took.append(1000 * (time.perf_counter() - start))
    return answers, statistics.median(took)


def find_names(catalogue: list[ToolDescription], finder: ToolFinder, profile: Profile, query: str) -> list[str]:
    return [each.name for each, _ in rank_tools(query, catalogue, finder, profile, LONGEST_WAIT).hits[:5]]


def ask_peer(python: Path, tools: list[dict[str, Any]], queries: list[dict[str, Any]]) -> list[list[str]]:
    given = json.dumps({"tools": tools, "queries": [row["query"] for row in queries]})
    ran = subprocess.run(
        [str(python), str(HERE / "discovery_peer.py")], input=given, capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)["found"]


def print_misses(queries: Sequence[dict[str, Any]], answers: Sequence[Sequence[str]]) -> None:
    for row, found in zip(queries, answers, strict=True):
        if row["tools"] and set(row["tools"]).isdisjoint(found[:5]):
            print(f"  MISSED  {row['query']} -> {list(found[:3])}, wanted {row['tools']}")
        if not row["tools"] and found:
            print(f"  FALSE   {row['query']} -> {list(found[:3])}")


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
    """A query over one catalogue."""

    evidence: Evidence
    good: Any
    """Which of the judged tools serve it."""
    served: bool
    worth: float
    group: str
    """The server whose tools it is about: what is validated together."""


def catalogues(tools: list[dict[str, Any]], queries: list[dict[str, Any]]) -> Iterable[tuple[Any, Any, float]]:
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


def samples(tools: list[dict[str, Any]], embedder: LazyEmbedder) -> Iterable[Sample]:
    import numpy as np

    kept, queries = TextVectors(), read_queries("dev")
    server_of = {each["name"]: each["server"] for each in tools}
    groups: dict[str, str] = {}
    for part, rows, worth in catalogues(tools, queries):
        catalogue = ToolCatalogue([take_apart(described(each)) for each in part])
        vectors = catalogue.vectors(embedder.get(), kept, LONGEST_WAIT)
        commands = catalogue.commands(embedder.get(), kept, LONGEST_WAIT)
        assert vectors is not None
        for row in rows:
            query = catalogue.repair(take_query_apart(row["query"]))
            words = evidence_of_words(query, catalogue)
            evidence = evidence_of_meaning(embedder.embed_query(query.text), vectors, words, commands)
            good = np.array([part[place]["name"] in row["tools"] for place in evidence.places])
            nearest = part[int(evidence.places[evidence.rows[:, :4].sum(1).argmax()])]["name"]
            group = groups.setdefault(row["query"], server_of[(row["tools"] or [nearest])[0]])
            yield Sample(evidence, good, bool(good.any()), worth, group)


def print_weights(tools: list[dict[str, Any]], embedder: LazyEmbedder) -> None:
    import numpy as np

    found = list(samples(tools, embedder))
    for names in (FEATURES, WORD_FEATURES):
        columns = slice(len(FEATURES) - len(names), None)
        rows = [each.evidence.rows[:, columns] for each in found]
        useful = [number for number, each in enumerate(found) if each.good.any()]
        first = fit_choice(
            [rows[number].astype(float) for number in useful],
            [found[number].good for number in useful],
            np.array([found[number].worth for number in useful]),
            PENALTY,
        )
        _print(names, first)
        for signs_used in SIGNS if names == FEATURES else SIGNS[:1]:
            _print_second(found, rows, first, names, signs_used)


def _print_second(found: list[Sample], rows: Any, first: Any, names: Sequence[str], used: Sequence[str]) -> None:
    """The second stage: the weights, and over servers that it was not fitted to, the threshold and what it costs."""
    import numpy as np

    table = np.array([_second_row(each, row, first, names, used) for each, row in zip(found, rows, strict=True)])
    served = np.array([each.served for each in found], float)
    worth = np.array([each.worth for each in found])
    worth *= np.where(served > 0, 0.5 / (worth @ served), 0.5 / (worth @ (1 - served))) * len(worth)
    _print(("bias", "relevance", *used), fit_logistic(table, served, worth, STAGE_PENALTY))
    groups = sorted({each.group for each in found})
    fold = np.array([groups.index(each.group) % FOLDS for each in found])
    odds = np.zeros(len(found))
    for number in range(FOLDS):
        known = fold != number
        fitted = fit_logistic(table[known], served[known], worth[known], STAGE_PENALTY)
        odds[~known] = table[~known] @ fitted[1:] + fitted[0]
    whole = np.array([each.worth == 1.0 for each in found])
    yes, no = odds[whole & (served > 0)], np.sort(odds[whole & (served == 0)])[::-1]
    for share in (0.05, 0.09, 0.15, 0.2, 0.25):
        least = no[int(share * len(no))]
        print(f"  at most {share:.0%} false: threshold {least:.2f}, {(yes > least).mean():.3f} of the others answered")


def _second_row(each: Sample, row: Any, first: Any, names: Sequence[str], used: Sequence[str]) -> list[float]:
    relevances = row @ first
    best = row[relevances.argmax()]
    told = {"gap": 0.0, "gap_to_tools": 0.0, **each.evidence.signs}
    told |= {name: float(best[names.index(name)]) for name in OF_THE_BEST}
    return [float(relevances.max()), *(told[name] for name in used)]


def _print(names: Sequence[str], weights: Any) -> None:
    print({name: round(float(value), 2) for name, value in zip(names, weights, strict=True)})


# ---------------------------------------------------------------- the program


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
        print_weights(read_tools(), embedder)
        return
    finder = ToolFinder(None if options.words else embedder)
    result: dict[str, Any] = {}
    for half in [options.half] if options.half else HALVES:
        tools = read_tools(half)
        catalogue = [described(each) for each in tools]
        finder.find("begin", catalogue, patience=LONGEST_WAIT)
        queries = read_queries(half)
        rankings: dict[str, list[list[str]]] = {}
        for profile in get_args(Profile):
            find = partial(find_names, catalogue, finder, profile)
            rankings[profile], took = answer_with(find, queries)
            print(f"{half}  {profile}: median {took:.1f} ms")
        if options.peer:
            rankings["FastMCP BM25"] = ask_peer(options.peer, tools, queries)
        for name, answers in rankings.items():
            figures = result[f"{half} {name}"] = measure(queries, answers)
            print(f"{half:5} {name:13}", *(f"{key} {value:.3g}" for key, value in figures.items()), sep="  ")
            if options.misses and name == "best":
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
