"""What a catalogue has no tool for: a query that is nearer to that than to what its tools do has no tool.

Each thing that a tool's name speaks of ("channel in slack") is put into short commands. Those that a tool carries out
are set against the others: "list channel in slack" against "create a new channel in slack".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localmcp.search.tool_synonyms import actions_of
from localmcp.search.tool_texts import ToolText
from localmcp.text.normalize import stem, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmcp.embeddings import Embedder
    from localmcp.search.text_vectors import TextVectors

MOST_THINGS = 400
"""Beyond that no commands are made: some twenty for each thing, and a few milliseconds for each command."""
SHARPNESS = 30.0
"""How much the nearest command counts before the others."""

BY_KIND = (
    ("create", "create a new {}"),
    ("delete", "delete {}"),
    ("change", "edit {}"),
    ("change", "rename {}"),
    ("read", "show {}"),
    ("find", "search {}"),
    ("send", "share {} with someone"),
    ("start", "start {}"),
    ("stop", "stop {}"),
    ("receive", "download {}"),
    ("travel", "buy {}"),
)
"""Kind of action, see `tool_synonyms.ACTIONS`, and a command of that kind."""
BY_VERB = (
    ("upload", "upload {}"),
    ("pin", "pin {}"),
    ("invite", "invite someone to {}"),
    ("move", "move {}"),
    ("follow", "follow {}"),
    ("lock", "lock {}"),
    ("print", "print {}"),
    ("rate", "rate {}"),
    ("copy", "copy {}"),
    ("merge", "merge {}"),
    ("sign", "sign {}"),
)
"""A verb that is of no kind, or not only, and its command; a tool carries it out that has the verb."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Unit vectors of commands about the things of a catalogue."""

    offered: NDArray[np.float32]
    """What a tool carries out: (commands, dimension)."""
    missing: NDArray[np.float32]
    """What none does: (commands, dimension)."""

    def nearness(self, query: NDArray[np.float32]) -> tuple[float, float]:
        """How much nearer the query is to what is missing than to what is offered, and the cosine of the nearest
        command that is missing."""
        import numpy as np

        missing, offered = self.missing @ query, self.offered @ query
        sums = [float(np.log(np.exp(SHARPNESS * cosines).sum())) for cosines in (missing, offered)]
        return (sums[0] - sums[1]) / SHARPNESS, float(missing.max())


def command_vectors(
    tools: Sequence[ToolText], services: Sequence[str], embedder: Embedder, kept: TextVectors
) -> Commands | None:
    """The commands about the things of these tools; None where they speak of too many things.

    Args:
        services: the program that each tool belongs to, "" where none is known.

    Raises:
        ModelUnavailable: the model fails.
    """
    import numpy as np

    things = _things(tools, services)
    if not things or len(things) > MOST_THINGS:
        return None
    offered, missing = _commands(things)
    if not offered or not missing:
        return None
    known = kept.of([*offered, *missing], embedder)
    return Commands(np.stack([known[text] for text in offered]), np.stack([known[text] for text in missing]))


def _things(tools: Sequence[ToolText], services: Sequence[str]) -> Mapping[str, list[ToolText]]:
    """What the tools' names speak of -> the tools that do."""
    found: dict[str, list[ToolText]] = {}
    for each, service in zip(tools, services, strict=True):
        of_service = words(service)
        own = [word for word in each.parts if word not in of_service and not actions_of(stem(word, "english"))]
        program = " ".join(of_service)
        thing = " ".join(own) or program or " ".join(each.parts)
        found.setdefault(f"{thing} in {program}" if own and program else thing, []).append(each)
    return found


def _commands(things: Mapping[str, Sequence[ToolText]]) -> tuple[list[str], list[str]]:
    """What a tool carries out, and what none does; a text stands once in either."""
    offered: dict[str, None] = {}
    missing: dict[str, None] = {}
    for thing, tools in things.items():
        kinds = frozenset[str]().union(*(each.actions for each in tools))
        verbs = frozenset[str]().union(*(each.weights for each in tools))
        for kind, command in BY_KIND:
            (offered if kind in kinds else missing)[command.format(thing)] = None
        for verb, command in BY_VERB:
            (offered if stem(verb, "english") in verbs else missing)[command.format(thing)] = None
        for each in tools:
            verb = next((word for word in each.parts if actions_of(stem(word, "english"))), "")
            offered[f"{verb} {thing}".strip()] = None
    return list(offered), [text for text in missing if text not in offered]
