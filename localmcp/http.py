"""Requests over HTTP, the endpoint of a model on top of them, and its failures in words."""

import functools
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from localmcp.errors import ConfigurationError, ModelUnavailable

_log = logging.getLogger(__name__)
# They log whole URLs, which may hold keys.
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("httpcore2").setLevel(logging.WARNING)

_MOST_BYTES = 64 << 20
RETRY_SECONDS = 1.0
"""Before the second attempt; twice as long before each further one."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent, and how much of the answer is read."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    most_bytes: int = _MOST_BYTES
    """A longer answer is cut after some more, so that it can be told from one of this size."""
    silence_seconds: float = 30.0
    """The longest time without a byte."""
    total_seconds: float | None = None
    """The longest time for all of it, however slowly the answer drips."""
    address: str | None = None
    """Where to connect to, without a proxy; None = where the name leads."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answers."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case."""
    body: bytes

    def redirect(self, url: str) -> str | None:
        """Return where the answer to a request for `url` leads; None if it is no redirect."""
        leads_on = self.status in (301, 302, 303, 307, 308) and "Location" in self.headers
        return urljoin(url, self.headers["Location"]) if leads_on else None


def send(request: Request, is_read: Callable[[Response], bool] = lambda _: True) -> Response:
    """Return the answer, without its body where `is_read` refuses that; redirects are not followed.

    TimeoutError if there is none in time; OSError, whose words may hold the URL, for another failure.
    """
    import httpx2
    from anyio.from_thread import start_blocking_portal

    try:
        # In a thread of its own, since an event loop may run in the caller's.
        with start_blocking_portal() as portal:
            return portal.call(_exchange, request, is_read)
    except (TimeoutError, httpx2.TimeoutException):
        raise TimeoutError from None
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise _find_cause(error) from None


async def _exchange(request: Request, is_read: Callable[[Response], bool]) -> Response:
    from urllib.request import getproxies, proxy_bypass

    import httpx2
    from anyio import fail_after

    url, extensions = httpx2.URL(request.url), dict[str, Any]()
    headers = httpx2.Headers({"Accept-Encoding": "identity", "User-Agent": "localmcp"})
    headers.update(httpx2.Headers(dict(request.headers), encoding="latin-1"))
    if request.address is not None:
        # The name is still what the certificate must be for.
        headers["Host"], extensions["sni_hostname"] = url.netloc.decode(), url.raw_host.decode()
        url = url.copy_with(host=request.address)
    parts, proxy = urlsplit(request.url), None
    # No text for a server on this machine goes to the proxy of the environment.
    if request.address is None and parts.hostname not in LOOPBACK and not proxy_bypass(parts.netloc):
        proxy = getproxies().get(parts.scheme)
        proxy = f"http://{proxy}" if proxy and "://" not in proxy else proxy
    client = httpx2.AsyncClient(
        verify=_system_certificates(), trust_env=False, proxy=proxy, timeout=request.silence_seconds
    )
    sent = client.build_request(request.method, url, headers=headers, content=request.body, extensions=extensions)
    with fail_after(request.total_seconds):
        async with client, aclosing(await client.send(sent, stream=True)) as received:
            response, body = Response(received.status_code, received.headers, b""), bytearray()
            if is_read(response):
                async for piece in received.aiter_raw():
                    body += piece
                    if len(body) > request.most_bytes:
                        break
    return replace(response, body=bytes(body))


_system_certificates = functools.cache(ssl.create_default_context)


def _find_cause(error: BaseException) -> OSError:
    """Return a failure in the words of the operating system, which the libraries wrap in their own."""
    several: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    if inner := several[0] if several else error.__cause__ or error.__context__:
        return _find_cause(inner)
    return error if isinstance(error, OSError) else OSError(str(error) or type(error).__name__)


def split_model_url(url: str, owner: str, key_setting: str, accepted: str) -> SplitResult:
    """Return the parts of `http(s)://HOST/…#MODEL`; ConfigurationError if it holds a secret, or lacks one."""
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
    """One URL that takes JSON by POST; the key appears in no message and no log line.

    After status 429 and 5xx it tries again in 1, 2, 4, … seconds, or when Retry-After says, but in 30 at most.
    Redirects are refused: they would carry the key and the text to a host that nobody configured.
    """

    def __init__(
        self, url: str, name: str, key_setting: str, if_missing: str, api_key: str | None, *, timeout: float
    ) -> None:
        """`name`: `The model nomic`. `key_setting`: where the key is set. `if_missing`: what to do after a 404.

        ConfigurationError if the key cannot be sent in a header.
        """
        self.url, self.where = url, f"{name} at {url}"
        self._key_setting, self._if_missing, self._timeout = key_setting, if_missing, timeout
        self._key = (api_key or "").strip()
        if not self._key.isascii() or not self._key.isprintable() or " " in self._key:
            # The key is not repeated in the message.
            raise ConfigurationError("The API key holds characters that no key has.", hint="Copy it again.")
        parts = urlsplit(url)
        if self._key and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            _log.warning("the API key goes to %s unencrypted; use https", parts.hostname)

    def post(self, payload: Mapping[str, Any], retries: int = 0) -> bytes:
        """Return the body of the answer, at most 64 MB; raises ModelUnavailable, which says the next step."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request("POST", self.url, headers, json.dumps(payload).encode(), silence_seconds=self._timeout)
        attempt = 0
        while True:
            try:
                response = send(request)
            except TimeoutError as error:
                late = f"{self.where} did not answer within {self._timeout:g} seconds."
                raise ModelUnavailable(late, hint="Try again later.") from error
            except ConnectionRefusedError as error:
                hint = "Start the server (with Ollama: ollama serve)."
                raise ModelUnavailable(f"{self.where} refused the connection.", hint=hint) from error
            except OSError as error:
                hint = "Check the URL and the network."
                raise ModelUnavailable(f"{self.where} cannot be reached: {error}.", hint=hint) from error
            if attempt == retries or not (response.status == 429 or response.status >= 500):
                break
            after = response.headers.get("Retry-After", "")
            pause = float(after) if after.isascii() and after.isdigit() else RETRY_SECONDS * 2**attempt
            _log.info("%s: status %d, trying again in %.1f s", self.where, response.status, pause)
            time.sleep(min(pause, 30.0))
            attempt += 1
        if len(response.body) > _MOST_BYTES:
            raise ModelUnavailable(f"{self.where} answered with more than {_MOST_BYTES >> 20} MB.")
        if 200 <= (status := response.status) < 300:
            return response.body
        hints = {404: self._if_missing, 429: "The service limits requests; try again later."}
        hint = hints.get(status, "Try again later." if status >= 500 else "Check the URL and the model's name.")
        message = f"{self.where} failed with HTTP {status}"
        if status in (401, 403):
            # The body is not shown: some servers repeat part of the key in it.
            hint = f"Set {self._key_setting} to a valid key."
            state = "the API key was refused" if self._key else "an API key is needed"
            message = f"{self.where}: {state} (HTTP {status})"
        elif 300 <= status < 400:
            message, hint = f"{self.where} redirects elsewhere (HTTP {status})", "Configure the final URL."
        else:
            # The server's own explanation, on one line; without OpenAI's form the text itself.
            text = response.body[:10_000].decode("utf-8", "replace")
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                reply: Any = json.loads(text)["error"]
                text = reply if isinstance(reply, str) else str(reply["message"])
            text = " ".join((text.replace(self._key, "***") if self._key else text).split())[:200].rstrip(".")
            message += f": {text}" if text else ""
        raise ModelUnavailable(f"{message}.", hint=hint)
