"""The app: the lines around the panes, which are made when they are first shown; the palette; where errors end."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.segment import Segment
from textual import events, on
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal
from textual.content import Content
from textual.filter import LineFilter
from textual.getters import query_one
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import ContentSwitcher, Footer, Static, Tab, Tabs

from localmcp.config import write_setting
from localmcp.errors import FileUnavailable, Interrupted, LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted
from localmcp.tui.search import SearchPane
from localmcp.tui.session import REFRESH, Failed, FileChanged, JobEnded, ModelLoaded, Session, StateChanged, log_file
from localmcp.tui.widgets import ErrorGuard, Pane, Quiet, bar, short, visible_value
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.jobs import Work
    from localmcp.tui.tools import CommandPane
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

PANES = {
    "search": "Search", "library": "Library", "quickstarts": "Quick starts", "rules": "Rules", "tools": "Tools",
    "activity": "Activity", "file": "File",
}  # fmt: skip
"""Name -> title. The pane `NAME` is the class `NamePane` of `NAME.py`, imported when it is first shown."""
MODULES = {"quickstarts": "lists", "rules": "lists", "activity": "lists", "file": "tools"}
"""Panes that share a module."""
PATIENCE_SECONDS = 0.25
"""Before the screen says that something is waited for."""
ERRORS_AT_ONCE = 20
"""More unexpected errors within a second mean that drawing itself fails: the app ends, with one line."""
TITLES = {"words": "Reading files", "meaning": "Making vectors", "scans": "Recognizing text"}
"""Kind of background work -> what people read."""


def first_line(error: BaseException) -> str:
    """Return an error in one line: ours as they are; any other by its kind, since its words are for programmers."""
    if isinstance(error, NeedsConfirmation):
        # Its hint says how to confirm on a command line; the TUI asks.
        return visible(error.message)
    text = str(error) if isinstance(error, LocalMCPError) else f"Unexpected {type(error).__name__}: {error}"
    return visible(" ".join(text.split()))


def can_stop(work: Work) -> bool:
    """Return whether this window can stop it."""
    return bool(work.job_id) or (work.is_ours and work.kind in ("meaning", "scans"))


def work_words(work: Work) -> str:
    """Return `▰▰▱▱▱ 12 of 40 files`; of what only the rest is known of, that."""
    if work.kind == "words":
        return f"{bar(100 * work.done / max(work.total, 1), 10)} {work.done:,} of {counted(work.total, 'file')}"
    return f"{counted(work.passages, 'passage') if work.kind == 'meaning' else counted(work.total, 'page')} left"


# ---------------------------------------------------------------- colors

DEFAULT_THEME = "localmcp"


CURSOR = {"block-cursor-text-style": "none"}
THEMES = (
    Theme(
        DEFAULT_THEME, dark=True, primary="#8eaef3", secondary="#86b8c9", accent="#e6b673", success="#9ece6a",
        warning="#e0af68", error="#e798af", foreground="#cfd6ea", background="#14161d", surface="#191c25",
        panel="#222634", variables=CURSOR,
    ),
    Theme(
        "localmcp-light", dark=False, primary="#2a4d98", secondary="#205668", accent="#6f480f", success="#325b23",
        warning="#6f480f", error="#9c203a", foreground="#20242f", background="#fbfbfd", surface="#f1f2f6",
        panel="#e4e7ef", variables=CURSOR,
    ),
    replace(BUILTIN_THEMES["ansi-dark"], name="terminal"),
)  # fmt: skip


class Colorless(LineFilter):
    """Leaves bold, underlined and reversed text, and no color: grays would be colors too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


# ---------------------------------------------------------------- the app


class LocalMcpApp(ErrorGuard, App[None]):
    """The terminal app."""

    TITLE = "localmcp"
    CSS_PATH = "localmcp.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "Help"), Quiet("slash", "filter", "Filter the pane in front"),
        *(Quiet(str(n), f"pane('{name}')", title) for n, (name, title) in enumerate(PANES.items(), 1)),
        *(Quiet(f"alt+{n}", f"pane('{name}')", PANES[name], priority=True) for n, name in enumerate(PANES, 1)),
        Quiet("ctrl+x", "stop_job", "Stop the work in the background", priority=True),
        Quiet("f2", "show_error", "Details of the error"),
        Quiet("escape", "dismiss_error", "Dismiss the error", priority=True),
        Quiet("ctrl+p", "command_palette", "Commands", priority=True), Quiet("colon", "command_palette", "Commands"),
        Quiet("ctrl+z", "suspend_process", "Suspend: fg comes back"),
        Quiet("ctrl+q", "quit", "Quit", priority=True),
    ]  # fmt: skip
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]
    NOTIFICATION_TIMEOUT = 3
    is_drawn = False
    error: BaseException | None = None
    """The last one that was shown."""

    def __init__(self, opener: Callable[[], Workspace], path: Path, theme_name: str = DEFAULT_THEME) -> None:
        super().__init__()
        if self.no_color:
            self._filters[:] = [Colorless()]
        for color_theme in THEMES:
            self.register_theme(color_theme)
        self.theme = theme_name if theme_name in self.available_themes else DEFAULT_THEME
        # Textual reads alt and a digit as the sign that a Mac makes of them, such as `•` for alt+8.
        for digit in "0123456789":
            dict.pop(ANSI_SEQUENCES_KEYS, f"\x1b{digit}", None)  # type: ignore[arg-type]
        self.session = Session(opener, path, self.post_message)
        self.stats: dict[str, Any] = {}
        self.unexpected: list[float] = []
        self._requested_theme = theme_name
        self.stylesheet.set_variables(self.get_css_variables())

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(id="where")
            yield Static(id="state")
        tabs = Tabs(*(Tab(f"{n} {title}", id=name) for n, (name, title) in enumerate(PANES.items(), 1)), id="tabs")
        tabs.can_focus = False
        yield tabs
        with ContentSwitcher(initial="search", id="panes"):
            yield SearchPane(id="search")
        yield Static(id="job")
        yield Static(id="error")
        yield Footer(compact=True)

    def on_load(self) -> None:
        """Leave at SIGTERM, and when the terminal is closed, as at a quit: the screen and its programs end."""
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)

    def get_css_variables(self) -> dict[str, str]:
        """Return the theme's colors with `muted`, and with plain colors where Textual has shares of one."""
        variables = super().get_css_variables()
        muted = variables["foreground"]
        if not variables["background"].startswith("ansi_"):
            muted = Color.parse(variables["background"]).blend(Color.parse(muted), 0.8).hex
        shares = ("muted", "text-muted", "text-disabled", "foreground-muted", "foreground-disabled")
        headings = dict.fromkeys((f"markdown-h{level}-color" for level in range(1, 7)), variables["primary"])
        variables |= {"text": variables["foreground"], **dict.fromkeys(shares, muted), **headings}
        self.theme_variables = variables
        return variables

    def on_mount(self) -> None:
        self.show_state()
        # The state says it where somebody waits for an answer.
        self.query_one("#state").set_interval(PATIENCE_SECONDS, self.show_state)
        if self._requested_theme != self.theme:
            names = ", ".join(self.available_themes)
            self.tell_error(LocalMCPError(f"There is no theme '{self._requested_theme}'. Known: {names}."))
        self.is_drawn = True
        # The theme of the command line is for this time only.
        self.theme_changed_signal.subscribe(self, lambda theme: write_setting("theme", theme.name))
        self.pane.come_to_front()
        self.call_after_refresh(self.session.start)

    def on_unmount(self) -> None:
        self.session.close()

    tabs = query_one(Tabs)
    error_line = query_one("#error", Static)
    switcher = query_one("#panes", ContentSwitcher)

    @property
    def pane(self) -> Pane:
        """The pane in front."""
        return self.switcher.get_child_by_id(str(self.switcher.current), Pane)

    async def action_pane(self, name: str) -> Pane:
        """Turn to a pane, from whatever covers the panes; it is made when it is first shown."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if name not in {child.id for child in self.switcher.children}:
            module = import_module(f"localmcp.tui.{MODULES.get(name, name)}")
            await self.switcher.mount(getattr(module, f"{name.capitalize()}Pane")(id=name))
        self.switcher.current = name
        with self.tabs.prevent(Tabs.TabActivated):
            self.tabs.active = name
        self.pane.come_to_front()
        return self.pane

    @on(Tabs.TabActivated)
    async def tab_clicked(self, message: Tabs.TabActivated) -> None:
        """The mouse turns to a pane."""
        if message.tab.id != self.switcher.current:
            await self.action_pane(str(message.tab.id))

    # ------------------------------------------------------------ the file

    @on(StateChanged)
    @on(ModelLoaded)
    def state_changed(self, message: StateChanged | ModelLoaded | None = None) -> None:
        """Show whether everything is ready, and the work in the background, here and in other processes."""
        self.show_state()
        job, works, shown = self.session.job, self.session.works, list[Content]()

        def add(title: str, who: str, words: str, stops: bool) -> None:
            parts = ("◌ ", "bold $accent"), (title, "bold"), (who, "$muted"), f"  {words}"
            shown.append(Content.assemble(*parts, ("  ctrl+x stops it" if stops else "", "$muted")))

        if job:
            add(job, "", next((work_words(work) for work in works if work.is_ours), ""), True)
        for work in works:
            # The job of this window has a line of its own, which says more.
            if not (job and work.is_ours):
                who = "" if work.is_ours else f" · process {work.process}" if work.process else " · another process"
                add(TITLES[work.kind], who, work_words(work), can_stop(work) and not job)
        strip = self.query_one("#job", Static)
        strip.update(Content("\n").join(shown[:3]))
        strip.set_class(bool(shown), "-on")
        if isinstance(message, ModelLoaded):
            self.switcher.get_child_by_id("search", SearchPane).model_changed()

    def show_state(self) -> None:
        """Show which file is open, what it holds, and whether everything is ready."""
        long_ago = time.monotonic() - PATIENCE_SECONDS
        if not self.session.is_open:
            state = ("✗ not open", "$error") if self.error else ("◌ opening", "$muted")
        elif any(asked_at < long_ago for _, asked_at in self.session.questions.values()):
            state = "◌ working", "$accent"
        elif self.session.model_loading:
            state = "◌ loading the model", "$accent"
        elif not self.session.has_model:
            state = "○ words only", "$warning"
        else:
            state = "● ready", "$success"
        counts = (self.stats.get("totalSources"), "document"), (self.stats.get("totalChunks"), "passage")
        holdings = " · ".join(counted(number, name) for number, name in counts if number is not None)
        badge = "  read-only" if self.stats.get("readOnly") else ""
        path = short(str(self.session.path))
        where = Content.assemble(("localmcp", "bold $primary"), (badge, "$warning"), "  ", (path, "$muted"))
        about = Content.assemble((f"{holdings}  " if holdings else "", "$muted"), state)
        # Both are gone when the app ends.
        for line, content in zip(self.query("#top > Static").results(Static), (where, about), strict=False):
            if line.content != content:
                line.update(content)

    @on(FileChanged)
    def file_changed(self, message: FileChanged) -> None:
        """Show what some process changed in the file."""
        session = self.session

        def show(stats: dict[str, Any]) -> None:
            if stats["readOnly"] and not self.stats:
                self.tell_error(LocalMCPError(stats["readOnly"]))
            self.stats = stats
            self.show_state()

        if isinstance(self.error, FileUnavailable):
            self.action_dismiss_error()
        if session.exists:
            self.pane.ask("holdings", lambda: {**session.read("get_stats"), "readOnly": session.why_read_only()}, show)
        self._reload_panes(message.counters)

    def _reload_panes(self, counters: dict[str, int]) -> None:
        for child in self.switcher.query(Pane):
            child.stale = child is not self.pane
        self.pane.file_changed(counters)

    # ------------------------------------------------------------ work in the background

    @on(JobEnded)
    def job_ended(self, message: JobEnded) -> None:
        self.state_changed()
        if isinstance(message.error, Interrupted):
            self.notify("What was done stays; the next refresh goes on.", title=f"{message.title} stopped")
        elif isinstance(message.error, NeedsConfirmation) and message.title != REFRESH:
            # Only a refresh counts all files that are gone, which a yes would remove.
            self.session.refresh()
        elif message.error is not None:
            self.tell_error(message.error)
            if isinstance(message.error, NeedsConfirmation):
                self.ask_removals(message.error.message)
        elif message.then is not None:
            message.then(visible_value(message.result))
        elif message.result is not None:
            report = message.result
            counts = {
                "indexed": report.indexed, "updated": report.updated, "moved": report.moved,
                "restored": report.restored, "unchanged": report.unchanged, "gone": report.missing,
                "left out": report.removed, "skipped": report.skipped, "could not be read": report.failed,
            }  # fmt: skip
            words = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
            self.notify(words or "Nothing to do.", title=message.title)
        self._reload_panes({})

    def ask_removals(self, question: str) -> None:
        """Ask whether files are gone on purpose. The dialog opens unprompted, maybe while the person types."""
        from localmcp.tui.dialogs import confirm

        def remove() -> None:
            self.action_dismiss_error()
            self.session.refresh(confirmed=True)

        more = (
            "Say no if a disk is not mounted, or a folder has moved. Otherwise those documents go into the trash, from "
            "where the Library brings them back."
        )
        confirm(self, question, more, "Into the trash", remove, unasked=True)

    def action_stop_job(self) -> None:
        """Stop the job of this window; without one, the first background work that can be stopped from here."""
        session, work = self.session, next(filter(can_stop, self.session.works), None)
        if session.job or work is None:
            session.stops_job.set()
            return

        def stop() -> None:
            from localmcp.library import jobs

            if work.job_id:
                jobs.end_run(session.workspace.database, work.job_id)
            else:
                session.workspace.upkeep.stop()

        says = "What was done stays; the rest follows when the file is opened or refreshed again."
        self.pane.ask("stop", stop, lambda _: self.notify(says))

    async def action_quit(self) -> None:
        """Leave, from any dialog; where work would stop, ask first."""
        from localmcp.tui.dialogs import confirm

        while len(self.screen_stack) > 1:
            self.pop_screen()
        jobs = [self.session.job, *(TITLES[work.kind] for work in self.session.works if work.is_ours)]
        job = next(filter(None, jobs), "")
        if not job:
            self.exit()
            return
        more = f"{job}: it stops. What was done stays, and the rest follows when localmcp has the file open again."
        confirm(self, "Leave while this is running?", more, "Leave", self.exit)

    # ------------------------------------------------------------ errors

    @on(Failed)
    def failed(self, message: Failed) -> None:
        if message.error is not None:
            self.tell_error(message.error)
        elif not isinstance(self.error, FileUnavailable):
            self.action_dismiss_error()

    def tell_error(self, error: BaseException) -> None:
        """Show an error in one line; the log has the rest."""
        if isinstance(error, LocalMCPError):
            log.info("shown: %s", error)
        else:
            log.error("unexpected: %s", error, exc_info=error)
        self.error = error
        key = "f2 answers" if isinstance(error, NeedsConfirmation) else "f2 details"
        self.error_line.update(Content.assemble(("✗ ", "bold $error"), first_line(error), (f"   {key}", "$muted")))
        self.error_line.add_class("-on")
        if len(self.screen_stack) > 1:
            # The line is covered.
            self.notify(first_line(error), severity="error")

    def _handle_exception(self, error: Exception) -> None:
        """Show an error in one line, where Textual would end the app; end it only when drawing itself fails."""
        if not self.screen_stack:
            # The app has ended: there is no screen to show it on.
            log.info("after the end: %s", error)
            return
        now = time.monotonic()
        self.unexpected = [moment for moment in self.unexpected if now - moment < 1] + [now]
        if len(self.unexpected) <= ERRORS_AT_ONCE and self.is_drawn:
            try:
                self.tell_error(error)
                return
            except Exception:
                log.exception("the error line cannot be shown")
        log.error("the screen cannot be drawn", exc_info=error)
        self._return_code = 1
        self.exit(return_code=1, message=f"✗ {first_line(error)}. The log is {log_file()}")

    @on(events.Click, "#error")
    def action_show_error(self) -> None:
        """Show an error, what to do about it, and where the log is, which has the traceback; or ask what it asks."""
        from localmcp.tui.dialogs import TextScreen

        error = self.error
        if isinstance(error, NeedsConfirmation):
            self.ask_removals(error.message)
        elif error is not None:
            is_ours = isinstance(error, LocalMCPError)
            message = error.message if is_ours else f"{type(error).__name__}: {error}"
            hint = (error.hint or "") if is_ours else "This is a mistake in localmcp; the log tells where."
            parts = (message, "bold"), f"\n\n{hint}" if hint else "", ("\n\nlog  ", "$muted"), short(str(log_file()))
            self.push_screen(TextScreen("What went wrong", Content.assemble(*parts)))

    def action_dismiss_error(self) -> None:
        self.error_line.remove_class("-on")

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the pane unless an error is shown, and ctrl+x unless there is work to stop."""
        if action == "stop_job":
            return bool(self.session.job or any(map(can_stop, self.session.works)))
        if action == "dismiss_error":
            return len(self.screen_stack) == 1 and self.error_line.has_class("-on")
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        self.pane.line.focus()

    def action_add_folder(self) -> None:
        from localmcp.tui.library import ADD_FOLDER
        from localmcp.tui.tools import start

        start(self.pane, ADD_FOLDER, None)

    async def action_run_in_pane(self, name: str, title: str) -> None:
        """Turn to a pane, and highlight or do one of its commands there."""
        cast("CommandPane", await self.action_pane(name)).go_to(title)

    def action_help(self) -> None:
        """Show the keys that work here, and what the pane is for; or hide them."""
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Return the commands of the palette, also those of the panes Tools and File."""
        from localmcp.tui.tools import FilePane, ToolsPane

        for number, (name, title) in enumerate(PANES.items(), 1):
            yield SystemCommand(f"Go to {title}", f"Key {number}", partial(self.action_pane, name))
        for name, pane in {"file": FilePane, "tools": ToolsPane}.items():
            for command in chain.from_iterable(pane.COMMANDS.values()):
                run = partial(self.action_run_in_pane, name, command.title)
                yield SystemCommand(command.title, command.says, run, discover=False)
        says = "Choose the colors; 'terminal' takes those of your terminal"
        yield SystemCommand("Theme", says, self.action_change_theme)
        yield SystemCommand("Help", "Keys of the pane in front", self.action_help)
        yield SystemCommand("Details of the last error", "And where the log is", self.action_show_error)
        yield SystemCommand("Save a picture", "Of the screen, as SVG, into this folder", self.deliver_screenshot)
        yield SystemCommand("Quit", "Leave localmcp", self.action_quit)

    def refresh_css(self, animate: bool = True) -> None:
        """Read the styles again for another theme; before the first paint they already fit."""
        if self.is_drawn:
            super().refresh_css(animate)

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information",
        timeout: float | None = None, markup: bool = False,
    ) -> None:  # fmt: skip
        """Show a message without markup: it may hold titles of documents."""
        text = visible(message, newlines=True)
        super().notify(text, title=visible(title), severity=severity, timeout=timeout, markup=markup)
