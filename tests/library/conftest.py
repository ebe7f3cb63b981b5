"""Set-up of the tests of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from consistency import disagreements
from desk import LEAN, SENTENCE, Desk

import localmcp
from localmcp.api.knowledge_file import KnowledgeFile
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database
from localmcp.tools import Answer


@pytest.fixture
def sound_afterwards(database: Database) -> Iterator[None]:
    """After each test, everything in its file must agree."""
    yield
    if database.path.exists():
        assert disagreements(database) == []


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnowledgeFile:
    """An empty file with the hash model."""
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    (tmp_path / "home").mkdir()
    return localmcp.open(tmp_path / "home" / "kb.localmcp")


@pytest.fixture
def desk(database: Database, hash_embedder: HashEmbedder) -> Desk:
    return Desk(database, hash_embedder)


@pytest.fixture
def ask(desk: Desk) -> Callable[..., Answer]:
    """Five documents of passages of about 600 characters, asked for as an assistant does."""
    for number in range(1, 7):
        text = "".join(f"## Part {part}\n\n{SENTENCE.format(number * 10 + part) * 6}\n\n" for part in range(1, 4))
        desk.add_text(f"Boiler manual {number}", f"# Boiler manual {number}\n\n{text}")

    def call(tool: str, **arguments: Any) -> Answer:
        return desk.registry.call(tool, arguments, LEAN)

    return call
