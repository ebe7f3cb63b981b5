"""Commands that call one tool, and options made from it: types, limits, choices and help."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

from localmcp.cli.session import COMMAND_OF_TOOL, Session, pass_session
from localmcp.cli.values import YES
from localmcp.schemas import Json, Param, bare_type, param_of

Function = Callable[..., Any]
Show = Callable[[Session, Json], None]

SHORT = {"collection": "-c --collection", "partition": "-p --partition", "limit": "-n --limit", "mode": "-m --mode"}
"""Parameters whose options have a letter, in every command."""
SAYS = {
    "until": "Only changed until then: 2026-11-01, yesterday",
    "since": "Only changed since: 2026-11-01, yesterday",
    "title": "Only those with this in their titles",
}
"""Help for parameters whose meaning a language model knows without a word."""


class _Argument(click.Argument):
    """An argument that keeps the capitals of the parameter's name."""

    def __init__(self, param_decls: Sequence[str], **attributes: Any) -> None:
        super().__init__(param_decls, **attributes)
        self.name = param_decls[0]


class _Text(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """Text whose length is limited; the tool would refuse it in the words of its interface."""

    name = "text"

    def __init__(self, least: int | None, most: int | None) -> None:
        self.least, self.most = least or 0, most or sys.maxsize

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if len(value.strip()) < self.least:
            self.fail("it is empty.", param, ctx)
        if len(value) > self.most:
            self.fail(f"it has {len(value):,} characters; at most {self.most:,} are allowed.", param, ctx)
        return value


def tool_command(
    parent: click.Group,
    name: str,
    method: Function,
    help: str,  # noqa: A002
    *,
    makes: bool = False,
    ask: Callable[[Session, Json], str] | None = None,
    prepare: Callable[[Session, Json], Json] | None = None,
    options: Iterable[Callable[[Function], Function]] = (),
    columns: Sequence[str] = (),
    show: Show | None = None,
    **described: Any,
) -> None:
    """Add a command that calls a tool and shows its answer; exit code 1 if the tool failed.

    Args:
        makes: the file is made if there is none.
        ask: returns what the person must say yes to before the tool is called; adds `--yes`.
        prepare: makes the tool's arguments of the values of the command line.
        options: click's options besides the tool's parameters, for `prepare`.
        columns: the keys of the answer that are shown in a table.
        show: prints the answer; as every answer is printed if left out.
        described: as `tool_options` takes it.
    """
    tool = method.__tool__.name  # pyright: ignore[reportFunctionMemberAccess]
    COMMAND_OF_TOOL[tool] = f"localmcp {parent.name} {name}"

    def run(session: Session, **arguments: Any) -> int:
        agreed: bool = arguments.pop("yes", False)
        if prepare is not None:
            arguments = prepare(session, arguments)
        if ask is not None:
            session.confirm(ask(session, arguments), agreed)
        answer = session.call_in(session.workspace if makes else session.existing(), tool, arguments)
        if columns and show is None:
            return session.answer_tool(answer, lambda session, value: session.show(value, columns=columns))
        return session.answer_tool(answer, show)

    function: Function = pass_session(run)
    for option in (*([YES] if ask else []), *reversed(list(options))):
        function = option(function)
    parent.command(name, help=help)(tool_options(method, **described)(function))


def tool_options(
    method: Function,
    *,
    arguments: Mapping[str, str] | None = None,
    spelled: Mapping[str, str] | None = None,
    says: Mapping[str, str] | None = None,
    without: Iterable[str] = (),
    instead: Mapping[str, Callable[[Function], Function]] | None = None,
) -> Callable[[Function], Function]:
    """Add an option for every parameter of a tool's method.

    Values arrive under the tool's names, None if left out.

    `arguments`: parameter -> metavar of what is written without an option; `...` at its end takes several words, which
    are joined for a parameter that is one text.
    `spelled`: parameter -> its options, such as `-n --limit`, where they are not the name in kebab case.
    `says`: parameter -> help, where the tool's own words are not for a command line.
    `without`: parameters that the command fills by itself.
    `instead`: parameter -> click's option or argument that takes its place.
    """
    arguments, spelled, says = arguments or {}, {**SHORT, **(spelled or {})}, says or {}
    hints = get_type_hints(method, include_extras=True)
    parameters = inspect.signature(method).parameters
    names = [name for name in parameters if name not in ("self", *without)]

    def decorate(function: Function) -> Function:
        for name in reversed(names):
            hint, default = hints[name], parameters[name].default
            if instead and name in instead:
                added = instead[name]
            elif name in arguments:
                added = _argument(name, arguments[name], hint, default)
            else:
                added = _option(name, spelled.get(name, _kebab(name)), hint, default, says.get(name))
            function = added(function)
        return function

    return decorate


def _argument(name: str, metavar: str, hint: Any, default: Any) -> Callable[[Function], Function]:
    words: dict[str, Any] = {"required": default is inspect.Parameter.empty}
    if metavar.rstrip("]").endswith("..."):
        words |= {"nargs": -1, "callback": _list_or_none if get_origin(_bare(hint)) is list else _joined_or_none}
    return click.argument(name, cls=_Argument, metavar=metavar, type=_type(hint), **words)


def _option(name: str, spelling: str, hint: Any, default: Any, says: str | None) -> Callable[[Function], Function]:
    kind, param = _bare(hint), param_of(hint) or Param("")
    shown = default not in (None, "", False, inspect.Parameter.empty) and kind is not bool
    attributes: dict[str, Any] = {
        "help": _help(says or param.description or SAYS.get(name, ""), kind),
        "default": default if shown else None,
    }
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


def _joined_or_none(ctx: click.Context, argument: click.Parameter, values: tuple[Any, ...]) -> str | None:
    return " ".join(values) or None


def _help(text: str, kind: Any) -> str:
    return f"{text.rstrip('.')}; may be repeated." if get_origin(kind) is list else f"{text.rstrip('.')}."


def _type(hint: Any) -> Any:
    """Return click's type of a hint; a list has the type of its items."""
    kind, param = _bare(hint), param_of(hint) or Param("")
    if get_origin(kind) is list:
        kind, param = get_args(kind)[0], Param("")
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind), case_sensitive=False)
    if kind is int and param.minimum is None and param.maximum is None:
        return click.INT
    if kind is int:
        return click.IntRange(_whole(param.minimum), _whole(param.maximum))
    if kind is float:
        return click.FloatRange(param.minimum, param.maximum)
    return _Text(param.min_length, param.max_length) if param.min_length or param.max_length else click.STRING


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def _bare(hint: Any) -> Any:
    """Return the type without `Param` and without None."""
    kind = bare_type(hint)
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


def _kebab(name: str) -> str:
    return "--" + re.sub(r"([A-Z])", r"-\1", name).lower().replace("_", "-")
