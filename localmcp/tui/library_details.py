"""What the Library shows of the row that is highlighted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.humanize import counted
from localmcp.knowledge.inventory import Folder, FolderState, Item, PassageLine, Unread, WaitingFile
from localmcp.search.federation import shown_name
from localmcp.tui.highlight import short
from localmcp.tui.library_model import inventory_of
from localmcp.tui.library_tree import STATE_MARKS, CollectionRow, Trashed, WaitingFiles, waits_for

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

PREVIEW_PASSAGES = 4
"""Shown of a document beside the tree, after the first."""


def about_row(row: Any, state: FolderState) -> tuple[str, Content] | None:
    """Return a title and what to say of a row; None for what must be looked up. `state`: of a folder."""
    match row:
        case CollectionRow():
            return row.name, _lines(*_about_collection(row))
        case Folder():
            return row.name, _lines(*_about_folder(row, state))
        case WaitingFiles():
            return "What waits", _lines(
                row.words, "", "They are found by their words meanwhile; the work goes on while localmcp runs."
            )
        case WaitingFile():
            return "What waits", _lines(short(row.title), "", f"{waits_for(row)} to go")
        case Trashed():
            return "In the trash", _lines(row.title, row.path or "", "", f"Removed {row.since[:10]}; u brings it back.")
        case Unread():
            return "Could not be read", Content.assemble((short(row.path), "bold"), f"\n\n✗ {row.reason}")
        case _:
            return None


def _lines(*lines: str) -> Content:
    return Content("\n".join(lines))


def _about_collection(row: CollectionRow) -> list[str]:
    documents = counted(row.documents, "document")
    if row.origin:
        search = f"Search only here:  collection:mount:{row.origin}/{row.name}"
        return [f"{documents} of the mounted file {row.origin}, which is read-only.", "", search]
    facts = [
        f"{documents} in {counted(row.passages, 'passage')}",
        f"vectors of {row.model}" if row.model else "no vectors: searched by words",
        f"{counted(row.unread, 'file')} could not be read" if row.unread else "",
    ]
    return [*filter(None, facts), "", f"Search only here:  collection:{row.name}"]


def _about_folder(folder: Folder, state: FolderState) -> list[str]:
    facts = [
        counted(folder.documents, "document"),
        f"✗ {counted(folder.unread, 'file')} could not be read" if folder.unread else "",
        f"✎ {counted(state.changed, 'file')} changed since: r reads them again" if state.changed else "",
        f"○ {counted(state.missing, 'file')} gone: r puts them into the trash" if state.missing else "",
        f"◌ {counted(state.waiting, 'passage')} without vectors" if state.waiting else "",
    ]
    return [short(folder.path), "", *filter(None, facts), "", f"Search only here:  path:{short(folder.path)}"]


def about_document(workspace: Workspace, item: Item, origin: str | None) -> Content:
    """Return everything about a document, why its file is as it is, and how its text begins."""
    if origin:
        why = f"of the mounted file {origin}, which is read-only"
    else:
        why = workspace.library.why(item.path)["explanation"] if item.path else "a text without a file"
    mark, words, style = STATE_MARKS[item.state]
    lines = [
        Content.assemble((f"{mark} {words}", f"${style}")),
        Content(f"✗ {item.why}" if item.why else ""),
        Content(short(item.path) if item.path else ""),
        Content(f"{counted(item.chunks, 'passage')} in collection {item.collection}"),
        Content.styled(why, "$muted"),
        Content.styled(f"id {item.id}", "$muted"),
    ]
    facts = Content("\n").join(line for line in lines if line.plain)
    first = next(iter(inventory_of(workspace, origin).passages(item.id, limit=1)), None)
    if first is None:
        return facts
    return Content("\n\n").join([facts, passage_text(workspace, first, origin, PREVIEW_PASSAGES)])


def passage_text(workspace: Workspace, passage: PassageLine, origin: str | None, following: int = 0) -> Content:
    """Return the text of a passage, and of those behind it."""
    around = workspace.knowledge.get_context(shown_name(passage.id, origin), following)
    texts = [chunk["content"].strip("\n") for chunk in around["chunks"] if chunk["relativePosition"] >= 0]
    return Content("\n\n".join(texts))
