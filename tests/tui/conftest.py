"""A folder in which the library of the TUI's tests is made once for each process, with its absolute paths."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tui_driver import RunningTui, make_library, open_tui


@pytest.fixture
def tmp_path(homes: Path) -> Path:
    """Return the same folder for every test, empty."""
    folder = homes / "person"
    while folder.exists():
        # A thread of the test before may still write its last file.
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture
async def tui(tmp_path: Path) -> AsyncIterator[RunningTui]:
    """The TUI on the library of `tui_driver`."""
    async with open_tui(make_library(tmp_path)) as tui:
        yield tui
