"""A key for one collection learns nothing of another, in any tool.

The same calls are made, with keys for the collection `open`, against two files: one that holds `open` alone, and one
that holds `vault` too. Whatever differs between the replies tells of `vault`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import OpenDoor, lasting_door, open_door
from folders import write

from localmcp.library.names import DOCUMENT_URI
from localmcp.server.mcp import DOCUMENT_TEMPLATE, RULES_PROMPT
from localmcp.tool_search import discovery
from localmcp.tools import Scope, use_scope

SECRET = "zeppelin"
"""A word that stands in the vault only."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
_USE = re.compile(r'"score":0\.\d+(?=,"parameters")')
"""Of a tool: it moves a little with every call that was made before, of whatever tool."""
_NEAREST = re.compile(r',"nearest":\[[^]]*\],"hint":"[^"]*"')
"""Present once the vectors of what no tool does are ready, which takes a while after the start."""
_TIMING = re.compile(r'"(seconds|execution_time|mtimeNs|retryAfter)":("[^"]*"|[0-9.e-]+)')
_CLOCK = re.compile(r'"milliseconds":(\{[^}]*\}|[0-9.]+)')
_RECORD_ID = re.compile(r'"id":\d+|"(?:ids|notFound)":\[[\d,]*\]')
"""Numbers of records (S4-2) count through the whole file, so that none is ever given twice."""


Names = dict[str, str]
"""What the calls name: things of the open collection in the file that is called, and things of the vault."""


def fill(value: Any, names: Names) -> Any:
    """`value` with `<open_source>` and the like filled in."""
    if isinstance(value, str):
        return re.sub(r"<(\w+)>", lambda found: names[found[1]], value)
    if isinstance(value, list):
        return [fill(each, names) for each in value]
    return {key: fill(each, names) for key, each in value.items()} if isinstance(value, dict) else value


RECORDS = [{"text": "A record.", "metadata": {"kind": "note"}}]
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "search": [
        {"query": SECRET},
        {"query": "zepelin report"},
        {"query": "bees and hives", "explain": True},
        {"query": "report", "mode": "keyword", "explain": True},
        {"query": "airships", "mode": "semantic", "limit": 50},
        {"query": SECRET, "collection": "vault"},
        {"query": SECRET, "collection": "vaul"},
        {"query": SECRET, "sourceId": "<vault_source>"},
        {"query": "report", "partition": "hangar"},
        {"query": "report", "pathPrefix": "<vault_folder>"},
        {"query": "report", "metadata": {"owner": "count"}},
    ],
    "get_context": [{"chunkId": "<vault_chunk>"}, {"chunkId": "<open_chunk>", "window": 50}],
    "get_document": [
        {"sourceId": "<vault_source>"},
        {"sourceId": "<vault_file>"},
        {"sourceId": "The Zeppelin Report"},
        {"sourceId": "zeppelin.md"},
        {"sourceId": "<open_source>"},
    ],
    "list_tags": [{}, {"collection": "vault"}],
    "tag_document": [{"sourceId": "<vault_source>", "add": ["taken"]}, {"sourceId": "zeppelin.md", "add": ["taken"]}],
    "list_sources": [{}, {"collection": "vault"}, {"collection": "vaults"}, {"limit": 500, "offset": 1}],
    "get_stats": [{}],
    "list_tables": [{}, {"words": SECRET}, {"document": "Wages"}, {"document": "<vault_source>"}],
    "query_table": [{"sql": 'select * from "Wages"'}, {"sql": "select 1"}],
    "add_document": [
        {"title": "The Zeppelin Report", "text": "Other words.", "collection": "vault"},
        {"title": "The Zeppelin Report", "text": "Other words.", "collection": "open"},
        {"title": "The Zeppelin Report", "text": "Other words."},
        {"title": "The Zeppelin Report", "text": "More words.", "collection": "open", "replace": True},
    ],
    "add_path": [
        {"path": "<vault_folder>"},
        {"path": "<vault_file>", "collection": "open"},
        {"path": "<vault_folder>", "collection": "vault"},
        {"path": "<open_folder>", "collection": "open"},
        {"path": "<open_folder>/../vault", "collection": "open"},
    ],
    "refresh": [{}, {"collection": "vault"}, {"collection": "open"}],
    "remove_source": [
        {"sourceId": "<vault_source>"},
        {"path": "<vault_file>"},
        {"path": "<vault_folder>"},
        {"path": "<scratch>"},
        {"sourceId": "<open_source>"},
    ],
    "restore_source": [{"sourceId": "<vault_source>"}, {"sourceId": "<open_source>"}],
    "cancel_job": [{"jobId": "<vault_source>"}, {"jobId": "0" * 32}],
    "list_trash": [{}, {"limit": 500}],
    "job_status": [{"jobId": "<vault_source>"}, {"jobId": "0" * 32}],
    "verify_citation": [
        {"quote": "The zeppelin is moored in hangar seven."},
        {"quote": "The zeppelin is moored in hangar seven.", "id": "<vault_source>"},
        {"quote": "The zeppelin is moored in hangar seven.", "id": "<vault_chunk>"},
        {"quote": "A hive has one queen.", "id": "<open_source>"},
    ],
    "searchQuickstarts": [{"displayName": SECRET}, {"description": "airships"}],
    "importQuickstarts": [{"path": "<vault_file>"}, {"text": "not one", "format": "yaml"}],
    "listQuickstarts": [{}],
    "showQuickstart": [{"name": SECRET}],
    "exportQuickstarts": [{}],
    "removeQuickstart": [{"names": [SECRET]}],
    "getRelevantRules": [{"taskDescription": "moor the zeppelin", "similarityThreshold": -1}],
    "addRule": [{"rule_text": "Moor every zeppelin twice."}],
    "listRules": [{}],
    "editRule": [{"id": 1, "rule_text": "Moor it once."}, {"id": 99, "rule_text": "Nothing."}],
    "retireRule": [{"id": 99}],
    "restoreRule": [{"id": 99}],
    "deleteRule": [{"id": 99}],
    "reportRuleUse": [{"ruleIds": [99]}],
    "rememberDeveloperInstruction": [{"instruction": "Always moor a zeppelin by its nose.", "context": "airships"}],
    "importRules": [{"path": "<vault_file>"}, {"text": "- Moor gently.", "format": "markdown"}],
    "exportRules": [{}],
    "retriever": [
        {"collection_name": "vault", "texts": [SECRET]},
        {"collection_name": "vault", "partition_name": "hangar", "texts": [SECRET]},
        {"collection_name": "open", "texts": [SECRET, "bees"], "top_k": 100},
        {"collection_name": "open", "partition_name": "hangar", "texts": [SECRET]},
    ],
    "list_collections": [{}],
    "describe_collection": [{"collection_name": "vault"}, {"collection_name": "open"}, {"collection_name": "vau"}],
    "create_collection": [
        {"collection_name": "vault"},
        {"collection_name": "VAULT"},
        {"collection_name": "open"},
        {"collection_name": "unheard-of"},
    ],
    "create_partition": [
        {"collection_name": "vault", "partition_name": "hangar"},
        {"collection_name": "open", "partition_name": "hangar"},
    ],
    "insert_records": [
        {"collection_name": "vault", "records": RECORDS},
        {"collection_name": "open", "records": RECORDS},
        {"collection_name": "vault", "records": [{"id": 2, "text": "Taken over."}]},
        {"collection_name": "open", "records": [{"id": 9999, "text": "Taken over."}]},
    ],
    "delete_records": [
        {"collection_name": "vault", "ids": [1, 2, 3]},
        {"collection_name": "open", "filter": {"kind": "note"}},
    ],
    "drop_partition": [
        {"collection_name": "vault", "partition_name": "hangar"},
        {"collection_name": "open", "partition_name": "hangar"},
    ],
    "push_collection": [{"collection_name": "vault"}, {"collection_name": "open"}],
    "pull_collection": [{"collection_name": "vault"}],
    "greetUser": [{"name": "Zeppelin"}],
    "addNumbers": [{"a": 1, "b": 2}],
    "reverseString": [{"text": SECRET}],
    "analyzeText": [{"text": SECRET, "count_type": "words"}],
    "tool_search": [{"query": SECRET}, {"query": "collections"}],
    "execute_tool": [
        {"name": "get_document", "arguments": {"sourceId": "<vault_source>"}},
        {"name": "list_sources", "arguments": {"collection": "vault"}},
    ],
    "ask": [
        {"query": "what do my documents say about the zeppelin"},
        {"query": "list the documents in the collection vault"},
        {"query": "how many documents are indexed"},
        {"query": "remove the document <vault_source>"},
    ],
    "drop_collection": [
        {"collection_name": "vault", "confirm": True},
        {"collection_name": "vaul"},
        {"collection_name": "open"},
    ],
}
"""For every tool, calls that could tell of the vault; those that remove things stand last."""


class TwoFiles:
    """The file without the vault, the one with it, and a key for `open` in each."""

    def __init__(self, alone: OpenDoor, both: OpenDoor, folder: Path) -> None:
        self.doors = (alone, both)
        for door in self.doors:
            self._add(door, "open", folder / "open", None)
        self._add(both, "vault", folder / "vault", "hangar")
        vault = self._pieces(both, "vault")
        self.names = [self._names(door, folder, vault) for door in self.doors]
        self.keys = [door.make_key("admin", collections=["open"]) for door in self.doors]

    def _add(self, door: OpenDoor, collection: str, folder: Path, partition: str | None) -> None:
        arguments = {"path": str(folder), "collection": collection, "partition": partition}
        state = door.workspace.registry.call("add_path", arguments, Scope()).value
        for _ in range(10):
            if state["status"] == "running":
                waiting = {"jobId": state["jobId"], "waitSeconds": 20}
                state = door.workspace.registry.call("job_status", waiting, Scope()).value
        assert state["status"] == "done", state

    def _pieces(self, door: OpenDoor, collection: str) -> tuple[str, str]:
        with use_scope(Scope()):
            [source, *_] = door.workspace.knowledge.list_sources(collection=collection)["sources"]
            document = door.workspace.knowledge.get_document(source["id"])
        return source["id"], document["chunks"][0]["id"]

    def _names(self, door: OpenDoor, folder: Path, vault: tuple[str, str]) -> Names:
        source, chunk = self._pieces(door, "open")
        about = {"open_source": source, "open_chunk": chunk, "vault_source": vault[0], "vault_chunk": vault[1]}
        places = {"open_folder": "open", "vault_folder": "vault", "vault_file": "vault/zeppelin.md", "scratch": ""}
        return {**about, **{name: str(folder / place) for name, place in places.items()}}

    def ask(self, tool: str, arguments: dict[str, Any]) -> list[str]:
        """The replies of both files, without what differs by nature."""
        return [
            normal(door.send("POST", f"/tools/{tool}", {"input": fill(arguments, names)}, key=key).body.decode())
            for door, names, key in zip(self.doors, self.names, self.keys, strict=True)
        ]


def normal(reply: str) -> str:
    """A reply without ids, moments and durations, and without what a search for tools learns while it waits."""
    reply = _USE.sub("", _NEAREST.sub("", reply))
    reply = _TIMING.sub(r'"\1":0', _TIME.sub("TIME", _ID.sub("ID", reply)))
    return _RECORD_ID.sub("RECORD", _CLOCK.sub("CLOCK", reply))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoFiles]:
    folder = tmp_path_factory.mktemp("files").resolve()
    write(folder / "open" / "bees.md", "# Bees\n\nA hive has one queen. This report is about bees.\n")
    write(folder / "vault" / "zeppelin.md", "# The Zeppelin Report\n\nThe zeppelin is moored in hangar seven.\n")
    write(folder / "vault" / "more.md", "# Wages\n\nThe captain earns more than anybody knows.\n")
    with (
        pytest.MonkeyPatch.context() as patch,
        lasting_door(tmp_path_factory) as alone,
        open_door(folder / "both.localmcp") as both,
    ):
        # Both files' tools are compared by meaning, however long their vectors take.
        patch.setattr(discovery.Discovery.rank, "__defaults__", ("best", 0, 60.0, ()))
        yield TwoFiles(alone, both, folder)


def test_every_tool_has_its_calls_listed(files: TwoFiles) -> None:
    known = {each.name for each in files.doors[1].workspace.registry.tools()}
    assert known - ARGUMENTS.keys() == set(), "list calls for new tools that could tell of another collection"
    assert ARGUMENTS.keys() - known == set()


@pytest.mark.parametrize("tool", ARGUMENTS)
def test_a_tool_answers_as_if_the_other_collection_were_not_there(files: TwoFiles, tool: str) -> None:
    for arguments in ARGUMENTS[tool]:
        alone, both = files.ask(tool, arguments)
        assert both == alone, arguments
    with use_scope(Scope()):
        knowledge = files.doors[1].workspace.knowledge
        titles = {each["title"] for each in knowledge.list_sources(collection="vault")["sources"]}
        [vault] = [each for each in knowledge.get_stats()["collections"] if each["name"] == "vault"]
    assert (titles, vault["sources"], vault["chunks"]) == ({"The Zeppelin Report", "Wages"}, 2, 2)


def test_records_of_the_other_collection_are_not_found_by_their_numbers(files: TwoFiles) -> None:
    door, key = files.doors[1], files.keys[1]
    answer = door.workspace.registry.call("retriever", {"collection_name": "vault", "texts": [SECRET]}, Scope()).value
    numbers = [each["id"] for each in answer["data"]["results"]]
    assert len(numbers) == 2
    for tool, arguments in (
        ("delete_records", {"ids": numbers}),
        ("insert_records", {"records": [{"id": each, "text": "Taken over."} for each in numbers]}),
    ):
        unknown = {"ids": [9998, 9999]} if "ids" in arguments else {"records": [{"id": 9998, "text": "x"}] * 2}
        told = [
            door.send("POST", f"/tools/{tool}", {"input": {"collection_name": "open", **each}}, key=key).json
            for each in (arguments, unknown)
        ]
        mine, theirs = (re.sub(r"\b\d+\b", "N", json.dumps({**each, "stats": None})) for each in told)
        assert mine == theirs


def test_what_is_told_at_connecting_names_no_other_collection(files: TwoFiles) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    replies = [door.rpc("initialize", params, key=key).body for door, key in zip(files.doors, files.keys, strict=True)]
    assert replies[0] == replies[1] and b"vault" not in replies[1] and b"instructions" in replies[1]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": f"{DOCUMENT_URI}<vault_source>"}),
        ("resources/read", {"uri": f"{DOCUMENT_URI}<vault_file>"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": RULES_PROMPT["name"], "arguments": {"task": f"moor the {SECRET}"}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": DOCUMENT_TEMPLATE["uriTemplate"]},
                                 "argument": {"name": "sourceId", "value": "The Zep"}}),
    ],
)  # fmt: skip
def test_what_is_offered_besides_tools_tells_of_no_other_collection(
    files: TwoFiles, method: str, params: dict[str, Any]
) -> None:
    alone, both = (
        normal(door.rpc(method, fill(params, names), key=key).body.decode())
        for door, names, key in zip(files.doors, files.names, files.keys, strict=True)
    )
    assert both == alone


def test_endpoints_of_management_tell_of_no_other_collection(files: TwoFiles) -> None:
    for method, path, body in (
        ("GET", "/api/mcp/keys/list?ragId=vault", None),
        ("GET", "/api/mcp/logs?ragId=vault", None),
        ("POST", "/api/mcp/keys/generate", {"ragId": "vault"}),
        ("POST", "/mcp-query", {"query": "what is in the collection vault"}),
        ("GET", "/tools", None),
    ):
        alone, both = (
            normal(door.send(method, path, body, key=key).body.decode())
            for door, key in zip(files.doors, files.keys, strict=True)
        )
        assert both == alone, path
