"""Known items in a large library by word: what a manual page says of itself finds the page among many passages.

    python tests/benchmarks/known_items.py DATABASE [--questions 150] [--seed 3]

DATABASE holds `/usr/share/man` among other folders (`localmcp add /usr/share/man /usr/lib/python3.11 --no-wait`). Asked
are the lines behind the names of random pages, as "set and get a thread's CPU affinity mask"; a page in another format
or language counts as the page. Printed: how often it is first, among three and among ten, and the time of a search.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from localmcp.config import Settings
from localmcp.index.candidates import SearchRequest
from localmcp.storage.database import fetch_all
from localmcp.workspace import Workspace

PAGES = """
    select uri, text from chunks join sources on sources.id = source_id
    where uri glob '/usr/share/man/man[1-8]/*' and position = 0 order by uri
"""
PURPOSE = re.compile(r"NAME\s+\S+.*? [-–—]+ (.{25,120}?)\n")
NOT_FOUND = 1000


def questions(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield (question, name of the page)."""
    with workspace.index.database.read() as connection:
        pages = fetch_all(connection, PAGES)
    for path, text in pages:
        match = PURPOSE.search(text)
        if match and len(match[1].split()) >= 4:
            yield match[1], name_of(path)


def name_of(path: str) -> str:
    return Path(path).name.partition(".")[0]


def rank(workspace: Workspace, question: str, page: str) -> int:
    hits = workspace.index.search(SearchRequest(question, limit=20, mode="keyword")).hits
    names = list(dict.fromkeys(name_of(hit.passage.uri or "") for hit in hits))
    return names.index(page) + 1 if page in names else NOT_FOUND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    ranks, seconds = [], []
    with Workspace(Settings(database=arguments.database)) as workspace:
        asked = [*questions(workspace)]
        random.Random(arguments.seed).shuffle(asked)
        for question, page in asked[: arguments.questions]:
            start = time.perf_counter()
            ranks.append(rank(workspace, question, page))
            seconds.append(time.perf_counter() - start)
    shares = ", ".join(f"{most} {statistics.fmean(place <= most for place in ranks):.3f}" for most in (1, 3, 10))
    print(f"{len(ranks)} questions, among the first {shares}, mrr {statistics.fmean(1 / place for place in ranks):.3f}")
    print(f"ms p50 {1000 * statistics.median(seconds):.1f}, p95 {1000 * statistics.quantiles(seconds, n=20)[-1]:.1f}")


if __name__ == "__main__":
    main()
