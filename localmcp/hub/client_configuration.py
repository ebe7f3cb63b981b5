"""Where MCP clients keep their servers on this machine, and reading what they keep there."""

import json
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast

from localmcp.errors import ConfigurationError, NotFound
from localmcp.files import expand_home, reason_of
from localmcp.schemas import Json, json_kind, list_of, mapping_of

MCP_SERVERS, SERVERS, CONTEXT_SERVERS, CODEX_SERVERS = "mcpServers", "servers", "context_servers", "mcp_servers"
TABLES = (MCP_SERVERS, SERVERS, CONTEXT_SERVERS, CODEX_SERVERS)
"""The table of servers: of most clients, of VS Code, of Zed, of Codex."""

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
_RENAMED = {
    "httpUrl": "url", "serverUrl": "url", "http_headers": "headers",
    "startup_timeout_sec": "startTimeout", "tool_timeout_sec": "timeout",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file in which a client may keep its servers."""

    client: str
    """As people write it on the command line: `claude-desktop`."""
    path: Path
    table: str
    """The key of the file that holds the servers."""

    @property
    def title(self) -> str:
        """The client's name for people, or that of the file."""
        return _TITLES.get(self.client, self.path.name)


def client_names() -> list[str]:
    """Return the clients whose files are known."""
    return list(_TITLES)


def client_files(client: str | None = None) -> list[ClientFile]:
    """Return where a client (every client for None) may keep its servers on this system, the likeliest place first."""
    home = Path.home()
    # Where desktop applications keep their settings.
    applications, stores = _folder("XDG_CONFIG_HOME", home / ".config"), list[Path]()
    if sys.platform == "win32":
        applications = _folder("APPDATA", home / "AppData" / "Roaming")
        # Builds from Microsoft's store read a folder of the package, and ignore the classic one.
        packages = _folder("LOCALAPPDATA", home / "AppData" / "Local") / "Packages"
        stores = [path / "LocalCache" / "Roaming" for path in sorted(packages.glob("Claude_*"))]
    elif sys.platform == "darwin":
        applications = home / "Library" / "Application Support"
    zed = home / ".config" / "zed" if sys.platform == "darwin" else applications / "zed"
    claude = [folder / "Claude" / "claude_desktop_config.json" for folder in (*stores, applications)]
    files = [
        *(ClientFile("claude-desktop", path, MCP_SERVERS) for path in claude),
        ClientFile("claude-code", _folder("CLAUDE_CONFIG_DIR", home) / ".claude.json", MCP_SERVERS),
        ClientFile("cursor", home / ".cursor" / "mcp.json", MCP_SERVERS),
        ClientFile("vscode", applications / "Code" / "User" / "mcp.json", SERVERS),
        ClientFile("vscode", applications / "Code - Insiders" / "User" / "mcp.json", SERVERS),
        ClientFile("windsurf", home / ".codeium" / "windsurf" / "mcp_config.json", MCP_SERVERS),
        ClientFile("zed", zed / "settings.json", CONTEXT_SERVERS),
        ClientFile("gemini", home / ".gemini" / "settings.json", MCP_SERVERS),
        ClientFile("codex", _folder("CODEX_HOME", home / ".codex") / "config.toml", CODEX_SERVERS),
    ]
    return [file for file in files if client in (None, file.client)]


def _folder(variable: str, otherwise: Path) -> Path:
    value = os.environ.get(variable, "").strip()
    return expand_home(value) if value else otherwise


def read_servers(source: str | None) -> tuple[dict[Path, Json], list[str]]:
    """Return file -> its servers of a client or of a file, for None of every client here; and why some cannot be read.

    Raises NotFound if it is neither or the client has no file here, as `read_document` for what is named.
    """
    if source is None or source in _TITLES:
        files = client_files(source)
        paths = [file.path for file in files if file.path.is_file()]
        if source and not paths:
            places = "\n".join(f"  {file.path}" for file in files)
            raise NotFound(f"{_TITLES[source]} has no configuration here; looked for:\n{places}")
    elif (path := expand_home(source)).is_file():
        paths = [path]
    else:
        hint = f"Clients: {', '.join(_TITLES)}."
        raise NotFound(f"'{source}' is neither a file nor a client that is known.", hint=hint)
    servers: dict[Path, Json] = {}
    problems: list[str] = []
    for path in paths:
        try:
            servers[path] = servers_in(read_document(path), path)
        except ConfigurationError as error:
            if source is not None:
                raise
            problems.append(error.message)
    return servers, problems


def servers_in(document: Json, path: Path) -> dict[str, Any]:
    """Return the servers of a file in any known form: name -> entry, with keys named as in `mcpServers`."""
    servers_by_name: dict[str, Any] = {}
    for table in (document.get(key) for key in TABLES):
        if not isinstance(table, dict | None):
            raise ConfigurationError(f"{path}: the table of servers must be an object, not {json_kind(table)}.")
        for name, entry in cast("Json", table or {}).items():
            if isinstance(entry, dict):
                entry = {_RENAMED.get(key, key): value for key, value in cast(Json, entry).items()}
                if bearer := entry.pop("bearer_token_env_var", None):
                    # Codex reads its key from a variable.
                    entry["headers"] = {"Authorization": f"Bearer ${{{bearer}}}", **mapping_of(entry.get("headers"))}
                # Tools that the client leaves out are left out here too.
                old_names = {
                    "include": ("enabled_tools", "includeTools", "tools"),
                    "exclude": ("disabled_tools", "excludeTools", "disabledTools"),
                }
                filters: Json = {
                    new: entry.pop(old) for new in old_names for old in old_names[new] if list_of(entry.get(old))
                }
                entry |= {"tools": filters} if filters else {}
            servers_by_name.setdefault(name, entry)
    return servers_by_name


def read_document(path: Path) -> Json:
    """Return the file as a table, JSON also with comments and last commas; raises ConfigurationError, with the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        value: Any = tomllib.loads(text) if path.suffix == ".toml" else _load_patiently(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = reason_of(error) if isinstance(error, OSError | UnicodeDecodeError) else error
        raise ConfigurationError(f"{path} cannot be read: {reason}.", hint="Fix or move the file.") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} must hold a JSON object, not {json_kind(value)}.")
    return cast(Json, value)


def _load_patiently(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        # Comments and last commas become spaces, so that the line and column of an error stay true.
        for pattern in (r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])'):
            text = re.sub(pattern, lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
        return json.loads(text)


def is_localmcp(entry: Json) -> bool:
    """Return whether the entry starts localmcp, which must not start itself.

    It is the program (also `/usr/bin/localmcp`, `localmcp.exe`) or an argument (`-m localmcp`, `uvx localmcp[office]`);
    a folder of that name in an argument does not count.
    """
    command = str(entry.get("command") or "")
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    # The package, with extras and a version as `uvx` takes them.
    ours = re.compile(r"localmcp(\[[^\]]*\])?([=@<>~!].*)?")
    return any(ours.fullmatch(str(word)) for word in (program, *list_of(entry.get("args"))))
