"""Files as a stranger may give them: objects, rows and pages that are not ours, in a pack that else is sound."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from pathlib import Path

import apsw

from localmcp.config import Settings
from localmcp.packs.pack import write_pack
from localmcp.tools import Scope
from localmcp.workspace import Workspace

ENDLESS = "instr(cast(hex(zeroblob(3900000)) as blob), cast(hex(zeroblob(1900000)) || 1 as blob))"
"""An expression that takes an hour in one step of SQLite, which no handler of progress ends."""
COUNTING = "(with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n)"


def as_text(table: str, old: str, new: str) -> str:
    """Return the statements that change the text of a schema as no SQLite would."""
    return f"""
        pragma writable_schema = on;
        update sqlite_schema set sql = replace(sql, '{old}', '{new}') where name = '{table}';
    """


def added(kind: str, name: str, sql: str, rootpage: str = "0") -> str:
    return f"""
        pragma writable_schema = on;
        insert into sqlite_schema (type, name, tbl_name, rootpage, sql)
            values ('{kind}', '{name}', '{name}', {rootpage}, '{sql.replace("'", "''")}');
    """


SQL = {
    "tables": """
        create table extra (a default (abs(-9223372036854775807)), b as (1) stored);
        create table second (a primary key) without rowid;
        create table third (a text not null) strict;
        create table fourth (a references sources (id) on delete cascade);
        create table fifth (a references nowhere (id));
        create table chunks_fts_extra (a);
        insert into extra (a) values (1);
    """,
    "a table with an endless check": "create table extra (a); insert into extra values (1); "
    + as_text("extra", "(a)", f"(a check ({ENDLESS}))"),
    "a table with an endless generated column": "create table extra (a, b as (1)); insert into extra values (1); "
    + as_text("extra", "(1)", f"({ENDLESS})"),
    "a table with an unknown collation": "create table extra (a); " + as_text("extra", "(a)", "(a collate evil)"),
    "a table that documents cannot leave": "create table extra (a references sources (id) on delete restrict); "
    "insert into extra select id from sources",
    "a table on the pages of another": added(
        "table", "extra", "create table extra (a)", "(select rootpage from sqlite_schema where name = 'chunks')"
    ),
    "a table without pages": added("table", "extra", "create table extra (a)", rootpage="999999"),
    "indexes": """
        create index extra on sources (title);
        create unique index second on sources (uuid, title);
        create unique index third on rules (length(category) > 0, id);
        create index fourth on sources (title) where size > 0;
        create index fifth on sources (lower(title));
        analyze;
    """,
    "an index that refuses new rows": "create unique index extra on collections (kind) where kind = 'other'",
    "an index with an endless condition": "create index extra on sources (title) where 1; "
    + as_text("extra", "1", ENDLESS),
    "an index of an endless expression": "create index extra on sources (lower(title)); "
    + as_text("extra", "lower(title)", ENDLESS),
    "an index with an unknown collation": "create index extra on sources (title); "
    + as_text("extra", "(title)", "(title collate evil)"),
    "an index of ours that is another": as_text("sources_by_hash", "(sha256)", "(title)"),
    "an index of ours that is endless": as_text("sources_by_hash", "(sha256)", f"({ENDLESS})"),
    "triggers": """
        create trigger extra after insert on chunks begin delete from chunks; end;
        create trigger second before delete on sources begin select raise(abort, 'no'); end;
        create trigger third after update on sources begin delete from rules; end;
        create trigger sources after update on chunks begin delete from sources; end;
        create trigger fifth instead of insert on embeddings begin delete from chunks; end;
    """,
    "an endless trigger": f"create trigger extra before insert on sources begin select {COUNTING}; end",
    "an endless view": f"create view extra as select {COUNTING} as a",
    "our view, endless": f"drop view embeddings; create view embeddings as select {COUNTING} as model_id",
    "a view instead of a table": f"drop table calls; create view calls as select {COUNTING} as id",
    "virtual tables": """
        create virtual table extra using fts5 (a);
        create virtual table second using fts5 (text, content = 'chunks');
        create virtual table third using rtree (id, a, b);
    """,
    "a table of an unknown module": added("table", "extra", "create virtual table extra using evil (a)"),
    "a virtual table behind a comment": added("table", "extra", "create/**/virtual table extra using evil (a)"),
    "a column": "alter table sources add column extra text not null default 'x'",
    "an endless generated column": "alter table sources add column extra int as (1) virtual; "
    + as_text("sources", "(1)", f"({ENDLESS})"),
    "a generated column instead of ours": "alter table jobs drop column done; "
    "alter table jobs add column done integer as (2) virtual",
    "an endless generated column instead of ours": "alter table jobs drop column done; "
    "alter table jobs add column done integer as (1) virtual; "
    "insert into jobs (id, total, started_at, heartbeat_at) values ('j', 1, '', ''); "
    + as_text("jobs", "(1)", f"({ENDLESS})"),
    "a column of ours less": "alter table sources drop column language",
    "an endless check in our table": as_text("words", "primary key", f"check ({ENDLESS}), primary key"),
    "an unknown collation in our table": as_text("collections", "collate nocase", "collate evil"),
    "a table of ours less": "drop table calls",
    "statistics that lie": "analyze; update sqlite_stat1 set stat = '1 1 1 1 1 1 1 1'; "
    "insert into sqlite_stat1 values ('chunks', 'nothing', '9999999999999999999 0 0')",
    "sign codes of another length": "update signs set bits = zeroblob(2 * length(bits))",
    "another encoding": "pragma encoding",
    "the highest ids": "update sqlite_sequence set seq = 9223372036854775807",
    "the highest id": "update sources set id = 9223372036854775807 where id = (select max(id) from sources where "
    "id not in (select source_id from chunks)); insert into sources select 9223372036854775807, 'u', collection_id, "
    "partition_id, title, source_type, format, null, sha256, size, mtime_ns, language, metadata, 0, created_at, "
    "updated_at, trashed_at, tables from sources limit 1",
    "the highest generations": "update state set content = 9223372036854775807, "
    "signs = 9223372036854775807, quickstarts = 9223372036854775807",
    "rows of other types": "pragma ignore_check_constraints = on; update rules set globs = '{', category = char(27)",
    "another program's id": "pragma application_id = 7",
    "a later version": "pragma user_version = 99",
    "an id that is a path": "update file set id = '../../../../tmp/evil'",
    "two ids": "insert into file values (lower(hex(randomblob(16))), '')",
    "the log of a change to several files": "",
}
"""What a stranger added -> the statements that add it."""


HIVES = {
    "Hives": "# Hives\n\nA hive has one queen. She lays the eggs.\n\n## Drones\n\nThey do not work.",
    "Honey": "Honey keeps for centuries.",
    "Wax": "Wax melts.",
}


def make_pack(path: Path, texts: dict[str, str], *, model: str = "hash", collection: str = "default") -> Path:
    """Write a pack of those documents, title -> text."""
    with Workspace(Settings(database=path.with_suffix(".source"), model=model)) as workspace:
        for title, text in texts.items():
            workspace.library.add_text(text, title, collection=collection, replace=True, metadata={"year": 2024})
        write_pack(workspace.database, path, overwrite=True)
    return path


def change(path: Path, *statements: str) -> None:
    """Run statements on a file, as a stranger would."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("foreign_keys", False)
        for statement in statements:
            connection.execute(statement)


def make_base(folder: Path) -> Path:
    """Write a pack with documents, rules and a quick start."""
    target = folder / "base.localmcp"
    with Workspace(Settings(database=folder / "source.localmcp", model="hash")) as workspace:
        for number in range(5):
            workspace.library.add_text(
                f"# Part {number}\n\nA hive has one queen, and {number} drones.", f"Bees {number}"
            )
        rules = "# Rules\n\n## testing\n\n- Test the valve before the pump.\n- Name tests as sentences.\n"
        workspace.registry.call("importRules", {"text": rules}, Scope(caller="cli"))
        guide = {"metadata": {"name": "bees"}, "spec": {"displayName": "Keep bees", "description": "x", "tasks": []}}
        guides = {"text": json.dumps(guide), "format": "json"}
        workspace.registry.call("importQuickstarts", guides, Scope(caller="cli"))
        write_pack(workspace.database, target, title="Base")
    return target


def make_given(base: Path, target: Path, name: str) -> Path:
    """Write the base to `target` with what a stranger added."""
    shutil.copyfile(base, target)
    if name == "the log of a change to several files":
        journal = bytes.fromhex("d9d505f920a163d7")
        target.with_name(f"{target.name}-journal").write_bytes(journal + bytes(2000) + journal)
        return target
    if name == "another encoding":
        with closing(apsw.Connection(str(target))) as old, closing(apsw.Connection(f"{target}.16")) as new:
            new.pragma("encoding", "UTF-16le")
            new.pragma("foreign_keys", False)
            for table, sql in old.execute("select name, sql from sqlite_schema").fetchall():
                if sql and not table.startswith("sqlite_") and "_fts_" not in table:
                    new.execute(sql)
            new.pragma("application_id", old.pragma("application_id"))
            new.pragma("user_version", old.pragma("user_version"))
            new.execute("insert into file values (?, '')", ("0" * 32,))
        Path(f"{target}.16").replace(target)
        return target
    with closing(apsw.Connection(str(target))) as connection:
        connection.pragma("foreign_keys", False)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        # What two kinds make together may never end.
        end = time.monotonic() + 10
        connection.set_progress_handler(lambda: time.monotonic() > end, 100_000)
        connection.execute(SQL[name])
    return target


def use(path: Path) -> None:
    """Add, remove, teach, empty and search, as a person would."""
    person = Scope(caller="cli")
    with Workspace(Settings(database=path, model="hash")) as workspace:
        workspace.library.add_text("Wasps have one too, and no honey.", "Wasps")
        rule = {"rule_text": "Close the door of the hive.", "category": "bees"}
        workspace.registry.call("addRule", rule, person)
        workspace.library.remove(["Wasps", "Bees 1"])
        workspace.library.empty_trash(0)
        assert workspace.registry.call("search", {"query": "a hive has one queen"}, person).value["results"]
