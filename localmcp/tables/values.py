"""The values of a column: of which type they are, and each as SQLite is to have it.

Numbers may have either decimal mark, a currency or a percent sign; dates the usual forms of Europe and America.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

MISSING = frozenset(("", "-", "–", "—", "n/a", "na", "n.a.", "k.a.", "null", "nan", "?"))
"""Folded values that stand for none in a column of numbers or dates."""
YES_NO = [set(pair.split("/")) for pair in "yes/no ja/nein sì/no si/no sí/no oui/non true/false y/n".split()]
SAMPLE = 400
"""Values by which a type is ruled out."""
LEAST_SHARE = 0.95
"""Share of the values of a column that must be of its type; the others stay text, and are counted in a note."""
LONGEST_TEXT = 2000
CURRENCIES = {
    "€": "EUR", "$": "USD", "us$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "fr.": "CHF", "zł": "PLN", "kč": "CZK",
    "kr": "kr",
} | {code.casefold(): code for code in "EUR USD GBP JPY INR CHF PLN CZK SEK NOK DKK HUF AUD CAD".split()}  # fmt: skip
_MONEY = "|".join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+−])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+−])?"
    r"(?P<body>\d{1,3}(?:(?P<group>[ .,'’\u00a0\u202f])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[.,]\d+)"
    rf"\s*(?P<after>{_MONEY}|%)?(?P<trailing>-)?\)?",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d\d?)?")
"""As programs write numbers."""
_CLOCK = r"(\d{1,2}:\d\d(?::\d\d)?)"
_ISO = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?:[T ]+{_CLOCK}(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?)?")
_NUMERIC = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d\d)(?:,?[T ]+{_CLOCK})?")
_WRITTEN = re.compile(r"(\d{1,2})(?:\.|st|nd|rd|th)?[\s-]+(?:de )?([^\W\d]{3,})\.?,?[\s-]+(?:de )?(\d{4})")
_AMERICAN = re.compile(r"([^\W\d]{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_MONTHS = (
    "jan ene gen", "feb fev fév", "mar mär mrz", "apr avr abr", "may mai mag", "jun jui giu", "jul juil lug",
    "aug aoû ago aou", "sep set", "oct okt ott out", "nov", "dec dez dic déc",
)  # fmt: skip
"""Beginnings of the names in English, German, French, Spanish, Italian and Portuguese."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and what a person or a model needs to know to ask for it."""

    name: str
    type: str
    """integer, decimal, money (EUR), percent, date, date and time, time, yes/no, text"""


def read_column(values: Sequence[Any], mark: str) -> tuple[str, list[Any], int]:
    """Return the type of a column, its values for SQLite, and how many of them are not of the type but text.

    `mark` is the decimal mark where a column itself does not show it, as in 1.250. Dates and times become ISO text,
    money and percentages numbers (12 for 12 %).
    """
    missing = {value for value in set(values) if value is None or str(value).strip().casefold() in MISSING}
    present = [value for value in dict.fromkeys(values) if value not in missing]
    for read in (_read_booleans, partial(_read_numbers, mark=mark), _read_dates, _read_times):
        if len(read(present[:SAMPLE])[1]) < LEAST_SHARE * len(present[:SAMPLE]):
            continue
        kind, known = read(present)
        if kind and len(known) >= LEAST_SHARE * len(present):
            made = {**{value: str(value) for value in present if value not in known}, **known}
            odd = sum(value not in known and value not in missing for value in values) if len(made) > len(known) else 0
            return kind, [made.get(value) for value in values], odd
    answers = {str(value).strip().casefold() for value in present}
    is_yes_no = bool(answers) and any(answers <= pair for pair in YES_NO)
    texts = [None if value is None else str(value)[:LONGEST_TEXT].strip() or None for value in values]
    return "yes/no" if is_yes_no else "text", texts, 0


def _read_booleans(values: Sequence[Any]) -> tuple[str, dict[Any, int]]:
    return "yes/no", {value: int(value) for value in values if isinstance(value, bool)}


def _read_times(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    return "time", {value: str(value) for value in values if isinstance(value, time | timedelta)}


# ---------------------------------------------------------------- numbers


def count_marks(values: Iterable[Any]) -> Counter[str]:
    """Count the numbers in texts that show their decimal mark: 1.250,00 and 12,5 do, 1.250 does not."""
    marks: Counter[str] = Counter()
    for value in values:
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        signs = re.findall("[.,]", match["body"]) if match else ""
        if match and signs:
            if len(set(signs)) == 2 or (len(signs) == 1 and match["group"] not in signs):
                marks[signs[-1]] += 1
            elif len(signs) > 1:
                marks["," if signs[0] == "." else "."] += 1
    return marks


def _read_numbers(values: Sequence[Any], mark: str) -> tuple[str, dict[Any, int | float]]:
    """Read texts that are numbers, and what a workbook or JSON holds as such."""
    if values and all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in values):
        whole = all("." not in text for text in values)
        return "integer" if whole else "decimal", {text: int(text) if whole else float(text) for text in values}
    matches = {text: match for text in values if isinstance(text, str) and (match := _NUMBER.fullmatch(text.strip()))}
    bodies = [match["body"] for match in matches.values()]
    # Numbers of shelves, ZIP codes and accounts are names.
    if any(re.match(r"0\d", body) or sum(map(str.isdigit, body)) > 15 for body in bodies):
        return "", {}
    mark = next((mark for mark, _ in count_marks(matches).most_common(1)), mark)
    numbers: dict[Any, int | float] = {}
    for text, match in matches.items():
        plain = re.sub(rf"[^\d{mark}]", "", match["body"]).replace(mark, ".")
        # A sign that neither groups digits nor stands before decimals makes it another kind of number.
        signs_fit = {*re.findall("[.,]", match["body"])} <= {mark, match["group"]}
        if signs_fit and plain.count(".") < 2:
            number = float(plain) if "." in plain else int(plain)
            negative = match["open"] or match["trailing"] or {match["sign"], match["inner"]} & {"-", "−"}
            numbers[text] = -number if negative else number
    signs = {(matches[text]["before"] or matches[text]["after"] or "").casefold() for text in numbers} - {""}
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[value] = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    units = {"percent" if sign == "%" else f"money ({CURRENCIES[sign]})" for sign in signs}
    plain_kind = "integer" if all(isinstance(number, int) for number in numbers.values()) else "decimal"
    return ("", {}) if len(units) > 1 else (next(iter(units), plain_kind), numbers)


# ---------------------------------------------------------------- dates


def _read_dates(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    numeric = [match for text in values if isinstance(text, str) and (match := _NUMERIC.fullmatch(text.strip()))]
    day_first = _is_day_first(numeric)
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


def _is_day_first(matches: Sequence[re.Match[str]]) -> bool:
    """Return whether 03/04/2025 is in April: by a day above 12, by points between, else by which way they ascend."""
    if any(int(match[1]) > 12 or match[2] == "." for match in matches):
        return True
    if any(int(match[3]) > 12 for match in matches):
        return False
    by_day = [(match[4], match[3].zfill(2), match[1].zfill(2)) for match in matches]
    by_month = [(match[4], match[1].zfill(2), match[3].zfill(2)) for match in matches]
    ascending = [sum(one <= other for one, other in pairwise(dates)) for dates in (by_day, by_month)]
    return ascending[0] >= ascending[1]


def _read_date(text: str, day_first: bool) -> str | None:
    clock = ""
    if match := _ISO.fullmatch(text):
        year, month, day, clock = int(match[1]), int(match[2]), int(match[3]), match[4] or ""
    elif match := _NUMERIC.fullmatch(text):
        first, second, clock = int(match[1]), int(match[3]), match[5] or ""
        day, month = (first, second) if day_first else (second, first)
        # Of two digits, those above 50 are of the last century.
        year = int(match[4]) if len(match[4]) == 4 else int(match[4]) + (1900 if int(match[4]) > 50 else 2000)
    elif match := _WRITTEN.fullmatch(text):
        year, month, day = int(match[3]), _month(match[2]), int(match[1])
    elif match := _AMERICAN.fullmatch(text):
        year, month, day = int(match[3]), _month(match[1]), int(match[2])
    else:
        return None
    try:
        iso = date(year, month, day).isoformat()
    except ValueError:
        return None
    return f"{iso} {clock if len(clock) in (5, 8) else f'0{clock}'}" if clock else iso


def _month(name: str) -> int:
    """Return the number of a month, 0 for no month."""
    folded = name.casefold()
    starts = (any(folded.startswith(start) for start in months.split()) for months in _MONTHS)
    return next((number for number, is_it in enumerate(starts, 1) if is_it), 0)
