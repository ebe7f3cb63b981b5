"""`getRelevantRules`: the rules that a task needs (S2-1 to S2-17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, cast

import apsw
from typing_extensions import TypedDict

from localmcp.arrays import Vector, Vectors
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, ModelUnavailable
from localmcp.humanize import command_line
from localmcp.index.collections import Collection
from localmcp.index.federation import Federation, MountedFile
from localmcp.index.index import MODEL_WAIT_SECONDS, Index
from localmcp.index.vector import Block, nearest_chunks
from localmcp.models import ModelIdentity
from localmcp.rules import rulebook
from localmcp.rules.calibration import (
    find_calibration,
    find_expected_tasks,
    find_work_direction,
    vectors_without_rules,
)
from localmcp.rules.relevance import Match, Task, category_shares, match_rules, prefer, rate
from localmcp.rules.rulebook import CATEGORIES, Rule, Selection, digest_of, load_rules
from localmcp.storage.database import Database, fetch_all, fetch_one, read_generations
from localmcp.text_vectors import TextVectors
from localmcp.tools import Json, Param, current_scope, integer_or_string, tool, without_none

MOST_CHARACTERS = 10_000
EMPTY_TASK = "Error: taskDescription cannot be empty"
LONG_TASK = f"Error: taskDescription must be at most {MOST_CHARACTERS} characters"
RESULTS_OUT_OF_RANGE = "Error: maxResults must be between 1 and 100"
THRESHOLD_OUT_OF_RANGE = "Error: similarityThreshold must be between -1 and 1"
EMBEDDING_FAILED = "Failed to generate embedding for task description: {}"
RULES_NOT_OPEN = (
    "This caller is bound to collections, and the developer's rules are not among them. A key opens them with: "
    "localmcp keys create --collection NAME --collection rules"
)
NO_RULES = "No relevant rules found for this task."
NOT_READ = (
    "{} (mounted): its rules were not read by the model in use, and are not searched. Take them into your file with: {}"
)
MOST_COMBINED, MOST_STANDING = 3, 20


class RelevantRule(TypedDict):
    """A rule that fits the task (S2-2)."""

    id: int | str
    """A number; that of a rule in a mounted file has the file's name before it: `team:5`."""
    rule_text: str
    category: str
    context: str
    relevance_score: float
    instructions_count: int
    last_applied: str | None
    inserted_at: str
    cosine: float
    why: list[str]
    project: NotRequired[str]
    globs: NotRequired[list[str]]
    origin: NotRequired[str]
    """The mounted file that it is in."""


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
    omitted: NotRequired[int]
    """Relevant rules left out by maxTokens."""
    uncalibrated: NotRequired[bool]
    notices: NotRequired[list[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """What to look for; thresholds are on the relevance."""

    limit: int
    threshold: float
    selection: Selection
    max_tokens: int | None = None


def number_or_string(name: str, value: Any) -> Any:
    """Return a number, which may come as text; empty text means the default (None)."""
    if isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number or string, got: bool")
    if not isinstance(value, str):
        return value
    try:
        return float(value) if value.strip() else None
    except ValueError as error:
        raise InvalidInput(f"invalid {name} value: {value}") from error


def failure(error: LocalMCPError) -> Json:
    """S2-11: an error is a result."""
    return {"success": False, "error": str(error)}


def as_text(answer: Any) -> str:
    """Return the rules as a list to follow (C2-5); every fact is in the structured result."""
    result = cast(RelevantRules, answer)
    if not result["success"]:
        return result.get("error", "")
    rules = result.get("rules", [])
    lines = ["Follow these rules:"] if rules else [NO_RULES]
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
        self.mounted = MountedRules(federation)
        self._database = database
        self._index = index
        self._max_results = max_results
        self._threshold = threshold
        self._vectors = TextVectors()

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
            "similarityThreshold": number_or_string,
            "maxTokens": integer_or_string,
        },
        says={
            "taskDescription required": EMPTY_TASK,
            "maxResults": RESULTS_OUT_OF_RANGE,
            "similarityThreshold": THRESHOLD_OUT_OF_RANGE,
        },
        text=as_text,
        on_error=failure,
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
        maxTokens: Annotated[int | None, Param("Room for the rule texts", minimum=1)] = None,
    ) -> RelevantRules:
        """Get the developer's own rules and conventions that matter for a task; call it before starting work. Returns
        the fitting rules with relevance 0..1; none when no rule fits."""
        if not taskDescription.strip():
            raise InvalidInput(EMPTY_TASK)
        if len(taskDescription) > MOST_CHARACTERS:
            raise InvalidInput(LONG_TASK)
        request = Request(
            self._max_results if maxResults is None else maxResults,
            self._threshold if similarityThreshold is None else similarityThreshold,
            Selection(category.strip().lower() if category else None, project or None),
            maxTokens,
        )
        return self.find(taskDescription, request, tuple(files or ()), context or "")

    # ------------------------------------------------------------ searching

    def find(self, text: str, request: Request, files: tuple[str, ...] = (), conversation: str = "") -> RelevantRules:
        """Return the rules for a task.

        Raises:
            ModelUnavailable: the task cannot be embedded; the message says so in the words of S2-7.
        """
        notices: list[str] = []
        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is not None and not rulebook.has_rules(connection):
                collection = None
        if current_scope().collections is not None and collection is None:
            notices.append(RULES_NOT_OPEN)
        if collection is None and not self.mounted.are_there(notices):
            return _with_notices({"success": True, "rules": []}, notices)
        task = self._embed(text, files, conversation)
        with self._database.read() as connection:
            matches = self._matches(connection, task, collection, request, notices)
            if collection is not None:
                notices += self._notices(connection, collection)
            if not matches and not self.mounted.are_there(notices):
                notices += rulebook.unknown_category(connection, request.selection.category)
            return _with_notices(self._answer(connection, matches, request, notices), notices)

    def find_similar_rules(self, embedding: Vector, limit: int, threshold: float) -> list[tuple[Rule, float]]:
        """Return rules by plain cosine with a vector, best first, none below the threshold (S2-4)."""
        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is None or collection.model_id is None:
                return []
            blocks = self._blocks(connection, collection)
            near = nearest_chunks(connection, collection.model_id, blocks, embedding, limit)
            cosines = {rulebook.rule_ids_of(vector_id): cosine for vector_id, cosine in near if cosine >= threshold}
            rules = rulebook.load_rules(connection, cosines)
        return [(rule, cosines[rule_id]) for rule_id, rule in rules.items()]

    def _embed(self, text: str, files: tuple[str, ...], conversation: str) -> Task:
        """Return the task, embedded; a repeated text is not embedded again."""
        embedder = self._index.embedder
        try:
            task = Task(text, embedder.embed_query(text, wait=MODEL_WAIT_SECONDS), files=files)
            if conversation.strip():
                task.conversation = embedder.embed_query(conversation)
        except (ModelUnavailable, ConfigurationError) as error:
            raise ModelUnavailable(EMBEDDING_FAILED.format(error.message), hint=error.hint) from error
        return task

    def _matches(
        self, connection: apsw.Connection, task: Task, collection: Collection | None, request: Request,
        notices: list[str],
    ) -> list[Match]:  # fmt: skip
        """Return the relevant rules of all files, best first. `collection` is yours."""
        embedder = self._index.embedder.get()
        calibration = find_calibration(connection, embedder.identity)
        if calibration is not None:
            task.without_rules = vectors_without_rules(embedder, self._vectors)
            task.expected = find_expected_tasks(embedder.identity.fingerprint)
            task.work_direction = find_work_direction(embedder.identity.fingerprint)
        matches = self.mounted.match(connection, embedder.identity, task, request.selection, notices)
        if collection:
            blocks = self._blocks(connection, collection)
            matches = match_rules(connection, task, collection, blocks, request.selection) + matches
        rate(matches, task, calibration)
        relevant = [match for match in matches if match.relevance >= request.threshold]
        prefer(relevant, task, category_shares(task.vector, self._categories()))
        return sorted(relevant, key=_place)

    def _answer(
        self, connection: apsw.Connection, matches: list[Match], request: Request, notices: list[str]
    ) -> RelevantRules:
        count_tokens = self._index.embedder.get().count_tokens
        chosen = _within_budget(matches[: request.limit], request.max_tokens, count_tokens)
        result: RelevantRules = {"success": True, "rules": [_relevant_rule(match) for match in chosen]}
        if omitted := min(len(matches), request.limit) - len(chosen):
            result["omitted"] = omitted
        shown = {match.rule.shown_id for match in chosen}
        standing = rulebook.standing_rules(connection, request.selection)
        standing += self.mounted.standing(connection, request.selection, notices)
        if always := [_standing_rule(rule) for rule in standing if rule.shown_id not in shown]:
            result["always"] = always[:MOST_STANDING]
        ids = [match.rule.id for match in chosen if match.rule.origin is None]
        if combined := rulebook.rules_used_with(connection, ids, MOST_COMBINED):
            result["combinations"] = [
                {"id": rule.id, "rule_text": rule.rule_text, "applied_together": times} for rule, times in combined
            ]
        if find_calibration(connection, self._index.embedder.get().identity) is None:
            result["uncalibrated"] = True
        return result

    def _blocks(self, connection: apsw.Connection, collection: Collection) -> list[Block]:
        """Return the rules' sign codes; none when another model made their vectors."""
        identity = self._index.embedder.get().identity
        if collection.model_id is None or not rulebook.is_bound_to(connection, collection, identity):
            return []
        return self._index.sign_blocks(connection, collection.model_id, read_generations(connection), [collection.id])

    def _notices(self, connection: apsw.Connection, collection: Collection) -> list[str]:
        bound = collection.model_id is None or rulebook.is_bound_to(
            connection, collection, self._index.embedder.get().identity
        )
        if bound and not rulebook.rules_without_vector(connection, 1):
            return []
        return ["Some rules were not read by this model and are not found: run `localmcp rules reembed`."]

    def _categories(self) -> Vectors:
        """Return vectors of the nine categories (9, dimension)."""
        texts = [f"{name}: {words}" for name, words in CATEGORIES.items()]
        return self._vectors.rows(texts, self._index.embedder.get())

    def nearest_category(self, vector: Vector) -> str:
        """Return the one of the nine categories that a text is nearest to."""
        return list(CATEGORIES)[int((self._categories() @ vector).argmax())]


def _place(match: Match) -> tuple[float, float, str, int]:
    """Sort key of the answer; of equal rules yours is first."""
    return -match.relevance, -match.similarity * (1 + match.preference), match.rule.origin or "", match.rule.id


def _within_budget(matches: Sequence[Match], max_tokens: int | None, count_tokens: Any) -> list[Match]:
    """Return the best rules whose texts fit together; shorter ones take the place of one too long."""
    if max_tokens is None:
        return list(matches)
    left, chosen = max_tokens, list[Match]()
    for match in matches:
        tokens = count_tokens(match.rule.rule_text)
        if tokens <= left:
            left -= tokens
            chosen.append(match)
    return chosen


def _relevant_rule(match: Match) -> RelevantRule:
    rule, evidence = match.rule, {"cosine": round(match.cosine, 4), "why": match.reasons}
    relevance = {"relevance_score": round(match.relevance, 4)}
    return rule.as_json(relevance, **evidence, project=rule.project, globs=rule.globs or None, origin=rule.origin)


def _standing_rule(rule: Rule) -> OtherRule:
    return without_none({"id": rule.shown_id, "rule_text": rule.rule_text, "origin": rule.origin})


def _with_notices(result: RelevantRules, notices: list[str]) -> RelevantRules:
    if notices:
        # A mounted file that cannot be read is met several times in one search.
        result["notices"] = list(dict.fromkeys(notices))
    return result


# ---------------------------------------------------------------- rules of mounted files


class MountedRules:
    """Reads the rules of mounted files; those whose text your file holds count as yours.

    Thread-safe. `own` is a connection to your file; `notices` gets a sentence about each file that cannot be read.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def are_there(self, notices: list[str]) -> bool:
        """Return whether any mounted file has rules in force."""
        return any(self._federation.read_mounted(lambda _, theirs: rulebook.has_rules(theirs), notices))

    def match(
        self, own: apsw.Connection, identity: ModelIdentity, task: Task, selection: Selection, notices: list[str]
    ) -> list[Match]:
        """Return rules of mounted files near the task, of the model in use; relevance is not set."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> list[Match] | None:
            collection = rulebook.find_collection(theirs)
            if collection is None or not rulebook.has_rules(theirs):
                return None
            if collection.model_id is None or not rulebook.is_bound_to(theirs, collection, identity):
                notices.append(
                    NOT_READ.format(mounted_file.name, command_line("localmcp", "merge", mounted_file.database.path))
                )
                return None
            index = mounted_file.index("keyword")
            blocks = index.sign_blocks(theirs, collection.model_id, read_generations(theirs), [collection.id])
            matches = match_rules(theirs, task, collection, blocks, selection, mounted_file.name)
            return [match for match in matches if not _holds_text(own, match.rule)]

        return [match for matches in self._federation.read_mounted(look, notices) for match in matches]

    def standing(self, own: apsw.Connection, selection: Selection, notices: list[str]) -> list[Rule]:
        """Return the rules that hold for every task."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> list[Rule]:
            rules = rulebook.standing_rules(theirs, selection, mounted_file.name)
            return [rule for rule in rules if not _holds_text(own, rule)]

        return [rule for rules in self._federation.read_mounted(look, notices) for rule in rules]

    def list_rules(self, own: apsw.Connection, selection: Selection, limit: int) -> list[tuple[list[Rule], int]]:
        """Return the newest `limit` rules of each mounted file that has any, and how many it has."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> tuple[list[Rule], int] | None:
            rules, total = _newest(theirs, own, mounted_file.name, selection, limit)
            return (rules, total) if total else None

        return self._federation.read_mounted(look)


def _holds_text(connection: apsw.Connection, rule: Rule) -> bool:
    """Return whether the same text is in the same project.

    A retired one counts too: who retired it wants it from nobody.
    """
    sql = "select 1 from rules where digest = ? and project is ? limit 1"
    return bool(fetch_one(connection, sql, (digest_of(rule.rule_text), rule.project)))


def _newest(
    connection: apsw.Connection, own: apsw.Connection, origin: str, selection: Selection, limit: int
) -> tuple[list[Rule], int]:
    """Return the newest rules of a mounted file that yours lacks, and how many there are."""
    condition, bindings = selection.condition()
    own_digests = set(fetch_all(own, "select digest, project from rules"))
    rows = fetch_all(connection, f"select id, digest, project from rules where {condition}", bindings)
    ids = sorted((rule_id for rule_id, *same in rows if tuple(same) not in own_digests), reverse=True)
    return list(load_rules(connection, ids[:limit], origin).values()), len(ids)
