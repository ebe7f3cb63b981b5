"""Every pane, dialog and form, the reader and the palette at four sizes in three themes, with colors and without:
contrast, borders and what is cut.

python tests/benchmarks/tui_matrix.py [--pictures DIR]    # prints what is wrong; ends with 1 if anything is
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import tempfile
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tui")]

from rich.console import Console  # noqa: E402
from rich.segment import Segment, Segments  # noqa: E402
from screen_checks import clipped, low_contrast, misplaced_borders  # noqa: E402
from tui_driver import RunningTui, make_library, open_tui  # noqa: E402

from localmcp.errors import NotFound  # noqa: E402
from localmcp.tools import Scope  # noqa: E402
from localmcp.tui.app import PANES, LocalMcpApp  # noqa: E402

SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
THEMES = ("localmcp", "localmcp-light", "terminal")
SCENES = {
    "the reader": ("search", "enter"),
    "the outline": ("search", "enter", "t"),
    "find in the reader": ("search", "enter", "slash", "+bees", "enter"),
    "why": ("search", "x"),
    "filters": ("search", "f"),
    "jump": ("search", "ctrl+o"),
    "the palette": ("search", "ctrl+p"),
    "documents in the palette": ("search", "ctrl+p", "+bee"),
    "add a folder": ("library", "a", "+/nowhere", "enter"),
    "a web page": ("library", "w"),
    "remove": ("library", "right", "down", "d"),
    "a document": ("library", "right", "down", "down", "right", "down"),
    "remove a guide": ("quickstarts", "d"),
    "import guides": ("quickstarts", "i"),
    "add a rule": ("rules", "a"),
    "a form that is not filled in": ("rules", "a", "ctrl+r"),
    "change a rule": ("rules", "e"),
    "retire a rule": ("rules", "d"),
    "a tool's form": ("tools", "slash", "ctrl+u", "+add_text", "enter", "enter"),
    "a tool's answer": ("tools", "slash", "ctrl+u", "+get_stats", "enter", "enter", "ctrl+r"),
    "providers": ("tools", "p"),
    "a call": ("activity", "enter"),
    "what calls add up to": ("activity", "s"),
    "a new key": ("keys", "a"),
    "a key": ("keys", "a", "+editor", "ctrl+r"),
    "revoke a key": ("keys", "d"),
    "no check fits": ("doctor", "slash", "+nothing holds this"),
    "give a pack away": ("file", "slash", "+give a pack", "enter", "enter"),
    "restore": ("file", "slash", "+restore a", "enter", "enter"),
    "a setting": ("file", "slash", "+log_calls", "enter", "enter"),
    "a changed setting": ("file", "slash", "+refresh_seconds", "enter", "enter"),
    "connect": ("hub", "down", "enter"),
    "a server": ("hub", "slash", "+connect a server", "enter", "enter"),
    "an error": ("search", "!error"),
    "details of an error": ("search", "!error", "f2"),
}
"""Name -> pane, then keys; `+` types the rest, `!error` is an error."""


def problems(tui: RunningTui, size: tuple[int, int]) -> list[str]:
    """What is wrong with the screen."""
    wrong = [f"contrast {ratio}: {text[:40]}" for text, ratio in low_contrast(tui.app)]
    wrong += [f"border: {line[:60]}" for line in misplaced_borders(tui.app, size[0])]
    wrong += [f"cut: {part}" for part in clipped(tui.app)]
    return wrong + [f"error: {error}" for error in tui.app.unexpected]


def svg_of(app: LocalMcpApp) -> str:
    """The screen as a picture."""
    out = {"file": io.StringIO(), "force_terminal": True, "color_system": "truecolor"}
    console = Console(width=app.size.width, record=True, **out)
    for strip in app.screen._compositor.render_strips():
        console.print(Segments([*strip, Segment.line()]), end="")
    return console.export_svg(title="localmcp tui")


async def play(tui: RunningTui, pane: str, keys: tuple[str, ...]) -> None:
    """Turn to a pane, and do what leads to a scene."""
    await tui.go(pane)
    if pane == "search":
        tui.pane.type_query("bees autumn")
        await tui.settle()
        await tui.press("escape")
    for key in keys:
        if key == "!error":
            tui.app.tell_error(
                NotFound("There is no document 'a-name-that-is-long-enough-to-be-cut'.", hint="Look again.")
            )
        elif key.startswith("+"):
            await tui.type(key[1:])
        else:
            await tui.press(key)
    await tui.settle()


async def leave(tui: RunningTui) -> None:
    """Close what was opened, and show everything again."""
    while len(tui.app.screen_stack) > 1:
        await tui.press("escape")
    await tui.press("escape")
    tui.app.clear_notifications()


async def look(file: Path, theme: str, size: tuple[int, int], pictures: Path | None) -> list[tuple[str, list[str]]]:
    """The problems of every pane with its help, and of every scene, by name."""
    seen: list[tuple[str, list[str]]] = []
    helps = {f"{pane}{' help' * asks}": (pane, *("f1",) * asks) for pane in PANES for asks in (0, 1)}
    async with open_tui(file, size, theme=theme) as tui:
        tui.app.session.workspace.registry.call("search", {"query": "bees"}, Scope(caller="stdio"))
        for name, (pane, *keys) in (helps | SCENES).items():
            await play(tui, pane, tuple(keys))
            seen.append((name, problems(tui, size)))
            if pictures:
                colors = "-plain" if os.environ.get("NO_COLOR") else ""
                picture = pictures / f"{name.replace(' ', '-')}-{size[0]}-{theme}{colors}.svg"
                picture.write_text(svg_of(tui.app), encoding="utf-8")
            await leave(tui)
    return seen


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, help="keeps each screen there, as SVG")
    parser.add_argument("--size", type=int, help="only this width")
    parser.add_argument("--theme", help="only this theme")
    options = parser.parse_args()
    wrong = screens = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ[f"LOCALMCP_{name}_DIR"] = str(home / name.lower())
        file = make_library(home)
        for no_color, theme, size in product((False, True), THEMES, SIZES):
            if options.size not in (None, size[0]) or options.theme not in (None, theme):
                continue
            os.environ.pop("NO_COLOR", None)
            if no_color:
                os.environ["NO_COLOR"] = "1"
            for scene, found in await look(file, theme, size, options.pictures):
                screens, wrong = screens + 1, wrong + len(found)
                for problem in found:
                    where = f"{scene} {size[0]}x{size[1]} {theme}{' NO_COLOR' * no_color}"
                    print(f"{where}: {problem}", flush=True)
    print(f"{screens} screens, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
