"""Retrieval quality on judged collections: nDCG@10 of each mode, best passage per document, and the share of questions
with a right document among the first three of hybrid search.

    python tests/benchmarks/quality.py --workdir /tmp/bench FOLDER [FOLDER ...] [--model SPEC] [--json FILE]

A FOLDER holds a collection in BEIR form: corpus.jsonl (_id, title, text), queries.jsonl (_id, text), qrels.tsv.
Documents go in through the same door as everybody's (`Library.add_text`); the file is made once and kept in the work
directory. Relevance is binary; documents are ranked by their best passage.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

from localmcp.config import Settings
from localmcp.index.fusion import Mode
from localmcp.index.search import SearchRequest
from localmcp.workspace import Workspace

MODES: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
PASSAGES = 100


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_judgements(path: Path) -> dict[str, set[str]]:
    """Query id -> ids of its relevant documents."""
    relevant: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(query, set()).add(document)
    return relevant


def ndcg(ranking: list[str], relevant: set[str], depth: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `depth` documents, 0..1."""
    gain = sum(1 / math.log2(rank + 2) for rank, each in enumerate(ranking[:depth]) if each in relevant)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(depth, len(relevant))))


def index(workspace: Workspace, folder: Path) -> None:
    with workspace.database.read() as connection:
        there = connection.execute("select count(*) from sources").get
    documents = read_lines(folder / "corpus.jsonl")
    start = time.perf_counter()
    for number, document in enumerate(documents[there:], there + 1):
        text = document["text"] or document.get("title") or document["_id"]
        title = document.get("title") or document["_id"]
        workspace.library.add_text(text, title, metadata={"document": document["_id"]}, uri=f"ir:{document['_id']}")
        if number % 100 == 0:
            print(f"{folder.name}: {number} of {len(documents)}, {time.perf_counter() - start:.0f} s", flush=True)


def evaluate(workspace: Workspace, folder: Path) -> dict[str, float]:
    queries = {each["_id"]: each["text"] for each in read_lines(folder / "queries.jsonl")}
    judged = {q: r for q, r in read_judgements(folder / "qrels.tsv").items() if q in queries}
    found: dict[str, float] = {}
    for mode in MODES:
        scores, first = [], []
        for query, relevant in judged.items():
            hits = workspace.index.search(SearchRequest(queries[query], mode, PASSAGES)).hits
            ranking = list(dict.fromkeys(hit.passage.metadata["document"] for hit in hits))
            scores.append(ndcg(ranking, relevant))
            first.append(not relevant.isdisjoint(ranking[:3]))
        found[mode] = statistics.fmean(scores)
    found["hybrid@3"] = statistics.fmean(first)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--model", default="default", help="the embedding model, as in the settings")
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    results: dict[str, dict[str, float]] = {}
    for folder in options.folders:
        settings = Settings(database=options.workdir / f"{folder.name}.localmcp", model=options.model)
        with Workspace(settings) as workspace:
            index(workspace, folder)
            results[folder.name] = evaluate(workspace, folder)
        print(folder.name, {mode: round(value, 4) for mode, value in results[folder.name].items()}, flush=True)
    means = {name: statistics.fmean(each[name] for each in results.values()) for name in (*MODES, "hybrid@3")}
    print("mean", {mode: round(value, 4) for mode, value in means.items()})
    if options.json:
        options.json.write_text(json.dumps({"sets": results, "mean": means}, indent=1))


if __name__ == "__main__":
    main()
