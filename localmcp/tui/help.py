"""Help for the pane or the screen in front: what it is, and every key that works there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.app import App
from textual.content import Content
from textual.keys import format_key

from localmcp.tui.dialogs import TextScreen
from localmcp.tui.highlight import short
from localmcp.tui.keymap import KEYS, keys_file

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
