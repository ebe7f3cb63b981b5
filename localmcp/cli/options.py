"""Options: made from a tool that a command calls, shared by commands, and what is typed for them."""

import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import click

from localmcp.cli.session import COMMAND_OF_TOOL, Session, command, pass_session
from localmcp.errors import InvalidInput, NotFound
from localmcp.files import expand_home, unicode_path
from localmcp.schemas import Json, Param, bare_type, mapping_of, param_of
from localmcp.storage.schema import days_ago, parse_span, utc_text

Function = Callable[..., Any]

SHORT = {"collection": "-c --collection", "partition": "-p --partition", "limit": "-n --limit", "mode": "-m --mode"}
"""Parameters whose options have a letter, in every command."""


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
    parent: click.Group | None,
    name: str,
    method: Function,
    help: str,  # noqa: A002
    *,
    makes: bool = False,
    ask: Callable[[Session, Json], str] | None = None,
    prepare: Callable[[Session, Json], Json] | None = None,
    columns: Sequence[str] = (),
    show: Callable[[Session, Json], None] | None = None,
    **described: Any,
) -> click.Command:
    """Return a command that calls a tool and shows its answer; exit code 1 if the tool failed.

    Args:
        parent: the command above it; None = the program.
        makes: the file is made if there is none.
        ask: returns what the person must say yes to before the tool is called; adds `--yes`.
        prepare: makes the tool's arguments of the values of the command line.
        columns: the keys of the answer that are shown in a table.
        show: prints the answer; as every answer is printed if left out.
        described: as `tool_options` takes it.
    """
    tool = method.__tool__.name  # pyright: ignore[reportFunctionMemberAccess]
    COMMAND_OF_TOOL[tool] = f"localmcp {parent.name} {name}" if parent else f"localmcp {name}"

    def run(session: Session, **arguments: Any) -> int:
        COMMAND_OF_TOOL.update({name: words.split()[-1] for name, words in described.get("spelled", {}).items()})
        agreed: bool = arguments.pop("yes", False)
        if prepare is not None:
            arguments = prepare(session, arguments)
        if ask is not None:
            session.confirm(ask(session, arguments), agreed)
        workspace = session.workspace if makes else session.existing()
        return session.answer_tool(session.call_in(workspace, tool, arguments), show or columns)

    function: Function = pass_session(run)
    function = tool_options(method, **described)(YES(function) if ask else function)
    return parent.command(name, help=help)(function) if parent else command(name, help=help)(function)


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

    `arguments`: parameter -> metavar of what is written without an option, in brackets if it may be left out; `...` at
    its end takes several words, which are joined for a parameter that is one text. None may be blank.
    `spelled`: parameter -> its options, such as `-n --limit`, where they are not the name in kebab case.
    `says`: parameter -> help, where the tool's own words are not for a command line.
    `without`: parameters that the command fills by itself.
    `instead`: parameter -> click's option or argument that takes its place.
    """
    arguments, says, instead, spelled = arguments or {}, says or {}, instead or {}, {**SHORT, **(spelled or {})}
    hints = get_type_hints(method, include_extras=True)
    parameters = inspect.signature(method).parameters

    def list_or_none(_ctx: click.Context, _param: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
        return list(values) or None

    def joined_or_none(_ctx: click.Context, _param: click.Parameter, values: tuple[Any, ...]) -> str | None:
        return " ".join(values) or None

    def decorate(function: Function) -> Function:
        for name in reversed([name for name in parameters if name not in ("self", *without)]):
            kind, param, default = _bare(hints[name]), param_of(hints[name]) or Param(""), parameters[name].default
            is_list, attributes = get_origin(kind) is list, dict[str, Any]()
            if name in instead:
                function = instead[name](function)
                continue
            if kind is not bool:
                attributes["type"] = _type(hints[name])
            if name in arguments:
                attributes["required"] = not arguments[name].startswith("[")
                if isinstance(attributes["type"], _Text):
                    attributes["type"].least = 1
                if arguments[name].endswith("..."):
                    attributes |= {"nargs": -1, "callback": list_or_none if is_list else joined_or_none}
                function = click.argument(name, cls=_Argument, metavar=arguments[name], **attributes)(function)
                continue
            spelling = spelled.get(name) or "--" + re.sub(r"([A-Z])", r"-\1", name).lower().replace("_", "-")
            text = (says.get(name) or param.description).rstrip(".")
            attributes["help"] = f"{text}; may be repeated." if is_list else f"{text}."
            attributes["show_default"] = default not in (None, "", False, inspect.Parameter.empty) and kind is not bool
            attributes["default"] = default if attributes["show_default"] else None
            if is_list:
                attributes |= {"multiple": True, "callback": list_or_none}
            elif kind is bool and "/" not in spelling:
                attributes |= {"is_flag": True, "flag_value": True}
            function = click.option(name, *spelling.split(), **attributes)(function)
        return function

    return decorate


def _type(hint: Any) -> Any:
    kind, param = _bare(hint), param_of(hint) or Param("")
    if get_origin(kind) is list:
        kind, param = get_args(kind)[0], Param("")
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind), case_sensitive=False)
    if kind is int:
        least, most = (None if limit is None else int(limit) for limit in (param.minimum, param.maximum))
        return click.INT if least is None and most is None else click.IntRange(least, most)
    if kind is float:
        return click.FloatRange(param.minimum, param.maximum)
    return _Text(param.min_length, param.max_length)


def _bare(hint: Any) -> Any:
    kind = bare_type(hint)
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not types.NoneType)
    return kind


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
COLLECTIONS = click.option(
    "-c", "--collection", "collections", multiple=True, help="Only this collection; may be repeated."
)


def collection_option(says: str = "Only this collection.") -> Callable[[Function], Function]:
    """Return `--collection`, one at most."""
    return click.option("-c", "--collection", help=says)


def no_wait(says: str = "Return when everything is found by its words.") -> Callable[[Function], Function]:
    """Return `--no-wait`, for a command that waits until passages have vectors."""
    return click.option("--no-wait", is_flag=True, help=says)


def existing_file(file: Path, *, hint: str | None = None) -> Path:
    """Return the file with `~` expanded; raises NotFound if there is none."""
    path = expand_home(file)
    if not path.is_file():
        problem = f"{file} is a folder; a file is needed." if path.is_dir() else f"There is no file {file}."
        raise NotFound(problem, hint=hint)
    return path


def library_path(path: str) -> str:
    """Return a path as the library knows it if it is there; any other may be a part of one."""
    expanded = os.path.expanduser(path)
    return unicode_path(os.path.realpath(expanded)) if os.path.exists(expanded) else path


def read_bytes(file: str) -> bytes:
    """Return what is in a file; `-` is stdin. Raises as `existing_file`."""
    return sys.stdin.buffer.read() if file == "-" else existing_file(Path(file)).read_bytes()


def parse_object(text: str | bytes, subject: str, hint: str | None = None) -> Json:
    """Return the object of a JSON text; raises InvalidInput, which begins with `subject` (`The arguments are`)."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{subject} not JSON: {error}.", hint=hint) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{subject} not an object.", hint=hint)
    return cast("Json", value)


def split_pair(pair: str, message: str, hint: str | None = None) -> tuple[str, str]:
    """Return the key and the value of `key=value`; raises InvalidInput with `message` if one is missing."""
    key, equals, value = pair.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(message, hint=hint)
    return key.strip(), value


def json_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_meta(pairs: tuple[str, ...]) -> Json:
    """`year=2024`, `tags=[1, 2]`, `author=Ada` as `{"year": 2024, "tags": [1, 2], "author": "Ada"}`."""
    wrong = "--meta: '{}' must be KEY=VALUE, such as author=Ada or year=2024."
    return {key: json_or_text(value) for key, value in (split_pair(pair, wrong.format(pair)) for pair in pairs)}


def read_pairs(pairs: tuple[str, ...], schema: Json) -> Json:
    """`key=value` as an object."""
    values: Json = {}
    hint = """Write query="some words", or '{"query": "some words"}'"""
    for pair in pairs:
        key, typed = split_pair(pair, f"{pair} is neither JSON nor key=value.", hint)
        spec = mapping_of(schema.get("properties", {}).get(key))
        value = typed if spec.get("type") == "string" or "enum" in spec else json_or_text(typed)
        if spec.get("type") == "array" and not isinstance(value, list):
            value = [*values.get(key, []), value]
        values[key] = value
    return values


FORM = "30min, 12h, 7d, 2w, 6 months, 1y, a date like 2027-01-31, or a time like 2027-01-31T12:00"


def parse_time(option: str, text: str | None, *, ahead: bool) -> str | None:
    """Return the time that far ahead or back, or the time itself, as ISO 8601 in UTC; or None.

    A bare `m` is months, as in every span; ahead it is refused, because who means minutes would get a key for years.
    An empty time is an error: a shell variable that is not set must not make a key that never ends. InvalidInput names
    the option.
    """
    if text is None:
        return None
    span, day = parse_span(text), days_ago(text, date.today())
    is_unclear = ahead and text.strip().lower().endswith(("ago", "m"))
    try:
        if span is not None and not is_unclear:
            moment = datetime.now(UTC) + (span if ahead else -span)
        elif day is not None and not ahead:
            moment = datetime.combine(date.today() - timedelta(day), time()).astimezone(UTC)
        else:
            # Without an offset it is the clock on the person's wall.
            moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option}: '{text}' is no time; write {FORM}.") from error
    return utc_text(moment)
