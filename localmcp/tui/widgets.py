"""What panes and dialogs are made of: questions that run in threads, text that is safe to draw, lists, a reader."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content, Span
from textual.getters import query_one
from textual.message import Message
from textual.message_pump import MessagePump
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.errors import Interrupted, LocalMCPError
from localmcp.tui.session import Failed, Question, Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

T = TypeVar("T")
log = logging.getLogger(__name__)

Quiet = partial(Binding, show=False)
"""A key that is in the help alone."""


# ---------------------------------------------------------------- questions


class ErrorGuard(MessagePump):
    """Shows the error that a message handler raised, and keeps the widget alive; Textual would end it."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            self.app._handle_exception(error)  # pyright: ignore[reportPrivateUsage]


class Asking(ErrorGuard, Widget):
    """A widget that asks in threads; a new question of a group stops the one before."""

    @property
    def session(self) -> Session:
        """The session of the app."""
        return cast(Any, self.app).session

    def question(self, group: str) -> Question | None:
        """Return the question of a group that has no answer yet."""
        name = f"{id(self)}:{group}"
        return next((question for question in self.session.questions if question.group == name), None)

    def ask(
        self, group: str, work: Callable[[], T], then: Callable[[T], object],
        failed: Callable[[LocalMCPError], object] | None = None,
    ) -> None:  # fmt: skip
        """Run `work` in a thread, then `then` with its answer here.

        `failed` gets an error of localmcp; without it, the error line does.
        """
        from localmcp.storage.database import Interruption  # 20 ms, which the first frame does not wait for

        def show_failure(error: Exception) -> None:
            if not isinstance(error, Interrupted):
                self.app.post_message(Failed(error))

        def answer() -> None:
            show, result = cast("Callable[[Any], object]", then), cast(Any, None)
            try:
                with question.interruption:
                    result = visible_value(work())
            except Exception as error:
                log.debug("a question failed", exc_info=True)
                show, result = show_failure, error
                if failed is not None and isinstance(error, LocalMCPError):
                    error.message, error.hint = visible_value(error.message), visible_value(error.hint)
                    show = failed
            if not question.interruption.stopped and self.is_attached:
                self.call_later(hand_over, show, result)

        async def hand_over(show: Callable[[Any], object], result: Any) -> None:
            # A later question may have taken its place.
            if question in self.session.questions:
                self.session.questions.remove(question)
                shown = show(result)
                if isawaitable(shown):
                    await shown

        self.forget(group)
        question = Question(f"{id(self)}:{group}", Interruption(), time.monotonic())
        self.session.questions.append(question)
        self.run_worker(answer, thread=True, exclusive=True, group=question.group, exit_on_error=False)

    def look(self, group: str, work: Callable[[Workspace], T], then: Callable[[T], object]) -> None:
        """Ask the workspace in the person's scope, without a line in the log of calls."""
        self.ask(group, lambda: self.session.look(work), then)

    def forget(self, group: str) -> None:
        """Stop the question of a group, and drop its answer."""
        if question := self.question(group):
            self.session.questions.remove(question)
            question.interruption.stop()

    def copy(self, text: str, message: str) -> None:
        """Put a text onto the clipboard, and say so."""
        self.app.copy_to_clipboard(text)
        self.app.notify(message)

    def on_unmount(self) -> None:
        """Stop every question of a widget that is gone."""
        for question in [*self.session.questions]:
            if question.group.startswith(f"{id(self)}:"):
                self.session.questions.remove(question)
                question.interruption.stop()


# ---------------------------------------------------------------- safe text


def visible_value(value: Any) -> Any:
    """Copy an answer with every text in it made safe to draw; lines stay lines. Other objects stay as they are."""
    if isinstance(value, str):
        return visible(value, newlines=True)
    if isinstance(value, dict):
        return {key: visible_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = [visible_value(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Content):
        return visible_content(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        changed = {name: visible_value(item) for name, item in parts.items()}
        return replace(value, **changed) if any(changed[name] is not parts[name] for name in changed) else value
    return value


def visible_content(content: Content) -> Content:
    """Make a styled text safe to draw; every style stays on its words."""
    if visible(content.plain, newlines=True) == content.plain:
        return content
    signs = [visible(sign, newlines=True) for sign in content.plain]
    place = [0, *accumulate(map(len, signs))]
    spans = [Span(place[span.start], place[min(span.end, len(signs))], span.style) for span in content.spans]
    return Content("".join(signs), spans)


def lines(*parts: Content | str) -> Content:
    """Return a text of these lines."""
    return Content("\n").join(parts)


def facts(table: dict[str, Content | str]) -> list[Content]:
    """Return a line for each fact that has a value, the names flush right."""
    shown = {name: value for name, value in table.items() if value}
    width = max(map(len, shown), default=0)
    return [Content.assemble((f"{name:>{width}}  ", "$muted"), value) for name, value in shown.items()]


# ---------------------------------------------------------------- lines, lists and the reader


class TextLine(Input):
    """A line to type into; its cursor does not blink, which would draw it twice a second."""

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self.cursor_blink = False

    def on_paste(self, event: events.Paste) -> None:
        """Take every line of a pasted text, with spaces between them: Textual would keep the first alone."""
        event.prevent_default().stop()
        text = " ".join(line for line in event.text.splitlines() if line.strip())
        self.replace(text, *sorted(self.selection))


class Choices(OptionList):
    """A list in which letters move as well as arrows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Quiet("j", "cursor_down", "Down"), Quiet("k", "cursor_up", "Up"),
        Quiet("g", "first", "First"), Quiet("G", "last", "Last"),
    ]  # fmt: skip

    async def _on_click(self, event: events.Click) -> None:
        """Highlight at the first click where a reader beside the list shows the row; open at the second."""
        option: int | None = event.style.meta.get("option")
        if self.has_class("left") and option is not None and option != self.highlighted:
            event.prevent_default()
            if not self.options[option].disabled:
                self.highlighted = option


def list_option(row: Content | Visual | str, identity: str) -> Option:
    """Return a row of a list; a plain text is a heading, which cannot be chosen."""
    if isinstance(row, str):
        return Option(Content.styled(row, "bold $muted"), disabled=True)
    return Option(row, id=identity)


class Reader(VerticalScroll):
    """Shows what is highlighted: a text that can be scrolled."""

    _draw: Callable[[int], Content] | None = None
    static = query_one(Static)

    def compose(self) -> ComposeResult:
        yield Static()

    @property
    def text(self) -> Content:
        """What it shows."""
        return cast(Content, self.static.content)

    def show(self, title: str, text: Content | Callable[[int], Content], below: str = "") -> None:
        """Show a text, or what makes one for a width; of the same title, it stays where it was scrolled to."""
        self._draw = text if callable(text) else None
        content = text(self.columns) if callable(text) else text
        if content != self.text:
            self.static.update(content)
        self.border_subtitle = Content(below)
        if str(self.border_title or "") != title:
            self.border_title = Content(title)
            self.scroll_home(animate=False)

    @property
    def columns(self) -> int:
        """The width of its text."""
        return max(self.static.size.width, 30)

    def on_resize(self) -> None:
        """Break the lines anew."""
        if self._draw is not None:
            self.static.update(self._draw(self.columns))
