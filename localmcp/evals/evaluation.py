"""Judged questions of a file, asked in every mode, the measures of the answers, and how two runs differ."""

from __future__ import annotations

import hashlib
import json
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, NonNegativeFloat, TypeAdapter, ValidationError

from localmcp.arrays import np
from localmcp.errors import InvalidInput, ModelUnavailable, NotFound
from localmcp.index.collections import choose_collections
from localmcp.index.fusion import Mode
from localmcp.index.search import Index, SearchRequest
from localmcp.library.names import nearest_hint, sources_named
from localmcp.schemas import Json
from localmcp.storage.database import Database

MODES: tuple[Mode, ...] = ("keyword", "semantic", "hybrid")
LOOKED_AT = 50
"""Passages fetched for a question about documents: several of one document count once."""


Question = tuple[str, str, dict[str, float]]
"""Its text, its kind, and what answers it: id of a document -> how relevant it is; {} = nothing in the collections."""
Measures = dict[str, float]
"""Means over the answerable questions of one kind: `questions` (how many), `ndcg`, `recall`, `mrr`."""


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


# ---------------------------------------------------------------- questions


class _Line(BaseModel):
    query: str = Field(pattern=r"\S")
    kind: str = "judged"
    relevant: dict[str, NonNegativeFloat] | list[str] = []
    answers: list[dict[str, Any]] = []
    """The form of the sample questions: each has a `path`."""


def read_questions(path: Path, database: Database, collections: tuple[str, ...] | None) -> list[Question]:
    """Read a file of questions: one JSON object a line, {"query": "…", "relevant": ["notes/backup.md", …]}.

    What is relevant is named by document id, path (its end is enough) or title, or as an object with grades
    ({"notes/backup.md": 3}); an empty list means that nothing answers the question. InvalidInput if the file is not of
    that form, or a name fits several documents; NotFound if a document is not there: both name the line.
    """
    questions: list[Question] = []
    try:
        # Not splitlines(), which also ends a line at U+2028 and U+0085, as texts in JSON may hold.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8: {error}.") from error
    with database.read() as connection:
        choose_collections(connection, list(collections) if collections else None)
        for where, line in ((f"{path}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip()):
            try:
                entry = _Line.model_validate_json(line)
            except ValidationError as error:
                place, says = "".join(f"{name}: " for name in error.errors()[0]["loc"][:1]), error.errors()[0]["msg"]
                raise InvalidInput(f"{where}: {place}{says}.") from error
            relevant = entry.relevant or [str(answer.get("path")) for answer in entry.answers]
            graded = relevant if isinstance(relevant, dict) else dict.fromkeys(relevant, 1.0)
            grades: dict[str, float] = {}
            for name, grade in ((name, grade) for name, grade in graded.items() if grade):
                named = [sources_named(connection, name, collection=one) for one in collections or [None]]
                sources = list(chain(*named))
                if not sources:
                    raise NotFound(f"{where}: no document '{name}'.", hint=nearest_hint(connection, name))
                # One file in two collections, too: a hit in the other one would count as a miss.
                if len(sources) > 1:
                    places = ", ".join(source.uri or source.uuid[:8] for source in sources[:9])
                    message = f"{where}: '{name}' fits {len(sources)} documents: {places}."
                    raise InvalidInput(message, hint="Give one of these paths, or one collection: -c NAME.")
                grades[sources[0].uuid] = grade
            questions.append((entry.query, entry.kind, grades))
    if not questions:
        raise InvalidInput(f"{path} holds no question.", hint='A line: {"query": "…", "relevant": ["a title"]}')
    return questions


# ---------------------------------------------------------------- one run


def evaluate(
    index: Index,
    questions: Sequence[Question],
    collections: tuple[str, ...] | None,
    settings: dict[str, Any],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Ask every question once in each mode, mode after mode, so that a busy moment slows all modes alike.

    The model is loaded before the clock runs; what an embedding costs is part of a search.
    """
    runs: dict[Mode, _Run] = {mode: _Run() for mode in MODES}
    # Without a model the answers say that they come from words alone.
    with suppress(ModelUnavailable):
        index.embedder.get()
    for number, question in enumerate(questions, 1):
        for mode, run in runs.items():
            # Another mode's answer of the same question must not find the embedding ready.
            index.embedder.queries.clear()
            run.ask(index, question, mode, collections)
        progress(number, len(questions))
    rows = [[text, kind, sorted(grades.items())] for text, kind, grades in questions]
    return Evaluation(
        settings,
        hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16],
        dict(Counter(kind for _, kind, _ in questions)),
        {mode: run.result() for mode, run in runs.items()},
        list(dict.fromkeys(notice for run in runs.values() for notice in run.notices)),
    )


class _Run:
    def __init__(self) -> None:
        self.scores: list[tuple[str, tuple[float, ...]]] = []
        """Kind, and nDCG, recall and reciprocal rank of each answerable question."""
        self.milliseconds: list[float] = []
        self.laps: dict[str, list[float]] = {}
        self.answered: list[bool] = []
        """Of each unanswerable question: whether it got results that were not marked as doubtful."""
        self.notices: list[str] = []

    def ask(self, index: Index, question: Question, mode: Mode, collections: tuple[str, ...] | None) -> None:
        (text, kind, grades), start = question, time.perf_counter()
        outcome = index.search(SearchRequest(text, mode, LOOKED_AT, collections=collections))
        self.milliseconds.append((time.perf_counter() - start) * 1000)
        self.notices += outcome.notices
        for name, lap in outcome.milliseconds.items():
            self.laps.setdefault(name, []).append(lap)
        if not grades:
            self.answered.append(bool(outcome.hits) and not outcome.doubtful)
            return
        ranking = list(dict.fromkeys(hit.passage.source_uuid for hit in outcome.hits))
        self.scores.append((kind, tuple(measure(ranking, grades) for measure in (ndcg, recall, reciprocal_rank))))

    def result(self) -> ModeResult:
        def means(scores: Sequence[tuple[float, ...]]) -> Measures:
            columns = zip(*scores, strict=True) if scores else [[0.0]] * 3
            ndcg, recall, mrr = (round(statistics.fmean(column), 4) for column in columns)
            return {"questions": len(scores), "ndcg": ndcg, "recall": recall, "mrr": mrr}

        kinds = dict.fromkeys(kind for kind, _ in self.scores)
        return ModeResult(
            overall=means([score for _, score in self.scores]),
            kinds={kind: means([score for of, score in self.scores if of == kind]) for kind in kinds},
            answered_anyway=round(statistics.fmean(self.answered), 4) if self.answered else None,
            p50=round(percentile(self.milliseconds, 0.5), 2),
            p95=round(percentile(self.milliseconds, 0.95), 2),
            arms={name: round(statistics.median(laps), 2) for name, laps in self.laps.items()},
            each=[round(score[0], 6) for _, score in self.scores],
        )


# ---------------------------------------------------------------- two runs


def read_evaluation(path: Path) -> Evaluation:
    """Read what `localmcp eval --json` printed; InvalidInput if the file holds something else."""
    try:
        return TypeAdapter(Evaluation).validate_json(path.read_bytes())
    except ValueError as error:
        hint = "Make it again: localmcp eval FILE --json > before.json"
        raise InvalidInput(f"{path} is not what `localmcp eval --json` prints.", hint=hint) from error


def compare(before: Evaluation, after: Evaluation) -> list[Json]:
    """Return the change of nDCG@10 of each mode that both runs have.

    `interval` is that of 95 % of the change where both asked the same questions, else None.
    """
    differences: list[Json] = []
    for mode, new in after.modes.items():
        if old := before.modes.get(mode):
            was, now = old.overall["ndcg"], new.overall["ndcg"]
            interval = paired_interval(old.each, new.each) if before.asked == after.asked else None
            speed = round(new.p50 / old.p50, 3) if old.p50 else 0.0
            difference = {"mode": mode, "before": was, "after": now, "change": round(now - was, 4)}
            differences.append({**difference, "interval": interval, "p50_ratio": speed})
    return differences


# ---------------------------------------------------------------- measures, each 0..1 and higher is better


def ndcg(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """Normalized discounted cumulative gain: sum of grade / log2(rank + 1), over that of the best possible ranking.

    `ranking`: ids, best first, each once; `grades`: id -> how relevant it is, above 0; others are not relevant.
    """
    best = sorted(grades.values(), reverse=True)[:depth]
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))
    gain = sum(grades.get(document, 0.0) / math.log2(rank + 1) for rank, document in enumerate(ranking[:depth], 1))
    return gain / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """Return the share of the relevant ids among the first `depth`."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant & set(ranking[:depth])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """1 / rank of the first relevant id; 0 when there is none among the first `depth`. Its mean is MRR."""
    return next((1 / rank for rank, document in enumerate(ranking[:depth], 1) if grades.get(document, 0.0) > 0), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share (0..1) of the values is, interpolated; 0 for none."""
    return float(np.quantile(values, share)) if values else 0.0


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `second - first` over the same questions, by bootstrap."""
    differences, draw = [b - a for a, b in zip(first, second, strict=True)], random.Random(0)
    if not differences:
        return 0.0, 0.0
    means = [statistics.fmean(draw.choices(differences, k=len(differences))) for _ in range(1000)]
    return round(percentile(means, 0.025), 4), round(percentile(means, 0.975), 4)
