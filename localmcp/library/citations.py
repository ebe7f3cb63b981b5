"""Citations: the place of a passage, whether its file is unchanged, and whether a quote is in the documents."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from typing import Annotated

from localmcp.errors import InvalidInput, NotFound
from localmcp.index.collections import visible_collections
from localmcp.index.federation import Federation, Wanted
from localmcp.index.passages import Passage, find_passage, passages_of_source
from localmcp.index.search import Index, SearchRequest
from localmcp.library.answers import lean_verification
from localmcp.library.ledger import check_freshness
from localmcp.library.names import resolve_chunk, resolve_source, shown_id
from localmcp.readers.outline import path_at
from localmcp.schemas import mapping_of
from localmcp.storage.database import fetch_one
from localmcp.tools import Json, Param, hidden_tool, without_none
from localmcp.wording.normalize import fold

SHEETS = ("xlsx", "xls", "xlsb", "ods")
_TALK = ("mail", "conversation")
_RENDERED = ("docx", "odt", "rtf", "epub", "html", "notebook", "calendar", "contacts", "feed")
"""Formats whose lines are those of the text that was made of them: nobody can look for them in the file."""
_ROW = re.compile(r"(?m)^(?!## ).+$")
"""A row of a sheet; the name of the sheet and the empty lines around names of columns are none."""
_HEADING_INSIDE = re.compile(r"\n {0,3}[#=~^\"*+-]")
"""What may begin a heading, or the line under one, below the first line of a passage."""
_TIME = re.compile(r"(?m)^\[(\d+:\d\d:\d\d)\]")
_SAME_SIGNS = ("'‘’‚‛′ʼ", '"“”„‟″«»', "-‐‑‒–—―−")
"""Signs that programs put for one another while people type."""
_PLAIN_SIGNS = str.maketrans({sign: signs[0] for signs in _SAME_SIGNS for sign in signs} | {"\u00ad": None})


def cite(passage: Passage, highlight: tuple[int, int] | None = None) -> Json:
    """Return where a passage, or the sentence in it that answers, is.

    `highlight`: start and stop of that sentence in `passage.text.strip()`. The label is for people: `path:line`,
    `path p. 3`, `path Prices rows 12-20`, or the title. Lines are rows in a workbook, pages are slides in a
    presentation; start and stop are code points in the document's text.
    """
    body, metadata = passage.text.strip(), passage.metadata
    start, stop = highlight or (0, len(body))
    first_line, last_line = _lines(passage, body, start, stop)
    citation: Json = {
        "label": "",
        "startLine": first_line,
        "endLine": last_line,
        "start": passage.start,
        "stop": passage.stop,
        "sha256": passage.sha256,
    }
    container = metadata.get("container")
    path = container if isinstance(container, str) else passage.uri
    if path:
        citation["path"] = path
    headings = tuple(passage.headings)
    has_headings = passage.format not in ("code", "json", "jsonl", "csv", "pdf")
    if has_headings and _HEADING_INSIDE.search(body, 0, start):
        headings = path_at(body, start, headings, underlined=passage.format in ("text", "rst", "mail"))
    if headings:
        citation["heading"] = " › ".join(headings)
    if passage.first_page is not None:
        citation["startPage"] = passage.first_page
        citation["endPage"] = passage.last_page or passage.first_page
    if passage.format == "subtitles" and (times := _TIME.findall(body[: start + 12])):
        citation["time"] = times[-1]
    if "ocr" in metadata:
        confidence = mapping_of(mapping_of(metadata["ocr"]).get("pages")).get(str(passage.first_page or 1))
        if isinstance(confidence, int | float):
            # It was read from a picture, and may hold misread letters.
            citation["ocr"], citation["confidence"] = True, round(float(confidence), 2)
    # A file inside another one is named as `box.zip#notes.md`, a mail or a conversation by its title.
    is_member = passage.uri != path and passage.format not in _TALK
    member = (passage.uri or "").removeprefix(path or "") if is_member else ""
    citation["label"] = (path or passage.title) + member + _place(passage, citation)
    return citation


def _lines(passage: Passage, body: str, start: int, stop: int) -> tuple[int, int]:
    """Return the first and the last line, or row of a sheet, of a part of a passage's text."""
    if passage.format in SHEETS:
        row_ends = [line.end() for line in _ROW.finditer(body)]
        if len(row_ends) != passage.last_line - passage.first_line + 1:
            # Rows without any value are not in the text, so which row a line is cannot be counted.
            return passage.first_line, passage.last_line
        before, until = (sum(end <= at for end in row_ends) for at in (start, stop - 1))
    else:
        before = count_line_ends(body[:start])
        until = before + count_line_ends(body[start:stop].rstrip())
    return min(passage.first_line + before, passage.last_line), min(passage.first_line + until, passage.last_line)


def count_line_ends(text: str) -> int:
    """Return how many lines end in a text, however they end."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _place(passage: Passage, citation: Json) -> str:
    """Return the place inside a file as people say it: ` p. 3`, ` slide 2`, ` Prices rows 12-20`, `:17`."""
    first, last = citation["startLine"], citation["endLine"]
    if passage.format in SHEETS:
        sheet = citation.get("heading", "").split(" › ")[-1]
        return f" {sheet} row {first}" if first == last else f" {sheet} rows {first}-{last}"
    if passage.first_page is not None:
        word = "slide" if passage.format in ("pptx", "odp") else "p."
        crossing = f"-{passage.last_page}" if passage.last_page and passage.last_page > passage.first_page else ""
        return f" {word} {passage.first_page}{crossing}"
    if passage.format in _TALK:
        date = str(passage.metadata.get("date") or "")[:10]
        return f", {passage.title}" + (f" ({date})" if date else "")
    if "time" in citation:
        return f" {citation['time']}"
    if passage.format in _RENDERED:
        return f" › {citation['heading']}" if "heading" in citation else ""
    return f":{first}"


class Citations:
    """Checks quotes against the stored text."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    @hidden_tool(
        "verify_citation",
        title="Verify a citation",
        keywords=("quote", "citation", "check", "source", "proof", "evidence"),
        examples=(
            "check the quote|citation {quote}",
            "is the sentence|quote {quote} really in the documents",
            "check the quote {quote} from the source {id}",
            "did the document really say {quote}",
        ),
        lean=lean_verification,
    )
    def verify_citation(
        self,
        quote: Annotated[str, Param("The words to check, as quoted", min_length=1, max_length=20_000)],
        id: Annotated[str | None, Param("Passage or document they were cited from: id, path or title")] = None,  # noqa: A002
    ) -> Json:
        """Check whether a quote is in the indexed documents, or in the cited one: exact or absent. White space, case,
        accents, the shapes of quotation marks and dashes are not compared."""
        words = _folded(quote.strip().strip("“”„«»‘’\"'"))
        if not quote.strip():
            raise InvalidInput("quote: it holds no visible character; give the words to check.")
        cited = None
        if id:
            with suppress(InvalidInput):
                cited = resolve_chunk(self.federation, "id", id)
            try:
                cited = cited or resolve_source(self.federation, "id", id)
            except NotFound as error:
                raise NotFound(f"No passage or document with id {id}.", hint=error.hint) from error
        elsewhere: Json | None = None

        def look(index: Index, origin: str | None) -> tuple[bool, Json] | None:
            identity = cited.uuid if cited and cited.origin in (None, origin) else None
            return _look(index, origin, words, quote, identity) if words else None

        for is_cited, verification in self.federation.look(
            look, wanted=Wanted(document=str(cited.uuid)) if cited else None
        ):
            if is_cited or cited is None:
                return verification
            elsewhere = elsewhere or verification
        if elsewhere is None:
            return {"verdict": "absent", "message": "No indexed document holds these words."}
        elsewhere["verdict"], elsewhere["message"] = "absent", "Not where they were cited from; they stand elsewhere."
        return elsewhere


def _look(
    index: Index, origin: str | None, words: str, quote: str, identity: uuid.UUID | None
) -> tuple[bool, Json] | None:
    """Return whether the words are where they were cited from, and where in this file they are; None if nowhere."""
    hits = index.search(SearchRequest(quote[:500], mode="keyword", limit=50)).hits
    with index.database.read() as connection:
        names = {collection.name for collection in visible_collections(connection)}
        cited = find_passage(connection, identity.bytes) if identity else None
        sql = "select id from sources where uuid = ? and trashed_at is null"
        document: int | None = fetch_one(connection, sql, (str(identity),)) if identity else None
        places = [document, cited.source_id if cited else None, *(hit.passage.source_id for hit in hits)]
        for source_id in dict.fromkeys(place for place in places if place is not None):
            passages = passages_of_source(connection, source_id)
            if not passages or passages[0].collection not in names:
                continue
            in_cited = cited is not None and source_id == cited.source_id and words in _folded(cited.text)
            if passage := cited if in_cited else _passage_holding(passages, words):
                is_cited = source_id == document or (cited is not None and passage.chunk_id == cited.chunk_id)
                break
        else:
            return None
    adopted = index.database.adopted and origin is None
    freshness = check_freshness(passage.uri, passage.size, passage.mtime_ns, passage.sha256, adopted)
    stale = f"; the file is {freshness} since it was indexed" if freshness in ("changed", "missing") else ""
    shapes = {sign: f"[{re.escape(signs)}]" for signs in _SAME_SIGNS for sign in signs}
    pattern = r"\s+".join("".join(shapes.get(sign, re.escape(sign)) for sign in word) for word in quote.split())
    match = re.search(pattern, passage.text.strip(), re.IGNORECASE)
    spelling = " ".join(match[0].split()) if match else quote
    as_quoted = "as quoted" if spelling == " ".join(quote.split()) else f"spelled: {spelling}"
    verification = {
        "verdict": "exact",
        "message": f"The words stand there {as_quoted}{stale}.",
        "chunkId": shown_id(passage.chunk_uuid, origin),
        "sourceId": shown_id(passage.source_uuid, origin),
        "sourceTitle": passage.title,
        "citation": cite(passage, match.span() if match else None),
        "freshness": freshness,
        "origin": origin,
    }
    return is_cited, without_none(verification)


def _folded(text: str) -> str:
    """Return a text as quotes are compared: no case, no accents, plain signs, each run of white space as one space."""
    return " ".join(fold(text.translate(_PLAIN_SIGNS)).split())


def _passage_holding(passages: list[Passage], words: str) -> Passage | None:
    """Return the passage in which the words begin; they may run over its end."""
    whole = _folded("".join(passage.text for passage in passages))
    at = whole.find(words)
    if at < 0:
        return None
    # Without white space, a place in the whole text is the sum of what precedes it.
    before = at - whole.count(" ", 0, at)
    for passage in passages:
        before -= len(_folded(passage.text).replace(" ", ""))
        if before < 0:
            return passage
    return None
