"""How many functions and files of localmcp a warm search runs.

    python tests/warm_search.py [--list]

Two documents, the hash model, `Registry.call("search", …)` after one search before; `--list` names the functions.
Comprehensions, generator expressions and lambdas belong to the function that they are in: Python 3.12 runs most of them
there.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import localmcp
from localmcp.config import Settings
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.workspace import Workspace

PACKAGE = str(Path(localmcp.__file__).parent)


def functions_of(work: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Return how often each (file, function) of localmcp runs during the work, in any thread that it starts."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            calls[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def warm_search(folder: Path) -> Counter[tuple[str, str]]:
    """Return what a second search runs in a file of two documents."""
    settings = Settings(database=folder / "file.localmcp", model="hash:64")
    with Workspace(settings, embedder=LazyEmbedder(lambda: HashEmbedder(64))) as workspace:
        workspace.library.add_text("# Bees\n\nA hive has one queen.", "Bees")
        workspace.library.add_text("# Roses\n\nPrune them in late winter.", "Roses")
        workspace.registry.call("search", {"query": "when are roses pruned"})
        return functions_of(lambda: workspace.registry.call("search", {"query": "which hive has a queen"}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        calls = warm_search(Path(folder))
    if "--list" in sys.argv:
        for (file, function), count in sorted(calls.items()):
            print(f"{file}  {function}  {count}")
    print(f"{len(calls)} functions in {len({file for file, _ in calls})} files, {calls.total()} calls")


if __name__ == "__main__":
    main()
