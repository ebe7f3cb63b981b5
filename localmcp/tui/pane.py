"""The base of every pane: its keys, its questions that run in threads, its filter line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, partial
from inspect import isawaitable
from itertools import accumulate
from typing import Any, ClassVar, TypeVar, cast

from textual import events
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content, Span
from textual.message import Message
from textual.message_pump import MessagePump
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, OptionList
from textual.widgets.option_list import Option

from localmcp.errors import Interrupted, LocalMCPError
from localmcp.storage.interruption import Interruption
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


class ErrorGuard(MessagePump):
    """Shows the error that a message handler raised, and keeps the widget alive; Textual would end it."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)  # pyright: ignore[reportPrivateUsage]


class Asking(ErrorGuard, Widget):
    """A widget that asks in threads; a new question of a group stops the one before."""

    _typing: Timer | None = None
    _shown_from = 0.0
    """Moment before which no answer of `_typed_group` is shown."""
    _typed_group = ""

    @property
    def session(self) -> Session:
        """The session of the app."""
        return session_of(self)

    @cached_property
    def questions(self) -> dict[str, Interruption]:
        """The questions without an answer yet, by group."""
        return {}

    def ask(
        self, group: str, work: Callable[[], T], then: Callable[[T], object], waited_for: str = "",
        failed: Callable[[LocalMCPError], object] | None = None,
    ) -> None:  # fmt: skip
        """Run `work` in a thread, then `then` with its answer here.

        `waited_for`: shown as what the TUI waits for. `failed`: gets an error of localmcp; others go to the error line.
        """
        self.forget(group)
        question = self.questions[group] = Interruption()
        self.set_timer(PATIENCE_SECONDS, partial(self._say_it_waits, question, group, waited_for))
        self.run_worker(
            partial(self._work, group, question, work, then, failed),
            thread=True, exclusive=True, group=f"{self.id or type(self).__name__}:{group}", exit_on_error=False,
        )  # fmt: skip

    def _say_it_waits(self, question: Interruption, group: str, waited_for: str) -> None:
        """Name what is waited for, if the answer is not there yet."""
        if self.questions.get(group) is question:
            self.app.post_message(Waiting(question, waited_for or WAITED_FOR.get(group, "the answer")))

    def forget(self, group: str) -> None:
        """Stop the question of a group, and drop its answer."""
        if question := self.questions.pop(group, None):
            question.stop()

    def ask_after_typing(self, group: str, ask: Callable[[], object]) -> None:
        """Ask while the person may still be typing, but show the answer only after a pause.

        The next key stops the question.
        """
        if self._typing:
            self._typing.stop()
        self.post_message(QuestionChanged())
        self.forget(group)
        self._typed_group, self._shown_from = group, time.monotonic() + DEBOUNCE_SECONDS
        self._typing = self.set_timer(DEBOUNCE_SECONDS - HEAD_START_SECONDS, ask)

    def _work(
        self, group: str, question: Interruption, work: Callable[[], Any], then: Callable[[Any], object],
        failed: Callable[[LocalMCPError], object] | None,
    ) -> None:  # fmt: skip
        try:
            with question:
                answer = visible_value(work())
            if group == self._typed_group:
                time.sleep(max(self._shown_from - time.monotonic(), 0))
        except Exception as error:
            log.debug("a question of %s failed", group, exc_info=True)
            then, answer = self._show_failure, error
            if failed is not None and isinstance(error, LocalMCPError):
                error.message, error.hint = visible_value(error.message), visible_value(error.hint)
                then = failed
        if not question.stopped and self.is_attached:
            self.post_message(Answered(question, group, then, answer))

    def _show_failure(self, error: Exception) -> None:
        if not isinstance(error, Interrupted):
            self.app.post_message(Failed(error))

    async def on_answered(self, message: Answered) -> None:
        """Hand an answer over, unless a later question has taken its place."""
        if self.questions.get(message.group) is message.question:
            del self.questions[message.group]
            shown = message.then(message.answer)
            if isawaitable(shown):
                await shown

    def copy(self, text: str, message: str) -> None:
        """Put a text onto the clipboard, and say so."""
        self.app.copy_to_clipboard(text)
        self.app.notify(message)

    def on_unmount(self) -> None:
        """Stop every question of a widget that is gone."""
        for group in list(self.questions):
            self.forget(group)


class Pane(Vertical, Asking):
    """The base of the panes."""

    TITLE: ClassVar[str] = ""
    KEY_GROUP: ClassVar[str] = ""
    """Its place in the table of keys."""
    ABOUT: ClassVar[str] = ""
    """Two or three sentences for the help screen."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a pane the keys of its group."""
        if "KEY_GROUP" in cls.__dict__:
            cls.BINDINGS = bindings(cls.KEY_GROUP)
        super().__init_subclass__(**options)

    stale = True
    """Whether it must be reloaded when it comes to the front."""
    words = ""
    """The text of the filter line; only rows that hold it are shown."""

    @property
    def is_narrow(self) -> bool:
        """Whether the screen has no space for a view beside the list."""
        return self.app.size.width < 100

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys that lead from a text field to the list only in that field."""
        return isinstance(self.screen.focused, Input) if action in ("results", "list") else True

    def come_to_front(self) -> None:
        """Reload the pane if it is stale, and take the focus."""
        if self.stale:
            self.stale = False
            self.reload()
        self.focus_first()

    def file_changed(self, counters: dict[str, int]) -> None:
        """Reload, since the file changed; called for the pane in front, while the others become stale."""
        self.reload()

    def reload(self) -> None:
        """Show what is in the file now."""

    def focus_first(self) -> None:
        """Put the focus where the person most likely begins: of several views, on the one in front."""
        for views in self.query(ContentSwitcher):
            self.query_one(f"#{views.current}").focus()

    def focus_filter(self) -> None:
        """Put the cursor into the line that filters what the pane shows."""
        for line in self.query(FilterLine):
            line.open()

    def key_escape(self) -> None:
        """Clear the filter."""
        for line in self.query(FilterLine):
            line.action_leave()

    def apply_filter(self, words: str) -> None:
        """Show only what holds these words; empty = everything."""
        self.words = words
        self.reload()

    def say_nothing_is_here(self, empty: bool) -> None:
        """On a narrow screen, show words about the empty list in its place."""
        self.set_class(empty, "-nothing")

    def keep_focus(self) -> None:
        """Move the focus if what had it is hidden now."""
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
    """A line below a pane that filters its rows; hidden while it is empty and not in use."""

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
        return self.query_ancestor(Pane)

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filter while one types."""
        message.stop()
        self.pane.apply_filter(self.value.strip())

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Go to the rows that are left."""
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


def list_option(row: Content | str, identity: str) -> Option:
    """Return a row of a list; a plain text is a heading, which cannot be chosen."""
    if isinstance(row, str):
        return Option(Content.styled(row, "bold $muted"), disabled=True)
    return Option(row, id=identity)


class Choices(OptionList):
    """A list in which letters move as well as arrows."""

    BINDINGS = bindings("list")

    async def _on_click(self, event: events.Click) -> None:
        """Highlight at the first click where a view beside the list shows the row; open at the second."""
        option: int | None = event.style.meta.get("option")
        if self.has_class("left") and option is not None and option != self.highlighted:
            event.prevent_default()
            if not self.options[option].disabled:
                self.highlighted = option

    def keep_highlight(self, identity: str | None, fallback: int = 0) -> None:
        """Highlight the option of that id again after the options were replaced."""
        ids = [option.id for option in self.options]
        if identity is not None and identity in ids:
            self.highlighted = ids.index(identity)
        elif self.option_count:
            self.highlighted = min(fallback, self.option_count - 1)
