"""HTTP calls as tools: `kind = "http"` manifests, one request each.

The manifest fixes the host. Secrets come from the environment, and go into headers or the query only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote, urlencode, urlsplit

from pydantic import Field, model_validator

from localmcp.errors import ConfigurationError, InvalidInput, Unavailable
from localmcp.http import LOOPBACK, Request, Response, send
from localmcp.own_tools import Problem
from localmcp.own_tools.manifest import (
    Filled,
    Manifest,
    as_text,
    fill,
    mistake,
    only_placeholder,
    placeholders,
)
from localmcp.schemas import Json, compact_json, json_kind, list_of, mapping_of, one_or_more, read_json, shorten_value
from localmcp.tools import Answer

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile

MOST_BYTES = 8 << 20
"""Bytes of a response that are read; a larger one is refused where JSON is expected, else cut."""
_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class HttpManifest(Manifest):
    """One request, and what of the response is the answer."""

    types = ("string", "integer", "number", "boolean", "array", "object")

    kind: Literal["http"]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Filled
    """A template whose scheme, host and port are fixed."""
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None
    """Any JSON with templates inside."""
    result: str = ""
    """Path into the response's JSON: `data.items[0].name`; empty = all of it."""
    timeout: float = Field(30, ge=0.1, le=600)
    """Seconds for the whole of it."""
    max_output: int = Field(100_000, ge=1, le=400_000)
    """Characters of the answer."""

    @property
    def host(self) -> str:
        """`api.example.org:8443`, the only place that is ever contacted."""
        return urlsplit(self.url).netloc

    @model_validator(mode="after")
    def _check(self) -> HttpManifest:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, is_address = urlsplit(""), False
        if not is_address or "{" in parts.netloc or parts.username or parts.password or parts.fragment:
            raise mistake("it must be http:// or https://, a fixed host without a password, and no part after #", "url")
        if re.search(r"[\s\x00-\x1f]", self.url) or not self.url.isascii() or _SECRET.search(self.url):
            raise mistake("percent-encode spaces and letters; secrets belong into [query] or [headers]", "url")
        self.check_template("url", self.url, always=True)
        for name, value in self.headers.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable():
                raise mistake("no header that can be sent", "headers", name)
            if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
                raise mistake("the request itself sets it", "headers", name)
            if placeholders(_SECRET.sub("", value)):
                raise mistake("a parameter cannot be in a header", "headers", name)
        for key, table in (("query", self.query), ("body", self.body)):
            for text in texts_in(table):
                if not _SECRET.search(text):
                    # A text around the placeholder needs its value; alone, the whole entry can be left out.
                    self.check_template(key, text, always=only_placeholder(text) is None)
                elif key == "body" or placeholders(_SECRET.sub("", text)):
                    raise mistake("${VARIABLE} can be in [headers] and [query] only, without parameters", key)
        if any(isinstance(value, dict) for value in self.query.values()):
            raise mistake("a text, a number or a list of them for each name", "query")
        if self.body is not None and self.method == "GET":
            raise mistake('a GET request has none; write method = "POST", or use [query]', "body")
        return self

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        secrets = {name for text in texts_in([self.headers, self.query]) for name in _SECRET.findall(text)}
        for name in sorted(secrets):
            if not os.environ.get(name):
                hint = "Set it where localmcp is started."
                yield here.problem((), f"The variable {name} is not set here.", hint, "warning")
        parts = urlsplit(self.url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and secrets:
            yield here.problem(("url",), f"Secrets go to {parts.hostname} unencrypted.", "Use https.", "warning")

    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        response = self._ask(self.build_request(arguments))
        text, status = response.body[:MOST_BYTES].decode("utf-8", "replace"), response.status
        result: Any = text
        problem, is_cut = "", len(response.body) > MOST_BYTES
        if not 200 <= status < 300:
            problem = f"{self.host} answered with HTTP {status}: {' '.join(text.split())[:300]}".removesuffix(": ")
        elif (
            not is_cut and text.strip() and ("json" in response.headers.get("Content-Type", "").lower() or self.result)
        ):
            try:
                result = select(read_json(text), self.result)
            except (ValueError, RecursionError) as error:
                problem = f"{self.host} should have answered with JSON, but: {error}."
        if problem:
            return Answer({"error": problem, "status": status}, problem, is_error=True)
        shown = result if isinstance(result, str) else compact_json(result)
        if is_cut or len(shown) > self.max_output:
            result, is_cut = shown[: self.max_output], True
            shown = f"{result}\n[cut after {self.max_output} characters]"
        return Answer({"status": status, "result": result, "truncated": is_cut}, shown)

    def build_request(self, arguments: Json) -> Request:
        """Return the request for these arguments.

        Raises InvalidInput for a value that would leave its place in the path, ConfigurationError for a variable that
        is not set.
        """
        for name in placeholders(self.url.partition("?")[0]):
            value = as_text(arguments[name])
            if not value or any(part in ("", ".", "..") for part in re.split(r"[/\\]", value)):
                # Servers resolve these, some of them even when they are percent-encoded.
                raise InvalidInput(f"{name}: {shorten_value(value)} cannot stand in a path.")
        url = fill(self.url, arguments, lambda value: quote(as_text(value), safe="", errors="replace"))
        pairs: list[tuple[str, str]] = []
        for name, template in self.query.items():
            if isinstance(template, str) and _SECRET.search(template):
                # Only what the manifest says can name a variable, never what a call gives.
                pairs.append((name, _with_secrets(template)))
            else:
                items = one_or_more(fill_json(template, arguments))
                pairs += [(name, as_text(item)) for item in items if item is not None]
        if pairs:
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"
        headers, body = {"Accept": "application/json, */*;q=0.5"}, None
        if self.body is not None:
            body = json.dumps(fill_json(self.body, arguments), ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        # A name that the manifest writes in other letters replaces the usual one as well.
        headers |= {name.title(): _with_secrets(value) for name, value in self.headers.items()}
        return Request(self.method, url, headers, body, MOST_BYTES, self.timeout, self.timeout)

    def _ask(self, request: Request) -> Response:
        """Return the answer to a request; raises Unavailable also for a redirect, for the manifest names the host."""
        try:
            response = send(request)
        except TimeoutError:
            raise Unavailable(f"{self.host} did not answer within {self.timeout:g} s.") from None
        except ConnectionRefusedError:
            raise Unavailable(f"{self.host} refused the connection.", hint="Start the server.") from None
        except (OSError, ValueError) as error:
            # Its whole text may hold the URL or a header, with a secret in it.
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unavailable(f"{self.host} cannot be reached: {reason}.") from None
        if 300 <= response.status < 400:
            problem = f"{self.host} redirects elsewhere (HTTP {response.status}), which is not followed."
            raise Unavailable(problem, hint="Write the final address into the manifest.")
        return response


def _with_secrets(template: str) -> str:
    """Return the template with each `${NAME}` replaced by the variable; raises ConfigurationError."""
    for name in _SECRET.findall(template):
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigurationError(
                f"The variable {name} is not set, and this tool needs it.", hint="Set it where localmcp is started."
            )
        if not value.isprintable() or not value.isascii():
            raise ConfigurationError(f"The variable {name} holds characters that no header can carry.")
    return _SECRET.sub(lambda match: os.environ[match[1]].strip(), template)


def fill_json(template: Any, arguments: Json) -> Any:
    """Return JSON with its templates filled.

    A text that is only `{name}` takes the value with its type; an entry whose parameter is not given is left out.
    """
    if isinstance(template, str):
        name = only_placeholder(template)
        return arguments.get(name) if name else fill(template, arguments)
    if isinstance(template, dict):
        filled = {key: fill_json(value, arguments) for key, value in cast(Json, template).items()}
        return {key: value for key, value in filled.items() if value is not None}
    if isinstance(template, list):
        items = [fill_json(value, arguments) for value in cast("list[Any]", template)]
        return [value for value in items if value is not None]
    return template


def select(value: Any, path: str) -> Any:
    """Return the part of a JSON value at `path`: keys joined by dots, `[0]` for an item; raises ValueError."""
    for match in re.finditer(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = mapping_of(value)[match[1]] if match[1] else list_of(value)[int(match[2])]
        except (KeyError, IndexError):
            there = ", ".join(list(mapping_of(value))[:10]) or json_kind(value)
            raise ValueError(f"it holds no '{path}' (at '{match[0]}' there is: {there})") from None
    return value


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        items = cast("list[Any]", list(cast(Json, value).values()) if isinstance(value, dict) else value)
        for item in items:
            yield from texts_in(item)
