"""One session with a server, over pipes or Streamable HTTP: requests, questions, and failures in words."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.abc import Process
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, ToolsListChanged, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from localmcp.errors import InvalidInput, LocalMCPError, MissingCapability, Unavailable
from localmcp.http import LOOPBACK
from localmcp.hub.auth import TokensReplaced, kept_login, login_needed
from localmcp.hub.catalog import ToolList, usable_tools
from localmcp.hub.entries import Launch, ServerEntry, prepare
from localmcp.hub.listed_tools import ListedTools, left_out_of
from localmcp.hub.program import ServerLog, describe_end, run_program
from localmcp.humanize import cut_to
from localmcp.schemas import Json, compact_json, list_of, mapping_of, without_surrogates
from localmcp.tools import INPUT_KEY, AskPerson, ReportProgress, current_scope, person_asker
from localmcp.version import __version__

log = logging.getLogger(__name__)
# It logs tracebacks of an event that comes while the connection is closed; of others the call says what failed.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL)

MOST_PAGES = 100
UNAUTHORIZED = 401
PROBE_SECONDS, CLOSING_SECONDS = 3.0, 1.6
"""Seconds for a ping after a call has timed out, before a server counts as stuck; and to end."""
MAX_ANSWER = 5 * 1024 * 1024
"""Characters of one answer as JSON: no model reads more, and every copy of it takes memory."""
MOST_ROUNDS = 10
"""How often one call may ask the person."""
MAX_EVENT = 64 * 1024 * 1024
LONGEST_DATA = 500
"""Characters that are shown of what a server adds to a refusal."""
_OTHER_ERA = (types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INVALID_PARAMS, types.UNSUPPORTED_PROTOCOL_VERSION)
_BROKEN_OFF = re.compile(r"Connection closed|SSE stream (failed|ended)|server answered a request with 202")
_OFFERS = {"resources": "resources/list", "resourceTemplates": "resources/templates/list", "prompts": "prompts/list"}
"""What a server offers besides tools: key of the answer -> request."""


class SessionLost(Unavailable):
    """The server has been started again since the handshake, and refused the request without reading it."""


class _Whole(BaseModel):
    """A result exactly as the server sent it."""

    model_config = ConfigDict(extra="allow")


@dataclass(eq=False)
class _RunningCall:
    """A call that waits for the server."""

    clock: asyncio.Timeout
    ask: AskPerson | None
    caller: str
    seconds_left: float | None = None
    """While a question to the person is open."""


class Connection:
    """One session with a server: opened once, used by many calls at a time, closed once. Lives in one event loop."""

    def __init__(
        self, entry: ServerEntry, server_log: ServerLog, on_change: Callable[[str], None], asks: bool = False
    ) -> None:
        """
        Args:
            on_change: called with `tools` or `offers` when such a list has changed.
            asks: whether the server is told that it may ask the person.
        """
        self.entry = entry
        self.asks = asks
        self._log = server_log
        self._on_change = on_change
        self._calls: list[_RunningCall] = []
        self._questions = 0
        """Those that wait for the person."""
        self._session: ClientSession
        self._process: Process | None = None
        self._status: int | None = None
        """Of the last answer over HTTP."""
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._session_lost = False
        self._life: asyncio.Task[None] | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._refusal: Unavailable | None = None
        """Why requests can no longer be signed."""

    @property
    def alive(self) -> bool:
        """Whether calls can be sent."""
        ended = self._life is None or self._life.done() or self._leave.is_set()
        return not ended and (self._process is None or self._process.returncode is None)

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
            raise self._unavailable(
                f"did not answer within {self.entry.start_seconds:g} seconds of its start"
            ) from None
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
            if self._opened.done():
                # Calls learn of the end from the session.
                log.info("the connection to the MCP server '%s' ended: %s", self.entry.name, error)
            else:
                self._opened.set_exception(await self._explain_start(_innermost(error)))
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                raise
        finally:
            self._leave.set()
            if not self._opened.done():
                self._opened.set_exception(self._unavailable("was given up"))
            # Mark the exception as retrieved: maybe nobody waits for it any more.
            self._opened.exception()

    async def _enter(self, stack: AsyncExitStack, launch: Launch) -> None:
        if launch.url:
            incoming, outgoing = await stack.enter_async_context(self._reach(launch))
        else:
            running = run_program(launch, self._log, self._leave.set)
            incoming, outgoing, self._process = await stack.enter_async_context(running)
        session = ClientSession(
            ListedTools(incoming, self.entry.name, lambda: self._session.protocol_version),
            outgoing,
            client_info=types.Implementation(name="localmcp", version=__version__),
            message_handler=self._take_notification,
            elicitation_callback=self._ask_for_server if self.asks else None,
        )
        self._session = await stack.enter_async_context(session)
        try:
            # Every server of today answers the handshake of 2025, others the discovery of 2026.
            await session.initialize()
        except MCPError as error:
            if error.code not in _OTHER_ERA:
                raise
            await session.discover()
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            stack.callback(asyncio.create_task(self._listen()).cancel)

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

    # ------------------------------------------------------------ changes that the server reports

    async def _take_notification(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change("tools")
        elif isinstance(message, types.ResourceListChangedNotification | types.PromptListChangedNotification):
            self._on_change("offers")

    async def _listen(self) -> None:
        """Take the changes of lists from a server of 2026-07-28, which sends them on a stream."""
        every: Json = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
        try:
            async with listen(self._session, **every) as changes:
                async for change in changes:
                    self._on_change("tools" if isinstance(change, ToolsListChanged) else "offers")
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError) as error:
            log.info("the MCP server '%s' does not tell of changes: %s", self.entry.name, error)

    # ------------------------------------------------------------ requests

    async def list_tools(self) -> ToolList:
        """Return every tool of the server, as the server describes it, and those that cannot be used.

        Raises:
            Unavailable: no answer, or one that is no list of tools.
        """
        pages = await self._pages("tools/list")
        left_out = [entry for page in pages for entry in left_out_of(page)]
        return ToolList(usable_tools(tool for page in pages for tool in list_of(page.get("tools"))), tuple(left_out))

    async def list_offers(self) -> dict[str, list[Json]]:
        """Return the server's resources, templates of resources, and prompts as it describes them.

        Raises:
            Unavailable: no answer.
        """
        capabilities = self._session.server_capabilities or types.ServerCapabilities()
        has = {"resources": capabilities.resources, "prompts": capabilities.prompts}
        offers: dict[str, list[Json]] = {}
        for key, method in _OFFERS.items():
            pages = await self._pages(method) if has[method.partition("/")[0]] else []
            items = [item for page in pages for item in list_of(page.get(key))]
            offers[key] = [cast(Json, item) for item in items if isinstance(item, dict)]
        return offers

    async def _pages(self, method: str) -> list[Json]:
        """Return the pages of a list; none if the server does not know it."""
        pages: list[Json] = []
        cursor: Any = None
        while len(pages) < MOST_PAGES:
            try:
                page = await self.ask(method, {"cursor": cursor} if cursor else {}, self.entry.start_seconds)
            except _NotKnown:
                break
            pages.append(page)
            if not (cursor := page.get("nextCursor")):
                break
        return pages

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
        answer = await self.ask("tools/call", params, seconds, progress, tool)
        if (size := len(compact_json(answer))) > MAX_ANSWER:
            problem = f"answered {tool} with {size / 1e6:.0f} MB, and at most {MAX_ANSWER >> 20} MB are taken"
            message = f"The MCP server '{self.entry.name}' {problem}."
            raise Unavailable(message, hint="Ask for less: a page, a range, a filter.")
        return answer

    async def ask(
        self,
        method: str,
        params: Json,
        seconds: float | None = None,
        progress: ReportProgress | None = None,
        name: str = "",
    ) -> Json:
        """Return the raw result of a request, which messages call `name`.

        Raises:
            InvalidInput: the server refuses its form.
            Unavailable: no answer in time, or an end in the middle.
        """
        name, seconds = name or method, self.entry.call_seconds if seconds is None else seconds
        try:
            answer = await self._send(method, params, seconds, progress)
            for _ in range(MOST_ROUNDS):
                if answer.get("resultType") != "input_required":
                    return answer
                requests = mapping_of(answer.get("inputRequests"))
                responses = {key: await self._answer_input(key, request) for key, request in requests.items()}
                more = {"inputResponses": responses or None, "requestState": answer.get("requestState")}
                answer = await self._send(method, {**params, **more}, seconds, progress)
        except (MCPError, TimeoutError, ValueError, anyio.ClosedResourceError, RuntimeError) as error:
            raise await self._explain(name, error, repeatable=method != "tools/call") from error
        raise self._unavailable(f"asked more than {MOST_ROUNDS} times for the answer of {name}")

    async def _send(self, method: str, params: Json, seconds: float, report: ReportProgress | None) -> Json:
        async def forward(progress: float, total: float | None, message: str | None) -> None:
            assert report is not None
            report(progress, total, message or "")

        request = types.client_request_adapter.validate_python({"method": method, "params": params})
        # The SDK's time-out begins when the request is written, and a server that does not read can prevent that.
        async with asyncio.timeout(seconds) as clock:
            call = _RunningCall(clock, person_asker(), current_scope().caller)
            self._calls.append(call)
            try:
                result = await self._session.send_request(
                    request, _Whole, progress_callback=None if report is None else forward
                )
            finally:
                self._calls.remove(call)
        return result.model_extra or {}

    # ------------------------------------------------------------ questions to the person

    async def _answer_input(self, key: str, request: Json) -> Json:
        """Return the person's answer to a question in an unfinished result, as servers of 2026-07-28 ask."""
        if request.get("method") != "elicitation/create":
            raise self._unavailable(f"asked for {request.get('method')}, which is not passed on")
        ask = person_asker()
        if ask is None:
            problem = "asked the person a question, which this client cannot show"
            raise MissingCapability(f"The MCP server '{self.entry.name}' {problem}.")
        params = mapping_of(request.get("params"))
        return await asyncio.wrap_future(ask({**params, "_meta": {**mapping_of(params.get("_meta")), INPUT_KEY: key}}))

    async def _ask_for_server(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client whose call it is, while the clocks of all calls stand still.

        The question does not say which call it belongs to, so all running calls must be of one caller.
        """
        call = self._calls[-1] if len({running.caller for running in self._calls}) == 1 else None
        if call is None or call.ask is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="There is no client that could ask the person.")
        loop = asyncio.get_running_loop()
        self._questions += 1
        for running in self._calls:
            if (deadline := running.clock.when()) is not None:
                running.seconds_left = deadline - loop.time()
                running.clock.reschedule(None)
        try:
            question = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            return types.ElicitResult.model_validate(await asyncio.wrap_future(call.ask(question)))
        except (LocalMCPError, MCPError, ValidationError) as error:
            log.info("a question to the person failed: %s", error)
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        finally:
            self._questions -= 1
            for running in self._calls if not self._questions else ():
                if running.seconds_left is not None:
                    running.clock.reschedule(loop.time() + running.seconds_left)
                    running.seconds_left = None

    # ------------------------------------------------------------ failures in words

    async def _explain(self, name: str, error: Exception, *, repeatable: bool) -> LocalMCPError:
        """Return why the request `name` failed. `repeatable`: another request may have ended this connection."""
        if isinstance(error, TimeoutError):
            probe = asyncio.create_task(self._probe())
            self._helpers.add(probe)
            probe.add_done_callback(self._helpers.discard)
            listing = name.endswith("/list")
            seconds = self.entry.start_seconds if listing else self.entry.call_seconds
            more = f"It may need more: set its `{'startTimeout' if listing else 'timeout'}`."
            return self._unavailable(f"did not answer {name} within {seconds:g} seconds", more)
        if isinstance(self._refusal, TokensReplaced):
            # With another process's new tokens the refused call can be repeated.
            return SessionLost(self._refusal.message)
        if self._refusal is not None or self._status == UNAUTHORIZED:
            return self._refusal or login_needed(self.entry)
        if self._session_lost and repeatable:
            return SessionLost(f"The MCP server '{self.entry.name}' has forgotten the session of {name}.")
        if isinstance(error, MCPError) and not _broke_off(error):
            return self._explain_refusal(name, error)
        if isinstance(error, ValueError):
            problem = self._log.shown(_malformation_of(error))[:200]
            reason = f"answered {name} with something that is no MCP result ({problem})"
            return Unavailable(f"The MCP server '{self.entry.name}' {reason}.")
        # No later call may use this connection, though it may not have ended yet.
        self._leave.set()
        if self._process is None:
            return self._unavailable(f"was lost during the call of {name}", "The next call reaches for it again.")
        ending = await describe_end(self._process)
        return self._unavailable(f"ended during the call of {name}{ending}", "The next call starts it again.")

    def _explain_refusal(self, name: str, error: MCPError) -> LocalMCPError:
        message = f"The MCP server '{self.entry.name}' refused {name}: {self._reason(error)}"
        known = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND)
        read = (*known, types.MISSING_REQUIRED_CLIENT_CAPABILITY, types.UNSUPPORTED_PROTOCOL_VERSION)
        if self._status in (400, 404) and error.code not in read:
            # A server that was started again refuses our old session: with 404, says the protocol, many with 400.
            self._session_lost = True
            self._leave.set()
            return SessionLost(message)
        if error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY:
            required = mapping_of(mapping_of(error.data).get("requiredCapabilities"))
            return MissingCapability(message, capability=next(iter(required), "elicitation"))
        if error.code == types.METHOD_NOT_FOUND:
            return _NotKnown(message)
        return (InvalidInput if error.code == types.INVALID_PARAMS else Unavailable)(message)

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

    async def _explain_start(self, error: BaseException) -> LocalMCPError:
        if self._refusal is not None or self._status == UNAUTHORIZED:
            replaced = isinstance(self._refusal, TokensReplaced)
            return SessionLost(str(self._refusal)) if replaced else self._refusal or login_needed(self.entry)
        if isinstance(error, LocalMCPError):
            return error
        if _broke_off(error):
            ending = await describe_end(self._process) if self._process is not None else ""
            return self._unavailable(f"ended during its start{ending}")
        if isinstance(error, MCPError):
            return self._unavailable(f"refused the handshake: {self._reason(error)}")
        if isinstance(error, httpx2.HTTPError):
            reason = self._log.shown(str(error)) or type(error).__name__
            return self._unavailable(f"cannot be reached at {self.entry.where}: {reason}")
        if isinstance(error, OSError) and self._process is None:
            problem = f"cannot be started: {error.strerror or error}: {error.filename or self.entry.where}"
            return self._unavailable(problem, "Is it installed? If so, write its whole path as the command.")
        reason = _malformation_of(error) if isinstance(error, ValueError) else str(error)
        return self._unavailable(f"does not speak MCP as expected: {self._log.shown(reason)[:300]}")

    def _reason(self, error: MCPError) -> str:
        """Return why the server refuses, with what it adds, such as the field that is wrong, and the HTTP status."""
        reason, data = error.message, error.data
        if data not in (None, "", {}, []):
            text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
            added = cut_to(text, LONGEST_DATA)
            reason = reason if added in reason else f"{reason} ({added})"
        status = f" (HTTP {self._status})" if self._status is not None and self._status >= 400 else ""
        return self._log.shown(reason) + status

    def _unavailable(self, problem: str, hint: str = "") -> Unavailable:
        last = f"Its last words: “{self._log.last_line}”." if self._log.last_line else ""
        where = "" if self.entry.url else f"Its log: {self._log.path}"
        hints = " ".join(filter(None, (hint, last, where)))
        return Unavailable(f"The MCP server '{self.entry.name}' {problem}.", hint=hints or None)


class _NotKnown(InvalidInput):
    """The server does not know such requests."""


def _broke_off(error: BaseException) -> bool:
    """Return whether the SDK says that no answer can come; its code, -32000, is also how most servers refuse a call."""
    return (
        isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED and bool(_BROKEN_OFF.match(error.message))
    )


def _malformation_of(error: ValueError) -> str:
    """Return what is wrong with the form of an answer."""
    first = error.errors()[0] if isinstance(error, ValidationError) else None
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)


def _innermost(error: BaseException) -> BaseException:
    """Return the first error that a group of them was made of."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
