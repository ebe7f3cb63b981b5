"""The command line on a file in the working directory, empty or filled."""

from pathlib import Path

import pytest
from command_line import CODE, FUND, GARDEN
from command_line import cli as cli


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
