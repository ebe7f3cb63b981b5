"""What the errors mean that the SDK's client raises for a request."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from localmcp.humanize import cut_to

BAD_REQUEST, NOT_FOUND = 400, 404
LONGEST_DATA = 500
"""Characters that are shown of what a server adds to a refusal."""

_READ = (
    types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    types.UNSUPPORTED_PROTOCOL_VERSION,
)  # fmt: skip
_BROKEN_OFF = re.compile(r"Connection closed|SSE stream (failed|ended)|server answered a request with 202")


def broke_off(error: BaseException) -> bool:
    """Return whether the SDK says that no answer can come.

    Its code, -32000, is also how most servers refuse a call.
    """
    return (
        isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED and bool(_BROKEN_OFF.match(error.message))
    )


def session_is_lost(error: Exception, status: int | None) -> bool:
    """Return whether a server that was started again refuses our old session.

    The protocol says 404, many servers say 400.

    With the codes that are left out a server of the other generation answers a call that it has read.
    """
    return isinstance(error, MCPError) and status in (BAD_REQUEST, NOT_FOUND) and error.code not in _READ


def reason_of(error: MCPError) -> str:
    """Return why the server refuses, with what it adds, such as the field that is wrong."""
    data: Any = error.data
    if data in (None, "", {}, []):
        return error.message
    added = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    cut = cut_to(added, LONGEST_DATA)
    return error.message if cut in error.message else f"{error.message} ({cut})"


def malformation_of(error: ValueError) -> str:
    """Return what is wrong with the form of an answer."""
    first = error.errors()[0] if isinstance(error, ValidationError) else None
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)


def innermost(error: BaseException) -> BaseException:
    """Return the first error that a group of them was made of."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
