"""Every key of the TUI in one table, and the person's own keys from `keys.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.binding import Binding, BindingType
from textual.keys import REPLACED_KEYS, key_to_character

from localmcp.config import config_directory
from localmcp.schemas import nearest

PANE_NUMBERS = range(1, 8)

KEYS: dict[str, dict[str, Binding]] = {
    "app": {
        "help": Binding("question_mark,f1", "help", "Help"),
        "filter": Binding("slash", "filter", "Filter the pane in front", show=False),
        "next_pane": Binding("right_square_bracket", "turn(1)", "Next pane", show=False),
        "previous_pane": Binding("left_square_bracket", "turn(-1)", "Previous pane", show=False),
        **{f"pane_{n}": Binding(str(n), f"pane({n - 1})", f"Pane {n}", show=False) for n in PANE_NUMBERS},
        **{
            f"typing_pane_{n}": Binding(
                f"alt+{n}", f"pane({n - 1})", f"Pane {n}, typing too", show=False, priority=True
            )
            for n in PANE_NUMBERS
        },
        "stop": Binding("ctrl+x", "stop_job", "Stop the work in the background", show=False, priority=True),
        "error": Binding("f2", "show_error", "Details of the error", show=False),
        "dismiss": Binding("escape", "dismiss_error", "Dismiss the error", show=False, priority=True),
        "palette": Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True),
        "commands": Binding("colon", "command_palette", "Commands", show=False),
        "suspend": Binding("ctrl+z", "suspend_process", "Suspend: fg comes back", show=False),
        "quit": Binding("ctrl+q", "quit", "Quit", show=False),
    },
    "list": {
        "down": Binding("j", "cursor_down", "Down", show=False),
        "up": Binding("k", "cursor_up", "Up", show=False),
        "first": Binding("g", "first", "First", show=False),
        "last": Binding("G", "last", "Last", show=False),
    },
    "branches": {
        "open": Binding("right,l", "open_branch", "Open the branch", show=False),
        "shut": Binding("left,h", "shut_branch", "Close the branch", show=False),
    },
    "search": {
        "results": Binding("down,escape", "results", "Results"),
        "earlier": Binding("up", "earlier", "Earlier search", show=False),
        "read": Binding("space", "read", "Read"),
        "explain": Binding("x", "explain", "Why"),
        "filters": Binding("f,ctrl+f", "filters", "Filters"),
        "similar": Binding("l", "similar", "Like this"),
        "sort": Binding("t", "sort", "By date", show=False),
        "save": Binding("s,ctrl+s", "save", "Save the search", show=False),
        "unfold": Binding("right", "unfold(True)", "More passages of the document", show=False),
        "fold": Binding("left", "unfold(False)", "Its best passage only", show=False),
        "cite": Binding("y", "cite", "Cite"),
        "copy": Binding("Y", "copy", "Copy text", show=False),
        "path": Binding("P", "path", "Copy path", show=False),
        "open": Binding("o", "open", "Edit"),
        "mode": Binding("m,ctrl+t", "mode", "Mode"),
        "accept": Binding("a", "accept", "Accept spelling", show=False),
        "again": Binding("r", "again", "Search again", show=False),
    },
    "welcome": {
        "samples": Binding("d", "samples", "Load the samples"),
        "add": Binding("a", "add", "Add"),
        "client": Binding("m", "app.connect", "Connect an assistant"),
    },
    "reader": {
        "close": Binding("escape,q", "close", "Back"),
        "find": Binding("slash", "find", "Find in the text"),
        "next": Binding("n", "match(1)", "Next match"),
        "previous": Binding("N,p", "match(-1)", "Previous match", show=False),
        "next_hit": Binding("full_stop", "hit(1)", "Next hit"),
        "previous_hit": Binding("comma", "hit(-1)", "Previous hit", show=False),
        "first": Binding("g,home", "edge(0)", "Beginning", show=False, priority=True),
        "last": Binding("G,end", "edge(-1)", "End", show=False, priority=True),
        "outline": Binding("t", "outline", "Outline"),
        "cite": Binding("y", "cite", "Cite"),
        "copy": Binding("Y", "copy", "Copy passage", show=False),
        "path": Binding("P", "path", "Copy path", show=False),
        "open": Binding("o", "open", "Edit"),
    },
    "library": {
        "add": Binding("a", "add", "Add"),
        "page": Binding("w", "add_page", "Add a web page", show=False),
        "refresh": Binding("r", "refresh", "Refresh"),
        "mark": Binding("m", "mark", "Mark"),
        "remove": Binding("d", "remove", "Remove"),
        "undo": Binding("u", "undo", "Undo"),
        "empty": Binding("E", "empty", "Empty the trash", show=False),
        "filter": Binding("f", "filter", "Filter"),
        "read": Binding("v", "read", "Read"),
        "open": Binding("o", "open", "Edit", show=False),
        "cite": Binding("y", "cite", "Cite", show=False),
    },
    "quickstarts": {
        "list": Binding("down,escape", "list", "List"),
        "import": Binding("i", "import", "Import"),
        "remove": Binding("d", "remove", "Remove", show=False),
    },
    "rules": {
        "list": Binding("down,escape", "list", "List"),
        "add": Binding("a", "add", "Add"),
        "edit": Binding("e", "edit", "Edit"),
        "retire": Binding("d", "retire", "Retire"),
        "restore": Binding("u", "restore", "Restore", show=False),
        "retired": Binding("R", "retired", "Retired ones"),
        "import": Binding("i", "import", "Import"),
        "copy": Binding("y", "copy", "Copy", show=False),
    },
    "tools": {
        "list": Binding("down,escape", "list", "List"),
        "run": Binding("ctrl+r", "run", "Run"),
        "view": Binding("v", "view", "Table, JSON, text"),
        "copy": Binding("y", "copy", "Copy result"),
        "hub": Binding("p", "app.show('hub')", "Assistants and servers"),
    },
    "activity": {
        "list": Binding("down,escape", "list", "List"),
        "again": Binding("r", "again", "Run again"),
        "errors": Binding("e", "errors", "Errors only"),
        "statistics": Binding("s", "statistics", "Statistics"),
        "mine": Binding("m", "mine", "Calls of this window"),
        "copy": Binding("y", "copy", "Copy call"),
    },
    "commands": {
        "list": Binding("down,escape", "list", "List"),
        "run": Binding("r", "run", "Run"),
        "copy": Binding("y", "copy", "Copy command"),
    },
    "hub": {
        "list": Binding("down,escape", "list", "List"),
        "run": Binding("r", "run", "Run"),
        "copy": Binding("y", "copy", "Copy command"),
        "tools": Binding("p", "app.show('tools')", "Back to the tools"),
    },
    "form": {
        "run": Binding("ctrl+r", "run", "Save or run"),
        "close": Binding("escape", "dismiss", "Cancel"),
    },
}
"""Place -> name -> keys (alternatives, separated by commas), action, and its name for people.

Those that show are in the line at the bottom, where few fit. `keys.toml` names a key by an id: `search.explain`."""


def bindings(place: str) -> list[BindingType]:
    """Return the keys of one place, as Textual wants them."""
    return [replace(key, id=f"{place}.{name}") for name, key in KEYS[place].items()]


def keys_file() -> Path:
    """Return the path of the person's own keys."""
    return config_directory() / "keys.toml"


def read_keymap() -> tuple[dict[str, str], list[str]]:
    """Return the person's keys, id -> keys, and a sentence for every entry that cannot be used."""
    file = keys_file()
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return {}, [f"{file} cannot be read: {error}."]
    ids = [f"{place}.{name}" for place, names in KEYS.items() for name in names]
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for key_id, value in _flat(table):
        if key_id not in ids:
            near = nearest(key_id, ids)
            more = f"; did you mean '{near}'?" if near else "."
            problems.append(f"{file.name}: nothing is called '{key_id}'{more}")
        elif isinstance(value, str):
            keymap[key_id] = value
        elif isinstance(value, list) and value:
            keymap[key_id] = ",".join(map(str, cast("list[Any]", value)))
        else:
            problems.append(f"{file.name}: {key_id} = {value!r} must be a key, or a list of keys, in quotes.")
    return keymap, problems


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`[search]` with `explain = …` is the same as `"search.explain" = …`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            yield prefix + name, value


def take_alt_digits() -> None:
    """Make alt and a digit a key; Textual reads them as the sign that a Mac makes of them, such as `•` for alt+8."""
    for digit in "0123456789":
        cast("dict[str, Any]", ANSI_SEQUENCES_KEYS).pop(f"\x1b{digit}", None)


def is_text_key(key: str) -> bool:
    """Return whether a key types a letter, a digit or a sign into a line of text."""
    character = key_to_character(REPLACED_KEYS.get(key, key))
    return character is not None and character.isprintable()
