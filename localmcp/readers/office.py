"""Reads Word, PowerPoint and LibreOffice files as Markdown, from the tree of their XML; workbooks, and Rich Text."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import Element

from python_calamine import CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum
from striprtf.striprtf import rtf_to_text  # pyright: ignore[reportUnknownVariableType]

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, join_pages, make_document, one_line, readable_stem, set_fields, visible
from localmcp.readers.markdown import RAISED, first_heading, pipe_table
from localmcp.readers.packages import OLE_MAGIC, Package, attribute, elements, local, suffix_of

_LIST_ITEM = "\0"
"""A block that begins so follows the one before it without an empty line: items of one list."""
_SKIPPED = frozenset(("del", "moveFrom", "Fallback", "pPr", "rPr", "txbxContent", "sectPr"))
"""What was deleted, repeats others for older programs, says how the text looks, or is a text box."""
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "line-break": "\n"} | {
    # What stands around the parts of a formula, which are one line here.
    **{"num": "(", "den": "/(", "d": "(", "rad": "√(", "sup": "^", "sub": "_"}
}
_ENDS = {"num": ")", "den": ")", "d": ")", "rad": ")", "fName": " "}


def office_document(
    name: str, kind: str, text: str, properties: dict[str, str], *, title: str = "", **fields: Any
) -> Document:
    """Return the document with its properties; its title is theirs, or `title`, else the first heading."""
    title = properties.get("title") or title or first_heading(text[:10_000])
    # The last change may be one of the template, before the document was made.
    date = max(properties.get("modified", ""), properties.get("created", ""))
    metadata = set_fields(author=properties.get("creator"), created=properties.get("created"))
    fields["metadata"] = metadata | fields.get("metadata", {})
    return make_document(name, text, kind, title=title, date=date, date_from="document properties", **fields)


def _join_blocks(blocks: Iterable[str]) -> str:
    """Return blocks with an empty line between them, but none between the items of a list."""
    joined = "\n\n".join(filter(None, blocks))
    return re.sub(rf"(?m)(^{_LIST_ITEM}.*)\n\n(?={_LIST_ITEM})", r"\1\n", joined).replace(_LIST_ITEM, "")


def _slides(name: str, kind: str, slides: list[tuple[str, list[str]]], properties: dict[str, str]) -> Document:
    if not any(title or blocks for title, blocks in slides):
        raise UnreadableDocument(f"{name} holds no text: its slides are pictures or empty.")
    pages = [_join_blocks([f"## {title or f'Slide {n}'}", *blocks]) for n, (title, blocks) in enumerate(slides, 1)]
    text, starts = join_pages(pages)
    first = next((title for title, _ in slides if title), readable_stem(name))
    if re.search(r"PowerPoint|^(?:Slide|Folie|Diapositiv[ae]|Слайд) 1$", properties.get("title", "")):
        del properties["title"]
    metadata = {"slides": len(slides)}
    return office_document(name, kind, text, properties, title=first, metadata=metadata, page_starts=starts)


def _trimmed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.replace("\v", "\n").split("\n")).strip()


def _table(rows: Iterable[list[str | None]]) -> str:
    """Return rows of cells; None: one that goes on from the row above, whose text it has, up to 1000 characters."""
    texts: list[list[str]] = [[]]
    for row in rows:
        above = dict(enumerate(texts[-1]))
        texts.append([above.get(at, "")[:1000] if cell is None else cell for at, cell in enumerate(row)])
    return pipe_table(texts[1:])


def _own(parent: Element, inner: str, *tags: str) -> Iterator[Element]:
    """Yield the elements of some kinds below `parent`, those in another `inner` element left out."""
    for child in parent:
        if local(child) in tags:
            yield child
        elif local(child) != inner:
            yield from _own(child, inner, *tags)


def _margin(kind: str, blocks: Iterable[str]) -> str:
    """Return a header or a footer as a block; "" for one that holds no more than the number of the page."""
    # Mostly a table, which here becomes one line.
    text = " ".join(re.sub(r"(?m)^\|[ |-]+$|^\||\|$", "", _join_blocks(blocks)).split())
    return f"{kind.capitalize()}: {text}" if len(re.findall(r"[^\W\d_]{2,}", text)) > 1 else ""


# ---------------------------------------------------------------- numbers of lists and headings

_Level = tuple[str, str, int, bool]
"""How the items of one level of a list are numbered: decimal, upperRoman, lowerLetter, …, as Word names them (bullet
or none for no number); where the numbers of the levels are, as `Section %1.%2`; the first number; and whether the
numbers of all levels are shown as decimals."""


class _Lists:
    """The levels of the lists of a document, and the numbers of their items so far."""

    def __init__(self) -> None:
        self.levels: dict[tuple[str, int], _Level] = {}
        """(list, level from 0)"""
        self.titles = set[str]()
        """Styles of paragraphs that are the title of a document of LibreOffice, which counts it as no heading."""
        self._counts: dict[tuple[str, int], int] = {}

    def restart(self, name: str, level: int) -> None:
        for place in [place for place in self._counts if place[0] == name and place[1] >= level]:
            del self._counts[place]

    def label(self, name: str, level: int, start: int | None = None) -> str:
        """Count an item; returns its number as it is shown, "" for none. `start`: it has that number."""
        about = self.levels.get((name, level))
        if about is None or about[0] in ("", "bullet", "none"):
            return ""
        _, pattern, first, is_legal = about
        self.restart(name, level + 1)
        before = self._counts.get((name, level), first - 1)
        self._counts[name, level] = before + 1 if start is None else start

        def number(match: re.Match[str]) -> str:
            place = (name, int(match[1]) - 1)
            kind, _, other_first, _ = self.levels.get(place, about)
            count, kind = self._counts.get(place, other_first), "decimal" if is_legal else kind
            text = str(count)
            if count > 0 and kind.endswith("Letter"):
                text = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 % 10 + 1)
            elif 0 < count < 90 and kind.endswith("Roman"):
                tens, ones = divmod(count, 10)
                text = " x xx xxx xl l lx lxx lxxx".split(" ")[tens] + " i ii iii iv v vi vii viii ix".split(" ")[ones]
            return text.upper() if kind.startswith("upper") else text

        return re.sub(r"%(\d)", number, pattern).strip()

    def item(self, name: str, level: int, text: str, start: int | None = None) -> str:
        return f"{_LIST_ITEM}{'  ' * level}{self.label(name, level, start) or '-'} {' '.join(text.split())}"


# ---------------------------------------------------------------- Word


class _Word:
    def __init__(self) -> None:
        self.lists = _Lists()
        self.styles: dict[str, dict[str, str]] = {}
        self.remarks: dict[tuple[str, str], str] = {}
        """(footnote, endnote or comment, id) -> its text."""
        self.starts: dict[str, tuple[str, dict[int, int]]] = {}
        """Number of a list -> its kind, and at which number its levels begin again."""


def _integer(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else 0


def read_docx(data: bytes, name: str) -> Document:
    """Return headings, lists and tables; notes, comments and text boxes below the paragraph that holds them.

    Headers and footers, where letters have their letterhead, come last, each once.
    """
    package = Package(data, name)
    main = package.main_part("word/document.xml")
    word, margins = _Word(), dict[str, None]()
    for kind, path in package.related(main).values():
        if kind == "styles":
            word.styles |= {attribute(e, "styleId"): _values(e) for e in elements(package.root(path), "style")}
        elif kind == "numbering":
            root = package.root(path)
            for about in elements(root, "abstractNum"):
                for level in elements(about, "lvl"):
                    values = {local(element): attribute(element, "val") for element in level}
                    place = attribute(about, "abstractNumId"), _integer(attribute(level, "ilvl"))
                    numeral, pattern = values.get("numFmt", "decimal"), values.get("lvlText", "")
                    is_legal = values.get("isLgl", "0") in ("", "1", "true")
                    word.lists.levels[place] = (numeral, pattern, _integer(values.get("start", "1")), is_legal)
            for number in elements(root, "num"):
                about = next((attribute(e, "val") for e in elements(number, "abstractNumId")), "")
                starts: dict[int, int] = {}
                for level in elements(number, "lvlOverride"):
                    for start in elements(level, "startOverride"):
                        starts[_integer(attribute(level, "ilvl"))] = _integer(attribute(start, "val"))
                word.starts[attribute(number, "numId")] = (about, starts)
        elif kind in ("footnotes", "endnotes", "comments"):
            for remark in package.root(path):
                # Separators between the text and the notes are notes too, of a type.
                text = "" if attribute(remark, "type") else _join_blocks(_word_blocks(remark, _Word()))
                author = one_line(attribute(remark, "author"))
                label = f"{kind.capitalize()[:-1]}{f' by {author}' if author else ''}"
                word.remarks[kind[:-1], attribute(remark, "id")] = f"{label}: {text}" if text else ""
        elif kind in ("header", "footer"):
            margins[_margin(kind, _word_blocks(package.root(path), _Word()))] = None
    body = next(elements(package.root(main), "body"), package.root(main))
    text = _join_blocks([*_word_blocks(body, word), *margins])
    return office_document(name, "docx", text, package.properties())


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


def _word_blocks(parent: Element, word: _Word) -> Iterator[str]:
    for element in parent:
        tag = local(element)
        if tag == "p":
            yield from _word_paragraph(element, word)
        elif tag == "tbl":
            rows: list[list[str | None]] = []
            for row in _own(element, "tbl", "tr"):
                cells: list[str | None] = []
                for cell in _own(row, "tbl", "tc"):
                    # One that spans several is followed by empty ones.
                    span = next((_integer(attribute(e, "val")) for e in elements(cell, "gridSpan")), 1)
                    goes_on = any(attribute(e, "val", "continue") == "continue" for e in elements(cell, "vMerge"))
                    text = " ".join(filter(None, map(_word_text, elements(cell, "p"))))
                    cells.append(None if goes_on else text)
                    cells += [""] * (min(span, 63) - 1)
                rows.append(cells)
            yield _table(rows)
        elif tag not in _SKIPPED:
            yield from _word_blocks(element, word)


def _word_paragraph(paragraph: Element, word: _Word) -> Iterator[str]:
    values = next((_values(part) for part in paragraph if local(part) == "pPr"), dict[str, str]())
    # What it does not say itself it has of its style, and that of the one it is based on.
    style, seen = values.get("pStyle", ""), set[str]()
    while style in word.styles and style not in seen:
        seen.add(style)
        values = word.styles[style] | values
        style = word.styles[style].get("basedOn", "")
    text = _word_text(paragraph)
    if text and not values.get("name", "").lower().startswith("toc "):
        kind, starts = word.starts.get(values.get("numId", "0"), ("", dict[int, int]()))
        level = min(_integer(values.get("ilvl", "0")), 8)
        if "level" in values:
            number = word.lists.label(kind, level, starts.pop(level, None))
            yield f"{'#' * min(int(values['level']), 6)} {' '.join(f'{number} {text}'.split())}"
        elif values.get("numId", "0") != "0":
            yield word.lists.item(kind, level, text, starts.pop(level, None))
        else:
            yield text
    for element in paragraph.iter():
        tag = local(element)
        if tag.endswith("Reference"):
            yield word.remarks.get((tag.removesuffix("Reference"), attribute(element, "id")), "")
    # What repeats a text box for older programs is left out.
    for box in _own(paragraph, "Fallback", "txbxContent"):
        yield from _word_blocks(box, word)


def _word_text(paragraph: Element) -> str:
    def pieces(parent: Element, raised: bool) -> Iterator[str]:
        for element in parent:
            tag = local(element)
            if tag in _SKIPPED:
                continue
            if tag == "r":
                raised = any(attribute(e, "val") == "superscript" for e in elements(element, "vertAlign"))
            if tag == "t":
                yield (element.text or "").translate(RAISED if raised else {})
            elif tag == "naryPr":
                yield next((attribute(e, "val") for e in elements(element, "chr")), "∫")
            elif tag == "docPr" and (shown := attribute(element, "descr")) and "\\" not in shown:
                # Else it is the path that the picture had.
                yield f" {shown} "
            yield _SPACES.get(tag, "")
            yield from pieces(element, raised)
            yield _ENDS.get(tag, "")

    return _trimmed("".join(pieces(paragraph, False)))


# ---------------------------------------------------------------- PowerPoint


def read_pptx(data: bytes, name: str) -> Document:
    """Return the slides in the order of the presentation, each a page with title, text, tables, comments, notes."""
    package = Package(data, name)
    main = package.main_part("ppt/presentation.xml")
    parts = package.related(main)
    order = [value for e in elements(package.root(main), "sldId") for key, value in e.attrib.items() if "}id" in key]
    slides: list[tuple[str, list[str]]] = []
    for path in (parts[key][1] for key in order if key in parts):
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
        slides.append((title + (" (hidden)" if root.get("show") in ("0", "false") else ""), blocks))
    return _slides(name, "pptx", slides, package.properties())


def _shapes(root: Element) -> tuple[str, list[str]]:
    title, blocks = "", list[str]()
    for shape in elements(root, "sp", "graphicFrame"):
        kind = next((attribute(e, "type", "body") for e in elements(shape, "ph")), "")
        # Every slide repeats these.
        if kind in ("sldNum", "dt", "ftr", "hdr", "sldImg"):
            continue
        lines = [(paragraph, text) for paragraph in elements(shape, "p") if (text := _drawn(paragraph))]
        if rows := [
            [None if attribute(cell, "vMerge") in ("1", "true") else _drawn(cell) for cell in elements(row, "tc")]
            for row in elements(shape, "tr")
        ]:
            blocks.append(_table(rows))
        elif lines and kind in ("title", "ctrTitle") and not title:
            title = one_line(" ".join(text for _, text in lines))
        elif len(lines) > 1 and kind:
            for paragraph, text in lines:
                level = next((_integer(attribute(e, "lvl")) for e in elements(paragraph, "pPr")), 0)
                blocks.append(_Lists().item("", min(level, 8), text))
        else:
            blocks += [text for _, text in lines]
    return title, blocks


def _drawn(element: Element) -> str:
    return _trimmed("".join("\n" if local(e) == "br" else e.text or "" for e in elements(element, "t", "br")))


# ---------------------------------------------------------------- LibreOffice

_OUTLINE = "\0outline"  # The list whose items are the headings.


def read_odt(data: bytes, name: str) -> Document:
    """Return headings, lists and tables; notes, comments and text boxes below the paragraph that holds them."""
    package = Package(data, name)
    root = package.root("content.xml")
    lists = _odf_lists(package, root)
    blocks = list(_odf_blocks(next(elements(root, "text"), root), lists))
    if "styles.xml" in package:
        margins = elements(package.root("styles.xml"), "header", "footer")
        blocks += dict.fromkeys(_margin(local(margin), _odf_blocks(margin, lists)) for margin in margins)
    return office_document(name, "odt", _join_blocks(blocks), package.properties("meta.xml"))


def read_odp(data: bytes, name: str) -> Document:
    """Return the slides, each a page with its title, text, tables and notes."""
    package = Package(data, name)
    root = package.root("content.xml")
    lists = _odf_lists(package, root)
    slides: list[tuple[str, list[str]]] = []
    for page in elements(root, "page"):
        title, blocks = "", list[str]()
        for shape in page:
            shown = list(_odf_blocks(shape, lists))
            if attribute(shape, "class") == "title" and not title:
                title = one_line(_join_blocks(shown))
            elif local(shape) == "notes":
                blocks += [f"Notes: {text}"] if (text := _join_blocks(shown)) else []
            else:
                blocks += shown
        slides.append((title, blocks))
    return _slides(name, "odp", slides, package.properties("meta.xml"))


def _odf_lists(package: Package, root: Element) -> _Lists:
    lists = _Lists()
    numerals = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
    for part in (root, *([package.root("styles.xml")] if "styles.xml" in package else [])):
        for style in elements(part, "style"):
            if "Title" in (attribute(style, "name"), attribute(style, "parent-style-name")):
                lists.titles.add(attribute(style, "name"))
        for style in elements(part, "list-style", "outline-style"):
            name = attribute(style, "name") if local(style) == "list-style" else _OUTLINE
            for about in elements(style, "list-level-style-number", "outline-level-style"):
                level = _integer(attribute(about, "level", "1"))
                first = level - max(_integer(attribute(about, "display-levels", "1")), 1) + 1
                numbers = ".".join(f"%{number}" for number in range(max(first, 1), level + 1))
                pattern = f"{attribute(about, 'num-prefix')}{numbers}{attribute(about, 'num-suffix')}"
                numeral = numerals.get(attribute(about, "num-format"), "")
                start = _integer(attribute(about, "start-value", "1"))
                lists.levels[name, level - 1] = (numeral, pattern, start, False)
    return lists


def _odf_blocks(parent: Element, lists: _Lists, style: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the blocks in an element; `depth`: of the list that it is or is in, from 1, 0 for none."""
    begins_item = local(parent) == "list-item"
    start = attribute(parent, "start-value") if begins_item else ""
    for element in parent:
        tag = local(element)
        if tag in ("p", "h"):
            text = _odf_text(element)
            if tag == "h" and text:
                level = max(_integer(attribute(element, "outline-level", "1")), 1)
                number = lists.label(_OUTLINE, level - 1) if not attribute(element, "is-list-header") else ""
                yield f"{'#' * min(level, 6)} {' '.join(f'{number} {text}'.split())}"
            elif text and attribute(element, "style-name") in lists.titles:
                yield f"# {' '.join(text.split())}"
            elif begins_item and text:
                yield lists.item(style, depth - 1, text, _integer(start) if start else None)
            else:
                yield f"{_LIST_ITEM}{'  ' * depth}{' '.join(text.split())}" if text and depth else text
            begins_item = begins_item and not text
            for remark in element.iter():
                if local(remark) in ("annotation", "note-body"):
                    text = " ".join(filter(None, map(_odf_text, elements(remark, "p"))))
                    author = next((one_line(e.text or "") for e in elements(remark, "creator")), "")
                    label = f"Comment{f' by {author}' if author else ''}" if local(remark) == "annotation" else "Note"
                    yield f"{label}: {text}" if text else ""
                elif local(remark) == "text-box":
                    yield from _odf_blocks(remark, lists)
        elif tag == "list":
            style_of_list = attribute(element, "style-name", style)
            if attribute(element, "continue-numbering") != "true" and not attribute(element, "continue-list"):
                lists.restart(style_of_list, depth)
            yield from _odf_blocks(element, lists, style_of_list, depth + 1)
        elif tag == "table":
            rows: list[list[str | None]] = []
            for row in _own(element, "table", "table-row"):
                cells: list[str | None] = []
                beside = 0  # Cells that the one before them covers.
                for cell in _own(row, "table", "table-cell", "covered-table-cell"):
                    is_covered = local(cell).startswith("covered")
                    text = " ".join(filter(None, map(_odf_text, elements(cell, "p", "h"))))
                    cells.append(None if is_covered and not beside else text)
                    covers = _integer(attribute(cell, "number-columns-spanned", "1")) - 1
                    beside = max(beside - 1, 0) if is_covered else covers
                rows.append(cells)
            yield _table(rows)
        elif tag not in ("tracked-changes", "table-of-content", "sequence-decls", "forms"):
            yield from _odf_blocks(element, lists, style, depth)


def _odf_text(paragraph: Element) -> str:
    def pieces(element: Element) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            tag = local(child)
            if tag == "s":
                yield " " * min(_integer(attribute(child, "c", "1")), 100)
            elif tag in _SPACES:
                yield _SPACES[tag]
            elif tag not in ("annotation", "note", "text-box"):
                yield from pieces(child)
            yield child.tail or ""

    return _trimmed("".join(pieces(paragraph)))


# ---------------------------------------------------------------- workbooks


def read_sheets(data: bytes, name: str) -> Document:
    """Return the values as they were last computed, sheet by sheet; hidden sheets say so.

    Below a row of column names a row reads `- name: value; name: value`, so that a passage from the middle of a long
    sheet still says what its values are.
    """
    kind = suffix_of(name).lstrip(".")
    properties: dict[str, str] = {}
    if not (data.startswith(OLE_MAGIC) and kind == "xls"):
        package = Package(data, name)
        properties = package.properties("meta.xml" if kind == "ods" else "docProps/core.xml")
        if kind == "ods":
            package.read("content.xml")  # Says so if it is encrypted.
    pieces: list[str] = []
    starts: list[tuple[int, int]] = []
    sheets: list[str] = []
    offset = 0
    workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
    for sheet in workbook.sheets_metadata:
        title = one_line(sheet.name) + ("" if sheet.visible == SheetVisibleEnum.Visible else " (hidden)")
        sheets.append(title)
        is_sheet = sheet.typ == SheetTypeEnum.WorkSheet
        rows = workbook.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False) if is_sheet else []
        expected = -1
        for number, text in _lines(title, rows):
            if number != expected:
                # The empty line above the name of a sheet belongs to the sheet before.
                starts.append((offset + (not number and offset > 0), number))
            expected = number + 1 if text.startswith("- ") else -1
            text = f"\n{text}" if not number and offset else text
            pieces.append(text)
            offset += len(text)
    text, metadata = "".join(pieces).rstrip("\n"), {"sheets": sheets}
    return office_document(name, kind, text, properties, metadata=metadata, row_starts=tuple(starts))


def _lines(title: str, rows: list[list[Any]]) -> Iterator[tuple[int, str]]:
    """Yield the number of each row that is not empty, and its text; before them 0 and the name of the sheet."""
    shown = ({column: text for column, value in enumerate(row) if (text := _shown_value(value))} for row in rows)
    filled = [(number, row, cells) for number, (row, cells) in enumerate(zip(rows, shown, strict=True), 1) if cells]
    names, are_words = dict[int, str](), True
    for place, (number, row, cells) in enumerate(filled):
        if not place:
            yield 0, f"## {title}\n\n"
        texts, below = list(cells.values()), filled[place + 1][1] if place + 1 < len(filled) else []
        # Names of columns are different words; wider ones that stand above values take the place of remarks.
        is_label = len(cells) == 1 or (len(cells) == 2 and texts[0].endswith(":"))
        are_words = are_words and (is_label or all(isinstance(row[column], str) for column in cells))
        is_better = not names or not all(isinstance(value, str) for value in below)
        if are_words and len({*texts}) == len(texts) > max(1, len(names)) and is_better and not is_label:
            names = cells
        if are_words and names in ({}, cells):
            yield number, " | ".join(texts) + "\n\n"
        else:
            named = (f"{names[column]}: {text}" if column in names else text for column, text in cells.items())
            yield number, f"- {'; '.join(named)}\n"


def _shown_value(value: Any) -> str:
    """Return a value as people search for it: whole numbers without an exponent, dates without an empty time."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e20 else f"{value:.15g}"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "minutes")
    return str(value) if isinstance(value, date | time | timedelta) else " ".join(visible(str(value)).split())


# ---------------------------------------------------------------- Rich Text, and old Office files


def read_rtf(data: bytes, name: str) -> Document:
    """Return the text of a Rich Text file, without its marks."""
    source = data.decode("latin-1")
    if not source.startswith("{\\rtf"):
        raise UnreadableDocument(f"{name} is damaged: it is no Rich Text.")
    title = re.search(r"\{\\title ([^{}\\]*)\}", source)
    text = cast("str", rtf_to_text(source, errors="ignore"))
    return office_document(name, "rtf", text.strip("\n"), {"title": title[1]} if title else {})


def old_office_program(suffix: str) -> str:
    """Return the installed program that reads .doc or .ppt files; "" if none does."""
    names = ("soffice", "libreoffice", *(("antiword",) if suffix == ".doc" else ()))
    return next((path for name in names if (path := shutil.which(name))), "")


def read_old_office(data: bytes, name: str) -> Document:
    """Return a .doc or .ppt file, converted by LibreOffice or antiword.

    UnreadableDocument if neither is installed, or it cannot convert the file in a minute.
    """
    suffix = suffix_of(name)
    program = old_office_program(suffix)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, f"file{suffix}"), Path(folder, f"file{suffix}x")
        source.write_bytes(data)
        command = [program, str(source)]
        if not program.endswith("antiword"):
            profile = f"-env:UserInstallation={Path(folder, 'profile').as_uri()}"
            command[1:1] = [profile, "--headless", "--convert-to", target.suffix[1:], "--outdir", folder]
        try:
            done = subprocess.run(command, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired as error:
            raise UnreadableDocument(f"{name} takes {program} more than a minute.") from error
        if program.endswith("antiword") and not done.returncode:
            return office_document(name, "doc", done.stdout.decode(errors="replace"), {})
        if done.returncode or not target.exists():
            output = done.stderr.decode(errors="replace").replace(str(source), name).strip()
            raise UnreadableDocument(f"{name} cannot be converted: {output[:200]}")
        return (read_docx if suffix == ".doc" else read_pptx)(target.read_bytes(), target.name)
