"""Whatever a tool takes away or overwrites is in the trash, and comes back whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consistency import disagreements

from localmcp.config import Settings
from localmcp.errors import InvalidInput, NotFound
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.tools import Scope
from localmcp.workspace import Workspace

ASSISTANT = Scope(caller="stdio", trusted=False)

TAKES_AWAY = {
    "add_document": "the document of that title, if replace is true: restore_source",
    "add_path": "nothing",
    "cancel_job": "nothing",
    "create_collection": "nothing",
    "create_partition": "nothing",
    "delete_records": "records and documents: restore_source",
    "drop_collection": "a collection: restore_source",
    "drop_partition": "a partition with its documents: restore_source",
    "insert_records": "the records as they were, where ids are given: restore_source",
    "job_status": "nothing",
    "pull_collection": "documents and records that differ there: restore_source",
    "push_collection": "nothing; its own copy in Milvus is brought up to date",
    "refresh": "documents whose files are gone: restore_source",
    "remove_source": "documents: restore_source",
    "tag_document": "a tag: tag_document",
    "restore_source": "the version that is there, if an overwritten one is restored: restore_source",
    # Rules and quick starts.
    "addRule": "nothing",
    "deleteRule": "a rule: restore_source",
    "editRule": "a rule as it was: restore_source",
    "importQuickstarts": "quick starts as they were: restore_source",
    "importRules": "nothing",
    "rememberDeveloperInstruction": "nothing",
    "removeQuickstart": "a quick start: restore_source",
    "reportRuleUse": "nothing",
    "restoreRule": "nothing",
    "retireRule": "retires a rule: restoreRule",
    # Runs what others offer.
    "ask": "what the tool that it runs does",
    "execute_tool": "what the tool that it runs does",
}
"""By each tool that writes: what it can take away, and the tool that brings it back."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    settings = Settings(database=tmp_path / "file.localmcp", model="hash:64", folders=(str(tmp_path),))
    with Workspace(settings, embedder=LazyEmbedder(lambda: HashEmbedder(64))) as workspace:
        yield workspace
        assert disagreements(workspace.database) == []


@pytest.fixture
def call(workspace: Workspace) -> Any:
    """Call a tool as an assistant does."""

    def call(name: str, /, **arguments: Any) -> Any:
        return workspace.registry.call(name, arguments, ASSISTANT).value

    return call


def test_every_tool_that_writes_says_what_it_takes_away(workspace: Workspace) -> None:
    writing = {tool.name for tool in workspace.registry.tools() if not tool.mark.read_only or tool.mark.proxy}
    assert writing == TAKES_AWAY.keys()


def test_no_tool_empties_the_trash(workspace: Workspace) -> None:
    assert not [tool.name for tool in workspace.registry.tools() if {"empty", "purge"} & set(tool.name.split("_"))]


def test_a_replaced_document_comes_back_under_its_id(call: Any) -> None:
    before = call("add_document", text="Bees live in a hive with one queen.", title="Bees")
    call("add_document", text="Something else altogether.", title="Bees", replace=True)
    [entry] = call("list_trash")["sources"]
    assert entry["title"] == "Bees (document before it was replaced)"
    assert call("restore_source", sourceId=entry["sourceId"])["title"] == entry["title"]
    document = call("get_document", sourceId=before["sourceId"])
    assert document["source"]["content"] == "Bees live in a hive with one queen."
    assert call("search", query="hive", mode="keyword")["count"] == 1
    assert call("search", query="altogether", mode="keyword")["count"] == 0
    # The version that was there meanwhile can be brought back, too.
    call("restore_source", sourceId="Bees")
    assert call("get_document", sourceId=before["sourceId"])["source"]["content"] == "Something else altogether."


def test_changed_records_come_back_with_text_metadata_and_partition(call: Any) -> None:
    [number] = call(
        "insert_records", collection_name="papers", texts=["attention is all you need"], metadata={"year": 2017},
        partition_name="old",
    )["ids"]  # fmt: skip
    change = {"id": number, "text": "another text", "metadata": {"seen": 1}, "partition_name": "new"}
    call("insert_records", collection_name="papers", records=[change])
    [entry] = call("list_trash")["sources"]
    call("restore_source", sourceId=entry["sourceId"])
    [hit] = call("retriever", collection_name="papers", texts=["attention"], partition_name="old")["data"]["results"]
    assert (hit["id"], hit["text"], hit["metadata"]["year"]) == (number, "attention is all you need", 2017)
    assert "seen" not in hit["metadata"]


def test_a_dropped_collection_comes_back_with_everything_in_it(call: Any, workspace: Workspace, folder: Path) -> None:
    call("add_path", path=str(folder), collection="papers")
    call("insert_records", collection_name="papers", texts=["one", "two"], partition_name="notes")
    before, found = call("describe_collection", collection_name="papers"), call("search", query="queen")["results"]
    assert call("drop_collection", collection_name="papers", confirm=True)["documents"] == 5
    assert call("list_collections")["collections"] == []
    assert call("search", query="queen")["count"] == 0
    assert call("list_sources")["count"] == 0
    [entry] = call("list_trash")["sources"]
    assert entry["title"] == "papers (collection)"
    call("restore_source", sourceId="papers")
    assert call("describe_collection", collection_name="papers") == before
    assert call("search", query="queen")["results"] == found
    assert call("refresh")["unchanged"] == 3


def test_a_dropped_collection_gives_its_name_free_and_waits_until_it_is_free_again(call: Any) -> None:
    call("insert_records", collection_name="papers", texts=["one"])
    call("drop_collection", collection_name="papers", confirm=True)
    call("create_collection", collection_name="papers")
    with pytest.raises(InvalidInput, match="There is a collection 'papers' again"):
        call("restore_source", sourceId="trash:1")
    with pytest.raises(NotFound) as missing:
        call("restore_source", sourceId="zebras")
    assert "list_trash" in str(missing.value.hint)  # not: the trash is empty
    call("drop_collection", collection_name="papers")
    call("restore_source", sourceId="trash:1")
    assert call("describe_collection", collection_name="papers")["documents"] == 1


def test_a_dropped_partition_comes_back_whole_or_document_by_document(call: Any) -> None:
    call("insert_records", collection_name="papers", texts=["one", "two"], partition_name="notes")
    call("drop_partition", collection_name="papers", partition_name="notes", confirm=True)
    assert call("describe_collection", collection_name="papers")["documents"] == 0
    single = next(row for row in call("list_trash")["sources"] if row["title"] == "one")
    call("restore_source", sourceId=single["sourceId"])
    assert call("describe_collection", collection_name="papers")["partitions"] == {"_default": 0, "notes": 1}
    call("restore_source", sourceId="notes")
    assert call("describe_collection", collection_name="papers")["partitions"] == {"_default": 0, "notes": 2}


def test_a_caller_of_one_collection_sees_the_trash_of_that_one(call: Any, workspace: Workspace) -> None:
    call("insert_records", collection_name="papers", texts=["one"])
    call("drop_collection", collection_name="papers", confirm=True)
    other = Scope(caller="key", trusted=False, collections=frozenset({"other"}))
    assert workspace.registry.call("list_trash", {}, other).value["total"] == 0


def test_an_edited_rule_comes_back_as_it_was(call: Any) -> None:
    number = call("addRule", rule_text="Write tests.", category="testing")["rule"]["id"]
    call("editRule", id=number, rule_text="Write no tests.", category="style", globs=["*.py"])
    call("restore_source", sourceId="Write tests.")
    [rule] = call("listRules")["rules"]
    assert (rule["id"], rule["rule_text"], rule["category"]) == (number, "Write tests.", "testing")
    assert not rule.get("globs")
    # The version that was there meanwhile can be brought back, too.
    call("restore_source", sourceId="Write no tests.")
    assert call("listRules")["rules"][0]["globs"] == ["*.py"]


def test_removed_and_overwritten_quick_starts_come_back(call: Any, workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "lamp.yaml"
    text = "metadata:\n  name: lamp\n  tags:\n    - kind: bundle\n      value: home\nspec:\n  displayName: {}\n"
    file.write_text(text.format("Change a lamp"), encoding="utf-8")
    workspace.registry.call("importQuickstarts", {"path": str(file)})
    before = workspace.registry.call("showQuickstart", {"name": "lamp"}).value
    file.write_text(text.format("Break a lamp"), encoding="utf-8")
    workspace.registry.call("importQuickstarts", {"path": str(file)})
    call("removeQuickstart", names=["lamp"])
    newest, oldest = call("list_trash")["sources"]
    assert newest["title"] == oldest["title"] == "lamp (quick start)"
    call("restore_source", sourceId=newest["sourceId"])
    assert call("searchQuickstarts", displayName="break a lamp")["result"]["quickstart"]["name"] == "lamp"
    call("restore_source", sourceId=oldest["sourceId"])
    assert workspace.registry.call("showQuickstart", {"name": "lamp"}).value == before


def test_a_caller_of_some_collections_sees_the_quick_start_it_removed(call: Any, workspace: Workspace) -> None:
    call("importQuickstarts", text="metadata: {name: lamp}\nspec: {displayName: Change a lamp}")
    limited = Scope(caller="key", trusted=False, collections=frozenset({"papers"}))
    workspace.registry.call("removeQuickstart", {"names": ["lamp"]}, limited)
    [entry] = workspace.registry.call("list_trash", {}, limited).value["sources"]
    assert entry["title"] == "lamp (quick start)"
    workspace.registry.call("restore_source", {"sourceId": "lamp"}, limited)
    assert call("searchQuickstarts", name="lamp")["count"] == 1


@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_rule_that_was_deleted_comes_back_with_its_use_and_instructions(
    call: Any, workspace: Workspace, is_earlier: bool
) -> None:
    call("addRule", rule_text="Prefer short functions to long ones.", category="testing", globs=["*.py"])
    call("addRule", rule_text="Prefer short functions to long ones.", onDuplicate="count")
    call("reportRuleUse", ruleIds=[1], task="parser")

    def everything() -> Any:
        with workspace.database.read() as connection:
            tables = ("rule_uses", "user_instructions")
            rows = [connection.execute(f"select * from {name} order by id").fetchall() for name in tables]
        return call("listRules")["rules"], rows

    before = everything()
    call("deleteRule", id=1)
    if is_earlier:
        with workspace.database.write() as connection:
            use = ", ".join(f"value->>'{name}'" for name in ("id", "occasion", "task", "useful", "used_at"))
            uses = f"(select json_group_array(json_array({use})) from json_each(content, '$.uses'))"
            connection.execute(f"update trash set content = json_set(content, '$.uses', json({uses}))")
    call("restore_source", sourceId="Prefer short functions to long ones.")
    assert everything() == before
    found = call("getRelevantRules", taskDescription="short functions", similarityThreshold=-1)["rules"]
    assert [rule["id"] for rule in found] == [1]


def test_a_rule_that_was_added_again_is_not_restored_beside_it(call: Any) -> None:
    call("addRule", rule_text="Write tests with pytest.")
    call("deleteRule", id=1)
    call("addRule", rule_text="Write tests with pytest.")
    with pytest.raises(InvalidInput, match="Rule 2 says the same and is in force"):
        call("restore_source", sourceId="Write tests with pytest.")
    assert call("list_trash")["total"] == 1
    call("retireRule", id=2)
    call("restore_source", sourceId="Write tests with pytest.")
    with pytest.raises(InvalidInput, match="Rule 1 says the same and is in force"):
        call("restoreRule", id=2)
    assert [rule["id"] for rule in call("listRules")["rules"]] == [1]
