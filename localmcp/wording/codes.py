"""Codes: what a person writes with signs or in several spellings, as one word that is indexed and searched for.

"C++" is `cplusplus`, "1,250.00", "1.250,00" and "1250.00" are `1250`, an account or phone number is the same with and
without its spaces, "§ 5" is `section5`, "--quiet" is `optionquiet`, an emoji its code point.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from localmcp.wording.normalize import fold, index_runs, runs


class Code(NamedTuple):
    """A code in a text, and the word that stands for it in the index."""

    start: int
    stop: int
    word: str


def _plain(written: str) -> str:
    return "".join(filter(str.isalnum, written))


def _number(written: str) -> str:
    whole, _, cents = written.replace(",", ".").rpartition(".")
    if len(cents) > 2 or not whole:
        whole, cents = written, "0"
    return _plain(whole) + (f"c{cents}" if int(cents) else "")


_KINDS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (
        re.compile(
            r"\d(?<=\b[A-Za-z]{2}\d)\d ?[A-Za-z\d]{4}(?: ?(?=[A-Za-z\d]{0,3}\d)[A-Za-z\d]{4}){2,6}(?: ?\d{1,3})?\b"
        ),
        _plain,
    ),
    (
        re.compile(
            r"[\d+(](?<![\w.,/-].)(?<!\d\D[\d(])(?!\d?/\d\d?/\d)(?:(?<=[+(0])[ ()/-]?\d(?:[ ()/-]{0,3}\d){5,14}"
            r"|\d\d[ .-]\d{3}[ .-]\d{4}|\d\d-\d{4}|\d{6,14})(?![\w/-]|[.,]\d)"
        ),
        # What is before the last seven digits, of a country or an area, is often left out.
        lambda written: f"phone{_plain(written)[-7:]}",
    ),
    (
        re.compile(
            r"\d(?<![\w.,].)(?:\d{0,2}(?:[.,'\u2019\u00a0\u202f]\d{3})+(?:[.,]\d\d?)?|\d{3,}[.,]\d\d|\d*[.,]00)"
            r"(?!\w|[.,]\d)"
        ),
        _number,
    ),
    (re.compile(r"[.](?:(?<![\w.)\]].)|(?=NET\b))[A-Za-z]\w+"), lambda written: f"dot{_plain(written)}"),
    (re.compile(r"[-](?<![^\s\"'`(\[|,=].)-?[A-Za-z][\w-]*"), lambda written: f"option{_plain(written)}"),
    (re.compile("\u00a7(?<!\u00a7\u00a7)\u00a7*\\s?\\d+\\w*"), lambda written: f"section{_plain(written)}"),
    (re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]"), lambda written: f"u{ord(written):x}"),
)
"""What a code begins with is what a text is scanned for: a sixth of the time of one pattern for all."""
_MAY_HOLD_ONE = re.compile("[\\d+#\u00a7\u2600-\u27bf\U0001f300-\U0001faff]|[.-](?=[A-Za-z-])")
"""What each code holds: most sentences have none of it, and need not be scanned once a kind."""
_NAME = re.compile(r"[+#](?<=\w[+#])(?:(?<=#)|\+)(?![+#])")


def find_codes(text: str) -> list[Code]:
    """Return the codes of a text in order."""
    codes: list[Code] = []
    if not _MAY_HOLD_ONE.search(text):
        return codes
    for pattern, word_of in _KINDS:
        for match in pattern.finditer(text):
            start = match.start() - 2 * (pattern is _KINDS[0][0])
            codes.append(Code(start, match.end(), fold(word_of(text[start : match.end()]))[:64]))
    for match in _NAME.finditer(text):
        begin = max(match.start() - 40, 0)
        if name := re.search(r"[A-Za-z]\w*\Z", text[begin : match.start()]):
            sign = "sharp" if match[0] == "#" else "plusplus"
            codes.append(Code(begin + name.start(), match.end(), fold(name[0] + sign)))
    return sorted(codes)


def indexed_runs(text: str) -> list[str]:
    """Return the runs of a text that are indexed, those of its codes last."""
    return [*runs(text), *(code.word for code in find_codes(text))]


def indexed_text(text: str, language: str | None) -> str:
    """Return what the keyword index holds of a text: the stems of its words, separated by spaces."""
    return index_runs(indexed_runs(text), language)
