"""Questions about the file as a whole: whether it may be changed here, and whether files are gone on purpose."""

from __future__ import annotations

from collections.abc import Callable

from localmcp.errors import LocalMCPError
from localmcp.tui.dialogs import confirm
from localmcp.tui.pane import Asking


def ask_removals(widget: Asking, question: str, answered: Callable[[], object]) -> None:
    """Ask whether files are gone on purpose. The dialog opens unprompted, maybe while the person types."""
    more = (
        "Say no if a disk is not mounted, or a folder has moved. Otherwise those documents go into the trash, from "
        "where the Library brings them back."
    )

    def remove() -> None:
        answered()
        widget.session.refresh(confirmed=True)

    confirm(widget, question, more, "Into the trash", remove, unasked=True)


def ask_adoption(widget: Asking, adopted: Callable[[], object]) -> None:
    """Offer to allow changes to a file of another machine."""
    more = (
        "Its documents, rules and quick starts stay. Its API keys, watched folders and jobs are dropped, since "
        "they would act on this machine."
    )

    def adopt() -> str:
        from localmcp.tui.commands import run_command

        session = widget.session
        output = run_command(session, ["adopt", str(session.path)])
        if output.code:
            raise LocalMCPError(output.text)
        # The next connection looks again whether the file may be changed.
        session.workspace.database.close()
        return output.text

    def done(text: str) -> None:
        widget.app.notify(text)
        adopted()

    confirm(widget, "Allow changes to this file?", more, "Allow", lambda: widget.ask("adopt", adopt, done))
