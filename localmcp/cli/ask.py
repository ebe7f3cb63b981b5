"""`localmcp ask`: a sentence becomes a tool call."""

from __future__ import annotations

import json

import click

from localmcp.cli import render
from localmcp.cli.session import Session, command, pass_session
from localmcp.errors import InvalidInput
from localmcp.humanize import command_line
from localmcp.schemas import Json


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
    response: Json = session.call_in(session.reading(), "ask", arguments).value
    session.answer(response, lambda value: print_response(session, value))
    return 1 if response["status"] == "error" else 0


def print_response(session: Session, response: Json) -> None:
    """The tool's answer on stdout; what was called, or why nothing was, on stderr."""
    sure = f"{response['certainty']:.0%} sure, {response['router']}"
    if "tool_result" in response:
        result = response["tool_result"]
        session.remark(f"{result['tool']} {json.dumps(response['arguments'], ensure_ascii=False)}  ({sure})")
        data = result["data"]
        render.write(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2, default=str))
    if "message" in response:
        session.warn(response["message"])
    if "proposed" in response:
        proposed = response["proposed"]
        arguments = json.dumps(proposed["arguments"], ensure_ascii=False)
        render.write(command_line("localmcp", "call", proposed["tool"], arguments))
    elif response["status"] == "no_tool_call":
        session.remark(f"Nearest: {', '.join(candidate['tool'] for candidate in response['candidates'])}")
