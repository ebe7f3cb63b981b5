"""Reads what other programs export: calendars, contacts, subtitles (.srt, .vtt) and conversations with assistants."""

from __future__ import annotations

import codecs
import json
import quopri
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any, BinaryIO

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, make_document, one_line, read_member
from localmcp.readers.encodings import HEAD, decode_text
from localmcp.readers.markdown import code_fence
from localmcp.schemas import list_of, mapping_of

# ---------------------------------------------------------------- calendars (RFC 5545), contacts (RFC 6350)

_ENTRY = re.compile(r"(?ims)^BEGIN:(VEVENT|VTODO|VJOURNAL|VCARD)[ \t]*\n(.*?)^END:\1")
_PROPERTY = re.compile(r'(?m)^(?:[\w-]+\.)?([A-Za-z-]+)((?:;[^:;"\n]*(?:"[^"\n]*"[^:;"\n]*)?)*):(.*)$')
_DATE = re.compile(r"^(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d)(\d\d)(?:\d\d)?)?")
_SHOWN = {"DTSTART": "From", "DTEND": "To", "RRULE": "Repeats", "ORG": "Organization", "TEL": "Phone"} | {
    **{"ADR": "Address", "BDAY": "Birthday", "URL": "Website"},
    **{name: name.capitalize() for name in "DUE LOCATION ORGANIZER ATTENDEE DESCRIPTION CATEGORIES".split()},
    **{name: name.capitalize() for name in "TITLE ROLE NICKNAME EMAIL ANNIVERSARY NOTE".split()},
}
"""Properties that are read, and what they are called."""


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
    text = re.sub(r"(?i)QUOTED-PRINTABLE(?:[^\n]*=\n)+", lambda value: value[0].replace("=\n", ""), text)
    entries: list[str] = []
    for entry in _ENTRY.finditer(text):
        block = re.sub(r"(?ims)^BEGIN:VALARM.*?^END:VALARM[^\n]*\n", "", entry[2])
        values = [_value(match) for match in _PROPERTY.finditer(block)]
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
    person = re.search(r'(?i);CN=(?:"([^"]+)"|([^;"]+))', parameters)
    if name in ("ATTENDEE", "ORGANIZER") and person:
        value = f"{person[1] or person[2]} ({value})"
    value = re.sub(r"\\([,;\\nN])", lambda escape: " " if escape[1] in "nN" else escape[1], value)
    return name, " ".join(value.split())


# ---------------------------------------------------------------- subtitles

PARAGRAPH_SECONDS = 30
"""Captions of about this long are one paragraph with one time."""
_CUE = re.compile(r"(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d{1,3}[ \t]+-->")
_SPEAKER = re.compile(r"<v(?:\.[\w.]+)?[ \t]+([^<>\n]{1,100})>")


def read_subtitles(data: bytes, name: str) -> Document:
    """Return what is said, each paragraph behind the time at which it begins: `[0:01:30] …`."""
    text, metadata = decode_text(data)
    paragraphs: list[str] = []
    begin, last = -PARAGRAPH_SECONDS, ""
    # Numbers, styles and notes are left out.
    for block in re.split(r"\r?\n[ \t]*\r?\n", text):
        lines = block.strip().splitlines()
        number, cue = next(((n, cue) for n, line in enumerate(lines[:3]) if (cue := _CUE.search(line))), (0, None))
        if cue is None:
            continue
        seconds = int(cue[1] or 0) * 3600 + int(cue[2]) * 60 + int(cue[3])
        for line in lines[number + 1 :]:
            line = re.sub(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,50}\}", "", _SPEAKER.sub(r"\1: ", line))
            words = " ".join(unescape(line).split())
            # Captions that roll repeat the line before.
            if not words or words == last:
                continue
            last = words
            if begin <= seconds < begin + PARAGRAPH_SECONDS:
                paragraphs[-1] += f" {words}"
            else:
                begin = seconds
                paragraphs.append(f"[{begin // 3600}:{begin // 60 % 60:02}:{begin % 60:02}] {words}")
    if not paragraphs:
        raise UnreadableDocument(f"{name} holds no subtitles.")
    return make_document(name, "\n\n".join(paragraphs), "subtitles", "plain", "text", metadata=metadata)


# ---------------------------------------------------------------- conversations


def read_conversations(file: BinaryIO, name: str) -> Iterator[Document]:
    """Yield a document a conversation of ChatGPT or Claude, without holding more than one of them."""
    decoder, utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    between = re.compile(r"[\s,\[]*")
    buffer, position, number = "", 0, 0
    while True:
        match = between.match(buffer, position)
        position = match.end() if match else position
        if buffer[position : position + 1] == "]":
            return
        try:
            value, position = decoder.raw_decode(buffer, position)
        except ValueError as error:
            # Each try reads the item again from its beginning: twice as much each time keeps that linear.
            data = file.read(max(1 << 20, len(buffer) - position))
            if not data and buffer[position:].strip():
                raise UnreadableDocument(f"{name} is damaged: its list of conversations does not end.") from error
            if not data:
                return
            buffer, position = buffer[position:] + utf8.decode(data), 0
            continue
        number += 1
        conversation = mapping_of(value)
        names = (conversation.get(key) for key in ("uuid", "id", "conversation_id"))
        member = one_line(str(next(filter(None, names), f"conversation {number}")))
        yield read_member(partial(_conversation, conversation, name), member)


def _conversation(conversation: dict[str, Any], name: str) -> Document:
    turns = list(_chatgpt_turns(conversation) if "mapping" in conversation else _claude_turns(conversation))
    text = "\n\n".join(f"{speaker}{f' ({when[:10]})' if when else ''}: {words}" for speaker, when, words in turns)
    # A fence begins a line, else its end would be taken for a beginning.
    text = re.sub(r"(?m)^((?:User|Assistant|Tool)(?: \([\d-]+\))?:) (?=```|~~~)", r"\1\n\n", text)
    created = _moment(conversation.get("create_time") or conversation.get("created_at"))
    date = _moment(conversation.get("update_time") or conversation.get("updated_at")) or created
    metadata = {key: value for key, value in (("date", date), ("created", created)) if value}
    metadata["speakers"] = ", ".join(dict.fromkeys(speaker for speaker, _, _ in turns))
    title = str(conversation.get("title") or conversation.get("name") or "")
    fields = {"title": title or "Conversation", "metadata": metadata, "date": date, "date_from": "export"}
    return make_document(title or name, text, "conversation", "markdown", "text", **fields)


def _chatgpt_turns(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield speaker, time and words along the branch that was last open."""
    mapping, node = conversation["mapping"], conversation.get("current_node")
    if node not in mapping:
        node = next(reversed(mapping), None)
    branch: list[dict[str, Any]] = []
    while node in mapping and len(branch) <= len(mapping):
        branch.append(mapping_of(mapping[node].get("message")))
        node = mapping[node].get("parent")
    for message in reversed(branch):
        role, content = mapping_of(message.get("author")).get("role"), mapping_of(message.get("content"))
        words = ""
        if content.get("content_type") in ("code", "execution_output", "tether_quote"):
            language = str(content.get("language") or "").removeprefix("unknown")
            code = str(content.get("text") or "").strip()
            words = code_fence(code, language) if code else ""
        elif role != "tool":
            parts: Any = list_of(content.get("parts"))
            parts = [mapping_of(part).get("text") if isinstance(part, dict) else part for part in parts]
            words = "\n\n".join(part for part in parts if isinstance(part, str) and part.strip()).strip()
        if words and role in ("user", "assistant", "tool"):
            yield role.capitalize(), _moment(message.get("create_time")), words


def _claude_turns(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for message in map(mapping_of, list_of(conversation.get("chat_messages"))):
        texts: list[Any] = []
        for part in map(mapping_of, list_of(message.get("content"))):
            artifact = mapping_of(part.get("input")) if part.get("name") == "artifacts" else {}
            texts += [part.get("text") if part.get("type") == "text" else None]
            texts += [artifact.get(key) for key in ("title", "content", "new_str")]
        words = "\n\n".join(str(text) for text in texts if text) or str(message.get("text") or "")
        for attachment in map(mapping_of, list_of(message.get("attachments"))):
            if text := str(attachment.get("extracted_content") or ""):
                words += f"\n\nAttached {attachment.get('file_name') or 'file'}:\n\n{text}"
        if words.strip():
            speaker = "User" if message.get("sender") == "human" else "Assistant"
            yield speaker, _moment(message.get("created_at")), words.strip()


def _moment(value: Any) -> str:
    """Return a time as seconds since 1970 or ISO 8601 as ISO 8601; "" for neither."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
        return datetime.fromisoformat(str(value)).isoformat() if value else ""
    except (ValueError, OverflowError, OSError):
        return ""
