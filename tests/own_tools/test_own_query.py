"""SQL as tools: rows and their limits, and everything a statement may not do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tool_manifests import problems_of, tool_names, write_tool

from localmcp.errors import AccessDenied, InvalidInput, Unavailable
from localmcp.tools import Answer, Scope
from localmcp.workspace import Workspace

ANYTHING = """
kind = "query"
description = "Whatever is asked."
timeout = 0.3
max_rows = 3
database = {database}
sql = '''{sql}'''
"""


@pytest.fixture(name="workspace")
def filled_workspace(workspace: Workspace) -> Workspace:
    workspace.library.add_text("Bees live in hives.", title="Bees")
    workspace.library.add_text("Roses have thorns.", title="Roses")
    return workspace


@pytest.fixture
def books(tmp_path: Path) -> Path:
    path = tmp_path / "books.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            create table books (id integer primary key, title text, price real, cover blob);
            insert into books values (1, 'Emma', 8.5, x'00ff'), (2, 'Ulysses', 12, null), (3, 'Dune', 9, null),
                (4, 'Iliad', 7, null);
            create table calls (number text);
            insert into calls values ('555-1234');
            """
        )
    connection.close()
    return path


def ask(workspace: Workspace, sql: str, database: str | Path = "localmcp", more: str = "", **given: Any) -> Answer:
    write_tool("it", ANYTHING.format(sql=sql, database=repr(str(database))) + more)
    return workspace.registry.call("it", given)


# ---------------------------------------------------------------- rows


def test_rows_come_with_their_columns(workspace: Workspace) -> None:
    answer = ask(workspace, "select title, length(title) as letters from sources order by title")
    assert answer.value == {
        "columns": ["title", "letters"],
        "rows": [["Bees", 4], ["Roses", 5]],
        "rowCount": 2,
        "truncated": False,
    }


def test_more_rows_or_bytes_than_allowed_are_cut_and_said(workspace: Workspace, books: Path) -> None:
    value = ask(workspace, "select id from books order by id", books).value
    assert (value["rows"], value["truncated"]) == ([[1], [2], [3]], True)
    assert ask(workspace, "select id from books limit 3", books).value["truncated"] is False
    value = ask(workspace, "select printf('%.*c', 300000, 'x') from books", books).value
    assert (value["rowCount"], value["truncated"]) == (1, True)


def test_parameters_are_bound_never_pasted(workspace: Workspace, books: Path) -> None:
    more = '[parameters.title]\nrequired = true\n[parameters.most]\ntype = "number"\n'
    sql = "select id from books where title = :title and (:most is null or price < :most)"
    assert ask(workspace, sql, books, more, title="Emma").value["rows"] == [[1]]
    assert ask(workspace, sql, books, more, title="Emma", most=8).value["rows"] == []
    assert ask(workspace, sql, books, more, title="' or 1=1 --").value["rows"] == []


# ---------------------------------------------------------------- what a statement may not do


WRITES = (
    "delete from sources",
    "insert into sources (title) values ('x') returning 1",
    "update sources set title = 'x' returning title",
    "create table x (y)",
    "create temp table x (y)",
    "drop table sources",
    "pragma table_info(sources)",
    "pragma query_only = off",
    "select * from pragma_database_list",
    "attach '/tmp/x.db' as x",
    "vacuum into '/tmp/x.db'",
    "begin",
    "reindex",
    "select load_extension('x')",
    "select 1; select 2",
    "select 1; delete from sources",
    "",
    "-- nothing",
    "select nothing from nowhere",
)


@pytest.mark.parametrize("file", ["localmcp", "books"])
def test_a_statement_can_only_read(workspace: Workspace, books: Path, file: str) -> None:
    before = books.read_bytes()
    for sql in WRITES:
        with pytest.raises(InvalidInput):
            ask(workspace, sql, books if file == "books" else "localmcp")
        assert any(": error: " in each for each in problems_of(workspace))
    assert books.read_bytes() == before
    assert workspace.knowledge.get_stats()["totalSources"] == 2


READS = (
    "select * from {}",
    "select count(*) from {}",
    "select rowid from {}",
    "select 1 where exists (select 1 from {})",
    "select * from (select * from {})",
    "with x as (select * from {}) select * from x",
    "select title, (select count(*) from {}) from sources",
    "select 1 union all select count(*) from {}",
)


def test_keys_and_calls_of_a_localmcp_file_are_out_of_reach_by_its_path_too(workspace: Workspace) -> None:
    for sql in READS:
        for table in ("api_keys", "calls", "API_KEYS", "sqlite_stat1", "sqlite_dbpage"):
            with pytest.raises(InvalidInput):
                ask(workspace, sql.format(table))
        with pytest.raises(InvalidInput):
            ask(workspace, sql.format("api_keys"), workspace.database.path)


def test_a_statement_without_end_is_stopped_and_none_fills_the_memory(workspace: Workspace) -> None:
    endless = "with recursive n (x) as (select 1 union all select x + 1 from n) select count(*) from n"
    with pytest.raises(Unavailable, match=r"took longer than 0\.3 s"):
        ask(workspace, endless)
    with pytest.raises(InvalidInput, match="too big"):
        ask(workspace, "select length(replace(printf('%.*c', 10000000, 'x'), 'x', 'yyyyyyyyyy'))")


def test_the_file_is_never_made(workspace: Workspace, tmp_path: Path) -> None:
    missing = tmp_path / "missing.sqlite"
    with pytest.raises(Unavailable, match="does not exist"):
        ask(workspace, "select 1", missing)
    assert not missing.exists()
    assert any("warning: The database" in each for each in problems_of(workspace))


# ---------------------------------------------------------------- who may ask


def test_a_caller_bound_to_collections_is_refused_queries_over_the_localmcp_file(
    workspace: Workspace, books: Path
) -> None:
    write_tool("ours", ANYTHING.format(sql="select title from sources", database="'localmcp'"))
    write_tool("by_path", ANYTHING.format(sql="select 1", database=repr(str(workspace.database.path))))
    write_tool("theirs", ANYTHING.format(sql="select title from books", database=repr(str(books))))
    bound = Scope(collections=frozenset({"default"}))
    for name in ("ours", "by_path"):
        with pytest.raises(AccessDenied, match="every collection"):
            workspace.registry.call(name, {}, bound)
    assert workspace.registry.call("theirs", {}, bound).value["rowCount"] == 3
    assert tool_names(workspace) == {"ours", "by_path", "theirs"}


def test_a_query_is_read_only_and_idempotent_without_saying_so(workspace: Workspace) -> None:
    write_tool("ours", ANYTHING.format(sql="select 1", database="'localmcp'"))
    mark = workspace.registry.get("ours").mark
    assert (mark.read_only, mark.destructive, mark.idempotent, mark.open_world) == (True, False, True, False)


# ---------------------------------------------------------------- check


@pytest.mark.parametrize(
    ("sql", "more", "said"),
    [
        ("select :a", "", ":7: error: :a must be both in sql and in [parameters.a]."),
        ("select 1", "[parameters.title]\n", ":8: error: :title must be both in sql and in [parameters.title]."),
        ("selec 1", "", ':7: error: The statement cannot be run: near "selec": syntax error.'),
    ],
)
def test_check_compares_the_statement_with_its_parameters(workspace: Workspace, sql: str, more: str, said: str) -> None:
    write_tool("it", ANYTHING.format(sql=sql, database="'localmcp'") + more)
    assert any(said in each for each in problems_of(workspace)), problems_of(workspace)
