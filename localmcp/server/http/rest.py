"""The plain endpoints: a sentence becomes a tool call (S0-22), tools by name (C4-1, C4-5), and `/health`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import anyio.to_thread
from starlette.responses import Response

from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, UnknownTool
from localmcp.server.http.authentication import request_scope
from localmcp.server.http.exchange import CALL_SECONDS, Calls, Exchange
from localmcp.server.http.replies import Refused, json_reply
from localmcp.tool_search.ask import ERROR_STATUS, QUERY_EMPTY
from localmcp.tools import Answer, Json, Tool, use_scope
from localmcp.version import __version__

ASK = "ask"


class RestEndpoints:
    """Each method answers one request."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def ask(self, exchange: Exchange) -> Response:
        """POST `/api/quickstarts/v1/mcp`: {"query", "limit"?, "maxDistance"?} (S0-22 to S0-26, C0-12)."""
        arguments = _question(exchange)
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
        if status >= 400:
            response = {**response, "error": response["message"]}
        exchange.log_response(status)
        return json_reply(response, status)

    async def list_tools(self, exchange: Exchange) -> Response:
        """GET `/tools`: every tool of the caller, the hidden ones too."""
        listed = await anyio.to_thread.run_sync(self._tools)
        exchange.log_response(200)
        return json_reply({"tools": {item.name: _described(item) for item in listed}})

    def _tools(self) -> list[Tool]:
        with use_scope(request_scope()):
            return self._calls.open_workspace().registry.tools()

    async def call_tool(self, name: str, exchange: Exchange) -> Response:
        """POST `/tools/{name}`: {"input": {...}, "timeout"?: seconds} -> {success, output, stats} (C4-1)."""
        arguments, seconds = _tool_input(exchange)
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
        exchange.log_response(status)
        return json_reply({**body, "stats": {"execution_time": execution_time(exchange.seconds())}}, status)

    async def health(self) -> Response:
        """GET `/health`, for anybody: whether calls can be answered; nothing about the file's content."""
        try:
            await anyio.to_thread.run_sync(self._look)
        except LocalMCPError:
            return json_reply({"status": "unavailable", "version": __version__}, 503)
        return json_reply({"status": "ok", "version": __version__})

    def _look(self) -> None:
        with self._calls.open_workspace().database.read():
            pass


def _question(exchange: Exchange) -> Json:
    try:
        body = exchange.json_object()
    except Refused as refused:
        raise _bad_body(refused.details or refused.detail) from refused
    query = body.get("query", "")
    if query is None:
        query = ""
    if not isinstance(query, str):
        raise _bad_body(f"query must be a string, not {type(query).__name__}")
    if not query.strip():
        raise Refused(400, QUERY_EMPTY)
    return {name: body[name] for name in ("query", "limit", "maxDistance") if name in body}


def _bad_body(why: str) -> Refused:
    return Refused(400, f"Invalid request body: {why}", reason="Invalid request body")


def _tool_input(exchange: Exchange) -> tuple[Json, float]:
    body = exchange.json_object()
    tool_input: Any = body.get("input")
    if tool_input is not None and not isinstance(tool_input, dict):
        raise Refused(400, "Invalid request body", details="input must be an object")
    seconds: Any = body.get("timeout")
    if seconds is not None and (type(seconds) not in (int, float) or seconds <= 0):
        raise Refused(400, "Invalid request body", details="timeout must be a number of seconds above 0")
    return cast(Json, tool_input or {}), min(float(seconds or CALL_SECONDS), CALL_SECONDS)


def _described(tool: Tool) -> Json:
    return {"name": tool.name, "description": tool.description, "schema": tool.input_schema}


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
