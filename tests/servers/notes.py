"""An MCP server of notes: resources, a template, prompts, completion, changes, and a tool that asks the person.

`--new`: of 2026-07-28. It is written without the SDK, whose server speaks both generations and takes a second to start.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]

NEW = "--new" in sys.argv
MARKS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if NEW else {}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CAPABILITIES = {"tools": {}, "prompts": {"listChanged": True}, "resources": {"listChanged": True}, "completions": {}}
SCHEMA = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
notes = {"note://a": "first"}
offered: list[bool] = []
"""Whether the client has offered to ask the person."""
listening: dict[int | str, Json] = {}


def say(message: Json) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def post(name: str, text: str) -> Json:
    """Tell of the change: everybody in the old generation, who listens for it in the new one."""
    notes[f"note://{name}"] = text
    for kind in ("resources", "prompts"):
        event = f"notifications/{kind}/list_changed"
        if not NEW:
            say({"method": event, "params": {}})
        for number, filters in listening.items():
            if filters.get(f"{kind}ListChanged"):
                say({"method": event, "params": {"_meta": {SUBSCRIPTION: number}}})
    link = {"type": "resource_link", "uri": f"note://{name}", "name": name}
    return {"content": [link]}


def paint(params: Json) -> Json:
    """Ask the person for the color: by a request to the client, or by a result that the client answers."""
    thing = params["arguments"]["thing"]
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    question = {"mode": "form", "message": f"Which color for the {thing}?", "requestedSchema": schema}
    asked = {"method": "elicitation/create", "params": question}
    response = (params.get("inputResponses") or {}).get("color")
    if NEW and (response is None or params.get("requestState") != f"painting {thing}"):
        state = {"inputRequests": {"color": asked}, "requestState": f"painting {thing}"}
        return {"resultType": "input_required", **state}
    if not NEW and not offered[-1]:
        response = {"action": "accept", "content": {"color": "white"}}
    elif not NEW:
        say({"id": 1000, **asked})
        while (message := json.loads(sys.stdin.readline())).get("id") != 1000:
            pass
        response = message["result"]
    text = f"{thing}: {response['content']['color']}" if response["action"] == "accept" else response["action"]
    return {"content": [{"type": "text", "text": text}]}


def result(method: str, params: Json) -> Json:
    match method:
        case "initialize" if not NEW:
            offered.append("elicitation" in params["capabilities"])
            info = {"name": "notes", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
        case "server/discover" if NEW:
            return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        case "tools/list":
            late = {"name": "research", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
            post_it = {"name": "post", "inputSchema": {"type": "object"}}
            return {"tools": [post_it, late, {"name": "paint", "inputSchema": SCHEMA}]}
        case "tools/call":
            return paint(params) if params["name"] == "paint" else post(**params["arguments"])
        case "resources/list":
            return {"resources": [{"uri": uri, "name": uri} for uri in notes]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "note"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": notes[params["uri"]]}]}
        case "prompts/list":
            return {"prompts": [{"name": f"explain {uri}"} for uri in notes]}
        case "prompts/get":
            words = f"{params['name']} to {params['arguments']['who']}"
            return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
        case "completion/complete":
            names = [uri.removeprefix("note://") for uri in notes]
            begun = params["argument"]["value"]
            assert params["ref"].get("uri", "note://{name}") == "note://{name}"
            assert params["ref"].get("name", "explain note://a") == "explain note://a"
            values = [name for name in names if name.startswith(begun)]
            return {"completion": {"values": values, "total": 900, "hasMore": True}}
        case _:
            raise LookupError(method)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message["method"], message.get("id")
        if method == "subscriptions/listen":
            listening[number] = message["params"]["notifications"]
            acknowledged = {"notifications": listening[number], "_meta": {SUBSCRIPTION: number}}
            say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        elif method == "notifications/cancelled":
            listening.pop(message["params"]["requestId"], None)
        elif number is not None:
            try:
                say({"id": number, "result": {**MARKS, **result(method, message.get("params") or {})}})
            except LookupError as error:
                say({"id": number, "error": {"code": -32601, "message": f"no {error}"}})


if __name__ == "__main__":
    main()
