"""One MCP server as a provider: listed from the cache of its last run, started by the first call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from localmcp.config import servers_file
from localmcp.errors import ConfigurationError, LocalMCPError, Unavailable
from localmcp.hub.catalog import (
    SEPARATOR,
    LeftOut,
    ToolList,
    describe_left_out,
    exposed_names,
    shown_address,
)
from localmcp.hub.entries import ServerEntry, prepare
from localmcp.schemas import Json, check_arguments, mapping_of, numbers_from_texts
from localmcp.tools import Answer, ReportProgress, Scope, Tool, ToolMark, progress_listener
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.hub.introduction import Introduced
    from localmcp.hub.servers import McpServers
    from localmcp.hub.supervisor import Supervisor
    from localmcp.own_tools.problems import Problem, ProviderState, State

log = logging.getLogger(__name__)

CHANGED = "Changed since the user approved it; ask the user to run: localmcp servers approve {server}"
_OPEN_TO_ALL = ("file:", "http:", "https:")
"""Links that can be followed without the server."""
MOST_DESCRIPTION = 10_000
"""Characters of a tool's description that are shown; known servers use up to 8,000."""

# ---------------------------------------------------------------- tools


class RemoteTool(Tool):
    """A tool of another server."""

    def __init__(self, server: McpServer, name: str, raw: Json) -> None:
        self.raw = raw
        self.description = _shown(_text(raw.get("description")))
        self.mark = _mark(name, server.entry.name, raw)
        self._server = server
        self.approved: Json | None = None
        """The definition that the person approved, if it is another than this one."""

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        raw = self.raw["inputSchema"]
        shown = _with_shown_descriptions(raw)
        # With ten thousand tools, equal copies would take memory.
        return raw if shown == raw else shown

    def call(self, arguments: Json) -> Answer:
        """Run it there, if the arguments fit its schema; the server is not even started for those that do not.

        Raises:
            InvalidInput: the arguments do not fit, or the server refuses the call's form.
            Unavailable: the server does not start, ends in the middle, or does not answer in time.
        """
        began, seconds = time.monotonic(), self._server.entry.call_seconds
        arguments = numbers_from_texts(arguments, self.input_schema)
        check_arguments(self.name, self.input_schema, arguments, seconds=seconds)
        remaining = max(0.1, seconds - (time.monotonic() - began))
        result = self._server.call(self.raw["name"], arguments, remaining, progress_listener())
        return as_answer(result, self._server.entry.namespace)


def _mark(name: str, server: str, raw: Json) -> ToolMark:
    """Return the server's own annotations, with the defaults of the specification.

    These are: not read-only, destructive, not idempotent, open world.
    """
    hints = mapping_of(raw.get("annotations"))
    read_only = hints.get("readOnlyHint") is True
    return ToolMark(
        name=name,
        title=_shown(_text(raw.get("title")) or _text(hints.get("title")) or _text(raw.get("name"))),
        keywords=(server,),
        visible=False,
        read_only=read_only,
        destructive=not read_only and hints.get("destructiveHint") is not False,
        idempotent=read_only or hints.get("idempotentHint") is True,
        open_world=hints.get("openWorldHint") is not False,
    )


def _as_far_as_approved(raw: Json, approved: Json | None) -> Json:
    """Return the definition without a new claim that the tool only reads.

    It would open the tool to more callers.
    """
    if approved is None or _mark("", "", approved).read_only:
        return raw
    return {**raw, "annotations": approved.get("annotations")}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(description: str) -> str:
    """Return the description for people and models: hidden characters visible, and not too long."""
    return visible(description[:MOST_DESCRIPTION], newlines=True)


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
        return _text(block.get("text"))
    if kind == "resource":
        inner = cast(Json, block.get("resource") or {})
        return _text(inner.get("text")) or f"[resource {inner.get('uri', '')}]"
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
        self._offers: dict[str, list[Json]] | None = None
        self._addresses: dict[str, set[str]] = {}
        """The server's resource -> our addresses of it that clients subscribed to."""
        self._lock = threading.Lock()
        self._tools: dict[str, RemoteTool] | None = None
        self._left_out: tuple[LeftOut, ...] | None = None
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
        tools_by_name = self._cached_tools()
        if tools_by_name is None or self.failure is not None:
            self._runtime.wait_for_listing(self)
            tools_by_name = self._cached_tools()
        return () if tools_by_name is None or self.failure is not None else tuple(tools_by_name.values())

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
        tools_by_name = self._cached_tools()
        if (tools_by_name is None or name not in tools_by_name) and not self._asked:
            self.refresh()
            tools_by_name = self._cached_tools()
        return None if tools_by_name is None else tools_by_name.get(name)

    def call(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the raw result of a tool of the server, started if need be, as `Supervisor.call`."""
        return self._runtime.run(self._supervisor().call(tool, arguments, seconds, progress))

    # ------------------------------------------------------------ starting and state

    def refresh(self) -> int:
        """Start it if need be and read its tools; return how many there are.

        Raises:
            LocalMCPError: it cannot be used, does not start, or does not list its tools.
        """
        if self.entry.problem:
            raise self._unusable()
        self._runtime.run(self._supervisor().refresh())
        return len(self._cached_tools() or ())

    def start(self) -> None:
        """Begin to start it, in the background, unless it pauses after failures."""
        supervisor = self._supervisor()
        if not supervisor.alive and supervisor.pause == 0:
            self._runtime.start(_quietly(supervisor))

    @property
    def condition(self) -> str:
        """`running`, `starting`, `stopped`, `not started`, `failed`, `disabled` or `unusable`."""
        if self.entry.disabled:
            return "disabled"
        if self.entry.problem:
            return "unusable"
        if self.failure is not None:
            return "failed"
        return self._supervisor().condition if self._needed else "not started"

    @property
    def known_tools(self) -> int | None:
        """How many tools it is known to offer; None when it was never listed."""
        tools_by_name = self._cached_tools() if self.usable else {}
        return None if tools_by_name is None else len(tools_by_name)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The tools that it listed last and that cannot be used."""
        if not self.usable:
            return ()
        with self._lock:
            if self._left_out is None:
                self._left_out = self._runtime.cache.load_left_out(self.entry.digest)
            return tuple(entry for entry in self._left_out if self.entry.offers(entry.tool))

    def has_tool_for(self, scope: Scope) -> bool:
        """Return whether the caller may call one of its tools, as far as they are known."""
        return scope.tools is None or any(name in scope.tools for name in self._cached_tools() or ())

    def introduced(self) -> Introduced:
        """Return what assistants are told of it."""
        from localmcp.hub.introduction import Introduced

        names = [tool.raw["name"] for tool in (self._cached_tools() or {}).values()]
        return Introduced(self.entry.name, names, self.entry.description)

    def state(self) -> ProviderState:
        """Return how it is doing, without starting it."""
        from localmcp.own_tools.problems import ProviderState

        tools_by_name = self.known_tools
        problems = tuple(self.check())
        if self.entry.disabled:
            state: State = "off"
        elif any(problem.level == "error" for problem in problems) or self.failure is not None:
            state = "failing"
        else:
            state = "ready" if tools_by_name else "empty"
        says = self.condition if tools_by_name is not None else f"{self.condition}; its tools are not known yet"
        return ProviderState(self.name, state, tools_by_name or 0, str(servers_file()), says, problems)

    def check(self) -> list[Problem]:
        """Return why it cannot be used (entry, variable, last start), or which definitions have changed."""
        from localmcp.own_tools.problems import Problem

        error: LocalMCPError | None = self.failure
        if self.entry.problem:
            error = self._unusable()
        elif not self.entry.disabled and error is None:
            try:
                prepare(self.entry)
            except ConfigurationError as missing:
                error = missing
        if error:
            return [Problem(str(servers_file()), None, error.message, error.hint)]
        problems: list[Problem] = []
        tools_by_name = (self._cached_tools() or {}) if self.usable else {}
        changed = [tool.name for tool in tools_by_name.values() if tool.approved is not None]
        if changed:
            message = f"Since you approved it, '{self.entry.name}' has changed what it says of: {', '.join(changed)}."
            hint = f"Read the difference and decide: localmcp servers approve {self.entry.name}"
            problems.append(Problem(str(servers_file()), None, message, hint, "warning"))
        if self.left_out:
            message = describe_left_out(self.entry.name, self.left_out)
            problems.append(Problem(str(servers_file()), None, message, level="warning"))
        return problems

    def _unusable(self) -> ConfigurationError:
        return ConfigurationError(f"The MCP server '{self.entry.name}' cannot be used: {self.entry.problem}.")

    def _supervisor(self) -> Supervisor:
        self._needed = True
        return self._runtime.supervise(self)

    # ------------------------------------------------------------ what is known of it

    def _cached_tools(self) -> dict[str, RemoteTool] | None:
        with self._lock:
            if self._tools is None:
                stored = self._runtime.cache.load(self.entry.digest)
                if stored is not None:
                    self._tools = self._named(stored, {})
                    self._flag_changes()
                    self.listed.set()
            return self._tools

    def learn(self, listed: ToolList) -> None:
        """Take the tools that the server has listed; called in the background loop."""
        left_out_before = self.left_out
        with self._lock:
            old = self._tools or {}
            self._tools = self._named(listed.tools, old)
            self._left_out = listed.left_out
            self._flag_changes()
            changed = {name: value.raw for name, value in old.items()} != {n: t.raw for n, t in self._tools.items()}
            self._asked, self.failure = True, None
        if changed or listed.left_out != left_out_before or not self.listed.is_set():
            self._runtime.cache.save(self.entry.digest, listed)
        self.listed.set()
        for listener in self._runtime.change_listeners if changed else ():
            listener()

    def _named(self, tools: list[Json], old: dict[str, RemoteTool]) -> dict[str, RemoteTool]:
        """Return the tools that pass the filters, by the names we give them.

        A tool that did not change stays the same object, so that the ranking keeps what it computed for it.
        """
        raws = {tool["name"]: tool for tool in tools if self.entry.offers(tool["name"])}
        shown = {name: raws[own] for name, own in exposed_names(self.entry.namespace, raws).items()}
        return {
            name: old[name] if name in old and old[name].raw == raw else RemoteTool(self, name, raw)
            for name, raw in shown.items()
        }

    def _flag_changes(self) -> None:
        """Mark the tools whose definition is another than the person approved."""
        tools = (self._tools or {}).values()
        changed = self._runtime.approved.changed(self.entry.digest, [tool.raw for tool in tools])
        for tool in tools:
            tool.approved = changed.get(tool.raw["name"])
            tool.mark = _mark(tool.name, self.entry.name, _as_far_as_approved(tool.raw, tool.approved))
            tool.notice = CHANGED.format(server=self.entry.name) if tool.approved is not None else ""

    def changes(self) -> dict[str, list[str]]:
        """Return the difference to what was approved, for each tool that has changed: name -> lines."""
        from localmcp.hub.approval import definitions, difference

        tools = [tool for tool in (self._cached_tools() or {}).values() if tool.approved is not None]
        return {
            tool.name: difference(tool.name, tool.approved or {}, definitions([tool.raw])[tool.raw["name"]])
            for tool in tools
        }

    def approve(self) -> None:
        """Accept the definitions as they are now.

        Raises:
            OSError: the state directory cannot be written.
        """
        tools = [tool.raw for tool in (self._cached_tools() or {}).values()]
        self._runtime.approved.approve(self.entry.digest, tools)
        with self._lock:
            self._flag_changes()

    def offered(self, kind: str) -> list[Json]:
        """Return its known `resources`, `resourceTemplates` or `prompts`, without starting it."""
        needed = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}[kind]
        return [offer for offer in self._cached_offers().get(kind, []) if isinstance(offer.get(needed), str)]

    def _cached_offers(self) -> dict[str, list[Json]]:
        if self._offers is None:
            self._offers = self._runtime.cache.load_offers(self.entry.digest)
        return self._offers

    def learn_offers(self, offers: dict[str, list[Json]]) -> None:
        """Take the resources and prompts that the server has listed; called in the background loop."""
        old, self._offers = self._cached_offers(), offers
        if offers == old:
            return
        self._runtime.cache.save_offers(self.entry.digest, offers)
        for shown, kinds in {"resources": ("resources", "resourceTemplates"), "prompts": ("prompts",)}.items():
            if any(offers.get(kind, []) != old.get(kind, []) for kind in kinds):
                self._tell(shown)

    def subscribe(self, uri: str, address: str) -> None:
        """Report `address` to the listeners for changes of offers when the server's resource `uri` changes."""
        with self._lock:
            self._addresses.setdefault(uri, set()).add(address)
        self._runtime.run(self._supervisor().subscribe(uri))

    def unsubscribe(self, address: str) -> None:
        """Report changes of our address no more; the server is told in the background, if it runs."""
        with self._lock:
            uris = [uri for uri, addresses in self._addresses.items() if address in addresses]
            for uri in uris:
                self._addresses[uri].discard(address)
            ended = [uri for uri in uris if not self._addresses[uri]]
            for uri in ended:
                del self._addresses[uri]
        try:
            for uri in ended:
                self._runtime.start(_unsubscribe(self._supervisor(), uri))
        except Unavailable as error:
            log.debug("%s", error)  # it has left the file, or localmcp is closing

    def note_updated(self, uri: str) -> None:
        """Report that a resource has changed; called in the background loop."""
        for address in tuple(self._addresses.get(uri, ())):
            self._tell(address)

    def _tell(self, changed: str) -> None:
        for listener in self._runtime.offer_listeners:
            listener(changed)

    def ask(self, method: str, params: Json) -> Json:
        """Return the raw result of a request about its resources or prompts, as `Connection.ask`."""
        return self._runtime.run(self._supervisor().ask(method, params))

    def fail(self, error: LocalMCPError) -> None:
        """Note that the server did not start; called in the background loop."""
        last_failure = self.failure is not None and self.failure.message == error.message
        self.failure = error
        self.listed.set()
        log.log(logging.INFO if last_failure else logging.WARNING, "%s", error)


async def _unsubscribe(supervisor: Supervisor, uri: str) -> None:
    try:
        await supervisor.unsubscribe(uri)
    except LocalMCPError as error:
        log.info("%s", error)


async def _quietly(supervisor: Supervisor) -> None:
    try:
        await supervisor.connect()
    except LocalMCPError as error:
        log.debug("%s", error)
