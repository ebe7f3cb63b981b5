"""Nothing leaves the machine: no command, server or screen asks for a name, or opens a socket to anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WATCH = """
import os, sys

def watch(event, arguments, log=os.environ["SOCKET_LOG"], windows=sys.platform == "win32"):
    if not event.startswith("socket.") or event == "socket.gethostname":
        return
    if event == "socket.__new__":
        # asyncio wakes itself through a pair of local sockets; Windows has them as TCP to itself.
        if windows or int(arguments[1]) not in INTERNET:
            return
    elif windows and arguments[-1][:1] in (("127.0.0.1",), ("::1",)):
        return
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{event} {arguments[1:]} in {sys.argv}\\n")

INTERNET = (2, 10, 23, 30)  # AF_INET, and AF_INET6 of Linux, Windows and macOS
sys.addaudithook(watch)
"""
"""Runs in every process before anything else, child processes too: Python imports `sitecustomize` by itself."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "sockets.log"


KEPT = ("PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "TEMP", "TMP", "LANG", "TZ")
"""What a person's machine has too. A variable such as CI makes libraries keep quiet that otherwise report home."""


@pytest.fixture
def environment(tmp_path: Path, log: Path, own_directories: Path) -> dict[str, str]:
    """A person's machine: directories of this test's own, an empty home, and a watch on sockets."""
    folder = tmp_path / "watch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.upper() in KEPT or name.startswith("LOCALMCP_")}
    places = {"HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home), "APPDATA": str(home)}
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {**kept, **places, "PYTHONPATH": path, "SOCKET_LOG": str(log)}


@cache
def cut_off() -> tuple[str, ...]:
    """In front of a command: a namespace without a network, where the system lets us make one."""
    command = ("unshare", "--map-root-user", "--net")
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return ()
    return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else ()


def run(environment: dict[str, str], *words: str, stdin: str = "", before: tuple[str, ...] | None = None) -> str:
    command = [*(cut_off() if before is None else before), sys.executable, *words]
    done = subprocess.run(
        command,
        env=environment,
        cwd=Path(environment["HOME"]).parent,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def conversation() -> str:
    """What a client writes: handshake, list, a search, a tool of the hub."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        *(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(
                [
                    ("add_document", {"title": "Bees", "text": "In winter bees live on honey."}),
                    ("search", {"query": "what do bees eat in winter"}),
                    ("tool_search", {"query": "add two numbers"}),
                    ("getRelevantRules", {"taskDescription": "write a test"}),
                    ("searchQuickstarts", {"name": "share"}),
                ],
                3,
            )
        ),
    ]
    return "".join(json.dumps(each) + "\n" for each in messages)


def test_the_watch_sees_a_socket(environment: dict[str, str], log: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    ask = "import socket; s = socket.socket(); s.settimeout(0); s.connect_ex(('192.0.2.1', 9))"
    run(environment, "-c", f"{ask}; socket.getaddrinfo('localhost', 80)")
    seen = log.read_text(encoding="utf-8")
    assert "socket.connect" in seen and "192.0.2.1" in seen and "socket.getaddrinfo" in seen


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "bees.md").write_text("# Bees\n\nIn winter bees live on honey.\n", encoding="utf-8")
    (folder / "page.html").write_text(
        '<html><body><img src="https://example.org/a.png"><p>Roses</p></body></html>', encoding="utf-8"
    )
    return folder


DAY = """
import json, sys
from localmcp.cli.program import execute
from localmcp.cli.session import Session

for words in json.loads(sys.argv[1]):
    session = Session()
    code = execute(session, words)
    session.close()
    assert code == 0, words
"""
"""Several commands in one process, so that the libraries are imported once."""


def left_at_home(environment: dict[str, str]) -> list[str]:
    """What lies in the home directory: localmcp's own places are elsewhere in these tests."""
    home = Path(environment["HOME"])
    return sorted(str(each.relative_to(home)) for each in home.rglob("*"))


def test_the_commands_of_a_day_open_no_socket(environment: dict[str, str], notes: Path, log: Path) -> None:
    commands = [
        ["add", str(notes)],
        ["search", "what do bees eat in winter"],
        ["rules", "add", "Name a test after the behaviour it checks", "--category", "testing"],
        ["ask", "how many documents are indexed?"],
        ["refresh"],
        ["status"],
        ["pack", "given.localmcp"],
    ]
    own = [["--db", "a.localmcp", *words] for words in commands]
    given = ["--db", "given.localmcp", "search", "honey", "--mode", "keyword"]
    told = run(environment, "-c", DAY, json.dumps([*own, given]))
    assert told.count("bees") >= 2
    assert not log.exists(), log.read_text(encoding="utf-8")
    assert left_at_home(environment) == []


def test_every_other_feature_opens_no_socket(environment: dict[str, str], notes: Path, log: Path) -> None:
    environment["LOCALMCP_MODEL"] = "hash"
    samples = ROOT / "sample_data"
    commands = [
        ["add", str(notes)],
        ["quickstarts", "import", str(samples / "quickstarts")],
        ["quickstarts", "search", "share a fiel"],
        ["rules", "import", str(samples / "rules")],
        ["rules", "search", "write tests for the login form"],
        ["collections", "insert", "papers", "Attention is all you need", "--metadata", '{"year": 2017}'],
        ["retrieve", "papers", "transformers", "--filter", '{"year": {"gte": 2015}}'],
        ["tools"],
        ["tools", "search", "put a document into the bin"],
        ["call", "addNumbers", '{"a": 2, "b": 3}'],
        ["servers", "list"],
        ["keys", "create", "--name", "me"],
        ["doctor"],
        ["backup", "copy.localmcp"],
        ["pack", "given.localmcp"],
        ["mount", "given.localmcp", "--as", "given"],
        ["search", "honey", "-c", "mount:given"],
        ["merge", "given.localmcp"],
        ["unmount", "given"],
        ["restore", "copy.localmcp", "--yes"],
        ["models", "use", "hash"],
        ["models", "list", "--all"],
        ["connect", str(notes / "mcp.json")],
    ]
    told = run(environment, "-c", DAY, json.dumps([["--db", "a.localmcp", *words] for words in commands]))
    assert "share-a-file" in told and "remove_source" in told
    assert not log.exists(), log.read_text(encoding="utf-8")
    assert left_at_home(environment) == []


def test_the_terminal_interface_opens_no_socket(environment: dict[str, str], notes: Path, log: Path) -> None:
    environment["LOCALMCP_MODEL"] = "hash"
    script = """
        import asyncio
        import sys
        from pathlib import Path

        sys.path[:0] = sys.argv[1:]
        import localmcp
        from localmcp.config import load_settings
        from tui_driver import open_tui

        async def main():
            file = Path("a.localmcp").absolute()
            with localmcp.open(file) as kb:
                kb.add("notes")
            async with open_tui(file, settings=load_settings(database=file)) as tui:
                await tui.type("honey")
                await tui.settle()

        asyncio.run(main())
    """
    run(environment, "-c", textwrap.dedent(script), str(ROOT / "tests"), str(ROOT / "tests" / "tui"))
    assert not log.exists(), log.read_text(encoding="utf-8")


def test_serving_opens_no_socket_that_python_or_the_system_sees(
    environment: dict[str, str], log: Path, tmp_path: Path
) -> None:
    """Libraries in machine code do not pass Python's watch; the kernel sees theirs."""
    trace = tmp_path / "trace"
    before = ("strace", "-f", "-qq", "-e", "trace=network", "-o", str(trace))
    is_traced = sys.platform == "linux" and shutil.which("strace") is not None
    is_traced = is_traced and subprocess.run([*before, "true"], capture_output=True).returncode == 0
    serve = ("-m", "localmcp", "--db", "a.localmcp", "serve")
    answers = run(environment, *serve, stdin=conversation(), before=before if is_traced else None).splitlines()
    assert {json.loads(answer).get("id") for answer in answers} >= {1, 2, 3, 4, 5, 6, 7}
    assert not log.exists(), log.read_text(encoding="utf-8")
    traced = trace.read_text(encoding="utf-8") if is_traced else ""
    assert [line for line in traced.splitlines() if "AF_INET" in line] == []
