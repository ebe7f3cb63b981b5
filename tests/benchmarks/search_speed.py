"""How fast a search is in a file of N chunks: milliseconds by arm, recall, memory, file size, insert rate.

    python tests/benchmarks/search_speed.py --size 100000 --workdir /tmp/bench [--json FILE]

The file is made once and kept in the work directory. Texts look like English by their word frequencies (a
Zipf-Mandelbrot law over 50,000 words, the most frequent of which are English stop words); vectors lie in 4000 clusters
whose sizes follow a power law. Embedding costs nothing here: a query's vector is a further member of a random cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from localmcp.index.collections import (
    claim_collection,
    ensure_collection,
    ensure_model,
    find_model,
    visible_collections,
)
from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.filters import Filters, parse_condition
from localmcp.index.passages import best_matches
from localmcp.index.search import Index, SearchRequest
from localmcp.index.sources import put_source
from localmcp.index.vector import Made, exact_cosines
from localmcp.models.embedder import LazyEmbedder, ModelIdentity
from localmcp.storage.database import Database
from localmcp.wording.normalize import stop_words

DIMENSION, CLUSTERS, SPREAD = 384, 4000, 0.94
VOCABULARY, CHUNK_WORDS, CHUNKS_IN_SOURCE, SOURCES_IN_TRANSACTION = 50_000, 150, 10, 20
SEED = 20


class Corpus:
    """Synthetic chunks, the same for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        fixed = np.random.default_rng(SEED)
        self.words = _vocabulary(fixed)
        frequency = 1 / (np.arange(1, VOCABULARY + 1) + 2.7) ** 1.07
        self.cumulative = np.cumsum(frequency / frequency.sum())
        self.centres = _unit(fixed.standard_normal((CLUSTERS, DIMENSION), dtype=np.float32))
        sizes = 1 / np.arange(1, CLUSTERS + 1) ** 0.8
        self.cluster_shares = np.cumsum(sizes / sizes.sum())
        self.random = np.random.default_rng(seed)

    def text(self, words: int = CHUNK_WORDS) -> str:
        picks = np.searchsorted(self.cumulative, self.random.random(words))
        return " ".join(self.words[i] for i in np.minimum(picks, VOCABULARY - 1)) + "."

    def vectors(self, count: int) -> Any:
        """Members of random clusters: two of one cluster have a cosine of about 0.53."""
        return self.members(self.random.random(count))

    def members(self, shares: Any) -> Any:
        """A vector near the centre of the cluster at each share, 0..1, of all vectors."""
        count = len(shares)
        picks = np.minimum(np.searchsorted(self.cluster_shares, shares), CLUSTERS - 1)
        noise = self.random.standard_normal((count, DIMENSION), dtype=np.float32) / np.sqrt(DIMENSION)
        return _unit(self.centres[picks] + SPREAD * noise)

    def queries(self) -> dict[str, list[str]]:
        """Sentences (half function words), three content words, and three content words of which one is misspelled."""
        sentences = [self._sentence() for _ in range(200)]
        words = [" ".join(self._content(3)) for _ in range(200)]
        typos = [" ".join([*self._content(2), _misspelled(self._content(1)[0])]) for _ in range(200)]
        return {"sentence": sentences, "words": words, "typo": typos}

    def _sentence(self) -> str:
        function = self.random.choice(self.words[:40], 6)
        return " ".join(self.random.permutation([*function, *self._content(5)]))

    def _content(self, count: int) -> list[str]:
        """As people choose them: evenly over the logarithm of the rank, from the 150th word on."""
        ranks = np.exp(self.random.uniform(np.log(150), np.log(VOCABULARY * 0.6), count)).astype(int)
        return [self.words[rank] for rank in ranks]


class ClusterEmbedder:
    """Gives each query a vector near a random cluster's centre; the same query always gets the same one."""

    identity = ModelIdentity("synthetic", "0" * 64, "none", "", "", DIMENSION, 256)

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.vectors: dict[str, Any] = {}

    def embed_query(self, text: str) -> Any:
        if text not in self.vectors:
            self.vectors[text] = self._embed(text)
        return self.vectors[text]

    def _embed(self, text: str) -> Any:
        self.corpus.random = np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]))
        return self.corpus.vectors(1)[0]

    def embed_passages(self, texts: Any) -> Any:
        raise NotImplementedError

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def _vocabulary(random: Any) -> list[str]:
    onsets = "b br c ch d dr f fl g gr h j k l m n p pl qu r s st t tr v w".split()
    nuclei, codas = "a e i o u ai ea io ou".split(), ["", "n", "r", "s", "t", "l", "nd", "st", "m", "ck"]
    made = dict.fromkeys(sorted(stop_words("english")))
    while len(made) < VOCABULARY:
        syllables = 1 + int(random.integers(1, 4))
        made["".join(str(random.choice(part)) for _ in range(syllables) for part in (onsets, nuclei, codas))] = None
    return list(made)[:VOCABULARY]


def _misspelled(word: str) -> str:
    middle = len(word) // 2
    return word[:middle] + word[middle + 1] + word[middle] + word[middle + 2 :] if len(word) > middle + 1 else word


def _unit(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")


# ---------------------------------------------------------------- building


def build(path: Path, size: int, corpus: Corpus | None = None) -> float:
    """Make the file unless it is there; chunks a second, from the file itself when it was made before."""
    note = path.with_suffix(".json")
    if note.exists():
        return json.loads(note.read_text())["rate"]
    for left_over in path.parent.glob(f"{path.name}*"):
        left_over.unlink()
    database = Database(path)
    sources = _sources(corpus or Corpus(), size // CHUNKS_IN_SOURCE)
    spent = 0.0
    while batch := list(islice(sources, SOURCES_IN_TRANSACTION)):
        start = time.perf_counter()
        _store(database, batch)
        spent += time.perf_counter() - start
    database.close()
    rate = size / spent
    note.write_text(json.dumps({"rate": rate}))
    return rate


def _store(database: Database, batch: list[tuple[str, list[str], Any]]) -> None:
    with database.write() as connection:
        model_id = ensure_model(connection, ClusterEmbedder.identity)
        collection = claim_collection(connection, ensure_collection(connection, "default"), model_id)
        for title, texts, vectors in batch:
            starts = accumulate((len(text) for text in texts), initial=0)
            drafts = [_chunk(*each, title, position) for position, each in enumerate(zip(texts, starts, strict=False))]
            source = SourceDraft(
                collection.id, None, title, "docs", "markdown", f"/synthetic/{title.replace(' ', '/')}.md",
                hashlib.sha256(title.encode()).hexdigest(), 10_000, 1, "english", {"tag": title[:1]}, drafts,
            )  # fmt: skip
            embeddings = {draft.digest: Made(vector.tobytes()) for draft, vector in zip(drafts, vectors, strict=True)}
            put_source(connection, source, embeddings, model_id)


def _sources(corpus: Corpus, count: int) -> Iterator[tuple[str, list[str], Any]]:
    for number in range(count):
        title = f"{corpus.text(3).rstrip('.')} {number}"
        yield title, [corpus.text() for _ in range(CHUNKS_IN_SOURCE)], corpus.vectors(CHUNKS_IN_SOURCE)


def _chunk(text: str, start: int, title: str, position: int) -> ChunkDraft:
    digest = hashlib.blake2b(f"{title}{position}".encode(), digest_size=16).digest()
    return ChunkDraft(start, start + len(text), text, (title,), 1, 9, None, None, "english", "prose", digest)


# ---------------------------------------------------------------- measuring


def measure(index: Index, queries: list[str], **options: Any) -> dict[str, float]:
    """p50 and p95 of the whole search, its mean processor time, and p50 of its steps, in milliseconds."""
    for text in queries[:20]:
        index.search(SearchRequest(text, **options))
    spent: list[float] = []
    steps: dict[str, list[float]] = {}
    processor = time.process_time()
    for text in queries:
        start = time.perf_counter()
        outcome = index.search(SearchRequest(text, **options))
        spent.append((time.perf_counter() - start) * 1000)
        for step, milliseconds in outcome.milliseconds.items():
            steps.setdefault(step, []).append(milliseconds)
    processor = (time.process_time() - processor) * 1000 / len(queries)
    row = {"p50": statistics.median(spent), "p95": statistics.quantiles(spent, n=20)[-1], "cpu": processor}
    return {**row, **{step: statistics.median(times) for step, times in steps.items()}}


def measure_recall(index: Index, queries: list[str]) -> float:
    """Share of the ten truly nearest chunks that the vector arm finds."""
    shares: list[float] = []
    for text in queries:
        outcome = index.search(SearchRequest(text, mode="semantic", limit=10))
        shares.append(len({hit.passage.chunk_id for hit in outcome.hits} & _truly_nearest(index, text)) / 10)
    return statistics.mean(shares)


def _truly_nearest(index: Index, text: str) -> set[int]:
    with index.database.read() as connection:
        model_id = find_model(connection, index.embedder.get().identity) or 0
        ids = [collection.id for collection in visible_collections(connection)]
        blocks = index.signs.blocks(connection, model_id, ids)
        vector = index.embedder.embed_query(text).astype("<f4", copy=False)
        cosines = exact_cosines(connection, model_id, np.concatenate([block.ids for block in blocks]), vector)
        return {match.chunk_id for match in best_matches([cosines], 10)}


def resident_megabytes() -> float:
    """Memory in use; the peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def run(size: int, workdir: Path) -> dict[str, Any]:
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    path = workdir / f"speed-{size}.localmcp"
    rate = build(path, size)
    corpus = Corpus(SEED + 1)
    queries = corpus.queries()
    embedder = LazyEmbedder(lambda: ClusterEmbedder(corpus))
    for text in chain(*queries.values()):
        embedder.get().embed_query(text)
    index = Index(Database(path), embedder)
    start = time.perf_counter()
    index.search(SearchRequest(queries["sentence"][0]))
    result: dict[str, Any] = {"size": size, "insert_rate": rate, "file_mb": path.stat().st_size / 1e6}
    result["first_ms"] = (time.perf_counter() - start) * 1000
    result |= {kind: measure(index, texts) for kind, texts in queries.items()}
    result["semantic"] = measure(index, queries["sentence"], mode="semantic")
    result["keyword"] = measure(index, queries["sentence"], mode="keyword")
    result["filtered"] = measure(index, queries["sentence"], filters=Filters(condition=parse_condition({"tag": "t"})))
    for text in (queries["sentence"] + queries["words"])[:400]:
        index.search(SearchRequest(text))
    result["rss_mb"] = resident_megabytes()
    result["recall"] = measure_recall(index, queries["sentence"][:50])
    return result


def show(result: dict[str, Any]) -> None:
    print(
        f"\n{result['size']:,} chunks: {result['file_mb']:.0f} MB, {result['insert_rate']:,.0f} chunks/s inserted, "
        f"recall@10 {result['recall']:.4f}, first search {result['first_ms']:.0f} ms, "
        f"{result['rss_mb']:.0f} MB resident after more than 1000 searches"
    )
    steps = ("p50", "p95", "cpu", "embedding", "filters", "keyword", "vector", "rows")
    print(f"{'milliseconds':14}" + "".join(f"{step:>10}" for step in steps))
    for kind in ("sentence", "words", "typo", "semantic", "keyword", "filtered"):
        print(f"{kind:14}" + "".join(f"{result[kind].get(step, 0.0):10.2f}" for step in steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [run(size, arguments.workdir) for size in arguments.size]
    for result in results:
        show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
