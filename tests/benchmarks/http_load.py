"""Many clients at once against a real `localmcp serve --http`: no error, no growth of memory, and how fast.

Run as: python tests/benchmarks/http_load.py [--clients 32] [--seconds 60] [--slow 2000 --bodies 100]. The tools are
mixed as an assistant mixes them; memory is the server's resident set, read every second. Beside the clients there may
be `--slow` connections whose request never ends, and `--bodies` that send the largest body again and again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CALLS: list[tuple[str, dict[str, Any], int]] = [
    ("search", {"query": "how is a backup restored", "limit": 5}, 6),
    ("search", {"query": "pension fund", "mode": "keyword"}, 3),
    ("search", {"query": "who is on call at night", "mode": "semantic"}, 2),
    ("list_sources", {"limit": 10}, 2),
    ("get_stats", {}, 2),
    ("searchQuickstarts", {"displayName": "create a blueprnt"}, 2),
    ("getRelevantRules", {"taskDescription": "write unit tests for the new endpoint"}, 2),
    ("tool_search", {"query": "remove a document"}, 1),
    ("addNumbers", {"a": 5, "b": 3}, 2),
    ("add_document", {"title": "Note", "text": "A note that the load test writes.", "replace": True}, 1),
]
"""Tool, arguments, how often among the others."""
SETTLING_SECONDS = 10


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int, keys: list[str], lines: list[str]) -> None:
        self.process = process
        self.port = port
        self.keys = keys
        self._lines = lines

    def get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.keys[0]}"})
        reply = json.loads(connection.getresponse().read())
        connection.close()
        return reply

    def log(self) -> str:
        return "".join(self._lines)

    def memory(self) -> tuple[float, float]:
        """Resident set, and the part of it that is the process's own (not pages of files, which the system takes back
        when it wants them), MB. Where the system does not tell them apart, the second is the first."""
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            whole, own = re.findall(r"(?:VmRSS|RssAnon):\s+(\d+)", status.read_text())
            return int(whole) / 1024, int(own) / 1024
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(self.process.pid)], capture_output=True, text=True).stdout
        return int(said) / 1024, int(said) / 1024


@contextmanager
def served(*, keys: list[str], model: str = "default", samples: bool = True) -> Iterator[Server]:
    """`localmcp serve --http` on a file of its own, until the block ends; `keys`: the scope of each."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCALMCP_", "SIMILARITY_"))}
        places = {f"LOCALMCP_{name}_DIR": f"{folder}/{name.lower()}" for name in ("STATE", "CONFIG", "DATA", "CACHE")}
        environment = {**kept, **places, "LOCALMCP_MODEL": model, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
        program = [sys.executable, "-m", "localmcp", "--db", f"{folder}/load.localmcp"]

        def run(*words: str) -> str:
            return subprocess.run(
                [*program, *words], env=environment, check=True, capture_output=True, text=True
            ).stdout

        if samples:
            run("add", str(ROOT / "sample_data" / "documents"), "--quiet")
        made = [
            json.loads(run("keys", "create", "--name", "load", "--scope", each, "--json"))["apiKey"] for each in keys
        ]
        process = subprocess.Popen(
            [*program, "serve", "--http", "--port", "0"],
            env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        lines: list[str] = []
        ready = threading.Event()
        reader = threading.Thread(target=_read_log, args=(process, lines, ready), daemon=True)
        reader.start()
        try:
            if not ready.wait(60):
                raise SystemExit(f"the server did not start: {''.join(lines)}")
            found = re.search(r"Listening on http://127.0.0.1:(\d+)", "".join(lines))
            assert found is not None, lines
            yield Server(process, int(found[1]), made, lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reader.join(10)


def _read_log(process: subprocess.Popen[str], lines: list[str], ready: threading.Event) -> None:
    """Keeps what is worth a look: the one line of every request would fill memory."""
    assert process.stderr is not None
    for line in process.stderr:
        if "HTTP Transport" not in line and "Executing tool" not in line:
            lines.append(line)
        if "Listening on" in line:
            ready.set()
    ready.set()


class Client(threading.Thread):
    """One client that calls without a pause over one connection."""

    def __init__(self, server: Server, number: int, until: float) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.dice = random.Random(number)
        self.key = server.keys[number % len(server.keys)]
        self.path = ("/mcp", "/api/mcp", "/tools")[number % 3]
        self.until = until
        self.seconds: list[float] = []
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        names, weights = [each[:2] for each in CALLS], [each[2] for each in CALLS]
        while time.perf_counter() < self.until:
            [(tool, arguments)] = self.dice.choices(names, weights)
            start = time.perf_counter()
            try:
                wrong = self.call(connection, tool, arguments)
            except (OSError, http.client.HTTPException, ValueError) as error:
                wrong = f"{type(error).__name__}: {error}"
                connection.close()
            self.seconds.append(time.perf_counter() - start)
            if wrong:
                self.errors[f"{self.path} {tool}: {wrong}"] += 1
        connection.close()

    def call(self, connection: http.client.HTTPConnection, tool: str, arguments: dict[str, Any]) -> str | None:
        """What was wrong with the reply, or None."""
        if tool == "add_document":
            arguments = {
                **arguments,
                "title": f"Note {self.dice.randrange(50)}",
                "text": f"A note, {self.dice.random()}.",
            }
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        path, body = (f"/tools/{tool}", {"input": arguments}) if self.path == "/tools" else (self.path, message)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        said = response.read()
        reply = json.loads(said)
        right = (
            reply.get("success") if self.path == "/tools" else "result" in reply and not reply["result"].get("isError")
        )
        return None if response.status == 200 and right else f"{response.status} {said[:200]!r}"


def hold_slow(port: int, count: int, until: float) -> None:
    """Keep that many connections open, of which each sends a byte of its request every few seconds; closed ones are
    opened again."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(files, min(most, count + 500)), most))
    held: list[socket.socket] = []
    while time.perf_counter() < until:
        for connection in list(held):
            with suppress(BlockingIOError):
                try:
                    connection.send(b"x")
                except OSError:
                    connection.close()
                    held.remove(connection)
        while len(held) < count and time.perf_counter() < until:
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=5)
                connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
            except OSError:
                break
            connection.setblocking(False)
            held.append(connection)
        time.sleep(1)
    print(f"slow connections held at the end: {len(held)}")


def send_bodies(server: Server, body: bytes, until: float) -> None:
    """Send a body again and again, without a pause."""
    while time.perf_counter() < until:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with suppress(OSError, http.client.HTTPException):
            headers = {"Authorization": f"Bearer {server.keys[-1]}", "Content-Type": "application/json"}
            connection.request("POST", "/mcp", body, headers)
            connection.getresponse().read()
        connection.close()


def percentile(sorted_seconds: list[float], share: float) -> float:
    return 1000 * sorted_seconds[min(len(sorted_seconds) - 1, int(len(sorted_seconds) * share))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--model", default="default")
    parser.add_argument("--slow", type=int, default=0)
    parser.add_argument("--bodies", type=int, default=0)
    options = parser.parse_args()
    with served(keys=["write"] * 4, model=options.model) as server:
        begin = time.perf_counter()
        until = begin + options.seconds
        threading.Thread(target=hold_slow, args=(server.port, options.slow, until), daemon=True).start()
        # The largest that is read, and the slowest to parse. Made once: a hundred makers would hold up the clients.
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [[0] * 9] * 36_000}}
        body = json.dumps(message).encode()
        for _ in range(options.bodies):
            threading.Thread(target=send_bodies, args=(server, body, until), daemon=True).start()
        clients = [Client(server, each, until) for each in range(options.clients)]
        for each in clients:
            each.start()
        memory: list[tuple[float, float]] = []
        while any(each.is_alive() for each in clients):
            memory.append(server.memory())
            time.sleep(1)
        lasted = time.perf_counter() - begin
    seconds = sorted(each for client in clients for each in client.seconds)
    errors = sum((client.errors for client in clients), Counter[str]())
    settling = min(SETTLING_SECONDS, len(memory) // 2)
    print(f"{options.clients} clients, {lasted:.0f} s: {len(seconds)} calls, {len(seconds) / lasted:.0f} a second")
    print("milliseconds: " + ", ".join(f"p{int(s * 100)} {percentile(seconds, s):.0f}" for s in (0.5, 0.95, 0.99)))
    for name, series in zip(("resident", "own"), zip(*memory, strict=True), strict=True):
        first, settled, last = series[0], series[settling:], series[-1]
        print(
            f"{name} MB: {first:.0f} at first, {settled[0]:.0f} after {settling} s, {max(settled):.0f} at most after "
            f"that, {last:.0f} at the end; by second:",
            " ".join(f"{each:.0f}" for each in series[:: max(1, len(series) // 30)]),
        )
    print(f"errors: {sum(errors.values())}")
    for text, count in errors.most_common(10):
        print(f"  {count} x {text}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
