"""What is kept: an embedder that loads in the background, vectors of recent queries, and those of texts that stay."""

from __future__ import annotations

import gc
import hashlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

from localmcp.arrays import Vector, Vectors, np
from localmcp.errors import LocalMCPError, ModelUnavailable
from localmcp.files import write_atomically
from localmcp.malloc_trim import return_freed_memory
from localmcp.models.embedder import Embedder, require_query

_log = logging.getLogger(__name__)


class LazyEmbedder:
    """Holds the way to open a model, opens it at most once at a time, and keeps it.

    A failure is kept as well, so that every call says the same thing; after `retry_after` seconds,
    or `reset`, the next call tries again. A model that nobody used for `idle_seconds` is dropped: several copies of
    the server run on one laptop, and loading it again takes a quarter of a second.
    """

    def __init__(
        self, opener: Callable[[], Embedder], *, retry_after: float = 30.0, idle_seconds: float = 600.0
    ) -> None:
        self._opener, self._retry_after, self._idle_seconds = opener, retry_after, idle_seconds
        self._used = self._failed = time.monotonic()
        self._changed = threading.Condition()
        self._opening: Future[Embedder] | None = None
        self._queries: dict[str, Vector] = {}
        """Those used last come last."""
        self.patience = 0.0
        """Seconds that a wait for the model lasts at least: a program that ends after one call cannot try again."""
        self.misses = 0
        """Queries that were handed to the model."""

    @property
    def loaded(self) -> bool:
        """Whether the model is ready, so that `get` does not wait."""
        opening = self._opening
        return opening is not None and opening.done() and opening.exception() is None

    def start_loading(self) -> Future[Embedder]:
        """Begin loading in a daemon thread, unless that is under way or done; return where the model will be."""
        with self._changed:
            opening = self._opening
            has_failed = opening is not None and opening.done() and opening.exception() is not None
            if opening is None or (has_failed and self._failed <= time.monotonic() - self._retry_after):
                opening = self._opening = Future[Embedder]()
                threading.Thread(target=self._load, args=(opening,), name="localmcp-model", daemon=True).start()
            return opening

    def reset(self) -> None:
        """Forget the model, a kept failure, and the cached queries; the next call loads again."""
        with self._changed:
            self._opening, self._queries = None, {}
            self._changed.notify_all()

    def forget_queries(self) -> None:
        """Forget the cached queries; for measuring what an embedding costs."""
        with self._changed:
            self._queries = {}

    def get(self, wait: float | None = None) -> Embedder:
        """Return the model, waiting up to `wait` seconds for it, or `patience` if that is longer; None waits as long as
        it takes.

        Raises:
            ModelUnavailable: still loading after `wait` seconds, or it cannot be loaded.
            ConfigurationError: the setting names no model.
        """
        self._used = time.monotonic()
        opening = self.start_loading()
        try:
            error = opening.exception(None if wait is None else max(wait, self.patience))
        except TimeoutError:
            hint = "Try again in a few seconds."
            raise ModelUnavailable("The embedding model is still loading.", hint=hint) from None
        if error is not None:
            raise error.with_traceback(None)
        return opening.result()

    def embed_query(self, text: str, wait: float | None = 5.0) -> Vector:
        """Return the unit vector of `text`, from the cache of the last 1024 queries when it is there.

        `wait` is the longest time in seconds to wait for the model to load. Raises what `embed_queries` raises.
        """
        return self.embed_queries([text], wait)[0]

    def embed_queries(self, texts: Sequence[str], wait: float | None = 5.0) -> Vectors:
        """Return the unit vectors of several queries, shape (n, dimension); those that are not in the cache go to the
        model together.

        Raises:
            InvalidInput: a text is empty or only white space.
            ModelUnavailable: as `get`.
        """
        embedder, cache = self.get(wait), self._queries
        for text in texts:
            require_query(text)
        with self._changed:
            vectors = {text: cache[text] for text in texts if text in cache}
        fresh = [text for text in dict.fromkeys(texts) if text not in vectors]
        self.misses += len(fresh)
        # Where questions have no prefix of their own, they and passages are the same kind of text to the model.
        together = len(fresh) > 1 and embedder.identity.query_prefix == embedder.identity.passage_prefix
        made = embedder.embed_passages(fresh) if together else map(embedder.embed_query, fresh)
        vectors |= zip(fresh, made, strict=True)
        with self._changed:
            for text in vectors:
                cache.pop(text, None)
            cache |= vectors
            for text in [*cache][: max(len(cache) - 1024, 0)]:
                del cache[text]
        return np.stack([vectors[text] for text in texts])

    def _load(self, opening: Future[Embedder]) -> None:
        """Open the model, wait until nobody has used it for long, and drop it."""
        try:
            embedder = self._opener()
            # What the model's file was unpacked in: 50 MB of the default one.
            return_freed_memory()
        except BaseException as error:
            self._failed = time.monotonic()
            if not isinstance(error, LocalMCPError):
                _log.exception("the embedding model failed to load")
                error = ModelUnavailable(f"The embedding model cannot be loaded: {error}.")
            opening.set_exception(error)
            return
        opening.set_result(embedder)
        reference = weakref.ref(opening)
        del embedder, opening
        with self._changed:
            while (idle := time.monotonic() - self._used) < self._idle_seconds:
                if self._opening is not reference():
                    return
                self._changed.wait(self._idle_seconds - idle)
            if self._opening is reference():
                self._opening = None
        gc.collect()
        return_freed_memory()


# ---------------------------------------------------------------- vectors of texts that seldom change

TOGETHER = 64
"""Texts that are embedded before they are kept, so that an end in between loses little."""


class TextVectors:
    """Vectors of short texts that seldom change, kept by digest in memory and in a file of the cache directory.

    A text is embedded once for each model, or twice where two threads meet. Processes may share the folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` None keeps the vectors in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._vectors: dict[str, dict[str, Vector]] = {}
        """By model and digest."""

    def of(self, texts: Collection[str], embedder: Embedder) -> dict[str, Vector]:
        """Return text -> unit vector of shape (dimension,).

        Raises:
            ModelUnavailable: the model fails.
        """
        digests = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] for text in texts}
        model = embedder.identity.fingerprint
        with self._lock:
            kept = self._of_model(model)
            rows_by_digest = {digest: kept[digest] for digest in digests.values() if digest in kept}
        missing = {digest: text for text, digest in sorted(digests.items()) if digest not in rows_by_digest}
        for start in range(0, len(missing), TOGETHER):
            part = list(missing)[start : start + TOGETHER]
            # Not under the lock: hundreds of texts take seconds, and other threads may need only what is there.
            made = dict(zip(part, embedder.embed_passages([missing[digest] for digest in part]), strict=True))
            rows_by_digest |= made
            with self._lock:
                kept = self._of_model(model)
                kept |= made
                # Of many, those that came first are forgotten.
                for digest in list(kept)[: max(0, len(kept) - 30_000)]:
                    del kept[digest]
                if start + TOGETHER >= len(missing):
                    self._save(model)
        return {text: rows_by_digest[digest] for text, digest in digests.items()}

    def rows(self, texts: Sequence[str], embedder: Embedder) -> Vectors:
        """Return unit rows (texts, dimension), in the order of the texts, of which there is at least one.

        Raises:
            ModelUnavailable: the model fails.
        """
        rows_by_text = self.of(texts, embedder)
        return np.stack([rows_by_text[text] for text in texts])

    @property
    def has_file(self) -> bool:
        """Whether any process has kept vectors in the folder, of whatever model."""
        return self._folder is not None and any(self._folder.glob("*.npz"))

    def _of_model(self, model: str) -> dict[str, Vector]:
        """Return what is kept of a model, by digest; its file is read when it is first asked for."""
        if model not in self._vectors:
            self._vectors[model] = {}
            if self._folder is None:
                return self._vectors[model]
            path = self._folder / f"tools-{model}.npz"
            try:
                with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                    rows = stored["vectors"].astype(np.float32)
                    self._vectors[model] = dict(zip(stored["digests"].tolist(), rows, strict=True))
            except FileNotFoundError:
                pass
            except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
                _log.warning("%s cannot be read and is made again: %s", path, error)
        return self._vectors[model]

    def _save(self, model: str) -> None:
        if self._folder is None:
            return
        content, kept = BytesIO(), self._vectors[model]
        np.savez(content, digests=np.array(list(kept)), vectors=np.stack(list(kept.values())))
        try:
            write_atomically(self._folder / f"tools-{model}.npz", content.getvalue())
        except OSError as error:
            _log.info("the vectors of the tools cannot be kept in %s: %s", self._folder, error)
