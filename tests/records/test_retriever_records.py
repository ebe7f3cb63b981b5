"""Collections, partitions and records: made, filled, changed and taken away, by tools and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import cli as cli
from consistency import disagreements
from folders import write

from localmcp.config import Settings
from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch, NeedsConfirmation, NotFound
from localmcp.tools import Scope
from localmcp.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=tmp_path / "library.localmcp", model="hash")) as workspace:
        yield workspace
        assert disagreements(workspace.database) == []


@pytest.fixture
def call(workspace: Workspace) -> Callable[..., Any]:
    """Calls a tool on the collection `papers`."""

    def call(tool: str, scope: Scope | None = None, **arguments: Any) -> Any:
        return workspace.registry.call(tool, {"collection_name": "papers", **arguments}, scope).value

    return call


def texts_of(call: Callable[..., Any], *asked: str, **options: Any) -> set[str]:
    found = call("retriever", texts=list(asked), top_k=100, **options)
    assert found["success"]
    return {each["text"] for each in found["data"]["results"]}


class TestCollections:
    def test_are_made_listed_described_and_dropped(self, workspace: Workspace, call: Any) -> None:
        assert call("create_collection", description="what we read") == {"name": "papers", "created": True}
        assert call("create_collection") == {"name": "papers", "created": False}
        call("insert_records", texts=["one", "two"], partition_name="reports")
        call("insert_records", texts=["three"])
        told = call("describe_collection")
        assert (told["documents"], told["chunks"], told["vectors"]) == (3, 3, 3)
        assert (told["model"], told["dimension"], told["searchedIn"]) == ("hash", 384, "file")
        assert told["partitions"] == {"_default": 1, "reports": 2}
        listed = workspace.registry.call("list_collections", {}).value
        assert listed["collections"] == [
            {
                "name": "papers",
                "description": "what we read",
                "documents": 3,
                "chunks": 3,
                "partitions": ["reports"],
                "searchedIn": "file",
            }
        ]
        with pytest.raises(NeedsConfirmation, match="holds 3 documents"):
            call("drop_collection")
        assert texts_of(call, "one") == {"one", "two", "three"}
        assert call("drop_collection", confirm=True) == {"dropped": "papers", "documents": 3}
        assert workspace.registry.call("list_collections", {}).value["count"] == 0

    def test_partitions_are_made_and_dropped(self, workspace: Workspace, call: Any, folder: Path) -> None:
        call("insert_records", texts=["one"], partition_name="old")
        call("insert_records", texts=["two"])
        assert call("create_partition", partition_name="new") == {"name": "new", "created": True}
        assert call("create_partition", partition_name="new") == {"name": "new", "created": False}
        with pytest.raises(NeedsConfirmation):
            call("drop_partition", partition_name="old")
        assert call("drop_partition", partition_name="old", confirm=True) == {"dropped": "old", "documents": 1}
        assert texts_of(call, "one") == {"two"}
        with pytest.raises(InvalidInput, match="_default"):
            call("drop_partition", partition_name="_default", confirm=True)
        workspace.library.add_paths([folder], collection="papers", partition="files")
        with pytest.raises(InvalidInput, match="was added into this partition"):
            call("drop_partition", partition_name="files", confirm=True)

    def test_an_assistant_may_write_but_sees_only_its_collections(self, call: Any) -> None:
        assistant = Scope(caller="key", trusted=False, collections=frozenset({"papers"}))
        assert call("insert_records", assistant, texts=["one"])["count"] == 1
        with pytest.raises(NotFound):
            call("insert_records", assistant, texts=["one"], collection_name="other")
        with pytest.raises(NotFound):
            call("create_collection", assistant, collection_name="other")


class TestInserting:
    def test_ids_come_back_in_order_and_metadata_are_joined(self, call: Any) -> None:
        records = [{"text": "one", "metadata": {"a": 1}}, {"text": "two", "partition_name": "p"}]
        inserted = call("insert_records", records=records, metadata={"a": 0, "b": [None, {"c": 1.5}]})
        assert inserted["count"] == 2 and inserted["ids"] == sorted(set(inserted["ids"]))
        results = call("retriever", texts=["one", "two"])["data"]["results"]
        assert {each["id"]: each["metadata"] for each in results} == {
            inserted["ids"][0]: {"a": 1, "b": [None, {"c": 1.5}]},
            inserted["ids"][1]: {"a": 0, "b": [None, {"c": 1.5}]},
        }
        assert texts_of(call, "x", partition_name="p") == {"two"}

    def test_search_and_the_other_tools_find_records_too(self, workspace: Workspace, call: Any) -> None:
        call("insert_records", records=[{"text": "Bees dance to tell the way", "metadata": {"title": "Dances"}}])
        [hit] = workspace.registry.call("search", {"query": "bees dance"}).value["results"]
        assert (hit["sourceTitle"], hit["collection"], hit["content"]) == (
            "Dances", "papers", "Bees dance to tell the way"
        )  # fmt: skip
        assert workspace.registry.call("get_document", {"sourceId": hit["sourceId"]}).value["chunks"]

    def test_a_text_too_long_for_one_vector_is_refused_or_split(self, call: Any) -> None:
        long = "One sentence of a few words. " * 120
        with pytest.raises(InvalidInput, match=r"texts\[1\] has 720 tokens, and one vector stands for 254"):
            call("insert_records", texts=["short", long])
        with pytest.raises(NotFound):
            call("describe_collection")
        inserted = call("insert_records", texts=["short", long], split=True, metadata={"n": 1})
        assert inserted["count"] == 2 and len(inserted["ids"]) > 3
        pieces = call("retriever", texts=["sentence"], top_k=100, filter={"n": 1})["data"]["results"]
        by_id = {each["id"]: each["text"] for each in pieces}
        assert "".join(by_id[each] for each in inserted["ids"][1:]) == long

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({}, "Give either texts or records."),
            ({"texts": ["x"], "records": []}, "Give either texts or records."),
            ({"texts": ["x", " "]}, "texts[1]: text is ' ', but must contain at least one visible character."),
            ({"records": [{"text": "x"}, {"metadata": {}}]}, "records[1]: text: required"),
            ({"records": [{"text": 3}]}, "records[0]: text: must be text"),
            ({"records": [{"text": "x", "metadta": {}}]}, "records[0]: metadta: not a field. Did you mean 'metadata'?"),
            (
                {"records": [{"text": "x", "lang": "it"}]},
                "records[0]: lang: not a field. There are text, metadata, partition_name, id.",
            ),
            ({"records": [{"text": "x", "metadata": [1]}]}, "records[0]: metadata: must be an object"),
            ({"records": [{"text": "x", "partition_name": 1}]}, "records[0]: partition_name: must be text"),
            ({"texts": ["x"] * 201}, "texts: "),
            ({"texts": ["x"], "partition_name": "\n"}, "partition: "),
        ],
    )
    def test_what_cannot_be_stored_is_named_and_nothing_is(self, call: Any, arguments: Any, said: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            call("insert_records", **arguments)
        assert said in str(caught.value)
        with pytest.raises(NotFound):
            call("describe_collection")

    def test_vectors_of_two_models_are_never_mixed(self, workspace: Workspace, call: Any) -> None:
        call("insert_records", texts=["one"])
        with Workspace(Settings(database=workspace.settings.database, model="hash:64")) as other:
            with pytest.raises(ModelMismatch, match="'papers' holds vectors of 'hash'") as caught:
                other.registry.call("insert_records", {"collection_name": "papers", "texts": ["two"]})
        assert "localmcp config set model hash:384" in str(caught.value.hint)
        assert texts_of(call, "one") == {"one"}


class TestReplacing:
    def test_text_metadata_and_partition_change_under_the_same_id(self, call: Any) -> None:
        first, second = call("insert_records", texts=["bees", "wasps"], metadata={"a": 1})["ids"]
        change = {"id": first, "text": "hornets", "metadata": {"b": 2}, "partition_name": "p"}
        assert call("insert_records", records=[change, {"text": "ants"}])["ids"][0] == first
        [found] = call("retriever", texts=["hornets"], top_k=1)["data"]["results"]
        assert found == {"id": first, "text": "hornets", "score": pytest.approx(1), "metadata": {"b": 2}}
        assert texts_of(call, "x", partition_name="p") == {"hornets"}
        call("insert_records", records=[{"id": second, "text": "wasps", "metadata": {"a": 5}}])
        assert texts_of(call, "x", filter={"a": 5}) == {"wasps"}
        assert texts_of(call, "x") == {"hornets", "wasps", "ants"}

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"id": "1", "text": "x"}, "records[1]: id: must be a number"),
            ({"id": 1}, "records[1]: text: required"),
            ({"id": 999, "text": "x"}, "records[1]: no record 999 in collection 'papers'"),
            ({"id": 1, "text": "word " * 300}, "records[1] has 300 tokens"),
        ],
    )
    def test_one_that_cannot_be_replaced_stops_all(self, call: Any, change: Any, said: str) -> None:
        [first] = call("insert_records", texts=["bees"])["ids"]
        with pytest.raises(LocalMCPError) as caught:
            call("insert_records", records=[{"id": first, "text": "hornets"}, change])
        assert said in str(caught.value)
        assert texts_of(call, "bees") == {"bees"}

    def test_documents_and_split_texts_are_not_replaced(self, workspace: Workspace, call: Any, tmp_path: Path) -> None:
        workspace.library.add_paths([write(tmp_path / "bees.md", "# Bees\n\nA hive.\n")], collection="papers")
        [found] = call("retriever", texts=["hive"])["data"]["results"]
        with pytest.raises(InvalidInput, match="belongs to the document 'Bees'"):
            call("insert_records", records=[{"id": found["id"], "text": "x"}])
        ids = call("insert_records", texts=["One sentence of a few words. " * 120], split=True)["ids"]
        with pytest.raises(InvalidInput, match="belongs to a text that was split"):
            call("insert_records", records=[{"id": ids[1], "text": "x"}])


class TestDeleting:
    def test_by_id_or_by_condition_into_the_trash_and_back(self, workspace: Workspace, call: Any) -> None:
        ids = call("insert_records", texts=["one", "two"], metadata={"keep": False})["ids"]
        call("insert_records", texts=["three"], metadata={"keep": True})
        assert call("delete_records", ids=[ids[0], 999, ids[0]]) == {"deleted": 1, "documents": 1, "notFound": [999]}
        assert call("delete_records", filter={"keep": False}) == {"deleted": 1, "documents": 1}
        assert texts_of(call, "x") == {"three"}
        for source, _ in workspace.library.trashed():
            workspace.registry.call("restore_source", {"sourceId": source.uuid})
        assert texts_of(call, "x") == {"one", "two", "three"}

    def test_a_document_goes_whole_and_does_not_come_back_with_a_refresh(
        self, workspace: Workspace, call: Any, folder: Path
    ) -> None:
        workspace.library.add_paths([folder], collection="papers")
        assert call("delete_records", filter={"path": {"prefix": str(folder / "garden")}})["documents"] == 2
        workspace.library.refresh()
        assert len(texts_of(call, "x")) == 1

    def test_a_part_of_a_text_is_not_deleted(self, call: Any) -> None:
        ids = call("insert_records", texts=["One sentence of a few words. " * 120], split=True)["ids"]
        with pytest.raises(InvalidInput, match="only 1 of them would be deleted"):
            call("delete_records", ids=ids[:1])
        assert call("delete_records", ids=ids)["deleted"] == len(ids)

    @pytest.mark.parametrize("arguments", [{}, {"filter": {}}, {"ids": [1], "filter": {"a": 1}}])
    def test_needs_ids_or_a_filter(self, call: Any, arguments: Any) -> None:
        call("create_collection")
        with pytest.raises(InvalidInput, match="either ids or a filter"):
            call("delete_records", **arguments)


# ---------------------------------------------------------------- the command line


class TestCommandLine:
    def test_lines_of_json_are_stored_and_retrieved(self, cli: Any, tmp_path: Path) -> None:
        lines = [{"text": f"bee number {n}", "metadata": {"n": n}} for n in range(250)]
        write(tmp_path / "bees.jsonl", "\n\n".join(json.dumps(line) for line in lines))
        code, out, _ = cli("collections", "insert", "papers", "--file", "bees.jsonl", "--json")
        assert code == 0 and len(json.loads(out)["ids"]) == 250
        code, out, _ = cli("retrieve", "papers", "bee", "number", "-n", "3", "--filter", "n=7", "--json")
        assert code == 0 and [each["metadata"] for each in json.loads(out)["data"]["results"]] == [{"n": 7}]
        assert cli("retrieve", "papers", "bee", "--filter", '{"n": {"lt": 2}}')[1].count("bee number") == 2

    @pytest.mark.parametrize(
        ("second", "said"),
        [
            ('{"txt": "x"}', "bees.jsonl line 3: txt: not a field. Did you mean 'text'?"),
            ('{"text": ', "bees.jsonl line 3: is not JSON"),
            ('{"text": "%s"}' % ("word " * 300), "bees.jsonl line 3 has 300 tokens"),
        ],
    )
    def test_a_bad_line_is_named_and_nothing_is_written(self, cli: Any, tmp_path: Path, second: str, said: str) -> None:
        assert "papers is made" in cli("collections", "create", "papers")[2]
        write(tmp_path / "bees.jsonl", f'{{"text": "fine"}}\n\n{second}\n')
        code, _, err = cli("collections", "insert", "papers", "--file", "bees.jsonl")
        assert code == 2 and said in err
        assert "documents  0" in cli("collections", "describe", "papers")[1]

    def test_everything_a_collection_needs(self, cli: Any) -> None:
        assert cli("collections", "insert", "papers", "bees", "wasps", "--metadata", '{"a": 1}', "-p", "p")[0] == 0
        assert cli("collections", "insert", "papers", "--file", "-", stdin=b'{"text": "ants"}')[0] == 0
        assert "p" in cli("collections", "list")[1]
        assert cli("collections", "describe", "papers", "--json").json["partitions"] == {"_default": 1, "p": 2}
        assert cli("collections", "insert", "papers", "--file", "-", stdin=b'{"id": 1, "text": "hornets"}')[0] == 0
        assert "hornets" in cli("retrieve", "papers", "hornets", "-n", "1")[1]
        assert cli("collections", "delete", "papers", "1", "-y")[0] == 0
        code, _, err = cli("collections", "drop", "papers")
        assert code == 1 and "--yes" in err
        assert cli("collections", "drop", "papers", "--yes")[0] == 0
        code, _, err = cli("retrieve", "papers", "x")
        assert code == 1 and "query failed: collection not found" in err
