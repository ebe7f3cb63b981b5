"""Python functions as tools: type hints are the schema, the docstring the description, anything may be returned."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from typing import Any, cast, get_type_hints

from localmcp.errors import InvalidInput
from localmcp.schemas import Json, compact_json
from localmcp.tools import Answer, MethodTool, ToolMark


class FunctionTool(MethodTool):
    """A function that somebody else wrote. Whatever it raises passes through unchanged."""

    def __init__(
        self, function: Callable[..., Any], *, description: str | None = None, keywords: Iterable[str] = ()
    ) -> None:
        """A mark of `@tool` is kept where there is one; without one, the annotations are MCP's defaults.

        Raises:
            InvalidInput: the function cannot be described; says what it lacks.
        """
        self.method = function
        mark = cast("ToolMark | None", getattr(function, "__tool__", None))
        if mark is not None:
            self.mark = replace(mark, keywords=(*mark.keywords, *keywords), visible=False)
        else:
            self.mark = hidden_mark(getattr(function, "__name__", "tool"), tuple(keywords))
        self.description = inspect.getdoc(function) or "" if description is None else description
        if lacking := what_lacks(function):
            raise InvalidInput(f"{self.mark.name} cannot be a tool: {lacking}.")

    def _fit(self, arguments: Json) -> Any:
        """As JSON has them, so that a date, a path or an enumeration may come as text."""
        return self._model.model_validate_json(json.dumps(arguments))

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


# ---------------------------------------------------------------- what a function returns


def as_answer(value: Any) -> Answer:
    """Return what a function returned as an answer: text and objects as they are, anything else as its `result`.

    A coroutine is awaited; the results and content blocks of the `mcp` package are passed on whole.
    """
    if inspect.iscoroutine(value):
        value = run_coroutine(value)
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
    from pydantic_core import to_json

    plain: Any = json.loads(to_json(value, fallback=str, inf_nan_mode="strings"))
    text = plain if isinstance(plain, str) else compact_json(plain)
    return Answer(cast(Json, plain) if isinstance(plain, dict) else {"result": plain}, text)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end from ordinary code, in a thread of its own, since a loop may run in the caller's."""
    import asyncio

    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(coroutine))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    return outcome.result()
