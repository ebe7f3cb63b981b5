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
from functools import cached_property, partial
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

    def __init__(self, where: str) -> None:
        self.where = where
        self.tools: list[Tool] = []
        self.problems: list[Problem] = []

    def complain(self, error: BaseException, file: Path | None = None) -> None:
        message = f"It cannot be loaded: {type(error).__name__}: {error}".rstrip(": ") + "."
        self.problems.append(Problem(self.where, _line_in(error, file) if file else None, message))
        log.warning("%s", self.problems[-1])

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
        self._lock = threading.RLock()
        self._loaded: dict[str, tuple[Signature | None, Loaded]] | None = {} if seen_empty else None
        """Path of a file, or `package:name` -> its state when it was loaded, and what it offers."""

    def tools(self) -> Sequence[Tool]:
        tools_by_name: dict[str, Tool] = {}
        for loaded in self._sources():
            for tool in loaded.tools:
                tools_by_name.setdefault(tool.name, tool)
        return list(tools_by_name.values())

    def find(self, name: str) -> Tool | None:
        return next((tool for loaded in self._sources() for tool in loaded.tools if tool.name == name), None)

    def _sources(self) -> list[Loaded]:
        """Everything that is allowed, loaded; what has not changed is kept."""
        with self._lock:
            before, old = self._loaded, self._loaded or {}
            self._loaded = {
                key: old[key] if key in old and old[key][0] == signature else (signature, load())
                for key, signature, load in self._allowed()
            }
            changed = before is not None and before != self._loaded
            loaded = [source for _, source in self._loaded.values()]
        for listener in self._listeners if changed else ():
            listener()
        return loaded

    def _allowed(self) -> Iterator[tuple[str, Signature | None, Callable[[], Loaded]]]:
        if self.switches.is_off(self.name):
            return
        for folder in self.switches.python_folders:
            for path, signature in _python_files(folder):
                yield str(path), signature, partial(load_file, path)
        if self.switches.wants_entry_points:
            for key, entry_point in self._entry_points:
                if self.switches.allows_entry_points(key.partition(":")[0]):
                    yield key, None, partial(load_entry_point, key, entry_point)

    @cached_property
    def _entry_points(self) -> list[tuple[str, EntryPoint]]:
        """`package:name` and the entry point, for every installed package that offers tools.

        They are looked up once per process because that takes milliseconds.
        """
        from importlib.metadata import entry_points

        points = entry_points(group=GROUP)
        return [(f"{canonical(point.dist.name if point.dist else '')}:{point.name}", point) for point in points]

    # ------------------------------------------------------------ what people see

    def state(self) -> ProviderState:
        where = str(self.switches.path)
        if self.switches.is_off(self.name):
            return ProviderState(self.name, "off", 0, where, self.switches.why_off())
        problems = tuple(self._problems())
        failing = any(problem.level == "error" for problem in problems)
        tools = len(self.tools())
        state: State = "failing" if failing else "ready" if tools else "empty"
        return ProviderState(self.name, state, tools, where, self._tell_others(), problems)

    def _tell_others(self) -> str:
        """Return which installed packages offer tools that are not allowed."""
        names = {key.partition(":")[0] for key, _ in self._entry_points}
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


# ---------------------------------------------------------------- loading


def load_file(path: Path) -> Loaded:
    """Run a Python file as a module and return its tools.

    The folder is not put on `sys.path`, so that a file in it cannot replace a module of the same name.
    """
    loaded = Loaded(str(path))
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
        return loaded
    _take_functions(loaded, module)
    return loaded


def load_entry_point(key: str, entry_point: EntryPoint) -> Loaded:
    """Import what a package offers and return its tools."""
    loaded = Loaded(f"entry point {key} = {entry_point.value}")
    try:
        with redirect_stdout(sys.stderr):
            offered = entry_point.load()
            _take(loaded, offered() if inspect.isclass(offered) else offered)
    except (Exception, SystemExit) as error:
        loaded.complain(error)
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
