"""An MCP server written with the SDK, for both eras of the protocol, over its pipes or over HTTP."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from starlette.requests import Request
from starlette.responses import PlainTextResponse

server = MCPServer("sdk", version="1")


@server.tool()
async def whoami(ctx: Context) -> str:
    """The process, and the header that came with the call."""
    return f"{os.getpid()} {(ctx.headers or {}).get('x-word', 'none')}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool, and say so."""

    def grown() -> str:
        """It was not there before."""
        return "I am new"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "done"


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Count slowly, and say how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.12)
    return "counted"


@server.tool()
async def linger(file: str) -> str:
    """Wait until somebody gives up, and leave a note of that."""
    Path(file).write_text("begun")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        Path(file).write_text("given up")
        raise
    return "never"


def serve_http() -> None:
    """Streamable HTTP on a free port, which is printed; every request must bring a word."""
    app = server.streamable_http_app()

    async def guarded(scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("x-word") != "please":
            await PlainTextResponse("say please", status_code=401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    print(sock.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(guarded, log_level="error")).run(sockets=[sock])


if __name__ == "__main__":
    serve_http() if "--http" in sys.argv else server.run("stdio")
