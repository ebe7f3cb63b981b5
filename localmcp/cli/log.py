"""`localmcp log`: the calls, who made them, how they ended and how long they took; and their totals."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from localmcp.activity.entries import INTERFACES, LogEntry, LogPage, Statistics, Usage
from localmcp.cli import terminal
from localmcp.cli.options import collection_option, parse_time
from localmcp.cli.session import Session, group, pass_session
from localmcp.errors import NotFound
from localmcp.humanize import local_time
from localmcp.library.origins import is_uuid

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

FOLLOW_SECONDS = 0.5
_tool = click.option("--tool", help="Only this tool, or what was run through it.")
_key = click.option("--key", metavar="ID|NAME|CALLER", help="Only calls with this API key, or from cli, tui or stdio.")
_since = click.option(
    "--since", metavar="WHEN", help="Only what is newer: 30min, 2h, 7d, 6m (months), yesterday, or a date."
)
_collection = collection_option("Only calls about this collection.")


@group("log", invoke_without_command=True)
@_tool
@_key
@_collection
@click.option("--errors", is_flag=True, help="Only calls that failed.")
@_since
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Calls.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Of the latest, calls to skip.")
@click.option("-f", "--follow", is_flag=True, help="Go on and print each call as it comes (Ctrl-C ends it).")
@pass_session
@click.pass_context
def log(ctx: click.Context, session: Session, limit: int, offset: int, follow: bool, **conditions: Any) -> None:
    """Show what was called, by whom, and how it ended; what it adds up to.

    Every interface is in it: the command line, assistants, HTTP. The latest calls are last. Arguments are kept, their
    secrets masked, unless the setting log_arguments is off; log_calls = false keeps nothing.
    """
    if ctx.invoked_subcommand:
        return
    workspace = session.existing()
    chosen = _chosen(workspace, **conditions)
    page = workspace.activity.logs(**chosen, limit=limit, offset=offset)
    if follow:
        _follow(session, workspace, page, chosen)
    session.answer(page.as_json(), lambda _: _print_page(session, page, offset))


def _chosen(workspace: Workspace, key: str | None, since: str | None, **conditions: Any) -> dict[str, Any]:
    key_id = _caller(workspace, key) if key else None
    return {**conditions, "key_id": key_id, "since": parse_time("--since", since, ahead=False)}


def _caller(workspace: Workspace, key: str) -> str:
    """Return an interface, or the id of a key; a deleted key can still be named by its id."""
    if key in INTERFACES:
        return key
    try:
        return workspace.api_keys.find(key).id
    except NotFound:
        if is_uuid(key):
            return str(uuid.UUID(key))
        raise


def _print_page(session: Session, page: LogPage, offset: int) -> None:
    for entry in reversed(page.entries):
        terminal.echo(_line(entry))
    off = "" if session.settings.log_calls else " The log is turned off (the setting log_calls)."
    session.note_page(offset + len(page.entries), page.total, f"No calls.{off}")


def _follow(session: Session, workspace: Workspace, page: LogPage, chosen: dict[str, Any]) -> None:
    """Print the calls so far, then each new one until stopped; with --json one document a line."""
    last = 0
    while True:
        for entry in reversed(page.entries):
            if session.as_json:
                session.print_json(entry.as_json())
            else:
                terminal.echo(_line(entry))
            last = max(last, entry.id)
        time.sleep(FOLLOW_SECONDS)
        page = workspace.activity.logs(**chosen, after=last, limit=1000)


def _line(entry: LogEntry) -> str:
    """`2026-11-22 03:34:41  stdio     search  6.8 ms  730 bytes  query="how to restore"`."""
    via = terminal.dim(f" via {entry.via}") if entry.via else ""
    facts = [
        terminal.dim(local_time(entry.started_at)),
        (entry.key_name or entry.caller)[:24].ljust(8),
        terminal.bold(entry.tool) + via,
        _milliseconds(entry.seconds),
        terminal.size(entry.result_bytes),
    ]
    if not entry.success:
        first_line = (entry.error_message or "").partition("\n")[0]
        facts.append(terminal.styled(f"{entry.error_class}: {first_line}".rstrip(": "), fg="red"))
    if entry.arguments:
        facts.append(terminal.dim(_brief(entry.arguments)))
    return "  ".join(facts)


def _brief(arguments: dict[str, Any]) -> str:
    text = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return text if len(text) <= 80 else text[:79] + "…"


def _milliseconds(seconds: float) -> str:
    return terminal.duration(seconds) if seconds >= 1 else f"{seconds * 1000:.1f} ms"


@log.command("stats")
@_tool
@_key
@_collection
@_since
@pass_session
def stats(session: Session, **conditions: Any) -> None:
    """Add the calls up, by tool and by caller: how many, how many failed, how long they took, how much they answered.

    A tool that was run through execute_tool or ask counts once, as itself.
    """
    workspace = session.existing()
    usage = workspace.activity.stats(**_chosen(workspace, **conditions))
    session.answer(usage.as_json(), lambda _: _print_usage(session, usage))


def _print_usage(session: Session, usage: Statistics) -> None:
    if not usage.calls:
        session.note("No calls.")
        return
    _print_usage_by(session, "tool", usage.tools)
    terminal.echo()
    _print_usage_by(session, "caller", usage.callers)


def _print_usage_by(session: Session, heading: str, usage: Sequence[Usage]) -> None:
    rows = [
        (
            row.key_name or row.name,
            f"{row.calls:,}",
            f"{row.error_rate:.0%}",
            _milliseconds(row.median_seconds),
            _milliseconds(row.p95_seconds),
            terminal.size(row.result_bytes),
            local_time(row.last_at),
        )
        for row in usage
    ]
    head = (heading, "calls", "errors", "median", "95 %", "answered", "last")
    session.print_table(head, rows, right=(1, 2, 3, 4, 5))
