"""The schema of a file; whether a file has it, and whether this machine may change it; times as it holds them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

import apsw

from localmcp import config
from localmcp.errors import AlteredSchema, FileTooNew, FileTooOld, FileUnavailable, NotOurFile
from localmcp.files import make_private_folder
from localmcp.humanize import command_line

APPLICATION_ID = 0x6C6F6D63
"""`lomc`: the four bytes at offset 68 of the file by which `file(1)` and we know it."""
SCHEMA_VERSION = 1
"""`user_version` of the files this program writes."""
VECTOR_ID_BITS = 40
"""`vectors.id` is model << 40 | chunk: one lookup by rowid, and one model's vectors are adjacent."""
SEGMENT_SIZE = 4096
"""Sign codes of a row of `signs`, at most."""
SEGMENT_FITS = f"""
    count between 1 and {SEGMENT_SIZE} and length(ids) = 8 * count and length(sources) = 8 * count
    and length(bits) = count * ((dimension + 63) / 64 * 8)
"""
"""SQL of what has to hold for a row of `signs` and its model; a file from somewhere else may hold anything there."""

SCHEMA = """
    create table file (
        id text not null,          -- random; this machine's state directory knows the files it has adopted
        created_at text not null
    ) strict;

    create table state (           -- generations: what changed, for caches of every process
        one integer primary key check (one = 1),
        content integer not null default 0,
        signs integer not null default 0,
        quickstarts integer not null default 0
    ) strict;

    create table models (
        id integer primary key,
        name text not null,
        fingerprint text not null unique,
        sha256 text not null,
        pooling text not null,
        query_prefix text not null,
        passage_prefix text not null,
        dimension integer not null,
        max_tokens integer not null,
        calibration text,          -- JSON: floors and logistic maps per kind of text
        created_at text not null
    ) strict;

    create table collections (
        id integer primary key autoincrement,
        name text not null unique collate nocase,
        kind text not null default 'documents',
        description text not null default '',
        model_id integer references models (id),
        created_at text not null
    ) strict;

    create table partitions (
        id integer primary key autoincrement,
        collection_id integer not null references collections (id) on delete cascade,
        name text not null,
        created_at text not null,
        dropped_at text,           -- of one that is in the trash
        unique (collection_id, name)
    ) strict;

    create table sources (
        id integer primary key autoincrement,
        uuid text not null unique,
        collection_id integer not null references collections (id),
        partition_id integer references partitions (id),
        title text not null,
        source_type text not null,
        format text not null,
        uri text,                  -- absolute path, or null for text handed over
        sha256 text not null,      -- of the bytes read
        size integer not null,
        mtime_ns integer,
        language text,
        metadata text not null default '{}',
        chunk_count integer not null default 0,
        created_at text not null,
        updated_at text not null,
        trashed_at text,
        tables text                -- JSON: what is in each table of the document; null for none
    ) strict;
    create unique index sources_by_uri on sources (collection_id, uri) where trashed_at is null and uri is not null;
    create index sources_by_time on sources (created_at);
    create index sources_by_hash on sources (sha256);
    create index sources_in_trash on sources (trashed_at) where trashed_at is not null;

    create table groups (          -- collection x language x kind of text: where weights belong
        id integer primary key,
        collection_id integer not null references collections (id) on delete cascade,
        language text not null,
        kind text not null,
        chunks integer not null default 0,
        gap real,                  -- how sharply the model tells its passages apart
        measured_chunks integer not null default 0,
        unique (collection_id, language, kind)
    ) strict;

    create table chunks (
        id integer primary key autoincrement,
        uuid blob not null unique,
        source_id integer not null references sources (id) on delete cascade,
        group_id integer not null references groups (id),
        position integer not null,
        start integer not null,    -- code points; the spans of a source partition its text
        stop integer not null,
        headings text not null,    -- JSON array, outermost first
        text text not null,
        first_line integer not null,
        last_line integer not null,
        first_page integer,
        last_page integer,
        words integer not null,    -- indexed words: the length in bm25
        digest blob not null       -- of the embedded text: the same digest keeps id and vector
    ) strict;
    create index chunks_by_source on chunks (source_id, position);
    create index chunk_sources on chunks (id, source_id, group_id, words);  -- searches read this, not the text

    create virtual table chunks_fts using fts5 (
        title, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
    );

    create table words (           -- folded surface words: spelling repair
        collection_id integer not null,
        word text not null,
        chunks integer not null,
        primary key (collection_id, word)
    ) strict, without rowid;

    create table terms (           -- stems as indexed: the postings budget and the bound of bm25
        collection_id integer not null,
        term text not null,
        chunks integer not null,
        primary key (collection_id, term)
    ) strict, without rowid;

    create table vectors (
        id integer primary key,    -- model << 40 | chunk
        embedding blob not null    -- float32, little endian, unit length
    ) strict;
    create view embeddings as
        select id >> 40 as model_id, id & 1099511627775 as chunk_id, embedding from vectors;

    create table word_vectors (    -- what a multilingual model says of each word
        id integer primary key,
        model_id integer not null references models (id) on delete cascade,
        word text not null,        -- a stem as it is indexed
        code blob not null,        -- the signs of its vector where it was first read
        unique (model_id, word)
    ) strict;

    create table sentence_codes (  -- of passages that a multilingual model read
        id integer primary key references vectors (id) on delete cascade,
        codes blob not null
    ) strict;

    create table signs (           -- segments of sign codes
        id integer primary key autoincrement,
        model_id integer not null,
        collection_id integer not null,
        count integer not null,
        ids blob not null,         -- int64
        sources blob not null,     -- int64, the source of each id
        bits blob not null         -- dimension / 8 bytes each, padded to 8
    ) strict;
    create index signs_by_collection on signs (model_id, collection_id);

    create table roots (           -- what the person added: folders and files to look at again
        id integer primary key,
        path text not null,
        collection_id integer not null references collections (id) on delete cascade,
        partition_id integer references partitions (id),
        kind text not null,
        options text not null default '{}',
        added_at text not null,
        unique (path, collection_id)
    ) strict;

    create table ledger (          -- every path ever offered, and what became of it
        path text not null,
        collection_id integer not null references collections (id) on delete cascade,
        status text not null,
        reason text not null default '',
        source_id integer,
        sha256 text,
        size integer,
        mtime_ns integer,
        pages integer not null default 0, -- of scans in it that wait for text recognition
        seen_at text not null,
        primary key (path, collection_id)
    ) strict, without rowid;
    create index ledger_by_status on ledger (status);

    create table trash (           -- removed or overwritten, apart from documents, which stay in `sources`
        id integer primary key autoincrement,
        kind text not null,        -- document, record, collection, partition, ...
        name text not null,
        collection text,
        content text not null,     -- JSON: the whole row
        trashed_at text not null
    ) strict;

    create table jobs (
        id text primary key,       -- of a run that reads files; deleted when it ends, or is to end
        done integer not null default 0,
        total integer not null,
        started_at text not null,
        heartbeat_at text not null
    ) strict;

    create table vector_queue (    -- passages that have no vector of their collection's model
        chunk_id integer primary key references chunks (id) on delete cascade,
        collection_id integer not null,
        characters integer not null
    ) strict;

    create table leases (          -- who does what only one process does at a time
        name text primary key,
        holder text not null,
        beat_at text not null
    ) strict, without rowid;

    create table quickstarts (
        id integer primary key autoincrement,
        name text not null unique,
        -- Empty where the content is broken: the row survives (S0-8).
        display_name text not null generated always as (
            case when not json_valid(content) then ''
            when json_type(content, '$.spec.displayName') = 'text'
            then trim(json_extract(content, '$.spec.displayName'), char(9, 10, 11, 12, 13, 32)) else '' end
        ) stored,
        description text not null generated always as (
            case when not json_valid(content) then ''
            when json_type(content, '$.spec.description') = 'text'
            then trim(json_extract(content, '$.spec.description'), char(9, 10, 11, 12, 13, 32)) else '' end
        ) stored,
        created_at text not null,
        updated_at text not null,
        deleted_at text,
        content text not null      -- JSON, as imported
    ) strict;

    create table quickstart_tags (
        quickstart_id integer not null references quickstarts (id) on delete cascade,
        kind text not null,
        value text not null,
        primary key (quickstart_id, kind, value)
    ) strict, without rowid;
    create index quickstart_tags_by_value on quickstart_tags (value, kind);

    -- All words of the whole document, stemmed.
    create virtual table quickstarts_fts using fts5 (
        text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
    );

    create table user_instructions (
        id integer primary key autoincrement,
        instruction text not null,
        context text not null,
        origin text not null default '',   -- a file and its line, `added by hand`, `remembered`
        inserted_at text not null,
        rule_id integer references rules (id) on delete set null
    ) strict;
    create index user_instructions_by_rule on user_instructions (rule_id);

    create table rules (
        id integer primary key autoincrement,
        rule_text text not null,
        category text not null,
        context text not null,
        relevance_score real not null default 1.0,   -- weight: importance, moved by what is reported of its use
        embedding integer,         -- its row in `vectors`; null while no model was there
        created_from_instruction_id integer not null references user_instructions (id),
        last_applied text,
        instructions_count integer not null default 0,
        inserted_at text not null,
        updated_at text not null,
        retired_at text,
        project text,              -- null = holds in every project
        globs text not null default '[]',            -- JSON: files it is about; empty = any
        always_apply integer not null default 0,     -- 1 = for every task; 2 = once the person has seen it
        made_by text,              -- the assistant that wrote it last; null = the person
        digest blob not null       -- of the folded rule text: the same rule is stored once a project
    ) strict;
    -- Filters read these alone, not the rows.
    create index rules_by_category on rules (category, retired_at, project, globs);
    create index rules_in_force on rules (retired_at, project, globs);
    create index rules_by_globs on rules (globs) where globs <> '[]';
    create index rules_by_digest on rules (digest);
    create index rules_by_instruction on rules (created_from_instruction_id);
    create index rules_always on rules (id) where always_apply = 1;
    create index rules_without_vector on rules (id) where embedding is null;

    create table rule_uses (
        id integer primary key autoincrement,
        rule_id integer not null references rules (id) on delete cascade,
        occasion text not null,    -- rules that were applied together share it
        task text not null default '',
        useful integer not null,   -- 1, or 0 when it was reported as not useful
        used_at text not null
    ) strict;
    create index rule_uses_by_rule on rule_uses (rule_id, useful);
    create index rule_uses_by_occasion on rule_uses (occasion);

    create table api_keys (
        id text primary key,
        prefix text not null,      -- the first 12 characters: how a key is looked up and told from others
        key_hash text not null,    -- bcrypt, cost 10; the key itself is nowhere
        name text not null default '',
        is_active integer not null default 1,
        scopes text not null,      -- JSON array of read, write, admin
        collections text,          -- JSON array of {id, name}; null = all
        tools text,                -- JSON array of names; null = all
        providers text,            -- JSON array of names; null = all
        expires_at text,
        last_used_at text,
        uses integer not null default 0,
        created_at text not null,
        metadata text not null default '{}'
    ) strict;
    create index api_keys_by_prefix on api_keys (prefix);

    create table calls (
        id integer primary key autoincrement,
        tool text not null,
        via text,                  -- the tool that ran it for the caller, such as execute_tool
        caller text not null,      -- cli, tui, stdio, or the id of an API key
        collections text,          -- JSON array: those the key is bound to, else the one that was named
        started_at text not null,
        seconds real not null,
        success integer not null,
        argument_bytes integer not null,
        result_bytes integer not null,
        error_class text,
        error_message text,
        arguments text,            -- JSON with secrets masked, shortened; null when they are not kept
        origin text,               -- JSON: where a request over HTTP came from
        stored_bytes integer not null
    ) strict;
    create index calls_by_time on calls (started_at, stored_bytes);
    create index calls_by_caller on calls (caller, id);

    create table manifest (
        one integer primary key check (one = 1),
        content text not null      -- JSON: title, author, note, when, what is in it, and the digest over all of it
    ) strict;
"""


def create_schema(connection: apsw.Connection, file_id: str = "") -> None:
    """Make every table of ours in an empty file, whose id is random unless given; the caller holds the transaction."""
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute(SCHEMA)
    connection.execute("insert into file (id, created_at) values (?, ?)", (file_id or uuid.uuid4().hex, utc_now()))
    connection.execute("insert into state (one) values (1)")
    connection.pragma("user_version", SCHEMA_VERSION)


@cache
def expected_schema() -> Mapping[tuple[str, str], str]:
    """Return (type, name) -> SQL of every object that a file of ours has."""
    with closing(apsw.Connection(":memory:")) as connection:
        create_schema(connection)
        return schema_of(connection)


def schema_of(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return (type, name) -> SQL of every object in the file; a trigger may bear the name of a table."""
    rows = connection.execute("select type, name, coalesce(sql, '') from sqlite_schema")
    return {(kind, name): sql for kind, name, sql in rows}


# ---------------------------------------------------------------- given files


def is_blank(connection: apsw.Connection) -> bool:
    """Return whether nothing was ever written to the file."""
    return connection.pragma("application_id") == connection.pragma("user_version") == 0 and not schema_of(connection)


def names_another_file(path: Path) -> bool:
    """Return whether the journal beside a file ends with the name of another, which SQLite would delete."""
    journal = path.with_name(f"{path.name}-journal")
    return journal.is_file() and journal.read_bytes().endswith(bytes.fromhex("d9d505f920a163d7"))


def read_file_id(connection: apsw.Connection, path: Path) -> str:
    """Return the random id that a file of ours was born with; NotOurFile, FileTooOld or FileTooNew for another file."""
    application_id, version = connection.pragma("application_id"), int(connection.pragma("user_version"))
    if application_id == 0x6C6D6370:
        hint = "It was left untouched. Add its folders to a new file with: localmcp --db NEW add FOLDER"
        raise FileTooOld(f"{path} was made before the first release, and its tables differ.", hint=hint)
    if application_id != APPLICATION_ID:
        raise NotOurFile(f"{path} is not a localmcp file.", hint="Name a file that localmcp made.")
    if version > SCHEMA_VERSION:
        message = f"{path} was written by a newer localmcp (version {version}; this one knows {SCHEMA_VERSION})."
        raise FileTooNew(message, hint="Update localmcp; the file was left untouched.")
    file_id = connection.execute("select id from file").get
    # A file in the state directory is named by it.
    if not isinstance(file_id, str) or not re.fullmatch("[0-9a-f]{32}", file_id):
        raise NotOurFile(f"{path} has no valid id.")
    return file_id


def check_schema(connection: apsw.Connection, path: Path, *, adopted: bool) -> None:
    """Refuse a file with another schema (AlteredSchema): SQLite would run the code in it."""
    actual, expected = schema_of(connection), expected_schema()
    problems = [f"'{key[1]}' differs" for key, sql in expected.items() if actual.get(key) != sql]
    for (kind, name), sql in actual.items():
        # A hand-made schema may hold comments where SQLite itself writes one space.
        bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", sql, flags=re.DOTALL)
        is_plain = kind in ("table", "index") and not re.match(r"\s*create\s+virtual\b", bare, re.IGNORECASE)
        if (kind, name) not in expected and not is_plain:
            problems.append(f"it holds a {kind} that is not ours: '{name}'")
    # One that is adopted may have tables and indexes that a person added.
    if not adopted:
        problems += [f"it holds what is not ours: {foreign}" for foreign in foreign_objects(connection)]
    if problems:
        message = f"{path} does not have the schema of a localmcp file: {problems[0]}."
        hint = "It was left untouched. Put a file with its rows alone in its place: "
        raise AlteredSchema(message, hint=hint + command_line("localmcp", "adopt", path))


def foreign_objects(connection: apsw.Connection) -> list[str]:
    """Return the tables and indexes that are not ours, such as those that a person added."""
    foreign = [f"{kind} '{name[:80]}'" for kind, name in schema_of(connection).keys() - expected_schema().keys()]
    return sorted(text for text in foreign if "'sqlite_" not in text)


def is_adopted(file_id: str) -> bool:
    """Return whether this machine made the file or was told to trust it; others are read-only."""
    return (config.state_directory() / "files" / file_id).exists()


def adopt_file(file_id: str) -> Path:
    """Remember the file's id in the state directory, and return where; FileUnavailable if that cannot be written."""
    folder = config.state_directory() / "files"
    try:
        make_private_folder(folder)
        (folder / file_id).touch()
        return folder / file_id
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}."
        raise FileUnavailable(message, hint="Name another folder with LOCALMCP_STATE_DIR.") from error


# ---------------------------------------------------------------- times


def utc_text(moment: datetime) -> str:
    """ISO 8601 UTC with milliseconds, as every time in the file is written."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_moment(text: str) -> datetime:
    """Return a time in UTC, which one without an offset is; TypeError, ValueError, OverflowError: not ISO 8601."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_now(ago: float = 0.0) -> str:
    """Return the time `ago` seconds before now, as it is written in the file."""
    return utc_text(datetime.now(UTC) - timedelta(seconds=ago))


def days_ago(words: str, today: date) -> int | None:
    """Return how many days ago it began: `yesterday`, `this week` (from Monday on), `last month` (30 days); or None."""
    plain = " ".join(words.lower().split())
    begun = {"this week": today.weekday(), "this month": today.day - 1, "this year": today.timetuple().tm_yday - 1}
    return {"today": 0, "yesterday": 1, "last week": 7, "last month": 30, "last year": 365, **begun}.get(plain)


def parse_span(text: str) -> timedelta | None:
    """Return the length of time that a person typed: `30min`, `12h ago`, `7d`, `6m` (of 30 days), `1y`; else None."""
    units = "s|secs?|seconds?|mins?|minutes?|h|hours?|d|days?|w|weeks?|m|months?|y|years?"
    match = re.fullmatch(rf"(\d{{1,6}}) ?({units})( ago)?", " ".join(text.split()), re.IGNORECASE)
    if match is None:
        return None
    unit = match[2].lower()
    unit = "min" if unit.startswith("min") else unit[0]
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "m": 30 * 86_400, "y": 365 * 86_400}[unit]
    return timedelta(seconds=int(match[1]) * seconds)
