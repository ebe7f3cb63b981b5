"""Folders of documents for tests, and how each was indexed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localmcp.library.ingest import Library
from localmcp.models import HashEmbedder, embedder
from localmcp.storage.database import Database, fetch_all

CALIBRATION = {text for pair in (*embedder._ANSWERS, *embedder._ABROAD) for text in pair}  # pyright: ignore[reportPrivateUsage]
"""What a model is measured with when its first vectors are stored."""


class CountingEmbedder(HashEmbedder):
    """Remembers what it was asked to embed, but for its calibration."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension)
        self.embedded: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> Any:
        self.embedded += [text for text in texts if text not in CALIBRATION]
        return super().embed_passages(texts)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def many_sections(count: int, word: str = "topic") -> str:
    """A document whose sections are chunks of their own."""
    return "# Many\n\n" + "".join(
        f"## Part {n}\n\n" + f"{word} {n} is told here at some length, so that it stands alone. " * 14 + "\n\n"
        for n in range(count)
    )


def titles(database: Database) -> list[str]:
    with database.read() as connection:
        return [r[0] for r in fetch_all(connection, "select title from sources where trashed_at is null order by 1")]


def ids(database: Database) -> dict[str, str]:
    """File name -> source id, of what is searched."""
    with database.read() as connection:
        rows = fetch_all(connection, "select uri, uuid from sources where trashed_at is null and uri is not null")
    return {Path(uri).name: uuid for uri, uuid in rows}


def column(database: Database, sql: str) -> list[Any]:
    with database.read() as connection:
        return [row[0] for row in fetch_all(connection, sql)]


def status(library: Library, path: Path) -> tuple[str, str]:
    """Status and reason in the ledger."""
    [entry] = library.why(path)["entries"]
    return entry["status"], entry["reason"]
