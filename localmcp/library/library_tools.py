"""The tools with which an assistant changes the library; found by `tool_search`, not listed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.humanize import counted
from localmcp.index.collections import visible_ids
from localmcp.library.answers import lean_report, lean_trash
from localmcp.library.ingest import Library
from localmcp.library.jobs import WAIT_SECONDS, Job, Jobs, Progress, Report
from localmcp.library.ledger import SourceType, count_tags, set_tags, split_tags, unique
from localmcp.library.names import SourceRow, find_source, nearest_hint
from localmcp.library.storing import watched_paths
from localmcp.library.walk import WalkRules, below, why_left_out
from localmcp.tools import Json, Param, current_scope, hidden_change, hidden_tool

VECTOR_SECONDS = 1.0
"""How long a call that adds files makes vectors before it answers."""
MOST_LISTED = 100
"""Documents that an answer names of those that were removed or restored."""

CollectionName = Annotated[str | None, Param("The collection; made if there is none of that name.", max_length=100)]
PartitionName = Annotated[str | None, Param("A part of the collection; made if absent.", max_length=100)]


class LibraryTools:
    """The library, as assistants may use it."""

    def __init__(self, library: Library, *, wait: float = WAIT_SECONDS) -> None:
        """`wait`: seconds after which a call answers with a job instead of a result."""
        self._library, self._database, self._settings = library, library.database, library.settings
        self._wait = wait
        self.jobs = Jobs()

    @hidden_change(
        "add_document",
        title="Add a document",
        keywords=("save", "store", "remember", "note", "index", "text", "knowledge"),
        examples=(
            "save the text {text} as {title}",
            "add a document called {title} with the text {text}",
            "make a note called {title} with the text {text}",
            "remember this note titled {title}: {text}",
            "store the text {text} under the title {title}",
        ),
        says={"text required": "text: required. A file or a folder is added with add_path(path)."},
        idempotent=True,
    )
    def add_document(
        self,
        text: Annotated[str, Param("The whole text, Markdown or plain.", min_length=1)],
        title: Annotated[str, Param("What it is called.", min_length=1, max_length=200)],
        collection: CollectionName = None,
        partition: PartitionName = None,
        sourceType: Annotated[SourceType | None, Param("What kind of text it is.")] = None,
        metadata: Annotated[dict[str, Any] | None, Param("Kept with the document; searches can filter by it.")] = None,
        replace: Annotated[bool, Param("Replace the document of that title.")] = False,
    ) -> Json:
        """Add a text to the knowledge base so that search finds it. The same text again changes nothing."""

        def work(job: Job) -> Json:
            job.tell(0, 1, title)
            added = self._library.add_text(
                text, title, collection=collection, partition=partition, source_type=sourceType, metadata=metadata,
                replace=replace,
            )  # fmt: skip
            changed = added.added or added.removed
            status = ("replaced" if added.kept or added.removed else "added") if changed else "unchanged"
            return {"status": status, "sourceId": added.uuid, "chunksAdded": added.added, "chunksKept": added.kept}

        job = self.jobs.run("add_document", work, self._wait)
        return job.result or {"status": "running", "jobId": job.id}

    @hidden_change(
        "add_path",
        title="Add files",
        keywords=("index", "folder", "file", "directory", "import", "ingest", "documents"),
        examples=(
            "index the folder|file {path}",
            "add the file|folder {path}",
            "add the file|folder {path} to the documents|knowledge base",
            "add|import {path} to|into the collection {collection}",
            "import|ingest the documents in {path}",
        ),
        idempotent=True,
        lean=lean_report,
    )
    def add_path(
        self,
        path: Annotated[str, Param("Absolute path of a file or folder.", min_length=1)],
        collection: CollectionName = None,
        partition: PartitionName = None,
    ) -> Json:
        """Add a file, or a folder with everything in it, to the knowledge base, and watch it: it stays up to date.

        Only files in folders that the person has allowed or added can be added. Unchanged files are not read again.
        """
        allowed = self._allowed(path)
        work = partial(self._library.add_paths, [allowed], collection=collection, partition=partition)
        return self._ingest("add_path", collection or self._settings.collection, work)

    @hidden_change(
        "refresh",
        title="Refresh the knowledge base",
        keywords=("update", "reindex", "sync", "changed", "stale", "files"),
        examples=(
            "update|refresh the index",
            "look for changed files",
            "check whether files have changed",
            "bring the knowledge base up to date",
        ),
        destructive=True,
        idempotent=True,
        lean=lean_report,
    )
    def refresh(
        self,
        collection: Annotated[str | None, Param("Only this collection.")] = None,
        confirmRemovals: Annotated[bool, Param("Many files were deleted on purpose.")] = False,
    ) -> Json:
        """Look at all added files again: new and changed ones are indexed, deleted ones go into the trash."""
        work = partial(self._library.refresh, collection=collection, confirm_removals=confirmRemovals)
        return self._ingest("refresh", collection, work)

    @hidden_change(
        "remove_source",
        title="Remove a document",
        keywords=("delete", "forget", "trash", "document", "file"),
        examples=(
            "remove|delete the document {sourceId}",
            "forget the folder|file {path}",
            "delete the file {path}",
            "remove {sourceId} from the knowledge base",
            "put|move|throw {sourceId} into|in|to the trash",
        ),
        destructive=True,
        idempotent=True,
        lean=lean_trash,
    )
    def remove_source(
        self,
        sourceId: Annotated[str | None, Param("The document: id, path or title.")] = None,
        path: Annotated[str | None, Param("Or its path, or a folder: everything in it.")] = None,
        confirm: Annotated[bool, Param("Needed for more than five documents.")] = False,
    ) -> Json:
        """Put a document, or everything that came from a path, into the trash; restore_source brings it back."""
        if (sourceId is None) == (path is None):
            raise InvalidInput("Give either sourceId or path.")
        named = sourceId or path or ""
        # An absolute path is every document of it, in all collections.
        with self._database.read() as connection:
            source = find_source(connection, named) if sourceId or not os.path.isabs(named) else None
        target = source.uuid if source else named
        affected = self._library.removable(target)
        listed = {"trashDays": self._settings.trash_days, "sources": [_listed(row) for row in affected[:MOST_LISTED]]}
        if len(affected) > 5 and not confirm and not current_scope().trusted:
            message = (
                f"This would put {counted(len(affected), 'document')} into the trash. Nothing was removed; if the "
                "person wants this, call again with confirm: true."
            )
            return {"removed": 0, **listed, "wouldRemove": len(affected), "message": message}
        removed = self._library.remove([target]).removed
        message = "Nothing was removed: no document is from there. It is no longer looked at."
        return {"removed": removed, **listed} | ({} if removed else {"message": message})

    @hidden_change(
        "restore_source",
        title="Restore a document",
        keywords=("undo", "undelete", "trash", "recover", "document"),
        examples=(
            "bring back the document {sourceId}",
            "restore the document {sourceId} from the trash",
            "undo the removal of {sourceId}",
            "take {sourceId} out of the trash",
            "put {sourceId} back from the trash",
        ),
        idempotent=False,
        lean=lean_trash,
    )
    def restore_source(
        self,
        sourceId: Annotated[str | None, Param("The document: id, path or title; list_trash shows them.")] = None,
        paths: Annotated[list[str] | None, Param("Or several: paths, folders, ids or titles.")] = None,
    ) -> Json:
        """Bring back from the trash a document, a folder, an overwritten version, or a dropped collection."""
        if (not sourceId) == (not paths):
            raise InvalidInput("Give either sourceId or paths.", hint="list_trash shows what can be restored.")
        rows = self._library.restore(*(paths or [sourceId or ""]))
        if sourceId and len(rows) == 1:
            return _listed(rows[0])
        return {"restored": len(rows), "sources": [_listed(row) for row in rows[:MOST_LISTED]]}

    @hidden_change(
        "tag_document",
        title="Tag a document",
        keywords=("tag", "label", "mark", "category", "document"),
        examples=(
            "tag the document {sourceId} with {add}",
            "add the tag {add} to {sourceId}",
            "remove the tag {remove} from {sourceId}",
        ),
        idempotent=True,
    )
    def tag_document(
        self,
        sourceId: Annotated[str, Param("The document: id, path or title.", min_length=1)],
        add: Annotated[list[str] | None, Param("Tags that it gets.")] = None,
        remove: Annotated[list[str] | None, Param("Tags that it loses.")] = None,
    ) -> Json:
        """Add tags to a document, or take them away; they stay with it, whatever happens to its file."""
        added, removed = unique(split_tags(add or [])), unique(split_tags(remove or []))
        if not added and not removed:
            raise InvalidInput("Name a tag to add or to remove.")
        with self._database.write() as connection:
            source = find_source(connection, sourceId)
            if source is None:
                raise NotFound(f"No document '{sourceId}'.", hint=nearest_hint(connection, sourceId))
            # As it is written elsewhere: filters compare letter by letter.
            spelling = {tag.casefold(): tag for tag in count_tags(connection, visible_ids(connection))}
            added = [spelling.get(tag.casefold(), tag) for tag in added]
            tags = set_tags(connection, source.uuid, added, removed)
        return {"sourceId": source.uuid, "title": source.title, "tags": tags}

    @hidden_tool(
        "list_tags",
        title="List the tags",
        keywords=("tags", "labels", "categories", "topics"),
        examples=("which tags are there", "list my tags", "show all the tags of my documents"),
    )
    def list_tags(self) -> Json:
        """List the tags of the documents, the most used first."""
        with self._database.read() as connection:
            counts = count_tags(connection, visible_ids(connection))
        tags = [{"tag": tag, "documents": count} for tag, count in counts.items()]
        return {"count": len(tags), "tags": tags}

    @hidden_tool(
        "list_trash",
        title="List the trash",
        keywords=("removed", "deleted", "trash", "recover", "undo"),
        examples=(
            "what is in the trash",
            "which documents were removed",
            "list the removed documents",
            "what did I delete|remove",
        ),
    )
    def list_trash(
        self,
        limit: Annotated[int, Param("Documents.", minimum=1, maximum=500)] = 20,
        offset: Annotated[int, Param("Documents to skip.", minimum=0)] = 0,
    ) -> Json:
        """List what was removed or overwritten, the latest first; restore_source brings it back."""
        trashed = self._library.trashed()
        sources = [{**_listed(row), "trashedAt": moment} for row, moment in trashed[offset : offset + limit]]
        message = "restore_source brings documents back. Only a person deletes them for good: localmcp trash empty"
        listed = {"count": len(sources), "total": len(trashed), "sources": sources}
        return {**listed, "message": message} if trashed else listed

    @hidden_change(
        "job_status",
        title="Status of long work",
        keywords=("progress", "running", "job", "indexing", "wait"),
        examples=("how far is job {jobId}", "is the indexing|job {jobId} done", "what is the progress of job {jobId}"),
        idempotent=True,
    )
    def job_status(
        self,
        jobId: Annotated[str, Param("As add_path or refresh returned it.")],
        waitSeconds: Annotated[int, Param("Wait this long for the end.", minimum=0, maximum=int(WAIT_SECONDS))] = 0,
    ) -> Json:
        """How far long work is, and its result once it is done."""
        job = self.jobs.find(jobId)
        job.finished.wait(waitSeconds)
        return job.status()

    @hidden_change(
        "cancel_job",
        title="Cancel long work",
        keywords=("stop", "abort", "job", "indexing"),
        examples=("cancel|stop the job {jobId}", "stop the indexing {jobId}"),
        idempotent=True,
    )
    def cancel_job(self, jobId: Annotated[str, Param("As add_path or refresh returned it.")]) -> Json:
        """Stop long work at the next file; what is indexed so far stays. Work that is done is not undone."""
        job = self.jobs.find(jobId)
        job.cancelled = True
        job.finished.wait(10.0)
        return job.status()

    def _ingest(self, kind: str, collection: str | None, run: Callable[..., Report]) -> Json:
        def work(job: Job) -> Json:
            def tell(progress: Progress) -> None:
                job.tell(progress.done, progress.total, progress.path)

            # Vectors are made for a second, enough for a few files; the upkeep makes the others.
            report = run(progress=tell, wait=False)
            end = time.monotonic() + VECTOR_SECONDS
            if report.waiting:
                self._library.make_vectors(
                    collection=collection, behind=True, pause=lambda: time.monotonic() > end, report=report
                )
            if report.waiting and not report.notices:
                sentence = f"{counted(report.waiting, 'passage')} found by words so far"
                report.add_notice(f"{sentence}; their meaning is read in the background.")
            return report.to_json()

        job = self.jobs.run(kind, work, self._wait)
        return job.result or {"status": "running", "jobId": job.id, "done": job.done, "total": job.total}

    def _allowed(self, path: str) -> str:
        # Returns the path with its links resolved, if the caller may add it.
        if "\0" in path:
            raise InvalidInput("path has a NUL character, which no file's name has.")
        expanded = os.path.expanduser(path)
        real = os.path.realpath(expanded)
        if current_scope().trusted:
            return real
        if not os.path.isabs(expanded):
            raise InvalidInput(f"path is '{path}', but must be absolute.")
        with self._database.read() as connection:
            watched = watched_paths(connection, self._settings)
        allowed = [(os.path.realpath(folder), WalkRules(watched=watched)) for folder in self._settings.folders]
        roots = self._library.roots()
        allowed += [(root.path, WalkRules(root.include_hidden, root.patterns, watched=watched)) for root in roots]
        above = [pair for pair in allowed if below(os.path.normcase(real), os.path.normcase(pair[0]))]
        reasons = [why_left_out(real, folder, rules) for folder, rules in above]
        if above and not all(reasons):
            return real
        message, hint = f"'{path}' is not among what an assistant may add", "The person can run: localmcp add PATH"
        if reasons:
            raise AccessDenied(f"{message}: {reasons[0]}.", hint=hint)
        named = ", ".join(sorted({folder for folder, _ in allowed})[:10]) or "none yet"
        hint = f"Allowed: {named}. {hint}   (or allow more with the setting 'folders', and restart the client)"
        raise AccessDenied(f"'{path}' is outside the folders from which an assistant may add files.", hint=hint)


def _listed(row: SourceRow) -> Json:
    return {"sourceId": row.uuid, "title": row.title, "path": row.uri}
