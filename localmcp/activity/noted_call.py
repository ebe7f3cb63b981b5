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
WAITING_CHARACTERS = 2 * MOST_ARGUMENT_BYTES
"""What waits is cut before secrets are masked. Twice as much is kept, so that a secret at the end can be recognized."""
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
    """Cut to about WAITING_CHARACTERS; secrets are masked when it is written, by the thread that writes."""
    argument_bytes: int | None
    """None when nothing was cut: then the arguments are counted when the row is written."""
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
        size = self.argument_bytes
        return {
            "tool": _well_formed(self.tool[:100]),
            "via": self.via and _well_formed(self.via[:100]),
            "caller": _well_formed(self.caller[:100]),
            "collections": None if self.collections is None else _well_formed(compact_json(self.collections)),
            "started_at": utc_text(datetime.fromtimestamp(self.started_at, UTC)),
            "seconds": self.seconds,
            "success": int(self.success),
            "argument_bytes": len(_encoded(_dumped(self.arguments))) if size is None else size,
            "result_bytes": self.result_bytes,
            "error_class": self.error_class,
            "error_message": message,
            "arguments": arguments,
            "origin": origin,
            "stored_bytes": ROW_BYTES + sum(len(argument) for argument in (arguments, message, origin) if argument),
        }


def note(record: CallRecord) -> NotedCall:
    """Return what the log keeps of a call. Takes a few microseconds whatever the size of the arguments' texts."""
    error, answer = record.error, record.answer
    error_class, message = None, None
    if error is not None:
        error_class = type(error).__name__
        message = error.message if isinstance(error, LocalMCPError) else str(error)
    elif answer is not None and answer.is_error:
        # The text of some tools is their value as JSON.
        message = str(answer.value.get("error", answer.text)) if answer.text.startswith("{") else answer.text
        error_class = "ToolError"
    clipper = Clipper(WAITING_CHARACTERS)
    return NotedCall(
        tool=record.tool,
        caller=record.scope.caller,
        collections=_collections_of(record.scope, record.arguments, answer),
        started_at=record.started_at,
        seconds=record.seconds,
        arguments=clipper.clip(record.arguments),
        argument_bytes=rough_size(record.arguments) if clipper.has_cut else None,
        result_bytes=_size_of(answer),
        error_class=error_class,
        error_message=message[:WAITING_CHARACTERS] if message else message,
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
    return sorted(_collections_in(answer.value))[:MOST_COLLECTIONS] or None if answer else None


def _collections_in(value: Json) -> set[str]:
    """Return the collections of the documents in an answer; lean answers leave the default one out."""
    records: list[Any] = [value.get("source")]
    for field in ("results", "sources"):
        records += list_of(value.get(field))
    documents = [cast(Json, record) for record in records if isinstance(record, dict)]
    names = [document.get("collection", DEFAULT) for document in documents if _is_own_document(document)]
    return {name[:100] for name in names if isinstance(name, str)}


def _is_own_document(record: Json) -> bool:
    return ("sourceType" in record or "collection" in record) and not record.get("origin")


def _size_of(answer: Answer | None) -> int:
    """Bytes of what the caller's model reads."""
    if answer is None:
        return 0
    if answer.content is None:
        return _bytes_in(answer.text)
    return sum(_bytes_in(str(block.get("text") or block.get("data") or "")) for block in answer.content)


def _bytes_in(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# ---------------------------------------------------------------- short enough to keep


class Clipper:
    """Copies a JSON value up to a number of characters; `…` marks what is left out."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.has_cut = False

    def clip(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self._clip_text(value)
        if isinstance(value, Mapping):
            return self._clip_object(cast("Mapping[Any, Any]", value), depth)
        if isinstance(value, list | tuple):
            return self._clip_array(cast("list[Any]", value), depth)
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
            self._room -= 6
            return value
        return self._clip_text(str(value))

    def _clip_text(self, text: str) -> str:
        room = max(self._room, 0)
        self._room -= len(text) + 2
        if len(text) <= room:
            return text
        self.has_cut = True
        return text[:room] + CUT

    def _clip_object(self, value: Mapping[Any, Any], depth: int) -> Json:
        clipped: Json = {}
        for key, item in value.items():
            if self._room <= 0 or depth >= DEEPEST:
                self.has_cut = True
                clipped[CUT] = CUT
                break
            name = self._clip_text(str(key))
            clipped[name] = self.clip(item, depth + 1)
        return clipped

    def _clip_array(self, value: list[Any], depth: int) -> list[Any]:
        clipped: list[Any] = []
        for item in value:
            if self._room <= 0 or depth >= DEEPEST:
                self.has_cut = True
                clipped.append(CUT)
                break
            clipped.append(self.clip(item, depth + 1))
        return clipped


def rough_size(value: Any, depth: int = 0) -> int:
    """Return about how many bytes a JSON value takes; a long array is judged by its beginning."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return 2 + (sum(len(str(key)) + 4 + rough_size(item, depth + 1) for key, item in items) if depth < 50 else 0)
    if isinstance(value, list | tuple):
        array = cast("list[Any]", value)
        beginning = array[:64] if depth < 50 else []
        return 2 + int(sum(rough_size(item, depth + 1) + 1 for item in beginning) * len(array) / max(len(beginning), 1))
    return len(str(value))


def kept_json(arguments: Json) -> str:
    """Return the arguments as JSON of at most MOST_ARGUMENT_BYTES, secrets masked; never raises."""
    masked = mask_secrets(arguments)
    for room in (MOST_ARGUMENT_BYTES, 1500, 1000, 500, 200, 20):
        text = _well_formed(_dumped(Clipper(room).clip(masked)))
        if len(text.encode()) <= MOST_ARGUMENT_BYTES:
            return text
    return json.dumps({CUT: CUT})


def _kept_message(message: str | None) -> str | None:
    if message is None:
        return None
    masked = _well_formed(mask_text(message))
    return masked if len(masked) <= MOST_MESSAGE_CHARACTERS else masked[: MOST_MESSAGE_CHARACTERS - 1] + CUT


def titles_in(value: Any, depth: int = 0) -> tuple[str, ...]:
    """Return the titles of the first documents, rules or quick starts in an answer, each once."""
    titles: dict[str, None] = {}
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        named = next((table[name] for name in TITLES if isinstance(table.get(name), str)), None)
        if named is None and isinstance(table.get("title"), str) and "sourceType" in table:
            named = table["title"]
        if named:
            titles[named[:MOST_TITLE_CHARACTERS]] = None
        parts = table.values() if named is None else ()
    else:
        parts = list_of(value)[: 4 * MOST_TITLES]
    for part in parts if depth < 3 else ():
        if isinstance(part, Mapping | list):
            titles |= dict.fromkeys(titles_in(cast(Any, part), depth + 1))
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
