"""Plan what to do about a root: compare the files on the disk with the ledger; nothing is read or changed."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    owner_of,
    roots_of,
    values_of,
    watched_folders,
)
from localmcp.library.reading import CANNOT_BE_READ, REACHED_BY_LINK, Task, is_raised
from localmcp.library.walk import Found, Passed, WalkRules, below, stat_file, walk
from localmcp.storage.database import Database
from localmcp.storage.times import utc_moment

Mark = tuple[object, ...]

FEW = 4
MANY = 0.3
"""More documents than `FEW`, and than this share of a root's, do not vanish at once on purpose: a disk is not mounted,
or a folder was moved."""


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
    unchanged: list[str] = field(default_factory=list[str])
    """Paths of the files that are as they were when they were indexed."""
    skipped: int = 0
    failed: int = 0
    """These two as they are in the ledger already."""

    @property
    def root_is_gone(self) -> bool:
        return self.root.kind == "folder" and not os.path.isdir(self.root.path)

    def needs_confirmation(self, new: Container[Mark]) -> str | None:
        """Return why this plan must not be carried out without asking, or None; `new`: of the files to be read."""
        vanished = sum(not any(mark in new for mark in _marks(e.path, e.size, e.mtime_ns)) for e in self.gone)
        if self.root_is_gone and vanished:
            return f"{self.root.path} is not there; {counted(vanished, 'document')} came from it"
        if is_mass(vanished, self.documents):
            return f"{vanished} of {self.documents} documents in {self.root.path} are no longer there"
        return None


def is_mass(vanished: int, documents: int) -> bool:
    """Return whether so many files of so many have hardly been deleted on purpose."""
    return vanished > max(FEW, MANY * documents)


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
        root = make_root(path, kind, collection, options, partition_id, owner)
        forced = owner is not None and values_of(root) != values_of(owner)
        is_root = owner is not None and owner.path == path
        entries = entries_by_path[path]
        entry = entries.get(path)
        if owner and not is_root and not forced and kind == "file" and entry and entry.holds_source:
            # The folder's own walk looks after this file; it needs no separate root.
            root.id = owner.id
        look = Look(settings, watched, again=True, forced=forced, returning=not is_root)
        plans.append(make_plan(root, entries, look, elsewhere))
    return plans


def plan_refresh(database: Database, collection: Collection, settings: Settings) -> list[Plan]:
    """Return a plan for each root of a collection."""
    with database.read() as connection:
        roots = roots_of(connection, [collection.id])
        entries_by_root = [entries_below(connection, collection.id, root.path) for root in roots]
        watched = watched_paths(connection, settings)
    elsewhere = [root.path for root in roots]
    look = Look(settings, watched)
    return [make_plan(root, entries, look, elsewhere) for root, entries in zip(roots, entries_by_root, strict=True)]


def watched_paths(connection: apsw.Connection, settings: Settings) -> frozenset[str]:
    """Return the folders that are watched, in any collection, and those from which assistants may add."""
    return frozenset([*watched_folders(connection), *map(os.path.realpath, settings.folders)])


def set_aside(plans: list[Plan]) -> list[str]:
    """Take out what needs a confirmation; returns why, a sentence each."""
    # What seems to be elsewhere now, also in another folder, has not vanished.
    files = [task.file for plan in plans for task in plan.tasks]
    new = {mark for file in files for mark in _marks(file.path, file.size, file.mtime_ns)}
    reasons = [(plan, plan.needs_confirmation(new)) for plan in plans]
    plans[:] = [plan for plan, reason in reasons if reason is None]
    sentences = [reason for _, reason in reasons if reason is not None]
    # Files that were added one by one are one group: a disk with all of them may be missing.
    single = [plan for plan in plans if plan.root.kind == "file"]
    vanished = [plan for plan in single if plan.gone]
    if is_mass(len(vanished), len(single)):
        sentences.append(f"{len(vanished)} of {len(single)} files that were added one by one are no longer there")
        plans[:] = [plan for plan in plans if plan not in vanished]
    return sentences


@dataclass(frozen=True, slots=True)
class Look:
    """How the files of a root are compared with the ledger."""

    settings: Settings
    watched: frozenset[str]
    """Folders of the person: the ignore files of those above count."""
    again: bool = False
    """Look once more at files that were skipped or failed, though they have not changed."""
    forced: bool = False
    """The options of the root have changed, so every file is stored again."""
    returning: bool = False
    """Also take what the person had removed."""


def make_plan(root: Root, entries: Mapping[str, Entry], look: Look, elsewhere: Iterable[str] = ()) -> Plan:
    """Walk a root, compare it with the ledger's entries at and below it, and return the plan.

    `elsewhere`: other roots, which look after their paths themselves.
    """
    within = elsewhere if root.kind == "folder" else ()
    others = [path for path in within if path != root.path and below(path, root.path)]
    ours = {path: entry for path, entry in entries.items() if not any(below(path, other) for other in others)}
    plan = Plan(root, documents=sum(entry.holds_source for entry in ours.values()))
    removed = frozenset(e.path for e in ours.values() if e.status == "removed" and not look.returning)
    passed: dict[str, Passed] = {}
    visited: set[str] = set()
    for item in _walk(root, WalkRules(root.include_hidden, root.patterns, frozenset(others), removed, look.watched)):
        visited.add(item.path)
        if isinstance(item, Found):
            _compare(plan, item, ours.get(item.path), look)
        else:
            passed[item.path] = item
            _pass(plan, item, ours.get(item.path), look.again)
    # What is said of a scan inside a file is kept as long as the file is there.
    unseen = (
        entry
        for path, entry in ours.items()
        if path not in visited and (entry.holds_source or not _is_inside(path, visited))
    )
    _sort_unseen(plan, unseen, passed, look.returning)
    return plan


def _is_inside(path: str, files: Container[str]) -> bool:
    """Return whether a path is that of a document in one of the files: `box.mbox#message`."""
    return any(path[: mark.start()] in files for mark in re.finditer("#", path))


def _walk(root: Root, rules: WalkRules) -> Iterable[Found | Passed]:
    if os.path.realpath(root.path) != root.path:
        # Refused as a whole: what the link leads to was never allowed.
        return (Passed(root.path, REACHED_BY_LINK, failed=True),)
    if root.kind == "folder":
        return walk(root.path, rules) if os.path.isdir(root.path) else ()
    # A file that is gone was not seen; anything else that keeps it from being read is a reason.
    return (stat_file(root.path),) if os.path.lexists(root.path) else ()


def _has_reader(root: Root, file: Found) -> bool:
    from localmcp.readers.readers import why_skipped  # 60 ms: every reader

    return why_skipped(Path(file.path), archive=root.kind == "file") is None


def _compare(plan: Plan, file: Found, entry: Entry | None, look: Look) -> None:
    same = entry is not None and (entry.size, entry.mtime_ns) == (file.size, file.mtime_ns)
    status = entry.status if entry and same else None
    raised = entry is not None and is_raised(entry.reason, look.settings)
    # Some documents in it may have been over a limit.
    anew = raised and entry is not None and entry.status == "indexed"
    if status == "indexed" and not (look.forced or anew) and not (entry and _may_differ(file, entry)):
        plan.unchanged.append(file.path)
    elif status == "skipped" and not (look.again and _has_reader(plan.root, file)) and not raised:
        plan.skipped += 1
    elif status == "failed" and entry and not (look.again or raised) and not _is_readable_now(entry):
        plan.failed += 1
    else:
        plan.tasks.append(Task(file, plan.root, entry, look.forced, anew))


def _may_differ(file: Found, entry: Entry) -> bool:
    """Return whether a file of the same size and time was touched after it was recorded: its hash then tells.

    Copying, linking and new permissions touch a file too.
    """
    return bool(entry.sha256) and file.ctime_ns > utc_moment(entry.seen_at).timestamp() * 1e9


def _is_readable_now(entry: Entry) -> bool:
    """Return whether a file that could not be read can be now: new permissions change neither size nor time."""
    return entry.reason.startswith(CANNOT_BE_READ) and os.access(entry.path, os.R_OK)


def _pass(plan: Plan, passed: Passed, entry: Entry | None, again: bool) -> None:
    if entry and entry.status == "removed":
        plan.skipped += 1
        return
    holds = entry is not None and entry.holds_source
    if passed.failed and holds:
        # What cannot be looked at may still be there: its source stays.
        plan.failed += 1
        return
    if holds and entry:
        plan.dropped.append(entry)
    status = "failed" if passed.failed else "skipped"
    is_recorded = entry is not None and not holds and (entry.status, entry.reason) == (status, passed.reason)
    if not is_recorded or (passed.failed and again):
        plan.passed.append(Entry(passed.path, status, passed.reason))
    elif passed.failed:
        plan.failed += 1
    else:
        plan.skipped += 1


def _sort_unseen(plan: Plan, entries: Iterable[Entry], passed: Mapping[str, Passed], returning: bool) -> None:
    for entry in entries:
        above = _passed_above(entry.path, plan.root.path, passed)
        if entry.status in ("kept", "missing", "moved") or (above and above.failed):
            continue
        if entry.status == "removed":
            # The mark on a whole folder ends when the person adds the folder again.
            plan.stale += [entry.path] if returning else []
            continue
        if not entry.holds_source:
            plan.stale.append(entry.path)
        elif above:
            plan.dropped.append(entry)
            plan.stale.append(entry.path)
        else:
            plan.gone.append(entry)


def _passed_above(path: str, root: str, passed: Mapping[str, Passed]) -> Passed | None:
    """Return the folder above a path that was passed over."""
    folder = os.path.dirname(path)
    while below(folder, root):
        if folder in passed:
            return passed[folder]
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    return None


def _marks(path: str, size: int | None, mtime_ns: int | None) -> set[Mark]:
    """Return what a file keeps when it is moved: size and time, and often its name."""
    return {("name", os.path.basename(path), size), ("time", mtime_ns, size)}
