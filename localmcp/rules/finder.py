"""`getRelevantRules`: the rules that a task needs (S2-1 to S2-17)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, NotRequired, cast

import apsw
from typing_extensions import TypedDict

from localmcp.arrays import Vector, Vectors
from localmcp.config import cache_directory
from localmcp.errors import ConfigurationError, InvalidInput, ModelUnavailable
from localmcp.humanize import command_line
from localmcp.index.collections import Collection
from localmcp.index.federation import Federation, MountedFile
from localmcp.index.search import MODEL_WAIT_SECONDS, Index
from localmcp.index.vector import Block, nearest_chunks
from localmcp.models.embedder import TextVectors
from localmcp.rules import rulebook
from localmcp.rules.relevance import Everyday, Levels, Match, Task, match_rules, rate, read_everyday
from localmcp.rules.rulebook import CATEGORIES, Rule, Selection, digest_of, load_rules
from localmcp.storage.database import Database, fetch_all, fetch_one, read_generations
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
        self._levels: Levels = {}

    @tool(
        "getRelevantRules",
        title="Rules for a task",
        keywords=("rules", "guidelines", "conventions", "preferences", "standards", "how we work"),
        examples=(
            "which rules apply when I {taskDescription}",
            "what should I keep in mind to {taskDescription}",
            "what are our conventions for {taskDescription}",
        ),
        accepts={"maxResults": integer_or_string, "similarityThreshold": number_or_string},
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
        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is None and current_scope().collections is not None:
                notices.append(
                    "This caller is bound to collections, and the developer's rules are not among them. A key opens "
                    "them with: localmcp keys create --collection NAME --collection rules"
                )
            if collection is not None and not rulebook.has_rules(connection):
                collection = None
        elsewhere = any(self._federation.read_mounted(lambda _, theirs: rulebook.has_rules(theirs), notices))
        result: RelevantRules = {"success": True, "rules": []}
        if collection is not None or elsewhere:
            task = self._embed(taskDescription, tuple(files or ()), context or "")
            least = self._threshold if similarityThreshold is None else similarityThreshold
            with self._database.read() as connection:
                rated = self._rated(connection, task, collection, selection, notices)
                fitting = sorted((m for m in rated if m.relevance >= least), key=lambda match: match.place)
                matches = fitting[: maxResults or self._max_results]
                if collection is not None and (
                    rulebook.is_foreign(connection, self._index.embedder.get().identity)
                    or rulebook.rules_without_vector(connection, 1)
                ):
                    notices.append("Some rules were not read by this model and are not found: run `localmcp reembed`.")
                if not matches and not elsewhere:
                    notices += rulebook.unknown_category(connection, selection.category)
                result |= self._others(connection, [match.rule for match in matches], selection, notices)
            result["rules"] = [
                match.rule.as_json(
                    {"relevance_score": round(match.relevance, 4)}, cosine=round(match.cosine, 4), why=match.reasons
                )
                for match in matches
            ]
        if notices:
            # A mounted file that cannot be read is met several times in one search.
            result["notices"] = list(dict.fromkeys(notices))
        return result

    def _others(
        self, connection: apsw.Connection, rules: Sequence[Rule], selection: Selection, notices: list[str]
    ) -> RelevantRules:
        """Return the rules that were often applied together with those, and those that hold for every task."""
        others: RelevantRules = {"success": True}
        # S2-15: with one of them at least twice.
        sql = """
            select other.rule_id, count(distinct other.occasion) as times
            from rule_uses as ours
            join rule_uses as other on other.occasion = ours.occasion and other.useful = 1
            join rules on rules.id = other.rule_id and retired_at is null
            where ours.useful = 1 and ours.rule_id in (select value from json_each(:ids))
                and other.rule_id not in (select value from json_each(:ids))
            group by 1 having times >= 2 order by times desc, 1 limit 3
        """
        own_ids = json.dumps([rule.id for rule in rules if rule.origin is None])
        if times := dict(fetch_all(connection, sql, {"ids": own_ids})):
            others["combinations"] = [
                {"id": rule.id, "rule_text": rule.rule_text, "applied_together": times[rule.id]}
                for rule in load_rules(connection, times).values()
            ]

        def look(file: MountedFile, theirs: apsw.Connection) -> list[Rule]:
            theirs_standing = rulebook.standing_rules(theirs, selection, file.name)
            return [rule for rule in theirs_standing if not _holds_text(connection, rule)]

        standing = rulebook.standing_rules(connection, selection)
        standing += chain.from_iterable(self._federation.read_mounted(look, notices))
        shown = {rule.shown_id for rule in rules}
        if always := [rule for rule in standing if rule.shown_id not in shown][:20]:
            others["always"] = [
                without_none({"id": rule.shown_id, "rule_text": rule.rule_text, "origin": rule.origin})
                for rule in always
            ]
        return others

    def find_similar_rules(self, embedding: Vector, limit: int, threshold: float) -> list[tuple[Rule, float]]:
        """Return rules by plain cosine with a vector, best first, none below the threshold (S2-4)."""
        with self._database.read() as connection:
            collection = rulebook.find_collection(connection)
            if collection is None or collection.model_id is None:
                return []
            blocks = self._blocks(self._index, connection, collection)
            near = nearest_chunks(connection, collection.model_id, blocks, embedding, limit)
            cosines = {rulebook.rule_ids_of(vector_id): cosine for vector_id, cosine in near if cosine >= threshold}
            rules = rulebook.load_rules(connection, cosines)
        return [(rule, cosines[rule_id]) for rule_id, rule in rules.items()]

    def _embed(self, text: str, files: tuple[str, ...], conversation: str) -> Task:
        """Return the task, embedded; a repeated text is not embedded again.

        Raises:
            ModelUnavailable: it cannot be; the message says so in the words of S2-7.
        """
        embedder = self._index.embedder
        try:
            vector = embedder.embed_query(text, wait=MODEL_WAIT_SECONDS)
            before = embedder.embed_query(conversation) if conversation.strip() else None
        except (ModelUnavailable, ConfigurationError) as error:
            message = f"Failed to generate embedding for task description: {error.message}"
            raise ModelUnavailable(message, hint=error.hint) from error
        return Task(text, vector, before, files)

    def _rated(
        self, connection: apsw.Connection, task: Task, collection: Collection | None, selection: Selection,
        notices: list[str],
    ) -> list[Match]:  # fmt: skip
        """Return the rules near a task in all files, rated. `collection` is yours."""
        embedder = self._index.embedder.get()
        identity = embedder.identity
        if identity.fingerprint not in self._everyday:
            self._everyday[identity.fingerprint] = read_everyday(embedder, self._vectors)
        everyday = self._everyday[identity.fingerprint]

        def look(file: MountedFile, theirs: apsw.Connection) -> list[Match]:
            collection = rulebook.find_collection(theirs)
            if collection is None or not rulebook.has_rules(theirs):
                return []
            if collection.model_id is None or rulebook.is_foreign(theirs, identity):
                merge = command_line("localmcp", "merge", file.database.path)
                notices.append(
                    f"{file.name} (mounted): its rules were not read by the model in use, and are not searched. "
                    f"Take them into your file with: {merge}"
                )
                return []
            blocks = self._blocks(file.index(), theirs, collection)
            matches = match_rules(theirs, task, blocks, selection, everyday, self._levels, file.name)
            return [match for match in matches if not _holds_text(connection, match.rule)]

        blocks = self._blocks(self._index, connection, collection) if collection else []
        matches = match_rules(connection, task, blocks, selection, everyday, self._levels)
        matches += chain.from_iterable(self._federation.read_mounted(look, notices))
        cosines = self._categories() @ task.vector
        shares = (cosines - cosines.mean()) / max(float(cosines.max() - cosines.mean()), 1e-6)
        rate(matches, task, everyday, dict(zip(CATEGORIES, shares.clip(0).tolist(), strict=True)))
        return matches

    def _blocks(self, index: Index, connection: apsw.Connection, collection: Collection) -> list[Block]:
        """Return the rules' sign codes in a file; none when another model made their vectors."""
        if collection.model_id is None or rulebook.is_foreign(connection, self._index.embedder.get().identity):
            return []
        return index.sign_blocks(connection, collection.model_id, read_generations(connection), [collection.id])

    def _categories(self) -> Vectors:
        """Return vectors of the nine categories (9, dimension)."""
        texts = [f"{name}: {words}" for name, words in CATEGORIES.items()]
        return self._vectors.rows(texts, self._index.embedder.get())

    def nearest_category(self, vector: Vector) -> str:
        """Return the one of the nine categories that a text is nearest to."""
        return list(CATEGORIES)[int((self._categories() @ vector).argmax())]

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


def _holds_text(connection: apsw.Connection, rule: Rule) -> bool:
    """Return whether the same text is in the same project.

    A retired one counts too: who retired it wants it from nobody.
    """
    sql = "select 1 from rules where digest = ? and project is ? limit 1"
    return bool(fetch_one(connection, sql, (digest_of(rule.rule_text), rule.project)))
