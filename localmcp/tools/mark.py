"""`@tool(...)`, which marks a public method as a tool, and the leniencies that several tools share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.schemas import Json

if TYPE_CHECKING:
    from localmcp.tools.base import Answer

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What `@tool` writes beside a method."""

    name: str
    title: str
    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    visible: bool = True
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    open_world: bool = False
    proxy: bool = False
    stand_in: bool = False
    accepts: Mapping[str, Callable[[str, Any], Any]] = field(default_factory=dict[str, Callable[[str, Any], Any]])
    says: Mapping[str, str] = field(default_factory=dict[str, str])
    text: Callable[[Any], str] | None = None
    lean: Callable[[Any], Answer] | None = None
    on_error: Callable[[LocalMCPError], Json] | None = None


def tool(
    name: str,
    *,
    title: str,
    keywords: Iterable[str] = (),
    examples: Iterable[str] = (),
    visible: bool = True,
    read_only: bool = True,
    destructive: bool = False,
    idempotent: bool | None = None,
    open_world: bool = False,
    proxy: bool = False,
    stand_in: bool = False,
    accepts: Mapping[str, Callable[[str, Any], Any]] | None = None,
    says: Mapping[str, str] | None = None,
    text: Callable[[Any], str] | None = None,
    lean: Callable[[Any], Answer] | None = None,
    on_error: Callable[[LocalMCPError], Json] | None = None,
) -> Callable[[Method], Method]:
    """Mark a public method as a tool.

    Args:
        name: how it is called on the wire; letters, digits, `_` and `-`, at most 40.
        title: a short label for people.
        keywords: words under which `tool_search` finds it.
        examples: phrases a person would say. `{p}` captures the argument p, `{p:singular}` in the singular, `{p=value}`
            represents a constant, `a|b` for alternatives; a phrase that is only `{p}` takes the whole sentence and
            counts only if the tool then finds something.
        visible: listed by tools/list; others are found by `tool_search`.
        read_only, destructive, idempotent, open_world: the annotations of MCP; idempotent follows read_only.
        proxy: it only runs another tool through the registry, whose rights are then asked for.
        stand_in: it represents the tools that are not listed, and is not listed where all are.
        accepts: parameter -> function(name, value) that turns a lenient value into a strict one (S0-6).
        says: the contract's own words for a bad argument: `"texts"` for the field, `"texts[]"` for an item
            (`{index}` is filled in), `"texts required"` when it is missing.
        text: makes the text block of the answer from the result; by default it is the result as compact JSON.
        lean: makes the whole answer from the result where a language model reads it (`Scope.lean`).
        on_error: turns a deliberate error into a result (`{"success": False, ...}`).
    """
    mark = ToolMark(
        name=name,
        title=title,
        keywords=tuple(keywords),
        examples=tuple(examples),
        visible=visible,
        read_only=read_only,
        destructive=destructive,
        idempotent=read_only if idempotent is None else idempotent,
        open_world=open_world,
        proxy=proxy,
        stand_in=stand_in,
        accepts=dict(accepts or {}),
        says=dict(says or {}),
        text=text,
        lean=lean,
        on_error=on_error,
    )

    def write(method: Method) -> Method:
        method.__tool__ = mark  # pyright: ignore[reportFunctionMemberAccess]
        return method

    return write


def integer_or_string(name: str, value: Any) -> Any:
    """S0-6: whole numbers may come as text or as 25.0; empty text means the default (None)."""
    if isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number or string, got: bool")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return int(value.strip())
    except ValueError as error:
        raise InvalidInput(f"invalid {name} value: {value}") from error


MOST_INTEGER = 2**63 - 1


def integer_beyond_64_bits(value: Any) -> int | None:
    """A whole number in `value`, however deep, that SQLite cannot hold; None if there is none."""
    if isinstance(value, int):
        return value if abs(value) > MOST_INTEGER else None
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, list | tuple):
        inner = cast("Iterable[Any]", value)
    return next((integer for item in inner if (integer := integer_beyond_64_bits(item)) is not None), None)
