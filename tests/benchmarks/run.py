"""Every benchmark beside its peers, in one run: numbers.json, numbers.md and growth.svg in the work directory.

    python tests/benchmarks/run.py --workdir DIR [--only NAME ...] [--sizes 1000,10000,100000] [--quick]
        [--collections FOLDER] [--peers FOLDER]

Needs localmcp to be importable (`pip install -e .[dev]`). Peers get environments of their own below DIR/peers, made by
pip at the first run; `--peers` names another place, and one that cannot be installed is skipped with the reason in the
table. `--collections` holds judged collections in BEIR form, a folder each; without it quality is not measured. A part
that fails is said to have failed, and the others go on. With `--only`, the other parts keep what numbers.json says.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from growth import draw_growth
from peers.environments import PACKAGES, Unavailable, python_of, versions
from report import write_report

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LONGEST_PART = 3600.0
OUR_PACKAGES = ["numpy", "apsw", "sqlite-vec", "onnxruntime", "fastembed", "mcp", "rapidfuzz"]
SIZES = [1000, 10_000, 100_000]


@dataclass(frozen=True)
class Run:
    """What was asked for."""

    workdir: Path
    peers: Path
    sizes: list[int]
    quick: bool
    collections: list[Path]

    def many(self, usual: int, quick: int) -> str:
        return str(quick if self.quick else usual)

    def part(self, script: str, *arguments: str | Path) -> Any:
        """What a script writes to its --json file.

        Raises:
            Unavailable: it failed, or ran for more than an hour.
        """
        target = self.workdir / "parts" / f"{script}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / f"{script}.py"), *map(str, arguments), "--json", str(target)]
        # Where nothing is set, a matrix product would take every core and be slower for it.
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "LOCALMCP_STATE_DIR": str(self.workdir / "state")}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONGEST_PART)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{script} ran for more than an hour") from error
        if not target.exists():
            raise Unavailable(f"{script} failed: {ran.stderr.strip()[-500:]}")
        return json.loads(target.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- parts


def start(run: Run) -> Any:
    """The stdio server: spawn to initialize, first search, later ones."""
    searches, rounds = run.many(500, 50), run.many(10, 3)
    return run.part("serve_speed", "--workdir", run.workdir, "--searches", searches, "--rounds", rounds)


def ingest(run: Run) -> Any:
    return run.part("ingest_speed", "--passages", run.many(300, 60), "--rounds", run.many(3, 1))


def search(run: Run) -> Any:
    return run.part("search_speed", "--workdir", run.workdir, "--size", *map(str, run.sizes))


def vectors(run: Run) -> Any:
    arguments = ["--workdir", run.workdir, "--peers", run.peers, "--sizes", *map(str, run.sizes)]
    return run.part("vector_peers", *arguments)


def rivals(run: Run) -> Any:
    scifact = next((each for each in run.collections if each.name == "scifact"), None)
    folder = ["--folder", scifact] if scifact else []
    documents = run.many(1000, 100)
    large = ["--large", "100000"] if 100_000 in run.sizes and not run.quick else []
    arguments = ["--workdir", run.workdir, "--peers", run.peers, "--documents", documents, *folder, *large]
    return run.part("rivals", *arguments)


def quality(run: Run) -> Any:
    if not run.collections:
        raise Unavailable("no judged collections were named (--collections)")
    folders = [each for each in run.collections if not run.quick or (each / "corpus.jsonl").stat().st_size < 2e6]
    return run.part("retrieval_quality", *folders, "--workdir", run.workdir / "ir")


def discovery(run: Run) -> Any:
    """Tool search beside FastMCP's."""
    try:
        peer = ["--peer", python_of("fastmcp", run.peers)]
    except Unavailable:
        peer = []
    return run.part("discovery_quality", *peer)


def retriever(run: Run) -> Any:
    return run.part("retriever_speed", "--workdir", run.workdir, "--size", str(max(s for s in run.sizes if s <= 1e5)))


def packs(run: Run) -> Any:
    return run.part("packs_speed", "--workdir", run.workdir, "--size", str(max(s for s in run.sizes if s <= 1e5)))


def rules(run: Run) -> Any:
    return run.part("rules_speed", "--sizes", run.many(10_000, 1000))


def quickstarts(run: Run) -> Any:
    return run.part("quickstarts_speed", "--sizes", run.many(10_000, 1000))


def http(run: Run) -> Any:
    return run.part("http_load", "--seconds", run.many(30, 5), "--clients", "8", "--read-only")


def tui(run: Run) -> Any:
    """The terminal house on the file of 100,000 passages, where `search` has left it."""
    rounds, pages, starts = run.many(60, 15), run.many(10, 4), run.many(5, 2)
    return run.part("tui_speed", "--workdir", run.workdir, "--rounds", rounds, "--pages", pages, "--starts", starts)


PARTS: dict[str, Callable[[Run], Any]] = {
    part.__name__: part
    for part in (
        start, ingest, search, vectors, rivals, quality, discovery, retriever, packs, rules, quickstarts, http,
        tui,
    )
}  # fmt: skip


# ---------------------------------------------------------------- all of it


def machine() -> dict[str, Any]:
    """Where and with what the numbers were made."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":")[1].strip() for line in flags.splitlines() if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "vnni": "vnni" in flags,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: found for name in OUR_PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def peer_versions(folder: Path) -> dict[str, dict[str, str]]:
    """Environment -> package -> version, of those that were made."""
    found: dict[str, dict[str, str]] = {}
    for name, packages in PACKAGES.items():
        if (folder / f"v_{name}" / "made").exists():
            plain = [each.split(">")[0].split("<")[0] for each in packages]
            found[name] = versions(python_of(name, folder), plain)
    return found


def run_parts(run: Run, names: list[str], numbers: dict[str, Any]) -> None:
    """Run the parts one after the other; what there is is kept after each."""
    for name in names:
        begin = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        try:
            result = PARTS[name](run)
        except Unavailable as error:
            result = {"skipped": str(error)}
        took = time.perf_counter() - begin
        numbers["parts"][name] = {"date": time.strftime("%Y-%m-%d %H:%M"), "seconds": round(took), "result": result}
        skipped = f": {result['skipped']}" if isinstance(result, dict) and "skipped" in result else ""
        print(f"{took:.0f} s{skipped}", flush=True)
        save(run, numbers)


def save(run: Run, numbers: dict[str, Any]) -> None:
    numbers["peers"] = peer_versions(run.peers)
    (run.workdir / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    (run.workdir / "numbers.md").write_text(write_report(numbers), encoding="utf-8")
    grown = numbers["parts"].get("search", {}).get("result")
    if isinstance(grown, list):
        (run.workdir / "growth.svg").write_text(draw_growth(grown), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="NAME")
    parser.add_argument("--sizes", help="chunks, separated by commas (1000,10000,100000; 1000000 takes long to make)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and smaller files; no figures to publish")
    parser.add_argument("--collections", type=Path, help="folder of judged collections")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    options = parser.parse_args()
    workdir: Path = options.workdir.absolute()
    workdir.mkdir(parents=True, exist_ok=True)
    sizes = [int(each) for each in options.sizes.split(",")] if options.sizes else SIZES[: 2 if options.quick else 3]
    folders = sorted(each.parent for each in options.collections.glob("*/qrels.tsv")) if options.collections else []
    run = Run(workdir, (options.peers or workdir / "peers").absolute(), sizes, options.quick, folders)
    kept = workdir / "numbers.json"
    numbers = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {"parts": {}}
    numbers |= {"date": time.strftime("%Y-%m-%d"), "quick": options.quick, "machine": machine()}
    run_parts(run, options.only, numbers)
    print(f"Written: {workdir / 'numbers.md'}, numbers.json, growth.svg")
    return int(all("skipped" in str(numbers["parts"][name]["result"])[:12] for name in options.only))


if __name__ == "__main__":
    sys.exit(main())
