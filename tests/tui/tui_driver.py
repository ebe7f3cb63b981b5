"""Driving the TUI in tests: a real file with documents, quick starts and rules, and the screen as text."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from folders import write
from textual import _wait
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.pilot import Pilot
from textual.timer import Timer
from textual.widgets import Input, TextArea

from localmcp.config import Settings
from localmcp.doctor.examination import Examination
from localmcp.tui.app import LocalMcpApp
from localmcp.tui.pane import Pane
from localmcp.workspace import Workspace

SCREENS = Path(__file__).parent / "screens"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PATIENCE = 1500
"""Looks at the screen before a test gives up waiting: 30 seconds."""
IDLE = 0.004
"""For how many seconds the processor rests when nothing is left to do."""


def make_library(home: Path) -> Path:
    """`~/library.localmcp` with documents from `~/docs`, in two collections, two quick starts and three rules."""
    docs = home / "docs"
    write(
        docs / "ops" / "kafka.md",
        "---\ntags: [ops]\n---\n# Kafka lag\n\nThe consumer lags behind.\n\n## Fix\n\nAdd partitions.\n",
    )
    write(docs / "ops" / "restore.md", "# Restore a backup\n\nStop the service, then copy the newest backup back.\n")
    write(docs / "bees.md", "# Bees\n\nA hive has one queen. Feed the bees in autumn, before the first frost.\n")
    write(docs / "soil.txt", "Clay holds water; sand lets it through. [Brackets] are no markup.\n")
    write(home / "other" / "roses.md", "# Roses\n\nPrune roses in late winter, when the bees are still asleep.\n")
    with Workspace(settings_of(home)) as workspace:
        workspace.library.add_paths([docs])
        workspace.library.add_paths([home / "other"], collection="garden")
        workspace.registry.call("importQuickstarts", {"text": QUICKSTARTS})
        for rule, category in RULES:
            workspace.registry.call("addRule", {"rule_text": rule, "category": category, "onDuplicate": "add"})
    return home / "library.localmcp"


def settings_of(home: Path) -> Settings:
    return Settings(database=home / "library.localmcp", model="hash", refresh_seconds=0, log_calls=True)


RULES = (
    ("Write commit messages in the imperative.", "style"),
    ("Test every new function.", "testing"),
    ("Never log a password.", "security"),
)
QUICKSTARTS = """
kind: QuickStarts
metadata: {name: first-search}
spec:
  displayName: Index a folder and search it
  description: From nothing to a first answer.
  durationMinutes: 5
  type: {text: Quick start}
  tasks:
    - title: Add a folder
      description: Run `localmcp add`.
      review: {instructions: Is it listed?, failedTaskHelp: Look again.}
    - title: Search
      description: Ask something.
---
kind: QuickStarts
metadata: {name: keep-fresh}
spec:
  displayName: Keep the index fresh
  description: What happens when files change.
  durationMinutes: 3
  type: {text: Quick start}
  tasks:
    - title: Refresh
      description: Run `localmcp refresh`.
"""


@dataclass
class RunningTui:
    """A running TUI."""

    app: LocalMcpApp
    pilot: Pilot[None]

    @property
    def pane(self) -> Any:
        return self.app.pane

    async def press(self, *keys: str) -> None:
        """Keys, then whatever they set off."""
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """A text into the line that has the focus, all at once."""
        line = self.app.screen.focused
        assert isinstance(line, Input | TextArea), line
        if isinstance(line, TextArea):
            line.insert(text)
        else:
            line.insert_text_at_cursor(text)
        await self.settle()

    async def until(self, holds: Callable[[], Any], what: str = "") -> None:
        """Wait for something that a thread brings about."""
        for _ in range(PATIENCE):
            if holds():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"waited in vain{f' for {what}' if what else ''}:\n{self.text()}")

    async def settle(self) -> None:
        """Wait until all is drawn, no debounce runs, and no question is open, nor one that an answer set off."""
        quiet = 0
        for _ in range(PATIENCE):
            # What a thread answered is handed over here, and may ask on.
            await self.pilot.pause()
            quiet = 0 if self._is_busy() else quiet + 1
            if quiet == 3:
                self.text()
                return
        raise AssertionError(f"it never became quiet:\n{self.text()}")

    def _is_busy(self) -> bool:
        if any(not worker.is_finished for worker in self.app.workers):
            return True
        parts = list(self.app.screen.walk_children(with_self=True))
        if self.app.screen._layout_required or not all(
            part.is_mounted and not part.message_queue_size for part in parts
        ):
            return True
        timers = (getattr(part, "_typing", None) for part in parts)
        return any(isinstance(timer, Timer) and timer._task and not timer._task.done() for timer in timers)

    async def go(self, pane: str) -> Pane:
        """Turn to a pane by its key."""
        from localmcp.tui.app import PANES

        if self.app.focused is not None and hasattr(self.app.focused, "cursor_blink"):
            await self.press("escape")
        await self.press(str((list(PANES).index(pane) + 1) % 10))
        await self.settle()
        assert self.app.pane.id == pane
        return self.app.pane

    def text(self) -> str:
        """The screen as a person reads it."""
        visible_screen_stack.set(self.app._background_screens)
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    def error(self) -> str:
        """The error line; empty when there is none."""
        line: Any = self.app.screen_stack[0].query_one("#error")
        return str(line.render()) if line.has_class("-on") else ""


@asynccontextmanager
async def open_tui(
    file: Path, size: tuple[int, int] = (120, 34), settings: Settings | None = None, theme: str = "localmcp",
    examine: Callable[[Workspace], Examination] = lambda _workspace: Examination([], []),
) -> AsyncGenerator[RunningTui]:  # fmt: skip
    """The TUI on a file, its model loaded; an unexpected error fails the test."""
    chosen = settings or settings_of(file.parent)
    app = LocalMcpApp(lambda: Workspace(chosen), file, examine, theme)
    # A page that glides takes a third of a second a key.
    app.animation_level = "none"
    # The pilot waits after each key until the processor has rested for a 50th of a second, and twice more.
    brief = patch.multiple(_wait, SLEEP_GRANULARITY=IDLE, SLEEP_IDLE=IDLE / 20)
    with brief, patch.object(Compositor, "render_update", _drawn_when_quiet):
        async with app.run_test(size=size) as pilot:
            tui = RunningTui(app, pilot)
            await tui.until(lambda: not app.session.model_loading or tui.error(), "the model")
            await tui.until(lambda: app.stats or tui.error() or not file.exists(), "what the file holds")
            await tui.settle()
            yield tui
            assert not app.unexpected


def _drawn_when_quiet(compositor: Compositor, *_: Any, **__: Any) -> None:
    """Draw no frame between two states: half of a test's time was frames that no terminal shows.

    `settle` draws each state that a person would see.
    """
    compositor._dirty_regions.clear()


def assert_screen(name: str, tui: RunningTui) -> None:
    """Compare the screen with `tests/screens/NAME.txt`; with UPDATE_SCREENS=1 write it."""
    path = SCREENS / f"{name}.txt"
    text = _UUID.sub("0" * 36, tui.text()) + "\n"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing; make it with UPDATE_SCREENS=1, and look at it"
    assert text == path.read_text(encoding="utf-8"), (
        f"if this is how it should look, run again with UPDATE_SCREENS=1:\n{text}"
    )
