"""Plan what to do about a root: compare the files on the disk with the ledger; nothing is read or changed."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import apsw

from localmcp.config import Settings
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.library.ledger import Entry, Kind, Root, entries_below, forget_root, owner_of, roots_of, watched_folders
from localmcp.library.reading import CANNOT_BE_READ, REACHED_BY_LINK, Task
from localmcp.library.walk import File, Passed, WalkRules, below, stat_file, walk
from localmcp.storage.database import Database
from localmcp.storage.times import utc_moment


@dataclass(slots=True)
class Plan:
    """A root, and the outcome of comparing it with the ledger."""

    root: Root
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
    """Sources that came from this root."""
    unchanged: int = 0
    """Files that are as they were when they were indexed."""
    skipped: int = 0
    failed: int = 0
    """These two as they are in the ledger already."""

    @property
    def root_is_gone(self) -> bool:
        return self.root.kind == "folder" and not os.path.isdir(self.root.path)

    def compare(self, entries: Mapping[str, Entry], elsewhere: Iterable[str], watched: frozenset[str]) -> None:
        """Walk the root, and compare it with the entries at and below it; `elsewhere` are the paths of all roots."""
        root, options = self.root, self.root.options
        others = [path for path in elsewhere if path != root.path and below(path, root.path)]
        ours = {path: entry for path, entry in entries.items() if not any(below(path, other) for other in others)}
        self.documents = sum(entry.holds_source for entry in ours.values())
        removed = frozenset(entry.path for entry in ours.values() if entry.status == "removed" and not self.returning)
        rules = WalkRules(options.include_hidden, options.patterns, frozenset(others), removed, watched)
        visited: dict[str, File | Passed] = {}
        for item in _walk(root, rules):
            visited[item.path] = item
            if isinstance(item, File):
                self._take(item, ours.get(item.path))
                continue
            entry, status = ours.get(item.path), "failed" if item.failed else "skipped"
            is_known = entry is not None and (entry.status, entry.reason) == (status, item.reason)
            # What cannot be looked at may still be there: its source stays.
            stays = entry is not None and (entry.status == "removed" or (entry.holds_source and item.failed))
            if entry and entry.holds_source and not item.failed:
                self.dropped.append(entry)
            elif stays or (is_known and not (item.failed and self.asked)):
                self.failed += item.failed
                self.skipped += not item.failed
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
            self.unchanged += 1
        elif status == "skipped" and not self.asked:
            self.skipped += 1
        elif status == "failed" and not (self.asked or readable):
            self.failed += 1
        else:
            self.tasks.append(Task(file, self.root, entry, self.forced))


def plan_adding(
    database: Database, collection: Collection, targets: Mapping[str, Kind | None], said: Root, settings: Settings
) -> list[Plan]:
    """Return a plan for each path that is added and exists; `said` has what is said of all of them."""
    with database.read() as connection:
        roots = roots_of(connection, [collection.id])
        entries = {path: entries_below(connection, collection.id, path) for path in targets}
        watched = watched_paths(connection, settings)
    plans: list[Plan] = []
    for path, kind in targets.items():
        if kind is None:
            continue
        owner = owner_of(path, roots)
        root = replace(said, path=path, kind=kind).within(owner)
        forced = owner is not None and root.values != owner.values
        is_root = owner is not None and owner.path == path
        entry = entries[path].get(path)
        if owner and not is_root and not forced and kind == "file" and entry and entry.holds_source:
            # The folder's own walk looks after this file; it needs no separate root.
            root.id = owner.id
        plan = Plan(root, asked=True, forced=forced, returning=not is_root)
        plan.compare(entries[path], [*(root.path for root in roots), *targets], watched)
        plans.append(plan)
    return plans


def plan_refresh(database: Database, collection: Collection, settings: Settings) -> list[Plan]:
    """Return a plan for each root of a collection."""
    with database.read() as connection:
        plans = [Plan(root) for root in roots_of(connection, [collection.id])]
        entries = [entries_below(connection, collection.id, plan.root.path) for plan in plans]
        watched = watched_paths(connection, settings)
    for plan, inside in zip(plans, entries, strict=True):
        plan.compare(inside, [other.root.path for other in plans], watched)
    return plans


def watched_paths(connection: apsw.Connection, settings: Settings) -> frozenset[str]:
    """Return the folders that are watched, in any collection, and those from which assistants may add."""
    return frozenset([*watched_folders(connection), *map(os.path.realpath, settings.folders)])


def _walk(root: Root, rules: WalkRules) -> Iterable[File | Passed]:
    if os.path.realpath(root.path) != root.path:
        # Refused as a whole: what the link leads to was never allowed.
        return (Passed(root.path, REACHED_BY_LINK, failed=True),)
    if root.kind == "folder":
        return walk(root.path, rules) if os.path.isdir(root.path) else ()
    # A file that is gone was not seen; anything else that keeps it from being read is a reason.
    return (stat_file(root.path),) if os.path.lexists(root.path) else ()


# ---------------------------------------------------------------- files that are gone


def follow_moved_roots(database: Database, plans: Sequence[Plan]) -> None:
    """Watch a file or folder that was added, and is elsewhere now, where it is: its options stay with its documents.

    The new place is one that another root covers: its files have the size and time of those that are gone.
    """
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
        owner = owner_of(place, ours)
        if 2 * count <= len(plan.gone) or (owner and (owner.path == place or owner.values == root.values)):
            continue
        with database.write() as connection:
            forget_root(connection, root.collection_id, place)
            connection.execute("update roots set path = ? where id = ?", (place, root.id))
        root.path = place
        for other in plans:
            moved = [task for task in other.tasks if below(task.file.path, place)]
            other.tasks = [task for task in other.tasks if not below(task.file.path, place)]
            plan.tasks += [replace(task, root=root) for task in moved]


def set_aside(plans: list[Plan]) -> list[str]:
    """Take out the plans that need a confirmation, as a disk may be missing; returns why, a sentence each."""
    # What seems to be elsewhere now, also in another folder, has not vanished.
    files = [task.file for plan in plans for task in plan.tasks]
    new = {mark for file in files for mark in _marks(file.path, file.size, file.mtime_ns)}
    sentences: list[str] = []
    for plan in list(plans):
        path = plan.root.path
        vanished = sum(new.isdisjoint(_marks(entry.path, entry.size, entry.mtime_ns)) for entry in plan.gone)
        if plan.root_is_gone and vanished:
            sentences.append(f"{path} is not there; {counted(vanished, 'document')} came from it")
        elif _is_mass(vanished, plan.documents):
            sentences.append(f"{vanished} of {plan.documents} documents in {path} are no longer there")
        else:
            continue
        plans.remove(plan)
    # Files that were added one by one are one group: a disk with all of them may be missing.
    single = [plan for plan in plans if plan.root.kind == "file"]
    gone = [plan for plan in single if plan.gone]
    if _is_mass(len(gone), len(single)):
        sentences.append(f"{len(gone)} of {len(single)} files that were added one by one are no longer there")
        plans[:] = [plan for plan in plans if plan not in gone]
    return sentences


def _is_mass(vanished: int, documents: int) -> bool:
    """Return whether so many of so many have hardly been deleted on purpose: more than four and than 30 %."""
    return vanished > max(4, 0.3 * documents)


def _marks(path: str, size: int | None, mtime_ns: int | None) -> set[tuple[object, ...]]:
    """Return what a file keeps when it is moved: size and time, and often its name."""
    return {("name", os.path.basename(path), size), ("time", mtime_ns, size)}
