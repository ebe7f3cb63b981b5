"""`localmcp log`: the calls, who made them, how they ended and how long they took; and their totals."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import click

from localmcp.activity.entries import INTERFACES
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.values import collection_option, parse_time
from localmcp.errors import NotFound
from localmcp.library.names import is_uuid

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

COLUMNS = ("startedAt", "caller", "keyName", "tool", "via", "milliseconds", "resultBytes", "error", "arguments")
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
@pass_session
@click.pass_context
def log(ctx: click.Context, session: Session, limit: int, offset: int, **conditions: Any) -> None:
    """Show what was called, by whom, and how it ended; what it adds up to.

    Every interface is in it: the command line, assistants, HTTP. The latest calls are last. Arguments are kept, their
    secrets masked, unless the setting log_arguments is off; log_calls = false keeps nothing.
    """
    if ctx.invoked_subcommand:
        return
    workspace = session.existing()
    chosen = _chosen(workspace, **conditions)
    page = workspace.activity.logs(**chosen, limit=limit, offset=offset)
    # The latest is last, where a person looks.
    latest = {"calls": [entry.as_json() for entry in reversed(page.entries)], "total": page.total}
    session.answer(page.as_json(), lambda _: session.show(latest, columns=COLUMNS))


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
    session.answer(usage.as_json(), session.show)
