"""Every file is read in a worker process under its limits, whatever its name says it is."""

import os
import time

import psutil
from folders import write
from made_files import make_nested_forms

from localmcp.config import Settings
from localmcp.library import reading
from localmcp.readers.worker_pool import Limits
from localmcp.workspace import Workspace


def test_a_bomb_under_any_name_is_given_up_by_its_worker(tmp_path, monkeypatch) -> None:
    write(tmp_path / "files" / "good.md", "# Bees\n\nA swarm is peaceful.")
    for name in ("notes.md", "notes"):
        (tmp_path / "files" / name).write_bytes(make_nested_forms())
    settings = Settings(database=tmp_path / "a.localmcp", model="hash")
    monkeypatch.setattr(reading, "Limits", lambda: Limits(seconds=0.5, memory=300_000_000))
    before, start = psutil.Process(os.getpid()).memory_info().rss, time.monotonic()
    with Workspace(settings) as workspace:
        report = workspace.library.add_paths([tmp_path / "files"])
    assert (report.indexed, report.failed) == (1, 2)
    assert all(reason.startswith(("reading it took", "It holds more than")) for _, reason in report.problems)
    assert psutil.Process(os.getpid()).memory_info().rss - before < 150_000_000
    assert time.monotonic() - start < 60
