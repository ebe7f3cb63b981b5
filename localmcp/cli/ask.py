"""`localmcp ask`: a sentence becomes a tool call."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from localmcp.cli import terminal
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


def _print_data(session: Session, tool: str, data: Any) -> None:
    """As the tool's own command prints it where a person looks; elsewhere as JSON."""
    if isinstance(data, str):
        terminal.write(data)
    elif sys.stdout.isatty() and tool == "search" and "results" in data:
        from localmcp.cli.search import print_results

        # `ask` turns no pages.
        print_results(session, {key: value for key, value in data.items() if key != "nextCursor"}, explain=False)
    elif sys.stdout.isatty() and tool == "searchQuickstarts" and "results" in data:
        from localmcp.cli.quickstarts import print_quickstarts

        print_quickstarts(session, data)
    elif sys.stdout.isatty() and (write := session.workspace.registry.get(tool).mark.lean):
        terminal.write(write(data).text)
    else:
        terminal.write(json.dumps(data, ensure_ascii=False, indent=2, default=str))


def print_response(session: Session, response: Json) -> None:
    """The tool's answer on stdout; what was called, or why nothing was, on stderr."""
    sure = f"{response['certainty']:.0%} sure, {response['router']}"
    if "tool_result" in response:
        call = f"{response['tool_result']['tool']} {json.dumps(response['arguments'], ensure_ascii=False)}"
        session.remark(f"{call}  ({sure})")
        _print_data(session, response["tool_result"]["tool"], response["tool_result"]["data"])
    if "message" in response:
        session.warn(response["message"])
    if "proposed" in response:
        proposed = response["proposed"]
        arguments = json.dumps(proposed["arguments"], ensure_ascii=False)
        terminal.write(command_line("localmcp", "call", proposed["tool"], arguments))
    elif response["status"] == "no_tool_call":
        nearest = ", ".join(candidate["tool"] for candidate in response["candidates"])
        session.remark(f"Nearest: {nearest}")
