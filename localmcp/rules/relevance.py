"""Which rules fit a task: candidates by meaning, and how relevant each is (0..1), with any model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, cast

import apsw

from localmcp.arrays import Ids, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.index.passages import read_texts
from localmcp.index.vector import Block, nearest_codes
from localmcp.linear_patterns import path_matcher
from localmcp.models import Embedder, is_unit_vector
from localmcp.models.embedder import TextVectors
from localmcp.rules.rulebook import Rule, Selection, load_embedded, load_vectors, rule_ids_of
from localmcp.storage.database import fetch_column, read_generations
from localmcp.storage.schema import utc_moment

NEAREST, COMPARED = 200, 120
"""Rules read for the task, and for the conversation; how many of them are rated."""
_FACT = re.compile(
    r"[¿\s]*(?:what|which|who|whose|when|why|how|qué|cuál(?:es)?|quién|cuándo|cuánt[oa]s?|cosa|qual[ei]?|quais|chi|quem"
    r"|quant[oaie]|quando|wer|welche[rs]?|wann|wie viele?|warum|quel(?:le)?s?|quand|pourquoi|combien)\b"
    r"(?!.*\b(?:should|shall|I|we|rules?|conventions?|guidelines?"
    r"|devo|dovre\w+|\w+iamo|regol[ae]|convenzion[ei]|debo|deber\w*|\w+[ae]mos|reglas?|normas?|convenciones|regras?"
    r"|ich|wir|soll\w*|Regeln?|Richtlinien?|je|nous|règles?|consignes?)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""A question of fact; one that asks what to do speaks of whoever is to do it, or of rules themselves."""
Levels = dict[str | None, tuple[Any, float]]
"""By mounted file (None = yours): the model and state of the file, and `Everyday.level` of its rules."""


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
    likeness: float
    """With the task or the conversation, whichever is larger when weighted, in the units of `Everyday.likeness`."""
    reasons: list[str]
    level: float
    """`Everyday.level` of the rules of its file."""
    relevance: float = 0.0
    preference: float = 0.0
    """By how much it counts as more alike than equally relevant rules."""

    @property
    def place(self) -> tuple[float, float, str, int]:
        """Sort key of the answer; of equal rules yours is first."""
        return -self.relevance, -self.likeness - self.preference, self.rule.origin or "", self.rule.id


# ---------------------------------------------------------------- what rules and tasks are compared with


class Everyday(NamedTuple):
    """Requests for which hardly any rule matters, and typical tasks of written rules, as a model reads them.

    How high a cosine is says little: it depends on the model, and on how general a rule is. So each rule is compared
    with requests that need no rule; a task fits it that is clearly nearer to it than those are.
    """

    requests: Vectors
    """Unit rows (n, dimension)."""
    covariance: Vectors
    """Of the requests: (dimension, dimension)."""
    rules: Vectors | None = None
    """Rules as teams write them, and the mean of four tasks for each: unit rows (m, dimension); shipped for one model,
    where they find the best rule of .05 more tasks."""
    tasks: Vectors | None = None
    mean: float = 0.0
    """Of the cosines among the requests, and their standard deviation."""
    deviation: float = 1.0
    excuse: Vector | float = 0.0
    """What each request has against a rule: `reluctance`."""

    def likeness(self, rules: Vectors, views: Vectors) -> Vectors:
        """Return how much nearer each task is to each rule than everyday requests are, in their deviations: (k, v).

        A task seldom has a word of its rule, so a rule is also near to the tasks that written rules like it have.
        `rules`: unit rows (k, dimension); `views`: unit columns (dimension, v), the task and the conversation.
        """
        if self.rules is not None and self.tasks is not None:
            cosines = rules @ self.rules.T
            nearest = np.argpartition(-cosines, 20, axis=1)[:, :20]
            weights = np.exp(15 * np.take_along_axis(cosines, nearest, axis=1))
            means = np.einsum("mk,mkd->md", weights, self.tasks[nearest])
            rules = 0.625 * rules + 0.375 * means / np.linalg.norm(means, axis=1, keepdims=True)
        # The mean and deviation of a rule's cosines with all requests, without making each of these cosines.
        variance = ((rules @ self.covariance) * rules).sum(axis=1, keepdims=True)
        usual = rules @ self.requests.mean(axis=0)[:, None]
        return (rules @ views - usual) / np.sqrt(np.maximum(variance, 1e-12))

    def reluctance(self, cosines: Vectors, is_question: Vector | bool) -> Vector:
        """Return what tasks have against any rule: they are like requests that need none, or ask for a fact.

        `cosines`: of tasks with all requests, (tasks, requests).
        """
        nearest = np.sort(cosines, axis=1)[:, -5:].mean(axis=1)
        return EVERYDAY * (nearest - self.mean) / max(self.deviation, 1e-6) + QUESTION * np.asarray(is_question)

    def level(self, rules: Vectors) -> float:
        """Return the level that a tenth of the everyday requests reach with these rules, as they would as tasks."""
        best = self.likeness(rules, self.requests.T).max(axis=0)
        return float(np.quantile(BEST * best - self.excuse, 0.9))

    def relevance(self, task: Task, likeness: Vector, level: float) -> Vector:
        """Return the relevance (0..1) of the rules of a task.

        The question is whether any rule fits: .7, the documented threshold, is where nine tenths of the everyday
        requests would get none of these rules. Those far below the best one fit less.
        """
        best = float(likeness.max())
        reluctance = float(self.reluctance((self.requests @ task.vector)[None], task.is_question)[0])
        odds = BEST * best - reluctance - level
        belongs = SLOPE * (likeness - BELONGING_SHARE * best)
        of_each = np.clip(np.minimum(odds, belongs) + math.log(0.7 / 0.3), -60, 60)
        return (1 / (1 + np.exp(-of_each))).astype(np.float32)


BEST, EVERYDAY, QUESTION = 1.23, 1.03, 4.32
"""Slopes of the log odds that any rule fits: the likeness of the best one, the nearness to everyday requests, and what
a question of fact loses. A logistic regression on judged tasks with two models (`rules_quality.py --calibrate`)."""
BELONGING_SHARE, SLOPE = 0.4, 1.5
"""A rule belongs to a task when it reaches this share of the best one's likeness; slope over the distance from it."""
MOST_COMPARED = 2000
"""Rules of a file whose level is looked at; more would move it little and take longer than a search may."""


def read_everyday(embedder: Embedder, made: TextVectors) -> Everyday:
    """Return what rules are compared with: shipped for the default models, else embedded once and kept in `made`.

    Raises:
        ModelUnavailable: the model fails.
    """
    shipped: dict[str, Vectors] = {}
    for path in packaged_data().glob("rules_*.npz"):
        with np.load(path, allow_pickle=False) as stored:
            if stored["fingerprint"] == embedder.identity.fingerprint:
                # They are kept as small numbers.
                rows = ((name, stored[name].astype(np.float32)) for name in ("requests", "rules", "tasks")
                        if name in stored)  # fmt: skip
                shipped = {name: row / np.linalg.norm(row, axis=1, keepdims=True) for name, row in rows}
    requests = shipped["requests"] if shipped else made.rows(requests_without_rules(), embedder)
    cosines = requests @ requests.T
    covariance = np.cov(requests.T, bias=True).astype(np.float32)
    everyday = Everyday(
        requests, covariance, shipped.get("rules"), shipped.get("tasks"), float(cosines.mean()), float(cosines.std())
    )
    np.fill_diagonal(cosines, -1)
    asks = np.array([Task(text, requests[0]).is_question for text in requests_without_rules()])
    return everyday._replace(excuse=everyday.reluctance(cosines, asks))


@cache
def requests_without_rules() -> list[str]:
    """Everyday requests, then those of people at work for which hardly any rule matters."""
    files = (packaged_data() / name for name in ("everyday_requests.txt", "requests_without_rules.txt"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


# ---------------------------------------------------------------- the rules of a task


def match_rules(
    connection: apsw.Connection, task: Task, blocks: Sequence[Block], selection: Selection, everyday: Everyday,
    levels: Levels, origin: str | None = None,
) -> list[Match]:  # fmt: skip
    """Return the rules nearest in meaning, with their likeness; relevance is not set.

    `blocks`: sign codes of the model in use; without any there is nothing that the task can be compared with. `levels`
    are kept from one search to the next. `origin` is the mounted file's name.
    """
    if not blocks:
        return []
    state = everyday.mean, read_generations(connection)
    if levels.get(origin, (None, 0.0))[0] != state:
        sound = [blob for blob in load_vectors(connection, MOST_COMPARED) if is_unit_vector(blob, len(task.vector))]
        vectors = np.frombuffer(b"".join(sound), "<f4").reshape(len(sound), -1)
        levels[origin] = state, everyday.level(vectors) if sound else 0.0
    allowed = _allowed_rules(connection, selection, task.files)
    views = [task.vector] if task.conversation is None else [task.vector, task.conversation]
    near = [nearest_codes(blocks, view, NEAREST, allowed)[0] for view in views]
    rule_ids: list[int] = np.unique(rule_ids_of(np.concatenate(near))).tolist()
    rows = load_embedded(connection, rule_ids, origin)
    # In another file a longer vector would be near to every task.
    rows = [(rule, vector) for rule, vector in rows if origin is None or is_unit_vector(vector, len(task.vector))]
    if not rows:
        return []
    vectors = np.frombuffer(b"".join(blob for _, blob in rows), "<f4").reshape(len(rows), -1)
    cosines = vectors @ np.stack(views).T
    nearest = np.argsort(-cosines.max(axis=1), kind="stable")[:COMPARED]
    likeness = everyday.likeness(vectors[nearest], np.stack(views).T) * [1, 0.7][: len(views)]
    matches: list[Match] = []
    for place, alike in zip(cast("list[int]", nearest.tolist()), likeness.tolist(), strict=True):
        cosine, best = float(cosines[place, 0]), max(alike)
        near_to = f"close in meaning (cosine {cosine:.2f})" if best == alike[0] else "close to the conversation"
        matches.append(Match(rows[place][0], cosine, best, [near_to], levels[origin][1]))
    return matches


def _allowed_rules(connection: apsw.Connection, selection: Selection, files: Sequence[str]) -> Ids | None:
    """Return sorted ids of the rules that may answer; None = all in force."""
    if selection == Selection() and not files:
        return None
    condition, bindings = selection.condition()
    if files:
        # Longer patterns than these are in no file of ours.
        sql = "select distinct globs from rules where globs <> '[]' and length(globs) <= 20000"
        glob_lists = fetch_column(connection, sql)
        about = [globs for globs in glob_lists if any(match_globs(read_texts(globs), file) for file in files)]
        condition += " and (globs = '[]' or globs in (select value from json_each(:about)))"
        bindings["about"] = json.dumps(about)
    return np.sort(np.array(fetch_column(connection, f"select id from rules where {condition}", bindings), np.int64))


def rate(matches: Sequence[Match], task: Task, everyday: Everyday, categories: Mapping[str, float]) -> None:
    """Set the relevance, and what orders equally relevant rules: files, category, use, recency, weight (S2-10).

    A weight below 1 (rules reported as not useful) lowers the relevance; everything else changes none, or a rule of the
    task's category would pass better ones. `categories`: category -> 0..1, how near the task is to it.
    """
    if not matches:
        return
    relevances = everyday.relevance(
        task, np.array([match.likeness for match in matches]), max(match.level for match in matches)
    )
    for match, relevance in zip(matches, relevances.tolist(), strict=True):
        rule, share = match.rule, categories.get(match.rule.category, 0.0)
        match.relevance = relevance * min(1.0, rule.weight)
        used = min(1.0, math.log1p(max(0, rule.instructions_count - 1)) / math.log1p(50))
        # A mounted file may have anything for a time.
        with suppress(TypeError, ValueError, OverflowError):
            days = (datetime.now(UTC) - utc_moment(rule.last_applied or "")).total_seconds() / 86_400
            # 1 for just applied, halved about every three weeks.
            match.preference = 0.2 * math.exp(-max(0.0, days) / 30)
        match.preference += 0.2 * used + 0.1 * share
        if rule.instructions_count > 1:
            match.reasons.append(f"asked for {rule.instructions_count} times")
        if share >= 1.0:
            match.reasons.append(f"the task is about {rule.category}")
        if task.files and rule.globs:
            match.preference += 0.5
            match.reasons.append(f"is about files like {', '.join(rule.globs)}")
        if rule.weight > 1:
            match.preference += 0.5 * min(1.0, rule.weight - 1)
            match.reasons.append(f"its weight is {rule.weight:.3g}")


# ---------------------------------------------------------------- patterns of files


def match_globs(globs: Sequence[str], path: str) -> bool:
    """Return whether the patterns mean a path; they are as in `.gitignore`, and `{a,b}` as in Cursor.

    Patterns are relative to the project. Where it begins in an absolute path is unknown, so each folder may be it.
    """
    # Another file's rules may have any text for a pattern.
    patterns = [pattern for glob in globs for pattern in read_pattern(glob) or ()]
    parts = path[:4096].replace("\\", "/").removeprefix("./").split("/")
    is_absolute = not parts[0] or parts[0].endswith(":")
    for start in range(1, len(parts)) if is_absolute else range(1):
        place = "/".join(parts[start:])
        # The last pattern that matches decides.
        if next((p.include for p in reversed(patterns) if p.regex and path_matcher(p.regex)(place)), False):
            return True
    return False


def read_pattern(glob: str) -> list[Any] | None:
    """Return the at most 500 patterns that a glob with braces stands for; None if it is none, or they are more."""
    from pathspec import GitIgnoreSpec

    waiting, plain = [glob], list[str]()
    while waiting:
        current = waiting.pop()
        opened = re.search(r"\{([^{}]*)\}", current)
        if opened is None:
            plain.append(current)
            continue
        before, after = current[: opened.start()], current[opened.end() :]
        waiting += [f"{before}{part.strip()}{after}" for part in opened[1].split(",")]
        if len(waiting) + len(plain) > 500:
            return None
    try:
        return list(GitIgnoreSpec.from_lines(plain).patterns)
    except ValueError:
        return None
