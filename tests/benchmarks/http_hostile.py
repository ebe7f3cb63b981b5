"""Malformed and hostile requests against a real `localmcp serve --http`, from a seed.

Run as: python tests/benchmarks/http_hostile.py [--count 10000] [--seed 1]. Every request must be answered (or the
connection closed) with no status 500 but the documented ones, no traceback may reach the client or the log, and the
server must go on answering.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Json = dict[str, Any]

PATHS = (
    "/mcp", "/api/mcp", "/mcp-query", "/api/quickstarts/v1/mcp", "/tools/search", "/api/mcp/keys/generate",
    "/api/mcp/keys/revoke",
)  # fmt: skip
METHODS = (
    "tools/list", "tools/call", "initialize", "ping", "resources/list", "notifications/cancelled", "server/discover",
    "subscriptions/listen", "logging/setLevel", "completion/complete", "", "../../etc", "tools/call\n",
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "\0", "\x1b[31m", "../../../etc/passwd", "C:\\Windows", "file:///etc/passwd", "'; drop table sources; --",
    '" OR 1=1', "${jndi:ldap://x}", "%s%n", "{0.__class__}", "\u202eabc", "e\u0301" * 50, "\ufeff", "𝒳" * 40,
    "NEAR(a b)", 'a* OR "', "x" * 5000, "\\", "mcp_" + "A" * 32, "-1", "1e309", "null", "true", "default", "search",
)  # fmt: skip
ODD_NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, 5e-324, 100, 101)
DOCUMENTED = ("tool not found: ", "Error executing tool: ", "Failed to generate tool call: ")
"""How the errors begin that a 500 may carry (C4-5, S0-24)."""
LEAKS = re.compile(
    rb'Traceback \(most recent|File "[^"]+", line \d+|site-packages|apsw\.|sqlite3\.|localmcp/[a-z_/]+\.py'
)
ANSWER_SECONDS = 40


@dataclass
class Hostile:
    """One request, and what it is meant to break."""

    kind: str
    data: bytes


@dataclass
class Report:
    """What came of them."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0


class Attacker:
    """Makes requests; the same seed makes the same ones."""

    def __init__(self, seed: int, key: str, tools: dict[str, Json]) -> None:
        self.dice = random.Random(seed)
        self.key = key
        self.tools = tools
        self.kinds: tuple[Callable[[], bytes], ...] = (
            self.broken_json, self.wrong_types, self.fuzzed_call, self.fuzzed_call, self.fuzzed_tool, self.deep_nesting,
            self.huge_text, self.half_characters, self.path_trick, self.header_trick, self.wrong_key, self.odd_method,
            self.odd_query, self.odd_sentence, self.random_bytes,
        )  # fmt: skip

    def requests(self, count: int) -> Iterator[Hostile]:
        for _ in range(count):
            make = self.dice.choice(self.kinds)
            yield Hostile(make.__name__, make())

    # ------------------------------------------------------------ well-formed requests, odd bodies

    def post(self, path: str, body: bytes, *more: str, key: str | None = "") -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        if key is not None:
            lines.append(f"Authorization: Bearer {key or self.key}")
        if self.dice.random() < 0.7:
            lines.append("Content-Type: application/json")
        if self.dice.random() < 0.2:
            lines.append(f"MCP-Protocol-Version: {self.dice.choice(['2025-11-25', '2026-07-28', '1999-01-01', 'x'])}")
        lines += [*more, "Connection: close"]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body

    def message(self) -> Json:
        name = self.dice.choice([*self.tools, "nope"])
        params = {"name": name, "arguments": self.arguments(name)}
        return {"jsonrpc": "2.0", "id": self.dice.randint(1, 99), "method": "tools/call", "params": params}

    def broken_json(self) -> bytes:
        text = bytearray(json.dumps(self.message()).encode())
        for _ in range(self.dice.randint(1, 5)):
            place = self.dice.randrange(max(len(text), 1))
            text = text or bytearray(b"{")
            action = self.dice.random()
            if action < 0.4:
                del text[place]
            elif action < 0.8:
                text[place] = self.dice.randrange(256)
            else:
                del text[place:]
                text += b"{"
        return self.post(self.dice.choice(PATHS), bytes(text))

    def wrong_types(self) -> bytes:
        message = self.message()
        target: Json = message if self.dice.random() < 0.6 else message["params"]
        for name in self.dice.sample(list(target), k=self.dice.randint(1, 2)):
            target[name] = self.value()
        if self.dice.random() < 0.3:
            target[self.text()] = self.value()
        if self.dice.random() < 0.3:
            message["method"] = self.dice.choice(METHODS)
        return self.post(self.dice.choice(PATHS), json.dumps(message).encode())

    def fuzzed_call(self) -> bytes:
        return self.post(self.dice.choice(["/mcp", "/api/mcp"]), json.dumps(self.message()).encode())

    def fuzzed_tool(self) -> bytes:
        name = self.dice.choice(list(self.tools))
        body: Json = {"input": self.arguments(name)}
        if self.dice.random() < 0.2:
            body["timeout"] = self.value()
        return self.post(f"/tools/{name}", json.dumps(body).encode())

    def deep_nesting(self) -> bytes:
        depth = self.dice.choice([60, 70, 500, 1001, 20_000, 400_000])
        opening, closing = self.dice.choice([("[", "]"), ('{"a":', "}")])
        filling = "" if opening == "[" else "1"
        nested = opening * depth + filling + closing * (depth if self.dice.random() < 0.7 else 0)
        whole = nested if self.dice.random() < 0.5 else f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{nested}}}'
        return self.post(self.dice.choice(PATHS), whole.encode())

    def huge_text(self) -> bytes:
        size = self.dice.choice([20_001, 100_000, 1_000_000, 5_000_000])
        text = self.dice.choice(["x", "é", "word ", "\\u0000", '"', "["]) * size
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": {"name": "search", "arguments": {"query": text[:size]}}})  # fmt: skip
        return self.post(self.dice.choice(PATHS[:4]), body.encode())

    def half_characters(self) -> bytes:
        half = self.dice.choice(["\\ud800", "\\udfff", "\\ud83d", "\\ude00\\ud83d", "\\uD800\\u0041"])
        message = json.dumps(self.message())
        place = message.find('"', self.dice.randrange(len(message)))
        text = message[: place + 1] + half + message[place + 1 :] if self.dice.random() < 0.7 else f'"{half}"'
        return self.post(self.dice.choice(PATHS), text.encode())

    def odd_sentence(self) -> bytes:
        body = {"query": self.dice.choice([self.text(), "greet " + self.text(), "add 1 and " + self.text()])}
        if self.dice.random() < 0.4:
            body[self.dice.choice(["limit", "maxDistance"])] = self.value()
        return self.post(self.dice.choice(PATHS[2:4]), json.dumps(body).encode())

    # ------------------------------------------------------------ odd requests

    def path_trick(self) -> bytes:
        path = self.dice.choice([
            "/tools/..%2f..%2fetc%2fpasswd", "//mcp", "/mcp%00", "/tools/%ff%fe", "/tools/%2e%2e", "/health/../tools",
            "/./health", "/tools/" + "a" * 9000, "http://evil.example/health", "*", "/tools/search/", "/MCP",
            "/tools//",
            "/health%2f", "/health;x", "/%68ealth", "/api/mcp/keys/../../../health", "/tools/%0d%0aX: y", "/api/mcp/",
            "/tools/" + quote(self.text()[:200]), "?", "#", "/tools/%", "/tools/%zz", "/\\mcp",
        ])  # fmt: skip
        method = self.dice.choice(["GET", "POST", "HEAD"])
        key = f"Authorization: Bearer {self.key}\r\n" if self.dice.random() < 0.5 else ""
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{key}Connection: close\r\n\r\n".encode(
            "utf-8", "replace"
        )

    def header_trick(self) -> bytes:
        key = f"Authorization: Bearer {self.key}"
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        second = b"GET /tools HTTP/1.1\r\nHost: localhost\r\n\r\n"
        tricks = [
            ["Content-Length: 5", "Content-Length: 40"], ["Content-Length: 40", "Transfer-Encoding: chunked"],
            ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], ["Content-Length: -1"],
            ["Content-Length: +40"], ["Content-Length: 40x"], ["Content-Length: 0x28"], ["Content-Length : 40"],
            [" Content-Length: 40"], ["Transfer-Encoding: xchunked"], 
            ["Transfer-Encoding: chunked", "Content-Length: 3"],
            ["Host: evil.example", "Content-Length: 40"], ["X: " + "y" * 60_000], [f"X-{n}: y" for n in range(3000)],
            ["X: a\x00b"], ["X: a\nY: b"], ["Accept: " + "a/b," * 3000, "Content-Length: 40"],
            ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: x"],
            ["Expect: 100-continue", "Content-Length: 40"],
            ["Expect: 200-maybe", "Content-Length: 40"], ["Content-Encoding: gzip", "Content-Length: 40"],
            ["Origin: null", "Content-Length: 40"], ["Origin: http://evil.example"], ["X-Forwarded-For: 10.0.0.1"],
            ["Content-Length: 999999999999999999999999"], ["Content-Length: ٤٠"],
            [f"Authorization: Bearer {self.key}", "Content-Length: 40"],
            ["Mcp-Session-Id: ../..", "Content-Length: 40"],
            ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: x", "Content-Length: 40"],
        ]  # fmt: skip
        lines = [f"POST {self.dice.choice(PATHS)} HTTP/1.1", "Host: localhost", key, *self.dice.choice(tricks)]
        end = self.dice.choice([b"", b"", second])
        joint = b"\r\n" if self.dice.random() < 0.9 else b"\n"
        return joint.join(line.encode() for line in lines) + joint * 2 + body + end

    def wrong_key(self) -> bytes:
        key = self.dice.choice([
            "mcp_" + "".join(self.dice.choices("abcXYZ019", k=32)), self.key[:-1], self.key + "x", self.key.swapcase(),
            self.key[:12] + "y" * 24, "", " ", "x" * 5000, "ключ", "mcp_", "null", "' or 1=1 --",
        ])  # fmt: skip
        header = self.dice.choice(["Authorization: Bearer {}", "Authorization: Basic {}", "X-API-Key: {}",
                                   "Authorization: Bearer {0} {0}", "Proxy-Authorization: Bearer {}"])  # fmt: skip
        return self.post(self.dice.choice(PATHS), json.dumps(self.message()).encode(), header.format(key), key=None)

    def odd_method(self) -> bytes:
        method = self.dice.choice(["TRACE", "CONNECT", "PUT", "PATCH", "OPTIONS", "get", "G" * 300, "PROPFIND", "HEAD"])
        version = self.dice.choice(["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTX/1.1", ""])
        path = self.dice.choice([*PATHS, "/health", "/tools"])
        return f"{method} {path} {version}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    def odd_query(self) -> bytes:
        path = self.dice.choice([
            "/api/mcp?sessionId=", "/api/mcp/logs?ragId=", "/api/mcp/keys/list?ragId=", "/api/mcp/keys/revoke?keyId=",
            "/api/mcp/logs?ragId=default&limit=", "/api/mcp/logs?ragId=default&offset=", "/tools?x=",
        ]) + quote(self.text()[:500] or str(self.dice.choice(ODD_NUMBERS)))  # fmt: skip
        method = self.dice.choice(["GET", "POST", "DELETE"])
        key = f"Authorization: Bearer {self.key}"
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{key}\r\nConnection: close\r\n\r\n".encode()

    def random_bytes(self) -> bytes:
        return self.dice.randbytes(self.dice.randint(1, 3000)) + b"\r\n\r\n"

    # ------------------------------------------------------------ odd values

    def arguments(self, name: str) -> Json:
        """Something for each of the tool's parameters, mostly of its type."""
        properties: Json = self.tools.get(name, {}).get("schema", {}).get("properties", {})
        given = {key: self.fitting(spec) for key, spec in properties.items() if self.dice.random() < 0.7}
        if self.dice.random() < 0.1:
            given[self.text()] = self.value()
        # Nobody has the patience: these wait by design.
        return {key: value for key, value in given.items() if key != "waitSeconds"}

    def fitting(self, spec: Json) -> Any:
        if self.dice.random() < 0.2:
            return self.value()
        if "enum" in spec:
            return self.dice.choice(spec["enum"])
        kind = spec.get("type")
        if kind == "array":
            return [self.fitting(spec.get("items", {})) for _ in range(self.dice.randint(0, 3))]
        by_kind: dict[Any, Callable[[], Any]] = {
            "string": self.text, "integer": lambda: self.dice.choice(ODD_NUMBERS),
            "number": lambda: self.dice.choice(ODD_NUMBERS), "boolean": lambda: self.dice.random() < 0.5,
            "object": lambda: {self.text(): self.value()},
        }  # fmt: skip
        return by_kind.get(kind, self.value)()

    def text(self) -> str:
        if self.dice.random() < 0.7:
            return self.dice.choice(ODD_TEXTS)
        return "".join(
            chr(self.dice.choice([self.dice.randrange(32, 127), self.dice.randrange(0xD7FF)])) for _ in range(20)
        )

    def value(self) -> Any:
        return self.dice.choice([
            None, True, False, [], {}, [[]], {"a": {"b": [1]}}, self.text(), self.dice.choice(ODD_NUMBERS),
            [self.text()], [None], {self.text(): None},
        ])  # fmt: skip


# ---------------------------------------------------------------- sending


def exchange(port: int, hostile: Hostile) -> bytes:
    """The reply: all of it, or what came until the server fell silent. Half a request is owed nothing for a while."""
    patience = 3 if hostile.kind == "header_trick" else ANSWER_SECONDS
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        parts = b""
        with suppress(TimeoutError, ConnectionError):
            connection.sendall(hostile.data)
        with suppress(TimeoutError, ConnectionError):
            while not _is_whole(parts) and (part := connection.recv(1 << 16)):
                parts += part
    return parts


def _is_whole(reply: bytes) -> bool:
    head, found, body = reply.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(found and (re.match(rb"HTTP/1.1 (204|202|1)", head) or (length and len(body) >= int(length[1]))))


def judge(hostile: Hostile, reply: bytes, report: Report) -> None:
    report.sent += 1
    report.kinds[hostile.kind] += 1
    status = reply[9:12].decode("latin-1") if reply.startswith(b"HTTP/1.") else "closed" if not reply else "odd"
    report.statuses[status] += 1
    body = reply.partition(b"\r\n\r\n")[2]
    wrong = ""
    if LEAKS.search(reply):
        wrong = "shows the inside"
    elif status.startswith("5") and status not in ("503",) and not _is_documented(body):
        wrong = f"status {status}"
    elif b"failed unexpectedly" in body:
        wrong = "a bug in a tool"
    elif status == "odd":
        wrong = "no HTTP"
    if wrong:
        report.faults.append(f"{hostile.kind}: {wrong}: {hostile.data[:600]!r} -> {reply[:600]!r}")


def _is_documented(body: bytes) -> bool:
    try:
        error = json.loads(body).get("error")
    except ValueError:
        return False
    return isinstance(error, str) and error.startswith(DOCUMENTED)


def attack(port: int, key: str, tools: dict[str, Json], count: int, seed: int, threads: int = 4) -> Report:
    """Send `count` requests."""
    report = Report()

    def one(hostile: Hostile) -> tuple[Hostile, bytes, float]:
        start = time.perf_counter()
        return hostile, exchange(port, hostile), time.perf_counter() - start

    with ThreadPoolExecutor(threads) as pool:
        for hostile, reply, seconds in pool.map(one, Attacker(seed, key, tools).requests(count)):
            judge(hostile, reply, report)
            if seconds > report.slowest:
                report.slowest = seconds
    return report


def main() -> int:
    from http_load import served

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with served(keys=["write"], model="hash") as server:
        tools = server.get("/tools")["tools"]
        start = time.perf_counter()
        report = attack(server.port, server.keys[0], tools, options.count, options.seed)
        alive = server.get("/health")["status"] == "ok"
        log = server.log()
    print(f"{report.sent} requests in {time.perf_counter() - start:.0f} s, seed {options.seed}")
    print("statuses:", dict(report.statuses.most_common()))
    print("kinds:", dict(report.kinds.most_common()))
    tracebacks = log.count("Traceback")
    print(f"slowest answer {report.slowest:.1f} s; still answering: {alive}; tracebacks in the log: {tracebacks}")
    for each in report.faults[:20]:
        print("FAULT", each)
    if "Traceback" in log:
        print(log[log.index("Traceback") - 300 : log.index("Traceback") + 3000])
    return 0 if alive and not report.faults and "Traceback" not in log else 1


if __name__ == "__main__":
    sys.exit(main())
