"""Finds the encoding of a text file."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE, getincrementaldecoder
from contextlib import suppress
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

_ICELANDIC = frozenset("áíóú".encode("cp1252"))
_TURKISH = frozenset("ışğİŞĞ".encode("cp1254"))
"""The same bytes as `ýþðÝÞÐ` in cp1252, which Icelandic has."""

_HUNGARIAN = frozenset("őáéö".encode("cp1250"))
_NOT_HUNGARIAN = frozenset("ãçàèêñ".encode("cp1252"))
"""Letters of the languages that have `õ`, the same byte as `ő`."""

_ASCII = bytes(range(0x20, 0x7F))

_IN_USE = re.compile(
    "[\t\n\r\f -~\xa0-\u024f\u0300-\u06ff\u0900-\u0e7f\u10a0-\u10ff\u1e00-\u1fff\u2010-\u203a\u20a0-\u20bf\u2100-\u22ff"
    "\u2500-\u25ff\u3000-\u30ff\u4e00-\u9fa5\uac00-\ud7a3\uff01-\uff9f\U0001f300-\U0001faff]"
)
"""Characters of the alphabets and scripts that most texts are written in, and their punctuation."""

_ESCAPED = re.compile(rb"\x1b\$[@B]")

_PAGE_ENCODINGS = re.compile(
    r"(?:windows-|cp)(?:125[0-8]|874|932|949|950)|iso-8859-(?:[2-9]|1[013-6])|koi8-[ru]|(?:ibm|cp)866|mac-roman|"
    r"gb18030|big5hkscs|euc-jp|iso-2022-jp"
)

_SUPERSETS = {
    label: encoding
    for encoding, labels in (
        ("cp1252", "us-ascii ascii iso-8859-1 latin1 latin-1"),
        ("iso-8859-8", "iso-8859-8-i iso-8859-8-e"),
        ("cp1254", "iso-8859-9"),
        ("cp874", "iso-8859-11 tis-620 windows-874"),
        ("gb18030", "gb2312 gbk x-gbk"),
        ("big5hkscs", "big5 big5-hkscs"),
        ("cp932", "shift-jis sjis x-sjis windows-31j"),
        ("cp949", "euc-kr ks-c-5601-1987 windows-949"),
        ("mac-roman", "macintosh x-mac-roman"),
    )
    for label in labels.split()
}
"""Encodings that programs name when they write a larger one, as the Encoding Standard of browsers has it."""


def looks_like_text(head: bytes) -> bool:
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or _wide_encoding(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls * 50 > len(head) or b"\0" not in head:
        return controls * 50 <= len(head)
    # With a NUL it is text if it is mostly ASCII, or UTF-8, which may end inside a character.
    if len(head.translate(None, _ASCII)) * 2 <= len(head):
        return True
    try:
        return bool(getincrementaldecoder("utf-8")().decode(head))
    except UnicodeDecodeError:
        return False


def decode_text(data: bytes, declared: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text, and its encoding as metadata: by byte order mark, UTF-8, as declared, or the likeliest one."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), _encoding_metadata(encoding)
    if encoding := _wide_encoding(data[:HEAD]):
        return data.decode(encoding, "replace"), _encoding_metadata(encoding)
    if _ESCAPED.search(data):
        # Japanese in seven bits, which is valid UTF-8, too.
        with suppress(UnicodeDecodeError):
            return data.decode("iso-2022-jp"), _encoding_metadata("iso-2022-jp")
    try:
        return data.decode("utf-8"), {}
    except UnicodeDecodeError:
        encoding = declared or _mostly_utf8(data) or _western(data) or _guessed_encoding(data)
    return data.decode(encoding, "replace"), _encoding_metadata(encoding)


def _encoding_metadata(encoding: str) -> dict[str, Any]:
    return {} if encoding == "utf-8" else {"encoding": encoding}


def _wide_encoding(head: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark: a NUL for each ASCII character, and letters that are in use."""
    ascii_bytes = len(head) - len(head.translate(None, _ASCII))
    # Pairs of letters of one byte are Chinese characters in UTF-16: text with a stray NUL must not become Chinese.
    if b"\0" not in head or len(head) < 4 or ascii_bytes * 4 > len(head) * 3:
        return None
    for encoding in ("utf-16-le", "utf-16-be"):
        text = head[: len(head) // 2 * 2].decode(encoding, "replace")
        if "\0" not in text and re.search("[\n -~]", text) and len(_IN_USE.sub("", text)) * 50 <= len(text):
            return encoding
    return None


def _mostly_utf8(data: bytes) -> str | None:
    """Recognize UTF-8 with a few broken bytes: one of them must not turn every accent of the file into two letters."""
    text = data[:1_000_000].decode("utf-8", "replace")
    broken = text.count("\ufffd")
    foreign = sum(character > "\x7f" for character in text) - broken
    return "utf-8" if foreign > 4 * broken else None


def _western(data: bytes) -> str | None:
    """Recognize cp1252: every high byte is a letter or sign of Western European prose, and most letters are ASCII.

    cp1250 when they are those of Hungarian, cp1254 when they are those of Turkish, without the vowels of Icelandic.
    """
    sample = data[:1_000_000]
    high = [byte for byte in sample if byte > 0x7F]
    if len(high) * 4 > len(sample):
        return None
    letters = frozenset(high)
    if letters <= _WESTERN:
        return "cp1250" if _HUNGARIAN <= letters and not letters & _NOT_HUNGARIAN else "cp1252"
    if not letters <= _WESTERN | _TURKISH:
        return None
    return "cp1252" if letters & _ICELANDIC else "cp1254" if {0xFD, 0xFE} <= letters else None


def _guessed_encoding(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    return best.encoding if best else "cp1252"


_OF_NAMES = frozenset("gb18030 gb2312 gbk cp932 shift_jis cp949 euc_kr big5 big5hkscs cp950 cp866 cp1125".split())


def names_encoding(names: bytes) -> str:
    """Return the encoding of the names in an archive that says none: UTF-8, an Asian or Cyrillic one, else cp437."""
    try:
        names.decode()
        return "utf-8"
    except UnicodeDecodeError:
        foreign = sum(byte > 0x7F for byte in names)
    # A few accents among plain letters are Western; any guess would make other letters of them.
    guessed = _guessed_encoding(names) if foreign * 3 > len(names) else ""
    return guessed if guessed in _OF_NAMES else "cp437"


def declared_encoding(data: bytes) -> str | None:
    """The encoding named in the first 4 kB, if it is one that pages are written in (codecs also has rot13 and idna).

    None for UTF-8, which is tried first: what is not valid in it was written in another one.
    """
    match = re.search(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w.-]+)", data[:4096], re.I)
    return page_encoding(match[1].decode("ascii", "replace")) if match else None


def page_encoding(name: str) -> str | None:
    """Return Python's encoding for a name in a page or a mail, if it is one that they are written in."""
    name = name.lower().replace("_", "-")
    name = _SUPERSETS.get(name, name)
    return name if _PAGE_ENCODINGS.fullmatch(name) else None
