"""Every question asked in every mode, and the measures of the answers."""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from localmcp.errors import ModelUnavailable
from localmcp.evals.metrics import ndcg, paired_interval, percentile, recall, reciprocal_rank
from localmcp.evals.questions import Question
from localmcp.index.candidates import Mode, SearchRequest
from localmcp.index.index import Index
from localmcp.models import LazyEmbedder

MODES: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
DEPTH = 10
LOOKED_AT = 50
"""Passages fetched for a question about documents: several of one document count once."""


@dataclass(slots=True)
class Measures:
    """Means over the answerable questions of one kind."""

    questions: int
    ndcg: float
    recall: float
    mrr: float


@dataclass(slots=True)
class ModeResult:
    """One mode's result."""

    overall: Measures
    kinds: dict[str, Measures]
    answered_anyway: float | None
    """Share of the unanswerable questions that got results which were not marked as doubtful; None without any."""
    p50: float
    """Milliseconds of a search."""
    p95: float
    arms: dict[str, float]
    """Median milliseconds of each step."""
    each: list[float] = field(default_factory=list[float])
    """nDCG@10 of every answerable question, in order: what a comparison pairs."""


@dataclass(slots=True)
class Evaluation:
    """One run over one file with one setting."""

    settings: dict[str, Any]
    asked: str
    """Digest of the questions: only runs that asked the same can be paired."""
    questions: dict[str, int]
    modes: dict[str, ModeResult]
    notices: list[str] = field(default_factory=list[str])
    """What the searches themselves said: no vectors, another model, …"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluation_from(stored: dict[str, Any]) -> Evaluation:
    """Return the evaluation of which `stored` is the JSON.

    Raises:
        ValueError: it is something else.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(Evaluation).validate_python(stored)


def evaluate(
    index: Index,
    embedder: LazyEmbedder,
    questions: Sequence[Question],
    *,
    collections: tuple[str, ...] | None,
    settings: dict[str, Any],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Ask every question once in each mode, mode after mode, so that a busy moment slows all modes alike.

    The model is loaded and asked once before the clock runs; what an embedding costs is part of a search.
    """
    runs: dict[Mode, _Run] = {mode: _Run() for mode in MODES}
    # Without a model the answers say that they come from words alone.
    with suppress(ModelUnavailable):
        embedder.get()
    for number, question in enumerate(questions):
        for mode, run in runs.items():
            # Another mode's answer of the same question must not find the embedding ready.
            embedder.forget_queries()
            run.ask(index, question, mode, collections)
        progress(number + 1, len(questions))
    kinds = dict(Counter(question.kind for question in questions))
    notices = dict.fromkeys(notice for run in runs.values() for notice in run.notices)
    results = {mode: run.result() for mode, run in runs.items()}
    return Evaluation(settings, _digest(questions), kinds, results, list(notices))


def _digest(questions: Sequence[Question]) -> str:
    question_rows = [[question.text, question.kind, sorted(question.grades.items())] for question in questions]
    return hashlib.sha256(json.dumps(question_rows).encode()).hexdigest()[:16]


class _Run:
    """The measurements of one mode so far."""

    def __init__(self) -> None:
        self.scores: dict[str, list[tuple[float, ...]]] = {}
        """Kind of question -> nDCG, recall and reciprocal rank of each."""
        self.ndcg_scores: list[float] = []
        self.milliseconds: list[float] = []
        self.laps: dict[str, list[float]] = {}
        self.answered: list[bool] = []
        """Of each unanswerable question: whether it got results that were not marked as doubtful."""
        self.notices: dict[str, None] = {}

    def ask(self, index: Index, question: Question, mode: Mode, collections: tuple[str, ...] | None) -> None:
        limit = DEPTH if question.by_passage else LOOKED_AT
        start = time.perf_counter()
        outcome = index.search(SearchRequest(question.text, mode, limit, collections=collections))
        self.milliseconds.append((time.perf_counter() - start) * 1000)
        self.notices.update(dict.fromkeys(outcome.notices))
        for name, lap in outcome.milliseconds.items():
            self.laps.setdefault(name, []).append(lap)
        if not question.answerable:
            self.answered.append(bool(outcome.hits) and not outcome.doubtful)
            return
        passages = [hit.passage for hit in outcome.hits]
        keys = (passage.chunk_uuid.hex() if question.by_passage else passage.source_uuid for passage in passages)
        ranking = list(dict.fromkeys(keys))
        measured = tuple(measure(ranking, question.grades, DEPTH) for measure in (ndcg, recall, reciprocal_rank))
        self.scores.setdefault(question.kind, []).append(measured)
        self.ndcg_scores.append(measured[0])

    def result(self) -> ModeResult:
        everything = [score for scores in self.scores.values() for score in scores]
        return ModeResult(
            overall=_measures(everything),
            kinds={kind: _measures(scores) for kind, scores in self.scores.items()},
            answered_anyway=round(statistics.fmean(self.answered), 4) if self.answered else None,
            p50=round(percentile(self.milliseconds, 0.5), 2),
            p95=round(percentile(self.milliseconds, 0.95), 2),
            arms={name: round(statistics.median(laps), 2) for name, laps in self.laps.items()},
            each=[round(score, 6) for score in self.ndcg_scores],
        )


def _measures(scores: Sequence[tuple[float, ...]]) -> Measures:
    means = [round(statistics.fmean(column), 4) for column in zip(*scores, strict=True)] or [0.0, 0.0, 0.0]
    return Measures(len(scores), *means)


@dataclass(slots=True)
class Difference:
    """The change of one mode from one run to another."""

    mode: str
    before: float
    after: float
    interval: tuple[float, float] | None
    """95 % interval of the change, where both asked the same questions."""
    p50_ratio: float

    @property
    def change(self) -> float:
        return round(self.after - self.before, 4)


def compare(before: Evaluation, after: Evaluation) -> list[Difference]:
    """Return the change of nDCG@10 of each mode that both runs have."""
    same = before.asked == after.asked
    return [
        Difference(
            mode,
            before.modes[mode].overall.ndcg,
            result.overall.ndcg,
            paired_interval(before.modes[mode].each, result.each) if same else None,
            round(result.p50 / before.modes[mode].p50, 3) if before.modes[mode].p50 else 0.0,
        )
        for mode, result in after.modes.items()
        if mode in before.modes
    ]


def regressions(differences: Iterable[Difference], tolerance: float) -> list[Difference]:
    """Return the modes that lost more than `tolerance` nDCG@10, unless the interval reaches above 0 (chance)."""
    return [
        difference
        for difference in differences
        if difference.change < -tolerance and (difference.interval is None or difference.interval[1] < 0)
    ]
