"""Colors: two themes of the project, Textual's, and `terminal`; text of every theme is made readable."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

T = TypeVar("T")
DEFAULT = "localmcp"
TERMINAL = "terminal"


def _theme(name: str, *, scrollbar: str, selection: str, accent: str, background: str, **colors: Any) -> Theme:
    variables = dict.fromkeys(("scrollbar", "scrollbar-hover"), scrollbar)
    behind = ("scrollbar-background", "scrollbar-background-hover", "scrollbar-background-active")
    variables |= dict.fromkeys((*behind, "scrollbar-corner-color"), background)
    variables |= {
        "scrollbar-active": accent,
        "input-selection-background": selection,
        "block-cursor-text-style": "none",
    }
    return Theme(name, accent=accent, background=background, variables=variables, **colors)


THEMES = (
    _theme(
        DEFAULT, dark=True, primary="#7aa2f7", secondary="#86b8c9", accent="#e6b673", success="#9ece6a",
        warning="#e0af68", error="#f7768e", foreground="#cfd6ea", background="#14161d", surface="#191c25",
        panel="#222634", scrollbar="#39415a", selection="#7aa2f7 35%",
    ),
    _theme(
        "localmcp-light", dark=False, primary="#2f5fc4", secondary="#216b80", accent="#9a5b00", success="#3d7a1e",
        warning="#9a5b00", error="#b3203d", foreground="#20242f", background="#fbfbfd", surface="#f1f2f6",
        panel="#e4e7ef", scrollbar="#c3c9d8", selection="#2f5fc4 25%",
    ),
    replace(BUILTIN_THEMES["ansi-dark"], name=TERMINAL),
)  # fmt: skip


class Colorless(LineFilter):
    """Leaves bold, underlined and reversed text, and no color: grays would be colors too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


LEAST_CONTRAST = 4.5
"""Between every text and what is behind it (WCAG 2, AA)."""
_MARGIN = 0.6
"""Tints on top of each other are a little stronger than computed."""
TEXT_COLORS = ("foreground", "muted", "primary", "secondary", "accent", "success", "warning", "error")
BACKGROUNDS = ("background", "surface", "panel")
ALIASES = {
    "text": "foreground", "text-muted": "muted", "text-disabled": "muted",
    "foreground-muted": "muted", "foreground-disabled": "muted",
    **{f"markdown-h{level}-color": "primary" for level in range(1, 7)},
}  # fmt: skip
"""Textual's variables for text, and the color each gets."""
TINTS = (("primary", 0.24), ("foreground", 0.09), ("error", 0.18))
"""Colors laid over the background, and how much of them: a highlighted row, an unfocused one, an error."""


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a theme with `muted` added, and each text color moved towards the foreground until it
    can be read on every background. The terminal's colors are its own and stay."""
    if variables["background"].startswith("ansi_"):
        return {**variables, "muted": variables["foreground"]}
    colors = {name: Color.parse(variables[name]) for name in TEXT_COLORS if name != "muted"}
    behind = [Color.parse(variables[name]) for name in BACKGROUNDS]
    pole = Color.parse("#ffffff") if behind[0].brightness < 0.5 else Color.parse("#000000")
    # A tint changes with the color that it is made of, so the second round looks at what the first one made.
    for _ in range(3):
        tints = [behind[0].blend(colors[name], share) for name, share in TINTS]
        colors["foreground"] = _lifted(colors["foreground"], pole, [*behind, *tints])
        colors["muted"] = behind[0].blend(colors["foreground"], 0.5)
        colors = {name: _lifted(color, colors["foreground"], [*behind, *tints]) for name, color in colors.items()}
    lifted = {name: color.hex for name, color in colors.items()}
    aliases = {name: lifted[role] for name, role in ALIASES.items()}
    return {**variables, **lifted, **aliases}


def _lifted(text: Color, pole: Color, behind: Sequence[Color]) -> Color:
    """Return the color nearest to `text` on the way to `pole` that has the least contrast to everything behind it."""
    for step in range(21):
        lifted = text.blend(pole, step / 20)
        if all(contrast(lifted, color) >= LEAST_CONTRAST + _MARGIN for color in behind):
            return lifted
    return pole


def contrast(first: Color, second: Color) -> float:
    """Return the contrast ratio of WCAG 2: 1..21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def color(variables: Mapping[str, str], name: str) -> str:
    """Return a color of the theme as rich knows it; themes of the terminal's own colors say `ansi_green`."""
    value = variables.get(name, "")
    return value.removeprefix("ansi_") if value.startswith("ansi_") else value


def theme_names() -> list[str]:
    """Return every theme that can be chosen."""
    own = [theme.name for theme in THEMES]
    return [*own, *(name for name in BUILTIN_THEMES if not name.startswith(("textual-", "ansi-")))]


class ThemedApp(App[T]):
    """An app in one of these themes, or in the terminal's two colors."""

    def __init__(self, theme_name: str) -> None:
        super().__init__()
        if self.no_color:
            self._filters[:] = [Colorless()]
        for color_theme in THEMES:
            self.register_theme(color_theme)
        self.theme = theme_name if theme_name in self.available_themes else DEFAULT

    def on_load(self) -> None:
        """Leave at SIGTERM, and when the terminal is closed, as at a quit: the screen and its programs end."""
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)

    def get_css_variables(self) -> dict[str, str]:
        """Return the theme's colors, each readable on its backgrounds."""
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables
