"""Starting the server once with exactly the command that a client will use, and asking for its tools."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localmcp.config import state_directory
from localmcp.errors import LocalMCPError, Unavailable

Json = dict[str, Any]


def ask_for_tools(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that the client will see, after a real handshake.

    It is started in an empty folder and without the variables of this shell, as a desktop program does.

    Raises:
        Unavailable: it does not start, or does not answer.
    """
    # Windows may hold the folder for a moment after the server has ended.
    with tempfile.TemporaryDirectory(prefix="localmcp-", ignore_cleanup_errors=True) as folder:
        try:
            tools = asyncio.run(_ask(name, {**entry, "cwd": folder}))
        except LocalMCPError as error:
            raise Unavailable(
                f"The server does not start the way the client would start it: {error.message}", hint=error.hint
            ) from error
    return [str(tool["name"]) for tool in tools]


async def _ask(name: str, entry: Json) -> list[Json]:
    # The MCP SDK takes most of a second to import.
    from localmcp.providers.mcp_servers.connection import Connection
    from localmcp.providers.mcp_servers.entries import parse_entry
    from localmcp.providers.mcp_servers.process import Guard, ServerLog

    guard = Guard()
    server_log = ServerLog(Path(state_directory()) / "logs" / "connect.log")
    connection = Connection(parse_entry(name, entry), server_log, guard, lambda what: None)
    try:
        await connection.open()
        return await connection.list_tools()
    finally:
        await connection.close()
        guard.close()
