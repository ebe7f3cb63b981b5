"""An embedding model behind an OpenAI-compatible HTTP endpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from localmcp.arrays import Vector, Vectors, np
from localmcp.errors import ModelMismatch, ModelUnavailable
from localmcp.http import EndpointWords, JsonEndpoint
from localmcp.models.embedder import ModelIdentity, require_query, unit_rows

BATCH_SIZE = 64


class EndpointEmbedder:
    """Vectors from `POST {url}/embeddings`; asked once when it is made, which checks address, key and dimension.

    Retries, redirects, key and proxies are as in `localmcp.http.JsonEndpoint`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        *,
        dimension: int | None = None,
        max_tokens: int = 512,
        query_prefix: str = "",
        passage_prefix: str = "",
        timeout: float = 30.0,
        retry_delay: float = 1.0,
    ) -> None:
        """`url` ends before `/embeddings`; `dimension` None takes what the model answers with; times in seconds.

        Raises:
            ConfigurationError: the URL is not http(s), or the key cannot be sent in a header.
            ModelMismatch: the model's dimension is another than `dimension`.
            ModelUnavailable: the endpoint cannot be reached, or refuses.
        """
        hints = {404: "Check the URL (it usually ends in /v1) and the model's name; with Ollama: ollama pull MODEL"}
        words = EndpointWords(f"The model {model}", "LOCALMCP_MODEL_API_KEY", hints)
        url = url.rstrip("/").removesuffix("/embeddings") + "/embeddings"
        self._endpoint = JsonEndpoint(url, words, api_key, timeout=timeout, retry_delay=retry_delay)
        self._model = model
        self._dimension = dimension
        self.count_tokens = estimate_tokens
        self.identity = ModelIdentity(
            name=model,
            # The same model on another host keeps its vectors, so the address is left out.
            sha256=hashlib.sha256(f"endpoint {model}".encode()).hexdigest(),
            pooling="endpoint",
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=self._request(["dimension"]).shape[1],
            max_tokens=max_tokens,
        )
        self._dimension = self.identity.dimension

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`; 64 texts a request.

        Raises:
            ModelUnavailable: the endpoint fails, or answers with something else.
        """
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        for start in range(0, len(texts), BATCH_SIZE):
            batch = [self.identity.passage_prefix + text for text in texts[start : start + BATCH_SIZE]]
            vectors[start : start + BATCH_SIZE] = self._request(batch)
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,). Tried twice only, because a person waits."""
        return self._request([self.identity.query_prefix + require_query(text)], retries=1)[0]

    def _request(self, texts: list[str], retries: int = 3) -> Vectors:
        payload: dict[str, Any] = {"model": self._model, "input": texts}
        if self._dimension is not None and "text-embedding-3" in self._model:
            # Only this family shortens its vectors; others refuse the parameter.
            payload["dimensions"] = self._dimension
        body = self._endpoint.post(payload, retries)
        try:
            vectors = _read_vectors(body, len(texts))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelUnavailable(
                f"{self._endpoint.where} answered with something that is not embeddings: {error}.",
                hint="Check that the URL is that of an OpenAI-compatible API (it usually ends in /v1).",
            ) from error
        if self._dimension not in (None, vectors.shape[1]):
            raise ModelMismatch(
                f"{self._endpoint.where} answered with {vectors.shape[1]} dimensions, not {self._dimension}.",
                hint="Correct the option dimension; if the model was changed there, index into another collection.",
            )
        return vectors


def estimate_tokens(text: str) -> int:
    """Return a third of the UTF-8 bytes, rounded up: a high estimate, since the tokenizer is unknown here."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def _read_vectors(body: bytes, count: int) -> Vectors:
    """Return the `count` unit vectors of an OpenAI embeddings response, in the order of the request.

    Raises:
        ValueError, TypeError, KeyError: the response has another form.
    """
    data: list[dict[str, Any]] = json.loads(body)["data"]
    rows = {item.get("index", position): item["embedding"] for position, item in enumerate(data)}
    if sorted(rows) != list(range(count)):
        raise ValueError(f"{len(data)} vectors for {count} texts")
    vectors = np.asarray([rows[position] for position in range(count)], np.float64)
    if vectors.ndim != 2 or not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
        raise ValueError("a vector of another length, zero, or not finite")
    return unit_rows(vectors)
