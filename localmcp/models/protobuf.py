"""Messages in the form of protocol buffers, read and written field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def number(field: int, value: int) -> bytes:
    """Write a whole number."""
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def text(field: int, value: str) -> bytes:
    """Write a string."""
    return message(field, value.encode())


def message(field: int, value: bytes) -> bytes:
    """Write bytes, or a message within a message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield a message of numbers and bytes as (field number, number or bytes)."""
    offset = 0
    while offset < len(data):
        key, offset = _read_varint(data, offset)
        value, offset = _read_varint(data, offset)
        if key & 7 == 2:
            yield key >> 3, data[offset : offset + value]
            offset += value
        else:
            yield key >> 3, value


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << shift
        shift, offset = shift + 7, offset + 1
        if byte < 128:
            return value, offset
