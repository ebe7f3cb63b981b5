"""Every key of the TUI in one table, and the person's own keys from `keys.toml`."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType
from textual.keys import KEY_NAME_REPLACEMENTS, KEY_TO_UNICODE_NAME, REPLACED_KEYS, Keys, key_to_character

from localmcp.config import config_directory
from localmcp.schemas import nearest


@dataclass(frozen=True, slots=True)
class Key:
    """What a key does; `keys` are alternatives, separated by commas."""

    keys: str
    action: str
    says: str
    shown: bool = True
    """In the line at the bottom, where only few fit."""
    first: bool = False
    """Before the focused widget gets it."""


PANE_COUNT = 10

KEYS: dict[str, dict[str, Key]] = {
    "app": {
        "help": Key("question_mark,f1", "help", "Help"),
        "filter": Key("slash", "filter", "Filter the pane in front", shown=False),
        "next_pane": Key("right_square_bracket", "turn(1)", "Next pane", shown=False),
        "previous_pane": Key("left_square_bracket", "turn(-1)", "Previous pane", shown=False),
        **{f"pane_{n}": Key(str(n % 10), f"pane({n - 1})", f"Pane {n}", shown=False) for n in range(1, PANE_COUNT + 1)},
        **{
            f"typing_pane_{n}": Key(f"alt+{n % 10}", f"pane({n - 1})", f"Pane {n}, typing too", shown=False, first=True)
            for n in range(1, PANE_COUNT + 1)
        },
        "jump": Key("ctrl+o", "jump", "Jump to a part", shown=False),
        "stop": Key("ctrl+x", "stop_job", "Stop the work in the background", shown=False, first=True),
        "error": Key("f2", "show_error", "Details of the error", shown=False),
        "dismiss": Key("escape", "dismiss_error", "Dismiss the error", shown=False, first=True),
        "palette": Key("ctrl+p", "command_palette", "Commands", shown=False, first=True),
        "commands": Key("colon", "command_palette", "Commands", shown=False),
        "suspend": Key("ctrl+z", "suspend_process", "Suspend: fg comes back", shown=False),
        "quit": Key("ctrl+q", "quit", "Quit", shown=False),
    },
    "list": {
        "down": Key("j", "cursor_down", "Down", shown=False),
        "up": Key("k", "cursor_up", "Up", shown=False),
        "first": Key("g", "first", "First", shown=False),
        "last": Key("G", "last", "Last", shown=False),
    },
    "branches": {
        "open": Key("right,l", "open_branch", "Open the branch", shown=False),
        "shut": Key("left,h", "shut_branch", "Close the branch", shown=False),
    },
    "search": {
        "results": Key("down,escape", "results", "Results"),
        "earlier": Key("up", "earlier", "Earlier search", shown=False),
        "read": Key("space", "read", "Read"),
        "explain": Key("x", "explain", "Why"),
        "filters": Key("f,ctrl+f", "filters", "Filters"),
        "similar": Key("l", "similar", "Like this"),
        "sort": Key("t", "sort", "By date", shown=False),
        "save": Key("s,ctrl+s", "save", "Save the search", shown=False),
        "unfold": Key("right", "unfold(True)", "More passages of the document", shown=False),
        "fold": Key("left", "unfold(False)", "Its best passage only", shown=False),
        "cite": Key("y", "cite", "Cite"),
        "copy": Key("Y", "copy", "Copy text", shown=False),
        "path": Key("P", "path", "Copy path", shown=False),
        "open": Key("o", "open", "Edit"),
        "mode": Key("m,ctrl+t", "mode", "Mode"),
        "accept": Key("a", "accept", "Accept spelling", shown=False),
        "again": Key("r", "again", "Search again", shown=False),
    },
    "welcome": {
        "samples": Key("d", "samples", "Load the samples"),
        "add": Key("a", "add", "Add"),
        "client": Key("m", "app.connect", "Connect an assistant"),
    },
    "reader": {
        "close": Key("escape,q", "close", "Back"),
        "find": Key("slash", "find", "Find in the text"),
        "next": Key("n", "match(1)", "Next match"),
        "previous": Key("N,p", "match(-1)", "Previous match", shown=False),
        "next_hit": Key("full_stop", "hit(1)", "Next hit"),
        "previous_hit": Key("comma", "hit(-1)", "Previous hit", shown=False),
        "first": Key("g,home", "edge(0)", "Beginning", shown=False, first=True),
        "last": Key("G,end", "edge(-1)", "End", shown=False, first=True),
        "outline": Key("t", "outline", "Outline"),
        "cite": Key("y", "cite", "Cite"),
        "copy": Key("Y", "copy", "Copy passage", shown=False),
        "path": Key("P", "path", "Copy path", shown=False),
        "open": Key("o", "open", "Edit"),
    },
    "library": {
        "add": Key("a", "add", "Add"),
        "page": Key("w", "add_page", "Add a web page", shown=False),
        "refresh": Key("r", "refresh", "Refresh"),
        "mark": Key("m", "mark", "Mark"),
        "remove": Key("d", "remove", "Remove"),
        "undo": Key("u", "undo", "Undo"),
        "empty": Key("E", "empty", "Empty the trash", shown=False),
        "filter": Key("f", "filter", "Filter"),
        "read": Key("v", "read", "Read"),
        "open": Key("o", "open", "Edit", shown=False),
        "cite": Key("y", "cite", "Cite", shown=False),
    },
    "quickstarts": {
        "list": Key("down,escape", "list", "List"),
        "task": Key("space", "task(True)", "Task done"),
        "failed": Key("x", "task(False)", "Task failed", shown=False),
        "favourite": Key("f", "favourite", "Favorite"),
        "favourites": Key("F", "favourites", "Favorites only"),
        "restart": Key("r", "restart", "Start over", shown=False),
        "import": Key("i", "import", "Import"),
        "remove": Key("d", "remove", "Remove", shown=False),
    },
    "rules": {
        "list": Key("down,escape", "list", "List"),
        "add": Key("a", "add", "Add"),
        "edit": Key("e", "edit", "Edit"),
        "retire": Key("d", "retire", "Retire"),
        "restore": Key("u", "restore", "Restore", shown=False),
        "retired": Key("R", "retired", "Retired ones"),
        "import": Key("i", "import", "Import"),
        "copy": Key("y", "copy", "Copy", shown=False),
    },
    "tools": {
        "list": Key("down,escape", "list", "List"),
        "run": Key("ctrl+r", "run", "Run"),
        "view": Key("v", "view", "Table, JSON, text"),
        "copy": Key("y", "copy", "Copy result"),
        "providers": Key("p", "providers", "Providers"),
    },
    "activity": {
        "again": Key("r", "again", "Run again"),
        "errors": Key("e", "errors", "Errors only"),
        "statistics": Key("s", "statistics", "Statistics"),
        "mine": Key("m", "mine", "Calls of this window"),
        "copy": Key("y", "copy", "Copy call"),
    },
    "keys": {
        "create": Key("a", "create", "Create"),
        "revoke": Key("d", "revoke", "Revoke"),
        "delete": Key("D", "delete", "Delete", shown=False),
    },
    "doctor": {
        "run": Key("r", "check", "Check again"),
        "copy": Key("y", "copy", "Copy report"),
    },
    "commands": {
        "run": Key("r", "run", "Run"),
        "copy": Key("y", "copy", "Copy command"),
    },
    "form": {
        "run": Key("ctrl+r", "run", "Save"),
        "close": Key("escape", "dismiss", "Cancel"),
    },
}
"""Place -> name -> key. An id such as `search.explain` names one in `keys.toml`."""

MODIFIERS = ("ctrl", "shift", "alt", "super", "meta", "hyper")


def bindings(place: str) -> list[BindingType]:
    """Return the keys of one place, as Textual wants them."""
    return [
        Binding(key.keys, key.action, key.says, show=key.shown, priority=key.first, id=f"{place}.{name}")
        for name, key in KEYS[place].items()
    ]


def key_ids() -> dict[str, Key]:
    """Return every id with its key."""
    return {f"{place}.{name}": key for place, keys in KEYS.items() for name, key in keys.items()}


# ---------------------------------------------------------------- the person's own keys


def keys_file() -> Path:
    """Return the path of the person's own keys."""
    return config_directory() / "keys.toml"


def read_keymap(path: Path | None = None) -> tuple[dict[str, str], list[str]]:
    """Return the person's keys, id -> keys, and a sentence for every entry that cannot be used (which is left out)."""
    file = path or keys_file()
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return {}, [f"{file} cannot be read: {error}."]
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for name, value in _flat(table):
        keys = _keys_of(value)
        problem = _problem(name, keys, value)
        if problem:
            problems.append(f"{file.name}: {problem}")
        else:
            keymap[name] = ",".join(keys)
    problems += [f"{file.name}: {clash}" for clash in _clashes(keymap)]
    return keymap, problems


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`[search]` with `explain = …` is the same as `"search.explain" = …`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _keys_of(value: Any) -> list[str]:
    parts = cast("list[Any]", value) if isinstance(value, list) else str(value).split(",")
    return [str(part).strip() or "," for part in parts]


def _problem(name: str, keys: list[str], value: Any) -> str:
    """Return what is wrong with an entry; empty when nothing is."""
    ids = key_ids()
    if name not in ids:
        near = nearest(name, ids)
        return f"nothing is called '{name}'" + (f"; did you mean '{near}'?" if near else ".")
    if not isinstance(value, str | list) or not keys:
        return f"{name} = {value!r} must be a key, or a list of keys, in quotes."
    wrong = next((key for key in keys if not is_key(key)), None)
    if wrong is None:
        return ""
    return f"{name} = '{wrong}': there is no such key; write it as f5, ctrl+g, space, slash or a single character."


def is_key(name: str) -> bool:
    """Return whether a terminal could send a key of that name: `x`, `ctrl+g`, `f5`, `question_mark`, `?`."""
    *modifiers, key = name.split("+") if name != "+" else ["+"]
    if any(modifier not in MODIFIERS for modifier in modifiers):
        return False
    if len(key) == 1 or key in {key_name.value for key_name in Keys} or key in KEY_NAME_REPLACEMENTS.values():
        return bool(key.strip())
    spelt = KEY_TO_UNICODE_NAME.get(REPLACED_KEYS.get(key, key), key).replace("_", " ")
    try:
        unicodedata.lookup(spelt)
    except KeyError:
        return False
    return True


def take_alt_digits() -> None:
    """Let alt and a digit be a key: Textual reads it as the sign that a Mac makes of it, as `•` for alt+8."""
    for digit in "0123456789":
        cast("dict[str, Any]", ANSI_SEQUENCES_KEYS).pop(f"\x1b{digit}", None)


def is_text_key(key: str) -> bool:
    """Return whether a line of text takes the key for itself: a letter, a digit, a sign."""
    character = key_to_character(REPLACED_KEYS.get(key, key))
    return character is not None and character.isprintable()


def _clashes(keymap: Mapping[str, str]) -> list[str]:
    """Keys that would mean two things in one place."""
    clashes: list[str] = []
    for place in KEYS:
        owner: dict[str, str] = {}
        for name, key in KEYS[place].items():
            mine = f"{place}.{name}"
            for keystroke in keymap.get(mine, key.keys).split(","):
                if keystroke in owner and (mine in keymap or owner[keystroke] in keymap):
                    clashes.append(f"'{keystroke}' stands for both {owner[keystroke]} and {mine}; the first gets it.")
                owner.setdefault(keystroke, mine)
    return clashes
