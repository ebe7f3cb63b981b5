"""Mounted files: searched with one's own, marked with their name, never changed, and never in the way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from given_files import HIVES, change, make_pack

from localmcp.config import Settings
from localmcp.errors import ConfigurationError, InvalidInput, NotFound, NotOurFile
from localmcp.tools import Scope
from localmcp.workspace import Workspace


def call(workspace: Workspace, name: str, scope: Scope | None = None, **arguments: Any) -> Any:
    return workspace.registry.call(name, arguments, scope).value


def search(workspace: Workspace, query: str, **arguments: Any) -> list[Any]:
    return call(workspace, "search", query=query, **arguments)["results"]


def origins(hits: list[Any]) -> set[str | None]:
    return {hit.get("origin") for hit in hits}


def paged(workspace: Workspace, query: str, mode: str) -> list[Any]:
    """Return all hits, one a page."""
    hits, cursor = list[Any](), None
    while True:
        page = call(workspace, "search", query=query, mode=mode, limit=1, cursor=cursor)
        assert len(page["results"]) == 1
        hits += page["results"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return hits


# ---------------------------------------------------------------- searching together


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_scores_of_a_file_fall_and_pages_do_not_overlap_in_every_mode(ours: Workspace, bees: Path, mode: str) -> None:
    ours.mounts.mount(bees)
    whole = call(ours, "search", query="hive honey wax roses", mode=mode, limit=10)
    assert len(whole["results"]) >= 2
    for origin in (None, "bees"):
        scores = [hit["combinedScore"] for hit in whole["results"] if hit.get("origin") == origin]
        assert scores == sorted(scores, reverse=True)
    assert [hit["id"] for hit in paged(ours, "hive honey wax roses", mode)] == [hit["id"] for hit in whole["results"]]


def test_files_are_interleaved_by_how_likely_their_hits_answer(tmp_path: Path) -> None:
    common = make_pack(tmp_path / "common.localmcp", {f"T{i}": f"The valve number {i} is open." for i in range(30)})
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as workspace:
        for number in range(30):
            workspace.library.add_text(f"A pump number {number} runs.", f"P{number}")
        workspace.library.add_text("The valve is here, and the quartz.", "Both")
        alone = [hit["sourceTitle"] for hit in search(workspace, "quartz valve pump", mode="keyword", limit=50)]
        workspace.mounts.mount(common)
        hits = search(workspace, "quartz valve pump", mode="keyword", limit=50)
    # One that holds both words comes before the thirty that are the best of their file with one.
    assert hits[0]["sourceTitle"] == "Both" and origins(hits) == {None, "common"}
    own = [hit["sourceTitle"] for hit in hits if hit.get("origin") is None]
    assert own == alone[: len(own)], "a file's hits stay in its own order"


# ---------------------------------------------------------------- choosing where


def test_a_language_model_gets_at_most_two_of_its_first_five_passages_from_one_document(
    ours: Workspace, bees: Path
) -> None:
    sections = (f"## Part {number}\n\nThe tapir eats leaf number {number}. {'It walks. ' * 60}" for number in range(8))
    ours.library.add_text("# Tapirs\n\n" + "\n\n".join(sections), "Tapirs")
    for number in range(4):
        ours.library.add_text(
            f"Note {number} is about gardens, and names the tapir once among other words.", f"N{number}"
        )
    ours.mounts.mount(bees)
    hits = call(ours, "search", Scope(caller="stdio", lean=True), query="the tapir eats a leaf", limit=5)["results"]
    assert len(hits) == 5
    assert [hit["sourceTitle"] for hit in hits].count("Tapirs") == 2
    assert [hit["sourceTitle"] for hit in search(ours, "the tapir eats a leaf", limit=5)].count("Tapirs") > 2


def test_a_collection_names_the_file_to_search_in(ours: Workspace, bees: Path, tmp_path: Path) -> None:
    ours.mounts.mount(bees)
    ours.mounts.mount(make_pack(tmp_path / "work.localmcp", {"Plan": "The hive plan."}, collection="plans"))
    assert origins(search(ours, "hive", collection="mount:bees")) == {"bees"}
    assert origins(search(ours, "hive", collection="mount:work/plans")) == {"work"}
    assert origins(search(ours, "hive", collection="plans")) == {"work"}
    assert [item["title"] for item in call(ours, "list_sources", collection="plans")["sources"]] == ["Plan"]
    # A plain name is one's own collection where there is one.
    assert origins(search(ours, "hive", collection="default")) == {None}
    with pytest.raises(NotFound, match="wasps"):
        search(ours, "hive", collection="mount:wasps")
    with pytest.raises(NotFound, match="nowhere"):
        search(ours, "hive", collection="nowhere")
    with pytest.raises(InvalidInput, match="mount:NAME"):
        search(ours, "hive", collection="mount:")


# ---------------------------------------------------------------- each document once, and not for everybody


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_a_document_that_is_in_several_files_is_found_once_and_your_own_first(
    ours: Workspace, bees: Path, tmp_path: Path, mode: str
) -> None:
    ours.mounts.mount(bees)
    ours.mounts.mount(Path(shutil.copy(bees, tmp_path / "twin.localmcp")))
    ours.library.add_text(HIVES["Hives"], "My hives")
    hits = search(ours, "hive queen honey wax", mode=mode, limit=10)
    texts = [hit["content"] for hit in hits]
    assert len(texts) == len(set(texts)) == 4
    assert {hit["sourceTitle"] for hit in hits if hit.get("origin") is None} == {"My hives", "Garden"}
    # No page after the last is offered, which would hold nothing.
    assert [hit["content"] for hit in paged(ours, "hive queen honey wax", mode)] == texts


def test_a_caller_that_is_bound_to_collections_sees_no_mounted_file(ours: Workspace, bees: Path) -> None:
    ours.mounts.mount(bees)
    hit = search(ours, "queen")[0]
    bound = Scope(caller="key", trusted=False, collections=frozenset({"default"}))
    assert origins(call(ours, "search", bound, query="hive queen")["results"]) == {None}
    assert call(ours, "list_sources", bound)["total"] == 1
    assert "mounts" not in call(ours, "get_stats", bound)
    for wanted in (hit["chunkId"], hit["chunkId"].split(":")[1]):
        with pytest.raises(NotFound):
            call(ours, "get_context", bound, chunkId=wanted)
    assert "error" in call(ours, "get_document", bound, sourceId="Wax")
    with pytest.raises(NotFound):
        call(ours, "search", bound, query="hive", collection="mount:bees")


# ---------------------------------------------------------------- models


def test_a_file_of_another_model_is_searched_with_that_model(ours: Workspace, tmp_path: Path) -> None:
    other = make_pack(tmp_path / "other.localmcp", {"Sea": "The harbour lies at the sea."}, model="hash:64")
    ours.mounts.mount(other)
    result = call(ours, "search", query="harbour sea hive")
    assert "notices" not in result
    hit = next(each for each in result["results"] if each.get("origin") == "other")
    assert hit["matchType"] == "both" and hit["semanticScore"] > 0


def test_a_file_whose_model_is_not_here_is_searched_by_word_and_says_so(ours: Workspace, tmp_path: Path) -> None:
    other = make_pack(tmp_path / "other.localmcp", {"Sea": "The harbour lies at the sea."}, model="hash:64")
    change(other, "update models set name = 'nobody/knows-it', fingerprint = 'ffffffffffffffff'")
    ours.mounts.mount(other)
    result = call(ours, "search", query="harbour sea hive")
    hit = next(each for each in result["results"] if each.get("origin") == "other")
    assert hit["matchType"] == "keyword_only" and hit["combinedScore"] > 0
    assert any("other (mounted)" in notice and "nobody/knows-it" in notice for notice in result["notices"])
    assert origins(search(ours, "harbour sea", mode="semantic")) == {None}


# ---------------------------------------------------------------- files that go wrong


def test_a_file_that_is_gone_or_damaged_is_told_and_everything_else_works(
    ours: Workspace, bees: Path, tmp_path: Path
) -> None:
    ours.mounts.mount(bees)
    for content in (None, b"", b"not a database", b"SQLite format 3\0" + bytes(5000)):
        search(ours, "hive")
        away = bees.rename(tmp_path / "away")
        if content is not None:
            bees.write_bytes(content)
        result = call(ours, "search", query="hive")
        assert origins(result["results"]) == {None}, content
        assert any("bees (mounted) was not searched" in notice for notice in result["notices"]), content
        assert call(ours, "list_sources")["total"] == call(ours, "get_stats")["totalSources"] == 1, content
        away.replace(bees)
        assert origins(search(ours, "hive queen")) == {None, "bees"}, content


def test_a_file_that_was_replaced_is_read_anew(ours: Workspace, bees: Path) -> None:
    ours.mounts.mount(bees)
    assert search(ours, "queen", collection="mount:bees")
    make_pack(bees.with_name("new.localmcp"), {"Wasps": "Wasps build paper nests."}).replace(bees)
    assert search(ours, "paper nests", collection="mount:bees")[0]["sourceTitle"] == "Wasps"


# ---------------------------------------------------------------- what is remembered


def test_a_mounted_file_is_remembered_on_this_machine_and_never_changed(ours: Workspace, bees: Path) -> None:
    before, beside = bees.read_bytes(), set(bees.parent.glob("bees*"))
    ours.mounts.mount(bees)
    search(ours, "hive")
    assert bees.read_bytes() == before and set(bees.parent.glob("bees*")) == beside
    assert b"bees.localmcp" not in Path(ours.database.path).read_bytes()
    with Workspace(Settings(database=ours.database.path, model="hash")) as again:
        assert origins(search(again, "hive queen")) == {None, "bees"}
        # Another process, here another workspace, sees at once that it is gone.
        ours.mounts.unmount("bees")
        assert origins(search(again, "hive queen")) == {None}


def test_names_are_unique_and_plain(ours: Workspace, bees: Path, tmp_path: Path) -> None:
    other = make_pack(tmp_path / "My Pack (2024)!.localmcp", {"A": "Some words."})
    assert ours.mounts.mount(other).name == "my-pack-2024"
    ours.mounts.mount(bees)
    with pytest.raises(InvalidInput, match="--as"):
        ours.mounts.mount(tmp_path / shutil.copy(bees, tmp_path / "b2.localmcp"), "bees")
    with pytest.raises(InvalidInput, match="mounted already, as 'bees'"):
        ours.mounts.mount(bees, "again")
    assert ours.mounts.mount(bees).name == "bees"
    for name in ("../up", "a/b", "a:b", "x" * 41, "-", "ü"):
        with pytest.raises(InvalidInput, match="cannot be a name"):
            ours.mounts.mount(bees, name)


def test_what_cannot_be_mounted_is_refused(ours: Workspace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="open"):
        ours.mounts.mount(ours.database.path)
    with pytest.raises(NotFound, match="no file"):
        ours.mounts.mount(tmp_path / "none.localmcp")
    text = tmp_path / "text.localmcp"
    text.write_text("some text that is long enough to be looked at" * 20)
    with pytest.raises(NotOurFile) as refused:
        ours.mounts.mount(text)
    assert refused.value.hint and "--db" not in refused.value.hint and "localmcp add" in refused.value.hint
    with pytest.raises(NotFound, match="no file") as refused:
        ours.mounts.mount(tmp_path)
    assert refused.value.hint and "localmcp add" in refused.value.hint
    with pytest.raises(ConfigurationError, match="No Milvus is set"):
        ours.mounts.mount(Path("milvus:team"))
    with pytest.raises(NotFound, match="Mounted: nothing yet"):
        ours.mounts.unmount("bees")
    assert ours.mounts.entries() == []


def test_a_mounted_file_contacts_nobody_and_looks_at_no_path(ours: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("x")
    other = make_pack(tmp_path / "other.localmcp", {"Sea": "The harbour lies at the sea."})
    change(
        other,
        f"update sources set uri = '{secret}', mtime_ns = 1, size = 1",
        "update models set name = 'http://127.0.0.1:9/v1#m', fingerprint = 'f'",
    )
    ours.mounts.mount(other)
    hit = search(ours, "harbour")[0]
    assert hit["freshness"] == "unverifiable"
