"""The base of every pane: its keys, its questions that run in threads, its filter line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import accumulate
from typing import Any, ClassVar, TypeVar, cast

from textual import events
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content, Span
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, OptionList

from localmcp.errors import Interrupted, LocalMCPError
from localmcp.storage.interruption import Interruption
from localmcp.tui.error_guard import ErrorGuard
from localmcp.tui.keymap import bindings
from localmcp.tui.messages import Answered, Failed, QuestionChanged, Waiting
from localmcp.tui.session import Session, session_of
from localmcp.visible_text import visible

T = TypeVar("T")
log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.07
"""After the last key, before an answer takes the place of what is shown."""
HEAD_START_SECONDS = 0.05
"""How long before that the question is asked: after the key itself was painted."""
PATIENCE_SECONDS = 0.25
"""Before the screen says what is waited for."""
WAITED_FOR = {
    "search": "the search", "more": "more passages", "passage": "the passage", "contents": "the library",
    "calls": "the log of calls", "examine": "the doctor", "run": "the tool", "command": "the command",
    "show": "the command", "preview": "a preview", "totals": "the file", "holdings": "the file", "adopt": "the file",
    "look up": "the list", "save": "the change", "change": "the change", "passages": "the document",
    "find": "the whole document", "restore": "the trash", "empty": "the trash",
}  # fmt: skip
"""Group of questions -> what its answer comes from."""


class Asking(ErrorGuard, Widget):
    """A widget that asks in threads: of one group only the latest question is answered, those before are stopped."""

    _typing: Timer | None = None
    _shown_from = 0.0
    """Moment before which no answer of `_typed_group` is shown."""
    _typed_group = ""

    @property
    def session(self) -> Session:
        """What the TUI works on."""
        return session_of(self)

    def ask(
        self, group: str, work: Callable[[], T], then: Callable[[T], object], what: str = "",
        failed: Callable[[LocalMCPError], object] | None = None,
    ) -> None:  # fmt: skip
        """Run `work` in a thread, and `then` with its answer here; an error goes to `failed`, without it to the error
        line. `what` is said to be waited for."""
        questions = self.open_questions()
        if before := questions.get(group):
            before.stop()
        question = questions[group] = Interruption()
        self.set_timer(PATIENCE_SECONDS, partial(self._say_it_waits, question, group, what))
        self.run_worker(
            partial(self._work, group, question, work, then, failed),
            thread=True, exclusive=True, group=f"{self.id or type(self).__name__}:{group}", exit_on_error=False,
        )  # fmt: skip

    def _say_it_waits(self, question: Interruption, group: str, what: str) -> None:
        """Name what is waited for, if the answer is not there yet."""
        if self.open_questions().get(group) is question:
            self.app.post_message(Waiting(question, what or WAITED_FOR.get(group, "the answer")))

    def forget(self, group: str) -> None:
        """Nobody waits for the answer of that group any more."""
        if question := self.open_questions().pop(group, None):
            question.stop()

    def ask_after_typing(self, group: str, ask: Callable[[], object]) -> None:
        """Ask while the person may still be typing, and show the answer once no key came for a while; the query that is
        running is of no use from the next key on."""
        if self._typing:
            self._typing.stop()
        self.post_message(QuestionChanged())
        self.forget(group)
        self._typed_group, self._shown_from = group, time.monotonic() + DEBOUNCE_SECONDS
        self._typing = self.set_timer(DEBOUNCE_SECONDS - HEAD_START_SECONDS, ask)

    def open_questions(self) -> dict[str, Interruption]:
        """Return the questions whose answers are waited for, by their groups."""
        if not hasattr(self, "_questions"):
            self._questions: dict[str, Interruption] = {}
        return self._questions

    def _work(
        self, group: str, question: Interruption, work: Callable[[], Any], then: Callable[[Any], object],
        failed: Callable[[LocalMCPError], object] | None,
    ) -> None:  # fmt: skip
        try:
            with question:
                answer = visible_value(work())
            if group == self._typed_group:
                time.sleep(max(self._shown_from - time.monotonic(), 0))
        except Interrupted:
            self._close(group, question)
            return
        except Exception as error:
            log.debug("a question of %s failed", group, exc_info=True)
            if failed is None or not isinstance(error, LocalMCPError):
                if not question.stopped:
                    self.app.post_message(Failed(error))
                self._close(group, question)
                return
            then, answer = failed, error
        if not question.stopped and self.is_attached:
            self.post_message(Answered(question, group, then, answer))

    def _close(self, group: str, question: Interruption) -> None:
        """Nobody waits for that answer any more."""
        if self.open_questions().get(group) is question:
            self.open_questions().pop(group, None)

    async def on_answered(self, message: Answered) -> None:
        """Hand an answer over, unless a later question has taken its place."""
        if self.open_questions().get(message.group) is message.question:
            del self.open_questions()[message.group]
            shown = message.then(message.answer)
            if isawaitable(shown):
                await shown

    def copy(self, text: str, message: str) -> None:
        """Put a text onto the clipboard, and say so."""
        self.app.copy_to_clipboard(text)
        self.app.notify(message)

    def on_unmount(self) -> None:
        """Let no thread work for a widget that is gone."""
        for group in list(self.open_questions()):
            self.forget(group)


class Pane(Vertical, Asking):
    """One of the places between which the person turns."""

    TITLE: ClassVar[str] = ""
    KEY_GROUP: ClassVar[str] = ""
    """Its part of the key table."""
    ABOUT: ClassVar[str] = ""
    """Two or three sentences for the help screen."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a pane the keys of its group."""
        if "KEY_GROUP" in cls.__dict__:
            cls.BINDINGS = bindings(cls.KEY_GROUP)
        super().__init_subclass__(**options)

    stale = True
    """What it shows may no longer be so; it is looked at again when it comes to the front."""
    words = ""
    """What the filter line holds: only what holds it is shown."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys that lead from a text field to the list only in that field."""
        return isinstance(self.screen.focused, Input) if action in ("results", "list") else True

    def come_to_front(self) -> None:
        """The person turned here."""
        if self.stale:
            self.stale = False
            self.reload()
        self.focus_first()

    def file_changed(self, counters: dict[str, int]) -> None:
        """The file holds something else; called for the pane in front, the others become stale."""
        self.reload()

    def reload(self) -> None:
        """Show what is in the file now."""

    def focus_first(self) -> None:
        """Put the focus where the person most likely begins."""

    def focus_filter(self) -> None:
        """Put the cursor into the line that filters what the pane shows."""
        for line in self.query(FilterLine):
            line.open()

    def key_escape(self) -> None:
        """Show everything again, where a filter is left."""
        for line in self.query(FilterLine):
            line.action_leave()

    def apply_filter(self, words: str) -> None:
        """Show only what holds these words; empty = everything."""
        self.words = words
        self.reload()

    def say_nothing_is_here(self, empty: bool) -> None:
        """Where only one part fits, words about an empty list are in its place."""
        self.set_class(empty, "-nothing")

    def keep_focus(self) -> None:
        """After what is shown was exchanged: the focus must not stay on what is hidden."""
        focused = self.screen.focused
        lost = focused is None or self not in focused.ancestors or not all(
            part.display for part in focused.ancestors_with_self if isinstance(part, Widget)
        )  # fmt: skip
        if self.display and lost:
            self.focus_first()


class TextLine(Input):
    """A line to type into; its cursor does not blink, which would draw it twice a second."""

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        """Take every line of a pasted text, with spaces between them: Textual would keep the first alone."""
        event.prevent_default().stop()
        text = " ".join(line for line in event.text.splitlines() if line.strip())
        if self.selection.is_empty:
            self.insert_text_at_cursor(text)
        else:
            self.replace(text, *self.selection)


class FilterLine(TextLine):
    """A line below a pane, hidden while it is empty and not typed into: what the pane shows must hold its words."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave"), ("down", "submit")]

    def __init__(self, placeholder: str, **options: Any) -> None:
        super().__init__(placeholder=placeholder, classes="framed hidden", **options)

    def open(self) -> None:
        """Show it empty, and put the cursor into it."""
        self.value = ""
        self.remove_class("hidden")
        self.focus()

    @property
    def pane(self) -> Pane:
        return next(part for part in self.ancestors if isinstance(part, Pane))

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter while one types."""
        message.stop()
        self.pane.apply_filter(self.value.strip())

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Back to what is left."""
        message.stop()
        self.set_class(not self.value.strip(), "hidden")
        self.pane.focus_first()

    def action_leave(self) -> None:
        """Show everything again."""
        if not self.has_class("hidden"):
            self.value = ""
            self.add_class("hidden")
            self.pane.focus_first()


def visible_value(value: Any) -> Any:
    """Copy an answer with every text in it made safe to draw; lines stay lines. Other objects stay as they are."""
    if isinstance(value, str):
        return visible(value, newlines=True)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {key: visible_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = [visible_value(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Content):
        return visible_content(value)
    if is_dataclass(value) and not isinstance(value, type):
        fields_of = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        changed = {name: visible_value(item) for name, item in fields_of.items()}
        return replace(value, **changed) if any(changed[name] is not fields_of[name] for name in changed) else value
    return value


def visible_content(content: Content) -> Content:
    """Make a styled text safe to draw; every style stays on its words."""
    if visible(content.plain, newlines=True) == content.plain:
        return content
    signs = [visible(sign, newlines=True) for sign in content.plain]
    place = [0, *accumulate(map(len, signs))]
    spans = [Span(place[span.start], place[min(span.end, len(signs))], span.style) for span in content.spans]
    return Content("".join(signs), spans)


class Choices(OptionList):
    """A list in which letters move as well as arrows."""

    BINDINGS = bindings("list")

    async def _on_click(self, event: events.Click) -> None:
        """Beside a view of what is highlighted, a click highlights, and one more opens."""
        place: int | None = event.style.meta.get("option")
        if self.has_class("left") and place is not None and place != self.highlighted:
            event.prevent_default()
            if not self.options[place].disabled:
                self.highlighted = place

    def keep_highlight(self, identity: str | None, fallback: int = 0) -> None:
        """Highlight the option of that id again after the options were replaced."""
        ids = [option.id for option in self.options]
        if identity is not None and identity in ids:
            self.highlighted = ids.index(identity)
        elif self.option_count:
            self.highlighted = min(fallback, self.option_count - 1)
