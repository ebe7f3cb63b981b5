"""Resources and prompts of connected servers, under their namespaces.

They are listed from what is cached, and read from the server. A resource `file:///a` of the server `shop` is
`localmcp://server/shop/file%3A%2F%2F%2Fa`, a prompt `greet` is `shop__greet`. A template `file:///{path}` is
`localmcp://server/shop/=file:///{path}`: what follows `=` is not quoted, so that clients can fill in the variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from localmcp.schemas import Json
from localmcp.tools import current_scope

if TYPE_CHECKING:
    from localmcp.hub.server import McpServer
    from localmcp.hub.servers import McpServers

SERVER_ADDRESS = "localmcp://server/"
"""Begins our addresses of servers' resources."""
PAGE = 50


def shown_address(namespace: str, uri: str) -> str:
    """Return our address of a server's resource."""
    return f"{SERVER_ADDRESS}{namespace}/{quote(uri, safe='')}"


class ServerOffers:
    """The offers of all servers that the caller may use; None means: no server of ours has it.

    Reading, prompts and completion start the server, and raise a LocalMCPError where it does not start or refuses.
    """

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def _visible(self) -> list[McpServer]:
        # A caller that may use only some tools gets nothing else of other servers.
        return self._servers.reachable() if current_scope().tools is None else []

    def resources(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of resources, and the offset of the next page."""
        listed = [(server.entry.namespace, raw) for server in self._visible() for raw in server.offered("resources")]
        return _page([{**raw, "uri": shown_address(namespace, raw["uri"])} for namespace, raw in listed], offset)

    def templates(self) -> list[Json]:
        """Return the templates of all servers."""
        return [
            {**raw, "uriTemplate": f"{SERVER_ADDRESS}{server.entry.namespace}/={raw['uriTemplate']}"}
            for server in self._visible()
            for raw in server.offered("resourceTemplates")
        ]

    def read(self, uri: str) -> Json | None:
        """Return the contents of a resource; or a result in which the server asks the person."""
        server, own_uri = self._locate({"uri": uri})
        if server is None:
            return None
        result = server.ask("resources/read", {"uri": own_uri})
        contents = [{**content, "uri": uri} for content in result.get("contents", [])]
        return result if "inputRequests" in result else {"contents": contents}

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of prompts, and the offset of the next page."""
        named = [(name, raw) for server in self._visible() for name, raw in server.prompts().items()]
        return _page([{**raw, "name": name} for name, raw in named], offset)

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt; or a result in which the server asks the person."""
        server, own_name = self._locate({"name": name})
        return server and server.ask("prompts/get", {"name": own_name, "arguments": arguments})

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return what the server proposes for an argument of its prompt or template, and how much more there is."""
        server, own = self._locate(ref)
        if server is None:
            return None
        own_ref = {"type": ref["type"], "uri" if "uri" in ref else "name": own}
        asked = {"ref": own_ref, "argument": {"name": argument, "value": value}}
        return server.ask("completion/complete", asked).get("completion") or {"values": []}

    def _locate(self, ref: Json) -> tuple[McpServer | None, str]:
        """Return the server that has a resource (`uri`) or prompt (`name`), and its own address or name of it."""
        namespace, _, address = str(ref.get("uri")).removeprefix(SERVER_ADDRESS).partition("/")
        for server in self._visible():
            if "uri" in ref and str(ref["uri"]).startswith(SERVER_ADDRESS) and server.entry.namespace == namespace:
                return server, address[1:] if address.startswith("=") else unquote(address)
            if "name" in ref and (raw := server.prompts().get(ref["name"])) is not None:
                return server, raw["name"]
        return None, ""


def _page(items: list[Json], offset: int) -> tuple[list[Json], int | None]:
    following = offset + PAGE if offset + PAGE < len(items) else None
    return items[offset : offset + PAGE], following
