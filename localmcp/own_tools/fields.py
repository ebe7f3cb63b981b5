"""A TOML table read field by field: every mistake is kept with its line, and none stops the reading."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from localmcp.schemas import Json, did_you_mean, shorten_value

Level = Literal["error", "warning"]

_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the configuration. An error keeps its tool from being offered; a warning does not."""

    file: str
    line: int | None
    """1-based; None when it concerns the whole file."""
    message: str
    hint: str | None = None
    level: Level = "error"

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.level}: {self.message}" + (f" {self.hint}" if self.hint else "")

    def as_json(self) -> Json:
        return asdict(self)


@dataclass(slots=True)
class Source:
    """A configuration file, and what is wrong with it."""

    path: Path
    text: str
    problems: list[Problem] = field(default_factory=list[Problem])

    def complain(
        self, message: str, place: Iterable[str] = (), *, hint: str | None = None, level: Level = "error"
    ) -> None:
        """Keep a mistake at the key path `place`."""
        self.problems.append(Problem(str(self.path), line_of(self.text, tuple(place)), message, hint, level))

    @property
    def is_usable(self) -> bool:
        return not any(problem.level == "error" for problem in self.problems)


class Fields:
    """One table, read key by key. Mistakes go to the source; `refuse_others` reports the keys that were not read."""

    def __init__(self, source: Source, table: Json, place: tuple[str, ...] = ()) -> None:
        self.source = source
        self.place = place
        self._table = table
        self._read_keys: list[str] = []

    def complain(self, message: str, key: str = "", *, hint: str | None = None, level: Level = "error") -> None:
        """Keep a mistake of this table, or of one of its keys."""
        self.source.complain(message, (*self.place, key) if key else self.place, hint=hint, level=level)

    def named(self, key: str) -> str:
        """`parameters.path.type`, as messages call the key."""
        return ".".join((*self.place, key))

    def raw(self, key: str) -> Any:
        """Return the value as TOML gives it; None when the key is missing."""
        self._read_keys.append(key)
        return self._table.get(key)

    def has(self, key: str) -> bool:
        return key in self._table

    def keys(self) -> list[str]:
        return list(self._table)

    def _take(self, key: str, kinds: type | tuple[type, ...], kind: str, *, required: bool = False) -> Any:
        value = self.raw(key)
        if value is None:
            if required:
                self.complain(f"{self.named(key)} is missing; it must be {kind}.")
            return None
        # A bool is an int in Python, and is never meant as one here.
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            self.complain(f"{self.named(key)} must be {kind}, not {shorten_value(value)}.", key)
            return None
        return value

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        value = self._take(key, str, "text", required=required)
        if required and value is not None and not value.strip():
            self.complain(f"{self.named(key)} is empty.", key)
        return default if value is None else value

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, bool, "true or false")
        return default if value is None else value

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        limits = f"from {least:g} to {most:g}"
        value = self._take(key, (int, float), f"a number {limits}")
        return self._limited(key, value, default, limits, least, most)

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        limits = f"from {least} to {most}"
        value = self._take(key, int, f"a whole number {limits}")
        return self._limited(key, value, default, limits, least, most)

    def _limited(self, key: str, value: Any, default: Any, limits: str, least: float, most: float) -> Any:
        if value is None or least <= value <= most:
            return default if value is None else value
        self.complain(f"{self.named(key)} must be {limits}, not {value}.", key)
        return default

    def choice(self, key: str, choices: Iterable[str], default: str = "", *, required: bool = False) -> str:
        allowed = list(choices)
        value = self._take(key, str, f"one of {', '.join(allowed)}", required=required)
        if value is None:
            return default
        if value not in allowed:
            hint = did_you_mean(value, allowed, f"It must be one of {', '.join(allowed)}.")
            self.complain(f"{self.named(key)} = '{value}' is not known.", key, hint=hint)
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value: list[Any] = self._take(key, list, "a list of texts") or []
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        self.complain(f"{self.named(key)} must hold texts only.", key)
        return ()

    def items(self, key: str) -> list[Any]:
        """Return a list whose members the caller checks."""
        return cast("list[Any]", self._take(key, list, "a list") or [])

    def table(self, key: str) -> Fields:
        """Return the table below `key`; an empty one when it is missing."""
        value = cast(Json, self._take(key, dict, f"a table: [{self.named(key)}]") or {})
        return Fields(self.source, value, (*self.place, key))

    def refuse_others(self) -> None:
        """Report every key that was not read, with the nearest that is known."""
        for key in self._table:
            if key not in self._read_keys:
                hint = did_you_mean(key, self._read_keys, f"Known: {', '.join(self._read_keys)}.")
                self.complain(f"{self.named(key)} is not a known key.", key, hint=hint)


def line_of(text: str, place: tuple[str, ...]) -> int | None:
    """Return the line, 1-based, where the key path is in a TOML text, or else the nearest table around it."""
    best, line, header = 0, None, ()
    for number, written in enumerate(text.splitlines(), 1):
        if match := _HEADER.match(written):
            header = _parts(match[1])
            here = header
        elif match := _KEY.match(written):
            here = (*header, *_parts(match[1]))
        else:
            continue
        if best < len(here) <= len(place) and place[: len(here)] == here:
            best, line = len(here), number
    return line


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
