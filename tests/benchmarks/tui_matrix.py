"""Every pane at four sizes in three themes, with colors and without: contrast, borders and what is cut.

python tests/benchmarks/tui_matrix.py        # prints what is wrong; ends with 1 if anything is
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tui")]

from screen_checks import clipped, low_contrast, misplaced_borders  # noqa: E402
from tui_driver import RunningTui, make_library, open_tui  # noqa: E402

from localmcp.tui.app import PANES  # noqa: E402

SIZES = ((60, 20), (80, 24), (120, 40), (200, 60))
THEMES = ("localmcp", "localmcp-light", "terminal")


def problems(tui: RunningTui, size: tuple[int, int]) -> list[str]:
    """What is wrong with the screen."""
    # What is behind a dialog is dimmed on purpose.
    texts = low_contrast(tui.app) if len(tui.app.screen_stack) == 1 else []
    wrong = [f"contrast {ratio}: {text[:40]}" for text, ratio in texts]
    wrong += [f"border: {line[:60]}" for line in misplaced_borders(tui.app, size[0])]
    wrong += [f"cut: {part}" for part in clipped(tui.app)]
    return wrong + [f"error: {error}" for error in tui.app.unexpected]


async def main() -> int:
    wrong = screens = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ[f"LOCALMCP_{name}_DIR"] = str(home / name.lower())
        file = make_library(home)
        for no_color in (False, True):
            os.environ.pop("NO_COLOR", None)
            if no_color:
                os.environ["NO_COLOR"] = "1"
            for theme in THEMES:
                for size in SIZES:
                    async with open_tui(file, size, theme=theme) as tui:
                        await tui.type("bees autumn")
                        for pane in PANES:
                            await tui.go(pane)
                            for help_key in ((), ("question_mark",)):
                                await tui.press(*help_key)
                                screens += 1
                                for problem in problems(tui, size):
                                    wrong += 1
                                    where = f"{pane}{' help' * bool(help_key)} {size[0]}x{size[1]} {theme}"
                                    print(f"{where}{' NO_COLOR' * no_color}: {problem}", flush=True)
                            await tui.press("escape")
    print(f"{screens} screens, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
