"""The entry with which a client starts localmcp, for the same file and settings, and the server started once by it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from localmcp.config import APP, describe_settings, is_secret, read_variable, state_directory
from localmcp.errors import LocalMCPError, Unavailable
from localmcp.files import expand_home
from localmcp.hub.client_configuration import CODEX_SERVERS, MCP_SERVERS, SERVERS, ClientFile
from localmcp.schemas import Json
from localmcp.tools.profiles import read_profile

if TYPE_CHECKING:
    from localmcp.hub.client import Connection

Reply = TypeVar("Reply")

DIRECTORIES = ("LOCALMCP_DATA_DIR", "LOCALMCP_CONFIG_DIR", "LOCALMCP_STATE_DIR", "LOCALMCP_CACHE_DIR")
_DATABASE, _FOLDERS = "LOCALMCP_DB", "LOCALMCP_FOLDERS"


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """An entry for a client, and which variables of this shell are in it."""

    entry: Json
    """`command`, `args` and `env`; paths are absolute, because desktop programs do not know a shell's PATH."""
    carried: tuple[str, ...]
    """Variables of this shell that are in the entry, so that the client gets the same settings."""
    withheld: tuple[str, ...]
    """Variables of this shell that are not, because they are secret."""


def make_entry(database: str | None = None, profile: str | None = None) -> ClientEntry:
    """Return how to start this installation.

    For None the database is the one that the variable LOCALMCP_DB names, else the one of the settings. A profile limits
    the client; raises ConfigurationError if there is none of that name.
    """
    args = ["-m", "localmcp", "serve"]
    file = database or read_variable(_DATABASE)
    if file:
        args += ["--db", str(expand_home(file).absolute())]
    if profile is not None:
        read_profile(profile)
        args += ["--profile", profile]
    variables = _settings_of_this_shell()
    secret = {setting["env"] for setting in describe_settings() if is_secret(setting["name"])}
    carried = {name: value for name, value in variables.items() if name not in secret}
    environment = {"PYTHONUTF8": "1", **carried}
    from importlib.metadata import distributions

    if not list(distributions(name=APP)):
        # Run from its source: Python finds the package only where it is told.
        environment["PYTHONPATH"] = str(Path(str(files(APP))).parent.absolute())
    entry: Json = {"command": os.path.abspath(sys.executable), "args": args, "env": environment}
    return ClientEntry(entry, tuple(carried), tuple(name for name in variables if name in secret))


def _settings_of_this_shell() -> dict[str, str]:
    values = {name: read_variable(name) for name in (*DIRECTORIES, *(item["env"] for item in describe_settings()))}
    values.pop(_DATABASE, None)
    for name in (*DIRECTORIES, _FOLDERS):
        parts = (values.get(name) or "").split(os.pathsep)
        values[name] = os.pathsep.join(str(expand_home(part).absolute()) for part in parts if part)
    return {name: value for name, value in values.items() if value}


def entry_for(target: ClientFile, entry: Mapping[str, Any]) -> Json:
    """Return the entry with the keys that this client needs besides.

    Claude Code (2.1.121 and later) defers the tools of every server behind its own search; the ten that are
    listed here find all others, so they are worth loading at once.
    """
    if target.client == "claude-code":
        return {"type": "stdio", **entry, "alwaysLoad": True}
    if target.table == SERVERS:
        return {"type": "stdio", **entry}
    return dict(entry)


def block_for(target: ClientFile | None, name: str, entry: Mapping[str, Any]) -> str:
    """Return the block as a person pastes it into the client's file; None = the form that most clients read."""
    block = {target.table: {name: entry_for(target, entry)}} if target else {MCP_SERVERS: {name: dict(entry)}}
    if CODEX_SERVERS in block:
        import tomlkit

        return tomlkit.dumps(block).rstrip("\n")
    return json.dumps(block, ensure_ascii=False, indent=2)


# ---------------------------------------------------------------- the trial start


def ask_for_tools(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that the client will see; raises as `ask_server`."""
    listed = ask_server(name, entry, lambda connection: connection.list_offers(["tools"]))
    return [str(tool["name"]) for tool in listed["tools"]]


def ask_server(name: str, entry: Mapping[str, Any], ask: Callable[[Connection], Awaitable[Reply]]) -> Reply:
    """Return what `ask` gets from a server that is started for it; raises Unavailable if it does not answer.

    It is started in an empty folder and without the variables of this shell, as a desktop program does.
    """
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

    # Windows may hold the folder for a moment after the server has ended.
    with tempfile.TemporaryDirectory(prefix="localmcp-", ignore_cleanup_errors=True) as folder:
        try:
            return asyncio.run(connect_and_ask(folder))
        except LocalMCPError as error:
            message = f"The server does not start the way the client would start it: {error.message}"
            raise Unavailable(message, hint=error.hint) from error
