"""What a similarity means: the numbers that turn what the model says of a task and a rule into a relevance of 0..1."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import apsw

from localmcp.config import packaged_data
from localmcp.storage.database import fetch_one

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmcp.embeddings import Embedder, ModelIdentity

SHIPPED_MODELS = ("default", "multilingual")
"""Those whose calibration comes with the package."""
RELEVANT = 0.7
"""The documented default threshold; the maps below are laid so that a rule passes it exactly when it should count."""
_AT_THRESHOLD = math.log(RELEVANT / (1 - RELEVANT))


@dataclass(frozen=True, slots=True)
class Calibration:
    """How similarity becomes relevance, for one model. Similarities are cosines, less the rule's generality.

    Two questions are asked, and the less certain answer counts: does any rule fit this task (`fits`), and is this rule
    one of those that do (`belongs`)? Fitted by `tests/benchmarks/rules_quality.py --calibrate` on judged tasks, the
    first by logistic regression. The numbers here are those of the default model.
    """

    best: float = 24.5
    """Slope over the similarity of the best rule."""
    everyday: float = 7.35
    """Slope over the task's similarity to the nearest everyday request: what is near to those is not about rules."""
    work: float = 4.9
    """Slope over how much the task sounds like work at a computer."""
    offset: float = -1.28
    share: float = 0.4
    """A rule belongs when it reaches this share of the best one's similarity."""
    sharpness: float = 12.0
    """Slope over the distance from that share."""
    generality: float = 0.188
    """How near an ordinary rule is to everyday requests."""
    direction: tuple[float, ...] = ()
    """(dimension + 1,): parts requests to programs from everyday life; empty: the one shipped for the model, if any."""

    def relevance(self, similarity: float, best: float, everyday: float, work: float = 0.0) -> float:
        """Return the relevance of a rule, 0..1.

        Args:
            similarity: of this rule.
            best: similarity of the best rule.
            everyday: cosine of the task with the nearest everyday request.
            work: how much the task sounds like work at a computer, about -1..1.
        """
        fits = self.best * best - self.everyday * everyday + self.work * work + self.offset
        belongs = self.sharpness * (similarity - self.share * best) + _AT_THRESHOLD
        return logistic(min(fits, belongs))


def logistic(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow."""
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))


def find_calibration(connection: apsw.Connection, identity: ModelIdentity) -> Calibration | None:
    """Return the calibration of a model: the one stored in the file, the one shipped with the package, or None."""
    sql = "select calibration from models where fingerprint = ?"
    stored = fetch_one(connection, sql, (identity.fingerprint,))
    table = cast("dict[str, Any]", json.loads(stored)).get("rules") if stored else None
    if table:
        field_names = {field.name for field in fields(Calibration)}
        return Calibration(**{name: _number(value) for name, value in table.items() if name in field_names})
    shipped = _shipped(identity.fingerprint)
    return shipped.calibration if shipped else None


def _number(value: Any) -> Any:
    return tuple(map(float, cast("list[Any]", value))) if isinstance(value, list) else float(value)


def store_calibration(connection: apsw.Connection, model_id: int, calibration: Calibration) -> None:
    """Keep a model's calibration in the file. Part of the caller's write transaction."""
    stored = fetch_one(connection, "select calibration from models where id = ?", (model_id,))
    table = cast("dict[str, Any]", json.loads(stored or "{}"))
    table["rules"] = asdict(calibration)
    connection.execute("update models set calibration = ? where id = ?", (json.dumps(table), model_id))


# ---------------------------------------------------------------- everyday requests


class _Shipped(NamedTuple):
    """What comes with the package for one model."""

    calibration: Calibration
    vectors: NDArray[np.float32]
    """Of the everyday requests, unit rows (n, dimension)."""
    direction: NDArray[np.float32]


def shipped_path(model: str) -> Path:
    """Return the file with the calibration of `default` or `multilingual`, which `rules_quality.py --ship` writes."""
    return packaged_data() / f"rules_{model}.npz"


@cache
def _shipped(fingerprint: str) -> _Shipped | None:
    """Return what comes with the package for the model of this fingerprint.

    The vectors are kept as whole numbers of -127 to 127.
    """
    import numpy as np

    for model in SHIPPED_MODELS:
        with np.load(shipped_path(model), allow_pickle=False) as stored:
            if stored["fingerprint"] == fingerprint:
                rows = stored["vectors"].astype(np.float32)
                rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                return _Shipped(Calibration(**json.loads(str(stored["numbers"]))), rows, stored["direction"])
    return None


@cache
def everyday_requests() -> list[str]:
    """Short requests from all walks of life, none of which a rule of software development answers."""
    text = (packaged_data() / "everyday_requests.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


class EverydayRequests:
    """Their vectors, for the model at hand: shipped, else embedded once."""

    def __init__(self) -> None:
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def vectors(self, embedder: Embedder) -> NDArray[np.float32]:
        """Return unit vectors (n, dimension)."""
        fingerprint = embedder.identity.fingerprint
        if shipped := _shipped(fingerprint):
            return shipped.vectors
        if fingerprint not in self._vectors:
            self._vectors[fingerprint] = embedder.embed_passages(everyday_requests())
        return self._vectors[fingerprint]

    def direction(self, embedder: Embedder, calibration: Calibration) -> NDArray[np.float32] | None:
        """Return the direction of work (dimension + 1,), or None where the calibration has none."""
        import numpy as np

        if calibration.direction:
            return np.array(calibration.direction, dtype=np.float32)
        shipped = _shipped(embedder.identity.fingerprint)
        return shipped.direction if shipped else None
