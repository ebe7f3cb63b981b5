"""One finished call on its way into the log: little enough to wait in memory, and written without its secrets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

from localmcp.errors import LocalMCPError
from localmcp.masking import mask_secrets, mask_text
from localmcp.schemas import list_of, mapping_of
from localmcp.storage.times import utc_text
from localmcp.tools import CallRecord, Json, compact_json

MOST_ARGUMENT_BYTES = 2048
"""Of one call, as they are kept (S0-29)."""
WAITING_ROOM, WRITTEN_ROOMS = (4096, 200), ((2000, 100), (300, 20), (20, 3))
"""Characters of a text and items of a list that are kept: of what waits, and then of what is written, until it fits.

What waits is longer than what is written, so that a secret at its end is never half of one."""
DEEPEST = 12
MOST_MESSAGE_CHARACTERS = 300
MOST_TITLES = 8
ROW_BYTES = 150
"""What a row takes besides its texts, about."""
CUT = "…"


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
    arguments = message = None
    origin: Json = {name: mask_text(value)[:300] for name, value in noted["origin"].items() if value}
    if keep_arguments:
        masked = mask_secrets(noted["arguments"])
        texts = (_dumped(_shortened(masked, *room)).decode() for room in WRITTEN_ROOMS)
        arguments = next((text for text in texts if len(text.encode()) <= MOST_ARGUMENT_BYTES), json.dumps({CUT: CUT}))
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
    return {**kept, "stored_bytes": ROW_BYTES + sum(map(len, filter(None, texts.values())))}


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
