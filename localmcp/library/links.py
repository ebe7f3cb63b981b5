"""Links between documents: wiki links by title or file name, and paths as Markdown and HTML have them."""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from urllib.parse import unquote

from localmcp.index.collections import visible_ids
from localmcp.library.inventory import Inventory, Item
from localmcp.storage.database import Database, fetch_all

WIKI = "wiki:"
"""Before the name in the target of a wiki link."""
MOST_LINKING = 100
_LINK = re.compile(r"\[\[([^\]|\n]{1,200})(?:\|[^\]\n]{0,200})?\]\]|\]\(<?([^()\s<>]{1,500})>?(?:\s[^()\n]{0,200})?\)")


def linked_document(inventory: Inventory, path: str | None, target: str) -> Item | None:
    """Return the document that a link of the document at `path` leads to; None if the library has none.

    `target` is a relative or absolute path, percent-encoded as in Markdown, or `wiki:` and a name.
    """
    if target.startswith(WIKI):
        name = target.removeprefix(WIKI).partition("#")[0].strip()
        found = inventory.find(name)
        return found if found is not None and _is_named(found, name) else None
    name = unquote(target).partition("#")[0]
    full = os.path.normpath(os.path.join(os.path.dirname(path or ""), name))
    for candidate in (full, f"{full}.md"):
        found = inventory.find(candidate)
        if found is not None and found.path == candidate:
            return found
    return None


def _is_named(item: Item, name: str) -> bool:
    """Return whether a wiki link may call a document so: its title, or the end of its path without the ending."""
    path = str(PurePath(item.path).with_suffix("")) if item.path else ""
    name = name.removesuffix(".md").casefold()
    return item.title.casefold() == name or f"/{path}".replace(os.sep, "/").casefold().endswith(f"/{name}")


def documents_linking_to(database: Database, source_id: str) -> list[Item]:
    """Return the documents with a link to this one, by title; none if it is gone."""
    inventory = Inventory(database)
    item = inventory.find(source_id)
    if item is None:
        return []
    names = {item.title, *([PurePath(item.path).stem, PurePath(item.path).name] if item.path else [])}
    held = " or ".join("instr(lower(text), lower(?))" for _ in names)
    with database.read() as connection:
        sql = f"""
            select distinct sources.uuid, uri, text from chunks join sources on sources.id = source_id
            where (instr(text, '[[') or instr(text, '](')) and ({held}) and trashed_at is null
                and collection_id in ({visible_ids(connection)}) and sources.uuid <> ?
        """
        rows = fetch_all(connection, sql, (*names, item.id))
    linking: dict[str, Item] = {}
    for source_id, path, text in rows:
        if source_id in linking or len(linking) == MOST_LINKING:
            continue
        for name, target in _LINK.findall(text):
            found = linked_document(inventory, path, f"{WIKI}{name}" if name else target)
            if found is not None and found.id == item.id and (linking_item := inventory.find(source_id)) is not None:
                linking[source_id] = linking_item
                break
    return sorted(linking.values(), key=lambda linking_item: linking_item.title.casefold())
