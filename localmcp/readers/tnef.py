"""Reads the files in `winmail.dat`, into which Outlook puts what is attached (TNEF, MS-OXTNEF)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

SIGNATURE = b"\x78\x9f\x3e\x22"
_BEGIN, _TITLE, _DATA, _PROPERTIES = 0x69002, 0x18010, 0x6800F, 0x69005
"""Attributes: begin of an attachment, its short name, its bytes, its properties."""
_LONG_NAME = 0x3707
_FIXED = {0x05: 8, 0x06: 8, 0x07: 8, 0x14: 8, 0x40: 8, 0x48: 16}
"""Bytes of a value by the type of its property; 4 for the other fixed ones."""
_VARIABLE = frozenset((0x0D, 0x1E, 0x1F, 0x102))


def tnef_files(data: bytes) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of each attached file; none if `data` is no TNEF or is cut off before the first."""
    files: list[tuple[str, bytes]] = []
    name, content = "", b""
    for attribute, value in (*_attributes(data), (_BEGIN, b"")):
        if attribute == _BEGIN:
            files += [(name or "attachment.bin", content)] if content else []
            name, content = "", b""
        elif attribute == _TITLE:
            name = name or _decode(value)
        elif attribute == _DATA:
            content = value
        elif attribute == _PROPERTIES:
            name = _long_name(value) or name
    return files


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 6
    while data.startswith(SIGNATURE) and position + 9 <= len(data):
        _, attribute, length = struct.unpack_from("<BII", data, position)
        position += 9
        if position + length > len(data):
            return
        yield attribute, data[position : position + length]
        position += length + 2  # A checksum follows.


def _decode(value: bytes) -> str:
    return value.split(b"\0")[0].decode("cp1252", "replace").strip()


def _long_name(properties: bytes) -> str:
    """Return the long file name among the properties of an attachment; "" if they end before it."""
    try:
        position = 4
        for _ in range(struct.unpack_from("<I", properties)[0]):
            kind, identifier = struct.unpack_from("<HH", properties, position)
            position += 4
            if identifier >= 0x8000:
                position = _behind_name(properties, position)
            if kind not in _VARIABLE:
                position += _FIXED.get(kind, 4)
                continue
            count, position = struct.unpack_from("<I", properties, position)[0], position + 4
            for _ in range(count):
                (length,) = struct.unpack_from("<I", properties, position)
                value = properties[position + 4 : position + 4 + length]
                if identifier == _LONG_NAME:
                    return value.decode("utf-16-le", "replace").split("\0")[0] if kind == 0x1F else _decode(value)
                position += 4 + length + -length % 4
    except struct.error:
        return ""
    return ""


def _behind_name(properties: bytes, position: int) -> int:
    """Return where the value of a named property begins."""
    kind, length = struct.unpack_from("<16xII", properties, position)
    return position + 24 + (length + -length % 4 if kind == 1 else 0)
