"""Whether the reference server `@modelcontextprotocol/server-everything` works behind the hub, through a real client.

    npm install --prefix DIR @modelcontextprotocol/server-everything
    python tests/benchmarks/everything_server.py DIR/node_modules/@modelcontextprotocol/server-everything/dist/index.js

Over stdio, in both protocol eras: a plain call, progress, a call that the client gives up, elicitation by form and by
address, resources and prompts. One line for each; the exit code is 1 if one fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext

LONG = "every__trigger-long-running-operation"
PATIENCE = 60


async def answer(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})


async def call(client: Client, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    result = await client.call_tool("execute_tool", {"name": name, "arguments": arguments or {}}, **options)
    return "\n".join(getattr(block, "text", "") for block in result.content)


async def check(client: Client) -> dict[str, bool]:
    """Return, by what was tried, whether it came out as the server's own documentation says."""
    steps: list[tuple[float, float | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    await call(client, LONG, {"duration": 2, "steps": 2}, progress_callback=listen)
    with anyio.move_on_after(1.0) as abandoned:
        await call(client, LONG, {"duration": 30, "steps": 30})
    return {
        "progress": steps == [(1.0, 2.0), (2.0, 2.0)],
        "cancellation": abandoned.cancelled_caught
        and "after" in await call(client, "every__echo", {"message": "after"}),
        "elicitation, form": "Name: Ada" in await call(client, "every__trigger-elicitation-request"),
        "elicitation, address": "declined"
        in await call(client, "every__trigger-url-elicitation", {"url": "https://example.com/form"}),
        "resources": any("every" in str(row.uri) for row in (await client.list_resources()).resources),
        "prompts": "every__simple-prompt" in {row.name for row in (await client.list_prompts()).prompts},
    }


async def measure(era: Any, environment: dict[str, str]) -> bool:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "localmcp", "serve"], env=environment)
    with anyio.fail_after(PATIENCE):
        async with Client(parameters, mode=era, elicitation_callback=answer) as client:
            outcomes = await check(client)
    for name, passed in outcomes.items():
        print(f"{era:8} {name:22} {'ok' if passed else 'FAILED'}")
    return all(outcomes.values())


def main() -> None:
    script = sys.argv[1]
    with tempfile.TemporaryDirectory() as place:
        folders = {f"LOCALMCP_{name}_DIR": str(Path(place) / name) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
        environment = {**os.environ, **folders, "LOCALMCP_DB": str(Path(place) / "hub.db")}
        add = [sys.executable, "-m", "localmcp", "servers", "add", "every", "--", "node", script, "stdio"]
        subprocess.run(add, env=environment, check=True, capture_output=True)
        passed = [anyio.run(measure, era, environment) for era in ("legacy", "auto")]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
