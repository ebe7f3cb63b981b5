"""Kills every operation that changes a file, at random moments, and checks after each kill that nothing is broken.

    python tests/benchmarks/kill_everything.py --kills 200 [--only merge optimize] [--sections 700] [--seed 1]
    python tests/benchmarks/kill_everything.py --kills 200 --only words meaning
    python tests/benchmarks/kill_everything.py --kills 60 --model multilingual --sections 40

The kills are shared among add (of files, of mail and archives, of a web page; its words and its meaning alone),
refresh, cancelling a job, remove, trash, merge, adopt, models use, pack, backup, restore, imports, records, doctor
--fix and optimize. Each kill meets a fresh copy of a prepared file. Afterwards everything in the file must agree, the
same command must complete, and the file must then
hold what it holds without a kill. The commands run as a person types them, in forked processes, so that no kill is
wasted on imports. The exit code is the number of failures. POSIX only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import importlib
import io
import json
import os
import pkgutil
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import apsw  # noqa: E402
import numpy  # noqa: E402, F401
from consistency import disagreements  # noqa: E402

import localmcp.cli  # noqa: E402
from localmcp.cli.program import execute  # noqa: E402
from localmcp.cli.session import Session  # noqa: E402
from localmcp.packs.pack import verify  # noqa: E402
from localmcp.storage.database import Database, fetch_all  # noqa: E402
from localmcp.storage.schema import utc_now  # noqa: E402
from localmcp.workspace import Workspace  # noqa: E402, F401

for module in pkgutil.iter_modules(localmcp.cli.__path__):
    # Now, so that no kill is wasted on imports.
    if module.name != "tui":
        importlib.import_module(f"localmcp.cli.{module.name}")

MODEL, OTHER_MODEL = "hash:64", "hash:96"


@dataclass(frozen=True)
class Operation:
    """A command, and the file it meets."""

    name: str
    command: Callable[[Path], Sequence[str]]
    base: str | None
    """Name of the prepared file; None = none yet."""
    starts_sound: bool = True
    repeats: bool = False
    """Done twice it stores everything twice: what was killed after its end may be there twice."""


class Ground:
    """The prepared files and folders."""

    def __init__(self, place: Path, sections: int) -> None:
        self.place = place
        self.sections = sections
        self.docs, self.more, self.changing = place / "docs", place / "more", place / "changing"
        self.page = ""
        self.mail, self.imports, self.backup = place / "mail", place / "imports", place / "backup.localmcp"

    def prepare(self) -> None:
        generate(self.docs, 40, self.sections, 1)
        generate(self.more, 25, self.sections // 2, 2)
        generate(self.changing, 40, self.sections, 3)
        self.make("plain", "add", str(self.docs))
        self.make("other", "add", str(self.more))
        self.make("stale", "add", str(self.changing))
        change(self.changing)
        self.make("damaged", "add", str(self.docs))
        self.damage()
        self.make("sparse", "add", str(self.docs), str(self.more))
        self.run("sparse", "remove", "-y", str(self.docs))
        self.run("sparse", "trash", "empty", "-y")
        self.make("binned", "add", str(self.docs), str(self.more))
        self.run("binned", "remove", "-y", str(self.docs))
        self.run("other", "backup", str(self.backup))
        self.make("waiting", "add", "--no-wait", str(self.docs))
        self.make("begun", "add", str(self.docs))
        self.begin_job()
        self.page = serve_page(self.docs / "all.md")
        generate_containers(self.mail)
        generate_imports(self.imports)
        for path in self.place.glob("*.localmcp"):
            settle(path)
        shutil.copy(self.base("plain"), self.base("given"))
        with contextlib.closing(apsw.Connection(str(self.base("given")))) as connection:
            # Of another machine.
            connection.pragma("journal_mode", "delete")
            connection.execute("update file set id = lower(hex(randomblob(16)))")

    def make(self, name: str, *command: str) -> None:
        self.run(name, *command)

    def run(self, name: str, *command: str) -> None:
        code = finish(start(["--db", str(self.base(name)), *command]))
        if code:
            sys.exit(f"Preparing {name} by {' '.join(command)} failed with {code}.")

    def base(self, name: str) -> Path:
        return self.place / f"{name}.localmcp"

    def begin_job(self) -> None:
        """Write down a job that another process works on."""
        database = Database(self.base("begun"))
        with database.write() as connection:
            connection.execute(
                "insert into jobs (id, total, started_at, heartbeat_at) values ('begun', 1, ?, ?)",
                (utc_now(), utc_now(-3600)),
            )
        database.close()

    def damage(self) -> None:
        database = Database(self.base("damaged"))
        with database.write() as connection:
            connection.execute("delete from signs")
            connection.execute("delete from chunks_fts where rowid % 3 = 0")
            connection.execute("insert into vectors select id + 1000000, embedding from vectors where id % 2 = 0")
        database.close()

    def operations(self) -> list[Operation]:
        other, out = str(self.base("other")), str(self.place / "out.localmcp")
        return [
            Operation("add", lambda p: ["add", str(self.docs)], None),
            Operation("containers", lambda p: ["add", *map(str, sorted(self.mail.iterdir()))], None),
            Operation("words alone", lambda p: ["add", "--no-wait", str(self.docs)], None),
            Operation("meaning alone", lambda p: ["refresh"], "waiting"),
            Operation("page", lambda p: ["add", "--allow-private", self.page], "plain"),
            Operation("cancel", lambda p: ["call", "cancel_job", '{"jobId": "begun"}'], "begun"),
            Operation("refresh", lambda p: ["refresh", "--yes"], "stale"),
            Operation("remove", lambda p: ["remove", "-y", str(self.docs)], "plain"),
            Operation("trash empty", lambda p: ["trash", "empty", "-y"], "binned"),
            Operation("merge", lambda p: ["merge", other], "plain"),
            Operation("models use", lambda p: ["models", "use", OTHER_MODEL], "plain"),
            Operation("backup", lambda p: ["backup", str(self.place / f"kept-{time.time_ns()}.localmcp")], "plain"),
            # Until it is adopted, nobody may write it to look.
            Operation("adopt", lambda p: ["adopt", str(p)], "given", starts_sound=False),
            Operation("restore", lambda p: ["restore", "--other", "-y", str(self.backup)], "plain"),
            Operation("rules", lambda p: ["rules", "import", str(self.imports / "rules.md")], "plain"),
            Operation("quickstarts", lambda p: ["quickstarts", "import", str(self.imports / "guides.jsonl")], "plain"),
            Operation(
                "records",
                lambda p: ["collections", "insert", "kept", "--file", str(self.imports / "records.jsonl")],
                "plain",
                repeats=True,
            ),
            Operation("pack", lambda p: ["pack", out, "--force"], "plain"),
            Operation("doctor --fix", lambda p: ["doctor", "--fix"], "damaged", starts_sound=False),
            Operation("optimize", lambda p: ["optimize"], "sparse"),
        ]


def generate(folder: Path, files: int, sections: int, seed: int) -> None:
    """Small notes, and one large document."""
    chance = random.Random(seed)
    words = [f"{a}{b}" for a in ("ka", "lo", "mi", "ner", "pu", "sta") for b in ("ban", "del", "for", "gis", "tum")]

    def paragraph() -> str:
        return " ".join(chance.choices(words, k=120)) + ".\n\n"

    folder.mkdir(parents=True)
    for number in range(files):
        text = f"# Note {seed}-{number}\n\n" + "".join(f"## Part {n}\n\n{paragraph()}" for n in range(3))
        (folder / f"{number:04}.md").write_text(text, encoding="utf-8")
    text = f"# All {seed}\n\n" + "".join(f"## Part {n}\n\n{paragraph()}" for n in range(sections))
    (folder / "all.md").write_text(text, encoding="utf-8")


def generate_containers(folder: Path, number: int = 200) -> None:
    """A mailbox whose mails have attachments, and two archives."""
    folder.mkdir()
    mails = "".join(
        f"From a@b Mon Jan  1 10:00:00 2024\nFrom: a@b\nSubject: Mail {n}\nMessage-ID: <{n}@b>\nMIME-Version: 1.0\n"
        f"Content-Type: multipart/mixed; boundary=x\n\n--x\n\nThe text of mail {n}.\n--x\n"
        f'Content-Disposition: attachment; filename="{n}.md"\n\n# Attached {n}\n\nWhat mail {n} brings.\n--x--\n\n'
        for n in range(number)
    )
    (folder / "all.mbox").write_text(mails)
    for name in ("one.zip", "two.zip"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for part in range(number // 2):
                archive.writestr(f"{part}.md", f"# Part {part} of {name}\n\nKept in an archive.\n")


def generate_imports(folder: Path, number: int = 300) -> None:
    """Rules, quick starts and records in the forms that are imported."""
    folder.mkdir()
    rules = "".join(f"- Name the {n}th thing by what it is.\n" for n in range(number // 5))
    (folder / "rules.md").write_text(f"# Rules\n\n## naming\n\n{rules}")
    guides = ({"name": f"guide-{n}", "content": {"spec": {"displayName": f"Guide {n}"}}} for n in range(number))
    (folder / "guides.jsonl").write_text("".join(json.dumps(guide) + "\n" for guide in guides))
    records = ({"text": f"A record of number {n}.", "metadata": {"n": n}} for n in range(number))
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def serve_page(file: Path) -> str:
    """Serve a file on this machine as a web page; returns its address."""
    data = file.read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/markdown")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data)

        def log_message(self, *values: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/all.md"


def change(folder: Path) -> None:
    """What a refresh has to do: changed, new, moved and deleted files."""
    for path in sorted(folder.glob("000*.md")):
        path.write_text(path.read_text(encoding="utf-8") + "\n## Later\n\nOne more thing.\n", encoding="utf-8")
    for path in sorted(folder.glob("001*.md"))[:5]:
        path.unlink()
    for path in sorted(folder.glob("002*.md"))[:5]:
        path.rename(path.with_name(f"moved-{path.name}"))
    generate(folder / "new", 15, 100, 9)


def settle(path: Path) -> None:
    """Bring the log into the file, so that a copy of the file is all of it."""
    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


# ---------------------------------------------------------------- processes


def start(command: Sequence[str]) -> int:
    """Run a command line in a forked process; returns its id."""
    process = os.fork()
    if process:
        return process
    os.setpgid(0, 0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        session = Session()
        code = execute(session, command)
        session.close()
    if code not in (0, 1):
        os.write(2, said.getvalue().encode())
    os._exit(code)


def finish(process: int) -> int:
    """Wait for its end; the exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def kill_after(process: int, seconds: float) -> bool:
    """Kill it after so many seconds; False when it had ended before."""
    time.sleep(seconds)
    if os.waitpid(process, os.WNOHANG)[0]:
        return False
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


# ---------------------------------------------------------------- what is compared


def contents(path: Path) -> list[Any]:
    """Place, text and vector, of the collection's own model, of every passage that is not in the trash."""
    database = Database(path, read_only=True)
    with database.read() as connection:
        rows = fetch_all(
            connection,
            """
            select coalesce(uri, title), position, text, (
                select embedding from vectors where vectors.id = collections.model_id << 40 | chunks.id
            ) from chunks join sources on sources.id = source_id join collections on collections.id = collection_id
            where trashed_at is null order by 1, 2, 3
            """,
        )
    database.close()
    return rows


def broken(path: Path) -> list[str]:
    if not path.exists() or not path.stat().st_size:
        return []
    database = Database(path)
    found = disagreements(database)
    database.close()
    return found


def fresh(ground: Ground, operation: Operation, path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    for pattern in (f"{path.stem}-before-re*", "kept-*"):
        for each in path.parent.glob(pattern):
            each.unlink()
    (ground.place / "out.localmcp").unlink(missing_ok=True)
    if operation.base:
        shutil.copy(ground.base(operation.base), path)


# ---------------------------------------------------------------- the campaign


def campaign(ground: Ground, operation: Operation, kills: int, chance: random.Random) -> list[str]:
    """Kill one operation again and again; what was wrong afterwards."""
    path = ground.place / "victim.localmcp"
    command = ["--db", str(path), *operation.command(path)]
    fresh(ground, operation, path)
    begin = time.perf_counter()
    finish(start(command))
    full = time.perf_counter() - begin
    clean = contents(path)
    wrong: list[str] = []
    begun, done = time.perf_counter(), 0
    while done < kills:
        fresh(ground, operation, path)
        seconds = chance.uniform(0.0, full)
        if not kill_after(start(command), seconds):
            full *= 0.97
            continue
        done += 1
        wrong += [f"kill {done} after {seconds:.2f} s: {each}" for each in check(ground, operation, path, clean)]
    took = time.perf_counter() - begun
    print(
        f"{operation.name:<13} {done:>4} kills within {full:5.1f} s  {len(wrong):>3} wrong  {took:6.0f} s", flush=True
    )
    for each in wrong[:5]:
        print(f"    {each}", flush=True)
    return wrong


def check(ground: Ground, operation: Operation, path: Path, clean: list[Any]) -> list[str]:
    wrong = broken(path) if operation.starts_sound else []
    out = ground.place / "out.localmcp"
    if out.exists():
        wrong += verify(out).problems
    code = finish(start(["--db", str(path), *operation.command(path)]))
    if code not in (0, 1):
        wrong.append(f"the next run ends with {code}")
    wrong += [f"after the next run: {each}" for each in broken(path)]
    after = contents(path)
    if (set(after) if operation.repeats else after) != (set(clean) if operation.repeats else clean):
        wrong.append("after the next run the file holds something else than without a kill")
    if operation.name == "pack":
        wrong += verify(out).problems if out.exists() else ["the next run made no pack"]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--only", nargs="*", help="Names of operations.")
    parser.add_argument("--sections", type=int, default=700, help="Of the large document.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=MODEL, help="the embedding model, as in the settings")
    options = parser.parse_args()
    chance, failures, begin = random.Random(options.seed), 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for kind in ("STATE", "CONFIG", "DATA", "CACHE"):
            os.environ[f"LOCALMCP_{kind}_DIR"] = str(place / kind.lower())
        os.environ["LOCALMCP_MODEL"] = options.model
        ground = Ground(place, options.sections)
        ground.prepare()
        chosen = [each for each in ground.operations() if not options.only or each.name.split()[0] in options.only]
        share, rest = divmod(options.kills, len(chosen))
        for number, operation in enumerate(chosen):
            failures += len(campaign(ground, operation, share + (number < rest), chance))
    print(f"{options.kills} kills, {failures} wrong, {time.perf_counter() - begin:.0f} s")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
