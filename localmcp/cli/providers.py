"""`localmcp tools providers` and `localmcp tools check`: the person's own tools, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, pass_session

if TYPE_CHECKING:
    from localmcp.providers.fields import Problem
    from localmcp.providers.manifests import Inspected, ProviderState
    from localmcp.tools import Provider
    from localmcp.workspace import Workspace

WRONG = 4
"""Exit code of `check` when a tool cannot be offered: the configuration has to be fixed."""


@command()
@pass_session
def providers(session: Session) -> None:
    """Show where tools come from: programs, queries, HTTP calls, Python, other servers; nothing is started."""
    from localmcp.config import config_directory

    states = [state.state() for state in inspected(session.reading())]
    if session.as_json:
        listed = [state.as_json() for state in states]
        session.print_json({"configDirectory": str(config_directory()), "count": len(states), "providers": listed})
        return
    rows = [(state.name, state.state, str(state.tools), terminal.short_path(state.where)) for state in states]
    session.print_table(("provider", "state", "tools", "configured in"), rows, right=(2,))
    for state in states:
        _tell_more(state)
    if any(state.problems for state in states):
        session.note("Look at every mistake with: localmcp tools check")


def _tell_more(state: ProviderState) -> None:
    if state.says:
        terminal.echo(terminal.dim(f"  {state.name}: {state.says}"))
    for problem in state.problems:
        terminal.echo(f"  {_coloured(problem)}")


@command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]...")
@pass_session
def check(session: Session, files: tuple[Path, ...]) -> int:
    """Look for mistakes in your tool manifests and providers.toml, or in the manifests named.

    Programs, databases, variables and statements are looked at as well, but nothing is run.
    """
    workspace = session.reading()
    problems = _check_files(workspace, files) if files else check_all(workspace)
    errors = sum(problem.level == "error" for problem in problems)
    checked = len(files) if files else _tools_of_providers(workspace)
    value: dict[str, Any] = {
        "ok": errors == 0,
        "errors": errors,
        "warnings": len(problems) - errors,
        "checked": checked,
        "problems": [problem.as_json() for problem in problems],
    }
    session.answer(value, lambda _: _show(session, problems, checked, "file" if files else "tool"))
    return WRONG if errors else 0


def _show(session: Session, problems: list[Problem], checked: int, noun: str) -> None:
    for problem in problems:
        terminal.echo(_coloured(problem))
    if not problems:
        session.note(f"{terminal.counted(checked, noun)}, no mistakes.")


def _coloured(problem: Problem) -> str:
    text = str(problem)
    return terminal.styled(text, fg="red") if problem.level == "error" else terminal.warned(text)


def _opened(workspace: Workspace) -> list[Provider]:
    return [getattr(provider, "opened", provider) for provider in workspace.providers]


def inspected(workspace: Workspace) -> list[Inspected]:
    from localmcp.providers.manifests import Inspected

    return [opened for opened in _opened(workspace) if isinstance(opened, Inspected)]


def _tools_of_providers(workspace: Workspace) -> int:
    return sum(state.state().tools for state in inspected(workspace))


def check_all(workspace: Workspace) -> list[Problem]:
    problems = [
        *workspace.configured_tools.manifests.problems(),
        *(p for state in inspected(workspace) for p in state.check()),
    ]
    return [*dict.fromkeys(problems), *_shadowed(workspace)]


def _shadowed(workspace: Workspace) -> list[Problem]:
    """Tools that nobody can call, because an earlier one has the name."""
    from localmcp.providers.fields import Problem

    owners = {tool.name: tool for tool in workspace.registry.tools()}
    shadowed: list[Problem] = []
    for provider in workspace.configured_tools.providers:
        for tool in provider.tools():
            if owners.get(tool.name) is not tool:
                where = str(getattr(tool, "path", provider.name))
                message = f"The name '{tool.name}' belongs to another tool, which is called instead."
                shadowed.append(Problem(where, None, message, "Give this one another name."))
    return shadowed


def _check_files(workspace: Workspace, files: tuple[Path, ...]) -> list[Problem]:
    from localmcp.providers.fields import Problem
    from localmcp.providers.manifests import ManifestProvider, read_manifest

    readers = {opened.kind: opened for opened in _opened(workspace) if isinstance(opened, ManifestProvider)}
    problems: list[Problem] = []
    for path in files:
        read = read_manifest(path.absolute())
        problems += [read] if isinstance(read, Problem) else readers[read.kind].check_manifest(read)
    return problems
