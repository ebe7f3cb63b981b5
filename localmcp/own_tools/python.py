"""Python functions as tools: `kind = "python"` manifests name the files.

Every public function with type hints and a docstring is a tool. A file that cannot be loaded is left out, and
`localmcp tools check` says why.
"""

from __future__ import annotations

import glob
import hashlib
import inspect
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, Literal

from pydantic import Field

from localmcp.errors import LocalMCPError
from localmcp.files import Signature, expand_home, signature_at
from localmcp.own_tools.functions import FunctionTool, what_lacks
from localmcp.own_tools.manifest import Surroundings, Table
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
    files: Annotated[list[str], Field(min_length=1)]
    """Paths or patterns such as `~/tools/*.py`, relative to the manifest."""
    keywords: list[str] = []

    def sources(self, manifest: Path) -> dict[Path, Signature | None]:
        """Return the files that are there now, each with its state."""
        patterns = (str(manifest.parent / expand_home(pattern)) for pattern in self.files)
        return {Path(path): signature_at(Path(path)) for pattern in patterns for path in sorted(glob.glob(pattern))}

    def tools(self, here: Surroundings) -> tuple[list[Tool], list[Problem]]:
        """Run the files; return their functions as tools, and what is wrong with them."""
        tools: list[Tool] = []
        problems: list[Problem] = []
        paths = self.sources(here.path)
        if not paths:
            problems.append(
                Problem(str(here.path), None, f"There is no file {', '.join(self.files)}.", level="warning")
            )
        for path in paths:
            try:
                # A stray print must not end up among data.
                with redirect_stdout(sys.stderr):
                    module = _run_file(path)
            except (Exception, SystemExit) as error:
                message = f"It cannot be loaded: {type(error).__name__}: {error}".rstrip(": ") + "."
                frames = traceback.extract_tb(error.__traceback__)
                lines = [frame.lineno for frame in frames if frame.filename == str(path)]
                line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
                problems.append(Problem(str(path), line, message))
                continue
            for function in _public_functions(module):
                lacking = what_lacks(function) if function.__doc__ else "it has no docstring"
                if not lacking:
                    tool = ForeignFunction(function, keywords=self.keywords)
                    try:
                        _ = tool.input_schema
                        tools.append(tool)
                        continue
                    except Exception as error:
                        # pydantic has many ways to say that it knows no schema for a type.
                        lacking = str(error).partition("\n")[0] or type(error).__name__
                message = f"{function.__name__} is not a tool: {lacking}."
                hint = "A name that begins with _ says that it should not be one."
                problems.append(Problem(str(path), function.__code__.co_firstlineno, message, hint, level="warning"))
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


def _public_functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield each function that the module itself defines, but for those whose names begin with `_`."""
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == module.__name__:
            yield function
