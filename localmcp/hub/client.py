"""One session with a server, over pipes or Streamable HTTP: requests, questions, and failures in words."""

import asyncio
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp.client import stdio
from mcp.client.session import ClientRequestContext, ClientSession, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, MissingCapability, Unavailable
from localmcp.files import make_private_folder, open_private
from localmcp.http import LOOPBACK
from localmcp.hub.auth import kept_login
from localmcp.hub.entries import LoginNeeded, ServerEntry, SessionLost, prepare
from localmcp.humanize import cut_to
from localmcp.schemas import Json, compact_json, list_of, mapping_of, without_surrogates
from localmcp.tools import AskPerson, ReportProgress, client_call, current_scope
from localmcp.version import __version__
from localmcp.visible_text import visible

log = logging.getLogger(__name__)
# They log tracebacks of what a call or the server's own log says in a sentence.
for name in ("mcp.client.streamable_http", "mcp.client.stdio"):
    logging.getLogger(name).setLevel(logging.CRITICAL)

# Clients give localmcp two seconds to end, and the SDK would wait four for one stubborn server.
stdio.PROCESS_TERMINATION_TIMEOUT = stdio.FORCE_KILL_TIMEOUT = 0.5
# The SDK has no public way to these. One without them leaves what a server has started.
_stop_server: Any = getattr(stdio, "_stop_server_process", None)
_end_group: Any = getattr(stdio, "terminate_posix_process_tree", None)


async def _stop_with_children(process: Any) -> None:
    # The SDK ends the children only of a server that does not end in time.
    await _stop_server(process)
    await _end_group(process, stdio.FORCE_KILL_TIMEOUT)


if _stop_server and _end_group and sys.platform != "win32":
    setattr(stdio, "_stop_server_process", _stop_with_children)  # noqa: B010

LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
"""What a server offers: key of the answer -> request."""
MOST_PAGES, MOST_ROUNDS = 100, 10
"""Pages of a list, and how often one call may ask the person."""
MOST_TIMEOUTS = 2
"""Requests in a row without an answer, after which a server counts as stuck and is ended."""
MAX_ANSWER = 5 * 1024 * 1024
"""Characters of one answer as JSON: no model reads more, and every copy of it takes memory."""
MAX_LOG = 1_000_000
"""Bytes after which a new run of a server begins a new log; a log of twice that gets no more."""
_UNDERSTOOD = (types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.MISSING_REQUIRED_CLIENT_CAPABILITY)
_OTHER_ERA = (types.METHOD_NOT_FOUND, types.INVALID_REQUEST, types.INVALID_PARAMS, types.UNSUPPORTED_PROTOCOL_VERSION)


class ServerLog:
    """What one run of a server writes to stderr: kept in a file of bounded size, without the secrets it got."""

    def __init__(self, path: Path, secrets: tuple[str, ...], title: str) -> None:
        """Begin a new run; a file that has grown too long is emptied."""
        self.path = path
        self.last_line = ""
        self.ended = threading.Event()
        self._secret = re.compile("|".join(map(re.escape, secrets)) or "(?!)")
        with suppress(OSError):
            if self.path.stat().st_size > MAX_LOG:
                self.path.unlink()
        self.add(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {title}".encode())

    @contextmanager
    def pipe(self) -> Generator[TextIO]:
        """Yield what a program gets as its stderr; what comes is kept until the last program that has it ends."""

        def keep(reading: int) -> None:
            begun = b""
            # Not line by line: a server that writes much would wait for each.
            with open(reading, "rb", buffering=0) as pipe:
                while piece := pipe.read(65536):
                    whole, _, begun = (begun + piece).rpartition(b"\n")
                    self.add(whole)
                    begun = begun[:MAX_LOG]
            self.add(begun)
            self.ended.set()

        reading, writing = os.pipe()
        threading.Thread(target=keep, args=(reading,), name=f"log {self.path.name}", daemon=True).start()
        with open(writing, "w", encoding="utf-8") as errors:
            yield errors

    def add(self, lines: bytes) -> None:
        """Keep lines of the server, also such as are no UTF-8."""
        text = self._secret.sub("***", lines.decode("utf-8", "replace").rstrip())
        if not text:
            return
        self.last_line = visible(text.splitlines()[-1].strip())[:300]
        try:
            make_private_folder(self.path.parent)
            with open(self.path, "a", encoding="utf-8", errors="replace", opener=open_private) as file:
                if file.tell() < 2 * MAX_LOG:
                    file.write(f"{text}\n")
        except OSError as error:
            log.info("%s cannot be written: %s", self.path, error)

    def shown(self, text: str) -> str:
        """Return a message of the server for people and models: short, no secrets or control characters."""
        return visible(self._secret.sub("***", text[:4_000]), newlines=True)[:2_000]


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return what a server sees besides what the SDK passes on: settings of the machine, not keys, and its entry's."""
    inherited = (
        "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
        "COMSPEC", "WINDIR", "TMP", "PROGRAMFILES", "PROGRAMDATA",
    )  # fmt: skip
    environment = {name: os.environ[name] for name in inherited if name in os.environ}
    if sys.platform != "win32":
        # Applications started from the desktop do not have the PATH of a shell.
        more = "/opt/homebrew/bin /usr/local/bin ~/.local/bin ~/.cargo/bin ~/.bun/bin ~/.deno/bin".split()
        places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *map(os.path.expanduser, more)]
        environment["PATH"] = os.pathsep.join(dict.fromkeys(places))
    return {**environment, **added}


class _Whole(BaseModel):
    """A result exactly as the server sent it."""

    model_config = ConfigDict(extra="allow")


class _Dispatcher(JSONRPCDispatcher[Any]):
    """Says when no answer can come any more; keeps tools from the SDK's check, where a wrong one costs all others."""

    on_end: Callable[[], None]

    async def run(self, *arguments: Any, **options: Any) -> None:
        try:
            await super().run(*arguments, **options)
        finally:
            self.on_end()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> Json:
        result: Json = await super().send_raw_request(method, params, opts, **more)
        if method == "tools/list":
            return {**result, "tools": [], "_meta": {"tools": list_of(result.get("tools"))}}
        return result


class Connection:
    """One session with a server: opened once, used by many calls at a time, closed once. Lives in one event loop."""

    def __init__(self, entry: ServerEntry, log_path: Path, on_change: Callable[[], object] = lambda: None) -> None:
        """`on_change` is called when the server lists something else than before."""
        self.entry = entry
        self._log_path = log_path
        self._log: ServerLog
        self._on_change = on_change
        self.asks = client_call().ask_person is not None
        """Whether the server is told that the person can be asked: if the client that begins it has offered that."""
        self.used = False
        """Whether it was asked for more than lists, and may remember something."""
        self._calls: list[tuple[asyncio.Timeout, float, AskPerson | None, str]] = []
        """Of each that waits for the server: its clock and seconds, how its client asks the person, and its caller."""
        self._session: ClientSession
        self._http_status = 0
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._life_scope = anyio.CancelScope()
        self._timeouts = 0
        self._refusal: Unavailable | None = None
        """Why requests can no longer be signed."""

    @property
    def alive(self) -> bool:
        """Whether calls can be sent."""
        return self._opened.done() and not self._leave.is_set()

    async def open(self) -> None:
        """Start or reach the server and shake hands.

        Raises ConfigurationError for a variable that is not set, Unavailable for no answer within `startTimeout`.
        """
        launch = prepare(self.entry)
        self._log = ServerLog(self._log_path, launch.secrets, self.entry.where)
        # Streams and cancel scopes must be left by the task that entered them, so one task holds them all its life.
        self._life = asyncio.create_task(self._live(launch), name=f"mcp-server {self.entry.name}")
        try:
            async with asyncio.timeout(launch.startTimeout):
                await asyncio.shield(self._opened)
        except BaseException as error:
            # To leave a server that hangs may take longer still.
            await self.close()
            if not isinstance(error, TimeoutError):
                raise
            raise await self._explain("the handshake", error, launch.startTimeout) from None

    async def close(self) -> None:
        """End the connection, and the server if we started it. Never fails, and takes 8 s at most."""
        self._leave.set()
        if self._life is None:
            return
        if not self._opened.done():
            # It waits for an answer of the server, not for `_leave`.
            self._life_scope.cancel()
        # More than the SDK's own steps take together (6.5 s): cut short, they would leave the server.
        await asyncio.wait({self._life}, timeout=8.0)

    async def _live(self, launch: ServerEntry) -> None:
        try:
            with self._life_scope:
                async with AsyncExitStack() as stack:
                    await self._enter(stack, launch)
                    self._opened.set_result(None)
                    await self._leave.wait()
        except Exception as error:
            log.info("the connection to the MCP server '%s' ended: %s", self.entry.name, error)
            if not self._opened.done():
                self._opened.set_exception(await self._explain("the handshake", error))
        finally:
            self._leave.set()
            if not self._opened.done():
                self._opened.set_exception(Unavailable(f"The start of the MCP server '{self.entry.name}' is given up."))
            # Mark the exception as retrieved: maybe nobody waits for it any more.
            self._opened.exception()

    async def _enter(self, stack: AsyncExitStack, launch: ServerEntry) -> None:
        if launch.url:

            async def remember_status(response: httpx2.Response) -> None:
                self._http_status = response.status_code

            http_client = httpx2.AsyncClient(
                headers=launch.headers,
                timeout=httpx2.Timeout(self.entry.startTimeout, read=300.0),
                auth=kept_login(self.entry, launch.url, self._note_refusal),
                event_hooks={"response": [remember_status]},
                # What is meant for this machine must not leave it through a proxy from the environment.
                trust_env=urlsplit(launch.url).hostname not in LOOPBACK,
            )
            client = await stack.enter_async_context(http_client)
            transport = streamable_http_client(launch.url, http_client=client, max_sse_event_size=64 << 20)
            incoming, outgoing = await stack.enter_async_context(transport)
        else:
            program = stdio.StdioServerParameters(
                command=launch.command,
                args=launch.args,
                env=child_environment(launch.env),
                cwd=launch.cwd or None,
                encoding_error_handler="replace",
            )
            with self._log.pipe() as errors:
                incoming, outgoing = await stack.enter_async_context(stdio.stdio_client(program, errors))
        dispatcher = _Dispatcher(incoming, outgoing)
        dispatcher.on_end = self._leave.set
        session = ClientSession(
            dispatcher=dispatcher,
            client_info=types.Implementation(name="localmcp", version=__version__),
            message_handler=self._take_message,
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

    def _note_refusal(self, error: Unavailable) -> None:
        self._refusal = error
        self._leave.set()

    # ------------------------------------------------------------ what the server says unasked

    async def _take_message(self, message: IncomingMessage) -> None:
        if str(getattr(message, "method", "")).endswith("/list_changed"):
            self._on_change()
        elif isinstance(message, ValidationError):
            line = str(message.errors()[0]["input"])
            self._log.add(f"stdout: {line[:500]}".encode(errors="replace"))
            if '"jsonrpc"' in line:
                # No banner, but an answer that cannot be read; its request would wait for it in vain.
                self._leave.set()

    async def _listen(self) -> None:
        """Take the changes of lists from a server of 2026-07-28, which sends them on a stream."""
        every: Json = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
        try:
            async with listen(self._session, **every) as changes:
                async for _ in changes:
                    self._on_change()
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError) as error:
            log.info("the MCP server '%s' does not tell of changes: %s", self.entry.name, error)

    # ------------------------------------------------------------ requests

    async def list_offers(self, kinds: Iterable[str] = tuple(LISTS)) -> dict[str, list[Json]]:
        """Return what the server lists of these kinds; nothing of a kind that it does not know. Raises as `ask`."""
        offers: dict[str, list[Json]] = {}
        for kind in kinds:
            items, cursor = list[Any](), None
            is_known = getattr(self._session.server_capabilities, LISTS[kind].partition("/")[0], None) is not None
            with suppress(InvalidInput):
                for _ in range(MOST_PAGES if is_known or kind == "tools" else 0):
                    params = {"cursor": cursor} if cursor else {}
                    page = await self.ask(LISTS[kind], params, self.entry.startTimeout)
                    items += list_of((mapping_of(page.get("_meta")) if kind == "tools" else page).get(kind))
                    if not (cursor := page.get("nextCursor")):
                        break
            offers[kind] = [item for item in items if isinstance(item, dict)]
        return offers

    async def ask(
        self, method: str, params: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the result of a request as the server sent it, within `seconds` (None: `timeout` of the entry).

        An unfinished one, in which a server of 2026-07-28 asks the person, is returned where the client answers such
        results itself (`ClientCall.input`); otherwise the person is asked, and the request repeated with the answers.

        Raises InvalidInput if the server refuses its form, Unavailable for no answer in time, an end in the middle, an
        answer that is no result or larger than MAX_ANSWER.
        """
        params = without_surrogates(params)
        self.used |= method not in LISTS.values()
        what = f"the call of {params['name']}" if method == "tools/call" else method
        seconds = self.entry.timeout if seconds is None else seconds
        answers = client_call().input
        if answers and self._session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            params = {**params, **answers}
        try:
            for _ in range(MOST_ROUNDS):
                answer = await self._send(method, params, seconds, progress)
                if method not in LISTS.values() and (size := len(compact_json(answer))) > MAX_ANSWER:
                    problem = f"answered {what} with {size / 1e6:.0f} MB, and at most {MAX_ANSWER >> 20} MB are taken"
                    message = f"The MCP server '{self.entry.name}' {problem}."
                    raise Unavailable(message, hint="Ask for less: a page, a range, a filter.")
                if answer.get("resultType") != "input_required" or answers is not None:
                    return answer
                requests = mapping_of(answer.get("inputRequests"))
                responses: Json = {}
                for key, question in requests.items():
                    ask, is_question = client_call().ask_person, question.get("method") == "elicitation/create"
                    if ask is None or not is_question:
                        what = "asked the person a question" if is_question else "asked for something"
                        message = f"The MCP server '{self.entry.name}' {what}, which this client cannot show."
                        raise MissingCapability(message)
                    responses[key] = await asyncio.wrap_future(ask(mapping_of(question.get("params"))))
                params = {**params, "inputResponses": responses or None, "requestState": answer.get("requestState")}
        except (MCPError, TimeoutError, ValueError, anyio.ClosedResourceError, RuntimeError) as error:
            raise await self._explain(what, error, seconds) from error
        raise Unavailable(f"The MCP server '{self.entry.name}' asked more than {MOST_ROUNDS} times during {what}.")

    async def _send(self, method: str, params: Json, seconds: float, report: ReportProgress | None) -> Json:
        async def forward(progress: float, total: float | None, message: str | None) -> None:
            if report is not None:
                report(progress, total, message or "")

        watch = forward if report is not None else None
        request = types.client_request_adapter.validate_python({"method": method, "params": params})
        # The SDK's time-out begins when the request is written, and a server that does not read can prevent that.
        async with asyncio.timeout(seconds) as clock:
            call = (clock, seconds, client_call().ask_person, current_scope().caller)
            self._calls.append(call)
            try:
                result = await self._session.send_request(request, _Whole, progress_callback=watch)
            finally:
                self._calls.remove(call)
        self._timeouts = 0
        return result.model_extra or {}

    async def _ask_for_server(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client whose call it is, while the clocks of all calls stand still."""
        # The question does not say which call it belongs to, so all running calls must be of one caller.
        ask = self._calls[-1][2] if len({caller for *_, caller in self._calls}) == 1 else None
        if ask is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="There is no client that could ask the person.")
        for clock, *_ in self._calls:
            clock.reschedule(None)
        try:
            question = params.model_dump(by_alias=True, mode="json", exclude_none=True)
            return types.ElicitResult.model_validate(await asyncio.wrap_future(ask(question)))
        except (LocalMCPError, MCPError, ValidationError) as error:
            log.info("a question to the person failed: %s", error)
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        finally:
            for clock, seconds, *_ in self._calls:
                clock.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _explain(self, what: str, error: BaseException, seconds: float = 0.0) -> LocalMCPError:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if self._refusal is not None or self._http_status == 401 and not self.entry.headers:
            return self._refusal or LoginNeeded(self.entry.name)
        if self._http_status == 401:
            return ConfigurationError(
                f"The MCP server '{self.entry.name}' refuses the keys in its `headers` (HTTP 401).",
                hint=f"Check them in mcp.json; or remove them and run: localmcp servers login {self.entry.name}",
            )
        if isinstance(error, LocalMCPError):
            return error
        # The code of a closed connection, -32000, is also how most servers refuse a call.
        ends = ("Connection closed", "SSE stream failed", "SSE stream ended", "server answered a request with 202")
        hint = ""
        if isinstance(error, TimeoutError):
            problem = f"did not answer {what} within {round(seconds, 1):g} seconds"
            is_start = what in ("the handshake", *LISTS.values())
            hint = f"It may need more: set its `{'startTimeout' if is_start else 'timeout'}`."
            self._timeouts += 1
            if self._timeouts >= MOST_TIMEOUTS:
                self._log.add(b"localmcp: it does not answer any more and is ended")
                self._leave.set()
        elif isinstance(error, MCPError) and not (
            error.code == types.CONNECTION_CLOSED and error.message.startswith(ends)
        ):
            return self._explain_refusal(what, error)
        elif isinstance(error, httpx2.HTTPError | ImportError):
            # An ImportError is a proxy of the environment that needs another library.
            reason = self._log.shown(str(error)).rstrip(".") or type(error).__name__
            problem = f"cannot be reached at {self.entry.where}: {reason}"
        elif isinstance(error, OSError):
            problem = f"cannot be started: {error.strerror or error}: {error.filename or self.entry.where}"
            hint = "Is it installed? If so, write its whole path as the command."
        elif isinstance(error, ValueError):
            slip = error.errors()[0] if isinstance(error, ValidationError) else None
            reason = f"{'.'.join(map(str, slip['loc']))}: {slip['msg']}" if slip else str(error)
            problem = f"answered {what} with something that is no MCP result ({self._log.shown(reason)[:200]})"
        else:
            problem, hint = f"ended during {what}", "The next call starts it again."
            # No later call may use this connection, though it may not have ended yet.
            self._leave.set()
        words = [hint]
        if not self.entry.url:
            # A server that has just ended may still be heard.
            await asyncio.to_thread(self._log.ended.wait, 0.3)
            last = self._log.last_line
            words += ["" if last.startswith("---") else f"Its last words: “{last}”.", f"Its log: {self._log.path}"]
        return Unavailable(f"The MCP server '{self.entry.name}' {problem}.", hint=" ".join(filter(None, words)) or None)

    def _explain_refusal(self, what: str, error: MCPError) -> LocalMCPError:
        data = error.data if isinstance(error.data, str) else json.dumps(error.data, ensure_ascii=False, default=str)
        more = f" ({cut_to(data, 500)})" if error.data and data not in error.message else ""
        status = f" (HTTP {self._http_status})" if self._http_status >= 400 else ""
        reason = self._log.shown(f"{error.message}{more}")
        message = f"The MCP server '{self.entry.name}' refused {what}: {reason}{status}"
        if self._http_status in (400, 404) and error.code not in (*_UNDERSTOOD, types.UNSUPPORTED_PROTOCOL_VERSION):
            # A server that was started again refuses our old session: with 404, says the protocol, many with 400.
            self._leave.set()
            return SessionLost(message)
        if error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY:
            required = mapping_of(mapping_of(error.data).get("requiredCapabilities"))
            return MissingCapability(message, capability=next(iter(required), "elicitation"))
        return (InvalidInput if error.code in _UNDERSTOOD else Unavailable)(message)
