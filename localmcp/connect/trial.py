"""Starting the server once with exactly the command that a client will use, and asking it something."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from localmcp.config import state_directory
from localmcp.errors import LocalMCPError, Unavailable

if TYPE_CHECKING:
    from localmcp.hub.client import Connection

Reply = TypeVar("Reply")


def ask_for_tools(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that the client will see; raises as `ask_server`."""
    listed = ask_server(name, entry, lambda connection: connection.list_offers(["tools"]))
    return [str(tool["name"]) for tool in listed["tools"]]


def ask_server(name: str, entry: Mapping[str, Any], ask: Callable[[Connection], Awaitable[Reply]]) -> Reply:
    """Return what `ask` gets from a server that is started for it.

    It is started in an empty folder and without the variables of this shell, as a desktop program does.

    Raises:
        Unavailable: it does not start, or does not answer.
    """
    # The MCP SDK takes most of a second to import.
    from localmcp.hub.client import Connection
    from localmcp.hub.entries import parse_entry

    async def connect_and_ask(folder: str) -> Reply:
        log = state_directory() / "logs" / "connect.log"
        connection = Connection(parse_entry(name, {**entry, "cwd": folder}), log)
        try:
            await connection.open()
            return await ask(connection)
        finally:
            await connection.close()

    # Windows may hold the folder for a moment after the server has ended.
    with tempfile.TemporaryDirectory(prefix="localmcp-", ignore_cleanup_errors=True) as folder:
        try:
            return asyncio.run(connect_and_ask(folder))
        except LocalMCPError as error:
            message = f"The server does not start the way the client would start it: {error.message}"
            raise Unavailable(message, hint=error.hint) from error
