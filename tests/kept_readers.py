"""Reading processes that are kept for the next test: starting one takes a quarter of a second of the processor."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from localmcp.readers.worker_pool import Limits, WorkerPool


class KeptReaders:
    """Takes the place of the pool of a library. Thread-safe: who reads at the same time has a pool of their own."""

    def __init__(self) -> None:
        self._idle: dict[bytes, list[WorkerPool[Any, Any]]] = {}

    @contextmanager
    def pool(
        self,
        work: Callable[[Any, Any], Iterator[Any]],
        *,
        workers: int,
        limits: Limits | None = None,
        size: Callable[[Any], int],
    ) -> Iterator[WorkerPool[Any, Any]]:
        """A pool of one process that was made for the same work and limits, or a new one."""
        idle = self._idle.setdefault(pickle.dumps((work, limits, os.environ["PATH"])), [])
        pool = idle.pop() if idle else WorkerPool(work, workers=1, limits=limits, size=size)
        try:
            yield pool
        except BaseException:
            pool.close()
            raise
        # One whose answers were not all taken has closed itself.
        if not pool.is_closed:
            idle.append(pool)

    def close(self) -> None:
        for pools in self._idle.values():
            for pool in pools:
                pool.close()
