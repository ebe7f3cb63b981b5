"""`localmcp serve`, when it is given more than the short way to the first reply understands."""

from __future__ import annotations

import os
from typing import Any

import click

from localmcp.cli.session import Session, command, pass_session


@command()
@click.option("--profile", metavar="NAME", help="Give only what this table of profiles.toml allows (stdio).")
@click.option("--http", is_flag=True, help="Serve over HTTP on this machine instead; every call needs an API key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port for --http (8080; 0 = any that is free).")
@click.option("--host", help="Address for --http (127.0.0.1); another needs --allow-remote.")
@click.option("--allow-remote", is_flag=True, help="Let other machines in; without --host, on every address.")
@pass_session
def serve(session: Session, profile: str | None, http: bool, **options: Any) -> None:
    """Serve the tools over MCP, on stdin and stdout.

    This is what an assistant starts; in its configuration:

    \b
      {"mcpServers": {"localmcp": {"command": "localmcp", "args": ["serve"]}}}

    It listens on no port, and ends when the assistant closes its side. Messages for people go to stderr.

    With --http it serves scripts, editors and web clients of this machine instead, until Ctrl-C:

    \b
      localmcp keys create --name me
      localmcp serve --http
      curl -H "Authorization: Bearer mcp_..." http://127.0.0.1:8080/tools
    """
    if profile == "" or (http and profile is not None):
        raise click.UsageError("--profile takes a name, and cannot be used with --http, where the key decides.")
    if http:
        serve_http(session, **options)
    for option, value in options.items():
        if value not in (None, False):
            raise click.UsageError(f"--{option.replace('_', '-')} goes with --http.")
    from localmcp.server import program

    if session.verbosity:
        os.environ["LOCALMCP_LOG_LEVEL"] = session.log_level
    elif session.quiet:
        os.environ["LOCALMCP_LOG_LEVEL"] = "error"
    program.main(session.database, profile)


def serve_http(session: Session, port: int | None, host: str | None, allow_remote: bool) -> None:
    """Serve over HTTP; the process ends in it.

    Raises:
        UsageError: an address that other machines can reach, without --allow-remote.
        Unavailable: the address cannot be listened on.
    """
    from localmcp.server.http.app import Address, is_loopback, run, set_up_logging
    from localmcp.workspace import Workspace

    settings = session.settings
    address = host or ("0.0.0.0" if allow_remote else "127.0.0.1")
    if not allow_remote and not is_loopback(address):
        raise click.UsageError(f"--host {address} can be reached from other machines; add --allow-remote to mean it.")
    set_up_logging(session.log_level, quiet=session.quiet)
    chosen = settings.http_port if port is None else port
    run(Address(address, chosen), settings, lambda: Workspace(settings))
