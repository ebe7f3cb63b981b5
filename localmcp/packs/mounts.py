"""Files that are searched beside yours: what is mounted is remembered in the state directory, not in the file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from localmcp import config, errors
from localmcp.errors import ConfigurationError, FileUnavailable, InvalidInput, LocalMCPError, NotFound
from localmcp.files import expand_home, is_filled, signature_of, write_atomically
from localmcp.humanize import command_line
from localmcp.index.federation import MountedFile, Wanted
from localmcp.index.search import MODEL_WAIT_SECONDS, Index, SearchOutcome, SearchRequest
from localmcp.milvus.collection import HOW_TO_SET_MILVUS, NO_MILVUS, Milvus
from localmcp.milvus.mounted import ADDRESS, MilvusFile
from localmcp.models import LazyEmbedder, open_local_model
from localmcp.packs.pack import read_manifest
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import utc_now

log = logging.getLogger(__name__)

WHAT_IS_MOUNTED = (
    "Mount takes a file that localmcp made: another library, or a pack (localmcp pack). "
    "Documents are added with: localmcp add PATH"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A mounted file, as it is stored in the state directory."""

    name: str
    path: Path
    mounted_at: str


class OpenMount:
    """A mounted file while it is open: read-only, hardened, its own database and index."""

    def __init__(self, entry: Entry, own: Index) -> None:
        self.name, self.path = entry.name, entry.path
        self.database = Database(entry.path, read_only=True, foreign=True)
        self.signature = signature_of(entry.path.stat())
        self._own = own
        self._lock = threading.Lock()
        self._index = Index(self.database, own.embedder, own.semantic_weight, adaptive=own.adaptive)
        self._model_chosen = False

    def search(self, request: SearchRequest) -> SearchOutcome:
        """Search it with the model that made its vectors, if that is here: the one in use, or another."""
        if request.mode != "keyword" and not self._model_chosen:
            # While the model in use is still loading, its own notice says so and the next search asks again.
            with self._lock, suppress(LocalMCPError):
                theirs = self._models()
                own = self._own.embedder.get(MODEL_WAIT_SECONDS).identity.fingerprint if theirs else ""
                self._model_chosen = True
                if theirs and own not in theirs:
                    fingerprint, (name, dimension) = next(iter(theirs.items()))
                    self._index.embedder = LazyEmbedder(partial(open_local_model, name, fingerprint, dimension))
        return self._index.search(request)

    def index(self, wanted: Wanted | None = None) -> Index:
        """Its index, of the whole file."""
        return self._index

    def describe(self) -> dict[str, Any]:
        """Counts, collections, models and the manifest's words; reads no document."""
        sql = """
            select count(*), coalesce(sum(chunk_count), 0),
                (select count(*) from quickstarts where deleted_at is null),
                (select count(*) from rules where retired_at is null)
            from sources join collections on collections.id = collection_id
            where trashed_at is null and kind = 'documents'
        """
        with self.database.read() as connection:
            counts = dict(zip(("sources", "chunks", "quickstarts", "rules"), fetch_one(connection, sql), strict=True))
            names = fetch_column(connection, "select name from collections where kind = 'documents' limit 100")
            manifest = read_manifest(connection)
        models = [name for name, _ in self._models().values()]
        return {**counts, "collections": names, "models": models, "title": manifest.title if manifest else ""}

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _models(self) -> dict[str, tuple[str, int]]:
        # Fingerprint -> (name, dimension) of the models of its collections, the one of most documents first.
        sql = """
            select fingerprint, models.name, dimension from collections
            join models on models.id = model_id join sources on collection_id = collections.id
            where kind = 'documents' and typeof(dimension) = 'integer'
            group by models.id order by count(*) desc limit 20
        """
        with self.database.read() as connection:
            rows = fetch_all(connection, sql)
        return {str(fingerprint): (str(name), dimension) for fingerprint, name, dimension in rows}


class Mounts:
    """The files that are mounted beside one file. Thread-safe; other processes see a change with their next search."""

    def __init__(self, own: Index, milvus: Milvus | None) -> None:
        """`own` is the index of the file beside which others are mounted; they are searched with its weights."""
        self._own, self._milvus, self._state = own, milvus, config.state_directory()
        self._lock = threading.Lock()
        self._open: dict[str, OpenMount | MilvusFile] = {}

    @property
    def _folder(self) -> Path:
        # By the id of the file, which it keeps when it is moved.
        digest = hashlib.sha256(self._own.database.file_id.encode()).hexdigest()
        return self._state / "mounts" / digest[:16]

    def entries(self) -> list[Entry]:
        """Everything that is remembered, by name; an entry that cannot be read is left out and logged."""
        if not is_filled(self._own.database.path):
            return []
        entries: list[Entry] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                entries.append(Entry(_check_name(content["name"]), Path(content["path"]), content["mounted_at"]))
            except (OSError, ValueError, TypeError, KeyError, LocalMCPError) as error:
                log.warning("%s is not read: %s", path, error)
        return entries

    def mount(self, path: Path, name: str | None = None) -> Entry:
        """Remember a file, or a collection in Milvus (`milvus:NAME`), which is opened first.

        InvalidInput for a name that cannot be used or is taken, the file itself, or one that is mounted already;
        FileUnavailable, NotOurFile, FileTooNew if the file cannot be opened; ConfigurationError if no Milvus is set.
        """
        collection = collection_of(path)
        path = Path(f"{ADDRESS}{collection}") if collection else expand_home(path).absolute()
        # Else the file's name without its ending, as far as it can be a name.
        plain = re.sub(r"[^a-z0-9_.-]+", "-", (collection or path.stem).lower()).strip("-_.")[:40]
        entry = Entry(_check_name(name or plain or "pack"), path, utc_now())
        if not collection and not path.is_file():
            raise NotFound(f"There is no file {path}.", hint=WHAT_IS_MOUNTED if path.is_dir() else None)
        real = os.path.realpath(path)
        if real == os.path.realpath(self._own.database.path):
            raise InvalidInput(f"{path} is the file that is open; it is searched already.")
        for other in self.entries():
            if other.name == entry.name and other.path != path:
                raise InvalidInput(f"'{other.name}' is {other.path} already.", hint="Choose another name with --as.")
            if os.path.realpath(other.path) == real and other.name != entry.name:
                raise InvalidInput(f"{path} is mounted already, as '{other.name}'.")
        mounted = self._opened(entry)
        try:
            mounted.describe()
            with mounted.database.read() as connection:
                # Later on rows are read as what the schema promises.
                damages = [text for text in fetch_column(connection, "pragma quick_check(1)") if text != "ok"]
            if damages and "fts5" not in damages[0].lower():
                hint = f"See all with: {command_line('localmcp', 'verify', path)}"
                raise FileUnavailable(f"{path} is damaged: {damages[0]}.", hint=hint)
        except errors.AlteredSchema:
            raise
        except errors.NotOurFile as error:
            raise errors.NotOurFile(error.message, hint=WHAT_IS_MOUNTED) from error
        finally:
            mounted.close()
        place = self._folder / f"{entry.name}.json"
        try:
            write_atomically(place, json.dumps(asdict(entry), ensure_ascii=False, default=str))
        except OSError as error:
            raise FileUnavailable(f"{place} cannot be written: {error.strerror}.") from error
        return entry

    def unmount(self, name: str) -> Entry:
        """Forget a file, named by its name or its path; NotFound if nothing of that name is mounted."""
        path, entries = expand_home(name).absolute(), self.entries()
        for entry in entries:
            if name.casefold() == entry.name or entry.path in (path, Path(name)):
                (self._folder / f"{entry.name}.json").unlink(missing_ok=True)
                return entry
        mounted_names = ", ".join(entry.name for entry in entries) or "nothing yet"
        raise NotFound(f"Nothing is mounted as '{name}'.", hint=f"Mounted: {mounted_names}.")

    def files(self) -> tuple[Sequence[MountedFile], Mapping[str, str]]:
        """Return the mounted files that can be opened, by name, and name -> a sentence about each that cannot."""
        entries, files, troubles = self.entries(), list[MountedFile](), dict[str, str]()
        with self._lock:
            self._close_all_but({entry.name: entry.path for entry in entries})
            for entry in entries:
                try:
                    opened = self._open.get(entry.name)
                    if isinstance(opened, OpenMount) and opened.signature != signature_of(entry.path.stat()):
                        # Another file is in its place.
                        self._open.pop(entry.name).close()
                    if entry.name not in self._open:
                        self._open[entry.name] = self._opened(entry)
                    files.append(self._open[entry.name])
                except (OSError, ConfigurationError) as error:
                    why = error.message if isinstance(error, ConfigurationError) else f"{entry.path} is not there."
                    troubles[entry.name] = f"{entry.name} (mounted) was not searched: {why}"
                    if opened := self._open.pop(entry.name, None):
                        opened.close()
        return files, troubles

    def described(self) -> list[dict[str, Any]]:
        """Return each mounted file as JSON, with what is in it now, or why it cannot be read."""
        opened = {file.name: file for file in self.files()[0]}
        listed: list[dict[str, Any]] = []
        for entry in self.entries():
            about = {"name": entry.name, "path": str(entry.path), "mountedAt": entry.mounted_at, "problem": None}
            try:
                about |= opened[entry.name].describe() if entry.name in opened else {"problem": "it is not there"}
            except LocalMCPError as error:
                about["problem"] = error.message
            listed.append(about)
        return listed

    def close(self) -> None:
        """Close every mounted file."""
        with self._lock:
            self._close_all_but({})

    def _opened(self, entry: Entry) -> OpenMount | MilvusFile:
        collection = collection_of(entry.path)
        if not collection:
            return OpenMount(entry, self._own)
        if self._milvus is None:
            raise ConfigurationError(NO_MILVUS, hint=HOW_TO_SET_MILVUS)
        return MilvusFile(self._milvus, entry.name, collection, self._own.embedder)

    def _close_all_but(self, paths: dict[str, Path]) -> None:
        for name, opened in list(self._open.items()):
            if paths.get(name) != opened.path:
                self._open.pop(name).close()


def collection_of(path: Path) -> str:
    """Return the collection in Milvus that a path names, of `milvus:NAME`; "" for a file."""
    text = str(path)
    return text.removeprefix(ADDRESS).lstrip("/") if text.startswith(ADDRESS) else ""


def _check_name(name: str) -> str:
    plain = name.strip().lower()
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,39}", plain):
        raise InvalidInput(f"'{name}' cannot be a name; use up to 40 letters a-z, digits, '-', '_' and '.'.")
    return plain
