"""Python functions as tools: `kind = "python"` manifests name the files.

Every public function with type hints and a docstring is a tool. A file that cannot be loaded is left out, and
`localmcp tools check` says why.
"""

from __future__ import annotations

import glob
import hashlib
import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_type_hints

from pydantic import Field
from pydantic_core import to_json

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.files import Signature, expand_home, signature_at
from localmcp.own_tools.manifest import Table
from localmcp.schemas import Json, compact_json
from localmcp.tools import Answer, MethodTool, Tool, ToolMark

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile

log = logging.getLogger(__name__)


class FunctionTool(MethodTool):
    """A function that somebody else wrote. Whatever it raises passes through unchanged."""

    takes_json = True

    def __init__(self, function: Callable[..., Any], keywords: Iterable[str] = ()) -> None:
        """A mark of `@tool` is kept where there is one; raises InvalidInput for a function that cannot be described."""
        self.method = function
        mark = cast("ToolMark | None", getattr(function, "__tool__", None))
        if mark is not None:
            self.mark = replace(mark, keywords=(*mark.keywords, *keywords), visible=False)
        else:
            self.mark = hidden_mark(getattr(function, "__name__", "tool"), tuple(keywords))
        self.description = inspect.getdoc(function) or ""
        if lacking := what_lacks(function):
            raise InvalidInput(f"{self.mark.name} cannot be a tool: {lacking}.")

    def call(self, arguments: Json) -> Answer:
        return as_answer(self.method(**self._checked(arguments)))


def hidden_mark(name: str, keywords: tuple[str, ...]) -> ToolMark:
    """Return the mark of a tool that says nothing of its effects: MCP's defaults."""
    title = name.replace("_", " ").capitalize()
    return ToolMark(
        name, title, keywords, visible=False, read_only=False, destructive=True, idempotent=False, open_world=True
    )


def what_lacks(function: Callable[..., Any]) -> str | None:
    """Return why a function has no schema, in words; None when it has one."""
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        return f"its signature cannot be read ({error})"
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return f"its parameter {parameter} cannot be given by name"
        if parameter.name not in hints:
            return f"its parameter {parameter.name} has no type hint"
    return None


def as_answer(value: Any) -> Answer:
    """Return what a function returned as an answer: text and objects as they are, anything else as its `result`.

    A coroutine is awaited; the results and content blocks of the `mcp` package are passed on whole.
    """
    if inspect.iscoroutine(value):
        from anyio.from_thread import start_blocking_portal

        # In a thread of its own, since a loop may run in the caller's.
        with start_blocking_portal() as portal:
            value = portal.call(lambda: value)
    if isinstance(value, Answer):
        return value
    result: Any = cast(object, value)
    blocks = cast("list[Any]", value) if isinstance(value, list | tuple) else getattr(result, "content", None)
    if blocks and all(hasattr(block, "type") and hasattr(block, "model_dump") for block in blocks):
        content = tuple(block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in blocks)
        text = "\n".join(block["text"] for block in content if block["type"] == "text")
        structured = getattr(result, "structured_content", None)
        is_error = bool(getattr(result, "is_error", False))
        return Answer({"result": text} if structured is None else structured, text, is_error, content)
    plain: Any = json.loads(to_json(value, fallback=str, inf_nan_mode="strings"))
    text = plain if isinstance(plain, str) else compact_json(plain)
    return Answer(cast(Json, plain) if isinstance(plain, dict) else {"result": plain}, text)


class ForeignFunction(FunctionTool):
    """A function whose exceptions are shown to the caller: it is the person's own code in their own process."""

    def call(self, arguments: Json) -> Answer:
        try:
            return super().call(arguments)
        except LocalMCPError:
            raise
        except (Exception, SystemExit) as error:
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

    def tools(self, here: ManifestFile) -> list[Tool]:
        """Run the files; return their functions as tools, and note what is wrong with them."""
        tools: list[Tool] = []
        paths = self.sources(here.path)
        if not paths:
            here.add_problem(here.path, None, f"There is no file {', '.join(self.files)}.", level="warning")
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
                here.add_problem(path, line, message)
                continue
            for name, function in list(vars(module).items()):
                if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
                    continue
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
                here.add_problem(path, function.__code__.co_firstlineno, message, hint, level="warning")
        return tools


def _run_file(path: Path) -> ModuleType:
    # The folder is not put on `sys.path`, so that a file in it cannot replace a module of the same name.
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
