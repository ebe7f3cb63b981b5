"""The command line on a file in the working directory, empty or filled."""

import io
import sys
from pathlib import Path

import pytest
from command_line import CODE, FUND, GARDEN, Ran

from localmcp.cli.program import execute
from localmcp.cli.session import Session


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command line in this process, in `tmp_path`, with the model that needs no weights."""
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        session = Session()
        try:
            code = execute(session, arguments)
        finally:
            session.close()
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of documents, one of them hidden."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "garden.md").write_text(GARDEN, encoding="utf-8")
    (folder / "fondo.md").write_text(FUND, encoding="utf-8")
    (folder / "retry.py").write_text(CODE, encoding="utf-8")
    (folder / ".secret.md").write_text("hidden words", encoding="utf-8")
    return folder


@pytest.fixture
def filled(cli, notes: Path):
    """The command line on a file that holds `notes`."""
    assert cli("add", str(notes), "-q").code == 0
    return cli
