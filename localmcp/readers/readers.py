"""Turns a file of any supported format into one text that can be chunked, searched and cited.

Text formats keep their decoded text, without what colors it in a terminal; the others are rendered as Markdown (PDF:
plain text). A reader executes nothing, follows no link and contacts no host; what it unpacks is bounded.
"""

import gzip
import hashlib
import io
import logging
import re
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath, PureWindowsPath
from typing import BinaryIO

from localmcp.errors import LocalMCPError, ScannedDocument, UnreadableDocument
from localmcp.readers import html, mail, markdown, office, pdf
from localmcp.readers.document import (
    HEAD,
    Document,
    Reader,
    damaged,
    decode_text,
    looks_like_text,
    make_document,
    title_among,
)
from localmcp.readers.outline import scan_underlined
from localmcp.readers.packages import ARCHIVES, OLE_MAGIC, in_megabytes, most_unpacked, read_archive, suffix_of

logger = logging.getLogger(__name__)

MAX_BYTES = 50_000_000
ARCHIVE = "archive; add it by its path to read what is in it"


@dataclass(frozen=True, slots=True)
class Choice:
    """How a file is read: decided once, by its first bytes and its name."""

    read: Reader | None = None
    """Makes one document of the bytes; None for a container."""
    container: str = ""
    """mailbox, conversations, archive or mail, whose documents come one by one."""
    is_gzip: bool = False
    """`read` gets what is inside, by the name without `.gz`."""
    why_not: str = ""
    """Why it is not worth reading."""

    def why_skipped(self, size: int, max_bytes: int = MAX_BYTES) -> str | None:
        """Return why a file of that size is not worth reading; None when it is."""
        if size == 0:
            return "empty file"
        # The others are never held as a whole, so that they may be of any size.
        if size > max_bytes and self.container in ("", "mail"):
            return f"larger than {in_megabytes(max_bytes)} (setting max_file_mb)"
        return self.why_not or None


def choose_reader(head: bytes, name: str, *, archive: bool = False) -> Choice:
    """Return how a file is read whose first HEAD bytes are these; `archive`: .zip and .tar files as folders."""
    suffix = suffix_of(name)
    if name.lower().endswith(ARCHIVES):
        return Choice(container="archive") if archive else Choice(why_not=ARCHIVE)
    if suffix == ".gz":
        try:
            inside = zlib.decompressobj(wbits=31).decompress(head, HEAD)
        except zlib.error:  # Which reading it reports.
            inside = b""
        inner = choose_reader(inside, name[:-3])
        why_not = "compressed file" if inner.is_gzip else inner.why_not
        return Choice(inner.read or _read_plain, is_gzip=True, why_not=why_not)
    is_export = re.fullmatch(r"conversations.{0,20}\.json", name, re.I)
    if is_export and head.lstrip()[:1] == b"[" and re.search(rb'"(?:mapping|chat_messages)"\s*:', head):
        return Choice(container="conversations")
    like = mail.looks_like_mail(head)
    if suffix == ".mbox" or (suffix in ("", ".mbx", ".mail") and like == "mailbox"):
        return Choice(container="mailbox")
    named, text = FORMATS.get(name.lower()) or FORMATS.get(suffix), looks_like_text(head)
    reader, why_not = named, ""
    if head.startswith(b"%PDF-"):
        # Content that announces itself is read as what it is, whatever its name.
        reader = pdf.read_pdf
    elif head.startswith(b"{\\rtf"):
        reader = office.read_rtf
    elif not named or (named is office.read_old_office and not head.startswith(OLE_MAGIC)):
        interpreter = re.match(rb"#![ \t]*/\S*/(?:env[ \t]+(?:-S[ \t]+)?)?([a-zA-Z]+)", head)
        reader = html.read_html if re.match(rb"\s*<(!doctype\s+html|html)\b", head, re.I) else _read_plain
        if interpreter:
            program = interpreter[1].decode()
            language = "shell" if program.endswith("sh") else program.replace("node", "javascript")
            reader = _reader_as("code", language=language)
        elif re.search(rb"(?m)^\.(?:TH|Dt)[ \t]", head):
            reader = markdown.read_man_page
        elif re.match(rb"(?:\xef\xbb\xbf)?\s*BEGIN:V(?:CALENDAR|CARD)\b", head, re.I):
            reader = markdown.read_calendar
    looks_binary = not text or (head.startswith(_BINARY_STARTS) and b"\0" in head)
    # Programs write text, pages and rich text under the endings of others.
    is_binary = suffix in _BINARY or (suffix in pdf.PICTURES and pdf.installed_engine())
    if suffix in (".doc", ".ppt") and not text and not office.old_office_program(suffix):
        why_not = f"old Office file; install LibreOffice, or save it as {suffix}x"
    elif suffix in _NO_READER and (not text or suffix in (".svg", ".eps", ".ps")):
        why_not = f"no reader for {suffix} ({_NO_READER[suffix]})"
    elif looks_binary and not is_binary and reader is not pdf.read_pdf:
        why_not = "binary file" if named else f"no reader for {suffix or 'binary files'}"
    if suffix == ".msg" and head.startswith(OLE_MAGIC):
        return Choice(container="mail")
    if suffix == ".eml" or (named is None and like == "mail"):
        return Choice(container="mail", why_not=why_not)
    return Choice(reader, why_not=why_not)


def read_bytes(data: bytes, name: str, *, recognize: Container[str] | None = None) -> Document:
    """Return the document in the bytes of a file called `name`, or the first one of a container; as `read_documents`.

    UnreadableDocument says why it cannot be turned into text.
    """
    name = PurePosixPath(PureWindowsPath(name).as_posix()).name
    document = next(read_documents(io.BytesIO(data), name, recognize=recognize), None)
    if document is None or document.failure:
        raise UnreadableDocument(document.failure if document else f"{name} is empty.")
    return document


def read_documents(
    file: BinaryIO, name: str, choice: Choice | None = None, *, max_bytes: int = MAX_BYTES, archive: bool = False,
    recognize: Container[str] | None = None,
) -> Iterator[Document]:  # fmt: skip
    """Yield the documents in an open file: one, or those of a container (mail, mailbox, conversations, archive).

    Args:
        choice: how it is read, if that is decided.
        max_bytes: of the file, or of each member of a container. A member that cannot be read has a `failure`.
        archive: read .zip and .tar files as folders, but not those inside them: what they unpack to stays bounded.
        recognize: read scans and pictures by text recognition, at seconds a page, but not those with these digests.

    Raises:
        UnreadableDocument: why the file as a whole cannot be turned into text.
    """
    file.seek(0)
    head = file.read(HEAD)
    file.seek(0)
    if not head:
        raise UnreadableDocument(f"{name} is empty.")
    choice = choice or choose_reader(head, name, archive=archive)
    read_attached = partial(read_bytes, recognize=recognize)
    if choice.container == "mailbox":
        yield from mail.read_mailbox(file, name, read_attached, max_bytes)
    elif choice.container == "conversations":
        yield from markdown.read_conversations(file, name)
    elif choice.container == "archive":
        yield from read_archive(file, name, partial(read_documents, recognize=recognize), max_bytes)
    else:
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise UnreadableDocument(f"{name} is larger than {in_megabytes(max_bytes)}.")
        if choice.container == "mail":
            message = mail.outlook_mail(data, name) if data.startswith(OLE_MAGIC) else data
            yield from mail.read_mail(message, name, read_attached)
        elif choice.read and not choice.why_not:
            yield _read(data, name, choice, max_bytes, recognize)
        else:
            # Nobody can add by its path what is in a mail or in an archive.
            reason = "archive in another file" if choice.why_not == ARCHIVE else choice.why_not
            raise UnreadableDocument(f"{name} cannot be read: {reason}.")


def read_text(text: str, title: str) -> Document:
    """Return a document from Markdown handed over by a tool call; an empty title is taken from the text."""
    text = text.removeprefix("\ufeff")
    front, heading, _ = markdown.markdown_head(text)
    title = title.strip() or heading
    return make_document(title or "untitled", text, "markdown", "markdown", "text", title=title, metadata=front)


def _read(data: bytes, name: str, choice: Choice, max_bytes: int, recognize: Container[str] | None) -> Document:
    assert choice.read
    try:
        if choice.is_gzip:
            name = name[:-3]
            most = min(max_bytes, most_unpacked(len(data), max_bytes))
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(most + 1)
            if len(data) > most:
                raise UnreadableDocument(f"{name} is larger than {in_megabytes(most)} once decompressed.")
        try:
            return choice.read(data, name)
        except ScannedDocument:
            if recognize is None:
                raise
            digest = hashlib.sha256(data).hexdigest()[:16]
            if digest in recognize:
                raise ScannedDocument("its text was recognized before") from None
            return pdf.read_scan(data, name, digest)
    except LocalMCPError:
        raise
    except Exception as error:  # The parsers of other projects raise anything on a broken file.
        logger.debug("%s cannot be read", name, exc_info=True)
        raise damaged(name, error) from error


# ---------------------------------------------------------------- which reader

_NO_READER = {
    ".pst": "Outlook mailbox; export it as .mbox",
    ".pages": "Apple Pages; export it as .docx",
    ".numbers": "Apple Numbers; export it as .xlsx",
    ".mobi": "Kindle book; convert it to .epub",
    ".azw3": "Kindle book; convert it to .epub",
    ".svg": "SVG image",
    ".eps": "PostScript",
    ".ps": "PostScript",
}
"""Suffix -> what it is, and what to do instead."""
_BINARY_STARTS = (b"PK\3\4", b"\x1f\x8b", b"Rar!", b"\x7fELF", b"MZ\x90", b"SQLite format 3\0", b"ID3", OLE_MAGIC)
"""How files begin that may look like text further on."""


def _reader_as(kind: str, *, language: str = "", within: int = 0) -> Reader:
    """Return a reader that keeps the text as it is; an underlined title counts in the first `within` characters."""

    def reader(data: bytes, name: str) -> Document:
        text, metadata = decode_text(data)
        if language:
            fields = {"title": name, "metadata": metadata | {"language": language}}
            return make_document(name, text, kind, "code", "text", **fields)
        if "\x1b" in text or "\x08" in text:
            # Colors, and letters struck over for bold and underlined ones.
            text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|[^\n]\x08", "", text)
        # The first underlined line, if it is near the beginning, and of no series: as the releases of a changelog.
        is_titled = any(scan_underlined(text[:within]))
        title = title_among(heading.title for heading in scan_underlined(text[:100_000])) if is_titled else ""
        source_type = "docs" if kind == "rst" else "text"
        return make_document(name, text, kind, "plain", source_type, title=title, metadata=metadata)

    return reader


_read_plain = _reader_as("text", within=300)

_LANGUAGE_FILES = """
assembly .asm .s | batch .bat .cmd | c .c .h | clojure .clj .cljs .cljc .edn | cmake .cmake cmakelists.txt
cpp .cpp .cc .cxx .hpp .hh .hxx .ino | csharp .cs .csx | css .css .scss .sass .less | cuda .cu .cuh | dart .dart
dockerfile dockerfile containerfile | elixir .ex .exs | elm .elm | erlang .erl .hrl | fortran .f .f90 .f95
fsharp .fs .fsx | go .go | graphql .graphql .gql | groovy .groovy .gradle jenkinsfile | haskell .hs | hcl .tf .hcl
ini .ini .cfg .conf .properties | java .java | javascript .js .mjs .cjs .jsx | julia .jl | kotlin .kt .kts
lisp .lisp .el .scm .rkt | lua .lua | makefile .mk makefile gnumakefile justfile | matlab .m | nim .nim | nix .nix
objective-c .mm | ocaml .ml .mli | pascal .pas | perl .pl .pm | php .php | powershell .ps1 .psm1 | protobuf .proto
python .py .pyi .pyw .pyx | r .r | ruby .rb .rake .gemspec gemfile rakefile vagrantfile brewfile | rust .rs
scala .scala .sc | shell .sh .bash .zsh .fish | solidity .sol | sql .sql | svelte .svelte | swift .swift | toml .toml
typescript .ts .tsx .mts .cts | vb .vb .bas | verilog .v .sv | vhdl .vhd .vhdl | vue .vue | xml .xml .xsd .xsl .plist
yaml .yaml .yml | zig .zig
"""
"""A language, and the suffixes and names of its files."""
_LANGUAGES = (entry.split() for entry in _LANGUAGE_FILES.replace("\n", "|").split("|") if entry.strip())
_BINARY: dict[str, Reader] = {
    ".pdf": pdf.read_pdf,
    **dict.fromkeys((".docx", ".docm"), office.read_docx),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), office.read_pptx),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"), office.read_sheets),
    **dict.fromkeys((".doc", ".ppt"), office.read_old_office),
    ".epub": html.read_epub,
    ".odt": office.read_odt,
    ".odp": office.read_odp,
    ".webarchive": mail.read_webarchive,
}
FORMATS: dict[str, Reader] = {
    **{file: _reader_as("code", language=language) for language, *files in _LANGUAGES for file in files},
    **dict.fromkeys((".md", ".markdown", ".mdx", ".mdown", ".mkd", ".qmd", ".rmd"), markdown.read_markdown),
    **dict.fromkeys((".txt", ".text", ".log"), _read_plain),
    **dict.fromkeys((".srt", ".vtt"), markdown.read_subtitles),
    **dict.fromkeys(markdown.HEADED, markdown.read_headed),
    **dict.fromkeys((".mhtml", ".mht"), mail.read_mhtml),
    **dict.fromkeys((".rst", ".rest"), _reader_as("rst", within=5000)),
    **dict.fromkeys((".html", ".htm", ".xhtml"), html.read_html),
    **dict.fromkeys((".json", ".jsonc", ".json5", ".geojson"), _reader_as("json")),
    **dict.fromkeys((".jsonl", ".ndjson"), _reader_as("jsonl")),
    **dict.fromkeys((".csv", ".tsv"), _reader_as("csv")),
    ".ipynb": markdown.read_notebook,
    ".rtf": office.read_rtf,
    **dict.fromkeys(pdf.PICTURES, pdf.read_picture),
    **dict.fromkeys("license licence copying notice authors readme changelog changes news todo".split(), _read_plain),
    **_BINARY,
}
"""Lower-case suffix or whole name to reader, the name first; any other file that looks like text is plain text."""
