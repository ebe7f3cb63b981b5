"""Reads subtitles (.srt, .vtt) and exported conversations with assistants (JSON)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any, BinaryIO

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, make_document, one_line, read_member
from localmcp.readers.encodings import decode_text
from localmcp.readers.markdown import code_fence
from localmcp.schemas import list_of, mapping_of

PARAGRAPH_SECONDS = 30
"""Captions of about this long are one paragraph with one time."""
_CUE = re.compile(r"(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d{1,3}[ \t]+-->")
_TAGS = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,50}\}")
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
            words = " ".join(unescape(_TAGS.sub("", _SPEAKER.sub(r"\1: ", line))).split())
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


def looks_like_conversations(head: bytes, name: str) -> bool:
    """Return whether a file is an export of ChatGPT or Claude: a list of conversations."""
    named = re.fullmatch(r"conversations.{0,20}\.json", name, re.I)
    return bool(named and head.lstrip()[:1] == b"[" and re.search(rb'"(?:mapping|chat_messages)"\s*:', head))


def read_conversations(file: BinaryIO, name: str) -> Iterator[Document]:
    """Yield a document a conversation, without holding more than one of them."""
    for number, value in enumerate(_array_items(file, name), 1):
        conversation = mapping_of(value)
        names = (conversation.get(key) for key in ("uuid", "id", "conversation_id"))
        member = one_line(str(next(filter(None, names), f"conversation {number}")))
        yield read_member(partial(_conversation, conversation, name), member)


def _array_items(file: BinaryIO, name: str) -> Iterator[Any]:
    """Yield the items of a JSON list one by one."""
    decoder, utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    between = re.compile(r"[\s,\[]*")
    buffer, position = "", 0
    while True:
        match = between.match(buffer, position)
        position = match.end() if match else position
        if buffer[position : position + 1] == "]":
            return
        try:
            item, position = decoder.raw_decode(buffer, position)
            yield item
        except ValueError as error:
            # Each try reads the item again from its beginning: twice as much each time keeps that linear.
            data = file.read(max(1 << 20, len(buffer) - position))
            if not data and buffer[position:].strip():
                raise UnreadableDocument(f"{name} is damaged: its list of conversations does not end.") from error
            if not data:
                return
            buffer, position = buffer[position:] + utf8.decode(data), 0


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
