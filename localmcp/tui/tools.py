"""Tools: assistants that call them, servers that bring them, and every tool, found as an assistant finds it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.hub.client_configuration import client_names
from localmcp.humanize import command_line, counted
from localmcp.schemas import Json, mapping_of
from localmcp.tools import Answer
from localmcp.tui.commands import Command, CommandPane, Run, form_of, start, thing
from localmcp.tui.pane import Row
from localmcp.tui.passages import bar
from localmcp.tui.session import Session
from localmcp.tui.widgets import lines

if TYPE_CHECKING:
    from localmcp.hub.server import McpServer
    from localmcp.hub.servers import McpServers
    from localmcp.tools import Tool
    from localmcp.workspace import Workspace

LOOK_SECONDS = 1.0
"""How often the servers are looked at while the pane is in front."""
MARKS = {"running": ("●", "$success"), "starting": ("◌", "$accent"), "failed": ("✗", "$error"),
         "unusable": ("✗", "$error"), "disabled": ("○", "$muted")}  # fmt: skip
NAME = "localmcp"
"""What this file is called in the configuration of an assistant."""


def _assistants(_run: Run) -> Json | str:
    from localmcp.connect.configuration import describe_client, present_clients

    clients = list(map(describe_client, present_clients()))
    return {"clients": clients} if clients else "None was found on this machine."


def _connect(run: Run) -> Json:
    """Start the server once as the assistant will, then write its configuration."""
    from localmcp.connect.configuration import find_targets, plan_connection, write_changes
    from localmcp.connect.entry import ask_for_tools, make_entry

    launch = make_entry(str(run.session.path))
    changes = [plan_connection(target, NAME, launch.entry) for target in find_targets(run.values["client"])]
    tools = [] if run.dry_run else ask_for_tools(NAME, launch.entry)
    files = write_changes(changes, dry_run=run.dry_run)
    command = command_line(launch.entry["command"], *launch.entry["args"])
    entries = [{"file": file["path"], "entry": file["action"]} for file in files]
    shown = {"files": entries, "command": command, "variables": launch.carried}
    if run.dry_run:
        return shown
    copies = [file["backup"] for file in files if file["backup"]]
    return {**shown, "tools": tools, "copies": copies, "next": "Quit the assistant completely, and start it again."}


def servers_of(session: Session) -> list[Row]:
    """Return the MCP servers as they are now, with the end of their logs and what they have changed."""
    servers = session.workspace.mcp_servers
    return [_server(servers, server) for server in servers.servers.values()]


def _server(servers: McpServers, server: McpServer) -> Row:
    name, state, tools, log = server.entry.name, server.condition, server.known_tools, servers.log_end(server)

    def remove(_: Run) -> str:
        servers.remove([name])
        return f"Removed {name}."

    def approve(_: Run) -> str:
        server.approve()
        return f"The tools of {name} are approved as they are now."

    changes = [line for lines in server.changes().values() for line in lines]
    tones = {"+": "$success", "-": "$error", "@": "$muted"}
    difference = [Content.styled(line, tones.get(line[:1], "")) for line in changes]
    mark, style = MARKS.get(state, ("·", "$muted"))
    count = "tools not read yet" if tools is None else counted(tools, "tool")
    title = Content.assemble((f"{mark} ", style), (name, "bold"), f"  {state}, {count}",
                             ("  ✎ changed" if changes else "", "$warning"))  # fmt: skip
    parts = [Content(f"{server.entry.where} {' '.join(server.entry.shown_args)}".strip()), Content(f"{state}, {count}")]
    parts += [Content.styled(f"✗ {problem.message} {problem.hint or ''}", "$warning") for problem in server.check()]
    parts += [lines(*difference)] if changes else []
    parts += [lines(Content.styled("the end of its log", "$muted"), *log)] if log else []
    shell = partial(command_line, "localmcp", "servers")
    read = Command("Read its tools again", "It is started.", partial(_read_again, name), shell("refresh", name))
    commands = [read, Command("Remove it", "", remove, shell("remove", name), warning="Assistants lose its tools.")]
    if changes:
        words = "\n".join(changes[:30])
        commands[:0] = [Command("Approve what it has changed", "", approve, shell("approve", name), warning=words)]
    return thing("Servers", name, title, Content("\n\n").join(parts), *commands)


def _read_again(name: str, run: Run) -> str:
    outcome = run.session.workspace.mcp_servers.refresh([name])[name]
    if isinstance(outcome, Exception):
        raise outcome
    return f"{name} has {counted(outcome, 'tool')}."


def tool_schema(name: str, *without: str) -> Any:
    """Return what reads the form of a tool, without those of its arguments."""

    def read(session: Session) -> Json:
        schema = session.look(lambda workspace: workspace.registry.get(name).input_schema)
        properties = {key: spec for key, spec in mapping_of(schema.get("properties")).items() if key not in without}
        return {**schema, "properties": properties}

    return read


def _tool(tool: Tool, score: float | None = None) -> Row:
    """Return a tool in the list; `score`: of the search."""
    mark = tool.mark
    sign = ("● ", "$success") if mark.visible else ("○ ", "$muted")
    scored = f"  {bar(score * 100)} {score:.2f}" if score is not None else ""
    title = Content.assemble(sign, (mark.name, "bold"), (scored, "$accent"), "\n  ", (mark.title, "$muted"))
    kind = "only reads" if mark.read_only else "may remove things" if mark.destructive else "changes things"
    nature = f"{kind} · {'shown to assistants' if mark.visible else 'found by searching'}"
    about = lines(
        Content.styled(mark.title, "bold"), " ".join(tool.description.split()), Content.styled(nature, "$muted")
    )
    warning = "This tool may take something away." if mark.destructive else ""

    def call(run: Run) -> Answer:
        """Call the tool as an assistant does: its text is what a language model reads."""
        return run.session.call(mark.name, lean=True, **run.values)

    command = Command(f"Run {mark.name}", "", call, form=tool_schema(mark.name), warning=warning)
    return Row(f"Tools/{mark.name}", title, about, "Tools", (command,))


CONNECT = "Connect an assistant"
COMMANDS = {
    "Assistants": (
        Command("Assistants on this machine", "Which are there, and which are connected.", _assistants,
                "localmcp connect", shows=True),
        Command(CONNECT, "Its configuration is found, changed and tried out; a copy stays beside it.", _connect,
                "localmcp connect CLIENT", form_of(
                    client={"enum": client_names(), "default": "claude-desktop", "title": "Assistant"},
                ), has_preview=True),
    ),
    "Servers": (),
}  # fmt: skip


class ToolsPane(CommandPane):
    LIST_TITLE = "Tools"
    PLACEHOLDER = "What should the tool do?"
    COMMANDS = COMMANDS
    THINGS = {"Servers": servers_of}
    HELP = """\
    Assistants and servers first: an assistant is connected here, after you saw what is written; servers, which
    `localmcp servers add` connects, are read again; what they have changed is beside them. Then every tool that an
    assistant may call: ● those it is shown, ○ those it finds by searching. Type what you want done and you see what
    the search gives it.
    """

    def on_mount(self) -> None:
        self.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Show the state of the servers, which changes by itself."""
        if self.app.screen is self.screen and self.display and not self.text:
            self.reload()

    def find(self, text: str) -> list[Row]:
        if not text:

            def look(workspace: Workspace) -> list[Tool]:
                """Return every tool that is known, the visible ones first; looking starts no server."""
                own = [tool for provider in workspace.own_tools.providers for tool in provider.tools()]
                theirs = [tool for server in workspace.mcp_servers.reachable() for tool in server.tools()]
                tools = [*workspace.registry.tools(for_listing=True), *own, *theirs]
                return sorted(tools, key=lambda tool: (not tool.mark.visible, tool.name.lower()))

            return [*super().find(""), *map(_tool, self.session.look(look))]
        words = text.casefold().split()
        commands = [row for row in super().find(text) if all(word in str(row.title).casefold() for word in words)]
        tools = {tool.name: tool for tool in self.session.look(lambda w: w.registry.tools())}
        hits: list[Json] = self.session.read("tool_search", query=text, max_results=50)["tools"]
        return [*commands, *(_tool(tools[hit["name"]], hit["score"]) for hit in hits if hit["name"] in tools)]

    def run_command(self, row: Row, command: Command) -> None:
        """Run a command; an error of a tool is its answer."""
        if row.group != "Tools":
            super().run_command(row, command)
            return

        def finish(answer: Any) -> None:
            self.keep(row, answer)
            self.uncover_reader()

        start(self, command, finish, failed=finish)
