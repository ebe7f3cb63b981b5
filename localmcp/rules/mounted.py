"""Rules of the files that are mounted beside yours: found and listed with them, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from localmcp.rules import rulebook
from localmcp.rules.relevance import Match, Task, match_rules
from localmcp.rules.rulebook import Rule, Selection, digest_of, load_rules
from localmcp.search.federation import Federation, MountedFile
from localmcp.storage.database import fetch_all, fetch_one, read_generations

if TYPE_CHECKING:
    from localmcp.embeddings import ModelIdentity


class MountedRules:
    """Reads the rules of mounted files; those whose text your file holds count as yours.

    Thread-safe. `own` is a connection to your file; what cannot be read is told in `notices`.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def are_there(self, notices: list[str]) -> bool:
        """Whether any mounted file has rules in force."""
        return any(self._federation.read_mounted(lambda _, theirs: rulebook.has_rules(theirs), notices))

    def match(
        self, own: apsw.Connection, identity: ModelIdentity, task: Task, selection: Selection, notices: list[str]
    ) -> list[Match]:
        """Return the rules of mounted files, read by the model in use, that are near the task; relevance is not set."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> list[Match] | None:
            collection = rulebook.find_collection(theirs)
            if collection is None or not rulebook.has_rules(theirs):
                return None
            if collection.model_id is None or not rulebook.is_bound_to(theirs, collection, identity):
                notices.append(_not_read(mounted_file))
                return None
            index = mounted_file.index("keyword")
            blocks = index.sign_blocks(theirs, collection.model_id, read_generations(theirs), [collection.id])
            matches = match_rules(theirs, task, collection, blocks, selection, mounted_file.name)
            return [match for match in matches if not _holds_text(own, match.rule)]

        return [match for matches in self._federation.read_mounted(look, notices) for match in matches]

    def standing(self, own: apsw.Connection, selection: Selection, notices: list[str]) -> list[Rule]:
        """The rules that hold for every task."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> list[Rule]:
            rules = rulebook.standing_rules(theirs, selection, mounted_file.name)
            return [rule for rule in rules if not _holds_text(own, rule)]

        return [rule for rules in self._federation.read_mounted(look, notices) for rule in rules]

    def list_rules(self, own: apsw.Connection, selection: Selection, limit: int) -> list[tuple[list[Rule], int]]:
        """The newest `limit` rules of each mounted file that has any, and how many it has."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> tuple[list[Rule], int] | None:
            rules, total = _newest(theirs, own, mounted_file.name, selection, limit)
            return (rules, total) if total else None

        return self._federation.read_mounted(look)


def _not_read(mounted_file: MountedFile) -> str:
    return (
        f"{mounted_file.name} (mounted): its rules were not read by the model in use, and are not searched. "
        f"Take them into your file with: localmcp merge {mounted_file.database.path}"
    )


def _holds_text(connection: apsw.Connection, rule: Rule) -> bool:
    """Whether the same text is here in the same project; also retired, since who retired it wants it from nobody."""
    sql = "select 1 from rules where digest = ? and project is ? limit 1"
    return bool(fetch_one(connection, sql, (digest_of(rule.rule_text), rule.project)))


def _newest(
    connection: apsw.Connection, own: apsw.Connection, origin: str, selection: Selection, limit: int
) -> tuple[list[Rule], int]:
    """The newest rules of a mounted file, and how many there are, without those that your file holds."""
    condition, bindings = selection.condition()
    own_digests = set(fetch_all(own, "select digest, project from rules"))
    rows = fetch_all(connection, f"select id, digest, project from rules where {condition}", bindings)
    ids = sorted((rule_id for rule_id, *same in rows if tuple(same) not in own_digests), reverse=True)
    return list(load_rules(connection, ids[:limit], origin).values()), len(ids)
