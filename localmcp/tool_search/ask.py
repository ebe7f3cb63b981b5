"""Sentences that become tool calls: `ask` (S0-22 to S0-26), by rank alone or with a language model's help."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.errors import LocalMCPError, NotFound, UnknownTool
from localmcp.models.language_model import LanguageModel
from localmcp.schemas import list_of, mapping_of
from localmcp.tool_search.arguments import bare_parameter, fill_arguments
from localmcp.tool_search.phrases import written
from localmcp.tool_search.sentence_ranking import RankedTool, Ranking, ToolRanking
from localmcp.tools import Answer, Json, Param, Registry, Tool, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold

log = logging.getLogger(__name__)

ASK = "ask"
OFFERED = 8
"""Tools, by rank, that a language model chooses among."""
SHOWN = 3
"""Candidates in a response."""
SURE_ENOUGH_TO_READ, SURE_ENOUGH_TO_CHANGE = 0.35, 0.6
"""A tool is run from this certainty on; below it the call is only proposed."""
LIKE_A_TITLE = 0.85
"""Share of the letters from which a sentence is a title, mistyped."""

QUERY_EMPTY = "Query field cannot be empty"
ERROR_STATUS = {
    "empty_query": 400,
    "tool_not_found": 400,
    "not_found": 400,
    "no_tool_call_generated": 500,
    "tool_failed": 500,
}
"""`code` of an error response -> HTTP status of the original (S0-24)."""


# ---------------------------------------------------------------- responses


class Response(TypedDict):
    """Status of a sentence."""

    status: Literal["success", "no_tool_call", "error"]
    query: str
    tool_result: NotRequired[dict[str, Any]]
    """`tool` and `data`, the tool's object; a text that is not JSON stays a string (S0-26)."""
    arguments: NotRequired[dict[str, Any]]
    proposed: NotRequired[dict[str, Any]]
    """`tool` and `arguments` of a call that was not made."""
    message: NotRequired[str]
    code: NotRequired[str]
    router: str
    """`embedded`, or the language model that decided: `ollama:llama3.1`."""
    certainty: float
    """How likely the tool is the one that is meant, 0..1, by the embedded ranking."""
    candidates: NotRequired[list[dict[str, Any]]]
    """The next best, best first: `tool`, `certainty`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The call that was understood from a sentence, before anything runs."""

    tool: Tool | None
    arguments: Json
    certainty: float
    refusal: str = ""
    """Why it is not made; empty when it is. With a tool, the call is proposed."""


# ---------------------------------------------------------------- the router


class Router:
    """Chooses the tool and its arguments for a sentence, and makes the call unless the tool is destructive.

    A tool that only reads is called from a certainty of 0.35 on, one that changes something from 0.6; below that, and
    for a destructive tool whoever chose it, the call is proposed with its arguments.
    """

    def __init__(
        self, registry: Registry, ranking: ToolRanking, open_model: Callable[[], LanguageModel | None] = lambda: None
    ) -> None:
        """`open_model` gives the configured language model, or None; it is asked at every sentence."""
        self._registry = registry
        self._ranking = ranking
        self._open_model = open_model

    @tool(
        ASK,
        title="Ask in your own words",
        keywords=("natural language", "sentence", "request"),
        visible=False,
        read_only=False,
        proxy=True,
        accepts={"limit": integer_or_string, "maxDistance": integer_or_string},
    )
    def ask(
        self,
        query: Annotated[str, Param("What is wanted, in one sentence", required=True, max_length=20_000)] = "",
        limit: Annotated[int | None, Param("Handed to the tool, if it has such a parameter")] = None,
        maxDistance: Annotated[int | None, Param("Handed to the tool, if it has such a parameter")] = None,
    ) -> Response:
        """Find the tool that a sentence asks for, fill in its arguments, and run it. Destructive tools are proposed,
        not run; when no tool fits, none is."""
        if not query.strip():
            return _failed(query, "empty_query", QUERY_EMPTY)
        present = without_none({"limit": limit, "maxDistance": maxDistance})
        ranking, decision, router = self.rank(query), None, "language model"
        try:
            model = self._open_model()
            router = model.name if model else "embedded"
            decision = self._ask_model(model, ranking, present) if model else self.decide(ranking, present)
            response = self._carry_out(query, decision, router)
        except UnknownTool as error:
            response = _failed(query, "tool_not_found", error.message, "language model")
        except LocalMCPError as error:
            message = f"Failed to generate tool call: {error}"
            response = _failed(query, "no_tool_call_generated", message, "language model")
        others = [other for other in ranking.tools if decision is None or other.tool is not decision.tool]
        response["candidates"] = [
            {"tool": other.tool.name, "certainty": round(other.certainty, 3)} for other in others[:SHOWN]
        ]
        return response

    def rank(self, sentence: str) -> Ranking:
        """Return the tools that a sentence may be routed to, ranked."""
        return self._ranking.rank(sentence, self._routable())

    def _routable(self) -> list[Tool]:
        # A sentence is never routed to what runs other tools: the router is such a tool itself.
        return [tool for tool in self._registry.tools() if tool.name not in (ASK, "execute_tool")]

    # ------------------------------------------------------------ deciding

    def decide(self, ranking: Ranking, arguments: Json) -> Decision:
        """Return the call for a ranked sentence, without a language model."""
        named = _named(ranking)
        best = named or ranking.best
        is_unsure = best is None or best.certainty < SURE_ENOUGH_TO_CHANGE
        if is_unsure and not named and ranking.tokens and (title := self._look_up_title(ranking, arguments)):
            return title
        if best is None:
            nearest = ranking.tools[0].certainty if ranking.tools else 0.0
            return Decision(None, {}, nearest, "No tool fits.")
        called, certainty = best.tool, best.certainty
        filled, missing = fill_arguments(ranking.sentence, ranking.tokens, best, arguments)
        if missing:
            properties = called.input_schema["properties"]
            said = {name: properties[name].get("description") for name in missing}
            needs = ", ".join(f"{name} ({text})" if text else name for name, text in said.items())
            return Decision(None, filled, certainty, f"{called.name} fits, but needs {needs}.")
        least = SURE_ENOUGH_TO_READ if called.mark.read_only else SURE_ENOUGH_TO_CHANGE
        if not named and certainty < least:
            refusal = f"{called.name} may be meant, at a certainty of {certainty:.2f}; {least:g} is needed to run it."
            return Decision(called, filled, certainty, refusal)
        parameter = bare_parameter(called)
        if not filled and parameter and not named:
            # A search that got no argument looks for the sentence itself.
            return Decision(called, {parameter: written(ranking.sentence, ranking.tokens)}, certainty)
        return Decision(called, filled, certainty)

    def _look_up_title(self, ranking: Ranking, passed: Json) -> Decision | None:
        """Return the search that finds what has the sentence for its title, typos forgiven, or None.

        `create a blueprnt` is the title of a quick start (S0-13), and asks for no deed.
        """
        from rapidfuzz import fuzz

        for finder in self._routable():
            parameter = bare_parameter(finder) if finder.mark.read_only else None
            if parameter is None:
                continue
            properties = finder.input_schema.get("properties", {})
            arguments = {name: value for name, value in passed.items() if name in properties}
            arguments[parameter] = written(ranking.sentence, ranking.tokens)
            try:
                rows = list_of(self._registry.call(finder.name, arguments).value.get("results"))
            except LocalMCPError as error:
                log.debug("%s finds nothing: %s", finder.name, error)
                continue
            title = str(mapping_of(rows[0]).get("displayName", "")) if rows else ""
            likeness = fuzz.ratio(fold(ranking.sentence), fold(title)) / 100
            if likeness >= LIKE_A_TITLE:
                return Decision(finder, arguments, likeness)
        return None

    def _ask_model(self, model: LanguageModel, ranking: Ranking, arguments: Json) -> Decision:
        """Return the call that the language model makes.

        Raises:
            UnknownTool: it named a tool that does not exist, or that no sentence is routed to.
            LocalMCPError: it gave no usable answer.
        """
        reply = model.choose(ranking.sentence, [tool.tool for tool in ranking.tools[:OFFERED]])
        if reply.call is None:
            return Decision(None, {}, 0.0, reply.text)
        name = reply.call.name
        chosen = next((tool for tool in ranking.tools if tool.tool.name == name), None)
        if chosen is None:
            raise UnknownTool(f"Tool not found: {name}")
        properties = chosen.tool.input_schema.get("properties", {})
        beside = {key: value for key, value in arguments.items() if key in properties}
        return Decision(chosen.tool, {**reply.call.arguments, **beside}, chosen.certainty)

    # ------------------------------------------------------------ acting

    def _carry_out(self, query: str, decision: Decision, router: str) -> Response:
        certainty, called, arguments = round(decision.certainty, 3), decision.tool, decision.arguments
        response: Response = {"status": "no_tool_call", "query": query, "router": router, "certainty": certainty}
        if called is None or decision.refusal or called.mark.destructive:
            response["message"] = (
                f'No tool call generated for query: "{query}". Message content: "{decision.refusal}"'
                if decision.refusal or called is None
                else f"{called.name} may remove or overwrite something and is only proposed. Call it yourself to go on."
            )
            if called is not None:
                response["proposed"] = {"tool": called.name, "arguments": arguments}
            return response
        response["arguments"] = arguments
        try:
            answer = self._registry.call(called.name, arguments)
        except Exception as error:
            # The contract has one text for everything that goes wrong in a tool; bugs are logged with their traceback.
            if not isinstance(error, LocalMCPError):
                log.exception("%s failed", called.name)
            code = "not_found" if isinstance(error, NotFound) else "tool_failed"
            return {**response, "status": "error", "code": code, "message": f"Error executing tool: {error}"}
        response["tool_result"] = {"tool": called.name, "data": _data(answer)}
        if not answer.is_error:
            return {**response, "status": "success"}
        message = answer.value.get("message") or answer.value.get("error") or answer.text
        return {**response, "status": "error", "code": "tool_failed", "message": f"Error executing tool: {message}"}


def _named(ranking: Ranking) -> RankedTool | None:
    """Return the tool whose very name the sentence says: `searchQuickstarts`, `run get_stats`; an everyday word names a
    tool only alone."""
    said = {token.text.lower() for token in ranking.tokens}
    whole = ranking.sentence.strip().lower()
    identifiers = [
        entry for entry in ranking.tools if "_" in entry.tool.name or entry.tool.name != entry.tool.name.lower()
    ]
    exact = [entry for entry in ranking.tools if entry.tool.name.lower() == whole]
    return next(iter(exact or [entry for entry in identifiers if entry.tool.name.lower() in said]), None)


def _data(answer: Answer) -> Any:
    """Return the tool's object; where it has none, the JSON of its text, or the text itself (S0-22, S0-26)."""
    try:
        read: Any = json.loads(answer.text)
    except (ValueError, RecursionError):
        return answer.text
    return cast(Json, read) if isinstance(read, dict) else answer.value or read


def _failed(query: str, code: str, message: str, router: str = "embedded") -> Response:
    return {"status": "error", "query": query, "message": message, "code": code, "router": router, "certainty": 0.0}
