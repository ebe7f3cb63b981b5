"""One MCP server: listed from the cache of its last run, started by the first call, kept connected."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from operator import methodcaller
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from localmcp.config import servers_file
from localmcp.errors import AccessDenied, ConfigurationError, LocalMCPError, Unavailable
from localmcp.files import read_json_object, write_atomically
from localmcp.hub.entries import LoginNeeded, ServerEntry, SessionLost, prepare, short_digest
from localmcp.schemas import Json, check_arguments, list_of, mapping_of, values_from_texts
from localmcp.tools import Answer, ReportProgress, Tool, ToolMark, client_call
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.hub.client import Connection
    from localmcp.hub.servers import McpServers

log = logging.getLogger(__name__)

SERVER_ADDRESS = "localmcp://server/"
"""Begins our addresses of servers' resources."""
MOST_LETTERS = 64
"""Some clients reject all tools of a server if one name is longer."""
OFFERS = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""What else a server may list -> the key that each entry needs."""


def shown_address(namespace: str, uri: str) -> str:
    """Return our address of a server's resource."""
    return f"{SERVER_ADDRESS}{namespace}/{quote(uri, safe='')}"


class RemoteTool(Tool):
    """A tool of another server."""

    def __init__(self, server: McpServer, name: str, raw: Json) -> None:
        self.raw = raw
        self.description = _shown(raw.get("description"))
        self._server = server
        hints = mapping_of(raw.get("annotations"))
        read_only = hints.get("readOnlyHint") is True
        # The defaults of the specification: not read-only, destructive, not idempotent, open world.
        self.mark = ToolMark(
            name=name,
            title=_shown(raw.get("title")) or _shown(hints.get("title")) or _shown(raw["name"]),
            keywords=(server.entry.name,),
            visible=False,
            read_only=read_only,
            destructive=not read_only and hints.get("destructiveHint") is not False,
            idempotent=read_only or hints.get("idempotentHint") is True,
            open_world=hints.get("openWorldHint") is not False,
        )

    @property
    def notice(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        approved = self._server.unapproved.get(self.raw["name"])
        what = "Changed since the user approved it" if approved else "Added since the user approved the server"
        ask = f"ask the user to run: {self._server.entry.approval}"
        return f"{what}; {ask}" if approved is not None else ""

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        shown = _with_shown_descriptions(self.raw["inputSchema"])
        # With ten thousand tools, equal copies would take memory.
        return self.raw["inputSchema"] if shown == self.raw["inputSchema"] else shown

    def call(self, arguments: Json) -> Answer:
        """Run it there, if the arguments fit its schema; the server is not even started for those that do not.

        Raises AccessDenied if the person has not approved it, InvalidInput for the arguments, and as `McpServer.ask`.
        """
        self._server.check_approved(self.raw["name"])
        arguments = values_from_texts(arguments, self.input_schema)
        check_arguments(self.name, self.input_schema, arguments)
        params = {"name": self.raw["name"], "arguments": arguments}
        result = self._server.ask("tools/call", params, client_call().progress)
        return as_answer(result, self._server.entry.namespace)


def _shown(text: Any) -> str:
    """Return a server's text for people and models: hidden characters visible, and not too long."""
    return visible(text[:10_000], newlines=True) if isinstance(text, str) else ""


def _with_shown_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_shown_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _shown(value) if key == "description" and isinstance(value, str) else _with_shown_descriptions(value)
        for key, value in cast(Json, schema).items()
    }


def exposed_names(namespace: str, names: Iterable[str]) -> dict[str, str]:
    """Return shown name -> the server's own name: `ns__tool`, with letters and a length that every client accepts.

    Of two names that become one, the one that needed no change keeps it, and the other gets a digest.
    """
    exposed: dict[str, str] = {}
    plain = {name: re.sub(r"[^A-Za-z0-9_-]+", "_", name) or "_" for name in names}
    for name in sorted(plain, key=lambda name: (plain[name] != name, name)):
        shown = f"{namespace}__{plain[name]}"
        if len(shown) > MOST_LETTERS or shown in exposed:
            shown = f"{shown[: MOST_LETTERS - 7]}_{short_digest(name)}"
        exposed[shown] = name
    return exposed


def as_answer(result: Json, namespace: str) -> Answer:
    """Return the whole result: its blocks as `content`, its structured content as `value`, empty if there is none.

    Interfaces that show text get that of the blocks. Links that only the server can follow become our addresses.
    """
    if result.get("resultType") == "input_required":
        return Answer({}, "The server asks the person.", unfinished=result)
    blocks: list[Json] = []
    texts: list[str] = []
    for block in cast("list[Json]", result.get("content") or []):
        kind, uri, inner = block.get("type"), block.get("uri"), mapping_of(block.get("resource"))
        if kind == "resource_link" and isinstance(uri, str) and not uri.startswith(("file:", "http:", "https:")):
            block = {**block, "uri": shown_address(namespace, uri)}
        words = {
            "text": block.get("text", ""),
            "resource": inner.get("text") or f"[resource {inner.get('uri', '')}]",
            "resource_link": f"[link {uri}]",
        }
        texts.append(str(words.get(str(kind), f"[{kind} {block.get('mimeType', '')}]")))
        blocks.append(block)
    value, is_error = mapping_of(result.get("structuredContent")), result.get("isError") is True
    return Answer(value, "\n".join(texts), is_error, tuple(blocks))


class McpServer:
    """A server of the person's `mcp.json`: its entry, its tools and other offers, and the connection to it.

    What it offered last is kept between runs, and its tools as they were when the person approved them: connecting it
    approves its first list. What a description or schema says later may be instructions that nobody has read ("rug
    pull"), so a tool that has changed or was added since is refused. Thread-safe; what is asynchronous runs in the
    hub's event loop.
    """

    def __init__(self, entry: ServerEntry, hub: McpServers) -> None:
        self.entry = entry
        self.name = f"mcp:{entry.name}"
        self.prefix = f"{entry.namespace}__"
        """What the names of its tools begin with."""
        self.listed = threading.Event()
        """Set once its tools are listed, or it is known why they cannot be."""
        self.retired = False
        """Whether its entry has left the file, or has become another."""
        self.failure: LocalMCPError | None = None
        """Why the last start failed; None when it did not."""
        self._hub = hub
        self._kept_file, self._approved_file = (folder / f"{entry.digest}.json" for folder in hub.folders)
        self._lock = threading.RLock()
        self._lists: dict[str, list[Json]] | None = None
        """What it listed last, kind -> entries; None before the cache was read."""
        self._raws: dict[str, Json] = {}
        """Its tools by their own names."""
        self._tools: dict[str, RemoteTool] = {}
        """Those that the filters let through, by the names that clients see."""
        self.unapproved: dict[str, Json] = {}
        """Its own name of each tool that is not as the person approved it -> what was approved; empty if added."""
        self._asked = False
        """Whether the server itself has listed its tools in this process."""
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._is_stale = False
        self._relisting: asyncio.Task[None] | None = None
        self._failed_at = 0.0

    @property
    def usable(self) -> bool:
        """Whether it may be started."""
        return not (self.entry.is_off or self.entry.problem or self.retired)

    def tools(self) -> list[RemoteTool]:
        """Return the tools it is known to have; none if it cannot be used, or failed to start."""
        self._load()
        return list(self._tools.values()) if self.usable and self.failure is None else []

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, listing the tools once if need be; raises if it cannot be used or started."""
        self._check_usable()
        self._load()
        if name not in self._tools and not self._asked:
            self.refresh()
        return self._tools.get(name)

    def ask(self, method: str, params: Json, progress: ReportProgress | None = None) -> Json:
        """Return the raw result of a request.

        One that broke off is not repeated, since it may have done its work. Raises as `check_approved` for a tool, as
        `Connection.ask`, or a LocalMCPError if it does not start.
        """

        async def ask(connection: Connection) -> Json:
            if method == "tools/call":
                # The start may have listed other tools.
                self.check_approved(params["name"])
            return await connection.ask(method, params, progress=progress)

        return self._hub.run(self._use, ask)

    def refresh(self) -> int:
        """Start it if need be and read what it offers; return how many tools there are. Raises as `find`."""
        self._check_usable()
        self.learn(self._hub.run(self._use, methodcaller("list_offers")))
        return len(self._tools)

    def _check_usable(self) -> None:
        if self.entry.problem:
            raise ConfigurationError(f"The MCP server '{self.entry.name}' cannot be used: {self.entry.problem}.")

    # ------------------------------------------------------------ the connection, in the hub's event loop

    async def _use(self, request: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Send a request, and again if the server had forgotten the session, or other tokens are to be used."""
        try:
            return await request(await self.connect())
        except SessionLost:
            return await request(await self.connect())

    async def connect(self) -> Connection:
        """Return the live connection; if there is none, one caller opens it for all. Raises as `Connection.open`.

        A server that failed to start a moment ago is left alone.
        """
        from localmcp.hub.client import Connection

        async with self._opening:
            live = self._connection if self._connection is not None and self._connection.alive else None
            if live is not None:
                if live.asks or live.used or client_call().ask_person is None:
                    return live
                # It has only listed, and was told that nobody can be asked.
                await self.close()
            # Of those that waited for the lock, none starts it again.
            if self._hub.closed:
                raise Unavailable("localmcp is closing.")
            if self.retired:
                raise Unavailable(f"The MCP server '{self.entry.name}' is no longer in {servers_file()}.")
            if self.failure is not None and time.monotonic() - self._failed_at < 5.0:
                raise self.failure
            connection = self._connection = Connection(self.entry, self._hub.log_of(self.entry), self._relist)
            try:
                await connection.open()
                self.learn(await connection.list_offers(["tools"]))
            except BaseException as error:
                await connection.close()
                if isinstance(error, LocalMCPError) and not isinstance(error, SessionLost):
                    is_repeated = self.failure is not None and self.failure.message == error.message
                    log.log(logging.INFO if is_repeated else logging.WARNING, "%s", error)
                    self.failure = error
                    # The person may sign in at any moment.
                    self._failed_at = 0.0 if isinstance(error, LoginNeeded) else time.monotonic()
                    self.listed.set()
                raise
            # No call waits for its resources and prompts.
            self._relist()
            return connection

    async def close(self) -> None:
        """End the connection, and a start that is under way."""
        if self._relisting is not None:
            self._relisting.cancel()
        if self._connection is not None:
            await self._connection.close()

    def _relist(self) -> None:
        """List again; several notices in a row cause one more listing at most."""
        self._is_stale = True
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.create_task(self._list_stale())

    async def _list_stale(self) -> None:
        while self._is_stale and self._connection is not None and self._connection.alive:
            self._is_stale = False
            try:
                self.learn(await self._connection.list_offers())
            except LocalMCPError as error:
                log.warning("what '%s' offers cannot be listed: %s", self.entry.name, error)

    # ------------------------------------------------------------ what is known of it

    def _load(self) -> dict[str, list[Json]]:
        with self._lock:
            if self._lists is None:
                kept = read_json_object(self._kept_file)
                self._lists = {kind: [mapping_of(item) for item in list_of(items)] for kind, items in kept.items()}
                if "tools" in self._lists:
                    self._name_tools(self._lists["tools"])
                    self.listed.set()
            return self._lists

    def learn(self, offers: dict[str, list[Json]]) -> None:
        """Take what the server has listed in place of what was known of these kinds."""
        with self._lock:
            old = self._load()
            changed = {kind for kind, items in offers.items() if items != old.get(kind, [])}
            self._lists = {**old, **offers}
            if "tools" in offers:
                self._name_tools(offers["tools"])
                self._asked, self.failure = True, None
        if changed or not self.listed.is_set():
            try:
                write_atomically(self._kept_file, json.dumps(self._lists))
            except OSError as error:
                log.info("what an MCP server offers cannot be kept: %s", error)
        if "tools" in offers:
            self.listed.set()
        for shown in {"resources" if kind == "resourceTemplates" else kind for kind in changed}:
            for listener in self._hub.listeners:
                listener(shown)

    def _name_tools(self, tools: list[Json]) -> None:
        """Take the tools it has listed, with an object as their schema, and in each property, as clients expect.

        Those without a name are left out, and those that only clients that know tasks can call. A tool that did not
        change stays the same object, so that the ranking keeps what it computed for it.
        """
        self._raws = {}
        for tool in tools:
            needs_task = mapping_of(tool.get("execution")).get("taskSupport") == "required"
            if isinstance(tool.get("name"), str) and tool["name"] and not needs_task:
                schema = mapping_of(tool.get("inputSchema"))
                # `true` and `{}` mean the same in JSON Schema.
                properties = {key: mapping_of(value) for key, value in mapping_of(schema.get("properties")).items()}
                schema = {**schema, "type": "object", "properties": properties}
                self._raws[tool["name"]] = {**tool, "inputSchema": schema}
        old, self._tools = self._tools, {}
        for name, own in exposed_names(self.entry.namespace, filter(self.entry.offers, self._raws)).items():
            is_same = name in old and old[name].raw == self._raws[own]
            self._tools[name] = old[name] if is_same else RemoteTool(self, name, self._raws[own])
        self._compare()

    # ------------------------------------------------------------ what the person has approved

    def _definitions(self) -> dict[str, Json]:
        """Return, by its own name, what a model reads of each tool."""
        keys = ("title", "description", "inputSchema", "annotations")
        return {name: {key: tool[key] for key in keys if key in tool} for name, tool in self._raws.items()}

    def _compare(self) -> None:
        """Note what differs from the approved; the first list is approved. Of a damaged file every tool was added."""
        if not self._approved_file.exists():
            self.unapproved = {}
            try:
                self.approve()
            except OSError as error:
                log.warning("changes of tools cannot be noticed: %s", error)
            return
        approved, current = read_json_object(self._approved_file), self._definitions()
        self.unapproved = {name: approved.get(name, {}) for name in current if approved.get(name) != current[name]}

    def approve(self) -> None:
        """Accept the definitions as they are now; raises OSError if the state directory cannot be written."""
        with self._lock:
            self._load()
            write_atomically(self._approved_file, json.dumps(self._definitions()))
            self.unapproved = {}

    def check_approved(self, tool: str) -> None:
        """Raise AccessDenied for a tool that is not as the person approved it, maybe in another process."""
        with self._lock:
            if tool in self.unapproved:
                self._compare()
            if tool not in self.unapproved:
                return
            what = "has changed" if self.unapproved[tool] else "was added"
        raise AccessDenied(
            f"{tool} {what} since the user approved the tools of '{self.entry.name}', and is not run.",
            hint=f"Ask the user to run: {self.entry.approval}",
        )

    def changes(self) -> dict[str, list[str]]:
        """Return a unified diff to what was approved, for each tool that has changed or was added: name -> lines."""
        tools, current, changes = self.tools(), self._definitions(), dict[str, list[str]]()
        for tool in tools:
            approved = self.unapproved.get(tool.raw["name"])
            if approved is not None:
                before, after = (
                    json.dumps(entry, ensure_ascii=False, indent=1, sort_keys=True).splitlines()
                    for entry in (approved, current[tool.raw["name"]])
                )
                names = (f"{tool.name} (approved)", f"{tool.name} (now)")
                changes[tool.name] = [*difflib.unified_diff(before, after, *names, n=1, lineterm="")]
        return changes

    def forget(self) -> None:
        """Remove what is kept of this entry."""
        for file in (self._kept_file, self._approved_file):
            file.unlink(missing_ok=True)

    # ------------------------------------------------------------ its other offers, and how it is doing

    def _offered(self, kind: str) -> list[Json]:
        return [offer for offer in self._load().get(kind, []) if isinstance(offer.get(OFFERS[kind]), str)]

    def prompts(self) -> dict[str, Json]:
        """Return its known prompts by the names that clients see, without starting it."""
        raws = {raw["name"]: raw for raw in self._offered("prompts")}
        return {shown: raws[name] for shown, name in exposed_names(self.entry.namespace, raws).items()}

    def shown_offers(self, kind: str) -> list[Json]:
        """Return its known `resources`, `resourceTemplates` or `prompts` as clients see them, without starting it."""
        if kind == "prompts":
            return [{**raw, "name": name} for name, raw in self.prompts().items()]
        namespace = self.entry.namespace
        if kind == "resources":
            return [{**raw, "uri": shown_address(namespace, raw["uri"])} for raw in self._offered(kind)]
        begin = f"{SERVER_ADDRESS}{namespace}/="
        return [{**raw, "uriTemplate": begin + raw["uriTemplate"]} for raw in self._offered(kind)]

    @property
    def condition(self) -> str:
        """`running`, `starting`, `not running`, `failed`, `disabled` or `unusable`."""
        if self.entry.is_off or self.entry.problem:
            return "disabled" if self.entry.is_off else "unusable"
        if self.failure is not None:
            return "failed"
        if self._connection is not None and self._connection.alive:
            return "running"
        return "starting" if self._opening.locked() else "not running"

    @property
    def known_tools(self) -> int | None:
        """How many tools it is known to offer; None when it was never listed."""
        if not self.usable:
            return 0
        return len(self._tools) if "tools" in self._load() else None

    @property
    def problem(self) -> LocalMCPError | None:
        """Why it cannot be used: its entry, a variable, or its last start."""
        if self.entry.is_off:
            return None
        try:
            self._check_usable()
            prepare(self.entry)
        except LocalMCPError as error:
            return error
        return self.failure
