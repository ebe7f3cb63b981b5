"""A workspace whose configuration directory holds the manifests of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tool_manifests import open_workspace

from localmcp.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path) as workspace:
        yield workspace
