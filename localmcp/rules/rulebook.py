"""Rules in the file: which there are, and the vectors by which they are found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.arrays import Ids, Vectors, np
from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import choices, quoted
from localmcp.index import collections as places
from localmcp.index import vector
from localmcp.index.federation import shown_name
from localmcp.index.passages import read_texts
from localmcp.models.embedder import ModelIdentity, is_unit_vector
from localmcp.storage.database import bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.tools import without_none
from localmcp.wording.normalize import fold

CATEGORIES: dict[str, str] = {
    "testing": "unit tests, integration tests, test data, mocks, coverage, fixtures, continuous integration",
    "naming": "names of variables, functions, classes, files, tables; naming conventions, prefixes, casing",
    "architecture": "modules, layers, dependencies, services, design patterns, structure of the application, queues",
    "documentation": "docstrings, comments, README, changelog, manuals, decision records, explanations",
    "error-handling": "exceptions, errors, retries, time-outs, logging failures, messages when something goes wrong",
    "performance": "speed, memory, caching, slow queries, batching, lazy loading, profiling, load",
    "security": "passwords, secrets, permissions, login, encryption, injection, privacy, personal data, validation",
    "style": "formatting, layout of code, type hints, short functions, idioms of the language, constants, consistency",
    "best-practices": "commits, pull requests, code review, releases, tools, configuration, deployment, working habits",
}
"""The nine categories of the original, each with words by which a task is told to be near to it."""
GENERAL = "general"
"""The category of a rule that is added without one. Not guessed: the nearest was right for a third of 560 rules."""

COLLECTION, KIND = "developer rules", "rules"
"""Rules are in a collection of a separate kind, bound to one model; no search for documents sees it."""
VECTOR_IDS = 1 << 39
"""A rule's vector has this number plus its id: upper half of the range, above all chunk ids."""

ALWAYS, ALWAYS_ONCE_SEEN = 1, 2
"""Of `always_apply`. 1: it holds for every task. 2: an assistant asked for that; 1 once the person saw it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A stored rule: the columns of the query, in order, and the mounted file that it is in."""

    id: int
    rule_text: str
    category: str
    context: str
    weight: float
    """Importance, 1 = ordinary; the column `relevance_score` (C2-6)."""
    last_applied: str | None
    instructions_count: int
    inserted_at: str
    retired_at: str | None
    project: str | None
    globs_json: str
    always_apply: int
    made_by: str | None
    """The assistant that wrote it last: `stdio`, or the id of a key; None for the person."""
    origin: str | None = None

    @property
    def shown_id(self) -> int | str:
        """As tools show and take it; that of a mounted rule, such as `team:5`, is no number of yours."""
        return shown_name(self.id, self.origin) if self.origin else self.id

    @property
    def globs(self) -> list[str]:
        return read_texts(self.globs_json)

    @property
    def is_short(self) -> bool:
        """Whether a rule may be shown; in a mounted file anything may be called one."""
        texts = (self.rule_text, self.category, self.context, self.globs_json, self.project or "")
        return self.origin is None or max(map(len, texts)) <= 20_000

    def as_json(self, importance: dict[str, float], **facts: Any) -> Any:
        """Return the rule as answers show it, with those of `facts` that are not None."""
        return {
            "id": self.shown_id,
            "rule_text": self.rule_text,
            "category": self.category,
            "context": self.context,
            **importance,
            "instructions_count": self.instructions_count,
            "last_applied": self.last_applied,
            "inserted_at": self.inserted_at,
            **without_none({"project": self.project, "globs": self.globs or None, "origin": self.origin, **facts}),
        }


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A rule that is to be stored, with the instruction that it came from (C2-4)."""

    rule_text: str
    category: str
    context: str = ""
    instruction: str = ""
    """What the person said; empty = the rule text itself."""
    origin: str = "added by hand"
    project: str | None = None
    globs: tuple[str, ...] = ()
    always_apply: bool = False
    weight: float = 1.0


def embedded_text(rule: Rule | RuleDraft) -> str:
    """Return what a model reads of a rule: category, context, and the rule itself."""
    about = f"{rule.category}: {rule.context}" if rule.context else rule.category
    return "\n".join(filter(None, (about, rule.rule_text)))


def digest_of(rule_text: str) -> bytes:
    """Return the same for texts that differ only in case, accents, spaces and the full stop."""
    plain = " ".join(fold(rule_text).rstrip(" .!").split())
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _select(connection: apsw.Connection, which: str, bindings: Any, origin: str | None = None) -> list[Rule]:
    # `which`: what follows "from rules"; `origin` is the mounted file's name.
    sql = f"""
        select id, rule_text, category, context, relevance_score, last_applied, instructions_count, inserted_at,
            retired_at, project, globs, always_apply, made_by
        from rules {which}
    """
    rules = (Rule(*row, origin=origin) for row in fetch_all(connection, sql, bindings))
    return [rule for rule in rules if rule.is_short]


def find_collection(connection: apsw.Connection) -> places.Collection | None:
    """Return the collection of the rules; None when there are none, or the caller may not see them."""
    return next(iter(places.visible_collections(connection, KIND)), None)


def is_hidden(connection: apsw.Connection) -> bool:
    """Return whether the caller may not see the rules that are there."""
    there = fetch_one(connection, "select 1 from collections where kind = ?", (KIND,))
    return bool(there) and find_collection(connection) is None


def load_rules(connection: apsw.Connection, rule_ids: Iterable[int], origin: str | None = None) -> dict[int, Rule]:
    """Return rule id -> rule, in the order asked for, without unknown ids; `origin` is the mounted file's name."""
    asked = list(rule_ids)
    which = "where id in (select value from json_each(?))"
    rules = {rule.id: rule for rule in _select(connection, which, (json.dumps(asked),), origin)}
    return {rule_id: rules[rule_id] for rule_id in asked if rule_id in rules}


def load_vectors(connection: apsw.Connection, dimension: int) -> tuple[Ids, Vectors]:
    """Return ids (rules,) and unit vectors (rules, dimension) of the rules in force that a model has read, by id."""
    # In another file a million rules may share one vector; these take 200 MB at first, then 80.
    sql = """
        select rules.id, vectors.embedding from rules join vectors on vectors.id = rules.embedding
        where retired_at is null and rules.id > (select max(id) - 50000 from rules) order by rules.id
    """
    # There, a longer vector would be near to every task.
    rows = [(rule_id, blob) for rule_id, blob in fetch_all(connection, sql) if is_unit_vector(blob, dimension)]
    vectors = np.frombuffer(b"".join(blob for _, blob in rows), "<f4").reshape(-1, dimension)
    return np.array([rule_id for rule_id, _ in rows], np.int64), vectors


def require_rule(connection: apsw.Connection, rule_id: int) -> Rule:
    """Return the rule of that id; raises NotFound if there is none that the caller may see."""
    rules = {} if is_hidden(connection) else load_rules(connection, [rule_id])
    if rule_id not in rules:
        raise NotFound(f"There is no rule {rule_id}.", hint="listRules shows them with their ids.")
    return rules[rule_id]


def find_same(connection: apsw.Connection, rule_text: str, project: str | None, *, other_than: int = 0) -> Rule | None:
    """Return the rule in force with the same text in the same project, of another id."""
    which = "where digest = ? and project is ? and retired_at is null and id <> ? limit 1"
    return next(iter(_select(connection, which, (digest_of(rule_text), project, other_than))), None)


def refuse_twin(connection: apsw.Connection, rule_id: int, rule_text: str, project: str | None) -> None:
    """Raise InvalidInput if another rule in force has the same text, beside which this one would come back."""
    if twin := find_same(connection, rule_text, project, other_than=rule_id):
        raise InvalidInput(
            f"Rule {twin.id} says the same and is in force: “{twin.rule_text}”.",
            hint=f"To have rule {rule_id} back instead, retire or delete rule {twin.id} first.",
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules; None and empty = any."""

    category: str | None = None
    """In any case, as a person types it."""
    project: str | None = None
    """Rules of this project, and those of every project."""
    retired: bool | None = False
    """False: in force, True: retired, None: both."""
    words: str | None = None
    """Text that the rule or its context holds."""

    def condition(self) -> tuple[str, dict[str, Any]]:
        """SQL and its bindings."""
        parts = ["1"]
        if self.category:
            parts.append("category = :category")
        if self.project:
            parts.append("(project is null or project = :project)")
        if self.retired is not None:
            parts.append(f"retired_at is {'not ' if self.retired else ''}null")
        if self.words:
            parts.append("(instr(lower(rule_text), lower(:words)) or instr(lower(context), lower(:words)))")
        category = self.category.strip().lower() if self.category else None
        return " and ".join(parts), {"category": category, "project": self.project, "words": self.words}


def select_rules(connection: apsw.Connection, selection: Selection, limit: int = -1) -> list[Rule]:
    """Return the rules, newest first; a limit of -1 cuts nothing."""
    condition, bindings = selection.condition()
    return _select(connection, f"where {condition} order by id desc limit :limit", {**bindings, "limit": limit})


def standing_rules(connection: apsw.Connection, selection: Selection, origin: str | None = None) -> list[Rule]:
    """Return the first twenty rules that hold for every task."""
    condition, bindings = selection.condition()
    # By itself SQLite would go through all rules in force.
    which = f"indexed by rules_always where always_apply = 1 and {condition} order by id limit 20"
    return _select(connection, which, bindings, origin)


def applied_together(connection: apsw.Connection, rule_ids: Sequence[int]) -> dict[int, int]:
    """Return the three other rules that were most often applied together with one of these, and how often (S2-15)."""
    sql = """
        select other.rule_id, count(distinct other.occasion) as times
        from rule_uses as ours
        join rule_uses as other on other.occasion = ours.occasion and other.useful = 1
        join rules on rules.id = other.rule_id and retired_at is null
        where ours.useful = 1 and ours.rule_id in (select value from json_each(:ids))
            and other.rule_id not in (select value from json_each(:ids))
        group by 1 having times >= 2 order by times desc, 1 limit 3
    """
    return dict(fetch_all(connection, sql, {"ids": json.dumps(rule_ids)}))


def unknown_category(connection: apsw.Connection, category: str | None) -> list[str]:
    """Return which categories there are, if this is none of them."""
    sql = "select distinct category from rules where retired_at is null order by category"
    categories = fetch_column(connection, sql)
    if not category or not categories or (category := category.strip().lower()) in categories:
        return []
    return [f"No rule has the category '{quoted(category)}'. {choices(categories)}"]


# ---------------------------------------------------------------- vectors


def store_vectors(connection: apsw.Connection, identity: ModelIdentity, embeddings: Mapping[int, bytes]) -> None:
    """Store rule id -> float32 vector, for rules that have none. Part of the caller's write transaction.

    Raises ModelMismatch if the vectors that are there come from another model.
    """
    model_id = places.ensure_model(connection, identity)
    places.claim_collection(connection, places.ensure_collection(connection, COLLECTION, kind=KIND), model_id)
    made = {VECTOR_IDS + rule_id: vector.Made(embedding) for rule_id, embedding in embeddings.items()}
    vector.write_vectors(connection, model_id, made)
    rows = ((vector.vector_id(model_id, VECTOR_IDS + rule_id), rule_id) for rule_id in embeddings)
    connection.executemany("update rules set embedding = ? where id = ?", rows)
    bump_generations(connection, "signs")


def switch_model(connection: apsw.Connection, identity: ModelIdentity) -> None:
    """Let this model's vectors answer, of the rules that it has read before; those of others stay for the way back."""
    model_id = places.ensure_model(connection, identity)
    connection.execute("update collections set model_id = ? where kind = ?", (model_id, KIND))
    sql = "update rules set embedding = (select id from vectors where id = ? + rules.id)"
    connection.execute(sql, (vector.vector_id(model_id, VECTOR_IDS),))
    bump_generations(connection, "content", "signs")


def rules_without_vector(connection: apsw.Connection, limit: int) -> list[Rule]:
    """Return rules in force that no model has read yet."""
    # The plus keeps SQLite from sorting all rules in force instead of reading the index of those without a vector.
    return _select(connection, "where embedding is null and +retired_at is null order by id limit ?", (limit,))


def forget_vectors(connection: apsw.Connection, rule_ids: Sequence[int]) -> None:
    """Delete the vectors of these rules. Part of the caller's write transaction."""
    vector.remove_vectors(connection, [VECTOR_IDS + rule_id for rule_id in rule_ids])
    connection.executemany("update rules set embedding = null where id = ?", ((rule_id,) for rule_id in rule_ids))
    bump_generations(connection, "content", "signs")


def read_by(connection: apsw.Connection) -> str | None:
    """Return the fingerprint of the model that read the rules; None if none has, or the caller may not see them."""
    collection = find_collection(connection)
    model_id = collection.model_id if collection else None
    return fetch_one(connection, "select fingerprint from models where id = ?", (model_id,))
