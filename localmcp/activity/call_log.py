"""The log of calls: observes the registry for every interface, writes late, prunes itself, and is read back."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

import apsw

from localmcp.activity.entries import COLUMNS, LogEntry, LogPage, Statistics, Usage, note, row
from localmcp.errors import CallGivenUp, Interrupted, InvalidInput
from localmcp.schemas import shorten_value, without_none
from localmcp.storage.database import Database, fetch_all, fetch_one, insert_row
from localmcp.storage.times import utc_moment, utc_now, utc_text
from localmcp.storage.write_behind import WriteBehind
from localmcp.tools import CallRecord, Json, current_scope

log = logging.getLogger(__name__)

MOST_ENTRIES = 1000
SIZE_CHECKED_EVERY = 200
"""Calls between two looks at the size of the log."""
PRUNED_AT_ONCE = 5000
"""Rows deleted in one transaction at most, so that nobody waits long for the file."""


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

    def note_call(self, record: CallRecord) -> None:
        """Take a finished call, as an observer of the registry; it is written within about a second."""
        # A query that was stopped because the person typed on is neither a call nor an error.
        stopped = isinstance(record.error, Interrupted) and not isinstance(record.error, CallGivenUp)
        if self._kept == "none" or stopped:
            return
        now = time.perf_counter()
        try:
            noted = note(record)
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

    def flush(self) -> None:
        """Write what waits now, if the file can be written."""
        self._writer.flush()

    def close(self) -> None:
        """Write what waits, within half a second, and take no more."""
        self._writer.close()

    def _store(self, connection: apsw.Connection, calls: list[Json]) -> None:
        for call in calls:
            insert_row(connection, "calls", row(call, keep_arguments=self._kept == "all"))
        oldest = utc_now(86_400 * self._days)
        connection.execute(
            "delete from calls where id in (select id from calls where started_at < ? order by started_at limit ?)",
            (oldest, PRUNED_AT_ONCE),
        )
        last = connection.last_insert_rowid()
        if (last - len(calls)) // SIZE_CHECKED_EVERY == last // SIZE_CHECKED_EVERY:
            return
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

    def logs(self, *, limit: int = 50, offset: int = 0, **chosen: Any) -> LogPage:
        """Return calls, the latest first.

        Args:
            limit: 1..1000.
            offset: how many of the latest to skip.
            chosen: which calls: `key_id` (the id of a key, or `cli`, `tui`, `stdio`), `collection` (its keys bound to
                it, or that named it), `tool` (or what was run through it), `errors` (only calls that failed), `since`
                (ISO 8601; UTC where there is no offset), `after` (a greater id), `words` (that the tool, arguments,
                caller, documents or error hold, in any case), `without_caller`.

        Raises:
            InvalidInput: a value that cannot be used.
            FileUnavailable: the file cannot be read.
        """
        if not 1 <= limit <= MOST_ENTRIES:
            raise InvalidInput(f"limit: {limit} is not between 1 and {MOST_ENTRIES}.")
        if not 0 <= offset < 2**63:
            raise InvalidInput(f"offset: {offset} must be 0 or more.")
        where, values = _conditions(**chosen)
        self.flush()
        if not self._database.path.exists():
            return LogPage([], 0)
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
        return LogPage([LogEntry.from_row(row) for row in rows], total)

    def stats(self, **chosen: Any) -> Statistics:
        """Return what the calls add up to, by tool and by caller; arguments and errors are those of `logs`."""
        where, values = _conditions(**chosen)
        self.flush()
        if not self._database.path.exists():
            return Statistics([], [])
        with self._database.read() as connection:
            return Statistics(_usage(connection, "tool", where, values), _usage(connection, "caller", where, values))


def _usage(connection: apsw.Connection, by: str, where: str, values: Json) -> list[Usage]:
    """Return the usage by tool or caller; a percentile is the smallest duration that so many calls did not exceed."""
    rows = fetch_all(
        connection,
        f"""
        with ranked as (
            select *, {by} as of, row_number() over (partition by {by} order by seconds) as place,
                   count(*) over (partition by {by}) as many
            from calls where {where}
        )
        select of, api_keys.name, many, sum(1 - success),
               min(case when place >= 0.5 * many then seconds end),
               min(case when place >= 0.95 * many then seconds end),
               sum(argument_bytes), sum(result_bytes), max(started_at)
        from ranked left join api_keys on api_keys.id = of
        group by of order by many desc, of
        """,
        values,
    )
    return [Usage(*row) for row in rows]


_NAMED = "select value from json_each(case when json_valid(calls.collections) then calls.collections end)"
_CONDITIONS = {
    "key_id": "caller = :key_id",
    "collection": f"exists (select 1 from ({_NAMED}) where value = :collection collate nocase)",
    "tool": "(tool = :tool or via = :tool)",
    "errors": "success != :errors",
    "since": "started_at >= :since",
    "after": "calls.id > :after",
    "words": "instr(lower(concat_ws(' ', tool, caller, arguments, origin, error_message)), lower(:words)) > 0",
    "without_caller": "caller != :without_caller",
    "own_calls": "caller = :own_calls",
    "own_collections": f"""
        calls.collections is not null
        and not exists (select 1 from ({_NAMED}) where value not in (select value from json_each(:own_collections)))
    """,
}


def _conditions(*, since: str | None = None, errors: bool = False, **chosen: Any) -> tuple[str, Json]:
    """Return the SQL that chooses calls, and its bindings, within what the caller may see."""
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
