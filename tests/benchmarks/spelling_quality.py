"""Spelling: words that are typed right stay as typed though no document has them, misspelt ones are corrected.

    python tests/benchmarks/spelling_quality.py [--words tests/benchmarks/spelling_words.json]

The file holds the sample documents, and one text with every word that a misspelt one stands for. Words are asked one
at a time, the hardest case: nothing else tells their language.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from localmcp.config import Settings, sample_directory
from localmcp.index.search import SearchRequest
from localmcp.workspace import Workspace


def correction(workspace: Workspace, word: str) -> str | None:
    """Return what a word is taken for, or None."""
    outcome = workspace.index.search(SearchRequest(word, "keyword"))
    repairs = outcome.query.repairs if outcome.query else []
    return repairs[0].replacement if repairs else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=Path, default=Path(__file__).parent / "spelling_words.json")
    words = json.loads(parser.parse_args().words.read_text(encoding="utf-8"))
    meant = sorted({right for options in words["misspelt"].values() for right in options})
    with (
        tempfile.TemporaryDirectory() as folder,
        Workspace(Settings(database=Path(folder) / "words.localmcp", model="hash")) as workspace,
    ):
        workspace.library.add_paths([str(sample_directory() / "documents")])
        workspace.library.add_text(". ".join(f"This note is about the {word}" for word in meant), "Words")
        right = {**words["correct"], "names and codes": " ".join(words["names_and_codes"])}
        for language, line in right.items():
            changed = {word: c for word in line.split() if (c := correction(workspace, word))}
            print(f"{language}: {len(changed)} of {len(line.split())} changed {changed or ''}")
        wrong = {
            word: c for word, options in words["misspelt"].items() if (c := correction(workspace, word)) not in options
        }
        print(f"misspelt: {len(words['misspelt']) - len(wrong)} of {len(words['misspelt'])} corrected; not: {wrong}")


if __name__ == "__main__":
    main()
