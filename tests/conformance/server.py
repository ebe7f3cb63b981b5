"""The real HTTP server, with the tools that the conformance suite calls by name, for clients that cannot send a key.

Run as: python tests/conformance/server.py. It prints its URL, and ends when stdin does. The suite has no option for a
header, so requests without a key get one here; everything behind that is what `serve --http` runs.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.types import INVALID_PARAMS

from localmcp.errors import MissingCapability
from localmcp.server.handshake import OpenOnce
from localmcp.server.http.app import HttpApp, HttpServer, listen
from localmcp.tools import Answer, Json, Tool, ToolMark, client_call
from localmcp.workspace import open_workspace

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = base64.b64encode(b"RIFF$\0\0\0WAVEfmt ").decode()
EMPTY: Json = {"type": "object", "properties": {}}
HEADERS: Json = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "priority": {"type": "integer", "x-mcp-header": "Priority"},
        "verbose": {"type": "boolean", "x-mcp-header": "Verbose"},
    },
}
DIALECT: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


IMAGE: Json = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO: Json = {"type": "audio", "data": SOUND, "mimeType": "audio/wav"}
RESOURCE: Json = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}
ANSWERS: dict[str, tuple[Json, ...]] = {
    "test_simple_text": (text("This is a simple text response for testing."),),
    "test_image_content": (IMAGE,),
    "test_audio_content": (AUDIO,),
    "test_embedded_resource": (RESOURCE,),
    "test_multiple_content_types": (text("Multiple content types test:"), IMAGE, RESOURCE),
    "test_error_handling": (text("This tool intentionally returns an error for testing"),),
    "json_schema_2020_12_tool": (text("ok"),),
    "test_custom_headers": (text("ok"),),
    "test_trigger_tool_change": (text("changed"),),
    "test_trigger_prompt_change": (text("changed"),),
}
SCHEMAS = {"json_schema_2020_12_tool": DIALECT, "test_custom_headers": HEADERS}


class Fixture(Tool):
    """A tool of the suite, with what makes its answer."""

    def __init__(self, name: str, answer: Callable[[str], Answer]) -> None:
        self.mark = ToolMark(name=name, title=name)
        self.description = "A fixture of the conformance suite."
        self._answer = answer

    @property
    def input_schema(self) -> Json:
        return SCHEMAS.get(self.name, EMPTY)

    def call(self, arguments: Json) -> Answer:
        return self._answer(self.name)


def fixed(name: str) -> Answer:
    return Answer({}, "", is_error=name == "test_error_handling", content=ANSWERS[name])


def tell_progress(_name: str) -> Answer:
    for done in (0, 50, 100):
        client_call().progress(done, 100, f"step {done}")
        time.sleep(0.2)
    return Answer({}, "", content=(text("done"),))


def demand(_name: str) -> Answer:
    raise MissingCapability("this needs the client's model", capability="sampling")


def form(message: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"mode": "form", "message": message, "requestedSchema": schema}


TEXT: Json = {"type": "string"}
CHOICES: Json = {"type": "string", "enum": ["option1", "option2", "option3"]}
TITLED: list[Json] = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
DEFAULTS = form(
    "Please review",
    name={**TEXT, "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={**TEXT, "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS = form(
    "Please choose",
    untitledSingle=CHOICES,
    titledSingle={**TEXT, "oneOf": TITLED},
    legacyEnum={**TEXT, "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    untitledMulti={"type": "array", "items": CHOICES},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)
QUESTIONS: dict[str, list[Json]] = {
    "test_elicitation": [form("Please provide your information", username=TEXT, email=TEXT)],
    "test_elicitation_sep1034_defaults": [DEFAULTS],
    "test_elicitation_sep1330_enums": [ENUMS],
    "test_input_required_result_elicitation": [form("What is your name?", name=TEXT)],
    "test_input_required_result_multi_round": [form("What is your name?", name=TEXT), form("What color?", color=TEXT)],
    "test_input_required_result_request_state": [form("Please confirm", ok={"type": "boolean"})],
    "test_input_required_result_tampered_state": [form("Please confirm", ok={"type": "boolean"})],
    "test_streaming_elicitation": [form("Please confirm", ok={"type": "boolean"})],
}


STATES: dict[str, list[Json]] = {}
"""State of a call that asks the person -> the answers so far."""


def ask_person(questions: list[Json], key: str = "question") -> list[Json] | Json:
    """Return the answers to all questions, or the unfinished result that asks the next one (2026-07-28)."""
    sent = client_call().input
    if sent is None:
        raise MissingCapability("nobody can be asked")
    state, responses = sent.get("requestState"), sent.get("inputResponses") or {}
    if state is not None and state not in STATES:
        raise MCPError(INVALID_PARAMS, "requestState: there is no such question")
    answers = [*STATES.get(state, ()), *([responses[key]] if key in responses else [])]
    if len(answers) == len(questions):
        return answers
    following = secrets.token_urlsafe(12)
    STATES[following] = answers
    request = {"method": "elicitation/create", "params": questions[len(answers)]}
    return {"resultType": "input_required", "inputRequests": {key: request}, "requestState": following}


def ask(name: str) -> Answer:
    answers = ask_person(
        QUESTIONS[name], "user_name" if name == "test_input_required_result_elicitation" else "question"
    )
    if isinstance(answers, dict):
        return Answer({}, "", unfinished=answers)
    words = [f"action={answer['action']}, content={json.dumps(answer.get('content'))}" for answer in answers]
    return Answer({}, "", content=(text(f"state-ok. Elicitation completed: {'; '.join(words)}"),))


class Fixtures:
    """The resources and prompts that the suite asks for by name."""

    def page(self, kind: str, _offset: int) -> tuple[list[Json], int | None]:
        template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        resources = [
            {"uri": "test://static-text", "name": "static text", "mimeType": "text/plain"},
            {"uri": "test://static-binary", "name": "binary", "mimeType": "image/png"},
            {"uri": "test://watched-resource", "name": "watched", "mimeType": "text/plain"},
        ]
        offers = {"resourceTemplates": [template], "resources": resources, "prompts": self._prompts()}
        return offers[kind], None

    def read(self, uri: str) -> Json | None:
        if uri == "test://static-binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
        if uri.startswith("test://template/"):
            value = uri.split("/")[3]
            content = json.dumps({"id": value, "templateTest": True, "data": f"Data for ID: {value}"})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": content}]}
        if uri in ("test://static-text", "test://watched-resource"):
            words = "This is the content of the static text resource."
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": words}]}
        return None

    def _prompts(self) -> list[Json]:
        def prompt(name: str, *arguments: str) -> Json:
            described = [{"name": each, "description": each, "required": True} for each in arguments]
            return {"name": name, "description": "A fixture.", "arguments": described}

        return [
            prompt("test_simple_prompt"),
            prompt("test_prompt_with_arguments", "arg1", "arg2"),
            prompt("test_prompt_with_embedded_resource", "resourceUri"),
            prompt("test_prompt_with_image"),
            prompt("test_input_required_result_prompt"),
        ]

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        if name == "test_simple_prompt":
            content = [text("This is a simple prompt for testing.")]
        elif name == "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
            content = [text(words)]
        elif name == "test_prompt_with_embedded_resource":
            resource = {**RESOURCE["resource"], "uri": arguments.get("resourceUri", "test://x")}
            content = [{"type": "resource", "resource": resource}, text("Please process the embedded resource above.")]
        elif name == "test_prompt_with_image":
            content = [IMAGE, text("Please analyze the image above.")]
        elif name == "test_input_required_result_prompt":
            answers = ask_person([form("What context should the prompt use?", context=TEXT)])
            if isinstance(answers, dict):
                return answers
            content = [text(f"Context: {answers[0].get('content')}")]
        else:
            return None
        return {"messages": [{"role": "user", "content": each} for each in content]}

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        if ref.get("name") != "test_prompt_with_arguments":
            return None
        return {"values": [f"{value}{end}" for end in ("ris", "rk")], "total": 2, "hasMore": False}


class WithKey:
    """The application, with a key in every request that has none."""

    def __init__(self, app: Any, key: str) -> None:
        self.app = app
        self.header = (b"authorization", f"Bearer {key}".encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], self.header]}
        await self.app(scope, receive, send)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = open_workspace(Path(folder) / "conformance.localmcp", model="hash")
        more = {"test_missing_capability": demand, "test_tool_with_progress": tell_progress}
        for name, answer in {**dict.fromkeys(ANSWERS, fixed), **dict.fromkeys(QUESTIONS, ask), **more}.items():
            workspace.registry.add(Fixture(name, answer))
        workspace.registry.offers.append(Fixtures())
        workspace.knowledge.get_stats()
        once = OpenOnce(lambda: workspace)
        door = HttpApp(once, workspace.settings, "127.0.0.1")

        def change(name: str) -> Answer:
            door.calls.server.publish_change("tools" if name == "test_trigger_tool_change" else "prompts")
            return fixed(name)

        for name in ("test_trigger_tool_change", "test_trigger_prompt_change"):
            workspace.registry.add(Fixture(name, change))
        sock = listen("127.0.0.1", 0)
        server = HttpServer(door)
        server.config.app = WithKey(door, workspace.api_keys.create(name="conformance").key)
        print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), setattr(server, "should_exit", True)), daemon=True).start()
        asyncio.run(server.serve(sockets=[sock]))
        workspace.close()


if __name__ == "__main__":
    main()
