"""The index of paths: which documents have some letters in a row in their path, without reading every path."""

from __future__ import annotations

import apsw

PATHS_VERSION = 12
"""Files of an older schema, which may be mounted read-only, have no such index."""
_FILL = "insert into paths_fts (rowid, path) select id, uri from sources where uri is not null"


def make_path_index(connection: apsw.Connection) -> None:
    """Index the paths of documents by every three letters in a row."""
    # Contentless: that a foreign file indexes a document which is not there is no error.
    connection.execute("""
        create virtual table paths_fts using fts5 (
            path, content = '', contentless_delete = 1, tokenize = 'trigram', detail = none
        )
    """)
    connection.execute(_FILL)


def refill_path_index(connection: apsw.Connection) -> None:
    """Make the index of paths again. Part of the caller's write transaction."""
    connection.execute("insert into paths_fts (paths_fts) values ('delete-all')")
    connection.execute(_FILL)


def index_path(connection: apsw.Connection, source_id: int, path: str | None) -> None:
    """Index the path of a document instead of the one before; None takes it out. Part of the write transaction."""
    if path is None:
        connection.execute("delete from paths_fts where rowid = ?", (source_id,))
        return
    connection.execute("insert or replace into paths_fts (rowid, path) values (?, ?)", (source_id, path))
