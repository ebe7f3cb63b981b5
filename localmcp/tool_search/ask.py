"""Sentences that become tool calls: `ask` (S0-22 to S0-26), by rank alone or with a language model's help."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, cast

from localmcp.errors import InvalidInput, LocalMCPError, NotFound, UnknownTool
from localmcp.models.language_model import LanguageModel
from localmcp.schemas import lenient_value, list_of, mapping_of
from localmcp.tool_search.discovery import EXECUTE_TOOL, Discovery
from localmcp.tool_search.sentence_ranking import (
    PhraseMatch,
    RankedTool,
    Ranking,
    Slot,
    asks_for,
    is_telling,
    parse_phrase,
    rank_tools,
    takes_words,
    trim,
    value_of,
    values_from,
    written,
)
from localmcp.tool_search.words import Token, function_words, known_verbs, spoken_example
from localmcp.tools import Json, Param, Registry, Tool, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold, stem, words

log = logging.getLogger(__name__)

ASK = "ask"
SURE_ENOUGH_TO_READ, SURE_ENOUGH_TO_CHANGE = 0.35, 0.6
"""A tool is run from this certainty on; below it the call is only proposed."""
ERROR_STATUS = {
    "empty_query": 400,
    "tool_not_found": 400,
    "not_found": 400,
    "no_tool_call_generated": 500,
    "tool_failed": 500,
}
"""`code` of an error response -> HTTP status of the original (S0-24)."""


class Decision(NamedTuple):
    """The call that was understood from a sentence, before it is made."""

    tool: Tool | None
    arguments: Json
    certainty: float
    refusal: str = ""
    """Why it is not made; empty when it is. With a tool, the call is proposed."""


class Router:
    """Chooses the tool and its arguments for a sentence, and makes the call unless the tool is destructive.

    A tool that only reads is called from a certainty of 0.35 on, one that changes something from 0.6; below that, and
    for a destructive tool whoever chose it, the call is proposed with its arguments.
    """

    def __init__(
        self, registry: Registry, discovery: Discovery, open_model: Callable[[], LanguageModel | None] = lambda: None
    ) -> None:
        """`open_model` gives the configured language model, or None; it is asked at every sentence."""
        self._registry = registry
        self._discovery = discovery
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
    ) -> Json:
        """Find the tool that a sentence asks for, fill in its arguments, and run it. Destructive tools are proposed,
        not run; when no tool fits, none is."""
        # Who decided (`embedded`, or the language model, such as `ollama:llama3.1`), and how likely the tool is the one
        # that is meant, 0..1, by the embedded ranking.
        response: Json = {"status": "error", "query": query, "router": "embedded", "certainty": 0.0}
        if not query.strip():
            return {**response, "code": "empty_query", "message": "Query field cannot be empty"}
        present = without_none({"limit": limit, "maxDistance": maxDistance})
        ranking, decision = self.rank(query), None
        try:
            model = self._open_model()
            if model is None:
                decision = self.decide(ranking, present)
            else:
                response["router"] = model.name
                says, call = model.choose(query, [tool.tool for tool in ranking.tools[:8]])
                name, arguments = call or ("", {})
                chosen = next((tool for tool in ranking.tools if tool.tool.name == name), None)
                if call and chosen is None:
                    # No such tool, or one that no sentence is routed to.
                    raise UnknownTool(f"Tool not found: {name}")
                decision = Decision(None, {}, 0.0, says)
                if chosen:
                    arguments = {**arguments, **_known(chosen.tool, present)}
                    decision = Decision(chosen.tool, arguments, chosen.certainty)
            response["certainty"] = round(decision.certainty, 3)
            response |= self._carry_out(query, decision)
        except UnknownTool as error:
            response |= {"router": "language model", "code": "tool_not_found", "message": error.message}
        except LocalMCPError as error:
            message = f"Failed to generate tool call: {error}"
            response |= {"router": "language model", "code": "no_tool_call_generated", "message": message}
        others = [other for other in ranking.tools if decision is None or other.tool is not decision.tool]
        response["candidates"] = [
            {"tool": other.tool.name, "certainty": round(other.certainty, 3)} for other in others[:3]
        ]
        return response

    def rank(self, sentence: str) -> Ranking:
        """Return the tools that a sentence may be routed to, ranked."""
        # A sentence is never routed to what runs other tools: the router is such a tool itself.
        tools = (tool for tool in self._registry.tools() if tool.name not in (ASK, EXECUTE_TOOL))
        return rank_tools(sentence, tools, self._discovery)

    def decide(self, ranking: Ranking, arguments: Json) -> Decision:
        """Return the call for a ranked sentence, without a language model."""
        # A tool whose very name is said: `searchQuickstarts`, `run get_stats`; an everyday word names one only alone.
        whole, said_words = ranking.sentence.strip().lower(), {token.text.lower() for token in ranking.tokens}

        def is_named(ranked: RankedTool) -> bool:
            name = ranked.tool.name
            return name.lower() == whole or (name.lower() in said_words and ("_" in name or not name.islower()))

        named = next(filter(is_named, ranking.tools), None)
        best = named or ranking.best
        is_sure = best is not None and best.certainty >= SURE_ENOUGH_TO_CHANGE
        if not is_sure and not named and ranking.tokens and (title := self._look_up_title(ranking, arguments)):
            return title
        if best is None:
            nearest = ranking.tools[0].certainty if ranking.tools else 0.0
            return Decision(None, {}, nearest, "No tool fits.")
        called, certainty = best.tool, best.certainty
        filled, missing = fill_arguments(ranking.sentence, ranking.tokens, best, arguments)
        if missing:
            texts = {name: called.input_schema["properties"][name].get("description") for name in missing}
            needs = ", ".join(f"{name} ({text})" if text else name for name, text in texts.items())
            return Decision(None, filled, certainty, f"{called.name} fits, but needs {needs}.")
        least = SURE_ENOUGH_TO_READ if called.mark.read_only else SURE_ENOUGH_TO_CHANGE
        if not named and certainty < least:
            refusal = f"{called.name} may be meant, at a certainty of {certainty:.2f}; {least:g} is needed to run it."
            return Decision(called, filled, certainty, refusal)
        if not filled and not named and (parameter := bare_parameter(called)):
            # A search that got no argument looks for the sentence itself.
            filled = {parameter: written(ranking.sentence, ranking.tokens)}
        return Decision(called, filled, certainty)

    def _look_up_title(self, ranking: Ranking, passed: Json) -> Decision | None:
        # `create a blueprnt` is the title of a quick start (S0-13) and no deed: typos are forgiven. Tools that
        # take a whole sentence and change nothing are asked whether they know it.
        from rapidfuzz import fuzz

        sentence = written(ranking.sentence, ranking.tokens)
        for finder in (ranked.tool for ranked in ranking.tools if ranked.tool.mark.read_only):
            if parameter := bare_parameter(finder):
                arguments, rows = {**_known(finder, passed), parameter: sentence}, list[Any]()
                # A tool of the person's own may be one, and fail.
                with suppress(LocalMCPError):
                    rows = list_of(self._registry.call(finder.name, arguments).value.get("results"))
                title = str(mapping_of(rows[0]).get("displayName", "")) if rows else ""
                likeness = fuzz.ratio(fold(ranking.sentence), fold(title)) / 100
                if likeness >= 0.85:
                    return Decision(finder, arguments, likeness)
        return None

    def _carry_out(self, query: str, decision: Decision) -> Json:
        called, arguments = decision.tool, decision.arguments
        if called is None or decision.refusal or called.mark.destructive:
            message = f'No tool call generated for query: "{query}". Message content: "{decision.refusal}"'
            if called is not None and not decision.refusal:
                removes = f"{called.name} may remove or overwrite something and is only proposed."
                message = f"{removes} Call it yourself to go on."
            proposed = {"proposed": {"tool": called.name, "arguments": arguments}} if called else {}
            return {"status": "no_tool_call", "message": message, **proposed}
        failed: Json = {"arguments": arguments, "status": "error", "code": "tool_failed"}
        try:
            answer = self._registry.call(called.name, arguments)
        except Exception as error:
            if isinstance(error, InvalidInput) and not arguments:
                # The sentence has none of the values of which the tool needs one.
                return self._carry_out(query, Decision(None, {}, 0.0, f"{called.name} fits, but needs more: {error}"))
            # The contract has one text for everything that goes wrong in a tool; bugs are logged with their traceback.
            if not isinstance(error, LocalMCPError):
                log.exception("%s failed", called.name)
            if isinstance(error, NotFound):
                failed["code"] = "not_found"
            return {**failed, "message": f"Error executing tool: {error}"}
        try:
            data: Any = json.loads(answer.text)
        except (ValueError, RecursionError):
            # A text that is not JSON stays a string (S0-26).
            data = answer.text
        else:
            # The tool's object; where it has none, the JSON of its text (S0-22).
            data = cast(Json, data) if isinstance(data, dict) else answer.value or data
        result = {"tool": called.name, "data": data}
        if not answer.is_error:
            return {"arguments": arguments, "status": "success", "tool_result": result}
        message = answer.value.get("message") or answer.value.get("error") or answer.text
        return {**failed, "tool_result": result, "message": f"Error executing tool: {message}"}


def _known(called: Tool, arguments: Mapping[str, Any]) -> Json:
    properties = called.input_schema.get("properties", {})
    return {name: value for name, value in arguments.items() if name in properties}


# ---------------------------------------------------------------- arguments


def fill_arguments(
    sentence: str, tokens: Sequence[Token], ranked: RankedTool, arguments: Mapping[str, Any]
) -> tuple[Json, list[str]]:
    """Return the arguments of one call, and the required parameters for which the sentence has none.

    In this order, each leaving its words to none of the next: what is given beside the sentence, the slots of the best
    phrase, then paths and ids, numbers, quotations, and the rest of the sentence for the main text. Function words and
    the tool's own words are no values: what only they could fill stays open.
    """
    filling = _Filling(sentence, tokens, ranked, _known(ranked.tool, arguments))
    return filling.arguments, filling.unfilled(required=True)


def bare_parameter(tool: Tool) -> str | None:
    """Return the parameter that takes a whole sentence, if the tool has an example phrase that is one slot."""
    phrases = (parse_phrase(example)[0] for example in tool.mark.examples)
    return next((items[0].parameter for items in phrases if len(items) == 1 and isinstance(items[0], Slot)), None)


class _Filling:
    def __init__(self, sentence: str, tokens: Sequence[Token], ranked: RankedTool, arguments: Json) -> None:
        tool = self.tool = ranked.tool
        self.sentence, self.tokens, self.arguments = sentence, tokens, arguments
        self.used: set[int] = set()
        self.properties: Mapping[str, Json] = tool.input_schema.get("properties", {})
        self.required: Sequence[str] = tool.input_schema.get("required", ())
        literals = " ".join(map(spoken_example, tool.mark.examples))
        # A tool without phrases is described only by its description and its parameters.
        literals = literals or " ".join([tool.description, *self.properties])
        own_words = words(" ".join([tool.name, tool.mark.title, *tool.mark.keywords, literals]))
        # Stems of words that name the tool or ask for it.
        self.own = {stem(fold(word), "english") for word in own_words if word not in function_words()}
        # A phrase that is matched less fully does not tell where the arguments are.
        if ranked.phrase and ranked.phrase.score >= 0.5:
            self.take_slots(ranked.phrase)
        self.take_paths_and_ids()
        self.take_numbers()
        self.take_texts()

    def unfilled(self, *, required: bool = False) -> list[str]:
        optional = () if required else (name for name in self.properties if name not in self.required)
        return [name for name in (*self.required, *optional) if name not in self.arguments]

    def unused(self, *kinds: str) -> list[int]:
        return [
            position
            for position, token in enumerate(self.tokens)
            if position not in self.used and (token.kind in kinds or not kinds)
        ]

    def is_value(self, position: int) -> bool:
        token = self.tokens[position]
        if token.kind != "word":
            return token.kind != "symbol"
        if len(token.text) == 1 and token.text.isupper() and token.text != "I":
            return True
        no_names = """everything anything something nothing everyone another other one ones new next last now again
            already yet soon going all here there somewhere back instead whole entire whose many much any"""
        return is_telling(token) and fold(token.text) not in no_names.split() and token.stem not in self.own

    def put(self, name: str, value: Any, positions: Iterable[int]) -> None:
        is_item = self.properties[name].get("type") == "array" and not isinstance(value, list)
        self.arguments[name] = [value] if is_item else value
        self.used.update(positions)

    def put_values(self, name: str, positions: Sequence[int]) -> None:
        schema = self.properties[name]
        parsed = (value_of(self.tokens[position], schema) for position in positions)
        values = [value for value in parsed if value is not None]
        self.put(name, values if schema.get("type") == "array" else values[0], positions)

    def put_words(self, name: str, positions: Sequence[int], *, singular: bool = False) -> None:
        """Put the words in these places, without what is no part of a name, or those that have the needed shape."""
        if fits_shape := _shape_of(name, self.properties[name]):
            positions = [position for position in positions if fits_shape(self.tokens[position])]
        if positions:
            trimmed = trim([self.tokens[position] for position in positions])
            self.put(name, written(self.sentence, trimmed, singular=singular), positions)

    def take_slots(self, match: PhraseMatch) -> None:
        self.used.update(match.literals)
        items, constants = match.phrase
        for name, value in constants.items():
            self.arguments.setdefault(name, lenient_value(value, self.properties.get(name, {})))
        for name, run in match.captured.items():
            schema = self.properties.get(name)
            if schema is None or name in self.arguments:
                continue
            quoted = [place for place in run if self.tokens[place].kind == "quoted"]
            # The one path or id of a run says all where one is asked for (an instruction may speak of files), or the
            # one quotation of a short run or at its beginning.
            essential: Sequence[int] = [place for place in run if name in asks_for(self.properties, self.tokens[place])]
            if len(essential) != 1:
                essential = quoted if len(quoted) == 1 and (len(run) <= 5 or quoted[0] == run[0]) else run
            if not takes_words(schema):
                self.put_values(name, run)
            elif schema.get("type") == "array" and len(quoted) > 1:
                self.put(name, [self.tokens[place].text for place in quoted], run)
            elif any(map(self.is_value, essential)):
                self.put_words(name, essential, singular=Slot(name, singular=True) in items)

    def take_paths_and_ids(self) -> None:
        for position in self.unused("path", "id"):
            token = self.tokens[position]
            asking = [name for name in asks_for(self.properties, token) if name not in self.arguments]
            if asking:
                self.put(asking[0], token.text, [position])
        # Then required files (`report.docx`) and codes (`ENG-142`), first those beside the parameter's name; what is
        # quoted is rather a text.
        for name in self.unfilled(required=True):
            fits_shape = _shape_of(name, self.properties[name]) if takes_words(self.properties[name]) else None
            positions = [position for position in self.unused() if fits_shape and fits_shape(self.tokens[position])]
            stems = {stem(word, "english") for word in words(name)}
            beside = [place for place in positions if place and self.tokens[place - 1].stem in stems]
            if positions:
                place = min(beside or positions, key=lambda place: self.tokens[place].kind == "quoted")
                self.put(name, self.tokens[place].text, [place])

    def take_numbers(self) -> None:
        """Take required numbers in order; optional ones beside a word of their name or description: `5 results`."""
        for name in self.unfilled():
            schema = self.properties[name]
            if takes_words(schema) or "enum" in schema:
                continue
            near = {stem(word, "english") for word in words(f"{name} {schema.get('description', '')}")}
            for position in self.unused("number"):
                beside = [self.tokens[place] for place in (position - 1, position + 1) if 0 <= place < len(self.tokens)]
                is_near = any(is_telling(token) and token.stem in near for token in beside)
                if value_of(self.tokens[position], schema) is not None and (name in self.required or is_near):
                    self.put_values(name, values_from(self.tokens, position, schema))
                    break

    def take_texts(self) -> None:
        """Take quotations, and the rest of the sentence, from its first to its last word that is not the tool's."""
        texts = [name for name in self.unfilled(required=True) if takes_words(self.properties[name])]
        if not self.required and not any(takes_words(self.properties.get(name, {})) for name in self.arguments):
            texts = list(filter(None, [bare_parameter(self.tool)]))
        quotations = self.unused("quoted")
        for name, place in zip(texts, quotations, strict=False):
            self.put(name, self.tokens[place].text, [place])
        first, second = [*self.tokens, None, None][:2]
        is_followed = second and (second.is_function_word or (first and first.stem in known_verbs()))
        is_command = is_followed and first and first.kind == "word"
        free = [place for place in self.unused() if self.is_value(place) and (place or not is_command)]
        if free and len(texts) == len(quotations) + 1:
            run = range(free[0], free[-1] + 1)
            # Up to what is used up already.
            stop = next((place for place in run if place in self.used), run.stop)
            self.put_words(texts[-1], range(run.start, stop))


def _shape_of(name: str, schema: Json) -> Callable[[Token], bool] | None:
    """Return what a token must be if the parameter takes only ids, or only files; None if any words can be its value:
    "cancel my subscription to the gym" names no job."""
    is_id = re.search(r"(?:Id|ID|_id|_ids|Ids|^ids?|^u?uid)$", name)
    if is_id and not re.search(r"\b(title|name|path)\b", schema.get("description", ""), re.IGNORECASE):
        return lambda token: token.kind not in ("word", "symbol") or bool(re.search(r"\d|_", token.text))
    if not re.search(r"(?:^|_)(?:path|file)|Path$|File", name):
        return None
    return lambda token: (
        token.kind in ("path", "quoted") or (token.kind == "word" and bool(re.search(r"\.[a-z]\w{1,4}$", token.text)))
    )
