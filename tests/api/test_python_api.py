"""`import localmcp; kb = localmcp.open(file)`: typed methods for what people do, and results that a notebook shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import localmcp
from localmcp.api.knowledge_file import Hit, KnowledgeFile, Results, Rule, Source
from localmcp.errors import InvalidInput, LocalMCPError, NotFound, UnknownTool

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_data"


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeFile:
    """The sample documents, with the real model."""
    place = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        # The fixture of directories is each test's own; the file's adoption must outlive them.
        patch.setenv("LOCALMCP_STATE_DIR", str(place / "state"))
        opened = localmcp.open(place / "kb.localmcp")
        opened.add(SAMPLES / "documents" / "house", *sorted((SAMPLES / "documents" / "cooking").glob("s*")))
        opened.add_text("The spare key hangs behind the blue door.", "Keys", metadata={"floor": 2})
        opened.call("importRules", path=str(SAMPLES / "rules" / "CLAUDE.md"))
        opened.call("importQuickstarts", path=str(SAMPLES / "quickstarts"))
    return opened


def test_a_hit_leads_to_its_context_and_its_document(kb: KnowledgeFile) -> None:
    (hit,) = kb.search("boiler E110", limit=1)
    assert isinstance(hit, Hit) and hit.path is not None and hit.place.startswith(hit.path)
    assert hit.text in kb.context(hit, window=1)
    for name in (hit, hit.source_id, hit.path, hit.title):
        assert kb.document(name) == Path(hit.path).read_text(encoding="utf-8")


def test_filters_narrow_the_search(kb: KnowledgeFile) -> None:
    (keys,) = kb.search("where is the key", metadata={"floor": 2})
    assert (keys.title, keys.path, keys.metadata) == ("Keys", None, {"floor": 2})
    cooking = str(SAMPLES / "documents" / "cooking")
    assert all(str(each.path).startswith(cooking) for each in kb.search("water", path=cooking))
    assert [each.source_id for each in kb.search("door", source=keys.source_id)] == [keys.source_id]


def test_repaired_words_are_told(kb: KnowledgeFile) -> None:
    assert any("boiller" in each for each in kb.search("boiller pressure", mode="keyword").notices)


def test_every_source_is_listed(kb: KnowledgeFile) -> None:
    whole = kb.sources()
    assert len(whole) == whole.raw["total"] > 4
    assert all(isinstance(each, Source) and each.chunks > 0 for each in whole)


def test_a_document_longer_than_one_answer_comes_whole(tmp_path: Path) -> None:
    text = "".join(f"Line {number} about nothing in particular.\n" for number in range(15_000))
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as kb:
        kb.add_text(text, "Long")
        assert kb.document("Long").strip() == text.strip()


def test_rules_and_quick_starts_are_found(kb: KnowledgeFile) -> None:
    rules = kb.rules("write unit tests for the parser")
    assert isinstance(rules[0], Rule) and "test" in rules[0].text.lower() and 0.7 <= rules[0].relevance <= 1
    guides = kb.quickstarts("share a fiel")
    assert guides[0].name == "share-a-file" and guides[0].match == "fuzzy_match"


def test_any_tool_can_be_called_and_mistakes_are_told(kb: KnowledgeFile) -> None:
    assert kb.call("reverseString", text="abc")["message"].endswith("'cba'")
    with pytest.raises(UnknownTool, match="search"):
        kb.call("serch", query="x")
    with pytest.raises(InvalidInput, match="limit"):
        kb.search("x", limit=1000)
    with pytest.raises(LocalMCPError, match="taskDescription cannot be empty"):
        kb.rules("")
    with pytest.raises(NotFound) as caught:
        kb.document("no such document")
    assert caught.value.hint is not None
    with pytest.raises(NotFound, match=r"^query failed: collection not found\. There is: default\.$"):
        kb.call("retriever", collection_name="absent", texts=["x"])


def test_a_notebook_shows_a_table_and_escapes_what_is_in_it(kb: KnowledgeFile) -> None:
    hits = kb.search("boiler E110", limit=2)
    page = hits._repr_html_()
    assert page.count("<tr>") == 3 and "<th>score</th>" in page
    assert repr(hits).splitlines()[0].startswith("1. ")
    hostile = Results([Source("<script>", None, "c", "docs", 1, "2026", "fresh", {}, "id")])
    assert "<script>" not in hostile._repr_html_() and "&lt;script&gt;" in hostile._repr_html_()
    hostile = Results([Source("\x1b[2J", None, "c", "docs", 1, "2026", "fresh", {}, "id")])
    assert "\x1b" not in repr(hostile) and "␛[2J" in repr(hostile)
    empty = kb.search("zzqqxx", mode="keyword")
    assert empty == [] and repr(empty) == empty.raw["message"]


def test_documents_are_refreshed_and_removed(tmp_path: Path) -> None:
    note = tmp_path / "docs" / "note.md"
    note.parent.mkdir()
    note.write_text("# Bees\n\nOne queen.\n", encoding="utf-8")
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as kb:
        assert kb.add(note.parent).indexed == 1
        note.write_text("# Bees\n\nOne queen, many drones.\n", encoding="utf-8")
        assert kb.refresh().updated == 1
        assert "drones" in kb.document(str(note))
        assert kb.remove(str(note)) == 1
        assert kb.sources() == []


def test_a_closed_file_opens_again_at_the_next_call(tmp_path: Path) -> None:
    kb = localmcp.open(tmp_path / "a.localmcp", model="hash")
    kb.add_text("hello", "One")
    kb.close()
    assert [each.title for each in kb.sources()] == ["One"]
    kb.close()


def test_what_was_written_for_the_workspace_goes_on_working(tmp_path: Path) -> None:
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as kb:
        assert kb.registry is kb.workspace.registry  # pyright: ignore[reportAttributeAccessIssue]
        assert kb.knowledge.get_stats()["totalSources"] == 0  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(AttributeError):
            kb.no_such_thing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_api_is_typed() -> None:
    assert (ROOT / "localmcp" / "py.typed").exists()
    assert localmcp.KnowledgeFile is KnowledgeFile
