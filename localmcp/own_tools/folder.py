"""The person's own tools: TOML files below `tools/` in the configuration directory.

Files are looked at again whenever tools are listed, searched or called, so that a change counts at once. A mistake in
one file keeps its tools away and no other. Only the configuration directory is read: nothing in a database, a
document or a working directory can add a tool.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localmcp.files import Signature, signature_of
from localmcp.schemas import Json, did_you_mean
from localmcp.tools import Registry, Tool, current_scope
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.own_tools.kinds import RunningPrograms
    from localmcp.own_tools.manifest import Manifest
    from localmcp.own_tools.python import PythonManifest

log = logging.getLogger(__name__)

KINDS = {"command": "commands", "query": "queries", "http": "http", "python": "python"}
"""Kind of a manifest -> the provider as which profiles and keys name its tools."""
Level = Literal["error", "warning"]
Place = tuple[str, ...]
"""Keys that lead to a value of a TOML file."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the configuration. An error keeps its tool from being offered; a warning does not."""

    file: str
    line: int | None
    """1-based; None when it concerns the whole file."""
    message: str
    hint: str | None = None
    level: Level = "error"

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return visible(f"{where}: {self.level}: {self.message}" + (f" {self.hint}" if self.hint else ""))


def line_of(text: str, place: Place) -> int | None:
    """Return the line, 1-based, where the key path is in a TOML text, or else the nearest table around it."""
    lines, line = text.splitlines(), None
    for key in map(re.escape, place):
        written = re.compile(rf"""\s*(\[[^\]]*\b{key}\b.*\]|([\w.-]+\.)?["']?{key}["']?\s*[=.]|.*[{{,]\s*{key}\s*=)""")
        line_index = next((at for at in range((line or 1) - 1, len(lines)) if written.match(lines[at])), None)
        if line_index is None:
            break
        line = line_index + 1
    return line


@dataclass(slots=True)
class ManifestFile:
    """What one file holds; its tools run with it at hand."""

    path: Path
    folder: OwnTools
    tools: list[Tool] = field(default_factory=list[Tool])
    problems: list[Problem] = field(default_factory=list[Problem])
    kind: str = ""
    manifest: Manifest | PythonManifest | None = None
    sources: dict[Path, Signature | None] = field(default_factory=dict[Path, "Signature | None"])
    """The Python files that it names, as they were when they were run."""

    def problem(self, place: Place, message: str, hint: str | None = None, level: Level = "error") -> Problem:
        """Return a problem of a value in the file, with its line."""
        text = ""
        with suppress(OSError, ValueError):
            text = self.path.read_text(encoding="utf-8-sig")
        return Problem(str(self.path), line_of(text, place), message, hint, level)

    def add_problem(
        self, path: Path, line: int | None, message: str, hint: str | None = None, level: Level = "error"
    ) -> None:
        """Note what is wrong with it, or with a file that it names."""
        self.problems.append(Problem(str(path), line, message, hint, level))

    def check(self) -> list[Problem]:
        """Return what is wrong with it, here and now."""
        from localmcp.own_tools.manifest import ManifestTool

        problems = list(self.problems)
        for tool in self.tools:
            problems += tool.manifest.warnings(tool.here) if isinstance(tool, ManifestTool) else ()
        if os.name == "posix" and self.path.stat().st_mode & stat.S_IWOTH:
            message, hint = "Everybody on this machine may change this file.", f"Run: chmod o-w {self.path}"
            problems.append(Problem(str(self.path), None, message, hint, "warning"))
        return problems


class OwnTools:
    """The provider of the tools of every manifest, as the files are now; nothing is imported for none. Thread-safe."""

    name = ""
    only_hidden = True

    def __init__(self, folder: Path, database: Path) -> None:
        """`folder` need not exist; `database` is the localmcp file in use, which queries may read."""
        self.folder = folder
        self.database = database
        self.listeners: list[Callable[[], object]] = []
        """Called after tools came, went or changed, by the thread that lists them."""
        self._lock = threading.RLock()
        self._files: dict[str, tuple[Signature, ManifestFile]] | None = None
        """What each file held when it was read; None before the first look."""
        self.owners: dict[str, ManifestFile] = {}
        """By the name of a tool: of two with one name the first is offered."""

    @cached_property
    def running(self) -> RunningPrograms:
        """The programs that calls have started."""
        from localmcp.own_tools.kinds import RunningPrograms

        return RunningPrograms()

    def files(self) -> list[ManifestFile]:
        """Return every manifest, by path."""
        with self._lock:
            before, self._files = self._files, {}
            # As text: a thousand `Path`s cost several times what the look itself does.
            for name in sorted(glob.glob("**/*.toml", root_dir=self.folder, recursive=True)):
                path = os.path.join(self.folder, name)
                # It may be gone meanwhile, or be a link to nothing.
                with suppress(OSError):
                    signature = signature_of(os.stat(path))
                    kept_signature, file = (before or {}).get(path, (None, None))
                    sources = file.manifest.sources(file.path) if file and file.manifest else {}
                    if file is None or kept_signature != signature or file.sources != sources:
                        file = self.read(path)
                    self._files[path] = (signature, file)
            changed = before != self._files
            files = [file for _, file in self._files.values()]
            if changed:
                self.owners = {tool.name: file for file in reversed(files) for tool in file.tools}
        for listener in self.listeners if changed and before is not None else ():
            listener()
        return files

    def problems(self, registry: Registry) -> list[Problem]:
        """Return every mistake, what on this machine would make a call fail, and the tools that nobody can call."""
        problems: list[Problem] = []
        callable_tools = {tool.name: tool for tool in registry.tools()}
        for file in self.files():
            problems += file.check()
            for tool in file.tools:
                if callable_tools.get(tool.name) is not tool:
                    owner = self.owners[tool.name]
                    other = "another tool" if owner is file else f"that of {owner.path}"
                    message = f"The name '{tool.name}' belongs to {other}, which is called instead."
                    problems.append(Problem(str(file.path), None, message, "Give this one another name."))
        return list(dict.fromkeys(problems))

    def read(self, path: str | Path) -> ManifestFile:
        """Return what a file holds."""
        file, text = ManifestFile(Path(path), self), ""
        try:
            if file.path.stat().st_size > 256_000:
                raise ValueError("more than 256 kB, too much for a manifest")
            text = file.path.read_text(encoding="utf-8-sig")
            self._parse(file, tomllib.loads(text))
        except (OSError, ValueError) as error:
            line = re.search(r"line (\d+)", str(error))
            end = text.count("\n") + 1 if "end of document" in str(error) else None
            reason = error.strerror if isinstance(error, OSError) else error
            file.add_problem(file.path, int(line[1]) if line else end, f"It cannot be read: {reason}.")
        for problem in file.problems:
            log.warning("%s", problem)
        return file

    def _parse(self, file: ManifestFile, table: Json) -> None:
        from pydantic import ValidationError

        from localmcp.own_tools.kinds import CommandManifest, HttpManifest, QueryManifest
        from localmcp.own_tools.manifest import Parameter
        from localmcp.own_tools.python import PythonManifest

        kind: Any = table.get("kind")
        models: dict[str, type[Manifest | PythonManifest]] = {
            "command": CommandManifest, "query": QueryManifest, "http": HttpManifest, "python": PythonManifest,
        }  # fmt: skip
        if not isinstance(kind, str) or kind not in models:
            hint = did_you_mean(str(kind), models, f"It must be one of {', '.join(models)}.")
            says = "kind is missing." if kind is None else f"kind = {kind!r} is not known."
            file.problems.append(file.problem(("kind",), says, hint))
            return
        try:
            manifest = models[kind].model_validate(table)
        except ValidationError as error:
            keys = {*models[kind].model_fields, *Parameter.model_fields}
            for slip in error.errors(include_url=False):
                place = (*map(str, slip["loc"]), *slip.get("ctx", {}).get("place", ()))
                is_unknown = slip["type"] == "extra_forbidden"
                says = " is not a known key." if is_unknown else f": {slip['msg']}"
                hint = did_you_mean(place[-1], keys) if is_unknown else ""
                file.problems.append(file.problem(place, f"{'.'.join(place)}{says}", hint or None))
            return
        file.kind, file.manifest, file.sources = kind, manifest, manifest.sources(file.path)
        file.tools = manifest.tools(file)

    def tools(self) -> list[Tool]:
        """Return the tools of the kinds that the caller may use; of two with one name the first."""
        names = current_scope().provider_names
        files = [file for file in self.files() if names is None or KINDS.get(file.kind) in names]
        return [tool for file in files for tool in file.tools if self.owners[tool.name] is file]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name among them."""
        return next((tool for tool in self.tools() if tool.name == name), None)

    def close(self) -> None:
        """End the programs that still run."""
        if "running" in vars(self):
            self.running.close()
