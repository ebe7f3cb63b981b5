"""One MCP server as a provider: listed from the cache of its last run, started by the first call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from localmcp.config import servers_file
from localmcp.errors import AccessDenied, ConfigurationError, LocalMCPError
from localmcp.hub.catalog import SEPARATOR, LeftOut, ToolList, describe_left_out, exposed_names, shown_address
from localmcp.hub.entries import ServerEntry, prepare
from localmcp.schemas import Json, check_arguments, mapping_of, numbers_from_texts
from localmcp.tools import Answer, ReportProgress, Scope, Tool, ToolMark, progress_listener
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.hub.client import ServerClient
    from localmcp.hub.introduction import Introduced
    from localmcp.hub.servers import McpServers
    from localmcp.own_tools.problems import Problem, ProviderState, State

log = logging.getLogger(__name__)

_OPEN_TO_ALL = ("file:", "http:", "https:")
"""Links that can be followed without the server."""
MOST_DESCRIPTION = 10_000
"""Characters of a tool's description that are shown; known servers use up to 8,000."""

# ---------------------------------------------------------------- tools


class RemoteTool(Tool):
    """A tool of another server."""

    def __init__(self, server: McpServer, name: str, raw: Json) -> None:
        self.raw = raw
        self.description = _shown(raw.get("description"))
        self._server = server
        self.approved: Json | None = None
        """The definition that the person approved, if it is another than this one; empty for a tool that was added."""
        hints = mapping_of(raw.get("annotations"))
        read_only = hints.get("readOnlyHint") is True
        # The defaults of the specification: not read-only, destructive, not idempotent, open world.
        self.mark = ToolMark(
            name=name,
            title=_shown(raw.get("title")) or _shown(hints.get("title")) or _shown(raw.get("name")),
            keywords=(server.entry.name,),
            visible=False,
            read_only=read_only,
            destructive=not read_only and hints.get("destructiveHint") is not False,
            idempotent=read_only or hints.get("idempotentHint") is True,
            open_world=hints.get("openWorldHint") is not False,
        )

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        raw = self.raw["inputSchema"]
        shown = _with_shown_descriptions(raw)
        # With ten thousand tools, equal copies would take memory.
        return raw if shown == raw else shown

    def call(self, arguments: Json) -> Answer:
        """Run it there, if the arguments fit its schema; the server is not even started for those that do not.

        Raises:
            AccessDenied: it has changed or was added since the person approved the server's tools.
            InvalidInput: the arguments do not fit, or the server refuses the call's form.
            Unavailable: the server does not start, ends in the middle, or does not answer in time.
        """
        self._server.check_approved(self.raw["name"])
        began, seconds = time.monotonic(), self._server.entry.call_seconds
        arguments = numbers_from_texts(arguments, self.input_schema)
        check_arguments(self.name, self.input_schema, arguments, seconds=seconds)
        remaining = max(0.1, seconds - (time.monotonic() - began))
        result = self._server.call(self.raw["name"], arguments, remaining, progress_listener())
        return as_answer(result, self._server.entry.namespace)


def _shown(text: Any) -> str:
    """Return a server's text for people and models: hidden characters visible, and not too long."""
    return visible(text[:MOST_DESCRIPTION], newlines=True) if isinstance(text, str) else ""


def _with_shown_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_shown_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _shown(value) if key == "description" and isinstance(value, str) else _with_shown_descriptions(value)
        for key, value in cast(Json, schema).items()
    }


def as_answer(result: Json, namespace: str) -> Answer:
    """Return the whole result: its blocks as `content`, its structured content as `value`.

    `value` is empty if there is none. Interfaces that show text get that of the blocks. Links to the server's
    resources become our addresses of them.
    """
    blocks = tuple(_reachable(block, namespace) for block in cast("list[Json]", result.get("content") or []))
    text = "\n".join(_block_text(block) for block in blocks)
    return Answer(
        mapping_of(result.get("structuredContent")), text, is_error=result.get("isError") is True, content=blocks
    )


def _reachable(block: Json, namespace: str) -> Json:
    uri = block.get("uri")
    if block.get("type") != "resource_link" or not isinstance(uri, str) or uri.startswith(_OPEN_TO_ALL):
        return block
    return {**block, "uri": shown_address(namespace, uri)}


def _block_text(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource":
        inner = mapping_of(block.get("resource"))
        return str(inner.get("text") or f"[resource {inner.get('uri', '')}]")
    if kind == "resource_link":
        return f"[link {block.get('uri', '')}]"
    return f"[{kind} {block.get('mimeType', '')}]".replace(" ]", "]")


# ---------------------------------------------------------------- one server


class McpServer:
    """The provider `mcp:NAME`. Thread-safe."""

    only_hidden = True
    """No tool of another server is in tools/list, so tools/list need not wait for it."""

    def __init__(self, entry: ServerEntry, runtime: McpServers) -> None:
        self.entry = entry
        self.name = f"mcp:{entry.name}"
        self.listed = threading.Event()
        """Set once its tools are listed, or it is known why they cannot be."""
        self.retired = False
        """Whether its entry has left the file, or has become another."""
        self.failure: LocalMCPError | None = None
        """Why the last start failed; None when it did not."""
        self._runtime = runtime
        self._lock = threading.Lock()
        self._listed: ToolList | None = None
        self._tools: dict[str, RemoteTool] | None = None
        self._offers: dict[str, list[Json]] | None = None
        self._asked = False
        """Whether the server itself has listed its tools in this process."""
        self._needed = False

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with."""
        return f"{self.entry.namespace}{SEPARATOR}"

    @property
    def usable(self) -> bool:
        return not (self.entry.disabled or self.entry.problem or self.retired)

    # ------------------------------------------------------------ the protocol of providers

    def tools(self) -> Iterable[Tool]:
        """Return the tools it is known to have; none if it fails to start.

        A server that was never listed is started in the background and waited for, but not long.
        """
        self._runtime.follow_file()
        if not self.usable:
            return ()
        if self._known() is None or self.failure is not None:
            self._runtime.wait_for_listing(self)
        return () if self.failure is not None else tuple((self._known() or {}).values())

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name. For an unknown name of this server its tools are listed once.

        Raises:
            ConfigurationError: the name is this server's, whose entry cannot be used.
            Unavailable: the name may be this server's, but it does not start.
        """
        if not name.startswith(self.prefix) or self.entry.disabled:
            return None
        self._runtime.follow_file()
        if self.retired:
            return None
        if self.entry.problem:
            raise self._unusable()
        if name not in (self._known() or {}) and not self._asked:
            self.refresh()
        return (self._known() or {}).get(name)

    def call(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the raw result of a tool of the server, started if need be, as `ServerClient.call`."""
        return self._runtime.run(self._client().call(tool, arguments, seconds, progress))

    def ask(self, method: str, params: Json) -> Json:
        """Return the raw result of a request about its resources or prompts, as `ServerClient.ask`."""
        return self._runtime.run(self._client().ask(method, params))

    # ------------------------------------------------------------ starting and state

    def refresh(self) -> int:
        """Start it if need be and read its tools; return how many there are.

        Raises:
            LocalMCPError: it cannot be used, does not start, or does not list its tools.
        """
        if self.entry.problem:
            raise self._unusable()
        self._runtime.run(self._client().refresh())
        return len(self._known() or ())

    def start(self) -> None:
        """Begin to start it, in the background, unless it pauses after failures."""
        client = self._client()
        if not client.alive and client.pause == 0:
            self._runtime.start(_quietly(client))

    @property
    def condition(self) -> str:
        """`running`, `starting`, `stopped`, `not started`, `failed`, `disabled` or `unusable`."""
        if self.entry.disabled:
            return "disabled"
        if self.entry.problem:
            return "unusable"
        if self.failure is not None:
            return "failed"
        return self._client().condition if self._needed else "not started"

    @property
    def known_tools(self) -> int | None:
        """How many tools it is known to offer; None when it was never listed."""
        tools = self._known() if self.usable else {}
        return None if tools is None else len(tools)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tools that it listed last and that cannot be used."""
        if not self.usable or self._known() is None or self._listed is None:
            return ()
        return tuple(entry for entry in self._listed.left_out if self.entry.offers(entry.tool))

    def has_tool_for(self, scope: Scope) -> bool:
        """Return whether the caller may call one of its tools, as far as they are known."""
        return scope.tools is None or any(name in scope.tools for name in self._known() or ())

    def introduced(self) -> Introduced:
        """Return what assistants are told of it."""
        from localmcp.hub.introduction import Introduced

        names = [tool.raw["name"] for tool in (self._known() or {}).values()]
        return Introduced(self.entry.name, names, self.entry.description)

    def state(self) -> ProviderState:
        """Return how it is doing, without starting it."""
        from localmcp.own_tools.problems import ProviderState

        tools, problems = self.known_tools, tuple(self.check())
        if self.entry.disabled:
            state: State = "off"
        elif any(problem.level == "error" for problem in problems) or self.failure is not None:
            state = "failing"
        else:
            state = "ready" if tools else "empty"
        says = self.condition if tools is not None else f"{self.condition}; its tools are not known yet"
        return ProviderState(self.name, state, tools or 0, str(servers_file()), says, problems)

    def check(self) -> list[Problem]:
        """Return why it cannot be used (entry, variable, last start), or which definitions have changed."""
        from localmcp.own_tools.problems import Problem

        file, error = str(servers_file()), self.failure
        if self.entry.problem:
            error = self._unusable()
        elif not self.entry.disabled and error is None:
            try:
                prepare(self.entry)
            except ConfigurationError as missing:
                error = missing
        if error:
            return [Problem(file, None, error.message, error.hint)]
        problems: list[Problem] = []
        unapproved = self._unapproved()
        changed = [tool.name for tool in unapproved if tool.approved]
        added = [tool.name for tool in unapproved if not tool.approved]
        hint = f"Read the difference and decide: localmcp servers approve {self.entry.name}"
        for what, names in (("changed what it says of", changed), ("added", added)):
            if names:
                message = f"Since you approved it, '{self.entry.name}' has {what}: {', '.join(names)}."
                problems.append(Problem(file, None, message, hint, "warning"))
        if self.left_out:
            message = describe_left_out(self.entry.name, self.left_out)
            problems.append(Problem(file, None, message, level="warning"))
        return problems

    def _unusable(self) -> ConfigurationError:
        return ConfigurationError(f"The MCP server '{self.entry.name}' cannot be used: {self.entry.problem}.")

    def _client(self) -> ServerClient:
        self._needed = True
        return self._runtime.client_of(self)

    # ------------------------------------------------------------ what is known of it

    def _known(self) -> dict[str, RemoteTool] | None:
        with self._lock:
            if self._tools is None:
                listed = self._runtime.cache.load(self.entry.digest)
                if listed is not None:
                    self._take(listed)
                    self.listed.set()
            return self._tools

    def learn(self, listed: ToolList) -> None:
        """Take the tools that the server has listed; called in the background loop."""
        with self._lock:
            old, before = self._tools or {}, self._listed
            tools = self._take(listed)
            changed = {name: tool.raw for name, tool in old.items()} != {n: t.raw for n, t in tools.items()}
            self._asked, self.failure = True, None
        if before != listed or not self.listed.is_set():
            self._runtime.cache.save(self.entry.digest, listed)
        self.listed.set()
        for listener in self._runtime.change_listeners if changed else ():
            listener()

    def _take(self, listed: ToolList) -> dict[str, RemoteTool]:
        """Name the tools that pass the filters, and mark those that are not as the person approved them.

        A tool that did not change stays the same object, so that the ranking keeps what it computed for it.
        """
        old = self._tools or {}
        raws = {tool["name"]: tool for tool in listed.tools if self.entry.offers(tool["name"])}
        named = {name: raws[own] for name, own in exposed_names(self.entry.namespace, raws).items()}
        self._tools = {
            name: old[name] if name in old and old[name].raw == raw else RemoteTool(self, name, raw)
            for name, raw in named.items()
        }
        self._listed = listed
        self._mark_unapproved()
        return self._tools

    def _mark_unapproved(self) -> None:
        listed = self._listed.tools if self._listed is not None else []
        unapproved = self._runtime.approved.unapproved(self.entry.digest, listed)
        for tool in (self._tools or {}).values():
            tool.approved = unapproved.get(tool.raw["name"])
            what = "Changed since the user approved it" if tool.approved else "Added since the user approved the server"
            ask = f"ask the user to run: localmcp servers approve {self.entry.name}"
            tool.notice = f"{what}; {ask}" if tool.approved is not None else ""

    def _unapproved(self) -> list[RemoteTool]:
        tools = (self._known() or {}) if self.usable else {}
        return [tool for tool in tools.values() if tool.approved is not None]

    def check_approved(self, raw_name: str) -> None:
        """Refuse a tool that is not as the person approved it; the approval may have come from another process.

        Asked before a start, and again when the server has listed its tools: it may be another version than last time.

        Raises:
            AccessDenied: it is not.
        """
        tool = next((tool for tool in (self._known() or {}).values() if tool.raw["name"] == raw_name), None)
        if tool is not None and tool.approved is not None:
            with self._lock:
                self._mark_unapproved()
        if tool is None or tool.approved is None:
            return
        what = "has changed" if tool.approved else "was added"
        raise AccessDenied(
            f"{tool.name} {what} since the user approved the tools of '{self.entry.name}', and is not run.",
            hint=f"Ask the user to run: localmcp servers approve {self.entry.name}",
        )

    def changes(self) -> dict[str, list[str]]:
        """Return the difference to what was approved, for each tool that has changed or was added: name -> lines."""
        from localmcp.hub.approval import definitions, difference

        return {
            tool.name: difference(tool.name, tool.approved or {}, definitions([tool.raw])[tool.raw["name"]])
            for tool in self._unapproved()
        }

    def approve(self) -> None:
        """Accept the definitions as they are now.

        Raises:
            OSError: the state directory cannot be written.
        """
        self._known()
        with self._lock:
            listed = self._listed.tools if self._listed is not None else []
            self._runtime.approved.approve(self.entry.digest, listed)
            self._mark_unapproved()

    def offered(self, kind: str) -> list[Json]:
        """Return its known `resources`, `resourceTemplates` or `prompts`, without starting it."""
        needed = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}[kind]
        return [offer for offer in self._known_offers().get(kind, []) if isinstance(offer.get(needed), str)]

    def _known_offers(self) -> dict[str, list[Json]]:
        if self._offers is None:
            self._offers = self._runtime.cache.load_offers(self.entry.digest)
        return self._offers

    def learn_offers(self, offers: dict[str, list[Json]]) -> None:
        """Take the resources and prompts that the server has listed; called in the background loop."""
        old, self._offers = self._known_offers(), offers
        if offers == old:
            return
        self._runtime.cache.save_offers(self.entry.digest, offers)
        for shown, kinds in {"resources": ("resources", "resourceTemplates"), "prompts": ("prompts",)}.items():
            if any(offers.get(kind, []) != old.get(kind, []) for kind in kinds):
                for listener in self._runtime.offer_listeners:
                    listener(shown)

    def fail(self, error: LocalMCPError) -> None:
        """Note that the server did not start; called in the background loop."""
        is_repeated = self.failure is not None and self.failure.message == error.message
        self.failure = error
        self.listed.set()
        log.log(logging.INFO if is_repeated else logging.WARNING, "%s", error)


async def _quietly(client: ServerClient) -> None:
    try:
        await client.connect()
    except LocalMCPError as error:
        log.debug("%s", error)
