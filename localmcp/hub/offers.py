"""Resources and prompts of connected servers, under their namespaces.

They are listed from what is cached, and read from the server.

A resource `file:///a` of the server `shop` is `localmcp://server/shop/file%3A%2F%2F%2Fa`, a prompt `greet` is
`shop__greet`. A template `file:///{path}` is `localmcp://server/shop/=file:///{path}`: what follows `=` is not quoted,
so that clients can fill in the variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from localmcp.hub.catalog import SERVER_ADDRESS, exposed_names, shown_address
from localmcp.schemas import Json
from localmcp.tools import current_scope

if TYPE_CHECKING:
    from localmcp.hub.server import McpServer
    from localmcp.hub.servers import McpServers

RAW = "="
PAGE = 50


class ServerOffers:
    """The offers of all servers that the caller may use; None means: no server of ours has it.

    Reading, prompts and completion start the server, and raise a LocalMCPError where it does not start or refuses.
    """

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def resources(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of resources, and the offset of the next page."""
        listed = self._all("resources")
        return _page(
            [{**raw, "uri": shown_address(server.entry.namespace, raw["uri"])} for server, raw in listed], offset
        )

    def templates(self) -> list[Json]:
        """Return the templates of all servers."""
        return [
            {**raw, "uriTemplate": f"{SERVER_ADDRESS}{server.entry.namespace}/{RAW}{raw['uriTemplate']}"}
            for server, raw in self._all("resourceTemplates")
        ]

    def read(self, uri: str) -> list[Json] | None:
        """Return the contents of a resource."""
        server, own_uri = self._locate(uri)
        if server is None:
            return None
        contents = server.ask("resources/read", {"uri": own_uri}).get("contents", [])
        return [{**content, "uri": uri} for content in contents]

    def _locate(self, uri: str) -> tuple[McpServer | None, str]:
        """Return the server that has the resource, and the server's own address of it."""
        if not uri.startswith(SERVER_ADDRESS):
            return None, ""
        namespace, _, address = uri.removeprefix(SERVER_ADDRESS).partition("/")
        server = next((visible for visible in self._visible() if visible.entry.namespace == namespace), None)
        return server, address.removeprefix(RAW) if address.startswith(RAW) else unquote(address)

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of prompts, and the offset of the next page."""
        named = [(server, raw, name) for server in self._visible() for name, raw in _prompts(server).items()]
        return _page([{**raw, "name": name} for _, raw, name in named], offset)

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt."""
        for server in self._visible():
            if (raw := _prompts(server).get(name)) is not None:
                return server.ask("prompts/get", {"name": raw["name"], "arguments": arguments})
        return None

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return what the server proposes for an argument of its prompt or template, and how much more there is."""
        server, own_ref = self._locate_reference(ref)
        if server is None:
            return None
        asked = {"ref": own_ref, "argument": {"name": argument, "value": value}}
        return server.ask("completion/complete", asked).get("completion") or {"values": []}

    def _locate_reference(self, ref: Json) -> tuple[McpServer | None, Json]:
        if ref.get("type") == "ref/resource":
            server, own_uri = self._locate(str(ref.get("uri")))
            return server, {"type": "ref/resource", "uri": own_uri}
        for server in self._visible():
            if (raw := _prompts(server).get(str(ref.get("name")))) is not None:
                return server, {"type": "ref/prompt", "name": raw["name"]}
        return None, {}

    def _visible(self) -> list[McpServer]:
        # A caller that may use only some tools gets nothing else of other servers.
        return self._servers.reachable() if current_scope().tools is None else []

    def _all(self, kind: str) -> Iterable[tuple[McpServer, Json]]:
        return ((server, raw) for server in self._visible() for raw in server.offered(kind))


def _prompts(server: McpServer) -> dict[str, Json]:
    raws = {raw["name"]: raw for raw in server.offered("prompts")}
    return {shown: raws[name] for shown, name in exposed_names(server.entry.namespace, raws).items()}


def _page(items: list[Json], offset: int) -> tuple[list[Json], int | None]:
    following = offset + PAGE if offset + PAGE < len(items) else None
    return items[offset : offset + PAGE], following
