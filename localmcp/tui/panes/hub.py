"""Hub: the assistants that use this file, and the MCP servers whose tools they find through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from localmcp.hub.client_configuration import client_names
from localmcp.humanize import counted
from localmcp.tui.command_pane import CommandPane
from localmcp.tui.commands import Command, Entry
from localmcp.tui.session import Session

if TYPE_CHECKING:
    from localmcp.hub.provider import McpServer
    from localmcp.workspace import Workspace

CONNECT = Command(
    "Assistants", "Connect an assistant", "Its configuration is found, changed and tried out; a copy stays beside it.",
    ("connect", "{client}"), {"client": {"enum": client_names(), "default": "claude-desktop", "title": "Assistant"}},
    preview=("--dry-run",),
)  # fmt: skip
PROVIDERS = Command(
    "Tools", "Where tools come from", "Your own commands, scripts and queries, and their problems.",
    ("tools", "providers"), shows=True,
)  # fmt: skip
COMMANDS = (
    Command("Assistants", "Assistants on this machine", "Which are there, and which are connected.", ("connect",),
            shows=True),
    CONNECT,
    Command("Assistants", "Disconnect an assistant", "localmcp is taken out of its configuration.",
            ("connect", "{client}", "--remove"), CONNECT.fields, preview=("--dry-run",)),
    Command("Servers", "Connect a server", "It is started once to read its tools; assistants find them by searching.",
            ("servers", "add", "{name}", "--", "{command}"),
            {"name": {"type": "string", "title": "Name"},
             "command": {"type": "string", "title": "Command", "description": "such as: uvx mcp-server-time"}},
            warning="It runs that command on this machine."),
    Command("Servers", "Import servers from assistants", "What they have configured comes into localmcp.",
            ("connect", "--import"), preview=("--dry-run",)),
    PROVIDERS,
)  # fmt: skip

MARKS = {"running": ("●", "$success"), "starting": ("◌", "$accent"), "failed": ("✗", "$error"),
         "unusable": ("✗", "$error"), "disabled": ("○", "$muted")}  # fmt: skip


def servers_of(session: Session) -> list[Entry]:
    """Return the MCP servers as they are now, with the end of their logs and what they have changed."""
    servers = session.workspace.mcp_servers
    servers.follow_file()
    return [_server(server, servers.log_end(server)) for server in servers.servers.values()]


def _server(server: McpServer, log: list[str]) -> Entry:
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
    read = Command("Servers", "Read its tools again", "It is started.", work=lambda w: _read_again(w, name))
    remove = Command("Servers", "Remove it", "", ("servers", "remove", name), warning="Assistants lose its tools.")
    approve = Command("Servers", "Approve what it has changed", "", warning="\n".join(changes[:30]),
                      work=lambda w: _approve(w, name))  # fmt: skip
    commands = (approve, read, remove) if changes else (read, remove)
    return Entry("Servers", name, title, Content("\n\n").join(parts), commands)


def difference_lines(lines: list[str]) -> Content:
    """Draw a unified difference between what was approved and what is there now."""
    tones = {"+": "$success", "-": "$error", "@": "$muted"}
    return Content("\n").join(Content.styled(line, tones.get(line[:1], "")) for line in lines)


def _read_again(workspace: Workspace, name: str) -> str:
    outcome = workspace.mcp_servers.refresh([name])[name]
    if isinstance(outcome, Exception):
        raise outcome
    return f"{name} has {counted(outcome, 'tool')}."


def _approve(workspace: Workspace, name: str) -> str:
    workspace.mcp_servers.server(name).approve()
    return f"The tools of {name} are approved as they are now."


class HubPane(CommandPane):
    TITLE, KEY_GROUP = "Hub", "commands"
    COMMANDS = COMMANDS
    THINGS = {"Servers": servers_of}
    LOOK_SECONDS = 1.0
    ABOUT = (
        "Assistants and servers. An assistant is connected here, after you saw what is written; servers are added, "
        "imported from assistants and read again; their state, their log and what they have changed is beside them. "
        "Their tools are tried in the pane Tools. y copies the command line."
    )
