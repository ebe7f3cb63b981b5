"""What the parts of the TUI tell each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from localmcp.knowledge.background import Work
    from localmcp.knowledge.inventory import Item
    from localmcp.knowledge.report import Progress
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
    what: str


@dataclass
class Failed(Message):
    """Something went wrong; the app shows it in one line."""

    error: BaseException


@dataclass
class Opened(Message):
    """The file is open, or it is not there yet."""

    error: BaseException | None = None


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
    """Work in the background waits for its turn, begins, or is further; `progress` is None until it can be told."""

    title: str
    progress: Progress | None = None


@dataclass
class JobEnded(Message):
    """Work in the background is done, or failed."""

    title: str
    result: Any
    error: BaseException | None
    then: Callable[[Any], object] | None = None
    """What is done with the result; None: it is a report, which is told."""


@dataclass
class BackgroundChanged(Message):
    """What goes on behind the file, whichever process does it."""

    works: list[Work]


@dataclass
class QuestionChanged(Message):
    """The person typed on: what went wrong with the last question is over."""


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
