"""A marked method as a tool: schema from its type hints, arguments checked, result as an answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast, get_type_hints

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import MOST_QUOTED, quoted
from localmcp.schemas import (
    Json,
    bare_type,
    compact_json,
    describe_parameters,
    is_plain_value,
    lenient_value,
    nearest,
    param_of,
    shorten_schema,
    shorten_value,
)
from localmcp.tools.base import Answer, Tool, ToolMark
from localmcp.tools.scope import current_scope

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
            lines = [line for line in _SAME if folded in line]
            same = (other for line in lines for other in free if fold_name(other) in line)
            parameter = next(same, None)
        if parameter is None and len(arguments) == 1 and folded in wrappers and isinstance(value, Mapping):
            return canonical_names(cast("Mapping[str, Any]", value), parameters)
        parameter = name if parameter is None or parameter in meant else parameter
        free = [name for name in free if name != parameter]
        meant[parameter] = value
    return meant


def _with_values_cut(message: str, value: Any) -> str:
    """Return a message that repeats only the beginning of long arguments: who reads it has sent them."""
    if isinstance(value, str) and len(value) > MOST_QUOTED:
        return message.replace(value, quoted(value))
    if isinstance(value, Mapping):
        value = [part for item in cast("Mapping[Any, Any]", value).items() for part in item]
    if isinstance(value, list | tuple) and len(message) > MOST_QUOTED:
        for item in cast("list[Any]", value):
            message = _with_values_cut(message, item)
    return message


_ARGUMENT = "argument_"


def tells_failure(value: Any) -> bool:
    """Return whether a result reports a failure: `success` is false, or there is an `error`."""
    if not isinstance(value, dict):
        return False
    table = cast(Json, value)
    return table.get("success") is False or isinstance(table.get("error"), str)


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
            fields[_ARGUMENT + name] = (bare_type(self._hints[name]), field)
        return create_model(self.name, __config__=ConfigDict(extra="forbid", strict=True), **fields)

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        schema = shorten_schema(self._model.model_json_schema())
        promised = [name for name, hint in self._hints.items() if (param := param_of(hint)) and param.required]
        for name in promised:
            del schema["properties"][name]["default"]
        if promised:
            schema["required"] = [*promised, *schema.get("required", [])]
        schema.setdefault("properties", {})
        return schema

    def call(self, arguments: Json) -> Answer:
        try:
            value = self.method(**self._checked(arguments))
        except OverflowError as error:
            # SQLite holds 64 bits.
            large = [name for name, value in arguments.items() if isinstance(value, int) and value.bit_length() > 63]
            which = ", ".join(large) or "a number"
            raise InvalidInput(f"{self.name}: {which} is too large; whole numbers end at 2^63 - 1.") from error
        except LocalMCPError as error:
            error.message = _with_values_cut(error.message, arguments)
            if self.mark.on_error is None:
                raise
            return replace(self._answer(self.mark.on_error(error)), is_error=True)
        # A tool that runs another one returns that one's whole answer.
        return value if isinstance(value, Answer) else self._answer(value)

    def _answer(self, value: Any) -> Answer:
        lean = self.mark.lean if current_scope().lean else None
        failed = tells_failure(value)
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
        known = arguments.keys() <= self._parameters.keys()
        for name, value in (arguments if known else canonical_names(arguments, self._parameters)).items():
            if name in self.mark.accepts and value is not None:
                value = self.mark.accepts[name](name, value)
            plain = name in self._parameters and is_plain_value(value, self._hints[name])
            if not plain and name not in self.mark.accepts and name not in self.mark.says:
                value = lenient_value(value, self.input_schema["properties"].get(name, {}))
            if value is None and name in self._parameters and name not in self._required:
                continue
            accepted[name] = value
            certain = certain and plain
        return accepted if certain and self._required <= accepted.keys() else self._validated(accepted)

    def _fit(self, arguments: Json) -> Any:
        """Return the arguments as pydantic takes them."""
        return self._model.model_validate(arguments)

    def _validated(self, accepted: Json) -> Json:
        from pydantic import ValidationError

        try:
            model = self._fit(accepted)
        except ValidationError as error:
            problems = cast("list[Json]", error.errors(include_url=False, include_context=True))
            raise InvalidInput(self._complaint(problems)) from None
        return {name: getattr(model, _ARGUMENT + name) for name in accepted}

    def _complaint(self, problems: list[Json]) -> str:
        contract = next(filter(None, map(self._contract_text, problems)), None)
        if contract:
            return contract
        lines = [f"Invalid arguments for {self.name}:", *(f"- {self._one_problem(p)}" for p in problems[:8])]
        # Whoever knows the names needs no list of them: what is wrong with a value says what is valid.
        if any(problem["type"] in ("missing", "extra_forbidden") for problem in problems):
            lines.append(f"Parameters: {describe_parameters(self.input_schema)}")
        return "\n".join(lines)

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
