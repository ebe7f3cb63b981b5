"""Whether a search for the name of a file finds it.

    python tests/benchmarks/name_quality.py FOLDER [--every N]

Each N-th document of the folder is asked for in four ways: by its file name, by that without the suffix, by its folder
and its name where several have the name, and by a sentence with the name and one of the document's own headings.
Printed: how often that document is the first, and among the first three.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from localmcp.config import Settings
from localmcp.index.search import SearchRequest
from localmcp.storage.database import fetch_all
from localmcp.workspace import Workspace

HEADING = "select json_extract(headings, '$[#-1]') from chunks join sources on sources.id = source_id where uri = ?"


def questions(workspace: Workspace, every: int) -> Iterator[tuple[str, str, str]]:
    """Yield (way, question, path of the document)."""
    with workspace.index.database.read() as connection:
        paths = [row[0] for row in fetch_all(connection, "select uri from sources where uri is not null order by uri")]
        named = Counter(Path(path).name.lower() for path in paths)
        for path in map(Path, paths[::every]):
            headings = [row[0] for row in fetch_all(connection, HEADING, (str(path),)) if row[0]]
            if named[path.name.lower()] > 1:
                yield "folder and name", f"{path.parent.name} {path.name}", str(path)
                continue
            yield "name", path.name, str(path)
            yield "without suffix", path.stem, str(path)
            if headings:
                yield "sentence", f"what does {path.name} say about {headings[len(headings) // 2]}?", str(path)


def rank(workspace: Workspace, question: str, path: str) -> int:
    outcome = workspace.index.search(SearchRequest(question, limit=10))
    paths = list(dict.fromkeys(hit.passage.uri for hit in outcome.hits))
    return paths.index(path) if path in paths else len(paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--every", type=int, default=3)
    arguments = parser.parse_args()
    ranks: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as place:
        with Workspace(Settings(database=Path(place) / "names.localmcp")) as workspace:
            workspace.library.add_paths([arguments.folder])
            for way, question, path in questions(workspace, arguments.every):
                ranks[way].append(rank(workspace, question, path))
    for way, places in sorted(ranks.items()):
        first, three = sum(place < 1 for place in places), sum(place < 3 for place in places)
        print(f"{way}: {len(places)} documents, first {first / len(places):.3f}, top three {three / len(places):.3f}")


if __name__ == "__main__":
    main()
