"""The library: add files, folders and texts, keep them up to date, remove and restore them."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as changed
from functools import partial
from typing import Any

import apsw

from localmcp.config import Settings
from localmcp.errors import FileUnavailable, InvalidInput, ModelMismatch, ModelUnavailable, NeedsConfirmation
from localmcp.humanize import command_line
from localmcp.index import collections as places
from localmcp.index import sources as stored
from localmcp.index.collections import Collection, choose_collections, visible_collections
from localmcp.index.fusion import adapt_weights
from localmcp.index.vector_queue import Lease, next_passages, waiting, work_off
from localmcp.library import ledger, trash
from localmcp.library.jobs import SCAN_SECONDS, SCANS, Progress, ProgressCallback, Report, end_run
from localmcp.library.names import SourceRow
from localmcp.library.reading import Task, draft_source, read_groups, window_for
from localmcp.library.storing import Plan, Store, follow_moved_roots, plan_walks, set_aside
from localmcp.library.walk import File, stat_file
from localmcp.models import Embedder, LazyEmbedder
from localmcp.readers.pdf import installed_engine
from localmcp.schemas import Json
from localmcp.storage.database import Database, fetch_all, fetch_column
from localmcp.storage.schema import utc_now
from localmcp.storage.trash import TrashEntry, take_from_trash

log = logging.getLogger(__name__)

NO_MODEL = "Found by words only until a refresh finds the model"


class Library:
    """Everything that changes what is in the knowledge base. Thread-safe; one long run at a time."""

    def __init__(self, database: Database, embedder: LazyEmbedder, settings: Settings) -> None:
        self.database = database
        self._embedder = embedder
        self.settings = settings
        self._running = threading.Lock()
        self.restorers: dict[str, Callable[[apsw.Connection, TrashEntry], object]] = {
            "collection": stored.restore_collection,
            "partition": stored.restore_partition,
        }
        """By kind of trash entry, from the packages that put others there, such as rules."""
        self.after_restoring: dict[str, Callable[[], object]] = {}
        """By kind, what makes the vectors of what its restorer brought back."""

    def add_paths(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        collection: str | None = None,
        partition: str | None = None,
        title: str | None = None,
        source_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        progress: ProgressCallback | None = None,
        remember: bool = True,
        include_hidden: bool = False,
        patterns: Sequence[str] = (),
        wait: bool = True,
    ) -> Report:
        """Add files, and folders with everything in them that no ignore rule keeps out.

        Vectors are made after all words, unless `wait` is false. What has not changed is not read again. `refresh`
        looks at the paths again if they are remembered. `patterns` (gitignore syntax) choose the files of a folder.

        Raises what `check_options` and `find_targets` do; ModelMismatch, with nothing changed; NeedsConfirmation if
        many files of a folder are gone, and were left as they are (`refresh` confirms).
        """
        options = ledger.check_options(title, source_type, metadata)
        run, targets = Progress(progress), ledger.find_targets(paths, options.title)
        with self._running:
            destination, options.partition_id = self._open_collection(collection, partition)
            options.collection_id = destination.id
            options.include_hidden, options.patterns = include_hidden, tuple(patterns)
            plans = plan_walks(self.database, destination.id, self.settings, run.report, options, targets)
            questions = self._ask(destination, plans)
            self._carry_out(destination, plans, run, remember)
        return self._finish(run, [destination], questions, wait)

    def refresh(
        self,
        *,
        collection: str | None = None,
        confirm_removals: bool = False,
        progress: ProgressCallback | None = None,
        wait: bool = True,
    ) -> Report:
        """Look at all that was added again, for new, changed, moved and deleted files; with `wait`, make the vectors.

        NeedsConfirmation, with that folder unchanged and the rest done, if so many of its files are gone that a disk
        may not be mounted; ModelMismatch for changes in a collection whose vectors come from another model.
        """
        run = Progress(progress)
        questions, mismatches = dict[str, str](), list[ModelMismatch]()
        with self._running:
            collections = self._collections(collection)
            planned = [plan_walks(self.database, owner.id, self.settings, run.report) for owner in collections]
            follow_moved_roots(self.database, [plan for plans in planned for plan in plans])
            for current, plans in zip(collections, planned, strict=True):
                questions |= {} if confirm_removals else self._ask(current, plans)
                try:
                    self._carry_out(current, plans, run, True)
                except ModelMismatch as error:
                    mismatches.append(error)  # The other collections are not concerned.
            trash.purge(self.database, self.settings.trash_days, by_itself=True)
        report = self._finish(run, collections, questions, wait)
        if mismatches:
            raise mismatches[0]
        return report

    def _carry_out(self, collection: Collection, plans: Sequence[Plan], run: Progress, remember: bool) -> None:
        tasks = [task for plan in plans for task in plan.tasks]
        embedder, job_id = self._model(collection, run) if tasks else None, ""
        with self.database.write() as connection:
            if tasks:
                # What a process left behind that was killed.
                connection.execute("delete from jobs where heartbeat_at < ?", (utc_now(86_400),))
                job_id = Lease("words").holder
                sql = "insert into jobs (id, total, started_at, heartbeat_at) values (?1, ?2, ?3, ?3)"
                connection.execute(sql, (job_id, len(tasks), utc_now()))
            for plan in plans:
                if remember and plan.root.id is None:
                    ledger.save_root(connection, plan.root)
                plan.note(connection)
            # From so many on, words are collected in memory.
            if len(tasks) >= 50:
                stored.prepare_for_many(connection)
        run.total += len(tasks)
        run.bytes_total += sum(task.file.size for task in tasks)
        gone = [entry for plan in plans for entry in plan.gone]
        store = Store(self.database, collection.id, run, job_id, gone)
        # What is read has no cycles, and looking for them after every 700 objects is a twentieth of the writing.
        thresholds = gc.get_threshold()
        gc.set_threshold(1_000_000, *thresholds[1:])
        try:
            for group in read_groups(tasks, window_for(embedder), self.settings):
                store.put(group)
        finally:
            gc.set_threshold(*thresholds)
            if tasks:
                end_run(self.database, job_id)
        reason = f"the file is gone; in the trash for {self.settings.trash_days} days"
        for start in range(0, len(gone), trash.AT_ONCE):
            with self.database.write() as connection:
                # What is gone, and was not moved.
                lost = [entry for entry in gone[start : start + trash.AT_ONCE] if ledger.is_at(connection, entry)]
                rows = [(entry.source_id or 0, collection.id, entry.path) for entry in lost]
                run.report.missing += trash.move_to_trash(connection, rows, "missing", reason)
        for root in (plan.root for plan in plans if plan.gone and plan.root.kind == "folder"):
            if not os.path.isdir(root.path):
                with self.database.write() as connection:
                    ledger.unwatch(connection, root.collection_id, root.path)

    def _ask(self, collection: Collection, plans: list[Plan]) -> dict[str, str]:
        # What needs a confirmation is taken out of the plans: the sentence about it -> the command if it was moved.
        option = [] if collection.name == self.settings.collection else ["--collection", collection.name]
        return dict.fromkeys(set_aside(plans), command_line("localmcp", "add", "FOLDER", *option))

    def _finish(self, run: Progress, collections: list[Collection], questions: dict[str, str], wait: bool) -> Report:
        if wait:
            self._make_vectors(run, collections)
            if self.read_scans(run=run, collections=collections):
                self._make_vectors(run, collections)
        else:
            self._count_waiting(run, collections)
        if questions:
            raise NeedsConfirmation(
                f"{'; '.join(questions)}. Nothing of that was changed.",
                hint="If they were deleted on purpose: localmcp refresh --yes (as a tool: confirmRemovals: true). "
                f"If they were moved, add the new place: {', or: '.join(dict.fromkeys(questions.values()))}",
            )
        if run.report.chunks_added:
            with self.database.read() as connection:
                run.report.add_notice(" This helps: ".join(places.unread_languages(connection) or ()))
        return run.end()

    def make_vectors(
        self, *, collection: str | None = None, behind: bool = False, progress: ProgressCallback | None = None,
        pause: Callable[[], bool] = lambda: False, report: Report | None = None,
    ) -> Report:  # fmt: skip
        """Make the vectors that are missing in one collection, or in all that the caller sees, until `pause` is true.

        `behind`: in small batches, and only while no other process makes vectors; `report`: of the run that left them.
        """
        run = Progress(progress, report or Report())
        self._make_vectors(run, self._collections(collection), behind=behind, pause=pause)
        return run.end()

    def _make_vectors(
        self, run: Progress, collections: Sequence[Collection], *, sources: Sequence[int] | None = None,
        behind: bool = False, pause: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        # Without a model, or when it fails, the rest keeps waiting.
        if not (left := self._count_waiting(run, collections)):
            return
        run.leave_vectors(left)
        report, made, is_explained = run.report, 0, behind or bool(sources)

        def tell(passages: int) -> None:
            nonlocal made
            made += passages
            run.leave_vectors(self._count_waiting(run, collections))

        try:
            embedder = self._embedder.get()
            ids = [collection.id for collection in collections]
            waiting_here = partial(next_passages, collection_ids=ids, sources=sources)
            work_off(self.database, embedder, waiting_here, behind=behind, tell=tell, stop=pause)
            if made and self.settings.semantic_weight is None:
                adapt_weights(self.database, embedder)
        except ModelUnavailable as error:
            log.info("no more vectors are made, or the weights not measured: %s", error)
            if self._count_waiting(run, collections):
                report.add_notice(f"{NO_MODEL}: {error}")
            is_explained = True
        except FileUnavailable as error:
            if not made:
                raise
            log.info("not all vectors were made, or the weights not measured: %s", error)
        report.vectors_added = max(made - report.chunks_added, report.vectors_added)
        self._count_waiting(run, collections)
        if report.waiting and not is_explained:
            passages = f"{report.waiting} passages wait for their meaning to be read"
            report.add_notice(f"{passages} by the model of their collection, which is not the one that is set.")

    def _count_waiting(self, run: Progress, collections: Sequence[Collection]) -> int:
        # Returns their characters.
        with self.database.read() as connection:
            left = waiting(connection, [collection.id for collection in collections])
        run.report.waiting = left.passages
        return left.characters

    def _model(self, collection: Collection, run: Progress) -> Embedder | None:
        """Return the model, or None if there is none; ModelMismatch if the collection's vectors come from another."""
        try:
            embedder = self._embedder.get()
        except ModelUnavailable as error:
            run.report.add_notice(f"{NO_MODEL}: {error}")
            return None
        with self.database.read() as connection:
            model_id = places.find_model(connection, embedder.identity)
            places.require_model(connection, collection, model_id, embedder.identity.name)
        return embedder

    def scanned_pages(self) -> int:
        """Return how many pages of scans wait for text recognition; 0 if it is not installed."""
        ids = [collection.id for collection in self._collections()]
        with self.database.read() as connection:
            return ledger.waiting_pages(connection, ids) if installed_engine() else 0

    def read_scans(
        self, pause: Callable[[], bool] = lambda: False, run: Progress | None = None,
        collections: Sequence[Collection] | None = None,
    ) -> int:  # fmt: skip
        """Read scans that wait, one by one, until `pause` says true; returns how many pages they have."""
        run, lease, read = run or Progress(), Lease(SCANS, SCAN_SECONDS), 0
        owners = collections or self._collections() if installed_engine() else ()
        with self.database.read() as connection:
            scans = [(owner, entry) for owner in owners for entry in ledger.waiting_scans(connection, owner.id)]
        try:
            for collection, entry in scans:
                if pause():  # It may wait for seconds, so not in the transaction.
                    break
                with self.database.write() as connection:
                    if not lease.take(connection):
                        break
                    roots = ledger.roots_of(connection, [collection.id])
                    # Digests of the scans in the file whose text is there already.
                    sql = """
                        select metadata ->> '$.ocr.of' from sources where collection_id = ? and uri > ? || '#'
                            and uri < ? || '$' and trashed_at is null and metadata ->> '$.ocr' is not null
                    """
                    read_before = fetch_column(connection, sql, (collection.id, entry.path, entry.path))
                root = ledger.owner_of(entry.path, roots) or ledger.Root(entry.path, "file", collection.id)
                file = stat_file(entry.path)
                if isinstance(file, File):
                    window = window_for(self._embedder.get() if self._embedder.loaded else None)
                    store = Store(self.database, collection.id, run)
                    task = Task(file, root, entry, recognize=frozenset(read_before))
                    for group in read_groups([task], window, self.settings):
                        store.put(group)
                    read += entry.pages
        finally:
            if scans:
                lease.release(self.database)
        return read

    def add_text(
        self,
        text: str,
        title: str,
        *,
        collection: str | None = None,
        partition: str | None = None,
        source_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        uri: str | None = None,
        replace: bool = False,
    ) -> stored.Indexed:
        """Add a text that comes from no file; added again under its title (or `uri`), it gets missing vectors.

        An empty title is taken from the text. A text with a `uri` replaces the one that came from there before.
        InvalidInput for the title of another text without `replace`; UnreadableDocument if there is no text.
        """
        from localmcp.readers.readers import read_text  # 60 ms: every reader

        options = ledger.check_options(None, source_type, metadata)
        document = read_text(text, title)
        data = document.text.encode()
        owner, options.partition_id = self._open_collection(collection, partition)
        options.collection_id = owner.id
        window = window_for(self._model(owner, Progress()))
        draft = draft_source(document, window, options, uri, hashlib.sha256(data).hexdigest(), len(data))
        test = "uri = :uri" if uri else "uri is null and title = :title"
        sql = f"""
            select id, uuid, chunk_count, sha256 from sources
            where collection_id = :collection and trashed_at is null and {test} order by id desc limit 1
        """
        with self.database.write() as connection:
            rows = fetch_all(connection, sql, {"collection": owner.id, "uri": uri, "title": draft.title})
            [(before, uuid, chunks, sha256)] = rows or [(None, "", 0, "")]
            if before and sha256 != draft.sha256:
                if uri is None and not replace:
                    message = f"'{draft.title}' is already in collection '{owner.name}' with another text."
                    hint = "To replace it, add --replace (as a tool: replace: true); or choose another title."
                    raise InvalidInput(message, hint=hint)
                draft = changed(draft, metadata=ledger.keep_own_tags(connection, draft.metadata, before))
                if uri is None:
                    stored.keep_version(connection, before)
            indexed = stored.Indexed(before, uuid, kept=chunks)
            if sha256 != draft.sha256:
                indexed = stored.put_source(connection, draft, {}, None, replaces=before)
        # Also of a text that is there: who added it may have been killed before it had vectors.
        self._make_vectors(Progress(), [owner], sources=[indexed.source_id])
        return indexed

    def _open_collection(self, name: str | None, partition: str | None) -> tuple[Collection, int | None]:
        with self.database.write() as connection:
            collection = places.ensure_collection(connection, name or self.settings.collection)
            return collection, places.ensure_partition(connection, collection, partition)

    def _collections(self, name: str | None = None) -> list[Collection]:
        with self.database.read() as connection:
            return choose_collections(connection, [name] if name else None)

    def remove(self, targets: Iterable[str], *, collection: str | None = None) -> Report:
        """Put sources into the trash by id, title or path (a folder with all in it); errors as of `removable`."""
        collections = self._collections(collection)
        reason = f"removed by you; in the trash for {self.settings.trash_days} days"
        with self.database.read() as connection:
            removals = [trash.find_removal(connection, collections, target) for target in targets]
        return Report(removed=sum(trash.remove(self.database, collections, removal, reason) for removal in removals))

    def removable(self, target: str, *, collection: str | None = None) -> list[SourceRow]:
        """Return what `remove` would put into the trash; errors as of `find_removal`, with nothing removed."""
        collections = self._collections(collection)
        with self.database.read() as connection:
            return trash.sources_of(connection, collections, trash.find_removal(connection, collections, target))

    def restore(self, *names: str) -> list[SourceRow]:
        """Bring back whatever is in the trash by ids, paths, folders, titles or names, with vectors; all or none.

        NotFound if one is not there; InvalidInput if another version of the file, or such a rule, was added meanwhile.
        """
        overwritten, kinds = list[int](), set[str]()
        with self.database.write() as connection:
            collections = visible_collections(connection)
            rows = list(dict.fromkeys(row for name in names for row in trash.named_in_trash(connection, name)))
            trash.bring_back(connection, [row for row in rows if row.id])
            entries = trash.visible_entries(connection)
            for entry in (entries[row] for row in rows if not row.id):
                kinds.add(entry.kind)
                if entry.kind in ("document", "record"):
                    overwritten.append(stored.restore_version(connection, entry))
                    sql = "update ledger set reason = ? where source_id = ? and status = 'indexed'"
                    connection.execute(sql, (f"an earlier version, {trash.BROUGHT_BACK}", overwritten[-1]))
                else:
                    self.restorers[entry.kind](connection, entry)
                take_from_trash(connection, entry)
        if overwritten:
            self._make_vectors(Progress(), collections, sources=overwritten)
        for kind in self.after_restoring.keys() & kinds:
            self.after_restoring[kind]()
        return rows

    def empty_trash(self, older_than_days: float = 0) -> int:
        """Delete for good what has been in the trash for longer; returns how many sources."""
        return trash.purge(self.database, older_than_days)

    def trashed(self) -> list[tuple[SourceRow, str]]:
        """Return what is in the trash, and since when (ISO 8601 UTC); the latest first."""
        with self.database.read() as connection:
            return trash.trashed(connection)

    def why(self, path: str | os.PathLike[str]) -> Json:
        """Return everything that the ledger knows about a path."""
        with self.database.read() as connection:
            return ledger.explain(connection, visible_collections(connection), trash.canonical_path(path))

    def roots(self, collection: str | None = None) -> list[ledger.Root]:
        """Return the files and folders that were added to a collection, or to all that the caller sees."""
        ids = [owner.id for owner in self._collections(collection)]
        with self.database.read() as connection:
            return ledger.roots_of(connection, ids)
