"""Sign in to remote servers with OAuth: the tokens kept, and where the browser comes back to."""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared import auth
from pydantic import AnyUrl, ValidationError

from localmcp.config import state_directory
from localmcp.errors import InvalidInput, Unavailable
from localmcp.files import read_json_object, write_atomically
from localmcp.http import LOOPBACK
from localmcp.hub.entries import LoginNeeded, ServerEntry, SessionLost, prepare
from localmcp.schemas import Json
from localmcp.visible_text import visible

CALLBACK = "/callback"
_INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "localmcp", "version": "0"}},
}
_ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}

# It logs tracebacks of failures that the person is told in a sentence.
logging.getLogger("mcp.client.auth.oauth2").setLevel(logging.CRITICAL)


class TokenFile:
    """The tokens of one server, which only the owner can read. Used as the SDK's `TokenStorage`."""

    def __init__(self, entry: ServerEntry, *, is_new: bool = False) -> None:
        """`is_new`: a login that ignores the tokens that are kept."""
        self._entry = entry
        self._is_new = is_new
        self.path = state_directory() / "logins" / f"{entry.digest}.json"
        self.last: Any = None
        """The tokens that were read or written last."""
        self.provider: OAuthClientProvider

    async def get_tokens(self) -> auth.OAuthToken | None:
        self.last = None if self._is_new else read_json_object(self.path).get("tokens")
        return auth.OAuthToken.model_validate(self.last) if self.last else None

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        client = read_json_object(self.path).get("client")
        if self._is_new:
            registered = self._entry.oauth
            method = "client_secret_post" if registered.clientSecret else "none"
            client = registered.clientId and {
                "client_id": registered.clientId,
                "client_secret": registered.clientSecret or None,
                "token_endpoint_auth_method": method,
            }
        return auth.OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        """Keep nothing yet: `set_tokens` keeps it too, so that a login that fails changes nothing."""

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
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


def kept_login(entry: ServerEntry, url: str, on_refused: Callable[[Unavailable], None]) -> OAuthClientProvider | None:
    """Return what signs requests with the kept tokens and refreshes them; None where nobody has signed in.

    A request that can no longer be signed raises `LoginNeeded`, or `SessionLost` if another process has new tokens.
    `on_refused` gets the error first, since the SDK's transport may swallow it.
    """
    storage = TokenFile(entry)
    stored = read_json_object(storage.path)
    if "tokens" not in stored:
        return None

    async def refuse(_url: str = "") -> NoReturn:
        tokens = read_json_object(storage.path).get("tokens")
        lost = SessionLost(f"The MCP server '{entry.name}' refused the tokens; newer ones are used.")
        error = LoginNeeded(entry.name) if tokens in (None, storage.last) else lost
        on_refused(error)
        raise error

    metadata = auth.OAuthClientMetadata(client_name="localmcp", redirect_uris=[AnyUrl("http://127.0.0.1/")])
    provider = storage.provider = OAuthClientProvider(url, metadata, storage, refuse, refuse)
    context = provider.context
    try:
        # The SDK does not keep these, and without them it would ask the person instead of refreshing.
        context.token_expiry_time = stored.get("expiresAt")
        if service := stored.get("metadata"):
            context.oauth_metadata = auth.OAuthMetadata.model_validate(service)
        if resource := stored.get("resource"):
            context.protected_resource_metadata = auth.ProtectedResourceMetadata.model_validate(resource)
    except ValidationError:
        return None
    return provider


def forget_login(entry: ServerEntry) -> bool:
    """Remove the tokens of a server; return whether there were any."""
    path = TokenFile(entry).path
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


async def sign_in(entry: ServerEntry, show: Callable[[str], None], seconds: float = 300.0) -> bool:
    """Sign in with the person's browser; False if the server asks for no login.

    `show` is called with the address that the person has to open.

    Raises InvalidInput for a program, a server with a key in its headers or without TLS, ConfigurationError for a
    variable that is not set, Unavailable if the server is not reached or refuses, or nobody signs in in time.
    """
    launch = prepare(entry)
    is_local = urlsplit(launch.url).hostname in LOOPBACK
    if not launch.url:
        raise InvalidInput(f"'{entry.name}' is a program; only servers with a url are signed in to.")
    if any(name.lower() == "authorization" for name in entry.headers):
        raise InvalidInput(
            f"'{entry.name}' has an Authorization header already.", hint="Remove it from mcp.json first."
        )
    if urlsplit(launch.url).scheme != "https" and not is_local:
        raise InvalidInput(f"'{entry.name}' is reached without TLS, which would show the tokens to others.")
    storage, browser = TokenFile(entry, is_new=True), _Browser(show)
    try:
        async with asyncio.timeout(seconds):
            server = await asyncio.start_server(browser.answer, "127.0.0.1", entry.oauth.callbackPort)
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{CALLBACK}"
            metadata = auth.OAuthClientMetadata(client_name="localmcp", redirect_uris=[AnyUrl(address)])
            storage.provider = OAuthClientProvider(launch.url, metadata, storage, browser.show, lambda: browser.result)
            async with (
                server,
                httpx2.AsyncClient(
                    headers={**launch.headers, **_ACCEPT},
                    timeout=httpx2.Timeout(30.0),
                    trust_env=not is_local,
                    auth=storage.provider,
                ) as client,
                client.stream("POST", launch.url, json=_INITIALIZE) as response,
            ):
                status = response.status_code
    except TimeoutError:
        raise Unavailable(f"Nobody signed in to '{entry.name}' within {seconds:.0f} s.", hint="Try again.") from None
    except (OAuthFlowError, httpx2.HTTPError, ImportError, ValidationError) as error:
        raise Unavailable(f"The sign-in to '{entry.name}' failed: {visible(str(error))[:300]}") from error
    except OSError as error:
        raise Unavailable(f"The way back from the browser cannot be opened: {error.strerror or error}.") from error
    if status in (401, 403):
        raise Unavailable(f"The MCP server '{entry.name}' refuses what the sign-in gave (HTTP {status}).")
    return storage.provider.context.current_tokens is not None


class _Browser:
    """The person's browser: it is shown where to sign in, and brings the code back to a port of this machine."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._state = ""
        self.result: asyncio.Future[auth.AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def show(self, url: str) -> None:
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        await asyncio.to_thread(self._show, url)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request. Any page in the browser can send some here; only the login that localmcp began counts."""
        try:
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
            parts = urlsplit(head.decode("latin-1").split(" ")[1])
            values = {name: value[0] for name, value in parse_qs(parts.query).items()}
            is_ours = parts.path == CALLBACK and self._state != "" and values.get("state") == self._state
            status, text = "400 Bad Request", "This is not the sign-in that localmcp has begun."
            if is_ours:
                done = "The sign-in was refused." if "error" in values else "You are signed in."
                status, text = "200 OK", f"{done} You can close this window."
            if is_ours and not self.result.done():
                if "error" in values:
                    why = values.get("error_description") or values["error"]
                    self.result.set_exception(OAuthFlowError(f"{values['error']}: {why}"))
                else:
                    code, issuer = values.get("code", ""), values.get("iss")
                    self.result.set_result(auth.AuthorizationCodeResult(code=code, state=self._state, iss=issuer))
            lines = f"HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
            writer.write(f"{lines}connection: close\r\n\r\n{text}".encode())
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError) as error:
            logging.getLogger(__name__).debug("no request of a browser: %r", error)
        finally:
            writer.close()
