"""How fast the TUI is: start to first paint in a real terminal, results after typing, paging through many sources.

python tests/benchmarks/tui_speed.py                       # a small file, made here
python tests/benchmarks/tui_speed.py speed-100000.localmcp # one that search_speed.py --keep has left
python tests/benchmarks/tui_speed.py --sources 100000      # the Library with so many documents
"""

from __future__ import annotations

import argparse
import asyncio
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
PAINTED = b"8 Doctor"
"""When this is on the screen, the frame and the first pane have been drawn."""


def first_paint(file: Path, runs: int) -> list[float]:
    """Seconds from the start of the process until the frame is on a pseudo-terminal."""
    return [_one_start(file) for _ in range(runs)]


def _one_start(file: Path) -> float:
    main, side = pty.openpty()
    os.set_blocking(main, False)
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "localmcp", "tui", str(file)], stdin=side, stdout=side, stderr=side, cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "34"}, start_new_session=True,
    )  # fmt: skip
    os.close(side)
    seen = b""
    try:
        while PAINTED not in seen and time.perf_counter() - begin < 20:
            if select.select([main], [], [], 0.2)[0]:
                seen += os.read(main, 65536)
        return time.perf_counter() - begin
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(main)


async def results_after_typing(file: Path, model: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the end of the debounce until the results are in the list, the model loaded."""
    settings = Settings(database=file, model=model)
    app = LocalMcpApp(lambda: Workspace(settings), file)
    times: list[float] = []
    async with app.run_test(size=(120, 34)) as pilot:
        while app.desk.model_loading:
            await pilot.pause(0.05)
        pane: Any = app.pane
        for number in range(rounds):
            query = f"{QUERIES[number % len(QUERIES)]} {number}"
            pane.line.value = query
            await pilot.pause(0)
            begin = time.perf_counter()
            pane.search_again()
            while pane.result.get("query") != query:
                await asyncio.sleep(0.001)
            times.append((time.perf_counter() - begin) * 1000)
    return {"results": times}


async def paging(file: Path, model: str, pages: int) -> dict[str, list[float]]:
    """Milliseconds to build the next page of the Library, and to move the cursor by one line within it."""
    app = LocalMcpApp(lambda: Workspace(Settings(database=file, model=model)), file)
    built: list[float] = []
    moved: list[float] = []
    async with app.run_test(size=(120, 34)) as pilot:
        await pilot.press("escape", "2")
        tree = await _tree(app, pilot)
        for _ in range(pages):
            before, begin = _rows(tree), time.perf_counter()
            await pilot.press("G")
            while _rows(tree) == before:
                await asyncio.sleep(0.001)
            built.append((time.perf_counter() - begin) * 1000)
        for _ in range(50):
            begin = time.perf_counter()
            await pilot.press("k")
            moved.append((time.perf_counter() - begin) * 1000)
        most = sum(1 for _ in _nodes(tree.root))
    return {"page": built, "line": moved, "rows built": [float(most)]}


async def _tree(app: LocalMcpApp, pilot: Any) -> Any:
    while not (hasattr(app.pane, "tree_view") and app.pane.tree_view.root.children):
        await pilot.pause(0.02)
    tree = app.pane.tree_view
    tree.root.children[0].expand()
    while not any(node.children for node in tree.root.children):
        await pilot.pause(0.02)
    tree.focus()
    return tree


def _rows(tree: Any) -> list[Any]:
    return [getattr(node.data, "id", None) for node in tree.root.children[0].children]


def _nodes(node: Any) -> Any:
    for child in node.children:
        yield child
        yield from _nodes(child)


def make_file(folder: Path, sources: int) -> Path:
    """A file of so many short documents, with vectors of the hash model."""
    file = folder / "many.localmcp"
    sys.path.insert(0, str(ROOT / "tests"))
    from library import Library

    from localmcp.embeddings import HashEmbedder
    from localmcp.storage.database import Database

    library = Library(Database(file), HashEmbedder(64))
    for number in range(sources):
        library.put(f"# Note {number}\n\nAbout {QUERIES[number % len(QUERIES)]}.\n", title=f"Note {number:06}")
        if number % 5000 == 4999:
            print(f"{number + 1:,} documents", file=sys.stderr)
    library.database.close()
    return file


def told(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
        "least": round(ordered[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", help="model of the file; hash for one that is made here, else default")
    parser.add_argument("--sources", type=int, default=500)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--pages", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("STATE", "CONFIG", "CACHE"):
            os.environ.setdefault(f"LOCALMCP_{name}_DIR", f"{temporary}/{name.lower()}")
        file = options.file.absolute() if options.file else make_file(Path(temporary), options.sources)
        model = options.model or ("default" if options.file else "hash")
        result = {
            "file": str(file),
            "load": os.getloadavg()[0],
            "first paint, seconds": told(first_paint(file, options.starts)),
            "results, ms": told(asyncio.run(results_after_typing(file, model, options.rounds))["results"]),
        }
        pages = asyncio.run(paging(file, model, options.pages))
        result |= {"next page, ms": told(pages["page"]), "one line, ms": told(pages["line"])}
        result["rows built"] = pages["rows built"]
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
