"""`localmcp connect`: add localmcp to an assistant's configuration, and import servers from it."""

from __future__ import annotations

import click

from localmcp.cli import render
from localmcp.cli.servers import read_source
from localmcp.cli.session import Session, command, pass_session
from localmcp.connect.configuration import describe_client, plan_connection, plan_removal, write_changes
from localmcp.connect.entry import Launch, block_for, make_launch
from localmcp.connect.targets import FILE, find_targets, is_present, present_clients, read_present_clients
from localmcp.hub.client_configuration import ClientFile, client_names
from localmcp.hub.entries import take_over

RESTART = {
    "claude-desktop": "Quit Claude Desktop completely (not only its window) and start it again.",
    "claude-code": "Start a new Claude Code session; /mcp lists it.",
    "cursor": "Reload Cursor's window; its MCP settings list it.",
    "vscode": "In VS Code run `MCP: List Servers` and start it there.",
    "windsurf": "Press refresh in Windsurf's MCP panel.",
    "zed": "Zed reads it at once; the settings of its agent panel list it.",
    "gemini": "Start a new Gemini CLI session; /mcp lists it.",
    "codex": "Start a new Codex session.",
}


@command()
@click.argument("client", required=False, metavar="[CLIENT|FILE]")
@click.option("--name", default="localmcp", show_default=True, help="The name it gets in the client.")
@click.option("--profile", metavar="NAME", help="Give the client only what this table of profiles.toml allows.")
@click.option("--print", "show", is_flag=True, help="Print the block to paste; change nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@click.option("--no-start", is_flag=True, help="Do not start the server once to see that it works.")
@click.option("--remove", is_flag=True, help="Take localmcp out of the client again.")
@click.option("--import", "imports", is_flag=True, help="Read the client's other servers (all clients') into localmcp.")
@pass_session
def connect(
    session: Session, client: str | None, name: str, profile: str | None, show: bool, dry_run: bool, no_start: bool,
    remove: bool, imports: bool,
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
      localmcp connect --import
    """
    if sum((show, remove, imports)) > 1:
        raise click.UsageError("--print, --remove and --import exclude each other.")
    if imports:
        import_from(session, client, dry_run)
    elif client is None and not show:
        list_clients(session)
    elif remove and client is not None:
        disconnect(session, client, name, dry_run)
    else:
        # Settings that cannot be used are reported here, not by a server that nobody watches.
        _ = session.settings
        launch = make_launch(session.database, profile)
        if show:
            print_block(session, client, name, launch)
        elif client is not None:
            connect_client(session, client, name, launch, dry_run, start=not (dry_run or no_start))


def connect_client(session: Session, client: str, name: str, launch: Launch, dry_run: bool, *, start: bool) -> None:
    """Start the server once, then write the configuration; a server that does not start is not written."""
    from localmcp.connect.trial import ask_for_tools

    targets = find_targets(client)
    changes = [plan_connection(target, name, launch.entry) for target in targets]
    absence = _absence(targets)
    if start:
        session.remark("Starting the server once, as the client will …")
    tools = ask_for_tools(name, launch.entry) if start else None
    files = write_changes(changes, dry_run=dry_run)
    about = {"client": targets[0].client, "name": name, "dryRun": dry_run, "entry": launch.entry, "files": files}
    carried = {"carried": list(launch.carried), "withheld": list(launch.withheld)}
    session.answer({**about, "tools": tools, **carried}, session.show)
    if launch.withheld:
        session.warn(f"Not written, because secret: {', '.join(launch.withheld)}. Keep them by: localmcp config set")
    if absence:
        session.warn(absence)
    if any(file["action"] in ("added", "updated") for file in files) and not dry_run:
        session.note(f"Next: {RESTART.get(targets[0].client, 'Restart the program that reads this file.')}")


def _absence(targets: list[ClientFile]) -> str:
    """Return a warning that the client is not here, or empty; call it before the client's file is made."""
    first = targets[0]
    if first.client == FILE or is_present(first):
        return ""
    present = ", ".join(dict.fromkeys(client.client for client in present_clients())) or "none"
    return f"{first.title} was not found on this machine; clients found: {present}. This is its file anyway."


def print_block(session: Session, client: str | None, name: str, launch: Launch) -> None:
    """Print only the block; with --json, the entry and the files that it belongs in."""
    targets = find_targets(client) if client else []
    block = block_for(targets[0] if targets else None, name, launch.entry)
    answer = {"name": name, "entry": launch.entry, "block": block, "files": [str(target.path) for target in targets]}
    session.answer(answer, lambda _: render.echo(block))
    for target in targets:
        session.remark(f"Put it into {target.path}")


def disconnect(session: Session, client: str, name: str, dry_run: bool) -> None:
    """Take the entry out of every file of the client."""
    targets = find_targets(client)
    files = write_changes([plan_removal(target, name) for target in targets], dry_run=dry_run)
    answer = {"client": targets[0].client, "name": name, "dryRun": dry_run, "files": files}
    session.answer(answer, session.show)


def list_clients(session: Session) -> None:
    """The clients that seem to be installed, and which of them start localmcp."""
    clients = [describe_client(client) for client in present_clients()]
    session.answer({"clients": clients, "known": client_names()}, lambda _: session.show({"clients": clients}))
    session.note(f"Connect one with: localmcp connect CLIENT   ({', '.join(client_names())}, or a FILE)")


def import_from(session: Session, client: str | None, dry_run: bool) -> None:
    """Read the servers of one client, or of all that are found, into localmcp's own mcp.json."""
    theirs, problems = (read_source(client), []) if client else read_present_clients()
    answer = {**take_over(theirs, dry_run=dry_run), "problems": problems}
    session.warn(*problems)
    session.answer(answer, session.show)
