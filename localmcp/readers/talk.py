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
    paragraphs: list[tuple[int, list[str]]] = []
    last = ""
    for seconds, lines in _cues(text):
        begin = paragraphs[-1][0] if paragraphs else -PARAGRAPH_SECONDS
        if not begin <= seconds < begin + PARAGRAPH_SECONDS:
            paragraphs.append((seconds, []))
        # Captions that roll repeat the line before.
        paragraphs[-1][1].extend(line for line in lines if line != last)
        last = lines[-1] if lines else last
    if not any(lines for _, lines in paragraphs):
        raise UnreadableDocument(f"{name} holds no subtitles.")
    spoken = "\n\n".join(
        f"[{begin // 3600}:{begin // 60 % 60:02}:{begin % 60:02}] {' '.join(lines)}"
        for begin, lines in paragraphs
        if lines
    )
    return make_document(name, spoken, "subtitles", "plain", "text", metadata=metadata)


def _cues(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (seconds, lines) of each caption; numbers, styles and notes are left out."""
    for block in re.split(r"\r?\n[ \t]*\r?\n", text):
        lines = block.strip().splitlines()
        for number, line in enumerate(lines[:3]):
            if match := _CUE.search(line):
                seconds = int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3])
                said = (unescape(_TAGS.sub("", _SPEAKER.sub(r"\1: ", line))) for line in lines[number + 1 :])
                yield seconds, [" ".join(line.split()) for line in said if line.strip()]
                break


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
        except ValueError as error:
            # Each try reads the item again from its beginning: twice as much each time keeps that linear.
            data = file.read(max(1 << 20, len(buffer) - position))
            if not data and buffer[position:].strip():
                raise UnreadableDocument(f"{name} is damaged: its list of conversations does not end.") from error
            if not data:
                return
            buffer, position = buffer[position:] + utf8.decode(data), 0
            continue
        yield item


def _conversation(conversation: dict[str, Any], name: str) -> Document:
    turns = list(_chatgpt_turns(conversation) if "mapping" in conversation else _claude_turns(conversation))
    text = "\n\n".join(f"{speaker}{f' ({when[:10]})' if when else ''}:{words}" for speaker, when, words in turns)
    created = _moment(conversation.get("create_time") or conversation.get("created_at"))
    date = _moment(conversation.get("update_time") or conversation.get("updated_at")) or created
    metadata = {key: value for key, value in (("date", date), ("created", created)) if value}
    metadata["speakers"] = ", ".join(dict.fromkeys(speaker for speaker, _, _ in turns))
    title = str(conversation.get("title") or conversation.get("name") or "")
    fields = {"title": title or "Conversation", "metadata": metadata, "date": date, "date_from": "export"}
    return make_document(title or name, text, "conversation", "markdown", "text", **fields)


def _below(words: str) -> str:
    """Return words as they follow a speaker: a fence begins a line, else its end would be taken for a beginning."""
    return f"\n\n{words}" if words.startswith(("```", "~~~")) else f" {words}"


_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}


def _chatgpt_turns(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Follow the branch that was last open, from its end back to the beginning."""
    mapping, node = conversation["mapping"], conversation.get("current_node")
    if node not in mapping:
        node = next(reversed(mapping), None)
    branch: list[Any] = []
    while node in mapping and len(branch) <= len(mapping):
        branch.append(mapping[node].get("message"))
        node = mapping[node].get("parent")
    for message in reversed(branch):
        role: str = message["author"]["role"] if message else ""
        if role in _SPEAKERS and (words := _chatgpt_words(mapping_of(message.get("content")), role)):
            yield _SPEAKERS[role], _moment(message.get("create_time")), _below(words)


def _chatgpt_words(content: dict[str, Any], role: str) -> str:
    """Return what a message says: its parts, or code; of a tool only what it computed or quoted."""
    if content.get("content_type") in ("code", "execution_output", "tether_quote"):
        language = str(content.get("language") or "").removeprefix("unknown")
        text = str(content.get("text") or "").strip()
        return code_fence(text, language) if text else ""
    parts = [] if role == "tool" else list_of(content.get("parts"))
    texts = (mapping_of(part).get("text", "" if isinstance(part, dict) else part) for part in parts)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip()).strip()


def _claude_turns(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for message in map(mapping_of, list_of(conversation.get("chat_messages"))):
        parts = [_claude_part(mapping_of(part)) for part in list_of(message.get("content"))]
        words = "\n\n".join(filter(None, parts)) or str(message.get("text") or "")
        for attachment in map(mapping_of, list_of(message.get("attachments"))):
            if text := str(attachment.get("extracted_content") or ""):
                words += f"\n\nAttached {attachment.get('file_name') or 'file'}:\n\n{text}"
        if words.strip():
            speaker = "User" if message.get("sender") == "human" else "Assistant"
            yield speaker, _moment(message.get("created_at")), _below(words.strip())


def _claude_part(part: dict[str, Any]) -> str:
    """Return what a part of a message says; of an artifact its title and text."""
    artifact = mapping_of(part.get("input")) if part.get("name") == "artifacts" else {}
    texts = [part["text"]] if part.get("type") == "text" and part.get("text") else []
    texts += [artifact[key] for key in ("title", "content", "new_str") if artifact.get(key)]
    return "\n\n".join(map(str, texts))


def _moment(value: Any) -> str:
    """Return a time as seconds since 1970 or ISO 8601 as ISO 8601; "" for neither."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
        return datetime.fromisoformat(str(value)).isoformat() if value else ""
    except (ValueError, OverflowError, OSError):
        return ""
