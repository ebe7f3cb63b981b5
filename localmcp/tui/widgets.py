"""What panes and dialogs are made of: questions that run in threads, text that is safe to draw, lists, a reader."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from rich.cells import cell_len
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
from localmcp.humanize import counted, headings_of
from localmcp.schemas import Json
from localmcp.tui.session import Failed, Question, Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.lists import Inventory
    from localmcp.storage.database import Database
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


# ---------------------------------------------------------------- passages

FRESHNESS = {"fresh": "as it was read", "changed": "✎ changed since", "missing": "○ file is gone"}


class Matcher:
    """Recognizes the words of a query in a text of one language, as the keyword index does."""

    def __init__(self, result: Json, hit: Json) -> None:
        """The words are those of a search with `explain`, the language is that of one of its hits."""
        searched = [form for term in result["explain"]["terms"] for form in term["searchedAs"]]
        self._searched = {part for phrase in searched for part in phrase.split()}
        self._language = hit["explain"]["language"]
        self._stems_by_run: dict[str, set[str]] = {}

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, stop) of each word that was searched for."""
        # Stemming takes time that the first paint has not.
        from localmcp.wording.normalize import stem, words

        spans: list[tuple[int, int]] = []
        for run in re.finditer(r"\w+", text):
            if run[0] not in self._stems_by_run:
                self._stems_by_run[run[0]] = {stem(word, self._language) for word in words(run[0])} & self._searched
            spans += [run.span()] if self._stems_by_run[run[0]] else []
        return spans


def look_around(workspace: Workspace, chunk_id: str, window: int) -> Json:
    """Return the answer of `get_context` with the `format` of the document: which reader made its text."""
    from localmcp.index.federation import split_name

    around: Any = workspace.knowledge.get_context(chunk_id, window)
    inventory = inventory_of(workspace, around.get("origin"))
    return {**around, "format": inventory.format_of(split_name(around["sourceId"])[1])}


def inventory_of(workspace: Workspace, origin: str | None) -> Inventory:
    """Return the inventory of a mounted file, or yours for None.

    Raises:
        NotFound: it is no longer mounted.
    """
    from localmcp.library.lists import Inventory

    return workspace.inventory if origin is None else Inventory(database_of(workspace, origin))


def database_of(workspace: Workspace, origin: str | None) -> Database:
    """Return a mounted file, or yours for None; raises as `inventory_of`."""
    if origin is None:
        return workspace.database
    from localmcp.index.federation import Wanted

    return next(workspace.federation.look(lambda index, _: index.database, origin, Wanted()))


# ---------------------------------------------------------------- lines of a list


def hit_title(number: int | None, hit: Json, matcher: Matcher, columns: int) -> Content:
    """Return a hit in three lines: its number, score and title, its place, and the line that answers.

    Without a number it is a further hit of the document above it, in two lines.
    """
    heading, score = headings_of(hit).rpartition(" › ")[2], (bar(hit["combinedScore"]), "$accent")
    if number is None:
        shown = [Content.assemble("    ", score, " ", (heading or lines_of(hit["citation"]), "$muted"))]
    else:
        title = " ".join(hit["sourceTitle"].split())
        if heading and cell_len(title) + cell_len(heading) + 12 > columns:
            title = cut(title, max(columns - cell_len(heading) - 12, columns // 2))
        copies = f"  +{counted(len(hit['alsoIn']), 'place')}" if "alsoIn" in hit else ""
        fresh = f"  {FRESHNESS[hit['freshness']]}" if hit["freshness"] in ("changed", "missing") else ""
        origin = f"  {hit['origin']}, read-only" if "origin" in hit else ""
        place, space = place_of(hit["citation"]), columns - 4 - len(copies) - len(fresh) - len(origin)
        if cell_len(place) > space:
            # Both ends of a path say more than its beginning.
            ends = max(space - 1, 2)
            place = f"{place[: ends // 3]}…{place[ends // 3 - ends :]}"
        shown = [
            Content.assemble((f"{number:>3} ", "$muted"), score, " ", (title, "bold"),
                             (f" › {heading}" if heading else "", "$muted")),
            Content.assemble("    ", (place, "$secondary"), (copies, "$muted"), (fresh, "$warning"),
                             (origin, "$accent")),
        ]  # fmt: skip
    # From the sentence that answers on, or from a word that was searched for further on.
    columns -= 4
    start = hit.get("highlight", {}).get("start", 0)
    text = running_text(hit["content"][start:]) or running_text(hit["content"])
    spans = matcher.spans(text[: 10 * columns])
    if spans and spans[0][1] > columns:
        first = text.find(" ", max(spans[0][0] - columns // 3, 0), spans[0][0]) + 1 or spans[0][0]
        text = f"… {text[first:]}"
    answer = Content.styled(text[: 2 * columns], "$foreground")
    for start, stop in matcher.spans(answer.plain):
        answer = answer.stylize("bold $accent underline", start, stop)
    return Content("\n").join([*shown, Content("    ") + answer])


def running_text(text: str) -> str:
    """Return a passage as one paragraph without headings, rules and marks, if anything is left.

    Of a table, `| Flour | 400 g |` is `Flour · 400 g`.
    """
    shown = [line.strip() for line in text.splitlines() if line[:1] != "#" and line.strip("|:-= ")]
    for number, line in enumerate(shown):
        if line.endswith("|"):
            cells = (cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line))
            shown[number] = " · ".join(filter(None, cells))
    words = " ".join(line.removeprefix("- ") for line in shown)
    return " ".join(words.replace("**", "").split()) or " ".join(text.split())


# ---------------------------------------------------------------- pieces


def bar(score: float, width: int = 5) -> str:
    """Return 0..100 as `▰▰▰▱▱`."""
    full = max(0, min(width, round(score / 100 * width)))
    return "▰" * full + "▱" * (width - full)


def cut(text: str, columns: int) -> str:
    """Return the beginning of a text that does not fit."""
    return Content(text).truncate(max(columns, 2), ellipsis=True).plain


def lines_of(citation: Json) -> str:
    """Return `line 3`, or `lines 3–7`."""
    first, last = citation["startLine"], citation["endLine"]
    return f"line {first}" if first == last else f"lines {first}–{last}"


def place_of(citation: Json) -> str:
    """Return `docs/lag.md:12`, short where the file is below the working directory or the home folder."""
    path = citation.get("path")
    if not path:
        return visible(citation["label"])
    # Headings behind the line are in the title.
    return short(path) + citation["label"][len(path) :].partition(" › ")[0]


def short(path: str) -> str:
    """Return a path in one line: below the working directory without it, below the home folder with `~`."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~" + os.sep)):
        if path.startswith(folder.rstrip(os.sep) + os.sep):
            return visible(sign + path[len(folder.rstrip(os.sep)) + 1 :])
    return visible(path)


def citation_text(title: str, citation: Json) -> str:
    """Return what `y` copies: `Boiler manual › Faults (docs/boiler.md:12)`."""
    headings = [heading for heading in citation.get("heading", "").split(" › ") if heading and heading != title]
    return f"{' › '.join([title, *headings])} ({citation['label']})"
