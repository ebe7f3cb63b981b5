"""Sign in to remote servers with OAuth: the tokens kept, and where the browser comes back to."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from localmcp.config import state_directory
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import read_json_object, write_atomically
from localmcp.http import LOOPBACK
from localmcp.hub.entries import ServerEntry, prepare
from localmcp.schemas import Json
from localmcp.visible_text import visible

LOGIN_SECONDS = 300.0
CALLBACK = "/callback"
_LONG_AGO = 1.0
"""Seconds since 1970."""
_DONE = "You are signed in. You can close this window."
_INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "localmcp", "version": "0"}},
}
_ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}

# It logs tracebacks of failures that the person is told in a sentence.
logging.getLogger("mcp.client.auth.oauth2").setLevel(logging.CRITICAL)


class LoginNeeded(Unavailable):
    """The person has to sign in, for the first time or again."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"The MCP server '{server}' asks you to sign in (HTTP 401).",
            hint=f"Sign in with: localmcp servers login {server}",
        )


class TokensReplaced(Unavailable):
    """A new connection uses the tokens that another process has kept meanwhile, or tries to refresh these."""

    def __init__(self, server: str) -> None:
        super().__init__(f"The MCP server '{server}' refused the tokens; newer ones are used, or asked for.")


# ---------------------------------------------------------------- what is kept


class TokenFile:
    """The tokens of one server, which only the owner can read. Used as the SDK's `TokenStorage`."""

    def __init__(self, entry: ServerEntry) -> None:
        self._entry = entry
        self.path = state_directory() / "logins" / f"{entry.digest}.json"
        self.last: Any = None
        """The tokens that were read or written last."""
        self.provider: OAuthClientProvider | None = None
        self.refusal: Unavailable | None = None
        """Why these tokens can no longer be used."""

    def read(self) -> Json:
        """Return what is kept; empty where nobody has signed in."""
        return read_json_object(self.path)

    async def get_tokens(self) -> OAuthToken | None:
        self.last = self.read().get("tokens")
        return OAuthToken.model_validate(self.last) if self.last else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = self.read().get("client")
        return OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing yet: `set_tokens` keeps it too, so that a login that fails changes nothing."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self.provider is not None
        if self.last is not None and not self.path.exists():
            # The person has signed out meanwhile.
            raise LoginNeeded(self._entry.name)
        context = self.provider.context
        parts = {
            "tokens": tokens,
            "client": context.client_info,
            "metadata": context.oauth_metadata,
            "resource": context.protected_resource_metadata,
        }
        stored = {name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part}
        expires = time.time() + tokens.expires_in if tokens.expires_in else None
        self.last = stored["tokens"]
        write_atomically(self.path, json.dumps({**stored, "expiresAt": expires, "url": self._entry.where}))

    def expire_early(self) -> bool:
        """Have the next connection refresh the tokens; False if that was tried or there is no refresh token."""
        stored = self.read()
        expires = stored.get("expiresAt")
        if not stored.get("tokens", {}).get("refresh_token") or (expires is not None and expires < time.time()):
            return False
        write_atomically(self.path, json.dumps({**stored, "expiresAt": _LONG_AGO}))
        return True


class _NewLogin(TokenFile):
    """A login that ignores what is kept; a client that the person registered is used."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        settings = self._entry.oauth
        if not settings.get("clientId"):
            return None
        client = {"client_id": settings["clientId"], "client_secret": settings.get("clientSecret")}
        method = "client_secret_post" if settings.get("clientSecret") else "none"
        return OAuthClientInformationFull.model_validate({**client, "token_endpoint_auth_method": method})


def kept_login(entry: ServerEntry, url: str, on_refused: Callable[[Unavailable], None]) -> OAuthClientProvider | None:
    """Return what signs requests with the kept tokens and refreshes them; None where nobody has signed in.

    A request that can no longer be signed raises `LoginNeeded`, or `TokensReplaced` if there are newer tokens.
    `on_refused` gets the error first, since the SDK's transport may swallow it.
    """
    storage = TokenFile(entry)
    stored = storage.read()
    if "tokens" not in stored:
        return None

    async def refuse(_url: str) -> None:
        # The SDK refreshes a token that has expired, but not one that the server has revoked.
        # Of two requests at a time, the second must not find that the first has tried it.
        if storage.refusal is None:
            replaced = storage.read().get("tokens") != storage.last or storage.expire_early()
            storage.refusal = TokensReplaced(entry.name) if replaced else LoginNeeded(entry.name)
            on_refused(storage.refusal)
        raise storage.refusal

    async def never() -> AuthorizationCodeResult:
        raise LoginNeeded(entry.name)

    provider = _provider(url, storage, "http://127.0.0.1/", refuse, never)
    context = provider.context
    try:
        # The SDK does not keep these, and without them it would ask the person instead of refreshing.
        context.token_expiry_time = stored.get("expiresAt")
        context.oauth_metadata = OAuthMetadata.model_validate(stored["metadata"]) if "metadata" in stored else None
        resource = stored.get("resource")
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource) if resource else None
    except ValidationError:
        return None
    return provider


def _provider(
    url: str,
    storage: TokenFile,
    redirect_uri: str,
    redirect: Callable[[str], Awaitable[None]],
    callback: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(client_name="localmcp", redirect_uris=[AnyUrl(redirect_uri)])
    storage.provider = OAuthClientProvider(url, metadata, storage, redirect, callback)
    return storage.provider


# ---------------------------------------------------------------- signing in


async def sign_in(entry: ServerEntry, show: Callable[[str], None], seconds: float = LOGIN_SECONDS) -> bool:
    """Sign in with the person's browser; False if the server asks for no login.

    Args:
        show: called with the address that the person has to open.

    Raises:
        InvalidInput: the server is a program, has a key in its headers already, or is reached without TLS.
        ConfigurationError: a variable of the entry is not set.
        Unavailable: the server is not reached, refuses, or nobody signs in within `seconds`.
    """
    launch = prepare(entry)
    _check_can_sign_in(entry, launch.url)
    storage = _NewLogin(entry)
    try:
        async with asyncio.timeout(seconds), _loopback(entry.oauth.get("callbackPort") or 0) as back:
            provider = _provider(launch.url, storage, back.address, back.show_with(show), back.wait)
            headers, timeout = {**launch.headers, **_ACCEPT}, httpx2.Timeout(30.0)
            is_local = urlsplit(launch.url).hostname in LOOPBACK
            async with (
                httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=not is_local, auth=provider) as client,
                client.stream("POST", launch.url, json=_INITIALIZE) as response,
            ):
                status = response.status_code
    except TimeoutError:
        raise Unavailable(f"Nobody signed in to '{entry.name}' within {seconds:.0f} s.", hint="Try again.") from None
    except (OAuthFlowError, httpx2.HTTPError, ValidationError) as error:
        raise Unavailable(f"The sign-in to '{entry.name}' failed: {visible(str(error))[:300]}") from error
    except OSError as error:
        raise Unavailable(f"The way back from the browser cannot be opened: {error.strerror or error}.") from error
    if status in (401, 403):
        raise Unavailable(f"The MCP server '{entry.name}' refuses what the sign-in gave (HTTP {status}).")
    return provider.context.current_tokens is not None


def _check_can_sign_in(entry: ServerEntry, url: str) -> None:
    if not url:
        raise InvalidInput(f"'{entry.name}' is a program; only servers with a url are signed in to.")
    if any(name.lower() == "authorization" for name in entry.headers):
        raise InvalidInput(
            f"'{entry.name}' has an Authorization header already.", hint="Remove it from mcp.json first."
        )
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise InvalidInput(f"'{entry.name}' is reached without TLS, which would show the tokens to others.")


class _CallbackServer:
    """The address to which the browser comes back, and the code that it brings."""

    def __init__(self) -> None:
        self.address = ""
        self._state = ""
        self._result: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    def show_with(self, show: Callable[[str], None]) -> Callable[[str], Awaitable[None]]:
        async def redirect(url: str) -> None:
            self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
            await asyncio.to_thread(show, url)

        return redirect

    async def wait(self) -> AuthorizationCodeResult:
        return await self._result

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request of the browser."""
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._take(head.decode("latin-1").split(" ")[1])
            body = f"{text}\n".encode()
            lines = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{lines}connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError) as error:
            logging.getLogger(__name__).debug("no request of a browser: %r", error)
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        values = {name: value[0] for name, value in parse_qs(parts.query).items()}
        if parts.path != CALLBACK or not self._state or values.get("state") != self._state:
            # Any page in the browser can send requests here; only the login that localmcp began counts.
            return "400 Bad Request", "This is not the sign-in that localmcp has begun."
        if self._result.done():
            return "200 OK", _DONE
        if "error" in values:
            why = values.get("error_description") or values["error"]
            self._result.set_exception(OAuthFlowError(f"{values['error']}: {why}"))
            return "200 OK", "The sign-in was refused. You can close this window."
        code, iss = values.get("code", ""), values.get("iss")
        self._result.set_result(AuthorizationCodeResult(code=code, state=self._state, iss=iss))
        return "200 OK", _DONE


@asynccontextmanager
async def _loopback(port: int) -> AsyncGenerator[_CallbackServer]:
    back = _CallbackServer()
    server = await asyncio.start_server(back.answer, "127.0.0.1", port)
    async with server:
        back.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{CALLBACK}"
        yield back


def forget_login(entry: ServerEntry) -> bool:
    """Remove the tokens of a server; return whether there were any."""
    path = TokenFile(entry).path
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


def login_needed(entry: ServerEntry) -> LocalMCPError:
    """Return the error for a 401: the keys in `headers` are wrong, or the person has to sign in."""
    if not entry.headers:
        return LoginNeeded(entry.name)
    return ConfigurationError(
        f"The MCP server '{entry.name}' refuses the keys in its `headers` (HTTP 401).",
        hint=f"Check them in mcp.json; or remove them and run: localmcp servers login {entry.name}",
    )
