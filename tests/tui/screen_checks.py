"""Checks of a screen as it is drawn: contrast of every text, nothing that commands the terminal, borders in line."""

from __future__ import annotations

import unicodedata
from typing import Any

from rich.cells import cell_len
from textual.color import Color
from textual.screen import ModalScreen
from textual.widgets import Footer
from textual.widgets._toast import ToastRack

LEAST_CONTRAST = 4.5
"""Between every text and what is behind it (WCAG 2, AA)."""
FRAME = frozenset("▉▋▍▐╭╮╰╯│─┌┐└┘├┤┬┴┼▁▂▃▄▅▆▇█▏▌▎▊▔━╸╺▰▱")
"""Signs that are drawn, not read."""
BIDI = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reorder what is around them."""


def segments(app: Any) -> list[tuple[str, Any]]:
    """Every piece of text on the screen with its style; of a dialog only its own, since what is behind it is dimmed."""
    strips = app.screen._compositor.render_strips()
    if isinstance(app.screen, ModalScreen):
        boxes = [widget.region for widget in app.screen.children if not isinstance(widget, Footer | ToastRack)]
        strips = [strips[y].crop(box.x, box.right) for box in boxes for y in box.line_range if y < len(strips)]
    return [(part.text, part.style) for strip in strips for part in strip]


def low_contrast(app: Any) -> list[tuple[str, float]]:
    """The texts that are hard to read, with their contrast. The terminal's own colors have none that is known."""
    bad: list[tuple[str, float]] = []
    for text, style in segments(app):
        words = "".join(sign for sign in text if sign not in FRAME).strip()
        if not words or style is None or style.color is None or style.bgcolor is None:
            continue
        if style.color.is_default or style.bgcolor.is_default or style.color.number or style.bgcolor.number:
            continue
        ratio = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
        if ratio < LEAST_CONTRAST - 0.05:
            bad.append((words, round(ratio, 2)))
    return bad


def contrast(first: Color, second: Color) -> float:
    """The contrast ratio of WCAG 2: 1..21."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: Color) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def misplaced_borders(app: Any, width: int) -> list[str]:
    """The lines that are wider or narrower than the screen."""
    strips = app.screen._compositor.render_strips()
    lines = ["".join(part.text for part in strip) for strip in strips]
    return [line for line in lines if cell_len(line) != width]


def commands_of_text(app: Any) -> list[str]:
    """The pieces of text that hold what a terminal obeys: control and reordering characters, and links."""
    bad = [
        text for text, _ in segments(app) if any(unicodedata.category(sign) == "Cc" or sign in BIDI for sign in text)
    ]
    return bad + [text for text, style in segments(app) if style is not None and style.link]
