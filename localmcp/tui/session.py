"""The open file, its model, and background work, kept off the thread that draws; and the messages about them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual.message import Message

from localmcp.config import state_directory
from localmcp.errors import Interrupted, LocalMCPError
from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import list_of, without_none
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.library.jobs import Work
    from localmcp.storage.database import Interruption
    from localmcp.tools import Answer, CallRecord, Scope
    from localmcp.workspace import Workspace

    OnProgress = Callable[[object], None]
    """Takes the progress of work, or a sign of life; raises Interrupted when the work is to stop."""

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOK_SECONDS = 0.4
"""How often the file is asked whether it changed: what another process adds is seen within a second."""
REFRESH = "Refresh"
"""Title of looking at all files again."""


def log_file() -> Path:
    """Return where the TUI writes what happened."""
    return state_directory() / "tui.log"


@dataclass
class Failed(Message):
    """Something went wrong; the app shows it in one line. None: the person goes on, so the last error is over."""

    error: BaseException | None


@dataclass
class FileChanged(Message):
    """Somebody changed what is in the file, or it is reachable again, or there is none yet."""

    counters: dict[str, int]


class StateChanged(Message):
    """The work in the background has moved on, or the file is open: the session has it."""


class ModelLoaded(Message):
    """The model is ready, or cannot be used."""


@dataclass
class JobEnded(Message):
    """A job is done, or failed."""

    title: str
    result: Any
    error: BaseException | None
    then: Callable[[Any], object] | None = None
    """Called with the result; None: the result is a report, which is shown."""


# ---------------------------------------------------------------- the session


class SearchMemory:
    """Searches, in a file of the state directory; one that cannot be used is ignored."""

    recent: list[str]
    """Search lines, the latest first."""
    saved: list[str]

    def __init__(self) -> None:
        self._path = state_directory() / "tui_searches.json"
        self._load()

    def _load(self) -> None:
        """Read what is kept now: another window may have added to it."""
        table = read_json_object(self._path)
        texts = {name: [visible(t) for t in list_of(table.get(name)) if isinstance(t, str)] for name in table}
        self.recent, self.saved = texts.get("recent", []), texts.get("saved", [])

    def remember(self, line: str, *, toggle: bool = False) -> bool:
        """Put a search first among the recent ones; `toggle`: save it, or forget it if it is saved.

        Returns whether it is saved now.
        """
        self._load()
        if not toggle:
            self.recent = [line, *(earlier for earlier in self.recent if earlier != line)][:100]
        elif line in self.saved:
            self.saved.remove(line)
        else:
            self.saved.append(line)
        try:
            table = {"recent": self.recent, "saved": self.saved}
            write_atomically(self._path, json.dumps(table, ensure_ascii=False))
        except OSError as error:
            log.warning("searches are not remembered: %s", error)
        return line in self.saved


class Session:
    """Holds the workspace. `post` hands messages to the app from any thread."""

    def __init__(self, opener: Callable[[], Workspace], path: Path, post: Callable[[Message], object]) -> None:
        self._opener = opener
        self._send = post
        self.path = path
        self.memory = SearchMemory()
        self.model_loading = True
        self.has_model = True
        """False once it cannot be loaded."""
        self.job = ""
        """Title of the work in the background; empty when there is none."""
        self.works: list[Work] = []
        """Background work on the file, in any process."""
        self.questions: dict[tuple[object, str], tuple[Interruption, float]] = {}
        """Without an answer: (widget, group) -> what stops it, and when it was asked, by the monotonic clock."""
        self._workspace: Workspace | None = None
        self._error: BaseException | None = None
        self.stops_job = threading.Event()
        """Set to stop the running job after its current file; what was done stays."""
        self._ready, self._closed, self._one_job = threading.Event(), threading.Event(), threading.Lock()

    def _post(self, message: Message) -> None:
        if not self._closed.is_set():
            self._send(message)

    def start(self) -> None:
        """Open the workspace in a thread, after the first paint: its modules take 0.2 s to import."""
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        def load_model() -> None:
            try:
                self.workspace.embedder.get()
            except LocalMCPError as error:
                log.warning("no model: %s", error)
                self.has_model = False
            self.model_loading = False
            self._post(ModelLoaded())

        try:
            self._workspace = self._opener()
        except Exception as error:
            self._error = error
            self._post(Failed(error))
        self._ready.set()
        if self._workspace is not None:
            self._post(StateChanged() if self.exists else FileChanged({}))
            threading.Thread(target=load_model, daemon=True).start()
            self._watch(self._workspace)

    @property
    def is_open(self) -> bool:
        """Whether `workspace` answers at once."""
        return self._ready.is_set() and self._workspace is not None

    @property
    def workspace(self) -> Workspace:
        """The workspace, for threads that may wait; raises LocalMCPError if it could not be opened."""
        self._ready.wait()
        if self._workspace is None:
            raise self._error or LocalMCPError("The file is not open.")
        return self._workspace

    @property
    def exists(self) -> bool:
        """Whether there is a file yet; looking around makes none."""
        return self.path.exists()

    def why_read_only(self) -> str:
        """Return why the file cannot be changed; empty when it can."""
        try:
            self.workspace.database.ensure_writable()
        except LocalMCPError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Close the file, once the work that was asked to stop has stopped, or a second later."""
        self._closed.set()
        if self._one_job.acquire(timeout=1.0):
            self._one_job.release()
        if self._workspace is not None:
            self._workspace.close()

    @property
    def scope(self) -> Scope:
        """The scope of the person at the machine, who may see everything."""
        from localmcp.tools import Scope

        return Scope(caller="tui")

    def call(self, tool: str, /, *, lean: bool = False, **arguments: Any) -> Answer:
        """Call a tool through the registry; arguments that are None are left out. `lean`: as a language model does."""
        return self.workspace.registry.call(tool, without_none(arguments), replace(self.scope, lean=lean))

    def read(self, tool: str, /, **arguments: Any) -> Any:
        """Return the answer of a tool that only looks, without a line in the log of calls."""
        return self.draft(tool, **arguments)[0].value

    def draft(self, tool: str, /, *, lean: bool = False, **arguments: Any) -> tuple[Answer, CallRecord]:
        """Call a tool while the person types: `keep` logs the call once the answer is used."""
        from localmcp.tools import CallRecord, use_scope

        values, started, clock = without_none(arguments), time.time(), time.perf_counter()
        registry = self.workspace.registry
        try:
            with use_scope(replace(self.scope, lean=lean)):
                answer = registry.get(tool).call(values)
        except Exception as error:
            if explained := registry.explain(error):
                raise explained from error
            raise
        return answer, CallRecord(tool, values, self.scope, started, time.perf_counter() - clock, None, answer)

    def keep(self, draft: CallRecord) -> None:
        """Log a draft as a call: the person uses its answer."""
        for observe in self.workspace.registry.observers:
            observe(draft)

    def look(self, work: Callable[[Workspace], T]) -> T:
        """Read something for the person at the machine, without a line in the log of calls."""
        from localmcp.tools import use_scope

        with use_scope(self.scope):
            return work(self.workspace)

    def _watch(self, workspace: Workspace) -> None:
        from localmcp.library.jobs import work_on

        database = workspace.database
        seen: tuple[dict[str, int], int] | None = None
        problem = ""
        while not self._closed.is_set():
            try:
                if database.is_open or self.exists:
                    now = database.counters(), self.path.stat().st_ino
                    if seen is not None and seen[1] != now[1]:
                        # Another file took its place: the connections still read the old one.
                        database.close()
                        now = database.counters(), now[1]
                    workspace.upkeep.start()
                    with database.read() as connection:
                        works = work_on(connection)
                    # It is reachable again only when all of it could be read.
                    if now != seen or problem:
                        self._post(FileChanged(now[0]))
                    seen = now
                    if works != self.works:
                        self.works = works
                        self._post(StateChanged())
                problem = ""
            except Exception as error:
                if str(error) != problem:
                    self._post(Failed(error))
                problem = str(error)
            self._closed.wait(LOOK_SECONDS)

    def do(self, title: str, work: Callable[[OnProgress], Any], then: Callable[[Any], object] | None = None) -> None:
        """Run `work` after the running job, then `then` with its result; posts `StateChanged`, `JobEnded`."""

        def tell(_progress: object) -> None:
            if self.stops_job.is_set() or self._closed.is_set():
                raise Interrupted(f"{title} was stopped.")

        def run() -> None:
            with self._one_job:
                if self._closed.is_set():
                    return
                self.stops_job.clear()
                self.job = title
                self._post(StateChanged())
                result, failure = None, None
                try:
                    result = work(tell)
                except Exception as error:
                    failure = error
                self.job = ""
                self._post(JobEnded(title, result, failure, then))

        threading.Thread(target=run, daemon=True).start()

    def refresh(self, *, confirmed: bool = False) -> None:
        """Look again at everything that was added; `confirmed`: many files are gone on purpose."""
        self.do(REFRESH, lambda tell: self.workspace.library.refresh(confirm_removals=confirmed, progress=tell))
