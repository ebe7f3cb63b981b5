"""Rules in the file: rows, their vectors, and what is reported of their use."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import choices, quoted
from localmcp.index import vector
from localmcp.index.collections import Collection, claim_collection, ensure_collection, visible_collections
from localmcp.index.federation import shown_name
from localmcp.index.passages import read_texts
from localmcp.models import ModelIdentity
from localmcp.storage.database import (
    bump_generations,
    fetch_all,
    fetch_column,
    fetch_one,
    insert_row,
    upsert_rows,
)
from localmcp.storage.times import utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed
from localmcp.tools import current_scope, without_none
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
"""The category of a rule that is added without one.

The nearest of the nine was that of 34 % of 560 rules with a category; of four sets of tasks .67 found their best rule
among five with it, .72 with this one.
"""

COLLECTION, KIND = "developer rules", "rules"
"""Rules are in a collection of a separate kind, bound to one model; no search for documents sees it."""
_VECTOR_IDS = 1 << 39
"""A rule's vector has this number plus its id: upper half of the range, above all chunk ids."""


MOST_CHARACTERS = 20_000
"""Longest text in a rule of a mounted file, which anybody may have written."""

ALWAYS, ALWAYS_ONCE_SEEN = 1, 2
"""Of `always_apply`: holds for every task; and is to, once the person has seen it, because an assistant wrote it."""


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
    def embedded(self) -> str:
        """What is embedded of it: category, context, and the rule itself."""
        return _embedded(self.category, self.context, self.rule_text)

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

    @property
    def embedded(self) -> str:
        return _embedded(self.category, self.context, self.rule_text)


def _embedded(category: str, context: str, rule_text: str) -> str:
    return "\n".join(part for part in (f"{category}: {context}" if context else category, rule_text) if part)


def digest_of(rule_text: str) -> bytes:
    """Return the same for texts that differ only in case, accents, spaces and the full stop."""
    plain = " ".join(fold(rule_text).rstrip(" .!").split())
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_COLUMNS = (
    "rules.id, rule_text, category, context, relevance_score, last_applied, instructions_count, inserted_at, "
    "retired_at, project, globs, always_apply, made_by"
)
_RULE = f"select {_COLUMNS} from rules"


# ---------------------------------------------------------------- reading


def find_collection(connection: apsw.Connection) -> Collection | None:
    """Return the collection of the rules; None when there are none, or the caller may not see them."""
    return next(iter(visible_collections(connection, KIND)), None)


def is_hidden(connection: apsw.Connection) -> bool:
    """Return whether the caller may not see the rules that are there."""
    there = fetch_one(connection, "select 1 from collections where kind = ?", (KIND,))
    return bool(there) and find_collection(connection) is None


def load_rules(connection: apsw.Connection, rule_ids: Iterable[int], origin: str | None = None) -> dict[int, Rule]:
    """Return rule id -> rule, in the order asked for, without unknown ids.

    `origin` is the mounted file's name.
    """
    rows = ((row_id, fetch_one(connection, f"{_RULE} where id = ?", (row_id,))) for row_id in rule_ids)
    rules = {rule_id: Rule(*row, origin=origin) for rule_id, row in rows if row}
    return rules if origin is None else {rule_id: rule for rule_id, rule in rules.items() if _is_sound(rule)}


def load_embedded(
    connection: apsw.Connection, rule_ids: Sequence[int], origin: str | None = None
) -> list[tuple[Rule, bytes]]:
    """Return the rules of those ids that have a vector, by id, with it; `origin` is the mounted file's name."""
    sql = f"""
        select {_COLUMNS}, vectors.embedding from rules join vectors on vectors.id = rules.embedding
        where rules.id in (select value from carray(?)) order by rules.id
    """
    rows: list[Any] = fetch_all(connection, sql, (apsw.carray(array("q", rule_ids)),)) if rule_ids else []
    rules = [(Rule(*row, origin=origin), vector) for *row, vector in rows]
    return rules if origin is None else [(rule, vector) for rule, vector in rules if _is_sound(rule)]


def load_vectors(connection: apsw.Connection, limit: int) -> list[bytes]:
    """Return the vectors of the newest rules in force, float32."""
    sql = """
        select vectors.embedding from rules join vectors on vectors.id = rules.embedding
        where retired_at is null order by rules.id desc limit ?
    """
    return fetch_column(connection, sql, (limit,))


def _is_sound(rule: Rule) -> bool:
    """Return whether a mounted row is a rule at all; others are passed over."""
    texts: list[object] = [rule.rule_text, rule.category, rule.context, rule.inserted_at, rule.globs_json]
    texts += [text for text in (rule.project, rule.last_applied) if text is not None]
    numbers: list[object] = [rule.weight, rule.instructions_count]
    sound_numbers = all(isinstance(number, int | float) for number in numbers)
    return sound_numbers and all(isinstance(text, str) and len(text) <= MOST_CHARACTERS for text in texts)


def require_rule(connection: apsw.Connection, rule_id: int) -> Rule:
    """Return the rule of that id.

    Raises:
        NotFound: there is none that the caller may see.
    """
    rules = {} if is_hidden(connection) else load_rules(connection, [rule_id])
    if rule_id not in rules:
        raise NotFound(f"There is no rule {rule_id}.", hint="listRules shows them with their ids.")
    return rules[rule_id]


def find_same(connection: apsw.Connection, rule_text: str, project: str | None, *, other_than: int = 0) -> Rule | None:
    """Return the rule in force with the same text in the same project, of another id."""
    sql = f"{_RULE} where digest = ? and project is ? and retired_at is null and id <> ? limit 1"
    row = fetch_one(connection, sql, (digest_of(rule_text), project, other_than))
    return Rule(*row) if row else None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules; None = any."""

    category: str | None = None
    project: str | None = None
    """Rules of this project, and those of every project."""
    retired: bool | None = False
    """False: in force, True: retired, None: both."""
    words: str | None = None
    """Text that the rule or its context holds."""

    def condition(self) -> tuple[str, dict[str, Any]]:
        """SQL and its bindings."""
        parts = ["1"]
        if self.category is not None:
            parts.append("category = :category")
        if self.project is not None:
            parts.append("(project is null or project = :project)")
        if self.retired is not None:
            parts.append(f"retired_at is {'not ' if self.retired else ''}null")
        if self.words:
            parts.append("(instr(lower(rule_text), lower(:words)) or instr(lower(context), lower(:words)))")
        bindings = {"category": self.category, "project": self.project, "words": self.words}
        return " and ".join(parts), without_none(bindings)


def select_rules(connection: apsw.Connection, selection: Selection, limit: int = -1, offset: int = 0) -> list[Rule]:
    """Return the rules, newest first; a limit of -1 cuts nothing."""
    condition, bindings = selection.condition()
    sql = f"{_RULE} where {condition} order by id desc limit :limit offset :offset"
    return [Rule(*row) for row in fetch_all(connection, sql, {**bindings, "limit": limit, "offset": offset})]


def standing_rules(connection: apsw.Connection, selection: Selection, origin: str | None = None) -> list[Rule]:
    """Return the first twenty rules that hold for every task."""
    condition, bindings = selection.condition()
    # By itself SQLite would go through all rules in force.
    sql = f"select id from rules indexed by rules_always where always_apply = 1 and {condition} order by id limit 20"
    ids = [rule_id for (rule_id,) in fetch_all(connection, sql, bindings)]
    return list(load_rules(connection, ids, origin).values())


def has_rules(connection: apsw.Connection) -> bool:
    """Return whether any rule is in force."""
    return bool(fetch_one(connection, "select 1 from rules where retired_at is null limit 1"))


def unknown_category(connection: apsw.Connection, category: str | None) -> list[str]:
    """Return which categories there are, if this is none of them."""
    sql = "select distinct category from rules where retired_at is null order by category"
    categories = [row[0] for row in fetch_all(connection, sql)]
    if not category or not categories or category in categories:
        return []
    return [f"No rule has the category '{quoted(category)}'. {choices(categories)}"]


def count_rules(connection: apsw.Connection, selection: Selection) -> int:
    condition, bindings = selection.condition()
    return fetch_one(connection, f"select count(*) from rules where {condition}", bindings)


# ---------------------------------------------------------------- writing


def add_rule(connection: apsw.Connection, draft: RuleDraft) -> Rule:
    """Store a rule and its instruction; the vector follows with `store_vectors`. Part of the transaction.

    Raises:
        NotFound: the scope may not see the rules.
    """
    ensure_collection(connection, COLLECTION, kind=KIND)
    instruction_id = _insert_instruction(connection, draft)
    row = _columns(draft)
    origin = {"created_from_instruction_id": instruction_id, "instructions_count": 1, "inserted_at": row["updated_at"]}
    rule_id = insert_row(connection, "rules", {**row, **origin})
    connection.execute("update user_instructions set rule_id = ? where id = ?", (rule_id, instruction_id))
    bump_generations(connection, "content")
    return load_rules(connection, [rule_id])[rule_id]


def count_instruction(connection: apsw.Connection, rule_id: int, draft: RuleDraft) -> None:
    """Count the instruction of a draft towards a rule that is there."""
    _insert_instruction(connection, draft, rule_id)
    connection.execute("update rules set instructions_count = instructions_count + 1 where id = ?", (rule_id,))


def change_rule(connection: apsw.Connection, rule: Rule, draft: RuleDraft) -> None:
    """Write other columns; the rule as it was is in the trash, and a vector of another text is gone."""
    _put_into_trash(connection, rule)
    columns = _columns(draft)
    changes = ", ".join(f"{column} = :{column}" for column in columns)
    connection.execute(f"update rules set {changes} where id = :id", {**columns, "id": rule.id})
    if draft.embedded != rule.embedded:
        _forget_vectors(connection, [rule.id])
    bump_generations(connection, "content", "signs")


def retire_rule(connection: apsw.Connection, rule_id: int) -> None:
    """Take a rule out of every search; text and history stay."""
    connection.execute("update rules set retired_at = ? where id = ?", (utc_now(), rule_id))
    _forget_vectors(connection, [rule_id])
    bump_generations(connection, "content", "signs")


def restore_rule(connection: apsw.Connection, rule: Rule) -> None:
    """Bring a retired rule back; its vector is to be made.

    Raises:
        InvalidInput: another rule in force says the same.
    """
    _refuse_twin(connection, rule.id, rule.rule_text, rule.project)
    connection.execute("update rules set retired_at = null where id = ?", (rule.id,))
    bump_generations(connection, "content", "signs")


def let_seen_rules_hold(connection: apsw.Connection, rule_ids: Iterable[int]) -> None:
    """Let rules that an assistant wrote for every task hold from now on: the person has seen them."""
    sql = "update rules set always_apply = ? where id = ? and always_apply = ?"
    connection.executemany(sql, ((ALWAYS, rule_id, ALWAYS_ONCE_SEEN) for rule_id in rule_ids))
    bump_generations(connection, "content")


def _refuse_twin(connection: apsw.Connection, rule_id: int, rule_text: str, project: str | None) -> None:
    if twin := find_same(connection, rule_text, project, other_than=rule_id):
        raise InvalidInput(
            f"Rule {twin.id} says the same and is in force: “{twin.rule_text}”.",
            hint=f"To have rule {rule_id} back instead, retire or delete rule {twin.id} first.",
        )


def delete_rule(connection: apsw.Connection, rule: Rule) -> None:
    """Put a rule into the trash with what was reported of it; its instructions stay."""
    _put_into_trash(connection, rule)
    _forget_vectors(connection, [rule.id])
    # The rule names the instruction it came from, and an instruction the rule it was counted to.
    connection.execute("delete from rules where id = ?", (rule.id,))
    bump_generations(connection, "content", "signs")


_TRASHED = (
    "id", "rule_text", "category", "context", "relevance_score", "created_from_instruction_id", "last_applied",
    "instructions_count", "inserted_at", "updated_at", "retired_at", "project", "globs", "always_apply", "made_by",
)  # fmt: skip
_USE = ("id", "occasion", "task", "useful", "used_at")


def _put_into_trash(connection: apsw.Connection, rule: Rule) -> None:
    """Keep a rule as it is, with its uses and instructions."""
    columns = ", ".join(_TRASHED)
    row = fetch_all(connection, f"select {columns} from rules where id = ?", (rule.id,))[0]
    uses = fetch_all(connection, f"select {', '.join(_USE)} from rule_uses where rule_id = ? order by id", (rule.id,))
    instructions = fetch_column(connection, "select id from user_instructions where rule_id = ?", (rule.id,))
    content = {"row": dict(zip(_TRASHED, row, strict=True)), "uses": uses, "instructions": instructions}
    put_into_trash(connection, "rule", rule.rule_text, content, COLLECTION)


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a rule back from the trash as it was; the version that is there meanwhile goes there.

    It has no vector then. Uses and instructions are again those of the time, also where another rule had got them.

    Raises:
        InvalidInput: another rule in force says the same.
    """
    content = read_trashed(connection, entry)
    row: dict[str, Any] = {**content["row"], "digest": digest_of(content["row"]["rule_text"])}
    rule_id: int = row["id"]
    if row["retired_at"] is None:
        _refuse_twin(connection, rule_id, row["rule_text"], row["project"])
    if present := load_rules(connection, [rule_id]).get(rule_id):
        _put_into_trash(connection, present)
        _forget_vectors(connection, [rule_id])
    upsert_rows(connection, "rules", ("id",), [row])
    connection.execute("delete from rule_uses where rule_id = ?", (rule_id,))
    uses = [{"rule_id": rule_id, **dict(zip(_USE, use, strict=True))} for use in content["uses"]]
    upsert_rows(connection, "rule_uses", ("id",), uses)
    connection.execute("update user_instructions set rule_id = null where rule_id = ?", (rule_id,))
    sql = "update user_instructions set rule_id = ? where id in (select value from json_each(?))"
    connection.execute(sql, (rule_id, json.dumps(content["instructions"])))
    bump_generations(connection, "content", "signs")


def _insert_instruction(connection: apsw.Connection, draft: RuleDraft, rule_id: int | None = None) -> int:
    row = {"context": draft.context, "origin": draft.origin, "inserted_at": utc_now(), "rule_id": rule_id}
    return insert_row(connection, "user_instructions", {"instruction": draft.instruction or draft.rule_text, **row})


def _columns(draft: RuleDraft) -> dict[str, Any]:
    scope = current_scope()
    always = ALWAYS if scope.trusted else ALWAYS_ONCE_SEEN
    return {
        "rule_text": draft.rule_text,
        "category": draft.category,
        "context": draft.context,
        "relevance_score": draft.weight,
        "project": draft.project,
        "globs": json.dumps(list(draft.globs), ensure_ascii=False),
        "always_apply": always if draft.always_apply else 0,
        "digest": digest_of(draft.rule_text),
        "updated_at": utc_now(),
        "made_by": None if scope.trusted else scope.caller,
    }


# ---------------------------------------------------------------- vectors


def store_vectors(connection: apsw.Connection, model_id: int, embeddings: Mapping[int, bytes]) -> None:
    """Store rule id -> float32 vector, for rules that have none. Part of the caller's write transaction.

    Raises:
        ModelMismatch: the vectors that are there come from another model.
    """
    collection = claim_collection(connection, ensure_collection(connection, COLLECTION, kind=KIND), model_id)
    rule_ids = {_VECTOR_IDS + row_id: row_id for row_id in embeddings}
    made = {key: vector.Made(embeddings[row_id]) for key, row_id in rule_ids.items()}
    vector.write_vectors(connection, model_id, made)
    vector.add_signs(connection, model_id, collection.id, rule_ids)
    connection.executemany(
        "update rules set embedding = ? where id = ?",
        ((vector.vector_id(model_id, key), row_id) for key, row_id in rule_ids.items()),
    )
    bump_generations(connection, "signs")


def rules_without_vector(connection: apsw.Connection, limit: int) -> list[Rule]:
    """Return rules in force that no model has read yet."""
    # The plus keeps SQLite from sorting all rules in force instead of reading the index of those without a vector.
    sql = f"{_RULE} where embedding is null and +retired_at is null order by id limit ?"
    return [Rule(*row) for row in fetch_all(connection, sql, (limit,))]


def forget_all_vectors(connection: apsw.Connection) -> None:
    """Take the vectors of all rules away, and the model they were bound to: another one is to read them."""
    _forget_vectors(connection, [row[0] for row in fetch_all(connection, "select id from rules")])
    connection.execute("update collections set model_id = null where kind = ?", (KIND,))
    bump_generations(connection, "content", "signs")


def rule_ids_of(vector_ids: Any) -> Any:
    """Return the rule's id of a vector's id, or the ids of an array of them."""
    return vector_ids - _VECTOR_IDS


def _forget_vectors(connection: apsw.Connection, rule_ids: Sequence[int]) -> None:
    vector_ids = [_VECTOR_IDS + row_id for row_id in rule_ids]
    collection = find_collection(connection)
    if collection and collection.model_id is not None:
        vector.remove_signs(connection, collection.id, vector_ids)
    vector.remove_vectors(connection, vector_ids)
    connection.executemany("update rules set embedding = null where id = ?", ((row_id,) for row_id in rule_ids))


def is_bound_to(connection: apsw.Connection, collection: Collection, identity: ModelIdentity) -> bool:
    """Return whether the rules' vectors come from this model."""
    sql = "select fingerprint from models where id = ?"
    return fetch_one(connection, sql, (collection.model_id,)) == identity.fingerprint


def record_use(connection: apsw.Connection, rule_ids: Iterable[int], occasion: str, task: str, useful: bool) -> None:
    """Note that rules were applied together, or did not help (S2-16); it moves their weight between 0.5 and 1.5."""
    now = utc_now()
    for rule_id in rule_ids:
        use = {"rule_id": rule_id, "occasion": occasion, "task": task, "useful": int(useful), "used_at": now}
        insert_row(connection, "rule_uses", use)
        connection.execute(
            """
            update rules set last_applied = iif(:useful, :used_at, last_applied),
                relevance_score = max(0.5, min(max(1.5, relevance_score), relevance_score + iif(:useful, 0.05, -0.1)))
            where id = :rule_id
            """,
            use,
        )


def rules_used_with(connection: apsw.Connection, rule_ids: Sequence[int], limit: int) -> list[tuple[Rule, int]]:
    """Other rules in force that were applied together with these at least twice, and how often (S2-15)."""
    if not rule_ids:
        return []
    marks = ",".join("?" * len(rule_ids))
    rows = fetch_all(
        connection,
        f"""
        select other.rule_id, count(distinct other.occasion) as times
        from rule_uses as ours
        join rule_uses as other on other.occasion = ours.occasion and other.useful = 1
        join rules on rules.id = other.rule_id and retired_at is null
        where ours.useful = 1 and ours.rule_id in ({marks}) and other.rule_id not in ({marks})
        group by 1 having times >= 2 order by times desc, 1 limit ?
        """,
        (*rule_ids, *rule_ids, limit),
    )
    rules_by_id = load_rules(connection, [row[0] for row in rows])
    return [(rules_by_id[rule_id], times) for rule_id, times in rows if rule_id in rules_by_id]
