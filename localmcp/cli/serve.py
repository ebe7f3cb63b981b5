"""`localmcp serve`, when it is given more than the short way to the first reply understands."""

from __future__ import annotations

import os

from localmcp.cli.session import Session, command, pass_session


@command()
@pass_session
def serve(session: Session) -> None:
    """Serve the tools over MCP, on stdin and stdout.

    This is what an assistant starts; in its configuration:

    \b
      {"mcpServers": {"localmcp": {"command": "localmcp", "args": ["serve"]}}}

    It listens on no port, and ends when the assistant closes its side. Messages for people go to stderr.
    """
    from localmcp.server import quick_reply

    if session.verbosity:
        os.environ["LOCALMCP_LOG_LEVEL"] = "info" if session.verbosity == 1 else "debug"
    elif session.quiet:
        os.environ["LOCALMCP_LOG_LEVEL"] = "error"
    quick_reply.main(session.database)
