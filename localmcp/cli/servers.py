"""`localmcp servers`: other MCP servers whose tools an assistant reaches through localmcp."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.values import split_pair
from localmcp.config import cache_directory, servers_file, state_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.files import expand_home
from localmcp.hub.client_configuration import client_names, read_client, read_document, servers_in
from localmcp.hub.entries import entry_of, parse_entry, take_over, write_entries
from localmcp.hub.server import McpServer
from localmcp.hub.servers import McpServers
from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.visible_text import visible

UNAVAILABLE = 3
COLUMNS = ("name", "state", "tools", "where", "args", "error")


@group()
def servers() -> None:
    """Connect other MCP servers; an assistant finds their tools with tool_search.

    They are kept in mcp.json in the configuration directory, in the form that other clients use. Each is started when a
    tool of it is first called.

    \b
      localmcp servers import claude-desktop
      localmcp servers add time -- uvx mcp-server-time
      localmcp servers refresh
    """


def open_servers(session: Session) -> McpServers:
    """Return the servers of the user's file; needs no database."""
    servers = McpServers(cache_directory() / "mcp", state_directory() / "logs")
    with hushed(session):
        _ = servers.servers
    if servers.problem is not None:
        raise servers.problem
    return servers


@contextmanager
def hushed(session: Session) -> Generator[None]:
    """Silence the log, unless the person wants more: these commands print what goes wrong."""
    logger = logging.getLogger("localmcp")
    before = logger.level
    logger.setLevel(before if session.verbosity else logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


# ---------------------------------------------------------------- list


@servers.command("list")
@pass_session
def list_servers(session: Session) -> None:
    """List the servers, and how many tools each is known to have."""
    listed = open_servers(session).servers.values()
    described = [describe(server) for server in listed]
    answer = {"file": str(servers_file()), "count": len(described), "servers": described}
    session.answer(answer, lambda _: session.show({"servers": described}, columns=COLUMNS))
    if not described:
        session.note("No servers yet. Begin with: localmcp servers import claude-desktop")
    _note_definitions(session, listed)


def describe(server: McpServer) -> Json:
    """Return a server without what may be secret: the values of variables and headers, and keys in arguments."""
    entry = server.entry
    return {
        "name": entry.name,
        "type": "http" if entry.url else "stdio",
        "where": entry.where,
        "args": entry.shown_args,
        "env": sorted(entry.env),
        "headers": sorted(entry.headers),
        "namespace": entry.namespace,
        "state": server.condition,
        "tools": server.known_tools,
        "error": entry.problem or None,
    }


# ---------------------------------------------------------------- add and remove


@servers.command("add")
@click.option("--url", help="Its address, for a server that speaks Streamable HTTP.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent with each request; ${VAR} works.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set for the program; ${VAR} works. Repeatable.")
@click.option("--cwd", metavar="FOLDER", help="Where the program runs.")
@click.option("--include", multiple=True, metavar="PATTERN", help="Only its tools of this name; * works. Repeatable.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="None of its tools of this name. Repeatable.")
@click.option("--timeout", type=click.FloatRange(0.1, 999), help="Seconds for one call (60).")
@click.option("--start-timeout", type=click.FloatRange(0.1, 999), help="Seconds for its start (30).")
@click.option("--replace", is_flag=True, help="Take the place of a server of that name.")
@click.option("--no-start", is_flag=True, help="Do not start it once to read its tools.")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[URL | -- COMMAND ARGS...]")
@pass_session
def add(session: Session, name: str, command: tuple[str, ...], replace: bool, no_start: bool, **options: Any) -> None:
    """Add a server, and start it once to read its tools.

    \b
      localmcp servers add time -- uvx mcp-server-time
      localmcp servers add notes --url https://example.org/mcp --header 'Authorization=Bearer ${NOTES_TOKEN}'
    """
    entry = make_entry(command, options)
    problem = parse_entry(name, entry).problem
    if problem:
        raise InvalidInput(f"This server cannot be used: {problem}.", hint="Give a command after --, or --url.")
    if not replace and name in open_servers(session).servers:
        raise InvalidInput(f"There is a server '{name}' already.", hint="Take its place with --replace.")
    path = write_entries({name: entry})
    outcome = {} if no_start else _refreshed(session, [name])[name]
    answer = {"name": name, "file": str(path), **outcome}
    session.answer(answer, session.show)
    _note_definitions(session, [open_servers(session).server(name)])


def make_entry(command: tuple[str, ...], options: Json) -> Json:
    """Return the entry as it is written to the file.

    Raises:
        InvalidInput: a NAME=VALUE without `=`.
    """
    entry = entry_of(command)
    if options["url"]:
        entry |= {"type": "http", "url": options["url"]}
    cwd = options["cwd"]
    further = {
        # What was typed may be a secret and is not repeated.
        "env": dict(split_pair(pair, "--env takes NAME=VALUE.") for pair in options["env"]),
        "headers": dict(split_pair(pair, "--header takes NAME=VALUE.") for pair in options["headers"]),
        "cwd": os.path.abspath(os.path.expanduser(cwd)) if cwd and "${" not in cwd else cwd,
        "tools": {key: list(options[key]) for key in ("include", "exclude") if options[key]},
        "timeout": options["timeout"],
        "startTimeout": options["start_timeout"],
    }
    return {**entry, **{key: value for key, value in further.items() if value}}


@servers.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove servers from mcp.json, and what is remembered of their tools."""
    path = open_servers(session).remove(names)
    session.answer({"removed": list(names), "file": str(path)}, lambda _: render.echo(f"Removed {', '.join(names)}."))


# ---------------------------------------------------------------- import


@servers.command("import")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--replace", is_flag=True, help="Overwrite your servers of the same name.")
@click.argument("source", metavar="CLIENT|FILE")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@pass_session
def import_servers(session: Session, source: str, names: tuple[str, ...], dry_run: bool, replace: bool) -> None:
    """Take servers over from another client, or from a file that it keeps them in; only the named ones, if any are.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, gemini or codex. That client's file is only
    read. localmcp itself is left out. Variables such as ${TOKEN} stay as they are and are filled in at the start.
    """
    report = take_over(read_source(source), names, replace=replace, dry_run=dry_run)
    session.answer(report, session.show)


def read_source(source: str) -> dict[Path, dict[str, Any]]:
    """File -> its servers, for the name of a client or of a file.

    Raises:
        NotFound: there is neither such a client nor such a file, or the client has no configuration here.
        ConfigurationError: a file cannot be read.
    """
    if source in client_names():
        return read_client(source)
    path = expand_home(source)
    if not path.is_file():
        clients = ", ".join(client_names())
        raise NotFound(f"'{source}' is neither a file nor a client that is known.", hint=f"Clients: {clients}.")
    return {path: servers_in(read_document(path), path)}


@servers.command("approve")
@click.option("--yes", is_flag=True, help="Approve without asking.")
@click.argument("name", metavar="NAME")
@pass_session
def approve(session: Session, name: str, yes: bool) -> None:
    """Show what a server has changed in its tools since you connected it, and accept it.

    Without --yes nothing is accepted unless you say so at a terminal.
    """
    server = open_servers(session).server(name)
    with hushed(session):
        changes = server.changes()
    if changes and not session.as_json:
        render.write(visible("\n".join(line for lines in changes.values() for line in lines) + "\n", newlines=True))
    accepted = bool(changes) and (yes or (session.can_ask and render.confirm("Accept these definitions?")))
    if accepted:
        server.approve()
    session.answer(
        {"server": name, "changes": {tool: "\n".join(lines) for tool, lines in changes.items()}, "approved": accepted},
        session.show,
    )


# ---------------------------------------------------------------- login and logout


@servers.command("login")
@click.option("--no-browser", is_flag=True, help="Only print the address; open it yourself.")
@click.option("--timeout", type=click.FloatRange(1, 3600), default=300, help="Seconds to sign in (300).")
@click.argument("name", metavar="NAME")
@pass_session
def login(session: Session, name: str, no_browser: bool, timeout: float) -> int:
    """Sign in to a remote server in the browser, and read its tools.

    The tokens are kept in the state directory, readable only by you, and refreshed when they expire.
    """
    import asyncio

    from localmcp.hub.auth import sign_in

    def show(url: str) -> None:
        render.echo(f"Sign in at: {visible(url)}", err=True)
        if not no_browser:
            click.launch(url)

    signed_in = asyncio.run(sign_in(open_servers(session).server(name).entry, show, timeout))
    outcome = _refreshed(session, [name])[name]

    session.answer({"server": name, "signedIn": signed_in, **outcome}, session.show)
    _note_definitions(session, [open_servers(session).server(name)])
    return UNAVAILABLE if "error" in outcome else 0


@servers.command("logout")
@click.argument("name", metavar="NAME")
@pass_session
def logout(session: Session, name: str) -> None:
    """Forget the tokens of a server that you signed in to."""
    from localmcp.hub.auth import forget_login

    existed = forget_login(open_servers(session).server(name).entry)
    message = f"Signed out of {name}." if existed else f"You were not signed in to {name}."
    session.answer({"server": name, "signedOut": existed}, lambda _: render.echo(message))


# ---------------------------------------------------------------- refresh


@servers.command("refresh")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@pass_session
def refresh(session: Session, names: tuple[str, ...]) -> int:
    """Start the servers (all that are not disabled, unless some are named), read their tools, and stop them again.

    Their tools are then known without starting them. Exit code 3 if one does not run.
    """
    servers = open_servers(session)
    chosen = names or tuple(name for name, server in servers.servers.items() if not server.entry.is_off)
    for name in chosen:
        servers.server(name)
    outcomes = [{"name": name, **outcome} for name, outcome in _refreshed(session, chosen).items()]
    session.answer({"servers": outcomes}, session.show)
    _note_definitions(session, [servers.server(name) for name in chosen])
    return UNAVAILABLE if any(outcome.get("error") for outcome in outcomes) else 0


def _refreshed(session: Session, names: Sequence[str]) -> dict[str, Json]:
    """Start those servers once; return name -> how many tools it has, or why it does not run."""
    with closing(open_servers(session)) as servers, hushed(session):
        outcomes = servers.refresh(names)
    return {
        name: {"tools": outcome} if isinstance(outcome, int) else {"error": outcome.message, "hint": outcome.hint}
        for name, outcome in outcomes.items()
    }


def _note_definitions(session: Session, listed: Iterable[McpServer]) -> None:
    """Name the servers whose tools are no longer what the person approved."""
    for server in listed:
        if count := len(server.changes()):
            changes = f"{server.entry.name}: {counted(count, 'tool')} changed since you approved it; see"
            session.warn(f"{changes}: localmcp servers approve {server.entry.name}")
