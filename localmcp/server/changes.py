"""Who is told of which change: clients that listen (2026-07-28), and sessions of the handshake era.

Documents and the lists of a caller who sees a part of the file are compared when the file's counter of changes has
moved, each in the scope of whoever listens: nobody learns of changes in collections that are closed to them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.subscriptions import event_to_notification
from mcp.types import INVALID_PARAMS

from localmcp.errors import LocalMCPError
from localmcp.server.offers import OwnOffer
from localmcp.tools import Scope, use_scope

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

WATCH_SECONDS = 2.0
"""Between two looks at the file's counter of changes."""
MOST_WATCHED = 1000
"""Documents that one client watches: each is looked at after every change."""
LISTS = {"tools": ToolsListChanged(), "prompts": PromptsListChanged(), "resources": ResourcesListChanged()}
_LISTENER = "localmcp/listener"
"""In the state of a connection of the handshake era."""

Context = ServerRequestContext[Any]


@dataclass(eq=False)
class Listener:
    """One client that is told of changes; the SDK's handler of `subscriptions/listen` takes it for its bus."""

    listeners: set[Listener]
    scope: Scope
    documents: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Watched address -> its last known state; None for one that is not ours, or not there."""
    lists: dict[str, str] = field(default_factory=dict[str, str])
    """`resources` and `prompts` -> the last known state, for a caller who sees a part of the file."""
    pending: list[ServerEvent] = field(default_factory=list[ServerEvent])
    """What happened before the client could be told."""

    def __post_init__(self) -> None:
        self.deliver: Callable[[ServerEvent], None] = self.pending.append

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Begin to be told, through `listener`; returns what ends it."""
        self.deliver = listener
        self.listeners.add(self)
        for event in self.pending:
            listener(event)
        return lambda: self.listeners.discard(self)

    async def publish(self, event: ServerEvent) -> None:
        """Tell this listener."""
        self.deliver(event)


class Changes:
    """The listeners of one server. Used in its event loop, but for `publish`."""

    def __init__(self, open_workspace: Callable[[], Workspace], scope: Callable[[], Scope]) -> None:
        """`scope`: returns that of the request under way."""
        self._open_workspace = open_workspace
        self._scope = scope
        self._listeners: set[Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._sends: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ listeners

    def _own_scope(self) -> Scope:
        """Return the scope of the request under way, as it is kept beyond the request."""
        return replace(self._scope(), providers=())

    def listener_of(self, ctx: Context) -> Listener:
        """Return the listener of a session of the handshake era, which is told of changes until the session ends."""
        self._loop = asyncio.get_running_loop()
        # Handlers may keep state and push cleanup there, says the SDK, but it gives them no public way to it.
        connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        if (known := connection.state.get(_LISTENER)) is not None:
            return known
        listener = Listener(self._listeners, self._own_scope())

        def deliver(event: ServerEvent) -> None:
            if not isinstance(event, ResourceUpdated) or event.uri in listener.documents:
                message = event_to_notification(event, {}).model_dump(by_alias=True, mode="json", exclude_none=True)
                sending = asyncio.create_task(connection.notify(message["method"], message.get("params")))
                self._sends.add(sending)
                sending.add_done_callback(self._sends.discard)

        connection.state[_LISTENER] = listener
        connection.exit_stack.callback(self._listeners.discard, listener)
        listener.subscribe(deliver)
        return listener

    @contextlib.asynccontextmanager
    async def listening(self, uris: Collection[str]) -> AsyncGenerator[Listener]:
        """Give a listener that watches these documents until the block ends.

        Raises:
            MCPError, LocalMCPError: as `watch`.
        """
        listener = Listener(self._listeners, self._own_scope())
        try:
            await self.watch(listener, uris)
            yield listener
        finally:
            self._listeners.discard(listener)

    async def watch(self, listener: Listener, uris: Collection[str]) -> None:
        """Tell the listener from now on when one of these documents changes, or a list.

        Raises:
            MCPError: it would watch more than MOST_WATCHED.
            LocalMCPError: a connected server refuses.
        """
        if len(listener.documents.keys() | set(uris)) > MOST_WATCHED:
            raise MCPError(INVALID_PARAMS, f"At most {MOST_WATCHED} documents are watched at a time.")
        self._loop = asyncio.get_running_loop()
        self._listeners.add(listener)
        # Before the state of what is watched is noted: a change between the two would be reported to nobody.
        generation = await anyio.to_thread.run_sync(self._generation)
        if self._watcher is None or self._watcher.done():
            self._watcher = self._loop.create_task(self._watch(generation))
        await anyio.to_thread.run_sync(self._note, listener, tuple(uris))

    def forget(self, listener: Listener, uri: str) -> None:
        """Tell the listener no more of this document."""
        listener.documents.pop(uri, None)

    # ------------------------------------------------------------ changes

    def publish(self, changed: str) -> None:
        """Tell of a change of a list (`tools`, `prompts` or `resources`); may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, LISTS[changed])

    def _deliver(self, event: ServerEvent) -> None:
        for listener in tuple(self._listeners):
            listener.deliver(event)

    async def _watch(self, last_generation: int) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            generation = await anyio.to_thread.run_sync(self._generation)
            if generation == last_generation:
                continue
            last_generation = generation
            for listener in tuple(self._listeners):
                for event in await anyio.to_thread.run_sync(self._changes_for, listener):
                    listener.deliver(event)

    def _generation(self) -> int:
        """Return the file's counter of changes; 0 as long as it cannot be opened."""
        with contextlib.suppress(LocalMCPError):
            return self._open_workspace().content_generation()
        return 0

    def _note(self, listener: Listener, uris: tuple[str, ...]) -> None:
        """Note the state of what is watched; connected servers refuse theirs."""
        with use_scope(listener.scope):
            registry = self._open_workspace().registry
            own = OwnOffer(registry)
            for uri in uris:
                listener.documents[uri] = own.state(uri)
                any(offer.subscribe(uri) for offer in registry.offers)
            if listener.scope.collections is not None:
                listener.lists = {kind: own.list_state(kind) for kind in ("resources", "prompts")}

    def _changes_for(self, listener: Listener) -> list[ServerEvent]:
        """Return what the listener has not been told yet."""
        events: list[ServerEvent] = []
        with use_scope(listener.scope), contextlib.suppress(LocalMCPError):
            own = OwnOffer(self._open_workspace().registry)
            for uri, before in tuple(listener.documents.items()):
                if (after := own.state(uri)) != before:
                    listener.documents[uri] = after
                    events.append(ResourceUpdated(uri=uri))
            for kind in ("resources", "prompts"):
                state = own.list_state(kind) if listener.scope.collections is not None else None
                if state is None or listener.lists.get(kind) != state:
                    events.append(LISTS[kind])
                if state is not None:
                    listener.lists[kind] = state
        return events
