"""Reads Markdown, text that marks its headings in other ways, and what programs export as text; writes Markdown."""

import codecs
import json
import logging
import quopri
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from html import unescape
from importlib import import_module
from typing import Any, BinaryIO, cast

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import (
    HEAD,
    Document,
    decode_text,
    iso_date,
    json_value,
    make_document,
    one_line,
    read_member,
    set_fields,
    title_among,
)
from localmcp.readers.outline import scan_markdown
from localmcp.readers.packages import suffix_of
from localmcp.schemas import list_of, mapping_of

logger = logging.getLogger(__name__)

_CODE = re.compile(r"(?ms)^[ ]{0,3}(```|~~~).*?^[ ]{0,3}\1|`[^`\n]+`")
_TAG = re.compile(r"(?:^|(?<=[\s(])(?<!\]: )(?<!\]\())#([^\W\d_][\w/-]*)(?=[\s.,;:!?)]|$)", re.M)
_WIKI_LINK = re.compile(r"!?\[\[([^\]|#\n]{1,200})(?:#[^\]|\n]{0,200})?(?:\|[^\]\n]{0,200})?\]\]")


def read_markdown(data: bytes, name: str) -> Document:
    """Return Markdown with its front matter, tags and wiki links as metadata."""
    text, metadata = decode_text(data)
    front, title, remark = markdown_head(text)
    dates = (iso_date(front.get(key)) for key in ("date", "updated", "modified", "last_modified", "created"))
    tags: Any = front.get("tags") or front.get("tag")
    listed: Any = re.split(r"[,\s]+", tags) if isinstance(tags, str) else tags
    prose = _CODE.sub("", text[:1_000_000]) if "[[" in text or "#" in text else ""
    named = [*(str(tag).lstrip("#") for tag in list_of(listed)), *(match[1] for match in _TAG.finditer(prose))]
    links = [one_line(match[1]) for match in _WIKI_LINK.finditer(prose)]
    # At most 100 of one note are kept.
    noted = {"tags": list(dict.fromkeys(filter(None, named)))[:100], "links": list(dict.fromkeys(links))[:100]}
    metadata = front | {key: value for key, value in noted.items() if value} | metadata
    date = next(filter(None, dates), "")
    return make_document(
        name, text, "markdown", title=title, metadata=metadata, date=date, date_from="front matter", remark=remark
    )


def markdown_head(text: str) -> tuple[dict[str, Any], str, str]:
    """Return the front matter, the title it names or else the first heading, and which of its lines is none."""
    match = re.match(r"---[ \t]*\r?\n(.{0,65536}?)^(?:---|\.\.\.)[ \t]*\r?$", text, re.S | re.M)
    front, remark = _read_yaml(match[1]) if match else {}, ""
    if match and front is None:
        # One value that is not YAML does not take the others with it: each key is read with the lines below it.
        front = dict[str, Any]()
        for entry in re.split(r"\n(?=[^\s#-])", match[1]):
            values = _read_yaml(entry)
            if values is None:
                key, _, value = entry.partition(":")
                values = {key.strip(): one_line(value)} if value.strip() else {}
                remark = remark or f"this in its front matter was read as plain text: {one_line(entry)}"
            front |= values
    front = front or {}
    title, start = front.get("title"), match.end() if match else 0
    named = str(title) if title and not isinstance(title, list | dict) else ""
    return front, named or first_heading(text[start : start + 10_000]), remark


def _read_yaml(text: str) -> dict[str, Any] | None:
    """Return the values of a mapping, {} for other YAML, None for none.

    `*name` refers to a value before, which grows a few lines into millions of values; people mean a pattern by it.
    """
    yaml = import_module("yaml")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # That in C is several times as fast.
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > 20 or isinstance(event, yaml.AliasEvent):
                return None
        front: Any = json_value(yaml.load(text, loader))
    except Exception as error:  # The parser raises anything on odd values.
        logger.debug("front matter is not YAML: %s", error)
        return None
    return cast("dict[str, Any]", front) if isinstance(front, dict) else {}


def first_heading(markdown: str) -> str:
    """Return the first heading of the highest level as plain text.

    "" if there is none, it is one of a series, or one of several sections: `## To do` before `## Done`.
    """
    marked, fences = scan_markdown(markdown)
    headings = [(heading.start, heading.level, heading.title) for heading in marked if heading.title]
    # With one in HTML many a README begins.
    for match in re.finditer(r"(?is)<h1\b[^<>]{0,500}>((?:(?!\n[ \t]*\n).){0,500}?)</h1>", markdown):
        words = " ".join(unescape(re.sub(r"<[^<>]*>", " ", match[1])).split())
        if words and not any(start <= match.start() < stop for start, stop in fences):
            headings.append((match.start(), 1, words))
            break
    highest = min((level for _, level, _ in headings), default=1)
    titles = [title for _, level, title in sorted(headings) if level == highest]
    if highest > 1 and len(titles) > 1:
        return ""
    return title_among(titles)


RAISED = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
"""Digits in superscript, of which Markdown has none: else a power becomes a digit of its base."""


def read_notebook(data: bytes, name: str) -> Document:
    """Markdown cells as they are, code cells as fences; outputs are left out."""
    notebook = json.loads(decode_text(data)[0])
    language = str(notebook.get("metadata", {}).get("language_info", {}).get("name", "python"))
    blocks: list[str] = []
    for cell in notebook.get("cells", ()):
        text = "".join(cell["source"]).strip("\n")
        is_code = cell["cell_type"] == "code" and text.strip()
        blocks.append(code_fence(text, language) if is_code else text)
    text = "\n\n".join(filter(None, blocks))
    metadata = {"language": one_line(language)}
    return make_document(name, text, "notebook", title=first_heading(text[:10_000]), metadata=metadata)


def code_fence(code: str, language: str = "") -> str:
    """Return code in a fence that nothing in it ends."""
    marks = "`" * (1 + max((len(run) for run in re.findall("`{3,}", code)), default=2))
    return f"{marks}{language}\n{code}\n{marks}"


def pipe_table(rows: list[list[str]]) -> str:
    """Return rows as a table whose first row is its head."""
    rows = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows if any(row)]
    width = max(map(len, rows), default=0)
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
    lines[1:1] = ["|" + " --- |" * width] if lines else []
    return "\n".join(lines)


# ---------------------------------------------------------------- Org, AsciiDoc and LaTeX

HEADED = {".org": "org", ".adoc": "asciidoc", ".asciidoc": "asciidoc", ".tex": "latex", ".ltx": "latex"}
"""Suffixes of text that `read_headed` reads, and its format."""
_LATEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_HEADED_LINES = {
    "org": (r"(\*{1,6})[ \t]+(.*?)(?:[ \t]+:[\w@:]+:)?[ \t]*", r"[ \t]*#\+(?:begin|end)_(?:src|example)\b.*"),
    "asciidoc": (r"(={1,6})[ \t]+(\S.*)", r"(?:-{4,}|\.{4,})[ \t]*"),
    "latex": (
        rf"[ \t]*\\({'|'.join(_LATEX_LEVELS)})\*?(?:\[[^]\n]*\])?\{{((?:[^{{}}\n]|\{{[^{{}}\n]*\}})*)\}}[ \t]*"
        r"(?:\\label\{[^{}\n]*\}[ \t]*)?(?:%.*)?",
        r"[ \t]*\\(?:begin|end)\{(?:verbatim|lstlisting)\}.*",
    ),
}
"""Format -> a heading, and the line above and below a listing."""
_FIELD = re.compile(r"(?im)^(?:#\+|\\|:)(title|date|revdate)(?::[ \t]*(.+)|\{((?:[^{}]|\{[^{}\n]*\}){0,500})\}.*)$")


def read_headed(data: bytes, name: str) -> Document:
    """Return text of Org, AsciiDoc or LaTeX line by line, its headings and listings as those of Markdown."""
    text, metadata = decode_text(data)
    kind, text = HEADED[suffix_of(name)], text.replace("\r\n", "\n")
    line, fence = _HEADED_LINES[kind]
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text):
        # Without the commands in a title of LaTeX.
        value = match[2] or re.sub(r"\\\\|\\[A-Za-z]+|[{}~]", " ", match[3] or "")
        fields.setdefault(match[1].lower().removeprefix("rev"), value.strip())

    def heading(match: re.Match[str]) -> str:
        level = len(match[1]) if kind != "latex" else max(_LATEX_LEVELS.index(match[1]), 1)
        return f"{'#' * level} {match[2]}"

    parts = re.sub(rf"(?im)^{fence}$", "```", text).split("```")
    parts[::2] = [re.sub(rf"(?m)^{line}$", heading, part) for part in parts[::2]]
    text = "```".join(parts)
    title, date = fields.get("title") or first_heading(text[:10_000]), iso_date(fields.get("date", ""))
    return make_document(name, text, kind, title=title, metadata=metadata, date=date, date_from="front matter")


# ---------------------------------------------------------------- manual pages

_MAN_HEADINGS = {"TH": "# ", "Dt": "# ", "SH": "## ", "Sh": "## ", "SS": "### ", "Ss": "### "}
_MAN_SIGNS = {
    **{"bu": "•", "em": "—", "en": "–", "aq": "'", "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "dq": '"', "->": "→"},
    **{"C`": '"', "C'": '"', 'L"': "“", 'R"': "”", "ti": "~", "ha": "^", "ga": "`", "rs": "\\", "e": "\\", "\\": "\\"},
    **{"~": " ", "0": " ", "-": "-", "hy": "-", "mi": "-", "'": "'", "`": "`", ".": ".", " ": " "},
}
_MAN_ESCAPE = re.compile(
    r"\\(?:\".*|[fmnFgkMVY](?:\(..|\[[^\]\n]*\]|.)|s[-+]?\d{1,2}|[hvwXZDlLboS]'[^'\n]*'"
    r"|\*?(?:\((..)|\[([^\]\n]*)\])|\*?(.)|$)"
)


def read_man_page(data: bytes, name: str) -> Document:
    """Return a manual page: its headings and words without the requests to the typesetter, line by line."""
    text, metadata = decode_text(data)

    def plain(words: str) -> str:
        return _MAN_ESCAPE.sub(lambda escape: _MAN_SIGNS.get(escape[1] or escape[2] or escape[3] or "", ""), words)

    # What a macro is defined as, and the other branch of a condition, are not printed.
    hidden = r"(?ms)^[.'][ \t]*(?:(?:de1?|am|ig)\b.*?^\.\.|el\b[^\n]*\\\{.*?^\.[ \t]*\\\})[ \t]*$"
    text = re.sub(hidden, lambda match: "\n" * match[0].count("\n"), text.replace("\r\n", "\n"))
    # Macros, besides headings, whose arguments are printed.
    printed = "B I SM SB BR RB BI IB IR RI IP Nm Nd Fl Ar Op It Pa Xr Ic Cm Em Sy Va Ev Li Dl Ql Fn Fa".split()
    title, date, heading, lines = "", "", "", list[str]()
    for line in text.split("\n"):
        request = re.fullmatch(r"[.'][ \t]*([^\s\\\"]*)[ \t]*(.*)", line)
        macro = request[1] if request else ""
        words = plain(line)
        if request:
            argument_matches = re.finditer(r'"([^"]*)"?|(\S+)', re.sub(r'\\".*', "", request[2]))
            arguments = [plain(match[1] or match[2] or "") for match in argument_matches]
            if macro in ("TH", "Dt") and not title:
                program, section, day, *_ = *arguments, "", "", ""
                title, date = f"{program.lower() if program.isupper() else program}({section})", iso_date(day)
                arguments = [title]
            # Words in two fonts touch.
            joint = "" if len(macro) == 2 and set(macro) <= set("BIR") else " "
            is_printed = macro in _MAN_HEADINGS or macro in printed
            words = joint.join(arguments[: 1 if macro == "IP" else None]) if is_printed else ""
        heading = _MAN_HEADINGS.get(macro, heading)
        if words:
            # What only looks like a heading of Markdown, or the underline of one, is indented.
            is_marked = not heading and (words.lstrip()[:1] == "#" or not words.strip("-= "))
            words, heading = heading + ("    " if is_marked else "") + words, ""
        lines.append(words)
    text = "\n".join(lines)
    return make_document(name, text, "man page", title=title, metadata=metadata, date=date, date_from="front matter")


# ---------------------------------------------------------------- calendars (RFC 5545), contacts (RFC 6350)

_ENTRY = re.compile(r"(?ims)^BEGIN:(VEVENT|VTODO|VJOURNAL|VCARD)[ \t]*\n(.*?)^END:\1")
_PROPERTY = re.compile(r'(?m)^(?:[\w-]+\.)?([A-Za-z-]+)((?:;[^:;"\n]*(?:"[^"\n]*"[^:;"\n]*)?)*):(.*)$')
_DATE = re.compile(r"^(\d{4})-?(\d\d)-?(\d\d)(?:T(\d\d):?(\d\d)(?::?\d\d)?)?")
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
    text = re.sub(r"\n[ \t]", "", re.sub(r"\r+\n", "\n", text))
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
    value = re.sub(r"\\([,;:\"\\nN])", lambda escape: " " if escape[1] in "nN" else escape[1], value)
    return name, " ".join(value.split())


# ---------------------------------------------------------------- subtitles

PARAGRAPH_SECONDS = 30
"""Captions of about this long are one paragraph with one time."""
_CUE = re.compile(r"(?m)^[ \t]*(?:\d+[ \t]+)?(?:(\d{1,3}):)?(\d\d?):(\d\d)[.,]\d{1,3}[ \t]+-->.*((?:\n.*\S.*)*)")
"""Its time, and the lines below it up to an empty one: numbers, styles and notes are left out."""
_SPEAKER = re.compile(r"<v(?:\.[\w.]+)?[ \t]+([^<>\n]{1,100})>")


def read_subtitles(data: bytes, name: str) -> Document:
    """Return what is said, each paragraph behind the time at which it begins: `[0:01:30] …`."""
    text, metadata = decode_text(data)
    paragraphs: list[str] = []
    begin, last = -PARAGRAPH_SECONDS, ""
    for cue in _CUE.finditer(re.sub(r"\r\n?", "\n", text)):
        seconds = int(cue[1] or 0) * 3600 + int(cue[2]) * 60 + int(cue[3])
        for line in cue[4].split("\n"):
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
            if not data:
                raise UnreadableDocument(f"{name} is damaged: its list of conversations does not end.") from error
            buffer, position = buffer[position:] + utf8.decode(data), 0
            continue
        number += 1
        conversation = mapping_of(value)
        names = (conversation.get(key) for key in ("uuid", "id", "conversation_id"))
        member = one_line(str(next(filter(None, names), f"conversation {number}")))
        yield read_member(partial(_conversation, conversation), member)


def _conversation(conversation: dict[str, Any]) -> Document:
    turns = list(_chatgpt_turns(conversation) if "mapping" in conversation else _claude_turns(conversation))
    text = "\n\n".join(f"{speaker}{f' ({when[:10]})' if when else ''}: {words}" for speaker, when, words in turns)
    # A fence begins a line, else its end would be taken for a beginning.
    text = re.sub(r"(?m)^((?:User|Assistant|Tool)(?: \([\d-]+\))?:) (?=```|~~~)", r"\1\n\n", text)
    created = _moment(conversation.get("create_time") or conversation.get("created_at"))
    date = _moment(conversation.get("update_time") or conversation.get("updated_at")) or created
    speakers = ", ".join(dict.fromkeys(speaker for speaker, _, _ in turns))
    metadata = set_fields(date=date, created=created, speakers=speakers)
    title = str(conversation.get("title") or conversation.get("name") or "Conversation")
    fields = {"title": title, "metadata": metadata, "date": date, "date_from": "export"}
    return make_document(title, text, "conversation", "markdown", "text", **fields)


def _chatgpt_turns(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield speaker, time and words along the branch that was last open."""
    mapping, node = conversation["mapping"], conversation.get("current_node")
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
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
        return datetime.fromisoformat(str(value)).isoformat() if value else ""
    except (ValueError, OverflowError, OSError):
        return ""
