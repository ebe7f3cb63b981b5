"""FastMCP's BM25 search of tools over a catalogue, in its own interpreter; see `discovery_quality.py`.

Reads {"tools": [...], "queries": [...]} from stdin and writes a list with the names found for each query, best first.
The search tool is called through a client, as a host would.
"""

import asyncio
import json
import sys

from fastmcp import Client, FastMCP
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool


async def main() -> None:
    given = json.load(sys.stdin)
    server = FastMCP("peer", transforms=[BM25SearchTransform(max_results=5)])
    for each in given["tools"]:
        server.add_tool(Tool(name=each["name"], description=each["description"], parameters=each["input_schema"]))
    found, characters = [], 0
    async with Client(server) as client:
        for query in given["queries"]:
            result = await client.call_tool("search_tools", {"query": query})
            text = result.content[0].text if result.content else "[]"
            characters += len(text)
            hits = json.loads(text) if text.startswith("[") else []
            found.append([each["name"] for each in hits])
    json.dump({"found": found, "characters": characters}, sys.stdout)


asyncio.run(main())
