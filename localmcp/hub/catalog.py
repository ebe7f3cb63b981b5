"""What a server offers, kept between runs: tools, resources and prompts, and the names shown."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import Json, list_of, mapping_of

log = logging.getLogger(__name__)

SEPARATOR = "__"
SERVER_ADDRESS = "localmcp://server/"
"""Begins our addresses of servers' resources."""
MOST_LETTERS = 64
"""Some clients reject all tools of a server if one name is longer."""

MOST_LEFT_OUT, MOST_NAMED = 20, 5
"""Wrong tools of one server that are kept by name, and that a message names."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool that a server lists and that cannot be used."""

    tool: str
    """Its name, or `number N` for one without; both as people may read them."""
    why: str


@dataclass(frozen=True, slots=True)
class ToolList:
    """What a server has listed."""

    tools: list[Json]
    left_out: tuple[LeftOut, ...] = ()


def describe_left_out(server: str, left_out: Sequence[LeftOut]) -> str:
    """Return a sentence with the tools of a server that cannot be used, and why."""
    tools = [f"{entry.tool} ({entry.why})" for entry in left_out[:MOST_NAMED]]
    tools += ["and others"] if len(left_out) > MOST_NAMED else []
    return f"'{server}' describes tools wrongly, which are left out: {'; '.join(tools)}."


class CatalogCache:
    """What the servers listed last, for each server entry. Processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> ToolList | None:
        """Return the last known tools of the entry with this digest; None when there are none."""
        table = read_json_object(self._path(digest))
        if not isinstance(table.get("tools"), list):
            return None
        left_out = [mapping_of(entry) for entry in list_of(table.get("leftOut"))]
        return ToolList(
            usable_tools(table["tools"]),
            tuple(LeftOut(str(entry.get("tool")), str(entry.get("why"))) for entry in left_out),
        )

    def save(self, digest: str, listed: ToolList) -> None:
        """Keep the tools."""
        left_out = [asdict(entry) for entry in listed.left_out[:MOST_LEFT_OUT]]
        self._keep(self._path(digest), {"tools": listed.tools, "leftOut": left_out})

    def load_offers(self, digest: str) -> dict[str, list[Json]]:
        """Return the last known resources and prompts of the entry; empty when there are none."""
        table = read_json_object(self._offers_path(digest))
        return {kind: [mapping_of(item) for item in list_of(items)] for kind, items in table.items()}

    def save_offers(self, digest: str, offers: dict[str, list[Json]]) -> None:
        """Keep resources and prompts; no file for a server without any."""
        if any(offers.values()):
            self._keep(self._offers_path(digest), offers)
        else:
            self._offers_path(digest).unlink(missing_ok=True)

    def forget(self, digest: str) -> None:
        """Remove what is kept for this entry."""
        self._path(digest).unlink(missing_ok=True)
        self._offers_path(digest).unlink(missing_ok=True)

    def _keep(self, path: Path, value: Json) -> None:
        try:
            write_atomically(path, json.dumps(value))
        except OSError as error:
            # The next start only takes longer.
            log.info("what an MCP server offers cannot be kept in %s: %s", path, error)

    def _offers_path(self, digest: str) -> Path:
        return self._folder / f"{digest}.offers.json"

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def usable_tools(tools: Iterable[Any]) -> list[Json]:
    """Return the entries that are tools, with a schema that can be searched and shown."""
    named = (cast(Json, tool) for tool in tools if isinstance(tool, dict))
    return [
        {**definition, "inputSchema": usable_schema(definition.get("inputSchema"))}
        for definition in named
        if _is_callable(definition)
    ]


def _is_callable(tool: Json) -> bool:
    """Return whether the tool has a name, and can be called by clients that do not know tasks."""
    name, needs_task = tool.get("name"), mapping_of(tool.get("execution")).get("taskSupport") == "required"
    return isinstance(name, str) and bool(name) and not needs_task


def usable_schema(schema: Any) -> Json:
    """Return the schema with an object at its root and in each property, as search and clients expect."""
    table = mapping_of(schema)
    raw_properties = table.get("properties")
    properties = mapping_of(raw_properties)
    # `true` and `{}` mean the same in JSON Schema.
    objects: Json = {name: mapping_of(spec) for name, spec in properties.items()}
    if table.get("type") == "object" and raw_properties is not None and objects == properties:
        return table
    return {**table, "type": "object", "properties": objects}


def exposed_names(namespace: str, names: Iterable[str]) -> dict[str, str]:
    """Return shown name -> the server's own name.

    `ns__tool`, with letters and a length that every client accepts.

    Of two names that become one, the one that needed no change keeps it, and the other gets a digest.
    """
    exposed: dict[str, str] = {}
    for name in sorted(set(names), key=lambda name: (_plain(name) != name, name)):
        shown = f"{namespace}{SEPARATOR}{_plain(name)}"
        if len(shown) > MOST_LETTERS or shown in exposed:
            tag = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            shown = f"{shown[: MOST_LETTERS - 7]}_{tag}"
        exposed[shown] = name
    return exposed


def shown_address(namespace: str, uri: str) -> str:
    """Return our address of a server's resource."""
    return f"{SERVER_ADDRESS}{namespace}/{quote(uri, safe='')}"


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name) or "_"
