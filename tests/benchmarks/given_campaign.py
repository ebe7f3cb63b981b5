"""Files as a stranger may give them: `verify`, `mount`, `adopt`, `merge` and `restore` end soon, refused or clean.

    python tests/benchmarks/given_campaign.py [--files 300] [--seed 1]

Each kind of foreign object alone (`tests/packs/given_files.py`), then two or three kinds at random in one file. What
was taken over has our schema alone, and is used: add, remove, a rule, an empty trash, a search. Prints the slowest of
each command; the exit code is the number of files with which something was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "packs"))

import apsw
import given_files

from localmcp.config import Settings
from localmcp.doctor.backups import restore
from localmcp.errors import LocalMCPError
from localmcp.packs.pack import verify
from localmcp.storage.adoption import adopt
from localmcp.storage.schema import expected_schema, schema_of
from localmcp.tools import Scope
from localmcp.workspace import Workspace

MOST_SECONDS = 10.0


def make(base: Path, given: Path, kinds: list[str]) -> list[str]:
    """Write the base with those kinds; returns those that SQLite let in."""
    shutil.copyfile(base, given)
    done: list[str] = []
    # Nothing can be written any more into what is endless.
    for kind in sorted(kinds, key=lambda kind: "endless" in kind):
        part = given.with_name("part.localmcp")
        try:
            given_files.make_given(given, part, kind)
        except apsw.Error:
            continue
        done.append(kind)
        part.replace(given)
        if (journal := part.with_name(f"{part.name}-journal")).exists():
            journal.replace(f"{given}-journal")
    return done


def mount(given: Path, own: Path) -> None:
    with Workspace(Settings(database=own, model="hash")) as workspace:
        workspace.mounts.mount(given)
        workspace.registry.call("search", {"query": "a hive has one queen"})


def merge(given: Path, own: Path) -> None:
    with Workspace(Settings(database=own, model="hash")) as workspace:
        workspace.library.add_text("Our own words.", "Ours")
        workspace.merging(partial(workspace.registry.call, scope=Scope(caller="cli"))).run(given)


def check(base: Path, kinds: list[str], slowest: Counter[str], outcomes: Counter[str]) -> list[str]:
    """Try every way on a fresh copy, and return what was wrong."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        given, own, restored = (place / f"{part}.localmcp" for part in ("given", "own", "restored"))
        kinds = make(base, given, kinds)
        ways: dict[str, tuple[Path, Callable[[], object]]] = {
            "verify": (given, lambda: verify(given)),
            "mount": (own, lambda: mount(given, own)),
            "merge": (own, lambda: merge(given, own)),
            "restore": (restored, lambda: restore(restored, given)),
            "adopt": (given, lambda: adopt(given)),
        }
        for way, (target, work) in ways.items():
            began, refused = time.perf_counter(), False
            try:
                work()
            except LocalMCPError:
                refused = True
            except Exception as error:
                wrong.append(f"{way}: {type(error).__name__}: {error}")
                continue
            seconds = round((time.perf_counter() - began) * 1000)
            slowest[way] = max(slowest[way], seconds)
            outcomes[f"{way} {'refused' if refused else 'done'}"] += 1
            if seconds > MOST_SECONDS * 1000:
                wrong.append(f"{way} took {seconds} ms")
            if way in ("merge", "restore", "adopt") and not refused:
                with closing(apsw.Connection(str(target))) as connection:
                    if schema_of(connection) != expected_schema():
                        wrong.append(f"{way} left what is not ours")
                try:
                    given_files.use(target)
                except Exception as error:
                    wrong.append(f"after {way}: {type(error).__name__}: {error}")
    return [f"{' + '.join(kinds)}: {problem}" for problem in wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, failures, slowest, outcomes = random.Random(options.seed), 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for kind in ("STATE", "CONFIG", "DATA", "CACHE"):
            os.environ[f"LOCALMCP_{kind}_DIR"] = str(place / kind.lower())
        base, every = given_files.make_base(place), list(given_files.SQL)
        for known in (place / "state" / "files").iterdir():
            known.unlink()
        for number in range(options.files):
            alone = every[number : number + 1]
            wrong = check(base, alone or chance.sample(every, chance.choice((2, 3))), slowest, outcomes)
            failures += bool(wrong)
            print(*wrong, sep="\n", end="\n" if wrong else "", flush=True)
            if number % 20 == 19:
                print(f"{number + 1} files, {failures} wrong; slowest in ms: {dict(slowest)}", flush=True)
    print(f"{options.files} files, {failures} wrong; slowest in ms: {dict(slowest)}; {dict(sorted(outcomes.items()))}")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
