"""Kills an ingest again and again, and checks after each kill that everything in the file agrees.

    python tests/benchmarks/kill_ingest.py --kills 20 [--model default] [--folder DIR]

A folder of small files and one large one is generated unless one is given. The moments are random; each run goes on
where the one before was killed. At the end the next run completes, and the file is compared with one made without
a kill.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from consistency import disagreements  # noqa: E402

from localmcp.storage.database import Database, fetch_all, fetch_one  # noqa: E402

INGEST = """
import sys
from localmcp.config import Settings
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.library.ingest import Library
from localmcp.storage.database import Database

library = Library(Database(sys.argv[1]), LazyEmbedder(lambda: open_embedder(sys.argv[2])), Settings())
report = library.add_paths([sys.argv[3]])
print(report)
"""


def generate(folder: Path, files: int = 400, sections: int = 3000) -> None:
    """Small notes, and one large document in the middle of them."""
    chance = random.Random(1)
    words = [f"{a}{b}" for a in ("ka", "lo", "mi", "ner", "pu", "sta") for b in ("ban", "del", "for", "gis", "tum")]

    def paragraph(length: int) -> str:
        return " ".join(chance.choices(words, k=length)) + ".\n\n"

    folder.mkdir(parents=True)
    for number in range(files):
        text = f"# Note {number}\n\n" + "".join(f"## Part {n}\n\n{paragraph(160)}" for n in range(3))
        (folder / f"{number:04}.md").write_text(text, encoding="utf-8")
    text = "# All\n\n" + "".join(f"## Part {n}\n\n{paragraph(160)}" for n in range(sections))
    (folder / f"{files // 2:04}-all.md").write_text(text, encoding="utf-8")


def start(database: Path, model: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", INGEST, str(database), model, str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE.parent.parent
    )


def look(database: Database) -> tuple[int, int, int]:
    """Sources, chunks, and chunks that wait for their vectors."""
    with database.read() as connection:
        sql = """
            select (select count(*) from sources), (select count(*) from chunks), coalesce(sum(passages), 0)
            from vector_queue
        """
        return fetch_one(connection, sql)


def contents(database: Database) -> list[tuple[str, str, bytes]]:
    """Path, text and vector of every chunk."""
    with database.read() as connection:
        return fetch_all(
            connection,
            """
            select uri, text, embedding from chunks join sources on sources.id = source_id
            join embeddings on chunk_id = chunks.id order by uri, position
            """,
        )


def whole_run(database: Path, model: str, folder: Path) -> float:
    """Run an ingest to its end; seconds."""
    begin = time.perf_counter()
    process = start(database, model, folder)
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"The ingest failed:\n{output}")
    return time.perf_counter() - begin


def kill_once(database: Path, model: str, folder: Path, seconds: float) -> bool:
    """Kill a run after so many seconds; False when it had ended before."""
    process = start(database, model, folder)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    process.communicate()
    return False


def main() -> int:
    """Run the campaign; the exit code is the number of kills after which something did not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="hash")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["LOCALMCP_STATE_DIR"] = str(place / "state")
        folder = options.folder or place / "documents"
        if options.folder is None:
            generate(folder)
        return campaign(place, folder, options.model, options.kills, random.Random(options.seed))


def campaign(place: Path, folder: Path, model: str, kills: int, chance: random.Random) -> int:
    clean = place / "clean.localmcp"
    full = whole_run(clean, model, folder)
    print(f"Without a kill: {full:.1f} s, {look(Database(clean))[1]} chunks.\n")
    print(f"{'kill':>4} {'after':>7} {'sources':>8} {'chunks':>8} {'waiting':>8}  agrees")
    path, failures, run = place / "killed.localmcp", 0, 0
    while run < kills:
        seconds = chance.uniform(0.2, full)
        if not kill_once(path, model, folder, seconds):
            # It had ended: the next kills go to a new file.
            path = place / f"killed{run}.localmcp"
            continue
        run += 1
        database = Database(path)
        problems = disagreements(database) if path.exists() and path.stat().st_size else []
        sources, chunks, waiting = look(database) if path.exists() else (0, 0, 0)
        print(f"{run:>4} {seconds:>6.1f}s {sources:>8} {chunks:>8} {waiting:>8}  {'; '.join(problems) or 'yes'}")
        failures += bool(problems)
        database.close()
    seconds = whole_run(path, model, folder)
    same = contents(Database(path)) == contents(Database(clean))
    problems = disagreements(Database(path))
    print(f"\nThe next run completes in {seconds:.1f} s; {look(Database(path))[2]} passages still wait.")
    print(f"Everything agrees: {'; '.join(problems) or 'yes'}. The same as without a kill: {'yes' if same else 'NO'}.")
    return failures + bool(problems) + (not same)


if __name__ == "__main__":
    sys.exit(main())
