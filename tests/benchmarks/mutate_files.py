"""Thousands of damaged and hostile files through every door: each opens correctly or is refused with a clear error.

    python tests/benchmarks/mutate_files.py --count 5000 --workdir /tmp/mutated [--seed 1] [--only 17] [--keep]

A pack is mutated (bit flips, truncations, spliced pages, hostile schema, hostile rows), the same for the same seed and
number. Every file is opened as the database and mounted beside a good one; it is searched, listed, read, verified and
merged in a process of its own that many files share. Problems are: a crash, an answer after 5 s, more than 500 MB, an
error that is not one of ours, and `verify` calling a file sound whose rows are not those of the pack.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import resource
import select
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from localmcp.config import Settings
from localmcp.errors import LocalMCPError
from localmcp.packs.pack import verify, write_pack
from localmcp.tools import Scope
from localmcp.workspace import Workspace

SLOWEST_SECONDS = 5.0
MOST_MEGABYTES = 500
HANGING_SECONDS = 60.0
"""All steps of a file together; a step that waits without working ends here."""
PAGE = 8192
WORDS = (
    "hive queen honey winter rose prune clay sand water pump valve pressure backup restore invoice tax meeting".split()
)


# ---------------------------------------------------------------- what is mutated


def make_base(folder: Path) -> Path:
    """A pack with documents, vectors, a quick start and rules; made once a folder."""
    target = folder / "base.localmcp"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    with Workspace(Settings(database=folder / "source.localmcp", model="hash")) as workspace:
        for number in range(40):
            text = "\n\n".join(" ".join(chance.choices(WORDS, k=60)) for _ in range(chance.randint(1, 6)))
            workspace.library.add_text(f"# Part {number}\n\n{text}", f"Document {number}", metadata={"year": number})
        workspace.library.add_text("A text of another collection about bees.", "Bees", collection="other")
        guide = {
            "metadata": {"name": "bees"},
            "spec": {"displayName": "Keep bees", "description": "Honey", "tasks": []},
        }
        person = Scope(caller="cli")
        workspace.registry.call("importQuickstarts", {"text": json.dumps(guide), "format": "json"}, person)
        rules = "# Rules\n\n## testing\n\n- Test the valve before the pump.\n- Name tests as sentences.\n"
        workspace.registry.call("importRules", {"text": rules}, person)
        write_pack(workspace.database, target, title="Base")
    return target


def make_own(folder: Path) -> Path:
    """A good file, beside which the mutated ones are mounted."""
    target = folder / "own.localmcp"
    with Workspace(Settings(database=target, model="hash")) as workspace:
        workspace.library.add_text("Our own words about honey and winter.", "Ours", replace=True)
    return target


# ---------------------------------------------------------------- mutations of bytes

Bytes = Callable[[bytearray, random.Random], bytearray]


def flip_bits(data: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice([1, 1, 2, 8, 64, 512])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def flip_header(data: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice([1, 2, 4])):
        data[chance.randrange(100)] = chance.randrange(256)
    return data


def flip_page_heads(data: bytearray, chance: random.Random) -> bytearray:
    """The head of a page says what it is, and where its cells lie."""
    for _ in range(chance.choice([1, 2, 5])):
        at = chance.randrange(len(data) // PAGE) * PAGE
        data[at + (100 if at == 0 else 0) + chance.randrange(24)] = chance.randrange(256)
    return data


def truncate(data: bytearray, chance: random.Random) -> bytearray:
    return data[: chance.choice([0, 1, 99, 100, 512, PAGE, chance.randrange(len(data)), len(data) - 1])]


def lengthen(data: bytearray, chance: random.Random) -> bytearray:
    return data + chance.randbytes(chance.choice([1, PAGE, 3 * PAGE]))


def splice_pages(data: bytearray, chance: random.Random) -> bytearray:
    """Put a page where another stood."""
    pages = len(data) // PAGE
    for _ in range(chance.choice([1, 1, 3])):
        source, target = chance.randrange(pages) * PAGE, chance.randrange(1, pages) * PAGE
        data[target : target + PAGE] = data[source : source + PAGE]
    return data


def swap_pages(data: bytearray, chance: random.Random) -> bytearray:
    pages = len(data) // PAGE
    first, second = (chance.randrange(1, pages) * PAGE for _ in range(2))
    one, other = data[first : first + PAGE], data[second : second + PAGE]
    data[first : first + PAGE], data[second : second + PAGE] = other, one
    return data


def blank_pages(data: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(1, len(data) // PAGE) * PAGE
    data[at : at + PAGE] = chance.choice([bytes(PAGE), b"\xff" * PAGE, chance.randbytes(PAGE)])
    return data


BYTES: tuple[Bytes, ...] = (
    flip_bits, flip_bits, flip_header, flip_page_heads, truncate, lengthen, splice_pages, swap_pages, blank_pages
)  # fmt: skip

# ---------------------------------------------------------------- mutations by SQL

LONG = "zeroblob(20000000)"
SCHEMA = (
    "create view extra as select * from chunks",
    "create trigger extra after insert on chunks begin delete from chunks; end",
    "create table extra (a); create trigger extra_t after insert on extra begin select load_extension('x'); end",
    "create virtual table extra using fts5 (a)",
    "create /* */ virtual table extra using fts5 (a)",
    'create table "sqlite-like" (a blob)',
    "pragma application_id = 1",
    "pragma application_id = 0",
    "pragma user_version = 99",
    "pragma user_version = -1",
    "pragma user_version = 0",
    "pragma user_version = 2",
    "drop table chunks",
    "drop table manifest",
    "drop view embeddings",
    "drop view embeddings; create view embeddings as with recursive n(i) as (select 1 union all select i + 1 from n) "
    "select i as model_id, i as chunk_id, zeroblob(1536) as embedding from n",
    "alter table sources rename column title to titel",
    "alter table sources add column more text",
    "drop index chunks_by_source",
    "create index more on chunks (text)",
    "pragma writable_schema = on; update sqlite_schema set sql = 'create table chunks (a)' where name = 'chunks'",
    "pragma writable_schema = on; update sqlite_schema set sql = sql || ' ' where name = 'vectors'",
    "pragma writable_schema = on; update sqlite_schema set rootpage = 3 where name = 'vectors'",
    "pragma writable_schema = on; update sqlite_schema set rootpage = 2000000000 where name = 'sources'",
    "pragma writable_schema = on; update sqlite_schema set sql = null where name = 'models'",
    "pragma writable_schema = on; update sqlite_schema set name = 'chunk', tbl_name = 'chunk' where name = 'chunks'",
    "pragma journal_mode = wal",
    "pragma encoding = 'UTF-16'",
)
ROWS = (
    "update file set id = '../../../evil'",
    "update file set id = ''",
    "delete from file",
    "insert into file select * from file",
    "delete from state",
    "update state set signs = -1, content = 9223372036854775807",
    "update models set dimension = 0",
    "update models set dimension = -384",
    "update models set dimension = 1099511627776",
    "update models set dimension = 7",
    "update models set fingerprint = 'ffffffffffffffff', name = '../../etc/passwd'",
    "update models set fingerprint = 'ffffffffffffffff', name = 'http://127.0.0.1:9/v1#model'",
    "update models set fingerprint = 'ffffffffffffffff', name = 'hash', dimension = 1000000",
    'update models set calibration = \'{"passage_floor": "nan"}\'',
    "update models set calibration = '[1, 2'",
    "update models set calibration = '{\"passage_floor\": 1e999}'",
    "update collections set model_id = null",
    "update collections set kind = 'other'",
    "update collections set name = name || char(10) || replace(hex(zeroblob(100000)), '00', 'x')",
    "delete from collections",
    "update sources set metadata = '{'",
    "update sources set metadata = '[1]'",
    "update sources set metadata = replace(hex(zeroblob(50000)), '00', '[')",
    f"update sources set metadata = {LONG} || '' where id = 1",
    'update sources set metadata = \'{"title": null, "path": 5, "page": {}}\'',
    "update sources set uri = '//evil.example/share/' || id || '.md', mtime_ns = 1",
    "update sources set uri = '\\\\evil.example\\share\\' || id, mtime_ns = 1",
    "update sources set uri = '/etc/passwd' || id, mtime_ns = 1, size = 3",
    "update sources set uuid = 'none' || id",
    "update sources set uuid = char(27) || '[31m' || id",
    "update sources set chunk_count = 9223372036854775807",
    "update sources set chunk_count = -5",
    "update sources set size = -1, mtime_ns = -9223372036854775808",
    "update sources set title = replace(hex(zeroblob(1000000)), '00', 'T') where id < 4",
    "update sources set created_at = '', updated_at = 'yesterday'",
    "update sources set collection_id = 99",
    "update sources set language = 'klingon', source_type = '', format = 'record'",
    "update groups set language = 'klingon'",
    "update groups set chunks = -1",
    "update groups set chunks = 9223372036854775807",
    "update groups set gap = -1e300, measured_chunks = -1",
    "delete from groups",
    "update chunks set text = '' where id % 2",
    "update chunks set text = text || text where id % 3 = 0",
    f"update chunks set text = {LONG} || '' where id = 1",
    "update chunks set text = replace(hex(zeroblob(3000000)), '00', 'word ') where id = 2",
    "update chunks set headings = '{}'",
    "update chunks set headings = 'nothing'",
    "update chunks set headings = '[1, null, {\"a\": []}]'",
    "update chunks set headings = replace(hex(zeroblob(100000)), '00', '[')",
    "update chunks set position = -position, start = -1, stop = 9223372036854775807",
    "update chunks set position = 0",
    "update chunks set first_line = -9223372036854775808, last_page = 9223372036854775807, first_page = 1",
    "update chunks set uuid = cast('abc' || id as blob)",
    "update chunks set uuid = cast(hex(zeroblob(50000)) || id as blob)",
    "update chunks set group_id = 77",
    "update chunks set source_id = 77",
    "update chunks set id = id + 1099511627776",
    "update chunks set id = -id",
    "update chunks set id = id + 9000000000000000000",
    "update chunks set words = -1, digest = zeroblob(1)",
    "delete from chunks",
    "update vectors set embedding = zeroblob(1536)",
    "update vectors set embedding = cast(x'0000c07f' || substr(embedding, 5) as blob)",
    "update vectors set embedding = cast(x'0000807f' || substr(embedding, 5) as blob)",
    "update vectors set embedding = zeroblob(3)",
    "update vectors set embedding = zeroblob(0)",
    "update vectors set embedding = zeroblob(20000000) where id = (select min(id) from vectors)",
    "update vectors set id = -id",
    "update vectors set id = id + 1099511627776",
    "delete from vectors where id % 2",
    "update signs set count = 1000000000",
    "update signs set count = -1",
    "update signs set count = 0",
    "update signs set ids = zeroblob(8)",
    "update signs set ids = zeroblob(length(ids))",
    "update signs set ids = substr(ids, 1, length(ids) - 3)",
    "update signs set ids = randomblob(length(ids))",
    "update signs set sources = zeroblob(7)",
    "update signs set sources = randomblob(length(sources))",
    "update signs set bits = zeroblob(1)",
    "update signs set bits = randomblob(length(bits))",
    "update signs set bits = cast(bits || bits as blob)",
    "update signs set bits = zeroblob(20000000), ids = zeroblob(20000000), sources = zeroblob(20000000)",
    "insert into signs (model_id, collection_id, count, ids, sources, bits) "
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) "
    "select 1, 1, 1, zeroblob(8), zeroblob(8), zeroblob(48) from n",
    "update signs set model_id = 5",
    "update signs set collection_id = 5",
    "update terms set chunks = -1",
    "update terms set chunks = 9223372036854775807",
    "delete from terms",
    "delete from words",
    "update words set chunks = 9223372036854775807",
    "insert into words (collection_id, word, chunks) select 1, 'w' || value, 1 from "
    "(with recursive n(value) as (select 1 union all select value + 1 from n where value < 200000) select * from n)",
    "update chunks_fts_data set block = randomblob(length(block))",
    "update chunks_fts_data set block = substr(block, 1, length(block) / 2)",
    "update chunks_fts_data set block = zeroblob(0)",
    "update chunks_fts_data set block = block || zeroblob(100000) where id > 10",
    "update chunks_fts_data set block = zeroblob(20000000) where id = 10",
    "update chunks_fts_data set block = x'ffffffffffffffffff' where id = 10",
    "update chunks_fts_data set block = x'ffffffffffffffffff' where id = 1",
    "update chunks_fts_config set v = 99 where k = 'version'",
    "delete from chunks_fts_config",
    "delete from chunks_fts_data",
    "delete from chunks_fts_docsize",
    "update chunks_fts_docsize set sz = x'ffffffffffffffffff'",
    "delete from chunks_fts_idx",
    "insert into chunks_fts (rowid, title, text) values (-7, 'hive', 'hive queen honey')",
    "insert into chunks_fts (rowid, title, text) values (9000000000000000000, 'hive', 'hive queen honey')",
    "insert into chunks_fts (chunks_fts, rank) values ('rank', 'no_such_function()')",
    "update quickstarts set content = 'broken'",
    "update quickstarts set content = replace(hex(zeroblob(100000)), '00', '[')",
    'update quickstarts set content = \'{"metadata": 5, "spec": {"tasks": "none", "tags": 1}}\'',
    'update quickstarts set content = \'{"spec": {"tasks": [null, 5, {"title": []}], "displayName": {}}}\'',
    "update quickstarts set name = ''",
    "delete from quickstarts_fts",
    "update quickstarts_fts_data set block = randomblob(length(block))",
    "update rules set globs = '{'",
    "update rules set globs = '[1]'",
    "update rules set category = '', context = ''",
    "update rules set embedding = 5",
    "update rules set relevance_score = 1e308",
    "update rules set relevance_score = -1e308, instructions_count = -9223372036854775808",
    "update rules set digest = zeroblob(0), project = char(0)",
    "update rules set rule_text = replace(hex(zeroblob(1000000)), '00', 'R ')",
    "delete from user_instructions",
    "update manifest set content = '{}'",
    "update manifest set content = 'null'",
    "update manifest set content = '[' || content || ']'",
    "update manifest set content = replace(hex(zeroblob(400000)), '00', '[')",
    "update manifest set content = json_set(content, '$.title', json('[1]'))",
    "update manifest set content = json_set(content, '$.counts', 5)",
    "update manifest set content = json_set(content, '$.digest', '')",
    "delete from manifest",
    "insert into api_keys (id, prefix, key_hash, scopes, created_at) values ('k', 'l_', '$2b$04$x', '[\"admin\"]', '')",
    "insert into roots (path, collection_id, kind, added_at) values ('/', 1, 'folder', '')",
    "insert into jobs (id, total, started_at, heartbeat_at) values ('j', -1, '', '')",
)
"""Rows that break what the program relies on; the manifest is not made anew, so that `verify` must see all of them."""


WRONG_VALUES = {"text": ("5", "x'ff00'", "null"), "integer": ("'x'", "1.5", "null"), "blob": ("7", "'x'", "null"),
                "real": ("'x'", "x'00'", "null")}  # fmt: skip
"""By the type of a column, values that no strict table takes: a page of another table may put them there."""


@cache
def retypings(base: Path) -> list[str]:
    """`retype table.column = value` for every column of ours that can hold a value of a wrong type."""
    connection = apsw.Connection(str(base), flags=apsw.SQLITE_OPEN_READONLY)
    tables = connection.execute("select name, sql from sqlite_schema where sql like 'create table%strict'").fetchall()
    connection.close()
    return [
        f"retype {table}.{column} = {value}"
        for table, sql in tables
        for column, kind in re.findall(r"^\s+(\w+) (text|integer|blob|real)\b(?! primary key)", sql, re.MULTILINE)
        for value in WRONG_VALUES[kind]
    ]


def _retype(path: Path, statement: str) -> str:
    """Put the value in while the table is not strict; the schema is then what it was."""
    table, column, value = re.fullmatch(r"retype (\w+)\.(\w+) = (.*)", statement).groups()  # type: ignore[union-attr]

    def set_schema(sql: str) -> str | None:
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.pragma("writable_schema", True)
        before = connection.execute("select sql from sqlite_schema where name = ?", (table,)).get
        connection.execute("update sqlite_schema set sql = ? where name = ?", (sql or before, table))
        connection.close()
        return before

    strict = set_schema("")
    if strict is None:
        return f"{statement} (not done: an earlier change dropped the table)"
    loose = re.sub(r"\)\s*strict$", ")", strict)
    set_schema(re.sub(rf"(?m)^(\s+{column}) (text|integer|blob|real)( not null)?", r"\1", loose))
    answer = _run(path, f"update or ignore {table} set {column} = {value}")
    set_schema(strict)
    return f"{statement}{answer[answer.find(' (not done') :]}" if " (not done" in answer else statement


def mutate(base: Path, target: Path, number: int, seed: int) -> str:
    """Write the mutated file of that number; returns what was done to it."""
    chance = random.Random(f"{seed}/{number}")
    hostile = [*SCHEMA, *ROWS, *retypings(base)]
    # The first numbers go through all of them once.
    if number >= len(hostile) and chance.random() < 0.6:
        change = chance.choice(BYTES)
        target.write_bytes(change(bytearray(base.read_bytes()), chance))
        return change.__name__
    shutil.copyfile(base, target)
    if number < len(hostile):
        return _run(target, hostile[number])
    return " ; ".join(_run(target, chance.choice(hostile)) for _ in range(chance.choice([1, 2, 3])))


def _run(path: Path, statement: str) -> str:
    if statement.startswith("retype "):
        return _retype(path, statement)
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        for name, value in (("foreign_keys", False), ("synchronous", "off"), ("ignore_check_constraints", True)):
            connection.pragma(name, value)
        connection.execute(statement)
    except apsw.Error as error:
        return f"{statement} (not done: {error})"
    finally:
        connection.close()
    return statement


# ---------------------------------------------------------------- what is tried on each


def steps(path: Path, own: Path, target: Path | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, action) of everything a person or an assistant does with a file; it is merged into a new one, `target`."""
    foreign = Workspace(Settings(database=path, model="hash"), read_only=True)
    yield from _tools(foreign, "own")
    foreign.close()
    yield "verify", lambda: verify(path)
    ours = Workspace(Settings(database=own, model="hash"))
    name = f"m{path.stem[-12:]}".lower()
    yield "mount", lambda: ours.mounts.mount(path, name)
    yield from _tools(ours, "mounted")
    yield "merge", lambda: ours.merging(lambda tool, given: ours.registry.call(tool, given)).run(path, dry_run=True)
    yield "unmount", lambda: ours.mounts.unmount(name)
    ours.close()
    if target is None:
        return
    into = Workspace(Settings(database=target, model="hash"))
    yield "merge for good", lambda: into.merging(lambda tool, given: into.registry.call(tool, given)).run(path)
    yield "merged search", lambda: into.registry.call("search", {"query": "hive queen honey"})
    into.close()


def _tools(workspace: Workspace, prefix: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    def call(tool: str, **arguments: Any) -> Callable[[], Any]:
        return lambda: workspace.registry.call(tool, arguments).value

    found: list[Any] = []

    def search() -> Any:
        found.extend(workspace.registry.call("search", {"query": "hive queen honey", "limit": 20}).value["results"])
        return found

    yield f"{prefix}: search", search
    yield f"{prefix}: search by words", call("search", query="hive queeen", mode="keyword", explain=True)
    yield f"{prefix}: search by meaning", call("search", query="winter roses", mode="semantic", limit=100)
    yield f"{prefix}: filtered", call("search", query="pump", metadata={"year": 5}, collection="default")
    yield f"{prefix}: list", call("list_sources", limit=500)
    yield f"{prefix}: stats", call("get_stats")
    yield f"{prefix}: document", call("get_document", sourceId="Document 3")
    for hit in found[:2]:
        yield f"{prefix}: context", call("get_context", chunkId=hit["chunkId"], window=50)
        yield f"{prefix}: document by id", call("get_document", sourceId=hit["sourceId"])
    yield f"{prefix}: quote", call("verify_citation", quote="another collection about bees")
    yield f"{prefix}: quick starts", call("searchQuickstarts", query="bees")
    yield f"{prefix}: quick start", call("showQuickstart", name="bees")
    yield f"{prefix}: list quick starts", call("listQuickstarts")
    yield f"{prefix}: rules", call("getRelevantRules", context="test the pump")
    yield f"{prefix}: list rules", call("listRules")


def content_of(path: Path) -> Any:
    """Every row of every table, read without any of our code; None for a file that cannot be read whole."""
    connection = apsw.Connection(f"{path.as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        names = connection.execute(
            "select name from sqlite_schema where type = 'table' and sql not like 'create virtual%' order by name"
        ).fetchall()
        rows = [(name, connection.execute(f'select * from "{name}" order by 1, 2').fetchall()) for (name,) in names]
        return repr(rows) + repr(
            connection.execute("select type, name, sql from sqlite_schema order by 1, 2").fetchall()
        )
    except (apsw.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()


def try_file(path: Path, own: Path, target: Path | None, expected: Any) -> dict[str, Any]:
    """What became of one file: problems, and how long the slowest step took."""
    problems: list[str] = []
    slowest, where, refused, sound = 0.0, "", 0, False
    for name, action in steps(path, own, target):
        start, busy = time.perf_counter(), time.process_time()
        try:
            result = action()
            # Without a manifest it is called no pack, which says nothing of what was packed.
            sound = sound or (name == "verify" and result.sound and result.manifest is not None)
        except LocalMCPError:
            refused += 1
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        # Of the clock and the processor, the one that other programs on the machine do not lengthen.
        took = min(time.perf_counter() - start, time.process_time() - busy)
        if took > slowest:
            slowest, where = took, name
        if took > SLOWEST_SECONDS:
            problems.append(f"{name} took {took:.1f} s")
    if sound and content_of(path) != expected:
        problems.append("verify calls it sound, but its rows are not those of the pack")
    peak = peak_megabytes()
    if peak > MOST_MEGABYTES:
        problems.append(f"{peak:.0f} MB of memory")
    return {"problems": problems, "slowest": slowest, "where": where, "refused": refused, "sound": sound, "peak": peak}


def peak_megabytes() -> float:
    """The most memory this process had; `ru_maxrss` alone would count that of the process which started it."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def work(folder: Path, seed: int, quick: bool) -> None:
    """A worker: takes numbers on stdin, answers each with a line of JSON."""
    logging.disable(logging.CRITICAL)
    base, own = make_base(folder), folder / "own.localmcp"
    expected = content_of(base)
    for line in sys.stdin:
        number = int(line)
        path, target = folder / f"mutated-{number}.localmcp", folder / f"target-{number}.localmcp"
        done = mutate(base, path, number, seed)
        outcome = try_file(path, own, None if quick and number % 5 else target, expected)
        print(json.dumps({"number": number, "done": done, **outcome}), flush=True)


# ---------------------------------------------------------------- the campaign


def run(
    folder: Path, numbers: list[int], seed: int, *, keep: bool = False, quick: bool = False
) -> list[dict[str, Any]]:
    """One outcome a file; a worker that dies, hangs or grows too large is replaced. `quick` merges only every fifth."""
    make_base(folder)
    make_own(folder)
    outcomes: list[dict[str, Any]] = []
    worker: subprocess.Popen[str] | None = None
    for number in numbers:
        worker = worker or _start(folder, seed, quick)
        outcome = _ask(worker, number)
        if outcome is None or outcome["peak"] > MOST_MEGABYTES:
            _end(worker)
            worker = None
        outcomes.append(
            outcome or {"number": number, "problems": ["the process died or hung"], "peak": 0, "slowest": 0}
        )
        if not keep and not outcomes[-1]["problems"]:
            for each in folder.glob(f"*-{number}.localmcp*"):
                each.unlink()
    if worker is not None:
        _end(worker)
    return outcomes


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate()


def _start(folder: Path, seed: int, quick: bool) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--worker", "--workdir", str(folder), "--seed", str(seed)]
    command += ["--quick"] if quick else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(worker: subprocess.Popen[str], number: int) -> dict[str, Any] | None:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(f"{number}\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return None
    ready, _, _ = select.select([worker.stdout], [], [], HANGING_SECONDS)
    line = worker.stdout.readline() if ready else ""
    return json.loads(line) if line else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    folder = options.workdir.absolute()
    if options.worker:
        work(folder, options.seed, options.quick)
        return
    first = options.first
    numbers = [options.only] if options.only is not None else list(range(first, first + options.count))
    outcomes = run(folder, numbers, options.seed, keep=options.keep or options.only is not None, quick=options.quick)
    bad = [each for each in outcomes if each["problems"]]
    for each in bad:
        print(each["number"], each.get("done"), *each["problems"], sep="\n    ")
    kinds = Counter("sound" if each.get("sound") else "not sound" for each in outcomes)
    slowest = max(outcomes, key=lambda each: each["slowest"])
    print(f"{len(outcomes)} files, {len(bad)} with problems; verify: {dict(kinds)}")
    print(f"slowest step {slowest['slowest']:.2f} s ({slowest.get('where')}, file {slowest['number']})")
    print(f"peak memory {max(each['peak'] for each in outcomes):.0f} MB")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
