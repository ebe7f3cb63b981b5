"""The open file, its model, and background work, kept off the thread that draws."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textual.message import Message
from textual.widget import Widget

from localmcp.config import state_directory
from localmcp.errors import Interrupted, LocalMCPError
from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import list_of, mapping_of, without_none
from localmcp.tui import messages
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.doctor.check import Check
    from localmcp.library import background
    from localmcp.library.report import Progress
    from localmcp.tools import Answer, Scope
    from localmcp.workspace import Workspace

    OnProgress = Callable[[Progress | None], None]
    """Takes the progress of work, or None for a sign of life; raises Interrupted when the work is to stop."""
    Work = Callable[[OnProgress], Any]
    """Long work: reports its progress by the callback, and returns its result."""

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOK_SECONDS = 0.4
"""How often the file is asked whether it changed: what another process adds is seen within a second."""

CLOSING_SECONDS = 1.0
"""How long closing waits for a job to stop."""
LOOKS_FOR_WORK = 2
"""Background work is looked at every second time."""


REFRESH = "Refresh"
"""Title of looking at all files again."""


MOST_SEARCHES, MOST_POSITIONS = 100, 500


class SearchMemory:
    """Lists in a file of the state directory; one that cannot be read or written is ignored."""

    def __init__(self) -> None:
        self._path = state_directory() / "tui_searches.json"
        self.recent: list[str] = []
        """The latest first."""
        self.saved: list[str] = []
        self.positions: dict[str, int] = {}
        """Source id -> the passage at the top of the reader."""
        self._load()

    def _load(self) -> None:
        """Read what is kept now: another window may have added to it."""
        table = read_json_object(self._path)
        self.recent, self.saved = _texts(table.get("recent")), _texts(table.get("saved"))
        positions = mapping_of(table.get("positions"))
        self.positions = {key: value for key, value in positions.items() if isinstance(value, int)}

    def remember(self, line: str) -> None:
        """Put a search first among the recent ones."""
        self._load()
        self.recent = [line, *(earlier for earlier in self.recent if earlier != line)][:MOST_SEARCHES]
        self._write()

    def toggle_saved(self, line: str) -> bool:
        """Save a search, or forget it if it is saved; returns whether it is saved now."""
        self._load()
        is_saved = line in self.saved
        self.saved = [other for other in self.saved if other != line] if is_saved else [*self.saved, line]
        self._write()
        return not is_saved

    def remember_position(self, source_id: str, passage: int) -> None:
        """Keep which passage of a document is at the top of the reader."""
        self._load()
        self.positions.pop(source_id, None)
        self.positions[source_id] = passage
        self.positions = dict(list(self.positions.items())[-MOST_POSITIONS:])
        self._write()

    def _write(self) -> None:
        table = {"recent": self.recent, "saved": self.saved, "positions": self.positions}
        try:
            write_atomically(self._path, json.dumps(table, ensure_ascii=False))
        except OSError as error:
            log.warning("searches are not remembered: %s", error)


def _texts(value: Any) -> list[str]:
    return [visible(item) for item in list_of(value) if isinstance(item, str)]


@dataclass(slots=True)
class Draft:
    """An answer to a question that is still being typed."""

    tool: str
    arguments: dict[str, Any]
    answer: Answer
    started_at: float
    seconds: float
    is_kept: bool = False
    """Whether it is in the log of calls."""


class Session:
    """Holds the workspace. `post` hands messages to the app from any thread."""

    def __init__(self, opener: Callable[[], Workspace], path: Path, post: Callable[[Message], object]) -> None:
        self._opener = opener
        self._send = post
        self.path = path
        self.memory = SearchMemory()
        self.model_loading = True
        self.job = ""
        """Title of the work in the background; empty when there is none."""
        self._workspace: Workspace | None = None
        self._error: BaseException | None = None
        self._worker: threading.Thread | None = None
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._stops_job = threading.Event()
        self._jobs: SimpleQueue[tuple[str, Work, Callable[[Any], object] | None] | None] = SimpleQueue()
        """Jobs in the order they were asked for; None ends the worker."""
        self.findings: list[Check] = []
        """What the last checks found wrong."""
        self.works: list[background.Work] = []
        """Background work on the file, in any process."""

    def _post(self, message: Message) -> None:
        if not self._closed.is_set():
            self._send(message)

    # ------------------------------------------------------------ opening

    def start(self) -> None:
        """Open the workspace in a thread, after the first paint: its modules take 0.2 s to import."""
        self._worker = threading.Thread(target=self._do_jobs, name="localmcp-tui-jobs", daemon=True)
        self._worker.start()
        threading.Thread(target=self._open, name="localmcp-tui-open", daemon=True).start()

    def _open(self) -> None:
        try:
            self._workspace = self._opener()
        except Exception as error:
            self._error = error
        self._ready.set()
        self._post(messages.Opened(self._error))
        if self._workspace is not None:
            threading.Thread(target=self._load_model, name="localmcp-tui-model", daemon=True).start()
            self._watch()

    def _load_model(self) -> None:
        problem = ""
        try:
            self.workspace.embedder.get()
        except LocalMCPError as error:
            problem = str(error)
        self.model_loading = False
        self._post(messages.ModelChanged(problem))

    @property
    def is_open(self) -> bool:
        """Whether `workspace` answers at once."""
        return self._ready.is_set() and self._workspace is not None

    @property
    def workspace(self) -> Workspace:
        """The workspace, waiting for it to open. For threads that may wait.

        Raises:
            LocalMCPError: it could not be opened.
        """
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
        """Close the file, once the work that was asked to stop has stopped."""
        self._closed.set()
        self._jobs.put(None)  # the worker may be waiting for a job
        if self._worker is not None and self.job:
            self._worker.join(CLOSING_SECONDS)
        if self._workspace is not None:
            self._workspace.close()

    # ------------------------------------------------------------ asking

    @property
    def scope(self) -> Scope:
        """The person at the machine."""
        from localmcp.tools import Scope

        return Scope(caller="tui")

    def answer(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool through the registry; arguments that are None are left out."""
        return self.workspace.registry.call(tool, without_none(arguments), self.scope)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured answer of a tool."""
        return self.answer(tool, **arguments).value

    def draft(self, tool: str, **arguments: Any) -> Draft:
        """Call a tool while the person types; `keep` logs the call once the answer is used.

        Raises:
            LocalMCPError: what the tool raises.
        """
        values = without_none(arguments)
        started, clock = time.time(), time.perf_counter()
        registry = self.workspace.registry
        if registry.refusal is not None:
            raise registry.refusal
        try:
            answer = self.look(lambda _workspace: registry.get(tool).call(values))
        except LocalMCPError:
            raise
        except Exception as error:
            raise (registry.explain(error) or error) from error
        return Draft(tool, values, answer, started, time.perf_counter() - clock)

    def keep(self, draft: Draft) -> None:
        """Log a draft as a call, once: the person uses its answer."""
        from localmcp.tools import CallRecord

        if draft.is_kept:
            return
        draft.is_kept = True
        call = (draft.tool, draft.arguments, self.scope, draft.started_at, draft.seconds, None, draft.answer)
        for observe in self.workspace.registry.observers:
            observe(CallRecord(*call))

    def look(self, work: Callable[[Workspace], T]) -> T:
        """Read something for the person at the machine, without a line in the log of calls."""
        from localmcp.tools import use_scope

        with use_scope(self.scope):
            return work(self.workspace)

    def _watch(self) -> None:
        """Notify the app whenever the counters of the file change, and when it cannot be read."""
        watch = _Watch(self.workspace)
        seconds = 0.0
        while not self._closed.wait(seconds):
            seconds = LOOK_SECONDS
            try:
                counters, works = watch.look(), watch.works()
            except Exception as error:
                if watch.is_news(error):
                    self._post(messages.Failed(error))
                continue
            if counters is not None:
                self._post(messages.FileChanged(counters))
            if works is not None:
                self.works = works
                self._post(messages.BackgroundChanged(works))

    # ------------------------------------------------------------ work in the background

    def do(self, title: str, work: Work, then: Callable[[Any], object] | None = None) -> None:
        """Run `work` after the waiting jobs, then `then` with its result; posts `JobMoved`, `JobEnded`."""
        self._jobs.put((title, work, then))

    def refresh(self, *, confirmed: bool = False) -> None:
        """Look again at everything that was added; `confirmed`: many files are gone on purpose."""

        def work(on_progress: OnProgress) -> Any:
            return self.workspace.library.refresh(confirm_removals=confirmed, progress=on_progress)

        self.do(REFRESH, work)

    def _do_jobs(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed.is_set():
            title, work, then = job
            self._stops_job.clear()
            self.job = title
            self._post(messages.JobMoved(title))
            result, failure = None, None
            try:
                result = work(partial(self._on_progress, title))
            except Exception as error:
                failure = error
            self.job = ""
            self._post(messages.JobEnded(title, result, failure, then))

    def stop_job(self) -> None:
        """Stop the running job after its current file; what was done stays."""
        self._stops_job.set()

    def stop_work(self, work: background.Work) -> None:
        """Stop background work on the file; for a thread that may wait."""
        from localmcp.library import background

        if work.job_id:
            background.stop(self.workspace.database, work.job_id)
        else:
            self.workspace.upkeep.stop()

    def _on_progress(self, title: str, progress: Progress | None) -> None:
        if self._stops_job.is_set() or self._closed.is_set():
            raise Interrupted(f"{title} was stopped.")
        if progress is not None:
            self._post(messages.JobMoved(title, progress))


def no_progress(progress: Progress | None) -> None:
    """Take the progress of work that nobody watches."""


def adopt_file(session: Session, path: str) -> str:
    """Allow changes to a file that another machine made; returns what was dropped of it.

    Raises:
        LocalMCPError: it cannot be adopted.
    """
    from localmcp.storage.adoption import adopt

    dropped = adopt(path)
    # The next connection looks again whether the file may be changed.
    session.workspace.database.close()
    return f"Adopted {path}. {dropped.sentence()}".rstrip()


def session_of(widget: Widget) -> Session:
    """Return the session of the app that shows a widget."""
    return cast(Any, widget.app).session


class _Watch:
    """Notices changes of a file, and that another file took its place."""

    def __init__(self, workspace: Workspace) -> None:
        self._database = workspace.database
        self._upkeep = workspace.upkeep
        self._last: dict[str, int] | None = None
        self._identity: tuple[int, int] | None = None
        self._error = ""
        self._works: list[background.Work] = []
        self._looks = 0

    def works(self) -> list[background.Work] | None:
        """Return the background work on the file if it changed since the last look; else None."""
        self._looks += 1
        if self._looks % LOOKS_FOR_WORK or not self._database.is_open:
            return None
        from localmcp.library.background import work_on

        with self._database.read() as connection:
            before, self._works = self._works, work_on(connection)
        return self._works if self._works != before else None

    def look(self) -> dict[str, int] | None:
        """Return the counters, if they changed since the last look.

        Raises:
            FileUnavailable: the file is gone or cannot be read.
        """
        path = self._database.path
        if not self._database.is_open and not path.exists():
            # Opening it would make the file.
            return None
        counters = self._database.counters()
        status = path.stat()
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity):
            # Another file took its place: the connections still read the old one.
            self._database.close()
            counters = self._database.counters()
        self._identity = identity
        self._upkeep.start()
        changed = counters != self._last or self._error
        self._last, self._error = counters, ""
        return counters if changed else None

    def is_news(self, error: Exception) -> bool:
        """Return whether this error differs from the one before."""
        before, self._error = self._error, str(error)
        return before != self._error
