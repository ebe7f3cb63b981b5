"""The stdio server end to end: handshake, first search, later searches, memory.

    python tests/benchmarks/serve_speed.py --size 10000 --workdir /tmp/bench [--searches 1000] [--json FILE]

The file has N synthetic chunks whose vectors claim to be the default model's, so that the real server loads the real
model and embeds every query. CPU seconds are the server's own (user + system, all threads).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import search_speed

from localmcp.models.local_model import DefaultEmbedder

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


class Server:
    """A server process that is spoken to in JSON lines."""

    def __init__(self, database: Path) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "localmcp", "serve", "--db", str(database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.number = 0
        self.request("initialize", INITIALIZE)
        self.greeted = time.perf_counter()

    def request(self, method: str, params: dict[str, Any]) -> Any:
        assert self.process.stdin and self.process.stdout
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            reply = json.loads(self.process.stdout.readline())
            if reply.get("id") == self.number:
                return reply["result"]

    def search(self, query: str, **arguments: Any) -> Any:
        result = self.request("tools/call", {"name": "search", "arguments": {"query": query, **arguments}})
        assert not result.get("isError"), result["content"][0]["text"]
        return result["structuredContent"]

    def resident_megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return float("nan")
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def close(self) -> float:
        """End it; the CPU seconds it took."""
        assert self.process.stdin
        self.process.stdin.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = status
        return usage.ru_utime + usage.ru_stime


def measure_handshake(database: Path, rounds: int) -> dict[str, float]:
    bare, greeted = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - start)
        server = Server(database)
        greeted.append(server.greeted - server.started)
        server.close()
    bare_ms, greeted_ms = 1000 * statistics.median(bare), 1000 * statistics.median(greeted)
    return {"python_pass_ms": bare_ms, "initialize_ms": greeted_ms, "ratio": greeted_ms / bare_ms}


def measure_first_search(database: Path, query: str, rounds: int) -> dict[str, float]:
    walls, cpus = [], []
    for _ in range(rounds):
        server = Server(database)
        start = time.perf_counter()
        assert "notices" not in server.search(query)
        walls.append(time.perf_counter() - start)
        cpus.append(server.close())
    return {"first_search_wall_s": statistics.median(walls), "first_search_cpu_s": statistics.median(cpus)}


def measure_later_searches(database: Path, queries: list[str], count: int) -> dict[str, float]:
    server = Server(database)
    server.search(queries[0])
    took = []
    for number in range(count):
        start = time.perf_counter()
        server.search(f"{queries[number % len(queries)]} {number}")
        took.append(1000 * (time.perf_counter() - start))
    memory = server.resident_megabytes()
    server.close()
    p95 = statistics.quantiles(took, n=20)[-1]
    return {"search_p50_ms": statistics.median(took), "search_p95_ms": p95, "rss_mb": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    search_speed.ClusterEmbedder.identity = DefaultEmbedder().identity
    database = options.workdir / f"served-{options.size}.localmcp"
    search_speed.build(database, options.size)
    queries = search_speed.Corpus().queries()["sentence"]
    result = {
        "chunks": options.size,
        **measure_handshake(database, options.rounds),
        **measure_first_search(database, queries[0], 5),
        **measure_later_searches(database, queries, options.searches),
    }
    for name, value in result.items():
        print(f"{name:22} {value:10.2f}" if isinstance(value, float) else f"{name:22} {value:10}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
