"""How fast packs are: packing, verifying and mounting N chunks, and searching with three packs beside one's own file.

    python tests/benchmarks/packs_speed.py --size 100000 --workdir /tmp/bench [--json FILE]

The own file is that of search_speed.py, made once and kept; the three packs are copies of its pack.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from search_speed import ClusterEmbedder, Corpus, build

from localmcp.embeddings import LazyEmbedder
from localmcp.packs.mounts import Mounts
from localmcp.packs.pack import PackOptions, write_pack
from localmcp.packs.verify import verify
from localmcp.search.federation import Federation
from localmcp.search.index import Index, SearchOutcome, SearchRequest
from localmcp.storage.database import Database

PACKS = 3
GOALS = {"pack": 6.0, "mount": 0.1, "times": 3.0}


def timed(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(search: Callable[[SearchRequest], SearchOutcome], queries: list[str]) -> dict[str, float]:
    """Milliseconds of a search, after a first round that fills the caches."""
    for text in queries[:20]:
        search(SearchRequest(text))
    spent = [timed(lambda text=text: search(SearchRequest(text))) * 1000 for text in queries]
    return {"p50": statistics.median(spent), "p95": statistics.quantiles(spent, n=20)[-1]}


def run(size: int, folder: Path) -> dict[str, Any]:
    """Every figure; seconds, and milliseconds for searches."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"speed-{size}.localmcp"
    build(own, size)
    pack = folder / f"speed-{size}.pack.localmcp"
    database = Database(own, adopt=True)
    figures: dict[str, Any] = {
        "pack": timed(lambda: write_pack(database, pack, PackOptions(title="Speed", overwrite=True))),
        "verify": timed(lambda: _sound(pack)),
    }
    embedder = LazyEmbedder(lambda: ClusterEmbedder(Corpus()))
    index = Index(database, embedder, adaptive=True)
    mounts = Mounts(folder / "packs-state", own, embedder, lambda *_: None, adaptive=True)
    federation = Federation(index, mounts)
    for entry in mounts.entries():
        mounts.unmount(entry.name)
    queries = Corpus(5).queries()
    before = {kind: measure(index.search, texts) for kind, texts in queries.items()}
    unmounted = {kind: measure(federation.search, texts) for kind, texts in queries.items()}
    copies = [Path(shutil.copy(pack, folder / f"speed-{size}-{number}.localmcp")) for number in range(PACKS)]
    figures["mount"] = max(timed(lambda path=path: mounts.mount(path)) for path in copies)
    figures["first"] = timed(lambda: federation.search(SearchRequest(queries["words"][0])))
    after = {kind: measure(federation.search, texts) for kind, texts in queries.items()}
    figures["search"] = {
        kind: {
            "own": before[kind],
            "nothing mounted": unmounted[kind],
            "with packs": after[kind],
            "times": after[kind]["p50"] / before[kind]["p50"],
        }
        for kind in queries
    }
    federation.close()
    mounts.close()
    index.close()
    database.close()
    for path in copies:
        path.unlink()
    return figures


def _sound(pack: Path) -> None:
    # The synthetic passages leave gaps between them, which `verify` rightly tells.
    wrong = [problem for problem in verify(pack).problems if "do not continue" not in problem]
    assert not wrong, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    figures = run(options.size, options.workdir.absolute())
    print(f"pack {figures['pack']:.2f} s, verify {figures['verify']:.2f} s, mount {figures['mount'] * 1000:.0f} ms")
    print(f"first search with {PACKS} packs {figures['first'] * 1000:.0f} ms")
    for kind, row in figures["search"].items():
        own, none, packs = (row[name]["p50"] for name in ("own", "nothing mounted", "with packs"))
        times = f"{row['times']:.2f} times"
        print(f"{kind:10} own {own:6.2f} ms, nothing mounted {none:6.2f}, with packs {packs:6.2f}: {times}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    worst = max(row["times"] for row in figures["search"].values())
    sys.exit(figures["pack"] > GOALS["pack"] or figures["mount"] > GOALS["mount"] or worst > GOALS["times"])


if __name__ == "__main__":
    main()
