"""Calibration: numbers, by model, that make a relevance (0..1) of how similar task and rule are."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models import Embedder, ModelIdentity
from localmcp.storage.database import fetch_one
from localmcp.text_vectors import TextVectors

SHIPPED_MODELS = ("default", "multilingual")
"""Those whose calibration comes with the package."""
RELEVANT = 0.7
"""The documented default threshold; the maps below are fitted so that rules that count reach it."""
_AT_THRESHOLD = math.log(RELEVANT / (1 - RELEVANT))
EXPECTED_SHARE = 0.375
"""Weight of the tasks that a rule is expected to be for; the rule itself has the rest."""
SIMILAR_RULES, SIMILAR_SLOPE = 20, 15.0
"""How many shipped rules say which tasks a rule is for; each weighs exp(slope x cosine)."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How similarity becomes relevance, for one model.

    Two questions are asked, and the less certain answer counts: does any rule fit this task (`fits`), and is this rule
    one of those that do (`belongs`)? Fitted by `tests/benchmarks/rules_quality.py --calibrate` on judged tasks, the
    first by logistic regression. The numbers here are those of the default model.
    """

    best: float = 18.84
    """Slope over the similarity of the best rule."""
    everyday: float = 14.8
    """Slope over the task's similarity to the nearest requests that need no rule."""
    work: float = 0.87
    """Slope over how much the task is put like those that rules are for."""
    question: float = 4.33
    """What a question of fact loses; people seldom need a rule to hear what something is."""
    offset: float = 1.54
    share: float = 0.6
    """A rule belongs when it reaches this share of the best one's similarity."""
    sharpness: float = 12.0
    """Slope over the distance from that share."""

    def fits(self, best: float, everyday: float, work: float = 0.0, *, is_question: bool = False) -> float:
        """Return the log odds that any rule fits a task.

        Args:
            best: similarity of the best rule.
            everyday: mean cosine of the task with the nearest requests that need no rule.
            work: how much the task is put like those that rules are for.
            is_question: whether it asks for a fact.
        """
        signs = self.best * best - self.everyday * everyday + self.work * work
        return signs - self.question * is_question + self.offset

    def relevance(self, similarity: float, best: float, fits: float) -> float:
        """Return the relevance of a rule, 0..1.

        Args:
            similarity: of this rule.
            best: similarity of the best rule.
            fits: log odds that any rule fits the task.
        """
        belongs = self.sharpness * (similarity - self.share * best) + _AT_THRESHOLD
        return logistic(min(fits, belongs))


def logistic(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))


def find_calibration(connection: apsw.Connection, identity: ModelIdentity) -> Calibration | None:
    """Return the calibration of a model: stored in the file, else shipped with the package, else None."""
    sql = "select calibration from models where fingerprint = ?"
    stored = fetch_one(connection, sql, (identity.fingerprint,))
    table = cast("dict[str, Any]", json.loads(stored)).get("rules") if stored else None
    if table:
        field_names = {field.name for field in fields(Calibration)}
        return Calibration(**{name: float(value) for name, value in table.items() if name in field_names})
    shipped = _shipped(identity.fingerprint)
    return shipped.calibration if shipped else None


# ---------------------------------------------------------------- requests and tasks that others wrote


class ExpectedTasks(NamedTuple):
    """Rules as teams write them, and the mean of four tasks for each: unit rows (n, 384).

    They are in the vectors of the default model.
    """

    rules: Vectors
    tasks: Vectors

    def similarities(self, vectors: Vectors, asked: Vectors) -> Vectors:
        """Return how well rules (m, dimension) fit what is asked (dimension, k): shape (m, k).

        A task seldom has a word of its rule, so a share is taken of the cosine with what the tasks of the written rules
        most like it have in common; none of questions in other languages, which the default model does not read.
        Best rule among the first five of all, before and after: .746 and .901 of 71 tasks, .717 and .833 of 60, .805
        and .829 of 41 that are not about software.
        """
        own, parts = vectors[:, -self.rules.shape[1] :], asked[-self.rules.shape[1] :]
        own_lengths, lengths = np.linalg.norm(own, axis=1, keepdims=True), np.linalg.norm(parts, axis=0)
        expected = self._expect(own / np.maximum(own_lengths, 1e-6)) @ (parts / np.maximum(lengths, 1e-6))
        share = EXPECTED_SHARE * np.minimum(np.square(lengths / max(own_lengths.max(), 1e-6)), 1)
        return (1 - share) * (vectors @ asked) + share * expected

    def _expect(self, rules: Vectors) -> Vectors:
        """Return unit rows: the tasks of the most similar written rules, weighted."""
        cosines = rules @ self.rules.T
        nearest = np.argpartition(-cosines, SIMILAR_RULES, axis=1)[:, :SIMILAR_RULES]
        weights = np.exp(SIMILAR_SLOPE * np.take_along_axis(cosines, nearest, axis=1))
        means = np.einsum("mk,mkd->md", weights, self.tasks[nearest])
        return means / np.linalg.norm(means, axis=1, keepdims=True)


class _Shipped(NamedTuple):
    """What comes with the package for one model."""

    calibration: Calibration
    vectors: Vectors
    """Of the requests that need no rule, unit rows (n, dimension)."""
    work: Vector
    """Its product with the vector of a task says how much that is put like tasks of rules (dimension,)."""


def shipped_path(model: str) -> Path:
    """Return the file of `default` or `multilingual` that `rules_quality.py --ship` writes."""
    return packaged_data() / f"rules_{model}.npz"


@cache
def _shipped(fingerprint: str) -> _Shipped | None:
    """Return what comes with the package for the model of this fingerprint.

    The vectors are kept as whole numbers of -127 to 127.
    """
    for model in SHIPPED_MODELS:
        with np.load(shipped_path(model), allow_pickle=False) as stored:
            if stored["fingerprint"] == fingerprint:
                numbers = Calibration(**json.loads(str(stored["numbers"])))
                return _Shipped(numbers, _unit_rows(stored["vectors"]), stored["work"])
    return None


def _unit_rows(numbers: NDArray[np.int8]) -> Vectors:
    rows = numbers.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@cache
def find_expected_tasks(fingerprint: str) -> ExpectedTasks | None:
    """Return the written rules and their tasks, if the package has them for the model."""
    with np.load(shipped_path("default"), allow_pickle=False) as stored:
        if stored["fingerprint"] != fingerprint:
            return None
        return ExpectedTasks(_unit_rows(stored["rules"]), _unit_rows(stored["tasks"]))


def find_work_direction(fingerprint: str) -> Vector | None:
    """Return what tells tasks of written rules from requests that need none, if the package has it for the model."""
    shipped = _shipped(fingerprint)
    return shipped.work if shipped else None


@cache
def requests_without_rules() -> list[str]:
    """Everyday requests, then those of people at work for which hardly any rule matters."""
    files = (packaged_data() / name for name in ("everyday_requests.txt", "requests_without_rules.txt"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def vectors_without_rules(embedder: Embedder, made: TextVectors) -> Vectors:
    """Return the unit vectors of `requests_without_rules`: shipped with the package, else from `made`."""
    shipped = _shipped(embedder.identity.fingerprint)
    return shipped.vectors if shipped else made.rows(requests_without_rules(), embedder)
