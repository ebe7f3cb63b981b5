"""All checks together, for the command line and the terminal interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import apsw

from localmcp.config import Settings
from localmcp.doctor import configuration
from localmcp.doctor.check import Check, looked
from localmcp.doctor.checks import (
    check_contents,
    check_file,
    check_installation,
    check_model,
    check_place,
    check_writable,
)
from localmcp.errors import LocalMCPError
from localmcp.files import is_filled
from localmcp.storage.database import fetch_all
from localmcp.workspace import Workspace

Look = Callable[[], Iterable[Check]]


@dataclass(frozen=True, slots=True)
class Examination:
    """The results of the checks, and the sizes of the tables."""

    checks: Sequence[Check]
    sizes: Sequence[tuple[str, int]] = ()
    """(table, bytes), the largest first."""


def run_checks(target: Workspace | Settings) -> list[Check]:
    """Run every check; changes nothing, and makes no file. Settings are enough where no file is open.

    1 s for the model, and 3 s for 100,000 passages.
    """
    if isinstance(target, Workspace):
        return list(_checks(target))
    with Workspace(target, read_only=True) as workspace:
        return list(_checks(workspace))


def examine(workspace: Workspace) -> Examination:
    """Return the checks, and the sizes of the tables with their indexes where SQLite can measure them."""
    sql = """
        select tbl_name, sum(pgsize) from dbstat join sqlite_schema on sqlite_schema.name = dbstat.name
        where aggregate = 1 group by 1 order by 2 desc limit 8
    """
    checks = run_checks(workspace)
    try:
        with workspace.database.read() as connection:
            return Examination(checks, fetch_all(connection, sql))
    except (LocalMCPError, apsw.Error):
        return Examination(checks)


def check_configuration() -> list[Check]:
    """Return what can be looked at when the settings themselves cannot be used: there is no file to open then."""
    return [*looked("installation", lambda: check_installation(None)), *_configuration(None)]


def _checks(workspace: Workspace) -> Iterator[Check]:
    settings, path = workspace.settings, workspace.database.path
    yield from looked("installation", lambda: check_installation(settings))
    yield from looked("place", lambda: check_place(path))
    file = list(looked("file", lambda: check_file(path)))
    yield from file
    if not is_filled(path):
        # Only whether the model opens: what it is compared with needs a file.
        yield from looked("model", lambda: islice(check_model(workspace), 1))
    elif all(check.status != "fail" for check in file):
        yield from looked("writing", lambda: [check_writable(workspace.database)])
        yield from looked("contents", lambda: check_contents(workspace))
    yield from _configuration(workspace)


def _configuration(workspace: Workspace | None) -> Iterator[Check]:
    yield from looked("config", configuration.check_settings)
    yield from looked("profiles", lambda: configuration.check_profiles(workspace))
    yield from looked("mcp servers", configuration.check_servers)
    yield from looked("clients", configuration.check_clients)
    if workspace is not None:
        yield from looked("tools", lambda: configuration.check_tools(workspace))
