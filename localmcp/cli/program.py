"""The root command: imports a command when it is used, and turns errors into words."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

import click

from localmcp import __version__
from localmcp.cli import render
from localmcp.cli.session import Group, Session, with_commands
from localmcp.errors import LocalMCPError

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "demo": ("start", "Index the sample documents, search them, and show what to type next."),
        "tui": ("start", "See, search and run everything in one file, in the terminal."),
        "help": ("start", "Show a page of the manual; without a subject, list the pages."),
    },
    "Documents": {
        "add": ("documents", "Add files, folders, web pages, or text from stdin (-), and index them."),
        "search": ("documents", "Search by meaning and by word."),
        "show": ("documents", "Print a document, or the passages around one."),
        "sources": ("documents", "List the documents."),
        "why": ("documents", "Say why a file was indexed, skipped or failed."),
        "tag": ("documents", "Add tags to a document (+garage), or take them away (-old)."),
        "tags": ("documents", "List the tags of the documents, the most used first."),
        "refresh": ("documents", "Look at everything that was added again, and index what changed."),
        "remove": ("documents", "Put documents into the trash."),
        "tables": ("collections", "List the tables in documents, with their columns."),
        "query": ("collections", "Ask tables in documents in SQL."),
        "trash": ("documents", "List, restore or empty the trash."),
        "push": ("collections", "Copy a collection to Milvus."),
        "pull": ("collections", "Copy a collection from Milvus into the file."),
    },
    "Collections": {
        "collections": ("collections", "Make, fill, describe and drop collections."),
        "retrieve": ("collections", "Find what is nearest to one or several texts in a collection."),
    },
    "Quick starts": {"quickstarts": ("collections", "Import, search and read short guides.")},
    "Rules": {"rules": ("collections", "Keep rules for assistants, and find those that a task needs.")},
    "Assistants": {
        "serve": ("start", "Serve the tools over MCP, on stdin and stdout."),
        "ask": ("tools", "Say in your own words what you want; the tool that does it is found and run."),
        "tools": ("tools", "List, search, show and call the tools, the hidden ones too."),
        "call": ("tools", "Call any tool with JSON arguments."),
        "connect": ("servers", "Connect an assistant: its configuration is found, changed and tried out."),
        "servers": ("servers", "Connect other MCP servers; an assistant finds their tools with tool_search."),
        "keys": ("tools", "Make, list and revoke the API keys that requests over HTTP need."),
        "log": ("tools", "Show what was called, by whom, and how it ended; what it adds up to."),
    },
    "Files to give away": {
        "pack": ("file", "Write one file to give away."),
        "verify": ("file", "Check that a file is whole."),
        "mount": ("file", "Search a file together with yours."),
        "unmount": ("file", "Search a mounted file no longer."),
        "mounts": ("file", "List the files that are searched together with yours."),
        "merge": ("file", "Take the documents, quick starts and rules of another file into yours."),
    },
    "This machine": {
        "eval": ("file", "Measure how well the search answers."),
        "status": ("file", "Show the file, what is in it, and the model."),
        "config": ("start", "Show and change the settings."),
        "models": ("file", "List embedding models, or download one."),
        "reembed": ("file", "Let the model in use read everything that is in the file."),
        "doctor": ("file", "Check the file, the model, the configuration and this machine."),
        "backup": ("file", "Copy the file while it is in use, and check the copy."),
        "restore": ("file", "Bring back what a backup holds; what is in the file now is kept beside it."),
        "optimize": ("file", "Make searches faster and the file smaller."),
        "adopt": ("file", "Allow changes to a file that comes from somewhere else."),
        "completion": ("start", "Print the completion script of a shell."),
        "reference": ("start", "Print every command, option, setting and tool on one page."),
    },
}
"""Section -> command -> (module, what it does), so that `--help` imports no command."""
MODULES = {name: entry for section in COMMANDS.values() for name, entry in section.items()}
"""Command -> (module, what it does)."""


class Program(Group):
    """The commands of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = f"localmcp.cli.{MODULES[cmd_name][0]}" if cmd_name in MODULES else None
        return getattr(import_module(module), cmd_name) if module else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, says) for name, (_, says) in commands.items()], col_max=12)


@click.command(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="localmcp", message="%(prog)s %(version)s")
def program() -> None:
    """One SQLite file with your documents, searchable by meaning and by word, served to AI assistants over MCP.
    Nothing leaves this machine.

    \b
      localmcp demo                     see it work on sample documents
      localmcp add ~/notes              index a folder
      localmcp search "how to restore"  ask
      localmcp serve                    what an assistant starts
    """


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line (`sys.argv` for None) and end the process with its exit code.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 something needed is unavailable, 4 configuration, 130 interrupted.
    """
    for stream in (sys.stdout, sys.stderr):
        # Pipes on Windows have the code page of old programs; lone surrogates must not end a listing.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    session = Session()
    try:
        code = execute(session, sys.argv[1:] if arguments is None else arguments)
    finally:
        session.close()
    try:
        sys.stdout.flush()
    except OSError:
        # What could not be written was reported; at exit Python would try again, and print a traceback.
        os._exit(code or 1)
    sys.exit(code)


def execute(session: Session, arguments: Sequence[str]) -> int:
    """Run a command line; every error ends here, as words on stderr and an exit code."""
    try:
        code = program.main(
            list(arguments), prog_name="localmcp", standalone_mode=False, obj=session, color=session.color
        )
    except click.exceptions.NoArgsIsHelpError as error:
        render.echo(error.format_message(), err=True, color=session.color)
        return error.exit_code
    except click.UsageError as error:
        session.as_json = session.as_json or "--json" in arguments
        command = error.ctx.command_path if error.ctx else "localmcp"
        return session.fail("usage", error.format_message(), f"See: {command} --help", error.exit_code)
    except click.ClickException as error:
        return session.fail("failure", error.format_message(), None, error.exit_code)
    except LocalMCPError as error:
        _trace(session)
        return session.fail(error.code, error.message, with_commands(error.hint or "") or None, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return session.interrupted()
    except UnicodeEncodeError:
        return session.fail("usage", "An argument is not valid Unicode.", "If it is, set LC_ALL=C.UTF-8.", 2)
    except Exception as error:
        # Errors of files name them, a stream has no name.
        if isinstance(error, OSError) and error.filename is not None:
            folders = "LOCALMCP_CONFIG_DIR, LOCALMCP_STATE_DIR, LOCALMCP_CACHE_DIR"
            hint = f"Check who may write there, or name another place; localmcp's own are set by {folders}."
            return session.fail("unavailable", f"{error.filename} cannot be used: {error.strerror}.", hint, 3)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            hint = "Free space where it goes, or send it somewhere else."
            return session.fail("output", f"The output cannot be written: {error.strerror}.", hint, 1)
        hint = None if _trace(session) else "Run it again with -v for the traceback."
        return session.fail("unexpected", f"Unexpected {type(error).__name__}: {error}".rstrip(": "), hint, 1)
    return code if isinstance(code, int) else 0


def _trace(session: Session) -> bool:
    if session.verbosity == 0 or session.as_json:
        return False
    import traceback

    render.echo(traceback.format_exc(), err=True, nl=False, color=session.color)
    return True
