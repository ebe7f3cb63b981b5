"""Checks of the configuration: mistakes with file and line, MCP clients of this machine, and servers it names."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from localmcp import config
from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.errors import ConfigurationError, UnknownTool
from localmcp.files import expand_home
from localmcp.hub.client_configuration import client_files, is_localmcp, read_document, servers_in
from localmcp.hub.servers import McpServers
from localmcp.own_tools.problems import line_of
from localmcp.schemas import list_of, mapping_of
from localmcp.tools.profiles import profiles_file, read_profile

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


def check_settings() -> Iterator[Check]:
    """Yield every mistake in `config.toml` and the environment."""
    path, correct = config.config_file(), True
    table: dict[str, Any] = {}
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        table = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        correct = False
        yield fail("config", f"{path}: {error}", f"edit {path}")
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
            correct = False
            yield fail("config", str(error), fix)
    if correct:
        yield ok("config", f"{path}" if path.exists() else f"no {path}; defaults are used")


def check_profiles(workspace: Workspace | None = None) -> Iterator[Check]:
    """Yield what is wrong with the profiles of `profiles.toml`; of their tools with a workspace only."""
    path = profiles_file()
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        names = list(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        yield fail("config", f"{path}: {error}", f"edit {path}")
        return
    wrong = 0
    for name in names:
        where = f"{path}:{line_of(text, (name,)) or 1}"
        tool_names: list[str] = []
        try:
            tool_names = sorted(read_profile(name).get("tools", ()))
        except ConfigurationError as error:
            wrong += 1
            yield fail("config", f"{where}: {error}")
        for tool in tool_names if workspace else ():
            try:
                _ = workspace and workspace.registry.get(tool)
            except UnknownTool as error:
                wrong += 1
                yield warn("config", f"{where}: {error}", f"edit {path}")
    if not wrong:
        yield ok("config", f"{len(names)} in {path}")


def check_servers() -> Iterator[Check]:
    """Check the entries of `mcp.json`."""
    path = config.servers_file()
    if not path.exists():
        return
    servers = McpServers(config.cache_directory() / "mcp", config.state_directory() / "logs")
    entries = [server.entry for server in servers.servers.values()]
    if servers.problem is not None:
        raise servers.problem
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    wrong = [entry for entry in entries if entry.problem]
    for entry in wrong:
        at = next((n for n, line in enumerate(text.splitlines(), 1) if f'"{entry.name}"' in line), 1)
        says = f"{path}:{at}: '{entry.name}' cannot be used: {entry.problem}"
        yield fail("mcp servers", says, f"localmcp servers remove {entry.name}")
    for entry in entries:
        if entry.command and not entry.is_off and not entry.problem and not _is_program(entry.command, entry.cwd):
            says = f"the program '{entry.command}' of '{entry.name}' is not on this machine"
            yield warn("mcp servers", says, f"localmcp servers remove {entry.name}")
    for server in servers.servers.values():
        if changed := server.changes():
            says = f"'{server.entry.name}' has changed what it says of {', '.join(changed)} since you approved it"
            yield warn("mcp servers", says, f"localmcp servers approve {server.entry.name}")
    if not wrong:
        yield ok("mcp servers", f"{len(entries)} in {path}")


def _is_program(command: str, folder: str = "") -> bool:
    """Return whether a command that runs in a folder is on this machine; with a variable in it, it may be."""
    if "${" in command + folder:
        return True
    command = os.path.expanduser(command)
    is_path = os.path.basename(command) != command
    return shutil.which(os.path.join(os.path.expanduser(folder), command) if is_path else command) is not None


def check_tools(workspace: Workspace) -> Iterator[Check]:
    """Check the person's tool manifests, as `localmcp tools check` sees them."""
    files = workspace.own_tools.files()
    if not files:
        return
    problems = workspace.own_tools.problems()
    for problem in dict.fromkeys(problems):
        where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        says = f"{where}: {problem.message} {problem.hint or ''}".strip()
        yield Check("tools", "fail" if problem.level == "error" else "warn", says, "localmcp tools check")
    if not problems:
        yield ok("tools", f"your tools in {workspace.own_tools.folder} have no mistakes")


def check_clients() -> Iterator[Check]:
    """Check the MCP clients on this machine that start localmcp, and whether they can."""
    using: list[str] = []
    present = [client_file for client_file in client_files() if client_file.path.is_file()]
    for client_file in present:
        title = client_file.title
        try:
            entries = servers_in(read_document(client_file.path), client_file.path)
        except ConfigurationError as error:
            yield warn("clients", f"{title}: {error.message}")
            continue
        for name, value in entries.items():
            entry = mapping_of(value)
            if not is_localmcp(entry):
                continue
            using.append(title)
            command, words = entry.get("command"), [str(argument) for argument in list_of(entry.get("args"))]
            if isinstance(command, str) and command and not _is_program(command):
                yield fail("clients", f"{title} starts '{name}' with {command}, which is not there", "localmcp demo")
            for option, file in zip(words, words[1:], strict=False):
                if option == "--db" and not expand_home(file).exists():
                    yield warn("clients", f"{title} starts '{name}' on {file}, which does not exist yet")
    titles = ", ".join(dict.fromkeys(client_file.title for client_file in present))
    found = f" ({titles} found)" if present else ""
    says = f"no MCP client on this machine starts localmcp yet{found}; connect one with `localmcp connect`"
    yield ok("clients", f"localmcp is set up in {', '.join(dict.fromkeys(using))}" if using else says)
