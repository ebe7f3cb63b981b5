"""The page that `localmcp reference` prints, made from the program: commands, options, exit codes, settings and tools.

Write it again with `python tests/reference_page.py`; a test fails where the page and the program differ.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from localmcp import __version__
from localmcp.cli.program import COMMANDS, program
from localmcp.cli.session import COMMON
from localmcp.config import Settings, default_database, describe_settings, packaged_data
from localmcp.schemas import describe_parameters
from localmcp.tools import MethodTool
from localmcp.workspace import Workspace

PAGE = packaged_data() / "reference.md"

EXIT_CODES = (
    (0, "Done; a search without hits too."),
    (1, "It failed, or something is not there."),
    (2, "The command line, or a value in it, cannot be used."),
    (3, "Something needed is unavailable: the file is locked, a model or a server is missing. Try again later."),
    (4, "A setting or a file does not fit this program."),
    (130, "Interrupted (Ctrl-C)."),
)
FILES = (
    ("data directory", "`LOCALMCP_DATA_DIR`", "the file `main.localmcp`, unless `--db` names another"),
    ("configuration directory", "`LOCALMCP_CONFIG_DIR`", "`config.toml`, `mcp.json`, `profiles.toml`, your own tools"),
    ("state directory", "`LOCALMCP_STATE_DIR`", "which files this machine has adopted and mounted, logs of servers"),
    ("cache directory", "`LOCALMCP_CACHE_DIR`", "downloaded models, lists of tools; may be deleted at any time"),
)


def make_reference() -> str:
    """Return the page, as Markdown."""
    lines = [f"# localmcp {__version__}", "", _paragraph(program.help or ""), ""]
    lines += ["## Options of every command", "", *_options(list(COMMON)), ""]
    lines += ["## Commands", "", *_commands(), "## Exit codes", ""]
    lines += [*_table(("code", "means"), [(str(code), says) for code, says in EXIT_CODES]), ""]
    lines += ["## Files", "", *_table(("place", "variable", "holds"), FILES), ""]
    lines += ["## Settings", "", *_settings(), "", "## Tools", "", *_tools()]
    return "\n".join(lines).rstrip("\n") + "\n"


# ---------------------------------------------------------------- commands


def _commands() -> Iterator[str]:
    context = click.Context(program, info_name="localmcp")
    for section, names in COMMANDS.items():
        yield f"### {section}"
        yield ""
        for name in names:
            command = program.get_command(context, name)
            if command is not None:
                yield from _command(command, f"localmcp {name}")


def _command(command: click.Command, path: str) -> Iterator[str]:
    if command.hidden:
        return
    # An argument's name as it is shown is made by the context.
    context = click.Context(command, info_name=path)
    own = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield from (f"#### `{usage}`", "", *_help(command.help or ""))
    if own:
        yield from (*_options(own), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _command(inner, f"{path} {name}")


def _options(options: list[click.Option]) -> Iterator[str]:
    context = click.Context(click.Command("localmcp"))
    for option in options:
        record = option.get_help_record(context)
        if record is not None:
            yield f"- `{_plain(record[0])}`: {_plain(record[1])}"


def _help(text: str) -> Iterator[str]:
    """Paragraphs as Markdown; what click must not wrap (marked by \\b) becomes a block of code."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if part.startswith("\b"):
            yield from ("```", *inspect.cleandoc(part.lstrip("\b\n")).splitlines(), "```", "")
        else:
            yield from (_paragraph(part), "")


def _paragraph(text: str) -> str:
    return " ".join(inspect.cleandoc(text.split("\b")[0]).split())


def _plain(text: str) -> str:
    return " ".join(text.split())


def _table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(entry.replace('|', chr(92) + '|') for entry in row)} |"


# ---------------------------------------------------------------- settings and tools


def _settings() -> Iterator[str]:
    database = default_database()
    rows = [
        (f"`{setting['name']}`", f"`{setting['env']}`", _default(setting["default"], database), setting["says"])
        for setting in describe_settings()
    ]
    yield from _table(("setting", "variable", "default", "what it decides"), rows)


def _default(value: Any, database: Path) -> str:
    """As `config.toml` would have it; the file's place depends on the machine."""
    if value == database:
        return f"{database.name} in the data directory"
    if isinstance(value, tuple) or value in (None, ""):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tools() -> Iterator[str]:
    # Making a workspace opens no file; the person's own tools and other servers are no part of the reference.
    registry = Workspace(Settings(database=Path("none.localmcp"))).registry
    own = [tool for tool in registry.tools(for_listing=True) if isinstance(tool, MethodTool)]
    yield "Those marked `*` are in tools/list; the others are found by `tool_search` and run by `execute_tool`."
    yield ""
    yield from map(_tool, own)


def _tool(tool: MethodTool) -> str:
    mark = tool.mark
    kind = "reads" if mark.read_only else "destroys" if mark.destructive else "changes"
    says = _plain(tool.description).rstrip(".")
    parameters = describe_parameters(tool.input_schema)
    return f"- `{tool.name}`{'*' if mark.visible else ''} ({kind}): {says}. Parameters: {parameters}."


if __name__ == "__main__":
    PAGE.write_text(make_reference(), encoding="utf-8", newline="\n")
    print(f"wrote {PAGE}")
