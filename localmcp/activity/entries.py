"""Calls as they are read from the log, and the totals of their use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localmcp.schemas import list_of, mapping_of
from localmcp.tools import Json

INTERFACES = ("cli", "tui", "stdio", "local")
"""Callers that are no keys."""
COLUMNS = """
    calls.id, tool, via, caller, api_keys.name, started_at, seconds, success, argument_bytes, result_bytes,
    error_class, error_message, calls.collections, arguments, origin
"""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One call."""

    id: int
    tool: str
    via: str | None
    """The tool that ran it for the caller: `execute_tool`, `ask`."""
    caller: str
    """`cli`, `tui`, `stdio`, or the id of an API key."""
    key_name: str | None
    """The name of that key, while it is kept; None for other callers."""
    started_at: str
    seconds: float
    success: bool
    argument_bytes: int
    result_bytes: int
    error_class: str | None
    error_message: str | None
    collections: list[str] | None
    arguments: Json | None
    """Secrets masked, at most 2 kB; None when arguments are not kept."""
    origin: Json | None
    documents: tuple[str, ...] = ()
    """Titles of what the answer held, where arguments are kept."""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> LogEntry:
        """From the columns of `COLUMNS`."""
        values: list[Any] = [*row[:7], row[7] == 1, *row[8:12], *map(_parsed, row[12:])]
        origin = mapping_of(values.pop())
        titles = tuple(map(str, list_of(origin.pop("documents", None))))
        values += [origin or None, titles]
        return cls(*values)

    @property
    def client(self) -> str:
        """Who called: the key's name, what the client calls itself, else the kind of caller."""
        return self.key_name or str((self.origin or {}).get("client") or self.caller)

    @property
    def milliseconds(self) -> float:
        """How long it took."""
        return round(self.seconds * 1000, 2)

    def as_json(self) -> Json:
        """As `localmcp log --json` prints it."""
        return {
            "id": self.id,
            "tool": self.tool,
            "via": self.via,
            "caller": self.caller,
            "keyName": self.key_name,
            "collections": self.collections,
            "startedAt": self.started_at,
            "milliseconds": self.milliseconds,
            "success": self.success,
            "argumentBytes": self.argument_bytes,
            "resultBytes": self.result_bytes,
            "error": None if self.success else {"class": self.error_class, "message": self.error_message},
            "arguments": self.arguments,
            "origin": self.origin,
        }

    def as_original(self) -> Json:
        """Return a row of the original's `mcp_logs` (`requirements.md` section 5); `duration` in milliseconds."""
        origin = self.origin or {}
        return {
            "id": self.id,
            "rag_id": self.collections[0] if self.collections else None,
            "apikey_id": None if self.caller in INTERFACES else self.caller,
            "metadata": {
                "method": origin.get("method", "tools/call"),
                "tool": self.tool,
                "args": self.arguments,
                "success": self.success,
                "error": None if self.success else self.error_message or self.error_class,
                "duration": self.milliseconds,
                "responseSize": self.result_bytes,
            },
            "origin": {
                "ip": origin.get("ip"),
                "userAgent": origin.get("user_agent"),
                "referer": origin.get("referer"),
            },
            "created_at": self.started_at,
        }


def _parsed(text: str | None) -> Any:
    """Return a stored JSON value; None for one that somebody changed into no JSON."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some calls, the latest first, and how many there are in all."""

    entries: list[LogEntry]
    total: int

    def as_json(self) -> Json:
        """As `localmcp log --json` prints it."""
        return {"count": len(self.entries), "total": self.total, "calls": [entry.as_json() for entry in self.entries]}

    def as_original(self) -> Json:
        """Return the original's answer to `GET /api/mcp/logs`."""
        return {"success": True, "logs": [entry.as_original() for entry in self.entries], "total": self.total}


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of the calls of one tool, or of one caller."""

    name: str
    """The tool, or the caller."""
    key_name: str | None
    calls: int
    errors: int
    median_seconds: float
    p95_seconds: float
    argument_bytes: int
    result_bytes: int
    last_at: str

    @property
    def error_rate(self) -> float:
        """0..1."""
        return self.errors / self.calls

    def as_json(self, kind: str) -> Json:
        """`kind` names the first field: `tool` or `caller`."""
        named = {kind: self.name} if kind == "tool" else {kind: self.name, "keyName": self.key_name}
        return {
            **named,
            "calls": self.calls,
            "errors": self.errors,
            "errorRate": round(self.error_rate, 4),
            "medianMilliseconds": round(self.median_seconds * 1000, 2),
            "p95Milliseconds": round(self.p95_seconds * 1000, 2),
            "argumentBytes": self.argument_bytes,
            "resultBytes": self.result_bytes,
            "lastAt": self.last_at,
        }


@dataclass(frozen=True, slots=True)
class Statistics:
    """Usage by tool and by caller, the most used first; a call through `execute_tool` counts once, for the tool."""

    tools: list[Usage]
    callers: list[Usage]

    @property
    def calls(self) -> int:
        """How many there were."""
        return sum(tool.calls for tool in self.tools)

    def of(self, caller: str) -> Usage | None:
        """Return the usage of one caller, such as a key."""
        return next((usage for usage in self.callers if usage.name == caller), None)

    def as_json(self) -> Json:
        """As `localmcp log stats --json` prints it."""
        errors = sum(tool.errors for tool in self.tools)
        return {
            "calls": self.calls,
            "errors": errors,
            "errorRate": round(errors / self.calls, 4) if self.calls else 0.0,
            "tools": [tool.as_json("tool") for tool in self.tools],
            "callers": [caller.as_json("caller") for caller in self.callers],
        }
