"""All servers of the user's `mcp.json`: started, listed, supervised and ended together."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from localmcp.config import servers_file
from localmcp.errors import CallGivenUp, ConfigurationError, LocalMCPError, NotFound, Unavailable
from localmcp.files import Signature, signature_at
from localmcp.hub.approval import ApprovedDefinitions
from localmcp.hub.catalog import SEPARATOR, CatalogCache
from localmcp.hub.offers import ServerOffers
from localmcp.humanize import choices
from localmcp.tools import Provider, Registry, Tool, call_cancellation, current_scope

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from localmcp.hub.client import ServerClient
    from localmcp.hub.entries import ServerEntry
    from localmcp.hub.server import McpServer
    from localmcp.own_tools.problems import Problem, ProviderState

log = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_LISTING_SECONDS = 1.5
"""How long the first search waits, in all, for servers whose tools are not yet known."""
CLOSING_SECONDS, STOPPING_SECONDS = 1.8, 1.0
"""For the servers to end, and for the loop when those that have not are killed."""
MOST_LOG_BYTES = 8000
"""Of the end of a log that is looked at."""


class McpServers:
    """The user's MCP servers; nothing is started before it is needed. Thread-safe."""

    name = "mcp"
    only_hidden = True

    def __init__(self, cache: Path, state: Path, registry: Registry | None = None) -> None:
        """
        Args:
            cache: the folder of the cache directory for the lists of tools.
            state: the folder of the state directory for the servers' logs; beside it is what was approved.
            registry: gets one provider for each server, `mcp:NAME`, and this one, `mcp`, which follows the file: what
                the person changes there counts from the next listing on.
        """
        self.cache = CatalogCache(cache)
        self.approved = ApprovedDefinitions(state.parent / "approved-tools")
        self.change_listeners: list[Callable[[], None]] = []
        """Called when the tools of a server have changed; from another thread, so they must be quick."""
        self.offer_listeners: list[Callable[[str], None]] = []
        """Called likewise with `resources` or `prompts` when such a list has changed."""
        self._logs = state
        self._registry = registry
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._signature: Signature | None = None
        self._runner: asyncio.Runner | None = None
        """Has the event loop in which every connection lives."""
        self._thread: threading.Thread | None = None
        self._clients: dict[McpServer, ServerClient] = {}
        self._closed = False
        self._patience_ends: float | None = None
        self.problem: ConfigurationError | None = None
        """Why the file cannot be used at all; the servers that it had before stay."""
        self.servers: dict[str, McpServer] = {}
        if registry is not None:
            registry.add_provider(self)
            registry.offers.append(ServerOffers(self))
        self.follow_file()

    # ------------------------------------------------------------ the file

    def follow_file(self) -> list[McpServer]:
        """Read the file if it has changed; return the servers that are new or changed."""
        signature = signature_at(servers_file())
        if signature == self._signature:
            return []
        with self._reading:
            if signature == self._signature:
                return []
            self._signature = signature
            # A person without other servers does not pay for these imports.
            from localmcp.hub.entries import read_entries

            try:
                entries = with_own_namespaces(read_entries())
                self.problem = None
            except ConfigurationError as error:
                log.warning("%s", error)
                self.problem = error
                return []
            return self._replace(entries)

    def _replace(self, entries: list[ServerEntry]) -> list[McpServer]:
        from localmcp.hub.server import McpServer

        old = self.servers
        unchanged = {
            entry.name: old[entry.name] for entry in entries if entry.name in old and old[entry.name].entry == entry
        }
        new = [McpServer(entry, self) for entry in entries if entry.name not in unchanged]
        self.servers = {**unchanged, **{server.entry.name: server for server in new}}
        for server in new:
            if self._registry is not None:
                self._registry.add_provider(server)
        for server in old.values():
            if server not in unchanged.values():
                self._retire(server)
        return new

    def _retire(self, server: McpServer) -> None:
        server.retired = True
        if self._registry is not None:
            self._registry.remove_provider(server)
        with self._lock:
            client = self._clients.pop(server, None)
        if client is not None:
            self.start(client.close())

    # ------------------------------------------------------------ the provider that follows the file

    def tools(self) -> Iterable[Tool]:
        """Return the tools of new servers, which the listing under way does not have among its providers yet."""
        return [tool for provider in self.follow_file() for tool in provider.tools()]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name of a new server.

        Raises:
            ConfigurationError: the name may be that of a server's tool, and the file cannot be read.
        """
        if SEPARATOR not in name:
            return None
        matching_tool = next((tool for provider in self.follow_file() if (tool := provider.find(name))), None)
        has_server = any(name.startswith(server.prefix) for server in self.servers.values())
        if matching_tool is None and self.problem is not None and not has_server:
            raise self.problem
        return matching_tool

    def state(self) -> ProviderState:
        """Return the state of the file; each server has a separate state."""
        from localmcp.own_tools.problems import ProviderState

        problems = tuple(self.check())
        state = "failing" if problems else ("ready" if self.servers else "empty")
        return ProviderState(self.name, state, 0, str(servers_file()), f"servers: {len(self.servers)}", problems)

    def check(self) -> list[Problem]:
        """Return what is wrong with the file as a whole."""
        from localmcp.own_tools.problems import Problem

        return [Problem(str(servers_file()), None, self.problem.message, self.problem.hint)] if self.problem else []

    def providers(self) -> list[Provider]:
        """Return this one, and one provider for each server."""
        return [self, *self.servers.values()]

    # ------------------------------------------------------------ for the commands and the interfaces

    def server(self, name: str) -> McpServer:
        """Return the server of that name in the file.

        Raises:
            NotFound: there is none; the message names those that there are.
        """
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
        with ThreadPoolExecutor(max_workers=max(1, len(names)), thread_name_prefix="localmcp-refresh") as pool:
            return dict(zip(names, pool.map(refresh_server, names), strict=True))

    def remove(self, names: Sequence[str]) -> Path:
        """Remove servers from the file, and what is kept of them: tools, approved definitions, login; return the file.

        Raises:
            NotFound: there is no server of such a name; none is removed then.
        """
        from localmcp.hub.auth import forget_login
        from localmcp.hub.entries import write_entries

        removed = [self.server(name).entry for name in names]
        path = write_entries(dict.fromkeys(names))
        for entry in removed:
            self.cache.forget(entry.digest)
            self.approved.forget(entry.digest)
            forget_login(entry)
        return path

    def log_end(self, server: McpServer) -> list[str]:
        """Return the last 12 lines that a server wrote to its log, in any process; none if it wrote nothing."""
        try:
            with self._log_of(server.entry).open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - MOST_LOG_BYTES, 0))
                return file.read().decode(errors="replace").splitlines()[-12:]
        except OSError:
            return []

    def _log_of(self, entry: ServerEntry) -> Path:
        return self._logs / f"mcp-{entry.namespace}.log"

    def introduction(self, *, words: int = 5, ending: bool = True, characters: int = 1000) -> str:
        """Return what the caller's servers are for, in at most 60 words; nothing is started for it.

        The arguments are those of `introduce`.
        """
        if not self.servers:
            return ""
        from localmcp.hub.introduction import introduce

        scope = current_scope()
        introduced = [server.introduced() for server in self.reachable() if server.has_tool_for(scope)]
        ending = ending and scope.names("tool_search", "execute_tool")
        return introduce(introduced, words=words, ending=ending, characters=characters)

    def starting(self) -> list[str]:
        """Return the names of the servers that the caller may use and whose tools are not known yet."""
        self.follow_file()
        return [server.entry.name for server in self.reachable() if server.known_tools is None and not server.failure]

    def reachable(self) -> list[McpServer]:
        names = current_scope().provider_names
        return [server for server in self.servers.values() if server.usable and (names is None or server.name in names)]

    def close(self) -> None:
        """End every server that was started; what has not ended within CLOSING_SECONDS is killed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            runner, thread, clients = self._runner, self._thread, list(self._clients.values())
        if runner is None or thread is None:
            return
        import asyncio

        loop = runner.get_loop()
        try:
            asyncio.run_coroutine_threadsafe(_close_all(clients), loop).result(CLOSING_SECONDS)
        except TimeoutError:
            log.info("some MCP servers take long to end and are killed")
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(STOPPING_SECONDS)

    # ------------------------------------------------------------ the runtime of the servers

    def client_of(self, server: McpServer) -> ServerClient:
        """Return the client of this server.

        The first one imports the MCP SDK, which takes most of a second.
        """
        with self._lock:
            if server.retired:
                raise Unavailable(f"The MCP server '{server.entry.name}' is no longer in {servers_file()}.")
            if self._closed:
                raise Unavailable("localmcp is closing.")
            client = self._clients.get(server)
            if client is None:
                from localmcp.hub.client import ServerClient
                from localmcp.hub.program import ServerLog

                client = self._clients[server] = ServerClient(server, ServerLog(self._log_of(server.entry)))
            return client

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a coroutine in the background loop; it is cancelled if the caller or its client gives up.

        Raises:
            CallGivenUp: the client gave up.
            Unavailable: localmcp is closing.
        """
        from concurrent.futures import CancelledError

        future = self.start(coroutine)
        cancellation = call_cancellation()
        if cancellation is not None:
            cancellation.on_cancel(future.cancel)
        try:
            return future.result()
        except CancelledError as error:
            if cancellation is not None and cancellation.cancelled:
                raise CallGivenUp("The client has given the call up.") from error
            raise Unavailable("localmcp is closing.") from error
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine in the background loop.

        Raises:
            Unavailable: localmcp is closing.
        """
        import asyncio

        with self._lock:
            if self._closed:
                coroutine.close()
                raise Unavailable("localmcp is closing.")
            if self._runner is None:
                self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                # A daemon, so that a program can end without `close`.
                serve = threading.Thread(target=_serve, args=(self._runner,), name="localmcp-mcp-servers", daemon=True)
                self._thread = serve
                loop = self._runner.get_loop()
                serve.start()
            else:
                loop = self._runner.get_loop()
            return asyncio.run_coroutine_threadsafe(coroutine, loop)

    def wait_for_listing(self, server: McpServer) -> None:
        """Start every server that this caller may see and that was never listed, and wait for `server`.

        All waits in the life of the process together take FIRST_LISTING_SECONDS at most. A language model does not
        wait: it is told which servers are still starting.
        """
        for reachable in self.reachable():
            if not reachable.listed.is_set():
                reachable.start()
        if server.failure is not None:
            server.start()
        if server.failure is not None or current_scope().lean:
            return
        with self._lock:
            now = time.monotonic()
            if self._patience_ends is None:
                self._patience_ends = now + FIRST_LISTING_SECONDS
            patience = self._patience_ends - now
        if not server.listed.wait(max(0.0, patience)) and patience > 0:
            log.warning("%s is still starting; its tools are found a little later", server.name)


async def _close_all(clients: list[ServerClient]) -> None:
    import asyncio

    await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)


def _serve(runner: asyncio.Runner) -> None:
    """Run the loop until it is stopped; its runner then cancels what still runs in it."""
    with runner:
        runner.get_loop().run_forever()


def with_own_namespaces(entries: Iterable[ServerEntry]) -> list[ServerEntry]:
    """Return the entries, no two with one namespace.

    Of several, the one whose name is the namespace keeps it, and the others get a digest.
    """
    import hashlib
    from dataclasses import replace

    from localmcp.hub.entries import normalise_namespace

    used_names: set[str] = set()
    unique_entries: list[ServerEntry] = []
    for server_entry in sorted(entries, key=lambda entry: (entry.namespace != entry.name, entry.name)):
        namespace = server_entry.namespace or normalise_namespace(server_entry.name)
        if namespace in used_names:
            namespace = f"{namespace[:17]}_{hashlib.sha256(server_entry.name.encode()).hexdigest()[:6]}"
        used_names.add(namespace)
        unique_entries.append(replace(server_entry, namespace=namespace))
    return sorted(unique_entries, key=lambda entry: entry.name)
