"""The endpoints beside MCP: sentences (S0-22), tools by name (C4-1, C4-5), `/health`, keys and the call log (S3-10)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, NotFound, UnknownTool
from localmcp.index.collections import choose_collections
from localmcp.server.http.authentication import request_scope, require_admin
from localmcp.server.http.calls import CALL_SECONDS, Calls
from localmcp.server.http.log_lines import say
from localmcp.server.http.replies import Refused, json_reply, parse_object
from localmcp.tool_search.ask import ERROR_STATUS, QUERY_EMPTY
from localmcp.tools import Answer, Json, use_scope
from localmcp.version import __version__

if TYPE_CHECKING:
    from localmcp.activity.entries import LogPage
    from localmcp.workspace import Workspace

ASK = "ask"
RAG_UNKNOWN = "RAG not found or access denied"
KEY_UNKNOWN = "API key not found or access denied"
MOST_LOGS = 500

Result = TypeVar("Result")


class ToolEndpoints:
    """Each method answers one request."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def ask(self, request: Request) -> Response:
        """POST `/api/quickstarts/v1/mcp`: {"query", "limit"?, "maxDistance"?} (S0-22 to S0-26, C0-12)."""
        arguments = _question(await request.body())
        scope = request_scope()
        if scope.tools is not None:
            # The key decides what may be called; this endpoint itself is no tool of its list.
            scope = replace(scope, tools=scope.tools | {ASK})
        try:
            answer = await self._calls.run(ASK, arguments, scope=scope)
        except InvalidInput as error:
            raise _bad_body(error.message) from error
        except LocalMCPError as error:
            raise Refused(500, f"Failed to generate tool call: {error}") from error
        response = answer.value
        status = ERROR_STATUS.get(response.get("code", ""), 500) if response["status"] == "error" else 200
        return json_reply({**response, "error": response["message"]} if status >= 400 else response, status)

    async def list_tools(self, request: Request) -> Response:
        """GET `/tools`: every tool of the caller, the hidden ones too."""

        def described() -> Json:
            with use_scope(request_scope()):
                tools = self._calls.open_workspace().registry.tools()
                return {
                    tool.name: {"name": tool.name, "description": tool.description, "schema": tool.input_schema}
                    for tool in tools
                }

        return json_reply({"tools": await anyio.to_thread.run_sync(described)})

    async def call_tool(self, request: Request) -> Response:
        """POST `/tools/{name}`: {"input": {...}, "timeout"?: seconds} -> {success, output, stats} (C4-1)."""
        name, (arguments, seconds) = request.path_params["name"], _tool_input(await request.body())
        started = time.perf_counter()
        status, body = 200, Json()
        try:
            body = _output(await self._calls.run(name, arguments, seconds=seconds))
        except UnknownTool:
            status, body = 500, {"success": False, "error": f"tool not found: {name}", "code": 500}
        except LocalMCPError as error:
            status = 403 if isinstance(error, AccessDenied) else 200
            body = {"success": False, "error": error.message, **({"hint": error.hint} if error.hint else {})}
        except Refused as refused:
            # As in the original, a time-out is an answer of the tool.
            body = {"success": False, "error": refused.detail}
        stats = {"execution_time": execution_time(time.perf_counter() - started)}
        return json_reply({**body, "stats": stats}, status)

    async def health(self, request: Request) -> Response:
        """GET `/health`, for anybody: whether calls can be answered; nothing about the file's content."""

        def look() -> None:
            with self._calls.open_workspace().database.read():
                pass

        try:
            await anyio.to_thread.run_sync(look)
        except LocalMCPError:
            return json_reply({"status": "unavailable", "version": __version__}, 503)
        return json_reply({"status": "ok", "version": __version__})


def _question(content: bytes) -> Json:
    try:
        body = parse_object(content)
    except Refused as refused:
        raise _bad_body(refused.details or refused.detail) from refused
    query = body.get("query", "")
    if not isinstance(query, str | None):
        raise _bad_body(f"query must be a string, not {type(query).__name__}")
    if query is None or not query.strip():
        raise Refused(400, QUERY_EMPTY)
    return {name: body[name] for name in ("query", "limit", "maxDistance") if name in body}


def _bad_body(why: str) -> Refused:
    return Refused(400, f"Invalid request body: {why}", reason="Invalid request body")


def _tool_input(content: bytes) -> tuple[Json, float]:
    body = parse_object(content)
    tool_input: Any = body.get("input")
    if tool_input is not None and not isinstance(tool_input, dict):
        raise Refused(400, "Invalid request body", details="input must be an object")
    seconds: Any = body.get("timeout")
    if seconds is not None and (type(seconds) not in (int, float) or seconds <= 0):
        raise Refused(400, "Invalid request body", details="timeout must be a number of seconds above 0")
    return cast(Json, tool_input or {}), min(float(seconds or CALL_SECONDS), CALL_SECONDS)


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


def execution_time(seconds: float) -> str:
    """Seconds as the original writes them: `1.2s`; below a second, milliseconds show: `0.012s`."""
    return f"{seconds:.1f}s" if seconds >= 1 else f"{seconds:.3f}s"


# ---------------------------------------------------------------- management


class ManagementEndpoints:
    """Each method answers one request of a key with the scope admin; a `ragId` is the name of a collection (S3-12)."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def generate(self, request: Request) -> Response:
        """POST `keys/generate` {ragId, name?, scopes?, tools?, providers?, expires_at?, rules?}.

        A key is bound to the collection; `rules: true` opens the developer's rules to it too.
        """
        body = parse_object(await request.body())
        rag = _needed(body.get("ragId"), "RAG ID is required")
        asked: Json = {"name": _text(body, "name") or "", "expires_at": _text(body, "expires_at")}
        for field in ("tools", "providers"):
            asked[field] = _texts(body, field)
        asked["scopes"] = _texts(body, "scopes") or ["read"]
        asked["collections"] = [rag, "rules"] if body.get("rules") is True else [rag]
        new = await self._manage(lambda workspace: workspace.api_keys.create(**asked), RAG_UNKNOWN)
        say("API key generated", id=new.info.id, ragId=rag, by=request_scope().caller)
        return json_reply(new.as_json())

    async def list_keys(self, request: Request) -> Response:
        """GET `keys/list?ragId=`."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        keys = await self._manage(lambda workspace: workspace.api_keys.list(rag), RAG_UNKNOWN)
        return json_reply({"success": True, "keys": [key.as_json() for key in keys]})

    async def revoke(self, request: Request) -> Response:
        """POST `keys/revoke` {keyId}: the key opens nothing any more, and stays listed."""
        key_id = await _key_id(request)
        await self._manage(lambda workspace: workspace.api_keys.revoke(key_id), KEY_UNKNOWN)
        say("API key revoked", id=key_id, by=request_scope().caller)
        return json_reply({"success": True, "message": "API key revoked successfully"})

    async def delete(self, request: Request) -> Response:
        """DELETE `keys/revoke` {keyId}, or `?keyId=`: the key is gone."""
        key_id = await _key_id(request)
        await self._manage(lambda workspace: workspace.api_keys.delete(key_id), KEY_UNKNOWN)
        say("API key deleted", id=key_id, by=request_scope().caller)
        return json_reply({"success": True, "message": "API key deleted successfully"})

    async def logs(self, request: Request) -> Response:
        """GET `logs?ragId=&limit=50&offset=0`: the calls in one collection, the newest first."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        limit, offset = _whole(request, "limit", 50, 1), _whole(request, "offset", 0, 0)

        def page(workspace: Workspace) -> LogPage:
            with workspace.database.read() as connection:
                [collection] = choose_collections(connection, [rag])
            return workspace.activity.logs(collection=collection.name, limit=min(limit, MOST_LOGS), offset=offset)

        return json_reply((await self._manage(page, RAG_UNKNOWN)).as_original())

    async def _manage(self, work: Callable[[Workspace], Result], unknown: str) -> Result:
        require_admin()

        def in_scope() -> Result:
            with use_scope(request_scope()):
                return work(self._calls.open_workspace())

        try:
            return await anyio.to_thread.run_sync(in_scope)
        except NotFound as error:
            raise Refused(404, unknown, details=str(error)) from error
        except AccessDenied as error:
            raise Refused(403, error.message, details=error.hint) from error
        except InvalidInput as error:
            raise Refused(400, error.message, details=error.hint, reason="InvalidInput") from error
        except LocalMCPError as error:
            raise Refused(500, error.message, details=error.hint) from error


def _needed(value: Any, message: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused(400, message)
    return value


async def _key_id(request: Request) -> str:
    key_id: Any = request.query_params.get("keyId")
    if key_id is None and (body := await request.body()):
        key_id = parse_object(body).get("keyId")
    return _needed(key_id, "Key ID is required")


def _text(body: Json, field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise Refused(400, f"{field} must be a string")
    return value


def _texts(body: Json, field: str) -> list[str] | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise Refused(400, f"{field} must be an array of strings")
    return cast("list[str]", value)


def _whole(request: Request, field: str, default: int, least: int) -> int:
    number = request.query_params.get(field, "")
    if not number:
        return default
    if not number.isdecimal() or not number.isascii() or len(number) > 9 or int(number) < least:
        raise Refused(400, f"{field} must be a whole number of at least {least}")
    return int(number)
