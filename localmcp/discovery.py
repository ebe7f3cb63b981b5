"""Finding and running tools that tools/list does not show: `tool_search` and `execute_tool` (S1)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, UnknownTool
from localmcp.tools import Answer, Json, Param, Registry, Tool, compact_json, integer_or_string, tool

log = logging.getLogger(__name__)

TOOL_SEARCH = "tool_search"
EXECUTE_TOOL = "execute_tool"

MAX_RESULTS = 100
"""C1-1: more are cut to this."""
NOTHING_FOUND = "No tools found. Try different keywords or a broader search term."
NAME_REQUIRED = "Tool name is required"

_PUNCTUATION = ".,;:!?()[]{}\"'"
_ALIKE = 0.6
"""Similarity that a fuzzy match must exceed."""


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class ToolMetadata:
    """What a tool is found by (S1-3)."""

    name: str
    description: str = ""
    keywords: tuple[str, ...] = ()

    def lower(self) -> ToolMetadata:
        """The same in lower case."""
        return ToolMetadata(self.name.lower(), self.description.lower(), tuple(each.lower() for each in self.keywords))


class ToolHit(TypedDict):
    """A tool that fits."""

    name: str
    description: str
    score: float
    # Both spellings are sent (C1-2); a provider that is down may owe them.
    input_schema: NotRequired[dict[str, Any]]
    inputSchema: NotRequired[dict[str, Any]]


class ToolHits(TypedDict):
    """The tools that fit, best first."""

    tools: list[ToolHit]
    count: int


# ---------------------------------------------------------------- the ladder of the `classic` profile


def score_query(query: str, metadata: ToolMetadata) -> float:
    """How well a tool fits a query, 0..1; 0 = not at all, 1 = its name, or an empty query (requirements.md, section 4).

    Several words are scored one by one: all found, their average x 0.9; else the average over all words x the share
    of words found.
    """
    query = query.strip().lower()
    lowered = metadata.lower()
    if query in ("", lowered.name):
        return 1.0
    scores = [score_word(word, lowered) for word in query.split()]
    if len(scores) == 1:
        return scores[0]
    average = sum(scores) / len(scores)
    found = sum(score > 0 for score in scores)
    return average * (0.9 if found == len(scores) else found / len(scores))


def score_word(word: str, metadata: ToolMetadata) -> float:
    """The highest rung that one word reaches, 0..0.9; likeness counts only where no rung is reached.

    Args:
        word: not empty, in lower case.
        metadata: in lower case.
    """
    rungs = [_score_name(word, metadata.name), _score_description(word, metadata.description)]
    rungs += [_score_keyword(word, keyword) for keyword in metadata.keywords]
    return max(rungs) or _score_likeness(word, metadata)


def _score_name(word: str, name: str) -> float:
    if name.startswith(word):
        return 0.9
    return 0.8 if word in name else 0.0


def _score_keyword(word: str, keyword: str) -> float:
    if keyword == word:
        return 0.85
    return 0.7 if word in keyword else 0.0


def _score_description(word: str, description: str) -> float:
    if word not in description:
        return 0.0
    words = (each.strip(_PUNCTUATION) for each in description.split())
    return 0.6 if word in words else 0.5


def _score_likeness(word: str, metadata: ToolMetadata) -> float:
    """Likeness = 1 - Levenshtein distance / length of the longer, in code points."""
    from rapidfuzz.distance import Levenshtein

    weighted = [(0.7, metadata.name), *((0.6, keyword) for keyword in metadata.keywords)]
    likeness = ((weight, Levenshtein.normalized_similarity(word, each)) for weight, each in weighted)
    return max((weight * alike for weight, alike in likeness if alike > _ALIKE), default=0.0)


# ---------------------------------------------------------------- the two tools


def _results_at_most(name: str, value: Any) -> Any:
    """C1-1 and the original's rule: 0 and less mean the default (None), above 100 means 100."""
    number = integer_or_string(name, value)
    if not isinstance(number, int):
        return number
    return min(number, MAX_RESULTS) if number > 0 else None


def _as_original(hits: ToolHits) -> str:
    """The original's text: an array with one spelling of the schema, or a sentence."""
    if not hits["tools"]:
        return NOTHING_FOUND
    return compact_json([{key: hit[key] for key in hit if key != "inputSchema"} for hit in hits["tools"]])


class Discovery:
    """Searches every tool that the caller may call, and runs it. Thread-safe.

    The tools that tools/list shows are searched as well: the original did so from its v0.15.3 on, no behaviour of the
    seed forbids it, and a client that defers this server's tools has only the search to find them.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def search(self, query: str = "", max_results: int = 0) -> list[ToolHit]:
        """The tools that fit, best first, then by name; an empty query lists all. 0 and less do not cut."""
        scored = [
            (score, each)
            for each in self.registry.tools()
            if each.name not in (TOOL_SEARCH, EXECUTE_TOOL) and (score := score_query(query, _metadata_of(each))) > 0
        ]
        scored.sort(key=lambda pair: (-pair[0], pair[1].name))
        return [_hit(score, each) for score, each in scored[: max_results if max_results > 0 else None]]

    # With many servers connected, hosts hide these two tools as well and search their descriptions, so both name the
    # fields that the hidden tools work in.

    @tool(
        TOOL_SEARCH,
        title="Find a tool",
        keywords=("tools", "discover", "capabilities", "documents", "folders", "collections", "citations"),
        examples=(
            "which tools can {query}",
            "find a tool to|for {query}",
            "is there a tool that|to {query}",
            "what tools do you have for {query}",
        ),
        accepts={"max_results": _results_at_most},
        text=_as_original,
    )
    def tool_search(
        self,
        query: Annotated[str, Param("What the tool should do, in a few words; empty lists all", max_length=2000)] = "",
        max_results: Annotated[int, Param("Tools at most", minimum=1, maximum=MAX_RESULTS)] = 10,
    ) -> ToolHits:
        """Find tools that are not listed here: add, index, refresh or remove documents, files, folders, sources and
        collections, verify citations, and more. Returns name, description, score and input schema of each; run one
        with execute_tool."""
        found = self.search(query, max_results)
        return {"tools": found, "count": len(found)}

    # Not read-only, since it runs whatever it is given. Not destructive, since clients would then ask the person
    # before every hidden call, harmless ones too; our own removals go to the trash and ask when they are large.
    @tool(
        EXECUTE_TOOL,
        title="Run a tool",
        keywords=("call", "run", "invoke", "tool"),
        examples=("run the tool {name}",),
        read_only=False,
        proxy=True,
    )
    def execute_tool(
        self,
        name: Annotated[str, Param("Name that tool_search returned", required=True)] = "",
        arguments: Annotated[dict[str, Any] | None, Param("Arguments that fit the tool's input schema")] = None,
        parameters: Annotated[dict[str, Any] | None, Param("Another name for arguments")] = None,
    ) -> Answer:
        """Run a tool that tool_search found (adding, refreshing, removing documents, files, folders, collections;
        verifying citations; and more) and return its own answer."""
        if not name:
            return _told({"error": NAME_REQUIRED})
        if name == EXECUTE_TOOL:
            raise InvalidInput(f"name: {EXECUTE_TOOL} cannot run itself; give the name of the tool that is meant.")
        try:
            # The original prefers `parameters` where a model fills in both (C1-4).
            return self.registry.call(name, parameters or arguments or {})
        except UnknownTool as error:
            # A known tool may raise it too, about something else.
            if self.registry.find(name) is not None:
                raise
            told = {"error": f"Tool not found: {name}. Use {TOOL_SEARCH} to discover available tools."}
            return _told({**told, "hint": error.hint} if error.hint else told)


def _metadata_of(each: Tool) -> ToolMetadata:
    return ToolMetadata(each.name, each.description, each.mark.keywords)


def _hit(score: float, each: Tool) -> ToolHit:
    hit: ToolHit = {"name": each.name, "description": each.description, "score": round(score, 4)}
    try:
        schema = each.input_schema
    except Exception:
        log.warning("%s cannot tell its schema and is found without", each.name, exc_info=True)
        return hit
    return {**hit, "input_schema": schema, "inputSchema": schema}


def _told(value: Json) -> Answer:
    """A refusal in the original's manner: an ordinary answer whose text is the sentence."""
    return Answer(value, value["error"])
