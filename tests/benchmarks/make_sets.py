"""A judged collection in two languages, and the manual pages of a Linux machine for the mixed libraries.

    python tests/benchmarks/make_sets.py --workdir DIR --alternating FOLDER FOLDER

The folders hold the same documents in two languages, in BEIR form. `alternating_same` and `alternating_across`: every
second document in the other one, asked for in its own language, and in the other; `quality.py` reads them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

MANUALS = Path("/usr/share/man")
LONGEST = 2500
_MACRO = re.compile(r"^[.'].*$|\\\"[^\n]*", re.MULTILINE)
_FONT = re.compile(r"\\f(?:[A-Z0-9]|\(..|\[[^\]]*\])|\\[|&/,^:]|\\s[-+]?\d")
_NAME = re.compile(r"^\.S[Hh]\s+\"?.*\n(?:\.\\\".*\n)*(?P<line>[^\n]+?(?:\\-|--| - )[^\n]+)\n", re.MULTILINE)


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


def _read_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--alternating", type=Path, nargs=2, required=True, help="the collection in two languages")
    options = parser.parse_args()
    write_alternating(options.workdir / "alternating", *options.alternating)


if __name__ == "__main__":
    main()
