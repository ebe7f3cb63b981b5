"""The tools that read the library: around a hit, a whole document, and whether a quote is in it (S3-5, S3-6)."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from typing import Annotated, Any

from localmcp.errors import InvalidInput, LocalMCPError, NotFound
from localmcp.files import check_freshness
from localmcp.humanize import counted, cut_to
from localmcp.index.collections import visible_collections
from localmcp.index.federation import Wanted, shown_name
from localmcp.index.passages import Passage, find_passage, passages_of_source, read_metadata
from localmcp.index.search import Index, SearchRequest
from localmcp.library.answers import SHEETS, cite, count_line_ends, lean_context, lean_document, lean_verification
from localmcp.library.ledger import documents_in
from localmcp.library.search import (
    Ambiguous,
    PassageSearch,
    find_source,
    is_uuid,
    nearest_hint,
    resolve_chunk,
    resolve_source,
    split_mount,
)
from localmcp.readers.outline import BEGINNING, definitions_in, headings_in, signals
from localmcp.schemas import one_or_more, without_surrogates
from localmcp.storage.database import fetch_one
from localmcp.storage.schema import utc_text
from localmcp.tools import Json, Param, compact_json, current_scope, hidden_tool, integer_or_string, tool, without_none
from localmcp.wording.normalize import fold

MOST_DOCUMENT_BYTES = 400_000
"""A document beyond this is cut for everybody, with the offset of the rest: it is twice in the structured answer and
once more in the text block, and clients refuse results of 1 MB."""
JOINT = "\n\n---\n\n"
SELECT_ITEM = """
    select sources.id, uuid, title, source_type, metadata, sources.created_at, updated_at, collections.name,
        partitions.name, uri, chunk_count, size, mtime_ns, sha256
    from sources
    join collections on collections.id = sources.collection_id
    left join partitions on partitions.id = sources.partition_id
"""
_SAME_SIGNS = ("'‘’‚‛′ʼ", '"“”„‟″«»', "-‐‑‒–—―−")
"""Signs that programs put for one another while people type."""
_PLAIN_SIGNS = str.maketrans({sign: signs[0] for signs in _SAME_SIGNS for sign in signs} | {"\u00ad": None})
_ROW = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def _lines_text(_name: str, value: Any) -> Any:
    """Return a number or a pair of numbers as the text that `parse_lines` reads; anything else as it is."""
    numbers = one_or_more(value)
    fits = len(numbers) in (1, 2) and all(type(number) is int for number in numbers)
    return "-".join(map(str, numbers)) if fits else value


class DocumentReader(PassageSearch):
    """Reads what was ingested."""

    @tool(
        "get_context",
        title="Read around a search result",
        keywords=("surrounding", "neighbours", "expand", "context", "more"),
        examples=(
            "show more around the passage|result|chunk {chunkId}",
            "read on after the passage|result|chunk {chunkId}",
            "show {window} chunks before and after {chunkId}",
        ),
        accepts={"window": integer_or_string, "maxChars": integer_or_string},
        says={"chunkId required": "chunkId parameter is required"},
        lean=lean_context,
    )
    def get_context(
        self,
        chunkId: Annotated[str, Param("Id of a search result")],
        window: Annotated[int, Param("Passages before and after", minimum=0, maximum=50)] = 2,
        maxChars: Annotated[int | None, Param("Default 6000", minimum=200)] = None,
    ) -> Json:
        """Return the passages before and after a search result, joined, to read it in its context."""
        identity = resolve_chunk(self.federation, "chunkId", chunkId)
        budget = maxChars or (6_000 if current_scope().lean else None)

        def look(index: Index, origin: str | None) -> Json | None:
            with index.database.read() as connection:
                target = find_passage(connection, identity[0].bytes) if identity else None
                visible = {collection.id for collection in visible_collections(connection)}
                if target is None or target.collection_id not in visible:
                    return None
                first, last = target.position - window, target.position + window
                passages = passages_of_source(connection, target.source_id, first, last)
            # The nearest to the target that fit, and always the target.
            nearest = sorted(passages, key=lambda passage: (abs(passage.position - target.position), passage.position))
            sums = accumulate(len(passage.text) for passage in nearest)
            count = len(nearest) if budget is None else max(sum(used <= budget for used in sums), 1)
            shown = sorted(nearest[:count], key=lambda passage: passage.position)
            result = {
                "targetChunkId": shown_name(target.chunk_uuid, origin),
                "window": window,
                "sourceId": shown_name(target.source_uuid, origin),
                "sourceTitle": target.title,
                "sourceType": target.source_type,
                "chunkTotal": target.chunk_total,
                "chunksRetrieved": len(shown),
                "chunks": [
                    {
                        **_chunk(passage, origin),
                        "isTarget": passage.chunk_id == target.chunk_id,
                        "relativePosition": passage.position - target.position,
                    }
                    for passage in shown
                ],
                "concatenatedContent": JOINT.join(passage.text.strip() for passage in shown),
                "citation": cite(target),
                "origin": origin,
                "signals": signals(target.title, *(passage.text for passage in shown)) or None,
                "truncated": len(shown) < len(passages) or None,
            }
            return without_none(result)

        wanted = Wanted(chunk=identity[0].hex if identity else "")
        if identity and (result := next(self.federation.look(look, identity[1], wanted), None)):
            return result
        raise NotFound(f"Chunk not found: {chunkId}", hint="Use an id that search returned.")

    @tool(
        "get_document",
        title="Read a whole document",
        keywords=("read", "open", "full text", "file", "source"),
        examples=(
            "open|read the document {sourceId}",
            "read the whole file {sourceId}",
            "what does the file|document {sourceId} contain",
            "show me the contents of the document {sourceId}",
            "what does {sourceId} say",
        ),
        accepts={"offset": integer_or_string, "maxChars": integer_or_string, "lines": _lines_text},
        says={"sourceId required": "sourceId parameter is required"},
        lean=lean_document,
    )
    def get_document(
        self,
        sourceId: Annotated[str, Param("Id, path or title of the document; path:line reads from there")],
        offset: Annotated[int, Param("First passage, to read on after a cut", minimum=0)] = 0,
        lines: Annotated[str | None, Param("Only these lines: 20-80, or 500- for the rest")] = None,
        outline: Annotated[bool, Param("Only its headings, with their lines")] = False,
        maxChars: Annotated[int | None, Param("Default 8000", minimum=200)] = None,
    ) -> Json:
        """Return a whole document with all its passages in order. Long ones are cut: read on from nextOffset."""
        # JSON can name half a character, which neither SQLite nor the answer can hold.
        name = without_surrogates(sourceId)
        mount, bare = split_mount(name)
        budget = maxChars or (8_000 if current_scope().lean else None)
        span = parse_lines(lines) if lines else None

        def look(index: Index, origin: str | None) -> Json | None:
            with index.database.read() as connection:
                source = find_source(connection, bare)
                if source is None:
                    return None
                row = fetch_one(connection, f"{SELECT_ITEM} where sources.id = ?", (source.id,))
                document = {**source_item(row, index.database.adopted, origin), "content": ""}
                for only_in_lists in ("changedAt", "partition", "chunkCount"):
                    document.pop(only_in_lists, None)
                passages = passages_of_source(connection, source.id, 0 if span else offset)
            if outline:
                headings, next_offset = _outline(passages, budget)
                result = {"source": document, "chunks": [], "outline": headings, "nextOffset": next_offset}
            else:
                last_line = max((passage.last_line for passage in passages), default=0)
                if span and passages and span[0] > last_line:
                    title = document["title"]
                    raise InvalidInput(f"lines: '{lines}' is beyond the end; '{title}' has {last_line} lines.")
                result = _read_passages(document, passages, budget, span, origin)
            return {**without_none(result), "truncated": result["nextOffset"] is not None}

        try:
            for result in self.federation.look(look, mount, Wanted(document=bare)):
                return result
        except Ambiguous as error:
            return {"error": "Ambiguous name", "sourceId": name, "message": error.message, "hint": error.hint or ""}
        if not lines and (cited := re.fullmatch(r"(.+?):(\d{1,7}(-\d{1,7})?)(?:,\d{1,7})*", name)):
            # A place as answers cite it: `notes.md:12`, `notes.md:12-40`, `notes.md:12,80`.
            return self.get_document(cited[1], offset, cited[2] if cited[3] else f"{cited[2]}-", outline, maxChars)
        return self._no_document(name)

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
            identity = cited[0] if cited and cited[1] in (None, origin) else None
            return _find_quote(index, origin, words, quote, identity) if words else None

        for is_cited, verification in self.federation.look(
            look, wanted=Wanted(document=str(cited[0])) if cited else None
        ):
            if is_cited or cited is None:
                return verification
            elsewhere = elsewhere or verification
        if elsewhere is None:
            return {"verdict": "absent", "message": "No indexed document holds these words."}
        elsewhere["verdict"], elsewhere["message"] = "absent", "Not where they were cited from; they stand elsewhere."
        return elsewhere

    def _no_document(self, name: str) -> Json:
        with self.database.read() as connection:
            hint = nearest_hint(connection, name)
            for collection in visible_collections(connection) if os.path.isabs(name) else ():
                sql = """
                    select reason from ledger
                    where collection_id = ? and path = ? and status in ('failed', 'skipped')
                """
                if reason := fetch_one(connection, sql, (collection.id, name)):
                    hint = f"The file was not indexed: {reason}"
                if count := len(documents_in(connection, collection.id, name)):
                    hint = f"The file holds {counted(count, 'document')}: list_sources with pathPrefix lists them."
                    break
        with suppress(LocalMCPError):
            document = self.get_context(name, 0)["sourceId"]
            hint = f"It is the id of a passage: get_context reads around it, and its document is '{document}'."
        error, message = "Document not found", f"No document with id {name}."
        if not is_uuid(name):
            error = "Invalid sourceId format"
            message = f"'{cut_to(name, 300)}' is not an id, and no document has this path or title."
        return {"error": error, "sourceId": name, "message": message, "hint": hint}


def source_item(row: Any, adopted: bool, origin: str | None) -> Json:
    """Return a row of SELECT_ITEM as lists show it."""
    uuid, title, kind, metadata, created, updated, collection, partition, path, chunks, size, mtime_ns, sha256 = row[1:]
    changed = updated
    if mtime_ns is not None:
        with suppress(OverflowError, OSError, ValueError):
            changed = utc_text(datetime.fromtimestamp(mtime_ns / 1e9, UTC))
    item = {
        "id": shown_name(uuid, origin),
        "title": title,
        "sourceType": kind,
        "metadata": read_metadata(metadata),
        "createdAt": created,
        "updatedAt": updated,
        "changedAt": changed,
        "collection": collection,
        "chunkCount": chunks,
        "freshness": check_freshness(path, size, mtime_ns, sha256, adopted),
        "partition": partition,
        "path": path,
        "origin": origin,
    }
    return without_none(item)


def _read_passages(
    source: Json, passages: Sequence[Passage], budget: int | None, lines: tuple[int, int] | None, origin: str | None
) -> Json:
    """Return a document with those passages, or those lines of them, as many as fit."""
    # The stored line is that of the first visible character.
    blank = [passage.text[: len(passage.text) - len(passage.text.lstrip())] for passage in passages]
    passages = [
        replace(passage, first_line=passage.first_line - count_line_ends(space))
        if space and passage.format not in SHEETS
        else passage
        for passage, space in zip(passages, blank, strict=True)
    ]
    passages = _within_lines(passages, *lines) if lines else passages
    shown, next_offset = _fitting(passages, budget)
    # The text of the passages that are returned, joined exactly.
    source["content"] = "".join(passage.text for passage in shown)
    if signs := signals(source["title"], *(passage.text for passage in shown)):
        source["signals"] = signs
    chunks: list[Json] = []
    for passage in shown:
        lines_of = {"startLine": passage.first_line, "endLine": passage.last_line}
        place = {"start": passage.start, "stop": passage.stop, **lines_of, "headings": passage.headings}
        metadata = without_none({**place, "page": passage.first_page})
        chunks.append({**_chunk(passage, origin), "chunkTotal": passage.chunk_total, "metadata": metadata})
    has_lines = shown and shown[0].format not in SHEETS
    first, last = (shown[0].first_line, shown[-1].last_line) if has_lines else (None, None)
    return {"source": source, "chunks": chunks, "startLine": first, "endLine": last, "nextOffset": next_offset}


def _chunk(passage: Passage, origin: str | None) -> Json:
    return {
        "id": shown_name(passage.chunk_uuid, origin), "content": passage.text, "chunkIndex": passage.position,
    }  # fmt: skip


def _outline(passages: Sequence[Passage], budget: int | None) -> tuple[list[Json], int | None]:
    """Return as many headings, or what code defines, as fit, with level (from 0), lines, passage; the next offset."""
    entries: list[Json] = []
    last_path: tuple[str, ...] | None = None
    for passage in passages:
        for line, path in _sections_in(passage, is_first=not entries):
            if entries and line > entries[-1]["startLine"]:
                entries[-1]["endLine"] = line - 1
            if path != last_path or line != passage.first_line:
                place = {"startLine": line, "endLine": line, "offset": passage.position}
                entries.append({"heading": path[-1] if path else BEGINNING, "level": max(0, len(path) - 1), **place})
            last_path = path
        entries[-1]["endLine"] = passage.last_line
    used = 0
    for number, entry in enumerate(entries):
        used += len(entry["heading"]) + entry["level"] + len("1234: \n")
        # The rest is asked for by its passage: one that holds several headings is not cut.
        if number and entry["offset"] != entries[number - 1]["offset"] and budget is not None and used > budget:
            return entries[:number], entry["offset"]
    return entries, None


def parse_lines(text: str) -> tuple[int, int]:
    """Return (first, last) of `20-80`, `20`, or `500-`; InvalidInput if it is no range of lines."""
    match = re.fullmatch(r"(\d{1,9})(?:\s*(-|:|\.\.)\s*(\d{1,9})?)?", text.strip())
    if match is None:
        raise InvalidInput(f"lines: '{cut_to(text, 100)}' is no range of lines; write 20-80, or 500- for the rest.")
    first = int(match[1])
    last = int(match[3]) if match[3] else (1 << 40 if match[2] else first)
    if first < 1:
        raise InvalidInput(f"lines: '{text}' begins before the first line; lines are counted from 1.")
    if last < first:
        raise InvalidInput(f"lines: '{text}' ends before it begins.")
    return first, last


def _within_lines(passages: Sequence[Passage], first: int, last: int) -> list[Passage]:
    """Return the passages of those lines, the outer ones cut at the line; of a workbook all that hold such rows."""
    if passages and passages[0].format in SHEETS:
        return [passage for passage in passages if passage.first_line <= last and first <= passage.last_line]
    parts: list[Passage] = []
    for passage in passages:
        line, rows = passage.first_line, _ROW.findall(passage.text)
        before = "".join(rows[: max(first - line, 0)])
        if within := "".join(rows[max(first - line, 0) : max(last - line + 1, 0)]):
            start, end = passage.start + len(before), min(last, line + len(rows) - 1)
            span = {"start": start, "stop": start + len(within)}
            parts.append(replace(passage, text=within, first_line=max(first, line), last_line=end, **span))
    return parts


def _fitting(passages: Sequence[Passage], budget: int | None) -> tuple[list[Passage], int | None]:
    """Return as many passages as fit the budget in characters and the limit in bytes, at least one, and the offset of
    the rest."""
    shown: list[Passage] = []
    characters = size = 0
    for passage in passages:
        # Empty lines at its end are not worth a page.
        too_long = budget is not None and characters + len(passage.text.rstrip()) > budget
        characters += len(passage.text)
        # What JSON escapes is escaped again in the text block.
        size += 2 * len(compact_json(passage.text).encode("utf-8", "replace"))
        if shown and (too_long or size > MOST_DOCUMENT_BYTES):
            return shown, passage.position
        shown.append(passage)
    return shown, None


def _sections_in(passage: Passage, *, is_first: bool) -> list[tuple[int, tuple[str, ...]]]:
    """Return the first line and the heading path of each part of a passage that is under another heading."""
    path, body = tuple(passage.headings), passage.text.strip()
    if passage.format == "code":
        inside = list(definitions_in(body)) or ([(0, path)] if is_first else [])
        return [(passage.first_line + line, path) for line, path in inside]
    # Of these, passages hold no headings of their own, or their lines are rows.
    if passage.format in ("json", "jsonl", "csv", "xlsx", "ods", "subtitles", "pdf"):
        return [(passage.first_line, path)]
    inside = headings_in(body, path, underlined=passage.format in ("text", "rst", "mail"))
    parts = inside if inside and inside[0][0] == 0 else [(0, path), *inside]
    return [(passage.first_line + line, path) for line, path in parts]


def _find_quote(
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
        "chunkId": shown_name(passage.chunk_uuid, origin),
        "sourceId": shown_name(passage.source_uuid, origin),
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
