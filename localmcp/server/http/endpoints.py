"""The endpoints beside MCP: sentences (S0-22), tools by name (C4-1, C4-5), `/health`, keys and the call log (S3-10)."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from localmcp.errors import (
    AccessDenied,
    ConfigurationError,
    InvalidInput,
    LocalMCPError,
    NeedsConfirmation,
    NotFound,
    UnknownTool,
    UnreadableDocument,
)
from localmcp.index.collections import choose_collections
from localmcp.masking import mask_text
from localmcp.schemas import without_surrogates
from localmcp.server.handshake import OpenOnce
from localmcp.server.mcp import log_incident
from localmcp.tool_search.ask import ERROR_STATUS, QUERY_EMPTY
from localmcp.tools import Answer, ClientCall, Json, Scope, use_client_call, use_scope
from localmcp.version import __version__

if TYPE_CHECKING:
    from localmcp.activity import LogEntry
    from localmcp.api_keys import KeyInfo
    from localmcp.workspace import Workspace

# ---------------------------------------------------------------- replies, refusals, lines of the log (S3-14)

log = logging.getLogger("localmcp.http")
"""Writes `info` even where the program as a whole only warns: whoever starts a server wants to see that it works."""

LONGEST = 200
"""Characters of one field of a line; some come from strangers."""
SERVER_ERROR = -32000
"""JSON-RPC code of S3-13 for authentication, configuration and the like."""

MCP_PATHS = ("/mcp", "/api/mcp")
QUERY_PATHS = ("/api/quickstarts/v1/mcp", "/mcp-query")
MANAGEMENT = "/api/mcp/"
"""Key management and the call log are below it."""


def say(message: str, **fields: Any) -> None:
    """Write one event: `HTTP Transport request: method=tools/call id=1`.

    Fields are short facts, a key among them masked: never an argument or a document's text.
    """
    shown: list[str] = []
    for name, value in fields.items():
        quoted = json.dumps(mask_text(value[:LONGEST]) if isinstance(value, str) else value, default=str)
        # In quotes if it could be misread or could look like another field.
        shown.append(f"{name}=" + re.sub(r'^"([\w./*+-]+)"$', r"\1", quoted))
    joint = "" if not fields else " " if ": " in message else ": "
    log.info("%s", f"{' '.join(mask_text(message).split())}{joint}{' '.join(shown)}")


class Refused(HTTPException):
    """A request that is answered with an error status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        details: str | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | int | None = None,
    ) -> None:
        """`code` is that of JSON-RPC for MCP paths; `details` are more than the contract's short text."""
        super().__init__(status, message, headers)
        self.code = code
        self.details = details
        self.request_id = request_id


def refused_for(error: LocalMCPError) -> Refused:
    """Return the answer to an error (S3-13): 400 if the arguments caused it, 403 if the key forbids it, else 500."""
    status, code = 500, INTERNAL_ERROR
    if isinstance(error, InvalidInput | NotFound | UnreadableDocument):
        status, code = 400, INVALID_PARAMS
    elif isinstance(error, AccessDenied):
        status, code = 403, SERVER_ERROR
    elif isinstance(error, ConfigurationError | NeedsConfirmation):
        status, code = 400, SERVER_ERROR
    return Refused(status, error.message, code=code, details=error.hint)


def json_bytes(value: Any) -> bytes:
    """Return UTF-8 JSON of any value: lone surrogates become U+FFFD, numbers that JSON does not allow null."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=str)
    except ValueError:
        return to_json(without_surrogates(value), inf_nan_mode="null", fallback=str)


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body, U+FFFD for each lone surrogate in it.

    Raises Refused (400, -32700) for what is not UTF-8 or JSON, deeper than 200, or has a number that JSON does not.
    """
    try:
        if b"\\ud" in body.lower():
            body = json_bytes(json.loads(body))
        return from_json(body, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "Parse error: Invalid JSON", code=PARSE_ERROR, details=str(error)[:200]) from error


def parse_object(body: bytes) -> Json:
    """Return the JSON object of a body; raises Refused (400) for anything else."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise Refused(400, "Invalid request body", code=INVALID_REQUEST, details="the body must be a JSON object")
    return cast(Json, value)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with a JSON body."""
    return Response(json_bytes(value), status, headers, "application/json")


def refusal_reply(path: str, refused: Refused) -> Response:
    """Return the refusal as callers of `path` read it."""
    message, more = refused.detail, {"details": refused.details} if refused.details else {}
    body: Json = {"success": False, "error": message, "code": refused.status_code, "details": message, **more}
    if path in MCP_PATHS:
        data = {"data": {"hint": refused.details}} if refused.details else {}
        error: Json = {"code": refused.code, "message": message, **data}
        body = {"jsonrpc": "2.0", "id": refused.request_id, "error": error}
    elif path.startswith(MANAGEMENT):
        body = {"success": False, "error": message, **more}
    elif path in QUERY_PATHS:
        body = {"status": "error", "message": message, "error": message, **more}
    return json_reply(body, refused.status_code, refused.headers)


# ---------------------------------------------------------------- endpoints

PARALLEL_CALLS = 16
CALL_SECONDS = 300.0
"""After this a call is given up; tools that take long answer within 20 s with the id of a job."""
RAG_UNKNOWN = "RAG not found or access denied"
_NOTHING = frozenset[str]()
NOBODY = Scope(
    caller="nobody", trusted=False, collections=_NOTHING, tools=_NOTHING, provider_names=_NOTHING, rights=_NOTHING
)
request_scope: ContextVar[Scope] = ContextVar("localmcp_request_scope", default=NOBODY)
"""The scope of the request that is being answered; outside of a request, one that may do nothing."""

Result = TypeVar("Result")


class Endpoints:
    """What answers beside MCP: each public method of a request answers one, in the scope of its key.

    Keys and logs need a key with the scope admin; a `ragId` is the name of a collection (S3-12).
    """

    def __init__(self, open_workspace: OpenOnce) -> None:
        self.open_workspace = open_workspace
        self._limiter = anyio.CapacityLimiter(PARALLEL_CALLS)

    async def run(
        self, name: str, arguments: Json, *, scope: Scope | None = None, seconds: float = CALL_SECONDS
    ) -> Answer:
        """Return the tool's answer.

        Raises what the tool raises; for a bug LocalMCPError, which names the incident in the log; Refused (504) if it
        takes longer than `seconds`: programs and other servers are told, our tools finish.
        """
        say(f"Executing tool: {name[:LONGEST]}", key=request_scope.get().caller)
        work = partial(self._call, name, arguments, scope or request_scope.get())
        cancellation = Future[None]()
        with anyio.move_on_after(seconds), use_client_call(ClientCall(cancellation=cancellation)):
            return await anyio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        cancellation.cancel()
        raise Refused(504, f"{name} gave no answer within {seconds:g} s", code=SERVER_ERROR)

    def _call(self, name: str, arguments: Json, scope: Scope) -> Answer:
        try:
            return self.open_workspace().registry.call(name, arguments, scope)
        except LocalMCPError:
            raise
        except BaseException as error:
            # Panics of libraries written in Rust derive from BaseException.
            raise LocalMCPError(log_incident(name)) from error

    async def in_scope(self, work: Callable[[Workspace], Result]) -> Result:
        """Return what `work` finds, in a thread and in the scope of the request's key."""

        def run() -> Result:
            with use_scope(request_scope.get()):
                return work(self.open_workspace())

        return await anyio.to_thread.run_sync(run)

    def still_opens(self, key: KeyInfo) -> bool:
        """Return whether a key opens now what it opened then; a file that cannot be read ends no key."""
        try:
            now = self.open_workspace().api_keys.read(key.id)
        except LocalMCPError:
            return True
        return now is not None and now.status == "active" and now.scope() == key.scope()

    # ------------------------------------------------------------ sentences and tools by name

    async def ask(self, request: Request) -> Response:
        """POST `/api/quickstarts/v1/mcp`: {"query", "limit"?, "maxDistance"?} (S0-22 to S0-26, C0-12)."""
        try:
            body = parse_object(await request.body())
        except Refused as refused:
            raise Refused(400, f"Invalid request body: {refused.details or refused.detail}") from refused
        query = body.get("query") or ""
        if not isinstance(query, str):
            raise Refused(400, f"Invalid request body: query must be a string, not {type(query).__name__}")
        if not query.strip():
            raise Refused(400, QUERY_EMPTY)
        arguments = {name: body[name] for name in ("query", "limit", "maxDistance") if name in body}
        scope = request_scope.get()
        if scope.tools is not None:
            # The key decides what may be called; this endpoint itself is no tool of its list.
            scope = replace(scope, tools=scope.tools | {"ask"})
        try:
            response = (await self.run("ask", arguments, scope=scope)).value
        except InvalidInput as error:
            raise Refused(400, f"Invalid request body: {error.message}") from error
        except LocalMCPError as error:
            raise Refused(500, f"Failed to generate tool call: {error}") from error
        status = ERROR_STATUS.get(response.get("code", ""), 500) if response["status"] == "error" else 200
        return json_reply({**response, "error": response["message"]} if status >= 400 else response, status)

    async def list_tools(self, request: Request) -> Response:
        """GET `/tools`: every tool of the caller, the hidden ones too."""

        def described(workspace: Workspace) -> Json:
            return {
                tool.name: {"name": tool.name, "description": tool.description, "schema": tool.input_schema}
                for tool in workspace.registry.tools()
            }

        return json_reply({"tools": await self.in_scope(described)})

    async def call_tool(self, request: Request) -> Response:
        """POST `/tools/{name}`: {"input": {...}, "timeout"?: seconds} -> {success, output, stats} (C4-1)."""
        name, asked = request.path_params["name"], parse_object(await request.body())
        arguments: Any = asked.get("input") or {}
        seconds: Any = asked.get("timeout") or CALL_SECONDS
        if not isinstance(arguments, dict):
            raise Refused(400, "Invalid request body", details="input must be an object")
        if type(seconds) not in (int, float) or seconds <= 0:
            raise Refused(400, "Invalid request body", details="timeout must be a number of seconds above 0")
        started, status = time.perf_counter(), 200
        try:
            seconds = min(float(seconds), CALL_SECONDS)
            body = _output(await self.run(name, cast(Json, arguments), seconds=seconds))
        except UnknownTool:
            status, body = 500, Json(success=False, error=f"tool not found: {name}", code=500)
        except LocalMCPError as error:
            status = 403 if isinstance(error, AccessDenied) else 200
            body = {"success": False, "error": error.message, **({"hint": error.hint} if error.hint else {})}
        except Refused as refused:
            # As in the original, a time-out is an answer of the tool.
            body = {"success": False, "error": refused.detail}
        # As the original writes it, `1.2s`; below a second, milliseconds show: `0.012s`.
        took = time.perf_counter() - started
        stats = {"execution_time": f"{took:.1f}s" if took >= 1 else f"{took:.3f}s"}
        return json_reply({**body, "stats": stats}, status)

    async def health(self, request: Request) -> Response:
        """GET `/health`, for anybody: whether calls can be answered; nothing about the file's content."""

        def look() -> None:
            with self.open_workspace().database.read():
                pass

        try:
            await anyio.to_thread.run_sync(look)
        except LocalMCPError:
            return json_reply({"status": "unavailable", "version": __version__}, 503)
        return json_reply({"status": "ok", "version": __version__})

    # ------------------------------------------------------------ management

    async def generate(self, request: Request) -> Response:
        """POST `keys/generate` {ragId, name?, scopes?, tools?, providers?, expires_at?, rules?}.

        A key is bound to the collection; `rules: true` opens the developer's rules to it too.
        """
        body = parse_object(await request.body())
        rag = _needed(body.get("ragId"), "RAG ID is required")
        asked: Json = {name: body.get(name) for name in ("expires_at", "scopes", "tools", "providers")}
        if not isinstance(name := body.get("name") or "", str):
            raise Refused(400, "name must be a string")
        asked["name"] = name
        asked["collections"] = [rag, "rules"] if body.get("rules") is True else [rag]
        new = await self._manage(lambda workspace: workspace.api_keys.create(**asked), RAG_UNKNOWN)
        say("API key generated", id=new.info.id, ragId=rag, by=request_scope.get().caller)
        return json_reply(new.as_json())

    async def list_keys(self, request: Request) -> Response:
        """GET `keys/list?ragId=`."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        keys = await self._manage(lambda workspace: workspace.api_keys.list(rag), RAG_UNKNOWN)
        return json_reply({"success": True, "keys": [key.as_json() for key in keys]})

    async def end_key(self, request: Request) -> Response:
        """POST `keys/revoke` {keyId}: the key opens nothing any more, and stays listed; DELETE: it is gone."""
        key_id: Any = request.query_params.get("keyId")
        if key_id is None and (body := await request.body()):
            key_id = parse_object(body).get("keyId")
        key_id, gone = _needed(key_id, "Key ID is required"), request.method == "DELETE"

        def end(workspace: Workspace) -> object:
            return workspace.api_keys.delete(key_id) if gone else workspace.api_keys.revoke(key_id)

        await self._manage(end, "API key not found or access denied")
        said = "API key deleted" if gone else "API key revoked"
        say(said, id=key_id, by=request_scope.get().caller)
        return json_reply({"success": True, "message": f"{said} successfully"})

    async def logs(self, request: Request) -> Response:
        """GET `logs?ragId=&limit=50&offset=0`: the calls in one collection, the newest first."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        limit, offset = _whole(request, "limit", 50, 1), _whole(request, "offset", 0, 0)

        def page(workspace: Workspace) -> tuple[list[LogEntry], int]:
            with workspace.database.read() as connection:
                [collection] = choose_collections(connection, [rag])
            return workspace.activity.logs(collection=collection.name, limit=min(limit, 500), offset=offset)

        entries, total = await self._manage(page, RAG_UNKNOWN)
        return json_reply({"success": True, "logs": [entry.as_original() for entry in entries], "total": total})

    async def _manage(self, work: Callable[[Workspace], Result], unknown: str) -> Result:
        if "admin" not in request_scope.get().rights:
            how = "Make one on this machine: localmcp keys create --name NAME --scope admin"
            raise Refused(403, "This needs an API key with the scope admin", code=SERVER_ERROR, details=how)
        try:
            return await self.in_scope(work)
        except NotFound as error:
            raise Refused(404, unknown, details=str(error)) from error
        except LocalMCPError as error:
            raise refused_for(error) from error


def _output(answer: Answer) -> Json:
    """Return the tool's answer as the original's HTTP layer shows it: its `data` becomes `output`."""
    value = answer.value
    if not value and answer.content and not answer.is_error:
        # A tool of a connected server that only sends blocks.
        texts = all(block.get("type") == "text" for block in answer.content)
        return {"success": True, "output": answer.text if texts else {"content": list(answer.content)}}
    if value.get("success") is False or answer.is_error:
        return {**value, "success": False, "error": str(value.get("error") or value.get("message") or answer.text)}
    return {"success": True, "output": value["data"] if value.get("success") is True and "data" in value else value}


def _needed(value: Any, message: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused(400, message)
    return value


def _whole(request: Request, field: str, default: int, least: int) -> int:
    number = request.query_params.get(field, "")
    if not number:
        return default
    if not number.isdecimal() or not number.isascii() or len(number) > 9 or int(number) < least:
        raise Refused(400, f"{field} must be a whole number of at least {least}")
    return int(number)
