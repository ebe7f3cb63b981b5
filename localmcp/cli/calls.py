"""`localmcp call`: any tool an assistant has, by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import read_bytes
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import InvalidInput

if TYPE_CHECKING:
    from localmcp.tools import Answer


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
