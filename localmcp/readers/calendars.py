"""Reads calendars (RFC 5545) and contacts (RFC 6350), whose lines have one form."""

import quopri
import re
from collections.abc import Iterator

from localmcp.readers.document import Document, make_document
from localmcp.readers.encodings import HEAD, decode_text

_BLOCK = re.compile(r"(?ims)^BEGIN:(VEVENT|VTODO|VJOURNAL|VCARD)[ \t]*\n(.*?)^END:\1")
_ALARM = re.compile(r"(?ims)^BEGIN:VALARM.*?^END:VALARM[^\n]*\n")
_SOFT_LINE_ENDS = re.compile(r"(?i)QUOTED-PRINTABLE(?:[^\n]*=\n)+")
_PROPERTY = re.compile(r'(?:[\w-]+\.)?([A-Za-z-]+)((?:;[^:;"]*(?:"[^"]*"[^:;"]*)?)*):(.*)')
_PERSON = re.compile(r'(?i);CN=(?:"([^"]+)"|([^;"]+))')
_TIMES = ("DTSTART", "DTEND", "DUE", "BDAY", "ANNIVERSARY")
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
    parts = [f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) for title, lines in _entries(text)]
    named = re.search(r"(?im)^X-WR-CALNAME.*", text)
    title = _property(named[0])[1] if named else ""
    return make_document(name, "\n\n".join(parts), kind, source_type="text", title=title, metadata=metadata)


def calendar_text(calendar: str) -> str:
    """Return what, when and where of the events in a calendar, a line each."""
    return "\n\n".join("\n".join((f"Summary: {title}", *lines)) for title, lines in _entries(calendar))


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each event or person, and its text."""
    text = re.sub(r"\n[ \t]", "", text.replace("\r\n", "\n"))
    text = _SOFT_LINE_ENDS.sub(lambda value: value[0].replace("=\n", ""), text)
    for block in _BLOCK.finditer(text):
        properties = [_property(line) for line in _ALARM.sub("", block[2]).split("\n")]
        title = next((value for key in ("SUMMARY", "FN", "N") for name, value in properties if name == key), "")
        lines = [f"{_SHOWN[name]}: {value}" for name, value in properties if name in _SHOWN and value]
        if title or lines:
            yield title or "(no name)", lines


def _property(line: str) -> tuple[str, str]:
    """Return the name and the value of a line as they are read; two empty texts for what is none."""
    match = _PROPERTY.fullmatch(line.strip())
    if match is None:
        return "", ""
    name, parameters, value = match[1].upper(), match[2], match[3]
    if "QUOTED-PRINTABLE" in parameters.upper():
        value = decode_text(quopri.decodestring(value.encode()))[0]
    if name in _TIMES:
        value = re.sub(r"^(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d)(\d\d)(?:\d\d)?)?", r"\1-\2-\3 \4:\5", value).removesuffix(
            " :"
        )
    if name in ("N", "ADR", "ORG"):
        parts = [part for part in re.split(r"(?<!\\);", value) if part]
        value = " ".join(parts[1::-1]) if name == "N" else ", ".join(parts)
    value = re.sub(r"(?i)^(?:mailto|tel):", "", value)
    if name in ("ATTENDEE", "ORGANIZER") and (person := _PERSON.search(parameters)):
        value = f"{person[1] or person[2]} ({value})"
    value = re.sub(r"\\([,;\\nN])", lambda escape: " " if escape[1] in "nN" else escape[1], value)
    return name, " ".join(value.split())
