"""What every part of the server needs: the workspace opened once, incidents in the log, texts that UTF-8 can carry."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

from localmcp.errors import LocalMCPError
from localmcp.tools import Registry

log = logging.getLogger(__name__)


class HasRegistry(Protocol):
    """What a workspace must offer to be listed and called."""

    @property
    def registry(self) -> Registry: ...


@runtime_checkable
class TellsOfChanges(HasRegistry, Protocol):
    """A workspace whose providers' tools can change while it is open."""

    def on_tools_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener`, from any thread, after each change."""
        ...

    def on_offers_changed(self, listener: Callable[[str], None]) -> None:
        """The same for resources and prompts; `listener` gets what `ToolServer.publish_change` takes."""
        ...


def pass_on_changes(workspace: TellsOfChanges, publish: Callable[[str], None]) -> None:
    """Tell clients of changes; tools that tools/list does not show may change without a word."""
    registry = workspace.registry
    workspace.on_tools_changed(lambda: publish("tools") if registry.show_all else None)
    workspace.on_offers_changed(publish)


def close_within(seconds: float, close: Callable[[], object]) -> None:
    """Run `close`, but wait for it at most so many seconds: abandoned calls may still use the workspace."""
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(seconds)


Workspace = TypeVar("Workspace", bound=HasRegistry)


class OpenOnce(Generic[Workspace]):
    """Opens the workspace when it is first needed; a failed attempt is made again by the next call."""

    def __init__(self, open_workspace: Callable[[], Workspace]) -> None:
        self._open = open_workspace
        self._lock = threading.Lock()
        self.opened: Workspace | None = None

    def __call__(self) -> Workspace:
        with self._lock:
            if self.opened is None:
                self.opened = self._open()
            return self.opened


def log_incident(name: str) -> str:
    """Log the exception that is being handled; what the client is told instead of it."""
    incident = secrets.token_hex(4)
    log.exception("%s failed (incident %s)", name, incident)
    return f"{name} failed unexpectedly (incident {incident}). The server's log tells more."


def message_of(error: LocalMCPError) -> str:
    """Return the error's sentence and its next step, on separate lines."""
    return f"{error.message}\n{error.hint}" if error.hint else error.message
