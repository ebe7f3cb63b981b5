"""Reads subtitles (.srt, .vtt) and exported conversations with assistants (JSON)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any, BinaryIO, cast

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, date_fields, make_document, one_line, read_member
from localmcp.readers.encodings import decode_text
from localmcp.readers.markdown import code_fence
from localmcp.readers.worker import begin_member

PARAGRAPH_SECONDS = 30
"""Captions of about this long are one paragraph with one time."""

_CUE = re.compile(r"(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d{1,3}[ \t]+-->")
_TAGS = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]{0,50}\}")
_SPEAKER = re.compile(r"<v(?:\.[\w.]+)?[ \t]+([^<>\n]{1,100})>")
_BLOCK = 1 << 20


def read_subtitles(data: bytes, name: str) -> Document:
    """Return what is said, each paragraph behind the time at which it begins: `[0:01:30] …`."""
    text, metadata = decode_text(data)
    paragraphs = [
        f"[{start // 3600}:{start // 60 % 60:02}:{start % 60:02}] {' '.join(lines)}"
        for start, lines in _paragraphs(text)
    ]
    if not paragraphs:
        raise UnreadableDocument(f"{name} holds no subtitles.")
    return make_document(name, "\n\n".join(paragraphs), "subtitles", "plain", "text", metadata=metadata)


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    begin, lines, last = 0, list[str](), ""
    for seconds, words in _cues(text):
        if lines and (seconds - begin >= PARAGRAPH_SECONDS or seconds < begin):
            yield begin, lines
            lines = []
        begin = begin if lines else seconds
        # Captions that roll repeat the line before.
        fresh = [line for line in words if line != last]
        lines += fresh
        last = words[-1] if words else last
    if lines:
        yield begin, lines


def _cues(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (seconds, lines) of each caption; numbers, styles and notes are left out."""
    for block in re.split(r"\r?\n[ \t]*\r?\n", text):
        lines = block.strip().splitlines()
        at = next((number for number, line in enumerate(lines[:3]) if _CUE.search(line)), None)
        if at is None:
            continue
        match = _CUE.search(lines[at])
        assert match
        seconds = int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3])
        spoken = (unescape(_TAGS.sub("", _SPEAKER.sub(r"\1: ", line))).strip() for line in lines[at + 1 :])
        yield seconds, [" ".join(line.split()) for line in spoken if line]


def looks_like_conversations(head: bytes, name: str) -> bool:
    """Return whether a file is an export of ChatGPT or Claude: a list of conversations."""
    named = re.fullmatch(r"conversations.{0,20}\.json", name, re.I)
    return bool(named and head.lstrip()[:1] == b"[" and re.search(rb'"(?:mapping|chat_messages)"\s*:', head))


def read_conversations(file: BinaryIO, name: str) -> Iterator[Document]:
    """Yield a document a conversation, without holding more than one of them."""
    for number, value in enumerate(_array_items(file, name)):
        conversation: Any = cast("Any", value if isinstance(value, dict) else {})
        member = one_line(str(conversation.get("uuid") or conversation.get("id") or ""))
        member = member or one_line(str(conversation.get("conversation_id") or f"conversation {number + 1}"))
        begin_member(member)
        yield read_member(partial(_conversation, conversation, name), member)


def _array_items(file: BinaryIO, name: str) -> Iterator[Any]:
    """Yield the items of a JSON list one by one."""
    decoder, utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")("replace")
    buffer, position, block = "", 0, _BLOCK
    while True:
        match = re.compile(r"[\s,\[]*").match(buffer, position)
        position = match.end() if match else position
        try:
            if position >= len(buffer):
                raise ValueError
            if buffer[position] == "]":
                return
            item, position = decoder.raw_decode(buffer, position)
        except ValueError as error:
            data = file.read(block)
            if not data:
                if buffer[position:].strip():
                    raise UnreadableDocument(f"{name} is damaged: its list of conversations does not end.") from error
                return
            buffer, position = buffer[position:] + utf8.decode(data), 0
            # Each try reads the item again from its beginning: twice as much each time keeps that linear.
            block = max(_BLOCK, len(buffer))
            continue
        yield item


def _conversation(conversation: Any, name: str) -> Document:
    turns = list(_chatgpt_turns(conversation) if "mapping" in conversation else _claude_turns(conversation))
    text = "\n\n".join(f"{speaker}{f' ({when})' if when else ''}:{_below(words)}" for speaker, when, words in turns)
    created = _moment(conversation.get("create_time") or conversation.get("created_at"))
    date = _moment(conversation.get("update_time") or conversation.get("updated_at")) or created
    metadata = {key: value for key, value in (("date", date), ("created", created)) if value}
    metadata["speakers"] = ", ".join(dict.fromkeys(speaker for speaker, _, _ in turns))
    title = str(conversation.get("title") or conversation.get("name") or "")
    fields: dict[str, Any] = {"title": title or "Conversation", "metadata": metadata, **date_fields(date, "export")}
    return make_document(title or name, text, "conversation", "markdown", "text", **fields)


def _below(words: str) -> str:
    """Return words as they follow a speaker: a fence begins a line, else its end would be taken for a beginning."""
    return f"\n\n{words}" if words.startswith(("```", "~~~")) else f" {words}"


def _chatgpt_turns(conversation: Any) -> Iterator[tuple[str, str, str]]:
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
        words = _chatgpt_words(message.get("content") or {}, role) if role in _SPEAKERS else ""
        if words:
            yield _SPEAKERS[role], _moment(message.get("create_time"))[:10], words


_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}
_CODE = {"code": "text", "execution_output": "text", "tether_quote": "text"}
"""Kinds of content that are not made of parts -> the field with their text."""


def _chatgpt_words(content: Any, role: str) -> str:
    """Return what a message says: its parts, speech that was transcribed, a cell of code or a canvas.

    Of a tool only what it computed or quoted: the rest are receipts.
    """
    kind: str = content.get("content_type") or ""
    if kind in _CODE:
        return _code_words(str(content.get(_CODE[kind]) or ""), str(content.get("language") or ""))
    parts: list[Any] = [] if role == "tool" else content.get("parts") or []
    texts = (part.get("text") if isinstance(part, dict) else part for part in cast("list[dict[str, Any] | str]", parts))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip()).strip()


def _code_words(text: str, language: str) -> str:
    """Return code in a fence; of a canvas, which is a call with JSON, its name and text."""
    try:
        canvas: Any = json.loads(text)
        edits: Any = canvas.get("updates") or []
        name, body = canvas.get("name", ""), canvas.get("content") or "\n\n".join(edit["replacement"] for edit in edits)
    except (ValueError, KeyError, TypeError, AttributeError):
        language = "" if language == "unknown" else language
        return code_fence(text.strip(), language) if text.strip() else ""
    return f"{one_line(str(name))}\n\n{body}".strip()


def _claude_turns(conversation: Any) -> Iterator[tuple[str, str, str]]:
    messages: Any = conversation.get("chat_messages") or []
    for message in messages:
        content: Any = message.get("content") or []
        parts: list[Any] = [_claude_part(part) for part in content]
        words = "\n\n".join(part for part in parts if part) or str(message.get("text") or "")
        attachments: list[Any] = message.get("attachments") or []
        for attachment in attachments:
            if text := str(attachment.get("extracted_content") or ""):
                words += f"\n\nAttached {attachment.get('file_name') or 'file'}:\n\n{text}"
        if words.strip():
            speaker = "User" if message.get("sender") == "human" else "Assistant"
            yield speaker, _moment(message.get("created_at"))[:10], words.strip()


def _claude_part(part: Any) -> str:
    """Return what a part of a message says; of an artifact its title and text."""
    call: Any = part.get("input") if part.get("type") == "tool_use" else None
    if isinstance(call, dict) and part.get("name") == "artifacts":
        artifact = cast("dict[str, Any]", call)
        return "\n\n".join(str(artifact[key]) for key in ("title", "content", "new_str") if artifact.get(key))
    return str(part.get("text") or "") if part.get("type") == "text" else ""


def _moment(value: Any) -> str:
    """Return a time as seconds since 1970 or ISO 8601 as ISO 8601; "" for neither."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
        return datetime.fromisoformat(str(value)).isoformat() if value else ""
    except (ValueError, OverflowError, OSError):
        return ""
