"""How fast tools are found among many: milliseconds of a search, the model being loaded and the tools embedded.

    python tests/benchmarks/discovery_speed.py [--tools 1000] [--rounds 2]

The tools are those of `discovery_tools.json` under as many namespaces as it takes, each with words of its own; the
queries are those of `discovery_queries.jsonl`, none asked twice in a round, so that every one is embedded. What goes
through the registry is measured: listing the tools, ranking them, and writing the answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from discovery_quality import Listed, listed_bytes, read_queries, read_tools

from localmcp.models import LazyEmbedder
from localmcp.models.local_model import DefaultEmbedder
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tools import Registry

LONGEST_WAIT = 600.0


def make_tools(count: int) -> list[dict[str, Any]]:
    base = read_tools()
    made: list[dict[str, Any]] = []
    for number in range(count):
        each, copy = base[number % len(base)], number // len(base)
        name = f"{each['name']}" if copy == 0 else f"site{copy}__{each['name']}"
        made.append(
            {
                **each,
                "name": name,
                "description": f"{each['description']} Site {copy}." if copy else each["description"],
            }
        )
    return made


def report(label: str, took: list[float]) -> None:
    print(f"{label:34} p50 {statistics.median(took):6.1f} ms   p95 {statistics.quantiles(took, n=20)[-1]:6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    registry = Registry()
    embedder = LazyEmbedder(DefaultEmbedder)
    discovery = Discovery(registry, ToolFinder(embedder))
    registry.add_service(discovery)
    before = listed_bytes(registry.visible())
    for each in make_tools(options.tools):
        registry.add(Listed(each))
    print(f"bytes that {options.tools:,} hidden tools add to tools/list: {listed_bytes(registry.visible()) - before}")
    start = time.perf_counter()
    discovery.rank("begin", patience=LONGEST_WAIT)
    print(f"first search, with loading and embedding: {time.perf_counter() - start:.1f} s")
    queries = [row["query"] for row in read_queries("held")]
    searches = {
        "best, as tool_search answers": lambda query: registry.call("tool_search", {"query": query}),
        "best, asked again": lambda query: registry.call("tool_search", {"query": query}),
        "classic": lambda query: discovery.search(query, 10, profile="classic"),
        "embedding the query alone": lambda query: embedder.get().embed_query(query),
    }
    took: dict[str, list[float]] = {label: [] for label in searches}
    for _ in range(options.rounds):
        embedder._queries.clear()
        for label, search in searches.items():
            for query in queries:
                start = time.perf_counter()
                search(query)
                took[label].append(1000 * (time.perf_counter() - start))
    for label, each in took.items():
        report(label, each)
    print(json.dumps({label: round(statistics.median(each), 1) for label, each in took.items()}))


if __name__ == "__main__":
    main()
