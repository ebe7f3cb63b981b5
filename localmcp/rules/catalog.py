"""The rules a person keeps: added unless one says the same, embedded, listed and counted."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Annotated, Any, Literal, NotRequired

import apsw
from typing_extensions import TypedDict

from localmcp.arrays import Vectors, np
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, ModelMismatch, ModelUnavailable, NotFound
from localmcp.humanize import quoted
from localmcp.index.collections import ensure_model
from localmcp.index.index import Index
from localmcp.models import Embedder
from localmcp.rules import rulebook
from localmcp.rules.finder import RuleFinder
from localmcp.rules.globs import is_pattern
from localmcp.rules.rulebook import CATEGORIES, GENERAL, Rule, RuleDraft, Selection
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.tools import Answer, Param, hidden_change, hidden_tool, integer_or_string

SAME_RULE = 0.9
"""Cosine of two rules that say the same."""
ALIKE_RULE, ALIKE_WORDS = 0.75, 85
"""Or this cosine, when the words (rapidfuzz token set ratio, 0..100) are nearly the same."""
EMBEDDED_AT_ONCE = 256
LONGEST_RULE, LONGEST_CONTEXT = 2_000, 1_000


class ShownRule(TypedDict):
    """A rule in a list."""

    id: int | str
    rule_text: str
    category: str
    context: str
    weight: float
    instructions_count: int
    last_applied: str | None
    inserted_at: str
    project: NotRequired[str]
    globs: NotRequired[list[str]]
    always_apply: NotRequired[bool]
    retired_at: NotRequired[str]
    origin: NotRequired[str]
    """The mounted file that it is in, which is also said in its id: `team:5`."""


class RuleAnswer(TypedDict):
    """Status of one rule."""

    success: bool
    message: str
    rule: NotRequired[ShownRule]
    duplicate: NotRequired[ShownRule]
    similarity: NotRequired[float]
    notice: NotRequired[str]


def lean_rule_answer(answer: Any) -> Answer:
    """Return the answer of `addRule` for a language model: the message, which names the rule."""
    return Answer(answer, " ".join(filter(None, (answer["message"], answer.get("notice")))), whole_text=True)


class RuleList(TypedDict):
    """The answer of `listRules`."""

    count: int
    total: int
    rules: list[ShownRule]
    notices: NotRequired[list[str]]


class RuleStats(TypedDict):
    """The answer of `ruleStats`."""

    rules: int
    retired: int
    withEmbedding: int
    instructions: int
    uses: int
    notUseful: int
    categories: dict[str, int]
    projects: dict[str, int]
    mostApplied: list[ShownRule]
    neverApplied: int


OnDuplicate = Literal["ask", "count", "add"]


class RuleCatalog:
    """Keeps the rules. Thread-safe."""

    def __init__(self, database: Database, index: Index, finder: RuleFinder) -> None:
        self.database = database
        self.finder = finder
        self._embedder = index.embedder

    # ------------------------------------------------------------ adding

    @hidden_change(
        "addRule",
        title="Add a rule",
        keywords=("rule", "guideline", "convention", "save", "new"),
        examples=("add the rule {rule_text}", "save this convention: {rule_text}"),
        lean=lean_rule_answer,
    )
    def add_rule(
        self,
        rule_text: Annotated[str, Param("The rule, as an instruction", min_length=1, max_length=LONGEST_RULE)],
        category: Annotated[str | None, Param("Default general")] = None,
        context: Annotated[str, Param("When it matters: tasks, other words", max_length=LONGEST_CONTEXT)] = "",
        project: Annotated[str | None, Param("Only for this project")] = None,
        globs: Annotated[list[str] | None, Param("Files it is about, such as src/**/*.py")] = None,
        alwaysApply: Annotated[bool, Param("Holds for every task")] = False,
        weight: Annotated[float, Param("Importance, 1 = ordinary", minimum=0, maximum=2)] = 1.0,
        onDuplicate: Annotated[OnDuplicate, Param("When a rule says the same: ask, count it, or add anyway")] = "ask",
    ) -> RuleAnswer:
        """Add a rule of the developer. When one that says nearly the same is there, it is shown instead: call again
        with onDuplicate count or add."""
        draft = RuleDraft(
            rule_text.strip(),
            (category or "").strip().lower() or GENERAL,
            context.strip(),
            project=project or None,
            globs=tuple(globs or ()),
            always_apply=alwaysApply,
            weight=weight,
        )
        return self.add(draft, onDuplicate)

    def add(self, draft: RuleDraft, on_duplicate: OnDuplicate = "ask") -> RuleAnswer:
        """Store a rule, unless one says the same and `on_duplicate` is not `add`.

        Raises:
            InvalidInput: there is nothing in the rule.
            FileUnavailable: the file cannot be written.
        """
        check_draft(draft)
        embedder, notice = self._model_or_notice()
        if on_duplicate != "add" and (twin := self._find_twin(draft, embedder)):
            return self._met_twin(*twin, draft, on_duplicate)
        rule = self.store([draft])[0]
        answer: RuleAnswer = {
            "success": True,
            "message": f"Rule {rule.id} added ({rule.category}).",
            "rule": shown_rule(rule),
        }
        return {**answer, "notice": notice} if notice else answer

    def nearest_category(self, text: str) -> str:
        """Return the one of the nine categories that a text is nearest to; best-practices without a model."""
        embedder = self.model()
        if embedder is None:
            return "best-practices"
        [vector] = embedder.embed_passages([text])
        return self.finder.nearest_category(vector)

    def _met_twin(self, twin: Rule, similarity: float, draft: RuleDraft, on_duplicate: OnDuplicate) -> RuleAnswer:
        if on_duplicate == "ask":
            return {
                "success": False,
                "message": f"Rule {twin.id} says nearly the same: “{twin.rule_text.rstrip('.')}”. "
                "Call again with onDuplicate count (count it instead) or add.",
                "duplicate": shown_rule(twin),
                "similarity": round(similarity, 4),
            }
        with self.database.write() as connection:
            rulebook.count_instruction(connection, twin.id, draft)
            rule = require_rule(connection, twin.id)
        return {
            "success": True,
            "message": f"Counted towards rule {rule.id}, which says the same.",
            "rule": shown_rule(rule),
            "similarity": round(similarity, 4),
        }

    def store(self, drafts: Sequence[RuleDraft]) -> list[Rule]:
        """Store rules in one transaction, with vectors if the model is there.

        Embedding is done before the transaction begins.
        """
        vectors = self._embedded(drafts)
        with self.database.write() as connection:
            rules = [rulebook.add_rule(connection, draft) for draft in drafts]
            if vectors is not None:
                model_id = ensure_model(connection, self._embedder.get().identity)
                self._store_vectors(connection, model_id, [rule.id for rule in rules], vectors)
        return rules

    def _embedded(self, drafts: Sequence[RuleDraft]) -> Vectors | None:
        """Return the vectors of drafts; None without a model."""
        embedder = self.model()
        if embedder is None or not drafts:
            return None
        texts = [draft.embedded for draft in drafts]
        starts = range(0, len(texts), EMBEDDED_AT_ONCE)
        parts = [embedder.embed_passages(texts[start : start + EMBEDDED_AT_ONCE]) for start in starts]
        return np.concatenate(parts).astype("<f4")

    def _store_vectors(self, connection: apsw.Connection, model_id: int, ids: Sequence[int], vectors: Vectors) -> None:
        try:
            collection = rulebook.claim_model(connection, model_id)
        except ModelMismatch:
            # Rules of another model are there: this one waits for `reembed` like they do.
            return
        embeddings = {rule_id: vector.tobytes() for rule_id, vector in zip(ids, vectors, strict=True)}
        rulebook.store_vectors(connection, collection, model_id, embeddings)

    def _model_or_notice(self) -> tuple[Embedder | None, str]:
        try:
            return self._embedder.get(), ""
        except LocalMCPError as error:
            return None, f"Stored without an embedding, and not found until `localmcp rules reembed`: {error.message}"

    def _find_twin(self, draft: RuleDraft, embedder: Embedder | None) -> tuple[Rule, float] | None:
        """Return the rule in force that says nearly the same as a draft, if any, and their similarity."""
        with self.database.read() as connection:
            same = rulebook.find_same(connection, draft.rule_text, draft.project)
        if same:
            return same, 1.0
        if embedder is None:
            return None
        from rapidfuzz import fuzz

        embedded = embedder.embed_passages([draft.embedded])[0].astype("<f4")
        for rule, cosine in self.finder.find_similar_rules(embedded, 3, ALIKE_RULE):
            # Rules with opposite meaning use the same words: "tabs, not spaces".
            alike = fuzz.token_set_ratio(rule.rule_text.lower(), draft.rule_text.lower())
            if rule.project == draft.project and (cosine >= SAME_RULE or alike >= ALIKE_WORDS):
                return rule, cosine
        return None

    @hidden_tool(
        "listRules",
        title="List the rules",
        keywords=("rules", "guidelines", "browse", "retired"),
        examples=("list my rules", "show all rules about {category}", "which|what rules do I have about {words}"),
        accepts={"limit": integer_or_string, "offset": integer_or_string},
    )
    def list_rules(
        self,
        category: Annotated[str | None, Param("Only this category")] = None,
        project: Annotated[str | None, Param("This project's and general ones")] = None,
        words: Annotated[str | None, Param("Text they hold")] = None,
        retired: Annotated[bool, Param("Retired ones instead")] = False,
        limit: Annotated[int, Param("Rules", minimum=1, maximum=1000)] = 50,
        offset: Annotated[int, Param("Passed over first", minimum=0)] = 0,
    ) -> RuleList:
        """List the developer's rules, newest first."""
        selection = Selection(category.strip().lower() if category else None, project or None, retired, words)
        with self.database.read() as connection:
            if rulebook.is_hidden(connection):
                return {"count": 0, "total": 0, "rules": []}
            mounted = [] if retired else self.finder.mounted.list_rules(connection, selection, offset + limit)
            passed = 0 if mounted else offset
            rules = rulebook.select_rules(connection, selection, offset + limit - passed, passed)
            total = rulebook.count_rules(connection, selection) + sum(number for _, number in mounted)
            notices = rulebook.unknown_category(connection, selection.category) if not total else []
        if mounted:
            newest = merge(
                rules, *(mounted_rules for mounted_rules, _ in mounted), key=lambda rule: rule.inserted_at, reverse=True
            )
            rules = list(islice(newest, offset, offset + limit))
        result: RuleList = {"count": len(rules), "total": total, "rules": [shown_rule(rule) for rule in rules]}
        return {**result, "notices": notices} if notices else result

    @hidden_tool(
        "ruleStats",
        title="Count the rules",
        keywords=("rules", "statistics", "usage"),
        examples=("how many rules do I have", "which rules are used most"),
    )
    def stats(self) -> RuleStats:
        """Count rules by category and project, and how often they were applied."""
        with self.database.read() as connection:
            if rulebook.is_hidden(connection):
                raise AccessDenied("The rules are outside what this caller may see.")
            used = fetch_all(
                connection,
                """
                select rule_id from rule_uses join rules on rules.id = rule_id
                where useful = 1 and retired_at is null group by 1 order by count(*) desc, 1 limit 5
                """,
            )
            most = rulebook.load_rules(connection, [row[0] for row in used])
            return {
                "rules": rulebook.count_rules(connection, Selection()),
                "retired": rulebook.count_rules(connection, Selection(retired=True)),
                "withEmbedding": _count(connection, "rules where embedding is not null and retired_at is null"),
                "instructions": _count(connection, "user_instructions"),
                "uses": _count(connection, "rule_uses where useful = 1"),
                "notUseful": _count(connection, "rule_uses where useful = 0"),
                "categories": _count_by(connection, "category"),
                "projects": _count_by(connection, "project"),
                "mostApplied": [shown_rule(rule) for rule in most.values()],
                "neverApplied": _count(connection, "rules where last_applied is null and retired_at is null"),
            }

    # ------------------------------------------------------------ vectors

    def model(self) -> Embedder | None:
        """Return the embedding model; None when it is not there."""
        return self._model_or_notice()[0]

    def latest_instruction(self, rule_id: int) -> int:
        """Return the id of the last instruction that was counted towards a rule."""
        with self.database.read() as connection:
            return fetch_one(connection, "select max(id) from user_instructions where rule_id = ?", (rule_id,))

    def embed_missing(self, *, again: bool = False) -> int:
        """Embed the rules that the model at hand has not read, or all `again`; returns how many.

        Raises:
            ModelUnavailable: there is no model.
        """
        embedder = self._embedder.get()
        with self.database.write() as connection:
            if again or self._is_foreign(connection):
                rulebook.forget_all_vectors(connection)
        done = 0
        while True:
            with self.database.read() as connection:
                waiting = rulebook.rules_without_vector(connection, EMBEDDED_AT_ONCE)
            if not waiting:
                return done
            texts = [rulebook.embedded_text(rule.category, rule.context, rule.rule_text) for rule in waiting]
            vectors = embedder.embed_passages(texts).astype("<f4")
            with self.database.write() as connection:
                model_id = ensure_model(connection, embedder.identity)
                collection = rulebook.claim_model(connection, model_id)
                ready = {rule.id: vector.tobytes() for rule, vector in zip(waiting, vectors, strict=True)}
                rulebook.store_vectors(connection, collection, model_id, ready)
            done += len(waiting)

    def _is_foreign(self, connection: apsw.Connection) -> bool:
        """Return whether another model than the one at hand made the rules' vectors."""
        collection = rulebook.find_collection(connection)
        if collection is None or collection.model_id is None:
            return False
        return not rulebook.is_bound_to(connection, collection, self._embedder.get().identity)

    def embed_missing_or_say(self) -> str:
        """Embed what was changed; all of the rules only when asked, since that may take long."""
        try:
            with self.database.read() as connection:
                foreign = self._is_foreign(connection)
            if not foreign:
                self.embed_missing()
                return ""
            return "Not found until `localmcp rules reembed`: the vectors of the rules come from another model."
        except ModelUnavailable as error:
            return f"Not found until `localmcp rules reembed`: {error.message}"

    def answer(self, rule_id: int, message: str) -> RuleAnswer:
        """Status of a rule."""
        with self.database.read() as connection:
            return {"success": True, "message": message, "rule": shown_rule(require_rule(connection, rule_id))}


def shown_rule(rule: Rule) -> ShownRule:
    """Return a rule as lists show it; what is usual is left out."""
    always = bool(rule.always_apply) or None
    unusual = {"project": rule.project, "globs": rule.globs or None, "always_apply": always}
    return rule.as_json({"weight": round(rule.weight, 2)}, **unusual, retired_at=rule.retired_at, origin=rule.origin)


def check_draft(draft: RuleDraft) -> None:
    """Refuse what cannot be a rule.

    Raises:
        InvalidInput: names the field and the value.
    """
    if not draft.rule_text.strip():
        raise InvalidInput(f"rule_text is {draft.rule_text!r}, but must say something.")
    if len(draft.category) > 40:
        raise InvalidInput(f"category: '{draft.category[:40]}…' is too long; usual are {', '.join(CATEGORIES)}.")
    check_globs(draft.globs)


def check_globs(globs: Sequence[str]) -> None:
    """Refuse a text that is no pattern.

    Raises:
        InvalidInput: names the field and the value.
    """
    if unreadable := next((glob for glob in globs if not is_pattern(glob)), None):
        hint = "Write patterns as in .gitignore, such as src/**/*.py, with / between folders."
        raise InvalidInput(f"globs: '{quoted(unreadable)}' is no pattern.", hint=hint)


def require_rule(connection: apsw.Connection, rule_id: int) -> Rule:
    """Return the rule of that id.

    Raises:
        NotFound: there is none that the caller may see.
    """
    rules = {} if rulebook.is_hidden(connection) else rulebook.load_rules(connection, [rule_id])
    if rule_id not in rules:
        raise NotFound(f"There is no rule {rule_id}.", hint="listRules shows them with their ids.")
    return rules[rule_id]


def _count(connection: apsw.Connection, rows: str) -> int:
    return fetch_one(connection, f"select count(*) from {rows}")


def _count_by(connection: apsw.Connection, column: str) -> dict[str, int]:
    sql = f"""
        select {column}, count(*) from rules where {column} is not null and retired_at is null
        group by 1 order by 2 desc, 1
    """
    return dict(fetch_all(connection, sql))
