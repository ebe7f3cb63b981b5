"""Find the files below a folder that are worth reading, with the reason for every one that is not."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from localmcp.errors import InvalidInput
from localmcp.files import modified_ns, reason_of, unicode_path
from localmcp.schemas import path_matcher

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

log = logging.getLogger(__name__)

NOT_UNICODE = "the name is not valid Unicode"
NOTHING_THERE = "there is nothing of that name"

IGNORE_FILES = (".localmcpignore", ".gitignore")
"""Earlier ones win, and so do those in deeper folders."""
IGNORED_FOLDERS = frozenset(
    """.git .hg .svn .bzr CVS node_modules bower_components __pycache__ .venv .tox .nox .eggs .cache .mypy_cache
    .ruff_cache .pytest_cache .hypothesis .ipynb_checkpoints .gradle .terraform .next .nuxt .parcel-cache .Trash
    .Spotlight-V100 .fseventsd __MACOSX $RECYCLE.BIN""".split()
)
IGNORED_FILES = frozenset(
    """.DS_Store Thumbs.db desktop.ini package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml Cargo.lock
    poetry.lock uv.lock Pipfile.lock composer.lock Gemfile.lock go.sum flake.lock""".split()
)
"""Written by programs for programs: long, and never what a person searches."""
IGNORED_ENDINGS = (
    *(".pyc", ".pyo", ".class", ".o", ".swp", ".tmp", ".part", ".crdownload", ".min.js", ".min.css", ".js.map"),
    *(".css.map", ".localmcp", ".localmcp-wal", ".localmcp-shm", ".localmcp-journal"),
)
SIGNS = {"pyvenv.cfg": "virtual environment", "CACHEDIR.TAG": "cache folder"}
"""Files that say what the folder is that they are in."""
_Layer = tuple[str, str, tuple[tuple[str, Callable[[str], Any]], ...]]
"""One ignore file: its folder, its name, and each of its patterns with what tells whether it means an entry."""


@dataclass(frozen=True, slots=True)
class File:
    """A regular file that no rule keeps out; it has not been opened."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int = 0
    """When its content or its place on the disk changed, which nobody can set back."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A file, or a folder with everything in it, that is not taken."""

    path: str
    reason: str
    failed: bool = False
    """It could not be looked at, so nothing is known of what is in it."""


@dataclass(frozen=True, slots=True)
class WalkRules:
    """The options of one walk."""

    include_hidden: bool = False
    patterns: tuple[str, ...] = ()
    """gitignore syntax; a file is taken if one matches. `!pattern` keeps files and folders out."""
    elsewhere: frozenset[str] = frozenset()
    """Paths that another walk covers: ignored, and not reported."""
    removed: frozenset[str] = frozenset()
    """Paths that the person took out of the library."""
    watched: frozenset[str] = frozenset()
    """Other folders that are watched: the ignore files of those above count too."""


def stat_file(path: str, status: os.stat_result | None = None) -> File | Passed:
    """Return a path that the person named; rules about names do not apply to it."""
    try:
        status = status or os.stat(path)
    except OSError as error:
        return Passed(path, reason_of(error), failed=True)
    if not stat.S_ISREG(status.st_mode):
        return Passed(path, "not a regular file")
    return File(path, status.st_size, modified_ns(status), status.st_ctime_ns)


def walk(root: str, rules: WalkRules = WalkRules(), towards: str | None = None) -> Iterator[File | Passed]:
    """Yield every file below the absolute path `root`, folder by folder, in the order of names.

    Symbolic links are not followed, so there are no loops and nothing outside `root` is reached. The ignore files of
    the folders above count too, up to the top of a git repository and to `rules.watched`, unless they ignore `root`.
    `towards`: only what the walk meets on the way there; nothing if it enters that folder. InvalidInput for patterns.
    """
    if "!" in rules.patterns:
        raise InvalidInput("patterns: '!' stands alone.", hint="Write what to leave out behind it: !drafts/")
    included = _compile(pattern for pattern in rules.patterns if not pattern.startswith("!"))
    excluded = _compile(pattern[1:] for pattern in rules.patterns if pattern.startswith("!"))
    stack = [(root, _layers_above(root, rules.watched))]
    while stack:
        folder, layers = stack.pop()
        if folder == towards:
            return
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            yield Passed(folder, f"the folder cannot be read: {reason_of(error)}", failed=True)
            continue
        if any(entry.name in IGNORE_FILES for entry in entries):
            layers = (*_layers_of(folder, *IGNORE_FILES), *layers)
        if towards is not None:
            entries = [entry for entry in entries if below(towards, entry.path)]
            if not entries:
                yield Passed(towards, NOTHING_THERE)
        folders: list[tuple[str, tuple[_Layer, ...]]] = []
        for entry in entries:
            if entry.path in rules.elsewhere:
                continue
            try:
                item = _look(entry, layers, rules)
            except OSError as error:
                item = Passed(entry.path, reason_of(error), failed=True)
            if rules.patterns and not isinstance(item, Passed):
                relative = _relative(entry.path, root, item is None)
                is_missing = len(included) > 0 and item is not None and not included.match_file(relative)
                if is_missing or excluded.match_file(relative):
                    item = Passed(entry.path, f"does not match the patterns given: {' '.join(rules.patterns)}")
            if item:
                yield item
            else:
                folders.append((entry.path, layers))
        stack.extend(reversed(folders))


def why_left_out(path: str, root: str, rules: WalkRules = WalkRules()) -> str | None:
    """Return why a walk of `root` does not come to `path`, which is below it; None if it does."""
    item = next(walk(root, rules, path), None)
    if isinstance(item, Passed):
        return item.reason
    # A path that is not spelled as the disk spells it is none: the disk may ignore case, and the rules do not.
    return None if item is None or item.path == path else NOTHING_THERE


def _look(entry: os.DirEntry[str], layers: tuple[_Layer, ...], rules: WalkRules) -> File | Passed | None:
    """Return a file, or why an entry is not taken; None for a folder to go into."""
    name, path = entry.name, entry.path
    if name != unicode_path(name):
        return Passed(unicode_path(path), NOT_UNICODE)
    # Python 3.12 and later know Windows' junctions.
    if entry.is_symlink() or bool(getattr(entry, "is_junction", bool)()):
        return Passed(path, "symbolic link, not followed")
    is_folder, status = entry.is_dir(follow_symlinks=False), entry.stat(follow_symlinks=False)
    file = None if is_folder else stat_file(path, status)
    if path in rules.removed:
        return Passed(path, "removed by you; add it by its own path to have it back")
    for layer in layers:
        if pattern := _says(layer, path, is_folder):
            if not pattern.startswith("!"):
                return Passed(path, f"ignored by {layer[1]}: {pattern}")
            if pattern.strip("!/").rpartition("/")[2] == name:
                # Named exactly, it comes in though it is hidden or ignored by default; `!*` alone brings no .git.
                return file
            break
    if is_folder:
        signs = (sign for sign in SIGNS if os.path.exists(os.path.join(path, sign)))
        default = next((f"{SIGNS[sign]} ({sign})" for sign in signs), None)
        if name in IGNORED_FOLDERS or name.endswith(".egg-info"):
            default = f"{name}/"
    elif name in IGNORED_FILES or name.startswith("~$"):
        default = name
    else:
        default = next((f"*{ending}" for ending in IGNORED_ENDINGS if name.endswith(ending)), None)
    if default:
        return Passed(path, f"ignored by default: {default}")
    is_hidden = name.startswith(".") or bool(getattr(status, "st_file_attributes", 0) & 2)
    if is_hidden and not rules.include_hidden:
        return Passed(path, f"hidden {'folder' if is_folder else 'file'}")
    return file


def _says(layer: _Layer, path: str, is_folder: bool) -> str | None:
    """Return the last pattern that matches, with its leading `!` if it keeps the path in; None when none does."""
    relative = _relative(path, layer[0], is_folder)
    base_name = relative[relative.rstrip("/").rfind("/") + 1 :]
    for pattern, is_in in reversed(layer[2]):
        text = pattern.removeprefix("!")
        subject = relative.rstrip("/") if text.endswith("/**") else relative
        if is_in(subject if "/" in text.rstrip("/") else base_name):
            return pattern
    return None


def _compile(patterns: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise InvalidInput(f"patterns: {error}.", hint="Use the syntax of .gitignore, such as *.md") from error


def _layers_of(folder: str, *names: str) -> list[_Layer]:
    layers: list[_Layer] = []
    for name in names:
        path, lines, rules = os.path.join(folder, name), list[str](), list[tuple[str, Callable[[str], Any]]]()
        if os.path.isfile(path):  # A pipe would block for ever.
            try:
                with open(path, encoding="utf-8-sig", errors="replace") as file:
                    lines = file.read(1_000_000).splitlines()
            except OSError as error:
                log.warning("%s cannot be read: %s", path, error)
        for line in lines:
            try:
                pattern = next(iter(_compile([line]).patterns), None)
            except InvalidInput as error:
                log.warning("%s: the line %r is left out: %s", path, line, error)
                continue
            regex: re.Pattern[str] | None = getattr(pattern, "regex", None)
            if regex is None:
                continue  # A comment.
            # pathspec also matches what is in a folder, whose slash it names; a walk has asked for the folder before.
            entry, inside = regex.pattern.replace("(?:(?P<ps_d>/)|$)", "/?$"), "(?P<ps_d>/)"
            entry = f"{entry.removesuffix(inside)}/$" if entry.endswith(inside) else entry
            rules.append((line.strip(), path_matcher(re.compile(entry))))
        layers += [(folder, name, tuple(rules))] if rules else []
    return layers


def _layers_above(root: str, watched: frozenset[str]) -> tuple[_Layer, ...]:
    # Those of the repository and of the watched folders that hold `root`; none when they ignore it.
    folders = [root, *map(str, PurePath(root).parents)]
    repository = next((folder for folder in folders if os.path.exists(os.path.join(folder, ".git"))), None)
    tops = [position for position, folder in enumerate(folders) if folder == repository or folder in watched]
    layers: list[_Layer] = []
    for folder in folders[: max(tops, default=-1) + 1]:
        if folder != root:
            layers += _layers_of(folder, *IGNORE_FILES)
        if folder == repository:
            layers += _layers_of(folder, ".git/info/exclude")
    for layer in layers:
        pattern = _says(layer, root, True) if root != layer[0] else None
        if pattern:
            return tuple(layers) if pattern.startswith("!") else ()
    return tuple(layers)


def below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or in it; both absolute."""
    return path == folder or path.startswith(prefix_of(folder))


def prefix_of(folder: str) -> str:
    """Return what every path in `folder` begins with."""
    return folder if folder.endswith(os.sep) else folder + os.sep


def _relative(path: str, base: str, is_folder: bool) -> str:
    relative = path[len(prefix_of(base)) :].replace(os.sep, "/")
    return f"{relative}/" if is_folder else relative
