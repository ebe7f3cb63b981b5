"""`localmcp demo`, `tui`, `serve`, `help`, `config`: how to begin, the manual and the settings."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from localmcp import __version__
from localmcp import config as configuration
from localmcp.cli import render
from localmcp.cli.session import Session, command, group, pass_session, shown_progress
from localmcp.errors import ConfigurationError, InvalidInput, Unavailable
from localmcp.files import expand_home, make_private_folder, open_private
from localmcp.humanize import choices, command_line
from localmcp.schemas import Json, did_you_mean
from localmcp.visible_text import VisibleFormatter


@command("help")
@click.argument("subject", required=False)
@pass_session
def help(session: Session, subject: str | None) -> None:  # noqa: A001  (the name of the command)
    """Show a page of the manual; without a subject, list the pages."""
    if subject is None:
        subjects = list_subjects()
        rows = list(subjects.items())
        session.answer({"subjects": subjects}, lambda _: session.print_table(("subject", "page"), rows))
        return
    text = read_page(subject)

    def show(_: Json) -> None:
        if not sys.stdout.isatty():
            render.write(text, nl=False)
            return
        # rich costs 45 ms, and no other command prints Markdown.
        from rich.console import Console
        from rich.markdown import Markdown

        console = Console(width=min(shutil.get_terminal_size().columns, 110), no_color=session.color is False)
        console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"))

    session.answer({"subject": subject, "format": "markdown", "text": text}, show)


def list_subjects() -> dict[str, str]:
    """Return subject -> title, in alphabetical order."""
    pages = sorted(page.name for page in files("localmcp").joinpath("docs").iterdir())
    subjects = [name.removesuffix(".md") for name in pages if name.endswith(".md")]
    return {subject: read_page(subject).partition("\n")[0].removeprefix("# ") for subject in subjects}


def read_page(subject: str) -> str:
    """Return the page as Markdown; raises InvalidInput, which names the nearest, if there is none."""
    page = files("localmcp").joinpath("docs", f"{subject}.md")
    if subject.isidentifier() and page.is_file():
        return page.read_text(encoding="utf-8")
    hint = did_you_mean(subject, list_subjects(), choices(list_subjects()))
    raise InvalidInput(f"There is no page '{subject}'.", hint=f"{hint}\nOf a command: localmcp {subject} --help")


@command()
@pass_session
def reference(session: Session) -> None:
    """Print every command, option, setting and tool on one page.

    \b
      localmcp reference | less
      localmcp reference > localmcp.md
    """
    text = (configuration.packaged_data() / "reference.md").read_text(encoding="utf-8")
    session.answer({"format": "markdown", "text": text}, lambda _: render.write(text, nl=False))


@command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      localmcp completion bash > ~/.local/share/bash-completion/completions/localmcp
      localmcp completion zsh  > a file "_localmcp" in a folder of $fpath
      localmcp completion fish > ~/.config/fish/completions/localmcp.fish
    """
    from click.shell_completion import get_completion_class

    if complete := get_completion_class(shell):
        render.write(complete(ctx.find_root().command, {}, "localmcp", "_LOCALMCP_COMPLETE").source())


@command()
@click.option("--keep", metavar="FILE", help="Make this file instead of one in the temporary folder.")
@pass_session
def demo(session: Session, keep: str | None) -> None:
    """Index the sample documents, search them, and show what to type next.

    Nothing leaves this machine, and nothing is changed but one file, which may be deleted afterwards.
    """
    import tempfile

    from localmcp.cli.documents import summary
    from localmcp.connect.configuration import ask_server, make_entry

    if keep is None:
        file = Path(tempfile.mkdtemp(prefix="localmcp-demo-")) / f"demo{configuration.SUFFIX}"
    elif (file := expand_home(keep).absolute()).exists():
        raise InvalidInput(f"--keep: {file} exists already.", hint="Name a file that is not there yet.")
    session.database = str(file)
    samples = configuration.sample_directory()

    def tell(text: str) -> None:
        if not session.as_json:
            render.echo(text)

    tell(f"localmcp {__version__} on sample documents. Nothing leaves this machine.\n")
    with shown_progress(session) as show:
        report = session.workspace.library.add_paths([samples / "documents"], progress=show)
    session.workspace.quickstarts.import_quickstarts(str(samples / "quickstarts"))
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
    arguments = {"query": "one bad message crashes every worker that takes it", "limit": 1}
    entry, _, _ = make_entry(session.database)
    call = {"name": "search", "arguments": arguments}
    answered = ask_server("localmcp", entry, lambda server: server.ask("tools/call", call))
    text = answered["content"][0]["text"]
    tell(f"→ search {json.dumps(arguments)}\n← {text}\n")
    tell("Now your own: localmcp add ~/Documents/notes, localmcp search …, localmcp connect claude-desktop")
    tell(render.dim(f"The demo's file is {session.database}; delete it whenever you like."))
    result = {"searches": searches, "assistant": text}
    session.answer({"file": session.database, "indexed": report.indexed, **result})


@command()
@click.option("--profile", metavar="NAME", help="Give only what this table of profiles.toml allows (stdio).")
@click.option("--http", is_flag=True, help="Serve over HTTP on this machine instead; every call needs an API key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port for --http (8080; 0 = any that is free).")
@click.option("--host", help="Address for --http (127.0.0.1); another needs --allow-remote.")
@click.option("--allow-remote", is_flag=True, help="Let other machines in; without --host, on every address.")
@pass_session
def serve(session: Session, profile: str | None, http: bool, **options: Any) -> None:
    """Serve the tools over MCP, on stdin and stdout.

    This is what an assistant starts; in its configuration:

    \b
      {"mcpServers": {"localmcp": {"command": "localmcp", "args": ["serve"]}}}

    It listens on no port, and ends when the assistant closes its side. Messages for people go to stderr.

    With --http it serves scripts, editors and web clients of this machine instead, until Ctrl-C:

    \b
      localmcp keys create --name me
      localmcp serve --http
      curl -H "Authorization: Bearer mcp_..." http://127.0.0.1:8080/tools
    """
    if profile == "" or (http and profile is not None):
        raise click.UsageError("--profile takes a name, and cannot be used with --http, where the key decides.")
    if not http:
        if option := next((name for name, value in options.items() if value), ""):
            raise click.UsageError(f"--{option.replace('_', '-')} goes with --http.")
        from localmcp.server import program

        if session.verbosity:
            os.environ["LOCALMCP_LOG_LEVEL"] = session.log_level
        elif session.quiet:
            os.environ["LOCALMCP_LOG_LEVEL"] = "error"
        program.main(session.database, profile)
    from localmcp.server.http.app import is_loopback, run, set_up_logging
    from localmcp.workspace import Workspace

    settings, port = session.settings, options["port"]
    address = options["host"] or ("0.0.0.0" if options["allow_remote"] else "127.0.0.1")
    if not options["allow_remote"] and not is_loopback(address):
        raise click.UsageError(f"--host {address} can be reached from other machines; add --allow-remote to mean it.")
    set_up_logging(session.log_level, quiet=session.quiet)
    run(address, settings.http_port if port is None else port, settings, lambda: Workspace(settings))


@command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[FILE]")
@click.option("--theme", metavar="NAME", help="Colors, for this time; 'terminal' takes those of the terminal.")
@pass_session
def tui(session: Session, file: Path | None, theme: str | None) -> int:
    """See, search and run everything in one file, in the terminal.

    Press ? for the keys, ctrl+p for commands, ctrl+q to leave. An assistant may use the same file at the
    same time.
    """
    if file is not None:
        session.database = str(file)
    settings = session.settings
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or os.environ.get("TERM") == "dumb":
        hint = "localmcp search, sources, rules, … do the same without one."
        raise Unavailable("localmcp tui needs a terminal that can draw.", hint=hint)
    # What is typed is searched again when the model is there.
    session.seconds_for_model = 0.0
    # Textual takes an empty NO_COLOR for a wish too; no-color.org does not.
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]
    # textual takes 160 ms to import.
    from localmcp.tui.app import LocalMcpApp

    with logging_to_file(session.log_level) as log, separate_screen_stream(log):
        app = LocalMcpApp(lambda: session.workspace, settings.database, theme or settings.theme)
        app.run()
    if app.return_code:
        return session.fail("unexpected", "The screen could not be drawn.", f"The log is {log}", app.return_code)
    return 0


@contextmanager
def logging_to_file(level: str) -> Generator[Path]:
    """Send the log records of this process to the TUI's log only, never to the screen; yield the log's path."""
    from logging.handlers import RotatingFileHandler

    from localmcp.tui.session import log_file

    path = log_file()
    make_private_folder(path.parent)
    handler = RotatingFileHandler(path, maxBytes=1_000_000, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers, root.level = [handler], logging.getLevelNamesMapping()[level.upper()]
    logging.captureWarnings(True)
    try:
        yield path
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before
        handler.close()


@contextmanager
def separate_screen_stream(log: Path) -> Generator[None]:
    """Give the screen a separate stream, and send what is written to descriptor 2 to the log.

    Textual draws on stderr and measures stdout. Libraries written in C write to stderr as well, and stdout may be a
    pipe that waits for the answer.
    """
    stdout, stderr = sys.__stdout__, sys.__stderr__
    if stderr is None or os.name != "posix":
        yield
        return
    screen = os.dup(2)
    with open(log, "ab", opener=open_private) as written:
        os.dup2(written.fileno(), 2)
    drawn = os.fdopen(screen, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.__stdout__ = sys.__stderr__ = drawn
    try:
        yield
    finally:
        drawn.flush()
        sys.__stdout__, sys.__stderr__ = stdout, stderr
        os.dup2(screen, 2)
        os.close(screen)


@group()
def config() -> None:
    """Show and change the settings.

    A value comes from the command line, else the environment, else config.toml, else its default.
    """


@config.command("show")
@pass_session
def show_settings(session: Session) -> None:
    """Show every setting: its value, where it comes from, and what it does."""
    settings = [
        {
            "name": (name := setting["name"]),
            "value": configuration.shown_value(name, getattr(session.settings, name)),
            "from": _origin(session, name),
            "default": configuration.shown_value(name, setting["default"]),
            "env": setting["env"],
            "says": setting["says"],
        }
        for setting in configuration.describe_settings()
    ]
    rows = [(item["name"], configuration.setting_text(item["value"]), item["from"], item["says"]) for item in settings]
    answer = {"file": str(configuration.config_file()), "settings": settings}
    session.answer(answer, lambda _: session.print_table(("setting", "value", "from", "what it does"), rows))


@config.command("get")
@click.argument("name")
@pass_session
def get_setting(session: Session, name: str) -> None:
    """Print one setting's value."""
    configuration.check_name(name)
    value = configuration.shown_value(name, getattr(session.settings, name))
    session.answer({name: value}, lambda _: render.echo(configuration.setting_text(value)))


@config.command("set")
@click.argument("name")
@click.argument("value")
@pass_session
def set_setting(session: Session, name: str, value: str) -> None:
    """Write one setting to config.toml; its comments and order are kept."""
    # Checked before it is written; no model is opened for it.
    if name == "model":
        from localmcp.models.choice import parse_spec

        spec = parse_spec(value)
        if spec.kind == "folder" and not os.path.isdir(spec.target):
            raise ConfigurationError(f"model is '{value}', but there is no folder {spec.target}.")
    elif name == "collection":
        from localmcp.index.collections import checked_collection_name

        checked_collection_name(value)
    elif name == "language_model" and value:
        from localmcp.models.language_model import parse_address

        parse_address(value)
    path = configuration.write_setting(name, value)
    session.note(f"Written to {path}")  # before the settings are read, which fails while others in it are wrong
    session.answer({name: configuration.shown_value(name, getattr(session.settings, name)), "file": str(path)})
    where = _origin(session, name)
    if where not in ("config.toml", "default"):
        session.warn(f"{where} is set as well, and wins.")


@config.command("unset")
@click.argument("name")
@pass_session
def unset_setting(session: Session, name: str) -> None:
    """Remove one setting from config.toml, so that its default holds."""
    path = configuration.write_setting(name, None)
    session.answer({"file": str(path)})
    session.note(f"Removed from {path}")


@config.command("path")
@pass_session
def print_path(session: Session) -> None:
    """Print where config.toml is (or would be)."""
    path = configuration.config_file()
    session.answer({"file": str(path), "exists": path.exists()}, str(path))


def _origin(session: Session, name: str) -> str:
    return "--db" if name == "database" and session.database else configuration.origin_of(name)
