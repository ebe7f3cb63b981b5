"""Options of a command that calls one tool, made from the tool: types, limits, choices, defaults and help."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from localmcp.schemas import Param, param_of

Function = Callable[..., Any]

SHORT = {"collection": "-c --collection", "partition": "-p --partition", "limit": "-n --limit", "mode": "-m --mode"}
"""Parameters whose options have a letter, in every command."""


class _Argument(click.Argument):
    """An argument that keeps the capitals of the parameter's name."""

    def __init__(self, param_decls: Sequence[str], **attributes: Any) -> None:
        super().__init__(param_decls, **attributes)
        self.name = param_decls[0]


def tool_options(
    method: Function,
    *,
    arguments: Mapping[str, str] | None = None,
    spelled: Mapping[str, str] | None = None,
    says: Mapping[str, str] | None = None,
    without: Iterable[str] = (),
) -> Callable[[Function], Function]:
    """Add an option for every parameter of a tool's method; values arrive under the tool's names, None if left out.

    `arguments`: parameter -> metavar of what is written without an option; `...` at its end takes several words.
    `spelled`: parameter -> its options, such as `-n --limit`, where they are not the name in kebab case.
    `says`: parameter -> help, where the tool's own words are not for a command line.
    `without`: parameters that the command fills by itself.
    """
    arguments, spelled, says = arguments or {}, {**SHORT, **(spelled or {})}, says or {}
    hints = get_type_hints(method, include_extras=True)
    names = [name for name in inspect.signature(method).parameters if name not in ("self", *without)]

    def decorate(function: Function) -> Function:
        for name in reversed(names):
            default = inspect.signature(method).parameters[name].default
            if name in arguments:
                several = arguments[name].endswith("...")
                words: dict[str, Any] = {"nargs": -1, "required": default is inspect.Parameter.empty} if several else {}
                function = click.argument(
                    name, cls=_Argument, metavar=arguments[name], type=_type(hints[name]), **words
                )(function)
            else:
                function = _option(name, spelled.get(name, _kebab(name)), hints[name], default, says.get(name))(
                    function
                )
        return function

    return decorate


def _option(name: str, spelling: str, hint: Any, default: Any, says: str | None) -> Callable[[Function], Function]:
    kind, param = _bare(hint), param_of(hint) or Param("")
    shown = default not in (None, "", False, inspect.Parameter.empty) and kind is not bool
    attributes: dict[str, Any] = {"help": _help(says or param.description, kind), "default": default if shown else None}
    attributes["show_default"] = shown
    if get_origin(kind) is list:
        attributes |= {"multiple": True, "callback": _list_or_none}
    elif kind is bool and "/" not in spelling:
        attributes |= {"is_flag": True, "flag_value": True}
    if kind is not bool:
        attributes["type"] = _type(hint)
    return click.option(name, *spelling.split(), **attributes)


def _list_or_none(ctx: click.Context, option: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    return list(values) or None


def _help(text: str, kind: Any) -> str:
    return f"{text.rstrip('.')}; may be repeated." if get_origin(kind) is list else f"{text.rstrip('.')}."


def _type(hint: Any) -> Any:
    """Return click's type of a hint; a list has the type of its items."""
    kind, param = _bare(hint), param_of(hint) or Param("")
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind), case_sensitive=False)
    if kind is int:
        return click.IntRange(_whole(param.minimum), _whole(param.maximum))
    return click.FloatRange(param.minimum, param.maximum) if kind is float else click.STRING


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def _bare(hint: Any) -> Any:
    """Return the type without `Param` and without None."""
    kind = get_args(hint)[0] if param_of(hint) else hint
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _kebab(name: str) -> str:
    return "--" + re.sub(r"([A-Z])", r"-\1", name).lower().replace("_", "-")
