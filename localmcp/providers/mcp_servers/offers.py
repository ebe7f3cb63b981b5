"""Resources and prompts of connected servers, under their namespaces; listed from what is cached, read from the server.

A resource `file:///a` of the server `shop` is `localmcp://server/shop/file%3A%2F%2F%2Fa`, a prompt `greet` is
`shop__greet`. Templates of resources and completion are not passed on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from localmcp.providers.mcp_servers.catalog import exposed_names
from localmcp.tools import current_scope

if TYPE_CHECKING:
    from localmcp.providers.mcp_servers.provider import McpServer
    from localmcp.providers.mcp_servers.servers import McpServers

Json = dict[str, Any]

PREFIX = "localmcp://server/"
PAGE = 50


class ServerOffers:
    """What `server.offers.Offer` asks for, over all servers that the caller may use."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def kinds(self) -> set[str]:
        """Return of `resources` and `prompts` what any server is known to have."""
        return {kind for server in self._visible() for kind in ("resources", "prompts") if server.offered(kind)}

    def resources(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of resources, and the offset of the next page."""
        return _page([_shown_resource(server, raw) for server, raw in self._all("resources")], offset)

    def templates(self) -> list[Json]:
        """Return none: a template would lose its variables in our addresses."""
        return []

    def read(self, uri: str) -> list[Json] | None:
        """Return the contents of a resource; None = no server of ours has it.

        Raises:
            LocalMCPError: the server does not start or refuses.
        """
        if not uri.startswith(PREFIX):
            return None
        namespace, _, address = uri.removeprefix(PREFIX).partition("/")
        server = next((visible for visible in self._visible() if visible.entry.namespace == namespace), None)
        if server is None:
            return None
        contents = server.ask("resources/read", {"uri": unquote(address)}).get("contents", [])
        return [{**content, "uri": uri} for content in contents]

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of prompts, and the offset of the next page."""
        named = [(server, raw, name) for server in self._visible() for name, raw in _prompts(server).items()]
        return _page([{**raw, "name": name} for _, raw, name in named], offset)

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt; None = no server of ours has it.

        Raises:
            LocalMCPError: the server does not start or refuses.
        """
        for server in self._visible():
            if (raw := _prompts(server).get(name)) is not None:
                return server.ask("prompts/get", {"name": raw["name"], "arguments": arguments})
        return None

    def complete(self, ref: Json, argument: str, value: str) -> list[str] | None:
        """Return None: completion is not passed on."""
        return None

    def _visible(self) -> list[McpServer]:
        scope = current_scope()
        if scope.tools is not None:
            # Who is bound to some tools reads nothing else of other servers.
            return []
        names = scope.provider_names
        servers = self._servers.servers.values()
        return [server for server in servers if server.usable and (names is None or server.name in names)]

    def _all(self, kind: str) -> Iterable[tuple[McpServer, Json]]:
        return ((server, raw) for server in self._visible() for raw in server.offered(kind))


def _shown_resource(server: McpServer, raw: Json) -> Json:
    return {**raw, "uri": f"{PREFIX}{server.entry.namespace}/{quote(str(raw['uri']), safe='')}"}


def _prompts(server: McpServer) -> dict[str, Json]:
    raws = {raw["name"]: raw for raw in server.offered("prompts")}
    return {shown: raws[name] for shown, name in exposed_names(server.entry.namespace, raws).items()}


def _page(items: list[Json], offset: int) -> tuple[list[Json], int | None]:
    following = offset + PAGE if offset + PAGE < len(items) else None
    return items[offset : offset + PAGE], following
