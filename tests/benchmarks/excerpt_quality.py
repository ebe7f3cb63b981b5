"""What an assistant reads for one search, and whether the answer is in it.

    python tests/benchmarks/excerpt_quality.py FILE --workdir DIR [--every 2]

FILE is in the form of SQuAD and XQuAD: articles of paragraphs with questions, and answers that are parts of a
paragraph. Each article becomes one document. Every question is asked twice: as it is, and with `maxChars`, which shows
passages whole. Printed are the share of questions whose answer is in the text, and the characters of the text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from localmcp.config import Settings
from localmcp.tools import Scope
from localmcp.workspace import Workspace

LEAN = Scope(caller="stdio", trusted=False, lean=True)


def write_articles(articles: list[Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, article in enumerate(articles):
        paragraphs = [paragraph["context"] for paragraph in article["paragraphs"]]
        (folder / f"{number}.md").write_text(f"# {article['title']}\n\n" + "\n\n".join(paragraphs), encoding="utf-8")


def measure(articles: list[Any], workdir: Path, every: int) -> dict[str, float]:
    """The share of questions answered, with passages as they are shown and whole, and the characters of the text."""
    os.environ.setdefault("LOCALMCP_STATE_DIR", str(workdir / "state"))
    write_articles(articles, workdir / "articles")
    questions = [
        (asked["question"], [answer["text"] for answer in asked["answers"]])
        for article in articles
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ][::every]
    forms: dict[str, dict[str, int]] = {"shown": {}, "whole": {"maxChars": 6000}}
    result: dict[str, float] = {"questions": len(questions)}
    with Workspace(Settings(database=workdir / "articles.localmcp")) as workspace:
        workspace.library.add_paths([workdir / "articles"])
        for form, options in forms.items():
            calls = ({"query": question, **options} for question, _ in questions)
            texts = [workspace.registry.call("search", arguments, LEAN).text for arguments in calls]
            result[f"{form}_answered"] = statistics.mean(
                any(answer in text for answer in answers) for text, (_, answers) in zip(texts, questions, strict=True)
            )
            result[f"{form}_characters"] = statistics.mean(map(len, texts))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    articles = json.loads(options.file.read_text(encoding="utf-8"))["data"]
    print(json.dumps(measure(articles, options.workdir, options.every), indent=1))


if __name__ == "__main__":
    main()
