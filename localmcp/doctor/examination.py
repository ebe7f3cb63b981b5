"""The checks of `localmcp doctor`: this machine, the file, what is in it, and the configuration."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import shutil
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import apsw

from localmcp import __version__, config
from localmcp.api_keys import unknown_names
from localmcp.doctor.backups import LOST_PASSAGES, REMADE_TABLES, count_wrong_counts, damaged_tables
from localmcp.errors import AlteredSchema, ConfigurationError, FileTooNew, LocalMCPError
from localmcp.files import abandoned_folders, check_freshness, expand_home, is_filled
from localmcp.hub.client_configuration import client_files, is_localmcp, read_document, servers_in
from localmcp.hub.servers import McpServers
from localmcp.humanize import command_line, counted, size
from localmcp.index.collections import sound_calibration, spec_of, unread_languages
from localmcp.index.sources import disagreements
from localmcp.index.vector_queue import REFRESH, waiting, word_only_passages
from localmcp.own_tools.folder import line_of
from localmcp.schemas import list_of, mapping_of
from localmcp.storage.adoption import run_killable
from localmcp.storage.connections import check_levenshtein, connect
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import foreign_objects, is_adopted
from localmcp.tools.base import profiles_file, read_profile
from localmcp.visible_text import visible
from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

FIX = "localmcp doctor --fix"
# Documents that are not in the trash, neither with their collection nor alone.
_KEPT = "collection_id in (select id from collections where kind = 'documents')"
_PRESENT = f"trashed_at is null and sources.{_KEPT}"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    """`warn`: it works, but should be looked at. `fail`: something does not work, or the file is not sound."""
    says: str
    fix: str = ""
    """The command that fixes it; empty when nothing has to be done, or no command can."""


def run_checks(target: Workspace | config.Settings | None) -> list[Check]:
    """Run every check. Settings are enough where no file is open; None: they cannot be used, nor can the file then.

    1 s for the model, and 3 s for 100,000 passages.
    """
    if isinstance(target, config.Settings):
        with Workspace(target, read_only=True) as workspace:
            return run_checks(workspace)
    checks = [*_looked("installation", lambda: _check_installation(target.settings if target else None))]
    if target:
        path = target.database.path
        checks += _looked("place", lambda: _check_place(path))
        file = [*_looked("file", lambda: _check_file(path))]
        checks += file
        if not is_filled(path):
            # Only whether the model opens: what it is compared with needs a file.
            checks += _looked("model", lambda: islice(_check_model(target), 1))
        elif all(check.status != "fail" for check in file):
            checks += _looked("contents", lambda: _check_contents(target))
    checks += _looked("config", _check_settings)
    checks += _looked("profiles", lambda: _check_profiles(target))
    checks += _looked("mcp servers", check_servers)
    checks += _looked("clients", _check_clients)
    if target:
        checks += _looked("tools", lambda: _check_tools(target))
    return checks


def _looked(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    # What they say may come from files of others: characters that control a terminal are made visible.
    try:
        for check in look():
            yield replace(check, says=visible(check.says), fix=visible(check.fix))
    except LocalMCPError as error:
        yield Check(name, "fail", visible(str(error)))
    except (apsw.Error, OSError, ValueError, TypeError, LookupError) as error:
        log.debug("the check %s failed", name, exc_info=True)
        says = f"could not be looked at: {type(error).__name__}: {error}"
        yield Check(name, "fail", visible(says[:300]))


def _check_installation(settings: config.Settings | None) -> Iterator[Check]:
    if settings is not None and settings.milvus_address and importlib.util.find_spec("pymilvus") is None:
        yield Check("python", "fail", "not installed: pymilvus", "pip install localmcp[milvus]")
    else:
        system = f"{platform.system()} {platform.machine()}"
        yield Check("python", "ok", f"localmcp {__version__}, Python {platform.python_version()}, {system}")
    version = apsw.sqlite_lib_version()
    with closing(connect("")) as connection:
        if not check_levenshtein(connection):
            says = f"SQLite {version}; its levenshtein function is wrong: quick starts use fallback"
            yield Check("sqlite", "warn", says)
        elif not fetch_one(connection, "select count(*) from pragma_function_list where name = 'vec_version'"):
            says = "sqlite-vec is not loaded (there is no wheel for Windows arm64 and musl); numpy compares the vectors"
            yield Check("sqlite", "warn", says, "pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.1.10'")
        else:
            yield Check("sqlite", "ok", f"SQLite {version}, brought by apsw, with sqlite-vec")


def _check_place(path: Path) -> Iterator[Check]:
    if who := synced_by(path):
        says = f"{path.parent} is synchronized by {who}, which may copy the file half-written or bring back an old one"
        says += "; keep it elsewhere and synchronize backups"
        yield Check("folder", "warn", says, "localmcp config set database PATH")
    else:
        yield Check("folder", "ok", "not in a synchronized folder")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < 100_000_000:
        yield Check("disk", "fail", f"only {size(free)} left: writing may fail, though nothing is lost then")
    else:
        yield Check("disk", "ok", f"{size(free)} left")
    if scraps := abandoned_folders(path.parent):
        names = ", ".join(scrap.name for scrap in scraps[:3])
        yield Check("left behind", "warn", f"unfinished copies of a program that was killed: {names}", FIX)


def synced_by(path: Path) -> str | None:
    """Return the program that synchronizes the folder that the file is in; None when none seems to."""
    programs = {
        "dropbox": "Dropbox", "onedrive": "OneDrive", "google drive": "Google Drive", "googledrive": "Google Drive",
        "my drive": "Google Drive", "mobile documents": "iCloud Drive", "icloud drive": "iCloud Drive",
        "icloud": "iCloud Drive", "cloudstorage": "a cloud drive", "nextcloud": "Nextcloud", "owncloud": "ownCloud",
        "proton drive": "Proton Drive", "syncthing": "Syncthing",
    }  # fmt: skip
    for folder in path.absolute().parents:
        name = folder.name.casefold()
        for beginning, program in programs.items():
            if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-", f"{beginning}~")):
                return program
    return None


def _check_file(path: Path) -> Iterator[Check]:
    # The last check fails when nothing of it can be read.
    if not path.exists():
        yield Check("file", "warn", f"{path} does not exist yet", "localmcp add FOLDER")
        return
    if not is_filled(path):
        yield Check("file", "fail", f"{path} is empty", "localmcp add FOLDER, or: localmcp restore BACKUP")
        return
    try:
        yield from run_killable(path, _look_at_pages, path)
    except LocalMCPError as error:
        fix = command_line("localmcp", "restore", "BACKUP", "--db", path)
        if isinstance(error, AlteredSchema | FileTooNew):
            is_new = isinstance(error, FileTooNew)
            fix = "pip install --upgrade localmcp" if is_new else command_line("localmcp", "adopt", path)
        yield Check("file", "fail", error.message, fix)


def _look_at_pages(path: Path) -> list[Check]:
    # In a process that knows nothing of it: SQLite checks a full-text table against what its connection read earlier.
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        checks = [Check("file", "ok", f"{path}: {size(path.stat().st_size)}")]
        if foreign := foreign_objects(connection)[:20]:
            says = f"not ours, and in no pack, merged or restored file: {', '.join(foreign)}"
            checks.append(Check("file", "warn", says))
        damages = damaged_tables(connection)
        parents = [] if damages else fetch_all(connection, "select * from pragma_foreign_key_check limit 1000")
    fix = command_line("localmcp", "restore", "BACKUP", "--db", path)
    if damages:
        says = "; ".join(f"the table '{table}': {message}" if table else message for table, message in damages.items())
        fix = FIX if damages.keys() <= REMADE_TABLES else fix
        return [*checks, Check("integrity", "fail", f"damaged: {says}", fix)]
    if parents:
        says = f"{len(parents)} rows point at something that is not there"
        return [*checks, Check("integrity", "fail", says, fix)]
    return [*checks, Check("integrity", "ok", "every page is whole")]


def _check_contents(workspace: Workspace) -> Iterator[Check]:
    path, is_writable = workspace.database.path, False
    if not is_adopted(workspace.database.file_id):
        says = "the file comes from somewhere else and is read-only here"
        yield Check("writing", "warn", says, command_line("localmcp", "adopt", path))
    elif not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        yield Check("writing", "warn", "the file or its folder is write-protected: searching works, changing does not")
    else:
        is_writable = True
        yield Check("writing", "ok", "the file can be changed")
    with workspace.database.read() as connection:
        checks = list(_check_tables(connection, adopted=workspace.database.adopted))
    # No command changes the file before it is writable.
    yield from checks if is_writable else (replace(check, fix="") for check in checks)
    for mount in workspace.mounts.described():
        if mount["problem"]:
            says = f"'{mount['name']}' ({mount['path']}) is not searched: {mount['problem']}"
            yield Check("mounted", "warn", says, command_line("localmcp", "unmount", mount["name"]))
    yield from _check_model(workspace)


def _check_tables(connection: apsw.Connection, *, adopted: bool) -> Iterator[Check]:
    sql = f"select count(*), coalesce(sum(chunk_count), 0) from sources where {_PRESENT}"
    sources, chunks = fetch_one(connection, sql)
    yield Check("holds", "ok", f"{counted(sources, 'document')} in {counted(chunks, 'passage')}")
    problems = disagreements(connection)
    for problem in problems:
        lost = any(part in problem for part in LOST_PASSAGES)
        yield Check("indexes", "fail", problem, "localmcp restore BACKUP" if lost else FIX)
    if counts := count_wrong_counts(connection):
        yield Check("indexes", "fail", f"{counts} counts of words or kinds of text are wrong", FIX)
    elif not problems:
        yield Check("indexes", "ok", "keywords, vectors and sign codes agree with the documents")
    ids = fetch_column(connection, "select id from collections where kind = 'documents'")
    if missing := waiting(connection, ids).passages:
        yield Check("vectors", "warn", f"{counted(missing, 'passage')} found by word only so far", REFRESH)
    else:
        by_word_only = word_only_passages(connection, ids)
        aside = f", {by_word_only:,} aside that are found by word only" if by_word_only else ""
        yield Check("vectors", "ok", f"every passage has one{aside}")
    sql = f"""
        select path, ledger.size, ledger.mtime_ns from ledger join sources on sources.id = source_id
        where status = 'indexed' and {_PRESENT} and ledger.mtime_ns is not null order by sources.id limit 50000
    """
    # By size and time alone. A file from somewhere else names places that it wants to be looked at.
    files = fetch_all(connection, sql) if adopted else []
    states = Counter(check_freshness(path, length, mtime_ns, None) for path, length, mtime_ns in files)
    sql = f"select distinct path from roots where kind = 'folder' and {_KEPT}"
    for path in fetch_column(connection, sql) if adopted else ():
        if not os.path.isdir(path):
            says = f"{path} is not there; if its disk is only not mounted, or it was moved, nothing has to be done"
            yield Check("freshness", "warn", says, command_line("localmcp", "remove", path))
    if closed := states["unverifiable"]:
        says = f"{counted(closed, 'file')} cannot be looked at; what was read of them is still searched"
        yield Check("freshness", "warn", says)
    if states["changed"] or states["missing"]:
        words = {"changed": "changed", "missing": "gone"}
        stale = [f"{counted(states[state], 'file')} {word}" for state, word in words.items() if states[state]]
        yield Check("freshness", "warn", f"{' and '.join(stale)}, of {states.total():,}", REFRESH)
    elif states:
        yield Check("freshness", "ok", f"{counted(states.total(), 'file')} as they were indexed")
    if unread := unread_languages(connection):
        yield Check("model", "warn", *unread)


def _check_model(workspace: Workspace) -> Iterator[Check]:
    setting = workspace.settings.model
    try:
        identity = workspace.embedder.get().identity
    except LocalMCPError as error:
        fix = "localmcp config set model default" if isinstance(error, ConfigurationError) else "localmcp models list"
        yield Check("model", "fail", f"{setting}: {error}", "" if error.hint else fix)
        return
    dimensions = f"{identity.dimension} dimensions, {identity.max_tokens} tokens"
    yield Check("model", "ok", f"{setting}: {identity.name}, {dimensions}")
    sql = """
        select collections.name, kind, models.name, dimension from collections join models on models.id = model_id
        where fingerprint <> ? and kind <> 'dropped' order by 1
    """
    with workspace.database.read() as connection:
        foreign = fetch_all(connection, sql, (identity.fingerprint,))
        sql = "select name, calibration from models where id in (select model_id from collections) order by 1"
        models = fetch_all(connection, sql)
    for name, stored in models:
        says = f"{name} is not measured yet: its cosines are read as they are"
        if measured := sound_calibration(stored):
            abroad = "finds" if measured.reads_all else "does not find"
            says = f"{name}: {measured.offset:g} + {measured.factor:g} x cosine; {abroad} answers in other languages"
        yield Check("calibration", "ok", says)
    for name, kind, model, dimension in foreign:
        says = f"come from {model}, not from {identity.name}: not found by meaning"
        if kind == "rules":
            yield Check("model", "warn", f"the vectors of rules {says}", "localmcp reembed")
        else:
            fix = f"localmcp config set model {spec_of(model, dimension)}, or: localmcp reembed"
            yield Check("model", "warn", f"the vectors of '{name}' {says}", fix)


def _check_settings() -> list[Check]:
    path, problems, table = config.config_file(), list[Check](), config.read_config_file()
    text = path.read_text(encoding="utf-8-sig") if table else ""
    raws = [(name, raw, f"{path}:{line_of(text, (name,)) or 1}", f"edit {path}") for name, raw in table.items()]
    raws += [
        (setting["name"], raw, setting["env"], "correct the variable, or unset it")
        for setting in config.describe_settings()
        if (raw := config.read_variable(setting["env"]))
    ]
    for name, raw, where, fix in raws:
        try:
            config.parse_setting(name, raw, where)
        except ConfigurationError as error:
            problems.append(Check("config", "fail", str(error), fix))
    return problems or [Check("config", "ok", f"{path}" if path.exists() else f"no {path}; defaults are used")]


def _check_profiles(workspace: Workspace | None) -> list[Check]:
    # Their tools and collections are looked at with a workspace only.
    path, problems = profiles_file(), list[Check]()
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        names = list(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return [Check("config", "fail", f"{path}: {error}", f"edit {path}")]
    for name in names:
        where = f"{path}:{line_of(text, (name,)) or 1}"
        try:
            limits = read_profile(name)
        except ConfigurationError as error:
            problems.append(Check("config", "fail", f"{where}: {error}", f"edit {path}"))
            continue
        sentences = unknown_names(workspace.registry, workspace.database, limits) if workspace else ()
        problems += [Check("config", "warn", f"{where}: {sentence}", f"edit {path}") for sentence in sentences]
    return problems or [Check("config", "ok", f"{len(names)} in {path}")]


def check_servers() -> list[Check]:
    """Check the entries of `mcp.json`."""
    path, problems = config.servers_file(), list[Check]()
    if not path.exists():
        return []
    hub = McpServers(config.cache_directory() / "mcp", config.state_directory() / "logs")
    # The file is read when they are asked for.
    servers = hub.servers
    if hub.problem is not None:
        raise hub.problem
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    for server in servers.values():
        entry, changed = server.entry, server.changes()
        fix = f"localmcp servers remove {entry.name}"
        if entry.problem:
            line = text.partition(f'"{entry.name}"')[0].count("\n") + 1
            says = f"{path}:{line}: '{entry.name}' cannot be used: {entry.problem}"
            problems.append(Check("mcp servers", "fail", says, fix))
        elif entry.command and not entry.is_off and not _is_program(entry.command, entry.cwd):
            says = f"the program '{entry.command}' of '{entry.name}' is not on this machine"
            problems.append(Check("mcp servers", "warn", says, fix))
        if changed:
            says = f"'{entry.name}' has changed what it says of {', '.join(changed)} since you approved it"
            problems.append(Check("mcp servers", "warn", says, entry.approval))
    return problems or [Check("mcp servers", "ok", f"{len(servers)} in {path}")]


def _is_program(command: str, folder: str = "") -> bool:
    # With a variable in it, it may be.
    command, folder = os.path.expanduser(command), os.path.expanduser(folder)
    is_path = os.path.basename(command) != command
    return "${" in command + folder or shutil.which(os.path.join(folder, command) if is_path else command) is not None


def _check_tools(workspace: Workspace) -> Iterator[Check]:
    if not workspace.own_tools.files():
        return
    problems = workspace.own_tools.problems(workspace.registry)
    for problem in problems:
        where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        says = f"{where}: {problem.message} {problem.hint or ''}".strip()
        yield Check("tools", "fail" if problem.level == "error" else "warn", says, "localmcp tools check")
    if not problems:
        yield Check("tools", "ok", f"your tools in {workspace.own_tools.folder} have no mistakes")


def _check_clients() -> Iterator[Check]:
    using: dict[str, None] = {}
    present = [client for client in client_files() if client.path.is_file()]
    for client in present:
        try:
            entries = servers_in(read_document(client.path), client.path)
        except ConfigurationError as error:
            yield Check("clients", "warn", f"{client.title}: {error.message}")
            continue
        ours = {name: entry for name, value in entries.items() if is_localmcp(entry := mapping_of(value))}
        using |= dict.fromkeys([client.title] if ours else [])
        for name, entry in ours.items():
            command, words = entry.get("command"), [str(argument) for argument in list_of(entry.get("args"))]
            starts = f"{client.title} starts '{name}'"
            if isinstance(command, str) and command and not _is_program(command):
                yield Check("clients", "fail", f"{starts} with {command}, which is not there", "localmcp demo")
            for option, file in zip(words, words[1:], strict=False):
                if option == "--db" and not expand_home(file).exists():
                    yield Check("clients", "warn", f"{starts} on {file}, which does not exist yet")
    titles = f" ({', '.join(dict.fromkeys(client.title for client in present))} found)" if present else ""
    says = f"no MCP client on this machine starts localmcp yet{titles}; connect one with `localmcp connect`"
    yield Check("clients", "ok", f"localmcp is set up in {', '.join(using)}" if using else says)
