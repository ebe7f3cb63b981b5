"""A file of every earlier version opens, is upgraded with a copy kept, and answers; a newer one is left alone."""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
import sys
from pathlib import Path

import pytest

import localmcp
from localmcp.errors import FileTooNew, FileUnavailable
from localmcp.storage.adoption import adopt
from localmcp.storage.migrations import schema_version
from localmcp.storage.schema import expected_schema

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = sorted(int(each.name[1:].split(".")[0]) for each in FIXTURES.glob("v*.localmcp.gz"))


@pytest.fixture(params=VERSIONS, ids=lambda version: f"v{version}")
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path]:
    """A version, and a file that the code of that version wrote."""
    path = tmp_path / "kept.localmcp"
    path.write_bytes(gzip.decompress((FIXTURES / f"v{request.param}.localmcp.gz").read_bytes()))
    return request.param, path


def version_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    (version,) = connection.execute("pragma user_version").fetchone()
    connection.close()
    return version


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_of_every_earlier_version_is_kept() -> None:
    missing = set(range(1, schema_version())) - set(VERSIONS)
    assert not missing, "run `python tests/fixtures/keep_version.py` with the code before the migration"
    assert all((FIXTURES / f"v{each}.localmcp.gz").stat().st_size < 200_000 for each in VERSIONS)


def test_it_is_upgraded_with_a_copy_and_searched(kept: tuple[int, Path]) -> None:
    version, path = kept
    before = path.read_bytes()
    adopt(path)
    with localmcp.open(path, model="hash") as kb:
        assert [each.title for each in kb.search("siphon blocked", mode="keyword")] == ["Boiler"]
        hits = kb.search("bees keep the queen warm in winter")
        assert hits[0].title == "Bees" and hits[0].semantic > 0 and hits[0].metadata == {"kept": True}
        assert sorted(each.title for each in kb.sources()) == ["Bees", "Boiler", "Cucina"]
        kb.add_text("Basil wants sun and water.", "Basil")
        assert kb.search("basil sun", mode="keyword")[0].title == "Basil"
    assert version_of(path) == schema_version()
    copies = list(path.parent.glob("*.v*-backup"))
    if version == schema_version():
        assert copies == []
        return
    assert [each.name for each in copies] == [f"kept.localmcp.v{version}-backup"]
    assert version_of(copies[0]) == version
    assert rows(copies[0]) == rows_of(before, path.parent)


def rows(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("select title, text from chunks join sources on sources.id = source_id order by 1")
    listed = found.fetchall()
    connection.close()
    return listed


def rows_of(data: bytes, folder: Path) -> list[tuple[str, str]]:
    path = folder / "as-it-was"
    path.write_bytes(data)
    return rows(path)


def test_what_it_held_besides_documents_is_still_there(kept: tuple[int, Path]) -> None:
    version, path = kept
    adopt(path)
    with localmcp.open(path, model="hash") as kb:
        guides = [each.name for each in kb.quickstarts("share a file")]
        rules = kb.call("listRules")["rules"]
    assert guides == (["share-a-file"] if version >= 2 else [])
    assert [each["rule_text"] for each in rules] == (
        ["Name a test after the behaviour it checks"] if version >= 3 else []
    )


def test_the_upgraded_schema_is_that_of_a_file_made_today(kept: tuple[int, Path], tmp_path: Path) -> None:
    path = kept[1]
    adopt(path)
    with localmcp.open(path, model="hash") as kb:
        kb.sources()
    connection = sqlite3.connect(path)
    found = {(kind, name) for kind, name in connection.execute("select type, name from sqlite_schema")}
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("pragma foreign_key_check").fetchall() == []
    connection.close()
    assert found == set(expected_schema(schema_version()))


def test_a_file_of_somebody_else_is_searched_as_it_is(kept: tuple[int, Path]) -> None:
    """It has not been adopted, so it is not upgraded either."""
    version, path = kept
    before = digest(path)
    with localmcp.open(path, model="hash") as kb:
        assert kb.search("siphon blocked", mode="keyword")[0].title == "Boiler"
        with pytest.raises(FileUnavailable, match="adopt"):
            kb.add_text("x", "x")
    assert (version_of(path), digest(path)) == (version, before)
    assert not list(path.parent.glob("*backup"))


def test_a_newer_file_is_refused_kindly_and_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "newer.localmcp"
    with localmcp.open(path, model="hash") as kb:
        kb.add_text("hello", "One")
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = delete")
    connection.execute(f"pragma user_version = {schema_version() + 1}")
    connection.close()
    before = digest(path)
    with localmcp.open(path, model="hash") as kb, pytest.raises(FileTooNew) as caught:
        kb.search("hello")
    assert "newer localmcp" in caught.value.message and "Update localmcp" in str(caught.value.hint)
    assert digest(path) == before
    assert [each.name for each in tmp_path.iterdir()] == ["newer.localmcp"]


def test_this_version_can_be_kept_with_one_command(tmp_path: Path) -> None:
    import subprocess

    script = tmp_path / "keep_version.py"
    script.write_bytes((FIXTURES / "keep_version.py").read_bytes())
    root = str(FIXTURES.parent.parent)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); sys.path.insert(0, {str(tmp_path)!r})"]
    command[-1] += "; import keep_version; keep_version.main()"
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    (made,) = tmp_path.glob("v*.localmcp.gz")
    assert made.name == f"v{schema_version()}.localmcp.gz"
