"""A warm search runs few functions: what it runs is what somebody must read who wants to know how it works.

`python tests/library/test_warm_search.py` names them. Comprehensions, generator expressions and lambdas belong to the
function that they are in: Python 3.12 runs most of them there.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import localmcp
from localmcp.config import Settings
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.workspace import Workspace

PACKAGE = str(Path(localmcp.__file__).parent)
MOST_FUNCTIONS, MOST_FILES = 160, 24
"""The goals."""


def warm_search(folder: Path) -> Counter[tuple[str, str]]:
    """Return how often each (file, function) of localmcp runs, in any thread, in a second search of two documents."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            calls[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1

    settings = Settings(database=folder / "file.localmcp", model="hash:64")
    with Workspace(settings, embedder=LazyEmbedder(lambda: HashEmbedder(64))) as workspace:
        workspace.library.add_text("# Bees\n\nA hive has one queen.", "Bees")
        workspace.library.add_text("# Roses\n\nPrune them in late winter.", "Roses")
        workspace.registry.call("search", {"query": "when are roses pruned"})
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            workspace.registry.call("search", {"query": "which hive has a queen"})
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return calls


def test_a_warm_search_runs_few_functions_in_few_files(tmp_path: Path) -> None:
    calls = warm_search(tmp_path)
    files = {file for file, _ in calls}
    assert len(calls) <= MOST_FUNCTIONS and len(files) <= MOST_FILES, sorted(calls)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for (file, function), count in sorted(warm_search(Path(folder)).items()):
            print(f"{file}  {function}  {count}")
