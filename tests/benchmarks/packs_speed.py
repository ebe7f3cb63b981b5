"""How fast a file is packed and verified, and how large the pack is.

    python tests/benchmarks/packs_speed.py --size 100000 --workdir DIR [--json FILE]

The file is the one of search_speed.py; both commands run as a user runs them, a new process each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from search_speed import build


def measure(size: int, workdir: Path) -> dict[str, float]:
    """Seconds of each command, and the pack's size beside the file's."""
    workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    database, packed = workdir / f"speed-{size}.localmcp", workdir / f"pack-{size}.localmcp"
    build(database, size)
    program = [sys.executable, "-m", "localmcp", "--db", str(database)]
    pack_s = seconds([*program, "pack", str(packed), "--force"])
    verify_s = seconds([*program, "verify", str(packed)])
    sizes = {"file_mb": database.stat().st_size / 1e6, "pack_mb": packed.stat().st_size / 1e6}
    return {"chunks": size, "pack_s": pack_s, "verify_s": verify_s, **sizes}


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
