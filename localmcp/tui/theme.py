"""Colors: two themes of the project, Textual's, and `terminal`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "localmcp"


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
        DEFAULT, dark=True, primary="#8eaef3", secondary="#86b8c9", accent="#e6b673", success="#9ece6a",
        warning="#e0af68", error="#e798af", foreground="#cfd6ea", background="#14161d", surface="#191c25",
        panel="#222634", scrollbar="#39415a", selection="#7aa2f7 35%",
    ),
    _theme(
        "localmcp-light", dark=False, primary="#2a4d98", secondary="#205668", accent="#6f480f", success="#325b23",
        warning="#6f480f", error="#9c203a", foreground="#20242f", background="#fbfbfd", surface="#f1f2f6",
        panel="#e4e7ef", scrollbar="#c3c9d8", selection="#2f5fc4 25%",
    ),
    replace(BUILTIN_THEMES["ansi-dark"], name="terminal"),
)  # fmt: skip


class Colorless(LineFilter):
    """Leaves bold, underlined and reversed text, and no color: grays would be colors too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


def color(variables: Mapping[str, str], name: str) -> str:
    """Return a color of the theme as rich knows it; themes of the terminal's own colors say `ansi_green`."""
    value = variables.get(name, "")
    return value.removeprefix("ansi_") if value.startswith("ansi_") else value


def theme_names() -> list[str]:
    """Return every theme that can be chosen."""
    own = [theme.name for theme in THEMES]
    return [*own, *(name for name in BUILTIN_THEMES if not name.startswith(("textual-", "ansi-")))]


def text_variables(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of a theme with `muted`, and with plain colors where Textual has shares of one."""
    muted = variables["foreground"]
    if not variables["background"].startswith("ansi_"):
        muted = Color.parse(variables["background"]).blend(Color.parse(muted), 0.8).hex
    colors = {"muted": muted, **variables, "text": variables["foreground"]}
    shares = ("text-muted", "text-disabled", "foreground-muted", "foreground-disabled")
    headings = dict.fromkeys((f"markdown-h{level}-color" for level in range(1, 7)), variables["primary"])
    return {**colors, **dict.fromkeys(shares, colors["muted"]), **headings}
