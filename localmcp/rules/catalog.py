"""The rules a person keeps: added unless one says the same, changed, retired, deleted, listed, imported, embedded."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import apsw

from localmcp.errors import AccessDenied, FileUnavailable, InvalidInput, LocalMCPError, ModelMismatch, ModelUnavailable
from localmcp.humanize import quoted
from localmcp.index.collections import ensure_collection
from localmcp.index.federation import MountedFile, never_changed
from localmcp.index.search import Index
from localmcp.models import Embedder
from localmcp.rules import rulebook
from localmcp.rules.files import FILE_NAMES, Format, read_file, read_text, rule_files_in, write_rules
from localmcp.rules.finder import RuleFinder, read_pattern
from localmcp.rules.learning import normalize, weigh
from localmcp.rules.rulebook import Rule, RuleDraft, Selection, require_rule
from localmcp.schemas import without_none
from localmcp.storage.database import (
    Database,
    bump_generations,
    fetch_all,
    fetch_column,
    fetch_one,
    insert_row,
    upsert_rows,
)
from localmcp.storage.schema import utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed
from localmcp.tools import Answer, Json, Param, current_scope, hidden_change, hidden_tool, integer_or_string
from localmcp.wording.normalize import runs

EMBEDDED_AT_ONCE = 256
LONGEST_RULE, LONGEST_CONTEXT = 2_000, 1_000

OnDuplicate = Literal["ask", "count", "add"]


def own_rule_id(name: str, value: Any) -> Any:
    """Return the number of a rule to be changed, also from text; never of a mounted one (`team:5`).

    Of a list those are left out where there are others: reports about them are not kept.
    """
    if isinstance(value, list):
        items = cast("list[Any]", value)
        own = [item for item in items if not re.fullmatch(r".*:\d+", str(item))]
        return own or [own_rule_id(name, item) for item in items]
    if re.fullmatch(r".*:\d+", str(value)):
        raise never_changed(f"Rule {value}", value.rpartition(":")[0])
    return integer_or_string(name, value)


class RuleCatalog:
    """Keeps the rules. Thread-safe."""

    def __init__(self, database: Database, index: Index, finder: RuleFinder) -> None:
        self.database = database
        self.finder = finder
        self._embedder = index.embedder

    @hidden_change(
        "addRule",
        title="Add a rule",
        keywords=("rule", "guideline", "convention", "save", "new"),
        examples=("add the rule {rule_text}", "save this convention: {rule_text}"),
        lean=lambda answer: Answer(
            answer, " ".join(filter(None, (answer["message"], answer.get("notice")))), whole_text=True
        ),
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
    ) -> Json:
        """Add a rule of the developer. When one that says nearly the same is there, it is shown instead: call again
        with onDuplicate count or add."""
        draft = RuleDraft(
            rule_text.strip(),
            (category or "").strip().lower() or rulebook.GENERAL,
            context.strip(),
            project=project or None,
            globs=tuple(globs or ()),
            always_apply=alwaysApply,
            weight=weight,
        )
        return self.add(draft, onDuplicate)

    def add(self, draft: RuleDraft, on_duplicate: OnDuplicate = "ask") -> Json:
        """Store a rule, unless one says the same and `on_duplicate` is not `add`; raises InvalidInput if it is none."""
        _check_draft(draft)
        twin, cosine = None, 1.0
        if on_duplicate != "add":
            with self.database.read() as connection:
                twin = rulebook.find_same(connection, draft.rule_text, draft.project)
            if twin is None and (embedder := self.model()):
                from rapidfuzz import fuzz

                vector = embedder.embed_passages([rulebook.embedded_text(draft)])[0].astype("<f4")
                for rule, cosine in self.finder.find_similar_rules(vector, 3, 0.75):
                    # Rules with opposite meaning use the same words: "tabs, not spaces".
                    alike = fuzz.token_set_ratio(rule.rule_text.lower(), draft.rule_text.lower())
                    if rule.project == draft.project and (cosine >= 0.9 or alike >= 85):
                        twin = rule
                        break
        if twin is None:
            [rule] = self.store([draft])
            return self._answer(rule.id, f"Rule {rule.id} added ({rule.category}).")
        if on_duplicate == "ask":
            return {
                "success": False,
                "message": f"Rule {twin.id} says nearly the same: “{twin.rule_text.rstrip('.')}”. "
                "Call again with onDuplicate count (count it instead) or add.",
                "duplicate": shown_rule(twin),
                "similarity": round(cosine, 4),
            }
        with self.database.write() as connection:
            _insert_instruction(connection, draft, twin.id)
            sql = "update rules set instructions_count = instructions_count + 1 where id = ?"
            connection.execute(sql, (twin.id,))
        counted = self._answer(twin.id, f"Counted towards rule {twin.id}, which says the same.", embed=False)
        return {**counted, "similarity": round(cosine, 4)}

    def store(self, drafts: Sequence[RuleDraft]) -> list[Rule]:
        """Store rules with their instructions in one transaction, and embed them if the model is there.

        Raises NotFound if the scope may not see the rules.
        """
        rule_ids: list[int] = []
        with self.database.write() as connection:
            ensure_collection(connection, rulebook.COLLECTION, kind=rulebook.KIND)
            for draft in drafts:
                instruction_id, row = _insert_instruction(connection, draft), _columns(draft)
                origin = {"created_from_instruction_id": instruction_id, "instructions_count": 1}
                rule_ids.append(insert_row(connection, "rules", {**row, **origin, "inserted_at": row["updated_at"]}))
                sql = "update user_instructions set rule_id = ? where id = ?"
                connection.execute(sql, (rule_ids[-1], instruction_id))
            bump_generations(connection, "content")
            rules = list(rulebook.load_rules(connection, rule_ids).values())
        self.embed_missing_or_say()
        return rules

    @hidden_change(
        "rememberDeveloperInstruction",
        title="Remember an instruction",
        keywords=("remember", "learn", "rule", "instruction", "preference", "correction", "feedback"),
        examples=("remember to {instruction}", "from now on {instruction}", "remember that we {instruction}"),
        text=lambda answer: answer["message"],
        on_error=lambda error: {"success": False, "stored": False, "message": str(error), "error": str(error)},
    )
    def remember(
        self,
        instruction: Annotated[str, Param("What the developer said", max_length=LONGEST_RULE)],
        context: Annotated[str, Param("What was worked on, in words to find it by", max_length=LONGEST_CONTEXT)] = "",
        project: Annotated[str | None, Param("Holds in this project only")] = None,
    ) -> Json:
        """Remember a general instruction or correction of the developer as a rule for later tasks. What is meant for
        the moment only is not stored, with the reason; what a rule says already is counted towards it."""
        instruction, context = instruction.strip(), context.strip()
        if not instruction:
            raise InvalidInput("Error: instruction cannot be empty")
        text = normalize(instruction)
        embedder = self.model()
        score, reason = weigh(instruction, embedder)
        if score > 0 and len(runs(text)) < 2:
            score, reason = 0.0, "it says too little"
        if score <= 0:
            return {"success": True, "stored": False, "message": f"No rule generated. Reason: {reason}"}
        category = "best-practices"
        if embedder:
            [meaning] = embedder.embed_passages([f"{context}\n{text}".strip()])
            category = list(rulebook.CATEGORIES)[int((self.finder.categories() @ meaning).argmax())]
        draft = RuleDraft(text, category, context, instruction, "remembered", project=project or None)
        try:
            answer = self.add(draft, "count")
        except LocalMCPError as error:
            raise ModelUnavailable(f"Failed to create rule with embedding: {error.message}", hint=error.hint) from error
        rule = answer["rule"]
        with self.database.read() as connection:
            sql = "select max(id) from user_instructions where rule_id = ?"
            instruction_id: int = fetch_one(connection, sql, (rule["id"],))
        message = (
            f'Instruction processed successfully. Generated rule: "{rule["rule_text"]}" '
            f"(category: {rule['category']}). Rule ID: {rule['id']}, Instruction ID: {instruction_id}"
        )
        stored: Json = {"success": True, "stored": True, "message": message, "rule": rule["rule_text"]}
        stored.update({"category": rule["category"], "ruleId": rule["id"], "instructionId": instruction_id})
        # Where a rule said the same already, the instruction was counted towards it.
        return {**stored, "counted": True} if "similarity" in answer else stored

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
    ) -> Json:
        """Change a rule; what is left out stays."""
        if all(value is None for value in (rule_text, category, context, project, globs, alwaysApply, weight)):
            raise InvalidInput("Nothing to change: give at least one of the fields besides id.")
        with self.database.write() as connection:
            rule = require_rule(connection, id)
            draft = RuleDraft(
                rule_text.strip() if rule_text else rule.rule_text,
                category.strip().lower() if category else rule.category,
                rule.context if context is None else context.strip(),
                project=rule.project if project is None else project or None,
                globs=tuple(rule.globs if globs is None else globs),
                always_apply=bool(rule.always_apply) if alwaysApply is None else alwaysApply,
                weight=rule.weight if weight is None else weight,
            )
            _check_draft(draft)
            _put_into_trash(connection, rule)
            columns = _columns(draft)
            changes = ", ".join(f"{column} = :{column}" for column in columns)
            connection.execute(f"update rules set {changes} where id = :id", {**columns, "id": rule.id})
            if rulebook.embedded_text(draft) != rulebook.embedded_text(rule):
                rulebook.forget_vectors(connection, [rule.id])
            bump_generations(connection, "content", "signs")
        return self._answer(id, f"Rule {id} changed.")

    @hidden_change(
        "retireRule",
        title="Retire a rule",
        keywords=("rule", "disable", "archive", "obsolete"),
        examples=("retire rule {id}", "rule {id} no longer holds"),
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def retire_rule(self, id: Annotated[int, Param("Id of the rule")]) -> Json:  # noqa: A002
        """Take a rule out of use; it can be restored."""
        with self.database.write() as connection:
            if require_rule(connection, id).retired_at is None:
                connection.execute("update rules set retired_at = ? where id = ?", (utc_now(), id))
                rulebook.forget_vectors(connection, [id])
        return self._answer(id, f"Rule {id} is retired.", embed=False)

    @hidden_change(
        "restoreRule",
        title="Restore a retired rule",
        keywords=("rule", "enable", "undo"),
        examples=("restore rule {id}", "put rule {id} back"),
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def restore_rule(self, id: Annotated[int, Param("Id of the rule")]) -> Json:  # noqa: A002
        """Bring a retired rule back into use."""
        with self.database.write() as connection:
            rule = require_rule(connection, id)
            if rule.retired_at is not None:
                rulebook.refuse_twin(connection, rule.id, rule.rule_text, rule.project)
                connection.execute("update rules set retired_at = null where id = ?", (id,))
                bump_generations(connection, "content", "signs")
        return self._answer(id, f"Rule {id} is in force again.")

    @hidden_change(
        "deleteRule",
        title="Delete a rule",
        keywords=("rule", "remove", "forget"),
        examples=("delete rule {id}", "forget rule {id}"),
        destructive=True,
        idempotent=True,
        accepts={"id": own_rule_id},
    )
    def delete_rule(self, id: Annotated[int, Param("Id of the rule")]) -> Json:  # noqa: A002
        """Put a rule into the trash, with the record of its use; to set it aside, retire it instead."""
        with self.database.write() as connection:
            rule = require_rule(connection, id)
            _put_into_trash(connection, rule)
            rulebook.forget_vectors(connection, [rule.id])
            # Its instructions stay: another rule may have been counted from one of them.
            connection.execute("delete from rules where id = ?", (rule.id,))
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
        accepts={"ruleIds": own_rule_id},
    )
    def report_use(
        self,
        ruleIds: Annotated[list[int], Param("Rules of one task", min_length=1, max_length=100)],
        useful: Annotated[bool, Param("false: they did not fit the task")] = True,
        task: Annotated[str, Param("What was done", max_length=10_000)] = "",
    ) -> Json:
        """Report which rules a task applied, or which did not help: those that are applied come first next time, and
        those applied together are suggested together."""
        now, occasion = utc_now(), uuid.uuid4().hex
        # S2-16: a report moves the weight between 0.5 and 1.5.
        sql = """
            update rules set last_applied = iif(:useful, :used_at, last_applied),
                relevance_score = max(0.5, min(max(1.5, relevance_score), relevance_score + iif(:useful, 0.05, -0.1)))
            where id = :rule_id
        """
        with self.database.write() as connection:
            ids = [require_rule(connection, row_id).id for row_id in dict.fromkeys(ruleIds)]
            for rule_id in ids:
                use = {"rule_id": rule_id, "occasion": occasion, "task": task, "useful": int(useful), "used_at": now}
                insert_row(connection, "rule_uses", use)
                connection.execute(sql, use)
            weights = {str(row_id): round(require_rule(connection, row_id).weight, 2) for row_id in ids}
        return {"success": True, "recorded": ids, "weights": weights}

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
    ) -> Json:
        """List the developer's rules, newest first."""
        selection = Selection(category, project, retired, words)
        condition, bindings = selection.condition()

        def look(file: MountedFile, theirs: apsw.Connection) -> tuple[list[Rule], int] | None:
            """Return the newest rules that yours lacks, and how many there are."""
            held = set(fetch_all(connection, "select digest, project from rules"))
            rows = fetch_all(theirs, f"select id, digest, project from rules where {condition}", bindings)
            ids = sorted((rule_id for rule_id, *same in rows if tuple(same) not in held), reverse=True)
            return [*rulebook.load_rules(theirs, ids[: offset + limit], file.name).values()], len(ids)

        with self.database.read() as connection:
            if rulebook.is_hidden(connection):
                return {"count": 0, "total": 0, "rules": []}
            mounted = [] if retired else self.finder.federation.read_mounted(look)
            own = rulebook.select_rules(connection, selection, offset + limit)
            total = fetch_one(connection, f"select count(*) from rules where {condition}", bindings)
            total += sum(number for _, number in mounted)
            notices = rulebook.unknown_category(connection, category) if not total else []
        newest = merge(own, *(rules for rules, _ in mounted), key=lambda rule: rule.inserted_at, reverse=True)
        rules = list(islice(newest, offset, offset + limit))
        waiting = [rule.id for rule in rules if rule.always_apply == rulebook.ALWAYS_ONCE_SEEN and rule.origin is None]
        if waiting and current_scope().trusted:
            # The person sees them here. In a file that is write-protected they wait on.
            with suppress(FileUnavailable), self.database.write() as connection:
                sql = "update rules set always_apply = ? where id = ?"
                connection.executemany(sql, ((rulebook.ALWAYS, rule_id) for rule_id in waiting))
                bump_generations(connection, "content")
        result: Json = {"count": len(rules), "total": total, "rules": [shown_rule(rule) for rule in rules]}
        return without_none({**result, "notices": notices or None})

    @hidden_change(
        "importRules",
        title="Import rules",
        keywords=("rules", "CLAUDE.md", "AGENTS.md", "cursorrules", "copilot", "load"),
        examples=("import the rules from {path}",),
        idempotent=True,
    )
    def import_rules(
        self,
        path: Annotated[str | None, Param("File, or project folder; only for the person at the machine")] = None,
        text: Annotated[str | None, Param("The rules themselves", max_length=5_000_000)] = None,
        format: Annotated[Format, Param("Form of text")] = "markdown",  # noqa: A002
        project: Annotated[str | None, Param("They hold in this project only")] = None,
    ) -> Json:
        """Import rules from CLAUDE.md, AGENTS.md, .cursorrules, .cursor/rules/*.mdc, Copilot instructions, Markdown
        lists or JSON Lines. Known rules are left as they are; what cannot be read is reported with its line."""
        if (path is None) == (text is None):
            raise InvalidInput("Give either path or text.")
        if text is not None:
            readings = [("text", read_text(text, Path(FILE_NAMES[format]).name, "text"))]
        elif current_scope().trusted:
            readings = [(str(file), read_file(file)) for file in rule_files_in(Path(path or ""))]
        else:
            raise AccessDenied("Files are imported by the person at the machine; hand over text instead.")
        drafts = [replace(draft, project=draft.project or project) for _, (read, _) in readings for draft in read]
        fresh: dict[tuple[bytes, str | None], RuleDraft] = {}
        with self.database.read() as connection:
            for draft in drafts:
                if rulebook.find_same(connection, draft.rule_text, draft.project) is None:
                    fresh.setdefault((rulebook.digest_of(draft.rule_text), draft.project), draft)
        if fresh:
            self.store([*fresh.values()])
        skipped = [problem for _, (_, problems) in readings for problem in problems]
        nothing = "no rules in it: a rule is a list item, such as “- Use tabs.”"
        skipped += [{"where": name, "problem": nothing} for name, reading in readings if reading == ([], [])]
        known_count, names = len(drafts) - len(fresh), [name for name, _ in readings]
        return {"added": len(fresh), "known": known_count, "files": names, "skipped": skipped}

    @hidden_tool(
        "exportRules",
        title="Export rules",
        keywords=("rules", "CLAUDE.md", "AGENTS.md", "cursorrules", "copilot", "save"),
        examples=("export the rules as {format}",),
    )
    def export_rules(
        self,
        format: Annotated[Format, Param("Form")] = "jsonl",  # noqa: A002
        category: Annotated[str | None, Param("Only this category")] = None,
        project: Annotated[str | None, Param("This project's and general ones")] = None,
        which: Annotated[Literal["inForce", "retired", "all"], Param("Which rules")] = "inForce",
    ) -> Json:
        """Return the rules as files that can be imported again."""
        selection = Selection(category, project, {"inForce": False, "retired": True, "all": None}[which])
        with self.database.read() as connection:
            hidden = rulebook.is_hidden(connection)
            rules = [] if hidden else rulebook.select_rules(connection, selection)
            notices = [] if hidden or rules else rulebook.unknown_category(connection, category)
        files = [{"name": name, "text": text} for name, text in write_rules(rules[::-1], format).items()]
        return without_none({"count": len(rules), "format": format, "files": files, "notices": notices or None})

    def model(self) -> Embedder | None:
        """Return the embedding model; None when it is not there."""
        with suppress(LocalMCPError):
            return self._embedder.get()
        return None

    def embed_missing(self, *, anew: bool = True) -> int:
        """Embed the rules that the model at hand has not read; returns how many. Raises ModelUnavailable.

        Those that another model has read are embedded `anew`, which may take long, or refused with ModelMismatch.
        """
        embedder = self._embedder.get()
        with self.database.read() as connection:
            is_foreign = rulebook.read_by(connection) not in (None, embedder.identity.fingerprint)
        if is_foreign and not anew:
            raise ModelMismatch("the vectors of the rules come from another model.")
        if is_foreign:
            with self.database.write() as connection:
                rulebook.switch_model(connection, embedder.identity)
        done = 0
        while True:
            with self.database.read() as connection:
                waiting = rulebook.rules_without_vector(connection, EMBEDDED_AT_ONCE)
            if not waiting:
                return done
            texts = list(map(rulebook.embedded_text, waiting))
            made = dict(zip(texts, embedder.embed_passages(texts).astype("<f4"), strict=True))
            with self.database.write() as connection:
                # Meanwhile other calls may have changed, deleted or embedded some of them.
                still = rulebook.rules_without_vector(connection, EMBEDDED_AT_ONCE)
                rows = {rule.id: made.get(rulebook.embedded_text(rule)) for rule in still}
                vectors = {rule_id: row.tobytes() for rule_id, row in rows.items() if row is not None}
                rulebook.store_vectors(connection, embedder.identity, vectors)
            done += len(vectors)

    def embed_missing_or_say(self) -> str:
        """Embed what was changed; return why it was not."""
        try:
            self.embed_missing(anew=False)
        except LocalMCPError as error:
            return f"Not found until `localmcp reembed`: {error.message}"
        return ""

    def _answer(self, rule_id: int, message: str, *, embed: bool = True) -> Json:
        """Return the status of a rule, with what keeps it from being found or from holding; `embed` what is missing."""
        notice = self.embed_missing_or_say() if embed else ""
        with self.database.read() as connection:
            rule = require_rule(connection, rule_id)
        seen = "It holds for every task once the person has seen it: `localmcp rules list`, or the pane Rules."
        notices = " ".join(filter(None, [notice, seen if rule.always_apply == rulebook.ALWAYS_ONCE_SEEN else ""]))
        return without_none({"success": True, "message": message, "rule": shown_rule(rule), "notice": notices or None})


def shown_rule(rule: Rule) -> Json:
    """Return a rule as lists show it; what is usual is left out."""
    always, weight = bool(rule.always_apply) or None, {"weight": round(rule.weight, 2)}
    return rule.as_json(weight, always_apply=always, made_by=rule.made_by, retired_at=rule.retired_at)


def _check_draft(draft: RuleDraft) -> None:
    if not draft.rule_text.strip():
        raise InvalidInput(f"rule_text is {draft.rule_text!r}, but must say something.")
    if len(draft.category) > 40:
        raise InvalidInput(
            f"category: '{draft.category[:40]}…' is too long; usual are {', '.join(rulebook.CATEGORIES)}."
        )
    if unreadable := next((glob for glob in draft.globs if read_pattern(glob) is None), None):
        hint = "Write patterns as in .gitignore, such as src/**/*.py, with / between folders."
        raise InvalidInput(f"globs: '{quoted(unreadable)}' is no pattern.", hint=hint)


# ---------------------------------------------------------------- rows


def _insert_instruction(connection: apsw.Connection, draft: RuleDraft, rule_id: int | None = None) -> int:
    row = {"context": draft.context, "origin": draft.origin, "inserted_at": utc_now(), "rule_id": rule_id}
    return insert_row(connection, "user_instructions", {"instruction": draft.instruction or draft.rule_text, **row})


def _columns(draft: RuleDraft) -> dict[str, Any]:
    scope = current_scope()
    always = rulebook.ALWAYS if scope.trusted else rulebook.ALWAYS_ONCE_SEEN
    return {
        "rule_text": draft.rule_text,
        "category": draft.category,
        "context": draft.context,
        "relevance_score": draft.weight,
        "project": draft.project,
        "globs": json.dumps(list(draft.globs), ensure_ascii=False),
        "always_apply": always if draft.always_apply else 0,
        "digest": rulebook.digest_of(draft.rule_text),
        "updated_at": utc_now(),
        "made_by": None if scope.trusted else scope.caller,
    }


def _put_into_trash(connection: apsw.Connection, rule: Rule) -> None:
    def rows(table: str, key: str) -> list[Json]:
        sql = "select name from pragma_table_info(?) where name not in ('embedding', 'digest')"
        names: list[str] = fetch_column(connection, sql, (table,))
        table_rows = fetch_all(connection, f"select {', '.join(names)} from {table} where {key} = ?", (rule.id,))
        return [dict(zip(names, row, strict=True)) for row in table_rows]

    instructions = fetch_column(connection, "select id from user_instructions where rule_id = ?", (rule.id,))
    content = {"row": rows("rules", "id")[0], "uses": rows("rule_uses", "rule_id"), "instructions": instructions}
    put_into_trash(connection, "rule", rule.rule_text, content, rulebook.COLLECTION)


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a rule back from the trash as it was, without a vector; the version that is there meanwhile goes there.

    Uses and instructions are again those of the time, also where another rule had got them. Raises InvalidInput if
    another rule in force says the same.
    """
    content = read_trashed(connection, entry)
    row: dict[str, Any] = {**content["row"], "digest": rulebook.digest_of(content["row"]["rule_text"])}
    rule_id: int = row["id"]
    if row["retired_at"] is None:
        rulebook.refuse_twin(connection, rule_id, row["rule_text"], row["project"])
    if present := rulebook.load_rules(connection, [rule_id]).get(rule_id):
        _put_into_trash(connection, present)
        rulebook.forget_vectors(connection, [rule_id])
    upsert_rows(connection, "rules", ("id",), [row])
    connection.execute("delete from rule_uses where rule_id = ?", (rule_id,))
    # In the trash of earlier versions they have no names.
    named = "rule_id id occasion task useful used_at".split()
    uses: list[Json] = [
        use if "id" in use else dict(zip(named, (rule_id, *use), strict=True)) for use in content["uses"]
    ]
    upsert_rows(connection, "rule_uses", ("id",), uses)
    connection.execute("update user_instructions set rule_id = null where rule_id = ?", (rule_id,))
    sql = "update user_instructions set rule_id = ? where id in (select value from json_each(?))"
    connection.execute(sql, (rule_id, json.dumps(content["instructions"])))
    bump_generations(connection, "content", "signs")
