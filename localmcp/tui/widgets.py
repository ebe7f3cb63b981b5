"""What all is made of: questions that run in threads, text that is safe to draw, lists, and the base of the panes."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content, Span
from textual.getters import query_one
from textual.message import Message
from textual.message_pump import MessagePump
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.errors import Interrupted, LocalMCPError, NotFound, Unavailable
from localmcp.schemas import Json
from localmcp.tui.session import Failed, Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.lists import Inventory
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
        except LocalMCPError as error:
            self.app.post_message(Failed(error))
        except Exception as error:
            self.app._handle_exception(error)  # pyright: ignore[reportPrivateUsage]


class Asking(ErrorGuard, Widget):
    """A widget that asks in threads; a new question of a group stops the one before."""

    @property
    def session(self) -> Session:
        """The session of the app."""
        return cast(Any, self.app).session

    def is_asking(self, group: str) -> bool:
        """Return whether a question of a group has no answer yet."""
        return (self, group) in self.session.questions

    def ask(
        self, group: str, work: Callable[[], T], then: Callable[[T], object],
        failed: Callable[[LocalMCPError], object] | None = None,
    ) -> None:  # fmt: skip
        """Run `work` in a thread, then `then` with its answer here.

        `failed` gets an error of localmcp; without it, the error line does.
        """
        from localmcp.storage.database import Interruption  # 20 ms, which the first frame does not wait for

        def answer() -> None:
            result, error = cast(Any, None), None
            try:
                with interruption:
                    result = visible_value(work())
            except Exception as failure:
                log.debug("a question failed", exc_info=True)
                error = failure
            if not interruption.stopped and self.is_attached:
                self.call_later(hand_over, result, error)

        def hand_over(result: Any, error: Exception | None) -> None:
            # A later question may have taken its place.
            if self.session.questions.get((self, group), (None,))[0] is not interruption:
                return
            del self.session.questions[self, group]
            if error is None:
                then(result)
            elif failed is not None and isinstance(error, LocalMCPError):
                error.message, error.hint = visible_value(error.message), visible_value(error.hint)
                failed(error)
            elif not isinstance(error, Interrupted):
                self.app.post_message(Failed(error))

        self.forget(group)
        interruption = Interruption()
        self.session.questions[self, group] = interruption, time.monotonic()
        self.run_worker(answer, thread=True, exclusive=True, group=group, exit_on_error=False)

    def look(self, group: str, work: Callable[[Workspace], T], then: Callable[[T], object]) -> None:
        """Ask the workspace in the person's scope, without a line in the log of calls."""
        self.ask(group, lambda: self.session.look(work), then)

    def forget(self, group: str) -> None:
        """Stop the question of a group, and drop its answer."""
        if question := self.session.questions.pop((self, group), None):
            question[0].stop()

    def copy(self, text: str, message: str) -> None:
        """Put a text onto the clipboard, and say so."""
        self.app.copy_to_clipboard(text)
        self.app.notify(message)

    def on_unmount(self) -> None:
        """Stop every question of a widget that is gone."""
        for group in [group for widget, group in self.session.questions if widget is self]:
            self.forget(group)


# ---------------------------------------------------------------- safe text


def visible_value(value: Any) -> Any:
    """Copy an answer with every text in it made safe to draw; lines stay lines. Other objects stay as they are."""
    if isinstance(value, str):
        return visible(value, newlines=True)
    if isinstance(value, dict):
        return {key: visible_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = map(visible_value, cast("list[Any]", value))
        return list(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, Content) and visible(value.plain, newlines=True) != value.plain:
        # Every style stays on its words.
        signs = [visible(sign, newlines=True) for sign in value.plain]
        place = [0, *accumulate(map(len, signs))]
        spans = [Span(place[span.start], place[min(span.end, len(signs))], span.style) for span in value.spans]
        return Content("".join(signs), spans)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        changed = {name: visible_value(item) for name, item in parts.items()}
        return replace(value, **changed) if any(changed[name] is not parts[name] for name in changed) else value
    return value


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

    _draw: Callable[[int], Content]
    static = query_one(Static)

    def compose(self) -> ComposeResult:
        yield Static(Content(""))

    def on_mount(self) -> None:
        self.show("", Content(""))
        self.app.theme_changed_signal.subscribe(self, lambda _: self.on_resize())

    @property
    def text(self) -> Content:
        """What it shows."""
        return cast(Content, self.static.content)

    def show(self, title: str, text: Content | Callable[[int], Content], below: str = "") -> None:
        """Show a text, or what makes one for a width; of the same title, it stays where it was scrolled to."""
        self._draw = text if callable(text) else lambda _: text
        self.on_resize()
        self.border_subtitle = Content(below)
        if str(self.border_title or "") != title:
            self.border_title = Content(title)
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Break the lines anew, or draw them in the colors of another theme."""
        content = self._draw(max(self.static.size.width, 30))
        # Two texts are equal to Textual whatever their styles.
        if not content.is_same(self.text):
            self.static.update(content)


# ---------------------------------------------------------------- passages


def look_around(workspace: Workspace, chunk_id: str, window: int) -> Json:
    """Return the answer of `get_context` with the `format` of the document: which reader made its text."""
    from localmcp.index.federation import split_name

    around: Any = workspace.knowledge.get_context(chunk_id, window)
    inventory = inventory_of(workspace, around.get("origin"))
    return {**around, "format": inventory.format_of(split_name(around["sourceId"])[1])}


def inventory_of(workspace: Workspace, origin: str | None) -> Inventory:
    """Return the inventory of a mounted file, or yours for None; raises NotFound if it is no longer mounted."""
    if origin is None:
        return workspace.inventory
    from localmcp.index.federation import Wanted
    from localmcp.library.lists import Inventory

    return Inventory(next(workspace.federation.look(lambda index, _: index.database, origin, Wanted())))


def bar(score: float, width: int = 5) -> str:
    """Return 0..100 as `▰▰▰▱▱`."""
    full = max(0, min(width, round(score / 100 * width)))
    return "▰" * full + "▱" * (width - full)


def short(path: str) -> str:
    """Return a path in one line: below the working directory without it, below the home folder with `~`."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~" + os.sep)):
        if path.startswith(folder.rstrip(os.sep) + os.sep):
            return visible(sign + path[len(folder.rstrip(os.sep)) + 1 :])
    return visible(path)


def place_of(citation: Json) -> str:
    """Return `docs/lag.md:12`, short where the file is below the working directory or the home folder."""
    path = citation.get("path")
    if not path:
        return visible(citation["label"])
    # Headings behind the line are in the title.
    return short(path) + citation["label"][len(path) :].partition(" › ")[0]


# ---------------------------------------------------------------- the document of what is shown

PLACES = {
    "+{line} {path}": "vi vim nvim view nano emacs emacsclient micro kak joe",
    "--goto {path}:{line}": "code codium code-insiders cursor windsurf",
    "{path}:{line}": "hx helix subl zed",
}
"""How editors are told a line -> their programs; any other gets the path alone."""
PROGRAMS = {
    *".appimage .bat .cmd .com .command .cpl .desktop .exe .hta .jar .js .jse .lnk .msi .ps1 .py .pyw .reg".split(),
    *".scr .scpt .sh .terminal .url .vb .vbe .vbs .webloc .wsf .wsh".split(),
}
"""Endings of files that some system runs, or that lead elsewhere, when they are opened."""


class DocumentKeys(Asking):
    """A widget with keys for the document of what it shows: cite it, open it in an editor or in its program."""

    def use_document(self, use: Callable[[Json], object]) -> None:
        """Hand over the citation of the document, with its `title` and `freshness`, if there is one."""
        raise NotImplementedError

    def action_cite(self) -> None:
        def copy(cited: Json) -> None:
            """Copy `Boiler manual › Faults (docs/boiler.md:12)`."""
            title, headings = cited["title"], cited.get("heading", "").split(" › ")
            names = [title, *(text for text in headings if text and text != title)]
            self.copy(f"{' › '.join(names)} ({cited['label']})", "The citation is copied.")

        self.use_document(copy)

    def action_edit(self) -> None:
        """Suspend the TUI and start what VISUAL or EDITOR say."""

        def edit(cited: Json) -> None:
            named = (os.environ.get(name, "").strip() for name in ("VISUAL", "EDITOR"))
            editor = next(filter(None, named), "") or ("notepad" if sys.platform == "win32" else "vi")
            path = _existing(cited)
            if Path(path).suffix.lower() in (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".zip"):
                raise NotFound(f"{path} is not a text file; an editor cannot show it.", hint="Press o to open it.")
            try:
                words = shlex.split(editor, posix=os.name == "posix")
                name = Path(words[0]).stem.lower()
                form = next((form for form, names in PLACES.items() if name in names.split()), "{path}")
                with self.app.suspend():
                    places = [part.format(path=path, line=cited["startLine"]) for part in form.split()]
                    subprocess.run([*words, *places], check=False)
            except (OSError, ValueError, SuspendNotSupported) as error:
                says, hint = f"The editor '{editor}' cannot be started: {error}", "Set EDITOR to one that is installed."
                raise Unavailable(says, hint=hint) from error

        self.use_document(edit)

    def action_original(self) -> None:
        def tell(name: str) -> None:
            self.app.notify(f"Opened {name}.")

        self.use_document(lambda cited: self.ask("original", partial(open_original, cited), tell))


def open_original(cited: Json) -> str:
    """Open the file in the program that the system has for it, a PDF at its page where the viewer takes one.

    Returns its name. Raises NotFound if there is none to open, Unavailable if the program does not start.
    """
    path = _existing(cited)
    if Path(path).suffix.lower() in PROGRAMS:
        raise NotFound(f"{path} might run as a program when it is opened.", hint="Press e to see it in the editor.")
    try:
        if sys.platform == "win32":
            os.startfile(path)
        else:
            command, nothing = viewer_command(path, cited.get("startPage")), subprocess.DEVNULL
            subprocess.Popen(command, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{path} cannot be opened: {error}", hint="The key e opens the editor.") from error
    return os.path.basename(path)


def viewer_command(path: str, page: int | None) -> list[str]:
    """Return the command line that opens a file; of a PDF at its page, if the viewer that is set for them takes one."""
    if sys.platform == "darwin":
        return ["open", path]
    if page is not None and path.lower().endswith(".pdf") and shutil.which("xdg-mime"):
        query = ["xdg-mime", "query", "default", "application/pdf"]
        default = subprocess.run(query, capture_output=True, text=True, check=False, timeout=5).stdout.lower()
        options = {"evince": "--page-index", "atril": "--page-index", "okular": "--page", "zathura": "--page"}
        for viewer, option in options.items():
            if viewer in default and shutil.which(viewer):
                return [viewer, f"{option}={page}", path]
    return ["xdg-open", path]


def _existing(cited: Json) -> str:
    path = cited.get("path")
    if path is None:
        raise NotFound("This text came from no file.")
    if cited["freshness"] == "unverifiable":
        raise NotFound(f"{path} is a path of another machine, or the file was not adopted.")
    if cited["freshness"] == "missing" or not os.path.isfile(path):
        if re.search(r"[\u2400-\u2421]|⟨U\+", path):
            raise NotFound(f"{path} cannot be opened from here: signs stand for control characters in its name.")
        raise NotFound(f"{path} is no longer there.", hint="Refresh the Library.")
    return path


# ---------------------------------------------------------------- the panes


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list, and what is shown beside it."""

    key: str
    """Tells it from all others, also after a reload."""
    title: Content
    about: Content = field(default_factory=lambda: Content(""))
    group: str = ""
    """The heading above it and its neighbors of that group."""
    record: Any = field(default=None, compare=False)
    """What it represents."""


class Pane(Vertical, Asking):
    """A line to type into, the rows that fit, and the reader; on a narrow screen the reader takes the list's place."""

    LIST_TITLE: ClassVar[str] = ""
    PLACEHOLDER: ClassVar[str] = ""
    EMPTY: ClassVar[str] = ""
    """What to say where nothing is, as the program's own markup: what belongs there, and how to add it."""
    LOOKS_EVERY: ClassVar[float] = 0.0
    """Seconds between two looks at what no change of the file tells of, while the pane is in front; 0 = never."""
    NEEDS_FILE: ClassVar[bool] = True
    """Whether there are no rows without a file."""
    FOLLOWS_TOP: ClassVar[bool] = False
    """Whether the first row stays highlighted when another becomes the first."""
    NEED_ROW: ClassVar[tuple[str, ...]] = ("copy",)
    """Actions on the highlighted row."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down,escape", "list", "List")]

    stale = True
    """Whether it must be reloaded when it comes to the front."""
    rows: Sequence[Row] = ()
    _rows_are_for: str | None = None
    """The text that they answer; None at first."""
    line = query_one("#line", Input)
    list = query_one("#list", Choices)
    reader = query_one("#reader", Reader)

    def compose(self) -> ComposeResult:
        yield TextLine(placeholder=self.PLACEHOLDER, classes="framed", id="line")
        yield Static(id="chips")
        with Horizontal(classes="split"):
            yield Choices(classes="framed left", id="list")
            yield Reader(classes="framed right", id="reader")

    def on_mount(self) -> None:
        def look() -> None:
            if self.app.screen is self.screen and self.display:
                self.reload()

        if self.LOOKS_EVERY:
            self.set_interval(self.LOOKS_EVERY, look)

    @property
    def text(self) -> str:
        """The typed text."""
        return self.line.value.strip()

    @property
    def chosen(self) -> Row | None:
        """The row that is highlighted."""
        option = self.list.highlighted_option if self.rows else None
        return self.rows[int(option.id)] if option is not None and option.id else None

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
        """Show what fits the text now."""
        if self.session.is_open:
            text, may_have_rows = self.text, self.session.exists or not self.NEEDS_FILE
            self.ask("rows", lambda: self.find(text) if may_have_rows else (), self.show_rows)

    def find(self, text: str) -> Sequence[Row]:
        """Return what fits the text; for a thread that may wait."""
        return ()

    @on(Input.Changed, "#line")
    def typed(self) -> None:
        """Reload; the question before is stopped, and its error is over."""
        self.app.post_message(Failed(None))
        self.forget("rows")
        self.reload()

    def focus_first(self) -> None:
        """Put the focus where the person most likely begins."""
        self.action_list()

    @on(Input.Submitted, "#line")
    def action_list(self) -> None:
        """Focus the list, so that letters are keys; where a narrow screen hides it, the words in its place."""
        self.remove_class("-reading")
        is_hidden = self.has_class("-nothing") and self.screen.has_class("-narrow")
        self.call_after_refresh((self.reader if is_hidden else self.list).focus)

    def action_read(self) -> None:
        """Go to the text beside the list."""
        self.add_class("-reading")
        self.call_after_refresh(self.reader.focus)

    async def action_toggle(self, attribute_name: str) -> None:
        """Turn what chooses among the rows on or off, such as `only_errors`."""
        await super().action_toggle(attribute_name)
        self.reload()

    def uncover_reader(self) -> None:
        """Show the text in the list's place where a narrow screen has no room for both."""
        if self.screen.has_class("-narrow"):
            self.action_read()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a row only where there is one, and the way to the list only beside it."""
        if action == "list":
            focused = self.screen.focused
            return focused is self.line or (focused is self.reader and not self.has_class("-nothing"))
        return self.chosen is not None if action in self.NEED_ROW else True

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Put rows into the list; the one that was highlighted stays so if it is still there.

        If it was removed, the one in its place is highlighted; after other words the first.
        """
        text = self.text
        if (list(rows), text) == (list(self.rows), self._rows_are_for):
            return
        place, is_same_text, had_rows = self.list.highlighted or 0, text == self._rows_are_for, bool(self.rows)
        keeps = (is_same_text or not text) and not (self.FOLLOWS_TOP and place == 0)
        key = self.chosen.key if self.chosen is not None and keeps else None
        self.rows, self._rows_are_for = rows, text
        options: list[Option] = []
        for number, row in enumerate(rows):
            if row.group and (number == 0 or rows[number - 1].group != row.group):
                options.append(list_option(row.group, ""))
            options.append(list_option(row.title, str(number)))
        with self.prevent(OptionList.OptionHighlighted):
            self.list.set_options(options)
            places = [n for n, option in enumerate(options) if not option.disabled]
            same = [n for n in places if rows[int(options[n].id or 0)].key == key]
            behind = [n for n in places if n >= place] or places[-1:] if key and is_same_text else []
            self.list.highlighted = next(iter(same or behind or places), None)
        self.list.border_title = self.title()
        self.list.border_subtitle = f"{len(rows):,}" if rows else ""
        if had_rows != bool(rows) or self.has_class("-nothing") == bool(rows):
            self.set_class(not rows, "-nothing")
            self.refresh_bindings()
            if self.screen.focused in (self.list, self.reader):
                self.action_list()
        self.highlighted()

    @on(OptionList.OptionHighlighted, "#list")
    def highlighted(self) -> None:
        """Show the highlighted row beside the list; without any, what belongs there."""
        if self.chosen is not None:
            self.show_row(self.chosen)
        else:
            self.reader.show("", Content.from_markup(self.nothing()))

    def show_row(self, row: Row) -> None:
        """Show a row beside the list."""
        self.reader.show(self.LIST_TITLE, row.about)

    def nothing(self) -> str:
        """Return what to say of an empty list, as the program's own markup."""
        return "[b]Nothing fits[/b]" if self.text else self.EMPTY

    def title(self) -> str:
        """Return the title of the list."""
        return self.LIST_TITLE

    @on(OptionList.OptionSelected, "#list")
    def selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Enter: read the row."""
        self.action_read()
