"""Vectors of the real model, computed once a run: its workers share them through a file."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np

from localmcp.models.local_model import LocalModel

QUERY_VECTOR, PASSAGE_VECTOR = LocalModel._query_vector, LocalModel._passage_vector
"""The model itself."""


class RememberedVectors:
    """Takes the place of the model's two ways to read a text. Thread-safe."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._vectors: dict[bytes, Any] = {}
        self._file = sqlite3.connect(file, timeout=60, isolation_level=None, check_same_thread=False)
        self._file.execute("pragma synchronous = off")
        self._file.execute("create table if not exists vectors (text blob primary key, vector blob) without rowid")

    def query_vector(self, model: LocalModel, text: str) -> Any:
        key = self._key(model, text, "query")
        vector = self._find(key)
        return self._keep(key, QUERY_VECTOR(model, text)) if vector is None else vector

    def passage_vector(self, model: LocalModel, text: str) -> Any:
        key = self._key(model, text, "passage")
        vector = self._find(key)
        return self._keep(key, PASSAGE_VECTOR(model, text)) if vector is None else vector

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _key(self, model: LocalModel, text: str, kind: str) -> bytes:
        name = f"{model.identity.sha256}\n{kind}\n{text}"
        return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=20).digest()

    def _find(self, key: bytes) -> Any:
        with self._lock:
            if key not in self._vectors:
                row = self._file.execute("select vector from vectors where text = ?", (key,)).fetchone()
                if row is None:
                    return None
                self._vectors[key] = np.frombuffer(row[0], dtype=np.float32)
            return self._vectors[key].copy()

    def _keep(self, key: bytes, vector: Any) -> Any:
        with self._lock:
            self._vectors[key] = vector.copy()
            self._file.execute("insert or ignore into vectors values (?, ?)", (key, vector.tobytes()))
        return vector
