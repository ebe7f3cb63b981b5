"""`localmcp demo`: the main job from end to end, on the sample documents."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import click

from localmcp import __version__, config
from localmcp.cli import terminal
from localmcp.cli.ingest import summary
from localmcp.cli.progress import shown_progress
from localmcp.cli.search import hit_lines
from localmcp.cli.session import Session, command, pass_session
from localmcp.connect.entry import make_launch
from localmcp.connect.trial import ask_server
from localmcp.errors import InvalidInput
from localmcp.files import expand_home
from localmcp.humanize import command_line
from localmcp.library.report import Report
from localmcp.readers.excerpt import Matcher, excerpt
from localmcp.schemas import Json

SEARCHES = (
    ("A code: found by the word itself.", "boiler error E110"),
    ("A paraphrase: hardly a word in common with the answer.", "bread came out flat and too acidic"),
    ("Misspelled words are corrected, and you are told.", "certifcate expired lockers"),
    ("Italian, typed without accents.", "riscatto totale invalidita permanente"),
)
QUESTION = "one bad message crashes every worker that takes it"
"""What the assistant asks."""


@command()
@click.option("--keep", metavar="FILE", help="Make this file instead of one in the temporary folder.")
@pass_session
def demo(session: Session, keep: str | None) -> None:
    """Index the sample documents, search them, and show what to type next.

    Nothing leaves this machine, and nothing is changed but one file, which may be deleted afterwards.
    """
    session.database = str(_new_file(keep))
    documents = config.sample_directory() / "documents"
    story = Story(session)
    story.tell(f"localmcp {__version__} on sample documents. Nothing leaves this machine.\n")
    report = story.index(documents)
    story.add_examples(config.sample_directory())
    searches = [story.search(why, query) for why, query in SEARCHES]
    answer = story.ask_as_assistant()
    story.end()
    answers = {"searches": searches, "assistant": answer}
    session.answer({"file": session.database, "indexed": report.indexed, **answers})


def _new_file(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="localmcp-demo-")) / f"demo{config.SUFFIX}"
    path = expand_home(keep).absolute()
    if path.exists():
        raise InvalidInput(f"--keep: {path} exists already.", hint="Name a file that is not there yet.")
    return path


class Story:
    """The demo's chapters."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.database = str(session.database)
        self._chapter = 0

    def tell(self, text: str = "") -> None:
        if not self.session.as_json:
            terminal.echo(text)

    def chapter(self, title: str) -> None:
        self._chapter += 1
        self.tell(terminal.bold(f"{self._chapter}. {title}"))
        self.tell()

    def command(self, *words: str) -> None:
        """Print a command as the person would type it."""
        self.tell(f"  {terminal.dim('$')} {terminal.styled(command_line(*program(), *words), fg='green')}")

    def index(self, documents: Path) -> Report:
        self.chapter("Documents go into one file")
        self.command("add", str(documents), "--db", self.database)
        with shown_progress(self.session) as show:
            report = self.session.workspace.library.add_paths([documents], progress=show)
        self.tell(f"  {summary(report, self.session.workspace.database.size())}")
        if report.failed:
            self.tell(terminal.warned(f"  {_failures(report)}"))
        self.tell()
        return report

    def add_examples(self, samples: Path) -> None:
        """Add the data of the worked examples: quick starts, rules, the collection `xmidas`."""
        workspace = self.session.workspace
        guides = workspace.quickstarts.import_path(samples / "quickstarts")["added"]
        rules = samples / "rules"
        imported = workspace.rule_exchange.import_paths([rules, rules / "team-rules.jsonl", rules / "checklist.md"])
        lines = (samples / "records" / "xmidas.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        self.session.call("insert_records", collection_name="xmidas", records=records)
        self.tell(
            f"  Also in it: {guides} quick starts, {imported['added']} rules, and {len(records)} records in the "
            "collection xmidas.\n"
        )

    def search(self, why: str, query: str) -> Json:
        if self._chapter == 1:
            self.chapter("By word and by meaning, in the same search")
        self.tell(f"  {why}")
        self.command("search", query, "--db", self.database)
        result = self.session.call("search", query=query, limit=1, explain=True).value
        for repair in result.get("repairs", ()):
            self.tell(terminal.dim(f"  Searched for '{repair['replacement']}' instead of '{repair['word']}'."))
        for hit in result["results"]:
            self.tell("\n".join(f"  {line}" if line else "" for line in hit_lines(1, hit, result)))
        if not result["results"]:
            self.tell(f"  {result['message']}\n")
        return result

    def ask_as_assistant(self) -> Json:
        self.chapter("An assistant asks over MCP")
        self.command("serve", "--db", self.database)
        arguments = {"query": QUESTION, "limit": 1}
        self.tell(f"  {terminal.dim('→ tools/call')} {json.dumps({'name': 'search', 'arguments': arguments})}")
        entry = make_launch(self.database).entry
        answer = ask_server("localmcp", entry, lambda server: server.call_tool("search", arguments))
        result: Json = answer["structuredContent"]
        self.tell(f"  {terminal.dim('←')} localmcp {__version__} answers:")
        for hit in result["results"]:
            self._quote(hit)
        self.tell()
        return result

    def _quote(self, hit: Json) -> None:
        self.tell(f"    {terminal.bold(hit['sourceTitle'])}  {hit['citation']['label']}")
        for line in excerpt(hit["content"], Matcher((), "english"), terminal.columns() - 6, 6):
            self.tell(f"    {terminal.dim('│')} {line}")

    def end(self) -> None:
        self.chapter("What to type next")
        for words in (["add", "~/Documents/notes"], ["search", "how do I …"], ["status"]):
            self.command(*words)
        self.tell("\n  Connect an assistant: its configuration is found, changed, and tried out.\n")
        self.command("connect", "claude-desktop")
        self.tell(terminal.dim("    (or claude-code, cursor, vscode, windsurf, zed, gemini, codex)"))
        self.tell("\n  By hand, for Claude Desktop: add this to claude_desktop_config.json, then restart it.\n")
        self.tell("\n".join(f"  {line}" for line in json.dumps(client_configuration(), indent=2).splitlines()))
        self.tell(f"\n  Claude Code: {terminal.styled(command_line(*_CLAUDE_CODE), fg='green')}")
        self.tell("\n" + terminal.dim(f"  The demo's file is {self.database}; delete it whenever you like."))


def program() -> list[str]:
    """Return how this program was started: what a person types in front of a command."""
    started = Path(sys.argv[0])
    if started.stem == "__main__":
        return ["python", "-m", "localmcp"]
    return ["localmcp"] if shutil.which("localmcp") else [terminal.short_path(str(started))]


def client_configuration() -> Json:
    """Return what an MCP client needs to start this installation on the default file."""
    return {"mcpServers": {"localmcp": {"command": sys.executable, "args": ["-m", "localmcp", "serve"]}}}


_CLAUDE_CODE = ["claude", "mcp", "add", "localmcp", "--", sys.executable, "-m", "localmcp", "serve"]


def _failures(report: Report) -> str:
    """Return how many documents were left out, and each reason once."""
    reasons = sorted({reason for _, reason in report.problems})
    return f"{terminal.counted(report.failed, 'document')} left out. {' '.join(reasons)}"
