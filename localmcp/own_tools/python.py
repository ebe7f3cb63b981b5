"""Python functions as tools: `kind = "python"` manifests name the files, or a module that is installed.

Every public function with type hints and a docstring is a tool. A file that cannot be loaded is left out, and
`localmcp tools check` says why.
"""

from __future__ import annotations

import glob
import hashlib
import importlib
import inspect
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Literal

from pydantic import model_validator

from localmcp.errors import LocalMCPError
from localmcp.files import Signature, expand_home, signature_at
from localmcp.own_tools.functions import FunctionTool, what_lacks
from localmcp.own_tools.manifest import Table, mistake
from localmcp.own_tools.problems import Problem
from localmcp.schemas import Json
from localmcp.tools import Answer, Tool

log = logging.getLogger(__name__)


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


class PythonManifest(Table):
    """Which functions become tools."""

    kind: Literal["python"]
    files: list[str] = []
    """Paths or patterns such as `~/tools/*.py`, relative to the manifest."""
    module: str = ""
    """Of an installed package: `weather_tools.commands`."""
    keywords: list[str] = []

    @model_validator(mode="after")
    def _check(self) -> PythonManifest:
        if not self.files and not self.module:
            raise mistake("name the files, or a module", "files")
        return self

    def sources(self, manifest: Path) -> dict[Path, Signature | None]:
        """Return the files that are there now, each with its state."""
        patterns = (str(manifest.parent / expand_home(pattern)) for pattern in self.files)
        return {Path(path): signature_at(Path(path)) for pattern in patterns for path in sorted(glob.glob(pattern))}

    def load(self, manifest: Path) -> tuple[list[Tool], list[Problem]]:
        """Run the files and import the module; return their functions as tools, and what is wrong with them."""
        tools: list[Tool] = []
        problems: list[Problem] = []
        paths = list(self.sources(manifest))
        if self.files and not paths:
            problems.append(Problem(str(manifest), None, f"There is no file {', '.join(self.files)}.", level="warning"))
        for source in [*paths, *filter(None, [self.module])]:
            try:
                # A stray print must not end up among data.
                with redirect_stdout(sys.stderr):
                    module = _run_file(source) if isinstance(source, Path) else importlib.import_module(source)
            except (Exception, SystemExit) as error:
                message = f"It cannot be loaded: {type(error).__name__}: {error}".rstrip(": ") + "."
                problems.append(Problem(str(source), _line_in(error, str(source)), message))
                continue
            for item in _functions(module, self.keywords):
                if isinstance(item, Tool):
                    tools.append(item)
                else:
                    name, line, lacking = item
                    hint = "A name that begins with _ says that it should not be one."
                    problems.append(
                        Problem(str(source), line, f"{name} is not a tool: {lacking}.", hint, level="warning")
                    )
        return tools, problems


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module.

    The folder is not put on `sys.path`, so that a file in it cannot replace a module of the same name.
    """
    name = f"localmcp_tools_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickled values look their module up there.
    sys.modules[name] = module
    try:
        # Not by importlib: its cached bytecode takes a file that was changed twice within a second for the first one.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _functions(module: ModuleType, keywords: list[str]) -> Iterator[Tool | tuple[str, int, str]]:
    """Yield each public function that the module itself defines (or names in `__all__`) as a tool.

    Of one that cannot be a tool: its name, its line, and what it lacks.
    """
    listed = getattr(module, "__all__", None)
    for name, function in list(vars(module).items()):
        if not inspect.isfunction(function) or (name.startswith("_") if listed is None else name not in listed):
            continue
        if listed is None and function.__module__ != module.__name__:
            continue
        lacking = what_lacks(function) if function.__doc__ else "it has no docstring"
        if not lacking:
            tool = ForeignFunction(function, keywords=keywords)
            try:
                _ = tool.input_schema
                yield tool
                continue
            except Exception as error:
                # pydantic has many ways to say that it knows no schema for a type.
                lacking = str(error).partition("\n")[0] or type(error).__name__
        yield name, function.__code__.co_firstlineno, lacking


def _line_in(error: BaseException, file: str) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None
