"""HTTP calls as tools: `kind = "http"` manifests, one request each.

The manifest fixes the host. Secrets come from the environment, go into headers or the query only, and are removed from
every answer and message.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from localmcp.errors import ConfigurationError, InvalidInput, Unavailable
from localmcp.http import LOOPBACK, Request, Response, send
from localmcp.own_tools.fields import Fields, Source
from localmcp.own_tools.manifests import (
    ManifestProvider,
    ManifestTool,
    read_common,
    refuse_unknown_placeholders,
)
from localmcp.own_tools.parameters import (
    KINDS,
    Parameter,
    as_text,
    fill,
    only_placeholder,
    placeholders,
)
from localmcp.schemas import Json, compact_json, one_or_more, read_json, shorten_value
from localmcp.tools import Answer

log = logging.getLogger(__name__)

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MOST_BYTES = 8 << 20
"""Bytes of a response that are read; a larger one is refused where JSON is expected, else cut."""
MOST_REDIRECTS = 5
_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what of the response is the answer."""

    method: str
    url: str
    """A template whose scheme, host and port are fixed."""
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    body: Any
    """Any JSON with templates inside; None = no body."""
    result: str
    """Path into the response's JSON: `data.items[0].name`; empty = all of it."""
    timeout: float
    """Seconds for the whole of it."""
    max_output: int
    """Characters of the answer."""

    @property
    def host(self) -> str:
        """`api.example.org:8443`, the only place that is ever contacted."""
        return urlsplit(self.url).netloc


@dataclass(eq=False)
class HttpTool(ManifestTool):
    """A request that a manifest describes."""

    http: Call

    def run(self, arguments: Json) -> Answer:
        secrets = _Secrets()
        response = _ask(self.http, build_request(self.http, arguments, secrets), secrets)
        text = secrets.blot_out(response.body[:MOST_BYTES].decode("utf-8", "replace"))
        status, kind = response.status, response.headers.get("Content-Type", "").lower()
        if not 200 <= status < 300:
            detail = " ".join(text.split())[:300]
            message = f"{self.http.host} answered with HTTP {status}" + (f": {detail}" if detail else ".")
            return Answer({"error": message, "status": status}, message, is_error=True)
        return self._answer(status, kind, text, len(response.body) > MOST_BYTES)

    def _answer(self, status: int, kind: str, text: str, cut: bool) -> Answer:
        if not cut and text.strip() and ("json" in kind or self.http.result):
            try:
                result = select(read_json(text), self.http.result)
            except (ValueError, RecursionError) as error:
                message = f"{self.http.host} should have answered with JSON, but: {error}."
                return Answer({"error": message, "status": status}, message, is_error=True)
            result, truncated = shorten(result, self.http.max_output)
            shown = result if isinstance(result, str) else compact_json(result)
        else:
            result = shown = text[: self.http.max_output]
            truncated = cut or len(text) > len(shown)
        message = f"{shown}\n[cut after {self.http.max_output} characters]" if truncated else shown
        return Answer({"status": status, "result": result, "truncated": truncated}, message)

    def check(self, source: Source) -> None:
        for name in sorted(set(_secrets_in(self.http))):
            if not os.environ.get(name):
                source.complain(
                    f"The variable {name} is not set here.", hint="Set it where localmcp is started.", level="warning"
                )
        parts = urlsplit(self.http.url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and any(_secrets_in(self.http)):
            source.complain(
                f"Secrets go to {parts.hostname} unencrypted.", ("url",), hint="Use https.", level="warning"
            )


class _Secrets:
    """The values of environment variables that one request uses."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def fill(self, template: str) -> str:
        """Return the template with `${NAME}` replaced by the variable.

        Raises:
            ConfigurationError: the variable is not set, or holds what no header can carry.
        """
        return _SECRET.sub(lambda match: self._value(match[1]), template)

    def _value(self, name: str) -> str:
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigurationError(
                f"The variable {name} is not set, and this tool needs it.", hint="Set it where localmcp is started."
            )
        if not value.isprintable() or not value.isascii():
            raise ConfigurationError(f"The variable {name} holds characters that no header can carry.")
        self._values.add(value)
        return value

    def blot_out(self, text: str) -> str:
        """Return the text without the secrets, which some servers repeat: plain, and as written in URLs and JSON."""
        for value in sorted(self._values, key=len, reverse=True):
            for form in dict.fromkeys((value, quote(value, safe=""), json.dumps(value)[1:-1])):
                text = text.replace(form, "***") if len(value) > 3 else text
        return text


# ---------------------------------------------------------------- the request


def build_request(call: Call, arguments: Json, secrets: _Secrets) -> Request:
    """Return the request for these arguments.

    Raises:
        InvalidInput: a value that would leave its place in the path.
        ConfigurationError: a variable is not set.
    """
    path = _fill_path(call.url, arguments)
    query = urlencode(list(_query_pairs(call.query, arguments, secrets)))
    url = f"{path}{'&' if '?' in path else '?'}{query}" if query else path
    headers, body = {"Accept": "application/json, */*;q=0.5"}, None
    if call.body is not None:
        body = json.dumps(fill_json(call.body, arguments), ensure_ascii=False).encode("utf-8", "replace")
        headers["Content-Type"] = "application/json"
    # A name that the manifest writes in other letters replaces the usual one as well.
    headers = {**headers, **{name.title(): secrets.fill(value) for name, value in call.headers.items()}}
    return Request(call.method, url, headers, body, MOST_BYTES, call.timeout, call.timeout)


def _fill_path(url: str, arguments: Json) -> str:
    for name in placeholders(url.partition("?")[0]):
        value = as_text(arguments[name])
        if not value or any(part in ("", ".", "..") for part in re.split(r"[/\\]", value)):
            # Servers resolve these, some of them even when they are percent-encoded.
            raise InvalidInput(f"{name}: {shorten_value(value)} cannot stand in a path.")
    return fill(url, arguments, lambda value: quote(as_text(value), safe="", errors="replace"))


def _query_pairs(query: Mapping[str, Any], arguments: Json, secrets: _Secrets) -> Iterator[tuple[str, str]]:
    """Yield name and value, once for each item of a list; a parameter that the call does not give is left out."""
    for name, template in query.items():
        if isinstance(template, str) and _SECRET.search(template):
            # Only what the manifest says can name a variable, never what a call gives.
            yield name, secrets.fill(template)
            continue
        for item in one_or_more(fill_json(template, arguments)):
            if item is not None:
                yield name, as_text(item)


def fill_json(template: Any, arguments: Json) -> Any:
    """JSON with its templates filled: a text that is only `{name}` takes the value with its type, and an entry whose
    parameter is not given is left out."""
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


def _ask(call: Call, request: Request, secrets: _Secrets) -> Response:
    """Return the answer to a request, after redirects within the same place.

    Raises:
        Unavailable: no connection, no answer in time, or a redirect to another place.
    """
    try:
        return _follow(call, request)
    except TimeoutError:
        raise Unavailable(f"{call.host} did not answer within {call.timeout:g} s.") from None
    except ConnectionRefusedError:
        raise Unavailable(f"{call.host} refused the connection.", hint="Start the server.") from None
    except (OSError, ValueError) as error:
        # The exception itself may hold the URL or a header, with a secret in it.
        raise Unavailable(f"{call.host} cannot be reached: {secrets.blot_out(str(error))}.") from None


def _follow(call: Call, request: Request) -> Response:
    home, end = urlsplit(call.url)[:2], time.monotonic() + call.timeout
    response = send(request)
    for _ in range(MOST_REDIRECTS):
        target = response.redirect(request.url)
        if target is None or urlsplit(target)[:2] != home or request.method != "GET":
            break
        request = replace(request, url=target, total_seconds=end - time.monotonic())
        response = send(request)
    if 300 <= response.status < 400:
        raise Unavailable(
            f"{call.host} redirects elsewhere (HTTP {response.status}), which is not followed.",
            hint="Write the final address into the manifest.",
        )
    return response


def select(value: Any, path: str) -> Any:
    """Return the part of a JSON value at `path`: keys joined by dots, `[0]` for an item.

    Raises:
        ValueError: there is nothing there; names the step and what is there instead.
    """
    for match in _STEP.finditer(path):
        key, index = match[1], match[2]
        if key is not None and isinstance(value, dict) and key in value:
            value = cast(Json, value)[key]
        elif index is not None and isinstance(value, list) and int(index) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(index)]
        else:
            kind: str = type(cast(object, value)).__name__
            there = ", ".join(list(cast(Json, value))[:10]) if isinstance(value, dict) else kind
            raise ValueError(f"it holds no '{path}' (at '{match[0]}' there is: {there})")
    return value


def shorten(value: Any, most: int) -> tuple[Any, bool]:
    """Return the value in at most `most` characters of JSON (a list loses items), and whether something was cut."""
    text = compact_json(value)
    if len(text) <= most:
        return value, False
    if not isinstance(value, list):
        return text[:most], True
    items, size = cast("list[Any]", value), 2
    for position, item in enumerate(items):
        size += len(compact_json(item)) + 1
        if size > most:
            return items[:position], True
    return items, False


# ---------------------------------------------------------------- reading the manifest


class HttpCalls(ManifestProvider):
    """Every `http` manifest."""

    name = "http"
    kind = "http"

    def read(self, fields: Fields) -> HttpTool:
        common = read_common(fields, KINDS)
        return HttpTool(*common, read_call(fields, common.parameters))


def read_call(fields: Fields, parameters: dict[str, Parameter]) -> Call:
    """Return what to send, and what of the response is the answer."""
    url = fields.text("url", required=True)
    _check_url(fields, url, parameters)
    query = _read_templates(fields, "query", parameters)
    for name, value in query.items():
        if isinstance(value, dict):
            fields.complain(f"query.{name} must be a text, a number or a list of them.", "query")
    method = fields.choice("method", METHODS, "GET")
    body = _read_templates(fields, "body", parameters) if fields.has("body") else None
    if body is not None and method == "GET":
        fields.complain("A GET request has no body.", "body", hint='Write method = "POST", or use [query].')
    return Call(
        method=method,
        url=url,
        query=query,
        headers=_read_headers(fields.table("headers")),
        body=body,
        result=fields.text("result"),
        timeout=fields.number("timeout", 30, least=0.1, most=600),
        max_output=fields.whole("max_output", 100_000, least=1, most=400_000),
    )


def _check_url(fields: Fields, url: str, parameters: dict[str, Parameter]) -> None:
    refuse_unknown_placeholders(fields, "url", url, parameters, always=True)
    try:
        parts = urlsplit(url)
        port_is_fixed = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fixed = urlsplit(""), False
    if not url:
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fixed:
        fields.complain("url must begin with http:// or https:// and a host.", "url")
    elif placeholders(parts.netloc) or "{" in parts.netloc:
        fields.complain("The host must be fixed: a parameter cannot stand in it.", "url")
    if parts.username or parts.password:
        fields.complain("url must hold no password.", "url", hint='Use [headers]: Authorization = "Basic ${NAME}".')
    if parts.fragment:
        fields.complain("url has a part after '#', which is never sent.", "url")
    if _SECRET.search(url):
        fields.complain("url must hold no ${VARIABLE}.", "url", hint="Put it into [query] or [headers].")
    if re.search(r"[\s\x00-\x1f]", url) or not url.isascii():
        fields.complain("url holds a space or a letter that must be percent-encoded.", "url")


def _read_headers(fields: Fields) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name in fields.keys():
        value = fields.text(name)
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable():
            fields.complain(f"{fields.named(name)} is no header that can be sent.", name)
        elif name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            fields.complain(f"{fields.named(name)} is set by the request itself.", name)
        elif placeholders(_SECRET.sub("", value)):
            fields.complain(f"{fields.named(name)}: a parameter cannot stand in a header.", name)
        else:
            headers[name] = value
    return headers


def _read_templates(fields: Fields, key: str, parameters: dict[str, Parameter]) -> Json:
    """Return a table whose texts may name parameters, at any depth."""
    table = fields.raw(key)
    if table is None:
        return {}
    if not isinstance(table, dict):
        fields.complain(f"{key} must be a table: [{key}]", key)
        return {}
    for text in _texts_in(cast(Json, table)):
        if not _SECRET.search(text):
            # A text around the placeholder needs its value; alone, the whole entry can be left out.
            always = only_placeholder(text) is None
            refuse_unknown_placeholders(fields, key, text, parameters, always=always)
        elif key == "body" or placeholders(_SECRET.sub("", text)):
            fields.complain(f"{key}: ${{VARIABLE}} may stand in [headers] and [query] only, without parameters.", key)
    return cast(Json, table)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast(Json, value).values():
            yield from _texts_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts_in(item)


def _secrets_in(call: Call) -> Iterator[str]:
    for text in (*call.headers.values(), *_texts_in(dict(call.query))):
        yield from _SECRET.findall(text)
