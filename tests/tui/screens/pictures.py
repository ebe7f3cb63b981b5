"""Makes the pictures of the README: `python -m tests.tui.screens.pictures` writes SVG files to `sample_data/pictures`.

They show the sample documents, searched with the default model.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from pathlib import Path

from localmcp.config import Settings
from localmcp.tui.app import LocalMcpApp
from localmcp.workspace import Workspace

ROOT = Path(__file__).parents[3]
TARGET = ROOT / "sample_data" / "pictures"
SIZE = (120, 32)
PICTURES = {
    "tui-search": ["+bread came out flat and too acidic", "escape", "x"],
    "tui-tools": ["escape", "5", "slash", "escape", "5", "/get_stats", "escape", "enter", "ctrl+r"],
}
"""Name -> keys; `+` types a text into the line of the search, `/` into that of the pane in front."""


THEMES = {"": "localmcp", "-light": "localmcp-light"}
"""Ending of a picture's name -> theme."""


async def draw(settings: Settings, keys: list[str], theme: str) -> str:
    """The screen after those keys, as SVG."""
    app = LocalMcpApp(lambda: Workspace(settings), settings.database, theme)
    async with app.run_test(size=SIZE) as pilot:
        while app.session.model_loading or not app.stats:
            await pilot.pause(0.05)
        for key in keys:
            if key[0] in "+/" and len(key) > 1:
                app.pane.line.value = key[1:]  # type: ignore[attr-defined]
            else:
                await pilot.press(key)
            await pilot.pause(0.3)
            while app.session.questions:
                await pilot.pause(0.05)
        await pilot.pause(0.3)
        return app.export_screenshot(title="localmcp tui")


def plain(picture: str) -> str:
    """Without the fonts it would fetch from a host, the comment that names one, and a number that changes each time."""
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)
    picture = re.sub(r"<!--.*?-->", "", picture, flags=re.S)
    picture = re.sub(
        r"font-family: Fira Code[^;]*;", "font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace;", picture
    )
    return re.sub(r"terminal-\d+", "terminal", picture)


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as temporary:
        # The file is shown as `~/notes.localmcp`.
        os.environ["HOME"] = temporary
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ[f"LOCALMCP_{name}_DIR"] = f"{temporary}/{name.lower()}"
        settings = Settings(database=Path(temporary) / "notes.localmcp", refresh_seconds=0)
        with Workspace(settings) as workspace:
            workspace.library.add_paths([ROOT / "sample_data" / "documents"], collection="samples")
        for name, keys in PICTURES.items():
            for ending, theme in THEMES.items():
                picture = asyncio.run(draw(settings, keys, theme))
                (TARGET / f"{name}{ending}.svg").write_text(plain(picture), encoding="utf-8")
                print(TARGET / f"{name}{ending}.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
