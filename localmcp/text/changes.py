"""The files that newer readers read in another way: what is indexed of them is read again, though they are the same."""

import re

_FIRST = r"\.(?:ics|vcf|adoc|asciidoc|pdf|[1-9][a-z]{0,3})(?:\.gz)?$"
CHANGES = (_FIRST, rf"\.org(?:\.gz)?$|#.*{_FIRST}")
"""Patterns of names, one for each change, the newest last: calendars, contacts, AsciiDoc, bookmarks, manual pages; Org,
and the first ones inside mailboxes and archives (`box.mbox#team.ics`), which were not read again."""


def reads_anew(name: str, changes: int) -> bool:
    """Return whether a file of that name is read in another way than after the first `changes` of `CHANGES`."""
    return any(re.search(pattern, name, re.I) for pattern in CHANGES[changes:])
