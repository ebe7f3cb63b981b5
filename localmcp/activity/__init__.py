"""The log of calls: observes the registry for every interface, writes late, prunes itself, and is read back."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, cast

import apsw

from localmcp.errors import CallGivenUp, Interrupted, InvalidInput, LocalMCPError
from localmcp.humanize import cut_to
from localmcp.masking import mask_secrets, mask_text
from localmcp.schemas import json_or_none, list_of, mapping_of, shorten_value, without_none
from localmcp.storage.database import Database, fetch_all, fetch_one, insert_row
from localmcp.storage.schema import utc_moment, utc_now, utc_text
from localmcp.storage.write_behind import WriteBehind
from localmcp.tools import CallRecord, Json, compact_json, current_scope

log = logging.getLogger(__name__)

INTERFACES = ("cli", "tui", "stdio", "local")
"""Callers that are no keys."""
ROOMS = ((2200, 100), (2000, 100), (300, 20), (20, 3))
"""Characters of a text and items of a list that are kept: first of what is masked, then of what is written, until it
fits. What is masked is longer, so that a secret at the end of what is written is never half of one."""
CUT = "…"
MOST_TITLES = 8
MOST_ENTRIES = 1000
PRUNED_AT_ONCE = 5000
"""Rows deleted in one transaction at most, so that nobody waits long for the file."""


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


class Activity:
    """The log of calls: which tool, by whom, how long and with which outcome. Thread-safe.

    A call never waits for its record and never fails because of it (see `WriteBehind`). Nothing is kept in a file that
    may not be changed. Without the right `admin` a reader sees only its own calls, and one that may see only some
    collections only calls about those.
    """

    def __init__(self, database: Database, kept: str = "all", *, days: int = 30, megabytes: int = 20) -> None:
        """`kept` is the setting `log_calls`; calls older than `days`, and the oldest above `megabytes`, go."""
        self._database = database
        self._kept, self._days, self._megabytes = kept, days, megabytes
        self._recent = threading.local()
        self._writer: WriteBehind[Json] = WriteBehind(database, self._store, "log of calls")
        self.flush, self.close = self._writer.flush, self._writer.close

    def note_call(self, record: CallRecord) -> None:
        """Take a finished call, as an observer of the registry; it is written within about a second."""
        # A query that was stopped because the person typed on is neither a call nor an error.
        stopped = isinstance(record.error, Interrupted) and not isinstance(record.error, CallGivenUp)
        if self._kept == "none" or stopped:
            return
        now = time.perf_counter()
        try:
            noted = _row(record, keep_arguments=self._kept == "all")
        except Exception:
            log.warning("a call could not be noted", exc_info=True)
            return
        # An inner call is noted before its outer one, in the same thread, after the outer one began.
        recent: list[tuple[float, Json]] = getattr(self._recent, "calls", [])
        inner = [call for at, call in recent if at >= now - noted["seconds"] and call["via"] == noted["tool"]]
        # A proxy that failed although what it ran did not has an error that is only in its call.
        explained = noted["success"] or not all(call["success"] for call in inner)
        # Of these the tool that they ran is the call that is kept.
        if noted["tool"] in ("execute_tool", "ask") and inner and explained:
            return
        self._recent.calls = [*recent[-7:], (now, noted)]
        self._writer.add(noted)

    def _store(self, connection: apsw.Connection, calls: list[Json]) -> None:
        for call in calls:
            insert_row(connection, "calls", call)
        oldest = utc_now(86_400 * self._days)
        connection.execute(
            "delete from calls where id in (select id from calls where started_at < ? order by started_at limit ?)",
            (oldest, PRUNED_AT_ONCE),
        )
        allowed = self._megabytes * 1_000_000
        stored = fetch_one(connection, "select coalesce(sum(stored_bytes), 0) from calls")
        if stored > allowed:
            # The oldest go, until the log has nine tenths of the allowed size.
            connection.execute(
                """
                with oldest as (select id, stored_bytes from calls order by id limit :most),
                running as (select id, sum(stored_bytes) over (order by id) - stored_bytes as before from oldest)
                delete from calls where id in (select id from running where before < :excess)
                """,
                {"most": PRUNED_AT_ONCE, "excess": stored - allowed * 0.9},
            )

    def logs(self, *, limit: int = 50, offset: int = 0, **chosen: Any) -> tuple[list[Json], int]:
        """Return 1..1000 calls, the latest first, and how many there are; InvalidInput for what cannot be used.

        A call has the keys of `FIELDS`, and `error` (class and message, None where it succeeded), `arguments` (secrets
        masked, at most 2 kB; None when they are not kept), `origin`, `documents` (titles of what the answer held).

        `chosen`: `key_id` (the id of a key, or `cli`, `tui`, `stdio`), `collection` (its keys bound to it, or that
        named it), `tool` (or what was run through it), `errors` (only calls that failed), `since` (ISO 8601; UTC where
        there is no offset), `words` (that the tool, arguments, caller, documents or error hold, in any case),
        `without_caller`.
        """
        if not 1 <= limit <= MOST_ENTRIES:
            raise InvalidInput(f"limit: {limit} is not between 1 and {MOST_ENTRIES}.")
        if not 0 <= offset < 2**63:
            raise InvalidInput(f"offset: {offset} must be 0 or more.")
        where, values = _conditions(**chosen)
        self.flush()
        if not self._database.path.exists():
            return [], 0
        with self._database.read() as connection:
            total = fetch_one(connection, f"select count(*) from calls where {where}", values)
            rows = fetch_all(
                connection,
                f"""
                select {COLUMNS} from calls left join api_keys on api_keys.id = caller
                where {where} order by calls.id desc limit :limit offset :offset
                """,
                {**values, "limit": limit, "offset": offset},
            )
        return list(map(_call_of, rows)), total

    def stats(self, **chosen: Any) -> Json:
        """Return what the calls add up to, by tool and by caller, the most used first; `chosen` as for `logs`.

        A call through `execute_tool` counts once, for the tool. A percentile is the smallest duration that so many
        calls did not exceed.
        """
        where, values = _conditions(**chosen)
        self.flush()
        usage: dict[str, list[Json]] = {"tool": [], "caller": []}
        for by in usage if self._database.path.exists() else ():
            with self._database.read() as connection:
                rows = fetch_all(
                    connection,
                    f"""
                    with ranked as (
                        select *, {by} as of, row_number() over (partition by {by} order by seconds) as place,
                               count(*) over (partition by {by}) as many
                        from calls where {where}
                    )
                    select of, api_keys.name, many, sum(1 - success), round(1.0 * sum(1 - success) / many, 4),
                           round(1000 * min(case when place >= 0.5 * many then seconds end), 2),
                           round(1000 * min(case when place >= 0.95 * many then seconds end), 2),
                           sum(argument_bytes), sum(result_bytes), max(started_at)
                    from ranked left join api_keys on api_keys.id = of
                    group by of order by many desc, of
                    """,
                    values,
                )
            for name, key_name, *numbers in rows:
                named: Json = {by: name} if by == "tool" else {by: name, "keyName": key_name}
                usage[by].append({**named, **dict(zip(TOTALS.split(), numbers, strict=True))})
        calls, errors = (sum(tool[name] for tool in usage["tool"]) for name in ("calls", "errors"))
        rate = round(errors / calls, 4) if calls else 0.0
        return {"calls": calls, "errors": errors, "errorRate": rate, "tools": usage["tool"], "callers": usage["caller"]}


def _row(record: CallRecord, *, keep_arguments: bool) -> Json:
    # A message and titles may repeat arguments, so they are kept only if those are.
    error, answer = record.error, record.answer
    error_class, message = None, None
    if error is not None:
        error_class = type(error).__name__
        message = error.message if isinstance(error, LocalMCPError) else str(error)
    elif answer is not None and answer.is_error:
        # The text of some tools is their value as JSON.
        message = str(answer.value.get("error", answer.text)) if answer.text.startswith("{") else answer.text
        error_class = "ToolError"
    shortened = _shortened(record.arguments, *ROOMS[0])
    try:
        argument_bytes = len(_dumped(record.arguments))
    except (RecursionError, ValueError, TypeError):
        argument_bytes = len(_dumped(shortened))
    blocks = (answer.content or ({"text": answer.text},)) if answer else ()
    about = call_origin.get()
    origin: Json = {name: mask_text(value)[:300] for name, value in (asdict(about) if about else {}).items() if value}
    arguments = None
    if keep_arguments:
        # Arguments have at most 2 kB (S0-29).
        masked = mask_secrets(shortened)
        texts = (_dumped(_shortened(masked, *room)).decode() for room in ROOMS[1:])
        arguments = next((text for text in texts if len(text.encode()) <= 2048), json.dumps({CUT: CUT}))
        message = message and cut_to(mask_text(message[: ROOMS[0][0]]), 300)
        if answer is not None and error_class is None and (titles := _titles_in(answer.value)):
            origin["documents"] = [mask_text(title) for title in titles]
    collections = _collections_of(record)
    texts = {
        "error_message": message if keep_arguments else None,
        "arguments": arguments,
        "origin": compact_json(origin) if origin else None,
        "collections": None if collections is None else compact_json(collections),
    }
    row = {
        "tool": mask_text(record.tool[:200])[:100],
        "via": record.via and record.via[:100],
        "caller": record.scope.caller[:100],
        "started_at": utc_text(datetime.fromtimestamp(record.started_at, UTC)),
        "seconds": record.seconds,
        "success": int(error_class is None),
        "argument_bytes": argument_bytes,
        "result_bytes": sum(len(_utf8(str(block.get("text") or block.get("data") or ""))) for block in blocks),
        "error_class": error_class,
        **texts,
        # A row has about 150 bytes besides its texts.
        "stored_bytes": 150 + sum(map(len, filter(None, texts.values()))),
    }
    # SQLite stores no lone surrogates.
    return {name: _utf8(value).decode() if isinstance(value, str) else value for name, value in row.items()}


def _collections_of(record: CallRecord) -> list[str] | None:
    # Those that the caller is bound to, else the one it named, else those in the answer.
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
    # Of the first documents, rules or quick starts, each once.
    records = [answer, *(record for field in answer.values() for record in (field, *list_of(field)[: 4 * MOST_TITLES]))]
    titles: dict[str, None] = {}
    for record in map(mapping_of, records):
        names = ("sourceTitle", "rule_text", "displayName", *(("title",) if "sourceType" in record else ()))
        title = next((record[name] for name in names if isinstance(record.get(name), str)), "")
        if title:
            titles[title[:100]] = None
    return tuple(titles)[:MOST_TITLES]


def _shortened(value: Any, characters: int, items: int, depth: int = 0) -> Any:
    # With `…` for what is left out: of long texts, long lists, and what is nested deeply.
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    is_object = isinstance(value, Mapping)
    if not is_object and not isinstance(value, list | tuple):
        text = str(value)
        return text if len(text) <= characters else text[:characters] + CUT
    rows = list(cast("Mapping[Any, Any]", value).items()) if is_object else list(enumerate(cast("list[Any]", value)))
    kept = rows[: items if depth < 12 else 0]
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


COLUMNS = """
    calls.id, tool, via, caller, api_keys.name, calls.collections, started_at, round(1000 * seconds, 2), success,
    argument_bytes, result_bytes, error_class, error_message, arguments, origin
"""
FIELDS = "id tool via caller keyName collections startedAt milliseconds success argumentBytes resultBytes"
TOTALS = "calls errors errorRate medianMilliseconds p95Milliseconds argumentBytes resultBytes lastAt"


def _call_of(row: Sequence[Any]) -> Json:
    *values, error_class, message, arguments, origin = row
    call: Json = dict(zip(FIELDS.split(), values, strict=True))
    success, about = call["success"] == 1, mapping_of(json_or_none(origin))
    titles = list(map(str, list_of(about.pop("documents", None))))
    return {
        **call,
        "collections": json_or_none(call["collections"]),
        "success": success,
        "error": None if success else {"class": error_class, "message": message},
        "arguments": json_or_none(arguments),
        "origin": about or None,
        "documents": titles,
    }


_NAMED = "select value from json_each(case when json_valid(calls.collections) then calls.collections end)"
_CONDITIONS = {
    "key_id": "caller = :key_id",
    "collection": f"exists (select 1 from ({_NAMED}) where value = :collection collate nocase)",
    "tool": "(tool = :tool or via = :tool)",
    "errors": "success != :errors",
    "since": "started_at >= :since",
    "words": "instr(lower(concat_ws(' ', tool, caller, arguments, origin, error_message)), lower(:words)) > 0",
    "without_caller": "caller != :without_caller",
    "own_calls": "caller = :own_calls",
    "own_collections": f"""
        calls.collections is not null
        and not exists (select 1 from ({_NAMED}) where value not in (select value from json_each(:own_collections)))
    """,
}


def _conditions(*, since: str | None = None, errors: bool = False, **chosen: Any) -> tuple[str, Json]:
    # Within what the caller may see.
    own = current_scope()
    values: Json = {
        **chosen,
        "errors": errors or None,
        "words": chosen.get("words") or None,
        "own_calls": None if "admin" in own.rights else own.caller,
        "own_collections": None if own.collections is None else json.dumps(sorted(own.collections)),
    }
    if since is not None:
        try:
            values["since"] = utc_text(utc_moment(since))
        except (TypeError, ValueError, OverflowError) as error:
            form = "write it like 2026-01-31 or 2026-01-31T12:00Z"
            raise InvalidInput(f"since: {shorten_value(since)} is no date; {form}.") from error
    bindings = without_none(values)
    return " and ".join(_CONDITIONS[name] for name in bindings) or "true", bindings
