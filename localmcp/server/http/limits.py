"""Limits of one request and one caller: bytes, depth, seconds, and requests a minute."""

from __future__ import annotations

import json
import math
import re
import time
from collections import OrderedDict
from typing import Any, NoReturn

import anyio
from mcp.types import INVALID_REQUEST, PARSE_ERROR
from starlette.types import Receive

from localmcp.server.http.replies import SERVER_ERROR, Refused

MOST_DEPTH = 64
"""Nesting of a JSON body."""
BODY_SECONDS = 30.0
"""How long a body may take to arrive."""
MOST_BUCKETS = 10_000
"""Callers that are remembered for the rate limits; the one unseen for longest is forgotten first."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.S)
"""One without an end goes on to the end of the body: else each quotation mark in it would be tried as a beginning."""
_ROUND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKET = bytes(number for number in range(256) if number not in b"[]{}")


class ClientLeft(Exception):
    """The connection was closed while the request was being read."""


async def read_body(receive: Receive, most: int, declared: str | None) -> bytes:
    """Return the request's body, at most `most` bytes.

    Raises:
        Refused: 413 too large, 408 too slow.
        ClientLeft: there is nobody to answer.
    """
    if declared is not None and declared.isdecimal() and int(declared[:20]) > most:
        raise _too_large(most)
    body = bytearray()
    with anyio.move_on_after(BODY_SECONDS):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            body += message.get("body", b"")
            if len(body) > most:
                raise _too_large(most)
            if not message.get("more_body", False):
                return bytes(body)
    raise Refused(408, "The request's body did not arrive in time", headers={"connection": "close"})


def _too_large(most: int) -> Refused:
    return Refused(413, f"Request body too large: at most {most / 2**20:g} MB are accepted")


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises:
        Refused: 400 with -32700: not UTF-8, not JSON, or a number that JSON does not allow; with -32600: nested too
            deep.
    """
    if depth_of(body) > MOST_DEPTH:
        raise Refused(400, f"Invalid Request: nested deeper than {MOST_DEPTH} levels", code=INVALID_REQUEST)
    try:
        text = body.decode()
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite_float)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "Parse error: Invalid JSON", code=PARSE_ERROR, details=str(error)[:200]) from error


def depth_of(body: bytes) -> int:
    """Return how deep brackets are nested, outside of strings; an upper bound where there are few.

    Each round removes the innermost pairs, so that even millions of brackets need no loop over them in Python.
    """
    most = body.count(b"[") + body.count(b"{")
    if most <= MOST_DEPTH:
        return most
    left = _STRING.sub(b"", body).translate(_ROUND, _NO_BRACKET)
    for depth in range(MOST_DEPTH + 1):
        if b"()" not in left:
            # What is left has no partner, so the body is no JSON.
            return depth + left.count(b"(")
        left = left.replace(b"()", b"")
    return MOST_DEPTH + 1


def _refuse_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


class RateLimit:
    """A bucket of tokens per caller, which fills evenly; one minute's worth may be taken at once.

    Used from the event loop only.
    """

    def __init__(self, per_minute: int) -> None:
        """`per_minute`: 0 = no limit."""
        self._most = float(per_minute)
        self._per_second = per_minute / 60
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take one token.

        Raises:
            Refused: 429, with the seconds until there is one in Retry-After.
        """
        if not self._most:
            return
        now = time.monotonic()
        tokens, since = self._buckets.pop(caller, (self._most, now))
        tokens = min(self._most, tokens + (now - since) * self._per_second)
        self._buckets[caller] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if tokens < 1:
            wait = max(1, math.ceil((1 - tokens) / self._per_second))
            raise Refused(429, "Too many requests", code=SERVER_ERROR, headers={"retry-after": str(wait)})
