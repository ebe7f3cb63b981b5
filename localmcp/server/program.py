"""`localmcp serve` over stdio: the first reply, then the session; what is heavy is imported then."""

from __future__ import annotations

import os
import sys
import threading

from localmcp.server.handshake import OpenOnce, greet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from localmcp.workspace import Workspace


def serve(open_workspace: Callable[[], Workspace], *, profile: str | None = None) -> NoReturn:
    """Serve MCP on stdin and stdout until the client leaves; ends the process.

    Exit codes: 0 when the client closes stdin or stdout, 130 after SIGINT, 143 after SIGTERM (before the SDK is there:
    killed by the signal, which shells show as the same numbers), 1 after a crash.

    `open_workspace` is called after the first reply; `profile` limits this client.
    """
    if os.isatty(0):
        print("localmcp waits for an MCP client on stdin; Ctrl-C ends it.", file=sys.stderr)
    wire = greet(profile)
    if wire is None:
        os._exit(0)
    import logging

    from localmcp.visible_text import VisibleFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    workspace = OpenOnce(open_workspace)

    def prepare() -> None:
        from localmcp.errors import LocalMCPError

        try:
            workspace()
        except Exception as error:
            # Each call tells it too.
            is_bug = not isinstance(error, LocalMCPError)
            logging.getLogger(__name__).warning("the workspace cannot be opened: %s", error, exc_info=is_bug)

    # Beside the import of the SDK.
    threading.Thread(target=prepare, name="localmcp-opening", daemon=True).start()
    from localmcp.server.stdio import Session

    Session(wire, workspace, profile).run()


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

    serve(open_workspace, profile=profile)
