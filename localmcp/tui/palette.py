"""The command palette, with every document by a few of its letters; and the help."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from textual.app import App
from textual.command import CommandPalette, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.keys import format_key
from textual.system_commands import SystemCommandsProvider

from localmcp.library.inventory import file_name
from localmcp.tui.commands import CommandPane
from localmcp.tui.file import FilePane
from localmcp.tui.forms import TextScreen
from localmcp.tui.hub import CONNECT, HubPane
from localmcp.tui.keymap import KEYS, keys_file
from localmcp.tui.messages import ReadDocument
from localmcp.tui.pane import visible_value
from localmcp.tui.passages import short
from localmcp.tui.session import session_of

if TYPE_CHECKING:
    from localmcp.library.inventory import Item
    from localmcp.tui.app import LocalMcpApp

MOST_DOCUMENTS = 30


class DocumentCommands(Provider):
    """Opens a document whose title or path holds the letters that were typed, in their order."""

    async def search(self, query: str) -> Hits:
        session = session_of(self.screen)
        letters = query.strip()
        if not letters or not session.is_open or not session.exists:
            return
        items = visible_value(await asyncio.to_thread(session.workspace.inventory.matching, letters))
        matcher = self.matcher(letters)
        ranked = sorted(((_score(matcher, item), item) for item in items), key=lambda pair: -pair[0])
        for score, item in ranked[:MOST_DOCUMENTS]:
            if score > 0:
                # Behind a command that fits as well.
                shown, read = matcher.highlight(item.title), partial(self.app.post_message, ReadDocument(item))
                where = short(item.path or item.collection).replace("[", "\\[")
                yield Hit(score * 0.9, shown, read, help=where)


class PaneCommands(Provider):
    """Runs a command of the panes File and Hub whose title holds those letters."""

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query.strip())
        for name, pane in {"file": FilePane, "hub": HubPane}.items():
            for command in chain.from_iterable(pane.COMMANDS.values()):
                score = matcher.match(command.title)
                if score > 0 and command.title != CONNECT:  # which is one of the app's own
                    run = partial(run_in_pane, cast("LocalMcpApp", self.app), name, command.title)
                    yield Hit(score, matcher.highlight(command.title), run, help=command.says)


async def run_in_pane(app: LocalMcpApp, name: str, title: str) -> None:
    """Turn to a pane, and highlight or do one of its commands there."""
    pane = await app.show_pane(name)
    assert isinstance(pane, CommandPane)
    pane.go_to(title)


def _score(matcher: Matcher, item: Item) -> float:
    """Match the title, else the file's name; names of folders would match nearly every query."""
    return matcher.match(item.title) or 0.8 * matcher.match(file_name(item))


def open_palette(app: App[Any]) -> None:
    """Open the palette of commands and documents."""
    if not CommandPalette.is_open(cast("App[object]", app)):
        providers = [SystemCommandsProvider, PaneCommands, DocumentCommands]
        app.push_screen(CommandPalette(providers=providers, placeholder="A command, or a document by some letters…"))


MOVING = "↑ ↓ j k g G  move    tab  next part    enter  open    esc  back    [ ]  previous, next pane"


def help_screen(title: str, about: str, group: str, app: App[Any]) -> TextScreen:
    """Return the help of a pane or a screen, with the keys of its group as they are bound at the moment."""
    keymap = app._keymap  # pyright: ignore[reportPrivateUsage]
    parts = [Content(about), Content(""), *_key_lines(group, keymap)]
    if group == "library":
        parts += _key_lines("branches", keymap)
    if app.focused is not None and hasattr(app.focused, "cursor_blink"):
        parts += [Content(""), Content.styled("You are typing: letters are keys after esc.", "$accent")]
    parts += [Content(""), Content.styled("Everywhere", "bold"), *_key_lines("app", keymap), Content("")]
    example = f'"{group}.{next(iter(KEYS[group]))}" = "f5"'
    notes = (MOVING, f"Your own keys: {short(str(keys_file()))}, such as", example)
    parts += [Content.styled(note, "$muted") for note in notes]
    return TextScreen(f"Help: {title}", Content("\n").join(parts))


def _key_lines(place: str, keymap: Mapping[str, str]) -> list[Content]:
    """Return a line for each key of a place; the keys of the panes share one."""
    lines: list[Content] = []
    for name, key in KEYS[place].items():
        if "pane_" in name and not name.endswith("pane_1"):
            continue
        shown = "  ".join(map(_display, keymap.get(f"{place}.{name}", key.key).split(",")))
        says = key.description
        if name.endswith("pane_1"):
            shown, says = f"{shown} … {shown[:-1]}7", says.replace("Pane 1", "Panes")
        lines.append(Content.assemble((f"{shown:<14}", "$accent"), says))
    return lines


def _display(key: str) -> str:
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, format_key(last)])
