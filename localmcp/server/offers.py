"""Documents as resources, quick starts and rules as prompts, and completion of their names.

Everything is answered by the tools that exist for it, in the caller's scope: a key that may not call `get_document`
reads no resource. Connected servers, whose `ServerOffers` has the same methods, are asked after ours.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from localmcp.errors import InvalidInput, LocalMCPError, NotFound
from localmcp.library.names import DOCUMENT_URI, without_scheme
from localmcp.schemas import shorten_value
from localmcp.tools import Json, Registry

TEMPLATE = DOCUMENT_URI + "{sourceId}{?offset}"
RULES_PROMPT = "rules_for_task"
PAGE = 50
"""Entries of one page of a list."""
MOST_DIGITS = 20


class OwnOffer:
    """Resources and prompts of this file, in the protocol's own JSON; None and False mean: not ours."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def kinds(self) -> set[str]:
        """Return of `resources` and `prompts` what there is for the current scope."""
        kinds: set[str] = set()
        if self._has("list_sources") and self._look("list_sources", limit=1)["total"]:
            kinds.add("resources")
        if self._has_rules() or (self._has("listQuickstarts") and self._quickstarts(0, 1)[1]):
            kinds.add("prompts")
        return kinds

    def _has_rules(self) -> bool:
        if not self._has("getRelevantRules"):
            return False
        return not self._has("listRules") or bool(self._look("listRules", limit=1)["total"])

    def _has(self, tool: str) -> bool:
        return self._registry.find(tool) is not None

    def _look(self, tool: str, **arguments: Any) -> Json:
        """Return the answer of a tool that only lists; it is not logged as a call of the client."""
        listing_tool = self._registry.find(tool)
        return listing_tool.call(arguments).value if listing_tool else {}

    def _call(self, tool: str, **arguments: Any) -> Json:
        answer = self._registry.call(tool, arguments)
        if answer.is_error:
            raise NotFound(answer.value.get("message") or answer.text, hint=answer.value.get("hint"))
        return answer.value

    def state(self, uri: str) -> str | None:
        """Return a value that changes when a document is indexed again; None for one that is not there."""
        if not uri.startswith(DOCUMENT_URI):
            return None
        try:
            document = self._look("get_document", sourceId=without_scheme(uri), outline=True)
        except LocalMCPError:
            return None
        return document.get("source", {}).get("updatedAt")

    def resources(self, offset: int) -> tuple[list[Json], int | None]:
        """Return documents, the last changed first."""
        if not self._has("list_sources"):
            return [], None
        page = self._look("list_sources", order="changed", limit=PAGE, offset=offset)
        return [_resource(item) for item in page["sources"]], page.get("nextOffset")

    def list_state(self, kind: str) -> str:
        """Return a value that changes when a list does, as the caller sees it."""
        if kind == "resources":
            page = self._look("list_sources", order="changed", limit=1)
            return repr([page.get("total"), *map(_resource, page.get("sources", []))])
        prompts, following = self.prompts(0)
        while following is not None:
            more, following = self.prompts(following)
            prompts += more
        return hashlib.blake2b(repr(prompts).encode(errors="surrogatepass"), digest_size=16).hexdigest()

    def templates(self) -> list[Json]:
        if not self._has("get_document"):
            return []
        description = "A document by id, short id, path or unique title; offset reads on in a long one"
        return [{"uriTemplate": TEMPLATE, "name": "document", "title": "Document", "description": description}]

    def read(self, uri: str) -> list[Json] | None:
        """Return a document, or as much of it as fits and the address of the rest."""
        if not uri.startswith(DOCUMENT_URI):
            return None
        parts = urlsplit(uri)
        offset = parse_qs(parts.query).get("offset", ["0"])[0]
        if not offset.isdecimal() or len(offset) > MOST_DIGITS:
            raise InvalidInput(f"offset: {shorten_value(offset)} is not a whole number, or too large.")
        document = self._call("get_document", sourceId=without_scheme(uri), offset=int(offset))
        contents: list[Json] = [{"uri": uri, "mimeType": "text/plain", "text": document["source"]["content"]}]
        if document.get("truncated"):
            next_uri = f"{DOCUMENT_URI}{document['source']['id']}?offset={document['nextOffset']}"
            contents.append({"uri": next_uri, "mimeType": "text/plain", "text": f"The document goes on at {next_uri}"})
        return contents

    def prompts(self, offset: int) -> tuple[list[Json], int | None]:
        """Return the prompt for rules, then the quick starts by title."""
        prompts: list[Json] = []
        if offset == 0 and self._has_rules():
            prompts.append(_RULES)
        if not self._has("listQuickstarts") or not self._has("showQuickstart"):
            return prompts, None
        quickstarts, total = self._quickstarts(offset, PAGE)
        following = offset + len(quickstarts)
        return [*prompts, *map(_quickstart_prompt, quickstarts)], following if following < total else None

    def _quickstarts(self, offset: int, limit: int) -> tuple[list[Json], int]:
        page = self._look("listQuickstarts", limit=limit, offset=offset)
        return page["quickstarts"], page["total"]

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt."""
        if name == RULES_PROMPT and self._has("getRelevantRules"):
            return self._rules(arguments)
        if not self._has("showQuickstart"):
            return None
        try:
            shown = self._call("showQuickstart", name=name)
        except NotFound:
            return None
        task, tasks = arguments.get("task", "").strip(), shown.get("tasks", 0)
        if task and task not in map(str, range(1, tasks + 1)):
            raise InvalidInput(f"task: '{task}' is none of '{name}'; it has {tasks}, counted from 1.")
        begin = f" Begin with task {task}." if task else ""
        request = "Guide me through this quick start, one task after the other, and check each with me." + begin
        return _messages(shown.get("displayName") or name, f"{request}\n\n{shown['markdown']}")

    def _rules(self, arguments: dict[str, str]) -> Json:
        task = arguments.get("task", "")
        answer = self._registry.call("getRelevantRules", {"taskDescription": task})
        if answer.is_error:
            raise InvalidInput(f"task: {answer.text}")
        return _messages("Rules for a task", f"Task: {task}\n\n{answer.text}")

    def complete(self, ref: Json, argument: str, value: str) -> Json | None:
        """Return titles of documents for the template, numbers of tasks for a quick start."""
        values = self._proposals(ref, argument, value)
        return None if values is None else {"values": values, "total": len(values), "hasMore": False}

    def _proposals(self, ref: Json, argument: str, value: str) -> list[str] | None:
        if ref.get("type") == "ref/resource":
            return self._titles(value) if ref.get("uri") == TEMPLATE and argument == "sourceId" else None
        name = str(ref.get("name", ""))
        if name == RULES_PROMPT or argument != "task" or not self._has("showQuickstart"):
            return None
        try:
            tasks = int(self._look("showQuickstart", name=name).get("tasks", 0))
        except NotFound:
            return None
        return [str(number) for number in range(1, tasks + 1) if str(number).startswith(value)]

    def _titles(self, value: str) -> list[str]:
        if not self._has("list_sources"):
            return []
        page = self._look("list_sources", order="title", limit=500, title=value)
        folded = value.casefold()
        titles = [item["title"] for item in page["sources"]]
        begin_so = [title for title in titles if title.casefold().startswith(folded)]
        return list(dict.fromkeys([*begin_so, *titles]))


_RULES: Json = {
    "name": RULES_PROMPT,
    "title": "Rules for a task",
    "description": "The developer's own rules that matter for a task",
    "arguments": [{"name": "task", "description": "What is about to be done", "required": True}],
}


def _resource(item: Json) -> Json:
    resource: Json = {
        "uri": DOCUMENT_URI + quote(item["id"], safe=":"),
        "name": item["title"],
        "mimeType": "text/plain",
        "annotations": {"lastModified": item["changedAt"]},
    }
    if "path" in item:
        resource["description"] = item["path"]
    return resource


def _quickstart_prompt(quickstart: Json) -> Json:
    return {
        "name": quickstart["name"],
        "title": quickstart.get("displayName") or quickstart["name"],
        "description": quickstart.get("description") or "",
        "arguments": [{"name": "task", "description": "Number of the task to begin with", "required": False}],
    }


def _messages(description: str, text: str) -> Json:
    return {"description": description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
