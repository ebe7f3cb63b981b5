"""`getRelevantRules`: the rules that a task needs (S2-1 to S2-17)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, NotRequired, cast

import apsw
from typing_extensions import TypedDict

from localmcp.arrays import Ids, Vector, Vectors, np
from localmcp.config import cache_directory, packaged_data
from localmcp.errors import ConfigurationError, InvalidInput, ModelUnavailable
from localmcp.humanize import command_line
from localmcp.index.collections import Collection
from localmcp.index.federation import Federation, MountedFile
from localmcp.index.passages import read_texts
from localmcp.index.search import MODEL_WAIT_SECONDS, Index
from localmcp.index.vector import Block, nearest_chunks, nearest_codes
from localmcp.models import Embedder, is_unit_vector
from localmcp.models.embedder import TextVectors
from localmcp.rules import rulebook
from localmcp.rules.rulebook import (
    CATEGORIES,
    VECTOR_IDS,
    Rule,
    Selection,
    digest_of,
    load_embedded,
    load_rules,
    load_vectors,
)
from localmcp.schemas import lenient_value, path_matcher
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, read_generations
from localmcp.storage.schema import utc_moment
from localmcp.tools import Param, current_scope, integer_or_string, tool, without_none

MOST_CHARACTERS = 10_000
EMPTY_TASK = "Error: taskDescription cannot be empty"


class FoundRule(TypedDict):
    """What answers say of every rule."""

    id: int | str
    """A number; that of a rule in a mounted file has the file's name before it: `team:5`."""
    rule_text: str
    category: str
    context: str
    instructions_count: int
    last_applied: str | None
    inserted_at: str
    project: NotRequired[str]
    globs: NotRequired[list[str]]
    origin: NotRequired[str]
    """The mounted file that it is in."""


class RelevantRule(FoundRule):
    """A rule that fits the task (S2-2)."""

    relevance_score: float
    cosine: float
    why: list[str]


class OtherRule(TypedDict):
    """A rule that holds for every task, or one that was applied together with those returned (S2-15)."""

    id: int | str
    rule_text: str
    applied_together: NotRequired[int]
    origin: NotRequired[str]


class RelevantRules(TypedDict):
    """The answer of `getRelevantRules`."""

    success: bool
    rules: NotRequired[list[RelevantRule]]
    error: NotRequired[str]
    always: NotRequired[list[OtherRule]]
    combinations: NotRequired[list[OtherRule]]
    notices: NotRequired[list[str]]


def as_text(answer: Any) -> str:
    """Return the rules as a list to follow (C2-5); every fact is in the structured result."""
    result = cast(RelevantRules, answer)
    if not result["success"]:
        return result.get("error", "")
    rules = result.get("rules", [])
    lines = ["Follow these rules:"] if rules else ["No relevant rules found for this task."]
    lines += [
        f"- {rule['rule_text']} [rule {rule['id']}, {rule['category']}, {rule['relevance_score']:.2f}]"
        for rule in rules
    ]
    for title, key in (("For every task:", "always"), ("Often applied together with these:", "combinations")):
        more = cast("list[OtherRule]", result.get(key, []))
        lines += [title, *(f"- {rule['rule_text']} [rule {rule['id']}]" for rule in more)] if more else []
    return "\n".join([*lines, *result.get("notices", [])])


class RuleFinder:
    """Finds the rules that fit a task. Thread-safe."""

    def __init__(
        self, database: Database, index: Index, max_results: int, threshold: float, federation: Federation
    ) -> None:
        self._federation, self._database, self._index = federation, database, index
        self._max_results, self._threshold = max_results, threshold
        self._vectors = TextVectors(cache_directory() / "rules")
        self._everyday: dict[str, Everyday] = {}
        """By model."""
        self._levels: dict[str | None, tuple[Any, float]] = {}
        """By mounted file (None = yours): the model and state of the file, and `Everyday.level` of its rules."""

    @tool(
        "getRelevantRules",
        title="Rules for a task",
        keywords=("rules", "guidelines", "conventions", "preferences", "standards", "how we work"),
        examples=(
            "which rules apply when I {taskDescription}",
            "what should I keep in mind to {taskDescription}",
            "what are our conventions for {taskDescription}",
        ),
        accepts={
            "maxResults": integer_or_string,
            # An empty text means the default, as with `maxResults`.
            "similarityThreshold": lambda _, it: lenient_value(it, {"type": "number"}) if str(it).strip() else None,
        },
        says={
            "taskDescription required": EMPTY_TASK,
            "maxResults": "Error: maxResults must be between 1 and 100",
            "similarityThreshold": "Error: similarityThreshold must be between -1 and 1",
        },
        text=as_text,
        # S2-11: an error is a result.
        on_error=lambda error: {"success": False, "error": str(error)},
    )
    def get_relevant_rules(
        self,
        taskDescription: Annotated[str, Param("What you are about to do")],
        maxResults: Annotated[int | None, Param("Default 5", minimum=1, maximum=100)] = None,
        similarityThreshold: Annotated[
            float | None, Param("Least relevance; default 0.7", minimum=-1, maximum=1)
        ] = None,
        category: Annotated[str | None, Param("Only this category")] = None,
        project: Annotated[str | None, Param("Rules of this project and general ones")] = None,
        files: Annotated[list[str] | None, Param("Paths being changed; rules for other files are left out")] = None,
        context: Annotated[str | None, Param("What the conversation was about so far", max_length=20_000)] = None,
    ) -> RelevantRules:
        """Get the developer's own rules and conventions that matter for a task; call it before starting work. Returns
        the fitting rules with relevance 0..1; none when no rule fits."""
        if not taskDescription.strip():
            raise InvalidInput(EMPTY_TASK)
        if len(taskDescription) > MOST_CHARACTERS:
            raise InvalidInput(f"Error: taskDescription must be at most {MOST_CHARACTERS} characters")
        selection = Selection(category.strip().lower() if category else None, project or None)
        notices: list[str] = []

        @cache
        def task() -> Task:
            # Embedded only where there are rules.
            embedder = self._index.embedder
            try:
                vector = embedder.embed_query(taskDescription, wait=MODEL_WAIT_SECONDS)
                conversation = embedder.embed_query(context) if context and context.strip() else None
            except (ModelUnavailable, ConfigurationError) as error:
                message = f"Failed to generate embedding for task description: {error.message}"
                raise ModelUnavailable(message, hint=error.hint) from error
            return Task(taskDescription, vector, conversation, tuple(files or ()))

        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is None and current_scope().collections is not None:
                notices.append(
                    "This caller is bound to collections, and the developer's rules are not among them. A key opens "
                    "them with: localmcp keys create --collection NAME --collection rules"
                )
            has_own = collection is not None and rulebook.has_rules(connection)
            matches = self.match(connection, self._index, task(), selection) if has_own else []
            standing = rulebook.standing_rules(connection, selection) if has_own else []
            mounted = self._mounted_rules(connection, task, selection, notices)
            for their_matches, their_standing in mounted:
                matches += their_matches
                standing += their_standing
            if matches:
                self._rate(matches, task())
            least = self._threshold if similarityThreshold is None else similarityThreshold
            fitting = sorted((m for m in matches if m.relevance >= least), key=lambda match: match.place)
            fitting = fitting[: maxResults or self._max_results]
            identity = self._index.embedder.get().identity if has_own else None
            if identity and (rulebook.is_foreign(connection, identity) or rulebook.rules_without_vector(connection, 1)):
                notices.append("Some rules were not read by this model, and not found: run `localmcp reembed`.")
            if has_own and not fitting and not mounted:
                notices += rulebook.unknown_category(connection, selection.category)
            # S2-15: rules that were applied together with one of these at least twice.
            sql = """
                select other.rule_id, count(distinct other.occasion) as times
                from rule_uses as ours
                join rule_uses as other on other.occasion = ours.occasion and other.useful = 1
                join rules on rules.id = other.rule_id and retired_at is null
                where ours.useful = 1 and ours.rule_id in (select value from json_each(:ids))
                    and other.rule_id not in (select value from json_each(:ids))
                group by 1 having times >= 2 order by times desc, 1 limit 3
            """
            own_ids = json.dumps([match.rule.id for match in fitting if match.rule.origin is None])
            times = dict(fetch_all(connection, sql, {"ids": own_ids}))
            together = load_rules(connection, times).values()
        rules = [
            match.rule.as_json(
                {"relevance_score": round(match.relevance, 4)}, cosine=round(match.cosine, 4), why=match.reasons
            )
            for match in fitting
        ]
        shown = {rule["id"] for rule in rules}
        always = [
            without_none({"id": rule.shown_id, "rule_text": rule.rule_text, "origin": rule.origin})
            for rule in standing
            if rule.shown_id not in shown
        ]
        combinations = [
            {"id": rule.id, "rule_text": rule.rule_text, "applied_together": times[rule.id]} for rule in together
        ]
        others = {"combinations": combinations or None, "always": always[:20] or None, "notices": notices or None}
        return without_none({"success": True, "rules": rules, **others})

    def _mounted_rules(
        self, own: apsw.Connection, task: Callable[[], Task], selection: Selection, notices: list[str]
    ) -> list[tuple[list[Match], list[Rule]]]:
        """Return, for each mounted file with rules, those near the task, and those that hold for every task.

        What your file holds too is left out, also where it is retired: who retired a rule wants it from nobody.
        """
        digest_is_held = "select 1 from rules where digest = ? and project is ? limit 1"

        def is_new(rule: Rule) -> bool:
            return fetch_one(own, digest_is_held, (digest_of(rule.rule_text), rule.project)) is None

        def look(file: MountedFile, theirs: apsw.Connection) -> tuple[list[Match], list[Rule]] | None:
            collection = rulebook.find_collection(theirs)
            if collection is None or not rulebook.has_rules(theirs):
                return None
            matches = self.match(theirs, file.index(), task(), selection, file.name)
            identity = self._index.embedder.get().identity
            if collection.model_id is None or rulebook.is_foreign(theirs, identity):
                merge = command_line("localmcp", "merge", file.database.path)
                notices.append(
                    f"{file.name} (mounted): its rules were not read by the model in use, and are not searched. "
                    f"Take them into your file with: {merge}"
                )
            standing = rulebook.standing_rules(theirs, selection, file.name)
            return [match for match in matches if is_new(match.rule)], list(filter(is_new, standing))

        return self._federation.read_mounted(look, notices)

    def find_similar_rules(self, embedding: Vector, limit: int, threshold: float) -> list[tuple[Rule, float]]:
        """Return rules by plain cosine with a vector, best first, none below the threshold (S2-4)."""
        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is None or collection.model_id is None:
                return []
            blocks = self._blocks(self._index, connection, collection)
            near = nearest_chunks(connection, collection.model_id, blocks, embedding, limit)
            cosines = {vector_id - VECTOR_IDS: cosine for vector_id, cosine in near if cosine >= threshold}
            rules = rulebook.load_rules(connection, cosines)
        return [(rule, cosines[rule_id]) for rule_id, rule in rules.items()]

    def _rate(self, matches: Sequence[Match], task: Task) -> None:
        """Set the relevance, and what orders equally relevant rules: files, category, use, recency, weight (S2-10).

        A weight below 1 (rules reported as not useful) lowers the relevance; everything else changes none, or a rule of
        the task's category would pass better ones.
        """
        cosines = self._categories() @ task.vector
        # How near the task is to each category, 0..1.
        nearness = (cosines - cosines.mean()) / max(float(cosines.max() - cosines.mean()), 1e-6)
        shares: dict[str, float] = dict(zip(CATEGORIES, nearness.clip(0).tolist(), strict=True))
        level = max(self._levels[match.rule.origin][1] for match in matches)
        relevances = self.everyday().relevance(task, np.array([match.likeness for match in matches]), level)
        for match, relevance in zip(matches, relevances.tolist(), strict=True):
            rule, share = match.rule, shares.get(match.rule.category, 0.0)
            match.relevance = relevance * min(1.0, rule.weight)
            used = min(1.0, math.log1p(max(0, rule.instructions_count - 1)) / math.log1p(50))
            match.preference = 0.2 * used + 0.1 * share
            # A mounted file may have anything for a time.
            with suppress(TypeError, ValueError, OverflowError):
                days = (datetime.now(UTC) - utc_moment(rule.last_applied or "")).total_seconds() / 86_400
                # 1 for just applied, halved about every three weeks.
                match.preference += 0.2 * math.exp(-max(0.0, days) / 30)
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

    def everyday(self) -> Everyday:
        """Return what rules are compared with: shipped for the default models, else embedded once and kept."""
        embedder = self._index.embedder.get()
        model = embedder.identity.fingerprint
        if model not in self._everyday:
            rows: dict[str, Vectors] = {}
            for path in packaged_data().glob("rules_*.npz"):
                with np.load(path, allow_pickle=False) as stored:
                    if stored["fingerprint"] == model:
                        # They are kept as small numbers.
                        rows = {name: stored[name].astype(np.float32) for name in stored.files if name != "fingerprint"}
            unit_rows = {name: row / np.linalg.norm(row, axis=1, keepdims=True) for name, row in rows.items()}
            if not unit_rows:
                unit_rows["requests"] = self._vectors.rows(requests_without_rules(), embedder)
            self._everyday[model] = Everyday(**unit_rows)
        return self._everyday[model]

    def match(
        self, connection: apsw.Connection, index: Index, task: Task, selection: Selection, origin: str | None = None
    ) -> list[Match]:
        """Return the rules of a file that are nearest in meaning, with their likeness; relevance is not set.

        Without sign codes of the model in use there is nothing that the task can be compared with. `origin` is the
        mounted file's name.
        """
        collection, everyday = rulebook.find_collection(connection), self.everyday()
        blocks = self._blocks(index, connection, collection) if collection else []
        if not blocks:
            return []
        # The level of a file's rules is kept from one search to the next.
        state = everyday, read_generations(connection)
        if self._levels.get(origin, (None, 0.0))[0] != state:
            stored = load_vectors(connection, MOST_COMPARED)
            sound = [blob for blob in stored if is_unit_vector(blob, len(task.vector))]
            vectors = np.frombuffer(b"".join(sound), "<f4").reshape(len(sound), -1)
            self._levels[origin] = state, everyday.level(vectors) if sound else 0.0
        allowed: Ids | None = None
        if selection != Selection() or task.files:
            condition, bindings = selection.condition()
            if task.files:
                # Longer patterns than these are in no file of ours.
                sql = "select distinct globs from rules where globs <> '[]' and length(globs) <= 20000"
                all_globs: list[str] = fetch_column(connection, sql)
                about = [
                    globs for globs in all_globs if any(match_globs(read_texts(globs), file) for file in task.files)
                ]
                condition += " and (globs = '[]' or globs in (select value from json_each(:about)))"
                bindings["about"] = json.dumps(about)
            ids = fetch_column(connection, f"select id from rules where {condition} order by id", bindings)
            allowed = np.array(ids, np.int64)
        views = [task.vector] if task.conversation is None else [task.vector, task.conversation]
        near = [nearest_codes(blocks, view, NEAREST, allowed)[0] for view in views]
        rows = load_embedded(connection, np.unique(np.concatenate(near) - VECTOR_IDS).tolist(), origin)
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
            matches.append(Match(rows[place][0], cosine, best, [near_to]))
        return matches

    def _blocks(self, index: Index, connection: apsw.Connection, collection: Collection) -> list[Block]:
        if collection.model_id is None or rulebook.is_foreign(connection, self._index.embedder.get().identity):
            return []
        return index.sign_blocks(connection, collection.model_id, [collection.id])

    def _categories(self) -> Vectors:
        texts = [f"{name}: {words}" for name, words in CATEGORIES.items()]
        return self._vectors.rows(texts, self._index.embedder.get())

    def nearest_category(self, text: str, embedder: Embedder | None) -> str:
        """Return the one of the nine categories that a text is nearest to; best-practices without a model."""
        if embedder is None:
            return "best-practices"
        return list(CATEGORIES)[int((self._categories() @ embedder.embed_passages([text])[0]).argmax())]

    def list_mounted(self, own: apsw.Connection, selection: Selection, limit: int) -> list[tuple[list[Rule], int]]:
        """Return the newest `limit` rules of each mounted file that yours lacks, and how many there are.

        `own`: a connection to your file.
        """
        own_digests = set(fetch_all(own, "select digest, project from rules"))
        condition, bindings = selection.condition()

        def look(file: MountedFile, theirs: apsw.Connection) -> tuple[list[Rule], int] | None:
            rows = fetch_all(theirs, f"select id, digest, project from rules where {condition}", bindings)
            ids = sorted((rule_id for rule_id, *same in rows if tuple(same) not in own_digests), reverse=True)
            rules = load_rules(theirs, ids[:limit], file.name)
            return (list(rules.values()), len(ids)) if ids else None

        return self._federation.read_mounted(look)


# ---------------------------------------------------------------- how relevant a rule is (0..1), with any model

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


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked, embedded."""

    text: str
    vector: Vector
    conversation: Vector | None = None
    files: tuple[str, ...] = ()


def asks_for_a_fact(text: str) -> bool:
    """Return whether a task is a question such as "what does deductible mean", not "where should we put it"."""
    return _FACT.match(text) is not None


@dataclass(slots=True)
class Match:
    """A rule, and how well it fits the task."""

    rule: Rule
    cosine: float
    """With the task."""
    likeness: float
    """With the task or the conversation, whichever is larger when weighted, in the units of `Everyday.likeness`."""
    reasons: list[str]
    relevance: float = 0.0
    preference: float = 0.0
    """By how much it counts as more alike than equally relevant rules."""

    @property
    def place(self) -> tuple[float, float, str, int]:
        """Sort key of the answer; of equal rules yours is first."""
        return -self.relevance, -self.likeness - self.preference, self.rule.origin or "", self.rule.id


# ---------------------------------------------------------------- what rules and tasks are compared with


class Everyday:
    """Requests for which hardly any rule matters, and typical tasks of written rules, as a model reads them.

    How high a cosine is says little: it depends on the model, and on how general a rule is. So each rule is compared
    with requests that need no rule; a task fits it that is clearly nearer to it than those are.
    """

    def __init__(self, requests: Vectors, rules: Vectors | None = None, tasks: Vectors | None = None) -> None:
        """All are unit rows: of the requests (n, dimension); of rules as teams write them, and the mean of four tasks
        for each (m, dimension), shipped for one model, where they find the best rule of .05 more tasks."""
        self.requests, self._rules, self._tasks = requests, rules, tasks
        self._covariance = np.cov(requests.T, bias=True).astype(np.float32)
        cosines = requests @ requests.T
        self._mean, self._deviation = float(cosines.mean()), max(float(cosines.std()), 1e-6)
        np.fill_diagonal(cosines, -1)
        asks = np.array([asks_for_a_fact(text) for text in requests_without_rules()])
        # What each request has against a rule.
        self._excuse = self.reluctance(cosines, asks)

    def likeness(self, rules: Vectors, views: Vectors) -> Vectors:
        """Return how much nearer each task is to each rule than everyday requests are, in their deviations: (k, v).

        A task seldom has a word of its rule, so a rule is also near to the tasks that written rules like it have.
        `rules`: unit rows (k, dimension); `views`: unit columns (dimension, v), the task and the conversation.
        """
        if self._rules is not None and self._tasks is not None:
            cosines = rules @ self._rules.T
            nearest = np.argpartition(-cosines, 20, axis=1)[:, :20]
            weights = np.exp(15 * np.take_along_axis(cosines, nearest, axis=1))
            means = np.einsum("mk,mkd->md", weights, self._tasks[nearest])
            rules = 0.625 * rules + 0.375 * means / np.linalg.norm(means, axis=1, keepdims=True)
        # The mean and deviation of a rule's cosines with all requests, without making each of these cosines.
        variance = ((rules @ self._covariance) * rules).sum(axis=1, keepdims=True)
        usual = rules @ self.requests.mean(axis=0)[:, None]
        return (rules @ views - usual) / np.sqrt(np.maximum(variance, 1e-12))

    def reluctance(self, cosines: Vectors, is_question: Vector | bool) -> Vector:
        """Return what tasks have against any rule: they are like requests that need none, or ask for a fact.

        `cosines`: of tasks with all requests, (tasks, requests).
        """
        nearest = np.sort(cosines, axis=1)[:, -5:].mean(axis=1)
        return EVERYDAY * (nearest - self._mean) / self._deviation + QUESTION * np.asarray(is_question)

    def level(self, rules: Vectors) -> float:
        """Return the level that a tenth of the everyday requests reach with these rules, as they would as tasks."""
        best = self.likeness(rules, self.requests.T).max(axis=0)
        return float(np.quantile(BEST * best - self._excuse, 0.9))

    def relevance(self, task: Task, likeness: Vector, level: float) -> Vector:
        """Return the relevance (0..1) of the rules of a task.

        The question is whether any rule fits: .7, the documented threshold, is where nine tenths of the everyday
        requests would get none of these rules. Those far below the best one fit less.
        """
        best = float(likeness.max())
        reluctance = float(self.reluctance((self.requests @ task.vector)[None], asks_for_a_fact(task.text))[0])
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


@cache
def requests_without_rules() -> list[str]:
    """Everyday requests, then those of people at work for which hardly any rule matters."""
    files = (packaged_data() / name for name in ("everyday_requests.txt", "requests_without_rules.txt"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


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
