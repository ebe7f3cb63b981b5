"""What every part of the server needs: the workspace opened once, incidents in the log, texts that UTF-8 can carry."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from localmcp.errors import LocalMCPError
from localmcp.tools import Registry

log = logging.getLogger(__name__)


class HasRegistry(Protocol):
    """What a workspace must offer to be listed and called."""

    @property
    def registry(self) -> Registry: ...


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
