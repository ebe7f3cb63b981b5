"""Retrieval quality on judged collections: nDCG@10 of each arm and fusion, and of peers' pipelines on the same vectors.

    python tests/benchmarks/retrieval_quality.py --workdir DIR FOLDER [FOLDER ...] [--model SPEC] [--json FILE]
        [--subsamples 5]

A FOLDER holds a collection in BEIR form, as for `quality.py`, which makes the file (`DIR/NAME.localmcp`) when it is not
there. Every pipeline ranks passages; a document counts by its best one; relevance is binary. Peers' pipelines are
re-made from what their documentation and sources say, on our chunks and vectors, so only the method differs:

- rrf 60: reciprocal ranks of both arms (the hybrid default of lancedb and of many others);
- rival hybrid: the and of all words as keyword arm, reciprocal ranks, as servers do that give the question to FTS5;
- convex .5: both scores scaled by the best of the search, half each, missing ones 0 (txtai's default hybrid);
- semantic alone is what chromadb and mcp-server-qdrant do by default.

`--subsamples N` also evaluates N random parts of 300 documents of each: small indexes weigh differently.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import apsw
from quality import index, ndcg, read_judgements, read_lines

from localmcp.config import Settings
from localmcp.index.fusion import Mode, adapt_weights
from localmcp.index.search import SearchRequest
from localmcp.storage.database import Database, fetch_all
from localmcp.wording.normalize import stems, words
from localmcp.workspace import Workspace

DEPTH, RRF = 100, 60
SUBSAMPLE = 300
TIE = 0.005
Scores = Mapping[int, float]
Ranking = list[int]


# ---------------------------------------------------------------- fusions


def reciprocal_ranks(*arms: Scores) -> Ranking:
    """Chunk ids by the sum of 1 / (60 + rank) over the arms' first hundred."""
    total: dict[int, float] = {}
    for arm in arms:
        for rank, each in enumerate(list(arm)[:DEPTH], 1):
            total[each] = total.get(each, 0.0) + 1 / (RRF + rank)
    return sorted(total, key=lambda each: (-total[each], each))


def convex(by_word: Scores, by_meaning: Scores) -> Ranking:
    """Half of each score over the best of its arm, a missing one counting 0."""
    total: dict[int, float] = {}
    for arm in (by_word, by_meaning):
        best = max(arm.values(), default=0.0) or 1.0
        for each, score in list(arm.items())[:DEPTH]:
            total[each] = total.get(each, 0.0) + score / best / 2
    return sorted(total, key=lambda each: (-total[each], each))


def all_words(connection: apsw.Connection, text: str) -> dict[int, float]:
    """bm25 of the passages that hold every word of the question: what FTS5 makes of plain text."""
    match = " ".join(f'"{each}"' for each in stems(words(text), "english"))
    sql = """
        select rowid, -bm25(chunks_fts) as score from chunks_fts where chunks_fts match ?
        order by score desc limit 100
    """
    return dict(fetch_all(connection, sql, (match,))) if match else {}


# ---------------------------------------------------------------- pipelines


class Collection:
    """One judged collection in a file, with every pipeline's ranking of documents."""

    def __init__(self, workspace: Workspace, queries: dict[str, str], relevant: dict[str, set[str]]) -> None:
        self.workspace = workspace
        self.queries = {each: queries[each] for each in relevant if each in queries}
        self.relevant = relevant
        with workspace.database.read() as connection:
            sql = "select chunks.id, metadata ->> 'document' from chunks join sources on sources.id = source_id"
            self.document_of: dict[int, str] = dict(fetch_all(connection, sql))

    def measure(self) -> dict[str, float]:
        """Pipeline -> mean nDCG@10."""
        scores: dict[str, list[float]] = {}
        for query, text in self.queries.items():
            for name, ranking in self.rankings(text).items():
                documents = list(dict.fromkeys(self.document_of[each] for each in ranking))
                scores.setdefault(name, []).append(ndcg(documents, self.relevant[query]))
        return {name: statistics.fmean(values) for name, values in scores.items()}

    def rankings(self, text: str) -> dict[str, Ranking]:
        by_word = self.scores(text, "keyword")
        by_meaning = self.scores(text, "semantic")
        found = {
            "keyword": list(by_word),
            "semantic": list(by_meaning),
            "rrf 60": reciprocal_ranks(by_word, by_meaning),
            "convex .5": convex(by_word, by_meaning),
        }
        with self.workspace.database.read() as connection:
            found["rival hybrid"] = reciprocal_ranks(all_words(connection, text), by_meaning)
        adaptive = self.workspace.index.adaptive
        for name, choice in (("ours, fixed .7", False), ("ours", True)):
            self.workspace.index.adaptive = choice
            found[name] = list(self.scores(text, "hybrid"))
        self.workspace.index.adaptive = adaptive
        return found

    def scores(self, text: str, mode: Mode) -> dict[int, float]:
        """Chunk id -> raw score of an arm, or the combined one; best first."""
        hits = self.workspace.index.search(SearchRequest(text, mode, DEPTH)).hits
        raw: dict[str, Callable[[Any], float]] = {
            "keyword": lambda hit: hit.bm25,
            "semantic": lambda hit: hit.cosine,
            "hybrid": lambda hit: hit.scores.combined,
        }
        return {hit.passage.chunk_id: raw[mode](hit) for hit in hits}


def read_collection(folder: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    queries = {each["_id"]: each["text"] for each in read_lines(folder / "queries.jsonl")}
    return queries, {q: r for q, r in read_judgements(folder / "qrels.tsv").items() if q in queries}


def open_workspace(path: Path, model: str) -> Workspace:
    return Workspace(Settings(database=path, model=model))


# ---------------------------------------------------------------- harder cases


def measure_subsamples(folder: Path, workdir: Path, model: str, count: int) -> dict[str, dict[str, float]]:
    """Parts of about 300 documents, relevant ones and others, cut out of the collection's file."""
    results: dict[str, dict[str, float]] = {}
    queries, relevant = read_collection(folder)
    documents = [each["_id"] for each in read_lines(folder / "corpus.jsonl")]
    for number in range(count):
        dice = random.Random(number)
        kept = set(dice.sample(documents, min(SUBSAMPLE // 2, len(documents))))
        for query in dice.sample(sorted(relevant), len(relevant)):
            if len(kept) < SUBSAMPLE:
                kept |= relevant[query]
        path = workdir / f"{folder.name}-part.localmcp"
        for left_over in workdir.glob(f"{path.name}*"):
            left_over.unlink()
        Database(workdir / f"{folder.name}.localmcp", read_only=True).copy_to(path)
        judged = {query: found & kept for query, found in relevant.items() if found & kept}
        with open_workspace(path, model) as workspace:
            keep_only(workspace, kept)
            results[f"{folder.name}, part {number + 1}"] = Collection(workspace, queries, judged).measure()
    return results


def keep_only(workspace: Workspace, documents: set[str]) -> None:
    """Take the other documents out, and measure the groups again."""
    with workspace.database.read() as connection:
        rows = fetch_all(connection, "select uuid, metadata ->> 'document' from sources")
    workspace.library.remove([uuid for uuid, document in rows if document not in documents])
    adapt_weights(workspace.database, workspace.embedder.get())


# ---------------------------------------------------------------- report


def summary(results: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Means over the sets, and whether ours is at or above the better arm (a tie within .005) on each."""
    names = list(next(iter(results.values())))
    mean = {name: statistics.fmean(each[name] for each in results.values() if name in each) for name in names}
    better = {name: max(each["keyword"], each["semantic"]) for name, each in results.items()}
    return {
        "mean": mean,
        "above_better_arm": {name: each["ours"] - better[name] for name, each in results.items()},
        "mean_above_better_arms_mean": mean["ours"] - max(mean["keyword"], mean["semantic"]),
        "loses": [name for name, each in results.items() if each["ours"] < better[name] - TIE],
    }


def show(results: dict[str, dict[str, float]], told: dict[str, Any]) -> None:
    names = list(told["mean"])
    print(f"{'nDCG@10':14}" + "".join(f"{name:>15}" for name in names))
    for label, row in (*results.items(), ("mean", told["mean"])):
        print(f"{label:14}" + "".join(f"{row[name]:15.4f}" if name in row else f"{'-':>15}" for name in names))
    print("ours above the better arm:", {name: round(value, 4) for name, value in told["above_better_arm"].items()})


def measure(folders: list[Path], workdir: Path, model: str, subsamples: int = 0) -> dict[str, Any]:
    """Each collection's pipelines, and their summary."""
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    results: dict[str, dict[str, float]] = {}
    for folder in folders:
        with open_workspace(workdir / f"{folder.name}.localmcp", model) as workspace:
            index(workspace, folder)
            results[folder.name] = Collection(workspace, *read_collection(folder)).measure()
    found: dict[str, Any] = {"model": model, "sets": results, **summary(results)}
    parts = [measure_subsamples(folder, workdir, model, subsamples) for folder in folders]
    if subsamples:
        together = {name: row for part in parts for name, row in part.items()}
        found["parts"] = {"sets": together, **summary(together)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--model", default="default")
    parser.add_argument("--subsamples", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.folders, options.workdir, options.model, options.subsamples)
    show(found["sets"], found)
    if "parts" in found:
        show(found["parts"]["sets"], found["parts"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
