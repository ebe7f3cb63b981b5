"""A model that runs in this process: one text at a time, passages side by side and questions by themselves."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from localmcp.arrays import Ids, Vector, Vectors, np
from localmcp.models.embedder import ModelIdentity, require_query
from localmcp.models.native import explained, native_calls, run_beside
from localmcp.models.tokens import Tokens

Run = Callable[[Ids], Vector]
"""From the token ids of a text, special ones included, to its unit vector."""

SHORT_CHARACTERS = 300
"""Texts up to this length are read as questions are: tools, rules and titles keep their exact vectors."""
FEW_PASSAGES = 16
"""So few are embedded in the calling thread alone, whose priority may be low."""


class LocalModel(ABC):
    """A loaded model and its tokenizer; safe to call from several threads.

    Questions have a copy of the model that works on all threads, which is over a third faster than one alone. Passages
    run side by side, each on one thread, in a second copy that is loaded at the first long one: half the processor time
    of sharing each. A text has the same vector whatever it is embedded beside.
    """

    def __init__(self, run: Run, tokens: Tokens, identity: ModelIdentity, window: int, threads: int) -> None:
        """`run` reads questions; `window` is how many tokens of a text are read, special ones left out."""
        self.count_tokens = tokens
        self.identity = identity
        self._tokens = tokens
        self._window = window
        self._threads = threads
        self._run_question = run
        self._run_passage: Run | None = None
        self._loading = threading.Lock()
        # onnxruntime keeps working memory for every run.
        self._question_slots = threading.BoundedSemaphore(1)
        self._passage_slots = threading.BoundedSemaphore(threads)

    @abstractmethod
    def _load_for_passages(self) -> Run:
        """Return the copy of the model that reads passages, on one thread."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`.

        Text past `identity.max_tokens` is not read.

        Raises:
            ModelUnavailable: there is no room for the second copy of the model.
        """
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)

        def embed(row: int) -> None:
            vectors[row] = self._passage_vector(texts[row])

        if any(len(text) > SHORT_CHARACTERS for text in texts):
            self._passages()
        threads = 1 if len(texts) <= FEW_PASSAGES else self._threads
        # The longest first, so that no thread begins a long one at the end.
        run_beside(embed, sorted(range(len(texts)), key=lambda row: -len(texts[row])), threads)
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._query_vector(self.identity.query_prefix + require_query(text))

    def _passage_vector(self, text: str) -> Vector:
        prefixed = self.identity.passage_prefix + text
        if len(text) <= SHORT_CHARACTERS:
            return self._query_vector(prefixed)
        run = self._passages()
        with self._passage_slots, native_calls:
            return run(self._tokens.model_ids(prefixed, self._window))

    def _query_vector(self, text: str) -> Vector:
        with self._question_slots, native_calls:
            return self._run_question(self._tokens.model_ids(text, self._window))

    def _passages(self) -> Run:
        with self._loading:
            if self._run_passage is None:
                with explained(self.identity.name, "Free some memory, or set threads to 1."):
                    self._run_passage = self._load_for_passages()
            return self._run_passage
