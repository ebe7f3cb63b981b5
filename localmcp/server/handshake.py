"""The first reply of `localmcp serve`, given within milliseconds; everything heavy is imported after it.

Claude Desktop starts several copies and gives up on slow ones, and importing the MCP SDK takes 0.6 to 1 s. So the
first message is answered from constants, and the SDK, which sees it later too, has its own reply dropped.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from localmcp import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import Queue
    from typing import Any, BinaryIO, NoReturn

    from localmcp.server.stdio import Served

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message; a longer one is refused without being kept in memory."""
MAX_INSTRUCTIONS = 1500
"""Characters; some clients cut at 2048."""

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
DISCOVER_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
CAPABILITIES = {"tools": {"listChanged": True}}
SERVER_INFO = {"name": "localmcp", "version": __version__}
FALLBACK_INSTRUCTIONS = (
    "localmcp is this person's own knowledge on this machine: documents, notes, rules and quick starts in one local "
    "file. Call `search` before answering about their files, projects or preferences, and cite the sources it names; "
    "`get_document` and `get_context` read more around a hit. `tool_search` finds further tools by what they do, and "
    "`execute_tool` runs them."
)


class Overlong(bytes):
    """The first and last bytes of a line that was longer than MAX_LINE."""


class Wire:
    """The client's ends of stdin and stdout, on private descriptors that nothing else reads or writes."""

    def __init__(self, reader: BinaryIO, out: int) -> None:
        self.reader = reader
        self.out = out
        self.first = b""
        self.answered: str | int | None = None
        """Id of the request that has its reply already."""
        self.instructions = FALLBACK_INSTRUCTIONS
        self.lines: Queue[bytes]
        self.serving = False
        """Whether the SDK has taken over; until then a client that leaves ends the process at once."""
        self._owing = False

    def read_line(self) -> bytes:
        """The next line with its end; `Overlong` stands for a line that is too long, b"" for the end of input."""
        try:
            line = self.reader.readline(MAX_LINE + 1)
        except OSError:
            # A terminal or pipe that broke is a client that left.
            return b""
        if len(line) <= MAX_LINE or line.endswith(b"\n"):
            return line
        head, tail = line[:256], line[-256:]
        while not tail.endswith(b"\n"):
            more = self.reader.readline(65536)
            if not more:
                break
            tail = (tail + more)[-256:]
        return Overlong(head + tail)

    def write(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            OSError: the client closed its end.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.out, rest) :]

    def listen(self) -> None:
        """Read on in a thread, into `lines`; a client that leaves before the SDK is imported ends the process."""
        import threading
        from queue import Queue

        self.lines = Queue(maxsize=4)
        self._owing = self.answered is None
        threading.Thread(target=self._listen, name="localmcp-stdin", daemon=True).start()

    def _listen(self) -> None:
        line = self.first
        while line:
            self.lines.put(line)
            line = self.read_line()
            self._owing = self._owing or b'"id"' in line
        if not self._owing and not self.serving:
            os._exit(0)
        self.lines.put(b"")


# ---------------------------------------------------------------- the first message


def claim_wire() -> Wire:
    """Take stdin and stdout for the protocol: afterwards fd 0 reads nothing and fd 1 is stderr.

    A stray `print`, and whatever a child process writes, can then not break a frame. Ctrl-C has its plain effect until
    something is open: Python's own handler would wait for a blocked read, and then show a traceback.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:
        # A standard descriptor was closed: this fills its place, so that no duplicate lands there.
        null = os.dup(null)
    reader = os.fdopen(os.dup(0), "rb", buffering=65536)
    out = os.dup(1)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return Wire(reader, out)


def greet(database: str | None = None, profile: str | None = None) -> Wire:
    """Claim the wire, read the first line and answer it if it is a handshake; `database` and `profile` choose the
    instructions."""
    wire = claim_wire()
    wire.instructions = cached_instructions(database, profile)
    wire.first = wire.read_line()
    reply = first_reply(wire.first, wire.instructions)
    if reply is None:
        return wire
    try:
        wire.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    except OSError:
        os._exit(0)
    wire.answered = reply["id"]
    return wire


def first_reply(line: bytes, instructions: str) -> dict[str, Any] | None:
    """The reply to `initialize` or `server/discover`; None for anything the SDK must look at."""
    try:
        message = json.loads(line)
        request_id, params = message["id"], message["params"]
        if message["jsonrpc"] != "2.0" or type(request_id) not in (int, str) or _has_surrogates(request_id):
            return None
        answers = {"initialize": _initialize, "server/discover": _discover}
        result = answers[message["method"]](params, instructions)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Anything unusual is left to the SDK, which answers it properly and later.
        return None
    return None if result is None else {"jsonrpc": "2.0", "id": request_id, "result": result}


def _has_surrogates(request_id: str | int) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in str(request_id))


def _initialize(params: dict[str, Any], instructions: str) -> dict[str, Any] | None:
    version, client, capabilities = params["protocolVersion"], params["clientInfo"], params["capabilities"]
    texts = (version, client["name"], client["version"])
    tables = (capabilities, *capabilities.values())
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(t, dict) for t in tables):
        return None
    return {
        "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER_INFO,
        "instructions": instructions,
    }


def _discover(params: dict[str, Any], instructions: str) -> dict[str, Any] | None:
    meta = params["_meta"]
    version, capabilities = (
        meta[f"io.modelcontextprotocol/{key}"] for key in ("protocolVersion", "clientCapabilities")
    )
    if version != DISCOVER_VERSION or not isinstance(capabilities, dict):
        return None
    return {
        "supportedVersions": [DISCOVER_VERSION],
        "capabilities": CAPABILITIES,
        "instructions": instructions,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {_META + "serverInfo": SERVER_INFO},
    }


# ---------------------------------------------------------------- instructions


def cached_instructions(database: str | None = None, profile: str | None = None) -> str:
    """What the last session with `profile` wrote about `database` (None = the one that the settings choose), else a
    fixed text."""
    text = _known_instructions().get(_database_key(database, profile))
    return text if isinstance(text, str) and 0 < len(text) <= MAX_INSTRUCTIONS else FALLBACK_INSTRUCTIONS


def remember_instructions(database: str | None, text: str, profile: str | None = None) -> None:
    """Keep `text` for the next start with this database and profile, cut to MAX_INSTRUCTIONS.

    Raises:
        OSError: the state directory cannot be written.
    """
    import threading

    path, key = _instructions_file(), _database_key(database, profile)
    others = {name: old for name, old in _known_instructions().items() if name != key}
    kept = {**dict(list(others.items())[-19:]), key: text[:MAX_INSTRUCTIONS]}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}-{threading.get_ident()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(kept, file)
    os.replace(part, path)


def _known_instructions() -> dict[str, Any]:
    try:
        with open(_instructions_file(), encoding="utf-8") as file:
            known: dict[str, Any] = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    # The file may hold anything that somebody wrote there.
    return known if type(known) is dict else {}


def _database_key(database: str | None, profile: str | None) -> str:
    chosen = database or _variable("LOCALMCP_DB")
    path = os.path.abspath(os.path.expanduser(chosen)) if chosen else ""
    # What a profile hides must not stand in the instructions of another. No path has a NUL.
    return path if profile is None else f"{path}\0{profile}"


def _instructions_file() -> str:
    return os.path.join(state_folder(), "instructions.json")


def state_folder() -> str:
    """`config.state_directory()` without platformdirs, whose import costs as much as the whole reply (15 ms)."""
    override = _variable("LOCALMCP_STATE_DIR")
    if override:
        return os.path.expanduser(override)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = _xdg_state() or "~/Library/Application Support"
    else:
        base = _xdg_state() or "~/.local/state"
    return os.path.join(os.path.expanduser(base), "localmcp")


def _xdg_state() -> str:
    given = os.environ.get("XDG_STATE_HOME", "").strip()
    return given if os.path.isabs(given) else ""


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    return "" if value.startswith("${") else value


# ---------------------------------------------------------------- serving


def serve(open_workspace: Callable[[], Served], *, database: str | None = None, profile: str | None = None) -> NoReturn:
    """Serve MCP on stdin and stdout until the client leaves; ends the process.

    Exit codes: 0 when the client closes stdin or stdout, 130 after SIGINT, 143 after SIGTERM (before the SDK is there:
    killed by the signal, which shells show as the same numbers), 1 after a crash.

    Args:
        open_workspace: makes the workspace; called in a thread, after the first reply.
        database: the path given on the command line; the key under which instructions are remembered.
        profile: the name of the profile that limits this client; None = no limit.
    """
    if os.isatty(0):
        print("localmcp waits for an MCP client on stdin; Ctrl-C ends it.", file=sys.stderr)
    wire = greet(database, profile)
    if not wire.first:
        os._exit(0)
    wire.listen()
    from localmcp.server import stdio

    stdio.run(wire, open_workspace, database, profile)


def main(database: str | None = None, profile: str | None = None) -> NoReturn:
    """`localmcp serve` over stdio, with the database that the settings choose."""

    def open_workspace() -> Served:
        import logging

        from localmcp.config import Settings, load_settings
        from localmcp.errors import ConfigurationError
        from localmcp.workspace import Workspace

        try:
            settings = load_settings(database=database)
        except ConfigurationError as error:
            workspace = Workspace(Settings())
            workspace.registry.refusal = error
            return workspace
        logging.getLogger().setLevel(settings.log_level.upper())
        return Workspace(settings)

    serve(open_workspace, database=database, profile=profile)
