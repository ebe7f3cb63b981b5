"""Tools that change, merge, retire and delete rules, and record whether they helped."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, cast

from typing_extensions import TypedDict

from localmcp.errors import InvalidInput
from localmcp.index.federation import never_changed
from localmcp.rules import rulebook
from localmcp.rules.catalog import (
    LONGEST_CONTEXT,
    LONGEST_RULE,
    RuleAnswer,
    RuleCatalog,
    check_draft,
    require_rule,
)
from localmcp.tools import Param, hidden_change, integer_or_string, without_none


def own_rule_id(name: str, value: Any) -> Any:
    """Return the number of a rule to be changed, also from text; never of a mounted one (`team:5`)."""
    if _is_mounted(value):
        raise never_changed(f"Rule {value}", value.rpartition(":")[0])
    return integer_or_string(name, value)


def own_rule_ids(name: str, value: Any) -> Any:
    """Return the same for a list, without mounted rules: reports about those are not kept."""
    if not isinstance(value, list):
        return value
    rule_ids = cast("list[Any]", value)
    return [item for item in rule_ids if not _is_mounted(item)] or [own_rule_id(name, item) for item in rule_ids]


def _is_mounted(rule_id: Any) -> bool:
    if not isinstance(rule_id, str):
        return False
    origin, _, number = rule_id.rpartition(":")
    return bool(origin) and number.isdecimal()


class UseAnswer(TypedDict):
    """The answer of `reportRuleUse`."""

    success: bool
    recorded: list[int]
    weights: dict[str, float]


class RuleEditor:
    """Changes rules that are there."""

    def __init__(self, catalog: RuleCatalog) -> None:
        self._catalog = catalog
        self._database = catalog.database

    @hidden_change(
        "editRule",
        title="Change a rule",
        keywords=("rule", "update", "correct", "rephrase", "weight", "importance"),
        examples=(
            "change rule {id} to {rule_text}",
            "change the text of rule {id} to {rule_text}",
            "change rule {id} text to {rule_text}",
            "set the weight of rule {id} to {weight}",
            "change the category of rule {id} to {category}",
            "set rule {id} weight to {weight}",
            "make rule {id} more important {weight=1.5}",
            "make rule {id} less important {weight=0.5}",
            "change rule {id} category to {category}",
        ),
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def edit_rule(
        self,
        id: Annotated[int, Param("Id of the rule")],  # noqa: A002
        rule_text: Annotated[str | None, Param("Other words", min_length=1, max_length=LONGEST_RULE)] = None,
        category: Annotated[str | None, Param("Another category")] = None,
        context: Annotated[str | None, Param("When it matters: tasks, other words", max_length=LONGEST_CONTEXT)] = None,
        project: Annotated[str | None, Param("Only this project; empty = every one")] = None,
        globs: Annotated[list[str] | None, Param("Files it is about; an empty list = any")] = None,
        alwaysApply: Annotated[bool | None, Param("Holds for every task")] = None,
        weight: Annotated[float | None, Param("Importance, 1 = ordinary", minimum=0, maximum=2)] = None,
    ) -> RuleAnswer:
        """Change a rule; what is left out stays."""
        changed_fields = {
            "rule_text": rule_text.strip() if rule_text else None,
            "category": category.strip().lower() if category else None,
            "context": context.strip() if context is not None else None,
            "globs": tuple(globs) if globs is not None else None,
            "always_apply": alwaysApply,
            "weight": weight,
        }
        changes = without_none(changed_fields)
        if project is not None:
            changes["project"] = project or None
        if not changes:
            raise InvalidInput("Nothing to change: give at least one of the fields besides id.")
        with self._database.write() as connection:
            rule = require_rule(connection, id)
            draft = rulebook.draft_of(rule, **changes)
            check_draft(draft)
            rulebook.change_rule(connection, rule, draft)
        notice = self._catalog.embed_missing_or_say()
        answer = self._catalog.answer(id, f"Rule {id} changed.")
        return {**answer, "notice": notice} if notice else answer

    @hidden_change(
        "mergeRules",
        title="Merge two rules",
        keywords=("rule", "duplicate", "combine", "consolidate"),
        examples=("merge rule {source} into rule {target}",),
        accepts={"source": own_rule_id, "target": own_rule_id},
    )
    def merge_rules(
        self,
        source: Annotated[int, Param("Rule that is retired")],
        target: Annotated[int, Param("Rule that gets its instructions and uses")],
    ) -> RuleAnswer:
        """Merge one rule into another that says the same: counts and history move, the first is
        retired. Both are in the trash as they were; restoreRule brings the first back."""
        if source == target:
            raise InvalidInput(f"source and target are both {source}; name two rules.")
        with self._database.write() as connection:
            rulebook.merge_rules(connection, require_rule(connection, source), require_rule(connection, target))
        return self._catalog.answer(target, f"Rule {source} was merged into rule {target}.")

    @hidden_change(
        "retireRule",
        title="Retire a rule",
        keywords=("rule", "disable", "archive", "obsolete"),
        examples=("retire rule {id}", "rule {id} no longer holds"),
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def retire_rule(self, id: Annotated[int, Param("Id of the rule")]) -> RuleAnswer:  # noqa: A002
        """Take a rule out of use; it can be restored."""
        with self._database.write() as connection:
            if require_rule(connection, id).retired_at is None:
                rulebook.retire_rule(connection, id)
        return self._catalog.answer(id, f"Rule {id} is retired.")

    @hidden_change(
        "restoreRule",
        title="Restore a retired rule",
        keywords=("rule", "enable", "undo"),
        examples=("restore rule {id}", "put rule {id} back"),
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def restore_rule(self, id: Annotated[int, Param("Id of the rule")]) -> RuleAnswer:  # noqa: A002
        """Bring a retired rule back into use."""
        with self._database.write() as connection:
            rule = require_rule(connection, id)
            if rule.retired_at is not None:
                rulebook.restore_rule(connection, rule)
        notice = self._catalog.embed_missing_or_say()
        answer = self._catalog.answer(id, f"Rule {id} is in force again.")
        return {**answer, "notice": notice} if notice else answer

    @hidden_change(
        "deleteRule",
        title="Delete a rule",
        keywords=("rule", "remove", "forget"),
        examples=("delete rule {id}", "forget rule {id}"),
        destructive=True,
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def delete_rule(self, id: Annotated[int, Param("Id of the rule")]) -> RuleAnswer:  # noqa: A002
        """Put a rule into the trash, with the record of its use; to set it aside, retire it instead."""
        with self._database.write() as connection:
            rule = require_rule(connection, id)
            rulebook.delete_rule(connection, rule)
        return {"success": True, "message": f"Rule {id} is in the trash: “{rule.rule_text}”."}

    @hidden_change(
        "reportRuleUse",
        title="Report that rules were applied",
        keywords=("rule", "applied", "useful", "feedback", "not useful"),
        examples=(
            "rule {ruleIds} was applied|useful",
            "rule {ruleIds} was not useful|helpful {useful=false}",
            "rule {ruleIds} did not help {useful=false}",
        ),
        accepts={"ruleIds": own_rule_ids},
    )
    def report_use(
        self,
        ruleIds: Annotated[list[int], Param("Rules of one task", min_length=1, max_length=100)],
        useful: Annotated[bool, Param("false: they did not fit the task")] = True,
        task: Annotated[str, Param("What was done", max_length=10_000)] = "",
    ) -> UseAnswer:
        """Report which rules a task applied, or which did not help: those that are applied come first next time, and
        those applied together are suggested together."""
        with self._database.write() as connection:
            ids = [require_rule(connection, row_id).id for row_id in dict.fromkeys(ruleIds)]
            rulebook.record_use(connection, ids, uuid.uuid4().hex, task, useful)
            weights = {str(row_id): round(require_rule(connection, row_id).weight, 2) for row_id in ids}
        return {"success": True, "recorded": ids, "weights": weights}
