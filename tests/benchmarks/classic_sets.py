"""Classic judged collections in BEIR form, as `quality.py` and `retrieval_quality.py` read them.

    python tests/benchmarks/classic_sets.py SOURCE --workdir DIR

SOURCE holds the files as the collections are handed around; those that are not there are left out:

- CISI.ALL, CISI.QRY, CISI.REL, the same of ADI and MED: abstracts of information science and of medicine;
- npl-doc-text, npl-query-text, npl-rlv-ass: abstracts of electronics, without titles;
- cf74.xml to cf79.xml, cfquery.xml: abstracts about cystic fibrosis; a document counts from 3 points of its 8 on.
"""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

LEAST_POINTS = 3
Documents = dict[str, tuple[str, str]]
"""Id -> title and text."""
Judgements = set[tuple[str, str]]
"""Ids of a query and of a document that answers it."""


def one_line(text: str) -> str:
    return " ".join(text.split())


def read_smart(path: Path) -> dict[str, dict[str, str]]:
    """Id -> field -> text, of a file with `.I`, `.T`, `.W` lines."""
    records: dict[str, dict[str, str]] = {}
    record: dict[str, str] = {}
    field = ""
    for line in path.read_text("latin-1").splitlines():
        if match := re.match(r"\.I\s+(\d+)", line):
            record, field = records.setdefault(match[1], {}), ""
        elif match := re.match(r"\.([A-Z])\s*$", line):
            field = match[1]
        elif field:
            record[field] = f"{record.get(field, '')}{line}\n"
    return records


def smart_collection(source: Path, name: str) -> tuple[Documents, dict[str, str], Judgements]:
    documents = {
        number: (one_line(record.get("T", "")), record.get("W", "").strip())
        for number, record in read_smart(source / f"{name}.ALL").items()
    }
    queries = {number: one_line(record.get("W", "")) for number, record in read_smart(source / f"{name}.QRY").items()}
    lines = (source / f"{name}.REL").read_text("latin-1").splitlines()
    return documents, queries, {(words[0], words[1]) for line in lines if (words := line.split())}


def read_numbered(path: Path) -> Iterator[tuple[str, str]]:
    """(number, text) of each block; blocks end with a slash alone on its line."""
    for block in path.read_text("latin-1").split("/\n"):
        number, _, text = block.strip().partition("\n")
        if number.strip().isdigit():
            yield number.strip(), one_line(text)


def npl_collection(source: Path) -> tuple[Documents, dict[str, str], Judgements]:
    documents = {number: ("", text) for number, text in read_numbered(source / "npl-doc-text")}
    queries = {number: text.lower() for number, text in read_numbered(source / "npl-query-text")}
    judged = read_numbered(source / "npl-rlv-ass")
    return documents, queries, {(query, document) for query, listed in judged for document in listed.split()}


def cf_collection(source: Path) -> tuple[Documents, dict[str, str], Judgements]:
    documents: Documents = {}
    for path in sorted(source.glob("cf7[4-9].xml")):
        for record in re.findall(r"<RECORD>(.*?)</RECORD>", path.read_text("latin-1"), re.DOTALL):
            text = _element(record, "ABSTRACT") or _element(record, "EXTRACT")
            documents[_number(record, "RECORDNUM")] = (one_line(_element(record, "TITLE")), text.strip())
    queries: dict[str, str] = {}
    judgements: Judgements = set()
    for query in re.findall(r"<QUERY>(.*?)</QUERY>", (source / "cfquery.xml").read_text("latin-1"), re.DOTALL):
        number = _number(query, "QueryNumber")
        queries[number] = one_line(_element(query, "QueryText"))
        for points, document in re.findall(r'<Item score="(\d+)">\s*(\d+)', query):
            if sum(map(int, points)) >= LEAST_POINTS:
                judgements.add((number, str(int(document))))
    return documents, queries, judgements


def _element(text: str, name: str) -> str:
    match = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", match[1])) if match else ""


def _number(text: str, name: str) -> str:
    return str(int(_element(text, name)))


def write(folder: Path, documents: Documents, queries: dict[str, str], judgements: Judgements) -> None:
    """Write a collection, with those queries alone that a document answers."""
    folder.mkdir(parents=True, exist_ok=True)
    judged = sorted((query, document) for query, document in judgements if query in queries and document in documents)
    asked = {query for query, _ in judged}
    corpus = ({"_id": number, "title": title, "text": text} for number, (title, text) in documents.items())
    questions = ({"_id": number, "text": text} for number, text in queries.items() if number in asked)
    for name, rows in (("corpus", corpus), ("queries", questions)):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    lines = "".join(f"{query}\t{document}\t1\n" for query, document in judged)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}", encoding="utf-8")
    print(f"{folder.name}: {len(documents)} documents, {len(asked)} queries, {len(judged)} answers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--workdir", type=Path, required=True)
    options = parser.parse_args()
    for name in ("ADI", "CISI", "MED"):
        if (options.source / f"{name}.ALL").exists():
            write(options.workdir / name.lower(), *smart_collection(options.source, name))
    if (options.source / "npl-doc-text").exists():
        write(options.workdir / "npl", *npl_collection(options.source))
    if (options.source / "cfquery.xml").exists():
        write(options.workdir / "cf", *cf_collection(options.source))


if __name__ == "__main__":
    main()
