"""How well plain-language queries find tools: hit@1, hit@5, sure and false answers, and what it costs in bytes.

    python tests/benchmarks/discovery_quality.py
        [--half dev|held|blind|fresh|late|unseen|final|public|fourth|fifth|sixth|seventh]
        [--tasks | --metatool FOLDER] [--misses] [--words] [--json FILE]

`discovery_tools.json` holds tools such as people own; `discovery_queries.jsonl` queries, each with every tool that
would serve it (none: no tool does, though many are about the same things). `blind`,
`fresh` and `late` bring tools that join the others.

`unseen`, `final`, `public`, `fourth`, `fifth`, `sixth` and `seventh` are catalogs in themselves: 162 tools of 15
servers, 195 of 17, 178 of 13, 437 of 13 and 214 of 17 that have the tools' names of public servers (`public`, `fifth`,
`sixth`), and 313 of 13 and 203 of 12 public servers with their descriptions (`fourth`, `seventh`: ten servers as their
packages list them, calibre and tmdb as their README tells). They are in no other part, named as a hub names them, with
requests that were written before any of their results was looked at. `kind` tells plain requests, chatty ones, and of
those that no tool serves the near misses and the far ones; `assistant` is the same intent as an assistant puts it, by
verb and object.
The weights are fitted to `sixth` and to requests of MetaTool, the certainty also to what no tool serves in the sets
before; the adapter to all but `sixth` and `seventh`, with six requests to each of MetaTool's tools, none of which
`--metatool` asks, among its sayings. Nothing is fitted to `seventh` and `--tasks`.

hit@1 and hit@5 count what is shown, whether surely or as the nearest; "sure" counts answers that are marked sure, and
"right" how many of these hold a tool that serves among the first five.

`--tasks` judges requests that need several tools: `discovery_tasks_tools.json` has 286 tools of 30 servers that are in
no other set, named and described as public servers do, some badly; `discovery_tasks_queries.jsonl` 60 tasks whose
`needs` are two to four parts, each with the tools that do it, 40 near misses and 20 foreign requests. Nothing is fitted
to it: it was written before the tasks were searched in parts. Recall counts parts that have a tool among the first five
and ten; "right" counts sure answers that hold a tool of the task among the first five.

`--metatool` is a folder with the benchmark of that name: `tools.json`, `requests.jsonl` (each twentieth counts), and
`two_tools.json`. `--words` leaves the model out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from localmcp.models import LazyEmbedder
from localmcp.models.local_model import DefaultEmbedder
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import Profile, ToolFinder
from localmcp.tool_search.words import ToolMetadata
from localmcp.tools import Answer, Registry, Tool, ToolMark, compact_json

HERE = Path(__file__).parent
LONGEST_WAIT = 300.0
CACHE = Path(os.environ["LOCALMCP_BENCHMARK_CACHE"]) if "LOCALMCP_BENCHMARK_CACHE" in os.environ else None
TRAINING = ("training", "training-2")
OWN_CATALOG = ("unseen", "final", "public", "fourth", "fifth", "sixth", "seventh")
FITTED = ("dev", "held", "blind", "fresh", "late", "unseen", "final", "public", "fourth", "fifth", "sixth", *TRAINING)
HALVES = (*FITTED, "seventh")


def read_tools(half: str = "") -> list[dict[str, Any]]:
    """The tools of `dev` and `held`, named as a hub names them; those of another half are added for it alone, and
    OWN_CATALOG are catalogs themselves."""
    if half in TRAINING:
        return read_training(half)[0]
    name = f"discovery_{half}_tools.json" if half in OWN_CATALOG else "discovery_tools.json"
    tools = json.loads((HERE / name).read_text(encoding="utf-8"))
    return [{**tool, "name": in_hub(tool)} for tool in tools if tool.get("half") in (None, half)]


def in_hub(tool: dict[str, Any]) -> str:
    return tool["name"] if "__" in tool["name"] else f"{tool['server']}__{tool['name']}"


def read_training(half: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tools and the requests of a part of `discovery_training.txt`; the parts are catalogs."""
    tools: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    server = ""
    parts = (HERE / "discovery_training.txt").read_text(encoding="utf-8").split("# ----\n")
    for line in parts[TRAINING.index(half)].splitlines():
        if line.startswith("##"):
            server = line[3:]
        elif not line.startswith("#"):
            name, description, *requests = line.split("|")
            full = f"{server}__{name}"
            tools.append({"name": full, "description": description, "server": server, "input_schema": {}})
            rows += [
                {"query": request.strip(), "tools": [full], "assistant": place > 0}
                for place, part in enumerate(requests)
                for request in filter(None, part.split(";"))
            ]
    return tools, rows


def read_queries(half: str) -> list[dict[str, Any]]:
    if half in TRAINING:
        return read_training(half)[1]
    name = f"discovery_{half}_queries.jsonl" if half in OWN_CATALOG else "discovery_queries.jsonl"
    rows = map(json.loads, (HERE / name).read_text(encoding="utf-8").splitlines())
    full = {tool["name"]: tool["name"] for tool in read_tools(half)}
    full = {name.partition("__")[2]: name for name in full} | full
    return [{**row, "tools": [full[tool] for tool in row["tools"]]} for row in rows if row["half"] == half]


def described(each: dict[str, Any]) -> ToolMetadata:
    return ToolMetadata(each["name"], each["description"], tuple(each.get("keywords", ())), schema=each["input_schema"])


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


def find_names(catalog: list[ToolMetadata], finder: ToolFinder, profile: Profile, query: str) -> Found:
    ranked = finder.find(query, catalog, profile=profile, patience=LONGEST_WAIT)
    return Found([tool.name for tool, _ in ranked.tools[:5]], ranked.sure)


def print_misses(queries: Sequence[dict[str, Any]], answers: Sequence[Found]) -> None:
    for row, found in zip(queries, answers, strict=True):
        if row["tools"] and set(row["tools"]).isdisjoint(found.names[:5]):
            print(f"  MISSED  {row['query']} -> {found.names[:3]}, wanted {row['tools']}")
        if not row["tools"] and found.sure:
            print(f"  FALSE   {row['query']} -> {found.names[:3]}")


# ---------------------------------------------------------------- several tools


def find_ten(catalog: list[ToolMetadata], finder: ToolFinder, query: str) -> Found:
    ranked = finder.find(query, catalog, patience=LONGEST_WAIT)
    return Found([tool.name for tool, _ in ranked.tools[:10]], ranked.sure)


def recall(needs: Sequence[Sequence[str]], names: Sequence[str]) -> float:
    return sum(not set(part).isdisjoint(names) for part in needs) / len(needs)


def measure_tasks(finder: ToolFinder, misses: bool) -> dict[str, float]:
    tools = json.loads((HERE / "discovery_tasks_tools.json").read_text(encoding="utf-8"))
    rows = list(map(json.loads, (HERE / "discovery_tasks_queries.jsonl").read_text(encoding="utf-8").splitlines()))
    catalog = [described(tool) for tool in tools]
    answers, took = answer_with(partial(find_ten, catalog, finder), [row["query"] for row in rows])
    pairs = list(zip(rows, answers, strict=True))
    tasks = [(row["needs"], found) for row, found in pairs if row["needs"]]
    right = [recall(needs, found.names[:5]) > 0 for needs, found in tasks if found.sure]
    sure = {kind: statistics.mean(found.sure for row, found in pairs if row["kind"] == kind)
            for kind in ("task", "near", "foreign")}  # fmt: skip
    if misses:
        for row, found in pairs:
            print(f"  {row['kind']} sure={found.sure}  {row['query']} -> {found.names[:6]}, wanted {row['needs']}")
    return {
        "recall@5": statistics.mean(recall(needs, found.names[:5]) for needs, found in tasks),
        "recall@10": statistics.mean(recall(needs, found.names) for needs, found in tasks),
        "sure": sure["task"],
        "right": statistics.mean(right) if right else 0.0,
        "near and sure": sure["near"],
        "foreign and sure": sure["foreign"],
        "median ms": took,
    }


def measure_metatool(folder: Path, finder: ToolFinder) -> dict[str, float]:
    catalog = [described(tool) for tool in json.loads((folder / "tools.json").read_text(encoding="utf-8"))]
    lines = (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[::20]]
    single, took = answer_with(partial(find_ten, catalog, finder), [row["query"] for row in rows])
    pairs = json.loads((folder / "two_tools.json").read_text(encoding="utf-8"))
    double, _ = answer_with(partial(find_ten, catalog, finder), [row["query"] for row in pairs])
    served = [[row["tool"] in found.names[:most] for row, found in zip(rows, single, strict=True)] for most in (1, 5)]
    return {
        "requests": len(rows),
        "first": statistics.mean(served[0]),
        "among five": statistics.mean(served[1]),
        "sure": statistics.mean(found.sure for found in single),
        "right": statistics.mean(hit for hit, found in zip(served[1], single, strict=True) if found.sure),
        "two tools recall@5": statistics.mean(
            recall([[tool] for tool in row["tools"]], found.names[:5]) for row, found in zip(pairs, double, strict=True)
        ),
        "median ms": took,
    }


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
    discovery = Discovery(registry, finder)
    registry.add_service(discovery)
    # A search that does not wait for the vectors goes by words alone, which shows more.
    finder.find("begin", [discovery.describe(tool) for tool in registry.tools()], patience=LONGEST_WAIT)
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
    parser.add_argument("--tasks", action="store_true")
    parser.add_argument("--metatool", type=Path)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--words", action="store_true", help="leave the model out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    embedder = LazyEmbedder(DefaultEmbedder)
    finder = ToolFinder(None if options.words else embedder, CACHE)
    if options.tasks or options.metatool:
        figures = measure_tasks(finder, options.misses) if options.tasks else measure_metatool(options.metatool, finder)
        print(*(f"{key} {value:.3g}" for key, value in figures.items()), sep="  ")
        return
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
            for ranking, answers in rankings.items():
                figures = result[f"{name} {ranking}"] = measure(queries, answers)
                print(f"{name:14} {ranking:13}", *(f"{key} {value:.3g}" for key, value in figures.items()), sep="  ")
                if options.misses and ranking == "best":
                    print_misses(queries, answers)
    tools = read_tools()
    result["bytes"] = measure_bytes(tools, finder)
    print(f"bytes of {len(tools)} tools ", *(f"{key} {value:,.0f}" for key, value in result["bytes"].items()), sep="  ")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
