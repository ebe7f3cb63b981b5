"""One vector engine in a process of its own, asked in JSON lines: so each has its own memory, and all take turns.

    PYTHON engines.py ENGINE VECTORS.npy QUERIES.npy FOLDER

ENGINE is one of localmcp, faiss, sqlite-vec, chromadb, lancedb. VECTORS (n, dimension) and QUERIES are float32, unit
length.
The first line that comes out tells how the index was made; then each line in, {"query": 5, "k": 10}, is answered by
{"ids": [...], "ms": 1.2}, the time measured here. {"memory": true} is answered by {"rss_mb": 80.0}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Search = Callable[[Any, int], list[int]]
BATCH = 5000


def resident_megabytes() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def bytes_under(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def open_localmcp(vectors: Any, folder: Path) -> tuple[Search, Path]:
    """The vector arm over the file that `search_speed.build` made in the folder; its chunks hold these vectors."""
    from search_speed import ClusterEmbedder

    from localmcp.index.collections import find_model
    from localmcp.index.vector import SignIndex, nearest_chunks
    from localmcp.storage.database import Database, read_generations

    path = folder / f"speed-{len(vectors)}.localmcp"
    database = Database(path, read_only=True)
    with database.read() as connection:
        model_id = find_model(connection, ClusterEmbedder.identity)
        assert model_id is not None
        first = connection.execute("select min(id) from chunks").get
    signs = SignIndex(model_id)

    def search(query: Any, k: int) -> list[int]:
        with database.read() as connection:
            blocks = signs.blocks(connection, read_generations(connection).signs, [1])
            return [each - first for each, _ in nearest_chunks(connection, model_id, blocks, query, k)]

    return search, path


def open_faiss(vectors: Any, folder: Path) -> tuple[Search, Path]:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    path = folder / f"faiss-{len(vectors)}"
    faiss.write_index(index, str(path))
    return lambda query, k: index.search(query[None], k)[1][0].tolist(), path


def open_sqlite_vec(vectors: Any, folder: Path) -> tuple[Search, Path]:
    import apsw
    import sqlite_vec

    path = folder / f"vec0-{len(vectors)}.sqlite"
    path.unlink(missing_ok=True)
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.pragma("journal_mode", "wal")
    connection.execute(f"create virtual table v using vec0(embedding float[{vectors.shape[1]}] distance_metric=cosine)")
    with connection:
        rows = ((number, vector.tobytes()) for number, vector in enumerate(vectors))
        connection.executemany("insert into v (rowid, embedding) values (?, ?)", rows)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    sql = "select rowid from v where embedding match ? and k = ? order by distance"
    return lambda query, k: [row for (row,) in connection.execute(sql, (query.tobytes(), k))], path


def open_chromadb(vectors: Any, folder: Path) -> tuple[Search, Path]:
    import chromadb
    from chromadb.config import Settings

    path = folder / f"chroma-{len(vectors)}"
    client = chromadb.PersistentClient(str(path), settings=Settings(anonymized_telemetry=False))
    if "vectors" in [each.name for each in client.list_collections()]:
        client.delete_collection("vectors")
    made = client.create_collection("vectors", metadata={"hnsw:space": "cosine"}, embedding_function=None)
    for start in range(0, len(vectors), BATCH):
        part = vectors[start : start + BATCH]
        made.add(ids=[str(start + number) for number in range(len(part))], embeddings=part)

    def search(query: Any, k: int) -> list[int]:
        found = made.query(query_embeddings=[query], n_results=k, include=[])
        return [int(each) for each in found["ids"][0]]

    return search, path


def open_lancedb(vectors: Any, folder: Path) -> tuple[Search, Path]:
    import lancedb
    import pyarrow as pa

    path = folder / f"lance-{len(vectors)}"
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    table = pa.table({"id": pa.array(range(len(vectors))), "vector": column})
    made = lancedb.connect(str(path)).create_table("v", table, mode="overwrite")

    def search(query: Any, k: int) -> list[int]:
        found = made.search(query).distance_type("cosine").select(["id", "_distance"]).limit(k).to_arrow()
        return found["id"].to_pylist()

    return search, path


ENGINES: dict[str, Callable[[Any, Path], tuple[Search, Path]]] = {
    "localmcp": open_localmcp,
    "faiss": open_faiss,
    "sqlite-vec": open_sqlite_vec,
    "chromadb": open_chromadb,
    "lancedb": open_lancedb,
}


def main() -> None:
    name, vectors_file, queries_file, folder = sys.argv[1:5]
    # faiss holds them in memory itself; the others must not be charged for ours.
    vectors = np.load(vectors_file, mmap_mode="r")
    queries = np.load(queries_file)
    start = time.perf_counter()
    search, path = ENGINES[name](vectors, Path(folder))
    took = time.perf_counter() - start
    del vectors
    print(json.dumps({"build_s": took, "file_mb": bytes_under(path) / 1e6}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "memory" in asked:
            print(json.dumps({"rss_mb": resident_megabytes()}), flush=True)
            continue
        start = time.perf_counter()
        ids = search(queries[asked["query"]], asked["k"])
        milliseconds = 1000 * (time.perf_counter() - start)
        print(json.dumps({"ids": ids, "ms": milliseconds}), flush=True)


if __name__ == "__main__":
    main()
