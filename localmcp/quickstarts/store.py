"""Quick starts in the file: rows, tags, favourites, progress."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import apsw

from localmcp.quickstarts.documents import Draft, Json, Tag, read_tags
from localmcp.quickstarts.search import document_text, tagged_ids
from localmcp.storage.database import bump_generations, fetch_all, fetch_one
from localmcp.storage.migrations import utc_now
from localmcp.tools import compact_json


@dataclass(frozen=True, slots=True)
class Row:
    """A quick start as stored, with what the person did with it."""

    id: int
    name: str
    display_name: str
    description: str
    content: Json
    created_at: str
    updated_at: str
    tags: tuple[Tag, ...]
    favourite: bool
    status: str
    tasks: dict[str, str]
    """Number of the task -> done or failed."""

    def spec(self, *path: str) -> Any:
        """The value at a path below `spec`, or None."""
        value: Any = self.content.get("spec")
        for each in path:
            value = cast(Json, value).get(each) if isinstance(value, dict) else None
        return value


_COLUMNS = """
    select id, name, display_name, description, content, created_at, quickstarts.updated_at,
        (select json_group_array(json_array(kind, value) order by kind, value)
            from quickstart_tags where quickstart_id = id),
        favourite.quickstart_id is not null, coalesce(status, 'Not started'), coalesce(tasks, '{}')
    from quickstarts
    left join quickstart_favourites as favourite on favourite.quickstart_id = id
    left join quickstart_progress as progress on progress.quickstart_id = id
"""


def find_row(connection: apsw.Connection, name: str) -> Row | None:
    """The quick start of that name, or else the only one of that title."""
    rows = fetch_all(connection, f"{_COLUMNS} where name = ? and deleted_at is null", (name,)) or fetch_all(
        connection, f"{_COLUMNS} where display_name = ? collate nocase and deleted_at is null", (name.strip(),)
    )
    return _row(rows[0]) if len(rows) == 1 else None


def list_rows(
    connection: apsw.Connection, tag: str | None, favourites: bool, status: str | None, limit: int, offset: int
) -> tuple[list[Row], int]:
    """A page of the catalogue by title, and how many there are in all; limit -1 = all."""
    ids = tagged_ids(connection, tag)
    sql = f"""{_COLUMNS}
        where deleted_at is null
            and (:ids is null or id in (select value from json_each(:ids)))
            and (not :favourites or favourite.quickstart_id is not null)
            and (:status is null or coalesce(status, 'Not started') = :status)
    """
    bindings = {"ids": None if ids is None else json.dumps(ids), "favourites": favourites, "status": status}
    total: int = fetch_one(connection, f"select count(*) from ({sql})", bindings)
    rows = fetch_all(
        connection,
        f"{sql} order by display_name collate nocase, name limit :limit offset :offset",
        {**bindings, "limit": limit, "offset": offset},
    )
    return [_row(row) for row in rows], total


def count_tags(connection: apsw.Connection) -> dict[str, int]:
    """`kind:value` -> number of quick starts, the most frequent first."""
    rows = fetch_all(
        connection,
        """
        select kind || ':' || value, count(*) from quickstart_tags
        join quickstarts on id = quickstart_id where deleted_at is null
        group by 1 order by 2 desc, 1
        """,
    )
    return dict(rows)


def names(connection: apsw.Connection) -> list[str]:
    """The names of all quick starts."""
    return [name for (name,) in fetch_all(connection, "select name from quickstarts where deleted_at is null")]


def _row(columns: Sequence[Any]) -> Row:
    identity, name, title, description, content, created, updated, tags, favourite, status, tasks = columns
    return Row(
        id=identity,
        name=name,
        display_name=title,
        description=description,
        content=_read_content(content),
        created_at=created,
        updated_at=updated,
        tags=tuple((kind, value) for kind, value in json.loads(tags)),
        favourite=bool(favourite),
        status=status,
        tasks=json.loads(tasks),
    )


def _read_content(text: str) -> Json:
    """A row whose content was broken by someone else survives, empty (S0-8)."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return cast(Json, content) if isinstance(content, dict) else {}


def own_name(content: Json) -> str | None:
    """The name that a document itself carries."""
    metadata = content.get("metadata")
    return cast(Json, metadata).get("name") if isinstance(metadata, dict) else None


def tags_of(content: Json) -> tuple[Tag, ...]:
    """The tags that a document itself carries, sorted as rows have them."""
    metadata = content.get("metadata")
    return tuple(sorted(read_tags(cast(Json, metadata).get("tags")))) if isinstance(metadata, dict) else ()


# ---------------------------------------------------------------- writing


def put_quickstarts(connection: apsw.Connection, drafts: Iterable[Draft]) -> Counter[str]:
    """Add or update by name; counts `added`, `updated` and `unchanged`."""
    counts: Counter[str] = Counter(_put(connection, draft) for draft in drafts)
    if counts["added"] or counts["updated"]:
        bump_generations(connection, "quickstarts")
    return counts


def _put(connection: apsw.Connection, draft: Draft) -> str:
    content, now = compact_json(draft.content), utc_now()
    sql = "select id, content, deleted_at from quickstarts where name = ?"
    known = fetch_one(connection, sql, (draft.name,))
    if known is None:
        identity = _insert(connection, draft, content, now)
        _index(connection, identity, draft)
        return "added"
    identity, stored, deleted_at = known
    same_tags = set(_tags(connection, identity)) == set(draft.tags)
    if stored == content and same_tags and deleted_at is None:
        return "unchanged"
    connection.execute(
        "update quickstarts set content = ?, updated_at = ?, deleted_at = null where id = ?", (content, now, identity)
    )
    connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
    _index(connection, identity, draft)
    return "updated" if deleted_at is None else "added"


def _insert(connection: apsw.Connection, draft: Draft, content: str, now: str) -> int:
    wanted = draft.id
    if wanted is not None and fetch_one(connection, "select 1 from quickstarts where id = ?", (wanted,)):
        wanted = None
    connection.execute(
        "insert into quickstarts (id, name, created_at, updated_at, content) values (?, ?, ?, ?, ?)",
        (wanted, draft.name, now, now, content),
    )
    return connection.last_insert_rowid()


def _index(connection: apsw.Connection, identity: int, draft: Draft) -> None:
    """Write the tags and the words of the whole document."""
    connection.execute("delete from quickstart_tags where quickstart_id = ?", (identity,))
    for kind, value in draft.tags:
        connection.execute("insert into quickstart_tags values (?, ?, ?)", (identity, kind, value))
    texts = [draft.name, *(value for _, value in draft.tags), *_texts(draft.content.get("spec"))]
    connection.execute("insert into quickstarts_fts (rowid, text) values (?, ?)", (identity, document_text(texts)))


_NOT_TEXT = frozenset(("icon", "version", "accessReviewResources", "href", "color"))


def _texts(value: Any) -> Iterable[str]:
    """Every text of a document that a person reads."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in cast(Json, value).items():
            if key not in _NOT_TEXT:
                yield from _texts(each)


def _tags(connection: apsw.Connection, identity: int) -> list[Tag]:
    return fetch_all(connection, "select kind, value from quickstart_tags where quickstart_id = ?", (identity,))


def remove_quickstarts(connection: apsw.Connection, ids: Iterable[int]) -> None:
    """Take quick starts out of the catalogue; the rows stay, so that importing again revives them."""
    for identity in ids:
        connection.execute("update quickstarts set deleted_at = ? where id = ?", (utc_now(), identity))
        connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
    bump_generations(connection, "quickstarts")


def set_favourite(connection: apsw.Connection, identity: int, favourite: bool) -> None:
    """Mark or unmark."""
    if favourite:
        sql = "insert into quickstart_favourites values (?, ?) on conflict do nothing"
        connection.execute(sql, (identity, utc_now()))
    else:
        connection.execute("delete from quickstart_favourites where quickstart_id = ?", (identity,))


def set_progress(connection: apsw.Connection, identity: int, status: str, tasks: dict[str, str]) -> None:
    """Write the status and the state of each task; `Not started` is the absence of a row."""
    connection.execute("delete from quickstart_progress where quickstart_id = ?", (identity,))
    if status != "Not started":
        connection.execute(
            "insert into quickstart_progress values (?, ?, ?, ?)", (identity, status, json.dumps(tasks), utc_now())
        )
