"""Set-up of the tests of the library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from consistency import disagreements

from localmcp.storage.database import Database


@pytest.fixture
def sound_afterwards(database: Database) -> Iterator[None]:
    """After each test, everything in its file must agree."""
    yield
    if database.path.exists():
        assert disagreements(database) == []
