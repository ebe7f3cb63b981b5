"""The tools with which collections are copied to Milvus and back; found by `tool_search`, not listed."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from localmcp.index.replicas import Replica
from localmcp.records.outgoing import Copied, Progress
from localmcp.records.replication import Replication
from localmcp.tools import Json, Param, current_scope, hidden_change, hidden_tool, progress_listener

WAIT_SECONDS = 20.0
"""A tool answers within this time, finished or not."""
GOES_ON = "It goes on; ask replication_status, or call this again."


class CopyState(TypedDict):
    """Status of one collection's copy."""

    collection: str
    backend: str
    name: str
    state: Literal["copying", "following"]
    searchesUseIt: bool
    """The vector arm of search and retriever is Milvus."""
    model: str
    pendingChanges: int
    pushedAt: str | None
    problem: str | None
    running: NotRequired[dict[str, Any]]


class ReplicationStatus(TypedDict):
    """Every copy, and the server."""

    server: str | None
    copies: list[CopyState]
    pulls: list[dict[str, Any]]


class PushResult(TypedDict):
    """What a push came to."""

    status: Literal["done", "running"]
    collection: str
    name: str
    vectors: int
    sent: NotRequired[int]
    indexed: NotRequired[bool]
    total: NotRequired[int]
    message: NotRequired[str]


class PullResult(TypedDict):
    """What a pull came to."""

    status: Literal["done", "running"]
    collection: str
    read: int
    total: NotRequired[int]
    added: NotRequired[int]
    updated: NotRequired[int]
    unchanged: NotRequired[int]
    trashed: NotRequired[int]
    empty: NotRequired[int]
    incomplete: NotRequired[int]
    notices: NotRequired[list[str]]
    message: NotRequired[str]


class StopResult(TypedDict):
    """What ending a replication came to."""

    collection: str
    name: str
    dropped: bool


CollectionName = Annotated[str, Param("The collection", min_length=1, max_length=100)]


class ReplicationTools:
    """Replication, as assistants may use it."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._tasks: dict[tuple[str, str, bool], _Task] = {}
        """By kind, collection, and whether the caller may see that: who may not joins nobody, and is refused."""
        self._lock = threading.Lock()

    @hidden_change(
        "push_collection",
        title="Copy a collection to Milvus",
        keywords=("milvus", "push", "replicate", "cluster", "export", "vectors", "scale"),
        examples=("push|copy|replicate the collection {collection} to milvus",),
        idempotent=True,
        open_world=True,
    )
    def push_collection(
        self,
        collection: CollectionName,
        name: Annotated[str | None, Param("What it is called in Milvus; the same by default", max_length=100)] = None,
    ) -> PushResult:
        """Copy a collection's vectors, texts and metadata to the Milvus server of the settings, and search it there
        from then on; later changes follow. Call it again to go on where it was stopped, or to check the copy."""
        task = self._run("push", collection, lambda tell: self._replication.push(collection, name, tell))
        if task.result is None:
            return {
                "status": "running",
                "collection": collection,
                "name": name or collection,
                "vectors": task.done,
                "total": task.total,
                "message": GOES_ON,
            }
        copied: Copied = task.result
        return {
            "status": "done",
            "collection": copied.replica.collection,
            "name": copied.replica.name,
            "vectors": copied.total,
            "sent": copied.sent,
            "indexed": copied.indexed,
        }

    @hidden_change(
        "pull_collection",
        title="Copy a collection from Milvus",
        keywords=("milvus", "pull", "import", "vectors", "cluster", "restore"),
        examples=("pull|import|copy the collection {collection} from milvus",),
        idempotent=True,
        open_world=True,
    )
    def pull_collection(
        self,
        collection: Annotated[str, Param("The collection in Milvus", min_length=1, max_length=255)],
        name: Annotated[str | None, Param("What it is called here; the same by default", max_length=100)] = None,
        assumeModel: Annotated[
            bool, Param("Its vectors come from the model at hand, though it does not say so")
        ] = False,
    ) -> PullResult:
        """Copy a collection from the Milvus server of the settings into the file: documents that are not here are
        added, those that differ are put right."""
        task = self._run(
            "pull",
            collection,
            lambda tell: self._replication.pull(collection, name, assume_model=assumeModel, progress=tell),
        )
        if task.result is None:
            running: PullResult = {"status": "running", "collection": name or collection, "read": task.done}
            return {**running, "total": task.total, "message": GOES_ON}
        return {"status": "done", **asdict(task.result)}  # pyright: ignore[reportReturnType]

    @hidden_change(
        "stop_replication",
        title="Search a collection locally again",
        keywords=("milvus", "stop", "local", "replica", "unlink"),
        examples=("stop replicating the collection {collection} to milvus", "search {collection} locally again"),
        destructive=True,
        idempotent=True,
        open_world=True,
    )
    def stop_replication(
        self,
        collection: CollectionName,
        drop: Annotated[bool, Param("Delete the copy in Milvus, too")] = False,
    ) -> StopResult:
        """End the copy of a collection in Milvus: it is searched in the file again, and changes no longer follow."""
        replica = self._replication.stop(collection, drop=drop)
        return {"collection": replica.collection, "name": replica.name, "dropped": drop}

    @hidden_tool(
        "replication_status",
        title="Status of the copies in Milvus",
        keywords=("milvus", "replica", "status", "sync", "pending", "push", "pull"),
        examples=("is milvus up to date", "how far is the copy to milvus", "which collections are in milvus"),
    )
    def replication_status(self) -> ReplicationStatus:
        """Tell which collections have a copy in Milvus, whether searches use it, what still waits to be sent, and
        why."""
        copies = [_describe(copy) for copy in self._replication.copies()]
        for copy in copies:
            task = self._tasks.get(("push", copy["collection"].casefold(), True))
            if task is not None and not task.finished.is_set():
                copy["running"] = task.describe()
        scope = current_scope().collections
        pulls = [
            {"collection": name, **task.describe()}
            for (kind, name, _), task in self._tasks.items()
            if kind == "pull" and (scope is None or name in scope)
        ]
        return {"server": self._replication.server, "copies": copies, "pulls": pulls}

    def _run(self, kind: str, collection: str, work: Callable[[Progress], Any]) -> _Task:
        """Work in a separate thread, or join the one that is at it; wait a while for its end."""
        allowed = current_scope().collections
        is_visible = allowed is None or collection.casefold() in map(str.casefold, allowed)
        key = (kind, collection.casefold(), is_visible)
        with self._lock:
            task = self._tasks.get(key)
            if task is None or task.finished.is_set():
                task = self._tasks[key] = _Task()
                # The thread keeps the caller's scope.
                context = contextvars.copy_context()
                threading.Thread(
                    target=context.run, args=(task.run, work), name=f"localmcp-{kind}", daemon=True
                ).start()
        task.finished.wait(WAIT_SECONDS)
        if task.error is not None:
            raise task.error
        return task


@dataclass(slots=True)
class _Task:
    """A push or pull that a tool has begun."""

    done: int = 0
    total: int = 0
    result: Any = None
    error: Exception | None = None
    finished: threading.Event = field(default_factory=threading.Event)

    def run(self, work: Callable[[Progress], Any]) -> None:
        try:
            self.result = work(self.tell)
        except Exception as error:
            self.error = error
        finally:
            self.finished.set()

    def tell(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        # The thread works in the context of the call that began it.
        progress_listener()(done, total, "copying vectors")

    def describe(self) -> Json:
        status = "failed" if self.error else "done" if self.finished.is_set() else "running"
        progress: Json = {"status": status, "done": self.done, "total": self.total}
        return {**progress, "problem": str(self.error)} if self.error else progress


def _describe(replica: Replica) -> CopyState:
    return {
        "collection": replica.collection,
        "backend": replica.backend,
        "name": replica.name,
        "state": replica.state,
        "searchesUseIt": replica.ready,
        "model": replica.model,
        "pendingChanges": replica.pending,
        "pushedAt": replica.pushed_at,
        "problem": replica.problem,
    }
