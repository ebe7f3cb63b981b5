"""The lines around every pane: the file at the top, and the last error."""

from __future__ import annotations

from typing import Any

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localmcp.errors import LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted
from localmcp.tui.passages import cut_left, short
from localmcp.visible_text import visible

LEAST_PATH = 8
"""Columns for the path of the file; with fewer it is left out."""


class TopLine(Static):
    """The file at the left; at the right what it holds, and whether everything is ready."""

    where = reactive("")
    _holdings = ("", "")
    """What the file holds, shorter and longer."""
    state = reactive("")
    tone = reactive("$muted")
    read_only = reactive(False)

    def draw(self) -> None:
        """Fit both ends into the width; the path is shortened first."""
        holds = self._holdings[self.size.width >= 100]
        right = Content.assemble((holds, "$muted"), ("  " if holds else ""), (self.state, self.tone))
        badge = Content.styled(" read-only ", "$warning reverse") if self.read_only else Content("")
        columns = self.size.width - 2 - len("localmcp  ") - badge.cell_length - right.cell_length - 3
        where = cut_left(short(self.where), columns) if columns > LEAST_PATH else ""
        left = Content.assemble(("localmcp", "bold $primary"), "  ", (where, "$muted"))
        if self.read_only:
            left = left + " " + badge
        gap = max(self.size.width - 2 - left.cell_length - right.cell_length, 1)
        self.update(left + " " * gap + right)

    watch_where = watch_state = watch_tone = watch_read_only = on_resize = draw

    def show_holdings(self, stats: dict[str, Any]) -> None:
        """`41 documents · 268 passages`; only the documents where there is no space."""
        documents, passages = counted(stats["totalSources"], "document"), counted(stats["totalChunks"], "passage")
        self._holdings = documents, f"{documents} · {passages}"
        self.draw()


class ErrorLine(Static):
    """One line with the last error and what to do about it; hidden without one."""

    error: BaseException | None = None
    _dismissed = ""

    def tell(self, error: BaseException) -> None:
        """Show an error, unless the person has just dismissed the same one."""
        self.error = error
        if first_line(error) == self._dismissed:
            return
        key = "f2 answers" if isinstance(error, NeedsConfirmation) else "f2 details"
        self.update(Content.assemble(("✗ ", "bold $error"), first_line(error), (f"   {key}", "$muted")))
        self.add_class("-on")

    def clear(self) -> None:
        """Hide the error."""
        self._dismissed = ""
        self.remove_class("-on")

    def dismiss(self) -> None:
        """Hide the error, and do not show it again until something else has happened."""
        self.clear()
        self._dismissed = first_line(self.error) if self.error else ""

    def on_click(self) -> None:
        self.app.run_worker(self.app.run_action("show_error"))


def first_line(error: BaseException) -> str:
    """Return an error in one line: ours as they are; any other by its kind, since its words are for programmers."""
    if isinstance(error, NeedsConfirmation):
        # Its hint says how to confirm on a command line; the TUI asks.
        return visible(error.message)
    text = str(error) if isinstance(error, LocalMCPError) else f"Unexpected {type(error).__name__}: {error}"
    return visible(" ".join(text.split()))
