"""Python functions as tools: from folders that the person allowed, and from installed packages that they named.

`providers.toml` names both. In a folder, every public function with type hints and a docstring is a tool; a package
offers what its entry points in the group `localmcp.tools` name: a function, a module, or an object with `@tool`
methods. A file or package that cannot be loaded is left out, and `localmcp tools check` says why.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from localmcp.errors import LocalMCPError
from localmcp.files import Signature, signature_of
from localmcp.own_tools.functions import FunctionTool, what_lacks
from localmcp.own_tools.problems import Problem, ProviderState, State
from localmcp.own_tools.switches import Switches, canonical
from localmcp.schemas import Json
from localmcp.tools import Answer, Tool, tools_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

GROUP = "localmcp.tools"
"""The entry points of packages that offer tools."""


class ForeignFunction(FunctionTool):
    """A function whose exceptions are shown to the caller: it is the person's own code in their own process."""

    def call(self, arguments: Json) -> Answer:
        try:
            return super().call(arguments)
        except LocalMCPError:
            raise
        except Exception as error:
            log.warning("the tool %s failed", self.name, exc_info=True)
            message = f"{self.name} failed: {type(error).__name__}: {error}".rstrip(": ")
            raise LocalMCPError(message) from error


class Loaded:
    """The tools of one file or entry point, and what is wrong with it."""

    def __init__(self, signature: Signature | None, where: str) -> None:
        self.signature = signature
        self.where = where
        self.tools: list[Tool] = []
        self.problems: list[Problem] = []

    def complain(self, error: BaseException, file: Path | None = None) -> None:
        message = f"It cannot be loaded: {type(error).__name__}: {error}".rstrip(": ") + "."
        self.problems.append(Problem(self.where, _line_in(error, file) if file else None, message))

    def note(self, message: str, line: int | None = None) -> None:
        self.problems.append(Problem(self.where, line, message, level="warning"))


class PythonTools:
    """The provider `python`. Nothing is imported before the first listing, and a changed file is loaded again."""

    name = "python"

    def __init__(
        self, switches: Switches, listeners: Sequence[Callable[[], None]] = (), *, seen_empty: bool = False
    ) -> None:
        """The arguments are those of `ManifestFolder`."""
        self.switches = switches
        self._listeners = listeners
        self._offered: list[Loaded] | None = [] if seen_empty else None
        self._lock = threading.RLock()
        self._files: dict[Path, Loaded] = {}
        self._packages: dict[str, Loaded] = {}

    def tools(self) -> Sequence[Tool]:
        return list(self._current().values())

    def find(self, name: str) -> Tool | None:
        return self._current().get(name)

    def _current(self) -> dict[str, Tool]:
        tools_by_name: dict[str, Tool] = {}
        for loaded in self._sources():
            for tool in loaded.tools:
                tools_by_name.setdefault(tool.name, tool)
        return tools_by_name

    def _sources(self) -> list[Loaded]:
        """Everything that is allowed, loaded; what has not changed is kept."""
        if self.switches.is_off(self.name):
            return []
        with self._lock:
            before, offered = self._offered, [*self._refresh_files(), *self._refresh_packages()]
            self._offered = offered
        if before is not None and before != offered:
            for listener in self._listeners:
                listener()
        return offered

    def _refresh_files(self) -> list[Loaded]:
        files_by_path = dict(
            python_file for folder in self.switches.python_folders for python_file in _python_files(folder)
        )
        for path in self._files.keys() - files_by_path.keys():
            del self._files[path]
        for path, signature in files_by_path.items():
            cached_file = self._files.get(path)
            if cached_file is None or cached_file.signature != signature:
                self._files[path] = load_file(path, signature)
        return [self._files[path] for path in files_by_path]

    def _refresh_packages(self) -> list[Loaded]:
        if not self.switches.wants_entry_points:
            return []
        allowed = {
            key: offered for key, offered in self._offers if self.switches.allows_entry_points(key.split(":")[0])
        }
        for key, value in allowed.items():
            if key not in self._packages:
                self._packages[key] = load_entry_point(key, value)
        return [self._packages[key] for key in allowed]

    @cached_property
    def _offers(self) -> list[tuple[str, EntryPoint]]:
        """The entry points of the group, looked up once per process because that takes milliseconds."""
        return list(_entry_points())

    # ------------------------------------------------------------ what people see

    def state(self) -> ProviderState:
        where = str(self.switches.path)
        if self.switches.is_off(self.name):
            return ProviderState(self.name, "off", 0, where, self.switches.why_off())
        problems = tuple(self._problems())
        failing = any(problem.level == "error" for problem in problems)
        tools = len(self._current())
        state: State = "failing" if failing else "ready" if tools else "empty"
        return ProviderState(self.name, state, tools, where, self._tell_others(), problems)

    def _tell_others(self) -> str:
        """Return which installed packages offer tools that are not allowed."""
        names = {key.split(":")[0] for key, _ in self._offers}
        others = sorted(name for name in names if not self.switches.allows_entry_points(name))
        return f"Installed, but not allowed: {', '.join(others)}." if others else ""

    def check(self) -> list[Problem]:
        """Return what could not be loaded, which functions are no tools, and which folders are missing."""
        missing = [
            Problem(str(self.switches.path), None, f"The folder {folder} does not exist.", level="warning")
            for folder in self.switches.python_folders
            if not folder.is_dir()
        ]
        return [*self.switches.problems(), *missing, *self._problems()]

    def _problems(self) -> Iterator[Problem]:
        owners: dict[str, str] = {}
        for loaded in self._sources():
            yield from loaded.problems
            for tool in loaded.tools:
                if owners.setdefault(tool.name, loaded.where) != loaded.where:
                    message = f"The name '{tool.name}' is taken by {owners[tool.name]}."
                    yield Problem(loaded.where, None, message, "Give one of the two another name.")


def _python_files(folder: Path) -> Iterator[tuple[Path, Signature]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return  # `check` reports it; a log line at every listing would be too much.
    except OSError as error:
        log.warning("%s cannot be read: %s", folder, error.strerror)
        return
    for entry in entries:
        if entry.name.endswith(".py") and not entry.name.startswith(("_", ".")) and entry.is_file():
            status = entry.stat()
            yield Path(entry.path), signature_of(status)


def _entry_points() -> Iterator[tuple[str, EntryPoint]]:
    """`package:name` and the entry point, for every installed package that offers tools."""
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=GROUP):
        yield f"{canonical(entry_point.dist.name if entry_point.dist else '')}:{entry_point.name}", entry_point


# ---------------------------------------------------------------- loading


def load_file(path: Path, signature: Signature | None = None) -> Loaded:
    """Run a Python file as a module and return its tools.

    The folder is not put on `sys.path`, so that a file in it cannot replace a module of the same name.
    """
    loaded = Loaded(signature, str(path))
    name = f"localmcp_tools_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickled values look their module up there.
    sys.modules[name] = module
    try:
        # Not by importlib: its cached bytecode takes a file that was changed twice within a second for the first one.
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        # A stray print must not end up among data.
        with redirect_stdout(sys.stderr):
            exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        loaded.complain(error, path)
        log.warning("%s", loaded.problems[-1])
        return loaded
    _take_functions(loaded, module)
    return loaded


def load_entry_point(key: str, entry_point: EntryPoint) -> Loaded:
    """Import what a package offers and return its tools."""
    loaded = Loaded(None, f"entry point {key} = {entry_point.value}")
    try:
        with redirect_stdout(sys.stderr):
            offered = entry_point.load()
            _take(loaded, offered() if inspect.isclass(offered) else offered)
    except (Exception, SystemExit) as error:
        loaded.complain(error)
        log.warning("%s", loaded.problems[-1])
    return loaded


def _take(loaded: Loaded, offered: Any) -> None:
    if inspect.ismodule(offered):
        _take_functions(loaded, offered)
    elif inspect.isfunction(offered):
        _add(loaded, [ForeignFunction(offered)])
    elif hasattr(offered, "tools") and hasattr(offered, "find"):
        _add(loaded, offered.tools())
    else:
        _add(loaded, tools_of(offered))
    if not loaded.tools and not loaded.problems:
        loaded.note("It offers no tool: a function with type hints and a docstring, or an object with @tool methods.")


def _take_functions(loaded: Loaded, module: ModuleType) -> None:
    """Add every public function that the module itself defines (or names in `__all__`)."""
    listed = getattr(module, "__all__", None)
    for name, function in list(vars(module).items()):
        if not inspect.isfunction(function) or (name.startswith("_") if listed is None else name not in listed):
            continue
        if listed is None and function.__module__ != module.__name__:
            continue
        lacking = what_lacks(function) if function.__doc__ else "it has no docstring"
        if lacking:
            hint = f"{name} is not a tool: {lacking}. A name that begins with _ says that it should not be one."
            loaded.note(hint, function.__code__.co_firstlineno)
            continue
        _add(loaded, [ForeignFunction(function)])


def _add(loaded: Loaded, tools: Iterable[Tool]) -> None:
    """Add the tools that have a usable schema, hidden from tools/list."""
    for tool in tools:
        try:
            schema = tool.input_schema
        except Exception as error:
            # pydantic has many ways to say that it knows no schema for a type.
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            loaded.note(f"{tool.name} is not a tool: {message}")
            continue
        if schema.get("type") != "object":
            loaded.note(f"{tool.name} is not a tool: its schema is no object.")
            continue
        tool.mark = replace(tool.mark, visible=False)
        loaded.tools.append(tool)


def _line_in(error: BaseException, file: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else None
