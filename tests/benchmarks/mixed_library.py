"""A mixed library: English code and notes, Italian letters, German manuals, Spanish mail; questions in four languages.

    python tests/benchmarks/mixed_library.py --workdir DIR [--model multilingual] [--second|...|--eighth]

`mixed_library.txt` holds 160 documents written for this, with their questions: the first question of a document is in
its own language, the second in another one. Beside them stand letters, mails, notes and manuals put together from
paragraphs of everyday life, manual pages of this machine in three languages, and functions of the standard library:
about 1,000 files. Printed for each kind of question: the share with the right document first, and among the first
three. `chosen` are 100 questions, a third across languages, `all` every one.

`--second`: 48 other documents, French and Portuguese among them, with one question in their language and two in others,
in a library of 500 (`mixed_second.txt`).

`--third`: the same in Dutch, Polish, Russian, Swedish, Turkish, Greek and English, with questions in Italian,
Spanish, German and French too (`mixed_third.txt`).

`--fourth`: 20 documents in Italian, Danish, Czech and Portuguese among 460 others, Finnish, Hungarian and English among
them, with 20 questions in their language and 40 in others (`mixed_fourth.txt`).

`--fifth`: 28 documents in Italian, Spanish, German and French among 440 others, English among them, with 28 questions
in their language and 56 in others, half of those in English (`mixed_fifth.txt`).

`--sixth`: 28 documents in English, Italian, German, Spanish and French, each 120 to 300 words of what a person keeps,
among 440 others in the same languages, with 28 questions in their language and 56 in others (`mixed_sixth.txt`).

`--seventh`: 20 letters, mails and notes in French, Dutch, Polish, Swedish and German, and 22 manual pages of this
machine in these and in Russian, among 440 others, English among them, with a question in their language each and a
third of all in others; letters and pages are also shown apart (`mixed_seventh.txt`).

`--eighth`: 11 letters and mails in French, Dutch, Polish, Swedish and German among 310 others, with 28 questions about
facts in sentences of three to five words, 17 of them in another language (`mixed_eighth.txt`).
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import inspect
import json
import os
import random
import re
import statistics
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from localmcp.config import Settings
from localmcp.index.search import SearchRequest
from localmcp.workspace import Workspace

MANUALS = Path("/usr/share/man")
LONGEST = 2500
_MACRO = re.compile(r"^[.'].*$|\\\"[^\n]*", re.MULTILINE)
_FONT = re.compile(r"\\f(?:[A-Z0-9]|\(..|\[[^\]]*\])|\\[|&/,^:]|\\s[-+]?\d")
_NAME = re.compile(r"^\.S[Hh]\s+\"?.*\n(?:\.\\\".*\n)*(?P<line>[^\n]+?(?:\\-|--| - )[^\n]+)\n", re.MULTILINE)
_ACCENTED = re.compile(r"\\\((?P<accent>['`:,~^])(?P<letter>[A-Za-z])|\\\*\(Aq")
_MARKS = {"'": "\u0301", "`": "\u0300", ":": "\u0308", ",": "\u0327", "~": "\u0303", "^": "\u0302"}
MODULES = """
    argparse ast base64 calendar configparser csv datetime difflib email.utils filecmp fileinput fnmatch
    fractions ftplib functools getpass gettext glob gzip heapq html imaplib inspect ipaddress json.decoder
    linecache locale logging mailbox mimetypes netrc nntplib ntpath optparse os pathlib pdb pickletools
    pkgutil platform plistlib poplib posixpath pprint profile py_compile pyclbr quopri random re reprlib sched
    shelve shlex shutil smtplib sndhdr socket statistics string subprocess sysconfig tarfile tempfile textwrap
    timeit tokenize trace traceback turtle types typing unittest.mock urllib.parse urllib.request uuid
    warnings wave webbrowser xml.dom.minidom zipfile zipimport
""".split()
ENDINGS = {
    "it": "txt", "es": "eml", "de": "md", "en": "md", "fr": "txt", "pt": "txt",
    "nl": "txt", "pl": "md", "ru": "txt", "sv": "md", "tr": "txt", "el": "txt",
    "da": "txt", "cs": "md", "fi": "txt", "hu": "md",
}  # fmt: skip
NAMES = "Adele Bruno Clara Dario Elena Fabio Greta Hugo Irene Jonas Karin Luis Mina Nora Oskar Paula Quim Rita".split()
DAYS = {
    "it": "maggio", "es": "mayo", "de": "Mai", "en": "May", "fr": "mai", "pt": "de maio",
    "nl": "mei", "pl": "maja", "ru": "мая", "sv": "maj", "tr": "Mayıs", "el": "Μαΐου",
    "da": "maj", "cs": "května", "fi": "toukokuuta", "hu": "május",
}  # fmt: skip
OPENINGS = {
    "it": "Cara {name},", "es": "Hola, {name}:", "de": "# {name} {m}", "en": "# Notes, {d}",
    "fr": "Chère {name},", "pt": "Querida {name},", "nl": "Lieve {name},", "pl": "Cześć, {name}!",
    "ru": "Привет, {name}!", "sv": "Hej {name}!", "tr": "Sevgili {name},", "el": "Γεια σου, {name}!",
    "da": "Kære {name}", "cs": "Ahoj, {name}!", "fi": "Hei {name},", "hu": "Szia, {name}!",
}  # fmt: skip


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


class Others(NamedTuple):
    """How many documents stand beside those that are asked for."""

    filled: dict[str, int]
    pages: dict[str, int]
    functions: int


PAGE = ".page."
"""Part of the names of manual pages."""
LIBRARIES = {
    "library": Others({"it": 170, "es": 140, "de": 90, "en": 110}, {"it": 40, "es": 70, "de": 80}, 185),
    "second": Others(
        {"fr": 90, "pt": 90, "de": 60, "en": 60, "it": 30, "es": 30}, {"fr": 30, "pt_BR": 30, "de": 20}, 40
    ),
    "third": Others(dict.fromkeys(["nl", "pl", "ru", "sv", "tr", "el", "en"], 60), {}, 40),
    "fourth": Others(dict.fromkeys(["it", "da", "cs", "pt", "fi", "hu", "en"], 60), {}, 40),
    "fifth": Others(dict.fromkeys(["it", "es", "de", "fr", "en"], 80), {}, 40),
    "sixth": Others(dict.fromkeys(["it", "es", "de", "fr", "en"], 80), {}, 40),
    "seventh": Others(
        dict.fromkeys(["fr", "nl", "pl", "sv", "de", "en"], 45),
        {"fr": 40, "nl": 20, "pl": 20, "sv": 20, "de": 40, "ru": 25},
        40,
    ),
    "eighth": Others(dict.fromkeys(["fr", "nl", "pl", "sv", "de", "en"], 45), {}, 40),
}


class Question(NamedTuple):
    language: str
    text: str
    document: str
    """Name of the file that answers."""

    @property
    def kind(self) -> str:
        written_in = "en" if self.document.startswith("code.") else self.document[:2]
        return "one language" if written_in == self.language else "across"


def parse(library: str) -> tuple[dict[str, tuple[str, str]], list[Question], dict[str, list[str]]]:
    """Return title and text by name of what was written, the questions, and the paragraphs by language."""
    text = Path(__file__).with_name(f"mixed_{library}.txt").read_text(encoding="utf-8")
    written, _, rest = text.partition("## ")
    documents: dict[str, tuple[str, str]] = {}
    questions: list[Question] = []
    for part in written.split("=== ")[1:]:
        head, _, body = part.partition("\n")
        name, title = (field.strip() for field in head.split("|"))
        lines = body.strip().split("\n")
        documents[name] = (title, "\n".join(line for line in lines if not line.startswith("?")))
        questions += [Question(line[1:3], line[4:], name) for line in lines if line.startswith("?")]
    parts = (part.split("\n", 1) for part in f"## {rest}".split("## ") if part)
    return documents, questions, {head.strip(): body.strip().split("\n") for head, body in parts}


def functions(names: list[str], others: int, dice: random.Random) -> Iterator[tuple[str, str]]:
    """Yield the functions asked for, and others of the standard library."""
    for name in names:
        module, _, function = name.removeprefix("code.").rpartition(".")
        yield name, inspect.getsource(getattr(importlib.import_module(module), function))
    sources = short_functions()
    rest = sorted(sources.keys() - names)
    yield from ((name, sources[name]) for name in dice.sample(rest, others))


def short_functions() -> dict[str, str]:
    """Return the source of every function of some modules that is neither very short nor long."""
    sources: dict[str, str] = {}
    for module in MODULES:
        for name, value in inspect.getmembers(importlib.import_module(module), inspect.isfunction):
            try:
                source = inspect.getsource(value)
            except (OSError, TypeError):
                # Made while the module was imported, or written in C.
                continue
            if value.__module__ == module and 300 < len(source) < 2500:
                sources[f"code.{module}.{name}"] = source
    return sources


def filled(language: str, paragraphs: list[str], dice: random.Random) -> tuple[str, str]:
    """Return the title and text of a document of two to four paragraphs."""
    chosen = [OPENINGS[language], *dice.sample(paragraphs, dice.randint(2, 4))]

    def slots() -> dict[str, str]:
        values = {"name": dice.choice(NAMES), "n": str(dice.randint(2, 9)), "m": str(dice.randint(40, 900))}
        return values | {"d": f"{dice.randint(1, 28)} {DAYS[language]}", "h": str(dice.randint(10, 22))}

    parts = [re.sub(r"\{(\w+)\}", lambda match: slots()[match[1]], part) for part in chosen]
    return " ".join(parts[1].split()[:5]), "\n\n".join(part[0].upper() + part[1:] for part in parts)


def pages_asked_for(names: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name, title and text of manual pages of this machine, such as `nl.page.apt-mark`."""
    for document in names:
        language, _, name = document.partition(PAGE)
        pages = manual_pages(MANUALS / language, 10_000, random.Random(0))
        yield next((document, (f"{name}: {purpose}", text)) for page, purpose, text in pages if page == name)


def as_mail(title: str, text: str, dice: random.Random) -> str:
    sender, receiver = dice.sample(NAMES, 2)
    head = f"From: {sender} <{sender.lower()}@ejemplo.es>\nTo: {receiver} <{receiver.lower()}@ejemplo.es>\n"
    date = f"Date: Tue, {dice.randint(1, 28)} May 2026 10:{dice.randint(10, 59)}:00 +0200\n"
    plain = 'MIME-Version: 1.0\nContent-Type: text/plain; charset="utf-8"\nContent-Transfer-Encoding: 8bit\n'
    return f"{head}{date}Subject: {title}\n{plain}\n{text}\n"


def write(folder: Path, library: str) -> list[Question]:
    """Write the files of the library; returns its questions."""
    dice, others = random.Random(5), LIBRARIES[library]
    documents, questions, paragraphs = parse(library)
    for other in [*(["second", "third"] if library in ("seventh", "eighth") else []), "library"]:
        paragraphs = parse(other)[2] | paragraphs
    documents |= pages_asked_for(name for name in documents if PAGE in name)
    code = dict(functions([name for name in documents if name.startswith("code.")], others.functions, dice))
    texts = {name: document for name, document in documents.items() if name not in code}
    for language, count in others.filled.items():
        texts |= {f"{language}.{n}": filled(language, paragraphs[language], dice) for n in range(count)}
    for language, count in others.pages.items():
        for name, purpose, text in manual_pages(MANUALS / language, count, dice):
            # The same page in another language would answer as well.
            if library != "seventh" or not any(document.endswith(f"{PAGE}{name}") for document in documents):
                texts[f"{language[:2]}{PAGE}{name}"] = (f"{name}: {purpose}", text)
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in code.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    for name, (title, text) in texts.items():
        whole = as_mail(title, text, dice) if name.startswith("es.") else f"{title}\n\n{text}\n"
        (folder / f"{name}.{ENDINGS[name[:2]]}").write_text(whole, encoding="utf-8")
    print(f"{len(code) + len(texts)} documents, {len(questions)} questions")
    return questions


def choose(questions: list[Question]) -> list[Question]:
    """Return 100 questions, 33 of them across languages, as evenly over the languages of the documents as they are."""
    dice = random.Random(100)
    kinds = {kind: [q for q in questions if q.kind == kind] for kind in ("one language", "across")}
    return [*dice.sample(kinds["one language"], 67), *dice.sample(kinds["across"], 33)]


def places(workspace: Workspace, questions: list[Question]) -> dict[Question, int]:
    """Return the rank of the right document, from 1; 1000 where it is not among the first hundred passages."""
    ranks: dict[Question, int] = {}
    for question in questions:
        hits = workspace.index.search(SearchRequest(question.text, limit=100)).hits
        names = list(dict.fromkeys(Path(hit.passage.uri or "").stem for hit in hits))
        ranks[question] = names.index(question.document) + 1 if question.document in names else 1000
    return ranks


def show(label: str, ranks: list[int]) -> None:
    first, three = (statistics.fmean(rank <= most for rank in ranks) for most in (1, 3))
    print(f"{label:24} {len(ranks):4} questions: first {first:.2f}, among three {three:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--model", default="multilingual")
    for name in list(LIBRARIES)[1:]:
        parser.add_argument(f"--{name}", action="store_const", dest="library", const=name, help=f"the {name} library")
    parser.set_defaults(library="library")
    parser.add_argument("--json", type=Path, help="write the rank of every question there")
    options = parser.parse_args()
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    first, folder = options.library == "library", options.workdir / options.library
    questions = write(folder, options.library)
    database = options.workdir / f"{'' if first else f'{options.library}_'}{options.model}.localmcp"
    with Workspace(Settings(database=database, model=options.model)) as workspace:
        workspace.library.add_paths([folder])
        ranks = places(workspace, questions)
    for label, asked in [*([("chosen", choose(questions))] if first else []), ("all", questions)]:
        show(label, [ranks[question] for question in asked])
        for kind in ("one language", "across"):
            of_kind = [question for question in asked if question.kind == kind]
            show(f"{label}, {kind}", [ranks[question] for question in of_kind])
            if options.library == "seventh":
                for name, is_page in (("letters", False), ("pages", True)):
                    ranks_there = [ranks[question] for question in of_kind if (PAGE in question.document) == is_page]
                    show(f"{name}, {kind}", ranks_there)
    if options.json:
        rows = [{**question._asdict(), "rank": rank} for question, rank in ranks.items()]
        options.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
