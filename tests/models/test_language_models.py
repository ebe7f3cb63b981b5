"""Language models: real HTTP round trips with a scripted server that speaks Ollama's and OpenAI's dialect."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import pytest
from chat_server import ChatServer
from chat_server import chat as chat

from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models.language_model import LanguageModel, parse_address
from localmcp.tools import Param, Tool, tool, tools_of

KEY = "sk-a-secret-key"


class Shop:
    @tool("orderTea", title="Order tea", examples=("order {kind} tea",))
    def order(self, kind: Annotated[str, Param("Which tea")], cups: int = 1) -> dict[str, Any]:
        """Orders tea."""
        return {"kind": kind, "cups": cups}


TOOLS: list[Tool] = list(tools_of(Shop()))


both = pytest.mark.parametrize("dialect", ["ollama", "openai"])


@both
def test_the_first_tool_call_counts(chat: ChatServer, dialect: str) -> None:
    chat.will_say(dialect, None, ("orderTea", {"kind": "green", "cups": 2}), ("orderTea", {"kind": "black"}))
    _, call = LanguageModel(chat.spec(dialect)).choose("two green teas", TOOLS)
    assert call == ("orderTea", {"kind": "green", "cups": 2})


@both
def test_the_request_carries_sentence_schema_and_no_key_and_words_are_passed_on(chat: ChatServer, dialect: str) -> None:
    chat.will_say(dialect, "I only sell tea.")
    assert LanguageModel(chat.spec(dialect)).choose("green tea", TOOLS) == ("I only sell tea.", None)
    path, body, headers = chat.requests[0]
    assert path == {"ollama": "/api/chat", "openai": "/v1/chat/completions"}[dialect]
    assert body["stream"] is False
    assert body["messages"][-1] == {"role": "user", "content": "green tea"}
    function = body["tools"][0]["function"]
    assert (function["name"], function["parameters"]["required"]) == ("orderTea", ["kind"])
    assert "Authorization" not in headers


def test_the_key_is_sent_and_never_shown(chat: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    chat.replies.append((400, json.dumps({"error": {"message": f"no tools for {KEY}"}}).encode()))
    with caplog.at_level(logging.DEBUG), pytest.raises(ModelUnavailable, match=r"no tools for \*\*\*") as failure:
        LanguageModel(chat.spec("openai"), KEY).choose("tea", TOOLS)
    assert chat.requests[0][2]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in caplog.text + str(failure.value)


@both
def test_a_missing_model_says_how_to_get_it(chat: ChatServer, dialect: str) -> None:
    chat.replies.append((404, b'{"error": "model \'m\' not found"}'))
    with pytest.raises(ModelUnavailable, match="model 'm' not found.*ollama pull m"):
        LanguageModel(chat.spec(dialect)).choose("tea", TOOLS)


@both
@pytest.mark.parametrize(
    "reply",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"message": "tea"}',
        b'{"message": {"tool_calls": [{}]}}',
        b'{"message": {"tool_calls": [{"function": {"name": "orderTea", "arguments": [1]}}]}}',
    ],
)
def test_an_answer_of_another_form_is_explained(chat: ChatServer, dialect: str, reply: bytes) -> None:
    chat.replies.append((200, reply))
    with pytest.raises(ModelUnavailable, match="not a chat message"):
        LanguageModel(chat.spec(dialect)).choose("tea", TOOLS)


@pytest.mark.parametrize(
    ("spec", "dialect", "url", "model"),
    [
        ("ollama", "ollama", "http://127.0.0.1:11434/api/chat", "llama3.1"),
        ("ollama:qwen3:8b", "ollama", "http://127.0.0.1:11434/api/chat", "qwen3:8b"),
        ("openai:gpt-x", "openai", "https://api.openai.com/v1/chat/completions", "gpt-x"),
        ("http://nas:11434/api/#phi", "ollama", "http://nas:11434/api/chat", "phi"),
        ("http://localhost:1234/v1#phi", "openai", "http://localhost:1234/v1/chat/completions", "phi"),
        ("http://h/v1/chat/completions#phi", "openai", "http://h/v1/chat/completions", "phi"),
    ],
)
def test_a_setting_names_dialect_address_and_model(spec: str, dialect: str, url: str, model: str) -> None:
    assert parse_address(spec) == (dialect, url, model)


@pytest.mark.parametrize(
    "spec", ["llama", "openai:", "http://host/v1", "http:///v1#m", "http://u:p@host/v1#m", "http://[#m"]
)
def test_a_setting_that_names_no_model_is_refused(spec: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        LanguageModel(spec, KEY)
    assert "u:p" not in str(failure.value)


def test_openai_needs_a_key() -> None:
    with pytest.raises(ConfigurationError, match="LOCALMCP_LANGUAGE_MODEL_KEY"):
        LanguageModel("openai:gpt-x")
