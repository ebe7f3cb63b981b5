"""Quick starts in the file: rows and tags."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, cast

import apsw

from localmcp.index.federation import shown_name
from localmcp.quickstarts.documents import Draft, Json, Tag, Unreadable, read_content, read_tags
from localmcp.quickstarts.search import document_text, tagged_ids
from localmcp.schemas import mapping_of
from localmcp.storage.database import bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.storage.times import utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed
from localmcp.tools import compact_json


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


def find_row(connection: apsw.Connection, name: str, origin: str | None = None) -> Row | None:
    """Return the quick start of that name, or else the only one of that title.

    An empty title names nothing: broken content has one (S0-8). `origin` is the mounted file's name.
    """
    there = f"deleted_at is null and {_SOUND if origin else '1'}"
    rows = fetch_all(connection, f"{_COLUMNS} where name = ? and {there}", (name,))
    if not rows and (title := name.strip()):
        rows = fetch_all(connection, f"{_COLUMNS} where display_name = ? collate nocase and {there}", (title,))
    return _row(rows[0], origin) if len(rows) == 1 else None


def list_rows(connection: apsw.Connection, tag: str | None, limit: int, offset: int) -> tuple[list[Row], int]:
    """Return a page of the catalog by title, and how many there are in all; limit -1 = all."""
    return _page(connection, tag, "1", {}, limit, offset)


def list_mounted_rows(
    connection: apsw.Connection, origin: str, tag: str | None, without: Iterable[str], limit: int
) -> tuple[list[Row], int]:
    """Return the first of a mounted file's catalog by title, and how many there are.

    Names in `without` do not count.
    """
    which = f"{_SOUND} and name not in (select value from json_each(:without))"
    return _page(connection, tag, which, {"without": json.dumps(list(without))}, limit, 0, origin)


def _page(
    connection: apsw.Connection, tag: str | None, which: str, bindings: Json, limit: int, offset: int,
    origin: str | None = None,
) -> tuple[list[Row], int]:  # fmt: skip
    ids = tagged_ids(connection, tag)
    sql = f"""{_COLUMNS}
        where deleted_at is null and (:ids is null or id in (select value from json_each(:ids))) and {which}
    """
    bindings |= {"ids": None if ids is None else json.dumps(ids)}
    total: int = fetch_one(connection, f"select count(*) from ({sql})", bindings)
    page = f"{sql} order by display_name collate nocase, name limit :limit offset :offset"
    rows = fetch_all(connection, page, {**bindings, "limit": limit, "offset": offset})
    return [_row(row, origin) for row in rows], total


_ASCII_CASE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def merged_by_title(files: Iterable[Iterable[Row]]) -> Iterator[Row]:
    """Yield the rows of several files, each in the order of its list, in that order."""
    return merge(*files, key=lambda row: (row.display_name.translate(_ASCII_CASE), row.name))


def count_tags(connection: apsw.Connection, without: Sequence[str] = ()) -> dict[str, int]:
    """`kind:value` -> number of quick starts, `without` those names; the most frequent first."""
    others = "and name not in (select value from json_each(?))" if without else ""
    rows = fetch_all(
        connection,
        f"""
        select kind || ':' || value, count(*) from quickstart_tags
        join quickstarts on id = quickstart_id where deleted_at is null {others}
        group by 1 order by 2 desc, 1
        """,
        (json.dumps(without),) if without else (),
    )
    return dict(rows)


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


def _row(columns: Sequence[Any], origin: str | None = None) -> Row:
    identity, name, title, description, content, created, updated, tags = columns
    if origin is not None:
        if not all(isinstance(column, str) for column in (title, description, created, updated)):
            raise TypeError(f"the quick start {name} is no text")
    document = _read_content(content) if origin is None else _read_untrusted(content)
    read: list[list[Any]] = json.loads(tags)
    if not all(isinstance(word, str) for pair in read for word in pair):
        raise TypeError(f"a tag of the quick start {name} is no text")
    pairs: tuple[Tag, ...] = tuple((kind, value) for kind, value in read)
    texts = (name, title, description, document, created, updated)
    return Row(identity, *texts, pairs, origin)


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


def own_name(content: Json) -> str | None:
    """Return the name that a document itself carries."""
    return mapping_of(content.get("metadata")).get("name")


def tags_of(content: Json) -> tuple[Tag, ...]:
    """Return the tags that a document itself carries, sorted as rows have them."""
    return tuple(sorted(read_tags(mapping_of(content.get("metadata")).get("tags"))))


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
    stored_row = fetch_one(connection, sql, (draft.name,))
    if stored_row is None:
        identity = _insert(connection, draft, content, now)
        _index(connection, identity, draft)
        return "added"
    identity, stored, deleted_at = stored_row
    tags = fetch_all(connection, "select kind, value from quickstart_tags where quickstart_id = ?", (identity,))
    same_tags = set(tags) == set(draft.tags)
    if stored == content and same_tags and deleted_at is None:
        return "unchanged"
    if deleted_at is None:
        _put_into_trash(connection, identity)
    connection.execute(
        "update quickstarts set content = ?, updated_at = ?, deleted_at = null where id = ?", (content, now, identity)
    )
    connection.execute("delete from quickstarts_fts where rowid = ?", (identity,))
    _index(connection, identity, draft)
    return "updated" if deleted_at is None else "added"


def _insert(connection: apsw.Connection, draft: Draft, content: str, now: str) -> int:
    requested_id = draft.id
    if requested_id is not None and fetch_one(connection, "select 1 from quickstarts where id = ?", (requested_id,)):
        requested_id = None
    connection.execute(
        "insert into quickstarts (id, name, created_at, updated_at, content) values (?, ?, ?, ?, ?)",
        (requested_id, draft.name, now, now, content),
    )
    return connection.last_insert_rowid()


def _index(connection: apsw.Connection, identity: int, draft: Draft) -> None:
    """Write the tags and the words of the whole document."""
    connection.execute("delete from quickstart_tags where quickstart_id = ?", (identity,))
    for kind, value in draft.tags:
        connection.execute("insert into quickstart_tags values (?, ?, ?)", (identity, kind, value))
    texts = [draft.name, *(value for _, value in draft.tags), *_texts(draft.content.get("spec"))]
    _index_texts(connection, identity, texts)


def rebuild_index(connection: apsw.Connection) -> None:
    """Make the index of the words of whole documents again. Part of the caller's write transaction."""
    connection.execute("insert into quickstarts_fts (quickstarts_fts) values ('delete-all')")
    sql = f"select id, name, content from quickstarts where deleted_at is null and {_SOUND}"
    for identity, name, content in fetch_all(connection, sql):
        tags = fetch_column(connection, "select value from quickstart_tags where quickstart_id = ?", (identity,))
        _index_texts(connection, identity, [name, *tags, *_texts(json.loads(content).get("spec"))])
    bump_generations(connection, "quickstarts")


def _index_texts(connection: apsw.Connection, identity: int, texts: Iterable[str]) -> None:
    connection.execute("insert into quickstarts_fts (rowid, text) values (?, ?)", (identity, document_text(texts)))


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
    tags = fetch_all(connection, "select kind, value from quickstart_tags where quickstart_id = ?", (identity,))
    put_into_trash(connection, "quick start", name, {"content": content, "tags": tags, "updated_at": updated_at})


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a quick start back from the trash; the version that is there meanwhile goes there."""
    trashed = read_trashed(connection, entry)
    tags = tuple((kind, value) for kind, value in trashed["tags"])
    put_quickstarts(connection, [Draft(name=entry.name, content=_read_content(trashed["content"]), tags=tags)])
    # As it was, also where it cannot be read.
    sql = "update quickstarts set content = ?, updated_at = ? where name = ?"
    connection.execute(sql, (trashed["content"], trashed["updated_at"], entry.name))
