"""Other names for arguments: what models and people write where a tool advertises one canonical name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

SAME = (
    ("query", "queries", "q", "question", "task", "taskDescription", "text", "prompt", "displayName", "quote"),
    ("limit", "topK", "maxResults", "n", "k", "size", "numResults"),
    ("offset", "skip", "start"),
    ("sourceId", "path", "document", "documentId", "source", "title", "file", "docId", "id"),
    ("chunkId", "chunk", "passageId", "id", "resultId"),
    ("collection", "collectionName", "knowledgeBase", "ragId"),
    ("partition", "partitionName"),
    ("pathPrefix", "folder", "directory", "prefix"),
    ("maxChars", "maxCharacters", "maxLength", "budget"),
    ("since", "after", "from"),
    ("until", "before", "to"),
    ("groupBy", "group"),
    ("name", "toolName", "tool"),
    ("arguments", "args", "input", "params"),
)
"""Names that mean one thing; a tool has at most one or two of a line."""


def fold_name(name: str) -> str:
    """Return the name without case and underscores, so that `top_k` equals `topK`."""
    return name.replace("_", "").replace("-", "").lower()


_SAME = tuple(frozenset(map(fold_name, names)) for names in SAME)


def canonical_names(arguments: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """Return the arguments under the names that the tool advertises.

    A name in another spelling, or another word for exactly one parameter that is not filled in, is replaced; anything
    else stays as it is and is refused later, with the nearest name.
    """
    if all(name in parameters for name in arguments):
        return dict(arguments)
    by_fold = {fold_name(name): name for name in parameters}
    spelled = {name if name in parameters else by_fold.get(fold_name(name), name): name for name in arguments}
    free = [name for name in parameters if name not in spelled]
    return {_meant(name, free) if name not in parameters else name: arguments[old] for name, old in spelled.items()}


def _meant(name: str, free: list[str]) -> str:
    folded = fold_name(name)
    lines = [line for line in _SAME if folded in line]
    fitting = [parameter for parameter in free if any(fold_name(parameter) in line for line in lines)]
    return fitting[0] if len(fitting) == 1 else name
