"""`getRelevantRules`: the rules that a task needs (S2-1 to S2-17)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import apsw

from localmcp.arrays import Ids, Vector, Vectors, np
from localmcp.config import cache_directory, packaged_data
from localmcp.errors import ConfigurationError, InvalidInput, ModelUnavailable
from localmcp.humanize import command_line
from localmcp.index.federation import Federation, MountedFile
from localmcp.index.passages import read_texts
from localmcp.index.search import MODEL_WAIT_SECONDS, Index
from localmcp.models import LazyEmbedder
from localmcp.models.embedder import TextVectors
from localmcp.rules import rulebook
from localmcp.rules.rulebook import CATEGORIES, Rule, Selection, digest_of, load_rules, load_vectors
from localmcp.schemas import lenient_value, path_matcher
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, read_generations
from localmcp.storage.schema import utc_moment
from localmcp.tool_search.words import read_lines
from localmcp.tools import Json, Param, current_scope, integer_or_string, tool, without_none

MOST_CHARACTERS = 10_000
EMPTY_TASK = "Error: taskDescription cannot be empty"


def as_text(answer: Json) -> str:
    """Return the rules as a list to follow (C2-5); every fact is in the structured result."""
    if not answer["success"]:
        return answer["error"]
    rules = answer["rules"]
    lines = ["Follow these rules:"] if rules else ["No relevant rules found for this task."]
    lines += [
        f"- {rule['rule_text']} [rule {rule['id']}, {rule['category']}, {rule['relevance_score']:.2f}]"
        for rule in rules
    ]
    for title, key in (("For every task:", "always"), ("Often applied together with these:", "combinations")):
        more = answer.get(key)
        lines += [title, *(f"- {rule['rule_text']} [rule {rule['id']}]" for rule in more)] if more else []
    return "\n".join([*lines, *answer.get("notices", [])])


class RuleFinder:
    """Finds the rules that fit a task. Thread-safe."""

    def __init__(
        self, database: Database, index: Index, max_results: int, threshold: float, federation: Federation
    ) -> None:
        self.federation, self._database, self._index = federation, database, index
        self._max_results, self._threshold = max_results, threshold
        self._vectors = TextVectors(cache_directory() / "rules")
        self._everyday: dict[str, Everyday] = {}
        """By model."""
        self._shelves: WeakKeyDictionary[Database, Shelf] = WeakKeyDictionary()

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
    ) -> Json:
        """Get the developer's own rules and conventions that matter for a task; call it before starting work. Returns
        the fitting rules with relevance 0..1; none when no rule fits."""
        if not taskDescription.strip():
            raise InvalidInput(EMPTY_TASK)
        if len(taskDescription) > MOST_CHARACTERS:
            raise InvalidInput(f"Error: taskDescription must be at most {MOST_CHARACTERS} characters")
        selection = Selection(category or None, project or None)
        notices: list[str] = []

        # Embedded only where there are rules.
        task = cache(lambda: Task(taskDescription, self._index.embedder, context or "", files or ()))

        def look(file: MountedFile | None, theirs: apsw.Connection) -> tuple[list[Match], list[Rule]] | None:
            """Return the rules of a file that are near the task, and those that hold for every task."""
            in_force = "select 1 from rules where retired_at is null limit 1"
            if rulebook.find_collection(theirs) is None or not fetch_one(theirs, in_force):
                return None
            standing = rulebook.standing_rules(theirs, selection, file.name if file else None)
            near = self.match(theirs, task(), selection, file)
            if file is None:
                return near, standing
            if not self._has_read(theirs):
                merge = command_line("localmcp", "merge", file.database.path)
                notices.append(
                    f"{file.name} (mounted): its rules were not read by the model in use, and are not searched. "
                    f"Take them into your file with: {merge}"
                )
            # What your file holds too is left out, also where it is retired: who retired a rule wants it from nobody.
            held = set(fetch_all(connection, "select digest, project from rules"))
            near = [match for match in near if (digest_of(match.rule.rule_text), match.rule.project) not in held]
            return near, [rule for rule in standing if (digest_of(rule.rule_text), rule.project) not in held]

        with self._database.read() as connection:
            if rulebook.find_collection(connection) is None and current_scope().collections is not None:
                notices.append(
                    "This caller is bound to collections, and the developer's rules are not among them. A key opens "
                    "them with: localmcp keys create --collection NAME --collection rules"
                )
            own = look(None, connection)
            mounted = self.federation.read_mounted(look, notices)
            by_file = [own, *mounted] if own else mounted
            least = self._threshold if similarityThreshold is None else similarityThreshold
            matches = [match for near, _ in by_file for match in near]
            rated = self._rate(matches, task()) if matches else []
            fitting = [(relevance, match) for relevance, match in rated if relevance >= least]
            fitting = fitting[: maxResults or self._max_results]
            if own and (not self._has_read(connection) or rulebook.rules_without_vector(connection, 1)):
                notices.append("Some rules were not read by this model, and not found: run `localmcp reembed`.")
            if own and not fitting and not mounted:
                notices += rulebook.unknown_category(connection, category)
            own_ids = [match.rule.id for _, match in fitting if match.rule.origin is None]
            times = rulebook.applied_together(connection, own_ids)
            together = load_rules(connection, times).values()
        rules = [
            match.rule.as_json(
                {"relevance_score": round(relevance, 4)}, cosine=round(match.cosine, 4), why=match.reasons
            )
            for relevance, match in fitting
        ]
        shown = {rule["id"] for rule in rules}
        always = [
            without_none({"id": rule.shown_id, "rule_text": rule.rule_text, "origin": rule.origin})
            for _, standing in by_file
            for rule in standing
            if rule.shown_id not in shown
        ]
        combinations = [
            {"id": rule.id, "rule_text": rule.rule_text, "applied_together": times[rule.id]} for rule in together
        ]
        others = {"combinations": combinations or None, "always": always[:20] or None, "notices": notices or None}
        return without_none({"success": True, "rules": rules, **others})

    def _has_read(self, connection: apsw.Connection) -> bool:
        """Return whether the rules of a file have vectors of the model in use."""
        return rulebook.read_by(connection) == self._index.embedder.get().identity.fingerprint

    def match(
        self, connection: apsw.Connection, task: Task, selection: Selection, file: MountedFile | None = None
    ) -> list[Match]:
        """Return the rules of yours, or of a mounted `file`, that are nearest in meaning, with their likeness, as far
        as the model in use has read them."""
        if not self._has_read(connection):
            return []
        everyday, generation = self.everyday(), read_generations(connection).signs
        database = file.database if file else self._database
        shelf = self._shelves.get(database)
        if shelf is None or shelf.state != (everyday, generation):
            ids, vectors = load_vectors(connection, len(task.vector))
            level = everyday.level(vectors[-MOST_COMPARED:]) if len(ids) else 0.0
            shelf = self._shelves[database] = Shelf((everyday, generation), ids, vectors, level)
        views = np.stack([task.vector] if task.conversation is None else [task.vector, task.conversation], axis=1)
        cosines = shelf.vectors @ views
        nearness = cosines.max(axis=1)
        if selection != Selection() or task.files:
            condition, bindings = selection.condition()
            if task.files:
                # Longer patterns than these are in no file of ours.
                sql = "select distinct globs from rules where globs <> '[]' and length(globs) <= 20000"
                all_globs: list[str] = fetch_column(connection, sql)
                about = [
                    globs for globs in all_globs if any(match_globs(read_texts(globs), path) for path in task.files)
                ]
                condition += " and (globs = '[]' or globs in (select value from json_each(:about)))"
                bindings["about"] = json.dumps(about)
            allowed = fetch_column(connection, f"select id from rules where {condition}", bindings)
            nearness[np.isin(shelf.ids, allowed, invert=True)] = -np.inf
        nearest = np.argsort(-nearness, kind="stable")[:COMPARED]
        nearest = nearest[np.isfinite(nearness[nearest])]
        if not len(nearest):
            return []
        # What was said before the task counts less than the task.
        likeness = everyday.likeness(shelf.vectors[nearest], views) * [1, 0.7][: views.shape[1]]
        rule_ids: list[int] = shelf.ids[nearest].tolist()
        rules = load_rules(connection, rule_ids, file.name if file else None)
        matches: list[Match] = []
        rows = zip(rule_ids, cosines[nearest, 0].tolist(), likeness.tolist(), strict=True)
        for rule_id, cosine, alike in rows:
            if rule := rules.get(rule_id):
                is_task = max(alike) == alike[0]
                near_to = f"close in meaning (cosine {cosine:.2f})" if is_task else "close to the conversation"
                matches.append(Match(rule, cosine, max(alike), shelf.level, [near_to]))
        return matches

    def _rate(self, matches: Sequence[Match], task: Task) -> list[tuple[float, Match]]:
        """Return matches with their relevance, the most relevant first.

        Files, category, use, recency and weight order equally relevant rules (S2-10), of which yours is first. Only a
        weight below 1 (rules reported as not useful) lowers the relevance: all else decides between equal rules, or one
        of the task's category would pass better ones.
        """
        cosines = self.categories() @ task.vector
        # How near the task is to each category, 0..1.
        nearness = (cosines - cosines.mean()) / max(float(cosines.max() - cosines.mean()), 1e-6)
        shares: dict[str, float] = dict(zip(CATEGORIES, nearness.clip(0).tolist(), strict=True))
        level = max(match.level for match in matches)
        relevances = self.everyday().relevance(task, np.array([match.likeness for match in matches]), level)
        rated: list[tuple[float, float, Match]] = []
        for match, relevance in zip(matches, relevances.tolist(), strict=True):
            rule, reasons, share = match.rule, match.reasons, shares.get(match.rule.category, 0.0)
            used = min(1.0, math.log1p(max(0, rule.instructions_count - 1)) / math.log1p(50))
            preference = 0.2 * used + 0.1 * share
            # A mounted file may have anything for a time.
            with suppress(TypeError, ValueError, OverflowError):
                days = (datetime.now(UTC) - utc_moment(rule.last_applied or "")).total_seconds() / 86_400
                # 1 for just applied, halved about every three weeks.
                preference += 0.2 * math.exp(-max(0.0, days) / 30)
            if rule.instructions_count > 1:
                reasons.append(f"asked for {rule.instructions_count} times")
            if share >= 1.0:
                reasons.append(f"the task is about {rule.category}")
            if task.files and rule.globs:
                preference += 0.5
                reasons.append(f"is about files like {', '.join(rule.globs)}")
            if rule.weight > 1:
                preference += 0.5 * min(1.0, rule.weight - 1)
                reasons.append(f"its weight is {rule.weight:.3g}")
            rated.append((relevance * min(1.0, rule.weight), match.likeness + preference, match))
        rated.sort(key=lambda entry: (-entry[0], -entry[1], entry[2].rule.origin or "", entry[2].rule.id))
        return [(relevance, match) for relevance, _, match in rated]

    def find_similar_rules(self, embedding: Vector, limit: int, threshold: float) -> list[tuple[Rule, float]]:
        """Return rules by plain cosine with a vector, best first, none below the threshold (S2-4)."""
        sql = """
            select rules.id, 1 - vec_distance_cosine(vectors.embedding, :task) as cosine
            from rules join vectors on vectors.id = rules.embedding
            where retired_at is null and cosine >= :threshold order by cosine desc, rules.id limit :limit
        """
        bindings = {"task": embedding.astype("<f4").tobytes(), "threshold": threshold, "limit": limit}
        with self._database.read() as connection:
            if not self._has_read(connection):
                return []
            cosines = dict(fetch_all(connection, sql, bindings))
            rules = load_rules(connection, cosines)
        return [(rule, cosines[rule_id]) for rule_id, rule in rules.items()]

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

    def categories(self) -> Vectors:
        """Return the vectors of `CATEGORIES`, in order."""
        texts = [f"{name}: {words}" for name, words in CATEGORIES.items()]
        return self._vectors.rows(texts, self._index.embedder.get())


# ---------------------------------------------------------------- how relevant a rule is (0..1), with any model

COMPARED = 120
"""Rules of a file that are rated: those nearest to the task or the conversation."""
_FACT = re.compile(
    r"[¿\s]*(?:what|which|who|whose|when|why|how|qué|cuál(?:es)?|quién|cuándo|cuánt[oa]s?|cosa|qual[ei]?|quais|chi|quem"
    r"|quant[oaie]|quando|wer|welche[rs]?|wann|wie viele?|warum|quel(?:le)?s?|quand|pourquoi|combien)\b"
    r"(?!.*\b(?:should|shall|I|we|rules?|conventions?|guidelines?"
    r"|devo|dovre\w+|\w+iamo|regol[ae]|convenzion[ei]|debo|deber\w*|\w+[ae]mos|reglas?|normas?|convenciones|regras?"
    r"|ich|wir|soll\w*|Regeln?|Richtlinien?|je|nous|règles?|consignes?)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""A question of fact; one that asks what to do speaks of whoever is to do it, or of rules themselves."""


class Task:
    """What is asked, and what the conversation was about so far, embedded."""

    def __init__(self, text: str, embedder: LazyEmbedder, context: str = "", files: Sequence[str] = ()) -> None:
        self.text, self.files = text, files
        try:
            self.vector = embedder.embed_query(text, wait=MODEL_WAIT_SECONDS)
            self.conversation = embedder.embed_query(context) if context.strip() else None
        except (ModelUnavailable, ConfigurationError) as error:
            message = f"Failed to generate embedding for task description: {error.message}"
            raise ModelUnavailable(message, hint=error.hint) from error


def asks_for_a_fact(text: str) -> bool:
    """Return whether a task is a question such as "what does deductible mean", not "where should we put it"."""
    return _FACT.match(text) is not None


class Match(NamedTuple):
    """A rule that may fit the task."""

    rule: Rule
    cosine: float
    """With the task."""
    likeness: float
    """With the task or the conversation, whichever is larger when weighted, in the units of `Everyday.likeness`."""
    level: float
    """Of its file, see `Everyday.level`."""
    reasons: list[str]


class Shelf(NamedTuple):
    """The rules of a file that are in force and that the model in use has read, by id."""

    state: tuple[Everyday, int]
    """The model, and the generation of the file's vectors."""
    ids: Ids
    vectors: Vectors
    level: float
    """`Everyday.level` of the newest rules."""


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
        usual = rules @ self.requests.T
        deviation = np.maximum(usual.std(axis=1, keepdims=True), 1e-6)
        return (rules @ views - usual.mean(axis=1, keepdims=True)) / deviation

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
    return [*read_lines("everyday_requests.txt"), *read_lines("requests_without_rules.txt")]


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
    """Return the at most 500 patterns that a glob with braces means; None if it is none, or they are more."""
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
