"""Whether `lowConfidence` is right.

    python tests/benchmarks/confidence_quality.py [--show]

Four sets: the sample questions, a hundred others about the sample documents of which half have no answer, and about as
many for each of two other libraries. The maps of `localmcp.index.fusion` were fitted on sample and library; second
was written before and was not used for it. `near` asks the second library 72 questions whose subject it has and whose
fact it has not, and 41 that it answers in other words.

A search is bad if none of its first five hits is from a document that answers. The flag is right if the search is bad;
an answer without hits counts as flagged.
Precision: flagged searches that are bad. Recall: bad searches that are flagged.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localmcp.config import Settings, sample_directory
from localmcp.index.fusion import unique_codes
from localmcp.index.search import Hit, SearchOutcome, SearchRequest
from localmcp.workspace import Workspace

HERE = Path(__file__).parent
SETS = {
    "sample": [sample_directory() / "queries.jsonl", HERE / "confidence_questions.jsonl"],
    "library": [HERE / "confidence_library.jsonl"],
    "second": [HERE / "confidence_second.jsonl"],
    "near": [HERE / "confidence_near.jsonl"],
}
LIBRARY_OF = {"near": "second"}
"""Sets that ask about the documents of another."""


def is_bad(hits: list[Hit], question: dict[str, Any]) -> bool:
    paths = tuple(answer["path"] for answer in question["answers"])
    return not any((hit.passage.uri or "").endswith(paths) for hit in hits) if paths else True


def measure(workspace: Workspace, questions: list[dict[str, Any]], *, show: bool) -> list[tuple[bool, bool]]:
    """Return (flagged, bad) of every question, and print what relevance says."""
    results: list[tuple[bool, bool]] = []
    bests: list[tuple[float, bool, bool]] = []
    for question in questions:
        outcome = workspace.index.search(SearchRequest(question["query"]))
        flagged, bad = not outcome.hits or outcome.doubtful, is_bad(outcome.hits, question)
        best = max((hit.relevance for hit in outcome.hits), default=0.0)
        bests.append((best, bool(question["answers"]), _has_unique_code(outcome)))
        if show and flagged != bad:
            print(f"  {'false alarm' if flagged else 'missed'} {best:.0f} {question['query']}")
        results.append((flagged, bad))
    unanswerable = [best for best, answered, _ in bests if not answered]
    codes = [best for best, answered, code in bests if answered and code]
    print(f"  best of an unanswerable question below 50: {sum(b < 50 for b in unanswerable)} of {len(unanswerable)}")
    print(f"  a unique code above 85: {sum(best > 85 for best in codes)} of {len(codes)}")
    return results


def _has_unique_code(outcome: SearchOutcome) -> bool:
    return bool(outcome.query and unique_codes(outcome.query))


def report(name: str, results: list[tuple[bool, bool]]) -> None:
    both = sum(flagged and bad for flagged, bad in results)
    flags, bads = sum(flagged for flagged, _ in results), sum(bad for _, bad in results)
    print(
        f"{name}: precision {both / max(flags, 1):.3f}, recall {both / max(bads, 1):.3f} ({flags} flagged, {bads} bad)"
    )


def load_questions(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def opened(name: str, model: str) -> Iterator[Workspace]:
    """Open a fresh file with the documents of a set; those of the other libraries are kept in one text file each."""
    with tempfile.TemporaryDirectory() as place:
        folder = sample_directory() / "documents"
        if name != "sample":
            folder = Path(place) / "library"
            for block in (
                (HERE / f"confidence_{LIBRARY_OF.get(name, name)}.txt").read_text(encoding="utf-8").split("@@ ")[1:]
            ):
                path, text = block.split("\n", 1)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8")
        with Workspace(Settings(database=Path(place) / "set.localmcp", model=model)) as workspace:
            workspace.library.add_paths([str(folder)])
            yield workspace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the questions where the flag is wrong")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS], help="measure these only")
    parser.add_argument("--model", default="default", help="the embedding model, as in the settings")
    options = parser.parse_args()
    for name in options.sets:
        with opened(name, options.model) as workspace:
            questions = [question for path in SETS[name] for question in load_questions(path)]
            report(name, measure(workspace, questions, show=options.show))


if __name__ == "__main__":
    main()
