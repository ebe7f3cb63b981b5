"""An embedding model behind an OpenAI-compatible HTTP endpoint, spoken to with the standard library."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from localmcp.embeddings.embedder import ModelIdentity, require_query, unit_rows
from localmcp.errors import ConfigurationError, ModelMismatch, ModelUnavailable

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

BATCH_SIZE = 64
_MOST_BYTES = 64 << 20
_LONGEST_PAUSE = 30.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class EndpointEmbedder:
    """Vectors from `POST {url}/embeddings`; asked once when it is made, which checks address, key and dimension.

    Status 429 and 5xx are tried again after 1, 2, 4, … seconds, or after what the answer's
    Retry-After asks for, at most 30. Redirects are refused, since they would carry the key and the
    text to a host that nobody configured. The key appears in no message and no log line.
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
        retries: int = 3,
        retry_delay: float = 1.0,
    ) -> None:
        """`url` ends before `/embeddings`; `dimension` None takes what the model answers with; times in seconds.

        Raises:
            ConfigurationError: the URL is not http(s), or the key cannot be sent in a header.
            ModelMismatch: the model's dimension is another than `dimension`.
            ModelUnavailable: the endpoint cannot be reached, or refuses.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(f"The model's URL is '{url}', but must begin with http:// or https://.")
        self._url = url.rstrip("/").removesuffix("/embeddings") + "/embeddings"
        self._model = model
        self._key = _usable_key(api_key)
        self._timeout = timeout
        self._retries = retries
        self._retry_delay = retry_delay
        self._opener = _build_opener(self._url)
        self._dimension = dimension
        if self._key and urlsplit(url).scheme == "http" and urlsplit(url).hostname not in _LOOPBACK:
            _log.warning("the API key goes to %s unencrypted; use https", urlsplit(url).hostname)
        self.identity = ModelIdentity(
            name=model,
            # The same model on another host keeps its vectors, so the address is left out.
            sha256=hashlib.sha256(f"endpoint {model}".encode()).hexdigest(),
            pooling="endpoint",
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=self._request(["dimension"], retries).shape[1],
            max_tokens=max_tokens,
        )
        self._dimension = self.identity.dimension

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (n, dimension), unit rows, in the order of `texts`; 64 texts a request.

        Raises:
            ModelUnavailable: the endpoint fails, or answers with something else.
        """
        import numpy as np

        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        for start in range(0, len(texts), BATCH_SIZE):
            batch = [self.identity.passage_prefix + text for text in texts[start : start + BATCH_SIZE]]
            vectors[start : start + BATCH_SIZE] = self._request(batch, self._retries)
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of shape (dimension,). Tried twice only: somebody is waiting.

        Raises:
            InvalidInput: the text is empty or only white space.
            ModelUnavailable: the endpoint fails, or answers with something else.
        """
        return self._request([self.identity.query_prefix + require_query(text)], min(1, self._retries))[0]

    def count_tokens(self, text: str) -> int:
        """A third of the UTF-8 bytes, rounded up: an estimate on the high side, as the tokenizer is not known here."""
        return -(-len(text.encode("utf-8", "surrogatepass")) // 3)

    @property
    def _where(self) -> str:
        return f"The model {self._model} at {self._url}"

    def _request(self, texts: list[str], retries: int) -> NDArray[np.float32]:
        payload: dict[str, Any] = {"model": self._model, "input": texts}
        if self._dimension is not None and "text-embedding-3" in self._model:
            # Only this family shortens its vectors; others refuse the parameter.
            payload["dimensions"] = self._dimension
        body = self._post(json.dumps(payload).encode(), retries)
        try:
            vectors = _read_vectors(body, len(texts))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelUnavailable(
                f"{self._where} answered with something that is not embeddings: {error}.",
                hint="Check that the URL is that of an OpenAI-compatible API (it usually ends in /v1).",
            ) from error
        if self._dimension not in (None, vectors.shape[1]):
            raise ModelMismatch(
                f"{self._where} answered with {vectors.shape[1]} dimensions, not {self._dimension}.",
                hint="Correct the option dimension; if the model was changed there, run: localmcp reembed",
            )
        return vectors

    def _post(self, payload: bytes, retries: int) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError

        attempt = 0
        while True:
            try:
                return self._send(payload)
            except HTTPError as error:
                with error:
                    if not (error.code == 429 or error.code >= 500) or attempt >= retries:
                        raise self._explain_status(error) from error
                    pause = self._pause(attempt, error.headers.get("Retry-After"))
                _log.info("embedding endpoint: status %d, trying again in %.1f s", error.code, pause)
                time.sleep(pause)
                attempt += 1
            except (OSError, HTTPException, UnicodeError) as error:
                raise self._explain_failure(error) from error

    def _send(self, payload: bytes) -> bytes:
        from urllib.request import Request

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "localmcp"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        with self._opener.open(Request(self._url, payload, headers), timeout=self._timeout) as response:
            body: bytes = response.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise ModelUnavailable(f"{self._where} answered with more than {_MOST_BYTES >> 20} MB.")
        return body

    def _pause(self, attempt: int, retry_after: str | None) -> float:
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            return min(float(retry_after), _LONGEST_PAUSE)
        return min(self._retry_delay * 2**attempt, _LONGEST_PAUSE)

    def _explain_status(self, error: HTTPError) -> ModelUnavailable:
        status = error.code
        if status in (401, 403):
            # The body is not shown: some servers repeat part of the key in it.
            said = "the API key was refused" if self._key else "an API key is needed"
            return ModelUnavailable(
                f"{self._where}: {said} (HTTP {status}).", hint="Set LOCALMCP_MODEL_API_KEY to a valid key."
            )
        if 300 <= status < 400:
            return ModelUnavailable(
                f"{self._where} redirects elsewhere (HTTP {status}).", hint="Configure the final URL."
            )
        hints = {
            404: "Check the URL (it usually ends in /v1) and the model's name; with Ollama: ollama pull MODEL",
            429: "The service limits requests; try again later.",
        }
        detail = self._read_detail(error)
        return ModelUnavailable(
            f"{self._where} failed with HTTP {status}{f': {detail}' if detail else ''}.",
            hint=hints.get(status, "Try again later." if status >= 500 else "Check the URL and the model's name."),
        )

    def _read_detail(self, error: HTTPError) -> str:
        """The first 200 characters of the server's own explanation, on one line, the key blotted out."""
        try:
            text = error.read(10_000).decode("utf-8", "replace")
        except OSError:
            return ""
        try:
            reply: Any = json.loads(text)
            text = str(reply["error"]["message"] if isinstance(reply["error"], dict) else reply["error"])
        except (ValueError, TypeError, KeyError):
            pass  # Not in OpenAI's form; then the text itself is the explanation.
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:200].rstrip(".")

    def _explain_failure(self, error: Exception) -> ModelUnavailable:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return ModelUnavailable(
                f"{self._where} did not answer within {self._timeout:g} seconds.", hint="Try again later."
            )
        if isinstance(reason, ConnectionRefusedError):
            return ModelUnavailable(
                f"{self._where} refused the connection.", hint="Start the server (with Ollama: ollama serve)."
            )
        return ModelUnavailable(f"{self._where} cannot be reached: {reason}.", hint="Check the URL and the network.")


def _usable_key(api_key: str | None) -> str:
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        # The key is not repeated in the message.
        raise ConfigurationError("The API key holds characters that no key has.", hint="Copy it again.")
    return key


def _build_opener(url: str) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    class RefuseRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
            return None

    # Text for a server on this machine must not leave it through a proxy from the environment.
    direct = [ProxyHandler({})] if urlsplit(url).hostname in _LOOPBACK else []
    return build_opener(RefuseRedirects(), *direct)


def _read_vectors(body: bytes, count: int) -> NDArray[np.float32]:
    """The `count` unit vectors of an OpenAI embeddings response, in the order of the request.

    Raises:
        ValueError, TypeError, KeyError: the response has another form.
    """
    import numpy as np

    data: list[dict[str, Any]] = json.loads(body)["data"]
    rows = {item.get("index", place): item["embedding"] for place, item in enumerate(data)}
    if sorted(rows) != list(range(count)):
        raise ValueError(f"{len(data)} vectors for {count} texts")
    vectors = np.asarray([rows[place] for place in range(count)], np.float64)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError("vectors of unequal or no length")
    if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
        raise ValueError("a vector that is zero or not finite")
    return unit_rows(vectors)
