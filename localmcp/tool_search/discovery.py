"""Finding and running tools that tools/list does not show: `tool_search` and `execute_tool` (S1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, cast

from localmcp.errors import InvalidInput, UnknownTool
from localmcp.humanize import cut_to, quoted
from localmcp.schemas import describe_kind, list_of, mapping_of, properties_of
from localmcp.tool_search.ranking import FIRST_OF_PARTS, PATIENCE, Hits, Profile, ToolFinder
from localmcp.tool_search.words import MOST_PARTS, ToolMetadata, first_sentence
from localmcp.tools import Answer, Json, Param, Registry, Tool, at_most, compact_json, current_scope, tool

log = logging.getLogger(__name__)

TOOL_SEARCH = "tool_search"
EXECUTE_TOOL = "execute_tool"

COMMON_CALLS = (
    "add_path(path)", "refresh()", "remove_source(sourceId)", "restore_source(sourceId)", "verify_citation(quote)",
    "addRule(rule_text)",
)  # fmt: skip
"""Hidden tools that assistants often run: naming them once costs less to read than one search for them."""
MAX_RESULTS = 100
"""C1-1: more are cut to this."""
NOTHING_FOUND = "No tools found. Try different keywords or a broader search term."
ONE_LINE = 160
"""Characters of a description, and of the list of parameters, in a brief answer."""
MOST_RESULTS, NEAREST = 10, 5
"""Tools in an answer, and in a brief one that names what is nearest because nothing fits surely."""

Detail = Literal["full", "brief"]


class Discovery:
    """Searches every tool that the caller may call, and runs it. Thread-safe.

    The tools that tools/list shows are searched as well: the original did so from its v0.15.3 on, no behavior of the
    seed forbids it, and a client that defers this server's tools has only the search to find them.
    """

    def __init__(self, registry: Registry, finder: ToolFinder | None = None) -> None:
        """Without a `finder`, words alone are compared, not meaning."""
        self.registry = registry
        self.finder = finder or ToolFinder()
        self.starting: Callable[[], list[str]] = list
        """Names of connected servers whose tools are not known yet."""

    def search(self, query: str = "", max_results: int = 0, *, profile: Profile = "best") -> list[Json]:
        """Return the tools that fit, best first, as `ToolFinder.find` says. 0 and less do not cut."""
        ranked, _ = self.rank(query, profile, max_results)
        hits = [_as_hit(hit_tool, score, full=True, asked=True, bare=False) for hit_tool, score in ranked]
        # A provider that is down may owe the schema. Only here it is in both spellings (C1-2).
        return [{**hit, "inputSchema": hit["input_schema"]} if "input_schema" in hit else hit for hit in hits]

    def rank(
        self,
        query: str,
        profile: Profile = "best",
        most: int = 0,
        patience: float = PATIENCE,
        queries: Sequence[str] = (),
    ) -> tuple[list[tuple[Tool, float]], Hits]:
        """Return tools and scores, best first, at most `most` (0 = all), and the hits that they were made of."""
        tools = self._searchable()
        described = [self.describe(tool) for tool in tools]
        ranked = self.finder.find(query, described, profile=profile, patience=patience, queries=queries)
        hits = ranked.tools[:most] if most > 0 else ranked.tools
        tools_by_description = dict(zip(described, tools, strict=True))
        return [(tools_by_description[description], score) for description, score in hits], ranked

    def suggest(self, words: str) -> list[str]:
        """Return the names of at most five tools that do what the words say.

        It waits for no model: who called a tool that does not exist learns so at once, and by words if need be.
        """
        hits, _ = self.rank(words, most=5, patience=0.0)
        return [tool.name for tool, _ in hits]

    def introduction(self) -> str:
        """Return which hidden tools a language model may run without a search; empty if none."""
        scope = current_scope()
        if not scope.lean or not scope.names(EXECUTE_TOOL):
            return ""
        tools = ((call, self.registry.find(call.partition("(")[0])) for call in COMMON_CALLS)
        calls = [call for call, common in tools if common is not None and scope.allows(common.mark)]
        return f"`{EXECUTE_TOOL}` runs without a search: {', '.join(calls)}." if calls else ""

    def describe(self, hit_tool: Tool) -> ToolMetadata:
        """Return what a tool is found by; the same object for the same tool."""
        if not isinstance(hit_tool.described, ToolMetadata):
            mark, schema = hit_tool.mark, _schema_of(hit_tool) or {}
            hit_tool.described = ToolMetadata(
                hit_tool.name, hit_tool.description, mark.keywords, mark.title, mark.examples, schema
            )
        return hit_tool.described

    def _searchable(self) -> list[Tool]:
        return [tool for tool in self.registry.tools() if tool.mark.name not in (TOOL_SEARCH, EXECUTE_TOOL)]

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
        stand_in=True,
        accepts={"max_results": partial(at_most, MAX_RESULTS)},
    )
    def tool_search(
        self,
        query: Annotated[str, Param("What the tool should do, in a few words; empty lists all", max_length=2000)] = "",
        queries: Annotated[list[str] | None, Param("Instead, for a task of several steps: one query a step")] = None,
        max_results: Annotated[int, Param("Tools at most", minimum=1, maximum=MAX_RESULTS)] = MOST_RESULTS,
        detail: Annotated[Detail, Param("full: input schema of each")] = "brief",
    ) -> Answer:
        """Find tools that are not listed here: add, index, refresh or remove documents, files, folders, sources and
        collections, verify citations, and what connected servers do. Ask by capability, verb and object: "remove
        duplicate rows in Excel". Run one with execute_tool."""
        # Asked first: who becomes ready in the meantime was not searched.
        servers = self.starting()
        ending = "is still starting: its" if len(servers) == 1 else "are still starting: their"
        after = [f"{', '.join(servers)} {ending} tools are found in a few seconds."] if servers else []
        asked = [text.strip()[:2000] for text in queries or () if text.strip()][:MOST_PARTS]
        text = ". ".join(filter(None, (query.strip(), *asked)))
        ranked, hits = self.rank(text, most=max_results, queries=asked if len(asked) > 1 else ())
        if not ranked:
            return _told({"confidence": "none", "tools": [], "count": 0}, NOTHING_FOUND, after)
        sure, is_full = hits.sure, detail == "full"
        if not sure and not is_full and max_results == MOST_RESULTS:
            ranked = ranked[: NEAREST if hits.parts == 1 else FIRST_OF_PARTS]
        # Of a task with several parts the best tools are needed together.
        in_full = max_results if is_full else min(hits.parts, 3) if sure and text else 0
        # Of a tool that scores far less than the best one, the text of a brief answer has little more than the name.
        least = 0.2 * ranked[0][1]
        shown: list[Json] = []
        written: list[Any] = []
        for rank, (ranked_tool, score) in enumerate(ranked):
            is_bare = (in_full > 0 and rank >= in_full) or score < least
            hit = _as_hit(ranked_tool, score, full=rank < in_full, asked=is_full, bare=is_bare)
            in_short = {key: value for key, value in hit.items() if key in ("name", "score", "notice")}
            shown.append(hit)
            written.append(hit if is_full or (rank < NEAREST and hit["score"] >= least) else in_short)
        if not text and len(shown) == max_results < (total := len(self._searchable())):
            after.append(f"{total - max_results} more: ask for what you need, or with max_results={MAX_RESULTS}.")
        value: Json = {"confidence": "high" if sure else "low", "tools": shown, "count": len(shown)}
        unsure = "Nothing fits surely; the nearest are below. If none does it, these servers have no tool for it."
        return _told(value, compact_json(written), after, before=[] if sure else [unsure])

    # It runs whatever it is given, so it is marked like the most dangerous tool behind it: a client that trusts
    # annotations would otherwise remove things without asking. Attaching adds exactly two tools (S1-1), so there is
    # no second one for tools that only read; those can be called by their own names, under their own annotations.
    @tool(
        EXECUTE_TOOL,
        title="Run a tool",
        keywords=("call", "run", "invoke", "tool"),
        examples=("run the tool {name}",),
        read_only=False,
        destructive=True,
        open_world=True,
        proxy=True,
        stand_in=True,
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
            return Answer({"error": "Tool name is required"}, "Tool name is required", is_error=True)
        if name == EXECUTE_TOOL:
            raise InvalidInput(f"name: {EXECUTE_TOOL} cannot run itself; give the name of the tool that is meant.")
        try:
            # The original prefers `parameters` where a model fills in both (C1-4).
            return self.registry.call(name, parameters or arguments or {})
        except UnknownTool as error:
            # A known tool may raise it too, about something else.
            if self.registry.find(name) is not None:
                raise
            message = f"Tool not found: {quoted(name)}. Use {TOOL_SEARCH} to discover available tools."
            return replace(_told({"error": message}, message, [error.hint] if error.hint else []), is_error=True)


def _as_hit(hit_tool: Tool, score: float, *, full: bool, asked: bool, bare: bool) -> Json:
    """Return a hit as tool_search has it: with its schema, a very long one only if `asked`, or in one line; `bare`:
    of the parameters only those that are required."""
    hit: Json = {"name": hit_tool.name, "description": hit_tool.description, "score": round(score, 4)}
    if hit_tool.notice:
        # Its server has changed its definition.
        hit["notice"] = hit_tool.notice
    schema = _schema_of(hit_tool)
    if schema is None:
        return hit
    if full and (asked or len(compact_json(schema)) <= 6_000):
        return {**hit, "input_schema": schema if asked else _to_fill_in(schema)}
    hit["description"] = cut_to(first_sentence(hit_tool.description).rstrip(";"), ONE_LINE)
    return {**hit, "parameters": parameter_line(schema, required_only=bare)}


def _to_fill_in(schema: Json) -> Json:
    """Return a schema without titles made of names, lengths, a ban on more fields: `execute_tool` names mistakes."""
    unread = ("title", "minLength", "maxLength")
    bare = {key: v for key, v in schema.items() if key not in unread and (key, v) != ("additionalProperties", False)}
    properties = mapping_of(schema.get("properties"))
    kinds = {
        name: _to_fill_in(cast(Json, kind)) if isinstance(kind, dict) else kind for name, kind in properties.items()
    }
    return bare | ({"properties": kinds} if kinds else {})


def parameter_line(schema: Json, *, required_only: bool = False) -> str:
    """Return the parameters as `name* (type)`, required ones first, as many as fit a line; then how many more."""
    properties = properties_of(schema)
    required = [name for name in list_of(schema.get("required")) if isinstance(name, str) and name in properties]
    optional = [name for name in properties if name not in required]
    parts = [f"{name}* ({describe_kind(properties[name], schema)})" for name in required]
    if required_only:
        return ", ".join([*parts, f"+{len(optional)} optional"] if optional else parts) or "none"
    parts += [f"{name} ({describe_kind(properties[name], schema)})" for name in optional]
    shown = next((n for n in range(len(parts), 0, -1) if len(", ".join(parts[:n])) <= ONE_LINE), 1)
    more = [f"+{len(parts) - shown} more"] if len(parts) > shown else []
    return ", ".join([*parts[:shown], *more]) or "none"


def _schema_of(hit_tool: Tool) -> Json | None:
    try:
        return hit_tool.input_schema
    except Exception:
        log.warning("%s cannot tell its schema and is found without", hit_tool.name, exc_info=True)
        return None


def _told(value: Json, text: str, after: Sequence[str], before: Sequence[str] = ()) -> Answer:
    """Return an answer; what is said before and after its text are separate blocks, so that the text stays whole."""
    if not before and not after:
        return Answer(value, text)
    blocks = tuple({"type": "text", "text": part} for part in (*before, text, *after))
    return Answer({**value, "hint": " ".join((*before, *after))}, text, content=blocks)
