"""The command palette: commands of the panes, and every document by a few of its letters."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from textual.command import Hit, Hits, Provider

from localmcp.library.inventory import file_name
from localmcp.tui.commands import CommandPane
from localmcp.tui.file import FilePane
from localmcp.tui.passages import short
from localmcp.tui.session import session_of
from localmcp.tui.tools import CONNECT, ToolsPane
from localmcp.tui.widgets import visible_value

if TYPE_CHECKING:
    from localmcp.library.inventory import Item
    from localmcp.tui.app import LocalMcpApp

MOST_DOCUMENTS = 30


class Commands(Provider):
    """Runs a command of the panes Tools and File whose title holds the letters that were typed, in their order; or
    opens a document whose title or file name does."""

    async def search(self, query: str) -> Hits:
        session, letters = session_of(self.screen), query.strip()
        matcher = self.matcher(letters)
        for name, pane in {"file": FilePane, "tools": ToolsPane}.items():
            for command in chain.from_iterable(pane.COMMANDS.values()):
                score = matcher.match(command.title)
                if score > 0 and command.title != CONNECT:  # which is one of the app's own
                    run = partial(run_in_pane, cast("LocalMcpApp", self.app), name, command.title)
                    yield Hit(score, matcher.highlight(command.title), run, help=command.says)
        if not letters or not session.is_open or not session.exists:
            return
        items: list[Item] = visible_value(await asyncio.to_thread(session.workspace.inventory.matching, letters))
        # Names of folders would match nearly every query.
        scored = [(matcher.match(item.title) or 0.8 * matcher.match(file_name(item)), item) for item in items]
        for score, item in sorted(scored, key=lambda pair: -pair[0])[:MOST_DOCUMENTS]:
            if score > 0:
                where = short(item.path or item.collection).replace("[", "\\[")
                # Behind a command that fits as well.
                yield Hit(score * 0.9, matcher.highlight(item.title), partial(self._open, item), help=where)

    def _open(self, item: Item) -> None:
        from localmcp.tui.reader import open_document

        open_document(cast("LocalMcpApp", self.app).pane, item)


async def run_in_pane(app: LocalMcpApp, name: str, title: str) -> None:
    """Turn to a pane, and highlight or do one of its commands there."""
    pane = await app.show_pane(name)
    assert isinstance(pane, CommandPane)
    pane.go_to(title)
