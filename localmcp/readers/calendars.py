"""Reads calendars (RFC 5545) and contacts (RFC 6350), whose lines have one form."""

import quopri
import re

from localmcp.readers.document import Document, make_document
from localmcp.readers.encodings import HEAD, decode_text

_BLOCK = re.compile(r"(?ims)^BEGIN:(VEVENT|VTODO|VJOURNAL|VCARD)[ \t]*\n(.*?)^END:\1")
_ALARM = re.compile(r"(?ims)^BEGIN:VALARM.*?^END:VALARM[^\n]*\n")
_SOFT_LINE_ENDS = re.compile(r"(?i)QUOTED-PRINTABLE(?:[^\n]*=\n)+")
_PROPERTY = re.compile(r'(?m)^(?:[\w-]+\.)?([A-Za-z-]+)((?:;[^:;"\n]*(?:"[^"\n]*"[^:;"\n]*)?)*):(.*)$')
_PERSON = re.compile(r'(?i);CN=(?:"([^"]+)"|([^;"]+))')
_DATE = re.compile(r"^(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d)(\d\d)(?:\d\d)?)?")
_SHOWN = {
    **{"DTSTART": "From", "DTEND": "To", "RRULE": "Repeats", "ORG": "Organization", "TEL": "Phone", "ADR": "Address"},
    **{"BDAY": "Birthday", "URL": "Website"},
    **{name: name.capitalize() for name in "DUE LOCATION ORGANIZER ATTENDEE DESCRIPTION CATEGORIES".split()},
    **{name: name.capitalize() for name in "TITLE ROLE NICKNAME EMAIL ANNIVERSARY NOTE".split()},
}
"""Properties that are read, and what they are called."""


def looks_like_calendar(data: bytes) -> bool:
    """Return whether a file begins as a calendar or an address book does."""
    return re.match(rb"(?:\xef\xbb\xbf)?\s*BEGIN:V(?:CALENDAR|CARD)\b", data[:HEAD], re.I) is not None


def read_calendar(data: bytes, name: str) -> Document:
    """Return the events and tasks of a calendar, or the people of an address book, each below its name."""
    text, metadata = decode_text(data)
    kind = "contacts" if re.match(r"\W*BEGIN:VCARD", text[:HEAD], re.I) else "calendar"
    named = re.search(r"(?im)^X-WR-CALNAME.*", text)
    title = _value(match)[1] if named and (match := _PROPERTY.match(named[0])) else ""
    return make_document(name, calendar_text(text), kind, source_type="text", title=title, metadata=metadata)


def calendar_text(text: str) -> str:
    """Return what, when, where and who of each event or person as Markdown: a heading and a list."""
    # Long lines go on below, behind a space, or behind `=` where they are quoted.
    text = re.sub(r"\n[ \t]", "", text.replace("\r\n", "\n"))
    text = _SOFT_LINE_ENDS.sub(lambda value: value[0].replace("=\n", ""), text)
    entries: list[str] = []
    for block in _BLOCK.finditer(text):
        values = [_value(match) for match in _PROPERTY.finditer(_ALARM.sub("", block[2]))]
        title = next((value for key in ("SUMMARY", "FN", "N") for name, value in values if name == key), "")
        lines = [f"- {_SHOWN[name]}: {value}" for name, value in values if name in _SHOWN and value]
        if title or lines:
            entries.append("\n".join((f"## {title or '(no name)'}\n", *lines)))
    return "\n\n".join(entries)


def _value(match: re.Match[str]) -> tuple[str, str]:
    """Return the name and the value of a property as people read them."""
    name, parameters, value = match[1].upper(), match[2], match[3]
    if "QUOTED-PRINTABLE" in parameters.upper():
        value = decode_text(quopri.decodestring(value.encode()))[0]
    if name in ("DTSTART", "DTEND", "DUE", "BDAY", "ANNIVERSARY"):
        value = _DATE.sub(r"\1-\2-\3 \4:\5", value).removesuffix(" :")
    if name in ("N", "ADR", "ORG"):
        parts = [part for part in re.split(r"(?<!\\);", value) if part]
        value = " ".join(parts[1::-1]) if name == "N" else ", ".join(parts)
    value = re.sub(r"(?i)^(?:mailto|tel):", "", value)
    if name in ("ATTENDEE", "ORGANIZER") and (person := _PERSON.search(parameters)):
        value = f"{person[1] or person[2]} ({value})"
    value = re.sub(r"\\([,;\\nN])", lambda escape: " " if escape[1] in "nN" else escape[1], value)
    return name, " ".join(value.split())
