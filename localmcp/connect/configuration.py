"""One client's configuration file: planning a change, and writing it without losing anything."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from localmcp.connect.entry import entry_for
from localmcp.connect.json_text import remove_member, set_member
from localmcp.errors import ConfigurationError, InvalidInput
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
    expected: Json
    """What a parser must read from `after`."""

    @property
    def is_needed(self) -> bool:
        return self.action not in ("unchanged", "absent")


def plan_connection(target: ClientFile, name: str, entry: Mapping[str, Any]) -> Change:
    """Return the change that makes the file start localmcp as `name`; keys that the person added to the entry stay.

    Raises:
        ConfigurationError: the file cannot be read; names line and column.
        InvalidInput: the name belongs to another program.
    """
    document, before, text = _read(target.path)
    table = _table(document, target)
    old = table.get(name)
    merged = _merged(_our_entry(old, name, target), entry_for(target, entry))
    if old == merged:
        return Change(target, "unchanged", before, before or b"", document)
    expected = {**document, target.table: {**table, name: merged}}
    after = _edited(target, text, name, merged)
    return Change(target, "added" if old is None else "updated", before, after.encode(), expected)


def plan_removal(target: ClientFile, name: str) -> Change:
    """Return the change that removes localmcp from the file.

    Raises:
        ConfigurationError: the file cannot be read; names line and column.
        InvalidInput: the name belongs to another program.
    """
    document, before, text = _read(target.path)
    table = _table(document, target)
    if name not in table:
        return Change(target, "absent", before, before or b"", document)
    _our_entry(table[name], name, target)
    expected = {**document, target.table: {key: value for key, value in table.items() if key != name}}
    if target.is_toml and not expected[target.table]:
        del expected[target.table]
    return Change(target, "removed", before, _edited(target, text, name, None).encode(), expected)


def connected_as(target: ClientFile) -> list[str]:
    """Return the names under which the file starts localmcp.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    table = _table(_read(target.path)[0], target)
    return [name for name, entry in table.items() if isinstance(entry, dict) and is_localmcp(cast(Json, entry))]


def _read(path: Path) -> tuple[Json, bytes | None, str]:
    """Return the file as a table, as bytes (None when there is none), and as text."""
    if not path.exists():
        return {}, None, ""
    document, before = read_document(path), path.read_bytes()
    return document, before, before.decode()


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


def _merged(old: Json, entry: Json) -> Json:
    chosen = {"alwaysLoad": old["alwaysLoad"]} if "alwaysLoad" in old and "alwaysLoad" in entry else {}
    return {**old, **entry, **chosen, "env": {**mapping_of(old.get("env")), **entry["env"]}}


def _edited(target: ClientFile, text: str, name: str, entry: Json | None) -> str:
    """Return the file's text with that entry, or without it for None."""
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    bare, path = text.removeprefix(mark), (target.table, name)
    if target.is_toml:
        return mark + _edit_toml(bare, target.table, name, entry)
    try:
        return mark + (remove_member(bare, path) if entry is None else set_member(bare, path, entry))
    except ValueError as error:
        raise _not_editable(target, str(error)) from error


def _edit_toml(text: str, table: str, name: str, entry: Json | None) -> str:
    """Return the TOML text with that entry, its comments and order kept."""
    import tomlkit

    document = cast("dict[str, Any]", tomlkit.parse(text))
    if table not in document:
        document[table] = tomlkit.table(is_super_table=True)
    if entry is None and len(document[table]) == 1:
        del document[table]
    elif entry is None:
        del document[table][name]
    else:
        document[table][name] = entry
    return tomlkit.dumps(document)


def _not_editable(target: ClientFile, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{target.path} cannot be changed safely ({why}); it was left untouched.",
        hint="Show the block with --print, and paste it by hand.",
    )


def write_change(change: Change) -> Path | None:
    """Write the file whole or not at all; return the copy of the file before (None if it is new).

    A link is followed to the file that it points to. What is written is parsed before it replaces the old file.

    Raises:
        ConfigurationError: it, or its folder, is write-protected, or another program changed it meanwhile.
    """
    path = change.target.path.resolve()
    try:
        return _replace(path, change)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Show the block with --print."
        ) from error


def _replace(path: Path, change: Change) -> Path | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not stat.S_IMODE(path.stat().st_mode) & 0o222:
        raise ConfigurationError(
            f"{path} is write-protected; it was left untouched.", hint="Allow writing it, or use --print."
        )
    if read_document(change.target.path, change.after) != change.expected:
        raise _not_editable(change.target, "the result would not mean what it should")
    backup = _back_up(path, change)
    write_atomically(path, change.after)
    return backup


def _back_up(path: Path, change: Change) -> Path | None:
    current = path.read_bytes() if path.exists() else None
    if current != change.before:
        raise ConfigurationError(f"{path} was changed by another program meanwhile.", hint="Run the command again.")
    if current is None:
        return None
    backup = _free_name(path)
    shutil.copy2(path, backup)
    return backup


def _free_name(path: Path) -> Path:
    stem = f"{path.name}.backup-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = (path.with_name(stem if count == 0 else f"{stem}-{count}") for count in range(1000))
    return next(name for name in names if not name.exists())
