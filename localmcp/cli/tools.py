"""`localmcp tools`, `call` and `ask`: every tool an assistant has, by hand, and mistakes in the person's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from localmcp.cli import render
from localmcp.cli.options import json_or_text, parse_object, read_bytes, split_pair
from localmcp.cli.session import Session, command, group, pass_session
from localmcp.errors import InvalidInput
from localmcp.humanize import command_line, counted
from localmcp.schemas import Json, describe_parameters, mapping_of
from localmcp.tool_search.discovery import NOTHING_FOUND, parameter_line
from localmcp.tools import Tool


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
    answer = {"count": len(described), "tools": described}
    session.answer(answer, lambda value: session.show(value, columns=("name", "visible", "signature", "title")))


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
    if not discovery.finder.remembers:
        session.remark("Reading what every tool does; the next search remembers it …")
    # A person waits for the model, which an assistant's search does not.
    ranked, found = discovery.rank(" ".join(words), most=limit, patience=120.0)
    hits: list[Json] = []
    for tool, score in ranked:
        parameters = parameter_line(discovery.describe(tool).schema, required_only=True)
        shown = {"name": tool.name, "description": tool.description, "score": round(score, 4), "parameters": parameters}
        hits.append({**shown, "notice": tool.notice} if tool.notice else shown)
    if not hits:
        session.note(NOTHING_FOUND)
    elif not found.sure:
        session.note("No tool clearly fits; these are the nearest.")
    if session.as_json:
        session.print_json(hits)
        return
    for item in hits:
        render.echo(f"{item['score']:>6.3f}  {render.bold(item['name'])}  {render.dim(item['parameters'])}")
        render.echo(f"        {' '.join(item['description'].split())}")
        if "notice" in item:
            render.echo(f"        {render.warned(item['notice'])}")


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


def read_pairs(pairs: tuple[str, ...], schema: Json) -> Json:
    """`key=value` as an object."""
    values: Json = {}
    hint = """Write query="some words", or '{"query": "some words"}'"""
    for pair in pairs:
        key, typed = split_pair(pair, f"{pair} is neither JSON nor key=value.", hint)
        spec = mapping_of(schema.get("properties", {}).get(key))
        value = typed if spec.get("type") == "string" or "enum" in spec else json_or_text(typed)
        if spec.get("type") == "array" and not isinstance(value, list):
            value = [*values.get(key, []), value]
        values[key] = value
    return values


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

    def show(_: Json) -> None:
        for problem in problems:
            render.echo(render.styled(str(problem), fg="red" if problem.level == "error" else "yellow"))

    session.answer(value, show)
    if not problems:
        session.note(f"{counted(checked, 'file' if files else 'tool')}, no mistakes.")
    # As for any configuration that has to be fixed.
    return 4 if errors else 0


@command()
@click.argument("query", nargs=-1, required=True)
@click.option("-n", "--limit", type=int, help="Handed to the tool, if it takes one.")
@click.option("--max-distance", type=int, help="Handed to the tool, if it takes one.")
@pass_session
def ask(session: Session, query: tuple[str, ...], limit: int | None, max_distance: int | None) -> int:
    """Say in your own words what you want; the tool that does it is found and run.

    Tools that remove something are only shown, with the command that runs them.

    \b
      localmcp ask "find quickstarts about backups"
    """
    if not " ".join(query).strip():
        raise InvalidInput("QUERY is empty.", hint='Say what you want, such as: localmcp ask "list my documents"')
    arguments = {"query": " ".join(query), "limit": limit, "maxDistance": max_distance}
    response = session.call_in(session.reading(), "ask", arguments).value

    def show(_: Json) -> None:
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

    session.answer(response, show)
    return 1 if response["status"] == "error" else 0
