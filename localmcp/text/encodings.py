"""Finds the encoding of a text file."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from typing import Any

HEAD = 8192

_BOMS = (
    (BOM_UTF8, "utf-8"),
    (BOM_UTF32_LE, "utf-32-le"),
    (BOM_UTF32_BE, "utf-32-be"),
    (BOM_UTF16_LE, "utf-16-le"),
    (BOM_UTF16_BE, "utf-16-be"),
)

_CONTROLS = bytes(code for code in range(32) if code not in b"\b\t\n\f\r\x1b")

_WESTERN = frozenset(
    "àáâäãåæçèéêëìíîïñòóôöõøùúûüßœÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØÙÚÛÜŒ€£§°ºª«»“”‘’„–—…•·©®™¿¡\xa0".encode("cp1252")
)

_PAGE_ENCODINGS = (
    r"utf-8|windows-125[0-8]|iso-8859-([2-9]|1[013-6])|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|euc-(jp|kr)"
)


def looks_like_text(head: bytes) -> bool:
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or _wide_encoding(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls * 50 <= len(head)


def decode_text(data: bytes, declared: str | None = None) -> tuple[str, dict[str, Any]]:
    """The text and its encoding as metadata: byte order mark, UTF-8, the declared encoding, then the likeliest one."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), _encoding_metadata(encoding)
    if encoding := _wide_encoding(data[:HEAD]):
        return data.decode(encoding, "replace"), _encoding_metadata(encoding)
    try:
        return data.decode("utf-8"), {}
    except UnicodeDecodeError:
        encoding = declared or _mostly_utf8(data) or _western(data) or _guessed_encoding(data)
    return data.decode(encoding, "replace"), _encoding_metadata(encoding)


def _encoding_metadata(encoding: str) -> dict[str, Any]:
    return {} if encoding == "utf-8" else {"encoding": encoding}


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 without a byte order mark, told by NULs in every other byte of mostly Latin text."""
    half = len(head) // 2
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if half < 2 or max(even, odd) * 10 < half * 7 or min(even, odd) * 20 > half:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _mostly_utf8(data: bytes) -> str | None:
    """UTF-8 in which a few bytes are broken: one bad byte must not turn every accent of the file into two letters."""
    text = data[:1_000_000].decode("utf-8", "replace")
    broken = text.count("\ufffd")
    foreign = sum(character > "\x7f" for character in text) - broken
    return "utf-8" if foreign > 4 * broken else None


def _western(data: bytes) -> str | None:
    """cp1252 when every high byte is a letter or sign of Western European prose and most letters are plain ones."""
    sample = data[:1_000_000]
    high = [byte for byte in sample if byte > 0x7F]
    if len(high) * 4 > len(sample):
        return None
    return "cp1252" if _WESTERN.issuperset(high) else None


def _guessed_encoding(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    return best.encoding if best else "cp1252"


def declared_encoding(data: bytes) -> str | None:
    """The encoding named in the first 4 kB, if it is one that pages are written in (codecs also has rot13 and idna)."""
    match = re.search(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w.-]+)", data[:4096], re.I)
    return page_encoding(match[1].decode("ascii", "replace")) if match else None


def page_encoding(name: str) -> str | None:
    """Return the encoding of that name, if it is one that pages are written in."""
    name = name.lower()
    if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii"):
        return "cp1252"
    return name if re.fullmatch(_PAGE_ENCODINGS, name) else None
