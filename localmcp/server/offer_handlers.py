"""resources/*, prompts/* and completion/complete for both protocol eras, answered from the registry's offers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import mcp.types as wire
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourceUpdated

from localmcp.errors import LocalMCPError, MissingCapability
from localmcp.humanize import quoted
from localmcp.schemas import without_surrogates
from localmcp.server.change_bus import Admits, ChangeBus, everybody
from localmcp.server.offers import OwnOffer
from localmcp.server.wire_values import log_incident, message_of
from localmcp.tools import Json, Scope, use_scope

if TYPE_CHECKING:
    from localmcp.hub.offers import ServerOffers
    from localmcp.workspace import Workspace

    Offer = OwnOffer | ServerOffers

WATCH_SECONDS = 2.0
"""Between two checks whether subscribed documents have changed; a check reads one counter."""
MOST_WATCHED = 1000
MOST_COMPLETIONS = 100
"""Values of one completion, as the protocol allows."""
_SUBSCRIBES = "localmcp/subscribes"
"""In the state of a connection whose subscriptions are forgotten at its end."""

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any]
Result = TypeVar("Result")


class OfferHandlers:
    """Each method answers one request of the protocol."""

    def __init__(self, open_workspace: Callable[[], Workspace], scope: Callable[[], Scope], bus: ChangeBus) -> None:
        self._open_workspace = open_workspace
        self._scope = scope
        self._bus = bus
        self._subscribers: dict[str, dict[object, tuple[Scope, ServerSession | None]]] = {}
        """Address of a watched document -> who subscribed to it; a session is sent changes, the bus has the others."""
        self._states: dict[tuple[str, Scope], str | None] = {}
        """Address of a watched document, and who watches it -> its last known state for them."""
        self._lists: dict[tuple[str, Scope], str] = {}
        """Kind of list, and who sees a part of the file -> its last known state for them."""
        self._reporting: dict[str, Offer] = {}
        """Address of a watched document -> the offer that reports its changes."""

    def kinds(self) -> tuple[str, ...]:
        """Return what there is of `resources` and `prompts` for the current request's scope."""
        kinds: set[str] = set()
        try:
            with use_scope(self._scope()):
                for offer in self._offers():
                    kinds |= offer.kinds()
        except LocalMCPError as error:
            log.info("nothing is offered besides tools: %s", error)
        except Exception:
            log.exception("what is offered besides tools cannot be told")
        return tuple(kind for kind in ("resources", "prompts") if kind in kinds)

    async def list_resources(
        self, ctx: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListResourcesResult:
        items, cursor = await self._answer("resources/list", partial(self._page, params, "resources"))
        return wire.ListResourcesResult(resources=[wire.Resource(**item) for item in items], next_cursor=cursor)

    async def list_templates(
        self, ctx: Context, params: wire.PaginatedRequestParams | None
    ) -> wire.ListResourceTemplatesResult:
        items = await self._answer("resources/templates/list", self._templates)
        return wire.ListResourceTemplatesResult(resource_templates=[wire.ResourceTemplate(**item) for item in items])

    async def read(self, ctx: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        contents = await self._answer("resources/read", lambda: self._first(lambda offer: offer.read(params.uri)))
        if contents is None:
            raise MCPError(wire.INVALID_PARAMS, f"Resource not found: {params.uri}", {"uri": params.uri})
        kinds = (wire.BlobResourceContents if "blob" in item else wire.TextResourceContents for item in contents)
        parts = [kind(**item) for kind, item in zip(kinds, contents, strict=True)]
        return wire.ReadResourceResult(contents=parts)

    async def list_prompts(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListPromptsResult:
        items, cursor = await self._answer("prompts/list", partial(self._page, params, "prompts"))
        return wire.ListPromptsResult(prompts=[wire.Prompt(**item) for item in items], next_cursor=cursor)

    async def get_prompt(self, ctx: Context, params: wire.GetPromptRequestParams) -> wire.GetPromptResult:
        arguments = dict(params.arguments or {})
        prompt = await self._answer(
            "prompts/get", lambda: self._first(lambda offer: offer.prompt(params.name, arguments))
        )
        if prompt is None:
            raise MCPError(wire.INVALID_PARAMS, f"Unknown prompt: {quoted(params.name)}")
        return wire.GetPromptResult.model_validate(prompt)

    async def complete(self, ctx: Context, params: wire.CompleteRequestParams) -> wire.CompleteResult:
        ref: Json = params.ref.model_dump(by_alias=True, exclude_none=True)
        name, value = params.argument.name, params.argument.value
        proposed: Json | None = await self._answer(
            "completion/complete", lambda: self._first(lambda offer: offer.complete(ref, name, value))
        )
        completion = wire.Completion.model_validate(proposed or {"values": []})
        if len(completion.values) > MOST_COMPLETIONS:
            # How many more there are is not counted.
            completion = wire.Completion(values=completion.values[:MOST_COMPLETIONS], has_more=True)
        return wire.CompleteResult(completion=completion)

    async def subscribe(self, ctx: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        """Tell this session when the document is indexed again (handshake era)."""
        # Over HTTP a session ends with its request: there, changes are reported on `subscriptions/listen` only.
        if (client := ctx.session.client_params) is not None:
            self._forget_at_end(ctx.session, id(client))
            await self._watch([params.uri], id(client), ctx.session)
        return wire.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: wire.UnsubscribeRequestParams) -> wire.EmptyResult:
        self._forget([params.uri], id(ctx.session.client_params))
        return wire.EmptyResult()

    def _forget_at_end(self, session: ServerSession, subscriber: object) -> None:
        """Let the subscriptions of a session end with it."""
        # Handlers may push cleanup there, says the SDK, but it gives them no public way to the connection.
        connection = session._connection  # pyright: ignore[reportPrivateUsage]
        if _SUBSCRIBES not in connection.state:
            connection.state[_SUBSCRIBES] = True
            connection.exit_stack.callback(self._forget_subscriber, subscriber)

    def _forget_subscriber(self, subscriber: object) -> None:
        self._forget([uri for uri, subscribers in self._subscribers.items() if subscriber in subscribers], subscriber)

    @contextlib.asynccontextmanager
    async def watching(self, uris: list[str]) -> AsyncGenerator[None]:
        """Publish changes of these documents on the bus until the block ends."""
        listener = object()
        await self._watch(uris, listener)
        try:
            yield
        finally:
            self._forget(uris, listener)

    async def _watch(self, uris: list[str], subscriber: object, session: ServerSession | None = None) -> None:
        """Remember the state of these documents, to notice changes; have servers report changes of theirs."""
        if len(self._subscribers.keys() | set(uris)) > MOST_WATCHED:
            says = f"At most {MOST_WATCHED} documents are watched at a time; end other subscriptions first."
            raise MCPError(wire.INVALID_PARAMS, says)
        for uri in uris:
            self._subscribers.setdefault(uri, {})[subscriber] = self._bus.own_scope(), session
        try:
            for uri in uris:
                await self._begin(uri)
        except BaseException:
            self._forget(uris, subscriber)
            raise

    async def _begin(self, uri: str) -> None:
        scope = self._bus.own_scope()
        state = await anyio.to_thread.run_sync(self._state, uri, scope)
        if scope in self._watching(uri):
            self._states.setdefault((uri, scope), state)
        await self._answer("resources/subscribe", partial(self._subscribe, uri))

    def _forget(self, uris: list[str], subscriber: object) -> None:
        for uri in uris:
            subscribers = self._subscribers.get(uri, {})
            subscribers.pop(subscriber, None)
            for key in [key for key in self._states if key[0] == uri and key[1] not in self._watching(uri)]:
                del self._states[key]
            if not subscribers:
                self._subscribers.pop(uri, None)
                self._end(uri)

    def _watching(self, uri: str) -> set[Scope]:
        return {scope for scope, _ in self._subscribers.get(uri, {}).values()}

    def _subscribe(self, uri: str) -> None:
        """Have the offer that has this resource report its changes; runs in a worker thread."""
        offer = next((offer for offer in self._offers() if offer.subscribe(uri)), None)
        if offer is not None:
            self._reporting[uri] = offer
        if uri not in self._subscribers:
            # The subscriber has left meanwhile.
            self._end(uri)

    def _end(self, uri: str) -> None:
        if (offer := self._reporting.pop(uri, None)) is not None:
            offer.unsubscribe(uri)

    def generation(self) -> int:
        """Return the file's counter of changes; 0 as long as it cannot be opened."""
        with contextlib.suppress(LocalMCPError):
            return self._open_workspace().content_generation()
        return 0

    async def publish_changes(self) -> None:
        """Tell subscribers which of the watched documents have changed, as far as they see them."""
        for (uri, scope), before in tuple(self._states.items()):
            after = await anyio.to_thread.run_sync(self._state, uri, scope)
            if after != before and (uri, scope) in self._states:
                self._states[uri, scope] = after
                await self.publish_update(uri, scope.__eq__)

    async def publish_update(self, uri: str, admits: Admits = everybody) -> None:
        """Tell subscribers that a resource has changed."""
        await self._bus.publish(ResourceUpdated(uri=uri), admits)
        for scope, session in tuple(self._subscribers.get(uri, {}).values()):
            if session is not None and admits(scope):
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await session.send_resource_updated(uri)

    def _state(self, uri: str, scope: Scope) -> str | None:
        with use_scope(scope), contextlib.suppress(LocalMCPError):
            return OwnOffer(self._open_workspace().registry).state(uri)
        return None

    async def remember_lists(self) -> None:
        """Note what the lists hold for the request's caller, if they see a part of the file; they watch them."""
        scope = self._bus.own_scope()
        if scope.collections is not None:
            for kind in ("resources", "prompts"):
                state = await anyio.to_thread.run_sync(self._list_state, kind, scope)
                self._lists.setdefault((kind, scope), state)

    async def scopes_with_change(self, kind: str) -> Admits:
        """Return for whom a list has changed since this was asked last: all who see the whole file, and some others."""
        changed: set[Scope] = set()
        for key, before in [(key, state) for key, state in self._lists.items() if key[0] == kind]:
            self._lists[key] = await anyio.to_thread.run_sync(self._list_state, *key)
            if self._lists[key] != before:
                changed.add(key[1])
        return lambda scope: scope.collections is None or scope in changed

    def _list_state(self, kind: str, scope: Scope) -> str:
        with use_scope(scope), contextlib.suppress(LocalMCPError):
            return OwnOffer(self._open_workspace().registry).list_state(kind)
        return ""

    def _offers(self) -> list[Offer]:
        registry = self._open_workspace().registry
        return [OwnOffer(registry), *registry.offers]

    def _templates(self) -> list[Json]:
        return [template for offer in self._offers() for template in offer.templates()]

    def _first(self, ask: Callable[[Offer], Result | None]) -> Result | None:
        return next((answer for offer in self._offers() if (answer := ask(offer)) is not None), None)

    def _page(self, params: wire.PaginatedRequestParams | None, kind: str) -> tuple[list[Json], str | None]:
        """Return a page: the offers from the cursor on, up to one that has more; a cursor is `OFFER:OFFSET`."""
        number, offset = _position(params.cursor if params else None)
        items: list[Json] = []
        for index, offer in enumerate(self._offers()[number:], number):
            more, next_offset = getattr(offer, kind)(offset)
            items += more
            if next_offset is not None:
                return items, f"{index}:{next_offset}"
            offset = 0
        return items, None

    async def _answer(self, method: str, work: Callable[[], Result]) -> Result:
        def run() -> Result:
            with use_scope(self._scope()):
                return without_surrogates(work())

        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        except MissingCapability as error:
            raise missing_capability(error) from error
        except LocalMCPError as error:
            raise MCPError(wire.INVALID_PARAMS, without_surrogates(message_of(error))) from error
        except MCPError:
            raise
        except Exception as error:
            raise MCPError(wire.INTERNAL_ERROR, log_incident(method)) from error


def missing_capability(error: MissingCapability) -> MCPError:
    """Return the error by which a client of 2026-07-28 learns what it does not offer."""
    data: Json = {"requiredCapabilities": {error.capability: {}}}
    return MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, without_surrogates(message_of(error)), data)


def _position(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    number, colon, offset = cursor.partition(":")
    if not (colon and number.isdecimal() and offset.isdecimal() and len(cursor) <= 20):
        raise MCPError(wire.INVALID_PARAMS, "Invalid cursor: leave it out to begin at the first page.")
    return int(number), int(offset)
