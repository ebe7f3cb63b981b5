"""Other names for arguments: what models and people write where a tool advertises one canonical name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

SAME = (
    ("query", "queries", "q", "question", "task", "taskDescription", "text", "texts", "prompt", "displayName", "quote"),
    ("limit", "topK", "maxResults", "n", "k", "size", "numResults"),
    ("offset", "skip", "start"),
    ("pathPrefix", "folder", "directory", "prefix", "path"),
    ("sourceId", "path", "document", "documentId", "source", "title", "file", "docId", "id", "filePath", "folder",
     "directory"),
    ("chunkId", "chunk", "passageId", "id", "resultId"),
    ("collection", "collectionName", "knowledgeBase", "ragId"),
    ("partition", "partitionName"),
    ("maxChars", "maxCharacters", "maxLength", "budget"),
    ("since", "after", "from"),
    ("until", "before", "to"),
    ("groupBy", "group"),
    ("lines", "lineRange", "range"),
    ("name", "toolName", "tool", "function"),
    ("arguments", "args", "input", "params"),
    ("text", "content", "body", "markdown", "instruction", "rule", "ruleText"),
    ("title", "name", "heading"),
)  # fmt: skip
"""Names that mean the same; of two lines with a word, the first with a parameter that is free counts."""
NEAR = {"startline": "lines", "endline": "lines", "linestart": "lines", "lineend": "lines", "page": "offset"}
"""Folded name -> the parameter that takes it in another form."""


def fold_name(name: str) -> str:
    """Return the name without case and underscores, so that `top_k` equals `topK`."""
    return name.replace("_", "").replace("-", "").lower()


_SAME = tuple(frozenset(map(fold_name, names)) for names in SAME)
_WRAPPERS = frozenset({"arguments", "args", "input", "params", "parameters", "kwargs"})


def canonical_names(arguments: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """Return the arguments under the names that the tool advertises.

    A name in another spelling, or another word for a parameter that is not given, is replaced. Arguments that are all
    nested under one name, such as `arguments`, are unwrapped. Anything else stays as it is and is refused later, with
    the nearest name.
    """
    if all(name in parameters for name in arguments):
        return dict(arguments)
    by_fold = {fold_name(name): name for name in parameters}
    free = [name for name in parameters if name not in arguments]
    meant: dict[str, Any] = {}
    for name, value in arguments.items():
        parameter = name if name in parameters else by_fold.get(fold_name(name)) or _synonym(name, free)
        if parameter is None and len(arguments) == 1 and fold_name(name) in _WRAPPERS and isinstance(value, Mapping):
            return canonical_names(cast("Mapping[str, Any]", value), parameters)
        parameter = name if parameter is None or parameter in meant else parameter
        free = [name for name in free if name != parameter]
        meant[parameter] = value
    return meant


def _synonym(name: str, free: Sequence[str]) -> str | None:
    folded = fold_name(name)
    lines = (line for line in _SAME if folded in line)
    return next((parameter for line in lines for parameter in free if fold_name(parameter) in line), None)
