"""Vectors of short texts that seldom change, kept by digest in memory and in a file of the cache directory."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from localmcp.arrays import Vector, Vectors, np
from localmcp.files import write_atomically

if TYPE_CHECKING:
    from localmcp.models import Embedder

log = logging.getLogger(__name__)

TOGETHER = 64
"""Texts that are embedded before they are kept, so that an end in between loses little."""


class TextVectors:
    """Embeds each text once for each model, or twice where two threads meet. Processes may share the folder."""

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
                log.warning("%s cannot be read and is made again: %s", path, error)
        return self._vectors[model]

    def _save(self, model: str) -> None:
        if self._folder is None:
            return
        content, kept = BytesIO(), self._vectors[model]
        np.savez(content, digests=np.array(list(kept)), vectors=np.stack(list(kept.values())))
        try:
            write_atomically(self._folder / f"tools-{model}.npz", content.getvalue())
        except OSError as error:
            log.info("the vectors of the tools cannot be kept in %s: %s", self._folder, error)
