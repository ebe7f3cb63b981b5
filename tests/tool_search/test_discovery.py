"""Discovery: behaviours of the original's seed era by their ids, the scoring ladder, any input.

Those of attaching, of providers that come and go, and of threads are tested through the public registry
(`tests/server/test_tool_registry.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.errors import InvalidInput, NotFound, UnknownTool
from localmcp.tool_search import discovery
from localmcp.tool_search.discovery import NOTHING_FOUND, Discovery
from localmcp.tool_search.words import ToolMetadata, score_query
from localmcp.tools import Answer, Param, Registry, Scope, Tool, ToolMark, tool, use_scope


class Made(Tool):
    """A tool as a provider makes them; without a schema it cannot tell it."""

    def __init__(
        self, name: str, description: str = "", *keywords: str, says: str = "done", schema: dict[str, Any] | None = None
    ) -> None:
        self.mark = ToolMark(name, name, keywords, visible=False)
        self.description = description
        self.says = says
        self.schema = schema
        self.received: list[dict[str, Any]] = []

    @property
    def input_schema(self) -> dict[str, Any]:
        if self.schema is None:
            raise ConnectionError("The catalogue is out of reach.")
        return self.schema

    def call(self, arguments: dict[str, Any]) -> Answer:
        self.received.append(arguments)
        return Answer({"says": self.says}, self.says)


class Catalogue:
    """A provider; `down` fails its lists and look-ups."""

    def __init__(self, *made: Tool, down: bool = False) -> None:
        self.made = {each.name: each for each in made}
        self.down = down

    def tools(self) -> Iterable[Tool]:
        if self.down:
            raise ConnectionError("down")
        return self.made.values()

    def find(self, name: str) -> Tool | None:
        if self.down:
            raise NotFound("The catalogue is down.")
        return self.made.get(name)


class Mail:
    """Hidden tools and a visible one."""

    @tool("send_email", title="Send an email", keywords=("email", "communication", "smtp"), visible=False)
    def send_email(
        self, to: Annotated[str, Param("Recipient.")], cc: Annotated[list[str] | None, Param("Copies.")] = None
    ) -> dict[str, Any]:
        """Send an email to a recipient"""
        return {"to": to, "cc": cc or []}

    @tool("greet", title="Greet", visible=False, text=lambda value: f"Hello from {value['to']}!")
    def greet(self) -> dict[str, Any]:
        """Say hello"""
        return {"to": "hidden tool", "cc": []}

    @tool("explode", title="Explode", visible=False)
    def explode(self, politely: bool = False) -> dict[str, Any]:
        """Always fails"""
        raise NotFound("No fuse.") if politely else RuntimeError("bang")

    @tool("count_letters", title="Count", keywords=("statistics",))
    def count_letters(self) -> dict[str, Any]:
        """Listed by tools/list"""
        return {"to": "", "cc": []}


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_service(Mail())
    made.add_service(Discovery(made))
    return made


def names(found: Iterable[Any]) -> list[str]:
    return [each["name"] if isinstance(each, dict) else each.name for each in found]


def find(registry: Registry, query: str, **arguments: Any) -> list[str]:
    """Names that tool_search returns."""
    return names(registry.call("tool_search", {"query": query, **arguments}).value["tools"])


def texts_of(answer: Answer) -> list[str]:
    """Return the blocks of text that a client is sent."""
    return [block["text"] for block in answer.content] if answer.content else [answer.text]


# ---------------------------------------------------------------- registry


def test_registry_01_to_04_a_tool_is_got_and_called_by_its_name_and_an_unknown_one_names_the_nearest(
    registry: Registry,
) -> None:
    assert registry.get("send_email").name == "send_email"
    assert registry.call("greet", None).text == "Hello from hidden tool!"
    for ask in (registry.get, registry.call):
        with pytest.raises(UnknownTool, match=r"Unknown tool: send_mail\. Did you mean 'send_email'"):
            ask("send_mail")
    assert registry.find("nonexistent") is None
    with pytest.raises(UnknownTool):
        registry.call("find " + "thanks," * 100_000 + "x")


def test_visibility_04_where_all_tools_are_listed_the_two_that_stand_for_them_are_not(registry: Registry) -> None:
    registry.add(Made("hidden"))
    registry.show_all = True
    listed = names(registry.visible())
    assert "hidden" in listed
    assert sorted(listed) == sorted(set(names(registry.tools())) - {discovery.TOOL_SEARCH, discovery.EXECUTE_TOOL})


# ---------------------------------------------------------------- search


def test_search_01_the_text_is_a_json_array_with_exactly_the_tool_that_fits(registry: Registry) -> None:
    result = registry.call("tool_search", {"query": "email"})
    (only,) = json.loads(result.text)
    assert list(only) == ["name", "description", "score", "input_schema"]
    assert (only["name"], only["description"], only["score"]) == ("send_email", "Send an email to a recipient", 0.85)


def test_search_02_the_input_schema_comes_once_and_from_the_library_in_both_spellings(registry: Registry) -> None:
    (both,) = Discovery(registry).search("send")
    assert both["input_schema"] == both["inputSchema"] == registry.get("send_email").input_schema
    answer = registry.call("tool_search", {"query": "send", "detail": "full"})
    (only,) = answer.value["tools"]
    assert only["input_schema"] == registry.get("send_email").input_schema and "inputSchema" not in only
    assert only["input_schema"]["type"] == "object"
    assert only["input_schema"]["properties"]["to"] == {"type": "string", "description": "Recipient."}
    assert answer.value["count"] == 1


def test_search_03_twenty_tools_with_one_keyword_are_cut_to_five() -> None:
    registry = Registry()
    for number in range(20):
        registry.add(Made(f"tool_{number:02}", "", "common", schema={}))
    assert names(Discovery(registry).search("common", 5)) == [f"tool_{number:02}" for number in range(5)]


def test_search_04_nothing_found_is_a_sentence_and_an_empty_list(registry: Registry) -> None:
    result = registry.call("tool_search", {"query": "zzzzzz"})
    assert result.text == NOTHING_FOUND
    assert NOTHING_FOUND == "No tools found. Try different keywords or a broader search term."
    assert not result.is_error and result.value == {"confidence": "none", "tools": [], "count": 0}


@pytest.mark.parametrize(
    ("given_value", "results"),
    [
        ({}, 10),
        ({"max_results": None}, 10),
        ({"max_results": ""}, 10),
        ({"max_results": 0}, 10),
        ({"max_results": -3}, 10),
        ({"max_results": 1}, 1),
        ({"max_results": "7"}, 7),
        ({"max_results": 7.0}, 7),
        ({"max_results": 100}, 100),
        ({"max_results": 1000}, 100),
    ],
)
def test_search_05_max_results_defaults_to_ten_and_is_capped_at_a_hundred(
    registry: Registry, given_value: dict[str, Any], results: int
) -> None:
    for number in range(120):
        registry.add(Made(f"tool_{number}", schema={}))
    assert len(find(registry, "", **given_value)) == results


@pytest.mark.parametrize("max_results", [0, -1])
def test_search_06_the_library_search_does_not_cut_at_zero_and_less(max_results: int) -> None:
    registry = Registry()
    for number in range(150):
        registry.add(Made(f"tool_{number}", schema={}))
    assert len(Discovery(registry).search("tool", max_results)) == 150


def test_search_07_of_equal_names_the_registered_one_wins_then_global_then_request_providers() -> None:
    registry = Registry()
    registry.add(Made("one", "registered", schema={}))
    registry.add_provider(Catalogue(Made("one", "global", schema={}), Made("two", "global", schema={})))
    mine = Catalogue(*(Made(name, "request", schema={}) for name in ("one", "two", "three")))
    with use_scope(Scope(providers=(mine,))):
        found = Discovery(registry).search()
    assert {each["name"]: each["description"] for each in found} == {
        "one": "registered",
        "two": "global",
        "three": "request",
    }
    assert len(found) == 3


def test_search_08_and_provider_04_a_provider_that_fails_is_skipped_and_the_others_are_searched() -> None:
    registry = Registry()
    registry.add_provider(Catalogue(Made("lost"), down=True))
    registry.add_provider(Catalogue(Made("atlas", schema={})))
    assert names(Discovery(registry).search()) == ["atlas"]
    assert registry.get("atlas").name == "atlas"


def test_search_09_a_tool_that_cannot_tell_its_schema_is_found_without(registry: Registry) -> None:
    registry.add_provider(Catalogue(Made("atlas", "Maps.")))
    answer = registry.call("tool_search", {"query": "atlas"})
    assert answer.value["tools"] == [{"name": "atlas", "description": "Maps.", "score": 1.0}]
    assert json.loads(answer.text) == answer.value["tools"]


@pytest.mark.parametrize("query", ["atlas", "maps of cities", ""])
@pytest.mark.parametrize(
    "schema", [{"required": True, "properties": {"to": {}}}, {"required": [["to"]]}, {"properties": ["to"]}]
)
def test_a_schema_that_is_none_hides_no_tool(registry: Registry, query: str, schema: dict[str, Any]) -> None:
    registry.add(Made("atlas", "Maps of cities.", schema=schema))
    assert "atlas" in find(registry, query)


def test_a_brief_answer_has_the_best_tools_schema_and_a_line_for_each_other(registry: Registry) -> None:
    long = "Sends a letter by post. " * 9
    registry.add(Made("send_letter", long, schema={"properties": {"to": {"type": "string"}}, "required": ["to"]}))
    best, other = registry.call("tool_search", {"query": "send"}).value["tools"]
    whole = {**registry.get(best["name"]).input_schema}
    assert whole.pop("additionalProperties") is False
    assert best["input_schema"] == whole and "parameters" not in best
    assert other == {
        "name": "send_letter",
        "description": "Sends a letter by post.",
        "score": 0.9,
        "parameters": "to* (string)",
    }
    with pytest.raises(InvalidInput, match="detail"):
        registry.call("tool_search", {"query": "send", "detail": "short"})


def test_a_sure_answer_names_only_what_the_tools_after_the_first_require(registry: Registry) -> None:
    optional: dict[str, Any] = {"note": {"type": "string"}, "copies": {"type": "integer"}}
    for name in ("atlas_print", "atlas_post"):
        properties = {"to": {"type": "string", "maxLength": 90}, **optional}
        registry.add(Made(name, "Maps.", schema={"properties": properties, "required": ["to"]}))
    answer = registry.call("tool_search", {"query": "atlas_print"})
    assert answer.value["confidence"] == "high"
    best, *others = answer.value["tools"]
    assert "maxLength" not in json.dumps(best) and best["input_schema"]["required"] == ["to"]
    (post,) = [tool for tool in others if tool["name"] == "atlas_post"]
    assert post["parameters"] == "to* (string), +2 optional"


def test_parameters_are_cut_to_a_line_and_a_very_long_schema_comes_only_when_asked_for(registry: Registry) -> None:
    wide = {"properties": {f"parameter_{n}": {"type": "string", "items": True} for n in range(400)}}
    registry.add(Made("wide_atlas", "Maps.", schema=wide))
    (hit,) = registry.call("tool_search", {"query": "wide_atlas", "max_results": 1}).value["tools"]
    assert hit["parameters"].startswith("parameter_0 (string), ") and hit["parameters"].endswith(" more")
    assert len(hit["parameters"]) < 400
    (full,) = registry.call("tool_search", {"query": "wide_atlas", "max_results": 1, "detail": "full"}).value["tools"]
    assert full["input_schema"] == wide


def test_when_nothing_fits_surely_the_nearest_are_told_with_low_confidence(registry: Registry) -> None:
    result = registry.call("tool_search", {"query": "delete all letters"})
    sentence, array = texts_of(result)
    assert sentence.startswith("Nothing fits surely") and json.loads(array)[0]["name"] == "count_letters"
    assert list(result.value)[:2] == ["confidence", "tools"]
    assert result.value["confidence"] == "low"
    assert all("parameters" in each for each in result.value["tools"])


def test_queries_ask_for_the_steps_of_a_task_one_by_one(registry: Registry) -> None:
    answer = registry.call("tool_search", {"queries": ["send an email", "say hello", " "]})
    assert {tool["name"] for tool in answer.value["tools"][:2]} == {"send_email", "greet"}
    assert find(registry, "", queries=["email"]) == ["send_email"]
    assert len(find(registry, "", queries=[" "])) == 4


def test_an_empty_query_lists_all_with_score_one_by_name(registry: Registry) -> None:
    for query in ({}, {"query": ""}, {"query": " \t"}, {"query": None}):
        found = registry.call("tool_search", query).value["tools"]
        assert [(each["name"], each["score"]) for each in found] == [
            ("count_letters", 1.0),
            ("explode", 1.0),
            ("greet", 1.0),
            ("send_email", 1.0),
        ]


def test_a_caller_finds_and_runs_only_what_it_may_call(registry: Registry) -> None:
    narrow = Scope(tools=frozenset({"tool_search", "execute_tool", "greet"}))
    assert names(registry.call("tool_search", {}, narrow).value["tools"]) == ["greet"]
    answer = registry.call("execute_tool", {"name": "send_email", "arguments": {"to": "a"}}, narrow)
    assert answer.text == "Tool not found: send_email. Use tool_search to discover available tools."
    assert registry.call("execute_tool", {"name": "greet"}, narrow).text == "Hello from hidden tool!"


# ---------------------------------------------------------------- execute


def test_execute_02_an_unknown_tool_is_answered_with_a_sentence(registry: Registry) -> None:
    result = registry.call("execute_tool", {"name": "send_mail"})
    sentence = "Tool not found: send_mail. Use tool_search to discover available tools."
    assert texts_of(result) == [sentence, "Did you mean 'send_email'?"] and result.is_error
    assert result.value == {"error": sentence, "hint": "Did you mean 'send_email'?"}
    nobody = registry.call("execute_tool", {"name": "qqq"})
    assert nobody.text == "Tool not found: qqq. Use tool_search to discover available tools."


@pytest.mark.parametrize("arguments", [{}, {"name": ""}, {"name": None}, {"arguments": {"to": "x"}}])
def test_execute_03_a_call_without_a_name_is_answered_with_a_sentence(
    registry: Registry, arguments: dict[str, Any]
) -> None:
    result = registry.call("execute_tool", arguments)
    assert result.text == "Tool name is required" and result.is_error


@pytest.mark.parametrize("absent", [{}, {"arguments": None}, {"parameters": None}, {"arguments": {}}])
def test_execute_04_absent_arguments_are_an_empty_object(registry: Registry, absent: dict[str, Any]) -> None:
    made = Made("receiver", schema={})
    registry.add(made)
    registry.call("execute_tool", {"name": "receiver", **absent})
    assert made.received == [{}]


@pytest.mark.parametrize(("politely", "error"), [(True, NotFound), (False, RuntimeError)])
def test_execute_05_what_a_tool_raises_is_raised(registry: Registry, politely: bool, error: type[Exception]) -> None:
    with pytest.raises(error):
        registry.call("execute_tool", {"name": "explode", "arguments": {"politely": politely}})


@pytest.mark.parametrize(
    "given_value",
    [
        {"arguments": {"to": "ann"}},
        {"parameters": {"to": "ann"}},
        {"parameters": {"to": "ann"}, "arguments": {"to": "bob"}},
        {"parameters": {}, "arguments": {"to": "ann"}},
    ],
)
def test_arguments_come_under_either_name_and_parameters_win(registry: Registry, given_value: dict[str, Any]) -> None:
    assert registry.call("execute_tool", {"name": "send_email", **given_value}).value == {"to": "ann", "cc": []}


def test_an_unknown_tool_inside_a_known_one_is_that_tools_own_error(registry: Registry) -> None:
    class Proxy(Made):
        def call(self, arguments: dict[str, Any]) -> Answer:
            raise UnknownTool("The remote has no such tool.")

    registry.add(Proxy("proxy"))
    with pytest.raises(UnknownTool, match="The remote has no such tool"):
        registry.call("execute_tool", {"name": "proxy"})


def test_execute_tool_does_not_run_itself(registry: Registry) -> None:
    nested: dict[str, Any] = {"name": "greet"}
    for _ in range(50):
        nested = {"name": "execute_tool", "arguments": nested}
    with pytest.raises(InvalidInput, match="cannot run itself"):
        registry.call("execute_tool", nested)


def test_a_visible_tool_too_can_be_called_through_execute_tool(registry: Registry) -> None:
    assert registry.call("execute_tool", {"name": "count_letters"}).value == {"to": "", "cc": []}
    assert "send_email" in registry.call("execute_tool", {"name": "tool_search", "arguments": {"query": "smtp"}}).text


# ---------------------------------------------------------------- what is advertised


def test_the_schemas_are_those_of_the_contract(registry: Registry) -> None:
    search, execute = registry.get("tool_search").input_schema, registry.get("execute_tool").input_schema
    assert list(search["properties"]) == ["query", "queries", "max_results", "detail"] and "required" not in search
    assert (search["properties"]["detail"]["enum"], search["properties"]["detail"]["default"]) == (
        ["full", "brief"],
        "brief",
    )
    limit = search["properties"]["max_results"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 100, 10)
    assert list(execute["properties"]) == ["name", "arguments", "parameters"] and execute["required"] == ["name"]
    assert execute["properties"]["name"] == {"type": "string", "description": "Name that tool_search returned"}
    assert execute["properties"]["arguments"]["type"] == "object"
    marks = [registry.get(name).mark for name in ("tool_search", "execute_tool")]
    # A client that trusts annotations must not run without asking what may be dangerous.
    assert [(m.read_only, m.destructive, m.open_world) for m in marks] == [(True, False, False), (False, True, True)]
    # Hosts that hide the two find them by the words of the tools behind them.
    for name in ("tool_search", "execute_tool"):
        description = registry.get(name).description
        assert len(description) <= 300
        assert all(word in description for word in ("add", "refresh", "remov", "document", "folder", "citation"))


# ---------------------------------------------------------------- the ladder

EMAIL = ToolMetadata("send_email", "Send an email to a recipient (fast).", ("smtp", "mail transport", "Letter"))


@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("", 1.0),
        ("  SEND_Email\n", 1.0),
        ("send", 0.9),
        ("email", 0.8),
        ("smtp", 0.85),
        ("LETTER", 0.85),
        ("transport", 0.7),
        ("fast", 0.6),
        ("recipient", 0.6),
        ("recip", 0.5),
        ("(fast", 0.5),
        ("send_emial", 0.7 * 0.8),
        ("lettre", 0.6 * (1 - 2 / 6)),
        ("smt", 0.7),
        ("stmpx", 0.0),
        ("quantum", 0.0),
    ],
)
def test_a_word_reaches_the_highest_rung_that_it_fits(query: str, score: float) -> None:
    assert score_query(query, EMAIL) == pytest.approx(score)


def test_likeness_must_exceed_six_tenths_and_counts_only_without_any_other_match() -> None:
    assert score_query("abcxy", ToolMetadata("abcde")) == 0.0
    assert score_query("abcdx", ToolMetadata("abcde")) == pytest.approx(0.7 * 0.8)
    assert score_query("abcdx", ToolMetadata("q", "", ("abcde",))) == pytest.approx(0.6 * 0.8)
    assert score_query("abcdx", ToolMetadata("abcde", "has abcdxyz")) == 0.5
    assert score_query("naïvx", ToolMetadata("naïve")) == pytest.approx(0.7 * 0.8)


def test_several_words_are_averaged_and_weighted_by_how_many_are_found() -> None:
    assert score_query("send smtp", EMAIL) == pytest.approx((0.9 + 0.85) / 2 * 0.9)
    assert score_query("send quantum", EMAIL) == pytest.approx(0.9 / 2 * 1 / 2)
    assert score_query("send fast quantum", EMAIL) == pytest.approx((0.9 + 0.6) / 3 * 2 / 3)
    assert score_query("quantum zebra", EMAIL) == 0.0
    assert score_query("send_email send_email", EMAIL) == pytest.approx(0.9 * 0.9)


def test_results_are_ordered_by_score_and_then_by_name() -> None:
    registry = Registry()
    for made in (
        Made("zeta", "", "mail"), Made("alpha", "", "mail"), Made("mail"), Made("mailer"), Made("x", "By mail.")
    ):  # fmt: skip
        registry.add(made)
    found = Discovery(registry).search("mail")
    assert [(each["name"], each["score"]) for each in found] == [
        ("mail", 1.0),
        ("mailer", 0.9),
        ("alpha", 0.85),
        ("zeta", 0.85),
        ("x", 0.6),
    ]


# ---------------------------------------------------------------- any input

anything = st.text(st.characters(codec=None), max_size=40)
metadata = st.builds(ToolMetadata, anything, anything, st.lists(anything, max_size=3).map(tuple))


@given(anything, metadata)
def test_any_query_on_any_tool_scores_between_none_and_one(query: str, each: ToolMetadata) -> None:
    score = score_query(query, each)
    assert 0.0 <= score <= 1.0
    if not query.strip():
        assert score == 1.0


# Lone surrogates are refused by the argument check, as in every tool.
@given(st.text(max_size=40), st.lists(metadata, max_size=6))
def test_any_query_is_answered_in_order_and_fits_the_schema(query: str, catalogue: list[ToolMetadata]) -> None:
    registry = Registry()
    for each in catalogue:
        registry.add(Made(each.name, each.description, *each.keywords, schema={}))
    registry.add_service(Discovery(registry))
    answer = registry.call("tool_search", {"query": query})
    scores = [each["score"] for each in answer.value["tools"]]
    assert scores == sorted(scores, reverse=True)
    assert answer.text == NOTHING_FOUND or json.loads(answer.text)
    classic = [(-each["score"], each["name"]) for each in Discovery(registry).search(query, profile="classic")]
    assert classic == sorted(classic)
