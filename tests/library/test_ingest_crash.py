"""Ingest killed, interrupted and crowded: the file stays sound, and nothing is lost or doubled."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from consistency import disagreements
from folders import CountingEmbedder, column, many_sections, titles, write

from localmcp.config import Settings
from localmcp.errors import FileUnavailable, Interrupted
from localmcp.index.vector_queue import Lease
from localmcp.library import reading, trash
from localmcp.library.ingest import Library
from localmcp.library.jobs import Progress
from localmcp.models import LazyEmbedder
from localmcp.storage.database import Database, fetch_one

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("sound_afterwards")
on_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


# ---------------------------------------------------------------- killed, interrupted, crowded

INGEST = """
import os
import sys
import time
from localmcp.config import Settings
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.library import reading
from localmcp.library.ingest import Library
from localmcp.storage.database import Database

# One process that reads is started in a quarter of the time of several.
os.cpu_count = lambda: 1

class Slow(HashEmbedder):
    def embed_passages(self, texts):
        time.sleep(len(texts) * 0.001)
        return super().embed_passages(texts)

library = Library(Database(sys.argv[1]), LazyEmbedder(lambda: Slow(64)), Settings())
def show(now):
    print(now.done, 100 * now.vectors_done // max(now.vectors_total, 1), flush=True)
    if now.done and paths[-1] == "pause":
        time.sleep(60)

paths = sys.argv[2:]
if paths[-1] == "pause":
    # Small transactions, so that the pause is between two.
    reading.GROUP_CHUNKS = 10
report = library.add_paths([path for path in paths if path != "pause"], progress=show)
print("finished", report.indexed, report.unchanged, flush=True)
"""


def start_ingest(database: Database, *paths: Path | str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", INGEST, str(database.path), *map(str, paths)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def wait_for_line(process: subprocess.Popen[str], enough: Callable[[str], bool]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if enough(line):
            return


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Many small files and one large one."""
    folder = tmp_path / "large"
    for number in range(20):
        write(folder / f"{number:03}.md", f"# Note {number}\n\n" + many_sections(2, f"subject{number}"))
    write(folder / "050-big.md", many_sections(240, "whole"))
    return folder


@on_posix
@pytest.mark.parametrize("stop", ["SIGKILL", "SIGINT"])
def test_an_ingest_that_is_killed_or_interrupted_leaves_a_sound_file_and_the_next_run_resumes(
    library: Library, database: Database, large: Path, stop: str
) -> None:
    process = start_ingest(database, large, "pause")
    wait_for_line(process, lambda line: line.split()[0] not in ("0", "finished"))
    process.send_signal(getattr(signal, stop))
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0 and ("KeyboardInterrupt" in err) == (stop == "SIGINT")
    assert disagreements(database) == []
    done = len(titles(database))
    assert 0 < done < 21
    report = library.add_paths([large])
    assert (report.unchanged, report.indexed) == (done, 21 - done)
    assert column(database, "select count(*) from vectors") == column(database, "select count(*) from chunks")


@on_posix
def test_vectors_of_a_large_file_survive_a_kill(database: Database, embedder: CountingEmbedder, large: Path) -> None:
    big = large / "050-big.md"
    process = start_ingest(database, big)
    wait_for_line(process, lambda line: int(line.split()[1]) >= 40)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert titles(database) == ["Many"]
    saved, chunks = column(database, "select count(*) from vectors union all select count(*) from chunks")
    assert 0.4 * chunks <= saved < chunks
    report = Library(database, LazyEmbedder(lambda: embedder), Settings()).add_paths([big])
    assert (report.unchanged, report.vectors_added, report.waiting) == (1, chunks - saved, 0)
    # The model is asked for texts of its calibration too.
    assert len({text for text in embedder.embedded if text.startswith("Many\n")}) == chunks - saved


def test_processes_that_add_the_same_and_other_folders_at_once_double_and_lose_nothing(
    library: Library, database: Database, large: Path, folder: Path, tmp_path: Path
) -> None:
    third = tmp_path / "third"
    for number in range(10):
        write(third / f"{number}.md", f"# Third {number}\n\nWords.\n")
    running = [start_ingest(database, *paths) for paths in ((large,), (large, folder), (third, folder))]
    while any(process.poll() is None for process in running[:1]):
        if database.path.exists():
            with database.read() as connection:
                chunks = fetch_one(connection, "select count(*) from chunks")
                assert fetch_one(connection, "select count(*) from chunks_fts") == chunks
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert "finished" in out
    assert len(titles(database)) == 21 + 3 + 10
    assert library.refresh().unchanged == 34


def test_threads_of_one_process_may_add_at_once(library: Library, database: Database, folder: Path) -> None:
    def add(number: int) -> None:
        library.add_text(f"Text {number}.", f"Title {number}")
        library.add_paths([folder])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, range(6)))
    assert len(titles(database)) == 9


def test_a_folder_that_is_removed_while_it_is_added_stops_with_a_sentence(
    library: Library, database: Database, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FIRST_SECONDS", -1.0)

    def remove_once(now: Progress) -> None:
        if now.phase == "words" and len(library.roots()) == 1:
            library.remove([str(large)])

    with pytest.raises(Interrupted, match=r"was removed meanwhile; nothing more of it is added\."):
        library.add_paths([large], progress=remove_once)
    assert titles(database) == [] and library.roots() == []


def test_what_is_added_to_a_folder_while_it_is_removed_goes_with_it(
    library: Library, database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add_paths([folder])
    find = trash.find_removal

    def find_and_add(*arguments: Any) -> str | int:
        removal = find(*arguments)
        write(folder / "late.md", "# Late\n")
        library.refresh(wait=False)
        return removal

    monkeypatch.setattr(trash, "find_removal", find_and_add)
    assert library.remove([str(folder)]).removed == 4
    assert titles(database) == [] and library.roots() == []


# ---------------------------------------------------------------- the queue


def test_the_queue_survives_remove_and_refresh_while_it_is_worked_off(
    library: Library, database: Database, large: Path
) -> None:
    library.add_paths([large], wait=False)
    batches = [0]

    def meanwhile(_now: Progress) -> None:
        batches[0] += 1
        if batches[0] == 2:
            library.remove([str(large / "050-big.md"), str(large / "001.md")])
        if batches[0] == 3:
            (large / "002.md").write_text("# Changed\n\nOther words.\n")
            library.refresh(wait=False)

    assert library.make_vectors(progress=meanwhile).waiting == 0
    assert batches[0] >= 3
    live = "select count(*) from chunks join sources on sources.id = source_id where trashed_at is null"
    assert column(database, f"select sum(count) from signs union all {live}")[0] == column(database, live)[0]


@on_posix
def test_the_lease_of_a_killed_process_is_free_at_once(database: Database) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lease = Lease()
    lease.holder = f"{socket.gethostname()}:{dead.pid}:x"
    with database.write() as connection:
        assert lease.take(connection)
        assert Lease().take(connection)
        assert not Lease().take(connection)


@on_posix
def test_a_stop_while_the_meaning_is_read_ends_soon_with_the_code_of_a_stop(tmp_path: Path, large: Path) -> None:
    command = [sys.executable, "-m", "localmcp", "--db", str(tmp_path / "a.localmcp"), "add", str(large)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    database = Database(tmp_path / "a.localmcp")
    database.may_create = False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(FileUnavailable), database.read() as connection:
            if fetch_one(connection, "select count(*) from vectors"):
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "found by word only" in err
    assert disagreements(database) == []
    database.close()
