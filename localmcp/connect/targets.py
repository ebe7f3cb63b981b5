"""Which files to change: those of a client on this machine, or one that the person names."""

from __future__ import annotations

import os
from pathlib import Path

from localmcp.errors import InvalidInput, LocalMCPError
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
from localmcp.schemas import Json, did_you_mean

FILE = "file"
"""The client of a file that belongs to no known client."""


def find_targets(client_or_file: str) -> list[ClientFile]:
    """Return the files to change for the name of a client, or of a file.

    Of a client, those in folders that exist (there may be two builds of it), else the likeliest one.

    Raises:
        InvalidInput: neither a client nor a path to a file.
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
    known = next((file for file in client_files() if file.path == path), None)
    # Claude Code reads `.mcp.json` from any working folder.
    client = "claude-code" if path.name == ".mcp.json" else FILE
    return [known or ClientFile(client, path, _table_of(path))]


def _table_of(path: Path) -> str:
    """Return under which key a file has its servers: as its content, else its path, says."""
    if path.suffix == ".toml":
        return CODEX_SERVERS
    document = read_document(path) if path.is_file() else {}
    by_folder = {".vscode": SERVERS, "User": SERVERS, "zed": CONTEXT_SERVERS, ".zed": CONTEXT_SERVERS}
    return next((table for table in TABLES if table in document), by_folder.get(path.parent.name, MCP_SERVERS))


def is_present(target: ClientFile) -> bool:
    """Return whether the client seems to be installed: its file is there, or the folder that only it makes."""
    folder = target.path.parent
    # The build from Microsoft's store makes this folder only at its first start, but its package is there.
    return target.path.is_file() or (folder.is_dir() and folder != Path.home()) or "LocalCache" in folder.parts


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
