"""Rules: by category, or as the assistant would get them for a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import on
from textual.content import Content
from textual.widgets import OptionList

from localmcp.errors import InvalidInput
from localmcp.index.federation import never_changed
from localmcp.schemas import Json
from localmcp.tui.forms import FormScreen, ask_screen, confirm
from localmcp.tui.lists import ListPane, Row, left_out
from localmcp.tui.messages import Failed
from localmcp.tui.passages import bar

MOST_LISTED = 1000
NEAR = 0.3
"""Relevance from which a rule is shown as near, though the assistant would not get it."""
DUPLICATE = (
    "Nothing was added: rule {} says nearly the same: “{}”. On duplicate: count = it counts towards that one, "
    "add = keep both."
)
GIVEN, NOT_GIVEN = "The assistant would get these", "Near, but not relevant enough"
STANDING = "These hold for every task"
EMPTY = (
    "[b]No rules yet[/b]\n\n"
    "A rule is something you want assistants to keep to, such as “Commit messages are imperative”.\n"
    "They get the ones that fit a task, and only those.\n\n"
    "[b]a[/b]  add one\n[b]i[/b]  import a CLAUDE.md, AGENTS.md or .cursorrules\n\n"
    "[$muted]from a shell: localmcp rules import FOLDER[/]"
)
NO_RETIRED = "[b]No retired rules[/b]\n\n[b]R[/b] shows those in force."
NONE_FITS = (
    "[b]No rule fits this task[/b]\n\n[$muted]The assistant would get none. "
    "[/][b]esc[/b][$muted], then [/][b]a[/b][$muted] adds one.[/]"
)


class RulesPane(ListPane):
    TITLE, KEY_GROUP = "Rules", "rules"
    PLACEHOLDER, LIST_TITLE, VIEW_TITLE = "Describe a task: which rules would it get?", "Rules", "Rule"
    ABOUT = (
        "What assistants are to keep to. Without words: every rule by category. Describe a task and you see the rules "
        "that the assistant would get for it, with their relevance and the reason."
    )
    NEED_ROW = ("edit", "copy")

    retired = False
    _note = ""
    """Of the last answer, shown where no rule is."""

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        self._note = ""
        if text and not self.retired:
            return self._find_for_task(text)
        listed = self.session.look(
            lambda w: w.rules.list_rules(retired=self.retired, words=text or None, limit=MOST_LISTED)
        )
        return [_row(dict(rule), rule["category"]) for rule in sorted(listed["rules"], key=lambda r: r["category"])]

    def _find_for_task(self, task: str) -> list[Row]:
        """Return the rules of the tool's answer, then those that were nearly relevant."""
        answer = self.session.draft("getRelevantRules", taskDescription=task, maxResults=20).answer.value
        self._note = answer.get("error") or " ".join(answer.get("notices", []))
        if not answer["success"]:
            return []
        near = self.session.look(
            lambda w: w.rule_finder.get_relevant_rules(task, maxResults=20, similarityThreshold=NEAR)
        ).get("rules", [])
        given, standing = answer["rules"], answer.get("always", [])
        known = {rule["id"] for rule in (*given, *standing)}
        parts = {GIVEN: given, STANDING: standing, NOT_GIVEN: [dict(r) for r in near if r["id"] not in known]}
        return [_row(rule, title) for title, rules in parts.items() for rule in rules]

    def show_rows(self, rows: Sequence[Row]) -> None:
        super().show_rows(rows)
        self.say_aside("retired" if self.retired else "for a task" if self.text else "")

    def show_nothing(self) -> None:
        text = Content.from_markup(NO_RETIRED if self.retired else NONE_FITS if self.text else EMPTY)
        self.show(self.VIEW_TITLE, Content.styled(self._note, "$warning") if self._note else text)

    @on(OptionList.OptionSelected, "#list")
    def read_or_edit(self) -> None:
        """Enter: change it; on a narrow screen read it first."""
        if not self.is_narrow:
            self.action_edit()
        elif row := self.chosen:
            self.read_over("Rule", row.about, row.record["rule_text"])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("retire", "restore"):
            return bool(self.rows) and (action == "restore") == self.retired
        return super().check_action(action, parameters)

    def _form(self, tool: str, title: str, values: Json | None = None, **fixed: Any) -> None:
        """Open a form of the tool's schema without the `fixed` arguments."""

        def schema() -> Json:
            schema_of_tool = self.session.workspace.registry.get(tool).input_schema
            properties = {name: spec for name, spec in schema_of_tool["properties"].items() if name not in fixed}
            return {**schema_of_tool, "properties": properties}

        def save(arguments: Json) -> Json:
            answer = self.session.call(tool, **fixed, **arguments)
            if twin := answer.get("duplicate"):
                # The form stays open, with what was written.
                raise InvalidInput(DUPLICATE.format(twin["id"], twin["rule_text"].rstrip(".")))
            return answer

        def open_form(fields: Json) -> None:
            ask_screen(self, FormScreen(title, fields, save, values), self._changed)

        self.ask("form", schema, open_form)

    def _changed(self, answer: Json) -> None:
        notice = f" {answer['notice']}" if "notice" in answer else ""
        self.app.notify(answer["message"] + notice, severity="information" if answer["success"] else "warning")
        self.reload()

    def action_add(self) -> None:
        self._form("addRule", "Add a rule")

    def action_edit(self) -> None:
        rule = self._own_rule()
        if rule is None:
            return
        values = {**rule, "alwaysApply": bool(rule.get("always_apply"))}
        self._form("editRule", f"Change rule {rule['id']}", values, id=rule["id"])

    def _own_rule(self) -> Json | None:
        """Return the highlighted rule, if it can be changed; else show why not, and return None."""
        rule: Json | None = self.chosen.record if self.chosen is not None else None
        if rule is None or "origin" not in rule:
            return rule
        self.app.post_message(Failed(never_changed(f"Rule {rule['id']}", rule["origin"])))
        return None

    def action_retire(self) -> None:
        if rule := self._own_rule():
            more = f"“{rule['rule_text']}”\n\nAssistants no longer get it; R and u bring it back."
            confirm(self, "Retire this rule?", more, "Retire", lambda: self._do("retireRule", rule["id"]))

    def action_restore(self) -> None:
        if row := self.chosen:
            self._do("restoreRule", row.record["id"])

    def _do(self, tool: str, rule_id: int) -> None:
        self.ask("change", lambda: self.session.call(tool, id=rule_id), self._changed)

    def action_retired(self) -> None:
        self.retired = not self.retired
        self.list.highlighted = None  # none of these rules is among those
        self.reload()

    def action_copy(self) -> None:
        if row := self.chosen:
            self.copy(row.record["rule_text"], "The rule is copied.")

    def action_import(self) -> None:
        says = "CLAUDE.md, AGENTS.md, .cursorrules, a Markdown list, JSON Lines; or the folder of a project."
        self.import_file("Import rules", says, "importRules", self._imported)

    def _imported(self, report: Json) -> None:
        counts = f"{report['added']} added, {report['known']} known already"
        skipped = f", {left_out(report['skipped'])}" if report["skipped"] else ""
        self.app.notify(f"{counts}{skipped}.")
        self.reload()


def _row(rule: Json, group: str) -> Row:
    if "relevance_score" in rule:
        head = f"{bar(rule['relevance_score'] * 100)} {rule['relevance_score']:.2f} "
    else:
        head = "! " if rule.get("always_apply") else "  "
    title = Content.assemble((head, "$accent"), rule["rule_text"])
    return Row(f"{rule.get('origin', '')} {rule['id']}", title, rule_words(rule), group, rule)


def rule_words(row: Json) -> Content:
    """Return a rule with all of its facts."""
    facts = {
        "category": row.get("category"),
        "when": row.get("context"),
        "why": "; ".join(row.get("why", [])),
        "relevance": f"{row['relevance_score']:.2f}   cosine {row['cosine']:.2f}" if "cosine" in row else "",
        "project": row.get("project"),
        "files": ", ".join(row.get("globs", [])),
        "always": "holds for every task" if row.get("always_apply") else "",
        "weight": f"{row['weight']:g}" if row.get("weight", 1) != 1 else "",
        "applied": f"last {row['last_applied'][:10]}" if row.get("last_applied") else "",
        "id": str(row["id"]),
    }
    lines = [Content.assemble((f"{name:<10}", "$muted"), value) for name, value in facts.items() if value]
    return Content("\n").join([Content.styled(row["rule_text"], "bold"), Content(""), *lines])
