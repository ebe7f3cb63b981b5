"""What an archive may unpack to as a whole."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document
from localmcp.readers.packages import MOST_UNPACKED, read_archive


def nothing(file: BinaryIO, name: str) -> Iterator[Document]:
    yield from ()


def test_an_archive_that_unpacks_to_too_much_is_given_up() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(MOST_UNPACKED + 3):
            archive.writestr(f"{number}.txt", "a" * 1000)
    with pytest.raises(UnreadableDocument, match="holds too much"):
        list(read_archive(packed, "a.zip", nothing, max_bytes=1000))


def test_a_small_archive_that_unpacks_to_a_thousand_times_its_size_is_given_up_early() -> None:
    packed, unpacked = io.BytesIO(), 0

    def count(file: BinaryIO, name: str) -> Iterator[Document]:
        nonlocal unpacked
        unpacked += len(file.read())
        yield from ()

    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(15):
            archive.writestr(f"{number}.txt", bytes(900_000))
    with pytest.raises(UnreadableDocument, match="holds too much"):
        list(read_archive(packed, "a.zip", count, max_bytes=1_000_000))
    assert unpacked < 4_000_000


def test_one_file_that_a_small_archive_holds_is_not_read_if_it_is_much_too_large() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", bytes(30_000_000))
    with pytest.raises(UnreadableDocument, match="holds too much"):
        list(read_archive(packed, "a.zip", nothing, max_bytes=50_000_000))
