"""One call of the log: noted without its secrets, read back, and counted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from localmcp.errors import LocalMCPError
from localmcp.masking import mask_secrets, mask_text
from localmcp.schemas import list_of, mapping_of
from localmcp.storage.times import utc_text
from localmcp.tools import CallRecord, Json, compact_json

WAITING_ROOM, WRITTEN_ROOMS = (4096, 200), ((2000, 100), (300, 20), (20, 3))
"""Characters of a text and items of a list that are kept: of what waits, and then of what is written, until it fits.

What waits is longer than what is written, so that a secret at its end is never half of one."""
DEEPEST = 12
MOST_MESSAGE_CHARACTERS = 300
MOST_TITLES = 8
CUT = "…"
INTERFACES = ("cli", "tui", "stdio", "local")
"""Callers that are no keys."""
COLUMNS = """
    calls.id, tool, via, caller, api_keys.name, started_at, seconds, success, argument_bytes, result_bytes,
    error_class, error_message, calls.collections, arguments, origin
"""


# ---------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The origin of a request over HTTP."""

    ip: str | None = None
    user_agent: str | None = None
    referer: str | None = None
    method: str = "tools/call"
    client: str | None = None
    """What the client calls itself, such as `Claude Desktop 1.2`."""


call_origin: ContextVar[CallOrigin | None] = ContextVar("localmcp_call_origin", default=None)
"""Set by an interface that knows it, around the call."""


def note(record: CallRecord) -> Json:
    """Return what the log keeps of a call, as `row` takes it: long texts and lists are cut, secrets still in it."""
    error, answer = record.error, record.answer
    error_class, message = None, None
    if error is not None:
        error_class = type(error).__name__
        message = error.message if isinstance(error, LocalMCPError) else str(error)
    elif answer is not None and answer.is_error:
        # The text of some tools is their value as JSON.
        message = str(answer.value.get("error", answer.text)) if answer.text.startswith("{") else answer.text
        error_class = "ToolError"
    arguments = _shortened(record.arguments, *WAITING_ROOM)
    try:
        argument_bytes = len(_dumped(record.arguments))
    except (RecursionError, ValueError, TypeError):
        argument_bytes = len(_dumped(arguments))
    blocks = (answer.content or ({"text": answer.text},)) if answer else ()
    origin = call_origin.get()
    return {
        "tool": mask_text(record.tool[:200])[:100],
        "via": record.via and record.via[:100],
        "caller": record.scope.caller[:100],
        "collections": _collections_of(record),
        "started_at": utc_text(datetime.fromtimestamp(record.started_at, UTC)),
        "seconds": record.seconds,
        "success": int(error_class is None),
        "argument_bytes": argument_bytes,
        "result_bytes": sum(len(_utf8(str(block.get("text") or block.get("data") or ""))) for block in blocks),
        "error_class": error_class,
        "error_message": message and message[: WAITING_ROOM[0]],
        "arguments": arguments,
        "origin": asdict(origin) if origin else {},
        "documents": _titles_in(answer.value) if answer is not None and error_class is None else (),
    }


def row(noted: Json, *, keep_arguments: bool) -> Json:
    """Return the columns of `calls`. A message and titles may repeat arguments, so they are kept only if those are."""
    # Arguments have at most 2 kB (S0-29), and a row about 150 bytes besides its texts.
    arguments = message = None
    origin: Json = {name: mask_text(value)[:300] for name, value in noted["origin"].items() if value}
    if keep_arguments:
        masked = mask_secrets(noted["arguments"])
        texts = (_dumped(_shortened(masked, *room)).decode() for room in WRITTEN_ROOMS)
        arguments = next((text for text in texts if len(text.encode()) <= 2048), json.dumps({CUT: CUT}))
        message = noted["error_message"] and mask_text(noted["error_message"])
        if message and len(message) > MOST_MESSAGE_CHARACTERS:
            message = message[: MOST_MESSAGE_CHARACTERS - 1] + CUT
        if noted["documents"]:
            origin["documents"] = [mask_text(title) for title in noted["documents"]]
    texts = {
        "error_message": message,
        "arguments": arguments,
        "origin": compact_json(origin) if origin else None,
        "collections": None if noted["collections"] is None else compact_json(noted["collections"]),
    }
    # SQLite stores no lone surrogates.
    kept = {name: _utf8(value).decode() if isinstance(value, str) else value for name, value in (noted | texts).items()}
    del kept["documents"]
    return {**kept, "stored_bytes": 150 + sum(map(len, filter(None, texts.values())))}


def _collections_of(record: CallRecord) -> list[str] | None:
    """Return the collections that the caller is bound to, else the one it named, else those in the answer."""
    if record.scope.collections is not None:
        return sorted(record.scope.collections)
    named = record.arguments.get("collection") or record.arguments.get("collection_name")
    if isinstance(named, str):
        return [named[:100]]
    value = record.answer.value if record.answer else {}
    documents = map(mapping_of, (value.get("source"), *list_of(value.get("results")), *list_of(value.get("sources"))))
    # Lean answers leave the default collection out; what has an origin is in a mounted file.
    own = [d for d in documents if ("sourceType" in d or "collection" in d) and not d.get("origin")]
    return sorted({str(document.get("collection", "default"))[:100] for document in own})[:20] or None


def _titles_in(answer: Json) -> tuple[str, ...]:
    """Return the titles of the first documents, rules or quick starts in an answer, each once."""
    records = [answer, *(record for field in answer.values() for record in (field, *list_of(field)[: 4 * MOST_TITLES]))]
    titles: dict[str, None] = {}
    for record in map(mapping_of, records):
        names = ("sourceTitle", "rule_text", "displayName", *(("title",) if "sourceType" in record else ()))
        title = next((record[name] for name in names if isinstance(record.get(name), str)), "")
        if title:
            titles[title[:100]] = None
    return tuple(titles)[:MOST_TITLES]


def _shortened(value: Any, characters: int, items: int, depth: int = 0) -> Any:
    """Return a JSON value with `…` for what is left out: of long texts, long lists, and what is nested deeply."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    is_object = isinstance(value, Mapping)
    if not is_object and not isinstance(value, list | tuple):
        text = str(value)
        return text if len(text) <= characters else text[:characters] + CUT
    rows = list(cast("Mapping[Any, Any]", value).items()) if is_object else list(enumerate(cast("list[Any]", value)))
    kept = rows[: items if depth < DEEPEST else 0]
    parts = [
        (_shortened(str(key), characters, items), _shortened(part, characters, items, depth + 1)) for key, part in kept
    ]
    if len(kept) < len(rows):
        parts.append((CUT, CUT))
    return dict(parts) if is_object else [part for _, part in parts]


def _dumped(value: Any) -> bytes:
    return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# ---------------------------------------------------------------- reading


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
