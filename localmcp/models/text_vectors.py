"""Vectors of short texts that seldom change, kept by digest in memory and in a file of the cache directory."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from localmcp.arrays import NDArray, np
from localmcp.files import write_atomically

if TYPE_CHECKING:
    from localmcp.models import Embedder

log = logging.getLogger(__name__)

KEPT_TEXTS = 30_000
"""Beyond that, the texts that came first are forgotten."""
TOGETHER = 64
"""Texts that are embedded before they are kept, so that an end in between loses little."""


def digest_of(text: str) -> str:
    """Return 32 hex digits of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class TextVectors:
    """Embeds each text once for each model, or twice where two threads meet. Processes may share the folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` None keeps the vectors in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._vectors: dict[str, dict[str, NDArray[np.float32]]] = {}
        """By model and digest."""

    def of(self, texts: Collection[str], embedder: Embedder) -> dict[str, NDArray[np.float32]]:
        """Return text -> unit vector of shape (dimension,).

        Raises:
            ModelUnavailable: the model fails.
        """
        digests = {text: digest_of(text) for text in texts}
        model = embedder.identity.fingerprint
        with self._lock:
            kept = self._of_model(model)
            rows_by_digest = {digest: row for digest in digests.values() if (row := kept.get(digest)) is not None}
        missing = {digest: text for text, digest in sorted(digests.items()) if digest not in rows_by_digest}
        for start in range(0, len(missing), TOGETHER):
            part = list(missing)[start : start + TOGETHER]
            # Not under the lock: hundreds of texts take seconds, and other threads may need only what is there.
            made = dict(zip(part, embedder.embed_passages([missing[digest] for digest in part]), strict=True))
            rows_by_digest.update(made)
            self._keep(model, made, save=start + TOGETHER >= len(missing))
        return {text: rows_by_digest[digest] for text, digest in digests.items()}

    def rows(self, texts: Sequence[str], embedder: Embedder) -> NDArray[np.float32]:
        """Return unit rows (texts, dimension), in the order of the texts, of which there is at least one.

        Raises:
            ModelUnavailable: the model fails.
        """
        rows_by_digest = self.of(texts, embedder)
        return np.stack([rows_by_digest[text] for text in texts])

    @property
    def has_file(self) -> bool:
        """Whether any process has kept vectors in the folder, of whatever model."""
        return self._folder is not None and any(self._folder.glob("*.npz"))

    def _keep(self, model: str, made: dict[str, NDArray[np.float32]], *, save: bool) -> None:
        with self._lock:
            kept = self._of_model(model)
            kept.update(made)
            for digest in list(kept)[: max(0, len(kept) - KEPT_TEXTS)]:
                del kept[digest]
            if save:
                self._save(model)

    def _of_model(self, model: str) -> dict[str, NDArray[np.float32]]:
        """Return what is kept of a model, by digest; its file is read when it is first asked for."""
        if model not in self._vectors:
            self._vectors[model] = self._read(model)
        return self._vectors[model]

    def _read(self, model: str) -> dict[str, NDArray[np.float32]]:
        path = self._path(model)
        if path is None or not path.exists():
            return {}
        from zipfile import BadZipFile

        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                digests, rows = stored["digests"], stored["vectors"].astype(np.float32)
                return dict(zip(digests.tolist(), rows, strict=True))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            log.warning("%s cannot be read and is made again: %s", path, error)
            return {}

    def _save(self, model: str) -> None:
        path, kept = self._path(model), self._vectors[model]
        if path is None:
            return
        content = BytesIO()
        np.savez(content, digests=np.array(list(kept)), vectors=np.stack(list(kept.values())))
        try:
            write_atomically(path, content.getvalue())
        except OSError as error:
            log.info("the vectors of the tools cannot be kept in %s: %s", path, error)

    def _path(self, model: str) -> Path | None:
        return self._folder / f"tools-{model}.npz" if self._folder else None
