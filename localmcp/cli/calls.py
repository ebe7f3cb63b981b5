"""`localmcp tools` and `localmcp call`: every tool an assistant has, by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import InvalidInput


@command()
@pass_session
def tools(session: Session) -> None:
    """List the tools, the hidden ones too.

    Hidden tools are not in an assistant's list; it finds them by what they do. A star marks a required argument.
    """
    described: list[dict[str, Any]] = [
        {
            "name": each.name,
            "title": each.mark.title,
            "visible": each.mark.visible,
            "readOnly": each.mark.read_only,
            "destructive": each.mark.destructive,
            "signature": getattr(each, "signature", str)(),
            "description": each.description,
            "inputSchema": each.input_schema,
        }
        for each in session.workspace.registry.tools()
    ]
    if session.as_json:
        session.print_json({"count": len(described), "tools": described})
        return
    for visible, title in ((True, "Visible"), (False, "Hidden")):
        click.echo(terminal.dim(title))
        for each in described:
            if each["visible"] is visible:
                click.echo(f"  {terminal.bold(each['name'])}({each['signature']})")
                click.echo(terminal.dim(f"      {each['title']}"))


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
    answer = session.call_in(session.workspace, tool, read_arguments(arguments))
    if text and not session.as_json:
        click.echo(answer.text)
    else:
        session.print_json(answer.value)
    return 1 if answer.is_error else 0


def read_arguments(given: str) -> dict[str, Any]:
    """The arguments as an object.

    Raises:
        InvalidInput: the file cannot be read, or its text is not a JSON object.
    """
    try:
        raw = _read(given)
        value = json.loads(raw)
    except OSError as error:
        raise InvalidInput(f"{given[1:]} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidInput(
            f"The arguments are not JSON: {error}.", hint="""Write an object in quotes: '{"query": "..."}'"""
        ) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"The arguments must be a JSON object, not {type(value).__name__}.")
    return value  # pyright: ignore[reportUnknownVariableType]


def _read(given: str) -> str:
    if given == "-":
        return sys.stdin.buffer.read().decode("utf-8-sig")
    return Path(given[1:]).expanduser().read_text(encoding="utf-8-sig") if given.startswith("@") else given
