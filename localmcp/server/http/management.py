"""Key management and the call log below `/api/mcp` (S3-10, S3-15), for keys with the scope admin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio.to_thread
from starlette.responses import Response

from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, NotFound
from localmcp.index.collections import choose_collections
from localmcp.server.http.authentication import request_scope, require_admin
from localmcp.server.http.exchange import Calls, Exchange
from localmcp.server.http.log_lines import say
from localmcp.server.http.replies import Refused, json_reply
from localmcp.tools import Json, use_scope

if TYPE_CHECKING:
    from localmcp.activity.entries import LogPage
    from localmcp.workspace import Workspace

RAG_REQUIRED = "RAG ID is required"
RAG_UNKNOWN = "RAG not found or access denied"
KEY_REQUIRED = "Key ID is required"
KEY_UNKNOWN = "API key not found or access denied"
MOST_LOGS = 500

Result = TypeVar("Result")


class ManagementEndpoints:
    """Each method answers one request; a `ragId` is the name of a collection (S3-12)."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def generate(self, exchange: Exchange) -> Response:
        """POST `keys/generate` {ragId, name?, scopes?, tools?, providers?, expires_at?, rules?}.

        A key is bound to the collection; `rules: true` opens the developer's rules to it too.
        """
        body = exchange.json_object()
        rag = _rag(body.get("ragId"))
        asked: Json = {"name": _text(body, "name") or "", "expires_at": _text(body, "expires_at")}
        for field in ("tools", "providers"):
            asked[field] = _texts(body, field)
        asked["scopes"] = _texts(body, "scopes") or ["read"]
        asked["collections"] = [rag, "rules"] if body.get("rules") is True else [rag]
        new = await self._manage(lambda workspace: workspace.api_keys.create(**asked), RAG_UNKNOWN)
        say("API key generated", id=new.info.id, ragId=rag, by=request_scope().caller)
        return json_reply(new.as_json())

    async def list_keys(self, exchange: Exchange) -> Response:
        """GET `keys/list?ragId=`."""
        rag = _rag(exchange.query.get("ragId"))
        keys = await self._manage(lambda workspace: workspace.api_keys.list(rag), RAG_UNKNOWN)
        exchange.log_response(200)
        return json_reply({"success": True, "keys": [key.as_json() for key in keys]})

    async def revoke(self, exchange: Exchange) -> Response:
        """POST `keys/revoke` {keyId}: the key opens nothing any more, and stays listed."""
        key_id = _key_id(exchange)
        await self._manage(lambda workspace: workspace.api_keys.revoke(key_id), KEY_UNKNOWN)
        say("API key revoked", id=key_id, by=request_scope().caller)
        return json_reply({"success": True, "message": "API key revoked successfully"})

    async def delete(self, exchange: Exchange) -> Response:
        """DELETE `keys/revoke` {keyId}, or `?keyId=`: the key is gone."""
        key_id = _key_id(exchange)
        await self._manage(lambda workspace: workspace.api_keys.delete(key_id), KEY_UNKNOWN)
        say("API key deleted", id=key_id, by=request_scope().caller)
        return json_reply({"success": True, "message": "API key deleted successfully"})

    async def logs(self, exchange: Exchange) -> Response:
        """GET `logs?ragId=&limit=50&offset=0`: the calls in one collection, the newest first."""
        rag = _rag(exchange.query.get("ragId"))
        limit = min(_whole(exchange, "limit", 50, 1), MOST_LOGS)
        offset = _whole(exchange, "offset", 0, 0)
        page = await self._manage(lambda workspace: _logs(workspace, rag, limit, offset), RAG_UNKNOWN)
        exchange.log_response(200)
        return json_reply(page.as_original())

    async def _manage(self, work: Callable[[Workspace], Result], unknown: str) -> Result:
        require_admin()
        try:
            return await anyio.to_thread.run_sync(partial(self._in_scope, work))
        except NotFound as error:
            raise Refused(404, unknown, details=str(error)) from error
        except AccessDenied as error:
            raise Refused(403, error.message, details=error.hint) from error
        except InvalidInput as error:
            raise Refused(400, error.message, details=error.hint, reason="InvalidInput") from error
        except LocalMCPError as error:
            raise Refused(500, error.message, details=error.hint) from error

    def _in_scope(self, work: Callable[[Workspace], Result]) -> Result:
        with use_scope(request_scope()):
            return work(self._calls.open_workspace())


def _logs(workspace: Workspace, rag: str, limit: int, offset: int) -> LogPage:
    with workspace.database.read() as connection:
        [collection] = choose_collections(connection, [rag])
    return workspace.activity.logs(collection=collection.name, limit=limit, offset=offset)


def _rag(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused(400, RAG_REQUIRED)
    return value


def _key_id(exchange: Exchange) -> str:
    key_id: Any = exchange.query.get("keyId")
    if key_id is None and exchange.body:
        key_id = exchange.json_object().get("keyId")
    if not isinstance(key_id, str) or not key_id.strip():
        raise Refused(400, KEY_REQUIRED)
    return key_id


def _text(body: Json, field: str) -> str | None:
    value = body.get(field)
    if value is not None and not isinstance(value, str):
        raise Refused(400, f"{field} must be a string")
    return value


def _texts(body: Json, field: str) -> list[str] | None:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise Refused(400, f"{field} must be an array of strings")
    return cast("list[str]", value)


def _whole(exchange: Exchange, field: str, default: int, least: int) -> int:
    number = exchange.query.get(field, "")
    if not number:
        return default
    if not number.isdecimal() or not number.isascii() or len(number) > 9 or int(number) < least:
        raise Refused(400, f"{field} must be a whole number of at least {least}")
    return int(number)
