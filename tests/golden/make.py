"""Write what people and clients see to a folder: `make.py FOLDER`; without a folder, compare with this one.

The answers of each command on the sample data, the list of tools, and stdio transcripts of both protocol eras. Ids,
times and paths are replaced by their kind, so that two runs of the same program write the same text.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "sample_data"
COMMANDS = (
    "add DOCS --json",
    "quickstarts import SAMPLES/quickstarts --json",
    "rules import SAMPLES/rules --json",
    "search 'boiler error E110' --limit 3 --json",
    "search 'bread came out flat and too acidic' --limit 3 --json",
    "search 'certifcate expired lockers' --limit 2 --mode keyword --json",
    "search 'boiler error E110' --limit 1",
    "search 'boiler error E110' --limit 1 --explain",
    "show DOCS/welcome.md --json",
    "sources --limit 3 --json",
    "status --json",
    "why DOCS/welcome.md --json",
    "quickstarts search 'share a fiel' --json",
    "rules search 'write tests for the login form' --json",
    "ask 'how many documents are indexed?' --json",
    "tools search 'put a document into the trash' --json",
    "tools list --json",
    "collections insert papers 'Attention is all you need' --metadata '{\"year\": 2017}' --json",
    "retrieve papers transformers --json",
    "keys create --name me --json",
    "keys list --json",
    "call get_stats '{}' --json",
    "remove DOCS/welcome.md --yes --json",
    "trash list --json",
    "refresh --json",
    "pack PACK --title Sample --json",
    "verify PACK --json",
    "mount PACK --as sample --json",
    "mounts --json",
    "models list --json",
    "log --json",
    "help search",
)
SILENT = {"LOCALMCP_LOG_LEVEL": "error", "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}
REQUESTS: tuple[dict[str, Any], ...] = (
    {"method": "tools/list"},
    {"method": "tools/call", "params": {"name": "greetUser", "arguments": {"name": "John"}}},
    {"method": "tools/call", "params": {"name": "searchQuickstarts", "arguments": {"displayName": "API"}}},
    {"method": "tools/call", "params": {"name": "search", "arguments": {"query": "boiler error E110", "limit": 1}}},
    {"method": "tools/call", "params": {"name": "tool_search", "arguments": {"query": "add two numbers"}}},
    {"method": "tools/call", "params": {"name": "nothing", "arguments": {}}},
    {"method": "nothing/here"},
)
ERAS = ("2025-06-18", "2026-07-28")


def normalize(text: str, home: str) -> str:
    """Replace what differs between two runs by its kind."""
    for path, name in ((home, "HOME"), (str(SAMPLES.resolve()), "SAMPLES")):
        text = text.replace(path, name)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)?", "TIME", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?\b", "TIME", text)
    text = re.sub(
        r"(\"(?:semantic|keyword|combinedScore|seconds|embedSeconds|readSeconds)\": )[\d.]+", r"\1NUMBER", text
    )
    text = re.sub(r"mcp_[A-Za-z0-9]{6,}", "KEY", text)
    text = re.sub(r"\bid [0-9a-f]{8}\b", "id SHORT", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "HASH", text)
    text = re.sub(r"\b\d+(\.\d+)? m?s\b", "DURATION", text)
    return re.sub(r'("(?:\w*(?:[sS]econds|[mM]s|duration|[bB]ytes|mtime|size))":\s*)[\d.]+', r"\1NUMBER", text)


def run(command: str, home: str, environment: dict[str, str]) -> str:
    """Return what one command prints, with its exit code."""
    line = (
        command.replace("DOCS", f"{SAMPLES}/documents")
        .replace("SAMPLES", str(SAMPLES))
        .replace("PACK", f"{home}/sample.localmcp")
    )
    shell = f'"{sys.executable}" -m localmcp {line}'
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, env=environment, timeout=300)
    return f"$ localmcp {command}\nexit {done.returncode}\n{normalize(done.stdout, home)}"


def transcript(era: str, home: str, environment: dict[str, str]) -> str:
    """Return the answers of a stdio server to a client of one protocol era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": era,
        "io.modelcontextprotocol/clientInfo": {"name": "golden", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    stateless = era >= "2026"
    hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "golden", "version": "1"}}
    messages: list[dict[str, Any]] = (
        [{"method": "server/discover", "params": {"_meta": meta}}]
        if stateless
        else [{"method": "initialize", "params": hello}]
    )
    messages += [
        {**request, "params": {**request.get("params", {}), **({"_meta": meta} if stateless else {})}}
        for request in REQUESTS
    ]
    command = [sys.executable, "-m", "localmcp", "serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        lines = []
        for number, message in enumerate(messages):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **message}) + "\n")
            server.stdin.flush()
            while True:
                answer = json.loads(server.stdout.readline())
                if answer.get("id") == number:
                    break
            if number == 0 and not stateless:
                server.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            lines.append(
                f"> {message['method']}\n{normalize(json.dumps(answer, indent=1, ensure_ascii=False), home)}\n"
            )
        server.stdin.close()
        server.wait(30)
    return "".join(lines)


def write(folder: Path) -> None:
    """Write every file anew."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            **SILENT,
            "HOME": home,
            **{f"LOCALMCP_{kind}_DIR": f"{home}/{kind.lower()}" for kind in ("DATA", "CONFIG", "STATE", "CACHE")},
        }
        answers = [run(command, home, environment) for command in COMMANDS]
        (folder / "commands.txt").write_text("\n".join(answers), encoding="utf-8")
        for era in ERAS:
            (folder / f"stdio_{era}.txt").write_text(transcript(era, home, environment), encoding="utf-8")
        reference = subprocess.run(
            [sys.executable, "-m", "localmcp", "reference"], capture_output=True, text=True, env=environment
        )
        (folder / "reference.txt").write_text(normalize(reference.stdout, home), encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        write(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for file in sorted(Path(folder).iterdir()):
            before, after = (
                (place / file.name).read_text(encoding="utf-8").splitlines() for place in (HERE, Path(folder))
            )
            print(
                "\n".join(
                    difflib.unified_diff(before, after, f"before/{file.name}", f"now/{file.name}", lineterm="", n=1)
                )
            )


if __name__ == "__main__":
    main()
