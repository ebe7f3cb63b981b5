"""Driving the TUI in tests: a real file with documents, quick starts and rules, and the screen as text."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
import unicodedata
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import textual.app
import textual.pilot
from folders import write
from rich.cells import cell_len
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, TextArea
from textual.widgets._toast import ToastRack

from localmcp.config import Settings
from localmcp.doctor.examination import Check
from localmcp.tui.app import LocalMcpApp
from localmcp.tui.lists import ActivityPane
from localmcp.tui.tools import ToolsPane
from localmcp.tui.widgets import Pane
from localmcp.workspace import Workspace

SCREENS = Path(__file__).parent / "screens"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PATIENCE = 60.0
"""Seconds before a test gives up waiting; a busy machine may be slow."""
LOOK = 0.02
"""Seconds between two looks whether a thread has brought something about."""
MOMENT = 1.0
"""Seconds for which a test waits until nothing is left to do, where something may go on all the time."""
PAUSE = 0.004
"""Seconds in which a thread may hand over what it made."""
ENDLESS = {"MessagePump._process_messages", "Timer._run_timer", "App.run_test.<locals>.run_app"}
"""Tasks that run as long as the app; any other is work that has not ended."""


_KEPT: dict[str, Path] = {}
"""What a library was made in -> a copy of it, with the state of its machine."""


def kept(name: str, home: Path, make: Callable[[Path], object]) -> Path:
    """Return `~/library.localmcp` as `make` fills it, from a copy if a test of this process made it before."""
    copy, places = home.with_name(f"{home.name} {name}"), (home, Path(os.environ["LOCALMCP_STATE_DIR"]))
    if _KEPT.get(name) == home:
        for place in places:
            shutil.copytree(copy / place.name, place, dirs_exist_ok=True)
        return home / "library.localmcp"
    before = {path for place in places if place.exists() for path in place.iterdir()}
    make(home)
    for place in places:
        (copy / place.name).mkdir(parents=True)
        for path in set(place.iterdir()) - before:
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, copy / place.name / path.name)
    _KEPT[name] = home
    return home / "library.localmcp"


def make_library(home: Path) -> Path:
    """`~/library.localmcp` with documents from `~/docs`, in two collections, two quick starts and three rules."""
    return kept("library", home, fill)


def fill(home: Path) -> None:
    """Write the documents, and index them."""
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


def settings_of(home: Path) -> Settings:
    return Settings(database=home / "library.localmcp", model="hash", refresh_seconds=0, log_calls="all")


RULES = (
    ("Write commit messages in the imperative.", "style"),
    ("Test every new function.", "testing"),
    ("Never log a password.", "security"),
)
QUICKSTARTS = """
kind: QuickStarts
metadata: {name: first-search}
spec:
  {displayName: Index a folder and search it, description: From nothing to a first answer., durationMinutes: 5,
   type: {text: Quick start}, tasks: [
     {title: Add a folder, description: Run `localmcp add`.,
      review: {instructions: "Is it listed?", failedTaskHelp: Look again.}},
     {title: Search, description: Ask something.}]}
---
kind: QuickStarts
metadata: {name: keep-fresh}
spec:
  {displayName: Keep the index fresh, description: What happens when files change., durationMinutes: 3,
   type: {text: Quick start}, tasks: [{title: Refresh, description: Run `localmcp refresh`.}]}
"""


@dataclass
class RunningTui:
    """A running TUI."""

    app: LocalMcpApp
    pilot: Pilot[None]
    _frame: tuple[Compositor, str] | None = None

    @property
    def pane(self) -> Any:
        return self.app.pane

    async def press(self, *keys: str) -> None:
        """Keys, and whatever each sets off before the next one."""
        for key in keys:
            await self.pilot.press(key)
            assert await self._become_quiet(), f"it never became quiet:\n{self.text()}"
        self.text()

    async def type(self, text: str) -> None:
        """A text into the line that has the focus, all at once."""
        line = self.app.screen.focused
        assert isinstance(line, Input | TextArea), line
        if isinstance(line, TextArea):
            line.insert(text)
        else:
            # What was selected when the line got the focus is replaced.
            line.replace(text, *sorted(line.selection))
        await self.settle()

    async def until(self, holds: Callable[[], Any], what: str = "") -> None:
        """Wait for something that a thread brings about, and a moment for what is drawn with it."""
        for _ in looks():
            if holds():
                await self._become_quiet(MOMENT)
                return
            await self.pilot.pause(LOOK)
        raise AssertionError(f"waited in vain{f' for {what}' if what else ''}:\n{self.text()}")

    async def settle(self) -> None:
        """Wait until no debounce runs and no question is open, nor one that an answer set off, and draw that."""
        assert await self._become_quiet(), f"it never became quiet:\n{self.text()}"
        self.text()

    async def _become_quiet(self, seconds: float = PATIENCE) -> bool:
        quiet = 0
        for _ in looks(seconds):
            # What a thread answered is handed over here, and may ask on.
            await asyncio.sleep(PAUSE)
            await self.pilot.pause()
            quiet = 0 if self._is_busy() else quiet + 1
            if quiet == 2:
                return True
        return False

    def _is_busy(self) -> bool:
        screen = self.app.screen
        if screen._layout_required or screen._callbacks or not all(map(_waits_for_messages, _pumps(self.app))):
            return True
        ours = asyncio.current_task()
        return any(task is not ours and task.get_coro().__qualname__ not in ENDLESS for task in asyncio.all_tasks())

    async def go(self, pane: str) -> Pane:
        """Turn to a pane by its key."""
        from localmcp.tui.app import PANES

        if self.app.focused is not None and hasattr(self.app.focused, "cursor_blink"):
            await self.press("escape")
        await self.press(str(list(PANES).index(pane) + 1))
        await self.settle()
        assert self.app.pane.id == pane
        return self.app.pane

    def text(self) -> str:
        """The screen as a person reads it: what was drawn last."""
        compositor = self.app.screen._compositor
        if self._frame is None or self._frame[0] is not compositor:
            visible_screen_stack.set(self.app._background_screens)
            strips = compositor.render_strips()
            text = "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
            self._frame = compositor, text
        return self._frame[1]

    def draw_later(self, compositor: Compositor, *_: Any) -> None:
        """Draw a frame when it is looked at: half of a test's time was frames that no terminal shows.

        `settle` draws each state that a person would see.
        """
        compositor._dirty_regions.clear()
        self._frame = None

    def error(self) -> str:
        """The error line; empty when there is none."""
        line: Any = self.app.screen_stack[0].query_one("#error")
        return str(line.render()) if line.has_class("-on") else ""


@asynccontextmanager
async def open_tui(
    file: Path, size: tuple[int, int] = (120, 34), settings: Settings | None = None, theme: str = "localmcp",
    examine: Callable[[Workspace], list[Check]] = lambda _workspace: [],
) -> AsyncGenerator[RunningTui]:  # fmt: skip
    """The TUI on a file, its model loaded; an unexpected error fails the test."""
    chosen = settings or settings_of(file.parent)
    app = LocalMcpApp(lambda: Workspace(chosen), file, theme)
    # A page that glides takes a third of a second a key.
    app.animation_level = "none"
    tui = RunningTui(app, Pilot(app))
    with ExitStack() as patches:

        async def wait_for_messages(*_: Any, **__: Any) -> bool:
            return await _handled(app)

        # Textual's own ways to wait measure how long the processor rests, and hand each widget a message.
        for owner, name in (
            (textual.app, "wait_for_idle"),
            (textual.pilot, "wait_for_idle"),
            (Pilot, "_wait_for_screen"),
        ):
            patches.enter_context(patch.object(owner, name, wait_for_messages))
        patches.enter_context(patch.object(Stylesheet, "_parse_rules", _parsed_once))
        patches.enter_context(patch("localmcp.doctor.examination.run_checks", examine))
        # Tests wait for what is looked at once in a while.
        patches.enter_context(patch("localmcp.tui.session.LOOK_SECONDS", 0.1))
        for pane in (ActivityPane, ToolsPane):
            patches.enter_context(patch.object(pane, "LOOKS_EVERY", 0.3))
        patches.enter_context(patch.object(Compositor, "render_update", lambda *words, **_: tui.draw_later(*words)))
        async with app.run_test(size=size):
            await tui.until(lambda: not app.session.model_loading or tui.error(), "the model")
            await tui.until(lambda: app.stats or tui.error() or not file.exists(), "what the file holds")
            await tui.settle()
            yield tui
            assert not app.unexpected


def looks(seconds: float = PATIENCE) -> Iterator[None]:
    """Yield until a test gives up waiting."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _pumps(app: LocalMcpApp) -> list[MessagePump]:
    """The app, its screen, and all that is on it."""
    return [app, *app.screen.walk_children(with_self=True)]


def _waits_for_messages(pump: MessagePump) -> bool:
    """Whether a part has handled all its messages, and is not amidst one."""
    queue = pump._message_queue
    return pump._closed or (pump.is_running and not queue.values and bool(queue.ready_event._waiters))


async def _handled(app: LocalMcpApp) -> bool:
    """Wait until every part has handled its messages."""
    for number, _ in enumerate(looks()):
        # A part that waits for a thread amidst a message needs more than a turn.
        await asyncio.sleep(0 if number % 100 else PAUSE)
        if app.screen_stack and all(map(_waits_for_messages, _pumps(app))):
            return True
    return False


_RULES: dict[Any, Any] = {}
_PARSE = Stylesheet._parse_rules


def _parsed_once(stylesheet: Stylesheet, *source: Any, **more: Any) -> Any:
    """Read the styles once for all apps of a process: each has the same hundred."""
    key = (source, *more.items(), *stylesheet._variables.items())
    if key not in _RULES:
        _RULES[key] = _PARSE(stylesheet, *source, **more)
    return _RULES[key]


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


# ---------------------------------------------------------------- checks of a screen

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
