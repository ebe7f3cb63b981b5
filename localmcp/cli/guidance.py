"""`localmcp rules` and `quickstarts`: what a developer taught an assistant, and short guides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.options import refuse_blank, tool_command, tool_options
from localmcp.cli.session import Session, group, pass_session
from localmcp.config import sample_directory
from localmcp.errors import InvalidInput
from localmcp.files import write_atomically
from localmcp.humanize import counted
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.rules.catalog import RuleCatalog
from localmcp.rules.files import RuleFiles
from localmcp.rules.finder import RuleFinder


@group()
def rules() -> None:
    """Keep rules for assistants, and find those that a task needs.

    \b
      localmcp rules import .                          CLAUDE.md, AGENTS.md, .cursorrules, ...
      localmcp rules add "Write tests for every fix."
      localmcp rules search "add an endpoint that stores orders"
    """


tool_command(
    rules, "search", RuleFinder.get_relevant_rules, "Find the rules that a task needs, and say why.",
    prepare=refuse_blank('Say what the task is, such as: localmcp rules search "write tests"', "taskDescription"),
    arguments={"taskDescription": "TASK..."},
    spelled={"maxResults": "-n --limit", "similarityThreshold": "--threshold", "files": "--file"},
    says={"maxResults": "Rules at most; default 5"}, columns=("id", "relevance_score", "rule_text", "category", "why"),
)  # fmt: skip
tool_command(
    rules, "add", RuleCatalog.add_rule, "Add a rule, unless one says nearly the same.", makes=True,
    arguments={"rule_text": "RULE"},
    spelled={"globs": "--glob", "alwaysApply": "--always", "onDuplicate": "--duplicate"},
)  # fmt: skip
tool_command(
    rules, "remember", RuleCatalog.remember, makes=True, arguments={"instruction": "INSTRUCTION"},
    help="Make a rule of an instruction in your own words, unless it was meant for the moment.",
    prepare=refuse_blank("Say what the rule is.", "instruction"),
)  # fmt: skip
tool_command(
    rules, "list", RuleCatalog.list_rules, "List the rules, newest first.",
    columns=("id", "rule_text", "category", "context", "project", "globs", "made_by"),
)  # fmt: skip


tool_command(
    rules, "edit", RuleCatalog.edit_rule, arguments={"id": "ID"},
    prepare=lambda _, changes: {**changes, "globs": changes["globs"] and [glob for glob in changes["globs"] if glob]},
    help="Change a rule; what is left out stays, and an empty text takes a project or files away.",
    spelled={"rule_text": "--text", "globs": "--glob", "alwaysApply": "--always/--not-always"},
)  # fmt: skip
tool_command(
    rules, "retire", RuleCatalog.retire_rule, "Take a rule out of use; it can be restored.", arguments={"id": "ID"}
)
tool_command(rules, "restore", RuleCatalog.restore_rule, "Bring a retired rule back into use.", arguments={"id": "ID"})


@rules.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--project", help="They hold in this project only.")
@pass_session
def import_rules(session: Session, paths: tuple[Path, ...], project: str | None) -> int:
    """Import rules: a file, or a project folder with CLAUDE.md, AGENTS.md, .cursorrules, .cursor/rules, Copilot files.

    Files may be Markdown, .mdc or JSON Lines (rule_text, category, context). Rules that are known stay as they are.
    """
    calls = ({"path": str(path), "project": project} for path in paths)
    report = session.import_each("importRules", calls, ("added", "known", "files", "skipped"))
    twins = f", {report['known']} known already" if report["known"] else ""
    session.answer(report)
    session.note(f"{counted(report['added'], 'rule')} added from {counted(len(report['files']), 'file')}{twins}.")
    return int(bool(report["skipped"]) and not report["added"] and not report["known"])


@rules.command("export")
@tool_options(RuleFiles.export_rules)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write files below this folder, not to stdout.")
@click.option("--force", is_flag=True, help="Files that are there may be replaced.")
@pass_session
def export_rules(session: Session, folder: Path | None, force: bool, **arguments: Any) -> None:
    """Print the rules in a form that can be imported again, or write them to files."""
    result = session.call("exportRules", **arguments).value
    session.warn(*result.get("notices", ()))
    if folder is None:
        session.answer(result, lambda value: render.write("".join(file["text"] for file in value["files"]), nl=False))
        return
    texts = {folder / file["name"]: file["text"] for file in result["files"]}
    existing = next((path for path in texts if path.exists() and not force), None)
    if existing is not None:
        raise InvalidInput(f"{existing} is there already.", hint="Name another place, or replace it with --force.")
    for path, text in texts.items():
        write_atomically(path, text)
    answer = {"count": result["count"], "format": arguments["format"], "files": list(map(str, texts))}
    session.answer(answer, session.show)


# ---------------------------------------------------------------- quick starts


@group()
def quickstarts() -> None:
    """Import, search and read short guides.

    \b
      localmcp quickstarts import --samples
      localmcp quickstarts search "geting startd"
      localmcp quickstarts show first-search
    """


@quickstarts.command("import")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@click.option("--samples", is_flag=True, help="The guides to localmcp that come with it.")
@pass_session
def import_quickstarts(session: Session, paths: tuple[str, ...], samples: bool) -> int:
    """Import YAML, JSON and JSON Lines: ConsoleQuickStart documents, or rows {name, content}.

    Quick starts that are known by name are updated. A file that cannot be read is reported and left out.
    """
    if samples:
        paths = (*paths, str(sample_directory() / "quickstarts"))
    if not paths:
        raise InvalidInput("Name a file or folder, or say --samples.")
    calls = ({"path": os.path.abspath(path)} for path in paths)
    fields = ("added", "updated", "unchanged", "skipped", "warnings")
    total = session.import_each("importQuickstarts", calls, fields)
    counts = [f"{total[key]:,} {key}" for key in ("added", "updated", "unchanged") if total[key]]
    session.answer(total, ", ".join(counts) or "Nothing imported.")
    for warning in total["warnings"]:
        session.remark(f"{warning['where']}: {warning['problem']}")
    return int(bool(total["skipped"]) and not counts)


tool_command(
    quickstarts, "search", Quickstarts.search, arguments={"displayName": "[WORDS]..."},
    prepare=refuse_blank(
        "Say what to search for: words of the title, --name or --description.", "displayName", "name", "description"
    ),
    help="Search by words of the title; typing errors and another word order are forgiven.",
    columns=("score", "name", "displayName", "description", "matchType"),
)  # fmt: skip
tool_command(
    quickstarts, "list", Quickstarts.list_quickstarts, "List the quick starts by title.",
    columns=("name", "displayName", "tasks", "tags"),
)  # fmt: skip
tool_command(
    quickstarts, "show", Quickstarts.show, "Print a quick start, by name or title, as Markdown.",
    arguments={"name": "NAME..."}, show=lambda _, value: render.write(value["markdown"], nl=False),
)  # fmt: skip
tool_command(
    quickstarts, "remove", Quickstarts.remove, "Remove quick starts; importing one again brings it back.",
    arguments={"names": "NAME..."},
)  # fmt: skip


tool_command(
    quickstarts, "export", Quickstarts.export, arguments={"names": "[NAME]..."},
    help="Print quick starts, all or the named ones, so that `import` reads them back without a difference.",
    show=lambda _, value: render.write(value["text"], nl=False),
)  # fmt: skip
