"""Hub, a view of Tools: the assistants that use this file, and the MCP servers whose tools they find through it."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from localmcp.errors import InvalidInput
from localmcp.hub.client_configuration import client_names
from localmcp.humanize import command_line, counted
from localmcp.schemas import Json
from localmcp.tui.commands import Command, CommandPane, Run, thing
from localmcp.tui.lists import Row
from localmcp.tui.passages import short
from localmcp.tui.session import Session

if TYPE_CHECKING:
    from localmcp.hub.server import McpServer

LOOK_SECONDS = 1.0
"""How often the servers are looked at while the pane is in front."""
MARKS = {"running": ("●", "$success"), "starting": ("◌", "$accent"), "failed": ("✗", "$error"),
         "unusable": ("✗", "$error"), "disabled": ("○", "$muted")}  # fmt: skip
NAME = "localmcp"
"""What this file is called in the configuration of an assistant."""

# ---------------------------------------------------------------- assistants


def _assistants(_run: Run) -> Json | str:
    from localmcp.connect.configuration import describe_client
    from localmcp.connect.targets import present_clients

    clients: list[Json] = [
        {"assistant": client["title"], "connected as": ", ".join(client["connectedAs"]), "file": client["path"],
         "error": client["error"]}
        for client in map(describe_client, present_clients())
    ]  # fmt: skip
    return {"clients": clients} if clients else "None was found on this machine."


def _connect(run: Run) -> Json:
    """Start the server once as the assistant will, then write its configuration."""
    from localmcp.connect.configuration import plan_connection, write_changes
    from localmcp.connect.entry import make_launch
    from localmcp.connect.targets import find_targets
    from localmcp.connect.trial import ask_for_tools

    launch = make_launch(str(run.session.path))
    changes = [plan_connection(target, NAME, launch.entry) for target in find_targets(run.values["client"])]
    tools = [] if run.dry_run else ask_for_tools(NAME, launch.entry)
    files = write_changes(changes, dry_run=run.dry_run)
    command = command_line(launch.entry["command"], *launch.entry["args"])
    shown = {"files": _files(files), "command": command, "variables": launch.carried}
    if run.dry_run:
        return shown
    copies = [file["backup"] for file in files if file["backup"]]
    return {**shown, "tools": tools, "copies": copies, "next": "Quit the assistant completely, and start it again."}


def _files(files: list[Json]) -> list[Json]:
    return [{"file": file["path"], "entry": file["action"]} for file in files]


def _disconnect(run: Run) -> Json:
    from localmcp.connect.configuration import plan_removal, write_changes
    from localmcp.connect.targets import find_targets

    changes = [plan_removal(target, NAME) for target in find_targets(run.values["client"])]
    return {"files": _files(write_changes(changes, dry_run=run.dry_run))}


# ---------------------------------------------------------------- servers


def _add_server(run: Run) -> str:
    from localmcp.hub.entries import entry_of, parse_entry, write_entries

    name, entry = run.values["name"], entry_of(split_command(run.values["command"]))
    if problem := parse_entry(name, entry).problem:
        raise InvalidInput(f"This server cannot be used: {problem}.")
    if name in run.session.workspace.mcp_servers.servers:
        raise InvalidInput(f"There is a server '{name}' already.", hint="Choose another name.")
    write_entries({name: entry})
    return _read_again(run.session, name)


def _import_servers(run: Run) -> Json:
    """Take over the servers of every assistant on this machine; of one name, the first file's counts."""
    from localmcp.connect.targets import read_present_clients
    from localmcp.hub.adoption import take_over

    theirs, problems = read_present_clients()
    report = take_over(theirs, dry_run=run.dry_run)
    return {"changed": report["changed"], "problems": problems, "servers": report["servers"]}


def _providers(run: Run) -> Json:
    states = [provider.state() for provider in run.session.workspace.providers]
    rows = [{"provider": s.name, "state": s.state, "tools": s.tools, "configured in": short(s.where)} for s in states]
    says = [f"{state.name}: {state.says}" for state in states if state.says]
    return {"providers": rows, "notes": says, "problems": [str(p) for state in states for p in state.problems]}


def split_command(text: str) -> list[str]:
    """Return the words of a command as a shell reads them.

    Raises:
        InvalidInput: a quotation mark is not closed.
    """
    try:
        words = shlex.split(text, posix=os.name == "posix")
    except ValueError as error:
        raise InvalidInput(f"The command cannot be read ({error}): {text}") from error
    return words if os.name == "posix" else [word.strip('"') for word in words]


def servers_of(session: Session) -> list[Row]:
    """Return the MCP servers as they are now, with the end of their logs and what they have changed."""
    servers = session.workspace.mcp_servers
    return [_server(server, servers.log_end(server)) for server in servers.servers.values()]


def _server(server: McpServer, log: list[str]) -> Row:
    name, state, tools = server.entry.name, server.condition, server.known_tools
    changes = [line for lines in server.changes().values() for line in lines]
    mark, style = MARKS.get(state, ("·", "$muted"))
    count = "tools not read yet" if tools is None else counted(tools, "tool")
    title = Content.assemble((f"{mark} ", style), (name, "bold"), f"  {state}, {count}",
                             ("  ✎ changed" if changes else "", "$warning"))  # fmt: skip
    parts = [Content(f"{server.entry.where} {' '.join(server.entry.shown_args)}".strip()), Content(f"{state}, {count}")]
    parts += [Content.styled(f"✗ {problem.message} {problem.hint or ''}", "$warning") for problem in server.check()]
    parts += [difference_lines(changes)] if changes else []
    parts += [Content.styled("the end of its log", "$muted") + Content("\n" + "\n".join(log))] if log else []
    shell = partial(command_line, "localmcp", "servers")
    read = Command("Read its tools again", "It is started.", lambda run: _read_again(run.session, name),
                   shell("refresh", name))  # fmt: skip
    remove = Command("Remove it", "", lambda run: _remove(run.session, name), shell("remove", name),
                     warning="Assistants lose its tools.")  # fmt: skip
    approve = Command("Approve what it has changed", "", lambda run: _approve(run.session, name),
                      shell("approve", name), warning="\n".join(changes[:30]))  # fmt: skip
    commands = (approve, read, remove) if changes else (read, remove)
    return thing("Servers", name, title, Content("\n\n").join(parts), *commands)


def difference_lines(lines: list[str]) -> Content:
    """Draw a unified difference between what was approved and what is there now."""
    tones = {"+": "$success", "-": "$error", "@": "$muted"}
    return Content("\n").join(Content.styled(line, tones.get(line[:1], "")) for line in lines)


def _read_again(session: Session, name: str) -> str:
    outcome = session.workspace.mcp_servers.refresh([name])[name]
    if isinstance(outcome, Exception):
        raise outcome
    return f"{name} has {counted(outcome, 'tool')}."


def _remove(session: Session, name: str) -> str:
    session.workspace.mcp_servers.remove([name])
    return f"Removed {name}."


def _approve(session: Session, name: str) -> str:
    session.workspace.mcp_servers.server(name).approve()
    return f"The tools of {name} are approved as they are now."


CONNECT = "Connect an assistant"
_CLIENT: Json = {"client": {"enum": client_names(), "default": "claude-desktop", "title": "Assistant"}}
COMMANDS = {
    "Assistants": (
        Command("Assistants on this machine", "Which are there, and which are connected.", _assistants,
                "localmcp connect", shows=True),
        Command(CONNECT, "Its configuration is found, changed and tried out; a copy stays beside it.", _connect,
                "localmcp connect CLIENT", _CLIENT, has_preview=True),
        Command("Disconnect an assistant", "localmcp is taken out of its configuration.", _disconnect,
                "localmcp connect CLIENT --remove", _CLIENT, has_preview=True),
    ),
    "Servers": (
        Command("Connect a server", "It is started once to read its tools; assistants find them by searching.",
                _add_server, "localmcp servers add NAME -- COMMAND",
                {"name": {"type": "string", "title": "Name"},
                 "command": {"type": "string", "title": "Command", "description": "such as: uvx mcp-server-time"}},
                warning="It runs that command on this machine."),
        Command("Import servers from assistants", "What they have configured comes into localmcp.", _import_servers,
                "localmcp connect --import", has_preview=True),
    ),
    "Tools": (
        Command("Where tools come from", "Your own commands, scripts and queries, and their problems.", _providers,
                "localmcp tools providers", shows=True),
    ),
}  # fmt: skip


class HubPane(CommandPane):
    TITLE, LIST_TITLE, KEY_GROUP = "Hub", "Hub", "hub"
    COMMANDS = COMMANDS
    THINGS = {"Servers": servers_of}
    ABOUT = (
        "Assistants and servers. An assistant is connected here, after you saw what is written; servers are added, "
        "imported from assistants and read again; their state, their log and what they have changed is beside them. "
        "p turns back to their tools. y copies the command line."
    )

    def on_mount(self) -> None:
        self.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self.app.screen is self.screen and self.display:
            self.reload()
