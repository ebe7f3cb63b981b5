"""Notifications of changes, each to those listeners alone who may know of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import anyio.lowlevel
from mcp.server.subscriptions import ServerEvent

from localmcp.tools import Scope

log = logging.getLogger(__name__)

Listener = Callable[[ServerEvent], None]
Admits = Callable[[Scope], bool]
"""Whether a listener of that scope is told."""


def everybody(_scope: Scope) -> bool:
    """Admit every listener."""
    return True


class ChangeBus:
    """The SDK's bus, which knows the scope of each listener. Used in one event loop."""

    def __init__(self, scope: Callable[[], Scope]) -> None:
        """`scope`: returns that of the request under way."""
        self._scope = scope
        self._listeners: dict[object, tuple[Listener, Scope]] = {}

    def own_scope(self) -> Scope:
        """Return the scope of the request under way, to compare it with others."""
        return replace(self._scope(), providers=())

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register a listener in the scope of its request; returns what takes it away."""
        token = object()
        self._listeners[token] = (listener, self.own_scope())

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe

    async def publish(self, event: ServerEvent, admits: Admits = everybody) -> None:
        """Deliver an event to the admitted listeners; one that fails keeps it from no other."""
        for listener, scope in tuple(self._listeners.values()):
            if not admits(scope):
                continue
            try:
                listener(event)
            except Exception:
                log.exception("a listener could not be told of a change")
        # As the SDK's: between two events the streams are written.
        await anyio.lowlevel.checkpoint()
