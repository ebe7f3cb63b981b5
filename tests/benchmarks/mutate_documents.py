"""Thousands of damaged and hostile documents under any name: none takes this process with it, or longer than its time.

    python tests/benchmarks/mutate_documents.py --count 1000 --workdir /tmp/mutated [--seed 1]

For each of five readers (PDF, office, mail, HTML, archives) `count` files are made: good ones with bits flipped, cut,
spliced, repeated, nested or packed a thousandfold, a third of them under the name of another kind. They are read, cut
and split into words as `add` does it, and not stored. Problems are: more than 150 MB more of memory in this process,
and a file above its limit of time.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import shutil
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from made_files import make_epub, make_odp, make_ods, make_odt, make_pdf, make_zip

from localmcp.config import Settings
from localmcp.library.ledger import Root
from localmcp.library.reading import Task, read_groups, window_for
from localmcp.library.walk import File, stat_file
from localmcp.readers import worker_pool

MOST_MEGABYTES = 150
WORDS = "hive queen honey winter rose prune clay sand water pump valve pressure backup restore invoice tax".split()
Kinds = dict[str, dict[str, bytes]]


def saved(document: Any) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def make_kinds(chance: random.Random) -> Kinds:
    """Good files: kind -> suffix -> bytes."""

    def sentence() -> str:
        return " ".join(chance.choices(WORDS, k=12)).capitalize() + "."

    text = "\n\n".join(sentence() for _ in range(40))
    letter, deck, book = docx.Document(), pptx.Presentation(), openpyxl.Workbook()
    for _ in range(20):
        letter.add_paragraph(sentence(), style="List Number")
        book.active.append(sentence().split())
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = sentence()
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = "ann@example.org", sentence(), "<1@example.org>"
    mail.set_content(text)
    mail.add_alternative(f"<p>{text}</p>", subtype="html")
    mail.add_attachment(saved(letter), maintype="application", subtype="octet-stream", filename="letter.docx")
    page = f"<html><head><title>{sentence()}</title></head><body><h1>{sentence()}</h1>"
    page += "".join(f"<p>{sentence()}<table><tr><td rowspan=3>{sentence()}<td>1</table>" for _ in range(20))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        about = tarfile.TarInfo("notes/a.md")
        about.size = len(text)
        archive.addfile(about, io.BytesIO(text.encode()))
    return {
        "pdf": {".pdf": make_pdf([[sentence() for _ in range(30)] for _ in range(5)])},
        "office": {
            ".docx": saved(letter), ".pptx": saved(deck), ".xlsx": saved(book), ".odt": make_odt(), ".ods": make_ods(),
            ".odp": make_odp(),
        },
        "mail": {".eml": mail.as_bytes(), ".mbox": (b"From a Mon Jan 1 2024\n" + mail.as_bytes() + b"\n\n") * 3},
        "html": {
            ".html": page.encode(), ".epub": make_epub(a=f"<p>{text}</p>"),
            ".mhtml": b"Content-Type: text/html\n\n" + page.encode(),
        },
        "archives": {
            ".zip": make_zip({"a.md": text, "b.html": page, "c.eml": mail.as_bytes()}), ".tar.gz": tar.getvalue(),
        },
    }  # fmt: skip


def mutate(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Damage the bytes of a file in one of ten ways."""
    way, at = chance.randrange(10), chance.randrange(len(data))
    if data.startswith(b"PK") and chance.random() < 0.4:
        return repack(data, chance)
    if way < 3:
        changed = bytearray(data)
        for _ in range(chance.choice((1, 8, 60))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed)
    if way == 3:
        return data[:at]
    if way == 4:
        return data[:at] + other[chance.randrange(len(other)) :]
    if way == 5:
        return data[:at] + data[at : at + 200] * chance.choice((50, 5000)) + data[at:]
    if way == 6:
        return data[:at] + bytes(chance.choice((10, 100_000))) + data[at:]
    if way == 7:  # Numbers, which are sizes, counts and places.
        digits = chance.choice((b"0", b"99999999", b"-1", b"4294967295"))
        return re.sub(rb"\d+", lambda match: digits if chance.random() < 0.05 else match[0], data)
    if way == 8:
        return chance.choice((b"<div>", b"<table><tr><td>", b"> ", b"--b\n", b"((", b"<<", b"# ")) * 100_000 + data
    return repack(data, chance)


def repack(data: bytes, chance: random.Random) -> bytes:
    """Return a zip package with one part that is damaged or packed a thousandfold; other data with a long line."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
    except zipfile.BadZipFile:
        return data + chance.choice((b"a", b"a b ", b"\n", b"\xff")) * 3_000_000
    name = chance.choice(list(parts))
    whole = parts[name]
    assert isinstance(whole, bytes)
    half = len(whole) // 2
    tail = chance.choice((b"<w:p><w:r><w:t>word </w:t></w:r></w:p>", b"<a>", b"word ")) * chance.choice(
        (1000, 1_000_000)
    )
    parts[name] = chance.choice(
        (whole[:half], whole[:half] + tail + whole[half:], b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + whole)
    )
    return make_zip(parts)


def make_files(folder: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    kinds = make_kinds(chance)
    suffixes = [suffix for files in kinds.values() for suffix in files] + [".md", ".txt", ".py", "", ".csv", ".json"]
    every = [data for files in kinds.values() for data in files.values()]
    for kind, files in kinds.items():
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            suffix, data = chance.choice(list(files.items()))
            data = mutate(data, chance.choice(every), chance)
            suffix = suffix if number % 3 else chance.choice(suffixes)
            (folder / kind / f"f{number}{suffix}").write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one of the five readers")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.workdir, ignore_errors=True)
    make_files(arguments.workdir / "files", arguments.count, arguments.seed)
    read, slowest = worker_pool._Worker.read, [-99.0, ""]  # pyright: ignore[reportPrivateUsage]

    def timed(self: Any, item: Any, size: int, receive: Any) -> Iterator[bytes | str]:
        """Read with a look at the processor time of the worker, until it is killed."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.1):
                with suppress(psutil.Error):
                    times = psutil.Process(self.pid).cpu_times() if self.reading else None
                    if times:
                        text = min(self.text, worker_pool.TEXT_PER_BYTE * size)
                        excess = times.user + times.system - self.spent_before - 12 - 3 * text / 1e6
                        slowest[:] = max(slowest, [excess, item.file.path])

        threading.Thread(target=look, daemon=True).start()
        yield from read(self, item, size, receive)
        over.set()

    process, peak, done = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], process.memory_info().rss)

    worker_pool._Worker.read = timed  # pyright: ignore
    threading.Thread(target=watch, daemon=True).start()
    problems = 0
    for folder in sorted((arguments.workdir / "files").glob(arguments.only or "*")):
        tasks: list[Task] = []
        for path in sorted(folder.iterdir()):
            file = stat_file(str(path))
            assert isinstance(file, File)
            # An archive is read where it is added itself.
            tasks.append(Task(file, Root(str(path), "file", 1), None))
        start, outcomes = time.monotonic(), Counter[str]()
        for group in read_groups(tasks, window_for(None), Settings()):
            for _, reading in group:
                if reading:
                    reason = re.sub(r".* (?=is )|[\d:].*", "", reading.reason)[:40]
                    outcomes[reason or "read"] += 1
                    reading.draft = None  # As what is stored.
        grown = (peak[0] - before) / 1e6
        problems += grown > MOST_MEGABYTES
        print(
            f"{folder.name}: {len(tasks)} files, {time.monotonic() - start:.0f} s, this process +{grown:.0f} MB",
            flush=True,
        )
        print(f"    {outcomes.most_common(9)}", flush=True)
    done.set()
    problems += slowest[0] > 1
    print(f"the nearest to its limit of time, or above it: {slowest[0]:+.1f} s, {slowest[1]}; {problems} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
