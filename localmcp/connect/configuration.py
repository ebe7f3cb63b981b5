"""One client's configuration file: planning a change, and writing it without losing anything."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from localmcp.connect.entry import block_for, entry_for
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError
from localmcp.files import write_atomically
from localmcp.hub.adoption import is_localmcp
from localmcp.hub.client_configuration import ClientFile, read_document
from localmcp.schemas import Json, json_kind, mapping_of

Action = Literal["added", "updated", "unchanged", "removed", "absent"]

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of one file."""

    target: ClientFile
    action: Action
    before: bytes | None
    """None: there is no file yet."""
    after: bytes

    @property
    def is_needed(self) -> bool:
        return self.action not in ("unchanged", "absent")


def plan_connection(target: ClientFile, name: str, entry: Mapping[str, Any]) -> Change:
    """Return the change that makes the file start localmcp as `name`; keys that the person added to the entry stay.

    Raises:
        ConfigurationError: the file cannot be read, or has comments, which a change would remove; the hint says what
            to do by hand.
        InvalidInput: the name belongs to another program.
    """
    document, before = _read(target.path)
    old = _table(document, target).get(name)
    ours = entry_for(target, entry)
    kept = _our_entry(old, name, target)
    merged = {**kept, **ours, "env": {**mapping_of(kept.get("env")), **ours["env"]}}
    if "alwaysLoad" in kept and "alwaysLoad" in ours:
        merged["alwaysLoad"] = kept["alwaysLoad"]
    if old == merged:
        return Change(target, "unchanged", before, before or b"")
    by_hand = f"Put this into it by hand:\n{block_for(target, name, merged)}"
    return Change(target, "updated" if old else "added", before, _edited(target, before, name, merged, by_hand))


def plan_removal(target: ClientFile, name: str) -> Change:
    """Return the change that removes localmcp from the file.

    Raises:
        ConfigurationError: as `plan_connection`.
        InvalidInput: the name belongs to another program.
    """
    document, before = _read(target.path)
    table = _table(document, target)
    if name not in table:
        return Change(target, "absent", before, before or b"")
    _our_entry(table[name], name, target)
    by_hand = f"Take '{name}' out of '{target.table}' by hand."
    return Change(target, "removed", before, _edited(target, before, name, None, by_hand))


def describe_client(target: ClientFile) -> Json:
    """Return a client, the names under which it starts localmcp, and why its file cannot be read."""
    client: Json = {"client": target.client, "title": target.title, "path": str(target.path), "error": None}
    try:
        table = _table(_read(target.path)[0], target)
    except LocalMCPError as error:
        return {**client, "connectedAs": [], "error": error.message}
    names = [name for name, entry in table.items() if isinstance(entry, dict) and is_localmcp(cast(Json, entry))]
    return {**client, "connectedAs": names}


def _read(path: Path) -> tuple[Json, bytes | None]:
    """Return the file as a table, and as bytes (None when there is none)."""
    return (read_document(path), path.read_bytes()) if path.exists() else ({}, None)


def _table(document: Json, target: ClientFile) -> Json:
    table = document.get(target.table, {})
    if not isinstance(table, dict):
        raise ConfigurationError(
            f"{target.path}: '{target.table}' must be an object, not {json_kind(table)}.",
            hint="Fix it by hand; the file was left untouched.",
        )
    return cast(Json, table)


def _our_entry(old: Any, name: str, target: ClientFile) -> Json:
    if old is None:
        return {}
    if isinstance(old, dict) and is_localmcp(cast(Json, old)):
        return cast(Json, old)
    message = f"'{name}' in {target.path} is another program, not localmcp."
    raise InvalidInput(message, hint="Choose another name with --name.")


def _edited(target: ClientFile, before: bytes | None, name: str, entry: Json | None, by_hand: str) -> bytes:
    """Return the file with that entry, or without it for None."""
    text = (before or b"").decode()
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    bare = text.removeprefix(mark)
    if target.path.suffix == ".toml":
        return (mark + _edit_toml(bare, target.table, name, entry)).encode()
    try:
        document: Json = json.loads(bare) if bare.strip() else {}
    except ValueError:
        # It can be read, so it has what only some clients allow.
        message = f"{target.path} has comments, which writing it would remove; it was left untouched."
        raise ConfigurationError(message, hint=by_hand) from None
    table = document.setdefault(target.table, {})
    if entry is None:
        del table[name]
    else:
        table[name] = entry
    indent = re.search(r"\n([ \t]+)\S", bare)
    written = json.dumps(document, ensure_ascii=False, indent=indent[1] if indent else 2) + "\n"
    return (mark + (written.replace("\n", "\r\n") if "\r\n" in bare else written)).encode()


def _edit_toml(text: str, table: str, name: str, entry: Json | None) -> str:
    """Return the TOML text with that entry, its comments and order kept."""
    import tomlkit

    document = cast("dict[str, Any]", tomlkit.parse(text))
    if table not in document:
        document[table] = tomlkit.table(is_super_table=True)
    if entry is not None:
        document[table][name] = entry
    elif len(document[table]) == 1:
        del document[table]
    else:
        del document[table][name]
    return tomlkit.dumps(document)


def write_change(change: Change) -> Path | None:
    """Write the file whole or not at all; return the copy of the file before (None if it is new).

    A link is followed to the file that it points to.

    Raises:
        ConfigurationError: it, or its folder, is write-protected, or another program changed it meanwhile.
    """
    path = change.target.path.resolve()
    try:
        current = path.read_bytes() if path.exists() else None
        if current is not None and not stat.S_IMODE(path.stat().st_mode) & 0o222:
            raise ConfigurationError(
                f"{path} is write-protected; it was left untouched.", hint="Allow writing it, or use --print."
            )
        if current != change.before:
            raise ConfigurationError(f"{path} was changed by another program meanwhile.", hint="Run the command again.")
        backup = _free_name(path) if current is not None else None
        if backup is not None:
            shutil.copy2(path, backup)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, change.after)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Show the block with --print."
        ) from error
    return backup


def write_changes(changes: Iterable[Change], *, dry_run: bool) -> list[Json]:
    """Write the changes that are needed, none in a dry run; return of each file its path, the action and the copy."""
    written: list[Json] = []
    for change in changes:
        backup = write_change(change) if change.is_needed and not dry_run else None
        path = str(change.target.path)
        written.append({"path": path, "action": change.action, "backup": str(backup) if backup else None})
    return written


def _free_name(path: Path) -> Path:
    stem = f"{path.name}.backup-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = (path.with_name(stem if count == 0 else f"{stem}-{count}") for count in range(1000))
    return next(name for name in names if not name.exists())
