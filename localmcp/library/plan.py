"""Plan what to do about a root: compare the files on the disk with the ledger; nothing is read or changed."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import apsw

from localmcp.config import Settings
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.library.ledger import (
    Entry,
    Kind,
    Options,
    Root,
    entries_below,
    make_root,
    move_root,
    owner_of,
    roots_of,
    watched_folders,
)
from localmcp.library.reading import CANNOT_BE_READ, REACHED_BY_LINK, Task
from localmcp.library.walk import File, Passed, WalkRules, below, stat_file, walk
from localmcp.storage.database import Database
from localmcp.storage.times import utc_moment


@dataclass(slots=True)
class Plan:
    """The outcome of one comparison."""

    root: Root
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


@dataclass(frozen=True, slots=True)
class _Look:
    """How the files of a root are compared with the ledger."""

    settings: Settings
    watched: frozenset[str]
    """Folders of the person: the ignore files of those above count."""
    asked: bool = False
    """The person adds it once more: also what was skipped or failed and has not changed."""
    forced: bool = False
    """The options of the root have changed, so every file is stored again."""
    returning: bool = False
    """Also take what the person had removed."""


def plan_adding(
    database: Database, collection: Collection, partition_id: int | None, targets: Mapping[str, Kind | None],
    options: Options, settings: Settings,
) -> list[Plan]:  # fmt: skip
    """Return a plan for each path that is added and exists."""
    with database.read() as connection:
        roots = roots_of(connection, [collection.id])
        entries_by_path = {path: entries_below(connection, collection.id, path) for path in targets}
        watched = watched_paths(connection, settings)
    elsewhere = [*(root.path for root in roots), *targets]
    plans: list[Plan] = []
    for path, kind in targets.items():
        if kind is None:
            continue
        owner = owner_of(path, roots)
        root = make_root(path, kind, collection.id, partition_id, options, owner)
        forced = owner is not None and root.values != owner.values
        is_root = owner is not None and owner.path == path
        entries = entries_by_path[path]
        entry = entries.get(path)
        if owner and not is_root and not forced and kind == "file" and entry and entry.holds_source:
            # The folder's own walk looks after this file; it needs no separate root.
            root.id = owner.id
        look = _Look(settings, watched, asked=True, forced=forced, returning=not is_root)
        plans.append(_make_plan(root, entries, look, elsewhere))
    return plans


def plan_refresh(database: Database, collection: Collection, settings: Settings) -> list[Plan]:
    """Return a plan for each root of a collection."""
    with database.read() as connection:
        roots = roots_of(connection, [collection.id])
        entries_by_root = [entries_below(connection, collection.id, root.path) for root in roots]
        look = _Look(settings, watched_paths(connection, settings))
    elsewhere = [root.path for root in roots]
    return [_make_plan(root, entries, look, elsewhere) for root, entries in zip(roots, entries_by_root, strict=True)]


def watched_paths(connection: apsw.Connection, settings: Settings) -> frozenset[str]:
    """Return the folders that are watched, in any collection, and those from which assistants may add."""
    return frozenset([*watched_folders(connection), *map(os.path.realpath, settings.folders)])


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
            found = new.get((entry.size, entry.mtime_ns), ())
            places.update(path[: len(path) - len(tail)] for path in found if path.endswith(tail))
        place, count = max(places.items(), key=lambda place: place[1], default=("", 0))
        ours = [other.root for other in plans if other.root.collection_id == root.collection_id]
        owner = owner_of(place, ours)
        if 2 * count <= len(plan.gone) or (owner and (owner.path == place or owner.values == root.values)):
            continue
        with database.write() as connection:
            move_root(connection, root, place)
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


# ---------------------------------------------------------------- comparing


def _make_plan(root: Root, entries: Mapping[str, Entry], look: _Look, elsewhere: Iterable[str]) -> Plan:
    """Walk a root and compare it with the ledger's entries at and below it; `elsewhere` are the paths of all roots."""
    others = [path for path in elsewhere if path != root.path and below(path, root.path)]
    ours = {path: entry for path, entry in entries.items() if not any(below(path, other) for other in others)}
    plan = Plan(root, documents=sum(entry.holds_source for entry in ours.values()))
    removed = frozenset(entry.path for entry in ours.values() if entry.status == "removed" and not look.returning)
    options = root.options
    rules = WalkRules(options.include_hidden, options.patterns, frozenset(others), removed, look.watched)
    passed: dict[str, Passed] = {}
    visited: set[str] = set()
    for item in _walk(root, rules):
        visited.add(item.path)
        if isinstance(item, File):
            _compare(plan, item, ours.get(item.path), look)
        else:
            passed[item.path] = item
            _pass(plan, item, ours.get(item.path), look)
    for path, entry in ours.items():
        if path in visited or entry.status in ("kept", "missing", "moved"):
            continue
        inside = any(path[: mark.start()] in visited for mark in re.finditer("#", path))
        above = next((passed[folder] for folder in map(str, PurePath(path).parents) if folder in passed), None)
        if (inside and not entry.holds_source) or (above and above.failed):
            # What is said of a document inside a file is kept as long as the file is there.
            continue
        if entry.holds_source:
            (plan.dropped if above else plan.gone).append(entry)
        if (above or not entry.holds_source) and (entry.status != "removed" or look.returning):
            # The mark on a whole folder that was removed ends when the person adds the folder again.
            plan.stale.append(path)
    return plan


def _walk(root: Root, rules: WalkRules) -> Iterable[File | Passed]:
    if os.path.realpath(root.path) != root.path:
        # Refused as a whole: what the link leads to was never allowed.
        return (Passed(root.path, REACHED_BY_LINK, failed=True),)
    if root.kind == "folder":
        return walk(root.path, rules) if os.path.isdir(root.path) else ()
    # A file that is gone was not seen; anything else that keeps it from being read is a reason.
    return (stat_file(root.path),) if os.path.lexists(root.path) else ()


def _compare(plan: Plan, file: File, entry: Entry | None, look: _Look) -> None:
    if entry is None:
        plan.tasks.append(Task(file, plan.root, None, look.forced))
        return
    status = entry.status if (entry.size, entry.mtime_ns) == (file.size, file.mtime_ns) else None
    # Touched after it was recorded, as by copying or new permissions: its hash then tells.
    touched = bool(entry.sha256) and file.ctime_ns > utc_moment(entry.seen_at).timestamp() * 1e9
    # New permissions change neither size nor time.
    readable = entry.reason.startswith(CANNOT_BE_READ) and os.access(entry.path, os.R_OK)
    if status == "indexed" and not (look.forced or touched):
        plan.unchanged += 1
    elif status == "skipped" and not (look.asked and _is_readable(plan.root, file, look.settings)):
        plan.skipped += 1
    elif status == "failed" and not (look.asked or readable):
        plan.failed += 1
    else:
        plan.tasks.append(Task(file, plan.root, entry, look.forced))


def _is_readable(root: Root, file: File, settings: Settings) -> bool:
    from localmcp.readers.readers import why_skipped  # 60 ms: every reader

    return why_skipped(Path(file.path), archive=root.kind == "file", max_bytes=settings.max_file_mb * 1_000_000) is None


def _pass(plan: Plan, passed: Passed, entry: Entry | None, look: _Look) -> None:
    status = "failed" if passed.failed else "skipped"
    if entry and entry.holds_source and not passed.failed:
        plan.dropped.append(entry)
    elif entry and (entry.holds_source or entry.status == "removed"):
        # What cannot be looked at may still be there: its source stays.
        plan.failed += passed.failed and entry.status != "removed"
        plan.skipped += entry.status == "removed"
        return
    elif entry and (entry.status, entry.reason) == (status, passed.reason) and not (passed.failed and look.asked):
        plan.failed += passed.failed
        plan.skipped += not passed.failed
        return
    plan.passed.append(Entry(passed.path, status, passed.reason))
