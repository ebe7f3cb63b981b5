"""Citations that can be checked: the place of a passage, whether its file is unchanged, whether a quote is real."""

from __future__ import annotations

import re
import stat
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NotRequired

import apsw
from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import HASH_AT_MOST, holds_other_bytes, modified_ns
from localmcp.index.candidates import Hit, SearchRequest
from localmcp.index.collections import visible_collections
from localmcp.index.federation import Federation
from localmcp.index.index import Index
from localmcp.index.passages import Passage, find_passage, passages_of_source
from localmcp.library.lean_answers import lean_verification
from localmcp.library.names import resolve_chunk, resolve_source
from localmcp.library.origins import Id, shown_id
from localmcp.readers.outline import path_at
from localmcp.schemas import mapping_of
from localmcp.storage.database import fetch_column
from localmcp.tools import Param, hidden_tool, without_none

Freshness = Literal["fresh", "changed", "missing", "unverifiable"]
Verdict = Literal["exact", "moved", "changed", "absent"]

LOOKED_UP = 500
"""Characters of a quote that are searched for; a longer one is found by its beginning."""
CANDIDATES = 50
LEAST_SIMILARITY = 0.6
"""Below this the nearest words have nothing to do with a quote."""
AROUND = 40
"""Characters shown before and after the nearest words."""
_MARKS = frozenset(map(tuple, ("“”", "„“", "«»", "»«", "‘’", '""', "''")))
"""Pairs of quotation marks."""


class Citation(TypedDict):
    """The place of a passage."""

    label: str
    """For people: `path:line`, `path p. 3`, `path Prices rows 12-20`…, or the title."""
    path: NotRequired[str]
    heading: NotRequired[str]
    """The nearest heading above, below its own headings; the sheet of a workbook."""
    startLine: int
    """Rows in a workbook."""
    endLine: int
    startPage: NotRequired[int]
    """Page or slide."""
    endPage: NotRequired[int]
    time: NotRequired[str]
    """When it is said in a recording, `0:01:30`."""
    ocr: NotRequired[bool]
    """It was read from a picture, and may hold misread letters."""
    confidence: NotRequired[float]
    """Of that reading, 0..1."""
    start: int
    """Code points in the document's text."""
    stop: int
    sha256: str


class NearestPassage(TypedDict):
    """The passage that is most like a quote that no document holds."""

    chunkId: str
    label: str
    similarity: float
    """0..1, of the quote and the words that are most like it."""
    text: str


class Verification(TypedDict):
    """Whether a quote is in the documents, and where."""

    verdict: Verdict
    message: str
    chunkId: NotRequired[str]
    sourceId: NotRequired[str]
    sourceTitle: NotRequired[str]
    citation: NotRequired[Citation]
    freshness: NotRequired[Freshness]
    nearest: NotRequired[NearestPassage]
    origin: NotRequired[str]


def cite(passage: Passage, highlight: tuple[int, int] | None = None) -> Citation:
    """Return where a passage, or the sentence in it that answers, is.

    `highlight`: start and stop of that sentence in `passage.text.strip()`.
    """
    body = passage.text.strip()
    start, stop = highlight or (0, len(body))
    first_line, last_line = _lines(passage, body, start, stop)
    citation: Citation = {
        "label": "",
        "startLine": first_line,
        "endLine": last_line,
        "start": passage.start,
        "stop": passage.stop,
        "sha256": passage.sha256,
    }
    if path := container_path(passage):
        citation["path"] = path
    if headings := _headings(passage, body, start):
        citation["heading"] = " › ".join(headings)
    if passage.first_page is not None:
        citation["startPage"] = passage.first_page
        citation["endPage"] = passage.last_page or passage.first_page
    if passage.format == "subtitles" and (times := _TIME.findall(body[: start + 12])):
        citation["time"] = times[-1]
    _add_ocr(citation, passage)
    citation["label"] = (citation.get("path") or passage.title) + _member(passage) + _place(passage, citation)
    return citation


def container_path(passage: Passage) -> str | None:
    """Return the path of the file that a passage is from; of a mail or a conversation, that of the file it is in."""
    container = passage.metadata.get("container")
    return container if isinstance(container, str) else passage.uri


def _member(passage: Passage) -> str:
    """Return `#notes.md` for a file inside another one; a mail or a conversation is named by its title instead."""
    container, _, name = (passage.uri or "").partition(f"{passage.metadata.get('container')}#")
    return f"#{name}" if name and not container and passage.format not in _TALK else ""


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
    return len(re.findall(r"\r\n|\r|\n", text))


def _headings(passage: Passage, body: str, start: int) -> Sequence[str]:
    path = tuple(passage.headings)
    if passage.format in ("code", "json", "jsonl", "csv", "pdf") or not start:
        return path
    return path_at(body, start, path, underlined=passage.format in ("text", "rst", "mail"))


def _add_ocr(citation: Citation, passage: Passage) -> None:
    """Mark what was read by character recognition; the pages and their confidence are in the metadata."""
    pages = mapping_of(mapping_of(passage.metadata.get("ocr")).get("pages"))
    confidence = pages.get(str(passage.first_page or 1))
    if isinstance(confidence, int | float):
        citation["ocr"] = True
        citation["confidence"] = round(float(confidence), 2)


def _place(passage: Passage, citation: Citation) -> str:
    """Return the place inside a file as people say it: ` p. 3`, ` slide 2`, ` Prices rows 12-20`, `:17`."""
    first, last = citation["startLine"], citation["endLine"]
    if passage.format in SHEETS:
        sheet = citation.get("heading", "").split(" › ")[-1]
        return f" {sheet} row {first}" if first == last else f" {sheet} rows {first}-{last}"
    if passage.first_page is not None:
        word = "slide" if passage.format in _SLIDES else "p."
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


_ROW = re.compile(r"(?m)^(?!## ).+$")
"""A row of a sheet; the name of the sheet and the empty lines around names of columns are none."""
_TIME = re.compile(r"(?m)^\[(\d+:\d\d:\d\d)\]")
SHEETS = ("xlsx", "ods")
_SLIDES = ("pptx", "odp")
_TALK = ("mail", "conversation")
_RENDERED = ("docx", "odt", "rtf", "epub", "html", "notebook", "calendar", "contacts", "feed")
"""Formats whose lines are those of the text that was made of them: nobody can look for them in the file."""


def check_freshness(
    uri: str | None, size: int, mtime_ns: int | None, sha256: str, adopted: bool, *, closely: bool = False
) -> Freshness:
    """Return whether the file still is what was indexed: by size and time, then by content.

    `closely`: by content in any case, for an edit can keep size and time; too much for each hit of a search.
    A database from somewhere else (not `adopted`) names paths of another machine, or ones that it wants to be asked
    about; looking at `\\\\host\\share` would contact a host. None of them is touched.
    """
    if uri is None or mtime_ns is None or not adopted:
        return "unverifiable"
    try:
        status = Path(uri).stat()
    except (FileNotFoundError, NotADirectoryError):
        return _container_freshness(uri, mtime_ns)
    except (OSError, ValueError):
        return "unverifiable"
    if not stat.S_ISREG(status.st_mode):
        # A device or a pipe could block, or never end.
        return "unverifiable"
    same_time = modified_ns(status) == mtime_ns
    if status.st_size == size and same_time and not closely:
        return "fresh"
    if status.st_size != size or (size > HASH_AT_MOST and not same_time):
        return "changed"
    try:
        return "changed" if holds_other_bytes(uri, size, sha256) else "fresh"
    except OSError:
        return "unverifiable"


def _container_freshness(uri: str, mtime_ns: int) -> Freshness:
    """Return whether the file is unchanged that a document with the uri `path#member` is in."""
    for mark in list(re.finditer("#", uri))[:8]:
        try:
            status = Path(uri[: mark.start()]).stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            return "fresh" if modified_ns(status) == mtime_ns else "changed"
    return "missing"


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
    ) -> Verification:
        """Check whether a quote is in the indexed documents: exact (where it was cited), moved (elsewhere),
        changed (the file differs from what was indexed) or absent. White space is not compared."""
        if not quote.strip():
            raise InvalidInput("quote: it holds no visible character; give the words to check.")
        cited = self._cited(id) if id else None
        named = False
        moved: Verification | None = None

        def look(index: Index, name: str | None) -> tuple[bool, Verification | None]:
            identity = cited.uuid if cited and cited.origin in (None, name) else None
            return _look(index, name, quote, identity, id is not None)

        for is_cited, verification in self.federation.look(look):
            named = named or is_cited
            if verification is not None and verification["verdict"] != "moved":
                return verification
            moved = moved or verification
        if cited is not None and not named:
            raise NotFound(f"No passage or document with id {id}.", hint="Use an id that search returned.")
        if moved is None and (bare := _without_marks(quote)) != quote:
            return self.verify_citation(bare, id)
        return moved or self._absent(quote)

    def _cited(self, name: str) -> Id:
        """Return the passage or document that an id, path or title means."""
        try:
            chunk = resolve_chunk(self.federation, "id", name)
        except InvalidInput:
            chunk = None
        try:
            return chunk or resolve_source(self.federation, "id", name)
        except NotFound as error:
            raise NotFound(f"No passage or document with id {name}.", hint=error.hint) from error

    def _absent(self, quote: str) -> Verification:
        """Return the answer for words that no document holds, with the passage that is most like them."""
        result: Verification = {"verdict": "absent", "message": "No indexed document holds these words."}
        near = max(
            self.federation.look(partial(_nearest, quote)), key=lambda passage: passage["similarity"], default=None
        )
        if near is not None and near["similarity"] >= LEAST_SIMILARITY:
            result["nearest"] = near
        return result


def _nearest(quote: str, index: Index, origin: str | None) -> NearestPassage | None:
    """Return the words of one file that are most like the quote, in any case, among passages that share its words."""
    from rapidfuzz import fuzz

    squeezed = squeeze(quote)[:LOOKED_UP]
    best: NearestPassage | None = None
    for hit in _sharing_words(index, quote):
        text = squeeze(hit.passage.text)
        match = fuzz.partial_ratio_alignment(squeezed.lower(), text.lower())
        if match is None or (best is not None and match.score / 100 <= best["similarity"]):
            continue
        words = text[match.dest_start : match.dest_end]
        best = {
            "chunkId": shown_id(hit.passage.chunk_uuid, origin),
            "label": cite(hit.passage, _span_of(hit.passage.text.strip(), words))["label"],
            "similarity": round(match.score / 100, 3),
            "text": _whole_words(text, max(0, match.dest_start - AROUND), match.dest_end + AROUND),
        }
    return best


def _whole_words(text: str, start: int, stop: int) -> str:
    """Return that part of the text without the words that it cuts."""
    begin = text.find(" ", start) + 1 if start else 0
    end = text.rfind(" ", 0, stop) if stop < len(text) else len(text)
    return text[begin:end]


def _look(
    index: Index, origin: str | None, quote: str, identity: uuid.UUID | None, has_place: bool
) -> tuple[bool, Verification | None]:
    """Return whether the file holds what was cited, and where the quote is in it."""
    with index.database.read() as connection:
        cited = _cited_passages(connection, identity) if identity else []
        for passage in cited:
            if holds_quote(passage.text, quote):
                return True, _verification(index, origin, passage, "exact", quote)
        cited_ids = {passage.chunk_id for passage in cited}
        for source_id in dict.fromkeys(
            [*(p.source_id for p in cited), *(hit.passage.source_id for hit in _sharing_words(index, quote))]
        ):
            passage = _passage_holding(passages_of_source(connection, source_id), quote)
            if passage:
                exact = not has_place or passage.chunk_id in cited_ids
                return bool(cited), _verification(index, origin, passage, "exact" if exact else "moved", quote)
    return bool(cited), None


def _sharing_words(index: Index, quote: str) -> list[Hit]:
    """Return the passages that share most words with a quote."""
    return index.search(SearchRequest(quote[:LOOKED_UP], mode="keyword", limit=CANDIDATES)).hits


def _verification(index: Index, origin: str | None, passage: Passage, verdict: Verdict, quote: str) -> Verification:
    adopted = index.database.adopted
    freshness = check_freshness(passage.uri, passage.size, passage.mtime_ns, passage.sha256, adopted, closely=True)
    if verdict == "exact" and freshness in ("changed", "missing"):
        verdict = "changed"
    messages = {
        "exact": "The words stand there as quoted.",
        "moved": "The words stand elsewhere than cited.",
        "changed": f"The words stood there when the file was indexed; the file is {freshness} since.",
    }
    verification = {
        "verdict": verdict,
        "message": messages[verdict],
        "chunkId": shown_id(passage.chunk_uuid, origin),
        "sourceId": shown_id(passage.source_uuid, origin),
        "sourceTitle": passage.title,
        "citation": cite(passage, _span_of(passage.text.strip(), quote)),
        "freshness": freshness,
        "origin": origin,
    }
    return without_none(verification)


def _span_of(body: str, quote: str) -> tuple[int, int] | None:
    """Return where the quote is in a passage, white space aside; None when it runs over the end."""
    match = re.search(r"\s+".join(map(re.escape, quote.split())), body)
    return match.span() if match else None


def _without_marks(quote: str) -> str:
    """Return what is between the quotation marks around a quote, if it has such marks and words in between."""
    text = quote.strip()
    inside = text[1:-1].strip()
    return inside if inside and (text[0], text[-1]) in _MARKS else quote


def holds_quote(text: str, quote: str) -> bool:
    """Return whether the quote is in the text, white space aside."""
    return squeeze(quote) in squeeze(text)


def squeeze(text: str) -> str:
    """Return a text with each run of white space as one space."""
    return re.sub(r"\s+", " ", text).strip()


def _cited_passages(connection: apsw.Connection, identity: uuid.UUID) -> list[Passage]:
    """Return the chunk of that id, or all those of the document of that id; none when the caller may not see it."""
    names = {collection.name for collection in visible_collections(connection)}
    passage = find_passage(connection, identity.bytes)
    if passage and passage.collection in names:
        return [passage]
    sql = "select id from sources where uuid = ? and trashed_at is null"
    passages = [
        p
        for source_id in fetch_column(connection, sql, (str(identity),))
        for p in passages_of_source(connection, source_id)
    ]
    return passages if passages and passages[0].collection in names else []


def _passage_holding(passages: list[Passage], quote: str) -> Passage | None:
    """Return the passage in which the quote begins; a quote may run over the end of a chunk."""
    whole = squeeze("".join(passage.text for passage in passages))
    at = whole.find(squeeze(quote))
    if at < 0:
        return None
    # Without white space, a place in the whole text is the sum of what precedes it.
    before = at - whole.count(" ", 0, at)
    for passage in passages:
        before -= len("".join(passage.text.split()))
        if before < 0:
            return passage
    return None
