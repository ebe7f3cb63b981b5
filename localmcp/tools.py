"""Tools, the scope they run in, and the registry: the one door through which every face calls them.

A tool is a public method marked `@tool(...)`. Its docstring is the description, its type hints are the schema.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast, get_type_hints

from localmcp.argument_names import canonical_names
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, UnknownTool
from localmcp.schemas import Json as Json
from localmcp.schemas import Param as Param
from localmcp.schemas import (
    bare_type,
    describe_kind,
    drop_from_input,
    drop_from_output,
    field_limits,
    lower_first,
    param_of,
    shorten_output,
    shorten_value,
    tidy,
    without_null,
)
from localmcp.schemas import compact_json as compact_json
from localmcp.schemas import nearest as nearest

log = logging.getLogger(__name__)

Method = TypeVar("Method", bound=Callable[..., Any])


# ---------------------------------------------------------------- scope


@dataclass(frozen=True, slots=True)
class Scope:
    """Who is asking and what they may reach, for the length of one call."""

    caller: str = "local"
    """`cli`, `tui`, `stdio`, or the id of an API key."""
    trusted: bool = True
    """The person at the machine (CLI, TUI); an assistant is not, and may only add files from allowed folders."""
    collections: frozenset[str] | None = None
    """Names of the visible collections; None = all."""
    tools: frozenset[str] | None = None
    """Names of the callable tools; None = all."""
    providers: tuple[Provider, ...] = ()
    """Tools that exist for this request only (S1-6)."""
    provider_names: frozenset[str] | None = None
    """Names of the global providers whose tools exist for this caller; None = all."""
    rights: frozenset[str] = frozenset({"read", "write", "admin"})
    """What the caller may do; without `write`, only tools that are marked read-only."""
    expires_at: str | None = None
    """When the caller's key ends (ISO 8601, UTC); None = never. What it makes ends no later."""
    lean: bool = False
    """A language model reads the answers: budgets apply, and text blocks are written for reading."""

    def allows(self, mark: ToolMark) -> bool:
        """Whether the caller's rights reach that far; a tool that runs others leaves the question to those."""
        return mark.read_only or mark.proxy or "write" in self.rights


EVERYTHING = Scope()
_scope: ContextVar[Scope] = ContextVar("localmcp_scope", default=EVERYTHING)


_running: ContextVar[str | None] = ContextVar("localmcp_running", default=None)
"""The tool whose call is under way."""


ReportProgress = Callable[[float, float | None, str], None]
"""Called with how much is done, of how much (None = unknown), and a word on what is going on; from any thread."""


def _ignore_progress(_done: float, _total: float | None, _message: str) -> None:
    """Nobody asked how far the call is."""


_progress: ContextVar[ReportProgress] = ContextVar("localmcp_progress", default=_ignore_progress)


def progress_listener() -> ReportProgress:
    """Return where the running call tells how far it is; a thread that works for the call takes it along."""
    return _progress.get()


@contextmanager
def use_progress(listener: ReportProgress) -> Generator[None]:
    """Tell `listener` how far the calls of this block are."""
    token = _progress.set(listener)
    try:
        yield
    finally:
        _progress.reset(token)


class CallCancellation:
    """Whether the client has given a call up, and what to do then. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the call is given up, at once if it already is; it must be quick."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def cancel(self) -> None:
        """Give the call up."""
        with self._lock:
            callbacks, self._callbacks, self._cancelled = self._callbacks, [], True
        for callback in callbacks:
            callback()


_cancellation: ContextVar[CallCancellation | None] = ContextVar("localmcp_cancellation", default=None)


def call_cancellation() -> CallCancellation | None:
    """Return what tells that the running call is given up; None where nobody can give it up."""
    return _cancellation.get()


@contextmanager
def use_cancellation(cancellation: CallCancellation) -> Generator[None]:
    """Let the calls of this block be given up through `cancellation`."""
    token = _cancellation.set(cancellation)
    try:
        yield
    finally:
        _cancellation.reset(token)


def current_scope() -> Scope:
    """The scope of the call that is running."""
    return _scope.get()


@contextmanager
def use_scope(scope: Scope) -> Generator[Scope]:
    """Run a block in `scope`."""
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


# ---------------------------------------------------------------- declaring a tool


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
            stands for a constant, `a|b` for alternatives; a phrase that is only `{p}` takes the whole sentence and
            counts only if the tool then finds something.
        visible: listed by tools/list; others are found by `tool_search`.
        read_only, destructive, idempotent, open_world: the annotations of MCP; idempotent follows read_only.
        proxy: it only runs another tool through the registry, whose rights are then asked for.
        stand_in: it stands for the tools that are not listed, and is not listed where all are.
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
    return next((found for each in inner if (found := integer_beyond_64_bits(each)) is not None), None)


# ---------------------------------------------------------------- tools


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gives back: the structured value, and the text a model reads."""

    value: Json
    text: str
    is_error: bool = False
    content: tuple[Json, ...] | None = None
    """The content blocks of a tool of another MCP server (text, images, ...), which then stand instead of `text`."""
    whole_text: bool = False
    """The text says all that the structured value does, for whoever reads only one of them."""


class Tool(ABC):
    """Anything that can be listed, searched and called."""

    mark: ToolMark
    description: str
    addition: Callable[[], str] | None = None
    """What a listing adds to the description, asked anew each time; None adds nothing."""

    @property
    def listed_description(self) -> str:
        """The description with its addition."""
        more = self.addition() if self.addition is not None else ""
        return f"{self.description} {more}" if more else self.description

    @property
    def name(self) -> str:
        return self.mark.name

    @property
    @abstractmethod
    def input_schema(self) -> Json:
        """JSON Schema (2020-12) of the arguments; the root is an object that refuses unknown keys."""

    @property
    def output_schema(self) -> Json | None:
        """JSON Schema of the structured result, an object."""
        return None

    @abstractmethod
    def call(self, arguments: Json) -> Answer:
        """Check the arguments and run.

        Raises:
            InvalidInput: the arguments do not fit; the message lists every problem.
            LocalMCPError: what the tool itself raises.
        """


def tells_failure(value: Any) -> bool:
    """Return whether a result says of itself that the call failed: `success` is false, or there is an `error`."""
    if not isinstance(value, dict):
        return False
    table = cast(Json, value)
    return table.get("success") is False or isinstance(table.get("error"), str)


_ARGUMENT = "argument_"


class MethodTool(Tool):
    """A marked method of a service."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.mark = cast(ToolMark, method.__tool__)  # pyright: ignore[reportFunctionMemberAccess]
        self.description = inspect.getdoc(method) or ""

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.method, include_extras=True)

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.method).parameters

    @cached_property
    def _model(self) -> Any:
        # pydantic costs 70 ms to import, so a model is built at the first listing or call.
        from pydantic import ConfigDict, Field, create_model

        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            required = parameter.default is parameter.empty
            limits = field_limits(self._hints[name])
            # Names of our own, because pydantic warns of fields called `json`, `copy` or `schema`.
            fields[_ARGUMENT + name] = (
                bare_type(self._hints[name]),
                Field(... if required else parameter.default, alias=name, **limits),
            )
        config = ConfigDict(extra="forbid", strict=True)
        return create_model(self.name, __config__=config, **fields)

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        schema = without_null(tidy(self._model.model_json_schema(), drop_from_input))
        promised = [name for name, hint in self._hints.items() if (param := param_of(hint)) and param.required]
        for name in promised:
            del schema["properties"][name]["default"]
        if promised:
            schema["required"] = [*promised, *schema.get("required", [])]
        schema.setdefault("properties", {})
        return schema

    @cached_property
    def output_schema(self) -> Json | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        from pydantic import TypeAdapter

        if "return" not in self._hints:
            return None
        if self._hints["return"] is Answer:
            return {"type": "object"}
        schema = TypeAdapter(self._hints["return"]).json_schema(mode="serialization")
        return shorten_output(tidy(schema, drop_from_output))

    def call(self, arguments: Json) -> Answer:
        try:
            value = self.method(**self._checked(arguments))
        except LocalMCPError as error:
            if self.mark.on_error is None:
                raise
            value = self.mark.on_error(error)
            return Answer(value, self._text(value), is_error=True)
        # A tool that runs another one passes that one's answer on whole.
        return value if isinstance(value, Answer) else self._answer(value)

    def _answer(self, value: Any) -> Answer:
        is_error = tells_failure(value)
        if self.mark.lean is None or is_error or not current_scope().lean:
            return Answer(value, self._text(value), is_error)
        return self.mark.lean(value)

    def _text(self, value: Any) -> str:
        return self.mark.text(value) if self.mark.text else compact_json(value)

    def _checked(self, arguments: Json) -> Json:
        from pydantic import ValidationError

        given = self._accepted(arguments)
        try:
            model = self._model.model_validate(given)
        except ValidationError as error:
            problems = cast("list[Json]", error.errors(include_url=False, include_context=True))
            raise InvalidInput(self._complaint(problems)) from None
        checked = {name: getattr(model, _ARGUMENT + name) for name in given}
        for name, value in checked.items():
            if (large := integer_beyond_64_bits(value)) is not None:
                raise InvalidInput(f"{name}: {shorten_value(large)} is too large; whole numbers end at {MOST_INTEGER}.")
        return checked

    def _accepted(self, arguments: Json) -> Json:
        """The arguments after the declared leniencies; null stands for "not given" where there is a default."""
        given: Json = {}
        for name, value in canonical_names(arguments, self._parameters).items():
            if name in self.mark.accepts and value is not None:
                value = self.mark.accepts[name](name, value)
            known = self._parameters.get(name)
            if value is None and known is not None and known.default is not known.empty:
                continue
            given[name] = value
        return given

    def _complaint(self, problems: list[Json]) -> str:
        contract = next(filter(None, (self._contract_text(p) for p in problems)), None)
        if contract:
            return contract
        lines = [f"- {self._one_problem(p)}" for p in problems[:8]]
        return "\n".join([f"Invalid arguments for {self.name}:", *lines, f"Parameters: {self.signature()}"])

    def _contract_text(self, problem: Json) -> str | None:
        place = problem["loc"]
        if problem["type"] == "missing" and f"{place[0]} required" in self.mark.says:
            return self.mark.says[f"{place[0]} required"]
        if len(place) > 1 and f"{place[0]}[]" in self.mark.says:
            return self.mark.says[f"{place[0]}[]"].format(index=place[1])
        return self.mark.says.get(str(place[0])) if place else None

    def _one_problem(self, problem: Json) -> str:
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            return f"{place}: required"
        if problem["type"] == "extra_forbidden":
            near = nearest(place, self.input_schema["properties"])
            return f"{place}: not a parameter" + (f"; did you mean '{near}'?" if near else "")
        return f"{place}: {lower_first(problem['msg'])}, got {shorten_value(problem['input'])}"

    def signature(self) -> str:
        """The parameters in one line: `query* (string), limit (integer 1..50)`; `*` = required."""
        required = self.input_schema.get("required", [])
        parts = [
            f"{name}{'*' if name in required else ''} ({describe_kind(spec)})"
            for name, spec in self.input_schema["properties"].items()
        ]
        return ", ".join(parts) or "none"


def tools_of(service: object) -> list[MethodTool]:
    """The tools that an object's marked methods make, in the order they are written, a base class first."""
    names = dict.fromkeys(
        name
        for owner in reversed(type(service).__mro__)
        for name, member in vars(owner).items()
        if hasattr(member, "__tool__")
    )
    return [MethodTool(getattr(service, name)) for name in names]


# ---------------------------------------------------------------- registry


class Provider(Protocol):
    """A source of tools."""

    @property
    def name(self) -> str:
        """How people and keys call it: `commands`, `queries`, `mcp:github`."""
        ...

    def tools(self) -> Iterable[Tool]:
        """Every tool it offers to the current scope. Raising means the provider is down: searches skip it."""
        ...

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None = not mine (a miss). Anything raised is a real error and stops the call."""
        ...


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished call, as observers receive it."""

    tool: str
    arguments: Json
    scope: Scope
    started_at: float
    """Unix time, seconds."""
    seconds: float
    error: LocalMCPError | Exception | None
    answer: Answer | None
    via: str | None = None
    """The tool that ran it for the caller, such as `execute_tool`."""


class Registry:
    """A provider made of tools and providers; of two tools with one name the first keeps it. Thread-safe."""

    name = "registry"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, Tool] = {}
        self._providers: tuple[Provider, ...] = ()
        self.observers: tuple[Callable[[CallRecord], None], ...] = ()
        self.show_all = False
        """List the discoverable tools too."""
        self.explain: Callable[[Exception], LocalMCPError | None] = lambda _: None
        """Says in our words what an unexpected error means; None when it means a mistake of ours."""
        self.offers: list[Any] = []
        """Resources and prompts of others, such as connected servers (`server.offers.Offer`)."""
        self.suggest: Callable[[str], list[str]] = lambda _: []
        """Names of the tools that do what some words say, best first."""
        self.refusal: LocalMCPError | None = None
        """When set, every call raises it: settings that cannot be used still leave the tools listed."""

    def add_service(self, service: object) -> None:
        """Register every marked method of `service`."""
        for each in tools_of(service):
            self.add(each)

    def add(self, each: Tool) -> None:
        """Register one tool; replaces an earlier one of that name."""
        with self._lock:
            self._tools = {**self._tools, each.name: each}

    def remove(self, name: str) -> bool:
        """Take one registered tool away; False if there was none."""
        with self._lock:
            remaining = {key: value for key, value in self._tools.items() if key != name}
            removed = len(remaining) < len(self._tools)
            self._tools = remaining
        return removed

    def add_provider(self, provider: Provider) -> None:
        with self._lock:
            self._providers = (*self._providers, provider)

    def remove_provider(self, provider: Provider) -> bool:
        with self._lock:
            remaining = tuple(p for p in self._providers if p is not provider)
            removed = len(remaining) < len(self._providers)
            self._providers = remaining
        return removed

    def observe(self, observer: Callable[[CallRecord], None]) -> None:
        """Call `observer` after every call; it must be quick and must not raise."""
        with self._lock:
            self.observers = (*self.observers, observer)

    def tools(self, *, for_listing: bool = False) -> list[Tool]:
        """Every tool the current scope may call: registered ones first, then providers, then the request's own.

        `for_listing` passes over providers that say `only_hidden`: clients list tools at every start, and asking other
        servers for tools that the list does not show could take seconds.
        """
        found = dict(self._tools)
        with self._asking_providers() as providers:
            for provider in providers:
                if for_listing and getattr(provider, "only_hidden", False):
                    continue
                try:
                    for each in provider.tools():
                        found.setdefault(each.name, each)
                except Exception:
                    log.warning("a tool provider could not list its tools and is skipped", exc_info=True)
        scope = current_scope()
        return [
            each
            for each in found.values()
            if (scope.tools is None or each.name in scope.tools) and scope.allows(each.mark)
        ]

    def visible(self) -> list[Tool]:
        """The tools that tools/list shows: the visible ones; or all, without those that only stand for the others."""
        if self.show_all:
            return [each for each in self.tools() if not each.mark.stand_in]
        return [each for each in self.tools(for_listing=True) if each.mark.visible]

    def find(self, name: str) -> Tool | None:
        """The tool of that name in the current scope, or None."""
        return self._look_up(name, skip_failing=False)

    def get(self, name: str) -> Tool:
        """The tool of that name, to show it: unlike in a call, a provider that fails is skipped.

        Raises:
            UnknownTool: no such tool for this caller; the message names the nearest.
        """
        each = self._look_up(name, skip_failing=True)
        if each is None:
            raise self._unknown(name)
        return each

    def _look_up(self, name: str, *, skip_failing: bool) -> Tool | None:
        allowed = current_scope().tools
        if allowed is not None and name not in allowed:
            return None
        registered = self._tools.get(name)
        if registered is not None:
            return registered
        with self._asking_providers() as providers:
            for provider in providers:
                try:
                    each = provider.find(name)
                except Exception:
                    if not skip_failing:
                        raise
                    log.warning("a tool provider could not look up %s and is skipped", name, exc_info=True)
                    continue
                if each is not None:
                    return each
        return None

    @contextmanager
    def _asking_providers(self) -> Generator[tuple[Provider, ...]]:
        """Global providers, then the request's, in a scope without the latter: a registry is a provider too (S1-4),
        and would ask itself for ever."""
        scope = current_scope()
        names = scope.provider_names
        ours = self._providers if names is None else tuple(each for each in self._providers if each.name in names)
        with use_scope(replace(scope, providers=())):
            yield (*ours, *scope.providers)

    def _unknown(self, name: str) -> UnknownTool:
        names = self._nearest_tools(name)
        hint = f"Did you mean '{names[0]}'?" if len(names) == 1 else f"Nearest tools: {', '.join(names)}."
        return UnknownTool(f"Unknown tool: {name}", hint=hint if names else None)

    def _nearest_tools(self, name: str) -> list[str]:
        """The tool that is spelled like the name; else those that do what its words say."""
        names = [tool.name for tool in self.tools()]
        if near := nearest(name, names, least=80):
            return [near]
        near = nearest(name, names)
        try:
            return self.suggest(" ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name))) or ([near] if near else [])
        except LocalMCPError:
            log.info("no tool could be suggested for %s", name, exc_info=True)
            return [near] if near else []

    def call(self, name: str, arguments: Json | None = None, scope: Scope | None = None) -> Answer:
        """Run the tool `name` in `scope` (the current one by default): the one door of all faces.

        Raises:
            UnknownTool: no such tool for this caller; the message names the nearest.
            AccessDenied: the tool changes things, and the caller may only read.
            LocalMCPError: what the tool raises.
        """
        with use_scope(scope or current_scope()) as inside:
            return self._timed(name, arguments or {}, inside)

    def _callable(self, name: str, scope: Scope) -> Tool:
        if self.refusal is not None:
            raise self.refusal
        each = self.find(name)
        if each is None:
            raise self._unknown(name)
        if not scope.allows(each.mark):
            raise AccessDenied(
                f"{name} changes things, and the key of this caller may only read.",
                hint="Use a key with the scope write.",
            )
        return each

    def _timed(self, name: str, arguments: Json, scope: Scope) -> Answer:
        """Run it and tell the observers, also of a call that never reached a tool."""
        started_at, start = time.time(), time.perf_counter()
        answer: Answer | None = None
        failure: Exception | None = None
        via = _running.get()
        token = _running.set(name)
        try:
            answer = self._callable(name, scope).call(arguments)
            return answer
        except Exception as error:
            told = None if isinstance(error, LocalMCPError) else self.explain(error)
            failure = told or error
            if told is not None:
                raise told from error
            raise
        finally:
            _running.reset(token)
            seconds = time.perf_counter() - start
            record = CallRecord(name, arguments, scope, started_at, seconds, failure, answer, via)
            for observer in self.observers:
                observer(record)
