"""`localmcp servers` and `connect`: other MCP servers behind localmcp, and localmcp in an assistant."""

from collections.abc import Iterable, Sequence

import click

from localmcp.cli import render
from localmcp.cli.options import split_pair
from localmcp.cli.session import Session, command, group, pass_session
from localmcp.config import servers_file
from localmcp.connect import configuration
from localmcp.errors import InvalidInput
from localmcp.hub.client_configuration import client_names, read_servers
from localmcp.hub.entries import entry_of, parse_entry, take_over, write_entries
from localmcp.hub.server import McpServer
from localmcp.hub.servers import McpServers
from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.visible_text import visible


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
    """Return the servers of the user's file; raises ConfigurationError if it cannot be read."""
    servers = session.reading().mcp_servers
    _ = servers.servers
    if servers.problem is not None:
        raise servers.problem
    return servers


@servers.command("list")
@pass_session
def list_servers(session: Session) -> None:
    """List the servers, and how many tools each is known to have."""
    listed = open_servers(session).servers.values()
    # Without what may be secret: the values of variables and headers, and keys in arguments.
    described: list[Json] = [
        {
            "name": server.entry.name,
            "type": "http" if server.entry.url else "stdio",
            "where": server.entry.where,
            "args": server.entry.shown_args,
            "env": sorted(server.entry.env),
            "headers": sorted(server.entry.headers),
            "namespace": server.entry.namespace,
            "state": server.condition,
            "tools": server.known_tools,
            "error": server.entry.problem or None,
        }
        for server in listed
    ]
    answer = {"file": str(servers_file()), "count": len(described), "servers": described}
    session.answer(answer, ("name", "state", "tools", "where", "args", "error"))
    if not described:
        session.note("No servers yet. Begin with: localmcp servers import claude-desktop")
    _warn_of_changes(session, listed)


@servers.command("add")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent with each request; ${VAR} works.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set for the program; ${VAR} works. Repeatable.")
@click.option("--replace", is_flag=True, help="Take the place of a server of that name.")
@click.option("--no-start", is_flag=True, help="Do not start it once to read its tools.")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[URL | -- COMMAND ARGS...]")
@pass_session
def add(
    session: Session, name: str, command: tuple[str, ...], headers: tuple[str, ...], env: tuple[str, ...],
    replace: bool, no_start: bool,
) -> None:  # fmt: skip
    """Add a server, and start it once to read its tools; exit code 3 if it does not start.

    What else a server may have, such as timeouts and the tools to leave out, is written into mcp.json.

    \b
      localmcp servers add time -- uvx mcp-server-time
      localmcp servers add notes https://example.org/mcp --header 'Authorization=Bearer ${NOTES_TOKEN}'
    """
    entry = entry_of(command)
    # What was typed may be a secret and is not repeated.
    pairs = {
        "env": dict(split_pair(pair, "--env takes NAME=VALUE.") for pair in env),
        "headers": dict(split_pair(pair, "--header takes NAME=VALUE.") for pair in headers),
    }
    entry |= {key: value for key, value in pairs.items() if value}
    problem = parse_entry(name, entry).problem
    if problem:
        raise InvalidInput(f"This server cannot be used: {problem}.", hint="Give its address, or a command after --.")
    if not replace and name in open_servers(session).servers:
        raise InvalidInput(f"There is a server '{name}' already.", hint="Take its place with --replace.")
    path = write_entries({name: entry})
    outcome = {} if no_start else _refresh(session, [name])[name]
    session.answer({"name": name, "file": str(path), **outcome}, session.show)
    if "error" in outcome:
        # It stays written: it may be installed, or the file corrected, next.
        raise click.exceptions.Exit(3)


@servers.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove servers from mcp.json, and what is remembered of their tools."""
    path = open_servers(session).remove(names)
    session.answer({"removed": list(names), "file": str(path)}, f"Removed {', '.join(names)}.")


@servers.command("import")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--replace", is_flag=True, help="Overwrite your servers of the same name.")
@click.argument("source", required=False, metavar="[CLIENT|FILE]")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@pass_session
def import_servers(session: Session, source: str | None, names: tuple[str, ...], dry_run: bool, replace: bool) -> None:
    """Take servers over from another client, or from a file that it keeps them in; only the named ones, if any are.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, gemini or codex; without one, every client of
    this machine. A client's file is only read. localmcp itself is left out. Variables such as ${TOKEN} stay as they are
    and are filled in at the start.
    """
    theirs, problems = read_servers(source)
    session.warn(*problems)
    outcome = take_over(theirs, names, replace=replace, dry_run=dry_run)
    session.answer({**outcome, "problems": problems}, lambda _: session.show(outcome))


@servers.command("approve")
@click.option("--yes", is_flag=True, help="Approve without asking.")
@click.argument("name", metavar="NAME")
@pass_session
def approve(session: Session, name: str, yes: bool) -> None:
    """Show what a server has changed in its tools since you connected it, and accept it.

    Without --yes nothing is accepted unless you say so at a terminal.
    """
    server = open_servers(session).server(name)
    changes = {tool: "\n".join(lines) for tool, lines in server.changes().items()}
    if changes and not session.as_json:
        render.echo("\n".join(changes.values()) + "\n")
    accepted = bool(changes) and (yes or (session.can_ask and render.confirm("Accept these definitions?")))
    if accepted:
        server.approve()
    sentence = f"Approved {counted(len(changes), 'tool')} of {name}."
    if not accepted:
        sentence = f"Accept it with: {server.entry.approval} --yes"
    if not changes:
        sentence = f"{name} has changed nothing since you approved it."
    session.answer({"server": name, "changes": changes, "approved": accepted}, sentence)


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
    outcome = _refresh(session, [name])[name]
    session.answer({"server": name, "signedIn": signed_in, **outcome}, session.show)
    return 3 if "error" in outcome else 0


@servers.command("logout")
@click.argument("name", metavar="NAME")
@pass_session
def logout(session: Session, name: str) -> None:
    """Forget the tokens of a server that you signed in to."""
    from localmcp.hub.auth import forget_login

    existed = forget_login(open_servers(session).server(name).entry)
    message = f"Signed out of {name}." if existed else f"You were not signed in to {name}."
    session.answer({"server": name, "signedOut": existed}, message)


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
    outcomes = [{"name": name, **outcome} for name, outcome in _refresh(session, chosen).items()]
    for outcome in outcomes:
        session.warn(*filter(None, (outcome.get("error"), outcome.get("hint"))))
    session.answer({"servers": outcomes}, ("name", "tools"))
    return 3 if any(outcome.get("error") for outcome in outcomes) else 0


def _refresh(session: Session, names: Sequence[str]) -> dict[str, Json]:
    servers = open_servers(session)
    outcomes = servers.refresh(names)
    _warn_of_changes(session, map(servers.server, names))
    return {
        name: {"tools": outcome} if isinstance(outcome, int) else {"error": outcome.message, "hint": outcome.hint}
        for name, outcome in outcomes.items()
    }


def _warn_of_changes(session: Session, servers: Iterable[McpServer]) -> None:
    for server in servers:
        if count := len(server.changes()):
            changes = f"{server.entry.name}: {counted(count, 'tool')} changed since you approved it; see"
            session.warn(f"{changes}: {server.entry.approval}")


@command()
@click.argument("client", required=False, metavar="[CLIENT|FILE]")
@click.option("--name", default="localmcp", show_default=True, help="The name it gets in the client.")
@click.option("--profile", metavar="NAME", help="Give the client only what this table of profiles.toml allows.")
@click.option("--print", "show", is_flag=True, help="Print the block to paste; change nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--no-start", is_flag=True, help="Do not start the server once to see that it works.")
@click.option("--remove", is_flag=True, help="Take localmcp out of the client again.")
@pass_session
def connect(
    session: Session, client: str | None, name: str, profile: str | None, show: bool, dry_run: bool, no_start: bool,
    remove: bool,
) -> None:  # fmt: skip
    """Connect an assistant: its configuration is found, changed and tried out.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, gemini or codex; FILE is any file that such a
    program reads its servers from. Without one, the clients on this machine are listed. Everything else in the file
    stays as it is, and a copy is kept beside it. A file with comments is left alone, and the block for it is printed.
    `--db` and the settings of this shell go along.

    \b
      localmcp connect claude-desktop
      localmcp connect cursor --db ~/work.localmcp --name work
      localmcp connect .mcp.json --profile reader
    """
    if show and remove:
        raise click.UsageError("--print and --remove exclude each other.")
    present = configuration.present_clients()
    if client is None and not show:
        clients = list(map(configuration.describe_client, present))
        session.answer({"clients": clients, "known": client_names()}, ("client", "connectedAs", "path", "error"))
        session.note(f"Connect one with: localmcp connect CLIENT   ({', '.join(client_names())}, or a FILE)")
        return
    targets = configuration.find_targets(client) if client else []
    if remove:
        changes = [configuration.plan_change(target, name, None) for target in targets]
        files = configuration.write_changes(changes, dry_run=dry_run)
        session.answer({"client": targets[0].client, "name": name, "dryRun": dry_run, "files": files}, session.show)
        return
    # Settings that cannot be used are reported here, not by a server that nobody watches.
    _ = session.settings
    entry, carried, withheld = configuration.make_entry(session.database, profile)
    if show:
        block = configuration.block_for(targets[0] if targets else None, name, entry)
        places = [str(target.path) for target in targets]
        session.answer({"name": name, "entry": entry, "block": block, "files": places}, block)
        for place in places:
            session.remark(f"Put it into {place}")
        return
    first, start = targets[0], not (dry_run or no_start)
    changes = [configuration.plan_change(target, name, entry) for target in targets]
    if start:
        session.remark("Starting the server once, as the client will …")
    # A server that does not start is not written.
    tools = configuration.ask_for_tools(name, entry) if start else None
    files = configuration.write_changes(changes, dry_run=dry_run)
    result: Json = {"client": first.client, "name": name, "dryRun": dry_run, "entry": entry, "files": files}
    session.answer({**result, "tools": tools, "carried": carried, "withheld": withheld}, session.show)
    if withheld:
        session.warn(f"Not written, because secret: {', '.join(withheld)}. Keep them by: localmcp config set")
    names_present = dict.fromkeys(client.client for client in present)
    if first.client not in (configuration.FILE, *names_present):
        clients = ", ".join(names_present) or "none"
        session.warn(f"{first.title} was not found on this machine; clients found: {clients}. This is its file anyway.")
    if any(file["action"] in ("added", "updated") for file in files) and not dry_run:
        program = "the program that reads this file" if first.client == configuration.FILE else first.title
        session.note(f"Next: quit {program} completely, and start it again.")
