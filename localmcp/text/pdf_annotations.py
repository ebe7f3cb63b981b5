"""Reads what people put on the pages of a PDF: values in the fields of its forms, comments and typed notes."""

import ctypes
from importlib import import_module
from typing import Any

from localmcp.text.document import one_line

MOST_ANNOTATIONS = 2000
"""Annotations of one page that are looked at."""
_LINK, _TYPED_NOTE, _POPUP, _FIELD = 2, 3, 16, 20
"""Kinds of annotations; all below the pop-up but links hold what somebody wrote."""
_BUTTON, _PASSWORD = 1 << 16, 1 << 13
"""Flags of fields that hold no value, or a secret."""


def annotation_lines(page: Any) -> list[str]:
    """Return a line for each filled field, comment and typed note of an open page, in their order."""
    raw = import_module("pypdfium2.raw")
    number = min(raw.FPDFPage_GetAnnotCount(page), MOST_ANNOTATIONS)
    return [line for line in (_line(raw, page, index) for index in range(number)) if line]


def _line(raw: Any, page: Any, index: int) -> str:
    annotation = raw.FPDFPage_GetAnnot(page, index)
    if not annotation:
        return ""
    try:
        kind: int = raw.FPDFAnnot_GetSubtype(annotation)
        if kind == _FIELD:
            return _field(raw, page.formenv, annotation) if page.formenv else ""
        return _note(raw, kind, annotation) if 0 < kind < _POPUP and kind != _LINK else ""
    finally:
        raw.FPDFPage_CloseAnnot(annotation)


def _field(raw: Any, form: Any, annotation: Any) -> str:
    flags: int = raw.FPDFAnnot_GetFormFieldFlags(form, annotation)
    value = _read(raw, raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    if flags & (_BUTTON | _PASSWORD) or value in ("", "Off"):
        return ""
    names = (raw.FPDFAnnot_GetFormFieldAlternateName, raw.FPDFAnnot_GetFormFieldName)
    name = next((name for read in names if (name := one_line(_read(raw, read, form, annotation)))), "")
    return f"{name}: {value}" if name else value


def _note(raw: Any, kind: int, annotation: Any) -> str:
    words = _read(raw, raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    if kind == _TYPED_NOTE or not words:
        return words
    author = one_line(_read(raw, raw.FPDFAnnot_GetStringValue, annotation, b"T"))
    return f"Comment by {author}: {words}" if author else f"Comment: {words}"


def _read(raw: Any, read: Any, *place: Any) -> str:
    """Return the text that a function of PDFium writes as UTF-16, on one line."""
    buffer = ctypes.create_string_buffer(read(*place, None, 0))
    read(*place, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), len(buffer))
    return " ".join(buffer.raw.decode("utf-16-le", errors="ignore").rstrip("\0").split())
