"""Find the files below a folder that are worth reading, with the reason for every one that is not."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from localmcp.errors import InvalidInput
from localmcp.files import modified_ns, reason_of, unicode_path
from localmcp.linear_patterns import path_matcher

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

log = logging.getLogger(__name__)

NOT_UNICODE = "the name is not valid Unicode"

IGNORE_FILES = (".gitignore", ".localmcpignore")
"""Later ones win, and so do those in deeper folders."""

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
_PAGE_FOLDER = re.compile(
    r"(.+)[_-](?:files?|dateien|fichiers|archivos|arquivos|ficheiros|bestanden|pliki)", re.I | re.S
)
"""How browsers name the folder beside a page that is saved with its pictures and scripts."""


_INSIDE = "(?P<ps_d>/)"


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


def stat_file(path: str) -> File | Passed:
    """Return a path that the person named; rules about names do not apply to it."""
    try:
        status = os.stat(path)
    except OSError as error:
        return Passed(path, reason_of(error), failed=True)
    if not stat.S_ISREG(status.st_mode):
        return Passed(path, "not a regular file")
    return File(path, status.st_size, modified_ns(status), status.st_ctime_ns)


def walk(root: str, rules: WalkRules = WalkRules()) -> Iterator[File | Passed]:
    """Yield every file below the absolute path `root`, folder by folder, in the order of names.

    Symbolic links are not followed, so there are no loops and nothing outside `root` is reached. The ignore files of
    the folders above count too, up to the top of a git repository and to `rules.watched`, unless they ignore `root`
    itself.

    Raises:
        InvalidInput: a pattern that cannot be used.
    """
    return _Walk(root, rules).run()


def why_left_out(path: str, root: str, rules: WalkRules = WalkRules()) -> str | None:
    """Return why a walk of `root` does not come to `path`, which is below it; None if it does, or nothing is there."""
    return _Walk(root, rules).why_left_out(path)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of an ignore file."""

    pattern: str
    is_in: Callable[[str], Any]

    def matches(self, relative: str) -> bool:
        """Return whether it means this very entry."""
        text = self.pattern.removeprefix("!")
        if text.endswith("/**"):
            subject = relative.rstrip("/")
        elif "/" in text.rstrip("/"):
            subject = relative
        else:
            subject = relative[relative.rstrip("/").rfind("/") + 1 :]
        return bool(self.is_in(subject))


@dataclass(frozen=True, slots=True)
class _Layer:
    """One ignore file."""

    base: str
    name: str
    rules: tuple[_Rule, ...]

    def says(self, path: str, is_folder: bool) -> str | None:
        """Return the last pattern that matches, with its leading `!` if it keeps the path in; None when none does."""
        relative = _relative(path, self.base, is_folder)
        return next((rule.pattern for rule in reversed(self.rules) if rule.matches(relative)), None)


@dataclass(slots=True)
class _Walk:
    root: str
    rules: WalkRules
    _visited: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def run(self) -> Iterator[File | Passed]:
        patterns = _Patterns(self.root, self.rules.patterns)
        stack: list[tuple[str, tuple[_Layer, ...]]] = [(self.root, _layers_above(self.root, self.rules.watched))]
        while stack:
            folder, layers = stack.pop()
            try:
                entries = self._list(folder)
            except OSError as error:
                yield Passed(folder, f"the folder cannot be read: {reason_of(error)}", failed=True)
                continue
            if not entries:
                continue
            layers = (*_layers_of(folder, {entry.name for entry in entries}), *layers)
            folders: list[tuple[str, tuple[_Layer, ...]]] = []
            for entry in entries:
                if entry.path in self.rules.elsewhere:
                    continue
                item = self._look(entry, layers, patterns)
                if item is None:
                    folders.append((entry.path, layers))
                else:
                    yield item
            stack.extend(reversed(folders))

    def why_left_out(self, path: str) -> str | None:
        """Go down to one path alone."""
        if path == self.root:
            return None
        patterns = _Patterns(self.root, self.rules.patterns)
        folder, layers = self.root, _layers_above(self.root, self.rules.watched)
        for name in path[len(prefix_of(self.root)) :].split(os.sep):
            try:
                entry = _entry_of(folder, name)
            except OSError as error:
                return reason_of(error)
            if entry is None:
                return None
            layers = (*_layers_of(folder, _ignore_files_in(folder)), *layers)
            item = self._look(entry, layers, patterns)
            if isinstance(item, Passed):
                return item.reason
            folder = entry.path
        return None

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries by name; none for a folder already listed under another name (mounts, junctions)."""
        status = os.stat(folder)
        identity = (status.st_dev, status.st_ino)
        if identity in self._visited:
            return []
        self._visited.add(identity)
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def _look(self, entry: os.DirEntry[str], layers: tuple[_Layer, ...], patterns: _Patterns) -> File | Passed | None:
        """Return a file, or why an entry is not taken; None for a folder to go into."""
        if entry.name != unicode_path(entry.name):
            return Passed(unicode_path(entry.path), NOT_UNICODE)
        try:
            # Python 3.12 and later know Windows' junctions.
            if entry.is_symlink() or bool(getattr(entry, "is_junction", bool)()):
                return Passed(entry.path, "symbolic link, not followed")
            is_folder = entry.is_dir(follow_symlinks=False)
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            return Passed(entry.path, reason_of(error), failed=True)
        reason = self._why_not(entry, status, is_folder, layers) or patterns.why_not(entry.path, is_folder)
        if reason:
            return Passed(entry.path, reason)
        if is_folder:
            return None
        if not stat.S_ISREG(status.st_mode):
            return Passed(entry.path, "not a regular file")
        return File(entry.path, status.st_size, modified_ns(status), status.st_ctime_ns)

    def _why_not(
        self, entry: os.DirEntry[str], status: os.stat_result, is_folder: bool, layers: tuple[_Layer, ...]
    ) -> str | None:
        if entry.path in self.rules.removed:
            return "removed by you; add it by its own path to have it back"
        for layer in layers:
            if pattern := layer.says(entry.path, is_folder):
                if not pattern.startswith("!"):
                    return f"ignored by {layer.name}: {pattern}"
                if pattern.strip("!/").rpartition("/")[2] == entry.name:
                    # Named exactly, it comes in though it is hidden or ignored by default; `!*` alone brings no .git.
                    return None
                break
        if reason := _ignored_by_default(entry, is_folder):
            return reason
        hidden = entry.name.startswith(".") or getattr(status, "st_file_attributes", 0) & 2
        if hidden and not self.rules.include_hidden:
            return f"hidden {'folder' if is_folder else 'file'}"
        return None


def _ignored_by_default(entry: os.DirEntry[str], is_folder: bool) -> str | None:
    name = entry.name
    if not is_folder:
        ending = next((e for e in IGNORED_ENDINGS if name.endswith(e)), None)
        if name in IGNORED_FILES or name.startswith("~$"):
            return f"ignored by default: {name}"
        return f"ignored by default: *{ending}" if ending else None
    if name in IGNORED_FOLDERS or name.endswith(".egg-info"):
        return f"ignored by default: {name}/"
    # Beside a folder in which a browser saved what belongs to a web page is that page.
    match = _PAGE_FOLDER.fullmatch(entry.path)
    pages = [f"{match[1]}{suffix}" for suffix in (".html", ".htm")] if match else []
    if page := next(filter(os.path.isfile, pages), ""):
        return f"ignored by default: pictures and scripts of {os.path.basename(page)}"
    if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
        return "ignored by default: virtual environment (pyvenv.cfg)"
    if os.path.exists(os.path.join(entry.path, "CACHEDIR.TAG")):
        return "ignored by default: cache folder (CACHEDIR.TAG)"
    return None


# ---------------------------------------------------------------- patterns


class _Patterns:
    """The patterns given with `add`: which files are taken, and with `!` which files and folders are not."""

    def __init__(self, root: str, patterns: Sequence[str]) -> None:
        self._root = root
        positive_patterns = [pattern for pattern in patterns if not pattern.startswith("!")]
        negative_patterns = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        if "" in negative_patterns:
            raise InvalidInput("patterns: '!' stands alone.", hint="Write what to leave out behind it: !drafts/")
        self._included = _compile(positive_patterns) if positive_patterns else None
        self._excluded = _compile(negative_patterns) if negative_patterns else None
        self._why_not = f"does not match the patterns given: {' '.join(patterns)}"

    def why_not(self, path: str, is_folder: bool) -> str | None:
        relative = _relative(path, self._root, is_folder)
        if self._excluded and self._excluded.match_file(relative):
            return self._why_not
        if self._included and not is_folder and not self._included.match_file(relative):
            return self._why_not
        return None


def _compile(patterns: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise InvalidInput(f"patterns: {error}.", hint="Use the syntax of .gitignore, such as *.md") from error


def _layers_of(folder: str, names: set[str]) -> tuple[_Layer, ...]:
    """Return the folder's own ignore files, the strongest first."""
    ignore_layers = [_read_layer(folder, os.path.join(folder, name), name) for name in IGNORE_FILES if name in names]
    return tuple(layer for layer in reversed(ignore_layers) if layer)


def _read_layer(base: str, path: str, name: str) -> _Layer | None:
    if not os.path.isfile(path):
        # A pipe would block for ever.
        return None
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            lines = file.read(1_000_000).splitlines()
    except OSError as error:
        log.warning("%s cannot be read: %s", path, error)
        return None
    rules = tuple(rule for line in lines if (rule := _read_rule(line, path)))
    return _Layer(base, name, rules) if rules else None


def _read_rule(line: str, path: str) -> _Rule | None:
    """Return a line as a rule; None for a comment, an empty line, or one that makes no sense."""
    try:
        pattern = next(iter(_compile([line]).patterns), None)
    except InvalidInput as error:
        log.warning("%s: the line %r is left out: %s", path, line, error)
        return None
    regex: re.Pattern[str] | None = getattr(pattern, "regex", None)
    if regex is None:
        return None
    # pathspec also matches what is in a folder, whose slash it names; but a walk has asked for the folder before.
    entry = regex.pattern.replace("(?:(?P<ps_d>/)|$)", "/?$")
    entry = f"{entry.removesuffix(_INSIDE)}/$" if entry.endswith(_INSIDE) else entry
    return _Rule(line.strip(), path_matcher(re.compile(entry)))


def _layers_above(root: str, watched: frozenset[str]) -> tuple[_Layer, ...]:
    """Return the ignore files of the repository and the watched folders that hold `root`; none when they ignore it."""
    folders = [root, *map(str, PurePath(root).parents)]
    repository = next((folder for folder in folders if os.path.exists(os.path.join(folder, ".git"))), None)
    tops = [position for position, folder in enumerate(folders) if folder == repository or folder in watched]
    layers: list[_Layer] = []
    for folder in folders[: max(tops, default=-1) + 1]:
        if folder != root:
            layers += _layers_of(folder, _ignore_files_in(folder))
        exclude = os.path.join(folder, ".git", "info", "exclude")
        if folder == repository and os.path.isfile(exclude):
            own = _read_layer(folder, exclude, ".git/info/exclude")
            layers += [own] if own else []
    for layer in layers:
        pattern = layer.says(root, True) if root != layer.base else None
        if pattern:
            return tuple(layers) if pattern.startswith("!") else ()
    return tuple(layers)


def _ignore_files_in(folder: str) -> set[str]:
    return {name for name in IGNORE_FILES if os.path.isfile(os.path.join(folder, name))}


def _entry_of(folder: str, name: str) -> os.DirEntry[str] | None:
    """Return the entry of a folder that a name leads to, also where the disk ignores case; None if there is none."""
    with os.scandir(folder) as entries:
        listed = list(entries)
    by_name = next((entry for entry in listed if entry.name == name), None)
    path = os.path.join(folder, name)
    if by_name or not os.path.lexists(path):
        return by_name
    inode = os.lstat(path).st_ino
    return next((entry for entry in listed if entry.inode() == inode), None)


# ---------------------------------------------------------------- paths


def below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or in it; both absolute."""
    return path == folder or path.startswith(prefix_of(folder))


def prefix_of(folder: str) -> str:
    """Return what every path in `folder` begins with."""
    return folder if folder.endswith(os.sep) else folder + os.sep


def _relative(path: str, base: str, is_folder: bool) -> str:
    relative = path[len(prefix_of(base)) :].replace(os.sep, "/")
    return f"{relative}/" if is_folder else relative
