"""Colors: two themes of our own, Textual's, and `terminal`, which takes those of the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "localmcp"
TERMINAL = "terminal"


def _variables(accent: str, scrollbar: str, background: str, selection: str) -> dict[str, str]:
    return {
        "block-cursor-text-style": "none",
        "footer-key-foreground": accent,
        "input-selection-background": selection,
        "scrollbar": scrollbar,
        "scrollbar-hover": scrollbar,
        "scrollbar-active": accent,
        "scrollbar-background": background,
        "scrollbar-background-hover": background,
        "scrollbar-background-active": background,
        "scrollbar-corner-color": background,
    }


THEMES = (
    Theme(
        name=DEFAULT,
        primary="#7aa2f7",
        secondary="#86b8c9",
        accent="#e6b673",
        success="#9ece6a",
        warning="#e0af68",
        error="#f7768e",
        foreground="#cfd6ea",
        background="#14161d",
        surface="#191c25",
        panel="#222634",
        dark=True,
        variables=_variables("#e6b673", "#39415a", "#14161d", "#7aa2f7 35%"),
    ),
    Theme(
        name="localmcp-light",
        primary="#2f5fc4",
        secondary="#216b80",
        accent="#9a5b00",
        success="#3d7a1e",
        warning="#9a5b00",
        error="#b3203d",
        foreground="#20242f",
        background="#fbfbfd",
        surface="#f1f2f6",
        panel="#e4e7ef",
        dark=False,
        variables=_variables("#9a5b00", "#c3c9d8", "#fbfbfd", "#2f5fc4 25%"),
    ),
    replace(BUILTIN_THEMES["ansi-dark"], name=TERMINAL),
)


def color(variables: Mapping[str, str], name: str) -> str:
    """A color of the theme as rich knows it; themes of the terminal's own colors say `ansi_green`."""
    value = variables.get(name, "")
    return value.removeprefix("ansi_") if value.startswith("ansi_") else value


def theme_names() -> list[str]:
    """Every theme that can be chosen."""
    own = [theme.name for theme in THEMES]
    return [*own, *(name for name in BUILTIN_THEMES if not name.startswith(("textual-", "ansi-")))]
