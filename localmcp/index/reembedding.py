"""Another model for what is in the file: its vectors are made beside the old ones, which answer until all are there.

Only the vectors of a collection's own model have sign codes. They are what a search scans, so the switch to other
vectors, and the way back, is one transaction: the collection names the model, and the sign codes are made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import apsw

from localmcp.errors import NotFound
from localmcp.humanize import command_line, counted
from localmcp.index.collections import (
    Collection,
    choose_collections,
    ensure_model,
    find_model,
    set_model_command,
    spec_of,
    visible_collections,
)
from localmcp.index.vector import Made, add_signs, write_vectors
from localmcp.index.vector_queue import (
    WORD_ONLY,
    Passage,
    front_lease,
    make_vectors,
    passages_lacking,
    remember_keys,
    requeue_collection,
    still_lacking,
    write_batch,
)
from localmcp.index.word_vectors import keep_words
from localmcp.models import Embedder, ModelIdentity
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.storage.times import utc_now

REFRESH = "localmcp refresh"
"""The command that makes missing vectors."""
KIND = "reembed"
"""`jobs.kind` of the row that remembers which model a collection had; it stays until the old vectors are deleted."""
BATCH = 192
"""Passages of one transaction; a kill loses the embedding of so many."""
AT_ONCE = 10_000
"""Chunks that are looked up together: the look-up reads the index of all chunks."""
ROUNDS = 20
"""How often the passages that others added meanwhile are caught up with before the switch is made without them."""
CLEANED_AT_ONCE = 2000

Tell = Callable[[int, int], None]
"""Called with the passages that are done, of all that have to be."""


@dataclass(slots=True)
class Reembedded:
    """Status of one collection."""

    collection: str
    model: str
    """Whose vectors answer from here on."""
    before: str | None
    """Whose vectors answered; None when there were none."""
    embedded: int = 0
    """Vectors that were made in this run."""
    switched: bool = False
    missing: int = 0
    """Passages without a vector of `model`."""
    notes: list[str] = field(default_factory=list[str])


def reembed(
    database: Database, collection: Collection, embedder: Embedder, tell: Tell = lambda done, total: None
) -> Reembedded:
    """Give every passage of a collection a vector of `embedder`, then let these answer. Goes on where a run was killed.

    Raises:
        ModelUnavailable: the model failed; what it made is kept.
        FileUnavailable: the file cannot be written.
    """
    with database.write() as connection:
        model_id = ensure_model(connection, embedder.identity)
        before = _bound_model(connection, collection)
        if before is not None and before != model_id:
            _remember(connection, collection, before, model_id, "running")
        done = Reembedded(collection.name, embedder.identity.name, _model_name(connection, before))
        if before is not None:
            done.notes += _window_notes(connection, before, embedder.identity)
    for number in range(ROUNDS):
        done.embedded += _fill(database, collection, embedder, tell)
        if _switch(database, collection, embedder.identity, done, even_if_some_lack=number == ROUNDS - 1):
            break
    return done


def roll_back(database: Database, collection: Collection) -> Reembedded:
    """Let the vectors answer again that did before the last `reembed`.

    Raises:
        NotFound: the collection was not embedded again, or the old vectors were deleted.
    """
    with database.write() as connection:
        sql = "select arguments ->> 'from', arguments ->> 'to', status from jobs where id = ?"
        old, new, status = fetch_one(connection, sql, (_job_id(collection.id),)) or (0, 0, None)
        if status != "done" or new != _bound_model(connection, collection):
            raise NotFound(
                f"Collection '{collection.name}' has no earlier vectors to go back to.",
                hint="Until a reembed is complete, the old vectors answer." if status else None,
            )
        names = _model_name(connection, old) or "", _model_name(connection, new)
        done = Reembedded(collection.name, *names, switched=True)
        _let_answer(connection, collection, old, done)
        _remember(connection, collection, new, old, "done")
    return done


def clean(database: Database, collection: Collection) -> int:
    """Delete the vectors of a collection that another model than its own made; returns how many. In small steps."""
    with database.read() as connection:
        others = fetch_column(connection, "select id from models order by id")
        own = _bound_model(connection, collection)
    removed = 0
    for model_id in others:
        while model_id != own and (count := _clean_some(database, collection, model_id)):
            removed += count
    with database.write() as connection:
        connection.execute("delete from jobs where id = ?", (_job_id(collection.id),))
        forget_unused_models(connection)
    return removed


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was begun and has not reached its switch."""

    collection: str
    spec: str
    """The setting that chooses the model it changes to."""
    model: str
    done: int
    """Passages that have a vector of the model, of `total`."""
    total: int

    @property
    def command(self) -> str:
        """What goes on with it."""
        return command_line("localmcp", "reembed", "--collection", self.collection, "--model", self.spec)


def unfinished(connection: apsw.Connection) -> list[Unfinished]:
    """Return every run that was begun and has not reached its switch, by collection."""
    sql = """
        select collections.id, collections.name, models.id, models.name, models.dimension from jobs
        join collections on collections.id = arguments ->> 'collection' join models on models.id = arguments ->> 'to'
        where jobs.kind = ? and status = 'running' order by 2
    """
    runs: list[Unfinished] = []
    for collection_id, collection, model_id, model, dimension in fetch_all(connection, sql, (KIND,)):
        total = count_missing(connection, collection_id, 0)  # no model has the id 0
        done = total - count_missing(connection, collection_id, model_id)
        runs.append(Unfinished(collection, spec_of(model, dimension), model, done, total))
    return runs


def command_for_waiting(connection: apsw.Connection, setting: str) -> str:
    """Return the command that embeds what waits: a refresh, after the setting names the model of the collection."""
    models = fetch_all(connection, "select name, dimension from models")
    specs = {"default", "multilingual", *(spec_of(*model) for model in models)}
    chosen = spec_of(setting.removeprefix("fastembed:"))
    sql = """
        select distinct coalesce(models.name, ''), dimension from vector_queue join sources on sources.id = source_id
        join collections on collections.id = collection_id left join models on models.id = model_id
        where passages > 0 and collections.kind = 'documents' order by 1
    """
    # A collection that has no model yet takes the one that is set.
    bound = [spec_of(name, dimension) if name else chosen for name, dimension in fetch_all(connection, sql)]
    # Of a setting such as an address it is not known which model it means.
    if not bound or chosen in bound or chosen not in specs:
        return REFRESH
    return f"{set_model_command(bound[0])} && {REFRESH}"


def rebuild_signs(connection: apsw.Connection, collection_id: int, model_id: int) -> int:
    """Make the sign codes of a collection again, from its vectors of that model. Part of the caller's transaction.

    Returns how many passages that are not in the trash have such a vector.
    """
    connection.execute("delete from signs where collection_id = ?", (collection_id,))
    sql = """
        select chunks.id, source_id from chunks join sources on sources.id = source_id
        where collection_id = ? and trashed_at is null
            and exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
        order by chunks.id
    """
    rows = fetch_all(connection, sql, (collection_id, model_id))
    if rows:
        add_signs(connection, model_id, collection_id, dict(rows))
    bump_generations(connection, "signs")
    return len(rows)


def forget_unused_models(connection: apsw.Connection) -> None:
    """Delete models that nothing in the file comes from. Part of the caller's write transaction."""
    connection.execute("""
        delete from models where id not in (select model_id from collections where model_id is not null)
            and not exists (
                select 1 from vectors where vectors.id between models.id << 40 and (models.id + 1 << 40) - 1)
    """)


# ---------------------------------------------------------------- making vectors


def _fill(database: Database, collection: Collection, embedder: Embedder, tell: Tell) -> int:
    """Embed what has no vector of the model yet, in small transactions; returns how many vectors were made."""
    with database.read() as connection:
        total = count_missing(connection, collection.id, find_model(connection, embedder.identity) or 0)
    made = 0
    tell(0, total)
    with front_lease(database) as lease:
        while passages := _missing(database, collection, embedder.identity):
            for start in range(0, len(passages), BATCH):
                batch = passages[start : start + BATCH]
                vectors = make_vectors(database, embedder, batch)
                with database.write() as connection:
                    made += _write(connection, collection, ensure_model(connection, embedder.identity), batch, vectors)
                    lease.take(connection)
                tell(min(made, total), total)
    return made


def _missing(database: Database, collection: Collection, identity: ModelIdentity) -> list[Passage]:
    with database.read() as connection:
        return passages_lacking(connection, collection.id, find_model(connection, identity) or 0, AT_ONCE)


def count_missing(connection: apsw.Connection, collection_id: int, model_id: int) -> int:
    """Count the passages of a collection that wait for a vector of the model; those in the trash do not."""
    sql = f"""
        select count(*) from chunks join sources on sources.id = source_id join groups on groups.id = group_id
        where sources.collection_id = ? and trashed_at is null and groups.kind <> '{WORD_ONLY}'
            and not exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
    """
    return fetch_one(connection, sql, (collection_id, model_id))


def _write(
    connection: apsw.Connection, collection: Collection, model_id: int, passages: Sequence[Passage],
    made: Mapping[int, Made],
) -> int:  # fmt: skip
    if _bound_model(connection, collection) in (None, model_id):
        return len(write_batch(connection, model_id, passages, made))
    passages = still_lacking(connection, model_id, passages)
    ids = [passage.chunk_id for passage in passages]
    write_vectors(connection, model_id, {row_id: made[row_id] for row_id in ids})
    sql = "update jobs set done = done + ?, heartbeat_at = ? where id = ?"
    connection.execute(sql, (len(ids), utc_now(), _job_id(collection.id)))
    remember_keys(connection, passages)
    keep_words(connection, model_id, dict(word for row_id in ids for word in made[row_id].words))
    return len(ids)


# ---------------------------------------------------------------- switching


def _switch(
    database: Database, collection: Collection, identity: ModelIdentity, done: Reembedded, *, even_if_some_lack: bool
) -> bool:
    """Let the model's vectors answer; False when passages came meanwhile that have none yet."""
    with database.write() as connection:
        model_id, before = ensure_model(connection, identity), _bound_model(connection, collection)
        if not even_if_some_lack and passages_lacking(connection, collection.id, model_id, 1):
            return False
        if before == model_id:
            return True
        if before is not None:
            _remember(connection, collection, before, model_id, "done")
        _let_answer(connection, collection, model_id, done)
        done.switched = True
    return True


def _let_answer(connection: apsw.Connection, collection: Collection, model_id: int, done: Reembedded) -> None:
    connection.execute("update collections set model_id = ? where id = ?", (model_id, collection.id))
    rebuild_signs(connection, collection.id, model_id)
    requeue_collection(connection, collection.id)
    # How much meaning counts was measured with the other model.
    connection.execute(
        "update groups set gap = null, measured_chunks = 0 where collection_id = ?",
        (collection.id,),
    )
    bump_generations(connection, "content")
    done.missing = count_missing(connection, collection.id, model_id)
    if done.missing:
        passages = counted(done.missing, "passage")
        done.notes.append(f"{passages} of '{collection.name}' without a vector of {done.model}.")


def _window_notes(connection: apsw.Connection, before: int, identity: ModelIdentity) -> list[str]:
    name, tokens = fetch_one(connection, "select name, max_tokens from models where id = ?", (before,))
    if identity.max_tokens >= tokens:
        return []
    return [
        f"{identity.name} reads {identity.max_tokens} tokens of a passage, {name} {tokens}: the ends of long passages"
        " are not found by meaning. Adding the documents to another collection cuts them to fit."
    ]


def _clean_some(database: Database, collection: Collection, model_id: int) -> int:
    with database.write() as connection:
        if _bound_model(connection, collection) == model_id:
            return 0
        connection.execute(
            """
            delete from vectors where id in (
                select vectors.id from vectors join chunks on chunks.id = vectors.id & 1099511627775
                join sources on sources.id = source_id
                where vectors.id between :model << 40 and (:model + 1 << 40) - 1 and collection_id = :collection
                limit :limit
            )
            """,
            {"model": model_id, "collection": collection.id, "limit": CLEANED_AT_ONCE},
        )
        return connection.changes()


# ---------------------------------------------------------------- what is remembered


def _job_id(collection_id: int) -> str:
    return f"{KIND}-{collection_id}"


def _remember(connection: apsw.Connection, collection: Collection, old: int, new: int, status: str) -> None:
    # Without an end, so that the row is not thrown away with finished jobs.
    connection.execute(
        """
        insert into jobs (id, kind, arguments, status, started_at, heartbeat_at)
        values (:id, :kind, :arguments, :status, :now, :now)
        on conflict (id) do update set arguments = excluded.arguments, status = excluded.status,
            heartbeat_at = excluded.heartbeat_at
        """,
        {
            "id": _job_id(collection.id),
            "kind": KIND,
            # In the form of all jobs: only callers that see every collection may see it.
            "arguments": json.dumps({"collection": collection.id, "from": old, "to": new, "collections": None}),
            "status": status,
            "now": utc_now(),
        },
    )


def _bound_model(connection: apsw.Connection, collection: Collection) -> int | None:
    sql = "select model_id from collections where id = ?"
    return fetch_one(connection, sql, (collection.id,))


def _model_name(connection: apsw.Connection, model_id: int | None) -> str | None:
    return fetch_one(connection, "select name from models where id = ?", (model_id,))


def collections_to_reembed(connection: apsw.Connection, name: str | None = None) -> list[Collection]:
    """Return the collection of that name, or (for None) those of documents that have passages, as the caller sees them.

    Raises:
        NotFound: there is no such collection.
    """
    if name:
        return choose_collections(connection, [name])
    sql = "select distinct collection_id from sources where chunk_count > 0"
    filled = set(fetch_column(connection, sql))
    return [collection for collection in visible_collections(connection) if collection.id in filled]


def spec_in_use(connection: apsw.Connection, collection: Collection) -> str:
    """Return the setting that chooses the model whose vectors answer for a collection."""
    sql = "select models.name, dimension from models join collections on models.id = model_id where collections.id = ?"
    name, dimension = fetch_one(connection, sql, (collection.id,))
    return spec_of(name, dimension)
