"""`localmcp rules`: what a developer taught an assistant, kept by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.tool_options import tool_command, tool_options
from localmcp.errors import InvalidInput
from localmcp.rules.catalog import RuleCatalog
from localmcp.rules.editing import RuleEditor
from localmcp.rules.finder import RuleFinder
from localmcp.rules.import_export import rule_files_in
from localmcp.rules.learning import RuleLearner
from localmcp.schemas import Json

FORMATS = click.Choice(["jsonl", "claude", "agents", "cursorrules", "mdc", "copilot", "markdown"])


class _RuleId(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """A number; the id of a mounted rule (`team:5`) goes to the tool, which says why not."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if ":" in str(value) else click.INT.convert(value, param, ctx)


def _rule_id(name: str) -> Any:
    return click.argument(name, type=_RuleId(), metavar=name.upper())


@group()
def rules() -> None:
    """Keep rules for assistants, and find those that a task needs.

    \b
      localmcp rules import .                          CLAUDE.md, AGENTS.md, .cursorrules, ...
      localmcp rules add "Write tests for every fix."
      localmcp rules search "add an endpoint that stores orders"
    """


def _require_words(argument: str, message: str) -> Callable[[Session, Json], Json]:
    """Return a check that refuses blank text in words of the command line, not of the tool."""

    def check(_session: Session, arguments: Json) -> Json:
        if not (arguments[argument] or "").strip():
            raise InvalidInput(message)
        return arguments

    return check


@tool_command(
    rules,
    "search",
    RuleFinder.get_relevant_rules,
    prepare=_require_words("taskDescription", 'Say what the task is, such as: localmcp rules search "write tests"'),
    arguments={"taskDescription": "TASK..."},
    spelled={"maxResults": "-n --limit", "similarityThreshold": "--threshold", "files": "--file"},
    says={"maxResults": "Rules at most; default 5"},
)
def search_rules(session: Session, result: Json) -> None:
    """Find the rules that a task needs, and say why."""
    session.warn(*result.get("notices", ()))
    if not result["rules"]:
        terminal.echo("No rule fits this task.")
    for rule in result["rules"]:
        bar = terminal.styled(terminal.score_bar(rule["relevance_score"] * 100), fg="green")
        terminal.echo(f"{bar} {rule['relevance_score']:.2f}  {terminal.bold(rule['rule_text'])}")
        facts = [f"rule {rule['id']}", rule["category"], *rule["why"]]
        terminal.echo(terminal.dim(f"{'':15}{'; '.join(facts)}"))
    _print_more("For every task:", result.get("always", []))
    _print_more("Often applied together with these:", result.get("combinations", []))
    if result.get("omitted"):
        session.remark(f"{result['omitted']} more did not fit into --max-tokens.")
    if result.get("uncalibrated"):
        session.warn("This model is not calibrated: relevance is the cosine. Try --threshold 0.4.")


def _print_more(title: str, listed: list[Json]) -> None:
    if listed:
        terminal.echo(title)
        terminal.echo("\n".join(f"  {rule['rule_text']}  {terminal.dim('rule ' + str(rule['id']))}" for rule in listed))


def _changed(session: Session, answer: Json) -> None:
    session.note(answer["message"])
    if answer.get("notice"):
        session.warn(answer["notice"])


@rules.command("add")
@tool_options(
    RuleCatalog.add_rule,
    arguments={"rule_text": "RULE"},
    spelled={"globs": "--glob", "alwaysApply": "--always", "onDuplicate": "--duplicate"},
)
@pass_session
def add_rule(session: Session, **arguments: Any) -> int:
    """Add a rule, unless one says nearly the same."""
    answer = session.call_in(session.workspace, "addRule", arguments)
    if twin := answer.value.get("duplicate"):
        answer.value["message"] = (
            f"Nothing was added: rule {twin['id']} says nearly the same: “{twin['rule_text'].rstrip('.')}”.\n"
            "Say --duplicate count (it counts towards that one) or --duplicate add (keep both)."
        )
    return session.answer_tool(answer, _changed)


@tool_command(
    rules,
    "remember",
    RuleLearner.remember,
    makes=True,
    arguments={"instruction": "INSTRUCTION"},
    prepare=_require_words("instruction", "Say what is to be remembered; it was empty."),
)
def remember(session: Session, answer: Json) -> None:
    """Make a rule of an instruction in your own words, unless it was meant for the moment."""
    _changed(session, answer)


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
    report: Json = {"added": 0, "known": 0, "files": [], "skipped": []}
    for path in paths:
        arguments = {"path": str(path), "project": project}
        imported = session.call_in(session.workspace, "importRules", arguments).value
        report = {key: report[key] + imported[key] for key in report}
    session.answer(report, lambda value: _print_import(session, value))
    return 1 if report["skipped"] and not report["added"] and not report["known"] else 0


def _print_import(session: Session, report: Json) -> None:
    for skipped in report["skipped"]:
        session.warn(f"{terminal.short_path(skipped['where'])}: {skipped['problem']}")
    unchanged = f", {report['known']} known already" if report["known"] else ""
    files = terminal.counted(len(report["files"]), "file")
    session.note(f"{terminal.counted(report['added'], 'rule')} added from {files}{unchanged}.")


@tool_command(rules, "list", RuleCatalog.list_rules)
def list_rules(session: Session, result: Json) -> None:
    """List the rules, newest first."""
    if "notices" in result:
        session.warn(*result["notices"])
        return
    for rule in result["rules"]:
        facts = [rule["category"], rule["context"], rule.get("project", ""), ", ".join(rule.get("globs", []))]
        terminal.echo(f"{rule['id']:>4}  {rule['rule_text']}  {terminal.dim(' · '.join(filter(None, facts)))}")
    shown = (session.asked["offset"] or 0) + result["count"]
    session.note_page(shown, result["total"], "No rules. Begin with: localmcp rules import FOLDER")


@rules.command("export")
@click.option("--format", "kind", type=FORMATS, default="jsonl", show_default=True, help="Form.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write files below this folder, not to stdout.")
@click.option("--category", help="Only this category.")
@click.option("--project", help="Rules of this project and general ones.")
@click.option("--force", is_flag=True, help="Files that are there may be replaced.")
@pass_session
def export_rules(session: Session, kind: str, folder: Path | None, force: bool, **options: Any) -> None:
    """Print the rules in a form that can be imported again, or write them to files."""
    result = session.call("exportRules", format=kind, **options).value
    session.warn(*result.get("notices", ()))
    if folder is None:
        session.answer(result, lambda value: terminal.write("".join(file["text"] for file in value["files"]), nl=False))
        return
    places = [folder / file["name"] for file in result["files"]]
    existing = next((place for place in places if place.exists() and not force), None)
    if existing is not None:
        raise InvalidInput(f"{existing} is there already.", hint="Name another folder, or replace it with --force.")
    for place, entry in zip(places, result["files"], strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(entry["text"], encoding="utf-8")
    written = {"count": result["count"], "format": kind, "files": [str(place) for place in places]}
    session.answer(written, lambda value: session.note(f"Written: {', '.join(value['files'])}"))


@tool_command(rules, "stats", RuleCatalog.stats)
def stats(session: Session, result: Json) -> None:
    """Count rules by category and project, and how often they were applied."""
    terminal.echo(f"{terminal.counted(result['rules'], 'rule')} in force, {result['retired']} retired")
    uses, not_useful = (terminal.counted(result[name], "time") for name in ("uses", "notUseful"))
    terminal.echo(f"applied {uses}, {not_useful} not useful")
    for name, number in (result["categories"] | result["projects"]).items():
        terminal.echo(f"{number:>6}  {name}")
    for most_applied in result["mostApplied"]:
        terminal.echo(terminal.dim(f"most applied: {most_applied['rule_text']}"))


def _without_empty_globs(_session: Session, changes: Json) -> Json:
    globs = changes["globs"]
    return {**changes, "globs": [glob for glob in globs if glob]} if globs else changes


tool_command(
    rules, "edit", RuleEditor.edit_rule, prepare=_without_empty_globs, instead={"id": _rule_id("id")},
    help="Change a rule; what is left out stays, and an empty text takes a project or files away.",
    spelled={"rule_text": "--text", "globs": "--glob", "alwaysApply": "--always/--not-always"},
)(_changed)  # fmt: skip
for _name, _method, _help, *_arguments in (
    ("retire", RuleEditor.retire_rule, "Take a rule out of use; it can be restored.", "id"),
    ("restore", RuleEditor.restore_rule, "Bring a retired rule back into use.", "id"),
    ("merge", RuleEditor.merge_rules, "Merge rule SOURCE into TARGET, which says the same.", "source", "target"),
):
    tool_command(rules, _name, _method, _help, instead={name: _rule_id(name) for name in _arguments})(_changed)


@rules.command("reembed")
@click.option("--all", "again", is_flag=True, help="Rules that were read by this model already, too.")
@pass_session
def reembed(session: Session, again: bool) -> None:
    """Let the model at hand read the rules that it has not read."""
    done = session.existing().rules.embed_missing(again=again)
    session.answer({"embedded": done}, lambda _: session.note(f"{terminal.counted(done, 'rule')} read."))
