"""Replies of the HTTP server, refusals worded as the callers of each path expect them, and lines of the log (S3-14)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from localmcp.errors import (
    AccessDenied,
    ConfigurationError,
    InvalidInput,
    LocalMCPError,
    NeedsConfirmation,
    NotFound,
    UnreadableDocument,
)
from localmcp.masking import mask_text
from localmcp.schemas import without_surrogates
from localmcp.tools import Json

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
        value = mask_text(value[:LONGEST]) if isinstance(value, str) else value
        quoted = json.dumps(value, default=str)
        # In quotes if it could be misread or could look like another field.
        is_plain = isinstance(value, str) and value and quoted[1:-1] == value and not set(value) & set(" =:,")
        shown.append(f"{name}={value if is_plain else quoted}")
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


def has_many_values(body: bytes, most: int) -> bool:
    """Return whether the JSON of a body holds more values than `most`; what is no JSON is refused elsewhere."""
    try:
        values: list[Any] = [from_json(body)]
    except ValueError:
        return False
    count = 0
    while values and count <= most:
        value = values.pop()
        count += 1
        if isinstance(value, dict):
            values.extend(cast(Json, value).values())
        elif isinstance(value, list):
            values.extend(cast("list[Any]", value))
    return count > most


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
