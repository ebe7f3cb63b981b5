"""`localmcp keys` and `log`: who may call over HTTP, and the calls: who made them, how they ended, their totals."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import click

from localmcp.activity import INTERFACES
from localmcp.cli import render
from localmcp.cli.options import FORM, collection_option, parse_time
from localmcp.cli.session import Session, group, pass_session
from localmcp.errors import NotFound
from localmcp.humanize import choices
from localmcp.library.search import is_uuid
from localmcp.schemas import Json, did_you_mean
from localmcp.tools.base import RIGHTS

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


@group()
def keys() -> None:
    """Make, list and revoke the API keys that requests over HTTP need.

    A key is shown once, when it is made; the file keeps only a hash of it.
    """


def _names(*options: str, says: str) -> Any:
    def or_none(_ctx: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...] | None:
        return names or None

    says = f"{says}; may be repeated."
    return click.option(*options, multiple=True, metavar="NAME", callback=or_none, help=says)


@keys.command("create")
@click.option("--name", default="", help="What you will know it by.")
@click.option(
    "--scope", type=click.Choice(list(RIGHTS)), default="read", show_default=True,
    help="What it may do; each implies the ones before it.",
)  # fmt: skip
@_names("-c", "--collection", "collections", says="Open only this collection")
@_names("--tools", says="Open only this tool")
@_names("--providers", says="Open only the tools of this provider, besides localmcp's own")
@click.option("--expires", metavar="WHEN", help=f"When it ends: {FORM}.")
@pass_session
def create(session: Session, scope: str, expires: str | None, **opens: Any) -> None:
    """Make a key and print it, once.

    \b
      KEY=$(localmcp keys create --name editor --scope read --expires 90d)
    """
    workspace = session.workspace
    for tool in opens["tools"] or ():
        # Refuses a misspelled name, with the nearest one.
        workspace.registry.get(tool)
    names = [provider.name for provider in workspace.providers]
    for name in opens["providers"] or ():
        if name not in names:
            # It may be one that is connected later.
            session.warn(f"There is no provider '{name}' yet. {did_you_mean(name, names, choices(names))}")
    end = parse_time("--expires", expires, ahead=True)
    made = workspace.api_keys.create(**opens, scopes=[scope], expires_at=end)

    def show(value: Json) -> None:
        render.echo(made.key)
        session.warn(value["warning"])
        session.note(render.render(value["keyInfo"]))

    session.answer(made.as_json(), show)


@keys.command("list")
@collection_option("Only keys that open this collection.")
@pass_session
def list_keys(session: Session, collection: str | None) -> None:
    """List the keys, the newest first: what each opens, and how it was used."""
    workspace = session.existing()
    used = {caller["caller"]: caller for caller in workspace.activity.stats()["callers"]}
    counts = ("calls", "errors", "errorRate")
    listed = [
        {**item.as_json(), **{name: used.get(item.id, {}).get(name, 0) for name in counts}}
        for item in workspace.api_keys.list(collection)
    ]
    columns = "name id prefix status scopes collections tools providers expires_at last_used_at uses errorRate".split()
    session.answer({"success": True, "keys": listed}, lambda value: session.show(value, columns=columns))
    if not listed:
        session.note("There are no keys. Make one with: localmcp keys create --name NAME")


@keys.command("revoke")
@click.argument("key", metavar="ID|NAME|KEY")
@pass_session
def revoke(session: Session, key: str) -> None:
    """Make a key useless at once, also for servers that are running; it stays in the list."""
    _end(session, key, "revoked")


@keys.command("delete")
@click.argument("key", metavar="ID|NAME|KEY")
@pass_session
def delete(session: Session, key: str) -> None:
    """Remove a key for good; its calls stay in the log."""
    _end(session, key, "deleted")


def _end(session: Session, key: str, state: str) -> None:
    api_keys = session.existing().api_keys
    end = api_keys.revoke if state == "revoked" else api_keys.delete
    info = end(api_keys.find(key).id)
    session.answer({"success": True, "message": f"API key {state} successfully", "keyInfo": info.as_json()})
    session.note(f"The key {info.name} ({info.prefix}…) is {state}.")


# ---------------------------------------------------------------- the log of calls

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
    secrets masked, unless the setting log_calls is "names"; "none" keeps nothing.
    """
    if ctx.invoked_subcommand:
        return
    workspace = session.existing()
    chosen = _chosen(workspace, **conditions)
    entries, total = workspace.activity.logs(**chosen, limit=limit, offset=offset)
    answer: Json = {"count": len(entries), "total": total, "calls": [entry.as_json() for entry in entries]}
    # The latest is last, where a person looks.
    latest = {**answer, "calls": answer["calls"][::-1]}
    columns = "startedAt caller keyName tool via milliseconds resultBytes error arguments".split()
    session.answer(answer, lambda _: session.show(latest, columns=columns))


def _chosen(workspace: Workspace, key: str | None, since: str | None, **conditions: Any) -> dict[str, Any]:
    """Return the conditions; the key is an interface, or the id of one, which may be deleted."""
    key_id = key
    if key and key not in INTERFACES:
        try:
            key_id = workspace.api_keys.find(key).id
        except NotFound:
            if not is_uuid(key):
                raise
            key_id = str(uuid.UUID(key))
    return {**conditions, "key_id": key_id or None, "since": parse_time("--since", since, ahead=False)}


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
    session.answer(workspace.activity.stats(**_chosen(workspace, **conditions)), session.show)
