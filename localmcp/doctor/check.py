"""The result of one check, and the running of checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import apsw

from localmcp.errors import LocalMCPError
from localmcp.visible_text import visible

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    """`warn`: it works, but should be looked at. `fail`: something does not work, or the file is not sound."""
    says: str
    fix: str = ""
    """The command that fixes it; empty when nothing has to be done, or no command can."""


def ok(name: str, says: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, "ok", says)


def warn(name: str, says: str, fix: str = "") -> Check:
    """Return a check of what works, but should be looked at."""
    return Check(name, "warn", says, fix)


def fail(name: str, says: str, fix: str = "") -> Check:
    """Return a check of what does not work."""
    return Check(name, "fail", says, fix)


def looked(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Yield the checks that `look` makes; a fault on the way becomes the last of them.

    What they say may come from files of others: characters that control a terminal are made visible.
    """
    try:
        for check in look():
            yield Check(check.name, check.status, visible(check.says), visible(check.fix))
    except LocalMCPError as error:
        yield fail(name, visible(str(error)))
    except (apsw.Error, OSError, ValueError, TypeError, LookupError) as error:
        log.debug("the check %s failed", name, exc_info=True)
        yield fail(name, visible(f"could not be looked at: {type(error).__name__}: {error}"[:300]))
