"""Which rules fit a task: candidates by meaning, a calibrated relevance, and the reasons."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import apsw

from localmcp.arrays import Vector, Vectors, np
from localmcp.index.collections import Collection
from localmcp.index.passages import read_texts
from localmcp.index.vector import Block, nearest_codes
from localmcp.linear_patterns import path_matcher
from localmcp.models import is_unit_vector
from localmcp.rules.calibration import Calibration, ExpectedTasks
from localmcp.rules.rulebook import CATEGORIES, Rule, Selection, load_rules, rule_ids_of
from localmcp.storage.database import fetch_all

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NEAREST, NEAREST_TO_CONVERSATION = 200, 80
"""Rules compared exactly for the task, and for the conversation."""
COMPARED, WEIGHED = 120, 80
"""How many of the nearest rules are compared with their expected tasks, and how many are rated."""
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
LONGEST_PATH = 4096
LONGEST_GLOBS, MOST_PATTERNS = 2000, 500
"""Characters of the patterns of a rule of another file, and patterns that one with braces may stand for."""


@dataclass(slots=True)
class Task:
    """What is asked, embedded."""

    text: str
    vector: Vector
    conversation: Vector | None = None
    without_rules: Vectors | None = None
    """Vectors of requests that need no rule (n, dimension); if calibrated."""
    expected: ExpectedTasks | None = None
    work_direction: Vector | None = None
    files: tuple[str, ...] = ()

    @property
    def is_question(self) -> bool:
        """Whether it asks for a fact: "what does deductible mean", not "where should we put it"."""
        return _FACT.match(self.text) is not None

    @property
    def work(self) -> float:
        """How much it is put like tasks that rules are for; 0 if not calibrated."""
        return 0.0 if self.work_direction is None else float(self.work_direction @ self.vector)

    @property
    def nearest_without_rules(self) -> float:
        """Mean cosine with the five requests without rules that are most like the task."""
        return 0.0 if self.without_rules is None else float(np.sort(self.without_rules @ self.vector)[-5:].mean())

    def fits(self, calibration: Calibration, best: float) -> float:
        """Return the log odds that any rule fits it; `best` is the similarity of the best one."""
        return calibration.fits(best, self.nearest_without_rules, self.work, is_question=self.is_question)

    def views(self) -> list[tuple[Vector, float, int]]:
        """Return each vector that rules are compared with, its weight, and how many of the nearest it brings."""
        weighted_vectors = [(self.vector, 1.0, NEAREST)]
        if self.conversation is not None:
            weighted_vectors.append((self.conversation, CONVERSATION_WEIGHT, NEAREST_TO_CONVERSATION))
        return weighted_vectors


@dataclass(slots=True)
class Match:
    """A rule, and how well it fits the task."""

    rule: Rule
    cosine: float
    """With the whole task."""
    similarity: float
    """The larger weighted one: with the task, or with the conversation; both by expected tasks too."""
    view: int
    """Which of the task's views that was."""
    relevance: float = 0.0
    preference: float = 0.0
    """The share by which it counts as more similar than equally relevant rules."""
    reasons: list[str] = field(default_factory=list[str])


# ---------------------------------------------------------------- candidates


def match_rules(
    connection: apsw.Connection, task: Task, collection: Collection, blocks: Sequence[Block], selection: Selection,
    origin: str | None = None,
) -> list[Match]:  # fmt: skip
    """Return the rules nearest in meaning with their similarity, best first; relevance is not set.

    `origin` is the name of a mounted file.
    """
    if not blocks:
        # Without codes of the model in use there are no vectors that the task's can be compared with.
        return []
    allowed = allowed_rules(connection, selection, task.files, mounted=origin is not None)
    by_view = (rule_ids_of(nearest_codes(blocks, vector, depth, allowed)[0]) for vector, _, depth in task.views())
    candidate_ids = list(dict.fromkeys(int(rule_id) for ids in by_view for rule_id in ids))
    nearest = _compare(connection, collection, task, candidate_ids, mounted=origin is not None)
    first = sorted(nearest, key=lambda rule_id: -nearest[rule_id][1])[:WEIGHED]
    rules = load_rules(connection, dict.fromkeys(first), origin)
    matches = [Match(rule, *nearest[rule.id]) for rule in rules.values()]
    return sorted(matches, key=lambda match: (-match.similarity, match.rule.id))


def allowed_rules(
    connection: apsw.Connection, selection: Selection, files: Sequence[str], *, mounted: bool = False
) -> Any:
    """Return sorted ids of the rules that may answer; None = all in force."""
    if selection == Selection() and not files:
        return None
    condition, bindings = selection.condition()
    if files:
        rows = fetch_all(connection, "select distinct globs from rules where globs <> '[]'")
        glob_lists = [globs for (globs,) in rows if not mounted or len(globs) <= LONGEST_GLOBS]
        about = [globs for globs in glob_lists if any(match_globs(read_texts(globs), file) for file in files)]
        condition += " and (globs = '[]' or globs in (select value from json_each(:about)))"
        bindings["about"] = json.dumps(about)
    rows = fetch_all(connection, f"select id from rules where {condition}", bindings)
    return np.sort(np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows)))


def match_globs(globs: Sequence[str], path: str) -> bool:
    """Whether a path is one that the patterns mean; `{a,b}` and `**` work as in Cursor.

    Patterns are relative to the project. Where it begins in an absolute path is unknown, so each folder may be it.
    """
    if len(path) > LONGEST_PATH:
        return False
    # Another file's rules may have any text for a pattern.
    patterns = [pattern for glob in globs if (spec := _read_pattern(glob)) for pattern in spec.patterns]
    parts = path.replace("\\", "/").removeprefix("./").split("/")
    is_absolute = not parts[0] or parts[0].endswith(":")
    starts = range(1, len(parts)) if is_absolute else range(1)
    return any(_is_meant(patterns, "/".join(parts[start:])) for start in starts)


def _is_meant(patterns: Sequence[Any], path: str) -> bool:
    """Return what the last pattern that matches says; without one, no."""
    meaning = (pattern.include for pattern in reversed(patterns) if pattern.regex and path_matcher(pattern.regex)(path))
    return next(meaning, False)


def is_pattern(glob: str) -> bool:
    """Return whether a text can be read as a pattern: a backslash at its end, for one, protects nothing."""
    return _read_pattern(glob) is not None


def _read_pattern(glob: str) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(_expand_braces(glob))
    except ValueError:
        return None


def _expand_braces(glob: str) -> list[str]:
    """Return the patterns that a glob with braces stands for.

    Raises:
        ValueError: they are too many.
    """
    waiting, patterns = [glob], list[str]()
    while waiting:
        current = waiting.pop()
        opened = re.search(r"\{([^{}]*)\}", current)
        if opened is None:
            patterns.append(current)
            continue
        before, after = current[: opened.start()], current[opened.end() :]
        waiting += [f"{before}{part.strip()}{after}" for part in opened[1].split(",")]
        if len(waiting) + len(patterns) > MOST_PATTERNS:
            raise ValueError(f"the braces stand for more than {MOST_PATTERNS} patterns")
    return patterns


def _compare(
    connection: apsw.Connection, collection: Collection, task: Task, rule_ids: Sequence[int], *, mounted: bool
) -> dict[int, tuple[float, float, int]]:
    """Return the fields of `Match` that come of comparing rules with every view of the task."""
    if not rule_ids:
        return {}
    rows = fetch_all(
        connection,
        """
        select rules.id, vectors.embedding from rules join vectors on vectors.id = rules.embedding
        where rules.id in (select value from carray(:ids)) and rules.embedding >> 40 = :model
        """,
        {"ids": apsw.carray(np.array(rule_ids, dtype=np.int64)), "model": collection.model_id},
    )
    if mounted:
        # A longer vector would be near to every task.
        rows = [row for row in rows if is_unit_vector(row[1], len(task.vector))]
    if not rows:
        return {}
    vectors = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f4").reshape(len(rows), -1)
    views = task.views()
    asked = np.stack([vector for vector, _, _ in views]).T
    weights = np.array([weight for _, weight, _ in views], dtype=np.float32)
    nearest = np.sort(np.argsort(-(vectors @ asked * weights).max(axis=1), kind="stable")[:COMPARED])
    rows, vectors = [rows[i] for i in nearest], vectors[nearest]
    cosines = vectors @ asked
    similarities = task.expected.similarities(vectors, asked) if task.expected else cosines
    weighted = similarities * weights
    best = weighted.argmax(axis=1)
    return {row[0]: (float(cosines[i, 0]), float(weighted[i, best[i]]), int(best[i])) for i, row in enumerate(rows)}


# ---------------------------------------------------------------- relevance


def rate(matches: Sequence[Match], task: Task, calibration: Calibration | None) -> None:
    """Set relevance and reasons. Without a calibration the relevance is the cosine.

    A weight below 1 (rules reported as not useful) lowers the relevance; everything else only orders equally relevant
    rules, see `prefer`.
    """
    best = max((match.similarity for match in matches), default=0.0)
    fits = task.fits(calibration, best) if calibration else 0.0
    for match in matches:
        if calibration is None:
            relevance = match.cosine
        else:
            relevance = calibration.relevance(match.similarity, best, fits)
        match.relevance = relevance * min(1.0, match.rule.weight)
        match.reasons = _reasons(match)


def _reasons(match: Match) -> list[str]:
    if match.view:
        return [f"close to the conversation ({match.similarity:.2f})"]
    close = f"close in meaning (cosine {match.cosine:.2f})"
    return [close, "rules like it matter for such tasks"] if match.similarity > match.cosine else [close]


def prefer(matches: Sequence[Match], task: Task, categories: Mapping[str, float]) -> None:
    """Let category, files, weight, use and recency order rules that are equally relevant (S2-10).

    They change no relevance: where they did, a rule of the task's category passed better ones. On seven sets of tasks
    .764 found their best rule among five then, .792 now.
    """
    for match in matches:
        parts = _tie_breakers(match.rule, task, categories)
        match.preference = sum(share for share, _ in parts)
        match.reasons += [reason for _, reason in parts if reason]


def _tie_breakers(rule: Rule, task: Task, categories: Mapping[str, float]) -> list[tuple[float, str]]:
    """Return each preference, 0..0.1, with its reason."""
    share = min(1.0, math.log1p(max(0, rule.instructions_count - 1)) / math.log1p(USE_THAT_COUNTS_FULL))
    parts = [
        (FOR_USE * share, f"asked for {rule.instructions_count} times" if rule.instructions_count > 1 else ""),
        (FOR_CATEGORY * categories.get(rule.category, 0.0), ""),
        (FOR_RECENCY * _recency(rule.last_applied), ""),
    ]
    if categories.get(rule.category, 0.0) >= 1.0:
        parts[1] = (FOR_CATEGORY, f"the task is about {rule.category}")
    if task.files and rule.globs:
        parts.append((FOR_FILES, f"is about files like {_glob_of(rule, task.files)}"))
    if rule.weight > 1:
        parts.append((FOR_WEIGHT * min(1.0, rule.weight - 1), f"its weight is {rule.weight:.3g}"))
    return parts


def _glob_of(rule: Rule, files: Sequence[str]) -> str:
    """Return the pattern that a file fits; the first of all if it takes several of them together."""
    fitting = (glob for glob in rule.globs if any(match_globs([glob], file) for file in files))
    return next(fitting, rule.globs[0])


def _recency(last_applied: str | None) -> float:
    """1 for just applied, halved about every three weeks."""
    if last_applied is None:
        return 0.0
    try:
        applied = datetime.fromisoformat(last_applied)
    except ValueError:
        return 0.0
    if applied.tzinfo is None:
        applied = applied.replace(tzinfo=UTC)
    days = (datetime.now(UTC) - applied).total_seconds() / 86_400
    return math.exp(-max(0.0, days) / RECENT_DAYS)


def category_shares(vector: Vector, category_vectors: Any) -> dict[str, float]:
    """Category -> 0..1: how near the task is to it, where 1 is the nearest and 0 the average of the nine."""
    cosines = category_vectors @ vector
    top, mean = float(cosines.max()), float(cosines.mean())
    spread = max(top - mean, 1e-6)
    return {name: max(0.0, (float(c) - mean) / spread) for name, c in zip(CATEGORIES, cosines, strict=True)}
