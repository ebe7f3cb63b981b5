"""Shared by stdio and HTTP: open the workspace once, close it in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from localmcp.errors import LocalMCPError

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)


def close_within(seconds: float, close: Callable[[], object]) -> None:
    """Run `close`, and wait at most that long for it: abandoned calls may still use the workspace."""
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(seconds)


class OpenOnce:
    """Opens the workspace when it is first needed; after a failure the next call tries again."""

    def __init__(self, open_workspace: Callable[[], Workspace]) -> None:
        self._open = open_workspace
        self._lock = threading.Lock()
        self.opened: Workspace | None = None

    def __call__(self) -> Workspace:
        with self._lock:
            if self.opened is None:
                self.opened = self._open()
            return self.opened

    def prepare(self) -> None:
        """Open it before the first call; why it cannot be opened is logged, and told by each call."""
        try:
            self()
        except LocalMCPError as error:
            log.warning("the workspace cannot be opened: %s", error)
        except Exception:
            log.exception("the workspace cannot be opened")
