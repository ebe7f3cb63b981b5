"""Tools, calls and their results as the wire carries them."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import mcp.types as types
from mcp import MCPError

from localmcp.activity import CallOrigin, call_origin
from localmcp.errors import LocalMCPError, MissingCapability, UnknownTool
from localmcp.schemas import without_surrogates
from localmcp.tools import Answer, Json, MethodTool, Registry, Scope, Tool, ToolMark, compact_json, use_scope

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

MAX_RESULT = 1_000_000
"""Bytes of one result on the wire; clients drop larger ones."""
TEXT_READERS = re.compile(r"claude-code|codex|visual studio code|vscode|copilot|cursor|opencode|kimi", re.IGNORECASE)
"""Names of clients that hand structured content to their model, instead of the text or beside it: Claude Code since
2.0.21, Codex, VS Code, Copilot, opencode since June 2026, Kimi. They get the text alone, which is shorter and says the
same; a program that calls tools gets both."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNLISTED = ("minimum", "minLength", "maxLength")

# ---------------------------------------------------------------- tools/list


def describe_tool(tool: Tool) -> types.Tool | None:
    """Return the tool's entry in tools/list; None for one that would make clients reject the whole list."""
    try:
        schema = tool.input_schema
    except Exception:
        log.exception("%s has no usable schema and is not listed", tool.name)
        return None
    if not _TOOL_NAME.fullmatch(tool.name) or schema.get("type") != "object":
        log.warning("%r is not listed: its name or the root of its schema is not allowed", tool.name)
        return None
    return types.Tool(
        name=tool.name,
        title=tool.mark.title,
        description=without_surrogates(tool.listed_description),
        # Every conversation pays for this list, and 55 % of it were output schemas.
        input_schema=_listed_schema(schema) if isinstance(tool, MethodTool) else schema,
        annotations=_annotations(tool.mark),
    )


def _listed_schema(schema: Json) -> Json:
    """Return the schema of a tool of ours as it is listed: shorter, and without the refusal of unknown arguments.

    Our tools accept other spellings of arguments. A call that breaks a limit that is left out gets an error.
    """
    listed = {key: value for key, value in schema.items() if key != "additionalProperties"}
    properties: dict[str, Json] = listed["properties"]
    shown = {name: {key: spec[key] for key in spec if key not in _UNLISTED} for name, spec in properties.items()}
    return {**listed, "properties": shown}


def _annotations(mark: ToolMark) -> types.ToolAnnotations:
    """Return the annotations of the tool; those of a read-only tool that the protocol ignores are left out."""
    if mark.read_only:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=mark.open_world)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=mark.destructive,
        idempotent_hint=mark.idempotent,
        open_world_hint=mark.open_world,
    )


# ---------------------------------------------------------------- tools/call


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
    content = [{"text": answer.text, "type": "text"}] if answer.content is None else list(answer.content)
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
    return {"content": [{"text": text, "type": "text"}], "isError": True}


# ---------------------------------------------------------------- errors


def log_incident(name: str) -> str:
    """Log the exception that is being handled, and return what the client is told instead."""
    incident = secrets.token_hex(4)
    log.exception("%s failed (incident %s)", name, incident)
    return f"{name} failed unexpectedly (incident {incident}). The server's log tells more."


def message_of(error: LocalMCPError) -> str:
    """Return the error's sentence and its next step, on separate lines."""
    return without_surrogates(f"{error.message}\n{error.hint}" if error.hint else error.message)


def protocol_error(error: LocalMCPError) -> MCPError:
    """Return the error of a request that is no call; a client of 2026-07-28 learns what it does not offer."""
    if isinstance(error, MissingCapability):
        data: Json = {"requiredCapabilities": {error.capability: {}}}
        return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message_of(error), data)
    return MCPError(types.INVALID_PARAMS, message_of(error))
