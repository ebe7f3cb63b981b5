"""An MCP server without any library, so that it starts at once and can misbehave in every way that tests need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

OPTIONS = set(sys.argv[1:])
FOLDER = Path(os.environ.get("PLAIN_FOLDER", "."))
"""Where it leaves its traces and looks for what it waits for."""

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {
        "description": "Say it again, word for word.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True, "title": "Echo"},
    },
    "wait": {"description": "Answer once a file is there."},
    "stall": {"description": "Answer nothing any more."},
    "crash": {"description": "End in the middle."},
    "rich": {"description": "An image, text, a link and structured content."},
    "fail": {"description": "An error as a result."},
    "refuse": {"description": "An error of the protocol."},
    "malformed": {"description": "An answer that is no result."},
    "surrogate": {"description": "Text that no UTF-8 can carry."},
    "big": {"description": "Five million letters."},
    "environment": {"description": "The variables it sees."},
    "grow": {"description": "Offer one more tool, and say so."},
}

if "--careless" in OPTIONS:
    TOOLS["bare"] = {"description": "It has no schema.", "inputSchema": None}
    TOOLS["odd"] = {"description": ["It is described by a list."]}
if "--wrong" in OPTIONS:
    TOOLS["rows"] = {"description": "It takes a list.", "inputSchema": {"type": "array"}}
    TOOLS["late"] = {"inputSchema": {"properties": {"a": {"type": "string"}}}}
    TOOLS["nameless"] = {"name": None, "inputSchema": OBJECT}
    TOOLS["long"] = {"name": "lo\x1b[2Jng" * 500, "inputSchema": "none"}
if (FOLDER / "description").exists():
    TOOLS["echo"]["description"] = (FOLDER / "description").read_text()
    TOOLS["echo"]["inputSchema"]["properties"]["text"]["description"] = "Words\U000e0042"
    TOOLS["echo"]["title"] = "Ec\u202eho"

_writing = threading.Lock()
_stalled = threading.Event()


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message})
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def wait_for(name: str) -> None:
    """The tests make the file; a gate instead of a time."""
    while not (FOLDER / name).exists():
        time.sleep(0.01)


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "echo":
        return text(arguments["text"])
    if name == "wait":
        with (FOLDER / "waiting").open("a") as calls:
            calls.write(".")
        wait_for(arguments["file"])
        return text("it came")
    if name == "stall":
        _stalled.set()
        threading.Event().wait()
    if name == "crash":
        print(f"\x1b[31mtoken {os.environ.get('PLAIN_TOKEN')} broke it", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "rich":
        image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}
        link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt"}
        return {"content": [image, *text("a caption")["content"], link], "structuredContent": {"answer": 42}}
    if name == "fail":
        return {**text("there is no such thing"), "isError": True}
    if name == "refuse":
        raise ValueError("that is \x1b[2Jnot allowed" + "!" * 5000)
    if name == "malformed":
        return {"content": "not a list"}
    if name == "surrogate":
        return text("a\ud800b")
    if name == "big":
        return text("x" * arguments.get("letters", 5_000_000))
    if name == "environment":
        return {**text("see"), "structuredContent": dict(os.environ)}
    if name == "grow":
        TOOLS["grown"] = {"description": "It was not there before."}
        send({"method": "notifications/tools/list_changed"})
        return text("grown")
    return text(f"{name} was called")


def answer(message: dict[str, Any]) -> None:
    request, params = message["id"], message.get("params") or {}
    method = message["method"]
    if method == "initialize":
        if "--gated" in OPTIONS:
            wait_for("open")
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
        send({"id": request, "result": result})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": OBJECT, **each} for name, each in TOOLS.items()]
        send({"id": request, "result": {"tools": tools}})
    elif method == "tools/call":
        try:
            send({"id": request, "result": call(params["name"], params.get("arguments") or {})})
        except ValueError as error:
            send({"id": request, "error": {"code": -32602, "message": str(error)}})
    elif method == "ping":
        send({"id": request, "result": {}})
    else:
        send({"id": request, "error": {"code": -32601, "message": "Method not found"}})


def main() -> None:
    with (FOLDER / "started").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if "--broken" in OPTIONS:
        sys.exit("this server is not for starting")
    if "--noisy" in OPTIONS:
        print("Welcome to the noisy server!\n{not json either\n", flush=True)
    if "--stubborn" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--parent" in OPTIONS:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
        with (FOLDER / "started").open("a") as file:
            file.write(f"{child.pid}\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and not _stalled.is_set():
            threading.Thread(target=answer, args=(message,), daemon=True).start()
    if "--stubborn" in OPTIONS:
        threading.Event().wait()


if __name__ == "__main__":
    main()
