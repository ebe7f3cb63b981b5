"""How fast the TUI is: start to first paint in a real terminal, results after typing, the Library with many documents.

    python tests/benchmarks/tui_speed.py                        # a small file, made here
    python tests/benchmarks/tui_speed.py --sources 100000       # one with so many documents
    python tests/benchmarks/tui_speed.py FILE --model default   # any other file

"Results" begins with the last key, the debounce with it, and ends when the list with the passages has
been painted, escape sequences and all; the query is embedded by the model, which is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localmcp.config import Settings
from localmcp.tui.app import LocalMcpApp
from localmcp.workspace import Workspace

ROOT = Path(__file__).parent.parent.parent
QUERIES = (
    "kafka consumer lag", "how do I restore a backup", "certificate expired", "rate limit of the api",
    "boiler fault code", "retry with backoff", "monthly report deadline", "vector index size", "who approves expenses",
)  # fmt: skip
PAINTED = b"7 File"
"""When this is on the screen, the frame and the first pane have been drawn."""


def first_paint(file: Path) -> float:
    """Seconds from the start of the process until the frame is on a pseudo-terminal."""
    begin = time.perf_counter()
    with _terminal(file) as (main, _):
        _read_until(main, PAINTED)
        return time.perf_counter() - begin


def memory(file: Path, model: str) -> float:
    """Megabytes in use after a search and a look at the Library, of which the person sees the answers."""
    with _terminal(file, model) as (main, process):
        _read_until(main, b"ready")
        for keys, answer in ((b"boiler fault code", b"passage 1"), (b"\x1b2", b"About")):
            os.write(main, keys)
            _read_until(main, answer)
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) / 1000


@contextmanager
def _terminal(file: Path, model: str | None = None) -> Iterator[tuple[int, int]]:
    """The program on a pseudo-terminal: the terminal's descriptor, and the number of the process."""
    main, side = pty.openpty()
    os.set_blocking(main, False)
    process = subprocess.Popen(
        [sys.executable, "-m", "localmcp", "tui", str(file)], stdin=side, stdout=side, stderr=side, cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "34",
             **({"LOCALMCP_MODEL": model} if model else {})}, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    try:
        yield main, process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(main)


def _read_until(main: int, text: bytes, seconds: float = 20) -> None:
    """Read what is drawn until that text has been."""
    seen, end = b"", time.perf_counter() + seconds
    while text not in seen and time.perf_counter() < end:
        if select.select([main], [], [], 0.2)[0]:
            seen += os.read(main, 65536)


class Painting:
    """Notices when a widget has been painted; what a real terminal would get is made, too."""

    def __init__(self, app: LocalMcpApp, widget: Any) -> None:
        self.drawn = False
        self.done = asyncio.Event()
        self._ready: Callable[[], bool] = lambda: False
        self._app: Any = app
        self._display, self._app._display = self._app._display, self.display
        self._render_lines, widget.render_lines = widget.render_lines, self.render_lines

    def expect(self, ready: Callable[[], bool]) -> None:
        """Wait for the first painting from which `ready` holds."""
        self._ready, self.drawn = ready, False
        self.done.clear()

    def render_lines(self, crop: Any) -> Any:
        self.drawn = self.drawn or self._ready()
        return self._render_lines(crop)

    def display(self, screen: Any, update: Any) -> None:
        if hasattr(update, "render_segments"):
            update.render_segments(self._app.console)
        self._display(screen, update)
        if self.drawn:
            self.done.set()


async def timed(painting: Painting, act: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds from an act until it is on the screen, on the clock and of the processor."""
    begin, cpu = time.perf_counter(), time.process_time()
    act()
    await painting.done.wait()
    return (time.perf_counter() - begin) * 1000, (time.process_time() - cpu) * 1000


async def results_after_typing(file: Path, model: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds, and those of the processor, from the last key until the results are on the screen."""
    app = LocalMcpApp(lambda: Workspace(Settings(database=file, model=model)), file)
    # As `localmcp tui` does.
    gc.freeze()
    times: list[float] = []
    processor: list[float] = []
    async with app.run_test(size=(120, 34)) as pilot:
        while app.session.model_loading or not app.stats:
            await pilot.pause(0.05)
        await pilot.pause(0.3)
        painting = Painting(app, app.pane.list)
        for number in range(-5, rounds):
            query = f"{QUERIES[number % len(QUERIES)]} {number}"
            painting.expect(lambda query=query: app.pane.found.result.get("query") == query)
            wall, cpu = await timed(painting, lambda query=query: setattr(app.pane.line, "value", query))
            # The preview, and quiet before the next query.
            await pilot.pause(0.15)
            if number >= 0:
                times.append(wall)
                processor.append(cpu)
    return {"results": times, "processor": processor}


async def browsing(file: Path, model: str) -> dict[str, list[float]]:
    """Milliseconds to show the Library's rows that a filter leaves, and to move the cursor by one line within them."""
    app = LocalMcpApp(lambda: Workspace(Settings(database=file, model=model)), file)
    gc.freeze()
    built: list[float] = []
    moved: list[float] = []
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("escape", "2")
        pane: Any = app.pane
        while not pane.rows:
            await pilot.pause(0.02)
        painting = Painting(app, pane.list)
        for words in ("note", "/", "0"):
            before = pane.rows
            painting.expect(lambda before=before: pane.rows is not before)
            built.append((await timed(painting, lambda words=words: setattr(pane.line, "value", words)))[0])
            await pilot.pause(0.1)
        pane.list.focus()
        for _ in range(50):
            line = pane.list.highlighted
            painting.expect(lambda line=line: pane.list.highlighted != line)
            moved.append((await timed(painting, pane.list.action_cursor_down))[0])
            await pilot.pause(0.02)
        most = len(pane.rows)
    return {"filter": built, "line": moved, "rows built": [float(most)]}


def make_file(folder: Path, sources: int) -> Path:
    """A file of so many short documents, with vectors of the hash model."""
    file = folder / "many.localmcp"
    sys.path.insert(0, str(ROOT / "tests"))
    from library import Library

    from localmcp.models import HashEmbedder
    from localmcp.storage.database import Database

    library = Library(Database(file), HashEmbedder(64))
    for number in range(sources):
        library.put(f"# Note {number}\n\nAbout {QUERIES[number % len(QUERIES)]}.\n", title=f"Note {number:06}")
        if number % 5000 == 4999:
            print(f"{number + 1:,} documents", file=sys.stderr)
    library.database.close()
    return file


def percentiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return round(statistics.median(ordered), 1), round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="hash", help="model of the file")
    parser.add_argument("--sources", type=int, default=500)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ.setdefault(f"LOCALMCP_{name}_DIR", f"{temporary}/{name.lower()}")
        file = options.file.absolute() if options.file else make_file(Path(temporary), options.sources)
        paint = [first_paint(file) * 1000 for _ in range(options.starts)]
        typed = asyncio.run(results_after_typing(file, options.model, options.rounds))
        rows = asyncio.run(browsing(file, options.model))
        (results_p50, results_p95), (processor, _) = percentiles(typed["results"]), percentiles(typed["processor"])
        report = {
            "load": os.getloadavg()[0], "first_paint_ms": percentiles(paint)[0], "results_p50_ms": results_p50,
            "results_p95_ms": results_p95, "results_cpu_p50_ms": processor,
            "library_filter_p50_ms": percentiles(rows["filter"])[0],
            "library_line_p50_ms": percentiles(rows["line"])[0],
            "library_rows_built": rows["rows built"][0], "memory_mb": memory(file, options.model),
        }  # fmt: skip
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
