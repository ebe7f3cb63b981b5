"""Every file is read in a worker process under its limits, whatever its name says it is."""

import os
import time
import zlib

import psutil
from folders import write

from localmcp.config import Settings
from localmcp.library import reading
from localmcp.readers.worker_pool import Limits
from localmcp.workspace import Workspace


def bomb(pages: int = 60) -> bytes:
    """A PDF of a few kB, each page of which draws 3 million letters."""
    text = zlib.compress(b"BT /F1 9 Tf " + b"(aaaaaaaaaa) Tj " * 300_000 + b"ET", 9)
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = b" ".join(b"%d 0 R" % (number + 5) for number in range(pages))
    objects.append(b"<< /Type /Pages /Count %d /Kids [%s] >>" % (pages, kids))
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(text), text))
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
    )
    objects += [page] * pages
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return body + b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        size, table, size, len(body),
    )  # fmt: skip


def test_a_bomb_under_any_name_is_given_up_by_its_worker(tmp_path, monkeypatch) -> None:
    write(tmp_path / "files" / "good.md", "# Bees\n\nA swarm is peaceful.")
    for name in ("notes.md", "notes"):
        (tmp_path / "files" / name).write_bytes(bomb())
    settings = Settings(database=tmp_path / "a.localmcp", model="hash")
    monkeypatch.setattr(reading, "Limits", lambda: Limits(seconds=0.5, memory=300_000_000))
    before, start = psutil.Process(os.getpid()).memory_info().rss, time.monotonic()
    with Workspace(settings) as workspace:
        report = workspace.library.add_paths([tmp_path / "files"])
    assert (report.indexed, report.failed) == (1, 2)
    assert all(reason.startswith(("reading it took", "It holds more than")) for _, reason in report.problems)
    assert psutil.Process(os.getpid()).memory_info().rss - before < 150_000_000
    assert time.monotonic() - start < 60
