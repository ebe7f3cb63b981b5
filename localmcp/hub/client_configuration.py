"""Where MCP clients keep their servers on this machine, and reading what they keep there."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from localmcp.errors import ConfigurationError, InvalidInput, NotFound
from localmcp.files import expand_home, reason_of
from localmcp.schemas import Json, json_kind, mapping_of

MCP_SERVERS, SERVERS, CONTEXT_SERVERS, CODEX_SERVERS = "mcpServers", "servers", "context_servers", "mcp_servers"
TABLES = (MCP_SERVERS, SERVERS, CONTEXT_SERVERS, CODEX_SERVERS)
"""The table of servers: of most clients, of VS Code, of Zed, of Codex."""

_FILTERS = {
    "enabled_tools": "include", "includeTools": "include",
    "disabled_tools": "exclude", "excludeTools": "exclude", "disabledTools": "exclude",
}  # fmt: skip

_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.S)
_STRING_OR_LAST_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file in which a client may keep its servers."""

    client: str
    """As people write it on the command line: `claude-desktop`."""
    title: str
    path: Path
    table: str
    """The key of the file that holds the servers."""
    project: bool = False
    """Belongs to a working folder, not to the person: it may come from a clone, and is never read unasked."""

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"


def client_files(client: str | None = None, *, project: Path | None = None) -> list[ClientFile]:
    """Return where a client (every client for None) may keep its servers on this system, the likeliest place first.

    Args:
        project: also the files that clients read from this working folder.

    Raises:
        InvalidInput: no client is called so.
    """
    table = _client_paths(project)
    if client is not None and client not in _TITLES:
        raise InvalidInput(f"No client is called '{client}'.", hint=f"Known clients: {', '.join(_TITLES)}.")
    return [entry for entry in table if client in (None, entry.client)]


def client_names() -> list[str]:
    """Return the clients whose files are known."""
    return list(_TITLES)


_TITLES = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "zed": "Zed",
    "gemini": "Gemini CLI",
    "codex": "Codex",
}


def _client_paths(project: Path | None) -> list[ClientFile]:
    home = Path.home()
    applications = _application_directory()
    configurations: list[tuple[str, Path, str]] = [
        *(("claude-desktop", folder / "claude_desktop_config.json", MCP_SERVERS) for folder in _claude_folders()),
        ("claude-code", _folder("CLAUDE_CONFIG_DIR", home) / ".claude.json", MCP_SERVERS),
        ("cursor", home / ".cursor" / "mcp.json", MCP_SERVERS),
        ("vscode", applications / "Code" / "User" / "mcp.json", SERVERS),
        ("vscode", applications / "Code - Insiders" / "User" / "mcp.json", SERVERS),
        ("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json", MCP_SERVERS),
        ("zed", _zed_folder() / "settings.json", CONTEXT_SERVERS),
        ("gemini", home / ".gemini" / "settings.json", MCP_SERVERS),
        ("codex", _folder("CODEX_HOME", home / ".codex") / "config.toml", CODEX_SERVERS),
    ]
    files = [ClientFile(client, _TITLES[client], path, table) for client, path, table in configurations]
    if project is not None:
        files += [
            ClientFile("claude-code", _TITLES["claude-code"], project / ".mcp.json", MCP_SERVERS, True),
            ClientFile("cursor", _TITLES["cursor"], project / ".cursor" / "mcp.json", MCP_SERVERS, True),
            ClientFile("vscode", _TITLES["vscode"], project / ".vscode" / "mcp.json", SERVERS, True),
        ]
    return files


def _claude_folders() -> list[Path]:
    """Builds from Microsoft's store read a folder of the package, and ignore the classic one."""
    classic = _application_directory() / "Claude"
    if sys.platform != "win32":
        return [classic]
    packages = _folder("LOCALAPPDATA", Path.home() / "AppData" / "Local") / "Packages"
    stored = [path / "LocalCache" / "Roaming" / "Claude" for path in sorted(packages.glob("Claude_*"))]
    return [*stored, classic]


def _application_directory() -> Path:
    """Return where desktop applications keep their settings."""
    if sys.platform == "win32":
        return _folder("APPDATA", Path.home() / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return _folder("XDG_CONFIG_HOME", Path.home() / ".config")


def _zed_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / ".config" / "zed"
    return _application_directory() / ("Zed" if sys.platform == "win32" else "zed")


def _folder(variable: str, otherwise: Path) -> Path:
    value = os.environ.get(variable, "").strip()
    return expand_home(value) if value else otherwise


def read_client(client: str) -> dict[Path, dict[str, Any]]:
    """Return the servers of a client: file -> name -> entry, as the client has them.

    Raises:
        InvalidInput: no client is called so.
        NotFound: none of its files exists; the message names where they were looked for.
        ConfigurationError: a file cannot be read.
    """
    files = client_files(client)
    existing = [file for file in files if file.path.is_file()]
    if not existing:
        places = "\n".join(f"  {file.path}" for file in files)
        raise NotFound(f"{files[0].title} has no configuration here; looked for:\n{places}")
    return {client_file.path: servers_in(read_document(client_file.path), client_file.path) for client_file in existing}


def servers_in(document: Json, path: Path) -> dict[str, Any]:
    """Return the servers of a file in any known form: name -> entry, with keys named as in `mcpServers`.

    Raises:
        ConfigurationError: the table of servers is not an object.
    """
    # VS Code kept its servers in settings.json before it had a file for them.
    tables = [*(document.get(key) for key in TABLES), mapping_of(document.get("mcp")).get(SERVERS)]
    servers_by_name: dict[str, Any] = {}
    for table in tables:
        if table is None:
            continue
        if not isinstance(table, dict):
            raise ConfigurationError(f"{path}: the table of servers must be an object, not {json_kind(table)}.")
        for name, entry in cast(Json, table).items():
            servers_by_name.setdefault(name, _with_env_file(_in_our_words(entry), path))
    return servers_by_name


def _in_our_words(entry: Any) -> Any:
    """Return the entry with the keys that only some clients use renamed; anything but an object stays as it is."""
    if not isinstance(entry, dict):
        return entry
    entry = dict(cast(Json, entry))
    command = entry.get("command")
    if isinstance(command, dict):
        # Zed once had {"command": {"path", "args", "env"}}.
        inner = cast(Json, command)
        entry = {**entry, **inner, "command": inner.get("path", "")}
        entry.pop("path", None)
    renamed = {"httpUrl": "url", "serverUrl": "url", "http_headers": "headers"}
    for old, new in (*renamed.items(), ("startup_timeout_sec", "startTimeout"), ("tool_timeout_sec", "timeout")):
        if old in entry:
            entry.setdefault(new, entry.pop(old))
    return _with_filter(_with_headers_from_variables(entry))


def _with_env_file(entry: Any, path: Path) -> Any:
    """Return the entry with the whole path of its file of variables, which editors look for in the working folder."""
    env_file = mapping_of(entry).get("envFile")
    if not isinstance(env_file, str) or not env_file.strip():
        return entry
    in_project = path.parent.name in (".vscode", ".cursor") and path.parent.parent != Path.home()
    folder = path.parent.parent if in_project else path.parent
    env_file = env_file.replace("${workspaceFolder}", str(folder)) if in_project else env_file
    return {**entry, "envFile": env_file if env_file.startswith(("~", "${")) else str(folder / env_file)}


def _with_headers_from_variables(entry: Json) -> Json:
    """Return the entry with the headers that Codex reads from variables, as texts that name the variables."""
    bearer, named = entry.pop("bearer_token_env_var", None), mapping_of(entry.pop("env_http_headers", None))
    headers = {name: f"${{{variable}}}" for name, variable in named.items()}
    if isinstance(bearer, str) and bearer:
        headers["Authorization"] = f"Bearer ${{{bearer}}}"
    return {**entry, "headers": {**headers, **mapping_of(entry.get("headers"))}} if headers else entry


def _with_filter(entry: Json) -> Json:
    """Return the entry with the tools that the client leaves out left out here too."""
    filters: Json = {new: entry.pop(old) for old, new in _FILTERS.items() if isinstance(entry.get(old), list)}
    if isinstance(names := entry.get("tools"), list):
        filters = {"include": names, **filters}
        del entry["tools"]
    return {**entry, "tools": filters} if filters and "tools" not in entry else entry


def read_document(path: Path, content: bytes | None = None) -> Json:
    """Return the file as a table; JSON may have comments and last commas, as several clients allow.

    `content` is what it will hold, where that is not written yet.

    Raises:
        ConfigurationError: not to be read, or not a table; names the line.
    """
    try:
        text = (path.read_bytes() if content is None else content).decode("utf-8-sig")
        value: Any = tomllib.loads(text) if path.suffix == ".toml" else _loads_patiently(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error) if isinstance(error, OSError | UnicodeDecodeError) else error
        raise ConfigurationError(f"{path} cannot be read: {reason}.", hint="Fix or move the file.") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} must hold a JSON object, not {json_kind(value)}.")
    return cast(Json, value)


def _loads_patiently(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        # Comments become spaces of the same length, so that the line and column of an error stay true.
        plain = _STRING_OR_COMMENT.sub(
            lambda match: re.sub(r"[^\n]", " ", match[0]) if match[0][0] == "/" else match[0], text
        )
        return json.loads(_STRING_OR_LAST_COMMA.sub(lambda match: " " if match[0] == "," else match[0], plain))
