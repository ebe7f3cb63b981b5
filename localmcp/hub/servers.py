"""All servers of the user's `mcp.json`: the one provider of their tools, and the event loop that they live in.

Their resources and prompts are under their namespaces. They are listed from what is cached, and read from the server. A
resource `file:///a` of the server `shop` is `localmcp://server/shop/file%3A%2F%2F%2Fa`, a prompt `greet` is
`shop__greet`. A template `file:///{path}` is `localmcp://server/shop/=file:///{path}`: what follows `=` is not quoted,
so that clients can fill in the variables.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from localmcp.config import servers_file
from localmcp.errors import CallGivenUp, ConfigurationError, LocalMCPError, NotFound, Unavailable
from localmcp.files import Signature, signature_at
from localmcp.humanize import choices
from localmcp.schemas import Json
from localmcp.tools import Registry, Tool, client_call, current_scope

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from localmcp.hub.entries import ServerEntry
    from localmcp.hub.server import McpServer

log = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_LISTING_SECONDS = 1.5
"""How long the first search waits, in all, for servers whose tools are not yet known."""
MOST_WORDS = 40
"""Of the list of servers."""


class McpServers:
    """The user's MCP servers; nothing is imported or started before it is needed. Thread-safe."""

    name = "mcp"
    only_hidden = True

    def __init__(self, cache: Path, state: Path, registry: Registry | None = None) -> None:
        """`cache` is for what servers offer, `state` for their logs; the registry gets this, and their offers."""
        self.folders = cache, state.parent / "approved-tools"
        """Of what servers offered last, and of the tools that the person approved: what only saves time may be deleted.
        Processes may share them."""
        self.listeners: list[Callable[[str], None]] = []
        """Called with `tools`, `resources` or `prompts` when that list of a server has changed; from another thread, so
        they must be quick."""
        self.problem: ConfigurationError | None = None
        """Why the file cannot be used at all; the servers that it had before stay."""
        self._logs = state
        self._lock = threading.RLock()
        self._signature: Signature | None = None
        self._servers: dict[str, McpServer] = {}
        self._running = ExitStack()
        self._portal: BlockingPortal | None = None
        """To the event loop in which every connection lives."""
        self.closed = False
        self._has_waited = False
        if registry is not None:
            registry.add_provider(self)
            registry.offers.append(self)

    @property
    def servers(self) -> dict[str, McpServer]:
        """The servers by name, as the file has them now: what the person changes there counts at once."""
        signature = signature_at(servers_file())
        with self._lock:
            if signature != self._signature:
                self._read_file()
                self._signature = signature
            return self._servers

    def _read_file(self) -> None:
        from localmcp.hub.entries import read_entries
        from localmcp.hub.server import McpServer

        try:
            entries = read_entries()
            self.problem = None
        except ConfigurationError as error:
            log.warning("%s", error)
            self.problem = error
            return
        before, self._servers = self._servers, {}
        for entry in entries:
            server = before.get(entry.name)
            self._servers[entry.name] = server if server and server.entry == entry else McpServer(entry, self)
        for name, server in before.items():
            if self._servers.get(name) is not server:
                server.retired = True
                if self._portal is not None:
                    self._portal.start_task_soon(server.close)

    def reachable(self) -> list[McpServer]:
        """Return the servers that the caller may use."""
        names = current_scope().provider_names
        return [server for server in self.servers.values() if server.usable and (names is None or server.name in names)]

    def tools(self) -> Iterable[Tool]:
        """Return the tools that the servers are known to have.

        Those that were never listed are started, and the first search waits for them, but not long; a language model
        does not wait, for it is told which servers are still starting.
        """
        servers = self.reachable()
        missing = [server for server in servers if server.known_tools is None or server.failure]
        for server in missing:
            self._open_portal().start_task_soon(server.connect)
        if missing and not current_scope().lean and not self._has_waited:
            self._has_waited = True
            end = time.monotonic() + FIRST_LISTING_SECONDS
            late = [server.name for server in missing if not server.listed.wait(max(0.0, end - time.monotonic()))]
            if late:
                log.warning("%s: still starting; their tools are found a little later", ", ".join(late))
        return [tool for server in servers for tool in server.tools()]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name; raises as `McpServer.find`, ConfigurationError if the file cannot be used."""
        if "__" not in name:
            return None
        names = current_scope().provider_names
        for server in self.servers.values():
            is_allowed = names is None or server.name in names
            if name.startswith(server.prefix) and is_allowed and not server.entry.is_off:
                return server.find(name)
        if self.problem is not None:
            raise self.problem
        return None

    def server(self, name: str) -> McpServer:
        """Return the server of that name in the file; raises NotFound, which names those that there are."""
        if name not in self.servers:
            raise NotFound(f"There is no MCP server '{name}'.", hint=choices(self.servers))
        return self.servers[name]

    def refresh(self, names: Iterable[str]) -> dict[str, int | LocalMCPError]:
        """Start these servers side by side and read their tools; return name -> how many, or why not."""
        from concurrent.futures import ThreadPoolExecutor

        def refresh_server(name: str) -> int | LocalMCPError:
            try:
                return self.server(name).refresh()
            except LocalMCPError as error:
                return error

        names = list(names)
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            return dict(zip(names, pool.map(refresh_server, names), strict=True))

    def remove(self, names: Sequence[str]) -> Path:
        """Remove servers, and what is kept of them: tools, approved definitions, login; return the file of servers."""
        from localmcp.hub.auth import forget_login
        from localmcp.hub.entries import write_entries

        removed = [self.server(name) for name in names]
        path = write_entries(dict.fromkeys(names))
        for server in removed:
            server.forget()
            forget_login(server.entry)
        return path

    def log_of(self, entry: ServerEntry) -> Path:
        """Return the file that keeps what a server writes to stderr."""
        return self._logs / f"mcp-{entry.namespace}.log"

    def log_end(self, server: McpServer) -> list[str]:
        """Return the last 12 lines that a server wrote to its log, in any process; none if it wrote nothing."""
        try:
            return self.log_of(server.entry).read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
        except OSError:
            return []

    def introduction(self, *, ending: bool = True, characters: int = 1000) -> str:
        """Return one paragraph with the caller's servers and what they are for; nothing is started for it.

        The last are only counted where it would be too long; `ending` says how their tools are found and run.
        """
        scope = current_scope()
        shown: list[str] = []
        for server in self.reachable():
            if scope.tools is None or any(tool.name in scope.tools for tool in server.tools()):
                name = _plain_words(server.entry.name, 3).replace(" ", "-") or "unnamed"
                purpose = _plain_words(server.entry.description, 8)
                shown.append(f"{name} ({purpose})" if purpose else name)
        if not shown:
            return ""
        text, count = "", len(shown)
        while count >= 0 and (not text or len(text) > characters or len(text.split()) > MOST_WORDS):
            more = [f"{len(shown) - count} more"] if count < len(shown) else []
            text = f"Connected servers: {'; '.join([*shown[:count], *more])}."
            count -= 1
        if ending and scope.names("tool_search", "execute_tool"):
            text += " Find their tools with tool_search by capability, verb and object; run them with execute_tool."
        return text

    def starting(self) -> list[str]:
        """Return the names of the servers that the caller may use and whose tools are not known yet."""
        return [server.entry.name for server in self.reachable() if server.known_tools is None and not server.failure]

    def _offering(self) -> list[McpServer]:
        # A caller that may use only some tools gets nothing else of other servers.
        return self.reachable() if current_scope().tools is None else []

    def page(self, kind: str, offset: int) -> tuple[list[Json], int | None]:
        """Return `resources`, `resourceTemplates` or `prompts` from the offset on, and the offset of the next page."""
        items = [item for server in self._offering() for item in server.shown_offers(kind)]
        following = offset + 50
        return items[offset:following], following if following < len(items) else None

    def read(self, uri: str) -> Json | None:
        """Return the contents of a resource, or a result in which the server asks the person; None: not of a server.

        Reading, prompts and completion start the server, and raise a LocalMCPError where it does not start or refuses.
        """
        server, own_uri = self._locate({"uri": uri})
        if server is None:
            return None
        result = server.ask("resources/read", {"uri": own_uri})
        contents = [{**content, "uri": uri} for content in result.get("contents", [])]
        return result if "inputRequests" in result else {"contents": contents}

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt, or a result in which the server asks; None: not of a server."""
        server, own_name = self._locate({"name": name})
        return server and server.ask("prompts/get", {"name": own_name, "arguments": arguments})

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return what the server proposes for an argument of its prompt or template, and how much more there is."""
        server, own = self._locate(ref)
        if server is None:
            return None
        own_ref = {"type": ref["type"], "uri" if "uri" in ref else "name": own}
        asked = {"ref": own_ref, "argument": {"name": argument, "value": value}}
        return server.ask("completion/complete", asked).get("completion")

    def _locate(self, ref: Json) -> tuple[McpServer | None, str]:
        """Return the server that has a resource (`uri`) or prompt (`name`), and its own address or name of it."""
        from localmcp.hub.server import SERVER_ADDRESS

        namespace, _, address = str(ref.get("uri")).removeprefix(SERVER_ADDRESS).partition("/")
        for server in self._offering():
            if "uri" in ref and str(ref["uri"]).startswith(SERVER_ADDRESS) and server.entry.namespace == namespace:
                return server, address[1:] if address.startswith("=") else unquote(address)
            if "name" in ref and (raw := server.prompts().get(ref["name"])) is not None:
                return server, raw["name"]
        return None, ""

    def run(self, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        """Return what an asynchronous function returns; raises CallGivenUp, Unavailable while localmcp is closing."""
        from concurrent.futures import CancelledError

        future = self._open_portal().start_task_soon(function, *arguments)
        cancellation = client_call().cancellation
        if cancellation is not None:
            cancellation.add_done_callback(lambda _: future.cancel())
        try:
            return future.result()
        except CancelledError as error:
            if cancellation is not None and cancellation.cancelled():
                raise CallGivenUp("The client has given the call up.") from error
            raise Unavailable("localmcp is closing.") from error
        except BaseException:
            future.cancel()
            raise

    def _open_portal(self) -> BlockingPortal:
        """Return the way into the event loop, which from now on has its own thread."""
        with self._lock:
            if self.closed:
                raise Unavailable("localmcp is closing.")
            if self._portal is None:
                from anyio.from_thread import start_blocking_portal

                self._portal = self._running.enter_context(start_blocking_portal(name="localmcp-mcp-servers"))
            return self._portal

    def close(self) -> None:
        """End every server that was started."""
        with self._lock:
            self.closed = True
        if self._portal is None:
            return
        for future in [self._portal.start_task_soon(server.close) for server in self._servers.values()]:
            future.result()
        with self._running:
            self._portal.start_task_soon(self._portal.stop, True)
        self._portal = None


def _plain_words(text: str, most: int) -> str:
    """Return the first words of others' text, without markup, links and further sentences."""
    words = re.sub(r"[^\w' -]+", " ", text.splitlines()[0] if text else "").split()
    return " ".join(word[:24] for word in words[:most])
