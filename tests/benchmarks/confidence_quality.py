"""Whether `lowConfidence` is right: on the sample questions, and on a hundred others of which half have no answer.

    python tests/benchmarks/confidence_quality.py [--show]

A search is bad if none of its first five hits is from a document that answers. The flag is right if the search is bad.
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
from localmcp.workspace import Workspace

UNSEEN = Path(__file__).parent / "confidence_questions.jsonl"


def is_bad(outcome: SearchOutcome, question: dict[str, Any]) -> bool:
    paths = tuple(answer["path"] for answer in question["answers"])
    return not any((hit.passage.uri or "").endswith(paths) for hit in outcome.hits) if paths else True


def measure(workspace: Workspace, name: str, questions: list[dict[str, Any]], *, show: bool) -> list[tuple[bool, bool]]:
    """Return (flagged, bad) of every question, and print the shares."""
    results: list[tuple[bool, bool]] = []
    for question in questions:
        outcome = workspace.index.search(SearchRequest(question["query"]))
        flagged, bad = bool(outcome.hits) and outcome.doubtful, is_bad(outcome, question)
        best = max((hit.relevance for hit in outcome.hits), default=0.0)
        if show and flagged != bad:
            print(f"  {'false alarm' if flagged else 'missed'} {best:.0f} {question['query']}")
        results.append((flagged, bad))
    report(name, results)
    return results


def report(name: str, results: list[tuple[bool, bool]]) -> None:
    both = sum(flagged and bad for flagged, bad in results)
    flags, bads = sum(flagged for flagged, _ in results), sum(bad for _, bad in results)
    print(
        f"{name}: precision {both / max(flags, 1):.3f}, recall {both / max(bads, 1):.3f} ({flags} flagged, {bads} bad)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the questions where the flag is wrong")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Workspace(Settings(database=Path(folder) / "sample.localmcp")) as workspace,
    ):
        workspace.library.add_paths([str(sample_directory() / "documents")])
        everything: list[tuple[bool, bool]] = []
        for name, path in (("sample questions", sample_directory() / "queries.jsonl"), ("unseen questions", UNSEEN)):
            questions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            everything += measure(workspace, name, questions, show=options.show)
        report("all", everything)


if __name__ == "__main__":
    main()
