"""Whether `lowConfidence` is right: on the sample questions, on a hundred others of which half have no answer, and on
114 about another library, which were written before the last fit and not used for it.

    python tests/benchmarks/confidence_quality.py [--show]

A search is bad if none of its first five hits is from a document that answers. The flag is right if the search is bad;
an answer without hits counts as flagged.
Precision: flagged searches that are bad. Recall: bad searches that are flagged.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from localmcp.config import Settings, sample_directory
from localmcp.search.candidates import SearchOutcome, SearchRequest
from localmcp.search.relevance import unique_codes
from localmcp.workspace import Workspace

HERE = Path(__file__).parent
QUESTIONS = HERE / "confidence_questions.jsonl"
LIBRARY, LIBRARY_QUESTIONS = HERE / "confidence_library.txt", HERE / "confidence_library.jsonl"


def is_bad(outcome: SearchOutcome, question: dict[str, Any]) -> bool:
    paths = tuple(answer["path"] for answer in question["answers"])
    return not any((hit.passage.uri or "").endswith(paths) for hit in outcome.hits) if paths else True


def measure(workspace: Workspace, name: str, questions: list[dict[str, Any]], *, show: bool) -> list[tuple[bool, bool]]:
    """Return (flagged, bad) of every question, and print the shares."""
    results: list[tuple[bool, bool]] = []
    bests: list[tuple[float, bool, bool]] = []
    for question in questions:
        outcome = workspace.index.search(SearchRequest(question["query"]))
        flagged, bad = not outcome.hits or outcome.doubtful, is_bad(outcome, question)
        best = max((hit.relevance for hit in outcome.hits), default=0.0)
        bests.append((best, bool(question["answers"]), bool(unique_codes(outcome.query))))
        if show and flagged != bad:
            print(f"  {'false alarm' if flagged else 'missed'} {best:.0f} {question['query']}")
        results.append((flagged, bad))
    report(name, results)
    unanswerable = [best for best, answered, _ in bests if not answered]
    codes = [best for best, answered, code in bests if answered and code]
    print(
        f"  best of an unanswerable question below 50: {sum(best < 50 for best in unanswerable)} of {len(unanswerable)}"
    )
    print(f"  a unique code above 85: {sum(best > 85 for best in codes)} of {len(codes)}")
    return results


def report(name: str, results: list[tuple[bool, bool]]) -> None:
    both = sum(flagged and bad for flagged, bad in results)
    flags, bads = sum(flagged for flagged, _ in results), sum(bad for _, bad in results)
    print(
        f"{name}: precision {both / max(flags, 1):.3f}, recall {both / max(bads, 1):.3f} ({flags} flagged, {bads} bad)"
    )


def load_questions(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_library(folder: Path) -> Path:
    """Write the documents of the other library, which are kept in one file, and return their folder."""
    for block in LIBRARY.read_text(encoding="utf-8").split("@@ ")[1:]:
        name, text = block.split("\n", 1)
        path = folder / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "library"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the questions where the flag is wrong")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Workspace(Settings(database=folder / "sample.localmcp")) as workspace:
            workspace.library.add_paths([str(sample_directory() / "documents")])
            everything: list[tuple[bool, bool]] = []
            for name, path in (("sample", sample_directory() / "queries.jsonl"), ("a hundred", QUESTIONS)):
                everything += measure(workspace, name, load_questions(path), show=options.show)
            report("both", everything)
        with Workspace(Settings(database=folder / "library.localmcp")) as workspace:
            workspace.library.add_paths([str(write_library(folder))])
            measure(workspace, "other library", load_questions(LIBRARY_QUESTIONS), show=options.show)


if __name__ == "__main__":
    main()
