"""Rules: by category, or as the assistant would get them for a task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList, Static

from localmcp.errors import InvalidInput
from localmcp.index.federation import never_changed
from localmcp.schemas import Json
from localmcp.tui.dialogs import TextScreen, ask_screen, confirm
from localmcp.tui.finder import FinderPane, left_out
from localmcp.tui.form_screen import FormScreen
from localmcp.tui.highlight import bar
from localmcp.tui.messages import Failed

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


class RulesPane(FinderPane):
    TITLE, KEY_GROUP = "Rules", "rules"
    PLACEHOLDER, LIST_TITLE = "Describe a task: which rules would it get?", "Rules"
    ABOUT = (
        "What assistants are to keep to. Without words: every rule by category. Describe a task and you see the rules "
        "that the assistant would get for it, with their relevance and the reason."
    )

    retired = False

    def compose_right(self) -> Iterable[Widget]:
        with VerticalScroll(classes="framed", id="rule") as box:
            box.border_title = "Rule"
            yield Static(id="rule-text")

    def find(self, text: str) -> tuple[list[Any], str]:
        """Return the rows that fit, and a note about them."""
        if not self.session.exists:
            return [], ""
        if text and not self.retired:
            return self._find_for_task(text)
        listed = self.session.look(
            lambda w: w.rules.list_rules(retired=self.retired, words=text or None, limit=MOST_LISTED)
        )
        return _by_category([dict(rule) for rule in listed["rules"]]), ""

    def _find_for_task(self, task: str) -> tuple[list[Any], str]:
        """Return the rules of the tool's answer, then those that were nearly relevant."""
        answer = self.session.draft("getRelevantRules", taskDescription=task, maxResults=20).answer.value
        if not answer["success"]:
            return [], answer.get("error", "")
        near = self.session.look(
            lambda w: w.rule_finder.get_relevant_rules(task, maxResults=20, similarityThreshold=NEAR)
        ).get("rules", [])
        relevant_ids = {rule["id"] for rule in (*answer["rules"], *answer.get("always", []))}
        parts = {
            GIVEN: answer["rules"],
            STANDING: answer.get("always", []),
            NOT_GIVEN: [dict(rule) for rule in near if rule["id"] not in relevant_ids],
        }
        rows = [row for title, rules in parts.items() if rules for row in (title, *rules)]
        return rows, " ".join(answer.get("notices", []))

    def show_answer(self, answer: tuple[list[Any], str]) -> None:
        rows, note = answer
        self.show_rows(rows)
        self.say_aside("retired" if self.retired else "for a task" if self.text else "")
        if note:
            self.query_one("#rule-text", Static).update(Content.styled(note, "$warning"))

    def identity(self, row: Json) -> Any:
        return row["id"]

    def draw(self, row: Json) -> Content:
        mark = "! " if row.get("always_apply") else "  "
        if "relevance_score" in row:
            head = Content.styled(f"{bar(row['relevance_score'] * 100)} {row['relevance_score']:.2f} ", "$accent")
        else:
            head = Content.styled(mark, "$accent")
        return Content.assemble(head, row["rule_text"])

    def show_nothing(self) -> None:
        text = NO_RETIRED if self.retired else NONE_FITS if self.text else EMPTY
        self.query_one("#rule-text", Static).update(Content.from_markup(text))

    def show_row(self, row: Json) -> None:
        self.query_one("#rule-text", Static).update(rule_words(row))

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Enter: change it; on a narrow screen read it first."""
        if not self.is_narrow:
            self.action_edit()
        elif rule := self.chosen:
            self.app.push_screen(TextScreen("Rule", rule_words(rule), copy=rule["rule_text"]))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("edit", "copy"):
            return bool(self.rows)
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
        rule = self.chosen
        if rule is None or "origin" not in rule:
            return rule
        self.app.post_message(Failed(never_changed(f"Rule {rule['id']}", rule["origin"])))
        return None

    def action_retire(self) -> None:
        if rule := self._own_rule():
            more = f"“{rule['rule_text']}”\n\nAssistants no longer get it; R and u bring it back."
            confirm(self, "Retire this rule?", more, "Retire", lambda: self._do("retireRule", rule["id"]))

    def action_restore(self) -> None:
        if rule := self.chosen:
            self._do("restoreRule", rule["id"])

    def _do(self, tool: str, rule_id: int) -> None:
        self.ask("change", lambda: self.session.call(tool, id=rule_id), self._changed)

    def action_retired(self) -> None:
        self.retired = not self.retired
        self.list.highlighted = None  # none of these rules is among those
        self.reload()

    def action_copy(self) -> None:
        if rule := self.chosen:
            self.copy(rule["rule_text"], "The rule is copied.")

    def action_import(self) -> None:
        says = "CLAUDE.md, AGENTS.md, .cursorrules, a Markdown list, JSON Lines; or the folder of a project."
        self.import_file("Import rules", says, "importRules", self._imported)

    def _imported(self, report: Json) -> None:
        counts = f"{report['added']} added, {report['known']} known already"
        skipped = f", {left_out(report['skipped'])}" if report["skipped"] else ""
        self.app.notify(f"{counts}{skipped}.")
        self.reload()


def _by_category(rules: list[Json]) -> list[Any]:
    """Return the rules under their categories, by name."""
    names = sorted({rule["category"] for rule in rules})
    return [row for name in names for row in (name, *(rule for rule in rules if rule["category"] == name))]


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
