"""Sentences that become tool calls, through the tool `ask` and a real file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from chat_server import ChatServer
from chat_server import chat as chat
from hypothesis import given, settings
from hypothesis import strategies as st

from localmcp.config import load_settings
from localmcp.errors import LocalMCPError
from localmcp.tool_search.ask import ERROR_STATUS, fill_arguments
from localmcp.tool_search.sentence_ranking import rank_tools
from localmcp.tools import Answer, Param, Scope, tool, tools_of
from localmcp.workspace import Workspace

QUICKSTARTS = [
    ("insights-apis", "APIs", "Explore the API catalog and documentation."),
    ("insights-blueprints", "Create a blueprint", "Learn how to make RHEL images from a blueprint."),
    ("getting-started", "Getting started", "The first steps."),
    # Most words of a sentence of the contract, which means other arguments.
    ("rhel", "Create RHEL images for deployment", "For servers."),
    ("scans", "Advanced security scanning and vulnerability assessment", "Every image."),
]


class Shed:
    """Tools that go wrong or change something."""

    def __init__(self) -> None:
        self.emptied = 0

    @tool("empty_shed", title="Empty the shed", examples=("empty the shed",), read_only=False, destructive=True)
    def empty(self) -> dict[str, Any]:
        """Throws everything in the shed away."""
        self.emptied += 1
        return {}

    @tool("count_spades", title="Count the spades", examples=("how many spades are in the shed", "{what}"))
    def count(self, what: str = "") -> dict[str, Any]:
        """Counts the spades."""
        raise LocalMCPError("the shed is locked")

    @tool("break_spade", title="Break a spade", examples=("break the spade",))
    def snap(self) -> dict[str, Any]:
        """Breaks a spade."""
        return {"pieces": 1 // 0}

    @tool("list_rakes", title="List the rakes", examples=("list the rakes",), text=lambda rakes: json.dumps(["a", "b"]))
    def rakes(self) -> dict[str, Any]:
        """Lists the rakes."""
        return {"rakes": ["a", "b"]}

    @tool("list_spades", title="List the spades", examples=("list the spades",))
    def spades(self) -> Answer:
        """Lists the spades, as a tool of a connected server does that sends nothing structured."""
        return Answer({}, '["c"]', content=({"type": "text", "text": '["c"]'},))

    @tool("list_hoes", title="List the hoes", examples=("list the hoes",))
    def hoes(self) -> Answer:
        """Lists the hoes, in a text that looks like JSON and ends nowhere."""
        return Answer({}, "[" * 100_000)

    @tool("weigh_hive", title="Weigh a hive")
    def weigh(self, hive: Annotated[str, Param("Name of the hive", required=True)] = "") -> dict[str, Any]:
        """Weighs a hive of the garden."""
        return {"kilograms": 31}

    @tool("measure_hive", title="Measure a hive")
    def measure(
        self,
        hiveId: Annotated[str, Param("Id of the hive")],
        times: Annotated[int, Param("How often")],
        path: Annotated[str, Param("File for the results")] = "",
    ) -> dict[str, Any]:
        """Measures a hive of the garden."""
        return {}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("router")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALMCP_STATE_DIR", str(folder))
        patch.setenv("LOCALMCP_CONFIG_DIR", str(folder))
        with Workspace(load_settings(database=folder / "a.localmcp")) as workspace:
            workspace.registry.add_service(Shed())
            rows = [
                {"name": name, "content": {"spec": {"displayName": title, "description": text}}}
                for name, title, text in QUICKSTARTS
            ]
            text = "\n".join(json.dumps(row) for row in rows)
            workspace.registry.call("importQuickstarts", {"text": text, "format": "jsonl"})
            yield workspace


def ask(workspace: Workspace, query: str, **beside: Any) -> dict[str, Any]:
    return workspace.registry.call("ask", {"query": query, **beside}).value


@pytest.mark.parametrize(
    ("sentence", "tool_name", "arguments"),
    [
        ("Find the insights-apis quickstart", "searchQuickstarts", {"name": "insights-apis"}),
        ("Show API-related quickstarts", "searchQuickstarts", {"displayName": "API", "maxDistance": 2}),
        (
            "Documentation about blueprints",
            "searchQuickstarts",
            {"description": "blueprint", "displayName": "documentation"},
        ),
        (
            "Find quickstarts about creating blueprints for RHEL images",
            "searchQuickstarts",
            {"displayName": "blueprint", "description": "RHEL images"},
        ),
        ("Please greet John", "greetUser", {"name": "John"}),
        ("add 5.5 and 3.2", "addNumbers", {"a": 5.5, "b": 3.2}),
        ("how many words are in 'the quick fox'", "analyzeText", {"text": "the quick fox", "count_type": "words"}),
    ],
)
def test_the_worked_routings_give_exactly_these_calls(
    workspace: Workspace, sentence: str, tool_name: str, arguments: dict[str, Any]
) -> None:
    response = ask(workspace, sentence)
    assert (response["status"], response["query"]) == ("success", sentence)
    assert response["tool_result"]["tool"] == tool_name
    assert response["arguments"] == arguments
    assert response["router"] == "embedded"
    assert response["certainty"] > 0.6
    assert tool_name not in [each["tool"] for each in response["candidates"]]


def test_data_is_an_object_and_other_text_stays_text(workspace: Workspace) -> None:
    found = ask(workspace, "Find the insights-apis quickstart")["tool_result"]
    assert found["data"]["result"]["quickstart"]["name"] == "insights-apis"
    assert ask(workspace, "Please greet John")["tool_result"]["data"] == "Hello, John!"
    assert ask(workspace, "list the rakes")["tool_result"]["data"] == {"rakes": ["a", "b"]}
    assert ask(workspace, "list the spades")["tool_result"]["data"] == ["c"]
    assert ask(workspace, "list the hoes")["tool_result"]["data"] == "[" * 100_000


@pytest.mark.parametrize("sentence", ["create a blueprint", "create a blueprnt", "getting startd", "APs"])
def test_a_title_alone_finds_the_quick_start(workspace: Workspace, sentence: str) -> None:
    response = ask(workspace, sentence)
    assert response["tool_result"]["data"]["searchParams"] == {"displayName": sentence, "maxDistance": 7}


@pytest.mark.parametrize("sentence", ["delete everything", "open the browser", "what about the roof"])
def test_below_its_certainty_nothing_runs_and_the_call_is_proposed(workspace: Workspace, sentence: str) -> None:
    ran: list[str] = []
    workspace.registry.observe(lambda record: ran.append(record.tool))
    response = ask(workspace, sentence)
    assert response["status"] == "no_tool_call" and response["certainty"] < 0.6
    assert set(ran) <= {"ask", "searchQuickstarts", "count_spades"}  # both look for a title
    if "proposed" in response:
        assert response["proposed"]["tool"] in response["message"]


def test_a_long_run_of_commas_is_answered(workspace: Workspace) -> None:
    # In quadratic time it took a minute, during which no other call was answered.
    assert ask(workspace, "list, " + ", " * 9000 + "documents")["status"]


@pytest.mark.parametrize("sentence", ["describe the collection xmidas", "search for roses in the collection xmidas"])
def test_what_is_not_there_is_the_callers_mistake(workspace: Workspace, sentence: str) -> None:
    response = ask(workspace, sentence)
    assert (response["status"], ERROR_STATUS[response["code"]]) == ("error", 400)
    assert "xmidas" in response["message"]


def test_the_name_of_a_tool_calls_it_with_what_stands_beside(workspace: Workspace) -> None:
    response = ask(workspace, "searchQuickstarts", maxDistance="10")
    assert (response["tool_result"]["tool"], response["arguments"]) == ("searchQuickstarts", {"maxDistance": 10})


@pytest.mark.parametrize(
    ("sentence", "tool_name", "arguments"),
    [
        ("search for bread came out flat", "search", {"query": "bread came out flat"}),
        ("search for a quick start about blueprints", "searchQuickstarts", {"displayName": "blueprints"}),
        ("set the weight of rule 3 to 2", "editRule", {"id": 3, "weight": 2}),
        ("set rule 12's weight to 1.5", "editRule", {"id": 12, "weight": 1.5}),
        ("change rule 12's category to testing", "editRule", {"id": 12, "category": "testing"}),
        ("change rule 3 to Never use tabs", "editRule", {"id": 3, "rule_text": "Never use tabs"}),
        ("change rule 3 to Never edit schema.py", "editRule", {"id": 3, "rule_text": "Never edit schema.py"}),
        ("rule 12 was usefull", "reportRuleUse", {"ruleIds": [12]}),
        ("chnage rule 3 to Never use tabs, please", "editRule", {"id": 3, "rule_text": "Never use tabs"}),
        (
            "open the document 1f0c3a52-7b5e-4c1d-9a66-0d2f4b8c9e10",
            "get_document",
            {"sourceId": "1f0c3a52-7b5e-4c1d-9a66-0d2f4b8c9e10"},
        ),
        ("could you index the folder C:\\My-notes, thanks", "add_path", {"path": "C:\\My-notes"}),
        ("rule 12 was not useful", "reportRuleUse", {"ruleIds": [12], "useful": False}),
        ("put rule 5 back", "restoreRule", {"id": 5}),
        ("what rules do I have about sql", "listRules", {"words": "sql"}),
        (
            "store the text hello in collection papers",
            "insert_records",
            {"collection_name": "papers", "texts": ["hello"]},
        ),
        ("list the newest documents", "list_sources", {"order": "added"}),
        ("make rule 3 more important", "editRule", {"id": 3, "weight": 1.5}),
        ("rule 3 was less important", "editRule", {"id": 3, "weight": 0.5}),
        ("rules 3, 4 and 9 were useful", "reportRuleUse", {"ruleIds": [3, 4, 9]}),
        ("delete records 3, 4 and 5 from recipes", "delete_records", {"ids": [3, 4, 5], "collection_name": "recipes"}),
        (
            "insert the texts 'leek' and 'peas' into recipes",
            "insert_records",
            {"texts": ["leek", "peas"], "collection_name": "recipes"},
        ),
        ("add all of ~/taxes to the collection taxes", "add_path", {"path": "~/taxes", "collection": "taxes"}),
        ("put welcome.md into the trash", "remove_source", {"sourceId": "welcome.md"}),
        ("restore welcome.md", "restore_source", {"sourceId": "welcome.md"}),
        ("put lease.pdf back", "restore_source", {"sourceId": "lease.pdf"}),
        ("show welcome.md", "get_document", {"sourceId": "welcome.md"}),
        ("what's in lease.pdf", "get_document", {"sourceId": "lease.pdf"}),
        ("import the rules from team-rules.md", "importRules", {"path": "team-rules.md"}),
    ],
)
def test_what_is_to_be_changed_is_not_mixed_up(
    workspace: Workspace, sentence: str, tool_name: str, arguments: dict[str, Any]
) -> None:
    decision = workspace.router.decide(workspace.router.rank(sentence), {})
    assert decision.tool is not None
    assert (decision.tool.name, dict(decision.arguments)) == (tool_name, arguments)


def test_limit_goes_only_to_a_tool_that_has_one(workspace: Workspace) -> None:
    assert ask(workspace, "list my documents", limit=2, maxDistance=3)["arguments"] == {"limit": 2}
    assert ask(workspace, "Please greet John", limit=2)["arguments"] == {"name": "John"}


@pytest.mark.parametrize(
    "sentence", ["Book me a flight to Rome", "What's the weather tomorrow?", "???", "rename old.md to new.md"]
)
def test_what_no_tool_can_do_calls_none(workspace: Workspace, sentence: str) -> None:
    response = ask(workspace, sentence)
    assert response["status"] == "no_tool_call"
    assert response["message"].startswith(f'No tool call generated for query: "{sentence}". Message content: "')
    assert "tool_result" not in response
    assert len(response["candidates"]) == 3


@pytest.mark.parametrize("query", ["", "  \n"])
def test_an_empty_query_is_an_error(workspace: Workspace, query: str) -> None:
    response = ask(workspace, query)
    assert (response["status"], response["message"]) == ("error", "Query field cannot be empty")
    assert ERROR_STATUS[response["code"]] == 400


@pytest.mark.parametrize(
    ("sentence", "parameter"),
    [
        ("is the indexing job done", "jobId"),
        ("push my collection to milvus", "collection"),
        ("create a partition in the collection papers", "partition_name"),
        ("weigh a hive", "hive"),
        ("delete rule milk", "id"),
        ("open the document", "sourceId (Id, path or title of the document"),
        ("import the rules from the wiki", "more: Give either path or text"),
    ],
)
def test_words_of_the_tool_and_prepositions_are_no_arguments_and_a_missing_one_is_named(
    workspace: Workspace, sentence: str, parameter: str
) -> None:
    response = ask(workspace, sentence)
    assert response["status"] == "no_tool_call"
    assert f"fits, but needs {parameter}" in response["message"]


def test_a_quotation_or_a_name_in_capitals_is_an_argument(workspace: Workspace) -> None:
    quote = ask(workspace, 'check whether the quote "Clean the siphon" is in the boiler manual')
    assert quote["arguments"]["quote"] == "Clean the siphon"
    assert ask(workspace, "weigh hive A")["arguments"] == {"hive": "A"}


@pytest.mark.parametrize(
    ("sentence", "arguments"),
    [
        ("measure hive ENG-142 5 times into ~/hives.csv", {"hiveId": "ENG-142", "times": 5, "path": "~/hives.csv"}),
        ('measure 2 times "in the sun" hive ENG-142', {"hiveId": "ENG-142", "times": 2}),
        ("measure 1f0c3a52-7b5e-4c1d-9a66-0d2f4b8c9e10", {"hiveId": "1f0c3a52-7b5e-4c1d-9a66-0d2f4b8c9e10"}),
    ],
)
def test_a_tool_without_phrases_takes_ids_numbers_and_paths(
    workspace: Workspace, sentence: str, arguments: dict[str, Any]
) -> None:
    ranking = rank_tools(sentence, [workspace.registry.get("measure_hive")], workspace.discovery, with_model=False)
    assert fill_arguments(ranking.sentence, ranking.tokens, ranking.tools[0], {})[0] == arguments


def test_a_destructive_tool_is_proposed_and_not_run(workspace: Workspace) -> None:
    shed = Shed()
    for each in tools_of(shed):
        workspace.registry.add(each)
    response = ask(workspace, "empty the shed")
    assert response["proposed"] == {"tool": "empty_shed", "arguments": {}}
    assert (response["status"], shed.emptied) == ("no_tool_call", 0)


def test_what_a_tool_raises_is_told(workspace: Workspace) -> None:
    response = ask(workspace, "how many spades are in the shed")
    assert (response["status"], response["message"]) == ("error", "Error executing tool: the shed is locked")
    assert ERROR_STATUS[response["code"]] == 500


def test_only_tools_of_the_scope_are_routed_to(workspace: Workspace) -> None:
    scope = Scope(tools=frozenset({"ask", "list_sources"}))
    response = workspace.registry.call("ask", {"query": "Please greet John"}, scope).value
    assert response["status"] == "no_tool_call"
    assert [each["tool"] for each in response["candidates"]] == ["list_sources"]


@settings(max_examples=30, deadline=None)
@given(words=st.text(max_size=200))
def test_any_sentence_is_decided(workspace: Workspace, words: str) -> None:
    ranking = rank_tools(f"change rule {words}", workspace.registry.tools(), workspace.discovery, with_model=False)
    assert sum(each.certainty for each in ranking.tools) + ranking.none == pytest.approx(1)
    decision = workspace.router.decide(ranking, {})
    assert decision.tool is None or set(decision.arguments) <= set(decision.tool.input_schema["properties"])


# ---------------------------------------------------------------- with a language model


@pytest.fixture
def with_model(tmp_path: Path, chat: ChatServer) -> Iterator[Workspace]:
    settings = load_settings(database=tmp_path / "a.localmcp", model="hash", language_model=chat.spec("ollama"))
    with Workspace(settings) as workspace:
        workspace.registry.add_service(Shed())
        yield workspace


def test_the_models_call_is_made(with_model: Workspace, chat: ChatServer) -> None:
    chat.will_say("ollama", None, ("greetUser", {"name": "Ada"}), ("greetUser", {"name": "Bob"}))
    response = ask(with_model, "say something nice to Ada")
    assert response["tool_result"] == {"tool": "greetUser", "data": "Hello, Ada!"}
    assert response["router"] == "ollama:m"
    offered = [each["function"]["name"] for each in chat.requests[0][1]["tools"]]
    assert len(offered) == 8 and not {"ask", "execute_tool"} & set(offered)


def test_the_models_words_are_passed_on(with_model: Workspace, chat: ChatServer) -> None:
    chat.will_say("ollama", "I cannot.")
    response = ask(with_model, "dance")
    assert response["message"] == 'No tool call generated for query: "dance". Message content: "I cannot."'


def test_a_tool_that_does_not_exist_is_named(with_model: Workspace, chat: ChatServer) -> None:
    chat.will_say("ollama", None, ("danceTango", {}))
    response = ask(with_model, "dance")
    assert (response["status"], response["message"]) == ("error", "Tool not found: danceTango")
    assert ERROR_STATUS[response["code"]] == 400


def test_a_destructive_choice_of_the_model_is_only_proposed(with_model: Workspace, chat: ChatServer) -> None:
    chat.will_say("ollama", None, ("empty_shed", {}))
    assert ask(with_model, "tidy up")["proposed"] == {"tool": "empty_shed", "arguments": {}}
