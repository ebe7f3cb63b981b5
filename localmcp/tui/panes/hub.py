"""Hub: the assistants that use this file, and the MCP servers whose tools they find through it."""

from localmcp.tui.command_pane import CommandPane
from localmcp.tui.commands import HUB_COMMANDS


class HubPane(CommandPane):
    """The tenth pane."""

    TITLE, KEY_GROUP = "Hub", "commands"
    COMMANDS = HUB_COMMANDS
    ABOUT = (
        "Assistants and servers. An assistant is connected here, after you saw what is written; servers are added, "
        "imported from assistants and read again. Their tools are tried in the pane Tools. y copies the command line."
    )
