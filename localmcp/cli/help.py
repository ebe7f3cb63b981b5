"""`localmcp help`, `reference`, `completion`: the pages of the package, and scripts of shells."""

from __future__ import annotations

import shutil
import sys
from importlib.resources import files

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from localmcp.cli import render
from localmcp.cli.session import Session, command, pass_session
from localmcp.config import packaged_data
from localmcp.errors import InvalidInput
from localmcp.humanize import choices
from localmcp.schemas import Json, did_you_mean

_COMPLETIONS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


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
    """Return the page as Markdown.

    Raises:
        InvalidInput: there is no such page; names the nearest.
    """
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
    text = (packaged_data() / "reference.md").read_text(encoding="utf-8")
    session.answer({"format": "markdown", "text": text}, lambda _: render.write(text, nl=False))


@command()
@click.argument("shell", type=click.Choice(list(_COMPLETIONS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      localmcp completion bash > ~/.local/share/bash-completion/completions/localmcp
      localmcp completion zsh  > a file "_localmcp" in a folder of $fpath
      localmcp completion fish > ~/.config/fish/completions/localmcp.fish
    """
    render.write(_COMPLETIONS[shell](ctx.find_root().command, {}, "localmcp", "_LOCALMCP_COMPLETE").source())
