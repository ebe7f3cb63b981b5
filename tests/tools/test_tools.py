"""The registry: what a tool advertises, how arguments are judged, who may call what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, LocalMCPError, NotFound, UnknownTool
from localmcp.tools import (
    CallRecord,
    Param,
    Registry,
    Scope,
    Tool,
    compact_json,
    current_scope,
    integer_or_string,
    tool,
    tools_of,
    use_scope,
)


class Found(TypedDict):
    hits: list[str]
    count: int


class Outcome(TypedDict, total=False):
    success: bool
    error: str


def explain(error: LocalMCPError) -> dict[str, Any]:
    return {"success": False, "error": error.message}


class Library:
    """A service with one tool of each kind."""

    @tool("find_books", title="Find books", keywords=("novel",), accepts={"limit": integer_or_string})
    def find_books(
        self,
        query: Annotated[str, Param("Words to look for.", min_length=1)],
        limit: Annotated[int, Param("How many at most.", minimum=1, maximum=50)] = 10,
        kind: Literal["novel", "essay"] | None = None,
        shelves: list[str] | None = None,
    ) -> Found:
        """Find books by their words."""
        return {"hits": [query] * min(limit, 3), "count": limit}

    @tool(
        "embed",
        title="Embed",
        says={
            "texts": "texts field must be an array of strings",
            "texts[]": "texts[{index}] must be a string",
            "texts required": "texts field is required",
        },
        text=lambda value: f"{value['count']} texts",
    )
    def embed(self, texts: list[str]) -> Found:
        """Count texts."""
        return {"hits": texts, "count": len(texts)}

    @tool("lend", title="Lend a book", visible=False, read_only=False, on_error=explain)
    def lend(self, title: str) -> Outcome:
        """Lend a book."""
        if title == "lost":
            raise NotFound("No such book.", hint="Look under another title.")
        return {"success": True}

    @tool("burn", title="Burn", read_only=False, destructive=True)
    def burn(self, title: str) -> Outcome:
        """Fail, politely or not."""
        if title == "polite":
            raise NotFound("No such book.")
        raise RuntimeError("fire")

    @tool("whoami", title="Who am I")
    def whoami(self) -> Outcome:
        """The caller's name."""
        return {"error": current_scope().caller}

    def not_a_tool(self) -> None: ...


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add_service(Library())
    return made


def complaint(registry: Registry, name: str, arguments: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        registry.call(name, arguments)
    return caught.value.message


# ---------------------------------------------------------------- what is advertised


def test_schemas_are_valid_closed_objects_without_generated_titles(registry: Registry) -> None:
    for each in registry.tools():
        Draft202012Validator.check_schema(each.input_schema)
        assert each.input_schema["type"] == "object" and each.input_schema["additionalProperties"] is False
        assert '"title":"' not in compact_json(each.input_schema).replace('"title":{', "")


def test_a_schema_tells_types_limits_defaults_and_choices(registry: Registry) -> None:
    found = registry.find("find_books")
    assert found is not None
    properties = found.input_schema["properties"]
    assert properties["query"] == {"description": "Words to look for.", "minLength": 1, "type": "string"}
    assert properties["limit"]["minimum"] == 1 and properties["limit"]["maximum"] == 50
    assert properties["limit"]["default"] == 10 and properties["limit"]["type"] == "integer"
    assert properties["kind"] == {"enum": ["novel", "essay"], "type": "string"}
    assert properties["shelves"] == {"items": {"type": "string"}, "type": "array"}
    assert found.input_schema["required"] == ["query"]


def test_the_text_is_compact_json_unless_the_tool_has_words_of_its_own(registry: Registry) -> None:
    assert registry.call("find_books", {"query": "è", "limit": 1}).text == '{"hits":["è"],"count":1}'
    assert registry.call("embed", {"texts": ["a", "b"]}).text == "2 texts"


def test_visible_leaves_out_the_hidden_tools_which_can_still_be_called(registry: Registry) -> None:
    assert [each.name for each in registry.visible()] == ["find_books", "embed", "burn", "whoami"]
    assert registry.call("lend", {"title": "x"}).value == {"success": True}


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(("limit", "count"), [(3, 3), ("3", 3), (" 3 ", 3), (3.0, 3), ("", 10), ("  ", 10), (None, 10)])
def test_a_number_may_be_given_as_text_and_an_empty_one_means_the_default(
    registry: Registry, limit: Any, count: int
) -> None:
    assert registry.call("find_books", {"query": "x", "limit": limit}).value["count"] == count


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("many", "invalid limit value: many"),
        (True, "limit must be a number or string, got: bool"),
        (2.5, "limit: input should be a valid integer"),
        ([3], "limit: input should be a valid integer"),
        (0, "greater than or equal to 1, got 0"),
        ("51", "less than or equal to 50, got 51"),
    ],
)
def test_a_number_that_cannot_be_used_is_named(registry: Registry, limit: Any, says: str) -> None:
    assert says in complaint(registry, "find_books", {"query": "x", "limit": limit})


@given(st.text())
def test_text_becomes_a_whole_number_or_nothing_or_an_error_that_names_the_field(text: str) -> None:
    try:
        value = integer_or_string("limit", text)
    except InvalidInput as error:
        assert error.message == f"invalid limit value: {text}"
    else:
        assert value is None or int(text.strip()) == value


def test_null_stands_for_an_optional_argument_that_is_not_given(registry: Registry) -> None:
    assert registry.call("find_books", {"query": "x", "kind": None, "shelves": None}).value["count"] == 10
    assert "query" in complaint(registry, "find_books", {"query": None})


def test_one_answer_lists_all_problems_the_nearest_names_and_the_parameters(registry: Registry) -> None:
    text = complaint(registry, "find_books", {"qeury": "x", "limit": 99, "kind": "poem", "zzz": 1})
    assert text.splitlines() == [
        "Invalid arguments for find_books:",
        "- query: required",
        "- limit: input should be less than or equal to 50, got 99",
        "- kind: input should be 'novel' or 'essay', got \"poem\"",
        "- qeury: not a parameter; did you mean 'query'?",
        "- zzz: not a parameter",
        "Parameters: query* (string), limit (integer 1..50), kind (novel|essay), shelves (array of string)",
    ]
    # Of a wrong value alone it says what is valid, without the parameters.
    assert complaint(registry, "find_books", {"query": "x", "limit": 99}).splitlines() == [
        "Invalid arguments for find_books:",
        "- limit: input should be less than or equal to 50, got 99",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "texts field is required"),
        ({"texts": "one"}, "texts field must be an array of strings"),
        ({"texts": ["one", 2]}, "texts[1] must be a string"),
    ],
)
def test_the_contracts_own_words_answer_a_bad_argument(registry: Registry, arguments: Any, says: str) -> None:
    assert complaint(registry, "embed", arguments) == says


def test_half_a_character_is_told_in_words() -> None:
    class Reader:
        @tool("read", title="Read")
        def read(self, query: str) -> Found:
            """Encode."""
            return {"hits": [str(query.encode())], "count": 1}

    registry = Registry()
    registry.add_service(Reader())
    with pytest.raises(InvalidInput, match="An argument of read has half a character"):
        registry.call("read", {"query": "a\ud800"})


# ---------------------------------------------------------------- errors


def test_on_error_turns_a_deliberate_error_into_a_result(registry: Registry) -> None:
    answer = registry.call("lend", {"title": "lost"})
    assert answer.is_error and answer.value == {"success": False, "error": "No such book."}


@pytest.mark.parametrize("written", ["shop.echo_text", "mcp__localmcp__shop__echo_text", "echo_text"])
def test_a_tool_of_a_connected_server_is_known_by_its_end(registry: Registry, written: str) -> None:
    registry.add(Shelf("bank__read_text").each)
    registry.add(Shelf("shop__echo_text").each)
    assert registry.unknown(written).hint == "Did you mean 'shop__echo_text'?"


# ---------------------------------------------------------------- scope


def test_a_scope_hides_tools_from_lists_look_ups_calls_and_hints(registry: Registry) -> None:
    narrow = Scope(caller="key-1", tools=frozenset({"whoami"}))
    with use_scope(narrow):
        assert [each.name for each in registry.tools()] == ["whoami"]
        assert registry.find("find_books") is None
    assert registry.call("whoami", scope=narrow).value == {"error": "key-1"}
    with pytest.raises(UnknownTool) as caught:
        registry.call("find_books", {"query": "x"}, narrow)
    assert caught.value.hint is None


# ---------------------------------------------------------------- providers


class Shelf:
    """A provider of one tool, which may be broken."""

    def __init__(self, name: str, *, broken: bool = False) -> None:
        class Book:
            @tool(name, title=name)
            def read(self) -> Outcome:
                """Read."""
                return {"error": f"from the provider {name}"}

        self.each = tools_of(Book())[0]
        self.broken = broken

    def tools(self) -> Iterable[Tool]:
        return [self.each]

    def find(self, name: str) -> Tool | None:
        if self.broken:
            raise NotFound("The shelf is on fire.")
        return self.each if name == self.each.name else None


def test_a_key_that_is_typed_as_a_tools_name_is_not_in_the_log_when_a_provider_fails(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add_provider(Shelf("atlas", broken=True))
    with pytest.raises(UnknownTool):
        registry.get("mcp_" + "aB3" * 11)
    assert "could not look up ***" in caplog.text and "aB3" not in caplog.text


# ---------------------------------------------------------------- observers


def test_observers_receive_every_call_also_of_tools_that_are_not_there(registry: Registry) -> None:
    records: list[CallRecord] = []
    registry.observe(records.append)
    registry.call("whoami", scope=Scope(caller="key-1"))
    with pytest.raises(InvalidInput):
        registry.call("find_books", {"limit": 1})
    with pytest.raises(RuntimeError):
        registry.call("burn", {"title": "x"})
    with pytest.raises(UnknownTool):
        registry.call("nobody")
    assert [(r.tool, r.scope.caller, type(r.error)) for r in records] == [
        ("whoami", "key-1", type(None)),
        ("find_books", "local", InvalidInput),
        ("burn", "local", RuntimeError),
        ("nobody", "local", UnknownTool),
    ]
    assert records[0].answer is not None and records[0].seconds >= 0 and records[0].started_at > 0
    assert records[1].arguments == {"limit": 1} and records[1].answer is None
