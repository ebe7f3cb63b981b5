"""Collections on a Milvus server: which there are, and the tools that copy a collection there and back."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired

import apsw
from typing_extensions import TypedDict

from localmcp.errors import ConfigurationError, InvalidInput, NotFound
from localmcp.index.backend import Record
from localmcp.index.collections import Collection, choose_collections
from localmcp.milvus.backend import MilvusBackend
from localmcp.models import LazyEmbedder
from localmcp.records.chunk_records import LIVE_CHUNKS, load_records
from localmcp.records.incoming import Progress, Pulled, Receiver
from localmcp.storage.database import Database, fetch_column, fetch_one
from localmcp.tools import Param, current_scope, hidden_change, progress_listener

BATCH = 500
WAIT_SECONDS = 20.0
"""A tool answers within this time, finished or not."""
INDEX_SECONDS = 600
"""How long a push waits until what was sent is indexed; a server needs half a minute for ten thousand."""
COMPARED_ANYWAY = 4000
"""Vectors without an index that a server compares one by one."""
GOES_ON = "It goes on; call this again to see how far it is."
NO_MILVUS = "Set one with: localmcp config set milvus_address http://HOST:19530   (or MILVUS_ADDRESS)"


class Pushed(TypedDict):
    """What a push came to."""

    status: Literal["done", "running"]
    collection: str
    name: str
    vectors: int
    """Vectors that are there."""
    sent: NotRequired[int]
    """Vectors sent or deleted there this time."""
    indexed: NotRequired[bool]
    """Milvus has indexed all of it; until then searches find less."""
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


class MilvusCopies:
    """One file's collections and one Milvus. Thread-safe; contacts the server only when it is asked to."""

    def __init__(self, database: Database, milvus: MilvusBackend | None, embedder: LazyEmbedder) -> None:
        self.milvus = milvus
        self._database = database
        self._embedder = embedder
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._models: dict[str, str] = {}
        self._lock = threading.Lock()

    def has(self, name: str) -> bool:
        """Return whether the server has a collection of that name, and the scope may see it.

        Raises:
            Unavailable, AccessDenied: the server does not tell.
        """
        allowed = current_scope().collections
        if self.milvus is None or (allowed is not None and name not in allowed):
            return False
        return name in self.milvus.collections()

    def model_of(self, name: str) -> str:
        """Return `name#fingerprint` of the model of a collection on the server; empty when it was not told.

        Asked once, because describing a collection counts what is in it.
        """
        if name not in self._models:
            self._models[name] = self._server().describe(name).model
        return self._models[name]

    # ------------------------------------------------------------ push

    @hidden_change(
        "push_collection",
        title="Copy a collection to Milvus",
        keywords=("milvus", "push", "cluster", "export", "vectors", "scale"),
        examples=("push|copy the collection {collection} to milvus",),
        idempotent=True,
        open_world=True,
    )
    def push_collection(
        self,
        collection: Annotated[str, Param("The collection", min_length=1, max_length=100)],
        name: Annotated[str | None, Param("What it is called in Milvus; the same by default", max_length=100)] = None,
    ) -> Pushed:
        """Copy a collection's vectors, texts and metadata to the Milvus server of the settings. Call it again to go on
        where it was stopped, or to send what has changed since."""
        task = self._run("push", collection, lambda tell: self.push(collection, name, tell))
        if task.result is None:
            running: Pushed = {"status": "running", "collection": collection, "name": name or collection, "vectors": 0}
            return {**running, "vectors": task.done, "total": task.total, "message": GOES_ON}
        return task.result

    def push(self, collection: str, name: str | None = None, progress: Progress | None = None) -> Pushed:
        """Copy a collection to Milvus (under `name`): what is missing or different there is sent, the rest deleted.

        Raises:
            NotFound: the caller sees no such collection.
            InvalidInput: it has no vectors; the name is taken by another collection.
            ConfigurationError: no Milvus is set.
            Unavailable, AccessDenied: the server; what was copied is kept, and the next push goes on.
        """
        milvus = self._server()
        with self._database.read() as connection:
            [own] = choose_collections(connection, [collection])
            if own.model_id is None:
                raise InvalidInput(f"Collection '{own.name}' has no vectors yet.", hint="Add documents to it first.")
            origin = _origin(connection, own)
            ids = fetch_column(
                connection,
                f"select chunks.id {LIVE_CHUNKS} order by chunks.id",
                {"model": own.model_id, "collection": own.id},
            )
        target = name or own.name
        self._make(target, origin)
        theirs = {row_id for part in milvus.ids(target) for row_id in part}
        gone = sorted(theirs.difference(ids))
        milvus.delete(target, gone)
        sent = len(gone)
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            with self._database.read() as connection:
                records = load_records(connection, own.id, own.model_id, part)
            known = milvus.fetch(target, [row_id for row_id in part if row_id in theirs])
            different = [record for record in records if not _is_same(record, known.get(record.id))]
            if different:
                milvus.upsert(target, different, moved=bool(known))
            sent += len(different)
            if progress:
                progress(start + len(part), len(ids))
        indexed = self._index(target) if sent else True
        return {
            "status": "done",
            "collection": own.name,
            "name": target,
            "vectors": milvus.count(target),
            "sent": sent,
            "indexed": indexed,
        }

    def _make(self, name: str, origin: dict[str, Any]) -> None:
        """Make the collection in Milvus, unless it is there, of this file and this model."""
        milvus, identity = self._server(), origin["identity"]
        model = f"{identity['name']}#{origin['fingerprint']}"
        if name in milvus.collections():
            about = milvus.about(name) or {}
            theirs: dict[str, Any] = about.get("origin") or {}
            if any(theirs.get(key) != origin[key] for key in ("file", "collectionId")):
                whose = "another localmcp file" if about else "another program"
                message = f"Milvus has a collection '{name}' already, made by {whose}."
                raise InvalidInput(message, hint="Choose a name with --as NAME.")
            if str(about.get("model", "")).rpartition("#")[2] == origin["fingerprint"]:
                return
            # Embedded again by another model: the old vectors are useless.
            milvus.drop(name)
        milvus.create(name, int(identity["dimension"]), model, origin=origin)

    def _index(self, name: str) -> bool:
        """Let Milvus index what was sent, and wait for it; return False if that takes too long."""
        milvus = self._server()
        milvus.flush(name)
        for _ in range(INDEX_SECONDS):
            if milvus.unindexed(name) <= COMPARED_ANYWAY:
                return True
            time.sleep(1)
        return False

    # ------------------------------------------------------------ pull

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

        def work(tell: Progress) -> Pulled:
            return self.pull(collection, name, assume_model=assumeModel, progress=tell)

        task = self._run("pull", collection, work)
        if task.result is None:
            place = name or collection
            return {
                "status": "running",
                "collection": place,
                "read": task.done,
                "total": task.total,
                "message": GOES_ON,
            }
        return {"status": "done", **asdict(task.result)}  # pyright: ignore[reportReturnType]

    def pull(
        self, name: str, collection: str | None = None, *, assume_model: bool = False, progress: Progress | None = None
    ) -> Pulled:
        """Copy Milvus' collection `name` into the file, by default under the same name.

        Raises:
            NotFound: Milvus has no such collection.
            ModelMismatch: its vectors come from another model than the file's collection, or from an unknown one and
                `assume_model` (the model at hand) is false.
            ConfigurationError, Unavailable, AccessDenied: as for `push`.
        """
        milvus, allowed = self._server(), current_scope().collections
        if allowed is not None and name not in allowed:
            raise NotFound(f"No collection '{name}'.")
        assumed = self._embedder.get().identity if assume_model else None
        return Receiver(self._database, milvus).pull(name, collection or name, assumed, progress)

    # ------------------------------------------------------------ both

    def _server(self) -> MilvusBackend:
        if self.milvus is None:
            raise ConfigurationError("No Milvus is set.", hint=NO_MILVUS)
        return self.milvus

    def _run(self, kind: str, collection: str, work: Callable[[Progress], Any]) -> _Task:
        """Work in a separate thread, or join the one that is at it; wait a while for its end."""
        allowed = current_scope().collections
        if allowed is not None and collection not in allowed:
            raise NotFound(f"No collection '{collection}'.")
        with self._lock:
            task = self._tasks.get((kind, collection.casefold()))
            if task is None or task.finished.is_set():
                task = self._tasks[kind, collection.casefold()] = _Task()
                # The thread keeps the caller's scope.
                context = contextvars.copy_context()
                arguments = (task.run, work)
                threading.Thread(target=context.run, args=arguments, name=f"localmcp-{kind}", daemon=True).start()
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


def _is_same(ours: Record, theirs: Record | None) -> bool:
    """Return whether the server has the record with that text, metadata and partition."""
    if theirs is None or theirs.partition != ours.partition or theirs.metadata != ours.metadata:
        return False
    return theirs.origin == ours.origin


def _origin(connection: apsw.Connection, collection: Collection) -> dict[str, Any]:
    """Return where the vectors come from, and what made them."""
    names = ("name", "sha256", "pooling", "query_prefix", "passage_prefix", "dimension", "max_tokens")
    sql = f"select fingerprint, {', '.join(names)} from models where id = ?"
    fingerprint, *row = fetch_one(connection, sql, (collection.model_id,))
    return {
        "file": fetch_one(connection, "select id from file"),
        "collection": collection.name,
        "collectionId": collection.id,
        "fingerprint": fingerprint,
        "identity": dict(zip(names, row, strict=True)),
    }
