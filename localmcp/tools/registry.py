"""Marked methods as tools, and the registry: every interface lists, finds and calls tools through it."""

import inspect
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, cast, get_type_hints

from localmcp import schemas
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, UnknownTool
from localmcp.humanize import MOST_QUOTED, quoted
from localmcp.masking import mask_text
from localmcp.schemas import Json, compact_json, mapping_of, nearest, param_of, shorten_value
from localmcp.tools.base import Answer, Provider, Scope, Tool, ToolMark, current_scope, use_scope

log = logging.getLogger(__name__)

SAME = (
    ("query", "queries", "q", "question", "task", "taskDescription", "text", "texts", "prompt", "displayName", "quote"),
    ("limit", "topK", "maxResults", "n", "k", "size", "numResults"),
    ("offset", "skip", "start"),
    ("pathPrefix", "folder", "directory", "prefix", "path"),
    ("sourceId", "path", "document", "documentId", "source", "title", "file", "docId", "id", "filePath", "folder",
     "directory"),
    ("chunkId", "chunk", "passageId", "id", "resultId"),
    ("collection", "collectionName", "knowledgeBase", "ragId"),
    ("partition", "partitionName"),
    ("maxChars", "maxCharacters", "maxLength", "budget"),
    ("since", "after", "from"),
    ("until", "before", "to"),
    ("groupBy", "group"),
    ("lines", "lineRange", "range"),
    ("name", "toolName", "tool", "function"),
    ("arguments", "args", "input", "params"),
    ("text", "content", "body", "markdown", "instruction", "rule", "ruleText"),
    ("title", "name", "heading"),
)  # fmt: skip
"""Names that mean the same; of two lines with a word, the first with a parameter that is free counts."""
NEAR = {"startline": "lines", "endline": "lines", "linestart": "lines", "lineend": "lines", "page": "offset"}
"""Folded name -> the parameter that takes it in another form."""


def fold_name(name: str) -> str:
    """Return the name without case and underscores, so that `top_k` equals `topK`."""
    return name.replace("_", "").replace("-", "").lower()


_SAME = tuple(frozenset(map(fold_name, names)) for names in SAME)


def canonical_names(arguments: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """Return the arguments under the names that the tool advertises.

    A name in another spelling, or another word for a parameter that is not given, is replaced. Arguments that are all
    nested under one name, such as `arguments`, are unwrapped. Anything else stays as it is and is refused later, with
    the nearest name.
    """
    wrappers = ("arguments", "args", "input", "params", "parameters", "kwargs")
    by_fold = {fold_name(name): name for name in parameters}
    free = [name for name in parameters if name not in arguments]
    meant: dict[str, Any] = {}
    for name, value in arguments.items():
        folded = fold_name(name)
        parameter = name if name in parameters else by_fold.get(folded)
        if parameter is None:
            same = (other for line in _SAME if folded in line for other in free if fold_name(other) in line)
            parameter = next(same, None)
        if parameter is None and len(arguments) == 1 and folded in wrappers and isinstance(value, Mapping):
            return canonical_names(cast("Mapping[str, Any]", value), parameters)
        parameter = name if parameter is None or parameter in meant else parameter
        free = [name for name in free if name != parameter]
        meant[parameter] = value
    return meant


_ARGUMENT = "argument_"


class MethodTool(Tool):
    """A marked method of a service."""

    takes_json = False
    """Arguments fit as in JSON: a date, a path or an enumeration may come as text."""

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
    def _required(self) -> set[str]:
        return {name for name, parameter in self._parameters.items() if parameter.default is parameter.empty}

    @cached_property
    def _model(self) -> Any:
        # pydantic costs 70 ms to import, so a model is built at the first listing or call.
        from pydantic import ConfigDict, Field, create_model

        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            param = param_of(self._hints[name])
            default: Any = ... if name in self._required else parameter.default
            limits: Json = param.limits() if param else {}
            field: Any = Field(default, alias=name, **limits)
            # Names of our own, because pydantic warns of fields called `json`, `copy` or `schema`.
            fields[_ARGUMENT + name] = (schemas.bare_type(self._hints[name]), field)
        return create_model(self.name, __config__=ConfigDict(extra="forbid", strict=True), **fields)

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        schema = schemas.shorten_schema(self._model.model_json_schema())
        promised = [name for name, hint in self._hints.items() if (param := param_of(hint)) and param.required]
        for name in promised:
            del schema["properties"][name]["default"]
        if promised:
            schema["required"] = [*promised, *schema.get("required", [])]
        schema.setdefault("properties", {})
        return schema

    def call(self, arguments: Json) -> Answer:
        try:
            arguments = self._checked(arguments)
            value = self.method(**arguments)
        except OverflowError as error:
            # SQLite holds 64 bits.
            large = [name for name, value in arguments.items() if isinstance(value, int) and value.bit_length() > 63]
            which = ", ".join(large) or "a number"
            raise InvalidInput(f"{self.name}: {which} is too large; whole numbers end at 2^63 - 1.") from error
        except LocalMCPError as error:
            values = chain.from_iterable(map(schemas.one_or_more, arguments.values()))
            for text in (*arguments, *values):
                if isinstance(text, str) and len(text) > MOST_QUOTED:
                    # Who reads it has sent it.
                    error.message = error.message.replace(text, quoted(text))
            if self.mark.on_error is None:
                raise
            return replace(self._answer(self.mark.on_error(error)), is_error=True)
        # A tool that runs another one returns that one's whole answer.
        return value if isinstance(value, Answer) else self._answer(value)

    def _answer(self, value: Any) -> Answer:
        lean = self.mark.lean if current_scope().lean else None
        table = mapping_of(value)
        failed = table.get("success") is False or isinstance(table.get("error"), str)
        if lean is not None and not failed:
            return lean(value)
        if lean is not None and "message" in value:
            # Where a model reads a failure, the text is the sentence and what to do next.
            return Answer(value, "\n".join(filter(None, (value["message"], value.get("hint")))), is_error=True)
        return Answer(value, self.mark.text(value) if self.mark.text else compact_json(value), is_error=failed)

    def _checked(self, arguments: Json) -> Json:
        """Return the arguments as the method takes them, under the names it has.

        Null means "not given" where there is a default. Arguments that certainly fit need no pydantic, which is a fifth
        of a first search.
        """
        accepted: Json = {}
        certain = True
        are_exact = arguments.keys() <= self._parameters.keys()
        for name, value in (arguments if are_exact else canonical_names(arguments, self._parameters)).items():
            if name in self.mark.accepts and value is not None:
                value = self.mark.accepts[name](name, value)
            plain = name in self._parameters and schemas.is_plain_value(value, self._hints[name])
            if not plain and name not in self.mark.accepts and name not in self.mark.says:
                value = schemas.lenient_value(value, self.input_schema["properties"].get(name, {}))
            if value is None and name in self._parameters and name not in self._required:
                continue
            accepted[name] = value
            certain = certain and plain
        return accepted if certain and self._required <= accepted.keys() else self._validated(accepted)

    def _validated(self, accepted: Json) -> Json:
        from pydantic import ValidationError

        try:
            fit = self._model.model_validate_json if self.takes_json else self._model.model_validate
            model = fit(json.dumps(accepted) if self.takes_json else accepted)
        except ValidationError as error:
            problems = cast("list[Json]", error.errors(include_url=False, include_context=True))
            for kind, (field, *index) in ((problem["type"], problem["loc"] or ("",)) for problem in problems):
                # The contract's own words: for what is missing, for an item, for the field.
                missing = self.mark.says.get(f"{field} required") if kind == "missing" else None
                item = self.mark.says.get(f"{field}[]") if index else None
                if words := missing or item or self.mark.says.get(str(field)):
                    raise InvalidInput(words.format(index=index[0]) if item and not missing else words) from None
            lines = [f"Invalid arguments for {self.name}:", *(f"- {self._one_problem(p)}" for p in problems[:8])]
            # Whoever knows the names needs no list of them: what is wrong with a value says what is valid.
            if any(problem["type"] in ("missing", "extra_forbidden") for problem in problems):
                lines.append(f"Parameters: {schemas.describe_parameters(self.input_schema)}")
            raise InvalidInput("\n".join(lines)) from None
        return {name: getattr(model, _ARGUMENT + name) for name in accepted}

    def _one_problem(self, problem: Json) -> str:
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            return f"{place}: required"
        if problem["type"] == "extra_forbidden":
            parameters, meant = self.input_schema["properties"], NEAR.get(fold_name(place))
            near = meant if meant in parameters else nearest(place, parameters)
            is_wrapper = self.mark.proxy and "arguments" in parameters
            inside = "; what the tool itself takes belongs into 'arguments'" if is_wrapper else ""
            return f"{place}: not a parameter" + (f"; did you mean '{near}'?" if near else inside)
        if problem["type"] == "dict_type":
            return f"{place}: should be an object, got {shorten_value(problem['input'])}"
        message = problem["msg"][:1].lower() + problem["msg"][1:]
        return f"{place}: {message}, got {shorten_value(problem['input'])}"


def tools_of(service: object) -> list[MethodTool]:
    """Return the tools of an object's marked methods, as they are written, a base class first."""
    names = dict.fromkeys(
        name
        for owner in reversed(type(service).__mro__)
        for name, member in vars(owner).items()
        if hasattr(member, "__tool__")
    )
    return [MethodTool(getattr(service, name)) for name in names]


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_running: ContextVar[str | None] = ContextVar("localmcp_running", default=None)


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
        """Returns our own error for an unexpected one, such as a full disk; None for a bug."""
        self.offers: list[Any] = []
        """Resources and prompts of connected servers (`McpServers`)."""
        self.suggest: Callable[[str], list[str]] = lambda _: []
        """Names of the tools that do what some words say, best first."""
        self.refusal: LocalMCPError | None = None
        """When set, every call raises it: settings that cannot be used still leave the tools listed."""
        self.last_call = time.monotonic()
        """When the last call ended, by the monotonic clock."""

    def add_service(self, service: object) -> None:
        """Register every marked method of `service`."""
        for tool in tools_of(service):
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register one tool; replaces an earlier one of that name."""
        with self._lock:
            self._tools = {**self._tools, tool.name: tool}

    def add_provider(self, provider: Provider) -> None:
        """Ask this source of tools, too, after those that are there."""
        with self._lock:
            self._providers = (*self._providers, provider)

    def remove_provider(self, provider: Provider) -> bool:
        """Ask it no more; return whether it was there."""
        with self._lock:
            before = self._providers
            self._providers = tuple(own for own in before if own is not provider)
            return len(self._providers) < len(before)

    def observe(self, observer: Callable[[CallRecord], None]) -> None:
        """Call `observer` after every call; it must be quick and must not raise."""
        with self._lock:
            self.observers = (*self.observers, observer)

    def tools(self, *, for_listing: bool = False) -> list[Tool]:
        """Return every tool the scope may call: registered ones, then providers, then the request's own.

        `for_listing` skips providers that are `only_hidden`: clients list tools at every start, and asking other
        servers for tools that the list does not show could take seconds.
        """
        tools_by_name = dict(self._tools)
        with self._asking_providers() as providers:
            for provider in providers:
                if for_listing and getattr(provider, "only_hidden", False):
                    continue
                try:
                    for tool in provider.tools():
                        tools_by_name.setdefault(tool.name, tool)
                except Exception:
                    log.warning("a tool provider could not list its tools and is skipped", exc_info=True)
        scope = current_scope()
        return [tool for tool in tools_by_name.values() if scope.names(tool.name) and scope.allows(tool.mark)]

    def visible(self) -> list[Tool]:
        """Return what tools/list shows: the visible tools; or all but the stand-ins for hidden ones."""
        if self.show_all:
            return [tool for tool in self.tools() if not tool.mark.stand_in]
        return [tool for tool in self.tools(for_listing=True) if tool.mark.visible]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name in the current scope, or None; what a provider raises passes through."""
        allowed = current_scope().tools
        if allowed is not None and name not in allowed:
            return None
        if name in self._tools:
            return self._tools[name]
        with self._asking_providers() as providers:
            return next((tool for provider in providers if (tool := provider.find(name)) is not None), None)

    def get(self, name: str) -> Tool:
        """Return the tool of that name, to show it: a provider that fails is skipped; raises UnknownTool."""
        try:
            tool = self.find(name)
        except Exception:
            log.warning("a tool provider could not look up %s and is skipped", mask_text(name), exc_info=True)
            tool = next((tool for tool in self.tools() if tool.name == name), None)
        if tool is None:
            raise self.unknown(name)
        return tool

    @contextmanager
    def _asking_providers(self) -> Generator[tuple[Provider, ...]]:
        scope = current_scope()
        names = scope.provider_names
        # The provider `mcp` knows itself which of its servers, `mcp:NAME`, are named; one without a name likewise.
        named = None if names is None else {"", *(name.partition(":")[0] for name in names)}
        ours = tuple(provider for provider in self._providers if named is None or provider.name in named)
        # In a scope without the request's own, for a registry among them (S1-4) would ask itself forever.
        with use_scope(replace(scope, providers=())):
            yield (*ours, *scope.providers)

    def unknown(self, name: str) -> UnknownTool:
        """Return the error for a name that no tool has; its hint names the nearest tools.

        Those are the ones with the same end (`srv.echo` is `srv__echo`, with a client's prefix or without the server),
        then the one that is spelled like it, then those that do what its words say. Two actions on one thing
        (`get_document`, `delete_document`) are not alike.
        """
        names, written = [tool.name for tool in self.tools()], name[:200]
        spelled, words = "__" + re.sub(r"[.:/]", "__", written), _WORD.findall(written)
        meant = [name for name in names if spelled.endswith(f"__{name}") or name.endswith(spelled)]
        near = nearest(written, names, least=80)
        if not meant and near and words and nearest(words[0], _WORD.findall(near)[:1]):
            meant = [near]
        is_one = len(meant) == 1
        if not meant:
            try:
                meant = self.suggest(" ".join(words))
            except LocalMCPError as error:
                log.info("no tool could be suggested: %s", error)
            is_one = len(meant) == 1 and nearest(written, meant) is not None
        hint = f"Did you mean '{meant[0]}'?" if is_one else f"Nearest tools: {', '.join(meant)}."
        return UnknownTool(
            f"Unknown tool: {quoted(name)}", hint=hint if meant else schemas.did_you_mean(written, names) or None
        )

    def call(self, name: str, arguments: Json | None = None, scope: Scope | None = None) -> Answer:
        """Run the tool `name` in `scope` (the current one by default): the one entry of all interfaces.

        The observers are told of it, even if it never reached a tool. Raises UnknownTool if this caller has no such
        tool, AccessDenied if it changes things and the caller may only read, and what the tool raises.
        """
        with use_scope(scope or current_scope()) as inside:
            started_at, start = time.time(), time.perf_counter()
            arguments, answer, failure = arguments or {}, None, None
            via, token = _running.get(), _running.set(name)
            try:
                if self.refusal is not None:
                    raise self.refusal
                tool = self.find(name)
                if tool is None:
                    raise self.unknown(name)
                if not inside.allows(tool.mark):
                    raise AccessDenied(
                        f"{name} changes things, and this caller may only read.",
                        hint="It takes a key with the scope write, or a profile with the right write.",
                    )
                answer = tool.call(arguments)
                return answer
            except Exception as error:
                failure = error if isinstance(error, LocalMCPError) else self.explain(error) or error
                if isinstance(error, UnicodeEncodeError):
                    # JSON can name half a character; neither SQLite, UTF-8 nor a model can hold it.
                    failure = InvalidInput(f"An argument of {name} has half a character; leave it out.")
                if failure is not error:
                    raise failure from error
                raise
            finally:
                _running.reset(token)
                self.last_call = time.monotonic()
                seconds = time.perf_counter() - start
                record = CallRecord(name, arguments, inside, started_at, seconds, failure, answer, via)
                for observer in self.observers:
                    observer(record)
