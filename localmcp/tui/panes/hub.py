"""Hub: the assistants that use this file, and the MCP servers whose tools they find through it."""

from localmcp.tui.command_lists import HUB_COMMANDS, servers_of
from localmcp.tui.command_pane import CommandPane


class HubPane(CommandPane):
    TITLE, KEY_GROUP = "Hub", "commands"
    COMMANDS = HUB_COMMANDS
    THINGS = {"Servers": servers_of}
    LOOK_SECONDS = 1.0
    ABOUT = (
        "Assistants and servers. An assistant is connected here, after you saw what is written; servers are added, "
        "imported from assistants and read again; their state, their log and what they have changed is beside them. "
        "Their tools are tried in the pane Tools. y copies the command line."
    )
