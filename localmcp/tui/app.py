"""The app: the frame around the panes, which are made when they are first shown, and where errors end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult, SystemCommand
from textual.binding import ActiveBinding, BindingType
from textual.getters import query_one
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Tab, Tabs

from localmcp.config import write_setting
from localmcp.errors import FileUnavailable, Interrupted, LocalMCPError, NeedsConfirmation
from localmcp.tui import messages, theme
from localmcp.tui.job_strip import TITLES, JobStrip, can_stop
from localmcp.tui.keymap import bindings, is_text_key, read_keymap, take_alt_digits
from localmcp.tui.layout import ErrorLine, TopLine, first_line
from localmcp.tui.logs import log_file
from localmcp.tui.pane import Asking, ErrorGuard, Pane
from localmcp.tui.search import SearchPane
from localmcp.tui.session import REFRESH, Session, adopt_file
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.storage.interruption import Interruption
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

PANES = {
    "search": "Search", "library": "Library", "quickstarts": "Quick starts", "rules": "Rules", "tools": "Tools",
    "activity": "Activity", "file": "File",
}  # fmt: skip
"""Name -> title. The pane `NAME` is the class `NamePane` of `NAME.py`, imported when it is first shown."""
VIEWS = {"hub": "tools"}
"""A pane that is a view of another, which has its place and number."""

REMOVALS = (
    "Say no if a disk is not mounted, or a folder has moved. Otherwise those documents go into the trash, from "
    "where the Library brings them back."
)
ADOPTION = (
    "Its documents, rules and quick starts stay. Its API keys and watched folders are dropped, since "
    "they would act on this machine."
)
LOOK_SECONDS = 0.1
"""Between two looks whether the awaited answer is there."""
ERRORS_AT_ONCE = 20
"""More unexpected errors within a second mean that drawing itself fails: the app ends, with one line."""


class AdoptionOffer(NeedsConfirmation):
    """Says that the file is read-only until the person allows changes."""


class MainScreen(Screen[None]):
    """The panes."""

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """The keys that work now; while the person types into a line, letters are text and no keys."""
        active = super().active_bindings
        # Lines and text areas have a cursor that blinks; importing TextArea to ask would delay the first paint.
        if not hasattr(self.focused, "cursor_blink"):
            return active
        return {key: binding for key, binding in active.items() if not is_text_key(key)}


class LocalMcpApp(ErrorGuard, theme.ThemedApp[None]):
    """The terminal app."""

    TITLE = "localmcp"
    CSS_PATH = "localmcp.tcss"
    BINDINGS: ClassVar[list[BindingType]] = bindings("app")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]
    NOTIFICATION_TIMEOUT = 3
    is_drawn = False
    model_problem = ""

    def __init__(
        self, opener: Callable[[], Workspace], path: Path, theme_name: str = theme.DEFAULT,
    ) -> None:  # fmt: skip
        super().__init__(theme_name)
        take_alt_digits()
        self.session = Session(opener, path, self.post_message)
        self.stats: dict[str, Any] = {}
        self.unexpected: list[float] = []
        self._waits: list[Interruption] = []
        self._requested_theme = theme_name
        self.stylesheet.set_variables(self.get_css_variables())

    def compose(self) -> ComposeResult:
        yield TopLine(id="top")
        tabs = Tabs(*(Tab(f"{n} {title}", id=name) for n, (name, title) in enumerate(PANES.items(), 1)), id="tabs")
        tabs.can_focus = False
        yield tabs
        with ContentSwitcher(initial="search", id="panes"):
            yield SearchPane(id="search")
        yield JobStrip(id="job")
        yield ErrorLine(id="error")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.top.where, self.top.state = str(self.session.path), "◌ opening"
        keymap, problems = read_keymap()
        self.set_keymap(keymap)
        if self._requested_theme != self.theme:
            names = ", ".join(theme.theme_names())
            problems.append(f"There is no theme '{self._requested_theme}'. Known: {names}.")
        if problems:
            self.tell_error(LocalMCPError(" ".join(problems)))
        self.is_drawn = True
        self.pane.come_to_front()
        self.call_after_refresh(self.session.start)

    def on_unmount(self) -> None:
        self.session.close()

    top = query_one(TopLine)
    job_strip = query_one(JobStrip)
    tabs = query_one(Tabs)
    error_line = query_one(ErrorLine)
    switcher = query_one("#panes", ContentSwitcher)

    @property
    def pane(self) -> Pane:
        """The pane in front."""
        return self.switcher.get_child_by_id(str(self.switcher.current), Pane)

    async def show_pane(self, name: str) -> Pane:
        """Turn to a pane, from whatever covers the panes; it is made when it is first shown."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if name not in {child.id for child in self.switcher.children}:
            module = import_module(f"localmcp.tui.{name}")
            await self.switcher.mount(getattr(module, f"{name.capitalize()}Pane")(id=name))
        self.switcher.current = name
        with self.tabs.prevent(Tabs.TabActivated):
            self.tabs.active = VIEWS.get(name, name)
        self.pane.come_to_front()
        return self.pane

    @on(Tabs.TabActivated)
    async def tab_clicked(self, message: Tabs.TabActivated) -> None:
        """The mouse turns to a pane."""
        if message.tab.id != VIEWS.get(str(self.switcher.current), self.switcher.current):
            await self.show_pane(str(message.tab.id))

    # ------------------------------------------------------------ messages

    @on(messages.Opened)
    def opened(self, message: messages.Opened) -> None:
        if message.error is not None:
            self.top.state, self.top.tone = "✗ not open", "$error"
            self.tell_error(message.error)
            return
        self.show_state()
        if not self.session.exists:
            self.pane.file_changed({})

    @on(messages.ModelChanged)
    def model_changed(self, message: messages.ModelChanged) -> None:
        if message.problem:
            log.warning("no model: %s", message.problem)
        self.model_problem = message.problem
        self.show_state()
        if isinstance(self.pane, SearchPane):
            self.pane.model_changed()

    def show_state(self) -> None:
        """Show whether everything is ready, at the right end of the first line; what is waited for stays there."""
        if self._waits:
            return
        if self.session.model_loading:
            self.top.state, self.top.tone = "◌ loading the model", "$accent"
        elif self.model_problem:
            self.top.state, self.top.tone = "○ words only", "$warning"
        else:
            self.top.state, self.top.tone = "● ready", "$success"

    @on(messages.Waiting)
    def waiting(self, message: messages.Waiting) -> None:
        """Show what the TUI waits for, until every question has its answer."""
        self._waits.append(message.question)
        writer = next((work.process for work in self.session.works if work.kind == "words" and not work.is_ours), 0)
        behind = f", while process {writer} writes" if writer else ""
        self.top.state, self.top.tone = f"◌ waiting for {message.waited_for}{behind}", "$accent"
        self.set_timer(LOOK_SECONDS, self._look_whether_it_waits)

    def _look_whether_it_waits(self) -> None:
        # Not `query`: the selector of a class finds its first bases only, and a pane's is another.
        askers = [asker for screen in self.screen_stack for asker in screen.walk_children(Asking)]
        unanswered = {question for asker in askers for question in asker.questions.values()}
        self._waits = [question for question in self._waits if question in unanswered]
        if self._waits:
            self.set_timer(LOOK_SECONDS, self._look_whether_it_waits)
        else:
            self.show_state()

    @on(messages.FileChanged)
    def file_changed(self, message: messages.FileChanged) -> None:
        """Show what some process changed in the file."""
        if isinstance(self.error_line.error, FileUnavailable):
            self.error_line.clear()
        self._ask_holdings()
        self._reload_panes(message.counters)

    def _reload_panes(self, counters: dict[str, int]) -> None:
        """Reload the pane in front, which keeps the focus where the person is, and the others when they are shown."""
        for child in self.switcher.query(Pane):
            child.stale = child is not self.pane
        self.pane.file_changed(counters)

    def _ask_holdings(self) -> None:
        self.pane.ask("totals", self._holdings, self._show_holdings)

    def _holdings(self) -> dict[str, Any]:
        stats = self.session.look(lambda workspace: workspace.knowledge.get_stats())
        return {**stats, "readOnly": self.session.why_read_only()}

    def _show_holdings(self, stats: dict[str, Any]) -> None:
        if "adopted" in str(stats["readOnly"]) and "readOnly" not in self.stats:
            self.tell_error(AdoptionOffer("This file comes from somewhere else, so it is read-only."))
        self.stats = stats
        self.top.read_only = bool(stats["readOnly"])
        self.top.show_holdings(stats)

    @on(messages.JobMoved)
    def job_moved(self, message: messages.JobMoved) -> None:
        self.job_strip.show(message.title, message.progress)

    @on(messages.BackgroundChanged)
    def background_changed(self, message: messages.BackgroundChanged) -> None:
        self.job_strip.show_background(message.works)

    @on(messages.JobEnded)
    def job_ended(self, message: messages.JobEnded) -> None:
        self.job_strip.clear()
        if isinstance(message.error, Interrupted):
            self.notify("What was done stays; the next refresh goes on.", title=f"{message.title} stopped")
        elif message.error is not None:
            self.tell_error(message.error)
            if isinstance(message.error, NeedsConfirmation):
                self._removals_wait(message.title, message.error.message)
        elif message.then is not None:
            message.then(message.result)
        elif message.result is not None:
            self.notify(report_words(message.result), title=message.title)
        self._reload_panes({})

    def _removals_wait(self, title: str, question: str) -> None:
        """Ask what to do with many files that are gone; only a refresh counts all that a yes would remove."""
        if title != REFRESH:
            self.session.refresh()
        else:
            self.ask_removals(question)

    def ask_removals(self, question: str) -> None:
        """Ask whether files are gone on purpose. The dialog opens unprompted, maybe while the person types."""
        from localmcp.tui.forms import confirm

        def remove() -> None:
            self.error_line.clear()
            self.session.refresh(confirmed=True)

        confirm(self, question, REMOVALS, "Into the trash", remove, unasked=True)

    def _ask_adoption(self) -> None:
        """Offer to allow changes to a file of another machine."""
        from localmcp.tui.forms import confirm

        def adopted(text: str) -> None:
            self.notify(text)
            self.error_line.clear()
            self._ask_holdings()

        def adopt() -> None:
            self.pane.ask("adopt", partial(adopt_file, self.session, str(self.session.path)), adopted)

        confirm(self, "Allow changes to this file?", ADOPTION, "Allow", adopt)

    @on(messages.ReadDocument)
    def read_document(self, message: messages.ReadDocument) -> None:
        from localmcp.tui.reader import open_document

        open_document(self.pane, message.item, message.origin)

    @on(messages.SearchFor)
    async def search_for(self, message: messages.SearchFor) -> None:
        pane = await self.show_pane("search")
        assert isinstance(pane, SearchPane)
        pane.type_query(message.query)

    # ------------------------------------------------------------ errors

    @on(messages.Failed)
    def failed(self, message: messages.Failed) -> None:
        self.tell_error(message.error)

    def tell_error(self, error: BaseException) -> None:
        """Show an error in one line; the log has the rest."""
        if isinstance(error, LocalMCPError):
            log.info("shown: %s", error)
        else:
            log.error("unexpected: %s", error, exc_info=error)
        self.error_line.tell(error)
        if len(self.screen_stack) > 1:
            # The line is covered.
            self.notify(first_line(error), severity="error")

    @on(messages.QuestionChanged)
    def forget_error(self) -> None:
        """Clear the error of the last question, since the person goes on; keep that of an unavailable file."""
        if not isinstance(self.error_line.error, FileUnavailable):
            self.error_line.clear()

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

    # ------------------------------------------------------------ actions

    async def action_pane(self, number: int) -> None:
        if number < len(PANES):
            await self.show_pane(list(PANES)[number])

    async def action_turn(self, step: int) -> None:
        names = list(PANES)
        await self.show_pane(names[(names.index(self.tabs.active) + step) % len(names)])

    async def action_show(self, name: str) -> None:
        """Turn to a pane by its name."""
        await self.show_pane(name)

    def action_filter(self) -> None:
        self.pane.focus_filter()

    async def action_connect(self) -> None:
        """Ask for an assistant, show what would be written, and write it after a yes."""
        from localmcp.tui.hub import CONNECT, HubPane

        pane = await self.show_pane("hub")
        assert isinstance(pane, HubPane)
        pane.go_to(CONNECT)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the pane unless an error is shown, and ctrl+x unless there is work to stop."""
        if action == "stop_job":
            return bool(self.session.job or any(map(can_stop, self.session.works)))
        if action == "dismiss_error":
            return len(self.screen_stack) == 1 and self.error_line.has_class("-on")
        return super().check_action(action, parameters)

    def action_stop_job(self) -> None:
        """Stop the job of this window; without one, the first background work that can be stopped from here."""
        work = next(filter(can_stop, self.session.works), None)
        if self.session.job or work is None:
            self.session.stop_job()
            return

        def done(_result: None) -> None:
            self.notify("What was done stays; the rest follows when the file is opened or refreshed again.")

        self.pane.ask("stop", lambda: self.session.stop_work(work), done)

    async def action_quit(self) -> None:
        """Leave; where work would stop, ask first."""
        from localmcp.tui.forms import confirm

        ours = [TITLES[work.kind] for work in self.session.works if work.is_ours]
        if not self.session.job and not ours:
            self.exit()
            return
        job = self.session.job or ours[0]
        more = f"{job}: it stops. What was done stays, and the rest follows when localmcp has the file open again."
        confirm(self, "Leave while this is running?", more, "Leave", self.exit)

    def action_help_quit(self) -> None:
        """Say which key quits: ctrl+c does in other programs, and copies in this one."""
        bindings = self.active_bindings.items()
        keys = [key for key, active in bindings if active.binding.action in ("quit", "app.quit")]
        self.notify(f"To quit, press {' or '.join(keys)}.")

    def action_dismiss_error(self) -> None:
        self.error_line.dismiss()

    def refresh_css(self, animate: bool = True) -> None:
        """Read the styles again for another theme; before the first paint they already fit."""
        if self.is_drawn:
            super().refresh_css(animate)

    def get_default_screen(self) -> Screen[Any]:
        return MainScreen(id="_default")

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information",
        timeout: float | None = None, markup: bool = False,
    ) -> None:  # fmt: skip
        """Show a message without markup: it may hold titles of documents."""
        text = visible(message, newlines=True)
        super().notify(text, title=visible(title), severity=severity, timeout=timeout, markup=markup)

    def action_help(self) -> None:
        from localmcp.tui.palette import help_screen
        from localmcp.tui.reader import ReaderScreen

        place = self.screen if isinstance(self.screen, ReaderScreen) else self.pane
        self.push_screen(help_screen(str(place.TITLE), place.ABOUT, place.KEY_GROUP, self))

    def action_show_error(self) -> None:
        from localmcp.tui.forms import ErrorScreen

        error = self.error_line.error
        if isinstance(error, AdoptionOffer):
            self._ask_adoption()
        elif isinstance(error, NeedsConfirmation):
            self.ask_removals(error.message)
        elif error is not None:
            self.push_screen(ErrorScreen(error))

    def action_command_palette(self) -> None:
        from localmcp.tui.palette import open_palette

        open_palette(self)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Return the commands of the palette."""
        for number, title in enumerate(PANES.values()):
            yield SystemCommand(f"Go to {title}", f"Key {number + 1}", partial(self.action_pane, number))
        yield SystemCommand("Theme", "Choose the colors; 'terminal' takes those of your terminal", self.choose_theme)
        yield SystemCommand("Connect an assistant", "Claude, Cursor, …", self.action_connect)
        yield SystemCommand("Help", "Keys of the pane in front", self.action_help)
        yield SystemCommand("Details of the last error", "And where the log is", self.action_show_error)
        yield SystemCommand("Save a picture", "Of the screen, as SVG, into this folder", self.deliver_screenshot)
        yield SystemCommand("Quit", "Leave localmcp", self.action_quit)

    def choose_theme(self) -> None:
        """Open a palette of the themes."""
        commands = [(name, partial(self._set_theme, name)) for name in theme.theme_names()]
        self.search_commands(commands, "Choose the colors…")

    def _set_theme(self, name: str) -> None:
        self.theme = name
        write_setting("theme", name)


def report_words(report: Any) -> str:
    """Return the counts of a report that are not 0, such as `41 indexed, 3 unchanged`."""
    counts = {
        "indexed": report.indexed, "updated": report.updated, "moved": report.moved, "restored": report.restored,
        "unchanged": report.unchanged, "gone": report.missing, "left out": report.removed, "skipped": report.skipped,
        "could not be read": report.failed,
    }  # fmt: skip
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "Nothing to do."
