"""Answers FULL at every n-th write of an ingest (of files, of mail and archives), a refresh, a reembed, a merge, an
import of rules, and an optimize, one n after the other.

    python tests/benchmarks/disk_full.py [--only ingest] [--step 1] [--files 12] [--sections 25]

The disk stays full from that write on, until the operation has given up. Then everything in the file must agree, the
same operation on a disk with room must complete, and the file must hold what it holds without all that. The exit code
is the number of failures. Not for Windows, where a file that is open cannot be replaced.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from consistency import disagreements  # noqa: E402
from full_disk import full_disk  # noqa: E402
from kill_everything import contents, generate, generate_containers, generate_imports  # noqa: E402

from localmcp.doctor.backups import optimize  # noqa: E402
from localmcp.errors import FileUnavailable  # noqa: E402
from localmcp.index.collections import choose_collections  # noqa: E402
from localmcp.index.vector_queue import reembed  # noqa: E402
from localmcp.models import HashEmbedder  # noqa: E402
from localmcp.storage.database import Database  # noqa: E402
from localmcp.tools import Scope  # noqa: E402
from localmcp.workspace import open_workspace  # noqa: E402

Work = Callable[[Path], object]


def ingest(*docs: Path) -> Work:
    def work(path: Path) -> object:
        with open_workspace(path, model="hash:64", log_calls="none") as workspace:
            return workspace.library.add_paths(docs)

    return work


def merge(other: Path) -> Work:
    def work(path: Path) -> object:
        with open_workspace(path, model="hash:64", log_calls="none") as workspace:
            return workspace.merging(lambda tool, values: workspace.registry.call(tool, values)).run(other)

    return work


def import_rules(folder: Path) -> Work:
    def work(path: Path) -> object:
        with open_workspace(path, model="hash:64", log_calls="none") as workspace:
            text = (folder / "rules.md").read_text()
            return workspace.registry.call("importRules", {"text": text}, Scope(caller="cli"))

    return work


def refresh(path: Path) -> object:
    with open_workspace(path, model="hash:64", log_calls="none") as workspace:
        return workspace.library.refresh(confirm_removals=True)


def change_model(path: Path) -> object:
    database = Database(path)
    try:
        with database.read() as connection:
            place = choose_collections(connection, ["default"])[0]
        return reembed(database, place, HashEmbedder(96))
    finally:
        database.close()


def make_better(path: Path) -> object:
    database = Database(path)
    try:
        return optimize(database)
    finally:
        database.close()


def try_all(name: str, work: Work, base: Path | None, place: Path, step: int) -> int:
    """Every moment of one operation; the number of those after which something was wrong."""
    clean = copied(base, place / "clean.localmcp")
    with full_disk(place) as disk:
        work(clean)
    expected, wrong, refused, begin = contents(clean), 0, 0, time.perf_counter()
    for at in range(1, disk.writes + 1, step):
        path = copied(base, place / "full.localmcp")
        problems, met = meet(work, path, at)
        refused += met
        work(path)
        problems += [f"after the next run: {each}" for each in disagreements(Database(path))]
        if contents(path) != expected:
            problems.append("after the next run the file holds something else")
        if problems:
            wrong += 1
            print(f"  {name}, write {at}: {'; '.join(problems)}", flush=True)
    seconds = time.perf_counter() - begin
    print(f"{name:<10} {disk.writes:>5} writes, {refused} refused, {wrong} wrong, {seconds:.0f} s", flush=True)
    return wrong


def meet(work: Work, path: Path, at: int) -> tuple[list[str], bool]:
    """Run on a disk that is full from that write on; what is wrong then, and whether the operation said so."""
    refused = False
    with full_disk(path.parent, at):
        try:
            work(path)
        except FileUnavailable as error:
            refused = "disk is full" in error.message
            if not refused:
                return [f"it says: {error}"], False
        except Exception as error:
            return [f"{type(error).__name__}: {error}"], False
    if not path.exists() or not path.stat().st_size:
        return [], refused
    return disagreements(Database(path)), refused


def copied(base: Path | None, path: Path) -> Path:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    if base is not None:
        shutil.copy(base, path)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="Names of operations.")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--sections", type=int, default=25)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for kind in ("STATE", "CONFIG", "DATA", "CACHE"):
            os.environ[f"LOCALMCP_{kind}_DIR"] = str(place / kind.lower())
        docs, work = place / "docs", place / "work"
        work.mkdir()
        generate(docs, options.files, options.sections, 1)
        base = place / "base.localmcp"
        generate(place / "more", options.files, 5, 3)
        ingest(place / "more")(place / "other.localmcp")
        generate_containers(place / "mail", 12)
        generate_imports(place / "imports", 20)
        ingest(docs)(base)
        generate(docs / "new", 5, 5, 2)
        (docs / "0001.md").unlink()
        operations: dict[str, tuple[Work, Path | None]] = {
            "ingest": (ingest(docs), None),
            "refresh": (refresh, base),
            "containers": (ingest(*sorted((place / "mail").iterdir())), None),
            "merge": (merge(place / "other.localmcp"), base),
            "rules": (import_rules(place / "imports"), base),
            "reembed": (change_model, base),
            "optimize": (make_better, base),
        }
        chosen = options.only or list(operations)
        return min(sum(try_all(each, *operations[each], work, options.step) for each in chosen), 100)


if __name__ == "__main__":
    sys.exit(main())
