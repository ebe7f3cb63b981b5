"""Calls of tools and their results as the wire carries them, without the MCP SDK."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from localmcp.activity import CallOrigin, call_origin
from localmcp.errors import LocalMCPError, MissingCapability, UnknownTool
from localmcp.schemas import without_surrogates
from localmcp.server.wire_values import log_incident, message_of
from localmcp.tools import Answer, Json, Registry, Scope, Tool, compact_json, use_scope

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

MAX_RESULT = 1_000_000
"""Bytes of one result on the wire; clients drop larger ones."""
TEXT_READERS = re.compile(r"claude-code|codex|visual studio code|vscode|copilot|cursor|opencode|kimi", re.IGNORECASE)
"""Names of clients that hand structured content to their model, instead of the text or beside it: Claude Code since
2.0.21, Codex, VS Code, Copilot, opencode since June 2026, Kimi. They get the text alone, which is shorter and says the
same; a program that calls tools gets both."""


def note_client(name: str) -> None:
    """Remember which program calls, for the log."""
    origin = call_origin.get() or CallOrigin()
    call_origin.set(replace(origin, client=without_surrogates(name)[:100]))


def call_tool(
    open_workspace: Callable[[], Workspace], name: str, arguments: Json, scope: Scope, client_name: str
) -> Json:
    """Run a tool and return its result; a failure of the tool is a result that says so.

    Raises:
        UnknownTool: nobody has a tool of that name.
        MissingCapability: the tool asks the person, and the client cannot.
    """
    try:
        registry = open_workspace().registry
        answer = registry.call(name, arguments, scope)
        if answer.whole_text and TEXT_READERS.search(client_name):
            return tool_result(name, answer, structured=False)
        return tool_result(name, answer)
    except MissingCapability:
        raise
    except LocalMCPError as error:
        # A tool may raise UnknownTool too (execute_tool does): only a name that is nobody's is a protocol error.
        if isinstance(error, UnknownTool) and find_tool(open_workspace().registry, name, scope) is None:
            raise
        return failed_result(message_of(error))
    except BaseException:
        # Panics of libraries written in Rust derive from BaseException, and one tool must not end the server.
        return failed_result(log_incident(name))


def find_tool(registry: Registry, name: str, scope: Scope) -> Tool | None:
    """Return the tool of that name in a scope, or None."""
    with use_scope(scope):
        return registry.find(name)


def tool_result(name: str, answer: Answer, *, structured: bool = True) -> Json:
    """Return the answer of a tool as the wire carries it; one that is too large becomes an error that says so.

    Where another server sent nothing structured, nothing is sent either: an empty object would hide the answer's
    blocks from some clients.
    """
    content = [_text_block(answer.text)] if answer.content is None else list(answer.content)
    value = answer.value
    try:
        size = _wire_size(content, value)
    except UnicodeEncodeError:
        content, value = without_surrogates(content), without_surrogates(value)
        size = _wire_size(content, value)
    if size > MAX_RESULT:
        return failed_result(
            f"The answer of {name} has {size / 1e6:.1f} MB, and at most {MAX_RESULT / 1e6:.0f} MB can be sent. "
            "Ask for less: a smaller limit, a narrower question, or one part at a time."
        )
    shown = {"structuredContent": value} if structured and (value or answer.content is None) else {}
    return {"content": content, **shown, "isError": answer.is_error}


def _wire_size(content: list[Json], value: Json) -> int:
    return len(compact_json({"content": content}).encode()) + len(compact_json(value).encode())


def failed_result(text: str) -> Json:
    """Return the result of a failed call, with at most 10,000 characters of text."""
    text = without_surrogates(text)
    if len(text) > 10_000:
        text = text[:10_000] + " ..."
    return {"content": [_text_block(text)], "isError": True}


def _text_block(text: str) -> Json:
    return {"text": text, "type": "text"}
