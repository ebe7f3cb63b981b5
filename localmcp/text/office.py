"""Reads .docx, .pptx and .xlsx files as Markdown."""

import io
import warnings
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time
from importlib import import_module
from typing import Any

from localmcp.errors import MissingExtra, UnreadableDocument
from localmcp.text.document import Document, join_pages, make_document, one_line
from localmcp.text.html import element_markdown, parse_html
from localmcp.text.markdown import first_heading, pipe_table
from localmcp.text.packages import open_office

MAX_DOM = 60_000_000
"""Most bytes of a .docx without its media: its reader holds the whole XML tree, at 20 to 50 times the size."""

EXCEL_ROWS = 1_048_576


def _office_library(module: str, suffix: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"Reading {suffix} files", "office") from error


def _no_attributes(_image: Any) -> dict[str, str]:
    return {}


def read_docx(data: bytes, name: str) -> Document:
    mammoth = _office_library("mammoth", ".docx")
    metadata = open_office(data, name, bound=MAX_DOM, media=False)
    # Pictures are named by their alternative text only; mammoth would otherwise put their bytes into the HTML.
    pictures = mammoth.images.img_element(_no_attributes)
    styles = "p[style-name='Title'] => h1:fresh"
    page: str = mammoth.convert_to_html(io.BytesIO(data), convert_image=pictures, style_map=styles).value
    body = parse_html(page, name).body
    text = element_markdown(body) if body else ""
    title = metadata.pop("title", "") or first_heading(text[:10_000])
    return make_document(name, text, "docx", "markdown", "docs", title=title, metadata=metadata)


def read_pptx(data: bytes, name: str) -> Document:
    pptx = _office_library("pptx", ".pptx")
    metadata = open_office(data, name)
    slides = [_slide_blocks(slide) for slide in pptx.Presentation(io.BytesIO(data)).slides]
    if not any(title or blocks for title, blocks in slides):
        raise UnreadableDocument(f"{name} holds no text: its slides are pictures.")
    pages = [
        "\n\n".join([f"## {title or f'Slide {number}'}", *blocks]) for number, (title, blocks) in enumerate(slides, 1)
    ]
    text, starts = join_pages(pages)
    title = metadata.pop("title", "")
    if title in ("", "PowerPoint Presentation", "Presentazione standard di PowerPoint"):
        title = next((title for title, _ in slides if title), "")
    metadata["slides"] = len(slides)
    return make_document(name, text, "pptx", "markdown", "docs", title=title, metadata=metadata, page_starts=starts)


def _slide_blocks(slide: Any) -> tuple[str, list[str]]:
    """The title of a slide and its text: paragraphs, lists by level, tables, then the speaker's notes."""
    heading = slide.shapes.title
    title = one_line(heading.text_frame.text) if heading is not None else ""
    body = [shape for shape in _flat_shapes(slide.shapes) if heading is None or shape.shape_id != heading.shape_id]
    blocks = [block for shape in body if (block := _shape_markdown(shape))]
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) and frame.text.strip():
        blocks.append(f"Notes: {_office_lines(frame.text)}")
    return title, blocks


def _flat_shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat_shapes(shape.shapes)
        else:
            yield shape


def _shape_markdown(shape: Any) -> str:
    if getattr(shape, "has_table", False):
        return pipe_table([[_office_lines(cell.text) for cell in row.cells] for row in shape.table.rows])
    if not shape.has_text_frame:
        return ""
    paragraphs = [(paragraph.level, _office_lines(paragraph.text)) for paragraph in shape.text_frame.paragraphs]
    written = [(level, text) for level, text in paragraphs if text]
    if len(written) < 2 or not shape.is_placeholder:
        return "\n\n".join(text for _, text in written)
    return "\n".join("  " * level + "- " + text.replace("\n", " ") for level, text in written)


def _office_lines(text: str) -> str:
    """PowerPoint writes a line break inside a paragraph as a vertical tab."""
    return text.replace("\v", "\n").strip()


def read_xlsx(data: bytes, name: str) -> Document:
    openpyxl = _office_library("openpyxl", ".xlsx")
    metadata = open_office(data, name)
    # openpyxl warns about every feature that it does not keep when writing; nothing is written here.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"openpyxl\.")
    with closing(openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)) as book:
        sheets = {sheet.title: "\n".join(_sheet_lines(sheet)) for sheet in book.worksheets}
    text = "\n\n".join(f"## {one_line(title)}\n\n{body}" for title, body in sheets.items() if body)
    title = metadata.pop("title", "")
    metadata["sheets"] = [one_line(sheet) for sheet in sheets]
    return make_document(name, text, "xlsx", "markdown", "docs", title=title, metadata=metadata)


def _sheet_lines(sheet: Any) -> Iterator[str]:
    """One list item a row. Below a row of column names it reads `- name: value; name: value`, so that a chunk from
    the middle of a long sheet still says what its values are.
    """
    header: list[str] = []
    listing = False
    for row in _filled_rows(sheet):
        cells = [_cell_text(value) for value in row]
        filled = [cell for cell in cells if cell]
        if not header and not listing and (len(filled) == 1 or _is_header(row)):
            header = cells if len(filled) > 1 else []
            yield f"{' | '.join(filled)}\n"
            continue
        listing = True
        yield "- " + "; ".join(_named_cell(header, column, cell) for column, cell in enumerate(cells) if cell)


def _filled_rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    """The rows that hold anything; a sheet that claims more rows than Excel has is refused."""
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.iter_rows(values_only=True)):
        if number > EXCEL_ROWS:
            raise UnreadableDocument(f"The sheet {sheet.title!r} claims more than {EXCEL_ROWS:,} rows.")
        if any(value is not None and value != "" for value in row):
            yield row


def _is_header(row: tuple[Any, ...]) -> bool:
    names = [value for value in row if value is not None and value != ""]
    return len(names) > 1 and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _named_cell(header: list[str], column: int, cell: str) -> str:
    name = header[column] if column < len(header) else ""
    return f"{name}: {cell}" if name else cell


def _cell_text(value: Any) -> str:
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else " ".join(str(value).split())
