"""Reads Word, PowerPoint and LibreOffice files as Markdown, from the tree of their XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, join_pages, make_document, one_line, set_fields
from localmcp.readers.markdown import RAISED, first_heading, pipe_table
from localmcp.readers.packages import Package, attribute, elements, local

LIST_ITEM = "\0"
"""A block that begins so follows the one before it without an empty line: items of one list."""
_SKIPPED = frozenset(("del", "moveFrom", "Fallback", "pPr", "rPr", "txbxContent", "sectPr", "tracked-changes"))
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "s": " ", "line-break": "\n"}
_REPEATED = ("sldNum", "dt", "ftr", "hdr", "sldImg")
"""Placeholders that every slide repeats."""


def office_document(name: str, kind: str, text: str, properties: dict[str, str], **fields: Any) -> Document:
    """Return the document with its properties; its title is theirs, or that of `fields`, else the first heading."""
    title = properties.get("title") or fields.pop("title", "") or first_heading(text[:10_000])
    # The last change may be one of the template, before the document was made.
    date = max(properties.get("modified", ""), properties.get("created", ""))
    fields["metadata"] = set_fields(author=properties.get("creator"), created=properties.get("created")) | fields.get(
        "metadata", {}
    )
    return make_document(name, text, kind, title=title, date=date, date_from="document properties", **fields)


def _join_blocks(blocks: Iterable[str]) -> str:
    """Return blocks with an empty line between them, but none between the items of a list."""
    pieces: list[str] = []
    in_list = False
    for block in filter(None, blocks):
        is_item = block.startswith(LIST_ITEM)
        pieces += [("\n" if is_item and in_list else "\n\n") if pieces else "", block.removeprefix(LIST_ITEM)]
        in_list = is_item
    return "".join(pieces)


def _slides(name: str, kind: str, slides: list[tuple[str, list[str]]], properties: dict[str, str]) -> Document:
    """Return slides, each a title and blocks, as a document in which each is a page."""
    if not any(title or blocks for title, blocks in slides):
        raise UnreadableDocument(f"{name} holds no text: its slides are pictures or empty.")
    pages = [_join_blocks([f"## {title or f'Slide {n}'}", *blocks]) for n, (title, blocks) in enumerate(slides, 1)]
    text, starts = join_pages(pages)
    first = next((title for title, _ in slides if title), "")
    return office_document(
        name, kind, text, properties, title=first, metadata={"slides": len(slides)}, page_starts=starts
    )


def _trimmed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.replace("\v", "\n").split("\n")).strip()


def _own(parent: Element, tag: str, inner: str) -> Iterator[Element]:
    """Yield the elements of a kind below `parent`, those in another `inner` element left out."""
    for child in parent:
        if local(child) == tag:
            yield child
        elif local(child) != inner:
            yield from _own(child, tag, inner)


# ---------------------------------------------------------------- Word


class _Word:
    """What the body of a Word file refers to, and the numbers of its lists so far."""

    def __init__(self) -> None:
        self.styles: dict[str, dict[str, str]] = {}
        self.labels: dict[tuple[str, int], tuple[str, str]] = {}
        """(list, level) -> format of its number, text around it."""
        self.remarks: dict[tuple[str, str], str] = {}
        self.counts: dict[tuple[str, int], int] = {}

    def style(self, identifier: str) -> dict[str, str]:
        """Return the properties of a style with what it inherits."""
        merged: dict[str, str] = {}
        seen = set[str]()
        while identifier in self.styles and identifier not in seen:
            seen.add(identifier)
            merged = self.styles[identifier] | merged
            identifier = self.styles[identifier].get("basedOn", "")
        return merged

    def label(self, numbering: str, level: int) -> str:
        """Count an item of a list; returns its number as Word shows it, `-` for a bullet."""
        kind, pattern = self.labels.get((numbering, level), ("bullet", ""))
        if kind in ("bullet", "none"):
            return "-"
        self.counts[numbering, level] = self.counts.get((numbering, level), 0) + 1
        for key in [key for key in self.counts if key[0] == numbering and key[1] > level]:
            del self.counts[key]

        def number(match: re.Match[str]) -> str:
            place = (numbering, int(match[1]) - 1)
            return _numeral(self.counts.get(place, 1), self.labels.get(place, ("decimal", ""))[0])

        return re.sub(r"%(\d)", number, pattern) or f"{self.counts[numbering, level]}."


_ROMAN = {
    **{1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc"},
    **{50: "l", 40: "xl", 10: "x", 9: "ix", 5: "v", 4: "iv", 1: "i"},
}


def _numeral(number: int, kind: str) -> str:
    text = str(number)
    if kind.endswith("Letter"):
        text = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
    elif kind.endswith("Roman"):
        text = ""
        for value, sign in _ROMAN.items():
            text, number = text + sign * (number // value), number % value
    return text.upper() if kind.startswith("upper") else text


def read_docx(data: bytes, name: str) -> Document:
    """Return headings, lists and tables; notes, comments and text boxes below the paragraph that holds them."""
    package = Package(data, name)
    main = package.main_part("word/document.xml")
    word = _Word()
    for kind, path in package.related(main).values():
        if kind == "styles":
            word.styles |= {attribute(e, "styleId"): _values(e) for e in elements(package.root(path), "style")}
        elif kind == "numbering":
            word.labels |= _read_numbering(package.root(path))
        elif kind in ("footnotes", "endnotes", "comments"):
            for remark in package.root(path):
                # Separators between the text and the notes are notes too, of a type.
                text = "" if attribute(remark, "type") else _join_blocks(_word_blocks(remark, _Word()))
                author = one_line(attribute(remark, "author"))
                label = f"{kind.capitalize()[:-1]}{f' by {author}' if author else ''}"
                word.remarks[kind[:-1], attribute(remark, "id")] = f"{label}: {text}" if text else ""
    body = next(elements(package.root(main), "body"), package.root(main))
    return office_document(name, "docx", _join_blocks(_word_blocks(body, word)), package.properties())


def _values(properties: Element) -> dict[str, str]:
    """Return the properties of a style or a paragraph; `level` is that of a heading, from 1."""
    values = {local(e): value for e in properties.iter() if (value := attribute(e, "val"))}
    heading = re.fullmatch(r"(?:heading (\d)|(title))", values.get("name", "").lower())
    outline = values.get("outlineLvl", "")
    if heading:
        values["level"] = heading[1] or "1"
    elif outline.isdecimal() and int(outline) < 9:
        values["level"] = str(int(outline) + 1)
    return values


def _read_numbering(root: Element) -> dict[tuple[str, int], tuple[str, str]]:
    formats: dict[str, dict[int, tuple[str, str]]] = {}
    for abstract in elements(root, "abstractNum"):
        levels = formats.setdefault(attribute(abstract, "abstractNumId"), {})
        for level in elements(abstract, "lvl"):
            values = {local(element): attribute(element, "val") for element in level}
            levels[int(attribute(level, "ilvl", "0"))] = (values.get("numFmt", "decimal"), values.get("lvlText", ""))
    return {
        (attribute(num, "numId"), level): label
        for num in elements(root, "num")
        for reference in elements(num, "abstractNumId")
        for level, label in formats.get(attribute(reference, "val"), {}).items()
    }


def _word_blocks(parent: Element, word: _Word) -> Iterator[str]:
    for element in parent:
        tag = local(element)
        if tag == "p":
            yield from _word_paragraph(element, word)
        elif tag == "tbl":
            yield pipe_table([_word_cells(row) for row in _own(element, "tr", "tbl")])
        elif tag not in _SKIPPED:
            yield from _word_blocks(element, word)


def _word_paragraph(paragraph: Element, word: _Word) -> Iterator[str]:
    own = next((_values(part) for part in paragraph if local(part) == "pPr"), dict[str, str]())
    values = word.style(own.get("pStyle", "")) | own
    text = _word_text(paragraph)
    if text and not values.get("name", "").lower().startswith("toc "):
        numbering, indent = values.get("numId", "0"), min(int(own.get("ilvl", 0)), 8)
        if "level" in values:
            yield f"{'#' * min(int(values['level']), 6)} {' '.join(text.split())}"
        elif numbering != "0":
            yield f"{LIST_ITEM}{'  ' * indent}{word.label(numbering, indent)} {' '.join(text.split())}"
        else:
            yield text
    for element in paragraph.iter():
        tag = local(element)
        if tag.endswith("Reference"):
            yield word.remarks.get((tag.removesuffix("Reference"), attribute(element, "id")), "")
    for box in _boxes(paragraph):
        yield from _word_blocks(box, word)


def _boxes(element: Element) -> Iterator[Element]:
    """Yield the text boxes in a paragraph, without what repeats them for older programs."""
    for child in element:
        if local(child) == "txbxContent":
            yield child
        elif local(child) != "Fallback":
            yield from _boxes(child)


def _word_cells(row: Element) -> list[str]:
    """Return the text of each cell of a row; one that spans several is followed by empty ones."""
    cells: list[str] = []
    for cell in _own(row, "tc", "tbl"):
        span = next((attribute(e, "val") for e in elements(cell, "gridSpan")), "1")
        cells.append(" ".join(filter(None, map(_word_text, elements(cell, "p")))))
        cells += [""] * (min(int(span), 63) - 1 if span.isdecimal() else 0)
    return cells


def _word_text(paragraph: Element) -> str:
    pieces: list[str] = []
    raised = False
    for element in _shown(paragraph):
        tag = local(element)
        if tag == "r":
            raised = any(attribute(e, "val") == "superscript" for e in elements(element, "vertAlign"))
        elif tag == "t":
            text = element.text or ""
            pieces.append(text.translate(RAISED) if raised else text)
        elif tag == "docPr" and attribute(element, "descr"):
            pieces.append(f" {attribute(element, 'descr')} ")
        else:
            pieces.append(_SPACES.get(tag, ""))
    return _trimmed("".join(pieces))


def _shown(element: Element) -> Iterator[Element]:
    """Yield what is below an element, without what was deleted, repeated for older programs, or in a text box."""
    for child in element:
        if local(child) not in _SKIPPED:
            yield child
            yield from _shown(child)


# ---------------------------------------------------------------- PowerPoint


def read_pptx(data: bytes, name: str) -> Document:
    """Return the slides in the order of the presentation, each a page with title, text, tables, comments, notes."""
    package = Package(data, name)
    main = package.main_part("ppt/presentation.xml")
    parts = package.related(main)
    order = [value for e in elements(package.root(main), "sldId") for key, value in e.attrib.items() if "}id" in key]
    properties = package.properties()
    if "PowerPoint" in properties.get("title", ""):
        del properties["title"]
    return _slides(name, "pptx", [_read_slide(package, parts[key][1]) for key in order if key in parts], properties)


def _read_slide(package: Package, path: str) -> tuple[str, list[str]]:
    root = package.root(path)
    title, blocks = _shapes(root)
    for kind, part in package.related(path).values():
        if kind == "comments" and part in package:
            for comment in elements(package.root(part), "cm"):
                text = _drawn(comment) or " ".join(e.text or "" for e in elements(comment, "text"))
                blocks += [f"Comment: {text}"] if text else []
        elif kind == "notesSlide" and part in package:
            heading, notes = _shapes(package.root(part))
            if text := "\n".join(filter(None, (heading, *notes))):
                blocks.append(f"Notes: {text}")
    return title + (" (hidden)" if root.get("show") in ("0", "false") else ""), blocks


def _shapes(root: Element) -> tuple[str, list[str]]:
    title, blocks = "", list[str]()
    for shape in elements(root, "sp", "graphicFrame"):
        kind = next((attribute(e, "type", "body") for e in elements(shape, "ph")), "")
        if kind in _REPEATED:
            continue
        lines = [(paragraph, text) for paragraph in elements(shape, "p") if (text := _drawn(paragraph))]
        if rows := [[_drawn(cell) for cell in elements(row, "tc")] for row in elements(shape, "tr")]:
            blocks.append(pipe_table(rows))
        elif lines and kind in ("title", "ctrTitle") and not title:
            title = one_line(" ".join(text for _, text in lines))
        elif len(lines) > 1 and kind:
            levels = (next((attribute(e, "lvl", "0") for e in elements(p, "pPr")), "0") for p, _ in lines)
            items = zip(levels, lines, strict=True)
            blocks.append("\n".join(f"{'  ' * int(level)}- {' '.join(text.split())}" for level, (_, text) in items))
        elif lines:
            blocks.append("\n\n".join(text for _, text in lines))
    return title, blocks


def _drawn(element: Element) -> str:
    return _trimmed("".join("\n" if local(e) == "br" else e.text or "" for e in elements(element, "t", "br")))


# ---------------------------------------------------------------- LibreOffice


def read_odt(data: bytes, name: str) -> Document:
    """Return headings, lists and tables; notes, comments and text boxes below the paragraph that holds them."""
    package = Package(data, name)
    root = package.root("content.xml")
    blocks = _odf_blocks(next(elements(root, "text"), root), _numbered_lists(package, root))
    return office_document(name, "odt", _join_blocks(blocks), package.properties("meta.xml"))


def read_odp(data: bytes, name: str) -> Document:
    """Return the slides, each a page with its title, text, tables and notes."""
    package = Package(data, name)
    root = package.root("content.xml")
    numbered = _numbered_lists(package, root)
    slides: list[tuple[str, list[str]]] = []
    for page in elements(root, "page"):
        title, blocks = "", list[str]()
        for shape in page:
            found = list(_odf_blocks(shape, numbered))
            if attribute(shape, "class") == "title" and not title:
                title = one_line(" ".join(found))
            elif local(shape) == "notes":
                blocks += [f"Notes: {text}"] if (text := _join_blocks(found)) else []
            else:
                blocks += found
        slides.append((title, blocks))
    return _slides(name, "odp", slides, package.properties("meta.xml"))


def _numbered_lists(package: Package, root: Element) -> set[tuple[str, int]]:
    """Return (style, level) of the lists whose items have numbers."""
    roots = [root, *([package.root("styles.xml")] if "styles.xml" in package else [])]
    return {
        (attribute(style, "name"), int(attribute(level, "level", "1")))
        for part in roots
        for style in elements(part, "list-style")
        for level in elements(style, "list-level-style-number")
        if attribute(level, "num-format")
    }


def _odf_blocks(
    parent: Element, numbered: set[tuple[str, int]], depth: int = 0, style: str = "", label: str = "-"
) -> Iterator[str]:
    number = 0
    for element in parent:
        tag = local(element)
        if tag == "h":
            level = min(int(attribute(element, "outline-level", "1")), 6)
            yield f"{'#' * level} {' '.join(_odf_text(element).split())}"
        elif tag == "p":
            text = _odf_text(element)
            yield f"{LIST_ITEM}{'  ' * (depth - 1)}{label} {' '.join(text.split())}" if text and depth else text
            yield from _odf_remarks(element, numbered)
        elif tag == "list":
            yield from _odf_blocks(element, numbered, depth + 1, attribute(element, "style-name", style))
        elif tag == "list-item":
            number += 1
            mark = f"{number}." if (style, depth) in numbered else "-"
            yield from _odf_blocks(element, numbered, depth, style, mark)
        elif tag == "table":
            rows = (_own(row, "table-cell", "table") for row in _own(element, "table-row", "table"))
            yield pipe_table([[_odf_words(cell, "p", "h") for cell in cells] for cells in rows])
        elif tag not in ("tracked-changes", "table-of-content", "sequence-decls", "forms"):
            yield from _odf_blocks(element, numbered, depth, style, label)


def _odf_words(element: Element, *tags: str) -> str:
    return " ".join(filter(None, map(_odf_text, elements(element, *tags))))


def _odf_remarks(paragraph: Element, numbered: set[tuple[str, int]]) -> Iterator[str]:
    """Yield the notes, comments and text boxes in a paragraph."""
    for element in paragraph.iter():
        tag = local(element)
        if tag in ("annotation", "note-body"):
            text = _odf_words(element, "p")
            author = next((one_line(e.text or "") for e in elements(element, "creator")), "")
            label = "Note" if tag == "note-body" else f"Comment{f' by {author}' if author else ''}"
            yield f"{label}: {text}" if text else ""
        elif tag == "text-box":
            yield from _odf_blocks(element, numbered)


def _odf_text(paragraph: Element) -> str:
    def pieces(element: Element) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            tag = local(child)
            if tag == "s":
                yield " " * min(int(attribute(child, "c", "1")), 100)
            elif tag in _SPACES:
                yield _SPACES[tag]
            elif tag not in ("annotation", "note", "text-box"):
                yield from pieces(child)
            yield child.tail or ""

    return _trimmed("".join(pieces(paragraph)))
