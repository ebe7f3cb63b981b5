"""`localmcp demo`: the main job from end to end, on the sample documents."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from localmcp import __version__, config
from localmcp.cli import render
from localmcp.cli.ingest import summary
from localmcp.cli.session import Session, command, pass_session, shown_progress
from localmcp.connect.configuration import ask_server, make_entry
from localmcp.errors import InvalidInput
from localmcp.files import expand_home
from localmcp.humanize import command_line
from localmcp.schemas import Json

QUESTION = "one bad message crashes every worker that takes it"
"""What the assistant asks."""


@command()
@click.option("--keep", metavar="FILE", help="Make this file instead of one in the temporary folder.")
@pass_session
def demo(session: Session, keep: str | None) -> None:
    """Index the sample documents, search them, and show what to type next.

    Nothing leaves this machine, and nothing is changed but one file, which may be deleted afterwards.
    """
    if keep is None:
        file = Path(tempfile.mkdtemp(prefix="localmcp-demo-")) / f"demo{config.SUFFIX}"
    elif (file := expand_home(keep).absolute()).exists():
        raise InvalidInput(f"--keep: {file} exists already.", hint="Name a file that is not there yet.")
    session.database = str(file)
    samples = config.sample_directory()

    def tell(text: str) -> None:
        if not session.as_json:
            render.echo(text)

    tell(f"localmcp {__version__} on sample documents. Nothing leaves this machine.\n")
    with shown_progress(session) as show:
        report = session.workspace.library.add_paths([samples / "documents"], progress=show)
    session.workspace.quickstarts.import_path(samples / "quickstarts")
    session.call("importRules", path=str(samples / "rules"))
    lines = (samples / "records" / "xmidas.jsonl").read_text(encoding="utf-8").splitlines()
    session.call("insert_records", collection_name="xmidas", records=[json.loads(line) for line in lines])
    tell(f"{summary(report, session.workspace.database.size())}\n")
    queries = (
        ("A code: found by the word itself.", "boiler error E110"),
        ("A paraphrase: hardly a word in common with the answer.", "bread came out flat and too acidic"),
        ("Misspelled words are corrected, and you are told.", "certifcate expired lockers"),
        ("Italian, typed without accents.", "riscatto totale invalidita permanente"),
    )
    searches: list[Json] = []
    for reason, query in queries:
        tell(f"{reason}\n$ {command_line('localmcp', 'search', query, '--db', session.database)}")
        answer = session.call_in(session.workspace, "search", {"query": query, "limit": 1}, lean=True)
        searches.append(answer.value)
        tell(f"{answer.text}\n")
    tell("An assistant asks over MCP:")
    arguments = {"query": QUESTION, "limit": 1}
    entry = make_entry(session.database).entry
    call = {"name": "search", "arguments": arguments}
    answered = ask_server("localmcp", entry, lambda server: server.ask("tools/call", call))
    text = answered["content"][0]["text"]
    tell(f"→ search {json.dumps(arguments)}\n← {text}\n")
    block = {"mcpServers": {"localmcp": {"command": sys.executable, "args": ["-m", "localmcp", "serve"]}}}
    tell("Now your own: localmcp add ~/Documents/notes, localmcp search …, localmcp connect claude-desktop")
    tell(f"By hand, add this to the client's configuration:\n{json.dumps(block, indent=2)}")
    tell(render.dim(f"The demo's file is {session.database}; delete it whenever you like."))
    result = {"searches": searches, "assistant": text}
    session.answer({"file": session.database, "indexed": report.indexed, **result})
