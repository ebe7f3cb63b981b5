"""The command line as tests use it: in this process, in one of its own, and on a pseudo-terminal."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from localmcp.cli.program import execute
from localmcp.cli.session import Session

ROOT = Path(__file__).parents[1]
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")

GARDEN = """# Tomatoes

Black spots at the bottom of a tomato are a lack of calcium.

## Watering

Water in the morning and only at the root. Wet leaves invite blight.
"""
FUND = """# Il fondo pensione

Chi lascia il lavoro può riscattare la posizione.
L'invalidità permanente dà diritto al riscatto totale.
"""
CODE = "def retry_later(job):\n    return job.delay * 2\n"


class Ran(NamedTuple):
    """One run of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        return json.loads(self.err)["error"]


def spawn(*arguments: str, cwd: Path, **environment: str) -> Ran:
    """Runs a command line as a person does: a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "LOCALMCP_MODEL": "hash", **environment}
    run = subprocess.run(
        [sys.executable, "-m", "localmcp", *arguments], capture_output=True, cwd=cwd, env=variables, timeout=120
    )
    return Ran(run.returncode, run.stdout.decode(), run.stderr.decode())


def run_here(*arguments: str) -> int:
    """Run a command line in this process; returns its exit code."""
    session = Session()
    try:
        return execute(session, arguments)
    finally:
        session.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run a command line in this process."""
    return Ran(run_here(*arguments), *capsys.readouterr())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command line in this process, in `tmp_path`, with the model that needs no weights."""
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.chdir(tmp_path)

    def run_with(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return run(capsys, *arguments)

    return run_with


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, *arguments: str, cwd: Path, **environment: str) -> None:
        import pty

        self.ours, theirs = pty.openpty()
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        variables = {**inherited, "PYTHONPATH": str(ROOT), "LOCALMCP_MODEL": "hash", "TERM": "xterm", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "localmcp", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=variables,
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    def read_until(self, words: str) -> None:
        while words not in self.seen:
            piece = self._read()
            if not piece:
                self.process.wait(60)
                pytest.fail(f"ended without {words!r}: {self.seen}")
            self.seen += piece

    def end(self) -> str:
        while piece := self._read():
            self.seen += piece
        os.close(self.ours)
        self.process.wait(60)
        return self.seen

    def _read(self) -> str:
        try:
            return os.read(self.ours, 65536).decode(errors="replace")
        except OSError:
            # Linux says so when the other side is closed; macOS gives an empty read.
            return ""
