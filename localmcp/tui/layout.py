"""The lines around every pane: the file, the names of the panes, the keys, and the last error."""

from __future__ import annotations

from typing import Any

from textual.binding import Binding
from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Static

from localmcp.errors import LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted
from localmcp.tui.highlight import cut_left, short
from localmcp.visible_text import visible

COMMANDS, HELP = "ctrl+p", "help"
"""The key of the commands, and the action of the help."""
LEAST_PATH = 8
"""Columns for the path of the file; with fewer it is left out."""
WIDTH_FOR_COMMANDS = 100
"""Of the screen, so that the key of the commands has a place at the right end of the last line."""


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


class TabBar(Static):
    """The names of the panes with their numbers, which are keys."""

    active = reactive("search")
    """The name of the pane in front."""

    def __init__(self, panes: list[tuple[str, str]], **options: Any) -> None:
        """`panes`: (name, title)."""
        super().__init__(**options)
        self._panes = panes
        self.auto_links = False

    def draw(self) -> None:
        """Show as much of the titles as fits beside their numbers; a click turns to a pane."""
        parts: list[Content] = []
        for number, label in enumerate(self._labels(self.size.width)):
            style = "bold reverse $primary" if self._panes[number][0] == self.active else "$muted"
            pressed = Style.from_meta({"@click": f"app.pane({number})"})
            parts.append(Content.styled(label, style).stylize(pressed))
        self.update(Content("").join(parts))

    watch_active = on_resize = draw

    def _labels(self, columns: int) -> list[str]:
        titled = [(number % 10, title) for number, (_, title) in enumerate(self._panes, 1)]
        wide = [f" {number} {title} " for number, title in titled]
        close = [label[1:] for label in wide]
        # The last word of a title is enough to tell the panes apart.
        closest = [f"{number}{title.split()[-1].capitalize()} " for number, title in titled]
        for labels in (wide, close, closest):
            if sum(map(len, labels)) <= columns:
                return labels
        return [
            close[number] if name == self.active else f"{titled[number][0]} "
            for number, (name, _) in enumerate(self._panes)
        ]


class KeyLine(Static):
    """The keys that work now, as many as fit; the key of the commands at the right."""

    def __init__(self, *, shows_commands: bool = True) -> None:
        super().__init__()
        self.auto_links = False
        self._shows_commands = shows_commands

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self.draw)

    def on_resize(self) -> None:
        self.draw(self.screen)

    def draw(self, screen: Screen[Any]) -> None:
        """Show each action that has a hint once, the help last and always; a click does what the key does."""
        active, columns = screen.active_bindings, self.size.width
        commands = active.get(COMMANDS) if self._shows_commands and columns >= WIDTH_FOR_COMMANDS else None
        right = self._hint(commands.binding) if commands else Content("")
        hints: dict[str, Content] = {}
        for _, binding, _, _ in active.values():
            if binding.show and binding.action not in hints:
                hints[binding.action] = self._hint(binding)
        # The help lists every key.
        last = [hints.pop(HELP)] if HELP in hints else []
        shown: list[Content] = []
        for hint in hints.values():
            if sum(part.cell_length + 1 for part in [*shown, hint, *last, right]) > columns:
                break
            shown.append(hint)
        left = Content(" ").join([*shown, *last])
        line = left + " " * (columns - left.cell_length - right.cell_length) + right
        if line != self.content:
            self.update(line)

    def _hint(self, binding: Binding) -> Content:
        pressed = Style.from_meta({"@click": f"app.simulate_key({binding.key!r})"})
        hint = Content.assemble((self.app.get_key_display(binding), "bold $accent"), f" {binding.description}")
        return hint.stylize(pressed)


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
