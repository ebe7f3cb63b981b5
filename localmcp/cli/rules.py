"""`localmcp rules`: what a developer taught an assistant, kept by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.tool_commands import refuse_blank, tool_command, tool_options
from localmcp.errors import InvalidInput
from localmcp.files import write_atomically
from localmcp.humanize import counted
from localmcp.rules.catalog import RuleCatalog
from localmcp.rules.files import RuleFiles, rule_files_in
from localmcp.rules.finder import RuleFinder
from localmcp.rules.learning import RuleLearner


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
    rules, "remember", RuleLearner.remember, makes=True, arguments={"instruction": "INSTRUCTION"},
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
    # Nothing is imported if one of them cannot be.
    for path in paths:
        rule_files_in(path)
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


@rules.command("reembed")
@click.option("--all", "again", is_flag=True, help="Rules that were read by this model already, too.")
@pass_session
def reembed(session: Session, again: bool) -> None:
    """Let the model at hand read the rules that it has not read."""
    done = session.existing().rules.embed_missing(again=again)
    session.answer({"embedded": done})
    session.note(f"{counted(done, 'rule')} read.")
