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
        return _page(
            [
                {**raw, "uri": shown_address(server.entry.namespace, raw["uri"])}
                for server in self._visible()
                for raw in server.offered("resources")
            ],
            offset,
        )

    def templates(self) -> list[Json]:
        """Return the templates of all servers."""
        return [
            {**raw, "uriTemplate": f"{SERVER_ADDRESS}{server.entry.namespace}/={raw['uriTemplate']}"}
            for server in self._visible()
            for raw in server.offered("resourceTemplates")
        ]

    def read(self, uri: str) -> list[Json] | None:
        """Return the contents of a resource."""
        server, own_uri = self._locate(uri)
        if server is None:
            return None
        contents = server.ask("resources/read", {"uri": own_uri}).get("contents", [])
        return [{**content, "uri": uri} for content in contents]

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return a page of prompts, and the offset of the next page."""
        named = [(name, raw) for server in self._visible() for name, raw in server.prompts().items()]
        return _page([{**raw, "name": name} for name, raw in named], offset)

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt."""
        server, own_name = self._find_prompt(name)
        return server and server.ask("prompts/get", {"name": own_name, "arguments": arguments})

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return what the server proposes for an argument of its prompt or template, and how much more there is."""
        if ref.get("type") == "ref/resource":
            server, own_uri = self._locate(str(ref.get("uri")))
            own_ref = {"type": "ref/resource", "uri": own_uri}
        else:
            server, own_name = self._find_prompt(str(ref.get("name")))
            own_ref = {"type": "ref/prompt", "name": own_name}
        if server is None:
            return None
        asked = {"ref": own_ref, "argument": {"name": argument, "value": value}}
        return server.ask("completion/complete", asked).get("completion") or {"values": []}

    def _locate(self, uri: str) -> tuple[McpServer | None, str]:
        """Return the server that has the resource, and the server's own address of it."""
        if not uri.startswith(SERVER_ADDRESS):
            return None, ""
        namespace, _, address = uri.removeprefix(SERVER_ADDRESS).partition("/")
        server = next((visible for visible in self._visible() if visible.entry.namespace == namespace), None)
        return server, address[1:] if address.startswith("=") else unquote(address)

    def _find_prompt(self, name: str) -> tuple[McpServer | None, str]:
        """Return the server that has the prompt, and the server's own name of it."""
        for server in self._visible():
            if (raw := server.prompts().get(name)) is not None:
                return server, raw["name"]
        return None, ""


def _page(items: list[Json], offset: int) -> tuple[list[Json], int | None]:
    following = offset + PAGE if offset + PAGE < len(items) else None
    return items[offset : offset + PAGE], following
