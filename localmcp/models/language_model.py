"""A language model that picks a tool: Ollama, or any endpoint with OpenAI's chat completions. Off unless configured.

ollama, ollama:MODEL          Ollama on this machine; without a model, llama3.1
openai:MODEL                  api.openai.com; needs an API key
http(s)://HOST/api#MODEL      Ollama elsewhere
http(s)://HOST/v1#MODEL       any other endpoint with OpenAI's POST /chat/completions
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, cast

from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.http import JsonEndpoint, split_model_url
from localmcp.schemas import Json
from localmcp.tools import Tool

ACCEPTED = "Accepted: ollama, ollama:MODEL, openai:MODEL, http://HOST/api#MODEL (Ollama) or http://HOST/v1#MODEL."
TASK = (
    "Call the one function that does what the user asks, with arguments taken from the user's own words. "
    "If no function does it, call none and answer in one sentence."
)
_SERVICES = {"ollama": "http://127.0.0.1:11434/api", "openai": "https://api.openai.com/v1"}


class LanguageModel:
    """One chat model behind HTTP; every question is a separate conversation."""

    def __init__(self, spec: str, api_key: str | None = None) -> None:
        """`spec` by the grammar above; ConfigurationError if it is none, or the key is missing or cannot be sent."""
        self._dialect, url, self._model = parse_address(spec)
        if url.startswith(_SERVICES["openai"]) and not api_key:
            hint = "Set LOCALMCP_LANGUAGE_MODEL_KEY, or use a model on this machine."
            raise ConfigurationError(f"{spec} needs an API key.", hint=hint)
        if_missing = f"Check the URL and the model's name; with Ollama: ollama pull {self._model}"
        name, key_setting = f"The language model {self._model}", "LOCALMCP_LANGUAGE_MODEL_KEY"
        self._endpoint = JsonEndpoint(url, name, key_setting, if_missing, api_key, timeout=60.0)
        self.name = f"{self._dialect}:{self._model}"
        """`ollama:llama3.1`."""

    def choose(self, sentence: str, tools: Sequence[Tool]) -> tuple[str, tuple[str, Json] | None]:
        """Return the model's words, and name and arguments of its first call, unchecked; None without one (S0-24).

        ModelUnavailable if the endpoint fails or is too slow, the model is missing, or the answer is malformed.
        """
        question: Json = {
            "model": self._model,
            "messages": [{"role": "system", "content": TASK}, {"role": "user", "content": sentence}],
            "tools": [describe_function(tool) for tool in tools],
            "stream": False,
        }
        if self._dialect == "ollama":
            # Some of OpenAI's models refuse any temperature but their own.
            question["options"] = {"temperature": 0}
        body = self._endpoint.post(question)
        try:
            reply = json.loads(body)
            message = reply["message"] if self._dialect == "ollama" else reply["choices"][0]["message"]
            words, calls = str(message.get("content") or ""), cast("list[Any]", message.get("tool_calls") or [])
            if not calls:
                return words, None
            function = calls[0]["function"]
            name, arguments = function["name"], function.get("arguments")
            # An object (Ollama) or JSON text (OpenAI).
            arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
            if not (isinstance(name, str) and isinstance(arguments, dict | None)):
                raise TypeError("a function's name is not text, or its arguments are not an object")
            return words, (name, cast("Json | None", arguments) or {})
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            message = f"{self._endpoint.where} answered with something that is not a chat message: {error}."
            hint = "Check that the URL speaks Ollama's /api or OpenAI's /v1, and that the model can call tools."
            raise ModelUnavailable(message, hint=hint) from error


def describe_function(tool: Tool) -> Json:
    """Describe a tool as both dialects want it: `{"type": "function", "function": {…}}` (S0-27)."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def parse_address(spec: str) -> tuple[Literal["ollama", "openai"], str, str]:
    """Return dialect, URL of the chat endpoint and model of a setting; ConfigurationError says what is accepted."""
    text = spec.strip()
    service, _, model = text.partition(":")
    if service == "ollama":
        return ("ollama", f"{_SERVICES['ollama']}/chat", model or "llama3.1")
    if service == "openai" and model:
        return ("openai", f"{_SERVICES['openai']}/chat/completions", model)
    if service.lower() not in ("http", "https"):
        raise ConfigurationError(f"'{text}' names no language model.", hint=ACCEPTED)
    parts = split_model_url(text, "The language model", "LOCALMCP_LANGUAGE_MODEL_KEY", ACCEPTED)
    base = text.partition("#")[0].rstrip("/")
    if parts.path.rstrip("/").endswith(("/api", "/api/chat")):
        return ("ollama", base.removesuffix("/chat") + "/chat", parts.fragment)
    return ("openai", base.removesuffix("/chat/completions") + "/chat/completions", parts.fragment)
