"""The configuration files of clients, which are changed without losing anything; the entry that starts localmcp."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from localmcp.config import APP, describe_settings, read_variable, state_directory
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import expand_home, write_atomically
from localmcp.hub import client_configuration as clients
from localmcp.hub.client_configuration import ClientFile, client_files, client_names, is_localmcp, read_document
from localmcp.schemas import Json, did_you_mean, json_kind, mapping_of
from localmcp.tools.base import read_profile

if TYPE_CHECKING:
    from localmcp.hub.client import Connection

DIRECTORIES = ("LOCALMCP_DATA_DIR", "LOCALMCP_CONFIG_DIR", "LOCALMCP_STATE_DIR", "LOCALMCP_CACHE_DIR")
FILE = "file"
"""The client of a file that belongs to no known client."""


def find_targets(client_or_file: str) -> list[ClientFile]:
    """Return the files to change for the name of a client, or of a file; raises InvalidInput if it is neither.

    Of a client, those in folders that exist (there may be two builds of it), else the likeliest one.
    """
    if client_or_file in client_names():
        files = client_files(client_or_file)
        return [file for file in files if is_present(file)] or files[:1]
    path = expand_home(client_or_file).absolute()
    is_path = os.sep in client_or_file or path.suffix in (".json", ".jsonc", ".toml") or path.is_file()
    if not is_path or path.is_dir():
        hint = f"Clients: {', '.join(client_names())}. A file ends with .json or .toml."
        hint = f"{did_you_mean(client_or_file, client_names())} {hint}".strip()
        raise InvalidInput(f"'{client_or_file}' is neither a client that is known nor a file.", hint=hint)
    for client_file in client_files():
        if client_file.path == path:
            return [client_file]
    # Claude Code reads `.mcp.json` from any working folder.
    client = "claude-code" if path.name == ".mcp.json" else FILE
    # Under which key it has its servers: as its content, else its path, says.
    document = read_document(path) if path.is_file() and path.suffix != ".toml" else {}
    by_folder = {".vscode": clients.SERVERS, "User": clients.SERVERS}
    by_folder |= {".zed": clients.CONTEXT_SERVERS, "zed": clients.CONTEXT_SERVERS}
    usual = clients.CODEX_SERVERS if path.suffix == ".toml" else by_folder.get(path.parent.name, clients.MCP_SERVERS)
    return [ClientFile(client, path, next((table for table in clients.TABLES if table in document), usual))]


def is_present(target: ClientFile) -> bool:
    """Return whether the client seems to be installed: its file is there, or the folder that only it makes."""
    folder = target.path.parent
    # The build from Microsoft's store makes this folder only at its first start, but its package is there.
    return target.path.is_file() or (folder.is_dir() and folder != Path.home()) or "LocalCache" in folder.parts


def present_clients() -> list[ClientFile]:
    """Return the files of every client that seems to be installed here."""
    return [client_file for client_file in client_files() if is_present(client_file)]


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of one file."""

    target: ClientFile
    action: Literal["added", "updated", "unchanged", "removed", "absent"]
    before: bytes | None
    """None: there is no file yet."""
    after: bytes


def plan_change(target: ClientFile, name: str, entry: Json | None) -> Change:
    """Return the change that makes the file start localmcp as `name`, or no longer, for None.

    Keys that the person added to the entry stay. Raises ConfigurationError if the file cannot be read, or has comments,
    which a change would remove; InvalidInput if the name belongs to another program.
    """
    before, table = _read(target)
    kept = mapping_of(table.get(name))
    if name in table and not is_localmcp(kept):
        message = f"'{name}' in {target.path} is another program, not localmcp."
        raise InvalidInput(message, hint="Choose another name with --name.")
    if entry is None:
        if not kept:
            return Change(target, "absent", before, before or b"")
        by_hand = f"Take '{name}' out of '{target.table}' by hand."
        return Change(target, "removed", before, _edited(target, before, name, None, by_hand))
    ours = entry_for(target, entry)
    merged = {**kept, **ours, "env": {**mapping_of(kept.get("env")), **ours["env"]}}
    if "alwaysLoad" in kept and "alwaysLoad" in ours:
        merged["alwaysLoad"] = kept["alwaysLoad"]
    if kept == merged:
        return Change(target, "unchanged", before, before or b"")
    by_hand = f"Put this into it by hand:\n{block_for(target, name, merged)}"
    return Change(target, "updated" if kept else "added", before, _edited(target, before, name, merged, by_hand))


def describe_client(target: ClientFile) -> Json:
    """Return a client, the names under which it starts localmcp, and why its file cannot be read."""
    client: Json = {"client": target.client, "title": target.title, "path": str(target.path), "error": None}
    try:
        entries = _read(target)[1]
    except LocalMCPError as error:
        return {**client, "connectedAs": [], "error": error.message}
    return {**client, "connectedAs": [name for name, entry in entries.items() if is_localmcp(mapping_of(entry))]}


def _read(target: ClientFile) -> tuple[bytes | None, Json]:
    """Return the file's bytes (None when there is none), and its table of servers."""
    if not target.path.exists():
        return None, {}
    table = read_document(target.path).get(target.table, {})
    if not isinstance(table, dict):
        message = f"{target.path}: '{target.table}' must be an object, not {json_kind(table)}."
        raise ConfigurationError(message, hint="Fix it by hand; the file was left untouched.")
    return target.path.read_bytes(), cast(Json, table)


def _edited(target: ClientFile, before: bytes | None, name: str, entry: Json | None, by_hand: str) -> bytes:
    import tomlkit

    text = (before or b"").decode()
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    bare = text.removeprefix(mark)
    is_toml = target.path.suffix == ".toml"
    try:
        document: Any = tomlkit.parse(bare) if is_toml else json.loads(bare.strip() or "{}")
    except ValueError:
        # It can be read, so it has what only some clients allow.
        message = f"{target.path} has comments, which writing it would remove; it was left untouched."
        raise ConfigurationError(message, hint=by_hand) from None
    table: Any = document.setdefault(target.table, tomlkit.table(is_super_table=True) if is_toml else {})
    if entry is None:
        del table[name]
    else:
        table[name] = entry
    if is_toml:
        return (mark + tomlkit.dumps(document)).encode()
    indent = re.search(r"\n([ \t]+)\S", bare)
    written = json.dumps(document, ensure_ascii=False, indent=indent[1] if indent else 2) + "\n"
    return (mark + (written.replace("\n", "\r\n") if "\r\n" in bare else written)).encode()


def write_changes(changes: Iterable[Change], *, dry_run: bool) -> list[Json]:
    """Write the changes that are needed, none in a dry run; return of each file its path, the action and the copy.

    Each is written whole or not at all; a link is followed to its file. Raises ConfigurationError if a file is
    write-protected, or another program changed it meanwhile.
    """
    written: list[Json] = []
    for change in changes:
        outcome: Json = {"path": str(change.target.path), "action": change.action, "backup": None}
        written.append(outcome)
        if dry_run or change.action in ("unchanged", "absent"):
            continue
        path = change.target.path.resolve()
        try:
            current = path.read_bytes() if path.exists() else None
            if current is not None and not path.stat().st_mode & 0o222:
                message = f"{path} is write-protected; it was left untouched."
                raise ConfigurationError(message, hint="Allow writing it.")
            if current != change.before:
                message = f"{path} was changed by another program meanwhile."
                raise ConfigurationError(message, hint="Run the command again.")
            if current is not None:
                backup = path.with_name(f"{path.name}.backup-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
                shutil.copy2(path, backup)
                outcome["backup"] = str(backup)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, change.after)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror or error}."
            raise ConfigurationError(message, hint="Show the block with --print.") from error
    return written


Reply = TypeVar("Reply")


def make_entry(database: str | None = None, profile: str | None = None) -> tuple[Json, list[str], list[str]]:
    """Return how to start this installation, the variables of this shell in it, and those that are too secret.

    `command`, `args` and `env` have absolute paths, because desktop programs do not know a shell's PATH. For None the
    database is the one that the variable LOCALMCP_DB names, else the one of the settings. A profile limits the client;
    raises ConfigurationError if there is none of that name.
    """
    args = ["-m", "localmcp", "serve"]
    if file := database or read_variable("LOCALMCP_DB"):
        args += ["--db", str(expand_home(file).absolute())]
    if profile is not None:
        read_profile(profile)
        args += ["--profile", profile]
    carried: dict[str, str] = {}
    withheld: list[str] = []
    secret = {setting["env"] for setting in describe_settings() if setting["secret"]}
    for name in (*DIRECTORIES, *(setting["env"] for setting in describe_settings())):
        value = read_variable(name) or ""
        if name in (*DIRECTORIES, "LOCALMCP_FOLDERS"):
            value = os.pathsep.join(str(expand_home(part).absolute()) for part in value.split(os.pathsep) if part)
        if value and name in secret:
            withheld.append(name)
        elif value and name != "LOCALMCP_DB":
            carried[name] = value
    environment = {"PYTHONUTF8": "1", **carried}
    from importlib.metadata import distributions

    if not list(distributions(name=APP)):
        # Run from its source: Python finds the package only where it is told.
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    return {"command": os.path.abspath(sys.executable), "args": args, "env": environment}, [*carried], withheld


def entry_for(target: ClientFile, entry: Mapping[str, Any]) -> Json:
    """Return the entry with the keys that this client needs besides."""
    if target.client == "claude-code":
        # Since 2.1.121 it defers the tools of every server behind its own search; our ten find all others.
        return {"type": "stdio", **entry, "alwaysLoad": True}
    if target.table == clients.SERVERS:
        return {"type": "stdio", **entry}
    return dict(entry)


def block_for(target: ClientFile | None, name: str, entry: Mapping[str, Any]) -> str:
    """Return the block as a person pastes it into the client's file; None = the form that most clients read."""
    block = {target.table: {name: entry_for(target, entry)}} if target else {clients.MCP_SERVERS: {name: dict(entry)}}
    if clients.CODEX_SERVERS in block:
        import tomlkit

        return tomlkit.dumps(block).rstrip("\n")
    return json.dumps(block, ensure_ascii=False, indent=2)


def ask_for_tools(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that the client will see; raises as `ask_server`."""
    listed = ask_server(name, entry, lambda connection: connection.list_offers(["tools"]))
    return [str(tool["name"]) for tool in listed["tools"]]


def ask_server(name: str, entry: Mapping[str, Any], ask: Callable[[Connection], Awaitable[Reply]]) -> Reply:
    """Return what `ask` gets from a server that is started for it; raises Unavailable if it does not answer."""
    # The MCP SDK takes most of a second to import.
    from localmcp.hub.client import Connection
    from localmcp.hub.entries import parse_entry

    async def connect_and_ask(folder: str) -> Reply:
        log = state_directory() / "logs" / "connect.log"
        connection = Connection(parse_entry(name, {**entry, "cwd": folder}), log)
        try:
            await connection.open()
            return await ask(connection)
        finally:
            await connection.close()

    # In an empty folder and without the variables of this shell, as a desktop program starts it. Windows may hold the
    # folder for a moment after the server has ended.
    with tempfile.TemporaryDirectory(prefix="localmcp-", ignore_cleanup_errors=True) as folder:
        try:
            return asyncio.run(connect_and_ask(folder))
        except LocalMCPError as error:
            message = f"The server does not start the way the client would start it: {error.message}"
            raise Unavailable(message, hint=error.hint) from error
