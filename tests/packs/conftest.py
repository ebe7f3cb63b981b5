"""A pack of bees, and a file of one's own beside which it is mounted or into which it is merged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from given_files import HIVES, make_pack

from localmcp.config import Settings
from localmcp.workspace import Workspace


@pytest.fixture(scope="session")
def packed_bees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("packed") / "bees.localmcp", HIVES)


@pytest.fixture
def bees(packed_bees: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(packed_bees, tmp_path / "bees.localmcp"))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as workspace:
        workspace.library.add_text("Our garden has a hive behind the roses.", "Garden")
        yield workspace
