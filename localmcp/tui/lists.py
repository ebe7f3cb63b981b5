"""Rules by category, or as the assistant would get them; quick starts; the calls of this file, live."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.errors import InvalidInput
from localmcp.humanize import counted, cut_to, local_time
from localmcp.index.federation import never_changed
from localmcp.schemas import Json, mapping_of
from localmcp.tui.dialogs import PATH, TextScreen
from localmcp.tui.markdown import passages_content
from localmcp.tui.tools import Command, Run, call_tool, describe_answer, form_of, start, tool_schema
from localmcp.tui.widgets import Pane, Quiet, Row, bar, lines

MOST_LISTED = 1000
NEAR = 0.3
"""Relevance from which a rule is shown as near, though the assistant would not get it."""
EMPTY = (
    "[b]No rules yet[/b]\n\n"
    "A rule is something you want assistants to keep to, such as “Commit messages are imperative”.\n"
    "They get the ones that fit a task, and only those.\n\n"
    "[b]a[/b]  add one\n[b]i[/b]  import a CLAUDE.md, AGENTS.md or .cursorrules\n\n"
    "[$muted]from a shell: localmcp rules import FOLDER[/]"
)
NONE_FITS = "[b]No rule fits this task[/b]\n\n[$muted]The assistant would get none; [/][b]a[/b][$muted] adds one.[/]"


class RulesPane(Pane):
    LIST_TITLE = "Rules"
    PLACEHOLDER = "Describe a task: which rules would it get?"
    NEED_ROW = ("edit", "copy")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", "Add"), Binding("e", "edit", "Edit"), Binding("d", "retire", "Retire"),
        Binding("u", "restore", "Restore"), Binding("R", "toggle('retired')", "Retired ones"),
        Binding("i", "import", "Import"), Quiet("y", "copy", "Copy"),
    ]  # fmt: skip
    HELP = """\
    What assistants are to keep to. Without words: every rule by category. Describe a task and you see the rules that
    the assistant would get for it, with their relevance and the reason.
    """

    retired = False
    _note = ""
    """Of the last answer, shown where no rule is."""

    def find(self, text: str) -> list[Row]:
        self._note = ""
        if not text or self.retired:
            listed = self.session.read("listRules", retired=self.retired, words=text or None, limit=MOST_LISTED)
            return [_row(rule, rule["category"]) for rule in sorted(listed["rules"], key=lambda r: r["category"])]
        # The rules of the tool's answer, then those that were nearly relevant.
        ask = partial(self.session.read, "getRelevantRules", taskDescription=text, maxResults=20)
        answer = ask()
        self._note = answer.get("error") or " ".join(answer.get("notices", []))
        if not answer["success"]:
            return []
        near, standing = ask(similarityThreshold=NEAR).get("rules", []), answer.get("always", [])
        shown = {rule["id"] for rule in (*answer["rules"], *standing)}
        parts = {
            "The assistant would get these": answer["rules"], "These hold for every task": standing,
            "Near, but not relevant enough": [rule for rule in near if rule["id"] not in shown],
        }  # fmt: skip
        return [_row(rule, title) for title, rules in parts.items() for rule in rules]

    def title(self) -> str:
        return "Retired rules" if self.retired else self.LIST_TITLE

    def nothing(self) -> str:
        if note := self._note.replace("[", r"\["):
            return f"[$warning]{note}[/]"
        return "[b]No retired rules[/b]" if self.retired else NONE_FITS if self.text else EMPTY

    def action_open(self) -> None:
        """Enter: change it; on a narrow screen read it first."""
        if self.screen.has_class("-narrow"):
            self.action_read()
        else:
            self.action_edit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("retire", "restore"):
            return bool(self.rows) and (action == "restore") == self.retired
        return super().check_action(action, parameters)

    def _change(self, title: str, tool: str, *, values: Json | None = None, warning: str = "", **fixed: Any) -> None:
        form = tool_schema(tool, *fixed) if values is not None or not fixed else None
        command = Command(title, "", partial(_save, tool, **fixed), form=form, warning=warning)
        start(self, command, self._changed, values)

    def action_add(self) -> None:
        self._change("Add a rule", "addRule")

    def action_edit(self) -> None:
        if rule := self._own_rule():
            values = {**rule, "alwaysApply": bool(rule.get("always_apply"))}
            self._change(f"Change rule {rule['id']}", "editRule", values=values, id=rule["id"])

    def _own_rule(self) -> Json | None:
        rule: Json | None = self.chosen.record if self.chosen is not None else None
        if rule is not None and "origin" in rule:
            raise never_changed(f"Rule {rule['id']}", rule["origin"])
        return rule

    def action_retire(self) -> None:
        if rule := self._own_rule():
            warning = f"“{rule['rule_text']}”\n\nAssistants no longer get it; R and u bring it back."
            self._change("Retire this rule", "retireRule", warning=warning, id=rule["id"])

    def action_restore(self) -> None:
        if row := self.chosen:
            self._change("Restore this rule", "restoreRule", id=row.record["id"])

    def action_import(self) -> None:
        says = "CLAUDE.md, AGENTS.md, .cursorrules, a Markdown list, JSON Lines; or the folder of a project"
        import_path(self, "Import rules", "importRules", says)

    def _changed(self, answer: Json) -> None:
        notice = f" {answer['notice']}" if "notice" in answer else ""
        self.app.notify(answer["message"] + notice, severity="information" if answer["success"] else "warning")
        self.reload()

    def action_copy(self) -> None:
        if row := self.chosen:
            self.copy(row.record["rule_text"], "The rule is copied.")


def _save(tool: str, run: Run, **fixed: Any) -> Json:
    answer = call_tool(tool, run, **fixed)
    if twin := answer.get("duplicate"):
        # The form stays open, with what was written.
        says = f"rule {twin['id']} says nearly the same: “{twin['rule_text'].rstrip('.')}”"
        raise InvalidInput(f"Nothing was added: {says}. On duplicate: count = it counts towards that one, add = both.")
    return answer


def import_path(pane: Pane, title: str, tool: str, says: str) -> None:
    """Ask for a file or folder, let a tool import it, and tell what came of it."""

    def show(report: Json) -> None:
        kinds = ("added", "updated", "unchanged", "known")
        parts = [f"{report[kind]:,} {kind}" for kind in kinds if report.get(kind)]
        if skipped := report["skipped"]:
            parts.append(f"{len(skipped):,} left out: {skipped[0]['where']}: {skipped[0]['problem']}")
        pane.app.notify(", ".join(parts) or "There was nothing to import.")
        pane.reload()

    form = form_of(path={**PATH, "description": says})
    start(pane, Command(title, "", partial(call_tool, tool), form=form), show)


def _row(rule: Json, group: str) -> Row:
    if "relevance_score" in rule:
        head = f"{bar(rule['relevance_score'] * 100)} {rule['relevance_score']:.2f} "
    else:
        head = "! " if rule.get("always_apply") else "  "
    title = Content.assemble((head, "$accent"), rule["rule_text"])
    facts = describe_answer({name: rule[name] for name in rule if name not in ("rule_text", "inserted_at")})
    about = lines(Content.styled(rule["rule_text"], "bold"), "", facts)
    return Row(f"{rule.get('origin', '')} {rule['id']}", title, about, group, rule)


# ---------------------------------------------------------------- quick starts

NO_QUICKSTARTS = (
    "[b]No quick starts yet[/b]\n\n"
    "Quick starts are short guides: tasks to work through, each with a way to check it.\n\n"
    "[b]i[/b]  import a YAML or JSON file, or a folder of them\n\n"
    "[$muted]from a shell: localmcp quickstarts import FOLDER[/]"
)


class QuickstartsPane(Pane):
    LIST_TITLE = "Quick starts"
    PLACEHOLDER = "Words of a title; typing errors are forgiven"
    EMPTY = NO_QUICKSTARTS
    NEED_ROW = ("remove",)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "import", "Import"), Binding("d", "remove", "Remove")]
    HELP = "Short guides. The list follows what you type, as an assistant finds them, typing errors and all."

    def find(self, text: str) -> list[Row]:
        items: list[Json] = self.session.read("listQuickstarts", limit=1000)["quickstarts"]
        if text:
            by_name = {item["name"]: item for item in items}
            hits: list[Json] = self.session.read("searchQuickstarts", displayName=text, limit=50)["results"]
            items = [by_name.get(hit["name"], hit) for hit in hits]
        rows: list[Row] = []
        for item in items:
            about = [item.get("type", ""), f"{item['durationMinutes']} min" if item.get("durationMinutes") else ""]
            about.append(counted(item["tasks"], "task") if item.get("tasks") else "")
            says = (" · ".join(filter(None, about)), "$muted")
            title = Content.assemble("  ", (item["displayName"], "bold"), "\n  ", says)
            rows.append(Row(item["name"], title, record=item))
        return rows

    def show_row(self, row: Row) -> None:
        def show(guide: Json) -> None:
            passage = {"id": guide["markdown"], "content": guide["markdown"], "chunkIndex": 0}
            around = {"chunks": [passage], "format": "markdown", "targetChunkId": ""}
            self.reader.show(guide["displayName"], partial(passages_content, self, around))

        self.ask("guide", lambda: self.session.read("showQuickstart", name=row.key), show)

    def action_remove(self) -> None:
        def removed(_answer: Json) -> None:
            self.app.notify("It is in the trash.")
            self.reload()

        if row := self.chosen:
            title = f"Remove “{row.record['displayName']}”"
            remove = partial(call_tool, "removeQuickstart", names=[row.key])
            start(self, Command(title, "", remove, warning="It goes into the trash."), removed)

    def action_import(self) -> None:
        says = "A YAML or JSON file of quick starts, or a folder of them"
        import_path(self, "Import quick starts", "importQuickstarts", says)


# ---------------------------------------------------------------- calls

SHOWN = 200
"""The latest calls that are listed."""
NO_CALLS = (
    "[b]No calls yet[/b]\n\n"
    "Every call of an assistant shows here: what was asked, which documents it was given, how it ended.\n\n"
    "[$muted]Connect one: [/][b]5[/b][$muted], or from a shell: localmcp connect. "
    "[/][b]m[/b][$muted] shows the calls of this window too.[/]"
)


class ActivityPane(Pane):
    PLACEHOLDER, LIST_TITLE = "Only calls that hold…", "Calls"
    FOLLOWS_TOP, LOOKS_EVERY = True, 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "toggle('only_errors')", "Errors only"), Binding("s", "statistics", "Totals"),
        Binding("m", "toggle('with_own')", "Mine"), Binding("y", "copy", "Copy"),
    ]  # fmt: skip
    HELP = """\
    Calls of assistants, of the command line and of this window (m), the latest first, live. The line and e
    choose among them; s shows what they add up to by tool and by key.
    """

    with_own = only_errors = False

    def find(self, text: str) -> list[Row]:
        without, words, errors = None if self.with_own else "tui", text or None, self.only_errors
        calls, _ = self.session.look(
            lambda w: w.activity.logs(limit=SHOWN, without_caller=without, words=words, errors=errors)
        )
        return list(map(_call_row, calls))

    def title(self) -> str:
        chosen = [self.LIST_TITLE, "errors only" if self.only_errors else "", "with mine" if self.with_own else ""]
        return " · ".join(filter(None, chosen))

    def nothing(self) -> str:
        return "[b]No call fits[/b]" if self.text or self.only_errors else NO_CALLS

    def action_statistics(self) -> None:
        """Show what the calls add up to."""
        self.ask(
            "totals", lambda: self.session.look(lambda w: w.activity.stats()),
            lambda totals: self.app.push_screen(TextScreen("What the calls add up to", describe_answer(totals))),
        )  # fmt: skip

    def action_copy(self) -> None:
        if row := self.chosen:
            self.copy(json.dumps(row.record, ensure_ascii=False), "The call is copied as JSON.")


def _call_row(call: Json) -> Row:
    origin, arguments = mapping_of(call["origin"]), mapping_of(call["arguments"])
    client = call["keyName"] or str(origin.get("client") or call["caller"])
    # Texts say without their names what they are.
    words = (
        value if isinstance(value, str) else f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
    asked = cut_to(" · ".join(" ".join(text.split()) for text in words), 200)
    took = f"{call['milliseconds']:.0f} ms" if call["milliseconds"] < 999.5 else f"{call['milliseconds'] / 1000:.1f} s"
    error = call["error"]
    end = f"✗ {error['message'] or error['class'] or 'error'}" if error else took
    title = Content.assemble(
        (f"{local_time(call['startedAt'])[-8:]} ", "$muted"), (call["tool"], "bold"), f" {asked}\n",
        (f"         {client} · ", "$muted"), (" ".join(end.split()), "$error" if error else "$muted"),
    )  # fmt: skip
    # A line for each document.
    documents = [{"title": document} for document in call["documents"]]
    return Row(str(call["id"]), title, describe_answer({**call, "documents": [], "was given": documents}), record=call)
