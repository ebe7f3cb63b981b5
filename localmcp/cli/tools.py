"""`localmcp tools`, `call`, `ask`: what assistants can do, by hand; `keys` and `log`: who may, and what was called."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmcp.activity import INTERFACES
from localmcp.cli import render
from localmcp.cli.options import FORM, collection_option, parse_object, parse_time, read_bytes, read_pairs, tool_options
from localmcp.cli.session import Session, command, group, pass_session
from localmcp.errors import NotFound
from localmcp.humanize import choices, command_line, counted
from localmcp.library.names import is_uuid
from localmcp.schemas import Json, describe_parameters, did_you_mean
from localmcp.tool_search.ask import Router
from localmcp.tool_search.discovery import NOTHING_FOUND, parameter_line
from localmcp.tools import Tool
from localmcp.tools.base import RIGHTS

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


@group(invoke_without_command=True)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """List, search, show and call the tools, the hidden ones too.

    \b
      localmcp tools search "put a file into the trash"
      localmcp tools show add_path
      localmcp tools call search query="restore a backup" limit=3
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_tools)


@tools.command("list")
@pass_session
def list_tools(session: Session) -> None:
    """List the tools.

    Hidden tools are not in an assistant's list; it finds them by what they do. A star marks a required argument.
    """
    described = [_describe(tool) for tool in session.reading().registry.tools()]
    session.answer({"count": len(described), "tools": described}, ("name", "visible", "signature", "title"))


@tools.command("show")
@click.argument("name")
@pass_session
def show(session: Session, name: str) -> None:
    """Show one tool: what it does, its parameters, and what it may change."""

    def print_tool(tool: Json) -> None:
        render.echo(f"{render.bold(tool['name'])}({tool['signature']})  {render.dim(tool['title'])}")
        render.echo(tool["description"])
        parameters = tool["inputSchema"].get("properties", {})
        render.echo(render.facts((name, str(spec.get("description", " "))) for name, spec in parameters.items()))
        kind = "It only reads." if tool["readOnly"] else "It changes things."
        render.echo(render.dim("It may remove or overwrite something." if tool["destructive"] else kind))

    session.answer(_describe(_tool(session, name)), print_tool)


def _describe(tool: Tool) -> Json:
    mark, schema = tool.mark, tool.input_schema
    return {
        "name": tool.name,
        "title": mark.title,
        "visible": mark.visible,
        "readOnly": mark.read_only,
        "destructive": mark.destructive,
        "signature": describe_parameters(schema),
        "description": tool.description,
        "keywords": list(mark.keywords),
        "inputSchema": schema,
    }


@tools.command("search")
@click.argument("words", nargs=-1, metavar="[QUERY]")
@click.option("-n", "--limit", type=click.IntRange(1), default=10, show_default=True, help="Tools at most.")
@pass_session
def search(session: Session, words: tuple[str, ...], limit: int) -> None:
    """Find tools by what they do, as an assistant would."""
    discovery = session.reading().discovery
    if not discovery.finder.vectors.has_file:
        session.remark("Reading what every tool does; the next search remembers it …")
    # A person waits for the model, which an assistant's search does not.
    ranked, all_hits = discovery.rank(" ".join(words), most=limit, patience=120.0)
    hits: list[Json] = []
    for tool, score in ranked:
        hit = {"name": tool.name, "description": tool.description, "score": round(score, 4)}
        hit["parameters"] = parameter_line(discovery.describe(tool).schema, required_only=True)
        hits.append({**hit, "notice": tool.notice} if tool.notice else hit)
    if not hits:
        session.note(NOTHING_FOUND)
    elif not all_hits.sure:
        session.note("No tool clearly fits; these are the nearest.")
    if session.as_json:
        session.print_json(hits)
        return
    for hit in hits:
        render.echo(f"{hit['score']:>6.3f}  {render.bold(hit['name'])}  {render.dim(hit['parameters'])}")
        render.echo(f"        {' '.join(hit['description'].split())}")
        if "notice" in hit:
            render.echo(f"        {render.warned(hit['notice'])}")
    if not "".join(words).strip() and (count := len(all_hits.tools)) > limit:
        session.note(f"{limit} of {count} tools; -n shows more.")


@command()
@click.argument("tool")
@click.argument("arguments", nargs=-1, metavar="[JSON|@FILE|-|KEY=VALUE...]")
@click.option("--text", is_flag=True, help="Print the text that a model reads instead of the structured result.")
@pass_session
def call(session: Session, tool: str, arguments: tuple[str, ...], text: bool) -> int:
    """Call any tool with JSON arguments: written here, in @FILE, on stdin (-), or as key=value.

    A value is taken as the tool's schema wants it, text or JSON; a key that is values twice makes a list.

    \b
      localmcp call search '{"query": "restore a backup", "limit": 3}'
      localmcp tools call search query="restore a backup" limit=3
    """
    called = _tool(session, tool)
    source = arguments[0] if len(arguments) == 1 else ""
    if source == "-" or source[:1] in ("{", "[", "@"):
        written = read_bytes(source.removeprefix("@")) if source[0] in "-@" else source
        values = parse_object(written, "The arguments are", """Write an object in quotes: '{"query": "..."}'""")
    else:
        values = read_pairs(arguments, called.input_schema)
    session.workspace.database.may_create = not called.mark.read_only
    answer = session.call_in(session.workspace, tool, values)
    if text and not session.as_json:
        render.write(answer.text)
    elif answer.content is None:
        session.print_json(answer.value)
    else:
        # Of another MCP server: whole, pictures too.
        content = list(answer.content)
        session.print_json({"content": content, "structuredContent": answer.value or None, "isError": answer.is_error})
    return int(answer.is_error)


tools.add_command(call)


def _tool(session: Session, name: str) -> Tool:
    """Return the tool of that name, also one whose server has to start first."""
    registry = session.reading().registry
    return registry.find(name) or registry.get(name)


@tools.command("check")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]...")
@pass_session
def check(session: Session, files: tuple[Path, ...]) -> int:
    """Look for mistakes in your tool manifests, or in the manifests named.

    Programs, databases, variables and statements are looked at as well, but nothing is run.
    """
    workspace = session.reading()
    own_tools = workspace.own_tools
    if files:
        problems = [problem for path in files for problem in own_tools.read(path.absolute()).check()]
    else:
        problems = own_tools.problems(workspace.registry)
    errors = sum(problem.level == "error" for problem in problems)
    checked = len(files) or sum(len(file.tools) for file in own_tools.files())
    value: Json = {"ok": errors == 0, "errors": errors, "warnings": len(problems) - errors, "checked": checked}
    value["problems"] = list(map(asdict, problems))
    colors = {"error": "red", "warning": "yellow"}
    session.answer(value, "\n".join(render.styled(str(problem), fg=colors[problem.level]) for problem in problems))
    if not problems:
        session.note(f"{counted(checked, 'file' if files else 'tool')}, no mistakes.")
    # As for any configuration that has to be fixed.
    return 4 if errors else 0


@command()
@tool_options(Router.ask, arguments={"query": "QUERY..."})
@pass_session
def ask(session: Session, **arguments: Any) -> int:
    """Say in your own words what you want; the tool that does it is found and run.

    Tools that remove something are only shown, with the command that runs them.

    \b
      localmcp ask "find quickstarts about backups"
    """

    def show(session: Session, response: Json) -> None:
        if result := response.get("tool_result"):
            call = f"{result['tool']} {json.dumps(response['arguments'], ensure_ascii=False)}"
            session.remark(f"{call}  ({response['certainty']:.0%} sure, {response['router']})")
            data = result["data"]
            render.write(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2, default=str))
        if "message" in response:
            session.warn(response["message"])
        if proposed := response.get("proposed"):
            arguments = json.dumps(proposed["arguments"], ensure_ascii=False)
            render.write(command_line("localmcp", "call", proposed["tool"], arguments))
        elif response["status"] == "no_tool_call":
            session.remark(f"Nearest: {', '.join(candidate['tool'] for candidate in response['candidates'])}")

    answer = session.call_in(session.reading(), "ask", arguments)
    return session.answer_tool(answer, show) or int(answer.value["status"] == "error")


@group()
def keys() -> None:
    """Make, list and revoke the API keys that requests over HTTP need.

    A key is shown once, when it is made; the file keeps only a hash of it.
    """


_names = partial(click.option, multiple=True, metavar="NAME")


@keys.command("create")
@click.option("--name", default="", help="What you will know it by.")
@click.option(
    "--scope", type=click.Choice(list(RIGHTS)), default="read", show_default=True,
    help="What it may do; each implies the ones before it.",
)  # fmt: skip
@_names("-c", "--collection", "collections", help="Open only this collection; may be repeated.")
@_names("--tools", help="Open only this tool; may be repeated.")
@_names("--providers", help="Open only the tools of this provider, besides localmcp's own; may be repeated.")
@click.option("--expires", metavar="WHEN", help=f"When it ends: {FORM}.")
@pass_session
def create(session: Session, name: str, scope: str, expires: str | None, **opens: tuple[str, ...]) -> None:
    """Make a key and print it, once.

    \b
      KEY=$(localmcp keys create --name editor --scope read --expires 90d)
    """
    workspace = session.workspace
    for tool in opens["tools"]:
        # Refuses a misspelled name, with the nearest one.
        workspace.registry.get(tool)
    server_names = workspace.provider_names
    for provider in opens["providers"]:
        if provider not in server_names:
            # It may be one that is connected later.
            session.warn(
                f"There is no provider '{provider}' yet. {did_you_mean(provider, server_names, choices(server_names))}"
            )
    end, limits = parse_time("--expires", expires, ahead=True), {kind: names or None for kind, names in opens.items()}
    made = workspace.api_keys.create(name=name, scopes=[scope], expires_at=end, **limits)

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
    columns = "name id prefix status scopes collections tools providers expires_at last_used_at uses errorRate"
    session.answer({"success": True, "keys": listed}, columns.split())
    if not listed:
        session.note("There are no keys. Make one with: localmcp keys create --name NAME")


def _ending_command(name: str, says: str) -> None:
    @keys.command(name, help=says)
    @click.argument("key", metavar="ID|NAME|KEY")
    @pass_session
    def end(session: Session, key: str) -> None:
        api_keys = session.existing().api_keys
        act, state = (api_keys.revoke, "revoked") if name == "revoke" else (api_keys.delete, "deleted")
        info = act(api_keys.find(key).id)
        session.answer({"success": True, "message": f"API key {state} successfully", "keyInfo": info.as_json()})
        session.note(f"The key {info.name} ({info.prefix}…) is {state}.")


_ending_command("revoke", "Make a key useless at once, also for servers that are running; it stays in the list.")
_ending_command("delete", "Remove a key for good; its calls stay in the log.")


_of_tool = click.option("--tool", help="Only this tool, or what was run through it.")
_key = click.option("--key", metavar="ID|NAME|CALLER", help="Only calls with this API key, or from cli, tui or stdio.")
_since = click.option(
    "--since", metavar="WHEN", help="Only what is newer: 30min, 2h, 7d, 6m (months), yesterday, or a date."
)
_collection = collection_option("Only calls about this collection.")


@group("log", invoke_without_command=True)
@_of_tool
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
    calls, total = workspace.activity.logs(**chosen, limit=limit, offset=offset)
    # The latest is last, where a person looks.
    shown = calls if session.as_json else calls[::-1]
    columns = "startedAt caller keyName tool via milliseconds resultBytes error arguments"
    session.answer({"count": len(calls), "total": total, "calls": shown}, columns.split())


def _chosen(workspace: Workspace, key: str | None, since: str | None, **conditions: Any) -> dict[str, Any]:
    # The key is an interface, or the id of one, which may be deleted.
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
@_of_tool
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
