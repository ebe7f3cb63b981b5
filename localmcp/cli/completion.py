"""`localmcp completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from localmcp.cli import terminal
from localmcp.cli.session import command

SHELLS = ("bash", "zsh", "fish")


@command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      localmcp completion bash > ~/.local/share/bash-completion/completions/localmcp
      localmcp completion zsh  > a file "_localmcp" in a folder of $fpath
      localmcp completion fish > ~/.config/fish/completions/localmcp.fish
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"click knows no completion for {shell}.")
    terminal.write(maker(ctx.find_root().command, {}, "localmcp", "_LOCALMCP_COMPLETE").source())
