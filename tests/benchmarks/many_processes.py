"""Three processes write and five read one file at once: no error may reach a user, nothing may be lost.

    python tests/benchmarks/many_processes.py [--seconds 60] [--writers 3] [--readers 5]
    python tests/benchmarks/many_processes.py --mixed 10 --seconds 300

A writer adds documents one after the other and removes every fifth; a reader searches. Afterwards every acknowledged
document must be there, and all indexes must agree with a recount. With --mixed every process does both, and finds at
once what it wrote; what one process wrote must stand in the file in the order in which it wrote it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from consistency import disagreements  # noqa: E402

from localmcp.storage.database import Database, fetch_all  # noqa: E402

WRITER = """
import json, sys, time
from localmcp.workspace import open_workspace
number, until = sys.argv[2], float(sys.argv[3])
kept, count, slowest = [], 0, 0.0
with open_workspace(sys.argv[1], model="hash") as workspace:
    while time.time() < until:
        count += 1
        start = time.perf_counter()
        text = f"Note {count} of writer {number} about lanterns and rivers.\\n" * 20
        done = workspace.library.add_text(text, f"w{number}-{count}")
        kept.append(done.uuid)
        if count % 5 == 0:
            workspace.library.remove([kept.pop(0)])
        slowest = max(slowest, time.perf_counter() - start)
print(json.dumps({"kept": kept, "writes": count, "slowest": slowest}))
"""
READER = """
import json, sys, time
from localmcp.workspace import open_workspace
until = float(sys.argv[3])
count, slowest = 0, 0.0
with open_workspace(sys.argv[1], model="hash") as workspace:
    while time.time() < until:
        start = time.perf_counter()
        result = workspace.registry.call("search", {"query": f"lanterns writer {count % 3}", "limit": 5}).value
        assert result["count"] <= 5
        slowest = max(slowest, time.perf_counter() - start)
        count += 1
print(json.dumps({"searches": count, "slowest": slowest}))
"""
MIXED = """
import json, random, sys, time
from localmcp.workspace import open_workspace
number, until = sys.argv[2], float(sys.argv[3])
chance = random.Random(int(number))
kept, count, searches, unseen, slowest = [], 0, 0, 0, 0.0
with open_workspace(sys.argv[1], model="hash") as workspace:
    while time.time() < until:
        start = time.perf_counter()
        what = chance.random()
        if what < 0.3 or not kept:
            count += 1
            text = f"Note {count} of process {number} about lanterns and rivers.\\n" * 20
            kept.append(workspace.library.add_text(text, f"m{number}-{count}").uuid)
            with workspace.database.read() as connection:
                sql = "select title from sources where uuid = ? and trashed_at is null"
                unseen += connection.execute(sql, (kept[-1],)).get != f"m{number}-{count}"
        elif what < 0.36:
            workspace.library.remove([kept.pop(0)])
        else:
            query = f"lanterns process {number} note {chance.randint(1, count)}"
            result = workspace.registry.call("search", {"query": query, "limit": 5}).value
            searches += 1
            unseen += not result["count"]
        slowest = max(slowest, time.perf_counter() - start)
told = {"kept": kept, "writes": count, "searches": searches, "unseen": unseen, "slowest": round(slowest, 3)}
print(json.dumps(told))
"""


def start(program: str, database: Path, number: int, until: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(database), str(number), str(until)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE.parent.parent)


def disorder(database: Path) -> list[str]:
    """Processes whose documents do not stand in the file in the order in which they were written."""
    with Database(database).read() as connection:
        titles = [row[0] for row in fetch_all(connection, "select title from sources order by id")]
    numbers: dict[str, list[int]] = {}
    for title in titles:
        process, _, number = title.partition("-")
        numbers.setdefault(process, []).append(int(number))
    return [f"the order of {process} was not kept" for process, found in numbers.items() if found != sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=5)
    parser.add_argument("--mixed", type=int, default=0, help="So many processes that do both, instead.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALMCP_STATE_DIR"] = str(Path(folder) / "state")
        database = Path(folder) / "shared.localmcp"
        until = time.time() + options.seconds
        mixed = [start(MIXED, database, n, until) for n in range(options.mixed)]
        writers = [start(WRITER, database, n, until) for n in range(0 if mixed else options.writers)]
        readers = [start(READER, database, n, until) for n in range(0 if mixed else options.readers)]
        kept: set[str] = set()
        errors = 0
        for kind, processes in (("writer", writers), ("reader", readers), ("mixed", mixed)):
            for process in processes:
                out, err = process.communicate()
                errors += process.returncode != 0 or bool(err)
                told = json.loads(out) if out else {}
                kept |= set(told.pop("kept", ()))
                errors += bool(told.get("unseen"))
                print(kind, told, err.strip()[-300:])
        with Database(database).read() as connection:
            there = {row[0] for row in fetch_all(connection, "select uuid from sources where trashed_at is null")}
        wrong = disagreements(Database(database)) + disorder(database)
        print(f"errors {errors}, acknowledged {len(kept)}, lost {len(kept - there)}, unexpected {len(there - kept)}")
        print("indexes agree" if not wrong else f"DISAGREE: {wrong}")
        raise SystemExit(bool(errors or kept != there or wrong))


if __name__ == "__main__":
    main()
