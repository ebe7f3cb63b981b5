"""Questions to the manuals of six public projects: does the passage found answer, and what does an assistant read?

    python tests/benchmarks/manuals_quality.py FOLDER --workdir DIR [--set first|second]

FOLDER holds checkouts of the projects, each named as the files in `manuals_questions.jsonl` begin. The answer to a
question is a part of a line of its file; it counts wherever it stands. Printed are the shares of questions whose answer
is in the first passage, in one of the first five, and in the text that an assistant gets, and the characters of that.

The questions were written by readers who saw the manuals only: `first` before anything was changed that they judge,
`second`, for other projects, after the change was made and before it was measured with them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

from localmcp.config import Settings
from localmcp.index.candidates import SearchRequest
from localmcp.tools import Scope
from localmcp.workspace import Workspace

DOCUMENTS = {
    "first": ("borgbackup+borg/docs", "pallets+click/docs", "asciidoctor+asciidoctor/docs"),
    "second": (
        "restic+restic/doc", "pypa+pip/docs", "httpie+cli/docs", "httpie+cli/README.md", "httpie+cli/CHANGELOG.md",
    ),
}  # fmt: skip
PAGES = {"first": "asciidoctor+asciidoctor/*.adoc"}
LEAN = Scope(caller="stdio", trusted=False, lean=True)
ROWS = Path(__file__).with_name("manuals_questions.jsonl")


def one_line(text: str) -> str:
    return " ".join(text.split())


def measure(folder: Path, database: Path, name: str) -> dict[str, float]:
    rows = [row for row in map(json.loads, ROWS.read_text(encoding="utf-8").splitlines()) if row["set"] == name]
    paths = [folder / place for place in DOCUMENTS[name]]
    paths += sorted(folder.glob(PAGES[name])) if name in PAGES else []
    first, five, shown, characters = [], [], [], []
    with Workspace(Settings(database=database)) as workspace:
        workspace.library.add_paths(paths)
        for row in rows:
            answer = one_line(row["answer"])
            hits = workspace.index.search(SearchRequest(row["question"])).hits
            answers = [answer in one_line(hit.passage.text) for hit in hits]
            text = workspace.registry.call("search", {"query": row["question"]}, LEAN).text
            first.append(answers[:1] == [True])
            five.append(any(answers))
            shown.append(answer in one_line(text))
            characters.append(len(text))
    shares = {"first": first, "among five": five, "shown": shown, "characters": characters}
    return {"questions": len(rows), **{label: round(statistics.fmean(values), 3) for label, values in shares.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--set", choices=sorted(DOCUMENTS), default="first")
    options = parser.parse_args()
    options.workdir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(options.workdir / "state"))
    database = options.workdir / f"manuals_{options.set}.localmcp"
    print(json.dumps(measure(options.folder, database, options.set)))


if __name__ == "__main__":
    main()
