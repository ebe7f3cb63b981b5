"""Compare the files on the disk with the ledger, and store what was read of new and changed ones, without vectors."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import apsw

from localmcp.config import Settings
from localmcp.errors import Interrupted
from localmcp.humanize import counted
from localmcp.index.drafts import SourceDraft, draft_chunk
from localmcp.index.sources import Pending, keep_version, put_source, restore_source, trash_sources
from localmcp.library import ledger
from localmcp.library.jobs import Progress, Report
from localmcp.library.ledger import Entry, Kind, Root
from localmcp.library.reading import CANNOT_BE_READ, REACHED_BY_LINK, Reading, Step, Task, member_uri
from localmcp.library.trash import move_to_trash
from localmcp.library.walk import File, Passed, WalkRules, below, stat_file, walk
from localmcp.readers.chunking import Chunk
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import utc_moment, utc_now


@dataclass(slots=True)
class Plan:
    """A root, and the outcome of comparing it with the ledger; what needs no work is counted in the report."""

    root: Root
    report: Report
    asked: bool = False
    """The person adds it once more: also what was skipped or failed and has not changed."""
    forced: bool = False
    """The options of the root have changed, so every file is stored again."""
    returning: bool = False
    """Also take what the person had removed."""
    tasks: list[Task] = field(default_factory=list[Task])
    passed: list[Entry] = field(default_factory=list[Entry])
    """New entries for the ledger, of paths that are passed over."""
    dropped: list[Entry] = field(default_factory=list[Entry])
    """Sources whose files are there, but are passed over from now on."""
    gone: list[Entry] = field(default_factory=list[Entry])
    """Sources whose files are no longer there; some of them may have moved."""
    stale: list[str] = field(default_factory=list[str])
    """Paths without a source whose entries no longer mean anything."""
    documents: int = 0

    def compare(self, entries: Mapping[str, Entry], elsewhere: Iterable[str], watched: frozenset[str]) -> None:
        """Walk the root, and compare it with the entries at and below it; `elsewhere` are the paths of all roots."""
        root = self.root
        others = [path for path in elsewhere if path != root.path and below(path, root.path)]
        ours = {path: entry for path, entry in entries.items() if not any(below(path, other) for other in others)}
        self.documents = sum(entry.holds_source for entry in ours.values())
        removed = frozenset(entry.path for entry in ours.values() if entry.status == "removed" and not self.returning)
        rules = WalkRules(root.include_hidden, root.patterns, frozenset(others), removed, watched)
        visited: dict[str, File | Passed] = {}
        # A file that is gone was not seen; anything else that keeps it from being read is a reason.
        items: Iterable[File | Passed] = [stat_file(root.path)] if os.path.lexists(root.path) else []
        if os.path.realpath(root.path) != root.path:
            # Refused as a whole: what the link leads to was never allowed.
            items = [Passed(root.path, REACHED_BY_LINK, failed=True)]
        elif root.kind == "folder":
            items = walk(root.path, rules) if os.path.isdir(root.path) else []
        for item in items:
            visited[item.path], entry = item, ours.get(item.path)
            if isinstance(item, File):
                self._take(item, entry)
                continue
            status = "failed" if item.failed else "skipped"
            is_known = entry is not None and (entry.status, entry.reason) == (status, item.reason)
            # What cannot be looked at may still be there: its source stays.
            stays = entry is not None and (entry.status == "removed" or (entry.holds_source and item.failed))
            if entry and entry.holds_source and not item.failed:
                self.dropped.append(entry)
            elif stays or (is_known and not (item.failed and self.asked)):
                self.report.failed += item.failed
                self.report.skipped += not item.failed
                continue
            self.passed.append(Entry(item.path, status, item.reason))
        for path, entry in ours.items():
            if path in visited or entry.status in ("kept", "missing", "moved"):
                continue
            inside = any(path[: mark.start()] in visited for mark in re.finditer("#", path))
            above = next((visited[folder] for folder in map(str, PurePath(path).parents) if folder in visited), None)
            if (inside and not entry.holds_source) or (isinstance(above, Passed) and above.failed):
                # What is said of a document inside a file is kept as long as the file is there.
                continue
            if entry.holds_source:
                (self.dropped if above else self.gone).append(entry)
            if (above or not entry.holds_source) and (entry.status != "removed" or self.returning):
                # The mark on a whole folder that was removed ends when the person adds the folder again.
                self.stale.append(path)

    def note(self, connection: apsw.Connection) -> None:
        """Note what is passed over, in the ledger and the report, and put what came from it into the trash."""
        owner = self.root.collection_id
        dropped = [(entry.source_id, owner, None) for entry in self.dropped if entry.source_id is not None]
        self.report.removed += move_to_trash(connection, dropped, "skipped", "")
        ledger.forget(connection, owner, self.stale)
        ledger.record(connection, owner, self.passed)
        for entry in self.passed:
            if entry.status == "failed":
                self.report.add_problem(entry.path, entry.reason)
            else:
                self.report.skipped += 1

    def _take(self, file: File, entry: Entry | None) -> None:
        if entry is None:
            self.tasks.append(Task(file, self.root, None, self.forced))
            return
        status = entry.status if (entry.size, entry.mtime_ns) == (file.size, file.mtime_ns) else None
        # Touched after it was recorded, as by copying or new permissions: its hash then tells.
        touched = bool(entry.sha256) and file.ctime_ns > utc_moment(entry.seen_at).timestamp() * 1e9
        # New permissions change neither size nor time.
        readable = entry.reason.startswith(CANNOT_BE_READ) and os.access(entry.path, os.R_OK)
        if status == "indexed" and not (self.forced or touched):
            self.report.unchanged += 1
        elif status == "skipped" and not self.asked:
            self.report.skipped += 1
        elif status == "failed" and not (self.asked or readable):
            self.report.failed += 1
        else:
            self.tasks.append(Task(file, self.root, entry, self.forced))


def plan_walks(
    database: Database, collection_id: int, settings: Settings, report: Report,
    options: Root | None = None, targets: Mapping[str, Kind | None] | None = None,
) -> list[Plan]:  # fmt: skip
    """Walk all roots of a collection, or each path that is added and exists; `options` has what is said of these."""
    with database.read() as connection:
        roots = ledger.roots_of(connection, [collection_id])
        plans = [Plan(root, report) for root in roots] if options is None else []
        for path, kind in (targets or {}).items():
            if kind is None or options is None:
                report.add_problem(path, "no such file or folder")
                continue
            owner = ledger.owner_of(path, roots)
            root = replace(options, path=path, kind=kind).within(owner)
            forced = owner is not None and root.values != owner.values
            is_root = owner is not None and owner.path == path
            if owner and not is_root and not forced and kind == "file":
                entry = ledger.entries_below(connection, collection_id, path).get(path)
                # The folder's own walk looks after this file; it needs no separate root.
                root.id = owner.id if entry and entry.holds_source else None
            plans.append(Plan(root, report, asked=True, forced=forced, returning=not is_root))
        entries = [ledger.entries_below(connection, collection_id, plan.root.path) for plan in plans]
        watched = watched_paths(connection, settings)
    covered = [*(root.path for root in roots), *(targets or ())]
    for plan, inside in zip(plans, entries, strict=True):
        plan.compare(inside, covered, watched)
    return plans


def watched_paths(connection: apsw.Connection, settings: Settings) -> frozenset[str]:
    """Return the folders that are watched, in any collection, and those from which assistants may add."""
    watched = fetch_column(connection, "select path from roots where kind = 'folder'")
    return frozenset([*watched, *map(os.path.realpath, settings.folders)])


def follow_moved_roots(database: Database, plans: Sequence[Plan]) -> None:
    """Watch a file or folder that was added, and is elsewhere now, where it is: its options stay with its documents."""
    # The new place is one that another root covers: its files have the size and time of those that are gone.
    lost = [plan for plan in plans if plan.gone and not os.path.lexists(plan.root.path)]
    new: dict[tuple[int | None, int | None], list[str]] = defaultdict(list)
    for task in (task for plan in plans if lost for task in plan.tasks if task.entry is None):
        new[task.file.size, task.file.mtime_ns].append(task.file.path)
    for plan in lost:
        root = plan.root
        places: Counter[str] = Counter()
        for entry in plan.gone:
            tail = entry.path[len(root.path) :]
            paths = new.get((entry.size, entry.mtime_ns), ())
            places.update(path[: len(path) - len(tail)] for path in paths if path.endswith(tail))
        place, count = max(places.items(), key=lambda place: place[1], default=("", 0))
        ours = [other.root for other in plans if other.root.collection_id == root.collection_id]
        owner = ledger.owner_of(place, ours)
        if 2 * count <= len(plan.gone) or (owner and (owner.path == place or owner.values == root.values)):
            continue
        with database.write() as connection:
            connection.execute("delete from roots where collection_id = ? and path = ?", (root.collection_id, place))
            connection.execute("update roots set path = ? where id = ?", (place, root.id))
        root.path = place
        for other in plans:
            moved = [task for task in other.tasks if below(task.file.path, place)]
            other.tasks = [task for task in other.tasks if not below(task.file.path, place)]
            plan.tasks += [replace(task, root=root) for task in moved]


def set_aside(plans: list[Plan]) -> list[str]:
    """Take out the plans that need a confirmation, as a disk may be missing; returns why, a sentence each."""

    def marks(file: File | Entry) -> set[tuple[object, ...]]:
        # What a file keeps when it is moved: size and time, and often its name.
        return {("name", os.path.basename(file.path), file.size), ("time", file.mtime_ns, file.size)}

    # What seems to be elsewhere now, also in another folder, has not vanished.
    new = {mark for plan in plans for task in plan.tasks for mark in marks(task.file)}
    sentences: list[str] = []
    for plan in [plan for plan in plans if plan.root.kind == "folder"]:
        path, vanished = plan.root.path, sum(new.isdisjoint(marks(entry)) for entry in plan.gone)
        if vanished and not os.path.isdir(path):
            sentences.append(f"{path} is not there; {counted(vanished, 'document')} came from it")
        # So many of so many have hardly been deleted on purpose.
        elif vanished > max(4, 0.3 * plan.documents):
            sentences.append(f"{vanished} of {plan.documents} documents in {path} are no longer there")
        else:
            continue
        plans.remove(plan)
    # Files that were added one by one are one group: a disk with all of them may be missing.
    single = [plan for plan in plans if plan.root.kind == "file"]
    gone = [plan for plan in single if plan.gone]
    if len(gone) > max(4, 0.3 * len(single)):
        sentences.append(f"{len(gone)} of {len(single)} files that were added one by one are no longer there")
        plans[:] = [plan for plan in plans if plan not in gone]
    return sentences


@dataclass(slots=True)
class Store:
    """Stores the readings of one run in one collection, each group as one transaction over the versions before."""

    database: Database
    collection_id: int
    run: Progress
    job_id: str = ""
    """Of the run, which others see and can stop; "" for one that they do not."""
    gone: Sequence[Entry] = ()
    """Files that are no longer where they were: one that was moved and edited continues what it was."""
    _claimed: set[int] = field(default_factory=set[int])
    """Sources that a moved file took over in this group: of two copies only one can have moved."""
    _parts: dict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    """Of files of which more comes, by path: what was read so far."""
    _pending: Pending = field(default_factory=Pending)

    def put(self, group: Sequence[Step]) -> None:
        """Store a group, all of it or nothing; Interrupted if what is read was removed, or the run was stopped."""
        self._claimed.clear()
        run, finished = self.run, [task.file for task, reading in group if reading is None]
        with self.database.write() as connection:
            watched = {None, *(root.id for root in ledger.roots_of(connection, [self.collection_id]))}
            if gone := [task.root.path for task, _ in group if task.root.id not in watched]:
                raise Interrupted(f"{gone[0]} was removed meanwhile; nothing more of it is added.")
            for task, reading in group:
                if reading is None:
                    self._finish(connection, task, self._parts.pop(task.file.path, []))
                    continue
                outcome = self._store(connection, task, reading)
                if outcome == "failed":
                    run.report.add_problem(member_uri(task.file.path, reading.member), reading.reason)
                else:
                    setattr(run.report, outcome, getattr(run.report, outcome) + 1)
                reading.draft = None
                self._parts[task.file.path].append(reading)
            self._pending.write(connection)
            if self.job_id:
                sql = "update jobs set done = done + ?, heartbeat_at = ? where id = ?"
                connection.execute(sql, (len(finished), utc_now(), self.job_id))
                if not connection.changes():
                    raise Interrupted(
                        "Stopped from another window; what was read stays, and refresh goes on with the rest."
                    )
        for file in finished:
            run.done, run.bytes_done, run.path = run.done + 1, run.bytes_done + file.size, file.path
            run.tell()

    def _store(self, connection: apsw.Connection, task: Task, reading: Reading) -> str:
        # Notes the source in the reading; returns the counter of the report.
        entry, draft = task.entry, reading.draft
        if entry and entry.source_id and reading.outcome == "unchanged":
            return self._touch(connection, task, reading, entry.source_id)
        if entry and entry.source_id and entry.holds_source and reading.outcome == "empty":
            sql = """
                select chunk_count, title, source_type, format, language from sources
                where id = ? and uri = ? and trashed_at is null
            """
            row, root = fetch_one(connection, sql, (entry.source_id, task.file.path)), task.root
            if not row:
                return "skipped"  # Nothing is left of a mailbox.
            chunks, title, source_type, form, language = row
            reading.reason = "empty; what was in it before is in the trash"
            if not chunks:
                return self._touch(connection, task, reading, entry.source_id)
            self._pending.write(connection)
            keep_version(connection, entry.source_id)
            draft = SourceDraft(
                root.collection_id, root.partition_id, title, source_type, form, task.file.path, reading.sha256 or "",
                reading.size, reading.mtime_ns, language, ledger.with_said({}, root.metadata), [],
            )  # fmt: skip
            self._put(connection, reading, draft, entry.source_id)
            return "updated"
        if draft is None:
            return "failed" if reading.outcome == "failed" else "skipped"
        removed = "select 1 from ledger where path = ? and collection_id = ? and status = 'removed'"
        # The person took this document of a file out of the library.
        if reading.member and fetch_one(connection, removed, (draft.uri, draft.collection_id)):
            return "skipped"
        # Looked up again inside the transaction: another process may have stored the file meanwhile.
        sql = "select id, sha256 from sources where collection_id = ? and uri = ? and trashed_at is null"
        source_id, sha256 = fetch_one(connection, sql, (draft.collection_id, draft.uri)) or (None, "")
        if source_id and sha256 == draft.sha256 and not task.again:
            return self._touch(connection, task, reading, source_id)
        outcome, moved_from = "updated", ""
        if source_id is None:
            place = self._find_same(connection, draft) or self._find_edited(connection, draft, reading.member)
            source_id, outcome, moved_from = place or (None, "indexed", "")
        if moved_from:
            draft = self._keep_options(connection, task, draft, moved_from)
            ledger.mark(connection, self.collection_id, moved_from, "moved", f"moved to {task.file.path}")
        self._put(connection, reading, draft, source_id)
        return outcome

    def _put(self, connection: apsw.Connection, reading: Reading, draft: SourceDraft, replaces: int | None) -> None:
        if replaces:
            draft = replace(draft, metadata=ledger.keep_own_tags(connection, draft.metadata, replaces))
        indexed = put_source(connection, draft, {}, None, replaces=replaces, pending=self._pending)
        reading.source_id = indexed.source_id
        self.run.report.chunks_added += indexed.added
        self.run.report.chunks_kept += indexed.kept

    def _touch(self, connection: apsw.Connection, task: Task, reading: Reading, source_id: int) -> str:
        path, reading.source_id = task.file.path, source_id
        # The documents in it, such as the messages of a mailbox, have the times of their file.
        inside = [] if reading.member else ledger.documents_in(connection, self.collection_id, path)
        places = [(source_id, member_uri(path, reading.member)), *inside]
        sql = "update sources set size = ?, mtime_ns = ? where id = ? and uri = ?"
        connection.executemany(sql, ((reading.size, reading.mtime_ns, *place) for place in places))
        return "unchanged"

    def _find_same(self, connection: apsw.Connection, draft: SourceDraft) -> tuple[int, str, str] | None:
        """Return the source of these very bytes that the draft continues, how that is counted, and its old path."""
        sql = """
            select id, uri, coalesce(metadata ->> '$.container', uri), trashed_at is not null,
                (select status from ledger where path = uri and ledger.collection_id = sources.collection_id)
            from sources
            where collection_id = :collection and sha256 = :sha256 and uri is not null
                and (trashed_at is null or not exists (
                    select 1 from sources as live where live.collection_id = sources.collection_id
                        and live.uri = sources.uri and live.trashed_at is null
                ))
        """
        rows = fetch_all(connection, sql, {"collection": draft.collection_id, "sha256": draft.sha256})
        # Not ordered in SQL, because there are none for nearly every file, and SQLite gets ready to sort them.
        for source_id, uri, path, trashed, status in sorted(rows, key=lambda row: (row[1] != draft.uri, row[3])):
            # What the person removed comes back only under its own path.
            elsewhere = not os.path.lexists(path) and (not trashed or status == "missing")
            if source_id not in self._claimed and (uri == draft.uri or elsewhere):
                self._claimed.add(source_id)
                if trashed:
                    restore_source(connection, source_id)
                has_moved = uri != draft.uri
                outcome = "moved" if has_moved else "restored" if trashed else "updated"
                return source_id, outcome, path if has_moved else ""
        return None

    def _find_edited(self, connection: apsw.Connection, draft: SourceDraft, member: str) -> tuple[int, str, str] | None:
        """Return the source of a file that is gone, if the draft has its name and a part of its text, or most of it."""
        if member or not self.gone:
            return None
        name, suffix = os.path.basename(draft.uri or ""), os.path.splitext(draft.uri or "")[1]
        candidates = list[tuple[bool, int, Entry]]()
        for entry in self.gone:
            has_name = os.path.basename(entry.path) == name
            if has_name or (len(self.gone) <= 200 and os.path.splitext(entry.path)[1] == suffix):
                candidates.append((not has_name, abs((entry.size or 0) - draft.size), entry))
        words = Counter("".join(chunk.text for chunk in draft.chunks).split())
        for is_renamed, _, entry in sorted(candidates, key=lambda candidate: candidate[:2])[:10]:
            if entry.source_id is None or entry.source_id in self._claimed or not ledger.is_at(connection, entry):
                continue
            texts = fetch_column(connection, "select text from chunks where source_id = ?", (entry.source_id,))
            before = Counter[str]("".join(texts).split())
            # The share of words that it must have in common with what it was.
            if (words & before).total() >= (0.7 if is_renamed else 0.3) * max(words.total(), before.total(), 1):
                self._claimed.add(entry.source_id)
                return entry.source_id, "moved", entry.path
        return None

    def _keep_options(
        self, connection: apsw.Connection, task: Task, draft: SourceDraft, moved_from: str
    ) -> SourceDraft:
        # What was said of a file where it was goes on to hold for it.
        root, collection_id = task.root, draft.collection_id
        roots = ledger.roots_of(connection, [collection_id])
        before = ledger.owner_of(moved_from, [*roots, *ledger.roots_of(connection, [collection_id], removed=True)])
        if before is None or below(root.path, before.path):
            return draft
        if before.path == moved_from:
            connection.execute("delete from roots where collection_id = ? and path = ?", (collection_id, moved_from))
        own = replace(root, path=task.file.path, kind="file", id=None).within(before)
        own.title = root.title or before.title
        if own.values == root.values:
            return draft
        ledger.save_root(connection, own)
        chunks, title = draft.chunks, own.title or draft.title
        if title != draft.title:
            # The title is among the words of each passage.
            chunks = [
                draft_chunk(Chunk(*old[:8], "prose"), title, title, old.language, old.kind, with_words=True)
                for old in chunks
            ]
        metadata, source_type = ledger.with_said(draft.metadata, own.metadata), own.source_type or draft.source_type
        values = {"partition_id": own.partition_id, "title": title, "source_type": source_type, "metadata": metadata}
        return replace(draft, chunks=chunks, **values)

    def _finish(self, connection: apsw.Connection, task: Task, parts: Sequence[Reading]) -> None:
        # Records the status of the file, and takes out the documents that are no longer in it.
        path, collection_id, entry = task.file.path, self.collection_id, task.entry
        if not parts:
            parts = [Reading(task.file.size, task.file.mtime_ns, reason="it holds no document")]
            self.run.report.add_problem(path, "it holds no document")
        reading, rest = parts[-1], [part for part in parts if not part.source_id]
        first = next((part.source_id for part in parts if part.source_id), None)
        scans = [part.pages for part in rest if part.outcome == "skipped" and part.member]
        whole_failed = reading.outcome == "failed" and not reading.member
        # Where the file as a whole failed after some documents, what it held before stays.
        is_whole = bool(first or scans or reading.outcome == "empty") and not whole_failed
        if is_whole and reading.outcome != "unchanged" and (reading.member or entry):
            inside = ledger.documents_in(connection, collection_id, path)
            uris = {member_uri(path, part.member) for part in parts}
            if gone := [number for number, uri in inside if uri not in uris]:
                self._pending.write(connection)
                self.run.report.missing += trash_sources(connection, gone)
        # Why it is indexed, but not as a whole.
        reasons = [next((part.reason for part in parts if part.source_id and part.reason), "")]
        if problems := [part.reason.rstrip(".") for part in rest if part.member and part.outcome == "failed"]:
            different = list(dict.fromkeys(problems))
            named = "; ".join(different[:5]) + ("; …" if len(different) > 5 else "")
            total = len(parts) - len(rest) + len(problems)
            reasons.append(f"{len(problems):,} of {total:,} documents in it cannot be read: {named}")
        if any(scans):
            waits = f"{counted(len(scans), 'scan')} in it wait{'s' if len(scans) == 1 else ''} for text recognition"
            reasons.append(f"{waits}: {counted(sum(scans), 'page')}")
        reason, pages = "; ".join(filter(None, reasons)), sum(part.pages for part in rest)
        if reading.outcome == "unchanged" and entry:
            now, pages = entry, entry.pages
        elif first is not None and not whole_failed:
            now = Entry(path, "indexed", reason, first, reading.sha256)
        else:
            # If it was stored before, that version stays.
            keeps = entry is not None and entry.holds_source and reading.outcome != "empty"
            reason = (reason if scans else "") or reading.reason
            reason += " (the version before is still searched)" if keeps else ""
            status = "failed" if reading.outcome == "failed" or keeps else "skipped"
            now = Entry(path, status, reason, first or (entry.source_id if entry and keeps else None))
        now = replace(now, size=reading.size, mtime_ns=reading.mtime_ns, pages=pages)
        ledger.record(connection, collection_id, [now])
