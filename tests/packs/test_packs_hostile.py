"""Damaged and hostile files: opened correctly or refused with a clear error, through every door."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from given_files import change

from localmcp.config import Settings
from localmcp.errors import FileUnavailable, LocalMCPError
from localmcp.packs.pack import digest_pack, read_manifest, verify
from localmcp.storage.adoption import adopt
from localmcp.tools import Scope
from localmcp.workspace import Workspace

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def mutations(monkeypatch: pytest.MonkeyPatch):
    """The campaign of the benchmark."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("PYTHONPATH", str(BENCHMARKS.parent.parent))
    import mutate_files

    yield mutate_files
    sys.modules.pop("mutate_files", None)


@pytest.mark.skipif(sys.platform == "win32", reason="the campaign watches its workers as POSIX systems can")
def test_mutated_files_are_opened_correctly_or_refused(mutations, tmp_path: Path) -> None:
    numbers = [*range(0, 168, 56), *range(1000, 1016, 8)]
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(
            lambda part: mutations.run(tmp_path / str(part), numbers[part::2], seed=3, quick=True), range(2)
        )
        outcomes = [outcome for half in halves for outcome in half]
    assert len(outcomes) == len(numbers) == 5
    assert [(each["number"], each["done"], each["problems"]) for each in outcomes if each["problems"]] == []
    # Some mutations change nothing, such as an index that is not used; most are seen.
    assert sum(not each["sound"] for each in outcomes) > 2


@pytest.fixture
def base(mutations, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = mutations.make_base(tmp_path_factory.getbasetemp() / "base")
    return Path(shutil.copy(made, tmp_path / "base.localmcp"))


def test_values_that_are_no_json_are_read_as_empty(base: Path) -> None:
    columns = ("models set calibration", "quickstarts set content", "sources set metadata", "chunks set headings")
    change(base, *(f"update {column} = '[[{{'" for column in columns))
    with Workspace(Settings(database=base, model="hash"), read_only=True) as workspace:
        assert workspace.registry.call("list_sources").value["total"] == 41
        hits = workspace.registry.call("search", {"query": "hive queen"}, Scope(caller="cli")).value["results"]
        assert hits and all(hit["metadata"] == {} for hit in hits)


@pytest.mark.parametrize("value", ["sources.title = null", "chunks.text = x'ff'"])
def test_a_value_of_another_type_is_told_as_damage(mutations, base: Path, value: str) -> None:
    assert "not done" not in mutations._run(base, f"retype {value}")
    with Workspace(Settings(database=base, model="hash"), read_only=True) as workspace:
        with pytest.raises(LocalMCPError, match="rows that localmcp did not write"):
            workspace.registry.call("get_document", {"sourceId": "Document 3"})
    with pytest.raises(FileUnavailable, match="damaged"):
        adopt(base)


def test_a_value_that_is_too_large_is_refused(base: Path) -> None:
    change(base, "update chunks set text = hex(zeroblob(40000000)) where id = 1")
    assert not verify(base).sound
    with Workspace(Settings(database=base, model="hash"), read_only=True) as workspace:
        with pytest.raises(LocalMCPError, match="too large"):
            workspace.registry.call("get_document", {"sourceId": "Document 0"})
        assert workspace.registry.call("list_sources").value["total"] == 41


def test_a_manifest_made_anew_hides_nothing_that_does_not_agree(base: Path) -> None:
    change(base, "update signs set bits = zeroblob(length(bits))")
    connection = apsw.Connection(str(base))
    manifest = read_manifest(connection)
    assert manifest
    digest = digest_pack(connection, manifest)
    connection.execute("update manifest set content = json_set(content, '$.digest', ?)", (digest,))
    connection.close()
    assert any("sign codes" in problem for problem in verify(base).problems)


@pytest.mark.parametrize("column", ["sources.title", "models.dimension", "collections.name"])
def test_a_file_with_values_that_its_columns_cannot_hold_is_not_mounted(
    mutations, base: Path, tmp_path: Path, column: str
) -> None:
    assert "not done" not in mutations._run(base, f"retype {column} = null")
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as workspace:
        with pytest.raises(FileUnavailable, match="damaged"):
            workspace.mounts.mount(base)
        assert workspace.mounts.entries() == []
