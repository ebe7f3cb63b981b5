"""Requests to a model's HTTP endpoint, with the standard library, and their failures in words."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from localmcp.errors import ConfigurationError, ModelUnavailable

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector, ProxyHandler

_log = logging.getLogger(__name__)

_MOST_BYTES = 64 << 20
_LONGEST_PAUSE = 30.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""


@dataclass(frozen=True, slots=True)
class EndpointWords:
    """The words in messages about one kind of endpoint."""

    name: str
    """`The model nomic`."""
    key_setting: str
    """Where the key is set: `LOCALMCP_MODEL_API_KEY`."""
    hints: Mapping[int, str] = field(default_factory=dict[int, str])
    """HTTP status -> what to do."""


def split_model_url(url: str, owner: str, key_setting: str, accepted: str) -> SplitResult:
    """Return the parts of `http(s)://HOST/…#MODEL`, the URL of `owner` (`The model`).

    Raises:
        ConfigurationError: it cannot be read, holds a secret, or lacks the host or the model.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{owner}'s URL cannot be read: {error}.", hint=accepted) from error
    if parts.username is not None or parts.password is not None:
        # The URL is not repeated: it holds a secret.
        raise ConfigurationError(f"{owner}'s URL may not hold a user or password.", hint=f"Set {key_setting} instead.")
    if not host or not parts.fragment:
        raise ConfigurationError(f"'{url}' lacks {'the model, as #MODEL' if host else 'a host'}.", hint=accepted)
    return parts


class JsonEndpoint:
    """One URL that takes JSON by POST.

    After status 429 and 5xx it tries again in 1, 2, 4, … seconds, or when the answer's Retry-After says, but in 30 at
    most. Redirects are refused, since they would carry the key and the text to a host that nobody configured. The key
    appears in no message and no log line.
    """

    def __init__(
        self,
        url: str,
        words: EndpointWords,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retry_delay: float = 1.0,
    ) -> None:
        """`timeout` and `retry_delay` in seconds.

        Raises:
            ConfigurationError: the URL is not http(s), or the key cannot be sent in a header.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigurationError(f"The model's URL is '{url}', but must begin with http:// or https://.")
        self.url = url
        self._words = words
        self._key = usable_key(api_key)
        self._timeout = timeout
        self._retry_delay = retry_delay
        self._opener = _build_opener(url)
        if self._key and urlsplit(url).scheme == "http" and urlsplit(url).hostname not in LOOPBACK:
            _log.warning("the API key goes to %s unencrypted; use https", urlsplit(url).hostname)

    @property
    def where(self) -> str:
        """`The model nomic at http://127.0.0.1:11434/v1/embeddings`."""
        return f"{self._words.name} at {self.url}"

    def post(self, payload: Mapping[str, Any], retries: int = 0) -> bytes:
        """Return the body of the answer, at most 64 MB.

        Raises:
            ModelUnavailable: refused, unreachable, too slow, or another status than 200; says the next step.
        """
        from http.client import HTTPException
        from urllib.error import HTTPError

        body, attempt = json.dumps(payload).encode(), 0
        while True:
            try:
                return self._send(body)
            except HTTPError as error:
                with error:
                    if not (error.code == 429 or error.code >= 500) or attempt >= retries:
                        raise self._explain_status(error) from error
                    pause = self._pause(attempt, error.headers.get("Retry-After"))
                _log.info("%s: status %d, trying again in %.1f s", self.where, error.code, pause)
                time.sleep(pause)
                attempt += 1
            except (OSError, HTTPException, UnicodeError) as error:
                raise self._explain_failure(error) from error

    def _send(self, body: bytes) -> bytes:
        from urllib.request import Request

        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "localmcp"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        with self._opener.open(Request(self.url, body, headers), timeout=self._timeout) as response:
            answer: bytes = response.read(_MOST_BYTES + 1)
        if len(answer) > _MOST_BYTES:
            raise ModelUnavailable(f"{self.where} answered with more than {_MOST_BYTES >> 20} MB.")
        return answer

    def _pause(self, attempt: int, retry_after: str | None) -> float:
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            return min(float(retry_after), _LONGEST_PAUSE)
        return min(self._retry_delay * 2**attempt, _LONGEST_PAUSE)

    def _explain_status(self, error: HTTPError) -> ModelUnavailable:
        status = error.code
        if status in (401, 403):
            # The body is not shown: some servers repeat part of the key in it.
            key_state = "the API key was refused" if self._key else "an API key is needed"
            return ModelUnavailable(
                f"{self.where}: {key_state} (HTTP {status}).", hint=f"Set {self._words.key_setting} to a valid key."
            )
        if 300 <= status < 400:
            return ModelUnavailable(
                f"{self.where} redirects elsewhere (HTTP {status}).", hint="Configure the final URL."
            )
        detail = self._read_detail(error)
        return ModelUnavailable(
            f"{self.where} failed with HTTP {status}{f': {detail}' if detail else ''}.", hint=self._hint(status)
        )

    def _hint(self, status: int) -> str:
        usual = "The service limits requests; try again later." if status == 429 else "Try again later."
        other = usual if status == 429 or status >= 500 else "Check the URL and the model's name."
        return self._words.hints.get(status, other)

    def _read_detail(self, error: HTTPError) -> str:
        """Return the first 200 characters of the server's own explanation, on one line, without the key."""
        try:
            text = error.read(10_000).decode("utf-8", "replace")
        except OSError:
            return ""
        try:
            reply: Any = json.loads(text)
            text = str(reply["error"]["message"] if isinstance(reply["error"], dict) else reply["error"])
        except (ValueError, TypeError, KeyError):
            pass  # Not in OpenAI's form: the text itself is the explanation.
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:200].rstrip(".")

    def _explain_failure(self, error: Exception) -> ModelUnavailable:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return ModelUnavailable(
                f"{self.where} did not answer within {self._timeout:g} seconds.", hint="Try again later."
            )
        if isinstance(reason, ConnectionRefusedError):
            return ModelUnavailable(
                f"{self.where} refused the connection.", hint="Start the server (with Ollama: ollama serve)."
            )
        return ModelUnavailable(f"{self.where} cannot be reached: {reason}.", hint="Check the URL and the network.")


class Deadline:
    """Shuts the connections of a request when its time is over, whatever the server sends meanwhile.

    The socket's own time-out begins again with every byte.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watch(self, opened: socket.socket) -> None:
        """Shut this one too."""
        self._sockets.append(opened)
        if self.passed:
            self._shut()

    def _shut(self) -> None:
        self.passed = True
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


def usable_key(api_key: str | None) -> str:
    """Return the key without surrounding spaces; empty for none.

    Raises:
        ConfigurationError: it cannot be sent in a header.
    """
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        # The key is not repeated in the message.
        raise ConfigurationError("The API key holds characters that no key has.", hint="Copy it again.")
    return key


def _build_opener(url: str) -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener

    class RefuseRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
            return None

    return build_opener(RefuseRedirects(), *direct_handlers(url))


def direct_handlers(url: str) -> list[ProxyHandler]:
    """Return what keeps text for a server on this machine from a proxy of the environment."""
    from urllib.request import ProxyHandler

    return [ProxyHandler({})] if urlsplit(url).hostname in LOOPBACK else []
