"""`localmcp tools` and `call`: every tool an assistant has, by hand: list, search, show, call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from localmcp.cli import terminal
from localmcp.cli.files import read_bytes
from localmcp.cli.session import Group, Session, command, pass_session
from localmcp.errors import InvalidInput

if TYPE_CHECKING:
    from localmcp.tool_search.query import ToolDescription
    from localmcp.tools import Answer, Tool

Json = dict[str, Any]
ELSEWHERE = {
    "providers": ("providers", "Show where tools come from, and how they are."),
    "check": ("providers", "Look for mistakes in what brings tools."),
}
"""Commands of other modules, imported when they are used."""
PATIENCE = 120.0
"""Seconds that a person waits for the model, which an assistant's search does not."""


class Tools(Group):
    """The commands below, and those of `ELSEWHERE`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        return getattr(import_module(f"localmcp.cli.{ELSEWHERE[cmd_name][0]}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, self.commands[name].get_short_help_str(100)) for name in super().list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, says) for name, (_, says) in ELSEWHERE.items())])


@click.group(cls=Tools, invoke_without_command=True)
@click.pass_context
def tools(ctx: click.Context) -> None:
    """List, search, show and call the tools, the hidden ones too.

    \b
      localmcp tools search "put a file into the bin"
      localmcp tools show add_path
      localmcp tools call search query="restore a backup" limit=3
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_tools)


# ---------------------------------------------------------------- list, show


@tools.command("list")
@pass_session
def list_tools(session: Session) -> None:
    """List the tools.

    Hidden tools are not in an assistant's list; it finds them by what they do. A star marks a required argument.
    """
    described = [_describe(tool) for tool in session.reading().registry.tools()]
    if session.as_json:
        session.print_json({"count": len(described), "tools": described})
        return
    for visible, title in ((True, "Visible"), (False, "Hidden")):
        terminal.echo(terminal.dim(title))
        for tool in described:
            if tool["visible"] is visible:
                terminal.echo(f"  {terminal.bold(tool['name'])}({tool['signature']})")
                terminal.echo(terminal.dim(f"      {tool['title']}"))


@tools.command("show")
@click.argument("name")
@pass_session
def show(session: Session, name: str) -> None:
    """Show one tool: what it does, its parameters, and what it may change."""
    session.answer(_describe(session.reading().registry.get(name)), _print_tool)


def _describe(tool: Tool) -> Json:
    from localmcp.schemas import describe_parameters

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


def _print_tool(tool: Json) -> None:
    from localmcp.schemas import describe_parameters

    terminal.echo(f"{terminal.bold(tool['name'])}  {terminal.dim(tool['title'])}")
    terminal.echo(tool["description"])
    schema: Json = tool["inputSchema"]
    for name in schema.get("properties", {}):
        spec = _parameter(schema, name)
        one = describe_parameters({"properties": {name: spec}, "required": schema.get("required", [])})
        terminal.echo(f"  {one}  {terminal.dim(str(spec.get('description', '')))}".rstrip())
    kind = "It only reads." if tool["readOnly"] else "It changes things."
    terminal.echo(terminal.dim("It may remove or overwrite something." if tool["destructive"] else kind))


# ---------------------------------------------------------------- search


@tools.command("search")
@click.argument("words", nargs=-1, metavar="[QUERY]")
@click.option(
    "--profile", type=click.Choice(["best", "classic"]), default="best", show_default=True, help="How to rank."
)
@click.option("-n", "--limit", type=click.IntRange(1), default=10, show_default=True, help="Tools at most.")
@click.option("--catalog", metavar="FILE", help="Rank the tools of a JSON file (- for stdin) instead.")
@click.option("--detail", is_flag=True, help="Show the whole input schemas.")
@pass_session
def search(
    session: Session,
    words: tuple[str, ...],
    profile: Literal["best", "classic"],
    limit: int,
    catalog: str | None,
    detail: bool,
) -> None:
    """Find tools by what they do, as an assistant would.

    classic is the plain ladder: name, keywords, description. best also weighs what the words mean, and says so when
    nothing fits.
    """
    from localmcp.discovery import NOTHING_FOUND, rank_tools

    discovery = session.reading().discovery
    offered = read_catalog(catalog) if catalog else discovery.searchable()
    if profile == "best" and not discovery.finder.remembers:
        session.note(terminal.dim("Reading what every tool does; the next search remembers it …"))
    ranked = rank_tools(" ".join(words), offered, discovery.finder, profile, PATIENCE)
    hits = [_hit(hit, score, detail) for hit, score in ranked.hits[:limit]]
    if not hits:
        session.note(NOTHING_FOUND)
    elif not ranked.sure:
        session.note("No tool clearly fits; these are the nearest.")
    if session.as_json:
        session.print_json(hits)
        return
    for item in hits:
        terminal.echo(f"{item['score']:>6.3f}  {terminal.bold(item['name'])}  {terminal.dim(item['parameters'])}")
        terminal.echo(f"        {' '.join(item['description'].split())}")
        if detail:
            schema = json.dumps(item["input_schema"], ensure_ascii=False, indent=2)
            terminal.echo("\n".join(terminal.dim(line) for line in schema.splitlines()))


def _hit(tool: ToolDescription, score: float, detail: bool) -> Json:
    from localmcp.discovery import required_parameters

    hit = {
        "name": tool.name,
        "description": tool.description,
        "score": round(score, 4),
        "parameters": required_parameters(tool.schema),
    }
    return {**hit, "input_schema": tool.schema} if detail else hit


# ---------------------------------------------------------------- call


@tools.command("call")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[JSON|@FILE|-|KEY=VALUE...]")
@click.option("--text", is_flag=True, help="Print the text that a model reads instead of the structured result.")
@pass_session
def call_by_name(session: Session, name: str, arguments: tuple[str, ...], text: bool) -> int:
    """Call any tool: with JSON as in `localmcp call`, or with key=value.

    A value is taken as the tool's schema wants it, text or JSON; a key that is values twice makes a list.

    \b
      localmcp tools call search query="restore a backup" limit=3
    """
    if not arguments:
        values: Json = {}
    elif len(arguments) == 1 and (arguments[0] == "-" or arguments[0][:1] in ("{", "[", "@")):
        values = read_arguments(arguments[0])
    else:
        values = read_pairs(arguments, session.reading().registry.get(name).input_schema)
    return call_tool(session, name, values, text)


def read_pairs(pairs: tuple[str, ...], schema: Json) -> Json:
    """`key=value` as an object.

    Raises:
        InvalidInput: a word without `=`.
    """
    values: dict[str, list[Any]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            hint = """Write query="some words", or '{"query": "some words"}'"""
            raise InvalidInput(f"{pair} is neither JSON nor key=value.", hint=hint)
        values.setdefault(key, []).append(_read_value(value, _parameter(schema, key)))
    return {key: _joined(values, _parameter(schema, key)) for key, values in values.items()}


def _parameter(schema: Json, key: str) -> Json:
    spec = schema.get("properties", {}).get(key)
    return cast(Json, spec) if isinstance(spec, dict) else {}


def _read_value(value: str, spec: Json) -> Any:
    if spec.get("type") == "string" or "enum" in spec:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _joined(values: list[Any], spec: Json) -> Any:
    """A key that is given twice makes a list, and one value where a list is wanted is a list of one."""
    if len(values) == 1 and (spec.get("type") != "array" or isinstance(values[0], list)):
        return cast(Any, values[0])
    return values


@command()
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@click.option("--text", is_flag=True, help="Print the text that a model reads instead of the structured result.")
@pass_session
def call(session: Session, tool: str, arguments: str, text: bool) -> int:
    """Call any tool with JSON arguments: written here, in @FILE, or on stdin (-).

    \b
      localmcp call search '{"query": "restore a backup", "limit": 3}'
    """
    return call_tool(session, tool, read_arguments(arguments), text)


def call_tool(session: Session, tool: str, arguments: dict[str, Any], text: bool) -> int:
    """Call a tool and print its result, or the text that a model reads; the exit code."""
    reads = session.reading().registry.get(tool).mark.read_only
    session.workspace.database.may_create = not reads
    answer = session.call_in(session.workspace, tool, arguments)
    if text and not session.as_json:
        terminal.write(answer.text)
    else:
        session.print_json(_whole(answer))
    return 1 if answer.is_error else 0


def _whole(answer: Answer) -> Any:
    """The structured result; what another MCP server answered is told whole, pictures too."""
    if answer.content is None:
        return answer.value
    return {"content": list(answer.content), "structuredContent": answer.value or None, "isError": answer.is_error}


def read_arguments(source: str) -> dict[str, Any]:
    """The arguments as an object.

    Raises:
        InvalidInput: the file cannot be read, or its text is not a JSON object.
        NotFound: there is no such file.
    """
    try:
        value = json.loads(_read(source))
    except ValueError as error:
        raise InvalidInput(
            f"The arguments are not JSON: {error}.", hint="""Write an object in quotes: '{"query": "..."}'"""
        ) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"The arguments must be a JSON object, not {type(value).__name__}.")
    return value  # pyright: ignore[reportUnknownVariableType]


def _read(source: str) -> str:
    if source == "-" or source.startswith("@"):
        return read_bytes(source.removeprefix("@")).decode("utf-8-sig")
    return source


HINT = (
    'A catalog is a JSON list such as [{"name": "send_mail", "description": "Send a message", "keywords": ["mail"]}].'
)


def read_catalog(file: str) -> list[ToolDescription]:
    """The tools of a file, or of stdin for `-`; of two with one name the first.

    The answer of tools/list, an object with `tools`, is read as well, and `inputSchema` is as good as `input_schema`.

    Raises:
        InvalidInput: it cannot be read; the message names the entry and the field.
    """
    try:
        value: Any = json.loads(read_bytes(file).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} is not JSON: {error}.", hint=HINT) from error
    if isinstance(value, dict):
        value = cast(Json, value).get("tools")
    if not isinstance(value, list):
        raise InvalidInput(f"{file} does not hold a list of tools.", hint=HINT)
    entries = [_tool_of(file, number, entry) for number, entry in enumerate(cast("Iterable[Any]", value), 1)]
    return list({entry.name: entry for entry in reversed(entries)}.values())[::-1]


def _tool_of(file: str, number: int, entry: Any) -> ToolDescription:
    from localmcp.tool_search.query import ToolDescription

    if not isinstance(entry, dict):
        raise InvalidInput(f"{file}, entry {number}: must be an object, not {_kind(entry)}.", hint=HINT)
    fields = cast(Json, entry)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{file}, entry {number}: name must be a text that is not empty.", hint=HINT)
    place = f"{file}, entry {number} ({name})"
    description, keywords = fields.get("description"), fields.get("keywords")
    schema = fields.get("input_schema", fields.get("inputSchema"))
    if description is not None and not isinstance(description, str):
        raise InvalidInput(f"{place}: description must be a text, not {_kind(description)}.")
    if keywords is not None and not _are_texts(keywords):
        raise InvalidInput(f"{place}: keywords must be a list of texts.")
    if schema is not None and not isinstance(schema, dict):
        raise InvalidInput(f"{place}: input_schema must be an object, not {_kind(schema)}.")
    return ToolDescription(name, description or "", tuple(keywords or ()), schema=cast(Json, schema or {}))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in cast("list[Any]", value))


def _kind(value: Any) -> str:
    names = {"NoneType": "null", "str": "a text", "int": "a number", "float": "a number", "bool": "true or false"}
    return names.get(type(value).__name__, "a list" if isinstance(value, list) else "an object")
