"""Judged collections made from what a Linux machine has: manual pages in several languages, Python's own sources.

    python tests/benchmarks/make_sets.py --workdir DIR [--documents 600]

Writes one folder in BEIR form per set, as `quality.py` reads them:

- manuals: what a command is for ("list directory contents") finds its page, which no longer holds that line;
- manuals_long: the first paragraph of a page finds the rest of it: questions as long as a paragraph;
- manuals_LANGUAGE and manuals_mixed: the same in other languages, alone and all in one collection;
- manuals_across: pages that exist in several languages, each in one of them, found by what they are for in another;
- docstrings: the first sentence of a docstring finds the function's code, without the docstring;
- sections: a heading of the reference that Python ships finds the section below it;
- packages: the short description of an installed package finds its long one; package_titles: the other way round,
  among the short descriptions of 6,000 packages;
- library: English code and manuals beside German, Italian and Spanish manuals, with 100 questions in the four
  languages, a third of them asked in another language than the page that answers;
- parallel: with `--parallel FOLDER ...`, collections in BEIR form that hold the same documents in several languages
  (such as XQuAD): each document in one of them, among those of the library; 100 questions, a third in another one;
- alternating_same and alternating_across: with `--alternating FOLDER FOLDER`, two collections that hold the same
  documents in two languages: every second document in the other one, asked for in its own language, and in the other;
- translated: with `--translated FOLDER ...`, Markdown manuals whose translated headings have the same `{ #anchors }`:
  each section in one language, asked for by its first sentence, which it no longer holds; a third in another language.

A page that a machine does not have is left out, so figures are comparable on one machine only.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
import re
import subprocess
import sysconfig
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MANUALS = Path("/usr/share/man")
LANGUAGES = ("de", "fr", "it", "es", "nl", "sv", "pt_BR", "ru", "pl")
LONGEST = 2500
LEAST_LANGUAGE = 50
QUERIES = 250
MOST_BESIDE = 60
"""Pages of a language that stand beside those that are asked for."""
_MACRO = re.compile(r"^[.'].*$|\\\"[^\n]*", re.MULTILINE)
_FONT = re.compile(r"\\f(?:[A-Z0-9]|\(..|\[[^\]]*\])|\\[|&/,^:]|\\s[-+]?\d")
_NAME = re.compile(r"^\.S[Hh]\s+\"?.*\n(?:\.\\\".*\n)*(?P<line>[^\n]+?(?:\\-|--| - )[^\n]+)\n", re.MULTILINE)


class Pair(NamedTuple):
    """One question and the document that answers it."""

    name: str
    question: str
    title: str
    text: str


_ANCHORED = re.compile(r"^#+ +(.*?) *\{ *#([\w-]+) *\} *$", re.MULTILINE)
_ACCENTED = re.compile(r"\\\((?P<accent>['`:,~^])(?P<letter>[A-Za-z])|\\\*\(Aq")
_MARKS = {"'": "\u0301", "`": "\u0300", ":": "\u0308", ",": "\u0327", "~": "\u0303", "^": "\u0302"}


def _accented(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", match["letter"] + _MARKS[match["accent"]]) if match["accent"] else "'"


def plain(roff: str) -> str:
    """Return the running text of a manual page; headings and bold words stay as lines."""
    roff = _ACCENTED.sub(_accented, roff)
    kept = re.sub(r"^\.(?:S[HS]|B|I|BR|IR|TP)\s+", "", roff, flags=re.MULTILINE)
    text = _FONT.sub("", _MACRO.sub("", kept)).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def manual_pages(folder: Path, most: int, dice: random.Random) -> Iterator[tuple[str, str, str]]:
    """Yield (name, what it is for, text without that line) of at most `most` pages of the folder."""
    pages = sorted([*folder.glob("man1/*.gz"), *folder.glob("man5/*.gz"), *folder.glob("man8/*.gz")])
    dice.shuffle(pages)
    seen: set[str] = set()
    for page in pages:
        if len(seen) >= most:
            return
        if page.is_symlink() or not page.exists():
            continue
        roff = gzip.decompress(page.read_bytes()).decode("utf-8", "replace")
        match = _NAME.search(roff)
        purpose = plain(re.split(r"\\-|--| - ", match["line"], maxsplit=1)[1]).strip(" -") if match else ""
        text = plain(roff[match.end() :])[:LONGEST] if match else ""
        if len(purpose.split()) >= 4 and len(text) > 400 and purpose not in seen:
            seen.add(purpose)
            yield page.name.split(".")[0], purpose, text


def long_pair(name: str, text: str) -> Pair | None:
    """Return the first paragraph of at least 25 words as the question for the rest of the page."""
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    number = next((n for n, part in enumerate(parts) if 25 <= len(part.split()) <= 120), None)
    rest = "\n\n".join(parts[number + 1 :]) if number is not None else ""
    return Pair(name, parts[number], name, rest) if number is not None and len(rest) > 400 else None


def docstring_pairs(most: int, dice: random.Random) -> Iterator[Pair]:
    """Yield functions of the standard library, each asked for by the first sentence of its docstring."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        path for path in root.glob("**/*.py") if "test" not in str(path) and "site-packages" not in str(path)
    )
    dice.shuffle(files)
    count = 0
    for path in files:
        source = path.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if count >= most or not isinstance(node, ast.FunctionDef) or len(node.body) < 3:
                continue
            documentation = ast.get_docstring(node) or ""
            question = " ".join(documentation.split("\n\n")[0].split())
            if not 6 <= len(question.split()) <= 40:
                continue
            node.body = node.body[1:]
            count += 1
            yield Pair(f"{path.stem}.{node.name}.{count}", question, node.name, ast.unparse(node)[:LONGEST])


def section_pairs() -> Iterator[Pair]:
    """Yield the sections of Python's language reference, each asked for by its first sentence."""
    from pydoc_data import topics

    for topic, page in topics.topics.items():
        for number, part in enumerate(re.split(r"\n(?=[^\n]+\n[-=~*]{4,}\n)", page)):
            heading, _, body = part.strip().partition("\n")
            sentence, _, rest = " ".join(body.lstrip("-=~*\n").split()).partition(". ")
            if 8 <= len(sentence.split()) <= 50 and len(rest) > 300:
                yield Pair(f"{topic}.{number}", sentence, heading, rest[:LONGEST])


def package_pairs() -> Iterator[Pair]:
    """Yield installed packages: the short description asks for the long one."""
    for record in Path("/var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        name = re.search(r"^Package: (.*)$", record, re.MULTILINE)
        described = re.search(r"^Description: (.*)\n((?: .*\n?)+)", record, re.MULTILINE)
        if name and described and not name[1].endswith("-dev"):
            text = re.sub(r"^ \.?", "", described[2], flags=re.MULTILINE).strip()
            if len(text) > 150 and len(described[1].split()) >= 4:
                yield Pair(name[1], described[1], name[1], text)


def title_pairs(packages: Iterable[Pair], most: int, dice: random.Random) -> list[Pair]:
    """Return short descriptions as documents; those of installed packages are asked for by the long one's start."""
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    others = [line for line in sorted(set(re.findall(r"^Description: (.*)$", listed, re.MULTILINE))) if " " in line]
    questions = {pair.question: re.split(r"(?<=[.])\s", " ".join(pair.text.split()))[0] for pair in packages}
    asked = {short: long for short, long in questions.items() if 6 <= len(long.split()) <= 45}
    texts = list(dict.fromkeys([*asked, *dice.sample(others, min(most, len(others)))]))
    return [Pair(f"t{number}", asked.get(text, ""), "", text) for number, text in enumerate(texts)]


LIBRARY = {"de": 25, "it": 30, "es": 20}
"""Questions by language; 25 more are English."""


def library(dice: random.Random) -> tuple[list[Pair], list[tuple[str, str]]]:
    """Return the documents of a mixed library, and questions with the name of the page that answers.

    A page that exists in English and in another language is in the library in one of the two, so that the question
    made from the other one crosses the languages.
    """
    english = {name: (asked, text) for name, asked, text in manual_pages(MANUALS, 5000, dice)}
    documents: list[Pair] = []
    questions: list[tuple[str, str]] = []
    abroad: list[tuple[str, str]] = []
    claimed: set[str] = set()
    for language, most in LIBRARY.items():
        pages = {name: (asked, text) for name, asked, text in manual_pages(MANUALS / language, 5000, dice)}
        both = sorted(english.keys() & pages.keys())
        dice.shuffle(both)
        in_english = both[: most // 3]
        questions += [(pages.pop(name)[0], f"en.{name}") for name in in_english]
        claimed.update(in_english)
        abroad += [(english[name][0], f"{language}.{name}") for name in both[most // 3 : most // 3 + 4]]
        for name in set(both) - claimed:
            del english[name]
        same = dice.sample(sorted(pages), most - most // 3)
        questions += [(pages[name][0], f"{language}.{name}") for name in same]
        documents += [Pair(f"{language}.{name}", "", name, text) for name, (_, text) in pages.items()]
    others = dice.sample(sorted(english.keys() - claimed), 400)
    questions += [*abroad[:8], *((english[name][0], f"en.{name}") for name in others[:17])]
    documents += [Pair(f"en.{name}", "", name, english[name][1]) for name in [*others, *sorted(claimed)]]
    code = [pair._replace(name=f"code.{pair.name}") for pair in docstring_pairs(460, dice)]
    return [*documents, *code], questions


def across_pairs(dice: random.Random) -> list[Pair]:
    """Return pages that exist in several languages, each in one of them, with the question in another.

    Beside them stand pages that exist in one language only, and are not asked for.
    """
    pages: dict[str, dict[str, tuple[str, str]]] = {}
    for language in ("en", *LANGUAGES):
        folder = MANUALS if language == "en" else MANUALS / language
        for name, purpose, text in manual_pages(folder, 10_000, random.Random(0)):
            pages.setdefault(name, {})[language] = (purpose, text)
    pairs: list[Pair] = []
    beside: Counter[str] = Counter()
    for name, versions in sorted(pages.items()):
        written, asked = dice.sample(sorted(versions), 2) if len(versions) > 1 else [*versions] * 2
        beside[written] += len(versions) == 1
        if beside[written] <= MOST_BESIDE or len(versions) > 1:
            question = versions[asked][0] if len(versions) > 1 else ""
            pairs.append(Pair(f"{written}.{name}", question, name, versions[written][1]))
    return pairs


def write_library(folder: Path, dice: random.Random) -> None:
    """Write the mixed library; `queries.jsonl` and `qrels.tsv` as of the other sets."""
    documents, questions = library(dice)
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "corpus.jsonl", [{"_id": d.name, "title": d.title, "text": d.text} for d in documents])
    asked = [{"_id": f"q{number}", "text": question} for number, (question, _) in enumerate(questions)]
    _write_lines(folder / "queries.jsonl", asked)
    judged = "".join(f"q{number}\t{name}\t1\n" for number, (_, name) in enumerate(questions))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    print(f"{folder.name}: {len(documents)} documents, {len(questions)} questions")


def write_parallel(folder: Path, library: Path, parallel: Sequence[Path], dice: random.Random) -> None:
    """Write documents that exist in several languages, each in one of them, and questions in any."""
    documents = [{row["_id"]: row["text"] for row in _read_lines(source / "corpus.jsonl")} for source in parallel]
    questions = [{row["_id"]: row["text"] for row in _read_lines(source / "queries.jsonl")} for source in parallel]
    asked_for: dict[str, list[str]] = {}
    for line in (parallel[0] / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, _ = line.split("\t")
        if all(question in translated for translated in questions):
            asked_for.setdefault(document, []).append(question)
    everywhere = sorted(set(documents[0]).intersection(*documents[1:]))
    languages = {name: dice.randrange(len(parallel)) for name in everywhere}
    rows = [
        {"_id": f"x.{name}", "title": f"Note {number}", "text": documents[language][name]}
        for number, (name, language) in enumerate(languages.items())
    ]
    asked: list[dict[str, str]] = []
    judged = "query-id\tcorpus-id\tscore\n"
    for number, name in enumerate(dice.sample(sorted(asked_for.keys() & languages.keys()), 100)):
        others = [language for language in range(len(parallel)) if language != languages[name]]
        language = languages[name] if number % 3 else dice.choice(others)
        asked.append({"_id": f"q{number}", "text": questions[language][dice.choice(asked_for[name])]})
        judged += f"q{number}\tx.{name}\t1\n"
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "corpus.jsonl", [*rows, *_read_lines(library / "corpus.jsonl")])
    _write_lines(folder / "queries.jsonl", asked)
    (folder / "qrels.tsv").write_text(judged, encoding="utf-8")
    print(f"{folder.name}: {len(rows)} documents among those of {library.name}, {len(asked)} questions")


def write_alternating(folder: Path, first: Path, second: Path) -> None:
    """Write documents of which every second one is in another language, and the questions about them in either."""
    documents = [{row["_id"]: row for row in _read_lines(source / "corpus.jsonl")} for source in (first, second)]
    questions = [{row["_id"]: row for row in _read_lines(source / "queries.jsonl")} for source in (first, second)]
    lines = (first / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    judged = [line.split("\t")[:2] for line in lines]
    language = {name: number % 2 for number, name in enumerate(documents[0])}
    rows = [documents[language[name]][name] for name in language]
    for kind, shift in (("same", 0), ("across", 1)):
        place = folder.with_name(f"{folder.name}_{kind}")
        place.mkdir(parents=True, exist_ok=True)
        _write_lines(place / "corpus.jsonl", rows)
        asked = [questions[(language[document] + shift) % 2][question] for question, document in judged]
        _write_lines(place / "queries.jsonl", asked)
        (place / "qrels.tsv").write_text((first / "qrels.tsv").read_text(encoding="utf-8"), encoding="utf-8")
        print(f"{place.name}: {len(rows)} documents, {len(asked)} questions")


def write_sections(folder: Path, manual: Path) -> None:
    """Write the sections of one language's Markdown manual; the first sentence of each asks for the rest."""
    sections: dict[str, tuple[str, str]] = {}
    for path in sorted(manual.rglob("*.md")):
        _, *parts = _ANCHORED.split(path.read_text(encoding="utf-8"))
        for _, anchor, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            running = " ".join(line for line in text.splitlines() if line[:1] not in "#/{|`<!")
            asked, _, rest = re.sub(r"<[^>]*>|\]\([^)]*\)(\{[^}]*\})?|[*`\[\]]", "", running).strip().partition(". ")
            if 8 <= len(asked.split()) <= 40 and len(rest.split()) >= 40:
                sections[f"{path.relative_to(manual).with_suffix('')}#{anchor}"] = (asked, rest)
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "corpus.jsonl", [{"_id": name, "text": rest} for name, (_, rest) in sections.items()])
    _write_lines(folder / "queries.jsonl", [{"_id": name, "text": asked} for name, (asked, _) in sections.items()])
    judged = "".join(f"{name}\t{name}\t1\n" for name in sections)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")


def write_set(folder: Path, pairs: Iterable[Pair], dice: random.Random) -> None:
    """Write a collection in BEIR form; at most `QUERIES` of its documents are asked for."""
    documents = list({pair.name: pair for pair in pairs}.values())
    if not documents:
        return
    asks = [pair for pair in documents if pair.question]
    asked = sorted(dice.sample(asks, min(QUERIES, len(asks))))
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"_id": each.name, "title": each.title, "text": each.text} for each in documents]
    _write_lines(folder / "corpus.jsonl", rows)
    _write_lines(folder / "queries.jsonl", [{"_id": pair.name, "text": pair.question} for pair in asked])
    judged = "".join(f"{pair.name}\t{pair.name}\t1\n" for pair in asked)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    print(f"{folder.name}: {len(documents)} documents, {len(asked)} questions")


def _read_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=600, help="most documents of a set")
    parser.add_argument("--parallel", type=Path, nargs="*", help="the same collection in several languages")
    parser.add_argument("--alternating", type=Path, nargs=2, help="the same collection in two languages")
    parser.add_argument("--translated", type=Path, nargs="*", help="the same Markdown manual in several languages")
    options = parser.parse_args()
    if options.alternating:
        write_alternating(options.workdir / "alternating", *options.alternating)
        return
    if options.translated:
        folders = [options.workdir / f"translated_{number}" for number, _ in enumerate(options.translated)]
        for folder, manual in zip(folders, options.translated, strict=True):
            write_sections(folder, manual)
        write_parallel(options.workdir / "translated", options.workdir / "library", folders, random.Random(31))
        return
    dice = random.Random(7)
    pages = list(manual_pages(MANUALS, 2 * options.documents, dice))
    write_set(options.workdir / "manuals", (Pair(n, q, n, t) for n, q, t in pages[: options.documents]), dice)
    longer = (pair for name, _, text in pages[options.documents :] if (pair := long_pair(name, text)))
    write_set(options.workdir / "manuals_long", longer, dice)
    mixed: list[Pair] = []
    for language in LANGUAGES:
        found = [
            Pair(f"{language}.{n}", q, n, t) for n, q, t in manual_pages(MANUALS / language, options.documents, dice)
        ]
        if len(found) >= LEAST_LANGUAGE:
            write_set(options.workdir / f"manuals_{language}", found, dice)
        mixed += found
    write_set(options.workdir / "manuals_mixed", mixed, dice)
    write_set(options.workdir / "manuals_across", across_pairs(random.Random(41)), random.Random(43))
    write_set(options.workdir / "docstrings", docstring_pairs(options.documents, dice), dice)
    write_set(options.workdir / "sections", section_pairs(), dice)
    packages = list(package_pairs())
    write_set(options.workdir / "packages", packages, dice)
    write_set(options.workdir / "package_titles", title_pairs(packages, 6000, dice), dice)
    write_library(options.workdir / "library", random.Random(19))
    if options.parallel:
        write_parallel(options.workdir / "parallel", options.workdir / "library", options.parallel, random.Random(23))


if __name__ == "__main__":
    main()
