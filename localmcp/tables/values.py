"""The values of a column: of which type they are, and each as SQLite is to have it.

Numbers may have either decimal mark, a currency or a percent sign; dates the usual forms of Europe and America.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

LEAST_SHARE = 0.95
"""Share of the values of a column that must be of its type; the others stay text, and are counted in a note."""
LONGEST_TEXT = 2000
CURRENCIES = {
    "€": "EUR", "$": "USD", "us$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "fr.": "CHF", "zł": "PLN", "kč": "CZK",
    "kr": "kr",
} | {code.casefold(): code for code in "EUR USD GBP JPY INR CHF PLN CZK SEK NOK DKK HUF AUD CAD".split()}  # fmt: skip
_MONEY = "|".join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))
_NUMBER = re.compile(
    rf"\s*(?P<open>\()?(?P<sign>[-+−])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+−])?"
    r"(?P<body>\d{1,3}(?:(?P<group>[ .,'’\u00a0\u202f])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[.,]\d+)"
    rf"\s*(?P<after>{_MONEY}|%)?(?P<trailing>-)?\)?\s*",
    re.IGNORECASE,
)
_CLOCK = r"(\d{1,2}:\d\d(?::\d\d)?)"
_ISO = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?:[T ]+{_CLOCK}(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?)?")
_NUMERIC = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d\d)(?:,?[T ]+{_CLOCK})?")
_WRITTEN = re.compile(
    r"(?:(\d{1,2})(?:\.|st|nd|rd|th)?[\s-]+(?:de )?)?([^\W\d]{3,})\.?"
    r"(?:\s+(\d{1,2})(?:st|nd|rd|th)?)?,?[\s-]+(?:de )?(\d{4})"
)
"""3. March 2025 or March 3, 2025."""
_MONTHS = (
    "jan ene gen", "feb fev fév", "mar mär mrz", "apr avr abr", "may mai mag", "jun jui giu", "jul juil lug",
    "aug aoû ago aou", "sep set", "oct okt ott out", "nov", "dec dez dic déc",
)  # fmt: skip
"""Beginnings of the names in English, German, French, Spanish, Italian and Portuguese."""


def read_column(values: Sequence[Any], mark: str) -> tuple[str, list[Any], int]:
    """Return the type of a column, its values for SQLite, and how many of them are not of the type but text.

    Types are integer, decimal, money (EUR), percent, date, date and time, time, yes/no and text. `mark` is the decimal
    mark where a column itself does not show it, as in 1.250. Dates and times become ISO text, money and percentages
    numbers (12 for 12 %).
    """
    distinct = list(dict.fromkeys(values))
    sample = list(filter(_is_present, _sample(distinct)))
    for read in (partial(_read_numbers, mark=mark), _read_dates, _read_native):
        if len(read(sample)[1]) < LEAST_SHARE * len(sample):
            continue
        present = list(filter(_is_present, distinct))
        kind, typed = read(present)
        if kind and len(typed) >= LEAST_SHARE * len(present):
            others = {value: str(value) for value in present if value not in typed} if len(typed) < len(present) else {}
            odd = sum(value in others for value in values) if others else 0
            return kind, list(map((others | typed).get, values)), odd
    texts = [None if value is None else str(value)[:LONGEST_TEXT].strip() or None for value in values]
    answers = {text.casefold() for text in filter(None, texts)} if len(distinct) < 9 else set[str]()
    pairs = [set(pair.split("/")) for pair in "yes/no ja/nein sì/no si/no sí/no oui/non true/false y/n".split()]
    return "yes/no" if answers and any(answers <= pair for pair in pairs) else "text", texts, 0


def _sample(values: Sequence[Any]) -> Sequence[Any]:
    """Return 400 values, from all over a column, by which a type is ruled out."""
    return values[:: -(-len(values) // 400) or 1]


def _is_present(value: Any) -> bool:
    """Return whether a value stands for one in a column of numbers or dates."""
    if isinstance(value, str):
        return value.strip().casefold() not in {"", "-", "–", "—", "n/a", "na", "n.a.", "k.a.", "null", "nan", "?"}
    return value is not None


# ---------------------------------------------------------------- numbers


def count_marks(values: Iterable[Any]) -> Counter[str]:
    """Count the numbers in texts that show their decimal mark: 1.250,00 and 12,5 do, 1.250 does not."""
    marks: Counter[str] = Counter()
    for match in (_NUMBER.fullmatch(value) for value in values if isinstance(value, str)):
        signs = [sign for sign in match["body"] if sign in ".,"] if match else []
        if match and signs:
            if len(set(signs)) == 2 or (len(signs) == 1 and match["group"] not in signs):
                marks[signs[-1]] += 1
            elif len(signs) > 1:
                marks["," if signs[0] == "." else "."] += 1
    return marks


def _read_numbers(values: Sequence[Any], mark: str) -> tuple[str, dict[Any, int | float]]:
    """Read texts that are numbers, and what a workbook or JSON holds as such."""
    numbers: dict[Any, int | float] = {}
    units = set[str]()
    mark = next((mark for mark, _ in count_marks(_sample(values)).most_common(1)), mark)
    other = "." if mark == "," else ","
    for value in values:
        if not isinstance(value, str):
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers[value] = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
            continue
        match = _NUMBER.fullmatch(value)
        if match is None:
            continue
        opened, sign, before, inner, body, group, after, trailing = match.groups()
        # Numbers of shelves, ZIP codes and accounts are names.
        if (body[0] == "0" and body[1:2].isdecimal()) or (len(body) > 15 and sum(map(str.isdigit, body)) > 15):
            return "", {}
        plain = body.replace(group, "") if group and group != mark else body
        # A sign that neither groups digits nor stands before decimals makes it another kind of number.
        if other in plain or plain.count(mark) > 1:
            continue
        number = float(plain.replace(mark, ".")) if mark in plain else int(plain)
        numbers[value] = -number if opened or trailing or sign in ("-", "−") or inner in ("-", "−") else number
        if unit := before or after:
            units.add("percent" if unit == "%" else f"money ({CURRENCIES[unit.casefold()]})")
    whole = "integer" if all(isinstance(number, int) for number in numbers.values()) else "decimal"
    return ("", {}) if len(units) > 1 else (next(iter(units), whole), numbers)


# ---------------------------------------------------------------- dates, times, yes and no


def _read_native(values: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    """Read what a workbook or JSON holds as a time, or as true or false."""
    answers = {value: int(value) for value in values if isinstance(value, bool)}
    times = {value: str(value) for value in values if isinstance(value, time | timedelta)}
    return ("yes/no", answers) if answers else ("time", times)


def _read_dates(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    numeric = [match for text in values if isinstance(text, str) and (match := _NUMERIC.fullmatch(text.strip()))]
    # 03/04/2025 is in April by a day above 12, by points between, else by which way the dates ascend.
    by_day = [(match[4], match[3].zfill(2), match[1].zfill(2)) for match in numeric]
    by_month = [(match[4], match[1].zfill(2), match[3].zfill(2)) for match in numeric]
    ascending = [sum(one <= other for one, other in pairwise(dates)) for dates in (by_day, by_month)]
    day_first = ascending[0] >= ascending[1] and not any(int(match[3]) > 12 for match in numeric)
    day_first = day_first or any(int(match[1]) > 12 or match[2] == "." for match in numeric)
    dates: dict[Any, str] = {}
    for value in values:
        if isinstance(value, datetime):
            dates[value] = value.isoformat(" ", "minutes")[:16]
        elif isinstance(value, date):
            dates[value] = value.isoformat()
        elif isinstance(value, str) and (read := _read_date(" ".join(value.split()), day_first)):
            dates[value] = read
    if all(len(read) == 10 or read.endswith(" 00:00") for read in dates.values()):
        return "date", {value: read[:10] for value, read in dates.items()}
    return "date and time", {value: read if len(read) > 10 else f"{read} 00:00" for value, read in dates.items()}


def _read_date(text: str, day_first: bool) -> str | None:
    clock = ""
    if match := _ISO.fullmatch(text):
        year, month, day, clock = int(match[1]), int(match[2]), int(match[3]), match[4] or ""
    elif match := _NUMERIC.fullmatch(text):
        first, second, clock = int(match[1]), int(match[3]), match[5] or ""
        day, month = (first, second) if day_first else (second, first)
        # Of two digits, those above 50 are of the last century.
        year = int(match[4]) if len(match[4]) == 4 else int(match[4]) + (1900 if int(match[4]) > 50 else 2000)
    elif (match := _WRITTEN.fullmatch(text)) and (match[1] is None) != (match[3] is None):
        name = match[2].casefold()
        months = (any(name.startswith(start) for start in starts.split()) for starts in _MONTHS)
        month = next((number for number, is_it in enumerate(months, 1) if is_it), 0)
        year, day = int(match[4]), int(match[1] or match[3])
    else:
        return None
    try:
        iso = date(year, month, day).isoformat()
    except ValueError:
        return None
    return f"{iso} {clock if clock[2:3] == ':' else f'0{clock}'}" if clock else iso
