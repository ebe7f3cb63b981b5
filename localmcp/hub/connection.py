"""One live connection to a server, over pipes or Streamable HTTP, from handshake to end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from localmcp.errors import InvalidInput, LocalMCPError, MissingCapability, Unavailable
from localmcp.http import LOOPBACK
from localmcp.hub.authorization import TokensReplaced, kept_login, login_needed
from localmcp.hub.catalog import MOST_LEFT_OUT, LeftOut, ToolList, read_left_out, usable_tools
from localmcp.hub.entries import Launch, ServerEntry, prepare
from localmcp.hub.person_questions import PersonQuestions, required_capability
from localmcp.hub.process import Child, Guard, ServerLog, run_child
from localmcp.hub.refusals import broke_off, innermost, malformation_of, reason_of, session_is_lost
from localmcp.hub.repaired_messages import LEFT_OUT, RepairedMessages
from localmcp.hub.reported_changes import ReportedChanges
from localmcp.schemas import Json, compact_json, list_of, without_surrogates
from localmcp.tools import INPUT_KEY, ReportProgress, person_asker
from localmcp.version import __version__

log = logging.getLogger(__name__)
# It logs tracebacks of an event that comes while the connection is closed; of others the call says what failed.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL)

MOST_PAGES, MOST_OFFER_PAGES = 100, 10
PROBE_SECONDS, CLOSING_SECONDS = 3.0, 1.6
"""Seconds for a ping after a call has timed out, before a server counts as stuck; and to end."""
UNAUTHORIZED = 401
MAX_ANSWER = 5 * 1024 * 1024
"""Characters of one answer as JSON: no model reads more, and every copy of it takes memory."""
MOST_ROUNDS = 10
"""How often one call may ask the person."""
MAX_EVENT = 64 * 1024 * 1024
_OTHER_ERA = (types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INVALID_PARAMS, types.UNSUPPORTED_PROTOCOL_VERSION)

_OFFERS = {"resources": "resources/list", "resourceTemplates": "resources/templates/list", "prompts": "prompts/list"}
"""What a server offers besides tools: key of the answer -> request."""


class SessionLost(Unavailable):
    """The server has been started again since the handshake, and refused the call without reading it."""


class _Whole(BaseModel):
    """A result exactly as the server sent it."""

    model_config = ConfigDict(extra="allow")


class Connection:
    """Opened once, used by many calls at a time, closed once. Lives in one event loop."""

    def __init__(
        self,
        entry: ServerEntry,
        server_log: ServerLog,
        guard: Guard,
        on_change: Callable[[str], None],
        asks: bool = False,
    ) -> None:
        """
        Args:
            on_change: called with `tools` or `offers` when such a list has changed, or with a resource's address.
            asks: whether the server is told that it may ask the person.
        """
        self.entry = entry
        self.asks = asks
        self._questions = PersonQuestions()
        self._log = server_log
        self._guard = guard
        self._changes = ReportedChanges(entry.name, on_change)
        self._session: ClientSession
        self._child: Child | None = None
        self._status: int | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._session_lost = False
        self._ended = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._refusal: Unavailable | None = None
        """Why requests can no longer be signed."""

    @property
    def alive(self) -> bool:
        """Whether calls can be sent."""
        ended = self._ended.is_set() or self._leave.is_set()
        return not ended and not (self._child is not None and self._child.is_dead)

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Start or reach the server and shake hands.

        Raises:
            ConfigurationError: a variable of the entry is not set.
            Unavailable: it does not start, is not reached, or does not answer within `start_seconds`.
        """
        launch = prepare(self.entry)
        self._log.begin(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.entry.where}", launch.secrets)
        # Streams and cancel scopes must be left by the task that entered them, so one task holds them all its life.
        self._life = asyncio.create_task(self._live(launch), name=f"mcp-server {self.entry.name}")
        try:
            async with asyncio.timeout(self.entry.start_seconds):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            seconds = f"{self.entry.start_seconds:g} seconds"
            raise self._unavailable(f"did not answer within {seconds} of its start") from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection, and the server if we started it. Never fails, and takes CLOSING_SECONDS at most."""
        self._leave.set()
        if self._life is None:
            return
        if not self._opened.done():
            # It waits for an answer of the server, not for `_leave`.
            self._life.cancel()
        done, _ = await asyncio.wait({self._life}, timeout=CLOSING_SECONDS)
        if not done:
            self._life.cancel()

    async def _live(self, launch: Launch) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._enter(stack, launch)
                self._opened.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            await self._note_end(error)
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
        finally:
            self._ended.set()
            if not self._opened.done():
                self._opened.set_exception(self._unavailable("was given up"))
            # Mark the exception as retrieved: maybe nobody waits for it any more.
            self._opened.exception()

    async def _note_end(self, error: BaseException) -> None:
        """Fail the start that waits; after the start, calls learn of the end from the session."""
        if self._opened.done():
            log.info("the connection to the MCP server '%s' ended: %s", self.entry.name, error)
            return
        self._opened.set_exception(self._explain_start(innermost(error)))

    async def _enter(self, stack: AsyncExitStack, launch: Launch) -> None:
        if launch.url:
            incoming, outgoing = await stack.enter_async_context(self._reach(launch))
        else:
            running = run_child(launch, self._log, self._guard, self._leave.set)
            incoming, outgoing, self._child = await stack.enter_async_context(running)
        session = ClientSession(
            RepairedMessages(incoming, self.entry.name, lambda: self._session.protocol_version),
            outgoing,
            client_info=types.Implementation(name="localmcp", version=__version__),
            message_handler=self._changes.on_message,
            elicitation_callback=self._questions.answer if self.asks else None,
        )
        self._session = await stack.enter_async_context(session)
        await self._shake_hands()
        if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._changes.listen_to_lists(self._session)
            stack.callback(self._changes.close)

    @asynccontextmanager
    async def _reach(self, launch: Launch) -> AsyncGenerator[Any]:
        async def remember_status(response: httpx2.Response) -> None:
            self._status = response.status_code

        client = httpx2.AsyncClient(
            headers=dict(launch.headers),
            timeout=httpx2.Timeout(self.entry.start_seconds, read=300.0),
            auth=kept_login(self.entry, launch.url, self._note_refusal),
            event_hooks={"response": [remember_status]},
            # What is meant for this machine must not leave it through a proxy from the environment.
            trust_env=urlsplit(launch.url).hostname not in LOOPBACK,
        )
        async with (
            client,
            streamable_http_client(launch.url, http_client=client, max_sse_event_size=MAX_EVENT) as streams,
        ):
            yield streams

    def _note_refusal(self, error: Unavailable) -> None:
        self._refusal = error
        self._leave.set()

    async def _shake_hands(self) -> None:
        """Try the handshake of 2025, which every server of today answers, then the discovery of 2026."""
        try:
            await self._session.initialize()
        except MCPError as error:
            if error.code not in _OTHER_ERA:
                raise
            await self._session.discover()

    # ------------------------------------------------------------ subscriptions

    async def subscribe(self, uri: str) -> None:
        """Report changes of a resource as long as the connection lives, if the server reports them."""
        if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._changes.listen_to_resource(self._session, uri)
            return
        try:
            await self.ask("resources/subscribe", {"uri": uri}, self.entry.start_seconds)
        except InvalidInput as error:
            log.info("%s", error)

    async def unsubscribe(self, uri: str) -> None:
        """Report changes of a resource no more."""
        if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._changes.end(uri)
            return
        try:
            await self.ask("resources/unsubscribe", {"uri": uri}, self.entry.start_seconds)
        except InvalidInput as error:
            log.info("%s", error)

    # ------------------------------------------------------------ requests

    async def list_tools(self) -> ToolList:
        """Return every tool of the server, as the server describes it, and those that cannot be used.

        Raises:
            Unavailable: no answer, or one that is no list of tools.
        """
        tools: list[types.Tool] = []
        left_out: list[LeftOut] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.entry.start_seconds):
                for _ in range(MOST_PAGES):
                    params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
                    page = await self._session.list_tools(params=params)
                    tools += page.tools
                    left_out += read_left_out((page.meta or {}).get(LEFT_OUT))
                    cursor = page.next_cursor
                    if not cursor:
                        break
            usable = usable_tools(tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools)
            return ToolList(usable, tuple(left_out[:MOST_LEFT_OUT]))
        except (MCPError, TimeoutError, ValueError) as error:  # a schema may be deeper than can be read
            if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                return ToolList([])
            raise await self._explain_call("tools/list", error) from error

    async def list_offers(self) -> dict[str, list[Json]]:
        """Return the server's resources, templates of resources, and prompts as it describes them.

        Raises:
            Unavailable: no answer.
        """
        capabilities = self._session.server_capabilities or types.ServerCapabilities()
        has = {"resources": capabilities.resources, "prompts": capabilities.prompts}
        return {
            key: await self._list_pages(method, key) if has[method.partition("/")[0]] else []
            for key, method in _OFFERS.items()
        }

    async def _list_pages(self, method: str, key: str) -> list[Json]:
        items: list[Any] = []
        cursor: Any = None
        for _ in range(MOST_OFFER_PAGES):
            try:
                answer = await self.ask(method, {"cursor": cursor} if cursor else {}, self.entry.start_seconds)
            except InvalidInput:
                # A server with resources need not know templates.
                break
            items += list_of(answer.get(key))
            if not (cursor := answer.get("nextCursor")):
                break
        return [cast(Json, item) for item in items if isinstance(item, dict)]

    async def ask(self, method: str, params: Json, seconds: float | None = None) -> Json:
        """Return the raw result of a request that calls no tool.

        Raises:
            InvalidInput: the server refuses.
            Unavailable: no answer in time, or an end in the middle.
        """
        try:
            return await self._exchange(method, params, self.entry.call_seconds if seconds is None else seconds)
        except MCPError as error:
            # Another request may have ended this connection because its session is lost; reading can be repeated.
            if self._session_lost or (not broke_off(error) and session_is_lost(error, self._status)):
                raise self._forgotten(method, error) from error
            if broke_off(error):
                raise await self._explain_end(method) from error
            raise InvalidInput(self._refused(method, error)) from error
        except (TimeoutError, ValueError, anyio.ClosedResourceError, RuntimeError) as error:
            raise self._unavailable(f"gave no usable answer to {method}") from error

    async def call_tool(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the result as the server sent it: `content`, and perhaps `structuredContent` and `isError`.

        Raises:
            InvalidInput: the server refuses the call's form.
            Unavailable: no answer within `seconds` (None: `call_seconds`), an end in the middle, an answer that is no
                result or larger than MAX_ANSWER.
        """
        params: Json = {"name": tool, "arguments": without_surrogates(arguments)}
        seconds = self.entry.call_seconds if seconds is None else seconds
        try:
            answer = await self._exchange("tools/call", params, seconds, progress)
        except (MCPError, TimeoutError, ValueError, anyio.ClosedResourceError, RuntimeError) as error:
            raise await self._explain_call(tool, error) from error
        size = len(compact_json(answer))
        if size > MAX_ANSWER:
            problem = f"answered {tool} with {size / 1e6:.0f} MB, and at most {MAX_ANSWER >> 20} MB are taken"
            message = f"The MCP server '{self.entry.name}' {problem}."
            raise Unavailable(message, hint="Ask for less: a page, a range, a filter.")
        return answer

    async def _exchange(
        self, method: str, params: Json, seconds: float, progress: ReportProgress | None = None
    ) -> Json:
        """Send a request, and again with the person's answers, whose time does not count."""
        answer = await self._send(method, params, seconds, progress)
        for _ in range(MOST_ROUNDS):
            if answer.get("resultType") != "input_required":
                return answer
            requests = cast(Json, answer.get("inputRequests") or {})
            responses = {key: await self._answer_input(key, request) for key, request in requests.items()}
            more = {"inputResponses": responses or None, "requestState": answer.get("requestState")}
            answer = await self._send(method, {**params, **more}, seconds, progress)
        raise self._unavailable(f"asked more than {MOST_ROUNDS} times for the answer of {method}")

    async def _send(self, method: str, params: Json, seconds: float, progress: ReportProgress | None) -> Json:
        request = types.client_request_adapter.validate_python({"method": method, "params": params})
        callback = _forward(progress) if progress is not None else None
        # The SDK's time-out begins when the request is written, and a server that does not read can prevent that.
        async with asyncio.timeout(seconds) as clock, self._questions.during(clock):
            result = await self._session.send_request(request, _Whole, progress_callback=callback)
        return result.model_extra or {}

    async def _answer_input(self, key: str, request: Json) -> Json:
        if request.get("method") != "elicitation/create":
            raise self._unavailable(f"asked for {request.get('method')}, which is not passed on")
        ask = person_asker()
        if ask is None:
            problem = "asked the person a question, which this client cannot show"
            raise MissingCapability(f"The MCP server '{self.entry.name}' {problem}.")
        params = cast(Json, request.get("params") or {})
        return await asyncio.wrap_future(ask({**params, "_meta": {**(params.get("_meta") or {}), INPUT_KEY: key}}))

    async def _probe(self) -> None:
        """After a time-out, end a server that answers no ping, so that the next call starts it again."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                if self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    await self._session.list_tools()
                else:
                    await self._session.send_ping()
        except TimeoutError:
            self._log.add(b"localmcp: it does not answer any more and is ended")
            self._leave.set()
        except Exception as error:
            # Any answer shows that it lives, and an end is reported elsewhere.
            log.debug("the MCP server '%s' answered a ping with %s", self.entry.name, error)

    # ------------------------------------------------------------ failures in words

    async def _explain_call(self, tool: str, error: Exception) -> LocalMCPError:
        code = error.code if isinstance(error, MCPError) else None
        if isinstance(error, TimeoutError):
            self._probing = asyncio.create_task(self._probe())
            listing = tool == "tools/list"
            seconds = self.entry.start_seconds if listing else self.entry.call_seconds
            more = f"It may need more: set its `{'startTimeout' if listing else 'timeout'}`."
            return self._unavailable(f"did not answer {tool} within {seconds:g} seconds", more)
        if self._refusal is not None or self._status == UNAUTHORIZED:
            return self._explain_refusal()
        if isinstance(error, MCPError) and not broke_off(error):
            if session_is_lost(error, self._status):
                return self._forgotten(tool, error)
            message = self._refused(tool, error)
            if code == types.MISSING_REQUIRED_CLIENT_CAPABILITY:
                return MissingCapability(message, capability=required_capability(error.data))
            return (InvalidInput if code == types.INVALID_PARAMS else Unavailable)(message)
        if isinstance(error, ValueError):
            problem = self._log.shown(malformation_of(error))[:200]
            reason = f"answered {tool} with something that is no MCP result ({problem})"
            return Unavailable(f"The MCP server '{self.entry.name}' {reason}.")
        return await self._explain_end(tool)

    def _refused(self, request: str, error: MCPError) -> str:
        reason = self._log.shown(reason_of(error)) + self._http_status()
        return f"The MCP server '{self.entry.name}' refused {request}: {reason}"

    def _forgotten(self, request: str, error: MCPError) -> SessionLost:
        """The next request makes a new session; one that is refused in that one too is told as what it is."""
        self._session_lost = True
        self._leave.set()
        return SessionLost(self._refused(request, error))

    def _explain_refusal(self) -> LocalMCPError:
        """Return what to do about a 401. With another process's new tokens the refused call can be repeated."""
        if isinstance(self._refusal, TokensReplaced):
            return SessionLost(self._refusal.message)
        return self._refusal or login_needed(self.entry)

    async def _explain_end(self, tool: str) -> Unavailable:
        # No later call may use this connection, though it may not have ended yet.
        self._leave.set()
        if self._child is None:
            return self._unavailable(f"was lost during the call of {tool}", "The next call reaches for it again.")
        await self._child.wait_briefly()
        ending = f" ({self._child.ending})" if self._child.ending else ""
        return self._unavailable(f"ended during the call of {tool}{ending}", "The next call starts it again.")

    def _explain_start(self, error: BaseException) -> LocalMCPError:
        if self._refusal is not None:
            return self._explain_refusal()
        if isinstance(error, LocalMCPError):
            return error
        if self._status == UNAUTHORIZED:
            return self._explain_refusal()
        if broke_off(error):
            ending = f" ({self._child.ending})" if self._child and self._child.ending else ""
            return self._unavailable(f"ended during its start{ending}")
        if isinstance(error, MCPError):
            return self._unavailable(f"refused the handshake: {self._log.shown(reason_of(error))}{self._http_status()}")
        if isinstance(error, httpx2.HTTPError):
            reason = self._log.shown(str(error)) or type(error).__name__
            return self._unavailable(f"cannot be reached at {self.entry.where}: {reason}")
        if isinstance(error, OSError) and self._child is None:
            problem = f"cannot be started: {error.strerror or error}: {error.filename or self.entry.where}"
            return self._unavailable(problem, "Is it installed? If so, write its whole path as the command.")
        reason = malformation_of(error) if isinstance(error, ValueError) else str(error)
        return self._unavailable(f"does not speak MCP as expected: {self._log.shown(reason)[:300]}")

    def _http_status(self) -> str:
        return f" (HTTP {self._status})" if self._status is not None and self._status >= 400 else ""

    def _unavailable(self, problem: str, hint: str = "") -> Unavailable:
        last = self._log.last_line
        words = [
            hint,
            f"Its last words: “{last}”." if last else "",
            "" if self.entry.url else f"Its log: {self._log.path}",
        ]
        return Unavailable(f"The MCP server '{self.entry.name}' {problem}.", hint=" ".join(filter(None, words)) or None)


def _forward(listener: ReportProgress) -> ProgressFnT:
    async def forward(progress: float, total: float | None, message: str | None) -> None:
        listener(progress, total, message or "")

    return forward
