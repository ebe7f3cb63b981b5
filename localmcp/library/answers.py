"""Answers of the library's tools: a text to read, structured content without repetition, and citations."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from localmcp.humanize import counted, cut_to
from localmcp.index.keyword import sentence_parts
from localmcp.index.passages import Passage
from localmcp.library.ledger import OWN
from localmcp.readers.document import RENDERED, SHEETS, TALK, readable_stem
from localmcp.readers.outline import BEGINNING, path_at
from localmcp.schemas import mapping_of
from localmcp.tools import Answer, Json, compact_json

_ROW = re.compile(r"(?m)^(?!## ).+$")
"""A row of a sheet; the name of the sheet and the empty lines around names of columns are none."""
_HEADING_INSIDE = re.compile(r"\n {0,3}[#=~^\"*+-]")
"""What may begin a heading, or the line under one, below the first line of a passage."""
_answer = partial(Answer, whole_text=True)


def short_id(identity: str) -> str:
    """Return the first eight characters of an id, which tools accept, with the name of its mounted file."""
    return identity[: identity.rfind(":") + 9]


def _without(table: Mapping[str, Any], *fields: str) -> Json:
    return {field: value for field, value in table.items() if field not in fields}


def lean_search(result: Any) -> Answer:
    """Return the answer of `search`: hits grouped by document, confidence and corrections first."""
    hits: list[Json] = result["results"]
    lean: list[Json] = []
    for hit in hits if "explain" not in result else ():
        # Metadata without those that say nothing of a passage, which `get_document` has.
        of_file = "author created dateFrom sheets slides pages language encoding"
        metadata = _without(hit["metadata"], *of_file.split())
        metadata = {key: value for key, value in metadata.items() if len(compact_json(value)) <= 200}
        # A tenth is finer than what the scores can tell.
        scores = {field: round(hit[field], 1) for field in ("semanticScore", "keywordScore", "combinedScore")}
        shorter = {**hit, **scores, "citation": {"label": hit["citation"]["label"]}, "metadata": metadata}
        # What the text says, or is only there where it is unusual.
        fields = "collection partition date dateFrom highlight excerpt alsoIn"
        lean.append(_lean_item(shorter, *fields.split()))
    return _answer({**_without(result, "weights"), "results": lean or hits}, _search_text(result, hits))


def _lean_item(item: Json, *fields: str) -> Json:
    metadata = _without(item["metadata"], OWN)
    lean = {**_without(item, "freshness", "metadata", *fields), **_unusual(item)}
    return {**lean, "metadata": metadata} if metadata else lean


def _unusual(item: Json) -> Json:
    # The collection and the freshness, where they are not as they mostly are.
    collection = {"collection": item["collection"]} if item["collection"] != "default" else {}
    return collection | ({"freshness": item["freshness"]} if item["freshness"] in ("changed", "missing") else {})


def _remarks(item: Json) -> list[str]:
    words = {"collection": "collection {}", "freshness": "file {} since it was read"}
    return [words[field].format(value) for field, value in _unusual(item).items()]


def _search_text(result: Json, hits: Sequence[Json]) -> str:
    # It has at most a quarter more than the passages themselves.
    corrections = [f"'{r['word']}' was searched as '{r['replacement']}'." for r in result.get("repairs", [])]
    remarks = [*corrections, *result.get("notices", [])]
    if not hits:
        return "\n".join([result.get("message", "No results."), *remarks])
    # Nothing of a passage is quoted where another one answers much better.
    quoted = [(number, hit) for number, hit in enumerate(hits, 1) if hit.get("excerpt") != ""]
    folder = _shared_folder([hit["citation"].get("path") for _, hit in quoted])
    documents = defaultdict[str, list[tuple[int, Json]]](list)
    for number, hit in quoted:
        documents[hit["sourceId"]].append((number, hit))
    count = counted(len({hit["sourceId"] for hit in hits}), "document")
    absent = ", ".join(map(repr, result.get("absentWords", ())))
    if result.get("lowConfidence"):
        confidence = f" Low confidence: the documents may not hold the answer{absent and f'; none has {absent}'}."
    elif absent:
        confidence = f" Confidence: fair; no document has {absent}."
    else:
        confidence = " Confidence: good." if result["mode"] == "hybrid" else ""
    below = f" Paths are below {folder}" if folder else ""
    head = f"{count}, {counted(len(hits), 'passage')}.{confidence}{below}"
    blocks = ["\n".join([head, *remarks]), *(_document_block(passages, folder) for passages in documents.values())]
    lines = defaultdict[str, list[str]](list)
    for hit in (hit for hit in hits if hit.get("excerpt") == ""):
        # `get_document` reads the passage from its line.
        name = os.path.basename(hit["citation"].get("path", hit["sourceTitle"]))
        lines[name].append(str(hit["citation"]["startLine"]))
    weak = cut_to(", ".join(f"{name}:{','.join(starts)}" for name, starts in lines.items()), 200)
    ends = [f"Not quoted: {weak}"] if weak else []
    # What follows a passage that is not worth quoting is not either.
    ends += [f"More: cursor={result['nextCursor']}"] if "nextCursor" in result and hits[-1].get("excerpt") != "" else []
    return "\n\n".join([*blocks, *(["\n".join(ends)] if ends else [])])


def _document_block(passages: Sequence[tuple[int, Json]], folder: str) -> str:
    number, hit = passages[0]
    title, path, *extra = _names(hit, hit["sourceTitle"], hit["citation"].get("path", ""), folder)
    copies = [place.removeprefix(folder) for place in hit.get("alsoIn", ())]
    copies = [*copies[:3], *([f"{len(copies) - 3} more"] if len(copies) > 3 else [])]
    extra += [hit.get("date", "")[:10], f"in {hit['origin']}" if hit.get("origin") else ""]
    extra += [f"also in {', '.join(copies)}"] if copies else []
    line = "# " + " | ".join(filter(None, (title, path, *extra)))
    # From the sixth document of a grouped search on, a line each.
    if "morePassages" in hit and number > 5:
        return f"{line} | {_passage_line(number, hit, '')}"
    blocks = [line]
    for number, hit in passages:
        # The line of the document says its title.
        shown = hit.get("excerpt", hit["content"]).removeprefix(f"# {hit['sourceTitle']}\n").lstrip("\n")
        blocks += filter(None, [_passage_line(number, hit, shown), shown])
    return "\n".join(blocks)


def _names(item: Json, title: str, path: str, folder: str) -> list[str]:
    """Return title ("" where the path says it), path, and what is unusual of a document."""
    name = os.path.basename(path)
    names = (name, os.path.splitext(name)[0], readable_stem(name)) if path else ()
    repeats = title.lower() in {text.lower() for text in names}
    return ["" if repeats else title, path.removeprefix(folder), *_remarks(item)]


def _passage_line(number: int, hit: Json, shown: str) -> str:
    """Return where a passage is, without the headings that its title or the text `shown` says, and what it is worth."""
    citation, title = hit["citation"], hit["sourceTitle"]
    # "Bug fixes" says nothing without the release above it.
    headings = citation.get("heading", "").split(" › ")[-2:]
    lines = {line.lstrip("…# ") for line in shown.splitlines()}
    names = [heading for heading in headings if heading not in ("", title, *lines)]
    first, last = citation["startLine"], citation["endLine"]
    inside = citation["label"].removeprefix(citation.get("path", title)).strip(" ,")
    if inside.startswith("›"):
        inside = ""
    elif not inside or inside.startswith((":", title)):
        inside = f"line {first}" if first == last else f"lines {first}-{last}"
    parts = [
        f"§ {' › '.join(names)}" if names else "",
        inside,
        f"relevance {hit['relevance']}",
        f"id {short_id(hit['id'])}",
        counted(hit["morePassages"], "more passage") if hit.get("morePassages") else "",
        f"beware: {', '.join(hit['signals'])}" if hit.get("signals") else "",
    ]
    return f"[{number}] {', '.join(filter(None, parts))}"


def _shared_folder(paths: Sequence[str | None]) -> str:
    distinct = {path for path in paths if path}
    if len(distinct) < 2 or None in paths:
        return ""
    folder = os.path.commonprefix([*distinct]).rpartition(os.sep)[0]
    return folder + os.sep if len(folder) > len("/home/") else ""


def lean_context(result: Any) -> Answer:
    """Return the answer of `get_context`: the chunks once, and the text as it is read."""
    citation = _without(result["citation"], "start", "stop", "sha256")
    first, last = (result["chunks"][end]["chunkIndex"] + 1 for end in (0, -1))
    where = f"{result['citation']['label']} | passages {first}-{last} of {result['chunkTotal']}"
    head = f"# {result['sourceTitle']} | {where}"
    head += " | more fits with a larger maxChars" if result.get("truncated") else ""
    text = "".join(chunk["content"] for chunk in result["chunks"]).rstrip()
    return _answer({**_without(result, "concatenatedContent"), "citation": citation}, f"{head}\n{text}")


def lean_document(result: Any) -> Answer:
    """Return the answer of `get_document`: the text once, with what is needed to read on."""
    source: Json = result["source"]
    lines = f" | lines {result['startLine']}-{result['endLine']}" if "startLine" in result else ""
    unusual = "".join(f" | {part}" for part in _remarks(source))
    # The text mostly begins with its title.
    is_shown = source["content"].split("\n", 1)[0].lstrip("# ") == source["title"] and "outline" not in result
    title = "" if is_shown else f"{source['title']} | "
    head = f"# {title}{source.get('path') or source['title']}{unusual} | id {short_id(source['id'])}{lines}"
    more = [f"More: offset={result['nextOffset']}"] if result.get("truncated") else []
    nothing = "Nothing begins at this offset: the document is empty, or shorter; offsets come from nextOffset."
    texts = [source["content"].rstrip() or nothing]
    if sections := result.get("outline"):
        head += " | first line and heading of each section"
        texts = [f"{' ' * section['level']}{section['startLine']} {section['heading']}" for section in sections]
        if sections[0]["heading"] == BEGINNING and len(sections) == 1:
            texts = [f"It has no headings. Read it by lines={sections[0]['startLine']}-{sections[0]['endLine']}"]
    elif more and "endLine" in result and source["content"].endswith("\n"):
        more = [f"{more[0]} or lines={result['endLine'] + 1}-"]
    structured = {**_without(result, "chunks"), "source": _lean_item(source, "createdAt")}
    return _answer(structured, "\n".join([head, *texts, *more]))


def lean_sources(result: Any) -> Answer:
    """Return the answer of `list_sources`: a line per document."""
    items = cast("list[Json]", result["sources"])
    folder = _shared_folder([item.get("path") for item in items])
    order = f", {result['order']}" if "order" in result else ""
    head = f"{result['count']} of {counted(result['total'], 'document')}{order}{'; times in UTC' if items else ''}."
    lines = [f"{head} Paths are below {folder}" if folder else head]
    for item in items:
        title, path, *extra = _names(item, item["title"], item.get("path", ""), folder)
        changed = item["changedAt"][:16].replace("T", " ")
        lines.append(" | ".join(filter(None, [changed, path, title, *extra, f"id {short_id(item['id'])}"])))
    lines += result.get("notices", [])
    lines += [f"More: offset={result['nextOffset']}"] if "nextOffset" in result else []
    lean = [_lean_item(item, "updatedAt", "collection", "partition") for item in items]
    return _answer({**result, "sources": lean}, "\n".join(lines))


def lean_report(result: Any) -> Answer:
    """Return the answer of `add_path` and `refresh`: what is not zero or empty."""
    return _answer(result, compact_json({key: value for key, value in result.items() if value and key != "seconds"}))


def lean_trash(result: Any) -> Answer:
    """Return the answer of `remove_source` and `restore_source`: a line per document; of many, titles alone."""
    rows: list[Json] = result.get("sources", [result])
    head = f"Restored {counted(result.get('restored', 1), 'document')}."
    if "trashDays" in result:
        stays = "it stays" if result["removed"] == 1 else "they stay"
        head = f"Removed {counted(result['removed'], 'document')}; {stays} in the trash for {result['trashDays']} days."
    lines = [f"{row['title']} | {row['path'] or 'no file'} | id {short_id(row['sourceId'])}" for row in rows]
    if len(rows) > 20:
        lines = [cut_to(", ".join(row["title"] for row in rows), 1_500)]
    return _answer(result, "\n".join([result.get("message", head), *lines]))


def lean_verification(result: Any) -> Answer:
    """Return the answer of `verify_citation`: the verdict and the place."""
    lines = [f"{result['verdict']}: {result['message']}"]
    if "citation" in result:
        lines.append(f"{result['sourceTitle']} | {result['citation']['label']} | id {short_id(result['chunkId'])}")
    return _answer(result, "\n".join(lines))


def excerpt_around(text: str, longest: int, shows: int) -> str:
    """Return the whole sentences around the place `shows` that fit, with an ellipsis where the text goes on."""
    if len(text) <= longest:
        return text
    places = list(sentence_parts(text))
    first = last = max(bisect_right(places, (shows, len(text))) - 1, 0)
    room = longest - 4
    while True:
        if last + 1 < len(places) and places[last + 1][1] - places[first][0] <= room:
            last += 1
        elif first > 0 and places[last][1] - places[first - 1][0] <= room:
            first -= 1
        else:
            break
    shown = text[places[first][0] : places[last][1]]
    before, after = "… " if first else "", " …" if last + 1 < len(places) else ""
    return before + (cut_to(shown, room) if len(shown) > room else shown + after)


def cite(passage: Passage, highlight: tuple[int, int] | None = None) -> Json:
    """Return where a passage, or the sentence in it that answers (`highlight`, in its stripped text), is.

    The label is for people: `path:line`, `path p. 3`, `path Prices rows 12-20`, or the title. Lines are rows in a
    workbook, pages are slides in a presentation; start and stop are code points in the document's text.
    """
    body, metadata = passage.text.strip(), passage.metadata
    start, stop = highlight or (0, len(body))
    before, until = count_line_ends(body[:start]), count_line_ends(body[: len(body[:stop].rstrip())])
    if passage.format in SHEETS:
        row_ends = [line.end() for line in _ROW.finditer(body)]
        before, until = (sum(end <= at for end in row_ends) for at in (start, stop - 1))
        if len(row_ends) != passage.last_line - passage.first_line + 1:
            # Rows without any value are not in the text, so which row a line is cannot be counted.
            before, until = 0, passage.last_line
    citation: Json = {
        "label": "",
        "startLine": min(passage.first_line + before, passage.last_line),
        "endLine": min(passage.first_line + until, passage.last_line),
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
    if passage.format == "subtitles" and (times := re.findall(r"(?m)^\[(\d+:\d\d:\d\d)\]", body[: start + 12])):
        citation["time"] = times[-1]
    if "ocr" in metadata:
        confidence = mapping_of(mapping_of(metadata["ocr"]).get("pages")).get(str(passage.first_page or 1))
        if isinstance(confidence, int | float):
            # It was read from a picture, and may hold misread letters.
            citation["ocr"], citation["confidence"] = True, round(float(confidence), 2)
    # A file inside another one is named as `box.zip#notes.md`, a mail or a conversation by its title.
    is_member = passage.uri != path and passage.format not in TALK
    member = (passage.uri or "").removeprefix(path or "") if is_member else ""
    citation["label"] = (path or passage.title) + member + _place_inside(passage, citation)
    return citation


def count_line_ends(text: str) -> int:
    """Return how many lines end in a text, however they end."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _place_inside(passage: Passage, citation: Json) -> str:
    """Return the place inside a file as people say it: ` p. 3`, ` slide 2`, ` Prices rows 12-20`, `:17`."""
    first, last = citation["startLine"], citation["endLine"]
    if passage.format in SHEETS:
        sheet = citation.get("heading", "").split(" › ")[-1]
        return f" {sheet} row {first}" if first == last else f" {sheet} rows {first}-{last}"
    if passage.first_page is not None:
        word = "slide" if passage.format in ("pptx", "odp") else "p."
        crossing = f"-{passage.last_page}" if passage.last_page and passage.last_page > passage.first_page else ""
        return f" {word} {passage.first_page}{crossing}"
    if passage.format in TALK:
        date = str(passage.metadata.get("date") or "")[:10]
        return f", {passage.title}" + (f" ({date})" if date else "")
    if "time" in citation:
        return f" {citation['time']}"
    if passage.format in RENDERED:
        return f" › {citation['heading']}" if "heading" in citation else ""
    return f":{first}"
