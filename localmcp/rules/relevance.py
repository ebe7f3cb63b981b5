"""Which rules fit a task: candidates by meaning, a calibrated relevance, and the reasons."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

import apsw

from localmcp.arrays import Ids, Vector, np
from localmcp.index.passages import read_texts
from localmcp.index.vector import Block, nearest_codes
from localmcp.models import is_unit_vector
from localmcp.rules.calibration import Calibration
from localmcp.rules.globs import match_globs
from localmcp.rules.rulebook import Rule, Selection, load_embedded, rule_ids_of
from localmcp.storage.database import fetch_all, fetch_column

NEAREST, COMPARED = 200, 120
"""Rules read for the task, and for the conversation; how many of them are rated."""
CONVERSATION_WEIGHT = 0.7
_FACT = re.compile(
    r"[¿\s]*(?:what|which|who|whose|when|why|how|qué|cuál(?:es)?|quién|cuándo|cuánt[oa]s?|cosa|qual[ei]?|quais|chi|quem"
    r"|quant[oaie]|quando|wer|welche[rs]?|wann|wie viele?|warum|quel(?:le)?s?|quand|pourquoi|combien)\b"
    r"(?!.*\b(?:should|shall|I|we|rules?|conventions?|guidelines?"
    r"|devo|dovre\w+|\w+iamo|regol[ae]|convenzion[ei]|debo|deber\w*|\w+[ae]mos|reglas?|normas?|convenciones|regras?"
    r"|ich|wir|soll\w*|Regeln?|Richtlinien?|je|nous|règles?|consignes?)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""A question of fact; one that asks what to do speaks of whoever is to do it, or of rules themselves."""
# Tie-breakers (S2-10): of rules that are equally relevant, each counts as so much more similar.
FOR_CATEGORY, FOR_FILES, FOR_USE, FOR_RECENCY, FOR_WEIGHT = 0.02, 0.1, 0.04, 0.04, 0.1
USE_THAT_COUNTS_FULL = 50
RECENT_DAYS = 30.0
LONGEST_GLOBS = 2000
"""Characters of the patterns of a rule of another file."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, embedded."""

    text: str
    vector: Vector
    conversation: Vector | None = None
    files: tuple[str, ...] = ()

    @property
    def is_question(self) -> bool:
        """Whether it asks for a fact: "what does deductible mean", not "where should we put it"."""
        return _FACT.match(self.text) is not None


@dataclass(slots=True)
class Match:
    """A rule, and how well it fits the task."""

    rule: Rule
    cosine: float
    """With the task."""
    similarity: float
    """With the task or the conversation, whichever is larger when weighted, by the tasks that it is expected for."""
    reasons: list[str]
    relevance: float = 0.0
    preference: float = 0.0
    """The share by which it counts as more similar than equally relevant rules."""

    @property
    def place(self) -> tuple[float, float, str, int]:
        """Sort key of the answer; of equal rules yours is first."""
        return -self.relevance, -self.similarity * (1 + self.preference), self.rule.origin or "", self.rule.id


def match_rules(
    connection: apsw.Connection, task: Task, blocks: Sequence[Block], selection: Selection,
    calibration: Calibration | None, origin: str | None = None,
) -> list[Match]:  # fmt: skip
    """Return the rules nearest in meaning with their similarity; relevance is not set.

    Args:
        blocks: sign codes of the model in use; without any there is nothing that the task can be compared with.
        origin: the name of a mounted file.
    """
    if not blocks:
        return []
    allowed = _allowed_rules(connection, selection, task.files, mounted=origin is not None)
    views = [task.vector] if task.conversation is None else [task.vector, task.conversation * CONVERSATION_WEIGHT]
    near = [nearest_codes(blocks, view, NEAREST, allowed)[0] for view in views]
    rule_ids: list[int] = np.unique(rule_ids_of(np.concatenate(near))).tolist()
    rows = load_embedded(connection, rule_ids, origin)
    # In another file a longer vector would be near to every task.
    rows = [(rule, vector) for rule, vector in rows if origin is None or is_unit_vector(vector, len(task.vector))]
    if not rows:
        return []
    rules, blobs = [rule for rule, _ in rows], b"".join(blob for _, blob in rows)
    vectors, asked = np.frombuffer(blobs, "<f4").reshape(len(rules), -1), np.stack(views).T
    cosines = vectors @ asked
    nearest = np.argsort(-cosines.max(axis=1), kind="stable")[:COMPARED]
    similarities = calibration.expecting(vectors[nearest]) @ asked if calibration else cosines[nearest]
    return [
        _match(rules[place], float(cosines[place, 0]), by_view)
        for place, by_view in zip(cast("list[int]", nearest.tolist()), similarities.tolist(), strict=True)
    ]


def _match(rule: Rule, cosine: float, similarities: list[float]) -> Match:
    """`similarities`: with the task, and with the conversation if there is one."""
    similarity = max(similarities)
    if similarity > similarities[0]:
        return Match(rule, cosine, similarity, [f"close to the conversation ({similarity:.2f})"])
    close = f"close in meaning (cosine {cosine:.2f})"
    reasons = [close, "rules like it matter for such tasks"] if similarity > cosine + 1e-6 else [close]
    return Match(rule, cosine, similarity, reasons)


def _allowed_rules(
    connection: apsw.Connection, selection: Selection, files: Sequence[str], *, mounted: bool
) -> Ids | None:
    """Return sorted ids of the rules that may answer; None = all in force."""
    if selection == Selection() and not files:
        return None
    condition, bindings = selection.condition()
    if files:
        glob_lists = fetch_column(connection, "select distinct globs from rules where globs <> '[]'")
        readable = [globs for globs in glob_lists if not mounted or len(globs) <= LONGEST_GLOBS]
        about = [globs for globs in readable if any(match_globs(read_texts(globs), file) for file in files)]
        condition += " and (globs = '[]' or globs in (select value from json_each(:about)))"
        bindings["about"] = json.dumps(about)
    rows = fetch_all(connection, f"select id from rules where {condition}", bindings)
    return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)))


def rate(
    matches: Sequence[Match], task: Task, calibration: Calibration | None, categories: Mapping[str, float]
) -> None:
    """Set the relevance, and what orders equally relevant rules: files, category, use, recency, weight (S2-10).

    Without a calibration the relevance is the cosine. A weight below 1 (rules reported as not useful) lowers it;
    everything else changes no relevance, or a rule of the task's category would pass better ones.

    Args:
        categories: category -> 0..1, how near the task is to it, see `category_shares`.
    """
    relevances = np.array([match.cosine for match in matches])
    if calibration is not None and matches:
        similarities = np.array([match.similarity for match in matches])
        everyday = calibration.everyday(task.vector)
        relevances = calibration.gate.relevance(similarities, everyday, is_question=task.is_question)
    for match, relevance in zip(matches, relevances.tolist(), strict=True):
        rule, share = match.rule, categories.get(match.rule.category, 0.0)
        match.relevance = relevance * min(1.0, rule.weight)
        used = min(1.0, math.log1p(max(0, rule.instructions_count - 1)) / math.log1p(USE_THAT_COUNTS_FULL))
        match.preference = FOR_USE * used + FOR_CATEGORY * share + FOR_RECENCY * _recency(rule.last_applied)
        if rule.instructions_count > 1:
            match.reasons.append(f"asked for {rule.instructions_count} times")
        if share >= 1.0:
            match.reasons.append(f"the task is about {rule.category}")
        if task.files and rule.globs:
            match.preference += FOR_FILES
            match.reasons.append(f"is about files like {_glob_of(rule, task.files)}")
        if rule.weight > 1:
            match.preference += FOR_WEIGHT * min(1.0, rule.weight - 1)
            match.reasons.append(f"its weight is {rule.weight:.3g}")


def _glob_of(rule: Rule, files: Sequence[str]) -> str:
    """Return the pattern that a file fits; the first of all if it takes several of them together."""
    fitting = (glob for glob in rule.globs if any(match_globs([glob], file) for file in files))
    return next(fitting, rule.globs[0])


def _recency(last_applied: str | None) -> float:
    """1 for just applied, halved about every three weeks."""
    try:
        applied = datetime.fromisoformat(last_applied or "")
    except ValueError:
        return 0.0
    days = (datetime.now(UTC) - (applied if applied.tzinfo else applied.replace(tzinfo=UTC))).total_seconds() / 86_400
    return math.exp(-max(0.0, days) / RECENT_DAYS)
