"""Collections on a Milvus server, a cluster, or in a Milvus Lite file: searched by meaning and words, read, written.

The only module that imports pymilvus, which takes half a second, loads a `.env` file of a folder above, and writes
tracebacks to stderr: not before the first call, and the last two never.

Those that localmcp makes hold text, title, place, date, language, metadata, a dense vector, and a sparse one that
Milvus makes of the passage's words (BM25, from 2.5 on). Those of other programs are searched and read, not changed;
their keys may be text, and then an id is that text.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

from localmcp.arrays import Vectors
from localmcp.config import Settings
from localmcp.errors import (
    AccessDenied,
    ConfigurationError,
    InvalidInput,
    LocalMCPError,
    MissingExtra,
    ModelMismatch,
    NotFound,
    Unavailable,
)
from localmcp.files import expand_home
from localmcp.humanize import choices
from localmcp.index.collections import DEFAULT_PARTITION
from localmcp.index.drafts import DEFAULT_LANGUAGE
from localmcp.index.filters import Comparison, Condition, Filters, Scalar, evaluate
from localmcp.schemas import Json, mapping_of
from localmcp.wording.normalize import detect_language, fold, index_runs, indexed_runs, stop_words

NO_MILVUS = "No Milvus is set."
HOW_TO_SET_MILVUS = "Set one with: localmcp config set milvus_address http://HOST:19530   (or MILVUS_ADDRESS)"
NAME, ALLOWED = re.compile(r"(?!\d)\w{1,255}", re.ASCII), "up to 255 letters, digits and _, no digit first"
DEEPEST = 16_384
"""Milvus returns no more than these for one query."""
BATCH_ROWS = 1000
PATIENCE = 6
"""Writing may take longer, and nobody waits for it: a busy Milvus Lite once needed more than 10 s."""
BREADTH, WIDEST = 400, 32_768
"""`ef` of the graph index: neighbors looked at; the most that Milvus allows finds all but everything."""
COMPARED_ANYWAY = 4000
"""Vectors without an index that a server compares one by one. Of more it looks at an eighth only until the index is
made: at 10,000 vectors recall@10 was .27, and 1.0 half a minute after `flush` (Milvus 2.3.5)."""
MOST_BYTES = 65_000
"""A VARCHAR field takes 65,535, a JSON field 65,536, counted after the server's own encoding."""

PROPERTY = "localmcp"
"""The collection's property that says which model made the vectors and which file they come from."""
TEXTS = ("text", "title", "heading", "path", "date", "language", "document", "chunk", "partition", "words")
"""Our fields of text; the others are `id`, `vector`, `sparse`, `position`, `digest`, `metadata` and `origin`."""
FOREIGN_TEXTS = ("text", "content", "page_content", "chunk", "document", "body", "passage")
"""Names under which other programs keep the text."""
_VARCHAR, _JSON, _FLOAT_VECTOR = 21, 23, 101
"""Milvus' numbers for the types of fields."""
NO_KEEPALIVE_MS = 2**31 - 1
"""Never, as gRPC has it: pymilvus pings every 10 s, and a Milvus Lite server closes a connection that is pinged more
often than every 5 minutes, with the call that is just on it. Each call has a time limit anyway."""

_importing = threading.Lock()


def load_library() -> ModuleType:
    """Return pymilvus, imported once; MissingExtra if it is not installed."""
    with _importing:
        if (loaded := sys.modules.get("pymilvus")) is not None:
            return loaded
        try:
            import dotenv

            # gRPC's own log goes to stderr, too.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            # pymilvus would put a project's `.env` into the environment of this process.
            load_dotenv, dotenv.load_dotenv = dotenv.load_dotenv, bool
            try:
                import pymilvus
            finally:
                dotenv.load_dotenv = load_dotenv
        except ModuleNotFoundError as error:
            raise MissingExtra("Milvus", "milvus") from error
        # After the import, which sets levels and a handler on stderr.
        for name in ("pymilvus", "pymilvus.milvus_client", "milvus_lite", "grpc._server"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return pymilvus


class NotLoaded(LocalMCPError):
    """The collection has to be loaded into memory first."""


def open_milvus(settings: Settings) -> Milvus | None:
    """Return the server that the settings name; None when they name none. Contacts nobody, and imports nothing heavy.

    ConfigurationError for an address that cannot be one, or holds a password.
    """
    if not (address := settings.milvus_address.strip()):
        return None
    fields: dict[str, dict[str, str]] = {}
    for entry in filter(None, settings.milvus_fields.split(",")):
        place, _, name = entry.strip().partition("=")
        collection, _, meaning = place.rpartition(".")
        fields.setdefault(collection, {})[meaning] = name
    token = ":".join(filter(None, (settings.milvus_username, settings.milvus_password)))
    if address.endswith(".db") and "://" not in address:
        return Milvus(str(expand_home(address).absolute()), token, settings.milvus_database, fields=fields)
    uri = address if re.match("[a-z]+://|unix:", address) else f"http://{address}"
    try:
        parts = urlsplit(uri)
        is_address = parts.scheme == "unix" or (parts.scheme in ("http", "https", "tcp") and parts.port != 0)
    except ValueError:
        parts, is_address = urlsplit(""), False
    if parts.username or parts.password:
        message = "milvus_address must not hold a user or password."
        raise ConfigurationError(message, hint="Use milvus_username and milvus_password.")
    if not is_address or not (parts.hostname or parts.scheme == "unix"):
        hint = "Write http://HOST:19530, https://HOST:PORT, or the path of a Milvus Lite file that ends with .db."
        raise ConfigurationError(f"milvus_address = {address!r} is not the address of a server.", hint=hint)
    return Milvus(uri, token, settings.milvus_database, fields=fields)


class Milvus:
    """One server and its collections: connected at the first call, and again after a failure. Thread-safe.

    Each request ends within the server's time-out. Every method, here and of a collection, raises `Unavailable`,
    `AccessDenied`, `NotFound` or `InvalidInput` as far as the server gives reason, and `MissingExtra` without pymilvus.
    """

    def __init__(
        self, uri: str, token: str = "", database: str = "", timeout: float = 0.0,
        fields: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        """`uri`: http(s)://host:port, unix:path, or a Milvus Lite file; `timeout`: seconds for one request.

        `fields`: collection of another program -> what is in it (text, vector, metadata) -> the name of that field.
        """
        self.uri, self.fields = uri, fields or {}
        self.is_file = uri.endswith(".db") and "://" not in uri
        # Milvus Lite reads all words again at the first search.
        self.timeout = timeout or (60.0 if self.is_file else 10.0)
        self._token, self._database = token, database
        self._lock = threading.Lock()
        self._client: Any = None

    def call(self, method: str, *arguments: Any, patience: float = 1, **options: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient`, bounded by so many times the server's time-out."""

        def ask(method: str, *arguments: Any, **options: Any) -> Any:
            with self._lock:
                if self._client is None:
                    own = {"dedicated": True, "grpc_options": {"grpc.keepalive_time_ms": NO_KEEPALIVE_MS}}
                    self._client = load_library().MilvusClient(
                        self.uri, token=self._token, db_name=self._database, timeout=self.timeout, **own
                    )
                client = self._client
            return getattr(client, method)(*arguments, timeout=patience * self.timeout, **options)

        try:
            return self.guard(lambda: ask(method, *arguments, **options), patience)
        except NotLoaded:
            self.guard(lambda: ask("load_collection", arguments[0]))
            return self.guard(lambda: ask(method, *arguments, **options), patience)

    def guard(self, work: Callable[[], Any], patience: float = 1) -> Any:
        """Run something of pymilvus, and translate its errors."""
        if self.is_file and find_spec("milvus_lite") is None:
            raise MissingExtra(f"Milvus Lite ({self.uri})", "milvus-lite")
        milvus_error = cast("type[Exception]", load_library().MilvusException)
        from grpc import RpcError

        try:
            return work()
        except (milvus_error, RpcError) as error:
            translated = translate_error(error, self.uri, patience * self.timeout)
            if isinstance(translated, Unavailable):
                # The next call begins with a new connection, so that a server that is back is found at once.
                self._disconnect()
            raise translated from error

    def _disconnect(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """End the connection, and with a Milvus Lite file its server, which holds the file's lock."""
        self._disconnect()
        manager: Any = sys.modules.get("milvus_lite.server_manager")
        if self.is_file and manager is not None:
            manager.server_manager_instance.release_server(self.uri)

    def names(self) -> list[str]:
        """Return the names of the collections, sorted."""
        return sorted(self.call("list_collections"))

    def open(self, name: str) -> MilvusCollection:
        """Return the collection of that name; NotFound if there is none.

        ConfigurationError if it has no vectors of floats, or not the fields that the settings name.
        """
        if not NAME.fullmatch(name):
            raise NotFound("collection not found", hint=f"Names in Milvus have {ALLOWED}.")
        described = self.call("describe_collection", name)
        about, index = Json(), Json()
        with suppress(KeyError, TypeError, ValueError):
            about = mapping_of(json.loads(described["properties"][PROPERTY]))
        about = about if PROPERTY in about else {}
        for index_name in () if about else self.call("list_indexes", name):
            described_index = self.call("describe_index", name, index_name)
            index = described_index if described_index.get("metric_type") in ("COSINE", "IP", "L2") else index
        return MilvusCollection(self, name, about, described, index)

    def create(self, name: str, about: Json) -> MilvusCollection:
        """Make a collection for the vectors of the model that `about` names: `identity`, `fingerprint`, whose it is."""
        if not NAME.fullmatch(name):
            message = f"'{name}' cannot be a name in Milvus: {ALLOWED}."
            raise InvalidInput(message, hint="Choose another with --as NAME.")
        library = load_library()
        kinds, dimension = library.DataType, int(about["identity"]["dimension"])
        fields = library.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        fields.add_field("id", kinds.INT64, is_primary=True)
        fields.add_field("vector", kinds.FLOAT_VECTOR, dim=dimension)
        numbers = re.search(r"(\d+)\.(\d+)", self.version)
        is_recent = bool(numbers) and (int(numbers[1]), int(numbers[2])) >= (2, 5)
        for field in TEXTS:
            # Upserted passages go to the partitions of other keys before 2.3.10 (milvus-io/milvus issue 30607).
            options: Json = {"is_partition_key": True} if field == "partition" and is_recent else {}
            if field == "words":
                options = {"enable_analyzer": True, "analyzer_params": {"tokenizer": "standard"}}
            fields.add_field(field, kinds.VARCHAR, max_length=65_535, **options)
        for field in ("position", "digest"):
            fields.add_field(field, kinds.INT64)
        for field in ("metadata", "origin"):
            fields.add_field(field, kinds.JSON)
        index = library.MilvusClient.prepare_index_params()
        index.add_index("vector", index_type="HNSW", metric_type="COSINE", params={"M": 24, "efConstruction": 200})
        if is_recent:
            # The server knows the function BM25.
            fields.add_field("sparse", kinds.SPARSE_FLOAT_VECTOR)
            kind = library.FunctionType.BM25
            fields.add_function(library.Function("bm25", kind, input_field_names="words", output_field_names="sparse"))
            index.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        options = {"consistency_level": "Session", "properties": {PROPERTY: json.dumps({PROPERTY: 1, **about})}}
        self.call("create_collection", name, schema=fields, index_params=index, **options)
        return self.open(name)

    @cached_property
    def version(self) -> str:
        """The server's own word: `v2.5.4`, `milvus_lite-3.2.2`."""
        return str(self.call("get_server_version"))

    def drop(self, name: str) -> None:
        """Delete the collection with everything in it."""
        self.call("drop_collection", name)


class MilvusCollection:
    """One collection: searched, read, and written if localmcp made it."""

    def __init__(self, milvus: Milvus, name: str, about: Json, described: Mapping[str, Any], index: Json) -> None:
        """Take what Milvus says of it, and of the index of its vectors, which of ours is known."""
        self._milvus, self.name = milvus, name
        self.about = about
        """What localmcp wrote about a collection that it made: `identity`, `fingerprint`, `file`, `collectionId`."""
        self.is_ours = bool(about)
        fields = cast("list[dict[str, Any]]", described["fields"])
        kinds = {str(field["name"]): int(field["type"]) for field in fields if not field.get("is_dynamic")}
        named: Mapping[str, str] = Json() if about else milvus.fields.get(name, Json())
        for field in named.values():
            if field not in kinds and not described.get("enable_dynamic_field"):
                raise ConfigurationError(f"milvus_fields: Milvus' collection '{name}' has no field '{field}'.")
        vectors = {field["name"]: field for field in fields if int(field["type"]) == _FLOAT_VECTOR}
        self._vector = named.get("vector") or ("vector" if "vector" in vectors else next(iter(vectors), ""))
        if self._vector not in vectors:
            raise ConfigurationError(f"Milvus' collection '{name}' has no field {self._vector} of float vectors.")
        self.dimension = int(vectors[self._vector]["params"]["dim"])
        self._is_distance = index.get("metric_type") == "L2"
        self._is_graph = self.is_ours or index.get("index_type") == "HNSW"
        self._key = str(next(field for field in fields if field.get("is_primary"))["name"])
        self._key_is_text = kinds.pop(self._key) == _VARCHAR
        texts = [field for field, kind in kinds.items() if kind == _VARCHAR]
        usual = (field for field in FOREIGN_TEXTS if field in texts)
        self._text = named.get("text") or next(usual, texts[0] if texts else None)
        self._metadata = named.get("metadata") or ("metadata" if kinds.get("metadata") == _JSON else None)
        self.has_words = self.is_ours and bool(described.get("functions"))

    @property
    def model(self) -> str:
        """The name of the model that made the vectors; empty when it is unknown."""
        return str(mapping_of(self.about.get("identity")).get("name", ""))

    # ------------------------------------------------------------ searching

    def nearest(self, vectors: Vectors, limit: int, filters: Filters) -> list[dict[Any, float]]:
        """Return id -> cosine of the passages nearest to each of the vectors (questions, dimension), best first.

        ModelMismatch for vectors of another length than those of the collection.
        """
        if (length := vectors.shape[1]) != self.dimension:
            theirs = f"{self.dimension} dimensions{f' ({self.model})' if self.model else ''}"
            message = f"Milvus' collection '{self.name}' holds vectors of {theirs}, the model at hand makes {length}."
            raise ModelMismatch(message, hint="Set the model with which the collection was made.")

        def score(distance: float) -> float:
            return 1.0 / (1.0 + max(distance, 0.0)) if self._is_distance else distance

        return self._arm(self._vector, vectors.tolist(), limit, filters, score)

    def holding(self, text: str, limit: int, filters: Filters) -> dict[Any, float]:
        """Return id -> bm25 of the passages with words of the text, best first.

        Milvus takes words as they are: no spelling is repaired. Empty where it has no index of words (before 2.5).
        """
        if not self.has_words:
            return {}
        language = detect_language(text) or DEFAULT_LANGUAGE
        runs = indexed_runs(text)
        # Milvus lets function words count, too. A question of nothing but those, or of those and words that no passage
        # holds, is searched by them, as in a file.
        content = [run for run in runs if fold(run) not in stop_words(language)]
        for stems in dict.fromkeys(index_runs(part, language) for part in (content, runs)):
            # Milvus Lite gives BM25 as a distance, below zero.
            if stems and (scores := self._arm("sparse", [stems], limit, filters, abs)[0]):
                return scores
        return {}

    def _arm(
        self, field: str, data: list[Any], limit: int, filters: Filters, score: Callable[[float], float]
    ) -> list[dict[Any, float]]:
        # Id -> score of what one field finds for each query, best first, equal scores by id.
        condition = filters.condition
        if self.is_ours:
            options: Json = {"filter": _filters_text(filters), "output_fields": [self._metadata] if condition else []}
        else:
            # Their fields are of many types: what comes back is looked at.
            options = {"partition_names": [*filters.partitions] or None, "output_fields": ["*"] if condition else []}
        depth = min(limit * (4 if condition else 1), DEEPEST)
        while True:
            if field == self._vector and self._is_graph:
                options["search_params"] = {"params": {"ef": max(BREADTH, min(2 * depth, WIDEST))}}
            # Queries are sent together while they ask for no more than 20,000 hits: an answer may have 64 MB.
            at_once, answers, scores = max(1, 20_000 // depth), list[list[Any]](), list[dict[Any, float]]()
            for start in range(0, len(data), at_once):
                part = data[start : start + at_once]
                answers += self._call("search", data=part, anns_field=field, limit=depth, **options)
            for hits in answers:
                # Segments with and without an index differ in the seventh digit for equal vectors. Lite names the key
                # after the field, servers call it id.
                near = {
                    hit["id"] if "id" in hit else hit[self._key]: score(round(float(hit["distance"]), 6))
                    for hit in hits
                    if condition is None or evaluate(condition, self._metadata_of(hit["entity"]))
                }
                scores.append(dict(sorted(near.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]))
            pairs = zip(scores, answers, strict=True)
            if depth == DEEPEST or not any(len(near) < limit and len(hits) >= depth for near, hits in pairs):
                return scores
            depth = min(depth * 8, DEEPEST)

    # ------------------------------------------------------------ reading

    def read(self, ids: Sequence[Any], fields: Sequence[str] = ("*",)) -> dict[Any, Json]:
        """Return the passages of those ids, as `find` does; missing ones are left out.

        As of the search that found them: waiting for what others write would take a server .2 s.
        """
        rows_by_id: dict[Any, Json] = {}
        for start in range(0, len(ids), BATCH_ROWS):
            part = list(ids[start : start + BATCH_ROWS])
            rows = self._call("get", ids=part, output_fields=[*fields])
            rows_by_id |= {row[self._key]: self._row(row) for row in rows}
        return rows_by_id

    def find(self, which: str, fields: Sequence[str], limit: int = DEEPEST) -> list[Json]:
        """Return the passages that pass Milvus' filter text, in no order, with those of its fields, and `id`, `text`,
        `metadata` and `vector` under these names."""
        rows = self._call("query", filter=which, output_fields=[*fields], limit=limit, consistency_level="Strong")
        return [self._row(row) for row in rows]

    def rows(self, batch: int = 500) -> Iterator[list[Json]]:
        """Yield everything, in batches, by id."""
        for rows in self._pages(batch, ["*"]):
            yield [self._row(row) for row in rows]

    def digests(self) -> tuple[array[int], array[int]]:
        """Return ids and digests of the passages of one of our collections, 16 bytes a passage, by id."""
        ids, digests = array("q"), array("q")
        for rows in self._pages(DEEPEST, ["id", "digest"]):
            ids.extend(row["id"] for row in rows)
            digests.extend(row["digest"] for row in rows)
        return ids, digests

    def _pages(self, batch: int, fields: list[str]) -> Iterator[list[Json]]:
        pages = self._call("query_iterator", batch_size=batch, output_fields=fields, consistency_level="Strong")
        try:
            while rows := self._milvus.guard(pages.next):
                yield [dict(row) for row in rows]
        finally:
            pages.close()

    def count(self, which: str = "", **options: Any) -> int:
        """Return the number of passages, counted exactly, with everything that was ever acknowledged."""
        # Lite counts the whole collection when there is no filter text.
        everything = f'{self._key} >= ""' if self._key_is_text else f"{self._key} > -9223372036854775807"
        options |= {"filter": which or everything, "consistency_level": "Strong"}
        return int(self._call("query", output_fields=["count(*)"], **options)[0]["count(*)"])

    def require_partition(self, name: str) -> None:
        """Raise NotFound, which names those there are, unless it has a partition of that name."""
        names = [name]
        if not self.is_ours:
            # Milvus Lite does not refuse a name that it does not know.
            names = self._call("list_partitions")
        elif name != DEFAULT_PARTITION and not self.count(is_one_of("partition", [name])):
            names = [*self.partitions()]
        if name not in names:
            raise NotFound(f"partition '{name}' not found", hint=choices(names[:20]))

    def partitions(self) -> dict[str, int]:
        """Return partition -> passages; reads the partition of each passage where they are values of a field."""
        if not self.is_ours:
            return {str(name): self.count(partition_names=[name]) for name in self._call("list_partitions")}
        counts = Counter({DEFAULT_PARTITION: 0})
        for rows in self._pages(DEEPEST, ["partition"]):
            counts.update(row["partition"] for row in rows)
        return dict(counts)

    def _row(self, row: Any) -> Json:
        texts = [self._text] if self._text else [name for name in FOREIGN_TEXTS if isinstance(row.get(name), str)]
        text = str(row.get(texts[0]) or "") if texts else ""
        named = {"id": row.get(self._key), "text": text, "vector": row.get(self._vector)}
        return {**row, **named, "metadata": self._metadata_of(row)}

    def _metadata_of(self, row: Json) -> Json:
        stored = mapping_of(row.get(self._metadata)) if self._metadata else {}
        if self.is_ours:
            return stored
        shown = {self._key, self._vector, self._text, self._metadata, "$meta"}
        others = {name: value for name, value in row.items() if name not in shown}
        return {name: value for name, value in others.items() if not isinstance(value, bytes)} | stored

    # ------------------------------------------------------------ writing

    def upsert(self, rows: Sequence[Json]) -> None:
        """Insert passages, or replace those of the same id: every field but `sparse`, which Milvus makes."""
        fitting: list[Json] = []
        for row in rows:
            # Cut at a character's end to the bytes that a field takes.
            cut = {name: row[name].encode("utf-8", "replace")[:MOST_BYTES].decode("utf-8", "ignore") for name in TEXTS}
            # Without long values if all together are more than a field takes.
            sizes = {key: len(json.dumps(value)) for key, value in row["metadata"].items()}
            is_small = sum(sizes.values()) < MOST_BYTES
            metadata = {key: row["metadata"][key] for key, size in sizes.items() if is_small or size < 1000}
            fitting.append({**row, **cut, "metadata": metadata})
        for start in range(0, len(rows), BATCH_ROWS):
            self._change("upsert", fitting[start : start + BATCH_ROWS])

    def delete(self, ids: Sequence[int]) -> None:
        """Delete passages; unknown ids are passed over."""
        for start in range(0, len(ids), BATCH_ROWS):
            self._change("delete", ids=list(ids[start : start + BATCH_ROWS]))
        if ids:
            self._see_deletions()

    def delete_documents(self, uuids: Sequence[str], before: int | None = None) -> None:
        """Delete the passages of documents: all, or those whose ids are below `before`."""
        older = "" if before is None else f" and id < {before}"
        for start in range(0, len(uuids), BATCH_ROWS):
            self._change("delete", filter=is_one_of("document", uuids[start : start + BATCH_ROWS]) + older)
        if uuids:
            self._see_deletions()

    def _see_deletions(self) -> None:
        # Until they are in force: a server before 2.4 does not tell when they were made, so that the next search would
        # not wait for them, and found for .2 s what is gone (2.3.5).
        self.count("id == 0", patience=PATIENCE)

    def make_index(self, seconds: float) -> bool:
        """Let what was written be indexed now, and wait for it; return whether it was done in that time."""
        self._change("flush")
        end = time.monotonic() + seconds
        while not self._milvus.version.startswith("milvus_lite"):
            segments = self._call("list_loaded_segments")
            if self.count() - sum(int(segment.num_rows) for segment in segments) <= COMPARED_ANYWAY:
                break
            if time.monotonic() > end:
                return False
            time.sleep(1)
        return True

    def _change(self, method: str, *arguments: Any, **options: Any) -> None:
        if not self.is_ours:
            message = f"Milvus' collection '{self.name}' was made by another program; it can only be searched."
            raise InvalidInput(message)
        self._call(method, *arguments, patience=PATIENCE, **options)

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self._milvus.call(method, self.name, *arguments, **options)


# ---------------------------------------------------------------- conditions as Milvus' filter text

# Servers differ: Milvus Lite takes true for 1 and has no `in` on JSON; a missing field is unknown there and false
# elsewhere; whole numbers in arrays do not equal 1.0. The text therefore lets through everything that may fulfil the
# condition, sometimes more, and `conditions.evaluate` has the last word on what comes back.

LAST = "\U0010ffff"
"""Sorts behind every character."""
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def filter_text(condition: Condition) -> str:
    """Return filter text that every record which fulfils the condition passes; empty if none can be written."""
    if not isinstance(condition, Comparison):
        parts = [filter_text(part) for part in condition.parts]
        if condition.operator == "not" or (condition.operator == "or" and "" in parts):
            return ""
        restricting = [part for part in parts if part]
        return f"({f' {condition.operator} '.join(restricting)})" if restricting else ""
    # Lite knows no escapes but those of one letter, and looks for no negative numbers in arrays.
    odd = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\U0010ffff]")
    is_range = condition.operator in _SIGNS
    for value in condition.values:
        if odd.search(value) if isinstance(value, str) else abs(value) >= 2**53 or (value < 0 and not is_range):
            return ""
    path = "metadata" + "".join(f'["{key}"]' for key in condition.field)
    if condition.operator == "prefix":
        return begins_with(path, str(condition.values[0]))
    if is_range:
        return f"({path} {_SIGNS[condition.operator]} {_literal(condition.values[0])})"
    # Milvus finds 1.0 equal to both 1 and 1.0 in an array.
    tests = [f"json_contains({path}, {_literal(value, number='.1f')})" for value in condition.values]
    tests += [f"{path} == {_literal(value)}" for value in condition.values]
    return f"({' or '.join(tests)})"


def _literal(value: Scalar, number: str = ".0f") -> str:
    if not isinstance(value, str | bool) and float(value).is_integer():
        return format(value, number)
    return json.dumps(value, ensure_ascii=False)


def is_one_of(field: str, values: Iterable[str]) -> str:
    """Return filter text: a field of text has one of the values."""
    return f"{field} in [{', '.join(json.dumps(value, ensure_ascii=False) for value in values)}]"


def begins_with(field: str, beginning: str) -> str:
    """Return filter text: a field of text begins so. As a range, because `like` cannot escape % and _."""
    return f"({field} >= {_literal(beginning)} and {field} < {_literal(beginning + LAST)})"


def _filters_text(filters: Filters) -> str:
    # What our own collections have to pass, as text for the server.
    texts: list[str] = []
    texts += [is_one_of("partition", filters.partitions)] if filters.partitions else []
    texts += [is_one_of("document", filters.source_ids)] if filters.source_ids else []
    if filters.source_types:
        same = (f'origin["source"]["source_type"] == {_literal(kind)}' for kind in filters.source_types)
        texts.append(f"({' or '.join(same)})")
    if filters.path_prefix is not None:
        folder = os.path.normpath(os.path.expanduser(filters.path_prefix))
        if os.path.isabs(folder):
            below = begins_with("path", folder.rstrip(os.sep) + os.sep)
            texts.append(f"(path == {_literal(folder)} or {below})")
        else:
            texts.append(f"path like {_literal(f'%{os.sep}{folder}{os.sep}%')}")
    texts += [f"date >= {_literal(filters.since)}"] if filters.since else []
    texts += [f"date < {_literal(filters.until)}"] if filters.until else []
    texts += filter(None, [filters.condition and filter_text(filters.condition)])
    return " and ".join(texts)


# ---------------------------------------------------------------- what Milvus' errors mean


def translate_error(error: Exception, server: str, timeout: float) -> LocalMCPError:
    """Return the error of localmcp that Milvus' error means; servers differ in codes and messages, and some mislead.

    `server`: the address, without credentials; `timeout`: seconds that the call could take.
    """
    # Some errors are their own cause, with a number as code.
    rpc_error: Any = next((cause for cause in (error, error.__cause__) if callable(getattr(cause, "code", None))), None)
    status, details = ("", "") if rpc_error is None else (rpc_error.code().name, rpc_error.details())
    raw_code: Any = getattr(error, "code", 0)
    code = raw_code if isinstance(raw_code, int) else 0
    text = str(getattr(error, "message", "") or ("" if callable(raw_code) else error))
    # Without the server's stack trace.
    message = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300].rstrip(".")
    # "not fully loaded" for a while after the server's start: to load it again waits for that.
    if code == 101 or re.search("not (fully )?loaded", message):
        return NotLoaded(f"Milvus at {server} has not loaded the collection: {message}.")
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED") or "auth check failure" in message:
        refused = f"Milvus at {server} refused the credentials: {details or message}."
        return AccessDenied(refused, hint="Check milvus_username and milvus_password.")
    if "loading collection timeout" in message:
        return Unavailable(f"Milvus at {server} is still loading the collection.", hint="Try again in a minute.")
    if status == "DEADLINE_EXCEEDED" or (status != "UNAVAILABLE" and "Retry timeout" in message):
        late = f"Milvus at {server} did not answer within {timeout:g} s."
        hint = "Check that the address and port are those of Milvus, that the server is healthy"
        return Unavailable(late, hint=f"{hint} and that no firewall is between.")
    if "Open local milvus failed" in message:
        hint = "Only one process at a time may have it open; and it must have been made by milvus-lite 3 or later."
        return Unavailable(f"{server} cannot be opened by Milvus Lite.", hint=hint)
    # Refused, unresolvable, silent and bad credentials have one code, 2; the gRPC status says which.
    if status == "UNAVAILABLE" or code == 2:
        hint = "Check that the server runs, and milvus_address: its host, port and http or https."
        return Unavailable(f"Milvus at {server} cannot be reached.", hint=hint)
    if status == "UNIMPLEMENTED":
        return Unavailable(f"Milvus at {server} is of a version that cannot do this.", hint="Use Milvus 2.4 or later.")
    message = message or details
    named = re.search(r"(database|collection|partition)\b.*(?:not found|not exist)", message)
    if missing := {800: "database", 100: "collection", 200: "partition"}.get(code) or (named and named[1]):
        no_such = f"Milvus at {server} has no such database" if missing == "database" else f"{missing} not found"
        return NotFound(no_such, hint=f"Milvus at {server} says: {message}.")
    if code in (1100, 6):
        return InvalidInput(f"Milvus at {server} cannot use the request: {message}.")
    return LocalMCPError(f"Milvus at {server} failed: {message or f'error {code}'}.")
