"""What the tests of connected servers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from federation import PATIENCE, Farm

from localmcp.hub import servers


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    # On a busy machine a first listing may take longer than a person is asked to wait.
    monkeypatch.setattr(servers, "FIRST_LISTING_SECONDS", PATIENCE)
    farm = Farm(tmp_path)
    yield farm
    farm.close()
