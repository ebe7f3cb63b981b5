"""The client examples of the five texts run against the door as they stand, but for host and key (S3-16, S4-2)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from doors import OpenDoor, lasting_door
from library import Library
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from localmcp.tools import Scope

HOSTS = ("https://your-app.vercel.app", "http://localhost:3000", "http://localhost:8000", "http://localhost:8080")
KEYS = ("mcp_xxxxxxxxxxxxx", "mcp_xxx")

HYBRID_SEARCH = """
curl -X POST https://your-app.vercel.app/api/mcp \\
  -H "Authorization: Bearer mcp_xxxxxxxxxxxxx" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {
      "name": "search",
      "arguments": {
        "query": "Fondo Byblos",
        "limit": 5,
        "mode": "hybrid"
      }
    }
  }'
"""
GET_CONTEXT = """
curl -X POST https://your-app.vercel.app/api/mcp \\
  -H "Authorization: Bearer mcp_xxxxxxxxxxxxx" \\
  -H "Content-Type: application/json" \\
  -d '{
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {
      "name": "get_context",
      "arguments": {
        "chunkId": "uuid-del-chunk",
        "window": 2
      }
    }
  }'
"""
OPEN_STREAM = """
curl -N \\
  -H "Authorization: Bearer mcp_xxx" \\
  -H "Accept: text/event-stream" \\
  http://localhost:3000/api/mcp
"""
TYPESCRIPT = """
async function searchDocs(query: string, apiKey: string, mode: 'hybrid' | 'semantic' | 'keyword' = 'hybrid') {
  const response = await fetch('https://your-app.vercel.app/api/mcp', {
    method: 'POST',
    headers: {
      'Authorization': `Bearer ${apiKey}`,
      'Content-Type': 'application/json',
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: {
        name: 'search',
        arguments: { query, limit: 5, mode },
      },
    }),
  });

  const data = await response.json();
  if (data.error) throw new Error(data.error.message);
  return data.result;
}

// Usage
const results = await searchDocs('fondo pensione', 'mcp_xxx', 'hybrid');
console.log(results);
"""
PYTHON = """
import requests

def search_docs(query: str, api_key: str, mode: str = "hybrid"):
    url = "https://your-app.vercel.app/api/mcp"
    headers = {
        "Authorization": f"Bearer {api_key}",
        "Content-Type": "application/json"
    }
    payload = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "search",
            "arguments": {
                "query": query,
                "limit": 5,
                "mode": mode
            }
        }
    }

    response = requests.post(url, headers=headers, json=payload)
    data = response.json()

    if "error" in data:
        raise Exception(data["error"]["message"])

    return data["result"]

# Usage
results = search_docs("fondo pensione", "mcp_xxx", "hybrid")
print(results)
"""
CLAUDE = """
{
  "mcpServers": {
    "gimme-rag": {
      "url": "https://your-app.vercel.app/api/mcp",
      "headers": {
        "Authorization": "Bearer mcp_xxxxxxxxxxxxx"
      }
    }
  }
}
"""
# The examples of quick starts and the retriever name no key: they get the one header.
BLUEPRINT = """
curl -X POST http://localhost:8000/api/quickstarts/v1/mcp \\
  -H "Content-Type: application/json" \\
  -d '{"query": "create a blueprnt"}'  # Missing 'i' in blueprint
"""
RETRIEVE = """
curl -X POST http://localhost:8080/tools/retriever \\
  -H "Content-Type: application/json" \\
  -d '{
    "input": {
      "collection_name": "xmidas",
      "texts": ["artificial intelligence"],
      "top_k": 5
    }
  }'
"""
RETRIEVE_SEVERAL = """
curl -X POST http://localhost:8080/tools/retriever \\
  -H "Content-Type: application/json" \\
  -d '{
    "input": {
      "collection_name": "xmidas",
      "partition_name": "documents",
      "texts": [
        "machine learning algorithms",
        "neural network architecture"
      ],
      "top_k": 10
    }
  }'
"""

QUICKSTARTS = """
metadata: {name: insights-blueprints}
spec:
  displayName: Create a blueprint
  description: Learn how to create and manage blueprints for system images
  durationMinutes: 5
  introduction: A blueprint describes an image.
  tasks: [{title: Begin, description: Open the page.}]
"""

needs_curl = pytest.mark.skipif(shutil.which("curl") is None or sys.platform == "win32", reason="there is no curl here")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDoor]:
    with lasting_door(tmp_path_factory) as opened:
        library = Library(opened.workspace.database, opened.workspace.embedder.get())
        library.put("Il Fondo Byblos è un fondo pensione. L'iscrizione è volontaria.", title="Regolamento Byblos")
        for text in ("Artificial intelligence is a field of computer science.", "Machine learning algorithms."):
            library.put(text, title=text[:20], collection="xmidas", partition="documents")
        opened.workspace.registry.call("importQuickstarts", {"text": QUICKSTARTS, "format": "yaml"}, Scope())
        yield opened


def adapted(example: str, door: OpenDoor) -> str:
    """The example with this host and key."""
    for host in HOSTS:
        example = example.replace(host, door.url)
    for key in KEYS:
        example = example.replace(key, door.key)
    return example


def run_curl(example: str, door: OpenDoor, *, adding_key: bool = False) -> Any:
    """What a shell makes of the example."""
    line = adapted(example, door).strip()
    if adding_key:
        line = line.replace("curl ", f'curl -H "Authorization: Bearer {door.key}" ', 1)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@needs_curl
def test_curl_searches_and_reads_the_context(door: OpenDoor) -> None:
    result = run_curl(HYBRID_SEARCH, door)["result"]
    hit = result["results"][0]
    assert (result["query"], result["mode"], result["count"]) == ("Fondo Byblos", "hybrid", 1)
    assert hit["sourceTitle"] == "Regolamento Byblos" and hit["matchType"] == "both"
    context = run_curl(GET_CONTEXT.replace("uuid-del-chunk", hit["id"]), door)["result"]
    assert (context["targetChunkId"], context["window"], context["chunks"][0]["isTarget"]) == (hit["id"], 2, True)


@needs_curl
def test_curl_opens_the_stream(door: OpenDoor) -> None:
    line = adapted(OPEN_STREAM, door).strip().replace("curl ", "curl -s --max-time 1 ", 1)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert re.match(r"event: endpoint\ndata: /api/mcp\?sessionId=\S+\n\n", done.stdout)


@needs_curl
def test_curl_asks_for_a_quickstart_with_a_typo(door: OpenDoor) -> None:
    reply = run_curl(BLUEPRINT, door, adding_key=True)
    assert (reply["status"], reply["query"]) == ("success", "create a blueprnt")
    found = reply["tool_result"]
    assert found["tool"] == found["data"]["tool"] == "searchQuickstarts"
    assert found["data"]["result"]["quickstart"]["name"] == "insights-blueprints"
    assert found["data"]["searchParams"]["maxDistance"] == 7


@needs_curl
def test_curl_retrieves(door: OpenDoor) -> None:
    one = run_curl(RETRIEVE, door, adding_key=True)
    hits = one["output"]["results"]
    assert (one["success"], one["output"]["count"]) == (True, len(hits))
    assert "Artificial intelligence" in hits[0]["text"]
    assert isinstance(hits[0]["id"], int) and hits[0]["metadata"] is not None
    assert re.fullmatch(r"\d+\.\d+s", one["stats"]["execution_time"])
    several = run_curl(RETRIEVE_SEVERAL, door, adding_key=True)["output"]
    scores = [hit["score"] for hit in several["results"]]
    assert several["count"] == len(scores) == 2 and scores == sorted(scores, reverse=True)


def test_requests_in_python_reads_the_result(door: OpenDoor) -> None:
    program = adapted(PYTHON, door).replace("print(results)", "import json; print(json.dumps(results))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["results"][0]["sourceTitle"] == "Regolamento Byblos"


def test_requests_in_python_raises_with_our_message(door: OpenDoor) -> None:
    program = adapted(PYTHON, door).replace('"fondo pensione"', '""')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "Exception: Query parameter is required" in done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_fetch_in_javascript_reads_the_result(door: OpenDoor, tmp_path: Path) -> None:
    # Node reads type annotations from 22.18 on; they are taken out for all, and nothing else.
    program = re.sub(r": (?:string|'hybrid' \| 'semantic' \| 'keyword')(?=[,) ])", "", adapted(TYPESCRIPT, door))
    program = program.replace("console.log(results)", "console.log(JSON.stringify(results))")
    (tmp_path / "example.mjs").write_text(program, encoding="utf-8")
    done = subprocess.run(
        ["node", str(tmp_path / "example.mjs")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        encoding="utf-8",
    )
    assert json.loads(done.stdout)["results"][0]["sourceTitle"] == "Regolamento Byblos"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_url_and_headers_of_a_claude_configuration_connect(door: OpenDoor, mode: Any) -> None:
    [server] = json.loads(adapted(CLAUDE, door))["mcpServers"].values()
    async with httpx2.AsyncClient(headers=server["headers"]) as http_client:
        async with Client(streamable_http_client(server["url"], http_client=http_client), mode=mode) as client:
            found = await client.call_tool("search", {"query": "fondo pensione"})
    assert found.structured_content is not None
    assert found.structured_content["results"][0]["sourceTitle"] == "Regolamento Byblos"
