"""Which files to change: those of a client on this machine, or one that the person names."""

from __future__ import annotations

import os
from pathlib import Path

from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError
from localmcp.files import expand_home
from localmcp.hub.client_configuration import (
    CODEX_SERVERS,
    CONTEXT_SERVERS,
    MCP_SERVERS,
    SERVERS,
    TABLES,
    ClientFile,
    client_files,
    client_names,
    read_document,
    servers_in,
)
from localmcp.schemas import Json, json_kind, nearest

FILE = "file"
"""The client of a file that belongs to no known client."""
_ENDINGS = (".json", ".jsonc", ".toml")


def find_targets(client_or_file: str) -> list[ClientFile]:
    """Return the files to change for the name of a client, or of a file.

    Of a client, those in folders that exist (there may be two builds of it), else the likeliest one.

    Raises:
        InvalidInput: neither a client nor a path to a file.
    """
    if client_or_file in client_names():
        files = client_files(client_or_file)
        return [file for file in files if is_present(file)] or files[:1]
    path = expand_home(client_or_file)
    if not (path.suffix.lower() in _ENDINGS or os.sep in client_or_file or "/" in client_or_file or path.is_file()):
        near = nearest(client_or_file, client_names())
        choices = f"Clients: {', '.join(client_names())}. A file ends with .json or .toml."
        hint = f"Did you mean '{near}'? {choices}" if near else choices
        raise InvalidInput(f"'{client_or_file}' is neither a client that is known nor a file.", hint=hint)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder.", hint="Name the file in it, such as mcp.json.")
    return [file_target(path.absolute())]


def is_present(target: ClientFile) -> bool:
    """Return whether the client seems to be installed: its file is there, or the folder that only it makes."""
    if target.path.is_file():
        return True
    folder = target.path.parent
    # The build from Microsoft's store makes this folder only at its first start, but its package is there.
    return (folder.is_dir() and folder != Path.home()) or "LocalCache" in folder.parts


def present_clients() -> list[ClientFile]:
    """Return the files of every client that seems to be installed here."""
    return [client_file for client_file in client_files() if is_present(client_file)]


def read_present_clients() -> tuple[dict[Path, Json], list[str]]:
    """Return file -> servers of every client on this machine, and the errors of unreadable files."""
    theirs: dict[Path, Json] = {}
    problems: list[str] = []
    for path in (client.path for client in present_clients() if client.path.is_file()):
        try:
            theirs[path] = servers_in(read_document(path), path)
        except LocalMCPError as error:
            problems.append(error.message)
    return theirs, problems


def file_target(path: Path) -> ClientFile:
    """Return the file as a target; its path, else its content, says under which key it has its servers."""
    for candidate in client_files():
        if candidate.path == path:
            return candidate
    # Claude Code reads this file from any working folder.
    return ClientFile("claude-code" if path.name == ".mcp.json" else FILE, path, _table_of(path))


def _table_of(path: Path) -> str:
    if path.suffix == ".toml":
        return CODEX_SERVERS
    if path.is_file():
        document = read_document(path)
        if table := next((table for table in TABLES if table in document), None):
            if not isinstance(document[table], dict):
                kind = json_kind(document[table])
                raise ConfigurationError(f"{path}: '{table}' must be an object, not {kind}.")
            return table
    if path.parent.name in (".vscode", "User"):
        return SERVERS
    return CONTEXT_SERVERS if path.parent.name in ("zed", ".zed") else MCP_SERVERS
