"""Finds the encoding of a text file."""

import codecs
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
_WESTERN = "àáâäãåæçèéêëìíîïñòóôöõøùúûüßœÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØÙÚÛÜŒ€£§°ºª«»“”‘’„–—…•·©®™¿¡\xa0".encode("cp1252")


def looks_like_text(head: bytes) -> bool:
    """Return whether the beginning of a file is text in any encoding."""
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or _wide_encoding(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls * 50 > len(head) or b"\0" not in head:
        return controls * 50 <= len(head)
    # With a NUL it is text if it is mostly ASCII, or UTF-8, which may end inside a character.
    if len(head.translate(None, bytes(range(0x20, 0x7F)))) * 2 <= len(head):
        return True
    try:
        return bool(codecs.getincrementaldecoder("utf-8")().decode(head))
    except UnicodeDecodeError:
        return False


def decode_text(data: bytes, declared: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text, and its encoding as metadata: by byte order mark, UTF-8, as declared, or the likeliest one."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), {} if bom == BOM_UTF8 else {"encoding": encoding}
    if encoding := _wide_encoding(data[:HEAD]):
        return data.decode(encoding, "replace"), {"encoding": encoding}
    try:
        return data.decode(), {}
    except UnicodeDecodeError:
        encoding = declared or _likeliest_encoding(data)
    if encoding == "utf-8":
        # The bytes that are not are in the encoding of older programs, which wrote into the same file.
        text = data.decode(errors="surrogateescape")
        older = re.compile("[\udc80-\udcff]+")
        return older.sub(lambda old: old[0].encode(errors="surrogateescape").decode("cp1252", "replace"), text), {}
    return data.decode(encoding, "replace"), {"encoding": encoding}


def _wide_encoding(head: bytes) -> str | None:
    """Recognize UTF-16 without a byte order mark by the NUL beside each of many ASCII characters."""
    pairs = len(head) // 2
    for encoding, zeros, letters in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        controls = len(letters) - len(letters.translate(None, _CONTROLS))
        if zeros.count(0) * 2 > pairs > 1 and controls * 50 <= pairs:
            return encoding
    return None


def _likeliest_encoding(data: bytes) -> str:
    """Return the encoding of bytes that are not all UTF-8.

    It is UTF-8 where many other characters are: hardly a text of another encoding holds any. It is cp1252 where every
    high byte is a letter or sign of Western European prose, and most letters are ASCII.
    """
    sample = data[:1_000_000]
    high = [byte for byte in sample if byte > 0x7F]
    text = sample.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if sum(character > "\x7f" for character in text) - broken >= broken / 2:
        return "utf-8"
    if len(high) * 4 <= len(sample) and not set(high) - set(_WESTERN):
        return "cp1252"
    from charset_normalizer import from_bytes

    # Of two encodings that fit, it prefers these, which hardly a file is in.
    rare = """mac_cyrillic mac_greek mac_iceland mac_latin2 mac_turkish iso8859_3 iso8859_4 iso8859_10 iso8859_13
        iso8859_14 iso8859_16 shift_jis_2004 shift_jisx0213 euc_jis_2004 euc_jisx0213 cp1125 cp500 cp037"""
    best = from_bytes(data[:200_000], cp_exclusion=[*rare.split()]).best()
    return best.encoding if best else "cp1252"


_WRITTEN = re.compile(r"cp\d|iso8859|koi8|mac-|gb|big5|euc|shift|tis|iso2022_jp$")
"""Encodings that pages and mails are written in; Python's codecs also have rot13 and idna."""
_SUPERSETS = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"},
    **{"gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs", "shift_jis": "cp932", "euc_kr": "cp949"},
}
"""Encodings that programs name when they write a larger one, as the Encoding Standard of browsers has it."""


def page_encoding(name: str) -> str | None:
    """Return Python's encoding for a name in a page or a mail, if it is one that they are written in."""
    try:
        encoding = codecs.lookup(re.sub("^x-|^windows-(?=874|949)|-[ei]$", "", name.lower())).name
    except (LookupError, ValueError):
        return None
    encoding = _SUPERSETS.get(encoding, encoding)
    return encoding if _WRITTEN.match(encoding) else None


def declared_encoding(data: bytes) -> str | None:
    """Return the encoding named in the first 4 kB; None for UTF-8, which is tried before."""
    match = re.search(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w.-]+)", data[:4096], re.I)
    return page_encoding(match[1].decode("ascii", "replace")) if match else None
