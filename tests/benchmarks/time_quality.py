"""Time: ranges, and questions for the latest, over dated documents in six languages.

    python tests/benchmarks/time_quality.py [--show]

A question is right if an expected document comes first, and if every hit lies in the range.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

from localmcp.config import Settings
from localmcp.index.dates import parse_moment
from localmcp.index.filters import Filters
from localmcp.index.search import SearchRequest
from localmcp.workspace import Workspace

QUESTIONS = Path(__file__).parent / "time_questions.json"


def request(question: dict[str, Any], today: date) -> SearchRequest:
    since, until = question.get("since"), question.get("until")
    filters = Filters(
        since=parse_moment("since", since, today) if since else None,
        until=parse_moment("until", until, today, end=True) if until else None,
    )
    return SearchRequest(question["query"], filters=filters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the questions that went wrong")
    options = parser.parse_args()
    table = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    right: dict[str, list[bool]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        Workspace(Settings(database=Path(folder) / "time.localmcp")) as workspace,
    ):
        for document in table["documents"]:
            workspace.library.add_text(document["text"], document["title"], metadata={"date": document["date"]})
        for question in table["questions"]:
            asked = request(question, date.fromisoformat(table["today"]))
            hits = workspace.index.search(asked).hits
            inside = all(
                (asked.filters.since or "") <= (hit.passage.date or "") < (asked.filters.until or "9") for hit in hits
            )
            first = hits[0].passage.title if hits else "nothing"
            right[question["kind"]].append(inside and first in question["expected"])
            if options.show and not right[question["kind"]][-1]:
                print(f"  {question['query']}: {first}, not {question['expected']}")
    for kind, results in right.items():
        print(f"{kind}: {sum(results)} of {len(results)}")


if __name__ == "__main__":
    main()
