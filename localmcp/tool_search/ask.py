"""Sentences that become tool calls: `ask` (S0-22 to S0-26), by rank alone or with a language model's help."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from localmcp.errors import LocalMCPError, NotFound, UnknownTool
from localmcp.models.language_model import LanguageModel
from localmcp.schemas import list_of, mapping_of
from localmcp.tool_search.arguments import bare_parameter, fill_arguments
from localmcp.tool_search.phrases import VERBS as ASKING
from localmcp.tool_search.phrases import written
from localmcp.tool_search.sentence_ranking import RankedTool, Ranking, ToolRanking, is_telling
from localmcp.tools import Answer, Json, Param, Registry, Tool, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold, stem
from localmcp.wording.normalize import words as title_words
from localmcp.wording.sentences import function_words
from localmcp.wording.spelling import is_slip

log = logging.getLogger(__name__)

ASK = "ask"
INDIRECT = frozenset({ASK, "execute_tool"})
"""Tools that run others; a sentence is never routed to them, since the router is one of them itself."""

OFFERED = 8
"""Tools, by rank, that a language model chooses among."""
SHOWN = 3
"""Candidates in a response."""
SURE_ENOUGH_TO_READ, SURE_ENOUGH_TO_CHANGE = 0.35, 0.6
"""A tool is run from this certainty on; below it the call is only proposed."""
TITLE_WORDS = 0.6
"""Share of a sentence's words that a title must have to be what is asked for."""

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


class ToolResult(TypedDict):
    """What a tool answered."""

    tool: str
    data: Any
    """The tool's object; a text that is not JSON stays a string (S0-26)."""


class Proposal(TypedDict):
    """A call that was not made."""

    tool: str
    arguments: dict[str, Any]


class Candidate(TypedDict):
    """A tool that was considered."""

    tool: str
    certainty: float


class Response(TypedDict):
    """Status of a sentence."""

    status: Literal["success", "no_tool_call", "error"]
    query: str
    tool_result: NotRequired[ToolResult]
    arguments: NotRequired[dict[str, Any]]
    proposed: NotRequired[Proposal]
    message: NotRequired[str]
    code: NotRequired[str]
    router: str
    """`embedded`, or the language model that decided: `ollama:llama3.1`."""
    certainty: float
    """How likely the tool is the one that is meant, 0..1, by the embedded ranking."""
    candidates: NotRequired[list[Candidate]]
    """The next best, best first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The tool and arguments that were understood from a sentence, before anything runs."""

    tool: Tool | None
    arguments: Json
    certainty: float
    refusal: str
    """Why there is no call; empty when there is one."""
    proposed: Json | None = None
    """`{tool, arguments}` of a call that is not certain enough to be made."""


# ---------------------------------------------------------------- the router


class Router:
    """Chooses the tool and its arguments for a sentence, and makes the call unless the tool is destructive.

    A tool that only reads is called from a certainty of 0.35 on, one that changes something from 0.6; below that, and
    for a destructive tool whoever chose it, the call is proposed with its arguments. A sentence that is the title of
    something is looked up first.
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
        present = without_none({"limit": limit, "maxDistance": maxDistance})
        if not query.strip():
            return _failed(query, "empty_query", QUERY_EMPTY)
        ranking = self._ranking.rank(query, self._routable())
        try:
            model = self._open_model()
            deciding = model.name if model else "embedded"
            decision = self._ask_model(model, ranking, present) if model else self.decide(ranking, present)
        except UnknownTool as error:
            return _with_candidates(_failed(query, "tool_not_found", error.message, "language model"), ranking)
        except LocalMCPError as error:
            message = f"Failed to generate tool call: {error}"
            return _with_candidates(_failed(query, "no_tool_call_generated", message, "language model"), ranking)
        response = self._carry_out(query, decision, deciding)
        return _with_candidates(response, ranking, decision.tool)

    def rank(self, sentence: str) -> Ranking:
        """Return the tools that a sentence may be routed to, ranked."""
        return self._ranking.rank(sentence, self._routable())

    def _routable(self) -> list[Tool]:
        return [tool for tool in self._registry.tools() if tool.name not in INDIRECT]

    # ------------------------------------------------------------ deciding

    def decide(self, ranking: Ranking, arguments: Json) -> Decision:
        """Return the call for a ranked sentence, without a language model."""
        named = _named(ranking)
        best = named or ranking.best
        if best is None:
            certainty = ranking.tools[0].certainty if ranking.tools else 0.0
            return self._look_up_title(ranking, arguments) or Decision(None, {}, certainty, "No tool fits.")
        filled = fill_arguments(ranking.sentence, ranking.tokens, best, arguments)
        searches = best.tool.mark.read_only and "query" in filled.arguments
        vague = best.certainty < SURE_ENOUGH_TO_CHANGE or searches
        if not named and (vague or not best.tool.mark.read_only):
            titled = self._look_up_title(ranking, arguments, best.tool, filled.arguments.get("query"), exact=not vague)
            if titled:
                return titled
        if filled.missing:
            needs = ", ".join(_explain_parameter(best.tool, name) for name in filled.missing)
            return Decision(None, filled.arguments, best.certainty, f"{best.tool.name} fits, but needs {needs}.")
        least = SURE_ENOUGH_TO_READ if best.tool.mark.read_only else SURE_ENOUGH_TO_CHANGE
        if not named and best.certainty < least:
            message = (
                f"{best.tool.name} may be meant, at a certainty of {best.certainty:.2f}; {least:g} is needed to run it."
            )
            proposed = {"tool": best.tool.name, "arguments": filled.arguments}
            return Decision(None, filled.arguments, best.certainty, message, proposed)
        return Decision(best.tool, filled.arguments or _words_alone(ranking, best, named), best.certainty, "")

    def _look_up_title(
        self,
        ranking: Ranking,
        passed_arguments: Json,
        chosen: Tool | None = None,
        query: str | None = None,
        exact: bool = False,
    ) -> Decision | None:
        """Return the call that finds what the sentence names by its title, or None.

        `create a blueprint` is the title of a quick start, and asks for no deed. A reading tool with an example phrase
        that is one slot is tried; it counts if a title that it finds has most words of the sentence.

        Args:
            chosen: the tool that fits otherwise; against a search elsewhere, two words at least must be in the title.
            query: what a search elsewhere would look for; where it is one word, it must be the whole title.
            exact: only the very title counts, against a tool that surely fits.
        """
        words = [token for token in ranking.tokens if is_telling(token) and token.stem not in ASKING]
        whole = query is not None and len(title_words(query)) == 1
        if whole:
            words = [token for token in words if token.text == query] or words
        for finder in self._routable():
            parameter = bare_parameter(finder) if finder.mark.read_only else None
            few = chosen is not None and chosen is not finder and len(words) < 2
            if not parameter or not words or (few and not whole):
                continue
            properties = finder.input_schema.get("properties", {})
            beside = {name: value for name, value in passed_arguments.items() if name in properties}
            asked_for = ranking.tokens if chosen in (None, finder) else words
            arguments = {**beside, parameter: written(ranking.sentence, asked_for)}
            title = self._first_title(finder, arguments)
            if exact and title_words(title) != title_words(ranking.sentence):
                continue
            share = title_share([token.text for token in words], title, in_part=chosen is None and len(words) > 1)
            if share >= TITLE_WORDS and (not few or len(title_words(title)) == 1):
                return Decision(finder, arguments, share, "")
        return None

    def _first_title(self, tool: Tool, arguments: Json) -> str:
        """Return the first title that the tool finds, or an empty one."""
        try:
            answer = self._registry.call(tool.name, arguments)
        except LocalMCPError as error:
            log.debug("%s finds nothing: %s", tool.name, error)
            return ""
        rows = list_of(answer.value.get("results"))
        return str(mapping_of(rows[0]).get("displayName", "")) if rows else ""

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
        return Decision(chosen.tool, {**reply.call.arguments, **beside}, chosen.certainty, "")

    # ------------------------------------------------------------ acting

    def _carry_out(self, query: str, decision: Decision, router: str) -> Response:
        if decision.tool is None:
            response = _not_called(query, decision.refusal, decision.certainty, router)
            return {**response, "proposed": cast(Proposal, decision.proposed)} if decision.proposed else response
        name, arguments = decision.tool.name, decision.arguments
        if decision.tool.mark.destructive:
            message = f"{name} may remove or overwrite something and is only proposed. Call it yourself to go on."
            response = _not_called(query, message, decision.certainty, router)
            return {**response, "message": message, "proposed": {"tool": name, "arguments": arguments}}
        try:
            answer = self._registry.call(name, arguments)
        except Exception as error:
            # The contract has one text for everything that goes wrong in a tool; bugs are logged with their traceback.
            if not isinstance(error, LocalMCPError):
                log.exception("%s failed", name)
            code = "not_found" if isinstance(error, NotFound) else "tool_failed"
            failed = _failed(query, code, f"Error executing tool: {error}", router)
            return {**failed, "arguments": arguments, "certainty": round(decision.certainty, 3)}
        return _answered(query, decision, answer, router)


def _named(ranking: Ranking) -> RankedTool | None:
    """Return the tool whose very name the sentence says: `searchQuickstarts`, `run get_stats`."""
    names = {token.text.lower() for token in ranking.tokens}
    named_tools = [tool for tool in ranking.tools if tool.tool.name.lower() in names and _is_identifier(tool.tool.name)]
    whole = ranking.sentence.strip().lower()
    exact = [tool for tool in ranking.tools if tool.tool.name.lower() == whole]
    return next(iter(exact or named_tools), None)


def _words_alone(ranking: Ranking, best: RankedTool, named: RankedTool | None) -> Json:
    """Return the sentence as the argument of a search that got none, unless it only says the tool's name."""
    parameter = bare_parameter(best.tool)
    token_stems = {token.stem for token in ranking.tokens}
    nouns = [word for word in title_words(best.tool.mark.title) if stem(word, "english") not in ASKING]
    names_the_tool = {stem(word, "english") for word in nouns} <= token_stems or stem(
        "".join(nouns), "english"
    ) in token_stems
    is_search = parameter and token_stems and not named and not names_the_tool
    return {parameter: written(ranking.sentence, ranking.tokens)} if parameter and is_search else {}


def title_share(words: Sequence[str], title: str, in_part: bool = False) -> float:
    """Return the share of the words that a title has, misspelled ones too; 0 for less than half of the title.

    `in_part`: all of the words suffice, however long the title is: `security scanning` means `Advanced security
    scanning and vulnerability assessment`.
    """
    in_title = [word for word in title_words(title) if stem(word, "english") not in ASKING]
    shared_words = sum(any(_same_word(fold(word), other) for other in in_title) for word in words)
    telling = [word for word in in_title if word not in function_words()]
    enough = shared_words * 2 >= len(telling) or (in_part and shared_words == len(words))
    return shared_words / len(words) if words and enough else 0.0


def _same_word(word: str, other: str) -> bool:
    return stem(word, "english") == stem(other, "english") or is_slip(word, other) or other.startswith(word)


def _is_identifier(name: str) -> bool:
    """Return whether a name is no everyday word: `get_stats`, `greetUser`."""
    return "_" in name or name != name.lower()


def _explain_parameter(described_tool: Tool, name: str) -> str:
    described = described_tool.input_schema["properties"][name].get("description")
    return f"{name} ({described})" if described else name


def _answered(query: str, decision: Decision, answer: Answer, router: str) -> Response:
    assert decision.tool is not None
    response: Response = {
        "status": "success",
        "query": query,
        "tool_result": {"tool": decision.tool.name, "data": _data(answer)},
        "arguments": decision.arguments,
        "router": router,
        "certainty": round(decision.certainty, 3),
    }
    if answer.is_error:
        message = answer.value.get("message") or answer.value.get("error") or answer.text
        return {**response, "status": "error", "code": "tool_failed", "message": f"Error executing tool: {message}"}
    return response


def _data(answer: Answer) -> Any:
    """Return the tool's object; where it has none, the JSON of its text, or the text itself (S0-22, S0-26)."""
    try:
        read: Any = json.loads(answer.text)
    except (ValueError, RecursionError):
        return answer.text
    return cast(Json, read) if isinstance(read, dict) else answer.value or read


def _not_called(query: str, explanation: str, certainty: float, router: str) -> Response:
    message = f'No tool call generated for query: "{query}". Message content: "{explanation}"'
    return {
        "status": "no_tool_call",
        "query": query,
        "message": message,
        "router": router,
        "certainty": round(certainty, 3),
    }


def _failed(query: str, code: str, message: str, router: str = "embedded") -> Response:
    return {
        "status": "error",
        "query": query,
        "message": message,
        "code": code,
        "router": router,
        "certainty": 0.0,
    }


def _with_candidates(response: Response, ranking: Ranking, chosen: Tool | None = None) -> Response:
    others = [tool for tool in ranking.tools if tool.tool is not chosen][:SHOWN]
    shown: list[Candidate] = [{"tool": other.tool.name, "certainty": round(other.certainty, 3)} for other in others]
    return {**response, "candidates": shown}
