"""Shared by the office formats: properties, relations between the parts of a file, and blocks of text."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, date_fields, join_pages, make_document, one_line, set_fields
from localmcp.readers.markdown import first_heading
from localmcp.readers.packages import Package
from localmcp.readers.tables import SheetWriter


@dataclass(frozen=True, slots=True)
class Relation:
    """A part that another part refers to."""

    kind: str
    """Last word of its type: slide, comments, notesSlide, sharedStrings…"""
    path: str


def read_properties(package: Package) -> dict[str, Any]:
    """Return title, author, created and modified, as far as the file says."""
    elements = {element.tag: element.text for element in package.elements("docProps/core.xml")}
    return set_fields(
        title=elements.get("title"),
        author=elements.get("creator"),
        created=elements.get("created"),
        modified=elements.get("modified"),
    )


def office_document(
    name: str, kind: str, text: str, properties: dict[str, Any], *, title: str | None = None,
    metadata: dict[str, Any] | None = None, **places: Any,
) -> Document:  # fmt: skip
    """Return the document with its properties.

    `title`: used where the properties have none; the first heading by default. `places`: other fields of the document.
    """
    named = properties.pop("title", "") or (first_heading(text[:10_000]) if title is None else title)
    # The last change may be one of the template, before the document was made.
    date = max(properties.pop("modified", ""), properties.get("created", ""))
    places |= date_fields(date, "document properties")
    everything = properties | (metadata or {})
    return make_document(name, text, kind, "markdown", "docs", title=named, metadata=everything, **places)


def heading_block(text: str, level: int) -> str:
    """Return a heading of Markdown; level 1 is the highest."""
    return f"{'#' * level} {' '.join(text.split())}"


def join_blocks(blocks: Iterable[str]) -> str:
    """Return blocks with an empty line between them.

    A block that begins with NUL follows the one before without an empty line: items of one list.
    """
    return "\n\n".join(blocks).replace("\n\n\0", "\n")


@dataclass(slots=True)
class Slide:
    """A slide with its title and blocks of text."""

    title: str = ""
    hidden: bool = False
    blocks: list[str] = field(default_factory=list[str])

    def markdown(self, number: int) -> str:
        """Return it under its title, or its number."""
        heading = f"## {self.title or f'Slide {number}'}{' (hidden)' if self.hidden else ''}"
        return join_blocks([heading, *self.blocks])


def slides_document(name: str, kind: str, slides: list[Slide], properties: dict[str, Any]) -> Document:
    """Return slides as a document in which each is a page.

    Raises:
        UnreadableDocument: none of them holds text.
    """
    if not any(slide.title or slide.blocks for slide in slides):
        raise UnreadableDocument(f"{name} holds no text: its slides are pictures or empty.")
    text, starts = join_pages([slide.markdown(number) for number, slide in enumerate(slides, 1)])
    title = next((slide.title for slide in slides if slide.title), "")
    return office_document(
        name, kind, text, properties, title=title, metadata={"slides": len(slides)}, page_starts=starts
    )


def sheets_document(
    name: str, kind: str, writer: SheetWriter, sheets: list[str], properties: dict[str, Any]
) -> Document:
    """Return written sheets as a document whose lines know their rows."""
    rows = tuple(writer.row_starts)
    return office_document(
        name, kind, writer.text(), properties, title="", metadata={"sheets": sheets}, row_starts=rows
    )


def relations(package: Package, part: str) -> dict[str, Relation]:
    """Return the relations of a part by their id; none if it has no list of them."""
    folder, file = posixpath.split(part)
    listing = posixpath.join(folder, "_rels", f"{file}.rels")
    listed = [element.attributes for element in package.elements(listing) if element.tag == "Relationship"]
    return {
        values.get("Id", ""): Relation(
            values.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join(folder, values.get("Target", ""))).lstrip("/"),
        )
        for values in listed
        if values.get("TargetMode") != "External"
    }


def main_part(package: Package, usual: str) -> str:
    """Return the path of the part that the file is about."""
    if usual in package:
        return usual
    for relation in relations(package, "").values():
        if relation.kind == "officeDocument":
            return relation.path
    raise UnreadableDocument(f"{package.name} is damaged: it holds no {usual}.")


def related(parts: dict[str, Relation], kind: str) -> list[str]:
    """Return the paths of the related parts of a kind, in order."""
    return [relation.path for relation in parts.values() if relation.kind == kind]


def remark_block(label: str, text: str, author: str = "") -> str:
    """Return a remark beside the text as a paragraph: `Comment by Ada: …`."""
    return f"{label}{' by ' + one_line(author) if author else ''}: {text}"


def office_lines(text: str) -> str:
    """Trim a paragraph; a line break inside it is a vertical tab in slides."""
    return "\n".join(" ".join(line.split()) for line in text.replace("\v", "\n").split("\n")).strip()
