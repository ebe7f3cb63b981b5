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
from typing import Any, Literal

Mark = Literal[".", ","]

MISSING = frozenset(("", "-", "–", "—", "n/a", "na", "n.a.", "k.a.", "null", "nan", "?"))
"""Folded values that stand for none in a column of numbers or dates."""
YES_NO = tuple(map(frozenset, (("yes", "no"), ("ja", "nein"), ("sì", "no"), ("si", "no"), ("sí", "no"), ("oui", "non"),
                               ("true", "false"), ("y", "n"))))  # fmt: skip
SAMPLE = 400
"""Values by which a type is ruled out."""
LONGEST_TEXT = 2000
LEAST_SHARE = 0.95
"""Share of the values of a column that must be of its type; the others stay text, and are counted in a note."""
CURRENCIES = {
    "€": "EUR", "eur": "EUR", "$": "USD", "usd": "USD", "us$": "USD", "£": "GBP", "gbp": "GBP", "chf": "CHF",
    "fr.": "CHF", "¥": "JPY", "jpy": "JPY", "₹": "INR", "inr": "INR", "zł": "PLN", "pln": "PLN", "kr": "kr",
    "sek": "SEK", "nok": "NOK", "dkk": "DKK", "czk": "CZK", "kč": "CZK", "huf": "HUF", "aud": "AUD", "cad": "CAD",
}  # fmt: skip
_MONEY = "|".join(re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True))
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+−])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+−])?"
    r"(?P<body>\d{1,3}(?:(?P<group>[ .,'’\u00a0\u202f])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[.,]\d+)"
    rf"\s*(?P<after>{_MONEY}|%)?(?P<trailing>-)?\)?",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d\d?)?")
"""As programs write numbers."""
_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]+(\d{1,2}:\d\d(?::\d\d)?)(?:\.\d+)?\s*(Z|[+-]\d\d:?\d\d)?)?"
)
_NUMERIC = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d\d)(?:,?[T ]+(\d{1,2}:\d\d(?::\d\d)?))?")
_WRITTEN = re.compile(r"(\d{1,2})(?:\.|st|nd|rd|th)?[\s-]+(?:de )?([^\W\d]{3,})\.?,?[\s-]+(?:de )?(\d{4})")
_AMERICAN = re.compile(r"([^\W\d]{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_MONTHS = (
    "jan ene gen", "feb fev fév", "mar mär mrz", "apr avr abr", "may mai mag", "jun jui giu", "jul juil lug",
    "aug aoû ago aou", "sep set", "oct okt ott out", "nov", "dec dez dic déc",
)  # fmt: skip
_MONTH_NUMBERS = {start: number for number, starts in enumerate(_MONTHS, 1) for start in starts.split()}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and what a person or a model needs to know to ask for it."""

    name: str
    type: str
    """integer, decimal, money (EUR), percent, date, date and time, time, yes/no, text"""


def vote_on_marks(values: Iterable[Any]) -> Counter[Mark]:
    """Count the numbers in texts that show which sign stands before their decimals."""
    votes: Counter[Mark] = Counter()
    for value in values:
        match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
        if match and (mark := _certain_mark(match)):
            votes[mark] += 1
    return votes


def read_column(values: Sequence[Any], mark: Mark) -> tuple[str, list[Any], int]:
    """Return the type of a column, its values for SQLite, and how many of them are not of the type but text.

    `mark` is the decimal mark where a column itself does not show it, as in 1.250. Dates and times become ISO text,
    money and percentages numbers (12 for 12 %).
    """
    missing = {value for value in set(values) if _is_missing(value)}
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


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().casefold() in MISSING)


def _read_booleans(values: Sequence[Any]) -> tuple[str, dict[Any, int]]:
    return "yes/no", {value: int(value) for value in values if isinstance(value, bool)}


def _read_times(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    return "time", {value: str(value) for value in values if isinstance(value, time | timedelta)}


# ---------------------------------------------------------------- numbers


def _certain_mark(match: re.Match[str]) -> Mark | None:
    """Return the decimal mark that a number shows: 1.250,00 and 12,5 have one, 1.250 may be either."""
    body = match["body"]
    signs = [character for character in body if character in ".,"]
    if len(set(signs)) == 2:
        return "," if signs[-1] == "," else "."
    if not signs or (match["group"] and match["group"] not in ".,"):
        return _mark(signs[0]) if signs else None
    if len(signs) > 1:
        return _mark("," if signs[0] == "." else ".")
    return None if match["group"] else _mark(signs[0])


def _mark(sign: str) -> Mark:
    return "," if sign == "," else "."


def _read_numbers(values: Sequence[Any], mark: Mark) -> tuple[str, dict[Any, int | float]]:
    """Read texts that are numbers, and what a workbook or JSON holds as such."""
    if values and all(isinstance(text, str) and _PLAIN.fullmatch(text) for text in values):
        if all(map(str.isdigit, values)):
            return "integer", {text: int(text) for text in values}
        return "decimal", {text: float(text) for text in values}
    matches = {text: match for text in values if isinstance(text, str) and (match := _NUMBER.fullmatch(text.strip()))}
    bodies = [match["body"] for match in matches.values()]
    # Numbers of shelves, ZIP codes and accounts are names.
    if any(re.match(r"0\d", body) or sum(map(str.isdigit, body)) > 15 for body in bodies):
        return "", {}
    votes = Counter(certain for match in matches.values() if (certain := _certain_mark(match)))
    mark = votes.most_common(1)[0][0] if votes else mark
    numbers: dict[Any, int | float] = {}
    for text, match in matches.items():
        plain = re.sub(rf"[^\d{mark}]", "", match["body"]).replace(mark, ".")
        if plain.count(".") < 2:
            number = float(plain) if "." in plain else int(plain)
            negative = match["open"] or match["trailing"] or {match["sign"], match["inner"]} & {"-", "−"}
            numbers[text] = -number if negative else number
    signs = {(matches[text]["before"] or matches[text]["after"] or "").casefold() for text in numbers}
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[value] = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    currencies = {CURRENCIES[sign] for sign in signs if sign in CURRENCIES}
    if len(currencies) > 1 or (currencies and "%" in signs):
        return "", {}
    if currencies:
        return f"money ({currencies.pop()})", numbers
    if "%" in signs:
        return "percent", numbers
    return "integer" if all(isinstance(number, int) for number in numbers.values()) else "decimal", numbers


# ---------------------------------------------------------------- dates


def _read_dates(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    texts = [text for text in values if isinstance(text, str)]
    day_first = _is_day_first([match for text in texts if (match := _NUMERIC.fullmatch(text.strip()))])
    dates: dict[Any, str] = {}
    for text in texts:
        if read := _read_date(" ".join(text.split()), day_first):
            dates[text] = read
    for value in values:
        if isinstance(value, datetime):
            dates[value] = value.isoformat(" ", "minutes")[:16]
        elif isinstance(value, date):
            dates[value] = value.isoformat()
    if all(len(read) == 10 or read.endswith(" 00:00") for read in dates.values()):
        return "date", {value: read[:10] for value, read in dates.items()}
    return "date and time", {value: read if len(read) > 10 else f"{read} 00:00" for value, read in dates.items()}


def _is_day_first(matches: Sequence[re.Match[str]]) -> bool:
    """Return whether 03/04/2025 is in April: by a day above 12, by points between, else by which way they ascend."""
    if any(int(match[1]) > 12 or match[2] == "." for match in matches):
        return True
    if any(int(match[3]) > 12 for match in matches):
        return False
    by_day, by_month = (
        [(match[4], match[b].zfill(2), match[a].zfill(2)) for match in matches] for a, b in ((1, 3), (3, 1))
    )
    steps = [
        sum(one <= next_one for one, next_one in zip(dates, dates[1:], strict=False)) for dates in (by_day, by_month)
    ]
    return steps[0] >= steps[1]


def _read_date(text: str, day_first: bool) -> str | None:
    clock = ""
    if match := _ISO.fullmatch(text):
        year, month, day, clock = int(match[1]), int(match[2]), int(match[3]), match[4] or ""
    elif match := _NUMERIC.fullmatch(text):
        first, second, clock = int(match[1]), int(match[3]), match[5] or ""
        day, month = (first, second) if day_first else (second, first)
        year = int(match[4]) if len(match[4]) == 4 else 2000 + int(match[4]) - 100 * (int(match[4]) > 50)
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
    """Return the number of a month in English, German, French, Spanish, Italian or Portuguese; 0 for no month."""
    folded = name.casefold()
    return _MONTH_NUMBERS.get(folded[:4], _MONTH_NUMBERS.get(folded[:3], 0))
