"""Importing rules from the files people have, and exporting them again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.files import expand_home
from localmcp.rules import rulebook
from localmcp.rules.catalog import RuleCatalog
from localmcp.rules.files import (
    FILE_NAMES,
    KNOWN_FILES,
    Format,
    ImportProblem,
    Reading,
    find_rule_files,
    read_file,
    read_text,
    write_rules,
)
from localmcp.rules.rulebook import RuleDraft, Selection, digest_of
from localmcp.tools import Param, current_scope, hidden_change, hidden_tool

IMPORTED_AT_ONCE = 200


class RuleImport(TypedDict):
    """What an import did; `known` were there already."""

    added: int
    known: int
    files: list[str]
    skipped: list[ImportProblem]
    message: NotRequired[str]


class ExportedFile(TypedDict):
    """A file as text."""

    name: str
    text: str


class RuleExport(TypedDict):
    """The answer of `exportRules`."""

    count: int
    format: str
    files: list[ExportedFile]
    notices: NotRequired[list[str]]


def rule_files_in(path: Path) -> list[Path]:
    """Return the file itself, or the rule files of a project folder.

    Raises:
        NotFound: there is no such path, or the folder holds no rule files.
    """
    expanded = expand_home(path)
    if not os.path.exists(expanded):
        raise NotFound(f"There is no file or folder {expanded}.")
    rule_files = find_rule_files(expanded)
    if not rule_files:
        raise NotFound(f"{expanded} holds no rule files.", hint=f"Looked for are {', '.join(KNOWN_FILES)}.")
    return rule_files


class RuleFiles:
    """Reads and writes files of rules."""

    def __init__(self, catalog: RuleCatalog) -> None:
        self._catalog = catalog

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
    ) -> RuleImport:
        """Import rules from CLAUDE.md, AGENTS.md, .cursorrules, .cursor/rules/*.mdc, Copilot instructions, Markdown
        lists or JSON Lines. Known rules are left as they are; what cannot be read is reported with its line."""
        if (path is None) == (text is None):
            raise InvalidInput("Give either path or text.")
        if text is not None:
            name = "rules.mdc" if format == "mdc" else FILE_NAMES[format]
            return self._import([("text", read_text(text, Path(name).name, "text"))], project)
        if not current_scope().trusted:
            raise AccessDenied("Files are imported by the person at the machine; hand over text instead.")
        return self.import_paths([Path(path or "")], project)

    def import_paths(self, paths: Iterable[Path], project: str | None = None) -> RuleImport:
        """Import files, and the rule files of project folders; raises what `rule_files_in` raises."""
        readings: list[tuple[str, Reading]] = []
        for path in paths:
            readings += [(str(file), read_file(file)) for file in rule_files_in(path)]
        return self._import(readings, project)

    def _import(self, readings: list[tuple[str, Reading]], project: str | None) -> RuleImport:
        all_drafts = [draft for _, reading in readings for draft in reading.drafts]
        drafts = [replace(draft, project=draft.project or project) for draft in all_drafts]
        fresh = self._unknown(drafts)
        for start in range(0, len(fresh), IMPORTED_AT_ONCE):
            self._catalog.store(fresh[start : start + IMPORTED_AT_ONCE])
        return {
            "added": len(fresh),
            "known": len(drafts) - len(fresh),
            "files": [name for name, _ in readings],
            "skipped": [problem for name, reading in readings for problem in reading.problems or _empty(name, reading)],
        }

    def _unknown(self, drafts: list[RuleDraft]) -> list[RuleDraft]:
        """Return those whose text is neither in the file nor earlier among them."""
        distinct: set[tuple[bytes, str | None]] = set()
        fresh: list[RuleDraft] = []
        with self._catalog.database.read() as connection:
            for draft in drafts:
                key = (digest_of(draft.rule_text), draft.project)
                if key not in distinct and rulebook.find_same(connection, draft.rule_text, draft.project) is None:
                    fresh.append(draft)
                distinct.add(key)
        return fresh

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
    ) -> RuleExport:
        """Return the rules as files that can be imported again."""
        retired = {"inForce": False, "retired": True, "all": None}[which]
        selection = Selection(category.strip().lower() if category else None, project or None, retired)
        with self._catalog.database.read() as connection:
            hidden = rulebook.is_hidden(connection)
            rules = [] if hidden else rulebook.select_rules(connection, selection)
            notices = [] if hidden or rules else rulebook.unknown_category(connection, selection.category)
        files = write_rules(rules[::-1], format)
        result: RuleExport = {
            "count": len(rules),
            "format": format,
            "files": [{"name": name, "text": text} for name, text in files.items()],
        }
        return {**result, "notices": notices} if notices else result


def _empty(name: str, reading: Reading) -> list[ImportProblem]:
    """Return why a file without problems gave nothing."""
    reason = "no rules in it: a rule is a list item, such as “- Use tabs.”"
    return [] if reading.drafts else [{"where": name, "problem": reason}]
