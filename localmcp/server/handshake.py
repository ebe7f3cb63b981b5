"""The first reply of `localmcp serve`, given within milliseconds; everything heavy is imported after it.

Claude Desktop starts several copies and gives up on slow ones, and importing the MCP SDK takes 0.6 to 1 s. So the
first message is answered from constants. The SDK gets it later too, and its own reply is dropped.
"""

from __future__ import annotations

import json
import os
import sys

from localmcp.server.session_cache import cached_instructions, cached_offers, capabilities
from localmcp.server.wire import Wire, claim_wire
from localmcp.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from localmcp.workspace import Workspace

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
DISCOVER_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
SERVER_INFO = {"name": "localmcp", "version": __version__}


def greet(database: str | None = None, profile: str | None = None) -> Wire:
    """Claim the wire, read the first line and answer it if it is a handshake.

    `database` and `profile` choose the instructions.
    """
    wire = claim_wire()
    wire.instructions = cached_instructions(database, profile)
    wire.offers = cached_offers(database, profile)
    reply = first_reply(wire.read_first(), wire.instructions, wire.offers)
    if reply is not None:
        wire.write(json.dumps(reply, separators=(",", ":")) + "\n")
        wire.answered = reply["id"]
    return wire


def first_reply(line: bytes, instructions: str, offers: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return the reply to `initialize` or `server/discover`; None for anything the SDK must look at."""
    try:
        message = json.loads(line)
        request_id, params = message["id"], message["params"]
        if message["jsonrpc"] != "2.0" or type(request_id) not in (int, str) or _has_surrogates(request_id):
            return None
        answers = {"initialize": _initialize, "server/discover": _discover}
        result = answers[message["method"]](params, instructions, capabilities(offers))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # The SDK answers anything unusual, later.
        return None
    return None if result is None else {"jsonrpc": "2.0", "id": request_id, "result": result}


def _has_surrogates(request_id: str | int) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in str(request_id))


def _initialize(params: dict[str, Any], instructions: str, advertised: dict[str, Any]) -> dict[str, Any] | None:
    version, client, theirs = params["protocolVersion"], params["clientInfo"], params["capabilities"]
    texts = (version, client["name"], client["version"])
    tables = (theirs, *theirs.values())
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(t, dict) for t in tables):
        return None
    return {
        "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": advertised,
        "serverInfo": SERVER_INFO,
        "instructions": instructions,
    }


def _discover(params: dict[str, Any], instructions: str, advertised: dict[str, Any]) -> dict[str, Any] | None:
    meta = params["_meta"]
    version, theirs = (meta[_META + key] for key in ("protocolVersion", "clientCapabilities"))
    if version != DISCOVER_VERSION or not isinstance(theirs, dict):
        return None
    return {
        "supportedVersions": [DISCOVER_VERSION],
        "capabilities": advertised,
        "instructions": instructions,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {_META + "serverInfo": SERVER_INFO},
    }


def serve(
    open_workspace: Callable[[], Workspace], *, database: str | None = None, profile: str | None = None
) -> NoReturn:
    """Serve MCP on stdin and stdout until the client leaves; ends the process.

    Exit codes: 0 when the client closes stdin or stdout, 130 after SIGINT, 143 after SIGTERM (before the SDK is there:
    killed by the signal, which shells show as the same numbers), 1 after a crash.

    Args:
        open_workspace: makes the workspace; called after the first reply.
        database: the path given on the command line; the key under which instructions are remembered.
        profile: the name of the profile that limits this client; None = no limit.
    """
    if os.isatty(0):
        print("localmcp waits for an MCP client on stdin; Ctrl-C ends it.", file=sys.stderr)
    wire = greet(database, profile)
    if not wire.first:
        os._exit(0)
    wire.listen()
    _log_to_stderr()
    import threading

    from localmcp.server.opening import OpenOnce

    workspace = OpenOnce(open_workspace)
    threading.Thread(target=_prepare, args=(wire, workspace), name="localmcp-opening", daemon=True).start()
    from localmcp.server.stdio import Session

    Session(wire, workspace, database, profile).run()


def _prepare(wire: Wire, open_workspace: Callable[[], Workspace]) -> None:
    """Open the file, and load the model for a search that waits, while the SDK is imported."""
    import logging

    try:
        workspace = open_workspace()
        if wire.searched:
            workspace.embedder.start_loading()
    except Exception:
        logging.getLogger(__name__).debug("the session will try again, and say why it cannot", exc_info=True)


def _log_to_stderr() -> None:
    import logging

    from localmcp.visible_text import VisibleFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def main(database: str | None = None, profile: str | None = None) -> NoReturn:
    """`localmcp serve` over stdio, with the database that the settings choose."""

    def open_workspace() -> Workspace:
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
