"""The command line on a file in the working directory, empty or filled."""

from pathlib import Path

import pytest
from command_line import CODE, FUND, GARDEN
from command_line import cli as cli
from folders import write


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of documents, one of them hidden."""
    folder = tmp_path / "notes"
    for name, text in {"garden.md": GARDEN, "fondo.md": FUND, "retry.py": CODE, ".secret.md": "hidden words"}.items():
        write(folder / name, text)
    return folder


@pytest.fixture
def filled(cli, notes: Path):
    """The command line on a file that holds `notes`."""
    assert cli("add", str(notes), "-q").code == 0
    return cli
