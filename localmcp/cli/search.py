"""`localmcp search`: one call, its hits drawn for people."""

from __future__ import annotations

import os
import uuid
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import json_or_text, library_path, split_pair
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.tool_options import tool_options
from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import command_line, headings_of, rank_of, score_parts
from localmcp.library.names import nearest_source
from localmcp.library.origins import is_uuid
from localmcp.library.search import PassageSearch
from localmcp.readers.excerpt import Matcher, excerpt
from localmcp.schemas import Json

MARGIN = "    "
FOUND_BY = {"both": "words and meaning", "keyword_only": "words", "semantic_only": "meaning"}


@command()
@tool_options(
    PassageSearch.search,
    arguments={"query": "QUERY..."},
    spelled={"sourceType": "--type", "pathPrefix": "--path", "sourceId": "--source"},
    says={"sourceType": "Only this type: text, website, docs, qa, notion or code"},
    without=("metadata", "maxChars"),
)
@click.option("--meta", metavar="KEY=VALUE", multiple=True, help="Only documents with this metadata; may be repeated.")
@click.option("--page", type=click.IntRange(1), default=1, help="Which page of results.")
@pass_session
def search(session: Session, page: int, meta: tuple[str, ...], explain: bool, **arguments: Any) -> None:
    """Search by meaning and by word.

    Words of a code or a name, a question, or what the text is about: any of them will do. Misspelled words are
    corrected, and the correction is shown.
    """
    if not (arguments["query"] or "").strip():
        raise InvalidInput("QUERY is empty.", hint='Say what to look for, such as: localmcp search "boiler fault"')
    if arguments["pathPrefix"]:
        arguments["pathPrefix"] = library_path(arguments["pathPrefix"])
    arguments["sourceId"] = find_source_id(session, arguments["sourceId"])
    arguments["metadata"] = parse_metadata(meta) or None
    # People see the words that matched, and those come with the explanation.
    arguments["explain"] = explain or not session.as_json
    result = _turn_to(session, arguments, page)
    session.answer(result, lambda value: print_results(session, value, explain, (page - 1) * arguments["limit"]))


def _turn_to(session: Session, arguments: Json, page: int) -> Json:
    """Return the page's result; cursors lead from page to page."""
    if arguments["mode"] != "keyword" and session.settings.database.exists():
        session.embedder.start_loading()
    result = session.call("search", **arguments).value
    for _ in range(page - 1):
        if "nextCursor" not in result:
            raise NotFound(f"There is no page {page}.", hint="Ask for an earlier page.")
        result = session.call("search", **{**arguments, "cursor": result["nextCursor"]}).value
    return result


def find_source_id(session: Session, name: str | None) -> str | None:
    """Return the id of a document named by id, path or title.

    Raises:
        NotFound: there is none.
    """
    if name is None:
        return None
    if is_uuid(name):
        return str(uuid.UUID(name))
    document = find_document(session, name)
    if "source" not in document:
        raise no_document(session, name, document["message"])
    return document["source"]["id"]


def find_document(session: Session, name: str, **options: Any) -> Json:
    """Return the answer of `get_document` for an id, a title, or a path as it is typed here."""
    path = library_path(name)
    document = session.call("get_document", sourceId=path, **options).value if path != name else {}
    return document if "source" in document else session.call("get_document", sourceId=name, **options).value


def no_document(session: Session, name: str, message: str) -> NotFound:
    """Return the error for a name that no document has."""
    if os.path.exists(name):
        holds = session.call("list_sources", pathPrefix=library_path(name), limit=1).value["total"]
        does = "List the documents in it with: localmcp sources --path" if holds else "See why with: localmcp why"
        return NotFound(message, hint=f"{does} {command_line(name)}")
    with session.existing().database.read() as connection:
        near = nearest_source(connection, name)
    listing = "List the documents with: localmcp sources"
    return NotFound(message, hint=f"Did you mean '{near}'?   ({listing})" if near else listing)


def parse_metadata(pairs: tuple[str, ...]) -> Json:
    """`("year=2024", "tags=[1, 2]", "author=Ada")` as `{"year": 2024, "tags": [1, 2], "author": "Ada"}`.

    Raises:
        InvalidInput: a pair without `=`.
    """
    wrong = "--meta: '{}' must be KEY=VALUE, such as author=Ada or year=2024."
    split = (split_pair(pair, wrong.format(pair)) for pair in pairs)
    return {key: json_or_text(value) for key, value in split}


def print_results(session: Session, result: Json, explain: bool, before: int = 0) -> None:
    """Print the hits on stdout, numbered after those `before`, and notices on stderr."""
    session.warn(*result.get("notices", ()))
    for repair in result.get("repairs", ()):
        session.note(f"Searched for '{repair['replacement']}' instead of '{repair['word']}'.")
    if not result["count"]:
        terminal.echo(session.advised(result["message"]))
    elif result.get("lowConfidence"):
        session.warn("Probably not in your documents; these passages are the nearest.")
    for number, hit in enumerate(result["results"], before + 1):
        terminal.echo("\n".join(hit_lines(number, hit, result, explain)))
    if explain:
        terminal.echo("\n".join(_query_lines(result)))
    if "nextCursor" in result:
        session.remark(f"There are more: --page {before // result['count'] + 2}")


def hit_lines(number: int, hit: Json, result: Json, explain: bool = False) -> list[str]:
    """One hit: place in the list, score, title and headings; its file and line; its best lines."""
    searched = [form for term in result.get("explain", {}).get("terms", ()) for form in term["searchedAs"]]
    matcher = Matcher(searched, hit.get("explain", {}).get("language", "english"))
    score = hit["relevance"]
    bar = terminal.styled(terminal.score_bar(score), fg="green")
    title = terminal.bold(hit["sourceTitle"]) + terminal.dim(headings_of(hit))
    lines = [f"{number:>2}  {bar} {score:>3.0f}  {title}", f"{MARGIN}{_place(hit)}"]
    if "alsoIn" in hit:
        lines.append(MARGIN + terminal.dim(f"also in {', '.join(map(terminal.short_path, hit['alsoIn']))}"))
    shown = excerpt(hit["content"], matcher, terminal.columns() - len(MARGIN))
    lines += [f"{MARGIN}{matcher.mark(line, terminal.highlighted)}" for line in shown]
    return [*lines, *(_explanation_lines(hit) if explain else ()), ""]


def _place(hit: Json) -> str:
    """`path:line`, shortened below the working directory; the line alone for a text without a file."""
    citation = hit["citation"]
    path = citation.get("path")
    label: str = citation["label"]
    shown = terminal.short_path(path) + label[len(path) :] if path else f"line {citation['startLine']}"
    origin = hit.get("origin")
    # A path in a mounted pack, or in a file from elsewhere, is no place on this machine.
    is_here = hit["freshness"] in ("fresh", "changed")
    parts = [terminal.styled(terminal.link(shown, path if is_here else None), fg="cyan")]
    parts += [terminal.styled(f"[{origin}]", fg="magenta")] if origin else []
    parts.append(terminal.dim(FOUND_BY[hit["matchType"]]))
    parts += [terminal.warned(signal) for signal in hit.get("signals", ())]
    if hit["freshness"] in ("changed", "missing"):
        parts.append(terminal.warned(freshness_words(hit["freshness"])))
    return "  ".join(parts)


def freshness_words(freshness: str) -> str:
    """Return that the file of a document has changed or is gone; empty otherwise."""
    words = {"changed": "the file has changed since", "missing": "the file is gone"}
    return words.get(freshness, "")


def _explanation_lines(hit: Json) -> list[str]:
    explain = hit["explain"]
    meaning, words = explain["semantic"], explain["keyword"]
    matched = ", ".join(explain["matchedWords"]) or "none"
    lines = [
        f"= {_formula(hit)}",
        f"  meaning: {rank_of(meaning)}, cosine {meaning['raw']:.3f}; words: {rank_of(words)}, bm25 {words['raw']:.2f}",
        f"  matched: {matched}; language: {explain['language']}",
    ]
    return [terminal.dim(MARGIN + line) for line in lines]


def _formula(hit: Json) -> str:
    """Return the sum that makes the score; with one arm alone, that arm."""
    score, parts = hit["combinedScore"], score_parts(hit)
    if len(parts) == 1:
        return f"{score:.1f} ({parts[0].name} alone)"
    return f"{' + '.join(f'{part.weight:.2g} × {part.points:.1f} ({part.name})' for part in parts)} = {score:.1f}"


def _query_lines(result: Json) -> list[str]:
    explain = result["explain"]
    terms = [
        f"{term['word']} ({terminal.counted(term['chunks'], 'passage')}, idf {term['idf']:.2f}, "
        f"as {' | '.join(term['searchedAs'])})"
        for term in explain["terms"]
    ]
    rows = {
        "searched for": "; ".join(terms) or "no words",
        "left out": ", ".join(f"{dropped['word']} ({dropped['reason']})" for dropped in explain["dropped"]),
        "languages": ", ".join(explain["languages"]),
        "searched in": ", ".join(
            terminal.counted(number, name.removesuffix("s")) for name, number in explain["searched"].items()
        ),
        "candidates": f"{explain['candidates']:,}",
        "milliseconds": ", ".join(f"{name} {value:.1f}" for name, value in explain["milliseconds"].items()),
    }
    return terminal.fact_lines(rows.items(), 12)
