"""An MCP server that asks the person in the middle of a call, in the way of the generation that `--new` chooses.

It is written without the SDK, whose server speaks both generations and takes a second to start.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
COMPLETE = {"resultType": "complete"}
CACHED = {**COMPLETE, "ttlMs": 0, "cacheScope": "private"}
TOOLS = {"tools": [{"name": "paint", "inputSchema": SCHEMA}]}


def main() -> None:
    """Answer line by line."""
    answer = answer_new if "--new" in sys.argv else answer_old
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            say({"id": message["id"], **answer(message["method"], message.get("params", {}))})


def say(message: Json) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def question(thing: str) -> Json:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    return {"mode": "form", "message": f"Which color for the {thing}?", "requestedSchema": schema}


def painted(thing: str, response: Json) -> Json:
    text = f"{thing}: {response['content']['color']}" if response["action"] == "accept" else response["action"]
    return {"content": [{"type": "text", "text": text}]}


# ---------------------------------------------------------------- 2025-11-25: a request to the client

offered: list[bool] = []


def answer_old(method: str, params: Json) -> Json:
    if method == "initialize":
        offered.append("elicitation" in params["capabilities"])
        info = {"name": "questions", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": TOOLS}
    if method == "tools/call":
        return {"result": paint(params["arguments"]["thing"])}
    return {"error": {"code": -32601, "message": f"no {method} in this generation"}}


def paint(thing: str) -> Json:
    if not offered[-1]:
        return painted(thing, {"action": "accept", "content": {"color": "white"}})
    say({"id": 1000, "method": "elicitation/create", "params": question(thing)})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == 1000:
            return painted(thing, message["result"])


# ---------------------------------------------------------------- 2026-07-28: a result that the client answers


def answer_new(method: str, params: Json) -> Json:
    if method == "server/discover":
        return {"result": {**CACHED, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    if method == "tools/list":
        return {"result": {**CACHED, **TOOLS}}
    if method == "tools/call":
        return {"result": paint_anew(params)}
    return {"error": {"code": -32601, "message": f"no {method} in this generation"}}


def paint_anew(params: Json) -> Json:
    thing = params["arguments"]["thing"]
    response = (params.get("inputResponses") or {}).get("color")
    if response is None or params.get("requestState") != f"painting {thing}":
        asked = {"color": {"method": "elicitation/create", "params": question(thing)}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": f"painting {thing}"}
    return {**COMPLETE, **painted(thing, response)}


if __name__ == "__main__":
    main()
