"""A remote MCP server that wants a login, and its authorization server in the same process, over HTTP.

Run as: python signed.py LIFETIME (seconds, as clients are told them). It prints its port. `POST
/person?answer=deny` makes the person refuse, `/expire` ends every access token, `/forget` every refresh token; `GET
/counts` counts.
"""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections import Counter
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse

LIFETIME = int(sys.argv[1])


class Logins:
    """The authorization server's memory; the person says yes at once, unless told otherwise."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.counts: Counter[str] = Counter()
        self.answer = "allow"

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["registered"] += 1
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.counts["authorized"] += 1
        uri = str(params.redirect_uri)
        if self.answer == "deny":
            return construct_redirect_uri(uri, error="access_denied", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(uri, code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        self.counts["refreshed"] += 1
        if self.refreshing.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._tokens(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.access.pop(token.token, None)

    def _tokens(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refreshing = secrets.token_hex(16), secrets.token_hex(16)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.refreshing[refreshing] = RefreshToken(token=refreshing, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, refresh_token=refreshing, expires_in=LIFETIME, scope=" ".join(scopes))


def main() -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    port = sock.getsockname()[1]
    logins = Logins()
    issuer = f"http://127.0.0.1:{port}"
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(f"{issuer}/mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=False,
    )
    server = MCPServer("signed", version="1", auth=auth, auth_server_provider=logins)

    @server.tool()
    def secret() -> str:
        """What only the person may see."""
        return "the treasure is below the oak"

    @server.custom_route("/person", methods=["POST"])
    async def person(request: Request) -> JSONResponse:
        logins.answer = request.query_params["answer"]
        return JSONResponse({})

    @server.custom_route("/expire", methods=["POST"])
    async def expire(request: Request) -> JSONResponse:
        logins.access.clear()
        return JSONResponse({})

    @server.custom_route("/forget", methods=["POST"])
    async def forget(request: Request) -> JSONResponse:
        logins.refreshing.clear()
        return JSONResponse({})

    @server.custom_route("/counts", methods=["GET"])
    async def counts(request: Request) -> JSONResponse:
        return JSONResponse(logins.counts)

    app = server.streamable_http_app()
    print(port, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[sock])


if __name__ == "__main__":
    main()
