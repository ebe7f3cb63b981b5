"""The person's own tool manifests: one TOML file a tool, below `tools/` in the configuration directory.

Files are looked at again whenever tools are listed, searched or called, so that a change counts at once. A mistake in
one file keeps that tool away and no other. Only the configuration directory is read: nothing in a database, a
document or a working directory can add a tool.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from localmcp.files import Signature, signature_of
from localmcp.own_tools.command import CommandManifest, RunningPrograms
from localmcp.own_tools.http import HttpManifest
from localmcp.own_tools.manifest import Manifest, ManifestTool, Surroundings
from localmcp.own_tools.problems import Mistake, Problem, ProviderState, State
from localmcp.own_tools.query import QueryManifest
from localmcp.own_tools.switches import Switches
from localmcp.own_tools.tables import mistakes_of, unknown_choice
from localmcp.schemas import Json

log = logging.getLogger(__name__)

MODELS: dict[str, type[Manifest]] = {"command": CommandManifest, "query": QueryManifest, "http": HttpManifest}
MOST_BYTES = 256_000
"""A larger file is no manifest."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """What one file holds."""

    path: Path
    text: str = ""
    kind: str = ""
    """Empty where the file is no manifest of any kind."""
    tool: ManifestTool | None = None
    """None where something is wrong."""
    problems: tuple[Problem, ...] = ()

    def check(self) -> list[Problem]:
        """Return what is wrong with it, here and now."""
        problems = list(self.problems)
        if self.tool is not None:
            warnings = self.tool.manifest.warnings(self.tool.here)
            problems += [warning.in_file(self.path, self.text) for warning in warnings]
        if self.kind and os.name == "posix" and self.path.stat().st_mode & stat.S_IWOTH:
            message, hint = "Everybody on this machine may change this file.", f"Run: chmod o-w {self.path}"
            problems.append(Problem(str(self.path), None, message, hint, "warning"))
        return problems


class ManifestFolder:
    """The manifests below one folder, as they are at this moment. Thread-safe."""

    def __init__(
        self, folder: Path, database: Path, listeners: Sequence[Callable[[], None]] = (), *, seen_empty: bool = False
    ) -> None:
        """
        Args:
            folder: need not exist.
            database: the localmcp file in use.
            listeners: called after files came, went or changed, by the thread that lists the tools.
            seen_empty: clients have been told already that there are no tools, so the first ones are a change.
        """
        self.folder = folder
        self.database = database
        self.running = RunningPrograms()
        self._listeners = listeners
        self._lock = threading.Lock()
        self._files: dict[str, tuple[Signature, ManifestFile]] | None = {} if seen_empty else None
        """What each file held when it was read; None before the first look."""
        self._chosen: list[ManifestFile] = []
        self._problems: list[Problem] = []

    def files(self, kind: str) -> list[ManifestFile]:
        """Return the manifests of a kind, by path; of two with one name the first."""
        self._look()
        return [file for file in self._chosen if file.kind == kind]

    def problems(self) -> list[Problem]:
        """Return what is wrong with files that are no manifest of any kind, and names that two manifests have."""
        self._look()
        return self._problems

    def read(self, path: Path) -> ManifestFile:
        """Return what a file holds."""
        try:
            if path.stat().st_size > MOST_BYTES:
                return _no_manifest(path, None, f"It has more than {MOST_BYTES // 1000} kB, too much for a manifest.")
            text = path.read_text(encoding="utf-8-sig")
            table = tomllib.loads(text)
        except UnicodeDecodeError:
            return _no_manifest(path, None, "It is not UTF-8 text.")
        except OSError as error:
            return _no_manifest(path, None, f"It cannot be read: {error.strerror}.")
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            end = len(path.read_bytes().splitlines()) or None
            return _no_manifest(path, int(line[1]) if line else end, f"Not TOML: {error}.")
        kind, manifest, mistakes = _parse(table, path.stem)
        problems = tuple(mistake.in_file(path, text) for mistake in mistakes)
        tool = None
        if manifest is not None and not problems:
            tool = ManifestTool(manifest, Surroundings(path, self.database, self.running))
        return ManifestFile(path, text, kind, tool, problems)

    def _look(self) -> None:
        """Read what has changed."""
        with self._lock:
            before, old = self._files, self._files or {}
            self._files = {
                path: old[path] if path in old and old[path][0] == signature else (signature, self._read_anew(path))
                for path, signature in _scan(str(self.folder))
            }
            changed = before != self._files
            if changed:
                self._choose([file for _, (_, file) in sorted(self._files.items())])
        if changed and before is not None:
            for listener in self._listeners:
                listener()

    def _read_anew(self, path: str) -> ManifestFile:
        file = self.read(Path(path))
        for problem in file.problems:
            log.warning("%s", problem)
        return file

    def _choose(self, files: list[ManifestFile]) -> None:
        owners: dict[str, Path] = {}
        self._chosen, self._problems = [], []
        for file in files:
            if not file.kind:
                self._problems += file.problems
            elif file.tool is None or (owner := owners.setdefault(file.tool.name, file.path)) == file.path:
                self._chosen.append(file)
            else:
                message = f"The name '{file.tool.name}' is taken by {owner}."
                self._problems.append(Problem(str(file.path), None, message, "Give one of the two another name."))


def _no_manifest(path: Path, line: int | None, message: str) -> ManifestFile:
    return ManifestFile(path, problems=(Problem(str(path), line, message),))


def _parse(table: Json, stem: str) -> tuple[str, Manifest | None, list[Mistake]]:
    """Return the kind of a manifest (empty where it is none), the manifest, and what is wrong with it."""
    kind, name = table.get("kind"), table.get("name", stem)
    if kind is None:
        return "", None, [Mistake(("kind",), f"kind is missing; it must be one of {', '.join(MODELS)}.")]
    if not isinstance(kind, str) or kind not in MODELS:
        return "", None, [unknown_choice(("kind",), str(kind), MODELS)]
    if isinstance(name, str) and not _NAME.fullmatch(name):
        says = f"'{name}' is no name for a tool: letters, digits, _ and -, at most 64."
        return "", None, [Mistake(("name",), says)]
    try:
        manifest = MODELS[kind].model_validate(table)
    except ValidationError as error:
        return kind, None, mistakes_of(MODELS[kind], error)
    return kind, manifest, list(manifest.mistakes())


def _scan(folder: str, depth: int = 3) -> Iterator[tuple[str, Signature]]:
    """Paths as text: with a thousand files, making and hashing `Path` costs several times what the look itself does."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        log.warning("%s cannot be read: %s", folder, error)
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _scan(entry.path, depth - 1)
        elif entry.name.endswith(".toml"):
            try:
                status = entry.stat()
            except OSError:
                continue  # Gone meanwhile, or a link to nothing.
            yield entry.path, signature_of(status)


class ManifestProvider:
    """The tools of one kind of manifest."""

    def __init__(self, name: str, kind: str, folder: ManifestFolder, switches: Switches) -> None:
        self.name = name
        self.kind = kind
        self.folder = folder
        self.switches = switches

    def tools(self) -> list[ManifestTool]:
        if self.switches.is_off(self.name):
            return []
        tools = (file.tool for file in self.folder.files(self.kind))
        return [tool for tool in tools if tool is not None and tool.manifest.is_offered(tool.here)]

    def find(self, name: str) -> ManifestTool | None:
        return next((tool for tool in self.tools() if tool.name == name), None)

    def state(self) -> ProviderState:
        where = str(self.folder.folder)
        if self.switches.is_off(self.name):
            return ProviderState(self.name, "off", 0, where, self.switches.why_off())
        files = self.folder.files(self.kind)
        problems, tools = tuple(problem for file in files for problem in file.problems), sum(map(_has_tool, files))
        state: State = "failing" if problems else "ready" if tools else "empty"
        return ProviderState(self.name, state, tools, where, problems=problems)

    def check(self) -> list[Problem]:
        """Return what is wrong with the manifests of this kind, here and now."""
        return [problem for file in self.folder.files(self.kind) for problem in file.check()]


def _has_tool(file: ManifestFile) -> bool:
    return file.tool is not None
