"""A call that directly follows the handshake, answered before the SDK is imported.

The import takes as long as opening the file, loading the model and searching together.
"""

from __future__ import annotations

import contextvars
import json
import logging
import queue
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from localmcp.errors import ConfigurationError
from localmcp.schemas import without_surrogates
from localmcp.server.tool_results import call_tool, note_client
from localmcp.server.wire import Wire
from localmcp.tools import Json, Scope

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

SCOPE = Scope(caller="stdio", trusted=False, lean=True)
EARLY_TOOLS = frozenset({"search", "get_context", "get_document", "list_sources", "get_stats", "getRelevantRules"})
"""Tools that only read this file: they ask the person nothing, start no server and take little time."""

_MODERN = b"io.modelcontextprotocol/"
"""In the `_meta` of clients without a handshake, which the SDK answers."""


def scope_of(profile: str | None) -> tuple[Scope, ConfigurationError | None]:
    """Return what the client may reach, and why it may reach nothing when the profile cannot be used."""
    if profile is None:
        return SCOPE, None
    from localmcp.profiles import read_profile

    try:
        return replace(SCOPE, **read_profile(profile).limits()), None
    except ConfigurationError as error:
        return replace(SCOPE, tools=frozenset[str]()), error


def answer_early(wire: Wire, open_workspace: Callable[[], Workspace], profile: str | None) -> None:
    """Answer what the client calls right after `initialize`; other lines are kept for the SDK, in their order."""
    scope, refusal = scope_of(profile)
    if (client := _client_of(wire)) is None or refusal is not None:
        return
    try:
        # The next lines arrive during this.
        open_workspace()
    except Exception:
        log.debug("the session will try again, and say why it cannot be opened", exc_info=True)
        return
    while (line := _waiting_line(wire)) is not None:
        if (call := _read_call(line)) is None:
            wire.early_lines.append(line)
            if b"notifications/initialized" not in line:
                return
            continue
        request_id, name, arguments = call
        if scope.tools is None or name in scope.tools:
            result = contextvars.copy_context().run(_call, open_workspace, name, arguments, scope, client)
            _send(wire, {"jsonrpc": "2.0", "id": request_id, "result": result})
            continue
        wire.early_lines.append(line)
        return


def _client_of(wire: Wire) -> Json | None:
    """Return the client as its `initialize` names it; None after another first message."""
    wire.early_lines.append(wire.lines.get())
    if wire.answered is None:
        return None
    return json.loads(wire.first)["params"].get("clientInfo")


def _waiting_line(wire: Wire) -> bytes | None:
    try:
        return wire.lines.get_nowait()
    except queue.Empty:
        return None


def _read_call(line: bytes) -> tuple[int | str, str, Json] | None:
    """Return id, name and arguments of a plain call of one of EARLY_TOOLS; None for any other line."""
    try:
        message: Any = without_surrogates(json.loads(line))
        request_id, params = message["id"], message["params"]
        name, arguments = params["name"], cast("Any", params.get("arguments") or {})
        plain = message["jsonrpc"] == "2.0" and message["method"] == "tools/call" and type(request_id) in (int, str)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    others = params.keys() - {"name", "arguments", "_meta"}
    is_early = isinstance(name, str) and name in EARLY_TOOLS
    if not plain or others or not is_early or not isinstance(arguments, dict) or _MODERN in line:
        return None
    return request_id, name, cast(Json, arguments)


def _call(open_workspace: Callable[[], Workspace], name: str, arguments: Json, scope: Scope, client: Json) -> Json:
    title = client.get("title")
    note_client(title if isinstance(title, str) and title else client["name"])
    return call_tool(open_workspace, name, arguments, scope, client["name"])


def _send(wire: Wire, reply: Json) -> None:
    wire.called = True
    try:
        wire.write(json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    except OSError:
        # The client has closed its end; the SDK's session notices that and ends cleanly.
        return
