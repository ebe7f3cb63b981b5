"""Small screens above the panes: a text, a question, a list, a path, the details of an error."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Static

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import counted
from localmcp.tui.highlight import short
from localmcp.tui.logs import log_file
from localmcp.tui.pane import Choices, TextLine, list_option, visible_value
from localmcp.tui.session import session_of
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.report import Report
    from localmcp.tui.session import OnProgress

T = TypeVar("T")

UNASKED_SECONDS = 1.0
"""Ignore keys for this long after an unprompted dialog opens."""


class TextScreen(ModalScreen[None]):
    """Something to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,x,question_mark,f1", "dismiss", "Close"), Binding("y", "copy", "Copy"),
        Binding("j,down", "scroll(1)", show=False), Binding("k,up", "scroll(-1)", show=False),
    ]  # fmt: skip

    def __init__(self, title: str, text: Content | str, *, copy: str | None = None) -> None:
        """`text`: a plain one is Markdown."""
        super().__init__()
        self._title = title
        self._text: Content | str = visible_value(text)
        self._copy = copy

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title = Content(self._title)
            box.border_subtitle = "y copy · esc close" if self._copy else "esc close"
            if isinstance(self._text, Content):
                yield Static(self._text)
            else:
                from textual.widgets import Markdown

                box.add_class("tall")
                yield Markdown(self._text, open_links=False)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        text = self._text.plain if isinstance(self._text, Content) else self._text
        self.app.copy_to_clipboard(self._copy or text)
        self.app.notify("Copied.")


class ErrorScreen(TextScreen):
    """An error, what to do about it, and where the log is, which has the traceback."""

    def __init__(self, error: BaseException) -> None:
        is_ours = isinstance(error, LocalMCPError)
        message = error.message if is_ours else f"{type(error).__name__}: {error}"
        hint = (error.hint or "") if is_ours else "This is a mistake in localmcp; the log tells where."
        text = Content.assemble(
            (message, "bold"), "\n\n", hint, "\n\n" if hint else "", ("log  ", "$muted"),
            short(str(log_file())),
        )  # fmt: skip
        super().__init__("What went wrong", text, copy=f"{message}\n{hint}")


class ConfirmScreen(ModalScreen[bool]):
    """A yes or no before something is taken away; `no` has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"), Binding("n,escape", "answer(False)", "No"),
        Binding("left,right", "app.focus_next", show=False),
    ]  # fmt: skip

    def __init__(self, question: str, more: str = "", yes: str = "Yes", *, unasked: bool = False) -> None:
        super().__init__()
        self._question, self._more = visible(question), visible(more, newlines=True)
        self._yes = yes
        self._ignores_keys_until = time.monotonic() + (UNASKED_SECONDS if unasked else 0)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = "y yes · n no"
            yield Static(Content.assemble((self._question, "bold"), f"\n\n{self._more}" if self._more else ""))
            with Horizontal(classes="buttons"):
                yield Button("No", id="no", compact=True)
                yield Button(self._yes, id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def action_answer(self, answer: bool) -> None:
        if time.monotonic() >= self._ignores_keys_until:
            self.dismiss(answer)

    @on(Button.Pressed)
    def pressed(self, message: Button.Pressed) -> None:
        self.action_answer(message.button.id == "yes")


class ChoiceScreen(ModalScreen[int]):
    """A list to choose from; the answer is the number of the row. A plain text is a heading."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def __init__(
        self, title: str, rows: Sequence[Content | str], above: Content | None = None, says: str = "enter chooses",
    ) -> None:  # fmt: skip
        super().__init__()
        self._title, self._rows, self._above, self._says = title, rows, above, says

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), f"{self._says} · esc back"
            if self._above is not None:
                with VerticalScroll(classes="above", can_focus=False):
                    yield Static(self._above)
            yield Choices(*(list_option(row, str(number)) for number, row in enumerate(self._rows)))

    def on_mount(self) -> None:
        self.query_one(Choices).focus()

    @on(OptionList.OptionSelected)
    def chosen(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(int(message.option_id or 0))


class PathSuggester(Suggester):
    """Completes a path with the first file or folder whose name begins so."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return await asyncio.to_thread(completed_path, value)


def completed_path(text: str) -> str | None:
    """Return the path with its last name completed, folders with the separator; None if nothing begins so."""
    folder, _, beginning = text.rpartition(os.sep)
    if os.sep not in text:
        return None
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder + os.sep)), key=lambda entry: entry.name.lower())
    except OSError:
        return None
    hides = not beginning.startswith(".")
    # A line to type into draws what it holds: names with control characters are not proposed.
    shown = [e for e in entries if not (hides and e.name.startswith(".")) and visible(e.name) == e.name]
    entry = next((entry for entry in shown if entry.name.startswith(beginning) and entry.name != beginning), None)
    return f"{folder}{os.sep}{entry.name}{os.sep if entry.is_dir() else ''}" if entry is not None else None


class PathScreen(ModalScreen[str]):
    """Ask for a file or folder that is there; the answer is its absolute path, or empty. Tab completes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Cancel"), Binding("tab", "complete", "Complete", priority=True),
    ]  # fmt: skip

    def __init__(self, title: str, says: str, placeholder: str = "") -> None:
        super().__init__()
        self._title, self._says, self._placeholder = title, says, placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), "enter · tab completes · esc cancels"
            yield Static(Content.styled(self._says, "$muted"))
            yield TextLine(placeholder=self._placeholder, suggester=PathSuggester())
            yield Static(id="wrong")

    def action_complete(self) -> None:
        line = self.query_one(Input)
        if path := completed_path(line.value):
            line.value = path
            line.cursor_position = len(path)

    @on(Input.Submitted)
    def submitted(self, message: Input.Submitted) -> None:
        text = message.value.strip()
        if text and (wrong := _path_problem(os.path.expanduser(text))):
            self.query_one("#wrong", Static).update(Content.styled(f"✗ {wrong}", "$error"))
        else:
            self.dismiss(os.path.abspath(os.path.expanduser(text)) if text else "")


def _path_problem(path: str) -> str:
    """Return why a path cannot be used; empty when it can."""
    if not os.path.exists(path):
        return f"There is no {path}"
    return "" if os.access(path, os.R_OK) else f"{path} may not be read"


def ask_for_folder(widget: Widget) -> None:
    """Ask for a file or folder, and index it in the background."""

    session = session_of(widget)

    def add(path: str) -> None:
        def work(on_progress: OnProgress) -> Report:
            # Upkeep makes the vectors: the next folder need not wait for them.
            return session.workspace.library.add_paths([path], progress=on_progress, wait=False)

        session.do(f"Adding {os.path.basename(path) or path}", work)

    says = "A folder with everything in it, or one file. Ignore files (.gitignore) count; nothing leaves this machine."
    ask_screen(widget, PathScreen("Add a folder", says, "~/notes"), add)


PAGE_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "title": "Address", "description": "It is fetched once, from the network, now"},
        "title": {"type": "string", "description": "Instead of the page's own"},
        "collection": {"type": "string", "description": "Made if it is not there"},
        "allow_private": {"type": "boolean", "title": "Private too", "default": False,
                          "description": "Also addresses of this machine and its network"},
    },
}  # fmt: skip


def ask_for_page(widget: Widget) -> None:
    """Ask for a web page, and fetch and index it in the background."""
    from localmcp.library.web_pages import add_page, is_url
    from localmcp.tui.form_screen import FormScreen

    session = session_of(widget)

    def check(fields: dict[str, Any]) -> dict[str, Any]:
        if not is_url(fields["url"]):
            raise InvalidInput(f"url: '{fields['url']}' must begin with http:// or https://.")
        return fields

    def add(fields: dict[str, Any]) -> None:
        url, workspace = fields.pop("url"), session.workspace
        session.do(
            f"Fetching {url}",
            lambda _on_progress: add_page(workspace.library, workspace.settings, url, **fields),
            lambda indexed: widget.app.notify(f"{counted(indexed.added, 'passage')} of {url} indexed."),
        )

    ask_screen(widget, FormScreen("Add a web page", PAGE_FORM, check, verb="Fetch"), add)


def confirm(
    widget: Widget | App[Any], question: str, more: str, yes: str, then: Callable[[], object], *, unasked: bool = False
) -> None:
    """Ask, and call `then` on yes; an `unasked` question ignores keys at first, which were meant for the pane."""
    ask_screen(widget, ConfirmScreen(question, more, yes, unasked=unasked), lambda _: then())


def ask_screen(widget: Widget | App[Any], screen: Screen[T], then: Callable[[T], object]) -> None:
    """Show a screen, and do `then` with its answer; nothing on None, no, or an empty text."""

    def answered(answer: T | None) -> None:
        if answer is not None and answer is not False and answer != "":
            then(answer)

    cast("App[Any]", widget.app).push_screen(screen, answered)
