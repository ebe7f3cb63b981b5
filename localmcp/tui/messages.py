"""The messages between the parts of the TUI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from localmcp.library.background import Work
    from localmcp.library.inventory import Item
    from localmcp.library.report import Progress
    from localmcp.storage.interruption import Interruption


@dataclass
class Answered(Message):
    """A question that a pane asked in a thread has its answer."""

    question: Interruption
    group: str
    then: Callable[[Any], object]
    answer: Any
    bubble = False


@dataclass
class Waiting(Message):
    """The answer to a question takes long enough to say so."""

    question: Interruption
    waited_for: str


@dataclass
class Failed(Message):
    """Something went wrong; the app shows it in one line."""

    error: BaseException


@dataclass
class Opened(Message):
    """The file was opened, or could not be."""

    error: BaseException | None


@dataclass
class FileChanged(Message):
    """Somebody changed what is in the file, or it is reachable again."""

    counters: dict[str, int]


@dataclass
class ModelChanged(Message):
    """The embedding model is ready, or cannot be used."""

    problem: str = ""


@dataclass
class JobMoved(Message):
    """A job waits, begins, or has moved on; `progress` is None until it is known."""

    title: str
    progress: Progress | None = None


@dataclass
class JobEnded(Message):
    """A job is done, or failed."""

    title: str
    result: Any
    error: BaseException | None
    then: Callable[[Any], object] | None = None
    """Called with the result; None: the result is a report, which is shown."""


@dataclass
class BackgroundChanged(Message):
    """The background work on the file, of any process, has changed."""

    works: list[Work]


@dataclass
class QuestionChanged(Message):
    """The person typed on, so the error of the last question no longer matters."""


@dataclass
class ReadDocument(Message):
    """Open a document in the reader, where it was left."""

    item: Item
    origin: str | None = None
    """The mounted file that it is in."""


@dataclass
class SearchFor(Message):
    """Show this query in the Search pane."""

    query: str
