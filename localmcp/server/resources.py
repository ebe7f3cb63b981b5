"""Documents as resources, quick starts and rules as prompts.

Everything is answered by the tools that exist for it, in the caller's scope: a key that may not call `get_document`
reads no resource. Connected servers (`McpServers`), which have the same methods, are asked after ours.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from localmcp.errors import InvalidInput, NotFound
from localmcp.library.names import DOCUMENT_URI, without_scheme
from localmcp.schemas import shorten_value
from localmcp.tools import Json, Registry

TEMPLATE = DOCUMENT_URI + "{sourceId}{?offset}"
PAGE = 50
"""Entries of one page of a list."""
RULES_PROMPT: Json = {
    "name": "rules_for_task",
    "title": "Rules for a task",
    "description": "The developer's own rules that matter for a task",
    "arguments": [{"name": "task", "description": "What is about to be done", "required": True}],
}


class OwnOffer:
    """Resources and prompts of this file, in the protocol's own JSON; None means: not ours."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def _has(self, tool: str) -> bool:
        return self._registry.find(tool) is not None

    def _list(self, tool: str, **arguments: Any) -> Json:
        """Return the answer of a tool that only lists, empty where the caller may not call it.

        Clients list at every start, so this counts neither as a call in the log nor as the first one.
        """
        listing_tool = self._registry.find(tool)
        return listing_tool.call(arguments).value if listing_tool else {}

    def _call(self, tool: str, **arguments: Any) -> Json:
        answer = self._registry.call(tool, arguments)
        if answer.is_error:
            raise NotFound(answer.value.get("message") or answer.text, hint=answer.value.get("hint"))
        return answer.value

    def resources(self, offset: int) -> tuple[list[Json], int | None]:
        """Return documents, the last changed first."""
        page = self._list("list_sources", order="changed", limit=PAGE, offset=offset)
        resources = [
            {
                "uri": DOCUMENT_URI + quote(item["id"], safe=":"),
                "name": item["title"],
                "mimeType": "text/plain",
                "annotations": {"lastModified": item["changedAt"]},
                **({"description": item["path"]} if "path" in item else {}),
            }
            for item in page.get("sources", ())
        ]
        return resources, page.get("nextOffset")

    def templates(self) -> list[Json]:
        if not self._has("get_document"):
            return []
        description = "A document by id, short id, path or unique title; offset reads on in a long one"
        return [{"uriTemplate": TEMPLATE, "name": "document", "title": "Document", "description": description}]

    def read(self, uri: str) -> Json | None:
        """Return a document, or as much of it as fits and the address of the rest."""
        if not uri.startswith(DOCUMENT_URI):
            return None
        offset = parse_qs(urlsplit(uri).query).get("offset", ["0"])[0]
        if not offset.isdecimal() or len(offset) > 20:
            raise InvalidInput(f"offset: {shorten_value(offset)} is not a whole number, or too large.")
        document = self._call("get_document", sourceId=without_scheme(uri), offset=int(offset))
        contents: list[Json] = [{"uri": uri, "mimeType": "text/plain", "text": document["source"]["content"]}]
        if document.get("truncated"):
            next_uri = f"{DOCUMENT_URI}{document['source']['id']}?offset={document['nextOffset']}"
            contents.append({"uri": next_uri, "mimeType": "text/plain", "text": f"The document goes on at {next_uri}"})
        return {"contents": contents}

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return the prompt for rules, then the quick starts by title."""
        rules = [RULES_PROMPT] if offset == 0 and self._has("getRelevantRules") else []
        page = self._list("listQuickstarts", limit=PAGE, offset=offset) if self._has("showQuickstart") else {}
        if not page:
            return rules, None
        following = offset + len(page["quickstarts"])
        quickstarts = [
            {
                "name": quickstart["name"],
                "title": quickstart.get("displayName") or quickstart["name"],
                "description": quickstart.get("description") or "",
            }
            for quickstart in page["quickstarts"]
        ]
        return [*rules, *quickstarts], following if following < page["total"] else None

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt."""
        if name == RULES_PROMPT["name"] and self._has("getRelevantRules"):
            task = arguments.get("task", "").strip()
            answer = self._registry.call("getRelevantRules", {"taskDescription": task})
            if answer.is_error:
                raise InvalidInput(f"task: {answer.text}")
            return _message("Rules for a task", f"Task: {task}\n\n{answer.text}")
        if not self._has("showQuickstart"):
            return None
        try:
            shown = self._call("showQuickstart", name=name)
        except NotFound:
            return None
        request = "Guide me through this quick start, one task after the other, and check each with me."
        return _message(shown.get("displayName") or name, f"{request}\n\n{shown['markdown']}")

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return None: only connected servers propose values."""


def _message(description: str, text: str) -> Json:
    return {"description": description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
