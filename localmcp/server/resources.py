"""resources/*, prompts/* and completion/complete for both protocol eras, answered from the registry's offers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
import mcp.types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext

from localmcp.errors import LocalMCPError
from localmcp.humanize import quoted
from localmcp.schemas import without_surrogates
from localmcp.server.offers import OwnOffer
from localmcp.server.results import log_incident, protocol_error
from localmcp.tools import Json, Scope, use_scope

if TYPE_CHECKING:
    from localmcp.hub.offers import ServerOffers
    from localmcp.workspace import Workspace

    Offer = OwnOffer | ServerOffers

MOST_COMPLETIONS = 100
"""Values of one completion, as the protocol allows."""

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any]
Result = TypeVar("Result")


class OfferHandlers:
    """Each method answers one request of the protocol."""

    def __init__(self, open_workspace: Callable[[], Workspace], scope: Callable[[], Scope]) -> None:
        self._open_workspace = open_workspace
        self._scope = scope

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
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        items, cursor = await self._answer("resources/list", partial(self._page, params, "resources"))
        return types.ListResourcesResult(resources=[types.Resource(**item) for item in items], next_cursor=cursor)

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        items = await self._answer(
            "resources/templates/list", lambda: [item for offer in self._offers() for item in offer.templates()]
        )
        return types.ListResourceTemplatesResult(resource_templates=[types.ResourceTemplate(**item) for item in items])

    async def read(self, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        contents = await self._answer("resources/read", lambda: self._first(lambda offer: offer.read(params.uri)))
        if contents is None:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {params.uri}", {"uri": params.uri})
        return types.ReadResourceResult.model_validate({"contents": contents})

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        items, cursor = await self._answer("prompts/list", partial(self._page, params, "prompts"))
        return types.ListPromptsResult(prompts=[types.Prompt(**item) for item in items], next_cursor=cursor)

    async def get_prompt(self, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        arguments = dict(params.arguments or {})
        prompt = await self._answer(
            "prompts/get", lambda: self._first(lambda offer: offer.prompt(params.name, arguments))
        )
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {quoted(params.name)}")
        return types.GetPromptResult.model_validate(prompt)

    async def complete(self, params: types.CompleteRequestParams) -> types.CompleteResult:
        ref: Json = params.ref.model_dump(by_alias=True, exclude_none=True)
        name, value = params.argument.name, params.argument.value
        proposed: Json | None = await self._answer(
            "completion/complete", lambda: self._first(lambda offer: offer.complete(ref, name, value))
        )
        completion = types.Completion.model_validate(proposed or {"values": []})
        if len(completion.values) > MOST_COMPLETIONS:
            # How many more there are is not counted.
            completion = types.Completion(values=completion.values[:MOST_COMPLETIONS], has_more=True)
        return types.CompleteResult(completion=completion)

    def _offers(self) -> list[Offer]:
        registry = self._open_workspace().registry
        return [OwnOffer(registry), *registry.offers]

    def _first(self, ask: Callable[[Offer], Result | None]) -> Result | None:
        return next((answer for offer in self._offers() if (answer := ask(offer)) is not None), None)

    def _page(self, params: types.PaginatedRequestParams | None, kind: str) -> tuple[list[Json], str | None]:
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
        except LocalMCPError as error:
            raise protocol_error(error) from error
        except MCPError:
            raise
        except Exception as error:
            raise MCPError(types.INTERNAL_ERROR, log_incident(method)) from error


def _position(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    number, colon, offset = cursor.partition(":")
    if not (colon and number.isdecimal() and offset.isdecimal() and len(cursor) <= 20):
        raise MCPError(types.INVALID_PARAMS, "Invalid cursor: leave it out to begin at the first page.")
    return int(number), int(offset)
