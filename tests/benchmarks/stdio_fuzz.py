"""Calls every tool over stdio with fitting and hostile values, in three profiles, from a seed.

    python tests/benchmarks/stdio_fuzz.py [--calls 20000] [--seed 1] [--in-flight 8]

The client speaks to a real `localmcp serve` through pipes. Profiles are everything, reading only, and one collection
with write rights. Problems are: a call without an answer after 10 s, an answer that is no JSON-RPC, a traceback in an
answer or in the log, a tool that failed unexpectedly, an answer with a path of this machine that neither a call nor the
file named, a server that ended. The exit code is the number of problems.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from http_hostile import LEAKS, ODD_TEXTS, Attacker, Json  # noqa: E402

HANGING_SECONDS = 10.0
PROFILES = """
[everything]
rights = "admin"

[reading]
rights = "read"

[bound]
collections = ["default"]
rights = "write"
"""
PATHS = re.compile(r"(?:/[\w.+-]+){2,}")
OTHERS = ("resources/list", "resources/templates/list", "prompts/list", "resources/read", "prompts/get",
          "completion/complete", "logging/setLevel", "resources/subscribe", "tools/list", "ping")  # fmt: skip


class Caller(Attacker):
    """Makes calls instead of requests; ids, paths and names that earlier answers held come back as values."""

    def __init__(self, seed: int, tools: dict[str, Json], folder: Path) -> None:
        super().__init__(seed, "", tools)
        self.seen = ["default", str(folder / "documents"), str(folder / "missing"), str(folder), "/", "~", "Bees"]

    def text(self) -> str:
        return self.dice.choice(self.seen) if self.dice.random() < 0.4 else super().text()

    def message(self) -> Json:
        if self.dice.random() < 0.08:
            return {"method": self.dice.choice(OTHERS), "params": self.others()}
        name = self.dice.choice([*self.tools])
        params: Json = {"name": name, "arguments": self.arguments(name)}
        if self.dice.random() < 0.02:
            params["arguments"] = self.value()
        if self.dice.random() < 0.1:
            params["_meta"] = {"progressToken": self.dice.randrange(1 << 30)}
        return {"method": "tools/call", "params": params}

    def others(self) -> Json:
        uri = self.dice.choice(["localmcp://document/", "file://", "", "localmcp://x/"]) + self.text()
        argument = {"name": self.dice.choice(["id", "name", self.text()]), "value": self.text()}
        reference: Json = self.dice.choice([
            {"type": "ref/resource", "uri": uri}, {"type": "ref/prompt", "name": self.text()}, self.value()
        ])  # fmt: skip
        return {"uri": uri, "name": self.text(), "arguments": {"context": self.text()}, "cursor": self.text(),
                "ref": reference, "argument": argument, "level": self.text()}  # fmt: skip

    def learn(self, answer: bytes) -> None:
        """Keep an id of the answer now and then."""
        if self.dice.random() < 0.2:
            found = re.findall(rb"[0-9a-f]{8}-[0-9a-f-]{27}", answer)[:3]
            self.seen = [*self.seen[-60:], *(each.decode() for each in found)]


class Client:
    """A server process and what it answered."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        self.answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(b"")

    def send(self, message: Json) -> None:
        assert self.process.stdin is not None
        # Halves of characters go out as escapes, which JSON allows.
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, seconds: float) -> bytes | None:
        """The next line; None if none came in time, empty if the server ended."""
        try:
            return self.answers.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            return None

    def begin(self) -> dict[str, Json]:
        """Shake hands; every tool of this profile with its schema."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
        self.send({"id": "hello", "method": "initialize", "params": params})
        self.receive(60)
        self.send({"method": "notifications/initialized"})
        self.send({"id": "tools", "method": "tools/list"})
        while (line := self.receive(60)) and b'"tools"' not in line[:40] + line[-40:]:
            pass
        assert line, self.log.read_text()
        return {tool["name"]: {"schema": tool["inputSchema"]} for tool in json.loads(line)["result"]["tools"]}

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def fuzz(client: Client, caller: Caller, calls: int, in_flight: int, known: str) -> tuple[list[str], Counter[str]]:
    """Keep so many calls under way; problems, and how many answers were of which kind."""
    problems: list[str] = []
    kinds: Counter[str] = Counter()
    waiting: dict[int, tuple[float, Json]] = {}
    sent = 0
    while sent < calls or waiting:
        while sent < calls and len(waiting) < in_flight:
            message = caller.message()
            waiting[sent] = (time.monotonic(), message)
            client.send({"id": sent, **message})
            sent += 1
        oldest = min(since for since, _ in waiting.values())
        line = client.receive(oldest + HANGING_SECONDS - time.monotonic())
        if line == b"":
            return [*problems, f"the server ended; under way: {list(waiting.values())}"], kinds
        if line is None:
            for number, (since, message) in list(waiting.items()):
                if time.monotonic() - since >= HANGING_SECONDS:
                    problems.append(f"no answer after {HANGING_SECONDS:.0f} s: {json.dumps(message)[:600]}")
                    del waiting[number]
            continue
        answer = json.loads(line)
        _, message = waiting.pop(answer.get("id"), (0.0, {})) if "id" in answer else (0.0, {})
        if message:
            kinds[_kind(answer)] += 1
            caller.learn(line)
            problems += [
                f"{problem}: {json.dumps(message)[:600]} -> {line[:900]!r}" for problem in judge(line, message, known)
            ]
    return problems, kinds


def _kind(answer: Json) -> str:
    if "error" in answer:
        return f"error {answer['error'].get('code')}"
    return "isError" if answer.get("result", {}).get("isError") else "result"


def judge(line: bytes, message: Json, known: str) -> list[str]:
    """What is wrong with an answer; `known`: two folders, and text, that it may hold paths of."""
    wrong = ["shows the inside"] if LEAKS.search(line) else []
    if b"failed unexpectedly" in line or b"Internal error" in line:
        wrong.append("a bug in a tool")
    known += json.dumps(message)
    own = tuple(known.split()[:2])
    paths = {path for path in PATHS.findall(line.decode()) if path not in known and not path.startswith(own)}
    return [*wrong, *(f"names {path}" for path in paths if Path(path).exists())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=8)
    options = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = {f"LOCALMCP_{kind}_DIR": f"{folder}/{kind.lower()}" for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LOCALMCP_")}
        environment = {
            **kept,
            **places,
            "LOCALMCP_MODEL": "hash",
            "PYTHONPATH": str(ROOT),
            "LOCALMCP_SHOW_ALL_TOOLS": "1",
        }
        (folder / "config").mkdir()
        (folder / "config" / "profiles.toml").write_text(PROFILES)
        documents = folder / "documents"
        documents.mkdir()
        for number in range(12):
            (documents / f"{number}.md").write_text(
                f"# Bees {number}\n\nA hive has one queen; honey is made in summer.\n"
            )
        program = [sys.executable, "-m", "localmcp", "--db", f"{folder}/fuzz.localmcp"]
        subprocess.run([*program, "add", str(documents), "--quiet"], env=environment, check=True)
        for number, profile in enumerate(("everything", "reading", "bound")):
            share = options.calls // 3 + (number < options.calls % 3)
            log = folder / f"{profile}.log"
            client = Client([*program, "serve", "--profile", profile], environment, log)
            tools = client.begin()
            start = time.perf_counter()
            caller = Caller(options.seed * 10 + number, tools, folder)
            wrong, kinds = fuzz(client, caller, share, options.in_flight, f"{documents} {ROOT} {' '.join(ODD_TEXTS)}")
            client.end()
            text = log.read_text(errors="replace")
            wrong += (
                [f"a traceback in the log: {text[text.index('Traceback') - 300 :][:3000]}"]
                if "Traceback" in text
                else []
            )
            problems += wrong
            seconds = time.perf_counter() - start
            print(
                f"{profile}: {len(tools)} tools, {share} calls in {seconds:.0f} s, "
                f"{dict(kinds)}, {len(wrong)} problems",
                flush=True,
            )
            for problem in wrong[:8]:
                print(f"    {problem[:1200]}", flush=True)
    print(f"{options.calls} calls, seed {options.seed}: {len(problems)} problems")
    return min(len(problems), 100)


if __name__ == "__main__":
    sys.exit(main())
