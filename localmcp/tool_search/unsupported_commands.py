"""What a catalogue has no tool for: a query that is nearer to that than to what its tools do has no tool.

Each thing that a tool's name speaks of ("channel in slack") is put into short commands. Those that a tool carries out
are set against the others: "list channel in slack" against "create a new channel in slack".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localmcp.tool_search.query import ToolText
from localmcp.tool_search.synonyms import actions_of
from localmcp.wording.normalize import stem, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmcp.embeddings import Embedder
    from localmcp.text_vectors import TextVectors

MOST_THINGS, SAMPLED = 400, 24
"""With more things than that only the commands about some of them are embedded, and the others put together from what
these have in common: there are some twenty for each thing, and each takes a few milliseconds."""
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
        missing, offered = self.missing @ query, self.offered @ query
        return _nearer(missing, offered), float(missing.max())


@dataclass(frozen=True, slots=True)
class ComposedCommands:
    """Commands as share x thing + rest, with a share and a rest for each kind of command: near the embedded ones by a
    cosine of 0.93."""

    things: NDArray[np.float32]
    """Unit rows (things, dimension)."""
    shares: NDArray[np.float32]
    """(kinds,)"""
    rests: NDArray[np.float32]
    """(kinds, dimension)"""
    carried_out: NDArray[np.bool_]
    """Whether a tool does this kind of thing to this thing: (things, kinds)."""
    named: NDArray[np.float32]
    """What tools carry out by their names: unit rows (commands, dimension)."""
    lengths: NDArray[np.float32]
    """Of the composed vectors: (things, kinds)."""

    def nearness(self, query: NDArray[np.float32]) -> tuple[float, float]:
        """As `Commands.nearness`."""
        import numpy as np

        to_things, to_rests = (self.things @ query)[:, None], self.rests @ query
        cosines = ((to_things * self.shares + to_rests) / self.lengths).astype(np.float32, copy=False)
        missing = cosines[~self.carried_out]
        return _nearer(missing, np.concatenate([cosines[self.carried_out], self.named @ query])), float(missing.max())


def _nearer(missing: NDArray[np.float32], offered: NDArray[np.float32]) -> float:
    import numpy as np

    sums = [float(np.log(np.exp(SHARPNESS * cosines).sum())) for cosines in (missing, offered)]
    return (sums[0] - sums[1]) / SHARPNESS


def command_vectors(
    tools: Sequence[ToolText], services: Sequence[str], embedder: Embedder, kept: TextVectors
) -> Commands | ComposedCommands | None:
    """The commands about the things of these tools; None where there is none to set against another.

    Args:
        services: the program that each tool belongs to, "" where none is known.

    Raises:
        ModelUnavailable: the model fails.
    """

    things = _things(tools, services)
    if len(things) > MOST_THINGS:
        return _compose(things, embedder, kept)
    offered, missing = _commands(things)
    if not offered or not missing:
        return None
    rows = kept.rows([*offered, *missing], embedder)
    return Commands(rows[: len(offered)], rows[len(offered) :])


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


def _compose(things: Mapping[str, Sequence[ToolText]], embedder: Embedder, kept: TextVectors) -> ComposedCommands:
    import numpy as np

    templates = [command for _, command in (*BY_KIND, *BY_VERB)]
    sample = list(things)[:: max(1, len(things) // SAMPLED)][:SAMPLED]
    plain, vectors = kept.rows(sample, embedder), kept.rows(list(things), embedder)
    centre = plain.mean(0)
    shares, rests = np.zeros(len(templates), np.float32), np.zeros((len(templates), plain.shape[1]), np.float32)
    for place, template in enumerate(templates):
        said = kept.rows([template.format(thing) for thing in sample], embedder)
        shares[place] = ((plain - centre) * (said - said.mean(0))).sum() / ((plain - centre) ** 2).sum()
        rests[place] = said.mean(0) - shares[place] * centre
    carried_out = np.array([[*_offers(tools)] for tools in things.values()], bool)
    own = dict.fromkeys(_named(each, thing) for thing, tools in things.items() for each in tools)
    named = kept.rows(list(own), embedder)
    squares = shares**2 + 2 * shares * (vectors @ rests.T) + (rests**2).sum(1)
    lengths = np.sqrt(np.maximum(squares, 1e-6)).astype(np.float32)
    return ComposedCommands(vectors, shares, rests, carried_out, named, lengths)


def _offers(tools: Sequence[ToolText]) -> Iterator[bool]:
    """Whether one of these tools carries out each command, in the order of `BY_KIND` and `BY_VERB`."""
    kinds = frozenset[str]().union(*(each.actions for each in tools))
    verbs = frozenset[str]().union(*(each.weights for each in tools))
    yield from (kind in kinds for kind, _ in BY_KIND)
    yield from (stem(verb, "english") in verbs for verb, _ in BY_VERB)


def _named(each: ToolText, thing: str) -> str:
    verb = next((word for word in each.parts if actions_of(stem(word, "english"))), "")
    return f"{verb} {thing}".strip()


def _commands(things: Mapping[str, Sequence[ToolText]]) -> tuple[list[str], list[str]]:
    """What a tool carries out, and what none does; a text stands once in either."""
    offered: dict[str, None] = {}
    missing: dict[str, None] = {}
    for thing, tools in things.items():
        for (_, command), is_offered in zip((*BY_KIND, *BY_VERB), _offers(tools), strict=True):
            (offered if is_offered else missing)[command.format(thing)] = None
        offered.update(dict.fromkeys(_named(each, thing) for each in tools))
    return list(offered), [text for text in missing if text not in offered]
