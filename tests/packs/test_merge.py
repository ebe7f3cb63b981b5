"""Merging another file into one's own: nothing twice, nothing lost, and taken up where it was stopped."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here as cli
from consistency import disagreements
from given_files import change, make_pack

from localmcp.config import Settings
from localmcp.errors import FileUnavailable, InvalidInput, ModelUnavailable, NotFound
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.packs.merge import Merge, MergeReport
from localmcp.packs.pack import write_pack
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.tools import Scope
from localmcp.workspace import Workspace

pytestmark = pytest.mark.usefixtures("in_process")

PERSON = Scope(caller="cli")
GUIDE = {"metadata": {"name": "bees"}, "spec": {"displayName": "Keep bees", "description": "Honey", "tasks": []}}


def merge(workspace: Workspace, path: Path, *collections: str, **options: Any) -> MergeReport:
    merging = workspace.merging(lambda name, given: workspace.registry.call(name, given, PERSON))
    return merging.run(path, collections or None, **options)


def titles(workspace: Workspace) -> list[str]:
    listed = workspace.registry.call("list_sources", {"limit": 500}).value["sources"]
    return sorted(each["title"] for each in listed)


# ---------------------------------------------------------------- documents


def test_documents_come_in_once_with_their_vectors(ours: Workspace, bees: Path) -> None:
    report = merge(ours, bees)
    assert (report.added, report.known, report.vectors_made, report.vectors_missing) == (3, 0, 0, 0)
    assert report.vectors_reused == report.chunks > 0
    again = merge(ours, bees)
    assert (again.added, again.known, again.conflicts) == (0, 3, [])
    assert titles(ours) == ["Garden", "Hives", "Honey", "Wax"]
    hit = ours.registry.call("search", {"query": "hive queen", "mode": "semantic"}).value["results"][0]
    assert (hit["sourceTitle"], hit["metadata"]) == ("Hives", {"year": 2024})
    assert disagreements(ours.database) == []


def test_a_dry_run_says_the_same_and_changes_nothing(ours: Workspace, bees: Path) -> None:
    before = Database(ours.database.path, read_only=True).counters()
    dry = merge(ours, bees, dry_run=True)
    assert Database(ours.database.path, read_only=True).counters() == before
    assert titles(ours) == ["Garden"]
    real = merge(ours, bees)
    assert (dry.added, dry.chunks, dry.vectors_reused) == (real.added, real.chunks, real.vectors_reused)


def test_the_same_place_with_other_content_comes_in_beside_it(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name / "notes"
        folder.mkdir(parents=True)
        (folder / "a.md").write_text(f"# {name}\n\nIts text.\n", encoding="utf-8")
        with Workspace(Settings(database=tmp_path / f"{name}.localmcp", model="hash")) as workspace:
            workspace.library.add_paths([folder])
            write_pack(workspace.database, tmp_path / f"{name}.pack")
    with Workspace(Settings(database=tmp_path / "empty.localmcp", model="hash")) as workspace:
        assert merge(workspace, tmp_path / "first.pack").added == merge(workspace, tmp_path / "second.pack").added == 1
        with workspace.database.read() as connection:
            assert fetch_all(connection, "select uri from sources order by id") == [("notes/a.md",), ("2/notes/a.md",)]


def test_one_collection_alone_can_be_merged(ours: Workspace, tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "plans.localmcp", {"Plan": "The plan."}, collection="plans")
    with pytest.raises(NotFound, match="nowhere"):
        merge(ours, pack, "nowhere")
    assert merge(ours, pack, "plans").added == 1
    hit = ours.registry.call("search", {"query": "plan", "collection": "plans"}).value["results"][0]
    assert hit["collection"] == "plans"


# ---------------------------------------------------------------- vectors


def test_vectors_of_another_model_are_made_again(ours: Workspace, tmp_path: Path) -> None:
    other = make_pack(tmp_path / "other.localmcp", {"Sea": "The harbour lies at the sea."}, model="hash:64")
    report = merge(ours, other)
    assert (report.vectors_reused, report.vectors_made, report.vectors_missing) == (0, 1, 0)
    assert "makes others" in report.notices[0]
    assert disagreements(ours.database) == []


def test_without_a_model_documents_come_in_and_wait_for_their_vectors(tmp_path: Path) -> None:
    def fail() -> HashEmbedder:
        raise ModelUnavailable("no model here.")

    other = make_pack(tmp_path / "other.localmcp", {"Sea": "The harbour lies at the sea."}, model="hash:64")
    database = Database(tmp_path / "own.localmcp")
    merging = Merge(database, LazyEmbedder(fail), lambda *_: pytest.fail("nothing to import"))
    report = merging.run(other)
    assert (report.added, report.vectors_missing) == (1, 1) and "no model here" in report.notices[0]
    database.close()
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as workspace:
        workspace.library.refresh()
        assert workspace.registry.call("get_stats").value["chunksWithoutEmbeddings"] == 0


@pytest.mark.parametrize(
    "statement",
    [
        "update vectors set embedding = zeroblob(3)",
        "update vectors set embedding = cast(x'0000c07f' || substr(embedding, 5) as blob)",
        "update vectors set embedding = cast(x'00000047' || substr(embedding, 5) as blob)",
        "delete from vectors",
    ],
)
def test_vectors_that_are_none_are_made_again(ours: Workspace, bees: Path, statement: str) -> None:
    change(bees, statement)
    report = merge(ours, bees)
    assert report.vectors_reused == 0 and report.vectors_made == report.chunks
    assert disagreements(ours.database) == []


# ---------------------------------------------------------------- what does not add up


def test_documents_that_do_not_add_up_are_left_out_and_told(ours: Workspace, bees: Path) -> None:
    change(bees, "update sources set sha256 = 'none' where title = 'Honey'")
    report = merge(ours, bees)
    assert report.added == 2 and len(report.skipped) == 1
    assert titles(ours) == ["Garden", "Hives", "Wax"]


def test_spans_and_words_are_counted_here_and_not_believed(ours: Workspace, bees: Path) -> None:
    change(
        bees,
        "update chunks set start = 7, stop = -1, words = 99, position = position * 5, headings = '{'",
        "update groups set language = 'klingon'",
        "update terms set chunks = 5000",
    )
    merge(ours, bees)
    assert disagreements(ours.database) == []


def test_a_merged_document_that_calls_itself_the_root_folder_takes_no_watched_folder_along(
    ours: Workspace, bees: Path, tmp_path: Path
) -> None:
    watched = tmp_path / "notes"
    watched.mkdir()
    (watched / "a.md").write_text("Mine.", encoding="utf-8")
    ours.library.add_paths([watched])
    change(bees, "update sources set uri = '/' where title = 'Honey'")
    merge(ours, bees)
    with ours.database.read() as connection:
        identifier = fetch_one(connection, "select uuid from sources where uri = '/'")
    ours.library.remove([str(uuid.UUID(bytes=identifier)) if isinstance(identifier, bytes) else identifier])
    assert [root.path for root in ours.library.roots()] == [str(watched)]


def test_ones_own_file_and_no_file_are_refused(ours: Workspace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="open"):
        merge(ours, ours.database.path)
    with pytest.raises(FileUnavailable, match="There is no file"):
        merge(ours, tmp_path / "none.localmcp")


def test_a_merge_that_was_stopped_goes_on(ours: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = make_pack(tmp_path / "many.localmcp", {f"T{i}": f"Text number {i}." for i in range(12)})
    monkeypatch.setattr("localmcp.packs.merge.CHUNKS_TOGETHER", 3)

    def stop(report: MergeReport) -> None:
        if report.added == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(ours, many, say=stop)
    assert len(titles(ours)) == 7
    assert disagreements(ours.database) == []
    report = merge(ours, many)
    assert (report.added, report.known) == (6, 6)
    assert len(titles(ours)) == 13


# ---------------------------------------------------------------- quick starts and rules


@pytest.fixture
def guides(tmp_path: Path) -> Path:
    """A pack of quick starts and rules."""
    path = tmp_path / "guides.localmcp"
    with Workspace(Settings(database=tmp_path / "guides.source", model="hash")) as workspace:
        both = [GUIDE, {**GUIDE, "metadata": {"name": "wax"}}]
        workspace.registry.call("importQuickstarts", {"text": json.dumps(both), "format": "json"}, PERSON)
        rules = "# Rules\n\n## testing\n\n- Name tests as sentences.\n- Test the valve first.\n"
        workspace.registry.call("importRules", {"text": rules}, PERSON)
        write_pack(workspace.database, path)
    return path


def test_quick_starts_and_rules_come_in(ours: Workspace, guides: Path) -> None:
    report = merge(ours, guides)
    assert (report.quickstarts_added, report.rules_added) == (2, 2)
    shown = ours.registry.call("showQuickstart", {"name": "bees"}).value
    assert "Keep bees" in json.dumps(shown)
    listed = ours.registry.call("listRules").value
    assert {each["rule_text"] for each in listed["rules"]} == {"Name tests as sentences.", "Test the valve first."}
    again = merge(ours, guides)
    assert (again.quickstarts_added, again.quickstarts_known, again.rules_added, again.rules_known) == (0, 2, 0, 2)


def test_of_a_quick_start_with_other_content_ones_own_is_kept(ours: Workspace, guides: Path) -> None:
    mine = {**GUIDE, "spec": {**GUIDE["spec"], "displayName": "My bees"}}
    ours.registry.call("importQuickstarts", {"text": json.dumps(mine), "format": "json"}, PERSON)
    report = merge(ours, guides)
    assert report.conflicts == ["quick start 'bees': yours differs and is kept"]
    assert "My bees" in json.dumps(ours.registry.call("showQuickstart", {"name": "bees"}).value)


# ---------------------------------------------------------------- the command line


def test_the_command_tells_what_came_of_it(
    ours: Workspace, bees: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setenv("LOCALMCP_DB", str(ours.database.path))
    assert cli("merge", str(bees), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["added"], result["dryRun"], result["conflicts"]) == (3, False, [])
    assert cli("merge", "none.localmcp") == 1
