"""An embedder that loads in the background, and remembers the vectors of recent queries."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from localmcp.arrays import Vector, Vectors, np
from localmcp.errors import LocalMCPError, ModelUnavailable
from localmcp.malloc_trim import return_freed_memory
from localmcp.models.embedder import Embedder, require_query

_log = logging.getLogger(__name__)

CACHED_QUERIES = 1024


class _Attempt:
    """One try at opening the model."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.released = threading.Event()
        """Set when nobody needs the model any more, so that its thread ends at once."""
        self.embedder: Embedder | None = None
        self.error: LocalMCPError | None = None
        self.ended = 0.0


class LazyEmbedder:
    """Holds the way to open a model, opens it at most once at a time, and keeps it.

    A failure is kept as well, so that every call says the same thing; after `retry_after` seconds,
    or `reset`, the next call tries again. A model that nobody used for `idle_seconds` is dropped: several copies of
    the server run on one laptop, and loading it again takes a quarter of a second.
    """

    def __init__(
        self, opener: Callable[[], Embedder], *, retry_after: float = 30.0, idle_seconds: float = 600.0
    ) -> None:
        self._opener = opener
        self._retry_after = retry_after
        self._idle_seconds = idle_seconds
        self._used = time.monotonic()
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self.patience = 0.0
        """Seconds that a wait for the model lasts at least: a program that ends after one call cannot try again."""
        self.misses = 0
        """Queries that were handed to the model."""

    @property
    def loaded(self) -> bool:
        """Whether the model is ready, so that `get` does not wait."""
        attempt = self._attempt
        return attempt is not None and attempt.embedder is not None

    def start_loading(self) -> None:
        """Begin loading in a daemon thread, unless that is under way or done; never raises."""
        self._current_attempt()

    def reset(self) -> None:
        """Forget the model, a kept failure, and the cached queries; the next call loads again."""
        with self._lock:
            if self._attempt is not None:
                self._attempt.released.set()
            self._attempt = None
            self._queries = OrderedDict()

    def forget_queries(self) -> None:
        """Forget the cached queries; for measuring what an embedding costs."""
        with self._lock:
            self._queries = OrderedDict()

    def get(self, wait: float | None = None) -> Embedder:
        """The model, waiting up to `wait` seconds for it, or `patience` if that is longer; None waits as long as it
        takes.

        Raises:
            ModelUnavailable: still loading after `wait` seconds, or it cannot be loaded.
            ConfigurationError: the setting names no model.
        """
        self._used = time.monotonic()
        attempt = self._current_attempt()
        if not attempt.done.wait(None if wait is None else max(wait, self.patience)):
            raise ModelUnavailable("The embedding model is still loading.", hint="Try again in a few seconds.")
        if (embedder := attempt.embedder) is not None:
            return embedder
        if attempt.error is None:
            # Between the two lines above it was idle for long enough.
            return self.get(wait)
        raise attempt.error.with_traceback(None)

    def embed_query(self, text: str, wait: float | None = 5.0) -> Vector:
        """Return the unit vector of `text`, from the cache of the last 1024 queries when it is there.

        `wait` is the longest time in seconds to wait for the model to load. Raises what `embed_queries` raises.
        """
        return self.embed_queries([text], wait)[0]

    def embed_queries(self, texts: Sequence[str], wait: float | None = 5.0) -> Vectors:
        """The unit vectors of several queries, shape (n, dimension); those that are not in the cache go to the model
        together.

        Raises:
            InvalidInput: a text is empty or only white space.
            ModelUnavailable: as `get`.
        """
        embedder, cache = self.get(wait), self._queries
        for text in texts:
            require_query(text)
        with self._lock:
            vectors = {text: cache[text] for text in texts if text in cache}
        fresh = [text for text in dict.fromkeys(texts) if text not in vectors]
        self.misses += len(fresh)
        # Where questions have no prefix of their own, they and passages are the same kind of text to the model.
        together = len(fresh) > 1 and embedder.identity.query_prefix == embedder.identity.passage_prefix
        made = embedder.embed_passages(fresh) if together else map(embedder.embed_query, fresh)
        vectors |= zip(fresh, made, strict=True)
        with self._lock:
            for text in dict.fromkeys(texts):
                cache[text] = vectors[text]
                cache.move_to_end(text)
            while len(cache) > CACHED_QUERIES:
                cache.popitem(last=False)
        return np.stack([vectors[text] for text in texts])

    def _current_attempt(self) -> _Attempt:
        with self._lock:
            attempt = self._attempt
            failed = attempt is not None and attempt.error is not None
            if attempt is None or (failed and attempt.ended <= time.monotonic() - self._retry_after):
                attempt = self._attempt = _Attempt()
                try:
                    threading.Thread(target=self._load, args=(attempt,), name="localmcp-model", daemon=True).start()
                except RuntimeError as error:
                    attempt.error = ModelUnavailable(f"No thread to load the embedding model in: {error}.")
                    attempt.done.set()
            return attempt

    def _load(self, attempt: _Attempt) -> None:
        """Open the model, wait until nobody has used it for long, and drop it."""
        try:
            attempt.embedder = self._opener()
            # What the model's file was unpacked in: 50 MB of the default one.
            return_freed_memory()
        except LocalMCPError as error:
            attempt.error = error
        except Exception as error:
            _log.exception("the embedding model failed to load")
            attempt.error = ModelUnavailable(f"The embedding model cannot be loaded: {error}.")
        finally:
            attempt.ended = time.monotonic()
            if attempt.embedder is None and attempt.error is None:
                attempt.error = ModelUnavailable("Loading the embedding model was interrupted.")
            attempt.done.set()
        while attempt.error is None and self._attempt is attempt:
            idle = time.monotonic() - self._used
            if idle < self._idle_seconds:
                attempt.released.wait(self._idle_seconds - idle)
                continue
            with self._lock:
                self._attempt = None
            attempt.embedder = None
            gc.collect()
            return_freed_memory()
