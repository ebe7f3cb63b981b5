"""Help for the focused pane: what it is, and every key that works there."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from localmcp.tui.dialogs import TextScreen
from localmcp.tui.highlight import short
from localmcp.tui.keymap import KEYS, keys_file
from localmcp.tui.pane import Pane

MOVING = "↑ ↓ j k g G  move    tab  next part    enter  open    esc  back    [ ]  previous, next pane"


class HelpScreen(TextScreen):
    """Keys of a pane as they are bound at the moment."""

    def __init__(self, pane: Pane, focused: Widget | None) -> None:
        self._pane = pane
        self._typing = focused is not None and focused.has_pseudo_class("focus") and hasattr(focused, "cursor_blink")
        super().__init__(f"Help: {pane.TITLE}", self._words())

    def _words(self) -> Content:
        about = Content.from_markup(self._pane.ABOUT.replace("[", "\\["))
        parts = [about, Content(""), *self._keys(self._pane.KEY_GROUP)]
        if self._typing:
            parts += [Content(""), Content.styled("You are typing: letters are keys after esc.", "$accent")]
        parts += [Content(""), Content.styled("Everywhere", "bold"), *self._keys("app"), Content("")]
        parts += [Content.styled(MOVING, "$muted")]
        parts += [Content.styled(f"Your own keys: {short(str(keys_file()))}, such as", "$muted")]
        parts += [Content.styled(f'"{self._pane.KEY_GROUP}.{next(iter(KEYS[self._pane.KEY_GROUP]))}" = "f5"', "$muted")]
        return Content("\n").join(parts)

    def _keys(self, place: str) -> list[Content]:
        keymap = self._pane.app._keymap  # pyright: ignore[reportPrivateUsage]
        lines: list[Content] = []
        for name, key in KEYS[place].items():
            if "pane_" in name and not name.endswith("pane_1"):
                continue
            keys = keymap.get(f"{place}.{name}", key.keys).split(",")
            shown = "  ".join(self._display(key_name) for key_name in keys)
            says = key.says
            if name.endswith("pane_1"):
                shown, says = f"{shown} … {shown[:-1]}0", says.replace("Pane 1", "Panes")
            lines.append(Content.assemble((f"{shown:<14}", "$accent"), says))
        return lines

    def _display(self, key: str) -> str:
        from textual.keys import format_key

        *modifiers, last = key.split("+")
        return "+".join([*modifiers, format_key(last)])
