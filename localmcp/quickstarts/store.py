"""Quick starts in the file: rows, tags, and the index of whole documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import apsw

from localmcp.index.federation import shown_name
from localmcp.quickstarts.documents import Draft, Tag, Unreadable, read_content
from localmcp.quickstarts.search import tagged_ids
from localmcp.schemas import Json, mapping_of
from localmcp.storage.database import (
    TrashEntry,
    bump_generations,
    fetch_all,
    fetch_column,
    fetch_one,
    put_into_trash,
    read_trashed,
)
from localmcp.storage.schema import utc_now
from localmcp.tools import compact_json
from localmcp.wording.normalize import index_text


@dataclass(frozen=True, slots=True)
class Row:
    """A quick start as stored."""

    id: int
    name: str
    display_name: str
    description: str
    content: Json
    created_at: str
    updated_at: str
    tags: tuple[Tag, ...]
    origin: str | None = None
    """The mounted file that it is in."""

    @property
    def shown_name(self) -> str:
        return shown_name(self.name, self.origin)


_COLUMNS = """
    select id, name, display_name, description, content, created_at, updated_at,
        (select json_group_array(json_array(kind, value) order by kind, value)
            from quickstart_tags where quickstart_id = id)
    from quickstarts
"""
_SOUND = "length(content) <= 1000000 and iif(json_valid(content), json_type(content) = 'object', 0)"
"""Rows of a mounted file are untrusted: what cannot be a quick start is skipped."""


# ---------------------------------------------------------------- reading


def find_row(connection: apsw.Connection, name: str, origin: str | None = None) -> Row | None:
    """Return the quick start of that name, or else the only one of that title.

    An empty title names nothing: broken content has one (S0-8). `origin` is the mounted file's name.
    """
    there = f"deleted_at is null and {_SOUND if origin else '1'}"
    rows = fetch_all(connection, f"{_COLUMNS} where name = ? and {there}", (name,))
    if not rows and (title := name.strip()):
        rows = fetch_all(connection, f"{_COLUMNS} where display_name = ? collate nocase and {there}", (title,))
    return _row(rows[0], origin) if len(rows) == 1 else None


def list_rows(
    connection: apsw.Connection, tag: str | None, limit: int, offset: int = 0,
    *, origin: str | None = None, without: Sequence[str] = (),
) -> tuple[list[Row], int]:  # fmt: skip
    """Return a page by title (-1 = all), and how many there are in all; `without` those names.

    `origin` is the mounted file's name.
    """
    ids = tagged_ids(connection, tag)
    sql = f"""{_COLUMNS}
        where deleted_at is null and {_SOUND if origin else "1"}
            and (:ids is null or id in (select value from json_each(:ids)))
            and name not in (select value from json_each(:without))
    """
    bindings: Json = {"ids": None if ids is None else json.dumps(ids), "without": json.dumps(without)}
    total: int = fetch_one(connection, f"select count(*) from ({sql})", bindings)
    page = f"{sql} order by display_name collate nocase, name limit :limit offset :offset"
    rows = fetch_all(connection, page, {**bindings, "limit": limit, "offset": offset})
    return [_row(row, origin) for row in rows], total


def count_tags(connection: apsw.Connection, without: Sequence[str] = ()) -> Counter[str]:
    """`kind:value` -> number of quick starts, `without` those names."""
    sql = """
        select kind || ':' || value, count(*) from quickstart_tags join quickstarts on id = quickstart_id
        where deleted_at is null and name not in (select value from json_each(?)) group by 1
    """
    return Counter(dict(fetch_all(connection, sql, (json.dumps(without),))))


def contents(connection: apsw.Connection, names: Iterable[str]) -> dict[str, Json]:
    """Return name -> content of those that are there and readable, to compare files with each other."""
    sql = f"""
        select name, content from quickstarts
        where deleted_at is null and {_SOUND} and name in (select value from json_each(?))
    """
    rows = fetch_all(connection, sql, (json.dumps(list(names)),))
    return {name: content for name, text in rows if (content := _read_untrusted(text))}


def names(connection: apsw.Connection) -> list[str]:
    """Return the names of all quick starts."""
    return fetch_column(connection, "select name from quickstarts where deleted_at is null")


def _row(columns: Sequence[Any], origin: str | None) -> Row:
    identity, name, title, description, content, created, updated, tags = columns
    pairs: list[list[Any]] = json.loads(tags)
    texts = [title, description, created, updated, *(word for pair in pairs for word in pair)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the quick start {name} is no text")
    document = _read_untrusted(content) if origin else _read_content(content)
    read_tags = tuple((kind, value) for kind, value in pairs)
    return Row(identity, name, title, description, document, created, updated, read_tags, origin)


def _read_content(text: str) -> Json:
    """Return the content of a row; empty when it is broken (S0-8)."""
    try:
        return mapping_of(json.loads(text))
    except json.JSONDecodeError:
        return {}


def _read_untrusted(text: str) -> Json:
    """Return the same for a row of a mounted file, or to be compared with one."""
    try:
        return read_content(text)
    except Unreadable:
        return {}


# ---------------------------------------------------------------- writing


def put_quickstarts(connection: apsw.Connection, drafts: Iterable[Draft]) -> Counter[str]:
    """Add or update by name; counts `added`, `updated` and `unchanged`."""
    counts: Counter[str] = Counter(_put(connection, draft) for draft in drafts)
    if counts["added"] or counts["updated"]:
        bump_generations(connection, "quickstarts")
    return counts


def _put(connection: apsw.Connection, draft: Draft) -> str:
    content, now = compact_json(draft.content), utc_now()
    stored = fetch_one(connection, "select id, content, deleted_at from quickstarts where name = ?", (draft.name,))
    if stored is None:
        sql = "insert into quickstarts (name, created_at, updated_at, content) values (?, ?, ?, ?)"
        connection.execute(sql, (draft.name, now, now, content))
        identity, deleted_at = connection.last_insert_rowid(), now
    else:
        identity, stored_content, deleted_at = stored
        if deleted_at is None:
            if stored_content == content and set(_tags(connection, identity)) == set(draft.tags):
                return "unchanged"
            _put_into_trash(connection, identity)
        sql = "update quickstarts set content = ?, updated_at = ?, deleted_at = null where id = ?"
        connection.execute(sql, (content, now, identity))
        connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
        connection.execute("delete from quickstart_tags where quickstart_id = ?", (identity,))
    rows = [(identity, kind, value) for kind, value in draft.tags]
    connection.executemany("insert into quickstart_tags values (?, ?, ?)", rows)
    _index(connection, identity, draft.name, draft.content)
    return "updated" if deleted_at is None else "added"


def rebuild_index(connection: apsw.Connection) -> None:
    """Make the index of the words of whole documents again. Part of the caller's write transaction."""
    connection.execute("insert into quickstarts_fts (quickstarts_fts) values ('delete-all')")
    sql = f"select id, name, content from quickstarts where deleted_at is null and {_SOUND}"
    for identity, name, content in fetch_all(connection, sql):
        _index(connection, identity, name, json.loads(content))
    bump_generations(connection, "quickstarts")


def _index(connection: apsw.Connection, identity: int, name: str, content: Json) -> None:
    """Write the words of a whole document: stems, so that forms of a word meet."""
    texts = [name, *(value for _, value in _tags(connection, identity)), *_texts(content.get("spec"))]
    sql = "insert into quickstarts_fts (rowid, text) values (?, ?)"
    connection.execute(sql, (identity, index_text("\n".join(texts), "english")))


def _tags(connection: apsw.Connection, identity: int) -> list[Tag]:
    return fetch_all(connection, "select kind, value from quickstart_tags where quickstart_id = ?", (identity,))


_NOT_TEXT = frozenset(("icon", "version", "accessReviewResources", "href", "color"))


def _texts(value: Any) -> Iterable[str]:
    """Return every text of a document that a person reads."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for nested in cast("list[Any]", value):
            yield from _texts(nested)
    elif isinstance(value, dict):
        for key, nested in cast(Json, value).items():
            if key not in _NOT_TEXT:
                yield from _texts(nested)


def remove_quickstarts(connection: apsw.Connection, ids: Iterable[int]) -> None:
    """Put quick starts into the trash; the rows stay, so that importing again revives them, too."""
    for identity in ids:
        _put_into_trash(connection, identity)
        connection.execute("update quickstarts set deleted_at = ? where id = ?", (utc_now(), identity))
        connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
    bump_generations(connection, "quickstarts")


def _put_into_trash(connection: apsw.Connection, identity: int) -> None:
    sql = "select name, content, updated_at from quickstarts where id = ?"
    [(name, content, updated_at)] = fetch_all(connection, sql, (identity,))
    tags = _tags(connection, identity)
    put_into_trash(connection, "quick start", name, {"content": content, "tags": tags, "updated_at": updated_at})


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a quick start back from the trash; the version that is there meanwhile goes there."""
    trashed = read_trashed(connection, entry)
    tags = tuple((kind, value) for kind, value in trashed["tags"])
    put_quickstarts(connection, [Draft(name=entry.name, content=_read_content(trashed["content"]), tags=tags)])
    # As it was, also where it cannot be read.
    sql = "update quickstarts set content = ?, updated_at = ? where name = ?"
    connection.execute(sql, (trashed["content"], trashed["updated_at"], entry.name))
