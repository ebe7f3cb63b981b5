"""How fast a file is packed, verified and mounted, how large the pack is, and what three mounted packs cost a search.

    python tests/benchmarks/packs_speed.py --size 100000 --workdir DIR [--json FILE]

The file is the one of serve_speed.py; `pack` and `verify` run as a user runs them, a new process each. Then three
copies of the pack are mounted beside the file, and the same questions are put to it alone and to all four, by the tool
`search`, the queries being embedded already.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import search_speed

from localmcp.config import Settings
from localmcp.models.local_model import DefaultEmbedder
from localmcp.workspace import Workspace

QUESTIONS = 60


def measure(size: int, workdir: Path) -> dict[str, float]:
    """Seconds of each command, and the pack's size beside the file's."""
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    search_speed.ClusterEmbedder.identity = DefaultEmbedder().identity
    database, packed = workdir / f"served-{size}.localmcp", workdir / f"pack-{size}.localmcp"
    search_speed.build(database, size)
    program = [sys.executable, "-m", "localmcp", "--db", str(database)]
    pack_s = seconds([*program, "pack", str(packed), "--force"])
    verify_s = seconds([*program, "verify", str(packed)])
    sizes = {"file_mb": database.stat().st_size / 1e6, "pack_mb": packed.stat().st_size / 1e6}
    return {"chunks": size, "pack_s": pack_s, "verify_s": verify_s, **sizes, **mounted(database, packed, workdir)}


def mounted(database: Path, packed: Path, workdir: Path) -> dict[str, float]:
    """Milliseconds of mounting, and of a search of the file alone and beside three packs, medians."""
    copies = [Path(shutil.copyfile(packed, workdir / f"mounted-{number}.localmcp")) for number in range(3)]
    with Workspace(Settings(database=database)) as workspace:
        for left_over in workspace.mounts.entries():
            workspace.mounts.unmount(left_over.name)
        with workspace.database.read() as connection:
            texts = [text for (text,) in connection.execute(f"select text from chunks order by uuid limit {QUESTIONS}")]
        questions = [" ".join(text.split()[3:9]) for text in texts]
        alone = search_milliseconds(workspace, questions)
        took: list[float] = []
        for number, each in enumerate(copies):
            start = time.perf_counter()
            workspace.mounts.mount(each, f"pack-{number}")
            took.append(1000 * (time.perf_counter() - start))
        beside = search_milliseconds(workspace, questions)
        for number in range(len(copies)):
            workspace.mounts.unmount(f"pack-{number}")
    for each in copies:
        each.unlink()
    return {
        "mount_ms": statistics.median(took),
        "search_alone_ms": alone,
        "search_beside_three_ms": beside,
        "beside_over_alone": beside / alone,
    }


def search_milliseconds(workspace: Workspace, questions: list[str]) -> float:
    """The median; the first questions are put twice, so that what is read once is read."""
    for text in questions[:5]:
        workspace.registry.call("search", {"query": text})
    took: list[float] = []
    for text in questions:
        workspace.embedder.embed_query(text)
        start = time.perf_counter()
        workspace.registry.call("search", {"query": text})
        took.append(1000 * (time.perf_counter() - start))
    return statistics.median(took)


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.size, options.workdir)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
