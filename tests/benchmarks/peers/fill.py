"""Puts texts whose vectors are known into a rival's own store, as the rival would have, without embedding them again.

    PYTHON fill.py qdrant|chroma TEXTS.json VECTORS.npy STORE

PYTHON is the interpreter of the rival's environment, so that the store is of the version that will read it. TEXTS is a
JSON array, VECTORS (n, dimension) float32. Prints the seconds it took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 1000


def fill_qdrant(texts: list[str], vectors: Any, store: str) -> None:
    """The collection `c` with the names that mcp-server-qdrant gives its vector and its payload."""
    from qdrant_client import QdrantClient, models

    vector = "fast-all-minilm-l6-v2"
    client = QdrantClient(path=store)
    size = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("c", vectors_config={vector: size})
    for start in range(0, len(texts), BATCH):
        places = range(start, min(start + BATCH, len(texts)))
        points = [
            models.PointStruct(
                id=place + 1,
                vector={vector: vectors[place].tolist()},
                payload={"document": texts[place], "metadata": {"id": place}},
            )
            for place in places
        ]
        client.upsert("c", points)
    client.close()


def fill_chroma(texts: list[str], vectors: Any, store: str) -> None:
    """The collection `documents`, as chroma-mcp makes it."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(store, settings=Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection("documents")
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        ids = [str(start + number) for number in range(len(part))]
        collection.add(ids=ids, documents=part, embeddings=vectors[start : start + len(part)])


FILLERS = {"qdrant": fill_qdrant, "chroma": fill_chroma}


def main() -> None:
    rival, texts, vectors, store = sys.argv[1:]
    begin = time.perf_counter()
    FILLERS[rival](json.loads(Path(texts).read_text(encoding="utf-8")), np.load(vectors), store)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
