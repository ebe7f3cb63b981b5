"""Whether `lowConfidence` is right, and the fit of what it is decided by.

    python tests/benchmarks/confidence_quality.py [--show]
    python tests/benchmarks/confidence_quality.py --fit sample library [--model multilingual]

Four sets: the sample questions, a hundred others about the sample documents of which half have no answer, and about as
many for each of two other libraries. The maps of `localmcp.index.relevance` were fitted on sample and library; second
was written before and was not used for it. `near` asks the second library 72 questions whose subject it has and whose
fact it has not, and 41 that it answers in other words.

A search is bad if none of its first five hits is from a document that answers. The flag is right if the search is bad;
an answer without hits counts as flagged.
Precision: flagged searches that are bad. Recall: bad searches that are flagged.

`--fit` prints the weights for HYBRID and KEYWORD. As further questions without an answer, it asks those of the samples
without the documents that answer. Each set counts the same, and in it the bad searches as much as the good ones.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from localmcp.config import Settings, sample_directory
from localmcp.index.keyword import KeywordQuery, inverse_frequency
from localmcp.index.relevance import LOOKED_AT, Signals, unique_codes
from localmcp.index.search import Found, Hit, SearchOutcome, SearchRequest
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
FIRST = 5
STEPS, RATE, DECAY = 1200, 0.03, 0.002
SHIFT = 0.3
"""What is added to the fitted constant: in the sets half of the searches are bad, of people's questions far fewer."""


@dataclass(slots=True)
class Case:
    """The signals of the first hits of a question, and whether none of them is right."""

    group: str
    rows: list[Signals]
    bad: bool


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


# ---------------------------------------------------------------- fit


def cases(name: str, model: str) -> Iterator[Case]:
    """Yield the questions of a set, those of the samples also without the documents that answer."""
    with opened(name, model) as workspace:
        for path in SETS[name]:
            for question in load_questions(path):
                candidates = workspace.index.find(SearchRequest(question["query"]))
                if candidates is None or candidates.outcome.query is None:
                    continue
                yield _case(workspace, path.stem, question, candidates, frozenset())
                if path == SETS["sample"][0]:
                    yield _case(workspace, path.stem, question, candidates, _answering(workspace, question))


def _answering(workspace: Workspace, question: dict[str, Any]) -> frozenset[int]:
    paths = tuple(answer["path"] for answer in question["answers"])
    with workspace.index.database.read() as connection:
        rows = connection.execute("select chunks.id, uri from chunks join sources on sources.id = source_id").fetchall()
    return frozenset(chunk_id for chunk_id, uri in rows if paths and str(uri).endswith(paths))


def _case(
    workspace: Workspace, group: str, question: dict[str, Any], candidates: Found, left_out: frozenset[int]
) -> Case:
    with workspace.index.database.read() as connection:
        ordered = candidates.order(candidates.best_keyword)
        gone = candidates.load(connection, [fused for fused in ordered if fused.id in left_out])
        hits = candidates.load(connection, [fused for fused in ordered if fused.id not in left_out][:FIRST])
        total = int(connection.execute("select coalesce(sum(chunks), 0) from groups").fetchone()[0])  # type: ignore[index]
    query = candidates.outcome.query
    assert query is not None
    candidates.outcome.query = _without(query, gone, total) if gone else query
    judge, arms = candidates.judge(), candidates.arms
    candidates.outcome.query = query
    ids = [hit.passage.chunk_id for hit in hits[:LOOKED_AT]]
    rows = [
        judge.signals(arms.cosines.get(chunk_id), hit.matched, other_language=chunk_id in arms.other_language)
        for chunk_id, hit in zip(ids, hits, strict=False)
    ]
    return Case(group, rows, is_bad(hits, question))


def _without(query: KeywordQuery, gone: list[Hit], total: int) -> KeywordQuery:
    """Return the query as it would be if these passages were not in the file."""
    counts = {term.word: term.chunks - sum(term.word in hit.matched for hit in gone) for term in query.terms}
    left = [
        replace(term, chunks=counts[term.word], idf=inverse_frequency(counts[term.word], total))
        for term in query.terms
        if counts[term.word] > 0
    ]
    absent = [(word, "in no passage") for word, count in counts.items() if count <= 0]
    dropped, missing_idf = (*query.dropped, *absent), inverse_frequency(0, total)
    return replace(query, terms=tuple(left), dropped=dropped, missing_idf=missing_idf)


def fit(known: list[Case], unused: tuple[str, ...]) -> Signals:
    """Return the weights with which the best of the first hits tells good searches from bad ones."""
    known = [case for case in known if case.rows]
    rows = np.zeros((len(known), LOOKED_AT, len(Signals._fields)))
    barred = np.full((len(known), LOOKED_AT), -1e9)
    for number, case in enumerate(known):
        rows[number, : len(case.rows)], barred[number, : len(case.rows)] = case.rows, 0
    rows[:, :, [Signals._fields.index(name) for name in unused]] = 0
    kinds = [(case.group, case.bad) for case in known]
    share = np.array([1 / kinds.count(kind) for kind in kinds])
    share, good = share / share.sum(), np.array([float(not case.bad) for case in known])
    mean, spread = rows[barred == 0].mean(axis=0), rows[barred == 0].std(axis=0) + 1e-9
    mean[0], spread[0] = 0, 1
    scaled, weights, every = (rows - mean) / spread, np.zeros(rows.shape[2]), np.arange(len(known))
    speed, power = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        values = scaled @ weights + barred
        best = values.argmax(axis=1)
        likely = 1 / (1 + np.exp(-values[every, best].clip(-30, 30)))
        slope = ((likely - good) * share) @ scaled[every, best] + DECAY * np.r_[0, weights[1:]]
        speed, power = 0.9 * speed + 0.1 * slope, 0.999 * power + 0.001 * slope**2
        weights -= RATE * (speed / (1 - 0.9**step)) / (np.sqrt(power / (1 - 0.999**step)) + 1e-8)
    result = weights / spread
    result[0] = weights[0] - (weights * mean / spread)[1:].sum() + SHIFT
    return Signals(*(round(float(weight), 2) for weight in result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the questions where the flag is wrong")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS], help="measure these only")
    parser.add_argument("--fit", nargs="+", choices=SETS, help="fit on these, and measure nothing")
    parser.add_argument("--model", default="default", help="the embedding model, as in the settings")
    options = parser.parse_args()
    if options.fit:
        known = [case for name in options.fit for case in cases(name, options.model)]
        print("HYBRID =", fit(known, ()))
        print("KEYWORD =", fit(known, ("meaning", "far", "other_language")))
        return
    for name in options.sets:
        with opened(name, options.model) as workspace:
            questions = [question for path in SETS[name] for question in load_questions(path)]
            report(name, measure(workspace, questions, show=options.show))


if __name__ == "__main__":
    main()
