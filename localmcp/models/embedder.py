"""The interface of an embedding model; one without weights, one that loads late, kept vectors, and two at once."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, ModelUnavailable
from localmcp.files import write_atomically
from localmcp.malloc_trim import return_freed_memory

DEFAULT_NAME = "all-MiniLM-L6-v2"
MULTILINGUAL_NAME = "multilingual-e5-small"
WordCode = tuple[str, bytes]
"""A word as written, and the signs of its vector."""
WORD_CODE_BYTES = 48
"""One bit a dimension: as good as bytes, in an eighth of the room."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which model made a vector; stored beside the vectors so that two models are never mixed (C2-3)."""

    name: str
    sha256: str
    """Of the weights; for an endpoint, whose weights nobody sees, of the model's name."""
    pooling: str
    query_prefix: str
    passage_prefix: str
    dimension: int
    max_tokens: int
    """Tokens of one passage, as `count_tokens` counts them, that the model reads; the rest is ignored."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that are equal when, and only when, two models make comparable vectors.

        The name does not decide: the same weights may be called differently. Nor does the window, which changes what is
        read, not the space.
        """
        decisive = [self.sha256, self.pooling, self.query_prefix, self.passage_prefix, self.dimension]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


class Embedder(Protocol):
    """Turns text into unit vectors. Implementations may be called from several threads at once."""

    identity: ModelIdentity
    """Which model this is."""

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        ...

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,) to compare passages with; InvalidInput if the text is blank."""
        ...

    @property
    def count_tokens(self) -> Callable[[str], int]:
        """Counts the tokens of a whole text, without the prefix and special tokens; picklable for models that come with
        localmcp."""
        ...


def require_query(text: str) -> str:
    """Return the text itself, or InvalidInput when there is nothing in it to search for."""
    if not text.strip():
        raise InvalidInput(f"query is {text!r}, but must contain at least one visible character.")
    return text


def embed_questions(embedder: Embedder, texts: Sequence[str]) -> Iterable[Vector]:
    """Return the unit vectors of questions, made at once where the model reads questions as it reads passages."""
    if len(texts) > 1 and embedder.identity.query_prefix == embedder.identity.passage_prefix:
        return embedder.embed_passages(texts)
    return map(embedder.embed_query, texts)


def is_unit_vector(value: Any, dimension: int) -> bool:
    """Return whether a blob that anybody may have written holds a vector of length 1 (or 0) and that dimension."""
    if not isinstance(value, bytes) or len(value) != 4 * dimension:
        return False
    length = float(np.linalg.norm(np.frombuffer(value, "<f4").astype(np.float64)))
    return abs(length - 1) < 0.01 or length == 0


def unit_rows(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Return each row divided by its Euclidean length, as float32; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32, copy=False)


def without_directions(vectors: Vectors, directions: Vectors) -> Vectors:
    """Return each row less its parts along `directions`, unit vectors at right angles of shape (n, dimension).

    Each row is multiplied by itself: how a product of all of them is rounded depends on how many there are, and a text
    has the same vector whatever it is embedded beside.
    """
    rows = vectors[:, None, :]
    return (rows - (rows @ directions.T) @ directions)[:, 0].astype(np.float32, copy=False)


_WORD = re.compile(r"\w+")
_WORD_OR_NOT = bytes(ord("x" if _WORD.match(chr(code)) else " ") for code in range(256))


class HashEmbedder:
    """Random projection of a bag of words: each word is a fixed vector of +1 and -1 made from its SHAKE-256 digest.

    Its cosines are those of word counts, give or take 1/sqrt(dimension): for tests, and for trying without weights.
    """

    def __init__(self, dimension: int = 384) -> None:
        """`dimension` is a multiple of 8 from 64 to 4096; ConfigurationError for another dimension."""
        if dimension % 8 or not 64 <= dimension <= 4096:
            raise ConfigurationError(f"hash:{dimension} has no such dimension; use a multiple of 8 from 64 to 4096.")
        digest = hashlib.sha256(b"localmcp word hash 1").hexdigest()
        self.identity = ModelIdentity("hash", digest, "sum", "", "", dimension, max_tokens=256)

    def count_tokens(self, text: str) -> int:
        """Return the number of words, which are the tokens of this model."""
        # Counted in bytes where a word begins: a fifth of the time.
        begins = f" {text}".encode().translate(_WORD_OR_NOT) if text.isascii() else b""
        return begins.count(b" x") or len(_WORD.findall(text))

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows."""
        dimension = self.identity.dimension
        sums = np.zeros((len(texts), dimension), np.float32)
        for row, text in enumerate(texts):
            # A text of punctuation alone still needs a direction.
            words = [word.encode("utf-8", "surrogatepass") for word in _WORD.findall(text.casefold()) or [""]]
            digests = b"".join(hashlib.shake_256(word).digest(dimension // 8) for word in words)
            bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(len(words), dimension)
            sums[row] = bits.sum(axis=0, dtype=np.float32) * 2 - len(words)
        return unit_rows(sums)

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self.embed_passages([require_query(text)])[0]


_log = logging.getLogger(__name__)


class LazyEmbedder:
    """Opens a model when it is first needed, once for all, and keeps it, or the failure for `retry_after` seconds.

    A model that nobody used for `idle_seconds` is dropped: several copies of the server run on one laptop, and loading
    it again takes a quarter of a second.
    """

    def __init__(
        self, opener: Callable[[], Embedder], *, retry_after: float = 30.0, idle_seconds: float = 600.0
    ) -> None:
        self._opener, self._retry_after, self._idle_seconds = opener, retry_after, idle_seconds
        self._used = self._failed = time.monotonic()
        self._changed = threading.Condition()
        self._opening: Future[Embedder] | None = None
        self.queries: dict[str, Vector] = {}
        """Kept vectors; those used last come last."""
        self.patience = 0.0
        """Seconds that a wait for the model lasts at least: a program that ends after one call cannot try again."""
        self.misses = 0
        """Queries that were handed to the model."""

    @property
    def loaded(self) -> bool:
        """Whether the model is ready, so that `get` does not wait."""
        return bool((opening := self._opening) and opening.done() and opening.exception() is None)

    def start_loading(self) -> Future[Embedder]:
        """Begin loading in a daemon thread, unless that is under way or done; return where the model will be."""
        with self._changed:
            opening = self._opening
            may_retry = self._failed <= time.monotonic() - self._retry_after
            if opening is None or (may_retry and opening.done() and opening.exception()):
                opening = self._opening = Future[Embedder]()
                threading.Thread(target=self._load, args=([opening],), name="localmcp-model", daemon=True).start()
            return opening

    def reset(self) -> None:
        """Forget the model, a kept failure, and the cached queries; the next call loads again."""
        with self._changed:
            self._opening, self.queries = None, {}
            self._changed.notify_all()

    def get(self, wait: float | None = None) -> Embedder:
        """Return the model, waiting up to `wait` seconds for it, or `patience` if that is longer; None has no limit.

        ModelUnavailable if it is still loading then, or cannot be loaded; ConfigurationError if the setting names none.
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
        """Return the unit vector of `text`, waiting up to `wait` seconds for the model; as `embed_queries`."""
        return self.embed_queries([text], wait)[0]

    def embed_queries(self, texts: Sequence[str], wait: float | None = 5.0) -> Vectors:
        """Return the unit vectors of several queries, shape (n, dimension); the last 1024 are kept. InvalidInput if a
        text is blank; ModelUnavailable as `get`."""
        embedder, cache = self.get(wait), self.queries
        for text in texts:
            require_query(text)
        with self._changed:
            vectors = {text: cache[text] for text in texts if text in cache}
        fresh = [text for text in dict.fromkeys(texts) if text not in vectors]
        self.misses += len(fresh)
        vectors |= zip(fresh, embed_questions(embedder, fresh), strict=True)
        with self._changed:
            for text in vectors:
                cache.pop(text, None)
            cache |= vectors
            for text in [*cache][: max(len(cache) - 1024, 0)]:
                del cache[text]
        return np.stack([vectors[text] for text in texts])

    def _load(self, begun: list[Future[Embedder]]) -> None:
        # The list is the thread's own until it ends: what stayed in it would keep an idle model in memory (90 MB).
        opening = begun.pop()
        try:
            opening.set_result(self._opener())
        except BaseException as error:
            self._failed = time.monotonic()
            if not isinstance(error, LocalMCPError):
                _log.exception("the embedding model failed to load")
                error = ModelUnavailable(f"The embedding model cannot be loaded: {error}.")
            opening.set_exception(error)
            return
        # What the model's file was unpacked in: 50 MB of the default one.
        return_freed_memory()
        with self._changed:
            while self._opening is opening and (idle := time.monotonic() - self._used) < self._idle_seconds:
                self._changed.wait(self._idle_seconds - idle)
            if self._opening is opening:
                self._opening = None
        del opening
        gc.collect()
        return_freed_memory()


class TextVectors:
    """Vectors of short texts that seldom change, kept by digest in memory and in a folder that processes may share. A
    text is embedded once for each model, or twice where two threads meet."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` None keeps the vectors in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._vectors: dict[str, dict[str, Vector]] = {}
        """By model and digest."""

    def of(self, texts: Collection[str], embedder: Embedder) -> dict[str, Vector]:
        """Return text -> unit vector of shape (dimension,); ModelUnavailable if the model fails."""
        digests = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] for text in texts}
        model = embedder.identity.fingerprint
        path = self._folder and self._folder / f"tools-{model}.npz"
        with self._lock:
            kept = self._vectors.get(model)
            if kept is None:
                kept = self._vectors[model] = {}
                try:
                    if path and path.exists():
                        with np.load(path, allow_pickle=False) as stored:
                            kept |= zip(stored["digests"].tolist(), stored["vectors"].astype(np.float32), strict=True)
                except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
                    _log.warning("%s cannot be read and is made again: %s", path, error)
            rows = {digest: kept[digest] for digest in digests.values() if digest in kept}
        missing = {digest: text for text, digest in sorted(digests.items()) if digest not in rows}
        if missing:
            # Not under the lock: hundreds of texts take seconds, and other threads may need only what is there.
            made = dict(zip(missing, embedder.embed_passages(list(missing.values())), strict=True))
            rows |= made
            with self._lock:
                kept |= made
                # Of many, those that came first are forgotten.
                for digest in list(kept)[: max(0, len(kept) - 30_000)]:
                    del kept[digest]
                if path:
                    content = BytesIO()
                    np.savez(content, digests=np.array(list(kept)), vectors=np.stack(list(kept.values())))
                    try:
                        write_atomically(path, content.getvalue())
                    except OSError as error:
                        _log.info("the vectors of the tools cannot be kept: %s", error)
        return {text: rows[digest] for text, digest in digests.items()}

    def rows(self, texts: Sequence[str], embedder: Embedder) -> Vectors:
        """Return unit rows (texts, dimension), in the order of the texts, of which there is at least one."""
        rows_by_text = self.of(texts, embedder)
        return np.stack([rows_by_text[text] for text in texts])

    @property
    def has_file(self) -> bool:
        """Whether any process has kept vectors in the folder, of whatever model."""
        return self._folder is not None and any(self._folder.glob("*.npz"))


_ANSWERS = (
    ("how do I get rid of snails", "Slugs eat the young salad at night; copper tape around the bed keeps them away."),
    ("what time does the library close", "Opening hours: weekdays from nine until half past six, Saturdays to noon."),
    ("who painted the night watch", "Rembrandt finished his large picture of the militia company in 1642."),
    ("why does bread rise", "Yeast eats the sugar of the dough and gives off gas, which makes a loaf grow."),
    ("broken screen of my phone", "A cracked display is replaced for 89 euros; the repair takes an hour."),
    ("sort a list in reverse", "Call sorted(values, reverse=True) to have the largest element first."),
    ("symptoms of a cold", "A runny nose, a sore throat and sneezing mostly pass within ten days."),
    ("cancel the contract", "The tenant may end the lease in writing with three months' notice."),
    ("how high is mont blanc", "The highest mountain of the Alps reaches 4,806 meters above the sea."),
    ("cheap flights in summer", "Airline tickets for July cost least when they are booked in February."),
    ("why is the sea salty", "Rivers wash minerals out of rocks and carry them into the ocean."),
    ("connect to the database", "The client opens a session to PostgreSQL with host, port and password."),
)
_ABROAD = (
    ("how do I get rid of snails", "Las babosas se comen la lechuga de noche; una cinta de cobre las aleja."),
    ("what time does the library close", "Öffnungszeiten der Bücherei: werktags von neun bis halb sieben Uhr."),
    ("why does bread rise", "La levure mange le sucre de la pâte et dégage un gaz qui fait gonfler la miche."),
    ("symptoms of a cold", "Il naso che cola e la gola irritata passano di solito entro dieci giorni."),
)
"""A model that reads all languages finds these nearly as near."""
DEFAULT_UNRELATED, DEFAULT_RELATED = 0.023, 0.480
"""The mean cosines of the default model."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the cosines of a model are read: every model has its own range.

    Questions with their answers, and with those of other questions, say where it is. What is stored with the model's
    row brings its cosines to the scale of the default model, for which scores, floors and relevance were fitted.
    """

    offset: float = 0.0
    factor: float = 1.0
    reads_all: bool = False
    """Whether it finds answers in other languages than the question's."""

    def scaled(self, cosines: Mapping[int, float]) -> dict[int, float]:
        """Return cosines by id as the default model would have them."""
        return {key: self.offset + self.factor * cosine for key, cosine in cosines.items()}


def measure_model(embedder: Embedder) -> Calibration:
    """Return the calibration of a model: 28 short texts are embedded."""
    questions = [question for question, _ in _ANSWERS]
    vectors = np.stack([embedder.embed_query(question) for question in questions])
    cosines = vectors @ embedder.embed_passages([answer for _, answer in _ANSWERS]).T
    related, pairs = float(np.trace(cosines)) / len(questions), len(questions) * (len(questions) - 1)
    unrelated = float(cosines.sum() - np.trace(cosines)) / pairs
    if related - unrelated < 0.05:
        # It tells nothing apart, as word hashes.
        return Calibration()
    asked = vectors[[questions.index(question) for question, _ in _ABROAD]]
    abroad = float((asked * embedder.embed_passages([answer for _, answer in _ABROAD])).sum()) / len(_ABROAD)
    factor = (DEFAULT_RELATED - DEFAULT_UNRELATED) / (related - unrelated)
    reads_all = abroad - unrelated >= (related - unrelated) / 2
    return Calibration(round(DEFAULT_UNRELATED - factor * unrelated, 3), round(factor, 3), reads_all)


class PairEmbedder:
    """Both models read every text: a vector holds those of both, and a product is the mean of what both say."""

    def __init__(self, first: Embedder, second: Embedder) -> None:
        self._models = (first, second)
        factors = [measure_model(model).factor for model in self._models]
        self._shares = [round(factor / sum(factors), 2) for factor in factors]
        self.count_tokens = first.count_tokens
        ours, theirs = first.identity, second.identity
        decisive = f"{ours.fingerprint} {theirs.fingerprint} {self._shares}"
        self.identity = ModelIdentity(
            name=f"{ours.name}+{theirs.name}",
            sha256=hashlib.sha256(decisive.encode()).hexdigest(),
            pooling="pair",
            # Each model adds its own; here they only say whether questions and passages are read alike.
            query_prefix=f"{ours.query_prefix}|{theirs.query_prefix}",
            passage_prefix=f"{ours.passage_prefix}|{theirs.passage_prefix}",
            dimension=ours.dimension + theirs.dimension,
            max_tokens=min(ours.max_tokens, theirs.max_tokens),
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        return self._joined([model.embed_passages(texts) for model in self._models])

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._joined([model.embed_query(text)[None] for model in self._models])[0]

    def _joined(self, vectors: Sequence[Vectors]) -> Vectors:
        parts = [share**0.5 * part for share, part in zip(self._shares, vectors, strict=True)]
        return np.concatenate(parts, axis=1).astype(np.float32, copy=False)
