"""Calibration: what makes a relevance (0..1) of how similar task and rules are, by model."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import NamedTuple

import apsw

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models import Embedder
from localmcp.models.text_vectors import TextVectors
from localmcp.storage.database import fetch_one

SHIPPED_MODELS = ("default", "multilingual")
"""Those whose calibration comes with the package, in `rules_NAME.npz`, which `rules_quality.py --ship` writes."""
RELEVANT = 0.7
"""The documented default threshold; the maps below are fitted so that rules that count reach it."""
BELONGING_SHARE, SHARPNESS = 0.6, 12.0
"""A rule belongs to a task when it reaches this share of the best one's similarity; slope over the distance from it."""
EXPECTED_SHARE = 0.375
"""Weight of the tasks that a rule is expected to be for; the rule itself has the rest."""
SIMILAR_RULES, SIMILAR_SLOPE = 20, 15.0
"""How many shipped rules say which tasks a rule is for; each weighs exp(slope x cosine)."""


class Gate(NamedTuple):
    """Slopes and cut of the log odds that any rule fits a task, fitted by logistic regression on judged tasks.

    The numbers here are those of the default model.
    """

    best: float = 22.33
    """Slope over the similarity of the best rule."""
    everyday: float = 18.64
    """Slope over the task's similarity to the nearest requests that need no rule."""
    question: float = 4.47
    """What a question of fact loses; people seldom need a rule to hear what something is."""
    offset: float = 1.9

    def relevance(self, similarities: Vector, everyday: float, *, is_question: bool) -> Vector:
        """Return the relevance (0..1) of each rule of a task.

        Two questions are asked, and the less certain answer counts: does any rule fit this task, and is this rule one
        of those that do?

        Args:
            similarities: of all rules that are near the task, at least one.
            everyday: mean cosine of the task with the nearest requests that need no rule.
            is_question: whether the task asks for a fact.
        """
        best = similarities.max()
        fits = self.best * best - self.everyday * everyday - self.question * is_question + self.offset
        belongs = SHARPNESS * (similarities - BELONGING_SHARE * best) + math.log(RELEVANT / (1 - RELEVANT))
        return 1 / (1 + np.exp(-np.clip(np.minimum(fits, belongs), -60, 60)))


class Calibration(NamedTuple):
    """What is known of one model."""

    gate: Gate
    requests: Vectors
    """Of the requests that need no rule: unit rows (n, dimension)."""
    rules: Vectors | None = None
    """Rules as teams write them, and the mean of four tasks for each: unit rows (m, dimension)."""
    tasks: Vectors | None = None

    def everyday(self, task: Vector) -> float:
        """Return the mean cosine with the five requests without rules that are most like a task."""
        return float(np.sort(self.requests @ task)[-5:].mean())

    def expecting(self, vectors: Vectors) -> Vectors:
        """Return rows (k, dimension) whose product with a task says how well rules fit it, from the rules' vectors.

        A task seldom has a word of its rule, so each rule is moved towards the tasks that written rules like it have.
        Of the tasks of three unseen sets .67 find their best rule so, .57 by the rules' own vectors.
        """
        if self.rules is None or self.tasks is None:
            return vectors
        cosines = vectors @ self.rules.T
        nearest = np.argpartition(-cosines, SIMILAR_RULES, axis=1)[:, :SIMILAR_RULES]
        weights = np.exp(SIMILAR_SLOPE * np.take_along_axis(cosines, nearest, axis=1))
        means = np.einsum("mk,mkd->md", weights, self.tasks[nearest])
        expected = means / np.linalg.norm(means, axis=1, keepdims=True)
        return (1 - EXPECTED_SHARE) * vectors + EXPECTED_SHARE * expected


def find_calibration(connection: apsw.Connection, embedder: Embedder, made: TextVectors) -> Calibration | None:
    """Return the calibration of a model: stored in the file, else shipped with the package, else None.

    `made` keeps the vectors of the requests where none are shipped.
    """
    fingerprint = embedder.identity.fingerprint
    shipped = _shipped(fingerprint)
    stored = fetch_one(connection, "select calibration ->> '$.rules' from models where fingerprint = ?", (fingerprint,))
    if stored is None:
        return shipped
    gate = Gate(**json.loads(stored))
    return shipped._replace(gate=gate) if shipped else Calibration(gate, made.rows(requests_without_rules(), embedder))


@cache
def _shipped(fingerprint: str) -> Calibration | None:
    """Return what comes with the package for the model of this fingerprint; the vectors are kept as small numbers."""
    for model in SHIPPED_MODELS:
        with np.load(packaged_data() / f"rules_{model}.npz", allow_pickle=False) as stored:
            if stored["fingerprint"] == fingerprint:
                rows = [_unit_rows(stored[name]) for name in ("requests", "rules", "tasks") if name in stored]
                return Calibration(Gate(**json.loads(str(stored["gate"]))), *rows)
    return None


def _unit_rows(numbers: NDArray[np.int8]) -> Vectors:
    rows = numbers.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def requests_without_rules() -> list[str]:
    """Everyday requests, then those of people at work for which hardly any rule matters."""
    files = (packaged_data() / name for name in ("everyday_requests.txt", "requests_without_rules.txt"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]
