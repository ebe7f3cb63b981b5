"""The files that newer readers read in another way: what is indexed of them is read again, though they are the same."""

import re

_FIRST = r"\.(?:ics|vcf|adoc|asciidoc|pdf|[1-9][a-z]{0,3})(?:\.gz)?$"
_THIRD = r"\.(?:ics|vcf|pdf|epub|org|tex|[1-9][a-z]{0,3})(?:\.gz)?$"
_FOURTH = r"\.(?:x?html?|mht|mhtml)(?:\.gz)?$"
_FIFTH = r"\.(?:x?html?|mht|mhtml|xml|rss|atom|opml|rst|rest)(?:\.gz)?$"
_SIXTH = rf"{_FOURTH}|\.[1-9][a-z]{{0,3}}(?:\.gz)?$"
_SEVENTH = rf"{_FOURTH}|\.(?:adoc|asciidoc|org|tex|ltx|atom|xml|ics|vcf|rst|rest|eml|mbox|docx|odt|ods|rtf)(?:\.gz)?$"
CHANGES = (_FIRST, rf"\.org(?:\.gz)?$|#.*{_FIRST}", _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)
"""Patterns of names, one for each change, the newest last: calendars, contacts, AsciiDoc, bookmarks, manual pages; Org,
and the first ones inside mailboxes and archives (`box.mbox#team.ics`), which were not read again; and fields and
comments of PDF files, titles of chapters, tasks of Org, formulas of LaTeX, people of meetings, rows of dashes in manual
pages; titles and tables of contents of HTML pages; their titles below the header of a site, feeds, and labels of
reStructuredText; headings of HTML pages that are links, and first lines of manual pages; underlined titles of AsciiDoc,
code in Org and LaTeX, code and tables of HTML pages, `<` in feeds, backslashes in calendars, marks in titles of
reStructuredText, mails that refer to their HTML, spanning cells of Word, frames of OpenDocument, and boxes of RTF."""


def reads_anew(name: str, changes: int) -> bool:
    """Return whether a file of that name is read in another way than after the first `changes` of `CHANGES`."""
    return any(re.search(pattern, name, re.I) for pattern in CHANGES[changes:])
