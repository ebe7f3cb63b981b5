"""One finished call on its way into the log: little enough to wait in memory, and without its secrets."""

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
from localmcp.schemas import list_of
from localmcp.storage.times import utc_text
from localmcp.tools import Answer, CallRecord, Json, Scope, compact_json

MOST_ARGUMENT_BYTES = 2048
"""Of one call, as they are kept (S0-29)."""
ROOMS = ((4096, 200), (2000, 100), (300, 20), (60, 10), (20, 3))
"""Characters of a text and items of a list that are kept: of what waits, and then of what is written, until it fits.

What waits is longer than what is written, so that a secret at its end is never half of one."""
DEEPEST = 12
MOST_COLLECTIONS = 20
DEFAULT = "default"
MOST_MESSAGE_CHARACTERS = 300
MOST_TITLES, MOST_TITLE_CHARACTERS = 8, 100
TITLES = ("sourceTitle", "rule_text", "displayName")
"""Fields that name what an answer holds."""
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


@dataclass(slots=True)
class NotedCall:
    """A call that waits to be written."""

    tool: str
    caller: str
    collections: list[str] | None
    started_at: float
    seconds: float
    arguments: Json
    """Long texts and lists are cut; secrets are masked when it is written, by the thread that writes."""
    argument_bytes: int
    result_bytes: int
    error_class: str | None
    error_message: str | None
    origin: CallOrigin | None
    via: str | None = None
    documents: tuple[str, ...] = ()
    """Titles of what the answer held: documents, rules, quick starts."""

    @property
    def success(self) -> bool:
        return self.error_class is None

    def row(self, *, keep_arguments: bool) -> Json:
        """Return the columns of `calls`. A message may repeat arguments, so it is kept only if they are."""
        arguments = kept_json(self.arguments) if keep_arguments else None
        message = _kept_message(self.error_message) if keep_arguments else None
        origin = _kept_origin(self.origin, self.documents if keep_arguments else ())
        return {
            "tool": _well_formed(self.tool[:100]),
            "via": self.via and _well_formed(self.via[:100]),
            "caller": _well_formed(self.caller[:100]),
            "collections": None if self.collections is None else _well_formed(compact_json(self.collections)),
            "started_at": utc_text(datetime.fromtimestamp(self.started_at, UTC)),
            "seconds": self.seconds,
            "success": int(self.success),
            "argument_bytes": self.argument_bytes,
            "result_bytes": self.result_bytes,
            "error_class": self.error_class,
            "error_message": message,
            "arguments": arguments,
            "origin": origin,
            "stored_bytes": ROW_BYTES + sum(len(argument) for argument in (arguments, message, origin) if argument),
        }


def note(record: CallRecord) -> NotedCall:
    """Return what the log keeps of a call."""
    error, answer = record.error, record.answer
    error_class, message = None, None
    if error is not None:
        error_class = type(error).__name__
        message = error.message if isinstance(error, LocalMCPError) else str(error)
    elif answer is not None and answer.is_error:
        # The text of some tools is their value as JSON.
        message = str(answer.value.get("error", answer.text)) if answer.text.startswith("{") else answer.text
        error_class = "ToolError"
    arguments = shortened(record.arguments, *ROOMS[0])
    try:
        argument_bytes = len(_encoded(_dumped(record.arguments)))
    except (RecursionError, ValueError, TypeError):
        argument_bytes = len(_encoded(_dumped(arguments)))
    return NotedCall(
        tool=record.tool,
        caller=record.scope.caller,
        collections=_collections_of(record.scope, record.arguments, answer),
        started_at=record.started_at,
        seconds=record.seconds,
        arguments=arguments,
        argument_bytes=argument_bytes,
        result_bytes=_size_of(answer),
        error_class=error_class,
        error_message=message and message[: ROOMS[0][0]],
        origin=call_origin.get(),
        via=record.via,
        documents=titles_in(answer.value) if answer is not None and error_class is None else (),
    )


def _collections_of(scope: Scope, arguments: Json, answer: Answer | None) -> list[str] | None:
    """Return the collections that the caller is bound to, else the one it named, else those in the answer."""
    if scope.collections is not None:
        return sorted(scope.collections)
    named = arguments.get("collection") or arguments.get("collection_name")
    if isinstance(named, str):
        return [named[:100]]
    value = answer.value if answer else {}
    records = [value.get("source"), *list_of(value.get("results")), *list_of(value.get("sources"))]
    documents = [cast(Json, record) for record in records if isinstance(record, dict)]
    # Lean answers leave the default collection out; what has an origin is in a mounted file.
    own = [d for d in documents if ("sourceType" in d or "collection" in d) and not d.get("origin")]
    return sorted({str(document.get("collection", DEFAULT))[:100] for document in own})[:MOST_COLLECTIONS] or None


def _size_of(answer: Answer | None) -> int:
    """Bytes of what the caller's model reads."""
    if answer is None:
        return 0
    blocks = answer.content or ({"text": answer.text},)
    return sum(len(_encoded(str(block.get("text") or block.get("data") or ""))) for block in blocks)


# ---------------------------------------------------------------- short enough to keep


def shortened(value: Any, characters: int, items: int, depth: int = 0) -> Any:
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
        (shortened(str(key), characters, items), shortened(part, characters, items, depth + 1)) for key, part in kept
    ]
    if len(kept) < len(rows):
        parts.append((CUT, CUT))
    return dict(parts) if is_object else [part for _, part in parts]


def kept_json(arguments: Json) -> str:
    """Return the arguments as JSON of at most MOST_ARGUMENT_BYTES, secrets masked; never raises."""
    masked = mask_secrets(arguments)
    for characters, items in ROOMS[1:]:
        text = _well_formed(_dumped(shortened(masked, characters, items)))
        if len(text.encode()) <= MOST_ARGUMENT_BYTES:
            return text
    return json.dumps({CUT: CUT})


def _kept_message(message: str | None) -> str | None:
    if message is None:
        return None
    masked = _well_formed(mask_text(message))
    return masked if len(masked) <= MOST_MESSAGE_CHARACTERS else masked[: MOST_MESSAGE_CHARACTERS - 1] + CUT


def titles_in(answer: Json) -> tuple[str, ...]:
    """Return the titles of the first documents, rules or quick starts in an answer, each once."""
    records = [answer, *(record for field in answer.values() for record in (field, *list_of(field)[: 4 * MOST_TITLES]))]
    titles: dict[str, None] = {}
    for record in (cast(Json, record) for record in records if isinstance(record, dict)):
        names = (*TITLES, "title") if "sourceType" in record else TITLES
        title = next((record[name] for name in names if isinstance(record.get(name), str)), "")
        if title:
            titles[title[:MOST_TITLE_CHARACTERS]] = None
    return tuple(titles)[:MOST_TITLES]


def _kept_origin(origin: CallOrigin | None, documents: tuple[str, ...]) -> str | None:
    """Return as JSON where a call came from and the titles in its answer; None if there is neither."""
    titles = [mask_text(title) for title in documents]
    if origin is None:
        return _well_formed(compact_json({"documents": titles})) if titles else None
    fields = {name: mask_text(value)[:300] for name, value in asdict(origin).items() if value}
    return _well_formed(compact_json({**fields, "documents": titles} if titles else fields))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _well_formed(text: str) -> str:
    """SQLite stores no lone surrogates."""
    return _encoded(text).decode()
