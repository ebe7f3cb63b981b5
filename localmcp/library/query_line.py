"""A query as a person types it into one line: words, and filters such as `tag:ops` or `source:"Boiler manual"`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FILTERS = {
    "source": "only this document: its title, path or id",
    "collection": "only this collection",
    "tag": "only documents with this tag; repeat it for any of several",
    "path": "only files below this folder",
    "type": "only this type: pdf, docx, md, mail, code, sheet, …",
    "partition": "only this partition",
    "since": "only documents dated from then: 2026-03-14, 2026, 30d, 2w",
    "until": "only documents dated until then",
}
"""Filter -> what it does."""

_FILTER = re.compile(rf'(?<!\S)({"|".join(FILTERS)}):(?:"([^"]*)"?|(\S*))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QueryLine:
    """A typed line, parsed into words and filters."""

    words: str
    """What is searched for; quoted phrases stay as they are."""
    filters: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Filter -> its values in order; one that has no value yet is left out."""

    def last(self, name: str) -> str | None:
        """Return the value of a filter that can hold once: the last one typed."""
        return self.filters.get(name, [None])[-1]


def parse_query_line(text: str) -> QueryLine:
    """Return words and filters of a line such as `kafka lag tag:ops source:"Runbook 7"`.

    What looks like a filter but is none (`http://…`, `std::vector`) is words.
    """
    filters: dict[str, list[str]] = {}
    for name, quoted, plain in _FILTER.findall(text):
        if value := (quoted or plain).strip():
            filters.setdefault(name.lower(), []).append(value)
    return QueryLine(" ".join(_FILTER.sub(" ", text).split()), filters)
