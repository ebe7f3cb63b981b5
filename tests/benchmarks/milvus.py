"""Collections in Milvus: hybrid search of a pushed one against the same file, and speed as one grows.

    python tests/benchmarks/milvus.py quality FOLDER [FOLDER ...] --workdir DIR [--uri URI]
    python tests/benchmarks/milvus.py growth --workdir DIR --texts FOLDER [--sizes 10000,30000,100000] [--uri URI]

`quality`: nDCG@10; a FOLDER holds a judged collection in BEIR form, as for `quality.py`. `growth`: made-up vectors of
384 dimensions around a thousand centers, and real texts repeated with another number; 100 questions at each size.
URI is a Milvus Lite file in DIR unless the address of a server is given; what is there under our names is replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from quality import ndcg, read_lines
from retrieval_quality import read_collection

from localmcp.config import Settings
from localmcp.index.drafts import heading_of
from localmcp.index.search import SearchRequest
from localmcp.milvus.collection import Milvus, open_milvus
from localmcp.milvus.mounted import MilvusFile
from localmcp.models import LazyEmbedder, configured_embedder
from localmcp.storage.database import fetch_all
from localmcp.wording.normalize import index_text
from localmcp.workspace import Workspace

CENTERS, BATCH, QUESTIONS = 1000, 1000, 100
ASKED_MS = 60_000
"""Questions that take longer together are left out, but not the first five."""


def compare(folder: Path, workdir: Path, uri: str, model: str) -> dict[str, float]:
    """nDCG@10 of hybrid search in the file, and of the same collection pushed."""
    queries, relevant = read_collection(folder)
    settings = Settings(database=workdir / f"{folder.name}.localmcp", model=model, milvus_address=uri)
    with Workspace(settings) as workspace:
        # A file a document, which is embedded in batches; its name says which.
        texts = workdir / f"{folder.name}_texts"
        texts.mkdir(exist_ok=True)
        for document in read_lines(folder / "corpus.jsonl"):
            text = f"# {document['title'] or document['_id']}\n\n{document['text']}\n"
            (texts / f"{document['_id']}.md").write_text(text, encoding="utf-8")
        workspace.library.add_paths([texts])
        assert workspace.milvus is not None
        name = f"quality_{folder.name}"
        if name in workspace.milvus.names():
            workspace.milvus.drop(name)
        began = time.perf_counter()
        pushed = workspace.milvus_copies.push("default", name)
        rate = pushed["sent"] / (time.perf_counter() - began)
        with workspace.database.read() as connection:
            sql = "select chunks.uuid, uri from chunks join sources on sources.id = source_id"
            document_of = {chunk: Path(uri).stem for chunk, uri in fetch_all(connection, sql)}
        file = MilvusFile(workspace.milvus, "pushed", name, workspace.embedder)
        scores: dict[str, list[float]] = {"file": [], "milvus": []}
        for query, documents in relevant.items():
            for kind, search in (("file", workspace.index.search), ("milvus", file.search)):
                hits = search(SearchRequest(queries[query], "hybrid", 100)).hits
                ranking = list(dict.fromkeys(document_of[hit.passage.chunk_uuid] for hit in hits))
                scores[kind].append(ndcg(ranking, documents))
        return {**{kind: statistics.fmean(values) for kind, values in scores.items()}, "pushed a second": rate}


def made_up(texts: list[str], count: int, start: int) -> Iterator[dict[str, Any]]:
    """Yield rows as a push sends them."""
    dice = np.random.default_rng(start)
    centers = np.random.default_rng(1).normal(size=(CENTERS, 384)).astype(np.float32)
    words = [index_text(text, "english") for text in texts]
    for number in range(start, start + count):
        place = number % len(texts)
        vector = centers[number % CENTERS] + dice.normal(scale=0.7, size=384).astype(np.float32)
        source: dict[str, Any] = {
            "source_type": "docs", "format": "text", "sha256": "0" * 64, "size": 1, "mtime_ns": None, "chunk_count": 1,
            "created_at": "2026-01-01", "updated_at": "2026-01-01", "title": f"Text {number}", "uri": None,
            "language": "english",
        }  # fmt: skip
        chunk: dict[str, Any] = {
            "start": 0, "stop": 1, "first_line": 1, "last_line": 1, "first_page": None, "last_page": None,
            "language": "english", "kind": "prose", "headings": [],
        }  # fmt: skip
        yield {
            "id": number + 1, "text": f"{texts[place]} {number}", "title": source["title"], "heading": "", "path": "",
            "date": "2026-01-01 00:00:00", "language": "english", "document": str(uuid.UUID(int=number + 1)),
            "chunk": uuid.UUID(int=(1 << 64) + number).hex, "position": 0, "partition": "_default", "metadata": {},
            "origin": {"source": source, "chunk": chunk, "digest": "00" * 16, "told": []}, "digest": number,
            "words": f"{heading_of(source['title'], ()).lower()} {words[place]} {number}",
            "vector": (vector / np.linalg.norm(vector)).tolist(),
        }  # fmt: skip


def grow(
    milvus: Milvus, embedder: LazyEmbedder, texts: list[str], sizes: list[int], server: str
) -> Iterator[dict[str, Any]]:
    """Yield for each size: rows sent a second, memory, and milliseconds of each kind of search."""
    if "growth" in milvus.names():
        milvus.drop("growth")
    identity = embedder.get().identity
    about = {"identity": {"name": identity.name, "dimension": 384}, "fingerprint": identity.fingerprint}
    collection = milvus.create("growth", about)
    file, size = MilvusFile(milvus, "growth", "growth", embedder), 0
    long = [text.split() for text in texts if len(text.split()) > 20]
    questions = [" ".join(words[3:12]) for words in long[:: max(len(long) // QUESTIONS, 1)]][:QUESTIONS]
    for goal in sizes:
        spent, batch = 0.0, list[dict[str, Any]]()
        for row in made_up(texts, goal - size, size):
            batch.append(row)
            if len(batch) == BATCH or row["id"] == goal:
                began = time.perf_counter()
                collection.upsert(batch)
                spent, batch = spent + time.perf_counter() - began, []
        assert collection.make_index(7200)
        pages = int(Path(f"/proc/{server}/statm").read_text(encoding="ascii").split()[1])
        report: dict[str, Any] = {"passages": goal, "rows a second": (goal - size) / spent, "MB": pages * 4096 / 1e6}
        size = goal
        for mode in ("semantic", "keyword", "hybrid") if collection.has_words else ("semantic",):
            began = time.perf_counter()
            file.search(SearchRequest(questions[0], mode, 10))
            report[f"{mode} first"] = (time.perf_counter() - began) * 1000
            times: list[float] = []
            for question in questions:
                if len(times) >= 5 and sum(times) > ASKED_MS:
                    break
                began = time.perf_counter()
                outcome = file.search(SearchRequest(question, mode, 10))
                times.append((time.perf_counter() - began) * 1000)
                assert outcome.hits, outcome.notices
            p50, p95 = np.percentile(times, [50, 95])
            report |= {f"{mode} p50": float(p50), f"{mode} p95": float(p95), f"{mode} asked": len(times)}
        yield report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("quality", "growth"))
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--sizes", default="10000,30000,100000")
    parser.add_argument("--uri", default="")
    parser.add_argument("--server", default="self", help="the process whose memory counts")
    parser.add_argument("--model", default="default")
    given = parser.parse_args()
    given.workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(given.workdir / "state"))
    uri = given.uri or str(given.workdir / "milvus.db")
    if given.what == "quality":
        for folder in given.folders:
            print(folder.name, json.dumps(compare(folder, given.workdir, uri, given.model)), flush=True)
        return
    settings = Settings(milvus_address=uri, model="hash")
    milvus = open_milvus(settings)
    assert milvus is not None
    milvus.timeout = 1800
    texts = [f"{each['title']} {each['text']}"[:1200] for each in read_lines(given.texts / "corpus.jsonl")]
    sizes = [int(size) for size in given.sizes.split(",")]
    for report in grow(milvus, configured_embedder(settings), texts, sizes, given.server):
        print(json.dumps({name: round(value, 1) for name, value in report.items()}), flush=True)
    milvus.close()


if __name__ == "__main__":
    main()
